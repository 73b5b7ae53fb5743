//! Finds out what a program waits for: samples all its threads by wall clock, running and blocked ones, unwinds their
//! stacks, and attributes the time.
//!
//! | module | what lives there |
//! | --- | --- |
//! | `sampler` | the recording of a command or a running process |
//! | `proc` | reads threads from `/proc`, without a stop |
//! | `processor` | the time for which threads had a processor |
//! | `stop` | reads running threads by ptrace |
//! | `events` | page faults by perf events |
//! | `calls` | counts the calls of futex and of the mmap family |
//! | `wait` | waits for traced threads and children |
//! | `registers` | registers and system calls of an architecture |
//! | `file` | files that a process names |
//! | `memory` | the memory of another process |
//! | `space` | the modules of a process, and the walk up a stack in them |
//! | `frame_size` | the size of a frame without unwind tables |
//! | `module` | a mapped file: code, names, unwind tables |
//! | `lines` | lines of the source by address |
//! | `symbols` | names of functions: symbol tables, debug files, demangling |
//! | `recording` | the samples and the kernel's figures of a recording |
//! | `frames` | places in the code with their names |
//! | `roles` | the role of a function, by its name |
//! | `attribution` | the class of each sample; shares of the time |
//! | `verdict` | the bottleneck, and the possible gain with a donor |
//! | `analysis` | the document |
//! | `flame` | flame graphs, as SVG and as collapsed stacks |
//! | `page` | the report as a page |
//! | `pprof`, `firefox` | formats of other tools |
//! | [`size`] | numbers of bytes and of blocks for people |
//! | `protobuf` | messages of protocol buffers |
//! | [`heap`] | heap profiles: call sites, retention, growth |
//! | `error` | the errors of a recording |

mod analysis;
mod attribution;
mod calls;
mod error;
mod events;
mod family;
mod file;
mod firefox;
mod flame;
mod frame_size;
mod frames;
pub mod heap;
mod library;
mod lines;
mod memory;
mod module;
mod page;
mod pprof;
mod proc;
mod processor;
mod protobuf;
mod recording;
mod registers;
mod roles;
mod sampler;
pub mod size;
mod space;
mod stop;
mod symbols;
#[cfg(test)]
mod trials;
mod verdict;
mod wait;

pub use analysis::{Analysis, Detail, Profile, Rates, Recorded, Site, analyse};
pub use error::Error;
pub use flame::Flame;
pub use recording::Recording;
pub use sampler::{Options, RATE, Target, record};
pub use verdict::{Bottleneck, Share, Verdict, WORTH_TRYING};
