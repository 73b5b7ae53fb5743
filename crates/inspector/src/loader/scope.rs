//! The files of a process in the order in which its loader looks symbols up, and the one whose `malloc` it takes.

use std::rc::Rc;

use foldhash::{HashMap, HashMapExt};

use crate::loader::configuration::{self, Kind, shown};
use crate::loader::library::Read;
use crate::loader::module::{Module, Reference};
use crate::loader::preload::{Effect, Environment, Origin, Preload, is_for_other_libc};
use crate::loader::search::{Hit, Search, Seeker};
use crate::loader::tree::{ProgramFile, TreeFile};

/// The most files of one process.
const MOST_FILES: usize = 4096;
/// The most requests for libraries in one process.
pub(super) const MOST_REQUESTS: usize = 1 << 16;
/// The most differing answers that are reported.
const MOST_NOTES: usize = 3;

/// The file whose `malloc` a program is bound to.
#[derive(Debug)]
pub(super) struct Bound {
    pub(super) file: TreeFile,
    /// The reason why the loader binds to it.
    pub(super) how: String,
    /// Further observations.
    pub(super) notes: Vec<String>,
}

/// The state of a process before its libraries are loaded.
pub(super) struct Process<'p> {
    pub(super) program: Module,
    pub(super) place: &'p ProgramFile,
    pub(super) interpreter: &'p [u8],
    pub(super) environment: &'p Environment,
}

/// A file of the process.
struct Loaded {
    file: TreeFile,
    /// The path by which the loader found it.
    path: Vec<u8>,
    module: Rc<Module>,
    /// The file that asked for it first.
    by: Option<usize>,
    how: String,
}

/// A process of a program as its loader makes it.
pub(super) struct Scope<'s, 't> {
    search: Search<'s, 't>,
    /// In the order in which they were loaded: the program, its loader, the others.
    loaded: Vec<Loaded>,
    /// The file that answers a request, by the requested name.
    names: HashMap<Vec<u8>, usize>,
    /// In the order in which symbols are looked up.
    order: Vec<usize>,
    notes: Vec<String>,
}

const PROGRAM: usize = 0;
const LOADER: usize = 1;

impl<'s, 't> Scope<'s, 't> {
    /// Loads a program, and records the effects of its preloads. The error is a list of reasons why the loader's
    /// behaviour is unknown.
    pub(super) fn new(
        read: &'s Read<'t>,
        process: Process<'_>,
        (loader, kind): (TreeFile, Kind),
        preloads: &mut Vec<Preload>,
    ) -> Result<Self, Vec<String>> {
        let Process { program, place, interpreter, environment } = process;
        let is_glibc = matches!(kind, Kind::Glibc { .. });
        let module = match &*read.module(&loader) {
            Ok(module) if program.machine.takes(module.machine) => module.clone(),
            Ok(_) => return Err(vec![format!("the loader {} is for another architecture", shown(interpreter))]),
            Err(problem) => return Err(vec![format!("the loader {} cannot be read: {problem}", shown(interpreter))]),
        };
        if let (true, Some(special)) = (is_glibc, program.special) {
            return Err(vec![format!("the program asks for {special}")]);
        }
        if is_glibc && environment.audit && !place.privileged {
            return Err(vec!["its environment asks for an audit library (LD_AUDIT)".to_owned()]);
        }
        let library_path = environment.library_path.as_deref().filter(|_| !place.privileged);
        let search = Search::new(read, kind, program.machine, interpreter, place.privileged, library_path);
        let first = Loaded {
            file: place.file.clone(),
            path: place.file.path.clone(),
            module: Rc::new(program),
            by: None,
            how: "it is the program".to_owned(),
        };
        let how = format!("it is the program's loader, {}", shown(interpreter));
        let second = Loaded { file: loader, path: interpreter.to_owned(), module, by: None, how };
        let mut scope = Scope {
            search,
            loaded: vec![first, second],
            names: HashMap::new(),
            order: vec![PROGRAM],
            notes: Vec::new(),
        };
        scope.named(interpreter, LOADER);
        if is_glibc {
            for number in [PROGRAM, LOADER] {
                scope.named_as_it_is(number);
            }
        }
        scope.preload(environment, preloads).map_err(|problem| vec![problem])?;
        scope.libraries(is_glibc)?;
        Ok(scope)
    }

