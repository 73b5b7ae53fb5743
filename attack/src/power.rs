//! Losses of power: each state that the disk may then be in.
//!
//! A file system keeps what was synced. Of the rest, each change of a name may be there or not, and of a file's data
//! all, half or nothing: file systems write both back in any order (POSIX, `fsync`; ext4(5), "data=writeback"). So a
//! run is recorded, and before each of its calls that syncs or names a file, each such combination is written into the
//! folder, and judged as what a killed run leaves.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use nix::libc;

use crate::call::{Call, Inode};
use crate::files::{Entry, Files, RoleOf};
use crate::flow::Scene;
use crate::interference::{Finding, Outcome, Share};
use crate::traced::{Act, End, Watch};

/// Up to this many changes of names are combined in every way; more as all, all but one, the first ones, one alone.
const COMBINED: usize = 6;

/// An entry. A file's content is the first bytes of one of [`Journal::contents`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Node {
    Folder,
    Link(PathBuf),
    File { mode: u32, content: usize, length: usize },
}

/// A change of names that is one step for a file system.
#[derive(Debug, Clone)]
enum Change {
    Set(PathBuf, Inode),
    Rename { from: PathBuf, to: PathBuf, inode: Inode },
    Exchange([(PathBuf, Inode); 2]),
    Remove(PathBuf),
}

impl Change {
    fn names(&self) -> Vec<&Path> {
        match self {
            Change::Set(name, _) | Change::Remove(name) => vec![name],
            Change::Rename { from, to, .. } => vec![from, to],
            Change::Exchange([one, two]) => vec![&one.0, &two.0],
        }
    }

    fn apply(&self, names: &mut BTreeMap<PathBuf, Inode>) {
        match self {
            Change::Set(name, inode) => drop(names.insert(name.clone(), *inode)),
            Change::Remove(name) => drop(names.remove(name)),
            Change::Rename { from, to, inode } => {
                if names.get(from) == Some(inode) {
                    names.remove(from);
                }
                // Files below a folder keep their names in it.
                let below: Vec<PathBuf> = names.keys().filter(|name| name.starts_with(from)).cloned().collect();
                for name in below {
                    let rest = name.strip_prefix(from).unwrap_or(&name).to_owned();
                    if let Some(inode) = names.remove(&name) {
                        names.insert(to.join(rest), inode);
                    }
                }
                names.insert(to.clone(), *inode);
            }
            Change::Exchange([one, two]) => {
                names.insert(one.0.clone(), two.1);
                names.insert(two.0.clone(), one.1);
            }
        }
    }
}

/// A change that is not on the disk for certain, and the folders to sync for that.
#[derive(Debug, Clone)]
struct Pending {
    change: Change,
    folders: BTreeSet<PathBuf>,
}

/// The disk in one case.
type State = BTreeMap<PathBuf, Node>;

/// Records a run.
struct Journal {
    folder: PathBuf,
    role: RoleOf,
    contents: Vec<Vec<u8>>,
    /// The names that are on the disk.
    durable: BTreeMap<PathBuf, Inode>,
    pending: Vec<Pending>,
    /// Each file on the disk, and as a process sees it.
    synced: HashMap<Inode, Node>,
    seen: HashMap<Inode, Node>,
    /// Files with data that may not be on the disk.
    dirty: HashSet<Inode>,
    /// The states that were possible, and the call before which each was so for the first time.
    states: Vec<(String, State)>,
    known: HashSet<State>,
    trouble: Option<io::Error>,
}

impl Journal {
    fn new(folder: &Path, role: RoleOf) -> io::Result<Journal> {
        let mut journal = Journal {
            folder: folder.to_owned(),
            role,
            contents: vec![Vec::new()],
            durable: BTreeMap::new(),
            pending: Vec::new(),
            synced: HashMap::new(),
            seen: HashMap::new(),
            dirty: HashSet::new(),
            states: Vec::new(),
            known: HashSet::new(),
            trouble: None,
        };
        for name in Files::read(folder, role)?.0.into_keys() {
            let (inode, node) = journal.node(&folder.join(&name))?;
            journal.durable.insert(name, inode);
            journal.synced.insert(inode, node);
        }
        Ok(journal)
    }

