//! From a target to grafts: every host is planned before the first one is touched.

use std::path::{Path, PathBuf};

use surgery::archive::Archive;
use surgery::plan::{Libc, Survey};

use crate::companion;
use crate::conditions::Conditions;
use crate::digest::sha256;
use crate::error::Error;
use crate::lock::FolderLocks;
use crate::operation::{Base, Operation, Surgeon};
use crate::packed::Format;
use crate::pending::Pending;
use crate::place::{Change, Content, Observer, place, sweep};
use crate::recognise::{Target, read, recognise, signature};
use crate::record::{Record, backup_path};
use crate::transaction::Transaction;
use crate::walk::walk;
use crate::{bundle, packed, tree, undo};

/// The version that notes and records name.
pub const ALLOGRAFT: &str = env!("CARGO_PKG_VERSION");

/// What to graft, and where to.
#[derive(Debug, Clone)]
pub struct Request {
    /// The allocator; `None`: the host keeps its own.
    pub donor: Option<&'static donors::Donor>,
    /// Whether the string functions are grafted. Where that cannot be done, an allocator still is.
    pub strings: bool,
    /// Options of the allocator to bake in: name and value.
    pub settings: Vec<(String, i64)>,
    /// Where to write, leaving the target untouched; `None`: in place, with a backup.
    pub out: Option<PathBuf>,
    /// Plan only.
    pub dry_run: bool,
}

/// What happened to a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Stock was grafted.
    Grafted,
    /// A graft has other donors, or other options, now.
    Replaced,
    /// It carries exactly these donors with these options already.
    Unchanged,
    /// `dry_run`: this would happen; the plan's kind says whether it grafts or replaces.
    Planned,
}

/// One host of a target.
#[derive(Debug)]
pub struct Grafted {
    /// The graft: the host itself or, with `out`, the file that was written.
    pub path: PathBuf,
    /// With `out`: the host that was read.
    pub source: Option<PathBuf>,
    /// What was done.
    pub action: Action,
    /// What left the archive and what came in.
    pub operation: Operation,
    /// SHA-256 of the stock host, where it is known.
    pub stock_sha256: Option<String>,
    /// SHA-256 of the graft.
    pub graft_sha256: String,
    /// The backup that `undo` restores, if there is one (with `dry_run`: will be).
    pub backup: Option<PathBuf>,
    /// What the user should know, as clauses whose subject is the host.
    pub notes: Vec<String>,
}

/// A `libc.a` that a folder holds and that is none of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// The file.
    pub path: PathBuf,
    /// Why.
    pub reason: String,
}

/// All hosts of a target.
#[derive(Debug)]
pub struct Grafts {
    /// Sorted by path. Never empty.
    pub hosts: Vec<Grafted>,
    /// Sorted by path.
    pub skipped: Vec<Skipped>,
    /// The packed bundle that the hosts lie in, if they do.
    pub bundle: Option<Bundle>,
    /// The names of the Swift SDKs whose bundle the target is, packed or not.
    pub swift_sdks: Vec<String>,
    /// Of a copy of a folder: what the user should know of its other files, as clauses whose subject is the copy.
    pub notes: Vec<String>,
}

/// What happened to a packed bundle.
#[derive(Debug)]
pub struct Bundle {
    /// The bundle or, with `out`, the file that was written.
    pub path: PathBuf,
    /// With `out`: the bundle that was read.
    pub source: Option<PathBuf>,
    /// How it is packed.
    pub format: Format,
    /// The names of the Swift SDKs in it.
    pub swift_sdks: Vec<String>,
    /// What was done.
    pub action: Action,
    /// SHA-256 of the file at `path`, which `swift sdk install --checksum` takes; not known of one that is only planned.
    pub sha256: Option<String>,
    /// SHA-256 of the tar in it before compression, which is the same whoever compresses it; `None` for one that was not
    /// written, and for a zip.
    pub tar_sha256: Option<String>,
    /// SHA-256 of the stock bundle, where it is known.
    pub stock_sha256: Option<String>,
    /// The backup that `undo` restores, if there is one (with `dry_run`: will be).
    pub backup: Option<PathBuf>,
    /// What the user should know, as clauses whose subject is the bundle.
    pub notes: Vec<String>,
}

