//! Grafts that go elsewhere (`-o`): an archive into a file, a folder into a copy of itself.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use crate::attributes::{self, Lost};
use crate::bundle;
use crate::digest::sha256;
use crate::error::{Error, IoContext};
use crate::graft::{Action, Grafted, Grafts, Skipped, action, recorded_stock, remarks};
use crate::lock::FolderLocks;
use crate::operation::{Planned, Surgeon};
use crate::pending::Pending;
use crate::place::sweep;
use crate::recognise::{is_missing, read};
use crate::record::{folder_of, host_of_companion, is_temporary, temporary};
use crate::transaction::{Deed, TemporaryFolder, Transaction, sync_folder, written};

fn refuse(out: &Path, reason: &'static str, help: &'static str) -> Error {
    Error::Out { out: out.to_owned(), reason, help }
}

/// A name that is free, in a folder that exists; without a slash at the end.
fn new_name(out: &Path) -> Result<PathBuf, Error> {
    let place = out.file_name().map(|name| out.with_file_name(name)).unwrap_or_default();
    if folder_of(&place).is_dir() {
        Ok(place)
    } else {
        Err(refuse(out, "there is no such folder to write it in", "make the folder first"))
    }
}

fn describe(host: &Path, path: PathBuf, planned: Planned, dry_run: bool) -> Grafted {
    let action = match action(&planned.operation) {
        _ if dry_run => Action::Planned,
        // A new file is written all the same.
        Action::Unchanged => Action::Replaced,
        action => action,
    };
    let stock_sha256 = match planned.operation.before.anything() {
        false => Some(planned.before_sha256),
        true => recorded_stock(host, &planned.before_sha256),
    };
    Grafted {
        path,
        source: Some(host.to_owned()),
        action,
        stock_sha256,
        graft_sha256: planned.graft_sha256,
        backup: None,
        notes: remarks(&planned.operation),
        operation: planned.operation,
    }
}

/// The file to write for `-o out`, which may be there already and must not be `host`.
pub(crate) fn file_to_write(host: &Path, out: &Path) -> Result<PathBuf, Error> {
    let metadata = fs::metadata(host).context(host, "read")?;
    let out = match fs::metadata(out) {
        Ok(there) if there.is_dir() => {
            return Err(refuse(out, "it is a folder", "name the file to write"));
        }
        Ok(there) if (there.dev(), there.ino()) == (metadata.dev(), metadata.ino()) => {
            return Err(refuse(out, "it is the target itself", "leave `-o` out to graft in place, with a backup"));
        }
        Ok(there) if !there.is_file() => {
            return Err(refuse(out, "it is a special file", "name the file to write"));
        }
        // Where the name is a link, the file behind it is replaced.
        Ok(_) => out.canonicalize().context(out, "write")?,
        Err(error) if is_missing(&error) => new_name(out)?,
        Err(error) => return Err(error).context(out, "write"),
    };
    match host_of_companion(&out) {
        Some(_) => Err(refuse(&out, "this name is that of a backup or a record", "choose another name")),
        None => Ok(out),
    }
}

/// Writes the graft of `host` to the file `out`, replacing what is there.
pub(crate) fn write_archive(host: &Path, out: &Path, surgeon: &mut Surgeon<'_>) -> Result<Pending<Grafted>, Error> {
    let file = File::open(host).context(host, "read")?;
    let out = file_to_write(host, out)?;
    let planned = surgeon.plan(host, &read(host)?)?;
    let dry_run = surgeon.request.dry_run;
    if dry_run {
        return Ok(Pending::nothing(describe(host, out, planned, true)));
    }
    let locks = FolderLocks::take([out.as_path()], &surgeon.conditions)?;
    sweep(&out, &locks);
    let (new, lost) = written(&out, &planned.graft, &file)?;
    let mut transaction = Transaction::new(Deed::Write);
    transaction.swap(&out, new, &out)?;
    let _ = sync_folder(folder_of(&out));
    let mut grafted = describe(host, out, planned, false);
    grafted.notes.extend(lost.iter().map(ToString::to_string));
    Ok(Pending::new(grafted, transaction, Some(locks)))
}

/// Copies the folder to `out`, which must not exist or be empty, with every host grafted.
///
/// Symbolic links, modes, times and hard links among the copied files are kept, owners and extended attributes as far as
/// permitted; backups and records of grafts stay behind. The copy gets its name when it is complete.
pub(crate) fn write_folder(
    folder: &Path,
    out: &Path,
    hosts: Vec<PathBuf>,
    mut skipped: Vec<Skipped>,
    surgeon: &mut Surgeon<'_>,
) -> Result<Pending<Grafts>, Error> {
    let root = folder.canonicalize().context(folder, "read")?;
    let out = free_place(&root, out)?;
    let mut planned_for = BTreeMap::new();
    let mut described = Vec::new();
    let dry_run = surgeon.request.dry_run;
    for host in hosts {
        let planned = surgeon.plan(&host, &read(&host)?)?;
        let inside = host.strip_prefix(folder).unwrap_or(&host).to_owned();
        planned_for.insert(inside.clone(), planned.before_sha256.clone());
        described.push(describe(&host, out.join(&inside), planned, dry_run));
    }
    let swift_sdks = bundle::swift_sdks_in(folder);
    let grafts = |skipped, notes| Grafts { hosts: described, skipped, bundle: None, swift_sdks, notes };
    if dry_run {
        return Ok(Pending::nothing(grafts(skipped, Vec::new())));
    }
    let locks = FolderLocks::take([out.as_path()], &surgeon.conditions)?;
    sweep(&out, &locks);
    let building = temporary(&out, |path| fs::create_dir(path)).context(&out, "write")?.into_temp_path();
    let building = TemporaryFolder::new(building);
    let mut copy = Copy {
        surgeon,
        grafts: planned_for,
        links: HashMap::new(),
        folders: Vec::new(),
        skipped: &mut skipped,
        lost: BTreeMap::new(),
    };
    copy.folder(folder, Path::new(""), building.path())?;
    copy.finish_folders()?;
    let notes = copy.notes();
    let mut transaction = Transaction::new(Deed::Write);
    if let Err(error) = transaction.swap_folder(building, &out) {
        return Err(transaction.failed(error));
    }
    let _ = sync_folder(folder_of(&out));
    Ok(Pending::new(grafts(skipped, notes), transaction, Some(locks)))
}

