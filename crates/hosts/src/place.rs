//! Puts grafts in place and takes them out again: backup, record, host, in an order that survives being killed.
//!
//! Three files belong together: the host, its backup (stock) and its record (the hashes of stock and graft).
//!
//! | killed while | host | backup | record | next `graft` | next `undo` |
//! | --- | --- | --- | --- | --- | --- |
//! | writing a temporary file | stock | - | - | deletes it, grafts | deletes it; nothing to undo |
//! | grafting, backup placed | stock | stock | - | keeps the backup, grafts | deletes it; nothing to undo |
//! | grafting, record placed | stock | stock | this graft | writes both again, grafts | deletes both; nothing to undo |
//! | (installed anew over a graft) | new stock | old stock | old graft | makes a new backup, grafts | refuses: changed |
//! | grafting a host that was installed anew | new stock | new stock | old graft | the same | the same |
//! | (done) | graft | stock | this graft | unchanged | restores |
//! | replacing a donor, record placed | old graft | stock | new graft, replaced: old | replaces | restores |
//! | undoing, host restored | stock | stock | graft | writes both again, grafts | deletes both; nothing to undo |
//! | undoing, record deleted | stock | stock | - | keeps the backup, grafts | deletes it; nothing to undo |
//!
//! The record goes before the host, so that no graft is ever without one; and it knows the graft that it replaces.
//! The backup is a second name (hard link) of the stock host: its bytes, owner and times are stock's own, and the
//! host's old name for other links of the same file stays with them. Undoing gives the host that name back.

use std::cell::Cell;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use tempfile::TempPath;

use crate::digest::{self, sha256};
use crate::error::{Error, IoContext};
use crate::lock::FolderLocks;
use crate::record::{Record, backup_path, folder_of, left_temporaries, record_path};
use crate::transaction::{Step, Transaction, second_name, sync_folder, written};

/// Where a run has got to; tests end the process at each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    BackupMade,
    BackupPlaced,
    RecordWritten,
    RecordPlaced,
    GraftWritten,
    Synced,
    HostReplaced,
    StockLinked,
    HostRestored,
    RecordDeleted,
    BackupDeleted,
}

/// Told of each stage once it is reached.
pub(crate) type Observer<'a> = &'a dyn Fn(Stage);

/// Makes the bytes of a graft from those of its host.
pub(crate) type Edit<'a> = &'a dyn Fn(&[u8]) -> Result<Vec<u8>, Error>;

/// Where a graft comes from.
pub(crate) enum Content<'a> {
    /// It is made from the host's bytes.
    Edit(Edit<'a>),
    /// It has been written already, safely to disk, while the host had this identity.
    Ready { file: Cell<Option<TempPath>>, identity: Identity },
}

impl Content<'_> {
    /// A graft that lies in `file`.
    pub(crate) fn ready(file: TempPath, identity: Identity) -> Self {
        Content::Ready { file: Cell::new(Some(file)), identity }
    }
}

/// What to do with one host.
pub(crate) struct Change<'a> {
    /// The host; no symbolic link.
    pub(crate) host: &'a Path,
    /// SHA-256 of the host that was planned for.
    pub(crate) expected: &'a str,
    /// How it becomes a graft. `None`: the host stays, only its record is written.
    pub(crate) graft: Option<Content<'a>>,
    /// Whether the host is stock and becomes the backup.
    pub(crate) backup: bool,
    /// The record to write.
    pub(crate) record: Option<&'a Record>,
}

