//! What is asked of a dynamic program before a donor is merged into it: that no library of its brings another
//! allocator, as far as its libraries can be found, and that nobody else's rights are at stake.

use std::path::Path;

use inspector::Loader;
use transplant::Refusal;

use crate::error::Error;
use crate::executable::SETUID_OR_SETGID;
use crate::request::Request;
use crate::system::System;

/// A remark on a program that can load libraries while it runs: a clause whose subject is the program.
pub(crate) const LOADS_LIBRARIES: &str = "can load libraries while it runs (dlopen): one that it loads with RTLD_DEEPBIND would take libc's malloc, and a \
     block that crosses that border would crash it";

/// Names of what serves malloc in a program without an allocator of its own: libc's.
const OF_LIBC: [&str; 4] = ["glibc", "mallocng", "oldmalloc", "none"];
/// How the names of their files begin, for a libc that the inspector does not know.
const LIBCS: [&str; 2] = ["libc.", "ld-musl-"];

/// Checks the program at `path`, which has these bytes and this mode.
///
/// # Errors
/// Another allocator serves it; or it runs with the rights of its owner, and the user has not confirmed that.
pub(crate) fn check(path: &Path, bytes: &[u8], mode: u32, request: &Request) -> Result<(), Error> {
    if mode & SETUID_OR_SETGID != 0 && !request.live {
        let why = "is setuid or setgid: the donor would serve a program that has the rights of its owner";
        return Err(Error::Live { path: path.to_owned(), why: why.to_owned() });
    }
    if transplant::carries_graft(bytes) {
        // It is refused for that.
        return Ok(());
    }
    let Ok(system) = System::new(request.root.as_deref()) else { return Ok(()) };
    let Ok(place) = system.place(path) else { return Ok(()) };
    let Ok(report) = Loader::new(&system).inspect(bytes, &place) else { return Ok(()) };
    let malloc = report.malloc;
    let Some(file) = malloc.file.filter(|_| !OF_LIBC.contains(&malloc.name.as_str())) else { return Ok(()) };
    let name = file.rsplit('/').next().unwrap_or_default();
    if malloc.name == "unknown" && LIBCS.iter().any(|start| name.starts_with(start)) {
        return Ok(());
    }
    let refusal = Refusal::BringsAllocator { symbol: file, verb: "takes its malloc from" };
    Err(Error::Executable { path: path.to_owned(), refusal })
}
