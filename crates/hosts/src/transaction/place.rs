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
//! | undoing, backup deleted | stock | - | graft | writes both again, grafts | deletes it; nothing to undo |
//! | installed anew, grafting without links | new stock | - | old graft | the same | the same |
//! | grafting or undoing without links | stock | graft | this graft | writes both again, grafts | deletes both; nothing to undo |
//!
//! The record goes before the host, so that no graft is ever without one; and it knows the graft that it replaces.
//! The backup is a second name (hard link) of the stock host: its bytes, owner and times are stock's own, and the
//! host's old name for other links of the same file stays with them. Undoing gives the host that name back.
//!
//! Where the system gives no second name (another user's file, with `fs.protected_hardlinks`), the graft gets the
//! backup's name first, and then host and backup exchange their names in one step: the backup is the stock file itself
//! here, too. Undoing exchanges them again. Only where a file system has neither, the backup is a copy, which may not
//! be able to have stock's owner; the record knows then what stock was.
//!
//! Nothing of this is final until the result has been told ([`Transaction`]): until then the files that were replaced
//! or deleted lie beside the host under temporary names. A file under one of the two names that is none of ours is left
//! alone, and the host is not grafted.

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

/// Where a graft comes from.
pub(crate) enum Content<'a> {
    /// It is made from the host's bytes.
    Host(&'a ReadyGraft),
    /// A bundle: it has been written already, with proven entries, safely to disk, while the host had this identity.
    Bundle { file: Cell<Option<Staged>>, sha256: &'a str, identity: Identity },
}

impl Content<'_> {
    /// A bundle that lies in `file` and has this SHA-256.
    pub(crate) fn bundle(file: Staged, sha256: &str, identity: Identity) -> Content<'_> {
        Content::Bundle { file: Cell::new(Some(file)), sha256, identity }
    }
}

/// One host to replace, and how.
pub(crate) struct Change<'a> {
    /// The host; no symbolic link.
    pub(crate) host: &'a Path,
    /// The file that was planned for, if its bytes were kept.
    pub(crate) read: Option<&'a HostFile>,
    /// SHA-256 of the host that was planned for.
    pub(crate) expected: &'a str,
    /// How it becomes a graft. `None`: the host stays, only its record is written.
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
    /// What the backup could not keep of stock: clauses whose subject is the backup.
    pub(crate) backup_lacks: Vec<String>,
}

/// Executes all changes. Returns notes on each.
///
/// The folders of all hosts have to be locked.
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
            if Identity::of(&fs::metadata(host).context(host, "read")?) != prepared.identity {
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
        // The graft is in place; that a crash of the machine might still undo it is no failure.
        let _ = sync_folder(folder_of(change.host));
    }
    Ok(notes)
}

struct Prepared {
    identity: Identity,
    graft: Option<Staged>,
    /// Whether the host itself is to be the backup, and has no second name yet.
    becomes_backup: bool,
    notes: Notes,
}

/// Returns the identity of the host after the backup was made. `before` is what the host was when it was read.
///
/// overlayfs copies a file of a lower layer before it gets another link. If the file had several links, the copy has
/// another inode number. It is the same host if all else is equal, the content included.
fn identity_after_backup(host: &Path, before: &fs::Metadata, expected: &str) -> Result<Identity, Error> {
    let after = fs::metadata(host).context(host, "read")?;
    let (old, new) = (Identity::of(before), Identity::of(&after));
    let owned = |metadata: &fs::Metadata| (metadata.mode(), metadata.uid(), metadata.gid());
    let is_copy = new.may_be_copy_of(&old) && owned(before) == owned(&after);
    if old == new || (is_copy && sidecar::sha256(host)?.as_deref() == Some(expected)) {
        return Ok(new);
    }
    Err(Error::ChangedMeanwhile { path: host.to_owned() })
}

