//! The slow tier's tests of `cargo allograft`: projects of every kind, with a real toolchain.

mod project;
mod rust_musl;
