//! Swift SDK bundles: as a folder, as a tar.gz, as a zip; every architecture; everything else unchanged; and undone.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::bundle::{
    ARCHES, FOLDER, SDK, folder, grafts, libc_in, pack_streamed_zip, pack_tar, pack_zip, stock, unzipped,
};
use crate::lab::{Lab, assert_same, long_ago};

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn an_unpacked_bundle_and_back() {
    let lab = Lab::new();
    folder(&lab);
    let expected = grafts(&lab);
    let before = lab.snapshot();
    let ran = lab.run(["graft", FOLDER, "--json"]).exits(0);
    let document = ran.json();
    assert_eq!(document["swift_sdks"], serde_json::json!([SDK]));
    assert_eq!(document["hosts"].as_array().unwrap().len(), 2);
    for (arch, graft) in ARCHES.iter().zip(&expected) {
        assert!(&fs::read(lab.path(FOLDER).join(libc_in(*arch))).unwrap() == graft, "{}", arch.name());
    }
    let again = lab.changes_nothing(0, ["graft", FOLDER]);
    assert!(!again.out.contains("SwiftPM"), "nothing to link again: {}", again.out);
    lab.changes_nothing(0, ["verify", FOLDER, "--static-only"]);
    lab.changes_nothing(0, ["inspect", FOLDER]);
    lab.run(["undo", FOLDER]).exits(0);
    let strip = |mut snapshot: BTreeMap<_, _>| {
        // The times of folders differ.
        snapshot.retain(|path: &std::path::PathBuf, _| !lab.path(path).is_dir());
        snapshot
    };
    assert_same(&strip(before), &strip(lab.snapshot()));
    let ran = lab.run(["graft", FOLDER]).exits(0);
    assert!(ran.out.contains(&format!("swift package clean && swift build --swift-sdk {SDK}")), "{}", ran.out);
}

/// Asserts that two tars are equal except for the sizes, checksums and content of the `libc.a`s, which are `grafts`.
fn assert_only_libcs_differ(before: &[u8], after: &[u8], grafts: &[Vec<u8>]) {
    let entries = |bytes: &[u8]| -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut archive = tar::Archive::new(bytes);
        let mut all = Vec::new();
        for entry in archive.entries().unwrap().raw(true) {
            let mut entry = entry.unwrap();
            let header = entry.header().as_bytes().to_vec();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            all.push((header, content));
        }
        all
    };
    let (before, after) = (entries(before), entries(after));
    assert_eq!(before.len(), after.len());
    let mut edited = 0;
    for ((old_header, old), (new_header, new)) in before.iter().zip(&after) {
        if old == new {
            assert!(old_header == new_header);
            continue;
        }
        assert!(grafts.contains(new));
        edited += 1;
        // The fields of size and checksum.
        for (at, (old, new)) in old_header.iter().zip(new_header).enumerate() {
            assert!(old == new || (124..136).contains(&at) || (148..156).contains(&at), "header byte {at}");
        }
    }
    assert_eq!(edited, grafts.len());
}

#[test]
fn a_packed_bundle_in_every_format_of_tar() {
    for format in ["gnu", "pax", "ustar"] {
        let lab = Lab::new();
        // The file's name does not tell the format.
        let path = if format == "ustar" {
            folder(&lab);
            // The longest path does not fit into ustar.
            let deep = fs::canonicalize(lab.path(FOLDER)).unwrap();
            remove_deep(&deep);
            pack_existing(&lab, "sdk.bin", format)
        } else {
            pack_tar(&lab, "sdk.bin", format)
        };
        let expected = grafts(&lab);
        let packed = fs::read(&path).unwrap();
        let tar = unzipped(&path);
        let before = lab.snapshot();
        let ran = lab.run(["graft", "sdk.bin", "-o", "out.artifactbundle.tar.gz", "--json"]).exits(0);
        let document = ran.json();
        let bundle = &document["bundle"];
        let out = fs::read(lab.path("out.artifactbundle.tar.gz")).unwrap();
        assert_eq!(bundle["sha256"], sha256(&out));
        assert_eq!(bundle["stock_sha256"], sha256(&packed));
        assert_eq!(bundle["format"], "tar.gz");
        assert_eq!(document["swift_sdks"], serde_json::json!([SDK]));
        assert_eq!(document["hosts"].as_array().unwrap().len(), 2);
        let grafted = unzipped(&lab.path("out.artifactbundle.tar.gz"));
        assert_eq!(bundle["tar_sha256"], sha256(&grafted));
        assert_only_libcs_differ(&tar, &grafted, &expected);
        assert!(grafted.len().is_multiple_of(10_240), "{format}: whole records");
        // A second graft gives the same bytes, and the source is unchanged.
        lab.run(["graft", "sdk.bin", "-o", "again.tar.gz"]).exits(0);
        assert!(fs::read(lab.path("again.tar.gz")).unwrap() == out, "{format}: not the same twice");
        for name in ["out.artifactbundle.tar.gz", "again.tar.gz"] {
            fs::remove_file(lab.path(name)).unwrap();
        }
        let strip = |mut snapshot: BTreeMap<std::path::PathBuf, _>| {
            snapshot.retain(|path, _| !path.as_os_str().is_empty());
            snapshot
        };
        assert_same(&strip(before), &strip(lab.snapshot()));
    }
}

