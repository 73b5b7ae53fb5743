//! What `emit` prints for each build system, used exactly as it is printed: the slow tier.

mod bazel;
mod debian;
mod place;
mod rust_musl;
mod zig;
