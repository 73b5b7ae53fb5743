//! Tests: runs that are killed at every stage, and the next run on the files that they left. The runs are processes of
//! their own that really end, so no destructor can tidy up.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use crate::error::remedy::Remedy;
use crate::file::links::lacking;
use crate::graft::graft_observed;
use crate::outcome::{Action, Grafts};
use crate::recognition::Target;
use crate::request::Request;
use crate::transaction::pending::Pending;
use crate::transaction::place::{Observer, Stage};
use crate::undo::{UndoneAction, undo_observed};
use crate::watch::Watch;

const VICTIM: &str = "HOSTS_TEST_VICTIM";

/// The operations that the file system lacks: hard links, exchange of names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct MissingOperations {
    links: bool,
    exchange: bool,
}

impl MissingOperations {
    const NOTHING: MissingOperations = MissingOperations { links: false, exchange: false };
    const LINKS: MissingOperations = MissingOperations { links: true, exchange: false };
    const BOTH: MissingOperations = MissingOperations { links: true, exchange: true };

    fn when<T>(self, work: impl FnOnce() -> T) -> T {
        lacking::without(self.links, self.exchange, work)
    }
}
const HOSTS: [&str; 2] = ["one/libc.a", "two/libc.a"];

/// The operation that is killed half-way, on a folder of two hosts.
#[derive(Clone, Copy, Debug)]
enum Scenario {
    Graft,
    Replace,
    GraftInstalledAnew,
    Undo,
    GraftBundle,
    UndoBundle,
    GraftLoader,
    UndoLoader,
}

const BUNDLE: &str = "sdk.artifactbundle.tar.gz";
/// The path of musl's dynamic loader in a system's root folder.
const LOADER: &str = "lib/ld-musl-x86_64.so.1";

fn loader_request(folder: &Path) -> Request {
    let donor = donors::find("rpmalloc").unwrap();
    Request { root: Some(folder.to_owned()), ..Request::new(donor) }
}

/// Opens and grafts a target.
fn graft_at(target: &Path, request: &Request, observe: Observer<'_>) -> Result<Pending<Grafts>, crate::Error> {
    graft_observed(Target::open(target)?, request, &Watch::default(), observe)
}

fn graft_loader(folder: &Path, observe: &dyn Fn(Stage)) {
    graft_at(&folder.join(LOADER), &loader_request(folder), observe).unwrap().commit();
}

fn request(donor: usize) -> Request {
    Request { strings: Some(true), ..Request::new(&donors::all()[donor]) }
}

fn old_time() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::new(1_500_000_000, 123_456_789)
}

fn install(host: &Path, bytes: &[u8]) {
    let _ = fs::remove_file(host);
    fs::create_dir_all(host.parent().unwrap()).unwrap();
    fs::write(host, bytes).unwrap();
    fs::File::options().write(true).open(host).unwrap().set_modified(old_time()).unwrap();
    fs::set_permissions(host, fs::Permissions::from_mode(0o644)).unwrap();
}

fn stock() -> Vec<u8> {
    crate::trials::samples::libc()
}

/// Stock of a different release.
fn new_stock() -> Vec<u8> {
    crate::trials::samples::libc_of_another_release()
}

impl Scenario {
    /// Puts a new folder into the scenario's initial state. Returns the stock that an undo has to restore.
    fn prepare(self, folder: &Path) -> Vec<u8> {
        for host in HOSTS {
            install(&folder.join(host), &stock());
        }
        match self {
            Scenario::Graft => stock(),
            Scenario::Replace | Scenario::Undo => {
                graft_at(folder, &request(1), &|_| {}).unwrap().commit();
                stock()
            }
            Scenario::GraftInstalledAnew => {
                graft_at(folder, &request(1), &|_| {}).unwrap().commit();
                for host in HOSTS {
                    install(&folder.join(host), &new_stock());
                }
                new_stock()
            }
            _ => unreachable!("these are tested by themselves"),
        }
    }

