//! Cases that graft a real libc.a, link a program against it, and run that.

pub mod bench;
pub mod case;
pub mod finished;
pub mod link;
pub mod record;
