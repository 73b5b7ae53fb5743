//! The way through: a target is recognised, each of its hosts is planned, edited, verified and proven, and then all are
//! placed, or none.

use std::path::{Path, PathBuf};

use crate::digest::sha256;
use crate::error::Error;
use crate::error::needed::NeededError;
use crate::file::host_file::HostFile;
use crate::file::names::backup_path;
use crate::host::planner::Planner;
use crate::image;
use crate::outcome::{Action, Grafted, Grafts};
use crate::prove::TestRun;
use crate::prove::prepared::{self, Prepared, ReadyGraft, record};
use crate::recognition::{Kind, Target};
use crate::record::{Record, sidecar};
use crate::request::Request;
use crate::sink::{self, folder, out};
use crate::source::Hosts;
use crate::swift::bundle;
use crate::transaction::pending::Pending;
use crate::transaction::place::{Change, Content, Observer, place, remove_leftovers, write_file};
use crate::watch::Watch;

/// Grafts `target`: a musl `libc.a`, a linked executable, a folder that holds `libc.a`s, or a packed Swift SDK bundle.
/// All of its hosts, or on an error none.
///
/// # Errors
/// The target cannot be grafted. Every file is as it was.
pub fn graft(target: &Path, request: &Request) -> Result<Grafts, Error> {
    request.check()?;
    graft_under(Target::open(target)?, request, &Watch::default()).map(Pending::commit)
}

/// Like [`graft`], but takes an open target and returns a pending result: the caller commits it once it has been
/// reported. `watch` gets the progress.
///
/// # Errors
/// As [`graft`].
pub fn graft_under(target: Target, request: &Request, watch: &Watch<'_>) -> Result<Pending<Grafts>, Error> {
    graft_observed(target, request, watch, &|_| {})
}

pub(crate) fn graft_observed(
    target: Target,
    request: &Request,
    watch: &Watch<'_>,
    observe: Observer<'_>,
) -> Result<Pending<Grafts>, Error> {
    let mut planner = Planner::new(request, watch)?;
    let planner = &mut planner;
    let Target(target) = target;
    let runs = match target {
        Kind::Executable(_) => true,
        // The executables of an image have no common arguments to be tried with.
        Kind::Image(_) => request.arguments.is_none(),
        _ => false,
    };
    if !runs && (request.arguments.is_some() || request.untested) {
        return Err(Error::NothingToRun { path: target.path().to_owned() });
    }
    if request.needed.is_some() && !matches!(target, Kind::Executable(_)) {
        return Err(NeededError::NotDynamic { path: target.path().to_owned() }.into());
    }
    match (target, &request.out) {
        (Kind::Archive(host) | Kind::Executable(host), None) => in_place(Hosts::File(Box::new(host)), planner, observe),
        (Kind::Archive(host) | Kind::Executable(host), Some(out)) => to_file(host, out, planner),
        (Kind::Image(image), _) => image::graft(&image, planner),
        (Kind::Packed(host, format), _) => sink::bundle::graft(&host, format, planner, observe),
        (Kind::Folder(folder), None) => {
            let grafts = in_place(Hosts::folder(&folder, request.root.as_deref())?, planner, observe)?;
            Ok(grafts.map(|grafts| Grafts { swift_sdks: bundle::swift_sdks_in(&folder), ..grafts }))
        }
        (Kind::Folder(folder), Some(out)) => {
            folder::write_folder(&folder, out, Hosts::folder(&folder, request.root.as_deref())?, planner)
        }
    }
}

