//! Everything that the crate promises, on real archives, real programs and damaged ones.

mod damaged;
mod detection;
mod imitated;
mod programs;
mod verification;
