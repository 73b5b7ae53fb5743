//! A copy of a folder with grafts in it (`-o`), built under a temporary name: a run that is killed leaves no folder
//! that looks complete.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use crate::digest;
use crate::error::rollback::Purpose;
use crate::error::skipped::Skipped;
use crate::error::{Error, IoContext};
use crate::file::attributes::{self, LostAttribute};
use crate::file::host_file::read;
use crate::file::names::host_of_sidecar;
use crate::file::temporaries::{TemporaryFolder, is_temporary};
use crate::host::planner::Planner;
use crate::outcome::Grafts;
use crate::prove::prepared::{self, ReadyGraft};
use crate::sink::{Sink, out};
use crate::source::Hosts;
use crate::swift::bundle;
use crate::transaction::pending::Pending;
use crate::transaction::staged::{Staged, StagedFolder};

/// Copies the folder to `out`, which must be missing or empty, with every host grafted.
///
/// Symbolic links, modes, times and hard links among the copied files are kept, owners and extended attributes as far
/// as the system permits. Backups and records of grafts are not copied. The copy gets its name when it is complete.
pub(crate) fn write_folder(
    folder: &Path,
    out: &Path,
    hosts: Hosts,
    planner: &mut Planner<'_>,
) -> Result<Pending<Grafts>, Error> {
    let root = folder.canonicalize().context(folder, "read")?;
    let out = out::folder(out, Some(&root))?;
    let installation = hosts.installation().map(|_| out.clone());
    let scripts = hosts.scripts();
    let mut grafts = BTreeMap::new();
    let (grafted, skipped) = hosts.each(planner, |file, planner| {
        let prepared = prepared::prepare_file(&file, planner)?;
        let inside = prepared.path.strip_prefix(folder).unwrap_or(&prepared.path).to_owned();
        let (grafted, ready) = prepared.elsewhere(out.join(&inside), file.bytes()?, planner)?;
        if let Some(ready) = ready {
            ready.drop_bytes();
            grafts.insert(inside, ready);
        }
        Ok(grafted)
    })?;
    let swift_sdks = bundle::swift_sdks_in(folder);
    let report = Grafts { swift_sdks, installation, scripts, ..Grafts::new(grafted, skipped) };
    let sink = Sink::of_graft(planner.request, Purpose::Write, [out.as_path()], planner.watch)?;
    sink.write(report, |report, transaction| {
        let building = TemporaryFolder::create(&out)?;
        let expected: Vec<(PathBuf, String)> =
            grafts.iter().map(|(inside, ready)| (inside.clone(), ready.sha256().to_owned())).collect();
        let (links, skipped) = (HashMap::new(), &mut report.skipped);
        let mut copy = Copy { grafts, links, folders: Vec::new(), skipped, lost: BTreeMap::new() };
        copy.folder(folder, Path::new(""), building.path())?;
        copy.finish_folders()?;
        report.notes = copy.notes();
        // Read back from disk: the grafts are the proven ones.
        let staged = StagedFolder::container(building, |written| {
            expected.iter().try_for_each(|(inside, sha256)| {
                let path = written.join(inside);
                match File::open(&path).and_then(|file| digest::of_file(&file)).context(&path, "read")? == *sha256 {
                    true => Ok(()),
                    false => Err(Error::ChangedMeanwhile { path: out.join(inside) }),
                }
            })
        })?;
        transaction.write_folder(staged, &out)
    })
}

/// Copies a folder to the empty folder `to`, then calls `change` on the copy. Returns the attributes that the copy
/// could not keep, as clauses whose subject is the copy.
pub(crate) fn copied(
    folder: &Path,
    to: &Path,
    change: impl FnOnce() -> Result<(), Error>,
) -> Result<Vec<String>, Error> {
    let mut skipped = Vec::new();
    let (grafts, links) = (BTreeMap::new(), HashMap::new());
    let mut copy = Copy { grafts, links, folders: Vec::new(), skipped: &mut skipped, lost: BTreeMap::new() };
    copy.folder(folder, Path::new(""), to)?;
    change()?;
    copy.finish_folders()?;
    let mut notes = copy.notes();
    notes.extend(skipped.iter().map(|skipped| format!("lacks `{}`: {}", skipped.path.display(), skipped.reason)));
    Ok(notes)
}

