//! Simulates a dynamic loader on a tree of files, without running anything, to find the file whose `malloc` a dynamic
//! program is bound to.
//!
//! | module | what lives there |
//! | --- | --- |
//! | `tree` | the files of a system, as the caller gives them |
//! | `module` | the part of one file that the loader reads |
//! | `cache` | glibc's `ld.so.cache` |
//! | `configuration` | the loader's own folders; `ld.so.preload`, `ld.so.conf`, musl's list of folders |
//! | `library` | caches the files of the tree, so that each is read once |
//! | `preload` | the loader's variables, and the files that are loaded before all others |
//! | `path` | paths with `$ORIGIN`, `$LIB`, `$PLATFORM` |
//! | `search` | where a library is, for glibc and for musl |
//! | `process` | answers the question for a running process, by the files that it has mapped |
//! | `scope` | the files of a process, in the order in which symbols are looked up |

mod cache;
mod configuration;
mod library;
mod module;
mod path;
mod preload;
mod process;
mod scope;
mod search;
#[cfg(test)]
mod tests;
mod tree;

use crate::elf::Elf;
use crate::error::InspectError;
use crate::report::{Allocator, Evidence, Report, Source, name};
use crate::subject;
use crate::verify::needed;
pub use configuration::preloads;
use configuration::{Kind, shown};
use library::Read;
pub use preload::{Effect, Environment, Origin, Preload};
pub use process::Mapped;
use scope::{Bound, Process, Scope};
pub use tree::{ProgramFile, Tree, TreeFile};

/// The loaders of one tree. Each library is read once, for any number of programs.
pub struct Loader<'t> {
    read: Read<'t>,
    environment: Environment,
}

/// The report on a program, and the effects of its preloads.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The report on the program.
    pub report: Report,
    /// The preloads, in the loader's order. Empty if the program asks no library for its `malloc`.
    pub preloads: Vec<Preload>,
}

impl<'t> Loader<'t> {
    /// Returns the loaders of a tree, for programs that start without the loader's variables.
    pub fn new(tree: &'t dyn Tree) -> Self {
        Loader::in_environment(tree, Environment::default())
    }

    /// Returns the loaders of a tree, for programs that start with these variables.
    pub fn in_environment(tree: &'t dyn Tree, environment: Environment) -> Self {
        Loader { read: Read::new(tree), environment }
    }

    /// Inspects a file of the tree alone.
    ///
    /// # Errors
    /// The reason why it cannot be inspected.
    pub fn library(&self, file: &TreeFile) -> Result<Report, String> {
        (*self.read.report(file)).clone()
    }

    /// Whether the file of the tree at a path is a libc, whatever its name: it starts programs (`__libc_start_main`),
    /// and has the standard streams.
    pub fn is_libc(&self, path: &str) -> bool {
        let file = self.read.find(path.as_bytes()).ok().flatten();
        file.is_some_and(|file| self.read.module(&file).as_ref().as_ref().is_ok_and(|module| module.is_libc))
    }

    /// Inspects a file as [`crate::inspect`] does. If it is a dynamic program that does not bring its own `malloc`,
    /// the libraries that it is bound to in this tree decide.
    ///
    /// # Errors
    /// As [`crate::inspect`].
    pub fn inspect(&mut self, bytes: &[u8], place: &ProgramFile) -> Result<Report, InspectError> {
        self.inspect_loaded(bytes, place).map(|loaded| loaded.report)
    }

    /// Inspects a file like [`Loader::inspect`], and also returns the effects of the preloads.
    ///
    /// # Errors
    /// As [`crate::inspect`].
    pub fn inspect_loaded(&mut self, bytes: &[u8], place: &ProgramFile) -> Result<Loaded, InspectError> {
        let mut preloads = Vec::new();
        if crate::archive::is_archive(bytes) || !bytes.starts_with(b"\x7fELF") {
            return crate::inspect(bytes).map(|report| Loaded { report, preloads });
        }
        let (mut report, interpreter) = subject::image::examine(bytes)?;
        if let Some(interpreter) = interpreter {
            report.malloc = self.malloc(bytes, place, &interpreter, report.malloc, &mut preloads);
            self.add_needed(bytes, &mut report.malloc);
        }
        Ok(Loaded { report, preloads })
    }

