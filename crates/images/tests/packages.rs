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
    says(&zip(&[("a", 0o644, b"x"), ("./a", 0o644, b"y")]), "there twice");
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
    says(&twice, "there twice");
    // Bundles of Swift SDKs are read by another crate.
    let manifest = br#"{"artifacts": {"x": {"type": "swiftSDK"}}}"#;
    fs::write(&path, zip(&[("x.artifactbundle/info.json", 0o644, manifest)])).unwrap();
    assert!(open(&path).unwrap().is_none());
    let tar = Tar::default().file("x.artifactbundle/a", 0o644, b"").file("x.artifactbundle/info.json", 0o644, manifest);
    fs::write(&path, Packing::Gzip.pack(&tar.bytes())).unwrap();
    assert!(open(&path).unwrap().is_none());
}
