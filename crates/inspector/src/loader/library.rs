//! Caches the files of a tree: each file, cache and path is read once, for all programs.

use std::cell::RefCell;
use std::rc::Rc;

use foldhash::{HashMap, HashMapExt};

use crate::loader::cache::Cache;
use crate::loader::configuration::{self, Kind, shown};
use crate::loader::module::{Machine, Module};
use crate::loader::tree::{Tree, TreeFile};
use crate::report::Report;

/// The most paths that are kept.
const MOST_PATHS: usize = 1 << 18;

type Identity = (u64, u64);
/// A result that is read once and shown often.
type Once<T> = Rc<Result<T, String>>;
type Memo<K, V> = RefCell<HashMap<K, V>>;
/// A lookup: the file, `None`, or the reason why it could not be decided.
type Looked = Result<Option<TreeFile>, String>;

/// Names the path that cannot be read.
fn unreadable(path: &[u8]) -> impl Fn(String) -> String {
    move |problem| format!("{} cannot be read: {problem}", shown(path))
}

/// The files of a tree that were read.
pub(super) struct Read<'t> {
    pub(super) tree: &'t dyn Tree,
    paths: Memo<Vec<u8>, Looked>,
    folders: Memo<Vec<u8>, Once<Vec<Vec<u8>>>>,
    modules: Memo<Identity, Once<Rc<Module>>>,
    kinds: Memo<Identity, Once<Kind>>,
    caches: Memo<(Vec<u8>, Machine), Once<Option<Cache>>>,
    reports: Memo<Identity, Once<Report>>,
}

impl<'t> Read<'t> {
    pub(super) fn new(tree: &'t dyn Tree) -> Self {
        Read {
            tree,
            paths: RefCell::new(HashMap::new()),
            folders: RefCell::new(HashMap::new()),
            modules: RefCell::new(HashMap::new()),
            kinds: RefCell::new(HashMap::new()),
            caches: RefCell::new(HashMap::new()),
            reports: RefCell::new(HashMap::new()),
        }
    }

    /// Finds the regular file at a path.
    pub(super) fn find(&self, path: &[u8]) -> Looked {
        // The kernel accepts no longer path (PATH_MAX), and no NUL.
        if path.len() >= 4096 || path.contains(&0) {
            return Ok(None);
        }
        let mut paths = self.paths.borrow_mut();
        if paths.len() >= MOST_PATHS {
            paths.clear();
        }
        paths.entry(path.to_owned()).or_insert_with(|| self.tree.find(path)).clone()
    }

    /// Returns the folders below `folder`, in any order, in which a loader looks first on some processors. The error
    /// says why the folders are unknown.
    pub(super) fn processors_folders(&self, folder: &[u8], machine: Machine) -> Once<Vec<Vec<u8>>> {
        let mut folders = self.folders.borrow_mut();
        if folders.len() >= MOST_PATHS {
            folders.clear();
        }
        folders.entry(folder.to_owned()).or_insert_with(|| Rc::new(self.for_processors(folder, machine))).clone()
    }

    fn for_processors(&self, folder: &[u8], machine: Machine) -> Result<Vec<Vec<u8>>, String> {
        let mut found = Vec::new();
        let capabilities = [folder, b"/glibc-hwcaps"].concat();
        if self.is_folder(&capabilities)? {
            let names = self.tree.list(&capabilities).map_err(unreadable(&capabilities))?;
            found.extend(names.into_iter().map(|name| [&capabilities[..], b"/", &name].concat()));
        }
        // glibc until 2.36 (elf/dl-hwcaps.c): any of these, one in the other.
        let legacy: &[&str] = match machine.number {
            62 => &["tls", "haswell", "xeon_phi", "avx512_1", "x86_64"],
            3 => &["tls", "i686", "i586", "i486", "i386", "sse2", "cmov"],
            40 => &["tls", "v7l", "v6l", "neon", "vfp", "half"],
            183 => &["tls", "atomics", "aarch64"],
            _ => &["tls"],
        };
        self.nested(folder, legacy, &mut found)?;
        Ok(found)
    }

    fn nested(&self, folder: &[u8], names: &[&str], found: &mut Vec<Vec<u8>>) -> Result<(), String> {
        for (place, name) in names.iter().enumerate() {
            let inner = [folder, b"/", name.as_bytes()].concat();
            if self.is_folder(&inner)? {
                self.nested(&inner, &names[place + 1..], found)?;
                found.push(inner);
            }
        }
        Ok(())
    }

    fn is_folder(&self, path: &[u8]) -> Result<bool, String> {
        self.tree.is_folder(path).map_err(unreadable(path))
    }

    /// Returns the part of a file that the loader reads.
    pub(super) fn module(&self, file: &TreeFile) -> Once<Rc<Module>> {
        let read = || Rc::new(self.tree.read(file).and_then(|bytes| Module::read(&bytes)).map(Rc::new));
        self.modules.borrow_mut().entry(file.identity).or_insert_with(read).clone()
    }

    /// Returns the kind of a loader's file.
    pub(super) fn kind(&self, file: &TreeFile) -> Once<Kind> {
        let read = || Rc::new(self.tree.read(file).and_then(|bytes| Kind::parse(&bytes)));
        self.kinds.borrow_mut().entry(file.identity).or_insert_with(read).clone()
    }

    /// Returns the cache at a path, for a machine; `None` if the file does not exist.
    pub(super) fn cache(&self, path: &[u8], machine: Machine) -> Once<Option<Cache>> {
        let key = (path.to_owned(), machine);
        let read = || match self.find(path)? {
            None => Ok(None),
            Some(file) => Cache::read(&self.tree.read(&file)?, machine).map(Some),
        };
        self.caches.borrow_mut().entry(key).or_insert_with(|| Rc::new(read())).clone()
    }

    /// Returns the folders that `ld.so.conf` lists.
    pub(super) fn configured(&self, path: &[u8]) -> Vec<Vec<u8>> {
        configuration::configured(self.tree, path)
    }

    /// Inspects the file alone.
    pub(super) fn report(&self, file: &TreeFile) -> Once<Report> {
        let read = || self.tree.read(file).and_then(|bytes| crate::inspect(&bytes).map_err(|error| error.to_string()));
        self.reports.borrow_mut().entry(file.identity).or_insert_with(|| Rc::new(read())).clone()
    }

    /// Reads a text, if the file exists.
    pub(super) fn text(&self, path: &[u8]) -> Result<Option<Vec<u8>>, String> {
        self.find(path)?.map(|file| self.tree.read(&file)).transpose()
    }
}