fn remove_deep(root: &Path) {
    for arch in ARCHES {
        let libc = root.join(libc_in(arch));
        fs::remove_dir_all(libc.parent().unwrap().join("swift_static/module")).unwrap();
        fs::remove_file(libc.parent().unwrap().join("libm-second-name.a")).unwrap();
    }
}

fn pack_existing(lab: &Lab, name: &str, format: &str) -> std::path::PathBuf {
    let path = lab.path(name);
    let mut tar = std::process::Command::new("tar");
    crate::lab::tool(tar.args(["--format", format, "-czf"]).arg(&path).arg(FOLDER).current_dir(lab.path("")));
    fs::remove_dir_all(lab.path(FOLDER)).unwrap();
    path
}

#[test]
fn a_packed_bundle_in_place_and_back() {
    for zip in [false, true] {
        let lab = Lab::new();
        let name = if zip { "sdk.artifactbundle.zip" } else { "sdk.artifactbundle.tar.gz" };
        let path = if zip { pack_zip(&lab, name) } else { pack_tar(&lab, name, "pax") };
        File::options().write(true).open(&path).unwrap().set_modified(long_ago()).unwrap();
        let packed = fs::read(&path).unwrap();
        let dry = lab.changes_nothing(0, ["graft", name, "--dry-run", "--json"]).json();
        assert_eq!(dry["bundle"]["action"], "planned");
        let ran = lab.run(["graft", name]).exits(0);
        let graft = fs::read(&path).unwrap();
        assert!(ran.out.contains(&format!("--checksum {}", sha256(&graft))), "{}", ran.out);
        assert!(ran.out.contains(&format!("swift sdk install {name}")));
        assert!(!ran.err.contains("warning"), "{}", ran.err);
        let names = [name.to_owned(), format!("{name}.allograft-stock"), format!("{name}.allograft.json")];
        assert_eq!(lab.names(), names);
        assert!(fs::read(lab.path(&names[1])).unwrap() == packed);
        let again = lab.changes_nothing(0, ["graft", name, "--json"]).json();
        assert_eq!(again["bundle"]["action"], "unchanged");
        assert_eq!(again["bundle"]["sha256"], sha256(&graft));
        let verified = lab.changes_nothing(0, ["verify", name, "--static-only", "--json"]).json();
        assert_eq!(verified["hosts"].as_array().unwrap().len(), 2);
        assert!(verified["hosts"][0]["stock"].is_string(), "compared with the backup's");
        let inspected = lab.changes_nothing(0, ["inspect", name, "--json", "--expect", "snmalloc"]).json();
        crate::documents::fits("inspect", &inspected);
        assert_eq!(inspected["files"].as_array().unwrap().len(), 2);
        // Another donor starts from stock; the first donor again gives the same bytes.
        let other = lab.run(["graft", name, "--donor", "mimalloc", "--json"]).exits(0).json();
        crate::documents::fits("graft", &other);
        assert_eq!(other["bundle"]["action"], "replaced");
        assert_eq!(other["bundle"]["stock_sha256"], sha256(&packed));
        lab.run(["inspect", name, "--expect", "mimalloc"]).exits(0);
        lab.run(["graft", name]).exits(0);
        assert!(fs::read(&path).unwrap() == graft);
        lab.run(["undo", name]).exits(0);
        assert_eq!(lab.names(), [name]);
        assert!(fs::read(&path).unwrap() == packed);
        assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), long_ago());
        lab.changes_nothing(0, ["undo", name]);
    }
}

