//! The tree made from several layers.

use std::path::Path;

use fixtures::image::{Image, Layout, Packing, Tar};
use images::{Format, Kind, Source, Tree, open};
use tempfile::TempDir;

/// Everything is kept.
fn all(_: &[u8], _: u64, _: &[u8]) -> bool {
    true
}

fn opened(layout: &Layout) -> (TempDir, Source) {
    let folder = tempfile::tempdir().unwrap();
    layout.write(folder.path());
    let source = open(folder.path()).unwrap_or_else(|error| panic!("{error}")).expect("a layout");
    (folder, source)
}

fn made(layers: Vec<Vec<u8>>) -> Image {
    let packings = [Packing::Gzip, Packing::Zstd, Packing::Plain];
    let layers = layers.into_iter().zip(packings.into_iter().cycle()).map(|(tar, packing)| (packing, tar)).collect();
    Image { architecture: "amd64", environment: Vec::new(), layers }
}

fn merged(layers: Vec<Vec<u8>>) -> Result<Tree, String> {
    let (_folder, source) = opened(&Layout::new(&[made(layers)]));
    source.tree(&source.images[0], &all).map_err(|error| error.to_string())
}

/// Each path with the content of a file, the target of a link, or `/`.
fn seen(tree: &Tree) -> Vec<String> {
    let shown = |(path, node): (Vec<u8>, images::Node)| {
        let content = match &node.kind {
            Kind::File { .. } => format!("={}", String::from_utf8(tree.read(&path).unwrap()).unwrap()),
            Kind::Folder => "/".to_owned(),
            Kind::Symlink(target) => format!("->{}", String::from_utf8_lossy(target)),
            Kind::Special => "!".to_owned(),
        };
        format!("{}{content}", String::from_utf8_lossy(&path))
    };
    tree.nodes().map(shown).collect()
}

#[test]
fn upper_layers_replace_and_hide() {
    let lowest = Tar::default()
        .folder("./")
        .folder("etc/")
        .file("etc/one", 0o644, b"low")
        .file("etc/two", 0o4755, b"low")
        .file("opt/a/deep/file", 0o644, b"low")
        .file("srv/old/file", 0o644, b"low")
        .file("var/cache/x", 0o644, b"low")
        .symlink("lib", "usr/lib")
        .file("usr/lib/so", 0o755, b"low");
    let middle = Tar::default()
        .file("etc/.wh.one", 0o644, b"")
        .file("opt/.wh.a", 0o644, b"")
        .file("srv/.wh..wh..opq", 0o644, b"")
        .file("srv/new", 0o644, b"mid")
        .file("var/cache", 0o644, b"mid")
        .file(".wh..wh.plnk", 0o644, b"");
    let top = Tar::default()
        .file("etc/one", 0o644, b"top")
        .file("opt/a/other", 0o644, b"top")
        .folder("var/cache/")
        .file("var/cache/y", 0o644, b"top")
        .folder("lib")
        .file("lib/x", 0o644, b"top");
    let tree = merged(vec![lowest.bytes(), middle.bytes(), top.bytes()]).unwrap();
    let expected = [
        "etc/",
        "etc/one=top",
        "etc/two=low",
        "lib/",
        "lib/x=top",
        "opt/",
        "opt/a/",
        "opt/a/other=top",
        "srv/",
        "srv/new=mid",
        "usr/",
        "usr/lib/",
        "usr/lib/so=low",
        "var/",
        "var/cache/",
        "var/cache/y=top",
    ];
    assert_eq!(seen(&tree), expected);
    let two = tree.get(b"etc/two").unwrap();
    assert!(two.is_privileged() && two.layer == 0 && two.mode == 0o4755 && two.mtime == 1_600_000_000);
    assert!(tree.get(b"opt/a").unwrap().implied);
    // The lowest layer describes the folder.
    assert!(!tree.get(b"etc").unwrap().implied);
}

#[test]
fn an_opaque_root_hides_everything_below() {
    let low = Tar::default().file("a/b", 0o644, b"low").file("c", 0o644, b"low");
    let top = Tar::default().file("a/d", 0o644, b"top").file(".wh..wh..opq", 0o644, b"");
    assert_eq!(seen(&merged(vec![low.bytes(), top.bytes()]).unwrap()), ["a/", "a/d=top"]);
}

#[test]
fn a_whiteout_hides_nothing_of_its_own_layer() {
    let low = Tar::default().file("a", 0o644, b"low");
    let top = Tar::default().file("a", 0o644, b"top").file(".wh.a", 0o644, b"");
    assert_eq!(seen(&merged(vec![low.bytes(), top.bytes()]).unwrap()), ["a=top"]);
}

#[test]
fn names_of_one_file() {
    let low = Tar::default().file("bin/a", 0o755, b"low").hard_link("bin/b", "bin/a").hard_link("bin/c", "./bin/b");
    let top = Tar::default().file("bin/.wh.a", 0o644, b"").file("bin/c", 0o644, b"top");
    let tree = merged(vec![low.bytes(), top.bytes()]).unwrap();
    assert_eq!(seen(&tree), ["bin/", "bin/b=low", "bin/c=top"]);
    let Kind::File { size, kept, .. } = tree.get(b"bin/b").unwrap().kind else { panic!("a file") };
    assert!(size == 3 && kept);
}