    /// Adds the evidence of a program that loads its donor: its note, and whether the file that serves it is the one in
    /// the note.
    fn add_needed(&self, bytes: &[u8], malloc: &mut Allocator) {
        let Ok(elf) = Elf::parse(bytes) else { return };
        let read = |path: &String| {
            let file = self.read.find(path.as_bytes()).ok().flatten()?;
            self.read.tree.read(&file).ok()
        };
        let file = malloc.file.as_ref().and_then(read);
        if let Some(detail) = needed::evidence(&elf, file.as_deref()) {
            malloc.evidence.insert(0, Evidence::new(Source::Note, detail));
        }
    }

    /// Returns the allocator of a dynamic program. `alone` is the finding on the program's file alone.
    fn malloc(
        &mut self,
        bytes: &[u8],
        place: &ProgramFile,
        interpreter: &[u8],
        mut alone: Allocator,
        preloads: &mut Vec<Preload>,
    ) -> Allocator {
        let loader = match self.interpreter(interpreter) {
            Ok(Some(loader)) => loader,
            Ok(None) => {
                let absent = format!(
                    "the loader {} is not in this root, so no libraries were looked for; `--root` names another",
                    shown(interpreter)
                );
                alone.evidence.push(Evidence::new(Source::Loader, absent));
                return alone;
            }
            Err(problem) => return self.by_file(Err(vec![problem]), alone),
        };
        let bound = module::Module::read(bytes)
            .map_err(|problem| vec![format!("what the loader would read of the program is damaged: {problem}")])
            .and_then(|program| {
                let process = Process { program, place, interpreter, environment: &self.environment };
                Scope::new(&self.read, process, loader, preloads)?.malloc()
            });
        for preload in preloads.iter_mut() {
            let is_bound = |bound: &Bound| Some(bound.file.identity) == preload.file.as_ref().map(|file| file.identity);
            if preload.effect == Effect::Loaded {
                preload.effect = match &bound {
                    Ok(bound) if is_bound(bound) => Effect::Serves,
                    Ok(_) => Effect::Loaded,
                    Err(_) => Effect::Unknown("the program's other files are not all known".to_owned()),
                };
            }
        }
        self.by_file(bound, alone)
    }

    /// Returns the allocator of the file that a program is bound to. `alone` is the finding on the program's file
    /// alone.
    fn by_file(&self, bound: Result<Bound, Vec<String>>, mut alone: Allocator) -> Allocator {
        let (Bound { file, how, notes }, report) = match bound {
            Ok(bound) => {
                let report = self.read.report(&bound.file);
                (bound, report)
            }
            Err(problems) => {
                alone.name = name::UNKNOWN.to_owned();
                alone.version = None;
                alone.evidence.retain(|evidence| evidence.source == Source::Constants);
                alone.evidence.splice(..0, problems.into_iter().map(|line| Evidence::new(Source::Loader, line)));
                return alone;
            }
        };
        let mut evidence =
            vec![Evidence::new(Source::Loader, format!("`malloc` is that of {}: {how}", shown(&file.path)))];
        evidence.extend(notes.into_iter().map(|note| Evidence::new(Source::Loader, note)));
        let mut malloc = match &*report {
            Ok(report) => report.malloc.clone(),
            Err(problem) => Allocator::named(name::UNKNOWN, vec![Evidence::new(Source::Loader, problem.clone())]),
        };
        evidence.append(&mut malloc.evidence);
        let named = known::of_library(&file.path).filter(|_| malloc.name == name::UNKNOWN);
        evidence.extend(named.map(|named| Evidence::new(Source::Symbols, subject::image::named_only(named))));
        Allocator { evidence, file: Some(String::from_utf8_lossy(&file.path).into_owned()), ..malloc }
    }

    /// Returns the loader that the program asks for; `None` if it is not in the tree. The error says why the loader's
    /// behaviour is unknown.
    fn interpreter(&self, path: &[u8]) -> Result<Option<(TreeFile, Kind)>, String> {
        let named = shown(path);
        if !path.starts_with(b"/") {
            return Err(format!("the loader {named} is looked for in the current folder"));
        }
        let found = self.read.find(path).map_err(|problem| format!("the loader {named} cannot be read: {problem}"))?;
        let Some(found) = found else { return Ok(None) };
        match &*self.read.kind(&found) {
            Ok(kind) => Ok(Some((found, kind.clone()))),
            Err(problem) => Err(format!("the loader {named} is not known: {problem}")),
        }
    }
}
