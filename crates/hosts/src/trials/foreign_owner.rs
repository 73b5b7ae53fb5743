//! Tests: hosts of a different owner on a file system with neither hard links nor exchange, where the backup is a copy.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::file::links::lacking;
use crate::graft::graft_observed;
use crate::recognition::Target;
use crate::record::Record;
use crate::request::Request;
use crate::undo::undo_observed;
use crate::watch::Watch;

const TASK: &str = "HOSTS_TEST_FOREIGN_OWNER";
const NOBODY: u32 = 65534;

/// The part that runs as the user nobody: grafts with the donor named in the environment (`donor folder`), or undoes if
/// that is `undo`. Prints the notes.
#[test]
#[ignore = "child: the other test starts it as another user"]
fn nobody() {
    let Some(task) = std::env::var_os(TASK) else { return };
    let task = task.into_string().unwrap();
    let (donor, folder) = task.split_once(' ').unwrap();
    let host = PathBuf::from(folder).join("libc.a");
    let conditions = Watch::default();
    let (notes, backup_lacks) = lacking::without(true, true, || match donors::find(donor) {
        None => (undo_observed(&host, &conditions, &|_| {}).unwrap().commit().remove(0).notes, Vec::new()),
        Some(donor) => {
            let request = Request { strings: Some(true), ..Request::new(donor) };
            let graft = graft_observed(Target::open(&host).unwrap(), &request, &conditions, &|_| {})
                .unwrap()
                .commit()
                .hosts
                .remove(0);
            (graft.notes, graft.backup_lacks)
        }
    });
    notes.iter().for_each(|note| println!("note: {note}"));
    backup_lacks.iter().for_each(|lost| println!("the backup {lost}"));
}

fn as_nobody(program: &Path, task: &str) -> String {
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs"])
        .arg(program)
        .args(["--exact", "trials::foreign_owner::nobody", "--ignored", "--nocapture", "--test-threads=1"])
        .env(TASK, task)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    said
}

#[test]
fn what_a_copy_could_not_keep_is_said_both_times() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("what_a_copy_could_not_keep_is_said_both_times: left out: only root can play two users");
        return;
    }
    let outer = tempfile::tempdir().unwrap();
    let (folder, program) = (outer.path().join("lib"), outer.path().join("tests"));
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    fs::set_permissions(outer.path(), Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(&folder).unwrap();
    chown(&folder, Some(NOBODY), Some(NOBODY)).unwrap();
    let host = folder.join("libc.a");
    fs::write(&host, crate::trials::samples::libc()).unwrap();
    fs::set_permissions(&host, Permissions::from_mode(0o644)).unwrap();
    let task = |donor: &str| format!("{donor} {}", folder.display());
    let said = as_nobody(&program, &task("mimalloc"));
    assert!(said.contains("the backup could not keep its owner 0"), "{said}");
    // The record of the next donor still has the owner.
    as_nobody(&program, &task("mimalloc3"));
    let stock = Record::read(&host).unwrap().unwrap().stock.unwrap();
    assert_eq!((stock.owner, stock.group, stock.mode), (0, 0, 0o644));
    let said = as_nobody(&program, &task("undo"));
    assert!(said.contains("belonged to the owner 0, and belongs to 65534 now"), "{said}");
    assert!(fs::read(&host).unwrap() == crate::trials::samples::libc());
    assert_eq!(fs::metadata(&host).unwrap().uid(), NOBODY);
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
}
