//! All of it takes the toolchain with musl targets: `cargo xtask test-slow` leaves out what is called `rust_musl::` on
//! machines for which there is none.

mod builds;
mod measured;
mod refusals;
mod suite;
mod targets;
