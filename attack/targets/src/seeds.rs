//! The inputs that a fuzzer starts with: small valid files of every kind, made by the tools of the tests. They are made
//! at each run, so that no binary files have to be kept.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use fixtures::Arch;
use fixtures::image::{Image, Layout, Packing, Tar, alpine_package, debian_package, zip};
use fixtures::program::{Build, linked_with_musl};
use format::Note;
use format::merged::Merged;
use format::note::DESCRIPTION;
use serde_json::json;
use surgery::archive::Archive;

use crate::documents::BETWEEN;
use crate::donation::DONORS;

/// An input with its name.
pub type Seed = (String, Vec<u8>);

/// Returns the seeds of the target of that name.
///
/// # Panics
/// When a tool fails or is missing.
pub fn for_target(target: &str) -> Vec<Seed> {
    match target {
        "archive" => archives(),
        "object" => objects(),
        "executable" => programs(),
        "dynamic" => dynamic_programs(),
        "loader" => vec![named("musl", fs::read(fixtures::musl_loader(Arch::X86_64)).expect("a loader"))],
        "inspector" => [programs(), dynamic_programs(), objects(), archives()].concat(),
        "coff" => windows(&["-c"]),
        "pe" => windows(&["-s"]),
        "tar" => vec![
            named("root", root()),
            named("docker", docker_image().tar()),
            named("layout", Layout::new(&[image()]).tar()),
            named("deb", debian_package("data.tar", &root())),
        ],
        "zip" => vec![
            named("wheel", zip(&[("a/x.so", 0o755, b"\x7fELF"), ("b", 0o644, b"text"), ("a/y", 0o120_777, b"x.so")])),
            named("empty", zip(&[])),
        ],
        "gzip" => vec![
            named("root", Packing::Gzip.pack(&root())),
            named("apk", alpine_package(&root())),
            named("deb", debian_package("data.tar.gz", &Packing::Gzip.pack(&root()))),
        ],
        "zstd" => vec![
            named("root", Packing::Zstd.pack(&root())),
            named("deb", debian_package("data.tar.zst", &Packing::Zstd.pack(&root()))),
        ],
        "xz" => vec![
            named("root", Packing::Xz.pack(&root())),
            named("deb", debian_package("data.tar.xz", &Packing::Xz.pack(&root()))),
        ],
        "oci" => layouts(),
        "docker" => lists(),
        "note" => notes(),
        "record" => records(),
        "options" => options(),
        "heap" => vec![named("plain", HEAP.to_vec()), named("gzip", Packing::Gzip.pack(HEAP))],
        "origin" => origins(),
        _ => Vec::new(),
    }
}

/// A heap profile of pprof: a sample type, a sample, its location and function, and texts.
const HEAP: &[u8] = b"\x0a\x02\x08\x01\x12\x06\x0a\x01\x01\x12\x01\x05\x22\x08\x08\x01\x22\x04\x08\x01\x10\x07\
    \x2a\x04\x08\x01\x10\x02\x32\x00\x32\x0binuse_space\x32\x04main";

fn named(name: impl Into<String>, bytes: Vec<u8>) -> Seed {
    (name.into(), bytes)
}

/// The largest of the other members in bytes.
const MOST_MEMBER: usize = 2000;
/// Debian's names of members by which musl is recognised, and of string functions.
const MARKS: [&str; 13] = [
    "__libc_start_main.lo",
    "libc.lo",
    "__init_tls.lo",
    "syscall_ret.lo",
    "fork.lo",
    "replaced.lo",
    "memcpy.lo",
    "memmove.lo",
    "memset.lo",
    "memcmp.lo",
    "memchr.lo",
    "memrchr.lo",
    "strlen.lo",
];

/// musl's libc.a with its small members only; and one with names and without an index.
fn archives() -> Vec<Seed> {
    let stock = fixtures::sample::stock(Arch::X86_64);
    let stock = Archive::parse(&stock).expect("an archive");
    let keeps = |name: &str, size: usize| {
        let is_kept = |kept: &[&str]| kept.contains(&name);
        is_kept(&fixtures::sample::OF_ALLOCATOR) || is_kept(&MARKS) || (size < MOST_MEMBER && name.starts_with("str"))
    };
    let donor = relocatable::symbols(&DONORS.object).expect("a donor");
    let needs: BTreeSet<&[u8]> = donor.iter().filter(|symbol| !symbol.defined).map(|symbol| symbol.name).collect();
    let needed: BTreeSet<usize> =
        stock.indexed().filter(|(_, name)| needs.contains(name)).map(|(ordinal, _)| ordinal).collect();
    let members = stock.members().iter().enumerate().filter(|(place, _)| !needed.contains(&(place + 1)));
    let large = members.filter(|(_, member)| !keeps(&member.display_name(), member.data.len()));
    let large: BTreeSet<usize> = large.map(|(place, _)| place + 1).collect();
    let small = stock.edit(&large, None);
    vec![named("musl", small), named("empty", b"!<arch>\n".to_vec()), named("donor", donor_alone())]
}

