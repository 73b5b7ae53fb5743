//! Fuzzers: builds the targets with counters of what was executed, and runs them.
//!
//! | module | what lives there |
//! | --- | --- |
//! | `build` | the targets, compiled with LLVM's counters and linked with libFuzzer |
//! | `run` | one target for some time |

mod build;
mod run;

pub use build::{Programs, build};
pub use run::{Outcome, minimise, run};