    fn perform(self, folder: &Path, observe: &dyn Fn(Stage)) {
        match self {
            Scenario::Graft | Scenario::Replace | Scenario::GraftInstalledAnew => {
                graft_at(folder, &request(0), observe).unwrap().commit();
            }
            Scenario::Undo => {
                undo_observed(folder, &Watch::default(), observe).unwrap().commit();
            }
            Scenario::GraftBundle => {
                graft_at(&folder.join(BUNDLE), &request(0), observe).unwrap().commit();
            }
            Scenario::UndoBundle => {
                undo_observed(&folder.join(BUNDLE), &Watch::default(), observe).unwrap().commit();
            }
            Scenario::GraftLoader => graft_loader(folder, observe),
            Scenario::UndoLoader => {
                undo_observed(&folder.join(LOADER), &Watch::default(), observe).unwrap().commit();
            }
        }
    }
}

/// Every file under `folder` with its bytes.
fn listing(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut waiting = vec![folder.to_owned()];
    while let Some(current) = waiting.pop() {
        for entry in fs::read_dir(current).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                waiting.push(path);
            } else {
                files.insert(path.strip_prefix(folder).unwrap().to_owned(), fs::read(&path).unwrap());
            }
        }
    }
    files
}

/// The process that is killed: `scenario/stage/links/exchange/folder` in the environment, with 1 for a missing
/// operation.
#[test]
#[ignore = "child: the other tests start it in a process of its own"]
fn victim() {
    let Some(task) = std::env::var_os(VICTIM) else { return };
    let task = task.into_string().unwrap();
    let mut parts = task.splitn(5, '/');
    let mut number = || parts.next().unwrap().parse::<usize>().unwrap();
    let (scenario, last) = (number(), number());
    let lacking = MissingOperations { links: number() == 1, exchange: number() == 1 };
    let folder = PathBuf::from(parts.next().unwrap());
    let count = AtomicUsize::new(0);
    let observe = |_| {
        if count.fetch_add(1, Ordering::Relaxed) == last {
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).unwrap();
        }
    };
    lacking.when(|| scenario_of(scenario).perform(&folder, &observe));
}

fn scenario_of(index: usize) -> Scenario {
    use Scenario::{Graft, GraftBundle, GraftInstalledAnew, GraftLoader, Replace, Undo, UndoBundle, UndoLoader};
    [Graft, Replace, GraftInstalledAnew, Undo, GraftBundle, UndoBundle, GraftLoader, UndoLoader][index]
}

/// Kills a run at stage `stage`; `None` if the run ended before it got there.
fn kill(scenario: usize, stage: usize, lacking: MissingOperations, folder: &Path) -> Option<()> {
    let (links, exchange) = (u8::from(lacking.links), u8::from(lacking.exchange));
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "trials::killed::victim", "--ignored", "--quiet", "--test-threads=1"])
        .env(VICTIM, format!("{scenario}/{stage}/{links}/{exchange}/{}", folder.display()))
        .output()
        .unwrap()
        .status;
    match std::os::unix::process::ExitStatusExt::signal(&status) {
        Some(9) => Some(()),
        _ => {
            assert!(status.success(), "{:?}, stage {stage}: {status}", scenario_of(scenario));
            None
        }
    }
}

fn killed_anywhere(scenario: usize, least: usize, lacking: MissingOperations) {
    lacking.when(|| killed_at_each_stage(scenario, least, lacking));
}

