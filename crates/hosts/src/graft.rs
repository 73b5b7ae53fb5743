//! The path of a graft: a target is recognised, each of its hosts is planned, edited, verified and proven, and then all
//! are placed, or none.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::digest::sha256;
use crate::error::Error;
use crate::error::needed::NeededError;
use crate::error::rollback::Purpose;
use crate::file::host_file::HostFile;
use crate::file::lock::FolderLocks;
use crate::file::names::backup_path;
use crate::host::Carried;
use crate::host::planner::Planner;
use crate::image;
use crate::outcome::{Action, Grafted, Grafts};
use crate::prove::TestRun;
use crate::prove::prepared::{self, PreparedGraft, ReadyGraft, record};
use crate::recognition::{Kind, Target};
use crate::record::backup::Backup;
use crate::record::{Record, sidecar};
use crate::request::Request;
use crate::sink::{self, Sink, folder, out};
use crate::source::{FolderKind, Hosts};
use crate::swift::bundle;
use crate::transaction::pending::Pending;
use crate::transaction::place::{Change, Content, Observer, place};
use crate::transaction::staged::Staged;
use crate::watch::Watch;

/// Grafts `target`: a musl `libc.a`, a linked executable, a folder of `libc.a`s or programs, a packed Swift SDK bundle,
/// or a container image. Grafts all of its hosts or, on an error, none. Programs of a folder or an image that cannot be
/// grafted are left alone, with the reason.
///
/// # Errors
/// The target cannot be grafted. Every file is unchanged.
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
    let found = match &target {
        Kind::Folder(folder) => Some(Hosts::folder(folder, request.root.as_deref())?),
        _ => None,
    };
    let is_installation = found.as_ref().is_some_and(|hosts| hosts.installation().is_some());
    let runs = match target {
        Kind::Executable(_) => true,
        // These hold several executables: no arguments fit all of them.
        Kind::Image(_) => request.arguments.is_none(),
        Kind::Folder(_) if is_installation => request.arguments.is_none(),
        _ => false,
    };
    if !runs && (request.arguments.is_some() || request.untested) {
        return Err(Error::NothingToRun { path: target.path().to_owned() });
    }
    if request.needed.is_some() && !matches!(target, Kind::Executable(_)) {
        return Err(NeededError::NotDynamic { path: target.path().to_owned() }.into());
    }
    match (target, &request.out) {
        (Kind::Archive(host), None) => in_place(Hosts::File(Box::new(host)), BTreeMap::new(), planner, observe),
        (Kind::Executable(host), None) => {
            let tried = tried_ahead(&host, planner).map(Some);
            let tried = tried.or_else(|error| if was_changed(&host, planner) { Ok(None) } else { Err(error) })?;
            let ahead = tried.map(|tried| (host.path().to_owned(), tried)).into_iter().collect();
            in_place(Hosts::File(Box::new(host)), ahead, planner, observe)
        }
        (Kind::Archive(host) | Kind::Executable(host), Some(out)) => to_file(host, out, planner),
        (Kind::Image(image), _) => image::graft(&image, planner),
        (Kind::Packed(host, format), _) => sink::bundle::graft(&host, format, planner, observe),
        (Kind::Folder(folder), out) => {
            let hosts = found.map_or_else(|| Hosts::folder(&folder, request.root.as_deref()), Ok)?;
            match out {
                Some(out) => folder::write_folder(&folder, out, hosts, planner),
                None => folder_in_place(&folder, hosts, planner, observe),
            }
        }
    }
}

