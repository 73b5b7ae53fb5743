//! Executables that are linked already: an allocator goes into the file itself, in place or elsewhere.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use donors::Donor;
use format::{Arch, Note, StringFunction};
use surgery::donor::DonorObject;
use transplant::{Absence, Blob, Entry, Plan, StringEntry};

use crate::companion;
use crate::conditions::Conditions;
use crate::digest::sha256;
use crate::error::{Error, IoContext};
use crate::graft::{ALLOGRAFT, Action, Request};
use crate::lock::FolderLocks;
use crate::pending::Pending;
use crate::place::{Change, Content, place, sweep};
use crate::recognise::{Target, read, recognise};
use crate::record::{Record, backup_path, folder_of, host_of_companion};
use crate::rehearsal;
use crate::transaction::{Deed, Transaction, sync_folder, written};
use crate::undo;

/// What was done to an executable.
#[derive(Debug)]
pub struct GraftedExecutable {
    /// The graft: the host itself or, with `out`, the file that was written.
    pub path: PathBuf,
    /// With `out`: the host that was read.
    pub source: Option<PathBuf>,
    /// What was done.
    pub action: Action,
    /// What it is for.
    pub arch: Arch,
    /// What went in.
    pub donor: Note,
    /// Whether it is position-independent.
    pub position_independent: bool,
    /// Whether it has a symbol table, which agreed with what its code says.
    pub symbols: bool,
    /// The functions that lead to the donor now.
    pub entries: Vec<Entry>,
    /// The donor of string functions, if it was asked for.
    pub strings: Option<Note>,
    /// With it: the program's string functions, those that lead to the donor's now and those that stay.
    pub string_entries: Vec<StringEntry>,
    /// With it: the string functions that are not among them, and why.
    pub strings_absent: Vec<(StringFunction, Absence)>,
    /// Whether its fork tells the donor; a program without has no fork.
    pub fork_hook: bool,
    /// Whether its threads tell the donor when they end; a program without has no threads.
    pub thread_end: bool,
    /// SHA-256 of the stock host.
    pub stock_sha256: String,
    /// SHA-256 of the graft.
    pub graft_sha256: String,
    /// The backup that `undo` restores, if there is one (with `dry_run`: will be).
    pub backup: Option<PathBuf>,
    /// What was tried before the graft took the host's place.
    pub tried: Vec<String>,
    /// What the user should know, as clauses whose subject is the host.
    pub notes: Vec<String>,
}

/// Whether the target is an executable, by its content.
///
/// # Errors
/// A target that cannot be read, or that is nothing that is known.
pub fn is_executable(target: &Path) -> Result<bool, Error> {
    Ok(matches!(recognise(target)?, Target::Executable(_)))
}

/// What goes into an executable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inserts {
    /// The allocator's note.
    pub malloc: Note,
    /// That of the string functions.
    pub strings: Option<Note>,
}

/// The graft of an executable: what is in it, and its bytes. With `strings`, its string functions are redirected too, as far as
/// they are proven.
///
/// # Errors
/// What speaks against it.
pub fn plan_executable(
    path: &Path,
    stock: &[u8],
    donor: &'static Donor,
    settings: &[(String, i64)],
    strings: bool,
) -> Result<(Inserts, Plan), Error> {
    // Of others the plan says what they are.
    let arch = transplant::arch(stock).unwrap_or(Arch::X86_64);
    let insert = insert(path, arch, donor, settings, strings, ALLOGRAFT)?;
    let plan = insert.plan(path, stock)?;
    Ok((insert.inserts, plan))
}

/// A donor that is ready to go into executables.
pub(crate) struct Insert {
    pub(crate) inserts: Inserts,
    pub(crate) blob: Blob,
    /// The donor as it was linked, before options and notes were filled in.
    pub(crate) linked: &'static [u8],
}

impl Insert {
    /// Plans the graft of the bytes `stock` with this donor. `path` is for messages.
    ///
    /// # Errors
    /// What speaks against it.
    pub(crate) fn plan(&self, path: &Path, stock: &[u8]) -> Result<Plan, Error> {
        let unfit = |source| Error::Blob { donor: self.inserts.malloc.donor.clone(), source };
        transplant::plan(stock, &self.blob, false)
            .map_err(unfit)?
            .map_err(|refusal| Error::Executable { path: path.to_owned(), refusal })
    }
}

