//! `cargo allograft` on projects of every kind, with a real toolchain: the slow tier.

mod project;
mod rust_musl;
