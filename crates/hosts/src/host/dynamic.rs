//! What is asked of a dynamic program before a donor is merged into it: that all of its libraries are known, and that
//! none of them brings another allocator.

use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use inspector::{Environment, Loader, Report, Source, Tree};
use transplant::{Executable, Refusal};

use crate::request::Request;
use crate::system::{EMULATED_ROOT, Emulated, System};

/// A remark on a program that can load libraries into a namespace of their own: a clause whose subject is the program.
pub(crate) const LOADS_NAMESPACES: &str = "can load libraries into a namespace of their own (dlmopen): these have a libc and a malloc of their own there, and a \
     block that goes to the program would crash it";

/// A remark on a program with much memory that is not in its file.
pub(crate) const NEEDS_LATER_KERNEL: &str = "starts with Linux 5.18 and later only: its .bss is too large to be written as zeros, and older kernels tell its \
     loader a wrong place of its program headers";

/// Names of what serves malloc in a program without an allocator of its own: libc's. A libc that the inspector does not
/// know counts, too.
const OF_LIBC: [&str; 4] = ["glibc", "mallocng", "oldmalloc", "unknown"];

/// Checks the libraries of the program at `path`. Follows what its loader will do, with the variable that the self-test
/// passes on.
///
/// # Errors
/// Another allocator serves it, or it is not known whether one does ([`Refusal::LibrariesUnknown`]).
pub(crate) fn check_libraries(path: &Path, program: &Executable<'_>, request: &Request) -> Result<(), Refusal> {
    let is_foreign = std::env::consts::ARCH != program.arch().name();
    if transplant::carries_graft(program.bytes()) || (is_foreign && request.untested) {
        // It is refused for that graft; or its libraries need not be on this machine.
        return Ok(());
    }
    let unknown = |problem: String| Refusal::LibrariesUnknown(problem);
    let system = |root: Option<&Path>| {
        System::new(root).map_err(|error| unknown(format!("`{}`: {error}", root.unwrap_or(Path::new("/")).display())))
    };
    let (here, told) = (system(request.root.as_deref())?, std::env::var_os(EMULATED_ROOT).map(PathBuf::from));
    let place = here.place(path).map_err(|error| unknown(format!("`{}`: {error}", path.display())))?;
    let tree: Box<dyn Tree> = match told.filter(|_| is_foreign && request.root.is_none()) {
        Some(root) => Box::new(Emulated { root: system(Some(&root))?, here }),
        None => Box::new(here),
    };
    let interpreter = program.interpreter().unwrap_or_default();
    if is_foreign && matches!(tree.find(interpreter), Ok(None)) {
        // Without its loader it cannot be tested, for which it is refused.
        return Ok(());
    }
    let environment = Environment {
        library_path: std::env::var_os("LD_LIBRARY_PATH").map(OsStringExt::into_vec),
        ..Environment::default()
    };
    let mut loader = Loader::in_environment(&*tree, environment);
    let report = loader.inspect(program.bytes(), &place).map_err(|error| unknown(error.to_string()))?;
    let Some(file) = report.malloc.file.clone() else {
        // It brings a malloc itself, for which it is refused, or the loader's way is not known.
        return problems(&report).map_or(Ok(()), |problems| Err(unknown(problems)));
    };
    match loader.is_libc(&file) && OF_LIBC.contains(&report.malloc.name.as_str()) {
        true => Ok(()),
        false => Err(Refusal::BringsAllocator { symbol: file, verb: "takes its malloc from" }),
    }
}

/// Why it is not known which libraries a program has, as far as the report says so.
fn problems(report: &Report) -> Option<String> {
    let evidence = report.malloc.evidence.iter().filter(|evidence| evidence.source == Source::Loader);
    let problems: Vec<&str> = evidence.map(|evidence| evidence.detail.as_str()).collect();
    (!problems.is_empty()).then(|| problems.join("; "))
}
