//! All of these tests need the toolchain with musl targets. On machines that have none, `cargo xtask test-slow` leaves
//! out the tests whose names contain `rust_musl::`.

mod builds;
mod measured;
mod refusals;
mod suite;
mod targets;
