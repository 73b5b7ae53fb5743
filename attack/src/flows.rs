//! The flows: each command on each kind of host.

use std::fs;
use std::path::Path;

use fixtures::image::{Image, Layout, Packing, Tar};
use fixtures::program::{Build, linked_with_musl};
use fixtures::{Arch, debian_musl, musl_loader};

use crate::flow::Flow;

/// All of them.
pub static FLOWS: &[Flow] = &[
    flow("archive", archive, &[], "graft libc.a", Some("undo libc.a")),
    flow("archive, replaced", archive, &["graft libc.a --donor rpmalloc"], "graft libc.a", Some("undo libc.a")),
    flow("archive, undone", archive, &["graft libc.a"], "undo libc.a", Some("graft libc.a")),
    flow("archive, elsewhere", archive, &[], "graft libc.a -o out.a", None),
    flow(
        "archive, elsewhere again",
        archive,
        &["graft libc.a -o out.a --donor rpmalloc"],
        "graft libc.a -o out.a",
        None,
    ),
    flow("folder", folder, &[], "graft .", Some("undo .")),
    flow("folder, undone", folder, &["graft ."], "undo .", Some("graft .")),
    flow("folder, elsewhere", tree, &[], "graft tree -o out", None),
    flow("program", program, &[], "graft program", Some("undo program")),
    flow("program, replaced", program, &["graft program --donor mimalloc"], "graft program", Some("undo program")),
    flow("program, undone", program, &["graft program"], "undo program", Some("graft program")),
    flow("program, elsewhere", program, &[], "graft program -o out", None),
    flow("dynamic program", dynamic, &[], "graft program", Some("undo program")),
    flow("dynamic program, undone", dynamic, &["graft program"], "undo program", Some("graft program")),
    flow(
        "dynamic program that loads its donor",
        dynamic,
        &["emit --target x86_64-linux-musl --as shared -o liballograft.so"],
        "graft program --needed",
        Some("undo program"),
    ),
    flow("loader", loader, &[], "graft lib/ld-musl-x86_64.so.1 --root .", Some("undo lib/ld-musl-x86_64.so.1")),
    flow(
        "loader, undone",
        loader,
        &["graft lib/ld-musl-x86_64.so.1 --root ."],
        "undo lib/ld-musl-x86_64.so.1",
        Some("graft lib/ld-musl-x86_64.so.1 --root ."),
    ),
    flow("bundle, packed", packed, &[], BUNDLE, Some("undo sdk.artifactbundle.tar.gz")),
    flow("bundle, packed, undone", packed, &[BUNDLE], "undo sdk.artifactbundle.tar.gz", Some(BUNDLE)),
    flow(
        "bundle, packed, elsewhere",
        packed,
        &[],
        "graft sdk.artifactbundle.tar.gz -o out.artifactbundle.tar.gz",
        None,
    ),
    flow("bundle, zip", zipped, &[], "graft sdk.artifactbundle.zip", Some("undo sdk.artifactbundle.zip")),
    flow("bundle, folder", unpacked, &[], "graft sdk.artifactbundle", Some("undo sdk.artifactbundle")),
    flow("image", image, &[], "graft image.tar -o out.tar", None),
    flow("image, folder", layout, &[], "graft image -o out", None),
    flow("emitted object", archive, &[], "emit --target x86_64-linux-musl --as object -o out.o", None),
    flow("emitted archive", archive, &[], "emit --target x86_64-linux-musl --as archive -o out.a", None),
    flow("emitted library", archive, &[], "emit --target x86_64-linux-musl --as shared -o out.so", None),
];

const BUNDLE: &str = "graft sdk.artifactbundle.tar.gz";

const fn flow(
    name: &'static str,
    prepare: Making,
    before: &'static [&'static str],
    line: &'static str,
    back: Option<&'static str>,
) -> Flow {
    Flow { name, prepare, before, line, back }
}

/// Fills a folder.
pub(crate) type Making = fn(&Path);

/// The compiler knows `malloc` and `free`, and would leave them out.
const SOURCE: &str = "#include <stdlib.h>\nvoid *volatile block;\n\
    int main(void) { block = malloc(10); free(block); return 0; }\n";