/// Executes all changes or, on an error, none. Returns notes for the user, a list for each change.
///
/// The folders of all hosts have to be locked.
pub(crate) fn place(changes: &[Change<'_>], observe: Observer<'_>) -> Result<Vec<Vec<String>>, Error> {
    if changes.is_empty() {
        return Ok(Vec::new());
    }
    let mut transaction = Transaction::default();
    let mut ready = Vec::new();
    for change in changes {
        ready.push(prepare(change, &mut transaction, observe)?);
    }
    for change in changes {
        sync_folder(folder_of(change.host))?;
    }
    observe(Stage::Synced);
    let mut notes = Vec::new();
    let last = ready.iter().rposition(|prepared| prepared.graft.is_some());
    for (index, (change, prepared)) in changes.iter().zip(ready).enumerate() {
        if let Some(graft) = prepared.graft {
            if Identity::of(&fs::metadata(change.host).context(change.host, "read")?) != prepared.identity {
                return Err(Error::ChangedMeanwhile { path: change.host.to_owned() });
            }
            let step = if Some(index) == last { Step::Last } else { Step::Further };
            transaction.swap(change.host, graft, change.host, step)?;
            observe(Stage::HostReplaced);
        }
        notes.push(prepared.notes);
    }
    transaction.settle();
    for change in changes {
        // The graft is in place; that a crash of the machine might still undo it is no failure.
        let _ = sync_folder(folder_of(change.host));
    }
    Ok(notes)
}

struct Prepared {
    identity: Identity,
    graft: Option<TempPath>,
    notes: Vec<String>,
}

/// Tells whether a name still belongs to the file that was read, unwritten since. Without the time of the last change
/// of its links (`ctime`): making the backup is such a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

impl Identity {
    pub(crate) fn of(metadata: &fs::Metadata) -> Identity {
        Identity {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }
}

fn prepare(change: &Change<'_>, transaction: &mut Transaction, observe: Observer<'_>) -> Result<Prepared, Error> {
    let host = change.host;
    let mut file = File::open(host).context(host, "read")?;
    let metadata = file.metadata().context(host, "read")?;
    let identity = Identity::of(&metadata);
    let mut bytes = Vec::new();
    let same = match &change.graft {
        Some(Content::Ready { identity: planned_for, .. }) => *planned_for == identity,
        _ => {
            file.read_to_end(&mut bytes).context(host, "read")?;
            sha256(&bytes) == change.expected
        }
    };
    if !same {
        return Err(Error::ChangedMeanwhile { path: host.to_owned() });
    }
    let mut notes = Vec::new();
    if change.backup {
        if metadata.nlink() > own_links(host, &metadata) {
            notes.push("had other hard links; they keep the stock file, only this name is grafted".to_owned());
        }
        back_up(host, &file, change.expected, &mut notes, transaction, observe)?;
    }
    if let Some(record) = change.record {
        let path = record_path(host);
        let (new, _) = written(host, &record.encode(), &file)?;
        observe(Stage::RecordWritten);
        transaction.swap(host, new, &path, Step::Further)?;
        observe(Stage::RecordPlaced);
    }
    let graft = match &change.graft {
        None => None,
        Some(Content::Edit(make)) => {
            let (new, lost) = written(host, &make(&bytes)?, &file)?;
            notes.extend(lost);
            observe(Stage::GraftWritten);
            Some(new)
        }
        Some(Content::Ready { file, .. }) => file.take(),
    };
    Ok(Prepared { identity, graft, notes })
}

/// How many of the host's links are ours: its own name, and that of a backup which a killed run left.
fn own_links(host: &Path, metadata: &fs::Metadata) -> u64 {
    let same = |other: fs::Metadata| (other.dev(), other.ino()) == (metadata.dev(), metadata.ino());
    if fs::symlink_metadata(backup_path(host)).is_ok_and(same) { 2 } else { 1 }
}

fn back_up(
    host: &Path,
    file: &File,
    stock_sha256: &str,
    notes: &mut Vec<String>,
    transaction: &mut Transaction,
    observe: Observer<'_>,
) -> Result<(), Error> {
    let backup = backup_path(host);
    match File::open(&backup).and_then(|file| digest::of_file(&file)) {
        Ok(found) if found == stock_sha256 => return Ok(()),
        Ok(_) => notes.push("was installed anew since it was grafted; its backup is now the new stock".to_owned()),
        Err(_) => {}
    }
    // Stock may have been unpacked a moment ago; from now on it has to survive.
    file.sync_all().context(host, "sync")?;
    let link = second_name(host, host)?;
    observe(Stage::BackupMade);
    transaction.swap(host, link, &backup, Step::Further)?;
    observe(Stage::BackupPlaced);
    Ok(())
}

/// Gives all hosts their stock file back or, on an error, none; then deletes their records and backups.
///
/// The folders of all hosts have to be locked, and the hashes of hosts and backups compared with the records.
pub(crate) fn restore(hosts: &[&Path], observe: Observer<'_>) -> Result<(), Error> {
    let mut transaction = Transaction::default();
    let mut ready = Vec::new();
    for host in hosts {
        ready.push(second_name(host, &backup_path(host))?);
        observe(Stage::StockLinked);
    }
    for (index, (host, stock)) in hosts.iter().zip(ready).enumerate() {
        let step = if index + 1 == hosts.len() { Step::Last } else { Step::Further };
        transaction.swap(host, stock, host, step)?;
        observe(Stage::HostRestored);
    }
    transaction.settle();
    for host in hosts {
        let _ = sync_folder(folder_of(host));
        forget(host, observe);
    }
    Ok(())
}

/// Deletes record and backup of a host that is stock again. What cannot be deleted stays, and does no harm.
pub(crate) fn forget(host: &Path, observe: Observer<'_>) {
    for (path, stage) in [(record_path(host), Stage::RecordDeleted), (backup_path(host), Stage::BackupDeleted)] {
        match fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {}
            _ => observe(stage),
        }
    }
    let _ = sync_folder(folder_of(host));
}

/// Deletes the temporary files that killed runs left beside `host`, unless another run may be using them.
pub(crate) fn sweep(host: &Path, locks: &FolderLocks) {
    if !locks.holds(host) {
        return;
    }
    for path in left_temporaries(host).unwrap_or_default() {
        let _ = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
    }
}