/// Replaces the hosts of `folder` by their grafts.
fn folder_in_place(
    folder: &Path,
    hosts: Hosts,
    planner: &mut Planner<'_>,
    observe: Observer<'_>,
) -> Result<Pending<Grafts>, Error> {
    if hosts.installation().is_none() {
        let grafts = in_place(hosts, BTreeMap::new(), planner, observe)?;
        return Ok(grafts.map(|grafts| Grafts { swift_sdks: bundle::swift_sdks_in(folder), ..grafts }));
    }
    let scripts = hosts.scripts();
    let (tried, skipped) = hosts.each(planner, |file, planner| match tried_ahead(&file, planner) {
        Ok(tried) => {
            if let Some(ready) = &tried.ready {
                ready.drop_bytes();
            }
            Ok((file.path().to_owned(), Some(tried)))
        }
        Err(_) if is_graft_changed(&file, planner) => Ok((file.path().to_owned(), None)),
        Err(refused) => Err(refused),
    })?;
    // Only folders with hosts are locked: in others, the user need not have the right to write.
    let files = tried.iter().map(|(path, _)| path.clone()).collect();
    let ahead = tried.into_iter().filter_map(|(path, tried)| Some((path, tried?))).collect();
    let kind = FolderKind::Installation { scripts };
    let hosts = Hosts::Folder { folder: folder.to_owned(), kind, files, skipped };
    let grafts = in_place(hosts, ahead, planner, observe)?;
    Ok(grafts.map(|grafts| Grafts { installation: Some(folder.to_owned()), scripts, ..grafts }))
}

/// As [`was_changed`], for a file of a folder. Only grafts are undone meanwhile, so no lock is waited for because of
/// other files.
fn is_graft_changed(host: &HostFile, planner: &Planner<'_>) -> bool {
    host.bytes().is_ok_and(transplant::carries_graft) && was_changed(host, planner)
}

/// Makes and tries the graft of a program before its folder is locked: running it may take long, and other processes
/// can work in the folder meanwhile.
fn tried_ahead(host: &HostFile, planner: &mut Planner<'_>) -> Result<TriedGraft, Error> {
    let prepared = prepared::prepare_file(host, planner)?;
    // A host that would be refused in the end is refused before the program is run.
    let stock = (prepared.action() == Action::Grafted).then_some(prepared.before_sha256.as_str());
    sidecar::may_be_written(host.path(), stock)?;
    TriedGraft::new(prepared, host.bytes()?, planner)
}

/// Whether a different run changed the host while this one read it, its backup and its record, one after the other: a
/// graft whose record was just removed by `undo` looks like one that cannot be grafted. Waits until no other run works
/// in the folder.
fn was_changed(host: &HostFile, planner: &Planner<'_>) -> bool {
    let locked = FolderLocks::take([host.path()], planner.watch);
    locked.is_ok_and(|_locked| !host.is_current())
}

/// Replaces the hosts by their grafts. `ahead`: the grafts that were tried already, by their hosts.
fn in_place(
    hosts: Hosts,
    mut ahead: BTreeMap<PathBuf, TriedGraft>,
    planner: &mut Planner<'_>,
    observe: Observer<'_>,
) -> Result<Pending<Grafts>, Error> {
    let sink = Sink::of_graft(planner.request, Purpose::Graft, hosts.paths(), planner.watch)?;
    let several = hosts.paths().count() > 1;
    let (decided, skipped) = hosts.each(planner, |file, planner| {
        let tried = match ahead.remove(file.path()) {
            Some(tried) if tried.before_sha256 == file.sha256()? => tried,
            // No graft was tried, or the host was written before the folder was locked.
            _ => TriedGraft::new(prepared::prepare_file(&file, planner)?, file.bytes()?, planner)?,
        };
        let (grafted, mut placement) = decide(tried, planner)?;
        match &placement.ready {
            // So that many hosts need no more memory than one.
            Some(ready) if several => ready.drop_bytes(),
            _ if several => {}
            _ => placement.read = Some(file),
        }
        Ok((grafted, placement))
    })?;
    let (grafted, placement): (Vec<Grafted>, Vec<Placement>) = decided.into_iter().unzip();
    sink.write(Grafts::new(grafted, skipped), |grafts, transaction| {
        let hosts = grafts.hosts.iter_mut().zip(&placement);
        let mut changing: Vec<_> = hosts.filter(|(_, placement)| placement.changes_something()).collect();
        let changes: Vec<Change<'_>> = changing.iter().map(|(grafted, placement)| placement.change(grafted)).collect();
        let notes = place(&changes, transaction, observe)?;
        drop(changes);
        for ((grafted, _), notes) in changing.iter_mut().zip(notes) {
            grafted.notes.extend(notes.on_host);
            grafted.backup_lacks = notes.backup_lacks;
        }
        Ok(())
    })
}

