//! Tests: two allografts in one folder. A program is tried without the folder's lock, so that the other process does
//! not wait, and changes by the other process before the lock is taken are noticed.

use std::cell::RefCell;
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use fixtures::program::Build;

use crate::file::names::{backup_path, record_path};
use crate::graft::graft_observed;
use crate::outcome::{Action, Grafts};
use crate::recognition::Target;
use crate::record::Record;
use crate::request::Request;
use crate::watch::{Locking, Watch};

/// A program that tries to lock the folder that is its first argument, and appends the result to the file that is its
/// second.
const ASKS: &str = "#include <fcntl.h>\n#include <stdlib.h>\n#include <string.h>\n#include <sys/file.h>\n#include <unistd.h>\n\
    int main(int count, char **words) {\n\
    if (count < 3) return 2;\n\
    int folder = open(words[1], O_RDONLY), answer = open(words[2], O_WRONLY | O_CREAT | O_APPEND, 0600);\n\
    free(realloc(malloc(count), 100));\n\
    const char *word = flock(folder, LOCK_EX | LOCK_NB) ? \"locked\\n\" : \"free\\n\";\n\
    return write(answer, word, strlen(word)) < 0; }\n";

fn request(donor: &str) -> Request {
    Request::new(donors::find(donor).unwrap())
}

fn grafted(host: &Path, request: &Request, watch: &Watch<'_>) -> Grafts {
    graft_observed(Target::open(host).unwrap(), request, watch, &|_| {}).unwrap().commit()
}

fn program(folder: &Path, name: &str) -> PathBuf {
    Build::PLAIN.program(folder, name, ASKS)
}

#[test]
fn a_program_runs_while_its_folder_is_not_locked() {
    let folder = tempfile::tempdir().unwrap();
    let host = program(folder.path(), "asks");
    let elsewhere = tempfile::tempdir().unwrap();
    for out in [Some(folder.path().join("out")), None] {
        let answers = elsewhere.path().join("answers");
        let arguments = [folder.path(), &answers].map(OsString::from).to_vec();
        let request = Request { arguments: Some(arguments), out: out.clone(), ..request("mimalloc") };
        grafted(&host, &request, &Watch::default());
        assert_eq!(fs::read_to_string(&answers).unwrap(), "free\n".repeat(2), "stock and graft, to {out:?}");
        fs::remove_file(answers).unwrap();
    }
}

/// Grafts `host` while another process holds the lock of its folder and calls `other` before it releases the lock.
fn after(host: &Path, request: &Request, other: impl Fn()) -> Grafts {
    let folder = File::open(host.parent().unwrap()).unwrap();
    folder.lock().unwrap();
    let held = RefCell::new(Some(folder));
    let tell = |locking: Locking<'_>| {
        assert!(matches!(locking, Locking::Waiting(_)), "{locking:?}");
        other();
        held.take().unwrap().unlock().unwrap();
    };
    let grafts = grafted(host, request, &Watch { locking: Some(&tell), ..Watch::default() });
    assert!(held.take().is_none(), "it waited for the lock");
    grafts
}

#[test]
fn what_another_did_before_is_taken_into_account() {
    let folder = tempfile::tempdir().unwrap();
    let host = program(folder.path(), "host");
    let (stock, other) = (fs::read(&host).unwrap(), tempfile::tempdir().unwrap());

    let done = program(other.path(), "host");
    grafted(&done, &request("mimalloc"), &Watch::default());
    let graft = fs::read(&done).unwrap();
    // The other process has grafted it: nothing is left to do.
    let grafts = after(&host, &request("mimalloc"), || {
        fs::copy(backup_path(&done), backup_path(&host)).unwrap();
        fs::copy(record_path(&done), record_path(&host)).unwrap();
        fs::write(&host, &graft).unwrap();
    });
    assert_eq!(grafts.hosts[0].action, Action::Unchanged);
    crate::undo::undo(&host).unwrap();
    assert!(fs::read(&host).unwrap() == stock);

    // The other process has installed a new program there: that one is grafted, and restored by undo.
    let installed = Build { position_independent: true, ..Build::PLAIN }.program(other.path(), "new", ASKS);
    let grafts = after(&host, &request("mimalloc"), || {
        fs::remove_file(&host).unwrap();
        fs::copy(&installed, &host).unwrap();
    });
    assert_eq!(grafts.hosts[0].action, Action::Grafted);
    let record = Record::read(&host).unwrap().unwrap();
    assert_eq!(record.stock_sha256, crate::digest::sha256(&fs::read(&installed).unwrap()));
    crate::undo::undo(&host).unwrap();
    assert!(fs::read(&host).unwrap() == fs::read(&installed).unwrap());
}

/// `undo` takes away the record, the backup and the graft one after the other. A graft that reads them meanwhile finds
/// a graft without a record, which cannot be grafted, and looks again once the other is done.
#[test]
fn a_refusal_counts_only_if_the_host_is_still_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let host = program(folder.path(), "host");
    let stock = fs::read(&host).unwrap();
    grafted(&host, &request("mimalloc"), &Watch::default());
    let backup = tempfile::tempdir().unwrap();
    fs::rename(backup_path(&host), backup.path().join("stock")).unwrap();
    fs::remove_file(record_path(&host)).unwrap();

    // No other run is at work: the refusal counts.
    let graft = fs::read(&host).unwrap();
    let out = backup.path().join("out");
    let elsewhere = || Request { out: Some(out.clone()), ..request("snmalloc") };
    for request in [request("snmalloc"), elsewhere()] {
        let refused = graft_observed(Target::open(&host).unwrap(), &request, &Watch::default(), &|_| {});
        assert_eq!(refused.err().unwrap().exit_code(), 3);
        assert!(fs::read(&host).unwrap() == graft && !out.exists());
    }

    // The other run restores the host.
    let restores = |kept: &str| fs::copy(backup.path().join("stock"), host.with_file_name(kept)).unwrap();
    let restored = |kept: &str| fs::rename(host.with_file_name(kept), &host).unwrap();
    restores("kept");
    let grafts = after(&host, &elsewhere(), || restored("kept"));
    assert_eq!(grafts.hosts[0].action, Action::Grafted);
    assert!(fs::read(&host).unwrap() == stock && fs::read(&out).unwrap() != stock);

    fs::write(&host, &graft).unwrap();
    restores("kept");
    let grafts = after(&host, &request("snmalloc"), || restored("kept"));
    assert_eq!(grafts.hosts[0].action, Action::Grafted);
    crate::undo::undo(&host).unwrap();
    assert!(fs::read(&host).unwrap() == stock);
}