/// Grafts `target`: a musl `libc.a`, a folder that holds some, or a packed Swift SDK bundle. All of its hosts, or on an error
/// none.
pub fn graft(target: &Path, request: &Request) -> Result<Grafts, Error> {
    graft_under(target, request, &Conditions::default()).map(Pending::settle)
}

/// The same, undecided yet, under special conditions.
pub fn graft_under(target: &Path, request: &Request, conditions: &Conditions<'_>) -> Result<Pending<Grafts>, Error> {
    graft_observed(target, request, conditions, &|_| {})
}

pub(crate) fn graft_observed(
    target: &Path,
    request: &Request,
    conditions: &Conditions<'_>,
    observe: Observer<'_>,
) -> Result<Pending<Grafts>, Error> {
    let mut surgeon = Surgeon::new(request, *conditions)?;
    match recognise(target)? {
        Target::Archive(host) => match &request.out {
            Some(out) => {
                let grafted = tree::write_archive(&host, out, &mut surgeon)?;
                Ok(grafted.map(|grafted| of_archives(vec![grafted], Vec::new())))
            }
            None => in_place(&[host], Vec::new(), &mut surgeon, observe),
        },
        Target::Packed(host, format) => packed::graft(&host, format, &mut surgeon, observe),
        Target::Executable(path) => Err(Error::Unrecognised { path, found: "an executable".to_owned() }),
        Target::Folder(folder) => {
            let found = walk(&folder, conditions.root)?;
            let (hosts, skipped) = sort_out(&folder, found.archives.into_iter().collect(), found.skipped)?;
            match &request.out {
                Some(out) => tree::write_folder(&folder, out, hosts, skipped, &mut surgeon),
                None => {
                    let grafts = in_place(&hosts, skipped, &mut surgeon, observe)?;
                    Ok(grafts.map(|grafts| Grafts { swift_sdks: bundle::swift_sdks_in(&folder), ..grafts }))
                }
            }
        }
    }
}

fn of_archives(hosts: Vec<Grafted>, skipped: Vec<Skipped>) -> Grafts {
    Grafts { hosts, skipped, bundle: None, swift_sdks: Vec::new(), notes: Vec::new() }
}

/// Splits the `libc.a`s of a folder into hosts and those that are no concern of ours.
fn sort_out(
    folder: &Path,
    archives: Vec<PathBuf>,
    mut skipped: Vec<Skipped>,
) -> Result<(Vec<PathBuf>, Vec<Skipped>), Error> {
    let mut hosts = Vec::new();
    for path in archives {
        let reason = match signature(&path)?.found() {
            None => not_a_host(&path, &read(&path)?)?,
            Some(found) => Some(found.to_owned()),
        };
        match reason {
            None => hosts.push(path),
            Some(reason) => skipped.push(Skipped { path, reason }),
        }
    }
    skipped.sort_by(|one, other| one.path.cmp(&other.path));
    match (hosts.is_empty(), skipped.is_empty()) {
        (false, _) => Ok((hosts, skipped)),
        (true, false) => Err(Error::NothingGraftable { folder: folder.to_owned(), skipped }),
        (true, true) => Err(Error::NoHost { folder: folder.to_owned() }),
    }
}

/// Why an archive is not a musl `libc.a` of an architecture that we know; `None` if it is one. A damaged one is an error.
pub(crate) fn not_a_host(path: &Path, bytes: &[u8]) -> Result<Option<String>, Error> {
    let survey = survey(path, &parse(path, bytes)?)?;
    Ok(match (survey.libc, survey.arch) {
        (Libc::Musl, Some(_)) => None,
        (Libc::Musl, None) => Some("musl's, for an architecture that no donor supports".to_owned()),
        (Libc::Glibc, _) => Some("glibc's".to_owned()),
        (Libc::Other, _) => Some("not musl's".to_owned()),
    })
}

