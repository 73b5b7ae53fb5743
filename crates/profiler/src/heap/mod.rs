//! Heap profiles of grafted programs, and of others that write them as pprof does: what is live, where it came from,
//! and what grew.
//!
//! A profile has addresses only, so that the program that writes it needs no names: they are found here, in the file,
//! in its debug file, and in the unwind tables of a stripped one.

mod error;
mod growth;
mod names;
mod page;
mod reader;
mod report;
mod retention;
mod sites;
#[cfg(test)]
mod tests;

pub use error::HeapError;
pub use growth::{Growth, LIMITS, SiteGrowth};
pub use reader::{Amount, HeapProfile};
pub use report::{Callers, Freed, Heap, HeapReport, HeapSite};
pub use retention::{Holds, Retention};