/// musl's stock archive.
pub(crate) fn libc() -> Vec<u8> {
    fs::read(debian_musl(Arch::X86_64).libc).expect("a stock libc.a")
}

fn put(path: &Path, bytes: &[u8]) {
    fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    fs::write(path, bytes).expect("a file");
}

/// A stock `libc.a`.
pub(crate) fn archive(folder: &Path) {
    put(&folder.join("libc.a"), &libc());
}

fn folder(folder: &Path) {
    ["one/libc.a", "two/libc.a"].iter().for_each(|name| put(&folder.join(name), &libc()));
}

fn tree(at: &Path) {
    folder(&at.join("tree"));
}

/// A static program.
pub(crate) fn program(folder: &Path) {
    Build::PLAIN.program(folder, "program", SOURCE);
}

/// A static-pie program.
pub(crate) fn program_anywhere(folder: &Path) {
    Build { position_independent: true, ..Build::PLAIN }.program(folder, "program", SOURCE);
}

/// A program that musl's loader starts.
pub(crate) fn dynamic(folder: &Path) {
    loader(folder);
    linked_with_musl(folder, "program", SOURCE, true, &folder.join("lib/ld-musl-x86_64.so.1"));
}

/// musl's loader.
pub(crate) fn loader(folder: &Path) {
    let bytes = fs::read(musl_loader(Arch::X86_64)).expect("musl's loader");
    let path = folder.join("lib/ld-musl-x86_64.so.1");
    put(&path, &bytes);
    fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("a mode");
}

/// The files of a Swift SDK bundle: its manifest, its `libc.a`, and one more.
fn bundle() -> [(String, Vec<u8>); 4] {
    let manifest = br#"{ "schemaVersion": "1.0", "artifacts": { "sdk": { "variants": [ { "path": "sdk/musl" } ],
        "version": "0.0.1", "type": "swiftSDK" } } }"#;
    let sdk = br#"{ "schemaVersion": "4.0", "targetTriples": { "x86_64-swift-linux-musl": { "sdkRootPath":
        "musl.sdk/x86_64" } } }"#;
    [
        ("info.json".to_owned(), manifest.to_vec()),
        ("sdk/musl/swift-sdk.json".to_owned(), sdk.to_vec()),
        ("sdk/musl/musl.sdk/x86_64/usr/lib/libc.a".to_owned(), libc()),
        ("sdk/musl/notes".to_owned(), b"stays\n".to_vec()),
    ]
}

fn packed(folder: &Path) {
    let add =
        |tar: Tar, (name, bytes): &(String, Vec<u8>)| tar.file(&format!("sdk.artifactbundle/{name}"), 0o644, bytes);
    let tar = bundle().iter().fold(Tar::default(), add);
    put(&folder.join("sdk.artifactbundle.tar.gz"), &Packing::Gzip.pack(&tar.bytes()));
}

fn zipped(folder: &Path) {
    let files = bundle().map(|(name, bytes)| (format!("sdk.artifactbundle/{name}"), bytes));
    let files: Vec<(&str, u32, &[u8])> =
        files.iter().map(|(name, bytes)| (name.as_str(), 0o644, bytes.as_slice())).collect();
    put(&folder.join("sdk.artifactbundle.zip"), &fixtures::image::zip(&files));
}

fn unpacked(folder: &Path) {
    bundle().iter().for_each(|(name, bytes)| put(&folder.join("sdk.artifactbundle").join(name), bytes));
}

/// An image with a static program and a `libc.a`.
fn layers(scratch: &Path) -> Layout {
    program(scratch);
    let path = scratch.join("program");
    let bytes = fs::read(&path).expect("the program");
    fs::remove_file(path).expect("the program");
    let layer = Tar::default().folder("srv/").file("srv/program", 0o755, &bytes).folder("usr/");
    let image = Image::new(layer.file("usr/libc.a", 0o644, &libc()).bytes());
    let mut layout = Layout::default();
    let descriptor = layout.image(&image);
    layout.index(vec![descriptor]);
    layout
}

fn image(folder: &Path) {
    put(&folder.join("image.tar"), &layers(folder).tar());
}

fn layout(folder: &Path) {
    let layout = layers(folder);
    layout.write(&folder.join("image"));
}