/// What an archive is.
pub(crate) fn survey(path: &Path, archive: &Archive<'_>) -> Result<Survey, Error> {
    surgery::plan::survey(archive)
        .map_err(|refusal| Error::Refused { path: path.to_owned(), refusal: Box::new(refusal) })
}

/// Reads an archive's structure.
pub(crate) fn parse<'a>(path: &Path, bytes: &'a [u8]) -> Result<Archive<'a>, Error> {
    Archive::parse(bytes).map_err(|source| Error::Malformed { path: path.to_owned(), source })
}

/// A host of which everything is decided.
struct Decided {
    grafted: Grafted,
    base: Base,
    before_sha256: String,
    backup: bool,
    record: Option<Record>,
}

fn in_place(
    hosts: &[PathBuf],
    skipped: Vec<Skipped>,
    surgeon: &mut Surgeon<'_>,
    observe: Observer<'_>,
) -> Result<Pending<Grafts>, Error> {
    let dry_run = surgeon.request.dry_run;
    let locks = match dry_run {
        true => None,
        false => Some(FolderLocks::take(hosts.iter().map(PathBuf::as_path), &surgeon.conditions)?),
    };
    let mut decided = Vec::new();
    for host in hosts {
        decided.push(decide(host, surgeon)?);
    }
    let transaction = if let Some(locks) = &locks {
        hosts.iter().for_each(|host| sweep(host, locks));
        Some(carry_out(&mut decided, observe)?)
    } else {
        for Decided { grafted, .. } in &mut decided {
            if grafted.action != Action::Unchanged {
                grafted.action = Action::Planned;
            }
        }
        None
    };
    let grafts = of_archives(decided.into_iter().map(|decided| decided.grafted).collect(), skipped);
    Ok(match transaction {
        Some(transaction) => Pending::new(grafts, transaction, locks),
        None => Pending::nothing(grafts),
    })
}

fn carry_out(decided: &mut [Decided], observe: Observer<'_>) -> Result<Transaction, Error> {
    // A host's bytes are read and edited again rather than kept, so that a folder of many hosts needs the memory of one.
    let edits: Vec<_> = decided
        .iter()
        .map(|decided| {
            let (grafted, base) = (&decided.grafted, &decided.base);
            move |bytes: &[u8]| grafted.operation.apply(&grafted.path, &base.bytes(bytes)?)
        })
        .collect();
    let mut changes = Vec::new();
    let mut indices = Vec::new();
    for (index, (decided, edit)) in decided.iter().zip(&edits).enumerate() {
        let change = Change {
            host: &decided.grafted.path,
            expected: &decided.before_sha256,
            graft: (decided.grafted.action != Action::Unchanged).then_some(Content::Edit(edit)),
            backup: decided.backup,
            record: decided.record.as_ref(),
        };
        if change.graft.is_some() || change.record.is_some() {
            changes.push(change);
            indices.push(index);
        }
    }
    let (notes, transaction) = place(&changes, observe)?;
    drop(changes);
    drop(edits);
    for (index, notes) in indices.into_iter().zip(notes) {
        decided[index].grafted.notes.extend(notes);
    }
    Ok(transaction)
}

/// What is done to a host in place.
pub(crate) fn action(operation: &Operation) -> Action {
    match operation {
        Operation { unchanged: true, .. } => Action::Unchanged,
        Operation { before, .. } if before.anything() => Action::Replaced,
        _ => Action::Grafted,
    }
}

/// Says why a host keeps its own string functions, if that was not asked for, and what it goes on lacking.
pub(crate) fn remarks(operation: &Operation) -> Vec<String> {
    let reason = operation.strings.reason();
    let mut notes: Vec<String> =
        reason.into_iter().map(|reason| format!("keeps its own string functions: {reason}")).collect();
    if let Some(another) = &operation.another
        && !another.restoration.missing.is_empty()
    {
        let missing = another.restoration.missing.join("`, `");
        notes.push(format!("lacks `{missing}`, which stock has: `--stock` with a stock libc.a brings it back"));
    }
    notes
}

