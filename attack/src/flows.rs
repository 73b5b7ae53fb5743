//! The flows: each command on each kind of host.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use fixtures::image::{Image, Layout, Packing, Tar};
use fixtures::program::{self, linked_with_musl};
use fixtures::{Arch, debian_musl, musl_loader};
use format::Linked;

use crate::files::{Role, in_place};
use crate::flow::{Build, Flow};

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
    fitting(Linked::Program, flow("program", program, &[], "graft program", Some("undo program"))),
    fitting(
        Linked::Program,
        flow("program, replaced", program, &["graft program --donor mimalloc"], "graft program", Some("undo program")),
    ),
    fitting(
        Linked::Program,
        flow("program, undone", program, &["graft program"], "undo program", Some("graft program")),
    ),
    fitting(Linked::Program, flow("program, elsewhere", program, &[], "graft program -o out", None)),
    fitting(Linked::Dynamic, flow("dynamic program", dynamic, &[], "graft program", Some("undo program"))),
    fitting(
        Linked::Dynamic,
        flow("dynamic program, undone", dynamic, &["graft program"], "undo program", Some("graft program")),
    ),
    fitting(
        Linked::Dynamic,
        flow(
            "dynamic program that loads its donor",
            dynamic,
            &["emit --target x86_64-linux-musl --as shared -o liballograft.so"],
            "graft program --needed",
            Some("undo program"),
        ),
    ),
    fitting(
        Linked::Loader,
        flow("loader", loader, &[], "graft lib/ld-musl-x86_64.so.1 --root .", Some("undo lib/ld-musl-x86_64.so.1")),
    ),
    fitting(
        Linked::Loader,
        flow(
            "loader, undone",
            loader,
            &["graft lib/ld-musl-x86_64.so.1 --root ."],
            "undo lib/ld-musl-x86_64.so.1",
            Some("graft lib/ld-musl-x86_64.so.1 --root ."),
        ),
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
    fitting(Linked::Program, flow("image", image, &[], "graft image.tar -o out.tar", None)),
    fitting(Linked::Program, flow("image, folder", layout, &[], "graft image -o out", None)),
    flow("emitted object", archive, &[], "emit --target x86_64-linux-musl --as object -o out.o", None),
    flow("emitted archive", archive, &[], "emit --target x86_64-linux-musl --as archive -o out.a", None),
    fitting(
        Linked::Dynamic,
        flow("emitted library", archive, &[], "emit --target x86_64-linux-musl --as shared -o out.so", None),
    ),
    COMPILER,
    Flow { name: "compiler, again", before: &[COMPILER.line], line: "cc @words -DAGAIN", ..COMPILER },
    CARGO,
];

/// `allograft cc`, with words in a file, which both it and the compiler read.
const COMPILER: Flow = Flow {
    role: of_compiler,
    build: Some(Build {
        program: "allograft",
        environment: for_compiler,
        at_once: &["cc @words", "cc -O1 -o second program.c", "cc -O2 -o third program.c"],
        writes_in_place: true,
        needs_rust: false,
    }),
    ..flow("compiler", compiler, &[], "cc @words", None)
};

/// `cargo allograft build`, below which cargo starts allograft as its compiler.
const CARGO: Flow = Flow {
    role: of_cargo,
    build: Some(Build {
        program: "cargo-allograft",
        environment: for_cargo,
        at_once: &[CARGO_BUILD; 3],
        writes_in_place: false,
        needs_rust: true,
    }),
    ..flow("cargo", package, &[], CARGO_BUILD, None)
};

const CARGO_BUILD: &str = "allograft build --release --target x86_64-unknown-linux-musl";

const BUNDLE: &str = "graft sdk.artifactbundle.tar.gz";

const fn flow(
    name: &'static str,
    prepare: Making,
    before: &'static [&'static str],
    line: &'static str,
    back: Option<&'static str>,
) -> Flow {
    Flow { name, prepare, before, line, back, role: in_place, build: None, linked: None }
}

/// Returns the flow, for donors that go into this kind of linked file.
const fn fitting(linked: Linked, flow: Flow) -> Flow {
    Flow { linked: Some(linked), ..flow }
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
    program::Build::PLAIN.program(folder, "program", SOURCE);
}

/// A static-pie program.
pub(crate) fn program_anywhere(folder: &Path) {
    program::Build { position_independent: true, ..program::Build::PLAIN }.program(folder, "program", SOURCE);
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

/// A compiler for musl, and a program that differs with `-DAGAIN`.
fn compiler(folder: &Path) {
    fs::create_dir(folder.join("bin")).expect("a folder");
    fixtures::musl_gcc(&folder.join("bin")).expect("a compiler");
    put(&folder.join("program.c"), format!("{SOURCE}#ifdef AGAIN\nint again = 1;\n#endif\n").as_bytes());
    put(&folder.join("words"), b"-O1 -o program program.c\n");
}

fn for_compiler(folder: &Path, _: &Path) -> Vec<(&'static str, OsString)> {
    vec![
        ("ALLOGRAFT_CC", folder.join("bin/musl-gcc").into()),
        // Not so that it is a path of a bundle or a host.
        ("XDG_CACHE_HOME", folder.join("cache").into()),
    ]
}

fn of_compiler(path: &Path) -> Role {
    if path.starts_with("cache") { Role::Beside } else { Role::Host }
}

/// A package without dependencies.
fn package(folder: &Path) {
    put(&folder.join("src/main.rs"), b"fn main() {\n    println!(\"{:?}\", vec![1; std::env::args().count()]);\n}\n");
    put(&folder.join("Cargo.toml"), b"[package]\nname = \"app\"\nversion = \"0.1.0\"\nedition = \"2024\"\n");
    put(
        &folder.join("Cargo.lock"),
        b"# This file is automatically @generated by Cargo.\n# It is not intended for manual editing.\n\
        version = 4\n\n[[package]]\nname = \"app\"\nversion = \"0.1.0\"\n",
    );
}

fn for_cargo(_: &Path, tools: &Path) -> Vec<(&'static str, OsString)> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = [fixtures::rust_musl().join("bin")].into_iter().chain(std::env::split_paths(&path));
    vec![
        ("PATH", std::env::join_paths(folders).expect("folders without colons")),
        ("CARGO_HOME", tools.into()),
        ("CARGO_NET_OFFLINE", "true".into()),
    ]
}

/// Cargo keeps what it needs beside the program. allograft's own files are in a folder of their own.
fn of_cargo(path: &Path) -> Role {
    let program = Path::new("target/x86_64-unknown-linux-musl/release/app");
    match path {
        path if !path.starts_with("target") || path == program => Role::Host,
        path if program.starts_with(path) || path.starts_with("target/allograft") => Role::Beside,
        _ => Role::Foreign,
    }
}
