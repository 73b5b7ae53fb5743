//! Other people's projects, built by their own build systems with a donor: their own tests say the same as on stock,
//! and every program that was built has the donor.

mod bazel;
mod built;
mod cargo;
mod cmake;
mod meson;