/// Fills options and notes into the donor for `arch`; with `strings`, the one that brings string functions. `path` is for messages,
/// `allograft` the version of this program for the notes.
pub(crate) fn insert(
    path: &Path,
    arch: Arch,
    donor: &'static Donor,
    settings: &[(String, i64)],
    strings: bool,
    allograft: &str,
) -> Result<Insert, Error> {
    let wrong = |source| Error::Donor { donor: donor.name.to_owned(), source };
    let unfit = |source| Error::Blob { donor: donor.name.to_owned(), source };
    let object = donor.object(arch).zip(donor.blob(arch));
    let (object, alone) = object.ok_or_else(|| Error::NoBlob { path: path.to_owned(), donor: donor.name })?;
    let linked = match strings {
        true => donor.blob_with_strings(arch).ok_or_else(|| Error::NoStrings { path: path.to_owned(), arch })?,
        false => alone,
    };
    let tuned = DonorObject::parse(object).and_then(|object| object.tuned(settings, allograft)).map_err(wrong)?;
    let tuned = DonorObject::parse(&tuned).map_err(wrong)?;
    let mut blob = Blob::parse(linked, &tuned.note(), &tuned.options()).map_err(unfit)?;
    let strings = strings.then(|| strings_note(arch, allograft)).transpose()?;
    if let Some(note) = &strings {
        blob = blob.with_strings(note).map_err(unfit)?;
    }
    Ok(Insert { inserts: Inserts { malloc: tuned.note(), strings }, blob, linked })
}

/// The note of the string functions for `arch`.
fn strings_note(arch: Arch, allograft: &str) -> Result<Note, Error> {
    let donor = donors::strings();
    let wrong = |source| Error::Donor { donor: donor.name.to_owned(), source };
    let object = donor.object(arch).unwrap_or_default();
    let tuned = DonorObject::parse(object).and_then(|object| object.tuned(&[], allograft)).map_err(wrong)?;
    Ok(DonorObject::parse(&tuned).map_err(wrong)?.note())
}

/// Grafts the executable `stock` with a donor and its options into the file `out`, which gets the mode of `stock`. For
/// programs that compare grafts: nothing is tried and nothing recorded.
///
/// # Errors
/// What speaks against it, and what cannot be read or written.
pub fn graft_executable_to(
    stock: &Path,
    out: &Path,
    donor: &'static Donor,
    settings: &[(String, i64)],
    strings: bool,
) -> Result<Plan, Error> {
    let file = File::open(stock).context(stock, "read")?;
    let (_, plan) = plan_executable(stock, &read(stock)?, donor, settings, strings)?;
    let (new, _) = written(out, &plan.graft, &file)?;
    new.persist(out).map_err(|error| error.error).context(out, "write")?;
    Ok(plan)
}