    /// Remembers that a request for `name` is answered with a file, unless an earlier one answers it.
    fn named(&mut self, name: &[u8], number: usize) {
        self.names.entry(name.to_owned()).and_modify(|known| *known = number.min(*known)).or_insert(number);
    }

    fn named_as_it_is(&mut self, number: usize) {
        if let Some(soname) = self.loaded[number].module.soname.clone() {
            self.named(&soname, number);
        }
    }

    /// Loads the files of `LD_PRELOAD`, then those of `ld.so.preload`. The loader goes on without those that it cannot
    /// load.
    fn preload(&mut self, environment: &Environment, preloads: &mut Vec<Preload>) -> Result<(), String> {
        let kind = self.search.kind.clone();
        for name in environment.preloads(&kind) {
            self.preloaded(name, Origin::Variable, "LD_PRELOAD", preloads)?;
        }
        let Kind::Glibc { preload: list, .. } = kind else { return Ok(()) };
        let text =
            self.search.read.text(&list).map_err(|problem| format!("{} cannot be read: {problem}", shown(&list)))?;
        for name in configuration::preloads(&text.unwrap_or_default()) {
            self.preloaded(name, Origin::List, &shown(&list), preloads)?;
        }
        Ok(())
    }

    /// Loads one preload. The error is a reason why the loader's behaviour is unknown.
    fn preloaded(
        &mut self,
        name: &[u8],
        origin: Origin,
        list: &str,
        preloads: &mut Vec<Preload>,
    ) -> Result<(), String> {
        if preloads.len() >= MOST_FILES {
            return Err("it has more preloads than are followed".to_owned());
        }
        let is_musl = matches!(self.search.kind, Kind::Musl { .. });
        let mut told = |file: Option<&TreeFile>, effect: Effect| {
            preloads.push(Preload { name: name.to_owned(), origin, file: file.cloned(), effect });
        };
        // glibc elf/rtld.c, `dso_name_valid_for_suid`; musl ldso/dynlink.c, `__dls3`: it does not look at the variable.
        let mistrusted = self.search.privileged && origin == Origin::Variable;
        if mistrusted && (is_musl || name.contains(&b'/')) {
            told(None, Effect::Privileged);
            self.note(format!(
                "{list} lists {}, which the loader leaves out, as the program has other rights than its caller",
                shown(name)
            ));
            return Ok(());
        }
        *self.search.passed_over.borrow_mut() = None;
        // For musl, no file asks for it (`load_preload`), so no file's search path counts.
        let requested = self.request(name, (!is_musl).then_some(PROGRAM), list);
        let passed_over = self.search.passed_over.borrow_mut().take();
        let lists = format!("{list} lists {}", shown(name));
        let number = match (requested, passed_over) {
            (Ok(Some(number)), _) => number,
            (Err(problem), Some((file, Effect::OtherArchitecture))) if is_musl => {
                told(Some(&file), Effect::OtherArchitecture);
                return Err(format!("{lists}: {problem}"));
            }
            (Ok(None) | Err(_), Some((file, why))) => {
                let what = if why == Effect::NoLibrary { "no library" } else { "for another architecture" };
                told(Some(&file), why);
                self.note(format!("{lists}, which is {what}: it has no effect"));
                return Ok(());
            }
            (Ok(None), _) => {
                told(None, Effect::Missing);
                self.note(format!("{lists}, which the loader does not find: it has no effect"));
                return Ok(());
            }
            (Err(problem), _) => {
                told(None, Effect::Unknown(problem.clone()));
                return Err(format!("{lists}: {problem}"));
            }
        };
        let file = self.loaded[number].file.clone();
        let module = self.loaded[number].module.clone();
        if module.is_program && number > LOADER {
            if is_musl {
                let problem = "it is a program".to_owned();
                told(Some(&file), Effect::Unknown(problem.clone()));
                return Err(format!("{lists}: {problem}"));
            }
            told(Some(&file), Effect::NoLibrary);
            self.note(format!("{lists}, which is a program: it has no effect"));
            self.forget(number);
            return Ok(());
        }
        // elf/dl-load.c, `open_path`: such a program preloads only libraries with the setuid bit.
        if mistrusted && number > LOADER {
            match self.search.read.tree.is_setuid(&file) {
                Some(true) if self.search.is_in_system_folder(&self.loaded[number].path) => {}
                Some(false) => {
                    told(Some(&file), Effect::Privileged);
                    self.note(format!("{lists}, which has no setuid bit, as the program has: it has no effect"));
                    self.forget(number);
                    return Ok(());
                }
                _ => {
                    let problem = "it is not known whether the loader trusts it".to_owned();
                    told(Some(&file), Effect::Unknown(problem.clone()));
                    return Err(format!("{lists}: {problem}"));
                }
            }
        }
        if is_for_other_libc(&module, &self.search.kind) {
            told(Some(&file), Effect::OtherLibc);
            let libc = if is_musl { "glibc" } else { "musl" };
            return Err(format!("{lists}, which is for {libc}: the program may not start with it"));
        }
        told(Some(&file), Effect::Loaded);
        self.in_order(number);
        Ok(())
    }