/// Replaces the hosts by their grafts.
fn in_place(hosts: Hosts, planner: &mut Planner<'_>, observe: Observer<'_>) -> Result<Pending<Grafts>, Error> {
    let locks = planner.lock(hosts.paths())?;
    let several = hosts.paths().count() > 1;
    let (mut decided, skipped) = hosts.each(planner, |prepared, file, planner| {
        let decided = decide(prepared, file.bytes()?, planner)?;
        Ok(match (several, &decided.ready) {
            // Many hosts need the memory of one.
            (true, Some(ready)) => {
                ready.drop_bytes();
                decided
            }
            (true, None) => decided,
            (false, _) => Decided { read: Some(file), ..decided },
        })
    })?;
    let Some(locks) = locks else {
        return Ok(Pending::nothing(Grafts::of(decided.into_iter().map(|decided| decided.grafted).collect(), skipped)));
    };
    for Decided { grafted, .. } in &decided {
        remove_leftovers(&grafted.path, &locks);
    }
    let is_changed = |decided: &&Decided| decided.ready.is_some() || decided.record.is_some();
    let changes: Vec<Change<'_>> = decided
        .iter()
        .filter(is_changed)
        .map(|decided| Change {
            host: &decided.grafted.path,
            read: decided.read.as_ref(),
            expected: &decided.before_sha256,
            graft: decided.ready.as_ref().map(Content::Host),
            backup: decided.grafted.action == Action::Grafted,
            record: decided.record.as_ref(),
        })
        .collect();
    let (notes, transaction) = place(&changes, observe)?;
    drop(changes);
    let changed = decided.iter_mut().filter(|decided| is_changed(&&**decided));
    for (decided, notes) in changed.zip(notes) {
        decided.grafted.notes.extend(notes.on_host);
        decided.grafted.backup_lacks = notes.backup_lacks;
    }
    let grafted = decided.into_iter().map(|decided| decided.grafted).collect();
    Ok(Pending::new(Grafts::of(grafted, skipped), transaction, Some(locks)))
}

/// Writes the graft of `host` to the file `out`, replacing what is there.
fn to_file(host: HostFile, out: &Path, planner: &mut Planner<'_>) -> Result<Pending<Grafts>, Error> {
    let out = out::file(out, Some(host.path()))?;
    let locks = planner.lock([out.as_path()])?;
    if let Some(locks) = &locks {
        remove_leftovers(&out, locks);
    }
    let bytes = host.bytes()?;
    let prepared = prepared::prepare(&*prepared::read(host.path(), bytes)?, host.path(), bytes, planner)?;
    let mut grafted = prepared.elsewhere(out.clone(), planner.request.dry_run);
    let Some(locks) = locks else { return Ok(Pending::nothing(Grafts::of(vec![grafted], Vec::new()))) };
    let (ready, trial) = prepared.prove(bytes, planner)?;
    grafted.add(trial);
    let (notes, transaction) = write_file(&out, &ready.graft(bytes)?, Some(host.file()))?;
    grafted.notes.extend(notes);
    Ok(Pending::new(Grafts::of(vec![grafted], Vec::new()), transaction, Some(locks)))
}

impl Prepared {
    /// The report on a graft that is written to `path`, leaving its host untouched.
    pub(crate) fn elsewhere(&self, path: PathBuf, dry_run: bool) -> Grafted {
        let action = match self.action() {
            _ if dry_run => Action::Planned,
            // A new file is written all the same.
            Action::Unchanged => Action::Replaced,
            action => action,
        };
        let stock_sha256 = match self.before.anything() {
            false => Some(self.before_sha256.clone()),
            true => Record::about(&self.path, &self.before_sha256).map(|record| record.stock_sha256),
        };
        let source = Some(self.path.clone());
        Grafted { path, source, stock_sha256, ..self.report(action) }
    }

    /// The report on the graft.
    pub(crate) fn report(&self, action: Action) -> Grafted {
        Grafted {
            path: self.path.clone(),
            source: None,
            action,
            before: self.before.clone(),
            unchanged: self.is_unchanged(),
            operation: self.operation.clone(),
            stock_sha256: None,
            graft_sha256: self.graft_sha256().to_owned(),
            backup: None,
            tried: Vec::new(),
            untested: false,
            backup_lacks: Vec::new(),
            notes: self.notes.clone(),
        }
    }
}

