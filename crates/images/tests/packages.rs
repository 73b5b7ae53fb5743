//! Packages, and files that only resemble one.

use std::fs;

use fixtures::image::{Packing, Tar, alpine_package, debian_package, zip};
use images::{Format, open};

fn data() -> Vec<u8> {
    Tar::default().folder("./").folder("./usr/").file("./usr/x", 0o755, b"\x7fELF").symlink("usr/y", "x").bytes()
}

#[test]
fn files_of_packages() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("package");
    let debian = |name: &str, packing: Packing| (debian_package(name, &packing.pack(&data())), Format::Debian);
    let cases = [
        debian("data.tar", Packing::Plain),
        debian("data.tar.gz", Packing::Gzip),
        debian("data.tar.xz/", Packing::Xz),
        debian("data.tar.zst", Packing::Zstd),
        (alpine_package(&data()), Format::Alpine),
        (zip(&[("usr/x", 0o755, b"\x7fELF"), ("x-1.dist-info/RECORD", 0o644, b"")]), Format::Zip),
    ];
    for (bytes, form) in cases {
        fs::write(&path, bytes).unwrap();
        let source = open(&path).unwrap_or_else(|error| panic!("{error}")).expect("a package");
        assert_eq!(source.form, form);
        let tree = source.tree(&source.images[0], &|_, _, start| start.starts_with(b"\x7fELF")).unwrap();
        assert_eq!(tree.read(b"usr/x").unwrap(), b"\x7fELF", "{form:?}");
        assert_eq!(tree.get(b"usr/x").unwrap().mode & 0o777, 0o755);
    }
}

#[test]
fn what_is_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("package");
    let error = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        let opened = open(&path).map_err(|error| error.to_string());
        opened.and_then(|source| {
            let source = source.expect("a package");
            source.tree(&source.images[0], &|_, _, _| true).map(|_| ()).map_err(|error| error.to_string())
        })
    };
    let says = |bytes: &[u8], text: &str| {
        let error = error(bytes).expect_err(text);
        assert!(error.contains(text), "{text}: {error}");
    };
    says(b"ADBd\0\0\0\0", "apk 3");
    says(&debian_package("other", b""), "no member `data.tar`");
    says(&debian_package("data.tar.lzma", b"x"), "`data.tar.lzma`");
    says(&debian_package("data.tar", &data())[..300], "cut off");
    says(&zip(&[("a/../../x", 0o644, b"x")]), "holds `..`");
    says(&zip(&[("a", 0o644, b"x"), ("./a", 0o644, b"y")]), "appears twice");
    // The library that writes zips refuses a name twice.
    let mut twice = zip(&[("a", 0o644, b"x"), ("b", 0o644, b"y")]);
    for at in 0..twice.len() - 46 {
        let name = match &twice[at..at + 4] {
            b"PK\x03\x04" => at + 30,
            b"PK\x01\x02" => at + 46,
            _ => continue,
        };
        twice[name] = b'a';
    }
    says(&twice, "appears twice");
    // Bundles of Swift SDKs are read by another crate.
    let manifest = br#"{"artifacts": {"x": {"type": "swiftSDK"}}}"#;
    fs::write(&path, zip(&[("x.artifactbundle/info.json", 0o644, manifest)])).unwrap();
    assert!(open(&path).unwrap().is_none());
    let tar = Tar::default().file("x.artifactbundle/a", 0o644, b"").file("x.artifactbundle/info.json", 0o644, manifest);
    fs::write(&path, Packing::Gzip.pack(&tar.bytes())).unwrap();
    assert!(open(&path).unwrap().is_none());
}

/// The directory of a zip: `count` entries of no size with these names, each with a comment of `comment` bytes.
fn directory(count: u64, comment: u16) -> Vec<u8> {
    let mut bytes = b"PK\x03\x04".to_vec();
    bytes.resize(30, 0);
    let start = bytes.len() as u64;
    for number in 0..count {
        let mut header = [0; 46];
        header[..4].copy_from_slice(b"PK\x01\x02");
        header[28..30].copy_from_slice(&8_u16.to_le_bytes());
        header[32..34].copy_from_slice(&comment.to_le_bytes());
        bytes.extend_from_slice(&header);
        bytes.extend_from_slice(format!("{number:08}").as_bytes());
        bytes.resize(bytes.len() + usize::from(comment), b'c');
    }
    let end = bytes.len() as u64;
    // The end record for large numbers, its locator, and the end record that refers to both.
    bytes.extend_from_slice(b"PK\x06\x06");
    for field in [44, 0, 0, count, count, end - start, start] {
        // Two versions and two numbers of disks follow the size.
        bytes.extend_from_slice(&field.to_le_bytes()[..if field == 0 { 6 } else { 8 }]);
    }
    bytes.extend_from_slice(b"PK\x06\x07\0\0\0\0");
    bytes.extend_from_slice(&end.to_le_bytes());
    bytes.extend_from_slice(&1_u32.to_le_bytes());
    bytes.extend_from_slice(b"PK\x05\x06\0\0\0\0");
    bytes.extend_from_slice(&[0xff; 12]);
    bytes.extend_from_slice(&[0; 2]);
    bytes
}

/// The reader of zips keeps the whole directory in memory.
#[test]
fn a_zip_has_a_small_directory() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("zip");
    let read = |bytes: Vec<u8>| {
        fs::write(&path, bytes).unwrap();
        open(&path).map(|source| source.is_some()).map_err(|error| error.to_string())
    };
    assert_eq!(read(directory(10, 5)), Ok(true));
    let error = read(directory(400_001, 0)).unwrap_err();
    assert!(error.contains("its directory is 400001 entries, more than the 400000"), "{error}");
    let error = read(directory(1100, u16::MAX)).unwrap_err();
    assert!(error.contains("its directory is") && error.contains("bytes so far, more than the"), "{error}");
}