#[test]
fn a_zip_keeps_every_other_entry_as_it_is_compressed() {
    for pack in [pack_zip, pack_streamed_zip] {
        zip_keeps_every_other_entry(pack);
    }
}

fn zip_keeps_every_other_entry(pack: fn(&Lab, &str) -> std::path::PathBuf) {
    let lab = Lab::new();
    let path = pack(&lab, "sdk.zip");
    let expected = grafts(&lab);
    lab.run(["graft", "sdk.zip", "-o", "out.zip"]).exits(0);
    lab.run(["graft", "sdk.zip", "-o", "again.zip"]).exits(0);
    assert!(fs::read(lab.path("out.zip")).unwrap() == fs::read(lab.path("again.zip")).unwrap());
    // An earlier graft is replaced; a bundle without one stays, unless `--force` is given.
    lab.run(["graft", "sdk.zip", "-o", "again.zip"]).exits(0);
    let other = lab.put("other.zip", &[&fs::read(&path).unwrap()[..], b" "].concat());
    let refused = lab.changes_nothing(3, ["graft", "sdk.zip", "-o", "other.zip"]);
    refused.says(&["`other.zip` exists and is not a graft of `sdk.zip`", "`--force` replaces it"]);
    lab.run(["graft", "sdk.zip", "-o", "other.zip", "--force"]).exits(0);
    assert!(fs::read(other).unwrap() == fs::read(lab.path("again.zip")).unwrap());
    let open = |path: &Path| zip::ZipArchive::new(File::open(path).unwrap()).unwrap();
    let (mut before, mut after) = (open(&path), open(&lab.path("out.zip")));
    assert_eq!(before.comment(), after.comment());
    assert_eq!(before.len(), after.len());
    let mut edited = 0;
    for index in 0..before.len() {
        let (name, is_libc) = {
            let (old, new) = (before.by_index(index).unwrap(), after.by_index(index).unwrap());
            let name = old.name().unwrap().into_owned();
            assert_eq!(name, new.name().unwrap());
            assert_eq!((old.unix_mode(), old.compression()), (new.unix_mode(), new.compression()));
            assert_eq!((old.last_modified(), old.extra_data()), (new.last_modified(), new.extra_data()));
            let is_libc = ARCHES.iter().any(|arch| name.ends_with(&libc_in(*arch)));
            (name, is_libc)
        };
        let content = |archive: &mut zip::ZipArchive<File>, raw: bool| {
            let mut bytes = Vec::new();
            match raw {
                true => archive.by_index_raw(index).unwrap().read_to_end(&mut bytes),
                false => archive.by_index(index).unwrap().read_to_end(&mut bytes),
            }
            .unwrap();
            bytes
        };
        if is_libc {
            edited += 1;
            assert!(expected.contains(&content(&mut after, false)), "{name}");
        } else {
            assert!(content(&mut before, true) == content(&mut after, true), "{name}");
        }
    }
    assert_eq!(edited, 2);
    assert!(stock(ARCHES[0]) != expected[0]);
}

#[test]
fn a_name_that_swift_would_not_take_is_told() {
    let lab = Lab::new();
    pack_tar(&lab, "sdk.tgz", "gnu");
    // In the user's spelling, whether the file is new or replaced.
    for _ in 0..2 {
        lab.run(["graft", "sdk.tgz", "-o", "out.tgz"]).exits(0).says(&["`out.tgz` does not end in `.tar.gz`"]);
    }
    lab.run(["graft", "sdk.tgz"]).exits(0).says(&["does not end in `.tar.gz`"]);
}

#[test]
fn one_that_cannot_be_written_stays() {
    let lab = Lab::new();
    pack_tar(&lab, "sdk.tar.gz", "gnu");
    let before = lab.snapshot();
    // For this process, the limit makes the disk full.
    let ran = lab.run_after("ulimit -f 100", &["graft", "sdk.tar.gz"]);
    assert!(ran.code != 0, "{}", ran.out);
    let left = lab.snapshot();
    let kept =
        |snapshot: &BTreeMap<std::path::PathBuf, crate::lab::Entry>| snapshot.get(Path::new("sdk.tar.gz")).cloned();
    assert_eq!(kept(&before), kept(&left));
    lab.run(["graft", "sdk.tar.gz"]).exits(0);
    assert_eq!(lab.names().len(), 3, "{:?}", lab.names());
    assert_eq!(fs::metadata(lab.path("sdk.tar.gz.allograft-stock")).unwrap().nlink(), 1);
}