struct Copy<'a> {
    /// Grafts by their path inside the folder.
    grafts: BTreeMap<PathBuf, ReadyGraft>,
    /// Files with several names, by device and inode, and whether that name is a host: the copy of the first name.
    links: HashMap<(u64, u64, bool), PathBuf>,
    /// Folders that do not have their mode and times yet: source, path inside, and copy.
    folders: Vec<(PathBuf, PathBuf, PathBuf)>,
    skipped: &'a mut Vec<Skipped>,
    /// The attributes that files could not keep, each with the number of files and the first file.
    lost: BTreeMap<String, (usize, PathBuf)>,
}

impl Copy<'_> {
    fn folder(&mut self, from: &Path, inside: &Path, to: &Path) -> Result<(), Error> {
        self.folders.push((from.to_owned(), inside.to_owned(), to.to_owned()));
        let mut entries: Vec<_> =
            fs::read_dir(from).and_then(|entries| entries.collect::<io::Result<_>>()).context(from, "read")?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let (path, name) = (entry.path(), entry.file_name());
            let (inside, to) = (inside.join(&name), to.join(&name));
            let kind = entry.file_type().context(&path, "read")?;
            if kind.is_dir() {
                if !is_temporary(&name) {
                    fs::create_dir(&to).context(&to, "write")?;
                    self.folder(&path, &inside, &to)?;
                }
            } else if kind.is_symlink() {
                let target = fs::read_link(&path).context(&path, "read")?;
                symlink(target, &to).context(&to, "write")?;
            } else if kind.is_file() {
                let belongs_to_graft = host_of_sidecar(&path).is_some_and(|host| host.is_file());
                if !belongs_to_graft && !is_temporary(&name) {
                    self.file(&path, &inside, &to)?;
                }
            } else {
                self.skipped.push(Skipped::new(path, "a special file, not copied"));
            }
        }
        Ok(())
    }

    fn file(&mut self, from: &Path, inside: &Path, to: &Path) -> Result<(), Error> {
        let source = File::open(from).context(from, "read")?;
        let metadata = source.metadata().context(from, "read")?;
        let ready = self.grafts.get(inside);
        if metadata.nlink() > 1 {
            let file = (metadata.dev(), metadata.ino(), ready.is_some());
            match self.links.get(&file) {
                Some(first) if fs::hard_link(first, to).is_ok() => return Ok(()),
                _ => self.links.insert(file, to.to_owned()),
            };
        }
        if let Some(ready) = ready {
            let graft = ready.graft(&read(from)?)?;
            let (new, lost) = Staged::proven(to, &graft, Some(&source))?;
            self.lose(inside, &lost);
            return new.into_file().persist(to).map_err(|error| error.error).context(to, "write");
        }
        let mut copy = File::create_new(to).context(to, "write")?;
        io::copy(&mut &source, &mut copy).context(to, "write")?;
        let lost = attributes::carry(&source, &copy).context(to, "write")?;
        self.lose(inside, &lost);
        attributes::carry_times(&source, &copy).context(to, "write")
    }

    fn lose(&mut self, inside: &Path, lost: &[LostAttribute]) {
        for lost in lost {
            self.lost.entry(lost.what()).or_insert_with(|| (0, inside.to_owned())).0 += 1;
        }
    }

    /// The attributes that the copy could not keep, as clauses whose subject is the copy.
    fn notes(&self) -> Vec<String> {
        let note = |(what, (count, first)): (&String, &(usize, PathBuf))| {
            format!("holds {count} files and folders that could not keep {what}; the first is `{}`", first.display())
        };
        self.lost.iter().map(note).collect()
    }

    /// Sets modes and times of folders, innermost first and after all files: a read-only folder takes no more files,
    /// and each new file changes its folder's time.
    fn finish_folders(&mut self) -> Result<(), Error> {
        for (from, inside, to) in std::mem::take(&mut self.folders).iter().rev() {
            let (source, copy) = (File::open(from).context(from, "read")?, File::open(to).context(to, "write")?);
            let lost = attributes::carry(&source, &copy).context(to, "write")?;
            self.lose(inside, &lost);
            attributes::carry_times(&source, &copy).context(to, "write")?;
        }
        Ok(())
    }
}
