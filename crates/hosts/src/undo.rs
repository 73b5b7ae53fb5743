//! Restores the stock host, byte for byte, from the backup beside a graft. A graft is never edited back to stock: only
//! a file with stock's SHA-256 is stock.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::digest;
use crate::error::rollback::Purpose;
use crate::error::{Error, IoContext};
use crate::file::host_file::{read, real_file};
use crate::file::names::{backup_path, host_of_sidecar, is_backup, record_path};
use crate::file::signature::host_kind;
use crate::host::needed;
use crate::host::stock::parse;
use crate::recognition::graft::carries_graft;
use crate::recognition::image::is_image;
use crate::recognition::{Kind, check_record, recognise};
use crate::record::Record;
use crate::record::backup::Backup;
use crate::sink::Sink;
use crate::source::programs::candidates;
use crate::source::walk::walk;
use crate::transaction::pending::Pending;
use crate::transaction::place::{Observer, remove_sidecars, restore};
use crate::transaction::staged::Staged;
use crate::watch::Watch;

/// The action of `undo` on a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum UndoneAction {
    /// Stock is back.
    Restored,
    /// It was stock already. A backup and a record that a killed run left are deleted.
    NothingToUndo,
    /// Only planned (`dry_run`): stock would be back.
    Planned,
}

/// One host that is stock now.
#[derive(Debug)]
pub struct Undone {
    /// The host.
    pub path: PathBuf,
    /// The action taken.
    pub action: UndoneAction,
    /// SHA-256 of the stock host.
    pub stock_sha256: String,
    /// Remarks for the user: clauses whose subject is the host.
    pub notes: Vec<String>,
}

/// Restores the stock file of `target`; in a folder, those of all hosts or, on an error, of none.
///
/// A host that carries no graft is left alone without an error, so that undoing twice succeeds.
pub fn undo(target: &Path) -> Result<Vec<Undone>, Error> {
    undo_under(target, None, &Watch::default()).map(Pending::commit)
}

/// Like [`undo`], but returns a pending result: the caller commits it once it has been reported. A host without a
/// backup gets `stock`, if that is the stock file that its record names. `watch` gets the progress.
pub fn undo_under(target: &Path, stock: Option<&Path>, watch: &Watch<'_>) -> Result<Pending<Vec<Undone>>, Error> {
    undo_with(target, stock, watch, &|_| {}).map_err(|error| match error {
        Error::Io { .. } => Error::InUndo(Box::new(error)),
        other => other,
    })
}

/// Returns what [`undo_under`] would do now, and writes nothing.
///
/// # Errors
/// Those of [`undo_under`], but for errors of writing.
pub fn planned_undo(target: &Path, stock: Option<&Path>) -> Result<Vec<Undone>, Error> {
    let (hosts, single) = hosts_in(target)?;
    let planned = hosts.iter().map(|host| {
        let Assessment { host, state, stock_sha256, notes, .. } = assess(host, single, stock, false)?;
        let action = match state {
            HostState::Graft => UndoneAction::Planned,
            HostState::Stock | HostState::StockWithLeftovers => UndoneAction::NothingToUndo,
        };
        Ok(Undone { path: host, action, stock_sha256, notes })
    });
    planned.collect()
}

#[cfg(test)]
pub(crate) fn undo_observed(
    target: &Path,
    watch: &Watch<'_>,
    observe: Observer<'_>,
) -> Result<Pending<Vec<Undone>>, Error> {
    undo_with(target, None, watch, observe)
}

/// Returns the hosts that `target` names, and whether it is one itself.
fn hosts_in(target: &Path) -> Result<(BTreeSet<PathBuf>, bool), Error> {
    let metadata = fs::metadata(target).context(target, "read")?;
    if is_image(target)? {
        let reason = "the stock image is written to a new image, not in place";
        return Err(Error::Out { out: target.to_owned(), reason, help: "name the new one: `-o STOCK`" });
    }
    let hosts = if metadata.is_dir() {
        let found = walk(target, None)?;
        let hosts: BTreeSet<PathBuf> = found.archives.into_iter().chain(found.with_sidecars).collect();
        if hosts.is_empty() {
            check_installation(target)?;
        }
        hosts
    } else if metadata.is_file() {
        let host = real_file(target)?;
        check_record(&host)?;
        if let Some(of) = host_of_sidecar(&host)
            && is_backup(&host)
            && record_path(&of).exists()
            // Otherwise the backup was grafted itself.
            && !record_path(&host).exists()
        {
            return Err(Error::IsBackup { path: host, host: of });
        }
        BTreeSet::from([host])
    } else {
        return Err(Error::Unrecognised { path: target.to_owned(), found: "a special file".to_owned() });
    };
    Ok((hosts, !metadata.is_dir()))
}

