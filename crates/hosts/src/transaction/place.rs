//! Puts grafts in place and removes them again: backup, record, host, in an order that survives a kill.
//!
//! Three files belong together: the host, its backup (stock) and its record (the hashes of stock and graft).
//!
//! | killed while | host | backup | record | next `graft` | next `undo` |
//! | --- | --- | --- | --- | --- | --- |
//! | writing a temporary file | stock | - | - | deletes it, grafts | deletes it; nothing to undo |
//! | grafting, backup placed | stock | stock | - | keeps the backup, grafts | deletes it; nothing to undo |
//! | grafting, record placed | stock | stock | this graft | writes both again, grafts | deletes both; nothing to undo |
//! | (installed anew over a graft) | new stock | old stock | old graft | makes a new backup, grafts | refuses: changed |
//! | grafting one installed anew | new stock | new stock | old graft | keeps the backup, grafts | deletes both; nothing to undo |
//! | (done) | graft | stock | this graft | unchanged | restores |
//! | replacing a donor, record placed | old graft | stock | new graft, replaced: old | replaces | restores |
//! | undoing, host restored | stock | stock | graft | writes both again, grafts | deletes both; nothing to undo |
//! | undoing, backup deleted | stock | - | graft | writes both again, grafts | deletes it; nothing to undo |
//! | grafting one installed anew, without links | new stock | - | old graft | makes a new backup, grafts | refuses: changed |
//! | grafting or undoing without links | stock | graft | this graft | writes both again, grafts | deletes both; nothing to undo |
//!
//! The record is written before the host, so that no graft is ever without one, and it names the graft that it
//! replaces. The backup is a second name (hard link) of the stock host: so it has stock's own bytes, owner and times,
//! and further links of the file stay links of stock. Undoing gives the host's name back to that file.
//!
//! Where the system refuses a hard link (another user's file, with `fs.protected_hardlinks`), the graft gets the
//! backup's name first, and then host and backup exchange their names in one step: the backup is the stock file itself
//! here, too. Undoing exchanges them again. Only if a file system has neither links nor exchange is the backup a copy.
//! The copy may lack stock's owner; the record then has stock's attributes.
//!
//! No step is final until the result has been reported ([`Transaction`]): until then the files that were replaced or
//! deleted are beside the host under temporary names. If one of the two names belongs to a file that allograft did not
//! make, the host is not grafted.

use std::cell::Cell;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::digest::sha256;
use crate::error::{Error, IoContext};
use crate::file::attributes::Attributes;
use crate::file::host_file::{HostFile, Identity};
use crate::file::lock::FolderLocks;
use crate::file::names::{backup_path, folder_of, is_backup, record_path};
use crate::file::temporaries::{can_exchange, left_temporaries, remove_folder};
use crate::prove::prepared::ReadyGraft;
use crate::record::{Record, sidecar};
use crate::transaction::staged::Staged;
use crate::transaction::{Transaction, sync_folder};

/// The stages of a run; tests end the process at each.
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

/// Called at each stage.
pub(crate) type Observer<'a> = &'a dyn Fn(Stage);

/// The source of a graft's bytes.
pub(crate) enum Content<'a> {
    /// The graft is made from the host's bytes.
    Host(&'a ReadyGraft),
    /// A bundle, already written and synced to disk with proven entries, when the host had this identity.
    Bundle { file: Cell<Option<Staged>>, sha256: &'a str, identity: Identity },
}

impl Content<'_> {
    /// The bundle in `file`, which has this SHA-256.
    pub(crate) fn bundle(file: Staged, sha256: &str, identity: Identity) -> Content<'_> {
        Content::Bundle { file: Cell::new(Some(file)), sha256, identity }
    }
}

/// One host to replace, and how.
pub(crate) struct Change<'a> {
    /// The host, not a symbolic link.
    pub(crate) host: &'a Path,
    /// The file that was planned, if its bytes were kept.
    pub(crate) read: Option<&'a HostFile>,
    /// SHA-256 of the host that was planned.
    pub(crate) expected: &'a str,
    /// The graft; `None` if only the record is written.
    pub(crate) graft: Option<Content<'a>>,
    /// Whether the host is stock and becomes the backup.
    pub(crate) backup: bool,
    /// The record to write.
    pub(crate) record: Option<&'a Record>,
}

/// Remarks on a change for the user.
#[derive(Default)]
pub(crate) struct Notes {
    /// Clauses whose subject is the host.
    pub(crate) on_host: Vec<String>,
    /// The attributes of stock that the backup could not keep, as clauses whose subject is the backup.
    pub(crate) backup_lacks: Vec<String>,
}