impl Grafted {
    /// Adds what running it has shown.
    pub(crate) fn add(&mut self, trial: TestRun) {
        self.tried.extend(trial.tried);
        self.untested = trial.untested;
        self.notes.extend(trial.notes);
    }
}

/// A host of which everything is decided.
struct Decided {
    grafted: Grafted,
    before_sha256: String,
    /// The host, if its bytes are kept until it is placed.
    read: Option<HostFile>,
    record: Option<Record>,
    /// The graft, if the host is to be replaced.
    ready: Option<ReadyGraft>,
}

/// Decides what becomes of a host in place, of its backup and of its record (see the table in `place`).
fn decide(prepared: Prepared, bytes: &[u8], planner: &mut Planner<'_>) -> Result<Decided, Error> {
    let host = prepared.path.clone();
    let host = host.as_path();
    sidecar::are_files(host)?;
    let (action, before) = (prepared.action(), prepared.before_sha256.clone());
    let graft_sha256 = prepared.graft_sha256().to_owned();
    let record = |stock: &str| record(&prepared.operation, stock, &graft_sha256);
    let mut grafted = prepared.report(action);
    // A record that nobody can read is as good as none: what it says is found out again below.
    let old = Record::read(host).unwrap_or(None);
    let path = backup_path(host);
    let new = if action == Action::Grafted {
        sidecar::are_ours(host, &before)?;
        grafted.stock_sha256 = Some(before.clone());
        grafted.backup = Some(path);
        Some(record(&before))
    } else {
        let backup = sidecar::read(&path)?;
        let found = backup.as_deref().map(sha256);
        let known = old.as_ref().filter(|old| old.knows(&before));
        let good = match (&found, known) {
            (Some(found), Some(known)) => *found == known.stock_sha256,
            // Without a record that fits, the backup proves itself: it is stock if grafting it gives this very graft.
            (Some(_), None) => graft_of(&path, backup.as_deref().unwrap_or_default(), planner)
                .is_some_and(|graft| graft == graft_sha256),
            (None, _) => false,
        };
        let mut new = match (good, &found, known) {
            (true, Some(stock), _) => Some(record(stock)),
            (_, _, Some(known)) => Some(record(&known.stock_sha256)),
            _ => None,
        };
        grafted.stock_sha256 = new.as_ref().map(|new| new.stock_sha256.clone());
        if let (Some(new), Action::Replaced) = (&mut new, action) {
            new.replaced_sha256 = Some(before.clone());
        }
        // An unchanged host's record is left alone if it names this graft, or if no backup belongs to it.
        let fits = known.is_some_and(|known| known.graft_sha256 == before);
        if action == Action::Unchanged && (fits || !good) {
            new = None;
        }
        if good {
            grafted.backup = Some(path);
        } else {
            grafted.notes.push(match found {
                Some(_) => "has a backup that is not its stock file, so that it cannot be undone".to_owned(),
                None => "has no backup of its stock file, so that it cannot be undone".to_owned(),
            });
        }
        new
    };
    if planner.request.dry_run && action != Action::Unchanged {
        grafted.action = Action::Planned;
    }
    let mut ready = None;
    if !planner.request.dry_run && action != Action::Unchanged {
        let (proven, trial) = prepared.prove(bytes, planner)?;
        grafted.add(trial);
        ready = Some(proven);
    }
    let record = if planner.request.dry_run { None } else { new };
    Ok(Decided { grafted, before_sha256: before, read: None, record, ready })
}

/// SHA-256 of what these donors make of the stock file `bytes`; `None` if that cannot be grafted, or is a graft itself.
fn graft_of(path: &Path, bytes: &[u8], planner: &mut Planner<'_>) -> Option<String> {
    let host = prepared::read(path, bytes).ok().filter(|host| !host.carried().anything())?;
    let prepared = prepared::prepare(&*host, path, bytes, planner).ok()?;
    Some(prepared.graft_sha256().to_owned())
}