/// Checks a folder without a `libc.a` and without a record: its programs are stock, so there is nothing to undo.
///
/// # Errors
/// It holds no program; or one is a graft without its backup.
fn check_installation(folder: &Path) -> Result<(), Error> {
    let files = candidates(folder, None)?.files;
    for path in &files {
        if carries_graft(path, false)? {
            return Err(Error::NoBackup { path: path.clone() });
        }
    }
    match files.is_empty() {
        true => Err(Error::NothingToUndo { folder: folder.to_owned() }),
        false => Ok(()),
    }
}

fn undo_with(
    target: &Path,
    stock: Option<&Path>,
    watch: &Watch<'_>,
    observe: Observer<'_>,
) -> Result<Pending<Vec<Undone>>, Error> {
    let (hosts, single) = hosts_in(target)?;
    let sink = Sink::open(Purpose::Undo, hosts.iter().map(PathBuf::as_path), watch)?;
    let mut assessed = Vec::new();
    for host in &hosts {
        assessed.push(assess(host, single, stock, true)?);
    }
    sink.write(Vec::new(), |undone, transaction| {
        // A missing backup is put where it belongs first: then the undo is the same as any other.
        for Assessment { host, lost, .. } in &mut assessed {
            if let Some(lost) = lost.take() {
                transaction.swap(host, lost, &backup_path(host))?;
            }
        }
        let grafts: Vec<&Path> = assessed
            .iter()
            .filter(|assessed| assessed.state == HostState::Graft)
            .map(|assessed| assessed.host.as_path())
            .collect();
        let mut restored = restore(&grafts, transaction, observe)?.into_iter();
        for Assessment { host, state, stock_sha256, mut notes, .. } in assessed {
            let action = match state {
                HostState::Graft => {
                    notes.extend(restored.next().unwrap_or_default());
                    UndoneAction::Restored
                }
                HostState::Stock => UndoneAction::NothingToUndo,
                HostState::StockWithLeftovers => {
                    notes.extend(remove_sidecars(&host, transaction, observe));
                    UndoneAction::NothingToUndo
                }
            };
            undone.push(Undone { path: host, action, stock_sha256, notes });
        }
        Ok(())
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum HostState {
    /// A graft, with the backup that its record names.
    Graft,
    /// Stock, or a file that allograft never changed.
    Stock,
    /// Stock, with a backup of itself or a record beside it (see the table in `place`).
    StockWithLeftovers,
}

struct Assessment {
    host: PathBuf,
    state: HostState,
    stock_sha256: String,
    /// A copy of the stock file, for a host whose backup is missing.
    lost: Option<Staged>,
    notes: Vec<String>,
}

/// Decides what to do with a host. `named`: the user named it, so it has to be an archive or an executable. `given`:
/// the stock file, for a host without a backup; with `copies`, a copy of it is made beside the host.
fn assess(host: &Path, named: bool, given: Option<&Path>, copies: bool) -> Result<Assessment, Error> {
    let found = File::open(host).and_then(|file| digest::of_file(&file)).context(host, "read")?;
    let (backup, beside) = (backup_path(host), Backup::beside(host)?);
    let path = host.to_owned();
    let mut notes = Vec::new();
    let mut lost = None;
    let is_own_backup = beside.as_ref().is_some_and(|beside| beside.sha256 == found);
    let (state, stock_sha256) = match Record::read(host)? {
        _ if is_own_backup && carries_graft(host, named)? => return Err(Error::BackupGrafted { path, backup }),
        _ if is_own_backup => (HostState::StockWithLeftovers, found),
        Some(record) if record.stock_sha256 == found => match beside {
            None => (HostState::StockWithLeftovers, found),
            // Left by a run that was killed on a file system without hard links.
            Some(left) if record.knows(&left.sha256) => (HostState::StockWithLeftovers, found),
            Some(_) => {
                notes.push(format!("is stock; `{}` belongs to a different file and stays", backup.display()));
                (HostState::Stock, found)
            }
        },
        Some(record) if record.knows(&found) => {
            let stock_sha256 = match (beside, given) {
                (None, Some(given)) => {
                    is_its_stock(host, given, &record)?;
                    lost = copies.then(|| copy_of_stock(host, given, &record)).transpose()?;
                    record.stock_sha256
                }
                (beside, _) => record.stock(host, beside)?.sha256,
            };
            notes.extend(read(host).ok().and_then(|graft| needed::remark(&graft)));
            (HostState::Graft, stock_sha256)
        }
        Some(record) => {
            let kind = host_kind(host);
            return Err(Error::ChangedSince { path, found, expected: record.graft_sha256, backup, kind });
        }
        None if carries_graft(host, named)? => {
            return Err(match beside {
                Some(_) => Error::RecordMissing { path, record: record_path(host), backup, kind: host_kind(host) },
                None => Error::NoBackup { path },
            });
        }
        None => {
            if beside.is_some() {
                notes.push(format!("carries no graft; `{}` belongs to a different file and stays", backup.display()));
            }
            (HostState::Stock, found)
        }
    };
    Ok(Assessment { host: path, state, stock_sha256, lost, notes })
}

/// Checks that the file at `given` is the stock file that the record names.
///
/// # Errors
/// It is not, or it cannot be read.
fn is_its_stock(host: &Path, given: &Path, record: &Record) -> Result<(), Error> {
    let path = given.to_owned();
    if !fs::metadata(given).context(given, "read")?.is_file() {
        return Err(Error::Unrecognised { path, found: "a folder or a special file".to_owned() });
    }
    let found = File::open(given).and_then(|file| digest::of_file(&file)).context(given, "read")?;
    if found != record.stock_sha256 {
        let expected = record.stock_sha256.clone();
        return Err(Error::NotItsStock { path, host: host.to_owned(), found, expected });
    }
    Ok(())
}

/// Copies the stock file at `given` beside `host`.
///
/// # Errors
/// It cannot be read or copied, or it has changed since it was checked.
fn copy_of_stock(host: &Path, given: &Path, record: &Record) -> Result<Staged, Error> {
    let (copy, _) = Staged::copy(host, given)?;
    match copy.sha256().context(given, "read")? == record.stock_sha256 {
        true => Ok(copy),
        false => Err(Error::ChangedMeanwhile { path: given.to_owned() }),
    }
}

/// The files to verify in `target`: itself, or every graft in a folder.
pub fn grafts_in(target: &Path) -> Result<Vec<PathBuf>, Error> {
    let folder = match recognise(target)? {
        Kind::Archive(host) | Kind::Executable(host) => return Ok(vec![host.path().to_owned()]),
        Kind::Packed(path, _) => {
            return Err(Error::Unrecognised { path, found: "a packed bundle".to_owned() });
        }
        Kind::Image(path) => {
            let (kind, reason) = ("a container image", "its files are verified before the image is written");
            let help = "unpack it to verify a file of it again";
            return Err(Error::Unsupported { path, kind, reason, help });
        }
        Kind::Folder(folder) => folder,
    };
    let found = walk(&folder, None)?;
    let mut grafts = Vec::new();
    let has_archives = !found.archives.is_empty();
    for host in found.archives.into_iter().chain(found.with_sidecars).collect::<BTreeSet<_>>() {
        if carries_graft(&host, false)? {
            grafts.push(host);
        }
    }
    if !has_archives {
        grafts.extend(grafted_programs(&folder)?);
        grafts.sort();
        grafts.dedup();
    }
    if grafts.is_empty() { Err(Error::NoGraft { folder }) } else { Ok(grafts) }
}

/// The programs of a folder that were grafted as executables, such as those of a copy that was written with grafts:
/// these have no records.
fn grafted_programs(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut grafts = Vec::new();
    for path in candidates(folder, None)?.files {
        let bytes = read(&path)?;
        let is_linked = || inspector::verify::is_without_note(&bytes).unwrap_or(true);
        if transplant::carries_graft(&bytes) && !is_linked() {
            grafts.push(path);
        }
    }
    Ok(grafts)
}

/// Returns the name of the foreign allocator in the archive at `path`: such a file is not stock, and not compared with.
pub fn foreign_allocator_in(path: &Path) -> Result<Option<&'static str>, Error> {
    Ok(surgery::plan::foreign_allocator(&parse(path, &read(path)?)?))
}
