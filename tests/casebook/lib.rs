//! Cases that graft a real libc.a, link a program against it, and run the program.
//!
//! | module | what lives there |
//! | --- | --- |
//! | [`bench`](mod@bench) | real `libc.a`s, grafts of them, and compilers |
//! | [`case`] | a case, read from its folder |
//! | [`dynamic`] | conformance programs that are linked dynamically, and run |
//! | [`finished`] | linked executables, grafted and run |
//! | [`link`] | ways to link a program |
//! | [`record`] | saved conformance results |

pub mod bench;
pub mod case;
pub mod dynamic;
pub mod finished;
pub mod link;
pub mod record;