/// Makes and verifies the graft of a host, and returns it with the file that it was made of. A refusal counts only if
/// the host is still that file: see [`was_changed`].
fn prepare_current(mut host: HostFile, planner: &mut Planner<'_>) -> Result<(HostFile, PreparedGraft), Error> {
    loop {
        match prepared::prepare_file(&host, planner) {
            Ok(prepared) => return Ok((host, prepared)),
            Err(_) if was_changed(&host, planner) => host = host.current()?,
            Err(refused) => return Err(refused),
        }
    }
}

/// Writes the graft of `host` to the file `out`, replacing any file there.
fn to_file(host: HostFile, out: &Path, planner: &mut Planner<'_>) -> Result<Pending<Grafts>, Error> {
    let (out, replaced) = out::graft(out, &host, planner.request.force, |there| out::is_graft_of(there, &host))?;
    let (host, prepared) = prepare_current(host, planner)?;
    let bytes = host.bytes()?;
    let (request, watch) = (planner.request, planner.watch);
    let (mut grafted, ready) = prepared.elsewhere(out.clone(), bytes, planner)?;
    grafted.replaced = replaced.and_then(|there| replaced_by(&there, &grafted)).unwrap_or_default();
    let ready = ready.map(|ready| ready.graft(bytes)).transpose()?;
    let sink = Sink::of_graft(request, Purpose::Write, [out.as_path()], watch)?;
    sink.write(Grafts::new(vec![grafted], Vec::new()), |grafts, transaction| {
        let Some(ready) = ready else { return Ok(()) };
        let (new, lost) = Staged::proven(&out, &ready, Some(host.file()))?;
        grafts.hosts[0].notes.extend(lost.iter().map(ToString::to_string));
        transaction.write(new, &out)
    })
}

/// Returns what the file carries that a graft replaces; `None` if it is the same graft, or, replaced by force, no host.
fn replaced_by(there: &HostFile, grafted: &Grafted) -> Option<Carried> {
    if there.sha256().ok()? == grafted.graft_sha256 {
        return None;
    }
    let host = prepared::read(there.path(), there.bytes().ok()?).ok()?;
    Some(host.carried().clone())
}

impl PreparedGraft {
    /// Proves the graft of the host with the content `bytes`, unless the run is a dry one. Returns it, with the report
    /// on a graft that is written to `path` and leaves its host untouched.
    pub(crate) fn elsewhere(
        self,
        path: PathBuf,
        bytes: &[u8],
        planner: &Planner<'_>,
    ) -> Result<(Grafted, Option<ReadyGraft>), Error> {
        let is_dry = planner.request.dry_run;
        let mut grafted = self.report_elsewhere(path, is_dry);
        if is_dry {
            return Ok((grafted, None));
        }
        let (ready, trial) = self.prove(bytes, planner)?;
        grafted.add(trial);
        Ok((grafted, Some(ready)))
    }