fn donor_alone() -> Vec<u8> {
    fixtures::sample::donor_alone(Arch::X86_64)
}

/// Members of several architectures, and a donor.
fn objects() -> Vec<Seed> {
    let mut seeds = vec![
        named("donor", fixtures::sample::donor(Arch::X86_64, &Default::default())),
        named("strings", DONORS.strings.clone()),
    ];
    for arch in [Arch::X86_64, Arch::Aarch64, Arch::Riscv64, Arch::I686, Arch::Arm] {
        let Some(musl) = fixtures::debian_musl_if_present(arch) else { continue };
        let stock = fs::read(musl.libc).expect("an archive");
        let stock = Archive::parse(&stock).expect("an archive");
        for name in ["free.lo", "fork.lo", "__init_tls.lo", "memcpy.lo", "calloc.lo"] {
            let member = stock.members().iter().find(|member| member.display_name() == name);
            seeds.extend(member.map(|member| named(format!("{}-{name}", arch.name()), member.data.to_vec())));
        }
    }
    seeds
}

/// A program that calls all of the malloc family, and has thread-local variables.
const PROGRAM: &str = "\
#include <stdlib.h>\n#include <string.h>\n#include <malloc.h>\nstatic _Thread_local int count = 3;\n\
int main(int argc, char **argv)\n{\n\tchar *block = malloc(argc + count);\n\tblock = realloc(block, 100);\n\
\tmemset(block, 1, 100);\n\tchar *other = calloc(argc, 3);\n\tmemcpy(block, argv[0], 1);\n\
\tvoid *aligned = aligned_alloc(64, 64);\n\tfree(aligned);\n\tfree(other);\n\
\tint length = strlen(argv[0]) + strcmp(argv[0], block);\n\tfree(block);\n\treturn length == 7;\n}\n";

fn programs() -> Vec<Seed> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let build = |name: &str, position_independent: bool, link: &[&str]| {
        let build = Build { position_independent, link, ..Build::PLAIN };
        read(name, &build.program(folder.path(), name, PROGRAM))
    };
    vec![
        build("fixed", false, &[]),
        build("fixed-stripped", false, &["-s"]),
        build("pie", true, &["-z", "relro"]),
        build("pie-stripped", true, &["-s", "--build-id"]),
        build("no-sections", false, &["-s", "-z", "nosectionheader"]),
    ]
}

fn dynamic_programs() -> Vec<Seed> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let loader = fixtures::musl_loader(Arch::X86_64);
    let musl = |name: &str, pie: bool| read(name, &linked_with_musl(folder.path(), name, PROGRAM, pie, &loader));
    let mut seeds = vec![musl("musl", false), musl("musl-pie", true)];
    let source = folder.path().join("program.c");
    fs::write(&source, PROGRAM).expect("a temporary folder");
    for (name, flags) in [
        ("glibc", &["-pie", "-fPIE"][..]),
        ("glibc-fixed", &["-no-pie"]),
        ("glibc-now", &["-pie", "-fPIE", "-s", "-Wl,-z,now"]),
        ("glibc-lazy", &["-pie", "-fPIE", "-s", "-Wl,-z,lazy", "-Wl,--hash-style=sysv"]),
    ] {
        let out = folder.path().join(name);
        let mut compile = fixtures::cc();
        let status = compile.args(["-O1", "-g0"]).args(flags).arg("-o").args([&out, &source]).status();
        assert!(status.is_ok_and(|status| status.success()), "{compile:?}");
        seeds.push(read(name, &out));
    }
    seeds
}

fn read(name: &str, path: &Path) -> Seed {
    named(name, fs::read(path).expect("a file that was made"))
}

/// A file for Windows, made by zig with these flags.
fn windows(flags: &[&str]) -> Vec<Seed> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (source, out) = (folder.path().join("a.c"), folder.path().join("a.out"));
    let text = "int other(int);\n__attribute__((weak)) int value(int x) { return x + 1; }\n\
                __declspec(dllexport) int wWinMainCRTStartup(void) { return value(2); }\n";
    fs::write(&source, text).expect("a temporary folder");
    let mut compile = fixtures::zig().command();
    compile.args(["cc", "-target", "x86_64-windows-gnu", "-O1", "-nostdlib", "-fno-sanitize=all"]).args(flags);
    let status = compile.arg("-o").args([&out, &source]).status();
    assert!(status.is_ok_and(|status| status.success()), "{compile:?}");
    vec![read(&format!("zig{}", flags.concat()), &out)]
}

fn root() -> Vec<u8> {
    let long = "a-long-name/".repeat(12);
    Tar::default()
        .folder("./usr")
        .file("./usr/x", 0o4755, b"\x7fELF")
        .symlink("lib", "usr/lib")
        .hard_link("y", "./usr/x")
        .attribute("security.capability", b"\x01")
        .file(&format!("{long}z"), 0o644, b"text")
        .file("usr/.wh.old", 0o644, b"")
        .bytes()
}

