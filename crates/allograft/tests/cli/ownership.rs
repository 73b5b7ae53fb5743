//! Hosts of another owner: the rights that a graft gets, the rights that come back, and the messages.

use std::ffi::CString;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

use crate::executables::program;
use crate::lab::Lab;
use crate::trouble::run_unprivileged;

const NOBODY: u32 = 65534;
/// `security.capability` of xattr(7), version 2: cap_net_raw, permitted and effective.
const CAPABILITIES: [u8; 20] = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// Makes a lab in a folder of the user nobody, with a program that root owns. `None` if this process cannot become that
/// user.
fn lab_of_nobody(test: &str, mode: u32) -> Option<Lab> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("{test}: left out: only root can run the program as two users");
        return None;
    }
    let lab = Lab::new();
    program(&lab, "program");
    chown(lab.path("program"), Some(0), Some(0)).unwrap();
    fs::set_permissions(lab.path("program"), Permissions::from_mode(mode)).unwrap();
    chown(lab.path(""), Some(NOBODY), Some(NOBODY)).unwrap();
    Some(lab)
}

/// Returns the mode, owner and group.
fn is(lab: &Lab, name: &str) -> (u32, u32, u32) {
    let found = fs::metadata(lab.path(name)).unwrap();
    (found.mode() & 0o7777, found.uid(), found.gid())
}

/// Sets the file's capabilities; returns whether the file system takes them.
fn set_capabilities(lab: &Lab, name: &str) -> bool {
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(lab.path(name), "security.capability", &CAPABILITIES, flags).is_ok()
}

fn capabilities(lab: &Lab, name: &str) -> Option<Vec<u8>> {
    let mut value = [0; 64];
    let path = CString::new(lab.path(name).into_os_string().into_encoded_bytes()).unwrap();
    let length = rustix::fs::getxattr(path.as_c_str(), "security.capability", &mut value[..]).ok()?;
    Some(value[..length].to_vec())
}

#[test]
fn set_id_bits_and_capabilities_do_not_go_to_another_owner() {
    for mode in [0o4755, 0o2755, 0o6755] {
        let Some(lab) = lab_of_nobody("set_id_bits_and_capabilities_do_not_go_to_another_owner", mode) else { return };
        let capable = set_capabilities(&lab, "program");
        let ran = run_unprivileged(&lab, &["graft", "program", "--yes", "-o", "other"]).exits(0);
        ran.says(&["could not keep its owner 0", "which would have given other rights"]);
        assert_eq!(is(&lab, "other"), (0o755, NOBODY, NOBODY), "{mode:o}");
        let ran = run_unprivileged(&lab, &["graft", "program", "--yes"]).exits(0);
        let ran = ran.says(&["could not keep its owner 0", "could not keep its group 0", "set-"]);
        assert_eq!(is(&lab, "program"), (0o755, NOBODY, NOBODY), "{mode:o}");
        assert_eq!(is(&lab, "program.allograft.json"), (0o644, NOBODY, NOBODY), "{mode:o}");
        // The backup is the stock file itself.
        assert_eq!(is(&lab, "program.allograft-stock"), (mode, 0, 0), "{mode:o}");
        if capable {
            assert!(ran.err.contains("lost its capabilities"), "{}", ran.err);
            assert_eq!(capabilities(&lab, "program"), None);
            assert_eq!(capabilities(&lab, "program.allograft.json"), None);
        }
    }
}

#[test]
fn a_copy_of_a_folder_hands_out_no_rights() {
    let Some(lab) = lab_of_nobody("a_copy_of_a_folder_hands_out_no_rights", 0o6755) else { return };
    fs::create_dir(lab.path("tree")).unwrap();
    lab.libc("tree/libc.a");
    fs::rename(lab.path("program"), lab.path("tree/program")).unwrap();
    let ran = run_unprivileged(&lab, &["graft", "tree", "-o", "copy"]).exits(0);
    ran.says(&["could not keep their owner", "could not keep their set-id bits; the first is `program`"]);
    assert_eq!(is(&lab, "copy/program"), (0o755, NOBODY, NOBODY));
    // If the owner grafts, they stay.
    lab.run(["graft", "tree", "-o", "again"]).exits(0);
    assert_eq!(is(&lab, "again/program"), (0o6755, 0, 0));
}

#[test]
fn undo_gives_owner_group_mode_and_capabilities_back() {
    for by_root in [true, false] {
        let Some(lab) = lab_of_nobody("undo_gives_owner_group_mode_and_capabilities_back", 0o4755) else { return };
        let capable = set_capabilities(&lab, "program");
        let before = lab.files();
        // Another donor is grafted in between.
        run_unprivileged(&lab, &["graft", "program", "--yes"]).exits(0);
        run_unprivileged(&lab, &["graft", "program", "--yes", "--donor", "mimalloc-secure"]).exits(0);
        let undo = ["undo", "program"];
        let ran = if by_root { lab.run(undo) } else { run_unprivileged(&lab, &undo) };
        assert_eq!(ran.exits(0).err, "");
        assert_eq!(is(&lab, "program"), (0o4755, 0, 0));
        assert_eq!(capabilities(&lab, "program").is_some(), capable);
        // The files are the very same.
        crate::lab::assert_same(&before, &lab.files());
    }
}

#[test]
fn the_same_for_a_libc_of_roots() {
    let Some(lab) = lab_of_nobody("the_same_for_a_libc_of_roots", 0o755) else { return };
    lab.libc("libc.a");
    let before = lab.files();
    run_unprivileged(&lab, &["graft", "libc.a"]).exits(0).says(&["could not keep its owner 0"]);
    run_unprivileged(&lab, &["undo", "libc.a"]).exits(0);
    crate::lab::assert_same(&before, &lab.files());
}

/// The record is not executable, and its mode does not depend on the umask. A record of a host that only some users may
/// read stays equally private.
#[test]
fn the_record_has_a_mode_of_its_own() {
    let lab = Lab::new();
    program(&lab, "program");
    for (host, record) in [(0o755, 0o644), (0o4755, 0o644), (0o700, 0o600), (0o550, 0o640)] {
        for umask in ["umask 077", "umask 0"] {
            fs::set_permissions(lab.path("program"), Permissions::from_mode(host)).unwrap();
            let attribute =
                rustix::fs::setxattr(lab.path("program"), "user.allograft", b"host", rustix::fs::XattrFlags::empty());
            lab.run_after(umask, &["graft", "program", "--yes"]).exits(0);
            let path = lab.path("program.allograft.json");
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, record, "{host:o} {umask}");
            if attribute.is_ok() {
                let path = CString::new(path.into_os_string().into_encoded_bytes()).unwrap();
                assert!(rustix::fs::getxattr(path.as_c_str(), "user.allograft", &mut [0_u8; 8][..]).is_err());
            }
            lab.run(["undo", "program"]).exits(0);
        }
    }
}