    /// Reads the entry at a path.
    fn node(&mut self, path: &Path) -> io::Result<(Inode, Node)> {
        let metadata = fs::symlink_metadata(path)?;
        let node = if metadata.is_dir() {
            Node::Folder
        } else if metadata.is_symlink() {
            Node::Link(fs::read_link(path)?)
        } else {
            self.file(metadata.permissions().mode(), fs::read(path)?)
        };
        Ok((metadata.ino(), node))
    }

    fn file(&mut self, mode: u32, bytes: Vec<u8>) -> Node {
        let length = bytes.len();
        let content = self.contents.iter().position(|content| *content == bytes).unwrap_or_else(|| {
            self.contents.push(bytes);
            self.contents.len() - 1
        });
        Node::File { mode: mode & 0o7777, content, length }
    }

    fn path(&self, call: &Call, folder: Option<u64>, text: u64) -> Option<PathBuf> {
        call.path(&self.folder, folder, text)
    }

    fn opened(&self, call: &Call, number: u64) -> Option<(Inode, PathBuf)> {
        call.opened(&self.folder, number)
    }

    fn inode(&self, name: &Path) -> Option<Inode> {
        Some(fs::symlink_metadata(self.folder.join(name)).ok()?.ino())
    }

    fn changed(&mut self, change: Change) {
        let parent = |name: &Path| name.parent().unwrap_or(Path::new("")).to_owned();
        let folders = change.names().into_iter().map(parent).collect();
        self.pending.push(Pending { change, folders });
    }

    /// Notes a new name.
    fn set(&mut self, name: PathBuf) -> io::Result<()> {
        let (inode, node) = self.node(&self.folder.join(&name))?;
        // Another name of a file that is there does not change the file.
        let empty = match &node {
            Node::File { mode, .. } => Node::File { mode: *mode, content: 0, length: 0 },
            other => other.clone(),
        };
        self.synced.entry(inode).or_insert(empty);
        self.seen.insert(inode, node);
        self.changed(Change::Set(name, inode));
        Ok(())
    }

    /// Notes what a call has done.
    fn note(&mut self, call: &Call, result: i64) -> io::Result<()> {
        let [a, b, c, d, e, _] = call.arguments;
        match call.number {
            libc::SYS_write
            | libc::SYS_pwrite64
            | libc::SYS_writev
            | libc::SYS_ftruncate
            | libc::SYS_fallocate
            | libc::SYS_sendfile => self.dirty.extend(self.opened(call, a).map(|(inode, _)| inode)),
            libc::SYS_copy_file_range => self.dirty.extend(self.opened(call, c).map(|(inode, _)| inode)),
            libc::SYS_fsync | libc::SYS_fdatasync => {
                let Some((inode, path)) = self.opened(call, a) else { return Ok(()) };
                let link = call.descriptor(a);
                let metadata = fs::metadata(&link)?;
                if metadata.is_dir() {
                    self.sync_folder(&path);
                } else {
                    let node = self.file(metadata.permissions().mode(), fs::read(&link)?);
                    self.synced.insert(inode, node);
                    self.dirty.remove(&inode);
                }
            }
            libc::SYS_syncfs => {
                for name in Files::read(&self.folder, self.role)?.0.into_keys() {
                    let (inode, node) = self.node(&self.folder.join(name))?;
                    self.synced.insert(inode, node);
                }
                self.dirty.clear();
                let pending = std::mem::take(&mut self.pending);
                pending.iter().for_each(|pending| pending.change.apply(&mut self.durable));
            }
            libc::SYS_open | libc::SYS_openat | libc::SYS_creat => {
                let flags = match call.number {
                    libc::SYS_open => b,
                    libc::SYS_openat => c,
                    _ => u64::MAX,
                };
                if flags & u64::from(libc::O_TRUNC.cast_unsigned()) != 0 {
                    self.dirty.extend(self.opened(call, result.cast_unsigned()).map(|(inode, _)| inode));
                }
                // A file that another program has made is not the run's.
                if flags & u64::from(libc::O_CREAT.cast_unsigned()) != 0
                    && let Some((inode, path)) = self.opened(call, result.cast_unsigned())
                    && !path.as_os_str().is_empty()
                    && !self.synced.contains_key(&inode)
                    && self.inode(&path) == Some(inode)
                {
                    self.set(path)?;
                }
            }
            libc::SYS_rename => self.renamed(self.path(call, None, a), self.path(call, None, b), 0)?,
            libc::SYS_renameat => self.renamed(self.path(call, Some(a), b), self.path(call, Some(c), d), 0)?,
            libc::SYS_renameat2 => self.renamed(self.path(call, Some(a), b), self.path(call, Some(c), d), e)?,
            libc::SYS_link | libc::SYS_symlink => self.path(call, None, b).map_or(Ok(()), |name| self.set(name))?,
            libc::SYS_linkat => self.path(call, Some(c), d).map_or(Ok(()), |name| self.set(name))?,
            libc::SYS_symlinkat => self.path(call, Some(b), c).map_or(Ok(()), |name| self.set(name))?,
            libc::SYS_mkdir => self.path(call, None, a).map_or(Ok(()), |name| self.set(name))?,
            libc::SYS_mkdirat => self.path(call, Some(a), b).map_or(Ok(()), |name| self.set(name))?,
            libc::SYS_unlink | libc::SYS_rmdir => {
                self.path(call, None, a).into_iter().for_each(|name| self.changed(Change::Remove(name)));
            }
            libc::SYS_unlinkat => {
                self.path(call, Some(a), b).into_iter().for_each(|name| self.changed(Change::Remove(name)));
            }
            _ => {}
        }
        Ok(())
    }

