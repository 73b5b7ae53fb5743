//! `cargo allograft`: projects of every kind, in the slow tier with a real toolchain for musl.

mod commands;
mod project;
mod rust_musl;