    fn report_elsewhere(&self, path: PathBuf, is_dry: bool) -> Grafted {
        let action = match self.action() {
            _ if is_dry => Action::Planned,
            // A new file is written in this case, too.
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
            replaced: Carried::default(),
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
    /// Adds the outcome of running the graft.
    pub(crate) fn add(&mut self, trial: TestRun) {
        self.tried.extend(trial.tried);
        self.untested = trial.untested;
        self.notes.extend(trial.notes);
    }
}

/// A host whose graft was made and, unless this is a dry run or nothing changes, tried.
struct TriedGraft {
    grafted: Grafted,
    before_sha256: String,
    /// The graft, if the host is to be replaced.
    ready: Option<ReadyGraft>,
}

impl TriedGraft {
    /// Tries the graft of the host with the content `bytes`.
    fn new(prepared: PreparedGraft, bytes: &[u8], planner: &Planner<'_>) -> Result<TriedGraft, Error> {
        let action = prepared.action();
        let (mut grafted, before_sha256) = (prepared.report(action), prepared.before_sha256.clone());
        let mut ready = None;
        if !planner.request.dry_run && action != Action::Unchanged {
            let (proven, trial) = prepared.prove(bytes, planner)?;
            grafted.add(trial);
            ready = Some(proven);
        }
        Ok(TriedGraft { grafted, before_sha256, ready })
    }
}

/// The changes to a host, its backup and its record.
struct Placement {
    before_sha256: String,
    /// The host, if its bytes are kept until it is placed.
    read: Option<HostFile>,
    record: Option<Record>,
    /// The graft, if the host is to be replaced.
    ready: Option<ReadyGraft>,
}

impl Placement {
    fn changes_something(&self) -> bool {
        self.ready.is_some() || self.record.is_some()
    }

    fn change<'a>(&'a self, grafted: &'a Grafted) -> Change<'a> {
        Change {
            host: &grafted.path,
            read: self.read.as_ref(),
            expected: &self.before_sha256,
            graft: self.ready.as_ref().map(Content::Host),
            backup: grafted.action == Action::Grafted,
            record: self.record.as_ref(),
        }
    }
}

/// Decides on the changes in place to a host, its backup and its record (see the table in `place`).
fn decide(tried: TriedGraft, planner: &mut Planner<'_>) -> Result<(Grafted, Placement), Error> {
    let TriedGraft { mut grafted, before_sha256: before, ready } = tried;
    let (action, host, graft_sha256) = (grafted.action, grafted.path.clone(), grafted.graft_sha256.clone());
    let (host, operation) = (host.as_path(), grafted.operation.clone());
    sidecar::may_be_written(host, (action == Action::Grafted).then_some(before.as_str()))?;
    let record = |stock: &str| record(&operation, stock, &graft_sha256);
    // Treat an unreadable record as missing; its facts are recomputed below.
    let old = Record::read(host).unwrap_or(None);
    let path = backup_path(host);
    let new = if action == Action::Grafted {
        grafted.stock_sha256 = Some(before.clone());
        grafted.backup = Some(path);
        Some(record(&before))
    } else {
        let backup = Backup::beside(host)?;
        let is_there = backup.is_some();
        let known = old.as_ref().filter(|old| old.knows(&before));
        let stock = match (backup, known) {
            (backup, Some(known)) => known.stock(host, backup).ok(),
            // Without a record that fits, grafting the backup decides: it is stock if that gives exactly this graft.
            (Some(backup), None) => {
                let graft = graft_of(&path, &backup.bytes()?, planner);
                (graft.as_ref() == Some(&graft_sha256)).then_some(backup)
            }
            (None, None) => None,
        };
        let good = stock.is_some();
        let stock_sha256 = stock.map(|stock| stock.sha256).or_else(|| Some(known?.stock_sha256.clone()));
        let mut new = stock_sha256.as_deref().map(record);
        grafted.stock_sha256 = stock_sha256;
        if let (Some(new), Action::Replaced) = (&mut new, action) {
            new.replaced_sha256 = Some(before.clone());
        }
        // An unchanged host keeps its record if the record names this graft, or if the host has no backup.
        let fits = known.is_some_and(|known| known.graft_sha256 == before);
        if action == Action::Unchanged && (fits || !good) {
            new = None;
        }
        if good {
            grafted.backup = Some(path);
        } else {
            grafted.notes.push(match is_there {
                true => "has a backup that is not its stock file, so that it cannot be undone".to_owned(),
                false => "has no backup of its stock file, so that it cannot be undone".to_owned(),
            });
        }
        new
    };
    if planner.request.dry_run && action != Action::Unchanged {
        grafted.action = Action::Planned;
    }
    let record = if planner.request.dry_run { None } else { new };
    Ok((grafted, Placement { before_sha256: before, read: None, record, ready }))
}

/// SHA-256 of the graft of the stock file `bytes` with these donors; `None` if it cannot be grafted, or is a graft
/// itself.
fn graft_of(path: &Path, bytes: &[u8], planner: &mut Planner<'_>) -> Option<String> {
    let host = prepared::read(path, bytes).ok().filter(|host| !host.carried().anything())?;
    let prepared = prepared::prepare(&*host, path, sha256(bytes), planner).ok()?;
    Some(prepared.graft_sha256().to_owned())
}
