//! Checks before a donor is merged into a dynamic program: all of its libraries are known, and none of them brings an
//! allocator. A library of unknown content is refused, since a block that one allocator returns and another frees is a
//! crash.

use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use inspector::{Environment, Loader, Report, Source, Tree};
use transplant::{Executable, Refusal};

use crate::request::Request;
use crate::system::{EMULATED_ROOT, EmulatedTree, System};

/// A remark on a program that can load libraries into a namespace of their own: a clause whose subject is the program.
pub(crate) const LOADS_NAMESPACES: &str = "can load libraries into a namespace of their own (dlmopen), with a libc and a \
     malloc of their own: a block that goes from there to the program would crash it";

/// A remark on a program with a large .bss.
pub(crate) const NEEDS_LATER_KERNEL: &str = "starts with Linux 5.18 and later only: its .bss is too large to be written \
     as zeros, and older kernels give its loader a wrong address of its program headers";

/// The inspector's names for libc's allocators. A libc that the inspector does not know counts, too.
const OF_LIBC: [&str; 4] = ["glibc", "mallocng", "oldmalloc", "unknown"];

/// Checks the libraries of the program at `path`. Searches as its loader will, with the environment variable that the
/// self-test passes on.
///
/// # Errors
/// A library brings an allocator, or it is not known whether one does ([`Refusal::LibrariesUnknown`]).
pub(crate) fn check_libraries(path: &Path, program: &Executable<'_>, request: &Request) -> Result<(), Refusal> {
    let is_foreign = std::env::consts::ARCH != program.arch().name();
    if transplant::carries_graft(program.bytes()) || (is_foreign && request.untested) {
        // A graft is refused elsewhere; a program of another architecture need not have its libraries on this machine.
        return Ok(());
    }
    let unknown = |problem: String| Refusal::LibrariesUnknown(problem);
    let system = |root: Option<&Path>| {
        System::new(root).map_err(|error| unknown(format!("`{}`: {error}", root.unwrap_or(Path::new("/")).display())))
    };
    let (here, emulated) = (system(request.root.as_deref())?, std::env::var_os(EMULATED_ROOT).map(PathBuf::from));
    let place = here.place(path).map_err(|error| unknown(format!("`{}`: {error}", path.display())))?;
    let tree: Box<dyn Tree> = match emulated.filter(|_| is_foreign && request.root.is_none()) {
        Some(root) => Box::new(EmulatedTree { root: system(Some(&root))?, here }),
        None => Box::new(here),
    };
    let interpreter = program.interpreter().unwrap_or_default();
    if is_foreign && matches!(tree.find(interpreter), Ok(None)) {
        // Without its loader the program cannot be tested, and is refused for that.
        return Ok(());
    }
    let environment = Environment {
        library_path: std::env::var_os("LD_LIBRARY_PATH").map(OsStringExt::into_vec),
        ..Environment::default()
    };
    let mut loader = Loader::in_environment(&*tree, environment);
    let report = loader.inspect(program.bytes(), &place).map_err(|error| unknown(error.to_string()))?;
    let Some(file) = report.malloc.file.clone() else {
        // The program has a malloc of its own, and is refused for that; or the loader's search could not be followed.
        return problems(&report).map_or(Ok(()), |problems| Err(unknown(problems)));
    };
    match loader.is_libc(&file) && OF_LIBC.contains(&report.malloc.name.as_str()) {
        true => Ok(()),
        false => Err(Refusal::BringsAllocator { symbol: file, verb: "takes its malloc from" }),
    }
}

/// The report's reasons why the program's libraries are not all known; `None` if it has none.
fn problems(report: &Report) -> Option<String> {
    let evidence = report.malloc.evidence.iter().filter(|evidence| evidence.source == Source::Loader);
    let problems: Vec<&str> = evidence.map(|evidence| evidence.detail.as_str()).collect();
    (!problems.is_empty()).then(|| problems.join("; "))
}
