//! aarch64: general registers.

mod decode;
mod execute;
mod flags;
mod processor;
#[cfg(test)]
mod tests;

pub(super) use processor::Processor;
