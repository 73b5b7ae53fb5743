//! `cargo allograft` on projects of every kind, with a real toolchain: the slow tier.

mod builds;
mod measured;
mod project;
mod refusals;
mod targets;