#[test]
fn links_stay_inside() {
    let tar = Tar::default()
        .folder("usr")
        .file("usr/lib/real", 0o644, b"x")
        .symlink("lib", "usr/lib")
        .symlink("usr/up", "../../../../lib/real")
        .symlink("usr/absolute", "/lib/real")
        .symlink("circle", "circle")
        .symlink("outside", "/../../../../etc/passwd");
    let tree = merged(vec![tar.bytes()]).unwrap();
    for path in ["/usr/lib/real", "lib/real", "usr/up", "/usr/absolute", "/lib/../lib/./real", "usr//lib/real"] {
        assert_eq!(tree.resolve(path.as_bytes()).as_deref(), Some(&b"usr/lib/real"[..]), "{path}");
    }
    for path in ["circle", "outside", "usr/lib/real/x", "usr/lib/real/..", "none", "lib/none"] {
        assert_eq!(tree.resolve(path.as_bytes()), None, "{path}");
    }
    assert_eq!(tree.resolve(b"/").as_deref(), Some(&b""[..]));
    assert_eq!(tree.list(b"usr").collect::<Vec<_>>(), [&b"absolute"[..], b"lib", b"up"]);
    assert_eq!(tree.list(b"").count(), 4);
}

#[test]
fn what_would_do_harm_is_an_error() {
    let file = |name: &str| Tar::default().file(name, 0o644, b"x");
    let cases: [(&str, Vec<Tar>); 15] = [
        ("holds `..`", vec![file("a/../../b")]),
        ("appears twice", vec![file("a").file("./a", 0o644, b"y")]),
        ("through a symbolic link", vec![Tar::default().symlink("a", "/etc").file("a/b", 0o644, b"x")]),
        ("through a file", vec![file("a").file("a/b", 0o644, b"x")]),
        ("folder with entries in it", vec![file("a/b").symlink("a", "/etc")]),
        ("hard link to `missing`", vec![Tar::default().hard_link("a", "missing")]),
        ("hard link to `a`", vec![file("a"), Tar::default().hard_link("b", "a")]),
        ("hard link to `a`", vec![Tar::default().folder("a").hard_link("b", "a")]),
        ("holds `..`", vec![Tar::default().hard_link("a", "../x")]),
        ("sparse", vec![Tar::default().entry("a", tar::EntryType::GNUSparse, 0o644, "", b"")]),
        ("unknown kind", vec![Tar::default().entry("a", tar::EntryType::new(b'Z'), 0o644, "", b"")]),
        ("is not a file, but has a size", vec![Tar::default().entry("a", tar::EntryType::Directory, 0o755, "", b"x")]),
        ("a whiteout of no name", vec![file("a/.wh.")]),
        ("it is not a file", vec![Tar::default().folder("a/.wh.b")]),
        ("engines treat that differently", vec![Tar::default().symlink("lib", "usr/lib"), file("lib/x")]),
    ];
    for (says, layers) in cases {
        let layers: Vec<Vec<u8>> = layers.into_iter().map(Tar::bytes).collect();
        let error = merged(layers).expect_err(says);
        assert!(error.contains(says) && error.contains("layer "), "{says}: {error}");
    }
}

#[test]
fn forms_are_recognised_by_content() {
    let folder = tempfile::tempdir().unwrap();
    let root = Tar::default().folder("./").folder("bin").file("bin/x", 0o755, b"x").file("etc/y", 0o644, b"y").bytes();
    let image = made(vec![root.clone()]);
    let (layout, docker) = (Layout::new(std::slice::from_ref(&image)), Layout::docker(&image, "test:1"));
    let mut both = layout.clone();
    both.files.extend(docker.files.clone());
    let cases = [
        (layout.tar(), Format::OciLayout),
        (docker.tar(), Format::DockerArchive),
        (both.tar(), Format::OciLayout),
        (root, Format::RootTar),
    ];
    let form = |path: &Path| open(path).unwrap_or_else(|error| panic!("{error}"));
    for (tar, expected) in cases {
        for packing in [Packing::Plain, Packing::Gzip, Packing::Zstd] {
            let path = folder.path().join("no.name");
            std::fs::write(&path, packing.pack(&tar)).unwrap();
            let source = form(&path).unwrap_or_else(|| panic!("{expected:?}, {packing:?}"));
            assert_eq!(source.form, expected, "{packing:?}");
            let tree = source.tree(&source.images[0], &all).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(seen(&tree), ["bin/", "bin/x=x", "etc/", "etc/y=y"]);
        }
    }
    for other in [&b""[..], b"\x7fELF", b"text", b"!<arch>\n", &Packing::Gzip.pack(b"text")] {
        let path = folder.path().join("image.tar");
        std::fs::write(&path, other).unwrap();
        assert!(form(&path).is_none());
    }
    assert!(form(folder.path()).is_none());
}
