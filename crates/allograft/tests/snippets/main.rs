//! The slow tier's tests of the lines that `emit` prints for each build system, used exactly as printed.

mod bazel;
mod debian;
mod place;
mod rust_musl;
mod zig;