    /// Takes the last file that was loaded out again.
    fn forget(&mut self, number: usize) {
        self.loaded.truncate(number);
        self.names.retain(|_, known| *known < number);
    }

    fn note(&mut self, note: String) {
        if self.notes.len() < MOST_NOTES {
            self.notes.push(note);
        }
    }

    fn in_order(&mut self, number: usize) {
        if !self.order.contains(&number) {
            self.order.push(number);
        }
    }

    /// Loads the libraries that the program needs, then theirs, level by level.
    fn libraries(&mut self, is_glibc: bool) -> Result<(), Vec<String>> {
        let mut missing = Vec::new();
        let mut requests = 0;
        let mut next = 0;
        while let Some(&number) = self.order.get(next) {
            next += 1;
            // musl's loader needs nothing.
            let module = self.loaded[number].module.clone();
            if is_glibc && let Some(special) = module.special {
                return Err(vec![format!("{} asks for {special}", shown(&self.loaded[number].path))]);
            }
            for name in &module.needed {
                requests += 1;
                if requests > MOST_REQUESTS || self.loaded.len() > MOST_FILES {
                    return Err(vec!["it has more libraries than are followed".to_owned()]);
                }
                let asking = shown(&self.loaded[number].path);
                match self.request(name, Some(number), &format!("DT_NEEDED of {asking}")) {
                    Ok(Some(found)) => self.in_order(found),
                    Ok(None) if missing.len() < MOST_NOTES => {
                        missing.push(format!("{}, which {asking} needs, is not in this root", shown(name)));
                        missing.extend(self.search.unlisted(name));
                    }
                    Ok(None) => {}
                    Err(problem) => return Err(vec![format!("{}, which {asking} needs: {problem}", shown(name))]),
                }
            }
        }
        if missing.is_empty() { Ok(()) } else { Err(missing) }
    }