fn prepare(change: &Change<'_>, transaction: &mut Transaction, observe: Observer<'_>) -> Result<Prepared, Error> {
    let host = change.host;
    let again = HostFile::open(host.to_owned())?;
    let file = again.file();
    let metadata = file.metadata().context(host, "read")?;
    let mut identity = Identity::of(&metadata);
    let bytes = match (&change.graft, change.read.and_then(|read| read.bytes_of(&identity))) {
        (Some(Content::Bundle { .. }), _) => &[],
        (_, Some(bytes)) => bytes,
        (_, None) => again.bytes()?,
    };
    // A graft that is made again compares the host's bytes itself.
    let proven = match &change.graft {
        Some(Content::Host(ready)) => Some(ready.graft(bytes)?),
        Some(Content::Bundle { .. }) | None => None,
    };
    // The record is of this very graft, or the graft is not placed.
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
    let mut backup = Backup::There;
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
            Backup::Lacking => Some(Attributes::of(file).context(host, "read")?),
            // A backup that was made earlier.
            Backup::There => old.filter(|old| old.stock_sha256 == record.stock_sha256).and_then(|old| old.stock),
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
    Ok(Prepared { identity, graft, becomes_backup: matches!(backup, Backup::HostItself), notes })
}

/// How many of the host's links are ours: its own name, and those of backups. The backup of another name of the same
/// file in this folder is one, too.
fn own_links(host: &Path, metadata: &fs::Metadata) -> u64 {
    let same = |other: &fs::Metadata| (other.dev(), other.ino()) == (metadata.dev(), metadata.ino());
    let entries = fs::read_dir(folder_of(host)).into_iter().flatten().flatten();
    let backups = entries.filter(|entry| is_backup(&entry.path()) && entry.metadata().is_ok_and(|other| same(&other)));
    1 + backups.count() as u64
}

/// Where the backup is before the host is replaced.
enum Backup {
    /// It is there, and as good as stock.
    There,
    /// It is there, a copy that could not have all of stock's attributes.
    Lacking,
    /// The host is going to be it.
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
        Some(found) if found == stock_sha256 => return Ok(Backup::There),
        // What a killed run left, which had no links.
        Some(found) if old.is_some_and(|old| old.knows(&found)) => {}
        Some(_) => {
            notes.on_host.push("was installed anew since it was grafted; its backup is now the new stock".to_owned());
        }
        None => {}
    }
    // Stock may have been unpacked a moment ago; from now on it has to survive.
    file.sync_all().context(host, "sync")?;
    let (backup, lost) = match Staged::second_name(host, host) {
        Ok(link) => (link, Vec::new()),
        Err(_) if can_exchange(host) => {
            // An earlier backup goes before the record that names it does.
            transaction.remove(host, &path).context(&path, "replace")?;
            return Ok(Backup::HostItself);
        }
        Err(_) => Staged::copy(host, host)?,
    };
    observe(Stage::BackupMade);
    transaction.swap(host, backup, &path)?;
    observe(Stage::BackupPlaced);
    notes.backup_lacks.extend(lost.iter().map(ToString::to_string));
    Ok(if lost.is_empty() { Backup::There } else { Backup::Lacking })
}

/// Gives all hosts their stock file back or, on an error, none; then takes away their records and backups. Returns
/// notes for the user, a list for each host.
///
/// The folders of all hosts have to be locked, and the hashes of hosts and backups compared with the records.
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
        let now = File::open(host).and_then(|file| Attributes::of(&file)).context(host, "read")?;
        let was = record.and_then(|record| record.stock);
        let mut missing = was.map(|was| was.missing_in(&now)).unwrap_or_default();
        missing.extend(remove_sidecars(host, transaction, observe));
        notes.push(missing);
    }
    Ok(notes)
}

/// Takes backup and record away from a host that is stock again. What cannot be deleted stays, and does no harm;
/// returns that, as clauses whose subject is the host.
pub(crate) fn remove_sidecars(host: &Path, transaction: &mut Transaction, observe: Observer<'_>) -> Vec<String> {
    let mut notes = Vec::new();
    for (path, stage) in [(backup_path(host), Stage::BackupDeleted), (record_path(host), Stage::RecordDeleted)] {
        match transaction.remove(host, &path) {
            Err(error) => {
                // A backup without a record might be anybody's.
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
