//! The loader's search for a library, in its order: glibc's elf/dl-load.c, `_dl_map_object`, and musl's ldso/dynlink.c,
//! `load_library`.

use std::cell::RefCell;
use std::rc::Rc;

use crate::loader::cache::{Cache, Paths};
use crate::loader::configuration::{Kind, folder_of, musl_folders, shown};
use crate::loader::library::Read;
use crate::loader::module::{Machine, Module};
use crate::loader::path::{Tokens, expanded, expanded_by_musl, normalised};
use crate::loader::preload::{Effect, is_loadable};
use crate::loader::tree::TreeFile;

/// A file of a process that searches for its libraries.
pub(super) struct Seeker<'s> {
    /// Its path as the loader knows it, which may go through symbolic links.
    pub(super) path: &'s [u8],
    pub(super) module: &'s Module,
}

/// A library that was found.
pub(super) struct Hit {
    pub(super) file: TreeFile,
    /// The path by which it was found.
    pub(super) path: Vec<u8>,
    pub(super) module: Rc<Module>,
    /// How it was found, as the end of a sentence.
    pub(super) by: String,
}

/// The result of searching one place. The error is a reason why the loader's answer is unknown.
type SearchResult<T> = Result<Option<T>, String>;

/// The searches of one program's process.
pub(super) struct Search<'s, 't> {
    pub(super) read: &'s Read<'t>,
    pub(super) kind: Kind,
    pub(super) machine: Machine,
    /// The loader's path, as written in the program.
    pub(super) interpreter: Vec<u8>,
    /// Whether the loader mistrusts `$ORIGIN`.
    pub(super) privileged: bool,
    /// musl's folders, or why they are not known.
    musl: Result<(Vec<Vec<u8>>, String), String>,
    /// `LD_LIBRARY_PATH`, if the loader reads it.
    library_path: Option<Vec<u8>>,
    /// The last file that was found and not taken, and why.
    pub(super) passed_over: RefCell<Option<(TreeFile, Effect)>>,
}

impl<'s, 't> Search<'s, 't> {
    pub(super) fn new(
        read: &'s Read<'t>,
        kind: Kind,
        machine: Machine,
        interpreter: &[u8],
        privileged: bool,
        library_path: Option<&[u8]>,
    ) -> Self {
        let musl = match &kind {
            Kind::Musl { list, folders } => {
                // The folder above the loader's own: "" of /lib, /usr of /usr/lib.
                let path = [folder_of(folder_of(interpreter)), list].concat();
                read.text(&path).map(|text| match text {
                    Some(text) => (musl_folders(&text), shown(&path)),
                    None => (folders.clone(), "musl's folders".to_owned()),
                })
            }
            Kind::Glibc { .. } => Ok((Vec::new(), String::new())),
        };
        Search {
            read,
            kind,
            machine,
            interpreter: interpreter.to_owned(),
            privileged,
            musl,
            library_path: library_path.map(<[u8]>::to_owned),
            passed_over: RefCell::new(None),
        }
    }