    fn renamed(&mut self, from: Option<PathBuf>, to: Option<PathBuf>, flags: u64) -> io::Result<()> {
        const EXCHANGE: u64 = libc::RENAME_EXCHANGE as u64;
        let (Some(from), Some(to)) = (from, to) else { return Ok(()) };
        let gone = || io::Error::other("a file is gone that was just renamed");
        let inode = self.inode(&to).ok_or_else(gone)?;
        if flags & EXCHANGE != 0 {
            // Each has the other's name by now.
            let other = self.inode(&from).ok_or_else(gone)?;
            self.changed(Change::Exchange([(from, inode), (to, other)]));
        } else {
            self.changed(Change::Rename { from, to, inode });
        }
        Ok(())
    }

    fn sync_folder(&mut self, folder: &Path) {
        for pending in std::mem::take(&mut self.pending) {
            let Pending { change, mut folders } = pending;
            folders.remove(folder);
            if folders.is_empty() {
                change.apply(&mut self.durable);
            } else {
                self.pending.push(Pending { change, folders });
            }
        }
    }

    /// Notes the states that are possible now.
    fn point(&mut self, before: &str) -> io::Result<()> {
        // Files that are being written, as a process sees them.
        for name in Files::read(&self.folder, self.role)?.0.into_keys() {
            let path = self.folder.join(name);
            if self.dirty.contains(&fs::symlink_metadata(&path)?.ino()) {
                let (inode, node) = self.node(&path)?;
                self.seen.insert(inode, node);
            }
        }
        for chosen in combinations(self.pending.len()) {
            let mut names = self.durable.clone();
            chosen.iter().for_each(|index| self.pending[*index].change.apply(&mut names));
            for share in [0, 1, 2] {
                let state = self.state(&names, share);
                if self.known.insert(state.clone()) {
                    self.states.push((before.to_owned(), state));
                }
            }
        }
        Ok(())
    }

    /// The disk with these names, and with so many halves of the data that was not synced.
    fn state(&self, names: &BTreeMap<PathBuf, Inode>, halves: usize) -> State {
        let mut state = State::new();
        for (name, inode) in names {
            let parent = name.parent().unwrap_or(Path::new(""));
            // A folder sorts before what is in it.
            if !parent.as_os_str().is_empty() && state.get(parent) != Some(&Node::Folder) {
                continue;
            }
            let synced = self.synced.get(inode);
            let node = match self.seen.get(inode) {
                Some(Node::File { mode, content, length }) if self.dirty.contains(inode) && halves > 0 => {
                    Some(Node::File { mode: *mode, content: *content, length: length * halves / 2 })
                }
                _ => synced.cloned(),
            };
            state.extend(node.map(|node| (name.clone(), node)));
        }
        state
    }

