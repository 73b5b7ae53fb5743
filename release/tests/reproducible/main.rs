//! Makes two releases of the commit that is checked out, in two folders, and compares every file. One of them stays,
//! like after `cargo xtask release`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};
use tools::{command, workspace};

/// The folders that `cargo xtask setup` has filled: each checkout gets a copy, so that no path is the same.
const PREPARED: [&str; 3] = ["tools", "fixtures", "zig-cache"];

/// Clones this checkout to `folder`, makes a release there, moves its files to `files`, removes the clone, and returns
/// the SHA-256 of each file by its name.
fn release(folder: &Path, files: &Path) -> BTreeMap<PathBuf, String> {
    let run = |command: &mut Command| command::output(command).unwrap_or_else(|error| panic!("{error:#}"));
    run(Command::new("git").args(["clone", "--quiet"]).arg(workspace::root()).arg(folder));
    fs::create_dir(folder.join("target")).expect("a folder");
    for name in PREPARED {
        let (from, to) = (workspace::build().join(name), folder.join("target"));
        if from.is_dir() {
            run(Command::new("cp").args(["-a", "--reflink=auto"]).arg(from).arg(to));
        }
    }
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command::apart(&mut cargo);
    run(cargo.args(["xtask", "release"]).current_dir(folder).env_remove("CARGO_TARGET_DIR"));
    fs::rename(folder.join("target/release-files"), files).expect("a release");
    fs::remove_dir_all(folder).expect("an end of the clone");
    let hash = |path: PathBuf| {
        let bytes = fs::read(&path).expect("a file of the release");
        (path.file_name().expect("a name").into(), HEXLOWER.encode(&Sha256::digest(bytes)))
    };
    fs::read_dir(files).expect("a release").flatten().map(|entry| hash(entry.path())).collect()
}

#[test]
#[ignore = "hours: makes two releases: an hour, 20 GB"]
fn two_checkouts_make_the_same_release() {
    if let Some(reason) = fixtures::toolchains::unavailable() {
        eprintln!("skipped: {reason}");
        return;
    }
    let scratch = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary folder");
    let one = release(&scratch.path().join("one"), &scratch.path().join("files of one"));
    let other = release(&scratch.path().join("another folder"), &scratch.path().join("files of another"));
    assert!(one.len() > 20, "{one:#?}");
    let names: BTreeSet<_> = one.keys().chain(other.keys()).collect();
    let differ: Vec<_> = names.into_iter().filter(|name| one.get(*name) != other.get(*name)).collect();
    // Files that differ are kept for analysis.
    assert!(differ.is_empty(), "{differ:#?}: see `{}`", scratch.keep().display());
    // The tests that install the files take them from here.
    let kept = workspace::build().join("release-files");
    let _ = fs::remove_dir_all(&kept);
    fs::rename(scratch.path().join("files of one"), &kept).expect("a release that is kept");
}
