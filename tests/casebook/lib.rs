//! Cases that graft a real libc.a, link a program against it, and run that.
//!
//! | module | what lives there |
//! | --- | --- |
//! | [`bench`](mod@bench) | real `libc.a`s, grafts of them, and compilers |
//! | [`case`] | a case as its folder says it |
//! | [`finished`] | linked executables, grafted and run |
//! | [`link`] | ways to link a program |
//! | [`record`] | the conformance results that are kept |

pub mod bench;
pub mod case;
pub mod finished;
pub mod link;
pub mod record;