fn killed_at_each_stage(scenario: usize, least: usize, lacking: MissingOperations) {
    let graft_of = |bytes: &[u8], donor| {
        let folder = tempfile::tempdir().unwrap();
        let host = folder.path().join("libc.a");
        install(&host, bytes);
        graft_at(&host, &request(donor), &|_| {}).unwrap().commit();
        fs::read(host).unwrap()
    };
    let grafts: Vec<Vec<u8>> =
        [stock(), new_stock()].iter().flat_map(|bytes| [graft_of(bytes, 0), graft_of(bytes, 1)]).collect();
    for stage in 0.. {
        for graft_first in [true, false] {
            let outer = tempfile::tempdir().unwrap();
            let folder = outer.path();
            let wanted = scenario_of(scenario).prepare(folder);
            let before = listing(folder);
            if kill(scenario, stage, lacking, folder).is_none() {
                assert!(stage >= least, "only {stage} stages");
                return;
            }
            let context =
                format!("{:?} killed at stage {stage}, graft first: {graft_first}, {lacking:?}", scenario_of(scenario));
            for host in HOSTS {
                let bytes = fs::read(folder.join(host)).unwrap();
                let whole = bytes == wanted || bytes == before[Path::new(host)] || grafts.contains(&bytes);
                assert!(whole, "{context}: {host} is neither stock nor graft");
            }
            if graft_first {
                let again = graft_at(folder, &request(0), &|_| {}).unwrap().commit();
                for host in again.hosts {
                    assert!(host.backup.is_some(), "{context}: {:?}", host.notes);
                    assert_eq!(fs::read(&host.path).unwrap(), graft_of(&wanted, 0), "{context}");
                }
            }
            match undo_observed(folder, &Watch::default(), &|_| {}).map(Pending::commit) {
                // The host was installed anew since its graft, and has no new backup yet.
                Err(crate::Error::ChangedSince { .. })
                    if matches!(scenario_of(scenario), Scenario::GraftInstalledAnew) =>
                {
                    assert!(!graft_first, "{context}");
                    continue;
                }
                other => other.unwrap_or_else(|error| panic!("{context}: {error}")),
            };
            let expected: BTreeMap<_, _> = HOSTS.iter().map(|host| (PathBuf::from(host), wanted.clone())).collect();
            let left: Vec<_> = listing(folder).into_keys().collect();
            assert!(listing(folder) == expected, "{context}: left are {left:?}");
            for host in HOSTS {
                let metadata = fs::metadata(folder.join(host)).unwrap();
                assert_eq!(metadata.modified().unwrap(), old_time(), "{context}");
                assert_eq!(metadata.permissions().mode() & 0o7777, 0o644, "{context}");
            }
        }
    }
}

#[test]
fn killed_while_grafting() {
    // Per host: backup made and placed, record written and placed, graft written, host replaced; and synced.
    killed_anywhere(0, 13, MissingOperations::NOTHING);
}

#[test]
fn killed_while_grafting_without_links() {
    killed_anywhere(0, 11, MissingOperations::LINKS);
    killed_anywhere(0, 13, MissingOperations::BOTH);
}

#[test]
fn killed_while_replacing_a_donor() {
    killed_anywhere(1, 9, MissingOperations::NOTHING);
}

#[test]
fn killed_while_grafting_a_host_that_was_installed_anew() {
    killed_anywhere(2, 13, MissingOperations::NOTHING);
}

#[test]
fn killed_while_grafting_a_host_that_was_installed_anew_without_links() {
    killed_anywhere(2, 11, MissingOperations::LINKS);
}

#[test]
fn killed_while_undoing() {
    killed_anywhere(3, 8, MissingOperations::NOTHING);
}

#[test]
fn killed_while_undoing_without_links() {
    killed_anywhere(3, 8, MissingOperations::LINKS);
    killed_anywhere(3, 8, MissingOperations::BOTH);
}

#[test]
fn killed_while_working_on_a_packed_bundle() {
    let stock = crate::trials::samples::bundle();
    let graft = |folder: &Path| {
        graft_at(&folder.join(BUNDLE), &request(0), &|_| {}).unwrap().commit();
        fs::read(folder.join(BUNDLE)).unwrap()
    };
    for (scenario, least) in [(4, 5), (5, 4)] {
        for stage in 0.. {
            let outer = tempfile::tempdir().unwrap();
            let bundle = outer.path().join(BUNDLE);
            install(&bundle, &stock);
            let grafted = graft(outer.path());
            if scenario == 4 {
                undo_observed(&bundle, &Watch::default(), &|_| {}).unwrap().commit();
            }
            if kill(scenario, stage, MissingOperations::NOTHING, outer.path()).is_none() {
                assert!(stage >= least, "only {stage} stages");
                break;
            }
            let context = format!("{:?} killed at stage {stage}", scenario_of(scenario));
            let left = fs::read(&bundle).unwrap();
            assert!(left == stock || left == grafted, "{context}: neither stock nor graft");
            assert!(graft(outer.path()) == grafted, "{context}");
            let undone = undo_observed(&bundle, &Watch::default(), &|_| {});
            undone.unwrap_or_else(|error| panic!("{context}: {error}")).commit();
            assert!(fs::read(&bundle).unwrap() == stock, "{context}");
            assert_eq!(listing(outer.path()).len(), 1, "{context}: {:?}", listing(outer.path()).keys());
            assert_eq!(fs::metadata(&bundle).unwrap().modified().unwrap(), old_time(), "{context}");
        }
    }
}

