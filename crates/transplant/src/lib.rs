//! Grafts an allocator into a linked executable: bytes in, edits out, no files.
//!
//! | module | what lives there |
//! | --- | --- |
//! | `image` | reads ELF: segments, sections, symbols, by address and by offset |
//! | `executable` | an executable, read once: its kind, what a graft has left in it, the ways to graft it |
//! | `kind` | recognises executables that cannot be hosts, by their marks;  the notes of a graft |
//! | `notes` | where the notes of grafts are in a file |
//! | `relocations` | what a static-pie program does to itself when it starts |
//! | `code` | machine code: functions, references, what a function does; what is particular to an architecture |
//! | `family` | musl's malloc family in a program, each role proven; and that nothing else touches its state |
//! | `functions` | the functions of the family with their names, for profilers |
//! | `strings` | the string functions in a program, which of them are proven (by `equivalence`), which stay |
//! | `libc` | what the graft needs of the rest of musl: errno, the fork hook, the end of threads |
//! | `threads` | threads and processes that the program makes itself, by clone |
//! | `blob` | a donor, linked to bytes that refer to nothing outside |
//! | `location` | where the donor's segments begin, in memory and in the file |
//! | `appended` | what is appended to a file of any kind: segments, headers, jumps, parameters |
//! | `layout` | where everything goes: segments, thread-local storage, headers |
//! | `loader` | musl's libc.so, which is also the dynamic loader: what is found in it, and where everything goes |
//! | `thread_storage` | the program's thread-local storage and the donor's in one |
//! | `probes` | the notes on a donor's probes |
//! | `section_table` | the section headers of a grafted file |
//! | `merge` | dynamic programs: a donor's shared object becomes part of the program, or is loaded by it |
//! | `plan` | all of it together |
//! | `self_test` | the copy of a graft that runs its self-test |
//! | `refusal` | why a program is left alone |
//! | `count` | how often files were parsed, for tests of other crates |

mod appended;
mod blob;
mod code;
#[cfg(feature = "counted")]
pub mod count;
mod executable;
mod family;
mod functions;
mod image;
mod kind;
mod layout;
mod libc;
mod loader;
mod location;
mod merge;
mod notes;
mod plan;
mod probes;
mod refusal;
mod relocations;
mod section_table;
mod self_test;
mod strings;
mod thread_storage;
mod threads;

pub use blob::{Blob, BlobError};
pub use equivalence::Unproven;
pub use executable::{Donation, Edits, Executable};
pub use functions::functions;
pub use kind::{carries_graft, notes};
pub use loader::KeyValues;
pub use merge::needed::{Need, NeedPlan};
pub use merge::{Libc, Merge, MergePlan};
pub use plan::{Entry, Graft, Plan};
pub use refusal::{Refusal, Remedy};
pub use strings::{Absence, KeptReason, StringEntry};