    /// Finds a library that `chain[0]` asks for; the others are the files that needed it in turn, up to the program.
    ///
    /// # Errors
    /// The reason why the loader's choice is unknown.
    pub(super) fn library(&self, name: &[u8], chain: &[Seeker<'_>]) -> SearchResult<Hit> {
        match &self.kind {
            Kind::Glibc { folders, cache, processors, .. } => self.by_glibc(name, chain, folders, cache, processors),
            Kind::Musl { .. } => self.by_musl(name, chain),
        }
    }

    /// Whether a file is in one of the folders that glibc's loader always searches.
    pub(super) fn is_in_system_folder(&self, path: &[u8]) -> bool {
        let Kind::Glibc { folders, .. } = &self.kind else { return false };
        folders.iter().any(|folder| path.strip_prefix(folder.as_slice()).is_some_and(|name| !name.contains(&b'/')))
    }

    /// Takes a file at a path, if the loader does. It passes over libraries for other machines; any other fault ends
    /// the program's start.
    fn file_at(&self, path: &[u8]) -> SearchResult<(TreeFile, Rc<Module>)> {
        let unreadable = |problem: &str| format!("{} cannot be read: {problem}", shown(path));
        let Some(file) = self.read.find(path).map_err(|problem| unreadable(&problem))? else { return Ok(None) };
        match &*self.read.module(&file) {
            Ok(module) if self.machine.takes(module.machine) => Ok(Some((file, module.clone()))),
            Ok(_) if matches!(self.kind, Kind::Musl { .. }) => {
                *self.passed_over.borrow_mut() = Some((file, Effect::OtherArchitecture));
                Err(format!("{} is for another architecture, and musl's loader takes it", shown(path)))
            }
            Ok(_) => {
                *self.passed_over.borrow_mut() = Some((file, Effect::OtherArchitecture));
                Ok(None)
            }
            Err(problem) => {
                if self.read.tree.read(&file).is_ok_and(|bytes| !is_loadable(&bytes)) {
                    *self.passed_over.borrow_mut() = Some((file, Effect::NoLibrary));
                }
                Err(unreadable(problem))
            }
        }
    }

    /// Returns any of several files among which the processor decides, if all of them are alike. Else the loader's
    /// choice is unknown.
    fn any(&self, plain: Option<&[u8]>, variants: &[Vec<u8>], by: &str) -> SearchResult<Hit> {
        let hit = |path: &[u8]| -> SearchResult<Hit> {
            let found = self.file_at(path)?;
            Ok(found.map(|(file, module)| Hit { file, path: path.to_owned(), module, by: by.to_owned() }))
        };
        let taken = plain.map(hit).transpose()?.flatten();
        for variant in variants {
            let Some(other) = hit(variant)? else { continue };
            match &taken {
                Some(taken) if taken.module.is_alike(&other.module) => {}
                _ => {
                    return Err(format!("it depends on the processor whether the loader takes {}", shown(variant)));
                }
            }
        }
        Ok(taken)
    }

    /// Searches one of glibc's folders, which may have subfolders for some processors.
    fn in_folder(&self, folder: &[u8], name: &[u8], by: &str) -> SearchResult<Hit> {
        let folder = folder.strip_suffix(b"/").unwrap_or(folder);
        let file = |folder: &[u8]| [folder, b"/", name].concat();
        let processors = self.read.processors_folders(folder, self.machine);
        let variants: Vec<Vec<u8>> = match &*processors {
            Ok(folders) => folders.iter().map(|folder| file(folder)).collect(),
            Err(problem) => return Err(problem.clone()),
        };
        self.any(Some(&file(folder)), &variants, by)
    }

    fn by_glibc(
        &self,
        name: &[u8],
        chain: &[Seeker<'_>],
        folders: &[Vec<u8>],
        cache: &[u8],
        processors: &[Vec<u8>],
    ) -> SearchResult<Hit> {
        let lib = Kind::library_folder(folders);
        let own = match self.machine.number {
            62 => Some(b"x86_64".to_vec()),
            183 => Some(b"aarch64".to_vec()),
            _ => None,
        };
        let processors: Vec<Vec<u8>> = processors.iter().cloned().chain(own).collect();
        let tokens = |file| Tokens { file, library: &lib, processors: &processors };
        let Some(asking) = chain.first() else { return Ok(None) };
        if name.contains(&b'/') {
            let paths = expanded(name, &tokens(asking.path));
            return match paths.as_slice() {
                [path] if path.starts_with(b"/") => self.any(Some(path), &[], "by its path"),
                [_] => Err(format!("{} depends on the folder that the program is started in", shown(name))),
                paths => self.any(None, paths, ""),
            };
        }
        if asking.module.runpath.is_none() {
            for seeker in chain.iter().filter(|seeker| seeker.module.runpath.is_none()) {
                let Some(path) = &seeker.module.rpath else { continue };
                let by = format!("by the RPATH of {}", shown(seeker.path));
                if let Some(hit) = self.in_search_path(name, path, &tokens(seeker.path), folders, &by)? {
                    return Ok(Some(hit));
                }
            }
        }
        if let (Some(path), Some(program)) = (&self.library_path, chain.last()) {
            // Semicolons count, too (elf/dl-load.c, `_dl_init_paths`).
            let path: Vec<u8> = path.iter().map(|&byte| if byte == b';' { b':' } else { byte }).collect();
            if let Some(hit) = self.in_search_path(name, &path, &tokens(program.path), folders, "by LD_LIBRARY_PATH")? {
                return Ok(Some(hit));
            }
        }
        if let Some(path) = &asking.module.runpath {
            let by = format!("by the RUNPATH of {}", shown(asking.path));
            if let Some(hit) = self.in_search_path(name, path, &tokens(asking.path), folders, &by)? {
                return Ok(Some(hit));
            }
        }
        let damaged = match &*self.read.cache(cache, self.machine) {
            Ok(Some(known)) => match self.in_cache(known, cache, name, asking, folders)? {
                Some(hit) => return Ok(Some(hit)),
                None => None,
            },
            Ok(None) => None,
            Err(problem) => Some(format!("{} cannot be followed for {}: {problem}", shown(cache), shown(name))),
        };
        // A cache comes before the folders.
        if let Some(problem) = damaged {
            return Err(problem);
        }
        if asking.module.without_defaults {
            return Ok(None);
        }
        for folder in folders {
            let by = format!("in {}, which glibc always searches", shown(folder));
            if let Some(hit) = self.in_folder(folder, name, &by)? {
                return Ok(Some(hit));
            }
        }
        Ok(None)
    }

    fn in_cache(
        &self,
        known: &Cache,
        cache: &[u8],
        name: &[u8],
        asking: &Seeker<'_>,
        folders: &[Vec<u8>],
    ) -> SearchResult<Hit> {
        let Paths { mut plain, mut variants } = known.find(name);
        if asking.module.without_defaults {
            let is_system = |path: &Vec<u8>| folders.iter().any(|folder| path.starts_with(folder));
            plain = plain.filter(|path| !is_system(path));
            variants.retain(|path| !is_system(path));
        }
        self.any(plain.as_deref(), &variants, &format!("by {}", shown(cache)))
    }

    /// Searches the folders of an RPATH or a RUNPATH.
    fn in_search_path(
        &self,
        name: &[u8],
        path: &[u8],
        tokens: &Tokens<'_>,
        system: &[Vec<u8>],
        by: &str,
    ) -> SearchResult<Hit> {
        for part in path.split(|&byte| byte == b':') {
            let folders = expanded(part, tokens);
            let is_own = part.contains(&b'$');
            if let [folder] = folders.as_slice() {
                // A relative folder depends on where the program is started, so it may be anything.
                if !folder.starts_with(b"/") {
                    continue;
                }
                let Some(hit) = self.in_folder(folder, name, by)? else { continue };
                let trusted = system.iter().any(|system| normalised(folder).starts_with(system));
                if is_own && self.privileged && !trusted {
                    return Err(format!(
                        "{} is found {by}, which the loader leaves out if the program has other rights than its caller",
                        shown(name)
                    ));
                }
                return Ok(Some(hit));
            }
            for folder in folders.iter().filter(|folder| folder.starts_with(b"/")) {
                if self.in_folder(folder, name, by)?.is_some() {
                    return Err(format!("{} is found {by} on some processors only ($PLATFORM)", shown(name)));
                }
            }
        }
        Ok(None)
    }

    fn by_musl(&self, name: &[u8], chain: &[Seeker<'_>]) -> SearchResult<Hit> {
        let hit = |path: Vec<u8>, by: String| -> SearchResult<Hit> {
            Ok(self.file_at(&path)?.map(|(file, module)| Hit { file, path, module, by }))
        };
        if name.contains(&b'/') {
            return match name.starts_with(b"/") {
                true => hit(name.to_owned(), "by its path".to_owned()),
                false => Err(format!("{} depends on the folder that the program is started in", shown(name))),
            };
        }
        let variable = self.library_path.as_deref().unwrap_or_default();
        for folder in variable.split(|byte| b":\n".contains(byte)).filter(|folder| folder.starts_with(b"/")) {
            if let Some(hit) = hit([folder, b"/", name].concat(), "by LD_LIBRARY_PATH".to_owned())? {
                return Ok(Some(hit));
            }
        }
        for seeker in chain {
            let Some(path) = seeker.module.runpath.as_ref().or(seeker.module.rpath.as_ref()) else { continue };
            let Some(folders) = expanded_by_musl(path, seeker.path) else { continue };
            for folder in folders.split(|byte| b":\n".contains(byte)).filter(|folder| folder.starts_with(b"/")) {
                let by = format!("by the search path of {}", shown(seeker.path));
                if let Some(hit) = hit([folder, b"/", name].concat(), by)? {
                    return Ok(Some(hit));
                }
            }
        }
        let (folders, by) =
            self.musl.as_ref().map_err(|problem| format!("musl's folders cannot be read: {problem}"))?;
        for folder in folders {
            if let Some(hit) = hit([folder, b"/".as_slice(), name].concat(), format!("by {by}"))? {
                return Ok(Some(hit));
            }
        }
        Ok(None)
    }

    /// Returns the path of a library that no search finds, in a folder that only ldconfig reads.
    pub(super) fn unlisted(&self, name: &[u8]) -> Option<String> {
        let Kind::Glibc { cache, .. } = &self.kind else { return None };
        let list = [folder_of(cache), b"/ld.so.conf"].concat();
        let path = |folder: &Vec<u8>| [folder.as_slice(), b"/", name].concat();
        let folders = self.read.configured(&list);
        let found = folders.iter().map(path).find(|path| matches!(self.read.find(path), Ok(Some(_))))?;
        Some(format!(
            "{} lies in a folder of {} and is not in {}, which the loader reads: `ldconfig` puts it there",
            shown(&found),
            shown(&list),
            shown(cache)
        ))
    }
}
