//! x86_64: general registers, string instructions, SSE2.

mod decode;
mod flags;
mod general;
mod processor;
mod repeated;
mod vector;

pub(super) use processor::Processor;