/// Grafts an executable as `request` says; string functions only where it asks for them. With `arguments`, stock and graft are first run with them and compared. With
/// `untested`, one for an architecture whose programs cannot be run here is grafted all the same.
///
/// Undecided yet: whoever tells of it settles it then.
///
/// # Errors
/// The executable is as it was.
pub fn graft_executable(
    target: &Path,
    request: &Request,
    arguments: Option<&[OsString]>,
    untested: bool,
    conditions: &Conditions<'_>,
) -> Result<Pending<GraftedExecutable>, Error> {
    let Target::Executable(host) = recognise(target)? else {
        return Err(Error::Unrecognised { path: target.to_owned(), found: "no executable".to_owned() });
    };
    let donor = request.donor.ok_or(Error::NothingToGraft)?;
    let out = request.out.as_deref().map(|out| out_file(&host, out)).transpose()?;
    let locks = match request.dry_run {
        true => None,
        false => Some(FolderLocks::take([out.as_deref().unwrap_or(&host)], conditions)?),
    };
    if let Some(locks) = &locks {
        sweep(out.as_deref().unwrap_or(&host), locks);
    }
    if out.is_none() {
        companion::are_files(&host)?;
    }
    let now = read(&host)?;
    let before = sha256(&now);
    // A graft is made anew from its stock file, if that is beside it.
    let earlier = undo::record_of(&host, &before).filter(|record| record.stock_sha256 != before);
    let backup = backup_path(&host);
    let stock = match &earlier {
        Some(record) => {
            let Some(bytes) = companion::read(&backup)? else {
                return Err(Error::BackupMissing { path: host, backup });
            };
            let found = sha256(&bytes);
            if found != record.stock_sha256 {
                return Err(Error::BackupChanged { backup, found, expected: record.stock_sha256.clone() });
            }
            bytes
        }
        None => now,
    };
    let (inserts, plan) = plan_executable(&host, &stock, donor, &request.settings, request.strings)?;
    if earlier.is_none() && out.is_none() {
        companion::are_ours(&host, &before)?;
    }
    let graft_sha256 = sha256(&plan.graft);
    let unchanged = graft_sha256 == before && out.is_none();
    let mut grafted = GraftedExecutable {
        path: out.clone().unwrap_or_else(|| host.clone()),
        source: out.is_some().then(|| host.clone()),
        action: match () {
            () if unchanged => Action::Unchanged,
            () if request.dry_run => Action::Planned,
            () if earlier.is_some() => Action::Replaced,
            () => Action::Grafted,
        },
        arch: plan.arch,
        donor: inserts.malloc,
        position_independent: plan.position_independent,
        symbols: plan.symbols,
        entries: plan.entries.clone(),
        strings: inserts.strings,
        string_entries: plan.strings.clone(),
        strings_absent: plan.strings_absent.clone(),
        fork_hook: plan.fork_hook,
        thread_end: plan.thread_end,
        stock_sha256: sha256(&stock),
        graft_sha256,
        backup: out.is_none().then_some(backup),
        tried: Vec::new(),
        notes: notes(&host)?,
    };
    let Some(locks) = locks.filter(|_| !unchanged) else { return Ok(Pending::nothing(grafted)) };
    match rehearsal::self_test(&host, &plan.graft) {
        Ok(passed) => grafted.tried.push(format!("self-test: {passed}")),
        Err(error @ Error::Untested { .. }) if untested => {
            grafted.tried.push("self-test: not run (--untested)".to_owned());
            grafted.notes.push(format!("has not been tested: {}", error.reason_untested()));
        }
        Err(error) => return Err(error),
    }
    if let Some(arguments) = arguments {
        grafted.tried.push(rehearsal::compare(&host, &stock, &plan.graft, arguments)?);
    }
    let transaction = match &out {
        Some(out) => {
            let file = File::open(&host).context(&host, "read")?;
            let (new, lost) = written(out, &plan.graft, &file)?;
            grafted.notes.extend(lost.iter().map(ToString::to_string));
            let mut transaction = Transaction::new(Deed::Write);
            transaction.swap(out, new, out)?;
            let _ = sync_folder(folder_of(out));
            transaction
        }
        None => {
            let record = record(&grafted, earlier.is_some().then(|| before.clone()));
            let edit = |_: &[u8]| Ok(plan.graft.clone());
            let change = Change {
                host: &host,
                expected: &before,
                graft: Some(Content::Edit(&edit)),
                backup: earlier.is_none(),
                record: Some(&record),
            };
            let (notes, transaction) = place(&[change], &|_| {})?;
            grafted.notes.extend(notes.into_iter().flatten());
            transaction
        }
    };
    Ok(Pending::new(grafted, transaction, Some(locks)))
}

fn record(grafted: &GraftedExecutable, replaced_sha256: Option<String>) -> Record {
    Record {
        schema_version: 1,
        stock_sha256: grafted.stock_sha256.clone(),
        graft_sha256: grafted.graft_sha256.clone(),
        replaced_sha256,
        donor: grafted.donor.donor.clone(),
        version: grafted.donor.version.clone(),
        options: grafted.donor.options.clone(),
        strings: grafted.strings.as_ref().map(|note| note.version.clone()),
        allograft: ALLOGRAFT.to_owned(),
        stock: None,
    }
}

/// What is particular to a file as it lies there.
fn notes(host: &Path) -> Result<Vec<String>, Error> {
    use std::os::unix::fs::MetadataExt;
    const SETUID_OR_SETGID: u32 = 0o6000;
    let mode = fs::metadata(host).context(host, "read")?.mode();
    let mut notes = Vec::new();
    if mode & SETUID_OR_SETGID != 0 {
        notes.push("is setuid or setgid: the donor takes no variables of the environment in it".to_owned());
    }
    Ok(notes)
}

/// The file to write with `-o`.
fn out_file(host: &Path, out: &Path) -> Result<PathBuf, Error> {
    use std::os::unix::fs::MetadataExt;
    let refuse = |reason, help| Error::Out { out: out.to_owned(), reason, help };
    let own = fs::metadata(host).context(host, "read")?;
    let place = match fs::metadata(out) {
        Ok(there) if there.is_dir() => return Err(refuse("it is a folder", "name the file to write")),
        Ok(there) if (there.dev(), there.ino()) == (own.dev(), own.ino()) => {
            return Err(refuse("it is the target itself", "leave `-o` out to graft in place, with a backup"));
        }
        Ok(there) if !there.is_file() => return Err(refuse("it is a special file", "name the file to write")),
        Ok(_) => out.canonicalize().context(out, "write")?,
        Err(_) if !folder_of(out).is_dir() => {
            return Err(refuse("there is no such folder to write it in", "make the folder first"));
        }
        Err(_) => out.to_owned(),
    };
    match host_of_companion(&place) {
        Some(_) => Err(refuse("this name is that of a backup or a record", "choose another name")),
        None => Ok(place),
    }
}