fn image() -> Image {
    Image::new(root()).with("LD_PRELOAD=/usr/x")
}

fn docker_image() -> Layout {
    Layout::docker(&image(), "x:1")
}

/// Documents, the first of which names the second, and so on.
fn joined(documents: &[serde_json::Value]) -> Vec<u8> {
    let texts: Vec<Vec<u8>> = documents.iter().map(|document| document.to_string().into_bytes()).collect();
    texts.join(&BETWEEN)
}

fn configuration() -> serde_json::Value {
    json!({ "architecture": "amd64", "os": "linux", "config": { "Env": ["LD_PRELOAD=/x.so", "A"] },
            "rootfs": { "type": "layers", "diff_ids": ["sha256:@0"] } })
}

fn layouts() -> Vec<Seed> {
    let descriptor = |kind: &str, number: u32| {
        json!({ "mediaType": format!("application/vnd.oci.image.{kind}"), "digest": format!("sha256:@{number}"),
                "size": format!("#{number}") })
    };
    let manifest = json!({ "schemaVersion": 2, "config": descriptor("config.v1+json", 1),
                           "layers": [descriptor("layer.v1.tar", 0)] });
    let mut named_image = descriptor("manifest.v1+json", 2);
    named_image["platform"] = json!({ "os": "linux", "architecture": "arm64", "variant": "v8" });
    named_image["annotations"] = json!({ "org.opencontainers.image.ref.name": "x:1" });
    let index = json!({ "schemaVersion": 2, "manifests": [named_image] });
    let outer = json!({ "schemaVersion": 2, "manifests": [descriptor("index.v1+json", 3)] });
    // A size is a number, and not a text.
    let text = |documents: &[serde_json::Value]| {
        let text = String::from_utf8(joined(documents)).expect("JSON");
        (0..9).fold(text, |text, number| text.replace(&format!("\"#{number}\""), &format!("#{number}"))).into_bytes()
    };
    vec![
        named("one", text(&[index.clone(), manifest.clone(), configuration()])),
        named("nested", text(&[outer, index, manifest, configuration()])),
    ]
}

fn lists() -> Vec<Seed> {
    let one = json!({ "Config": "@1.json", "RepoTags": ["x:1"], "Layers": ["@0/layer.tar"] });
    let other = json!({ "Config": "@2.json", "RepoTags": null, "Layers": ["@0/layer.tar"] });
    vec![
        named("one", joined(&[json!([one]), configuration()])),
        named("two", joined(&[json!([one, other]), configuration(), configuration()])),
    ]
}

fn notes() -> Vec<Seed> {
    let note = Note {
        donor: "mimalloc".to_owned(),
        version: "3.2".to_owned(),
        options: "purge_delay=10 eager=1".to_owned(),
        object: format!("sha256:{}", "a".repeat(64)),
        allograft: "0.1".to_owned(),
    };
    let merged = Merged { donor: 4096, size: 8192, front: 32, own: 8, constructors: 2, preinit: true };
    let malloc = format::note::head(format::DonorKind::Malloc);
    let description = note.encode().expect("a note");
    assert_eq!(description.len(), DESCRIPTION);
    vec![
        named("whole", [&malloc[..], &description].concat()),
        named("description", description),
        named("merged", merged.encode()),
        named("needed", DONORS.library.needed.encode()),
    ]
}

fn records() -> Vec<Seed> {
    let hex = "0".repeat(64);
    let mut record = json!({ "schema_version": 1, "stock_sha256": hex, "graft_sha256": hex, "donor": "snmalloc",
                             "version": "0.7", "options": "a=1", "allograft": "0.1" });
    let small = record.to_string().into_bytes();
    record["replaced_sha256"] = json!(hex);
    record["strings"] = json!("1");
    record["stock"] = json!({ "mode": 493, "uid": 0, "gid": 0 });
    vec![named("small", small), named("large", record.to_string().into_bytes())]
}

/// The options of the donors, read from their objects.
fn options() -> Vec<Seed> {
    let magic = *b"ARGO";
    let found = donors::all().iter().filter_map(|donor| {
        let object = donor.object(crate::donation::ARCH)?;
        let at = object.windows(4).position(|window| *window == magic)?;
        let count = u32::from_le_bytes(*object[at + 8..].first_chunk()?) as usize;
        Some(named(donor.name, object.get(at..at + 16 + 64 * count)?.to_vec()))
    });
    found.collect()
}

fn origins() -> Vec<Seed> {
    let hex = "a".repeat(64);
    let origin = json!({ "schema_version": 1, "allograft": "0.1", "sha256": hex,
        "replaced": [{ "name": "index.json", "header": null, "content": "e30=" }],
        "added": [format!("blobs/sha256/{hex}"), format!("{hex}.json"), format!("{hex}.tar")] });
    let text = origin.to_string();
    vec![
        named("index", json!({ "annotations": { "allograft.origin": text } }).to_string().into_bytes()),
        named("list", json!([{ "Config": "c", "allograft.origin": text }]).to_string().into_bytes()),
    ]
}
