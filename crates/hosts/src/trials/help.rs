//! Tests: the help of an undo fits the kind of host, whatever its name.

use std::fs;

use format::Linked;

use crate::digest::sha256;
use crate::error::Error;
use crate::error::host_kind::HostKind;
use crate::error::remedy::Remedy;
use crate::file::names::record_path;
use crate::record::Record;
use crate::trials::{once, samples};
use crate::undo::undo;

/// A graft whose backup is missing: its help once told programs, loaders and bundles to install a `libc.a`.
#[test]
fn an_undo_without_a_backup_knows_the_kind_of_host() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = folder.path().join("bundle.tar.gz");
    fs::write(&bundle, samples::bundle()).unwrap();
    let linked = HostKind::Linked;
    let kinds = [
        HostKind::Archive,
        linked(Linked::Loader),
        linked(Linked::Dynamic),
        linked(Linked::Program),
        linked(Linked::Program),
        HostKind::Bundle,
    ];
    let hosts = once::hosts(folder.path()).into_iter().chain([bundle]);
    for (host, expected) in hosts.zip(kinds) {
        let record = Record {
            schema_version: 1,
            stock_sha256: "0".repeat(64),
            graft_sha256: sha256(&fs::read(&host).unwrap()),
            replaced_sha256: None,
            donor: "mimalloc".to_owned(),
            version: String::new(),
            options: String::new(),
            strings: None,
            allograft: String::new(),
            stock: None,
        };
        fs::write(record_path(&host), record.encode()).unwrap();
        let error = undo(&host).unwrap_err();
        assert!(
            matches!(error, Error::BackupMissing { kind: Some(kind), .. } if kind == expected),
            "{}: {error:?}",
            host.display()
        );
        let Remedy::NameStock { again: help, .. } = error.remedy() else { panic!("{error:?}") };
        assert_eq!(help.contains("libc.a"), expected == HostKind::Archive, "{}: {help}", host.display());
    }
}