    /// Returns the file that answers a request for a library, loading it if it is not loaded yet.
    fn request(&mut self, name: &[u8], by: Option<usize>, reason: &str) -> Result<Option<usize>, String> {
        let is_musl = matches!(self.search.kind, Kind::Musl { .. });
        if is_musl && (is_musls_own(name) || name == self.search.interpreter) {
            return Ok(Some(LOADER));
        }
        // musl knows only the names that it has searched for.
        if let Some(&known) = self.names.get(name) {
            return Ok(Some(known));
        }
        let chain = std::iter::successors(by, |number| self.loaded[*number].by);
        let chain: Vec<Seeker<'_>> = chain
            .map(|number| Seeker { path: &self.loaded[number].path, module: &self.loaded[number].module })
            .collect();
        let Some(Hit { file, path, module, by: found }) = self.search.library(name, &chain)? else { return Ok(None) };
        if is_musl && module.is_libc {
            return Ok(Some(LOADER));
        }
        let searched = !is_musl || !name.contains(&b'/');
        if let Some(known) = self.loaded.iter().position(|loaded| loaded.file.identity == file.identity) {
            if searched {
                self.named(name, known);
            }
            return Ok(Some(known));
        }
        let number = self.loaded.len();
        let how = format!("{} of {reason}, found {found}", shown(name));
        self.loaded.push(Loaded { file, path: path.clone(), module, by, how });
        if searched {
            self.named(name, number);
        }
        if !is_musl {
            self.named(&path, number);
            self.named_as_it_is(number);
        }
        Ok(Some(number))
    }

    /// Returns the file whose `malloc` the program is bound to. The error is a list of reasons why it is unknown.
    pub(super) fn malloc(self) -> Result<Bound, Vec<String>> {
        let modules: Vec<&Module> = self.order.iter().map(|&number| &*self.loaded[number].module).collect();
        let Served { taken, others } = served(&modules, matches!(self.search.kind, Kind::Musl { .. }))?;
        let mut notes = self.notes.clone();
        for (from, to) in others.into_iter().take(MOST_NOTES) {
            let (from, to) = (&self.loaded[self.order[from]].path, &self.loaded[self.order[to]].path);
            notes.push(format!("the calls of {} go to {}: they ask for another version", shown(from), shown(to)));
        }
        let Loaded { file, how, .. } = &self.loaded[self.order[taken]];
        Ok(Bound { file: file.clone(), how: how.clone(), notes })
    }
}

/// The file of a process whose `malloc` is taken.
pub(super) struct Served {
    /// Its place in the order of the files.
    pub(super) taken: usize,
    /// Files whose calls go elsewhere, and where they go.
    pub(super) others: Vec<(usize, usize)>,
}

/// Returns the file that serves `malloc`. `modules` are in the order in which symbols are looked up, the program first.
/// The error is a list of reasons why it is unknown.
pub(super) fn served(modules: &[&Module], is_musl: bool) -> Result<Served, Vec<String>> {
    let bound = |reference: &Reference| {
        modules.iter().position(|module| if is_musl { module.serves_musl() } else { module.serves_glibc(reference) })
    };
    // libc's own calls, if the program has none: they go the same way.
    let of_libc = || {
        let libc = modules.iter().find(|module| module.soname.as_deref() == Some(b"libc.so.6"))?;
        libc.own_version()
    };
    let any = || modules.iter().find_map(|module| module.reference.clone());
    let own = modules.first().and_then(|program| program.reference.clone());
    let reference = own.or_else(of_libc).or_else(any).unwrap_or(None);
    let none = || vec!["no file of the process has a `malloc` that it could be bound to".to_owned()];
    let taken = bound(&reference).ok_or_else(none)?;
    let others = modules.iter().enumerate().filter_map(|(from, module)| {
        let to = bound(module.reference.as_ref()?)?;
        (to != taken).then_some((from, to))
    });
    Ok(Served { taken, others: others.collect() })
}

/// Whether musl answers a request for a library itself (ldso/dynlink.c, `load_library`).
pub(super) fn is_musls_own(name: &[u8]) -> bool {
    const RESERVED: [&[u8]; 7] = [b"c.", b"pthread.", b"rt.", b"m.", b"dl.", b"util.", b"xnet."];
    name.strip_prefix(b"lib").is_some_and(|rest| RESERVED.iter().any(|reserved| rest.starts_with(reserved)))
}