/// After a kill at any stage, the loader is stock or graft, and starts a program.
#[test]
#[ignore = "minutes: a minute: every graft of a loader is tested before it is placed"]
fn killed_while_working_on_a_loader() {
    let stock = fs::read(fixtures::musl_loader(fixtures::Arch::X86_64)).unwrap();
    let test = donors::LoaderTest::for_arch(format::Arch::X86_64).unwrap();
    for (scenario, least) in [(6, 6), (7, 4)] {
        for stage in 0.. {
            let outer = tempfile::tempdir().unwrap();
            let (folder, programs) = (outer.path(), tempfile::tempdir().unwrap());
            let (loader, program) = (folder.join(LOADER), programs.path().join("program"));
            install(&loader, &stock);
            fs::set_permissions(&loader, fs::Permissions::from_mode(0o755)).unwrap();
            fs::write(&program, test.program()).unwrap();
            graft_loader(folder, &|_| {});
            let graft = fs::read(&loader).unwrap();
            if scenario == 6 {
                undo_observed(&loader, &Watch::default(), &|_| {}).unwrap().commit();
            }
            if kill(scenario, stage, MissingOperations::NOTHING, folder).is_none() {
                assert!(stage >= least, "only {stage} stages");
                break;
            }
            let context = format!("{:?} killed at stage {stage}", scenario_of(scenario));
            let left = fs::read(&loader).unwrap();
            assert!(left == stock || left == graft, "{context}: neither stock nor graft");
            // Without its argument the program prints a message from its main.
            let started = Command::new(&loader).arg(&program).output().unwrap();
            let said = String::from_utf8_lossy(&started.stderr).into_owned();
            assert!(said.contains("not so: count == 2"), "{context}: {}: {said}", started.status);
            graft_loader(folder, &|_| {});
            assert!(fs::read(&loader).unwrap() == graft, "{context}");
            let undone = undo_observed(&loader, &Watch::default(), &|_| {});
            undone.unwrap_or_else(|error| panic!("{context}: {error}")).commit();
            assert!(fs::read(&loader).unwrap() == stock, "{context}");
            assert_eq!(listing(folder).len(), 1, "{context}: {:?}", listing(folder).keys());
            assert_eq!(fs::metadata(&loader).unwrap().modified().unwrap(), old_time(), "{context}");
        }
    }
}

#[test]
fn a_packed_bundle_that_changes_meanwhile_stays_as_it_is_then() {
    let outer = tempfile::tempdir().unwrap();
    let bundle = outer.path().join(BUNDLE);
    install(&bundle, &crate::trials::samples::bundle());
    let meddle = |stage| {
        if stage == Stage::RecordPlaced {
            fs::write(&bundle, "somebody else's").unwrap();
        }
    };
    let error = graft_at(&bundle, &request(0), &meddle).map(Pending::commit).unwrap_err();
    assert!(matches!(&error, crate::Error::ChangedMeanwhile { path } if *path == bundle), "{error}");
    assert_eq!(fs::read(&bundle).unwrap(), b"somebody else's");
    assert_eq!(listing(outer.path()).len(), 1, "{:?}", listing(outer.path()).keys());
}

#[test]
fn what_fails_late_is_taken_back_for_every_host() {
    for scenario in [Scenario::Graft, Scenario::Replace, Scenario::GraftInstalledAnew] {
        let outer = tempfile::tempdir().unwrap();
        scenario.prepare(outer.path());
        let before = listing(outer.path());
        let first = AtomicUsize::new(0);
        // Once the first host is replaced, another process writes to the second one.
        let meddle = |stage| {
            if stage == Stage::HostReplaced && first.fetch_add(1, Ordering::Relaxed) == 0 {
                let mut bytes = before[Path::new(HOSTS[1])].clone();
                bytes.extend(b"\n");
                fs::write(outer.path().join(HOSTS[1]), bytes).unwrap();
            }
        };
        let error = graft_at(outer.path(), &request(0), &meddle).map(Pending::commit).unwrap_err();
        assert!(matches!(&error, crate::Error::ChangedMeanwhile { path } if path.ends_with(HOSTS[1])), "{error}");
        let after = listing(outer.path());
        assert_eq!(after.keys().collect::<Vec<_>>(), before.keys().collect::<Vec<_>>(), "{scenario:?}");
        for (path, bytes) in &before {
            assert_eq!(
                after[path] == *bytes,
                !path.starts_with("two") || path != Path::new(HOSTS[1]),
                "{scenario:?} {path:?}"
            );
        }
    }
}

