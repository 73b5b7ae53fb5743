//! The crate as the program uses it.

use std::fs;
use std::path::Path;

use hosts::{Action, Request, UndoneAction};

fn request() -> Request {
    let donor = donors::find(donors::DEFAULT).unwrap();
    Request { donor: Some(donor), strings: true, settings: Vec::new(), out: None, dry_run: false }
}

fn stock() -> Vec<u8> {
    fs::read(fixtures::debian_musl(fixtures::Arch::X86_64).libc).unwrap()
}

#[test]
fn there_and_back() {
    let folder = tempfile::tempdir().unwrap();
    let libc = folder.path().join("libc.a");
    fs::write(&libc, stock()).unwrap();
    assert_eq!(hosts::stock_of(&libc).unwrap(), None);
    let grafts = hosts::graft(folder.path(), &request()).unwrap();
    assert_eq!(grafts.hosts.len(), 1);
    let host = &grafts.hosts[0];
    assert_eq!((host.action, host.path.as_path()), (Action::Grafted, libc.as_path()));
    assert_eq!(hosts::grafts_in(folder.path()).unwrap(), std::slice::from_ref(&libc));
    assert_eq!(hosts::stock_of(&libc).unwrap(), host.backup);
    let undone = hosts::undo(folder.path()).unwrap();
    assert_eq!(undone[0].action, UndoneAction::Restored);
    assert_eq!(Some(&undone[0].stock_sha256), host.stock_sha256.as_ref());
    assert!(fs::read(&libc).unwrap() == stock());
    assert!(matches!(hosts::grafts_in(folder.path()), Err(hosts::Error::NoGraft { .. })));
}

#[test]
fn what_is_grafted_is_what_surgery_plans() {
    let folder = tempfile::tempdir().unwrap();
    let libc = folder.path().join("libc.a");
    fs::write(&libc, stock()).unwrap();
    hosts::graft(&libc, &request()).unwrap();
    let mut bytes = stock();
    for donor in [donors::find(donors::DEFAULT).unwrap(), donors::strings()] {
        let object = surgery::donor::DonorObject::parse(donor.object(surgery::Arch::X86_64).unwrap()).unwrap();
        let tuned = object.tuned(&[], env!("CARGO_PKG_VERSION")).unwrap();
        let archive = surgery::archive::Archive::parse(&bytes).unwrap();
        bytes = surgery::plan::plan(&archive, &tuned).unwrap().apply(&archive);
    }
    assert!(fs::read(&libc).unwrap() == bytes);
}

#[test]
fn errors_have_exit_codes_and_help() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("libc.a");
    let graft = |path: &Path| hosts::graft(path, &request()).unwrap_err();
    assert_eq!(graft(&path).exit_code(), 2);
    fs::write(&path, "text").unwrap();
    assert_eq!(graft(&path).exit_code(), 2);
    fs::write(&path, b"\x1f\x8b\x08\0").unwrap();
    assert_eq!(graft(&path).exit_code(), 3);
    assert!(graft(&path).help().is_some());
    let mut settings = request();
    settings.settings.push(("no_such_option".to_owned(), 1));
    let error = hosts::graft(&path, &settings).unwrap_err();
    assert!(error.exit_code() == 2 && error.to_string().contains("no_such_option"), "{error}");
}