/// Executes all changes. Returns notes on each.
///
/// The caller has locked the folders of all hosts.
pub(crate) fn place(
    changes: &[Change<'_>],
    transaction: &mut Transaction,
    observe: Observer<'_>,
) -> Result<Vec<Notes>, Error> {
    if changes.is_empty() {
        return Ok(Vec::new());
    }
    let mut ready = Vec::new();
    for change in changes {
        ready.push(prepare(change, transaction, observe)?);
    }
    for change in changes {
        sync_folder(folder_of(change.host))?;
    }
    observe(Stage::Synced);
    let mut notes = Vec::new();
    for (change, prepared) in changes.iter().zip(ready) {
        let host = change.host;
        if let Some(graft) = prepared.graft {
            if Identity::new(&fs::metadata(host).context(host, "read")?) != prepared.identity {
                return Err(Error::ChangedMeanwhile { path: host.to_owned() });
            }
            if prepared.becomes_backup {
                let backup = backup_path(host);
                transaction.swap(host, graft, &backup)?;
                observe(Stage::BackupPlaced);
                transaction.exchange(host, &backup).context(host, "replace")?;
            } else {
                transaction.swap(host, graft, host)?;
            }
            observe(Stage::HostReplaced);
        }
        notes.push(prepared.notes);
    }
    for change in changes {
        // The graft is in place. That a crash of the machine could still undo the rename is not a failure.
        let _ = sync_folder(folder_of(change.host));
    }
    Ok(notes)
}

struct PreparedChange {
    identity: Identity,
    graft: Option<Staged>,
    /// Whether the host itself will be the backup, and has no second name yet.
    becomes_backup: bool,
    notes: Notes,
}

/// Returns the identity of the host after the backup was made. `before` is the host's metadata when it was read.
///
/// overlayfs copies a file of a lower layer before it gets a new link. If the file had several links, the copy has a
/// different inode number. It is still the same host if everything else is equal, including the content.
fn identity_after_backup(host: &Path, before: &fs::Metadata, expected: &str) -> Result<Identity, Error> {
    let after = fs::metadata(host).context(host, "read")?;
    let (old, new) = (Identity::new(before), Identity::new(&after));
    let owned = |metadata: &fs::Metadata| (metadata.mode(), metadata.uid(), metadata.gid());
    let is_copy = new.may_be_copy_of(&old) && owned(before) == owned(&after);
    if old == new || (is_copy && sidecar::sha256(host)?.as_deref() == Some(expected)) {
        return Ok(new);
    }
    Err(Error::ChangedMeanwhile { path: host.to_owned() })
}

fn prepare(change: &Change<'_>, transaction: &mut Transaction, observe: Observer<'_>) -> Result<PreparedChange, Error> {
    let host = change.host;
    let again = HostFile::open(host.to_owned())?;
    let file = again.file();
    let metadata = file.metadata().context(host, "read")?;
    let mut identity = Identity::new(&metadata);
    let bytes = match (&change.graft, change.read.and_then(|read| read.bytes_of(&identity))) {
        (Some(Content::Bundle { .. }), _) => &[],
        (_, Some(bytes)) => bytes,
        (_, None) => again.bytes()?,
    };
    // Remaking a graft compares the host's bytes, too.
    let proven = match &change.graft {
        Some(Content::Host(ready)) => Some(ready.graft(bytes)?),
        Some(Content::Bundle { .. }) | None => None,
    };
    // A graft is placed only if the record names exactly this graft.
    let is_on_record = |sha256: &str| change.record.is_none_or(|record| record.graft_sha256 == sha256);
    let same = match (&change.graft, &proven) {
        (Some(Content::Bundle { identity: planned_for, sha256, .. }), _) => {
            *planned_for == identity && is_on_record(sha256)
        }
        (_, Some(proven)) => is_on_record(proven.sha256()),
        (_, None) => sha256(bytes) == change.expected,
    };
    if !same {
        return Err(Error::ChangedMeanwhile { path: host.to_owned() });
    }
    let mut notes = Notes::default();
    let old = Record::read(host).unwrap_or(None);
    let mut backup = Backup::Complete;
    if change.backup {
        if metadata.nlink() > 1 && metadata.nlink() > own_links(host, &metadata) {
            notes.on_host.push("had other hard links; they keep the stock file, only this name is grafted".to_owned());
        }
        backup = back_up(host, file, change.expected, old.as_ref(), &mut notes, transaction, observe)?;
        identity = identity_after_backup(host, &metadata, change.expected)?;
    }
    if let Some(record) = change.record {
        let mut record = record.clone();
        record.stock = match &backup {
            Backup::Lacking => Some(Attributes::read(file).context(host, "read")?),
            // A backup that was made earlier.
            Backup::Complete => old.filter(|old| old.stock_sha256 == record.stock_sha256).and_then(|old| old.stock),
            Backup::HostItself => None,
        };
        let path = record_path(host);
        let new = Staged::record(host, &record, file)?;
        observe(Stage::RecordWritten);
        transaction.swap(host, new, &path)?;
        observe(Stage::RecordPlaced);
    }
    let graft = match (&change.graft, proven) {
        (Some(Content::Bundle { file, .. }), _) => file.take(),
        (_, Some(graft)) => {
            let (new, lost) = Staged::proven(host, &graft, Some(file))?;
            notes.on_host.extend(lost.iter().map(ToString::to_string));
            observe(Stage::GraftWritten);
            Some(new)
        }
        (_, None) => None,
    };
    Ok(PreparedChange { identity, graft, becomes_backup: matches!(backup, Backup::HostItself), notes })
}

/// The number of the host's links that allograft accounts for: its own name and those of backups, including the backup
/// of a further name of the same file in this folder.
fn own_links(host: &Path, metadata: &fs::Metadata) -> u64 {
    let same = |other: &fs::Metadata| (other.dev(), other.ino()) == (metadata.dev(), metadata.ino());
    let entries = fs::read_dir(folder_of(host)).into_iter().flatten().flatten();
    let backups = entries.filter(|entry| is_backup(&entry.path()) && entry.metadata().is_ok_and(|other| same(&other)));
    1 + backups.count() as u64
}

/// The state of the backup before the host is replaced.
enum Backup {
    /// It exists, with all of stock's attributes.
    Complete,
    /// It exists, as a copy that lacks some of stock's attributes.
    Lacking,
    /// The host itself will be the backup.
    HostItself,
}

fn back_up(
    host: &Path,
    file: &File,
    stock_sha256: &str,
    old: Option<&Record>,
    notes: &mut Notes,
    transaction: &mut Transaction,
    observe: Observer<'_>,
) -> Result<Backup, Error> {
    let path = backup_path(host);
    match sidecar::sha256(&path)? {
        Some(found) if found == stock_sha256 => return Ok(Backup::Complete),
        // Left by a run that was killed on a file system without hard links.
        Some(found) if old.is_some_and(|old| old.knows(&found)) => {}
        Some(_) => {
            notes.on_host.push("was installed anew since it was grafted; its backup is now the new stock".to_owned());
        }
        None => {}
    }
    // Stock may have been unpacked a moment ago; from now on it has to survive a crash.
    file.sync_all().context(host, "sync")?;
    let (backup, lost) = match Staged::second_name(host, host) {
        Ok(link) => (link, Vec::new()),
        Err(_) if can_exchange(host) => {
            // An earlier backup is removed before the record that names it.
            transaction.remove(host, &path).context(&path, "replace")?;
            return Ok(Backup::HostItself);
        }
        Err(_) => Staged::copy(host, host)?,
    };
    observe(Stage::BackupMade);
    transaction.swap(host, backup, &path)?;
    observe(Stage::BackupPlaced);
    notes.backup_lacks.extend(lost.iter().map(ToString::to_string));
    Ok(if lost.is_empty() { Backup::Complete } else { Backup::Lacking })
}

/// Restores the stock file of all hosts or, on an error, of none; then removes their records and backups. Returns notes
/// for the user, a list for each host.
///
/// The caller has locked the folders of all hosts, and compared the hashes of hosts and backups with the records.
pub(crate) fn restore(
    hosts: &[&Path],
    transaction: &mut Transaction,
    observe: Observer<'_>,
) -> Result<Vec<Vec<String>>, Error> {
    let mut ready = Vec::new();
    for host in hosts {
        ready.push(Staged::second_name(host, &backup_path(host)).ok());
        observe(Stage::StockLinked);
    }
    for (host, stock) in hosts.iter().zip(ready) {
        let backup = backup_path(host);
        match stock {
            Some(stock) => transaction.swap(host, stock, host)?,
            None => {
                if transaction.exchange(host, &backup).is_err() {
                    let (copy, _) = Staged::copy(host, &backup)?;
                    transaction.swap(host, copy, host)?;
                }
            }
        }
        observe(Stage::HostRestored);
    }
    let mut notes = Vec::new();
    for host in hosts {
        let _ = sync_folder(folder_of(host));
        let record = Record::read(host)?;
        let now = File::open(host).and_then(|file| Attributes::read(&file)).context(host, "read")?;
        let was = record.and_then(|record| record.stock);
        let mut missing = was.map(|was| was.missing_in(&now)).unwrap_or_default();
        missing.extend(remove_sidecars(host, transaction, observe));
        notes.push(missing);
    }
    Ok(notes)
}

/// Removes backup and record of a host that is stock again. A file that cannot be deleted does no harm; it is returned
/// as a clause whose subject is the host.
pub(crate) fn remove_sidecars(host: &Path, transaction: &mut Transaction, observe: Observer<'_>) -> Vec<String> {
    let mut notes = Vec::new();
    for (path, stage) in [(backup_path(host), Stage::BackupDeleted), (record_path(host), Stage::RecordDeleted)] {
        match transaction.remove(host, &path) {
            Err(error) => {
                // A backup without a record could be any user's file.
                notes.push(format!("is stock, but `{}` could not be deleted: {error}", path.display()));
                break;
            }
            Ok(()) => observe(stage),
        }
    }
    let _ = sync_folder(folder_of(host));
    notes
}

/// Deletes the temporary files that killed runs left beside `host`, unless another run may be using them.
pub(crate) fn remove_leftovers(host: &Path, locks: &FolderLocks) {
    if !locks.holds(host) {
        return;
    }
    for path in left_temporaries(host).unwrap_or_default() {
        let folder = fs::symlink_metadata(&path).is_ok_and(|found| found.is_dir());
        let _ = if folder { remove_folder(&path) } else { fs::remove_file(&path) };
    }
}