#[test]
fn until_it_is_settled_it_can_be_taken_back() {
    for lacking in [
        MissingOperations::NOTHING,
        MissingOperations::LINKS,
        MissingOperations { links: false, exchange: true },
        MissingOperations::BOTH,
    ] {
        for scenario in [Scenario::Graft, Scenario::Replace, Scenario::GraftInstalledAnew, Scenario::Undo] {
            lacking.when(|| {
                let outer = tempfile::tempdir().unwrap();
                let folder = outer.path();
                scenario.prepare(folder);
                let before = listing(folder);
                let modified = |host| fs::metadata(folder.join(host)).unwrap().modified().unwrap();
                let times = HOSTS.map(modified);
                match scenario {
                    Scenario::Undo => {
                        let undone = undo_observed(folder, &Watch::default(), &|_| {}).unwrap();
                        assert!(fs::read(folder.join(HOSTS[0])).unwrap() == stock());
                        undone.roll_back().unwrap();
                    }
                    _ => {
                        let grafts = graft_at(folder, &request(0), &|_| {}).unwrap();
                        assert!(fs::read(folder.join(HOSTS[0])).unwrap() != before[Path::new(HOSTS[0])]);
                        grafts.roll_back().unwrap();
                    }
                }
                assert!(listing(folder) == before, "{scenario:?}, {lacking:?}: {:?}", listing(folder).keys());
                assert_eq!(HOSTS.map(modified), times, "{scenario:?}, {lacking:?}");
            });
        }
    }
}

#[test]
fn what_cannot_be_taken_back_is_told() {
    let outer = tempfile::tempdir().unwrap();
    let folder = outer.path();
    Scenario::Graft.prepare(folder);
    let count = AtomicUsize::new(0);
    // Once the first host is replaced, another process writes to the second, and deletes the kept file of the first.
    let meddle = |stage| {
        if stage == Stage::HostReplaced && count.fetch_add(1, Ordering::Relaxed) == 0 {
            fs::write(folder.join(HOSTS[1]), "somebody else's").unwrap();
            for entry in fs::read_dir(folder.join("one")).unwrap().flatten() {
                if entry.file_name().to_string_lossy().starts_with(".allograft-tmp-") {
                    fs::remove_file(entry.path()).unwrap();
                }
            }
        }
    };
    let error = graft_at(folder, &request(0), &meddle).map(Pending::commit).unwrap_err();
    assert_eq!(error.exit_code(), 4);
    let text = error.to_string();
    for part in ["two/libc.a` changed while", "one/libc.a` is the graft now", "two/libc.a` is as it was"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert_eq!(error.remedy(), Remedy::Resume { grafting: true, hosts: vec![folder.join("one/libc.a")] });
    // The help that it prints works.
    undo_observed(&folder.join(HOSTS[0]), &Watch::default(), &|_| {}).unwrap().commit();
    assert!(fs::read(folder.join(HOSTS[0])).unwrap() == stock());
    assert_eq!(listing(folder).len(), 2, "{:?}", listing(folder).keys());
}

#[test]
fn grafting_twice_touches_nothing() {
    let outer = tempfile::tempdir().unwrap();
    Scenario::Replace.prepare(outer.path());
    let times = || HOSTS.map(|host| fs::metadata(outer.path().join(host)).unwrap().modified().unwrap());
    let (before, at) = (listing(outer.path()), times());
    let again = graft_at(outer.path(), &request(1), &|stage| panic!("{stage:?}")).unwrap().commit();
    assert!(again.hosts.iter().all(|host| host.action == Action::Unchanged && host.notes.is_empty()));
    assert!(listing(outer.path()) == before && times() == at);
    let undone = undo_observed(outer.path(), &Watch::default(), &|_| {}).unwrap().commit();
    assert!(undone.iter().all(|host| host.action == UndoneAction::Restored));
    let undone = undo_observed(outer.path(), &Watch::default(), &|stage| panic!("{stage:?}")).unwrap().commit();
    assert!(undone.iter().all(|host| host.action == UndoneAction::NothingToUndo));
}