/// The place for a copy: absent or an empty folder, and not inside of what is copied.
fn free_place(root: &Path, out: &Path) -> Result<PathBuf, Error> {
    let (place, real) = match fs::metadata(out) {
        Ok(there) if there.is_dir() => {
            let real = out.canonicalize().context(out, "write")?;
            if real == root {
                return Err(refuse(out, "it is the target itself", "leave `-o` out to graft in place, with a backup"));
            }
            if fs::read_dir(&real).context(out, "read")?.next().is_some() {
                return Err(refuse(
                    out,
                    "the folder is not empty",
                    "name a folder that does not exist yet; one that an interrupted run has made is whole",
                ));
            }
            (real.clone(), real)
        }
        Ok(_) => return Err(refuse(out, "it is a file, and the target is a folder", "name a folder to write")),
        Err(error) if is_missing(&error) => {
            let place = new_name(out)?;
            let folder = folder_of(&place);
            let real = folder.canonicalize().context(folder, "find")?;
            (place, real)
        }
        Err(error) => return Err(error).context(out, "write"),
    };
    if real.starts_with(root) {
        return Err(refuse(out, "it lies inside of the target", "name a folder outside of it"));
    }
    Ok(place)
}

struct Copy<'a, 'b> {
    surgeon: &'a mut Surgeon<'b>,
    /// Hosts by their path inside of the folder, with the SHA-256 that was planned for.
    grafts: BTreeMap<PathBuf, String>,
    /// Files with several names: where the first one went.
    links: HashMap<(u64, u64), PathBuf>,
    /// Folders that still need their mode and times: source, path inside, and copy.
    folders: Vec<(PathBuf, PathBuf, PathBuf)>,
    skipped: &'a mut Vec<Skipped>,
    /// What files could not keep: how many, and the first of them.
    lost: BTreeMap<String, (usize, PathBuf)>,
}

impl Copy<'_, '_> {
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
                let belongs_to_graft = host_of_companion(&path).is_some_and(|host| host.is_file());
                if !belongs_to_graft && !is_temporary(&name) {
                    self.file(&path, &inside, &to)?;
                }
            } else {
                self.skipped.push(Skipped { path, reason: "a special file, not copied".to_owned() });
            }
        }
        Ok(())
    }

    fn file(&mut self, from: &Path, inside: &Path, to: &Path) -> Result<(), Error> {
        if let Some(expected) = self.grafts.get(inside) {
            let bytes = read(from)?;
            if sha256(&bytes) != *expected {
                return Err(Error::ChangedMeanwhile { path: from.to_owned() });
            }
            let graft = self.surgeon.plan(from, &bytes)?.graft;
            let source = File::open(from).context(from, "read")?;
            let (new, lost) = written(to, &graft, &source)?;
            self.lose(inside, &lost);
            return new.persist(to).map_err(|error| error.error).context(to, "write");
        }
        let source = File::open(from).context(from, "read")?;
        let metadata = source.metadata().context(from, "read")?;
        if metadata.nlink() > 1 {
            match self.links.get(&(metadata.dev(), metadata.ino())) {
                Some(first) if fs::hard_link(first, to).is_ok() => return Ok(()),
                _ => self.links.insert((metadata.dev(), metadata.ino()), to.to_owned()),
            };
        }
        let mut copy = File::create_new(to).context(to, "write")?;
        io::copy(&mut &source, &mut copy).context(to, "write")?;
        let lost = attributes::carry(&source, &copy).context(to, "write")?;
        self.lose(inside, &lost);
        attributes::carry_times(&source, &copy).context(to, "write")
    }

    fn lose(&mut self, inside: &Path, lost: &[Lost]) {
        for lost in lost {
            self.lost.entry(lost.what()).or_insert_with(|| (0, inside.to_owned())).0 += 1;
        }
    }

    /// What is not in the copy as it was, as clauses whose subject is the copy.
    fn notes(&self) -> Vec<String> {
        let note = |(what, (count, first)): (&String, &(usize, PathBuf))| {
            format!("holds {count} files and folders that could not keep {what}; the first is `{}`", first.display())
        };
        self.lost.iter().map(note).collect()
    }

    /// Modes and times of folders, innermost first: a read-only folder takes no more files, and every file in it
    /// changes its time.
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