    fn files(&self, state: &State) -> Files {
        let entry = |node: &Node| match node {
            Node::Folder => Entry::Folder,
            Node::Link(to) => Entry::Link(to.clone()),
            Node::File { mode, content, length } => {
                Entry::File { mode: *mode, content: self.contents[*content][..*length].to_vec() }
            }
        };
        Files(state.iter().map(|(name, node)| (name.clone(), entry(node))).collect())
    }
}

impl Watch for Journal {
    fn enters(&mut self, number: usize, call: &Call) -> Act {
        // Writes alone make no new state: half of the data represents every part of it.
        if self.trouble.is_none() && call.changes() && call.length().is_none() {
            self.trouble = self.point(&format!("call {number} ({})", call.name())).err();
        }
        Act::Let
    }

    fn leaves(&mut self, call: &Call, result: i64) {
        if self.trouble.is_none() && result >= 0 {
            self.trouble = self.note(call, result).err();
        }
    }
}

/// Returns which of so many changes are there, for each case.
fn combinations(count: usize) -> Vec<Vec<usize>> {
    if count <= COMBINED {
        return (0..1_usize << count).map(|bits| (0..count).filter(|index| bits >> index & 1 == 1).collect()).collect();
    }
    let all: Vec<usize> = (0..count).collect();
    let but_one = (0..count).map(|missing| all.iter().copied().filter(|index| *index != missing).collect());
    let one = (0..count).map(|index| vec![index]);
    // In the order in which they were made, as by a file system with a journal.
    let first = (0..=count).map(|number| all[..number].to_vec());
    but_one.chain(one).chain(first).collect()
}

/// Loses the power at each point of the flow's run.
///
/// # Errors
/// A run cannot be started, followed or recorded.
pub fn losses(scene: &Scene, share: Share) -> Result<Outcome> {
    scene.restore()?;
    let folder = fs::canonicalize(scene.folder())?;
    let mut journal = Journal::new(&folder, scene.flow.role)?;
    let ran = scene.traced(&mut journal)?;
    ensure!(ran.end == End::Exit(0), "{}: {:?}\n{}", scene.name(), ran.end, ran.said);
    journal.point("the end")?;
    if let Some(trouble) = journal.trouble.take() {
        return Err(trouble.into());
    }
    let mut outcome = Outcome::default();
    let states = journal.states.iter().enumerate();
    for (number, (before, state)) in states.filter(|(number, _)| share.has(*number)) {
        let files = journal.files(state);
        files.write(&folder)?;
        outcome.done += 1;
        let torn = scene.torn(&files, &[&scene.begin, &scene.end]);
        let wrong = match torn.is_empty() {
            false => Some(format!("torn: {torn:?}")),
            true => scene.next(number % 2 == 1)?,
        };
        outcome.findings.extend(wrong.map(|wrong| {
            let names: Vec<String> = state.keys().map(|name| name.display().to_string()).collect();
            let at = format!("{}, power lost before {before}, state {number}: {names:?}", scene.name());
            Finding { at, wrong }
        }));
    }
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_combination_of_few_changes() {
        assert_eq!(combinations(0), [Vec::<usize>::new()]);
        assert_eq!(combinations(2), [vec![], vec![0], vec![1], vec![0, 1]]);
        let many = combinations(9);
        assert_eq!(many.len(), 9 + 9 + 10);
        assert!(many.contains(&(0..9).collect()) && many.contains(&vec![]) && many.contains(&vec![8]));
    }

    #[test]
    fn names_change_as_in_a_file_system() {
        let mut names: BTreeMap<PathBuf, Inode> = [("a".into(), 1), ("d".into(), 2), ("d/x".into(), 3)].into();
        Change::Rename { from: "d".into(), to: "e".into(), inode: 2 }.apply(&mut names);
        Change::Exchange([("a".into(), 1), ("e/x".into(), 3)]).apply(&mut names);
        Change::Set("f".into(), 1).apply(&mut names);
        Change::Remove("a".into()).apply(&mut names);
        let names: Vec<(&str, Inode)> = names.iter().map(|(name, inode)| (name.to_str().unwrap(), *inode)).collect();
        assert_eq!(names, [("e", 2), ("e/x", 1), ("f", 1)]);
    }
}
