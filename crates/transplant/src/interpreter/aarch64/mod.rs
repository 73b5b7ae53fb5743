//! aarch64: general registers.

mod decode;
mod execute;
mod flags;
mod processor;

pub(super) use processor::Processor;