/// The record of a graft that has these checksums.
pub(crate) fn record(operation: &Operation, stock_sha256: &str, graft_sha256: &str) -> Record {
    let note = operation.malloc.as_ref().map(|plan| &plan.donor);
    Record {
        schema_version: 1,
        stock_sha256: stock_sha256.to_owned(),
        graft_sha256: graft_sha256.to_owned(),
        replaced_sha256: None,
        donor: note.map_or_else(|| "none".to_owned(), |note| note.donor.clone()),
        version: note.map(|note| note.version.clone()).unwrap_or_default(),
        options: note.map(|note| note.options.clone()).unwrap_or_default(),
        strings: operation.strings.plan().map(|plan| plan.donor.version.clone()),
        allograft: ALLOGRAFT.to_owned(),
        stock: None,
    }
}

fn decide(host: &Path, surgeon: &mut Surgeon<'_>) -> Result<Decided, Error> {
    companion::are_files(host)?;
    let planned = surgeon.plan(host, &read(host)?)?;
    let before = planned.before_sha256;
    let operation = planned.operation;
    let action = action(&operation);
    let record = |stock: &str| record(&operation, stock, &planned.graft_sha256);
    let mut notes = remarks(&operation);
    // A record that nobody can read is as good as none: what it says is found out again below.
    let old = Record::read(host).unwrap_or(None);
    let path = backup_path(host);
    let (stock, new, backup) = if action == Action::Grafted {
        companion::are_ours(host, &before)?;
        (Some(before.clone()), Some(record(&before)), Some(path))
    } else {
        let bytes = companion::read(&path)?;
        let found = bytes.as_deref().map(sha256);
        let known = old.as_ref().filter(|old| old.knows(&before));
        let good = match (&found, known) {
            (Some(found), Some(known)) => *found == known.stock_sha256,
            // Without a record that fits, the backup proves itself: it is stock if grafting it gives this very graft.
            (Some(_), None) => {
                let graft = surgeon.graft_of(&path, bytes.as_deref().unwrap_or_default());
                graft.is_some_and(|graft| graft == planned.graft_sha256)
            }
            (None, _) => false,
        };
        if good {
            let stock = found.unwrap_or_default();
            let mut new = record(&stock);
            if action == Action::Replaced {
                new.replaced_sha256 = Some(before.clone());
            }
            // An unchanged host's record is left alone as long as it names this graft.
            let fits = known.is_some_and(|known| action == Action::Unchanged && known.graft_sha256 == before);
            (Some(stock), if fits { None } else { Some(new) }, Some(path))
        } else {
            notes.push(match found {
                Some(_) => "has a backup that is not its stock file, so that it cannot be undone".to_owned(),
                None => "has no backup of its stock file, so that it cannot be undone".to_owned(),
            });
            let mut new = known.map(|known| record(&known.stock_sha256));
            if let (Some(new), Action::Replaced) = (&mut new, action) {
                new.replaced_sha256 = Some(before.clone());
            }
            let new = if action == Action::Unchanged { None } else { new };
            (known.map(|known| known.stock_sha256.clone()), new, None)
        }
    };
    Ok(Decided {
        backup: action == Action::Grafted,
        record: new,
        grafted: Grafted {
            path: host.to_owned(),
            source: None,
            action,
            stock_sha256: stock,
            graft_sha256: planned.graft_sha256,
            backup,
            operation,
            notes,
        },
        base: planned.base,
        before_sha256: before,
    })
}

/// The SHA-256 of the stock host that a graft's record names, if it is there and is this graft's.
pub(crate) fn recorded_stock(host: &Path, sha256: &str) -> Option<String> {
    undo::record_of(host, sha256).map(|record| record.stock_sha256)
}
