//! `inspect` of container images, root file systems and packages.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use fixtures::image::{Image, Layout, Packing, Tar};
use serde_json::Value;

use crate::lab::{Lab, tool};

const PROGRAM: &str = "#include <stdio.h>\n#include <stdlib.h>\n\
                       int main(void) { char *p = malloc(9); if (!p) return 1; free(p); puts(\"ran\"); return 0; }\n";

/// Compiles a program, or a library, to the file `name`.
fn built(lab: &Lab, name: &str, source: &str, arguments: &str) {
    let text = lab.put("source.c", source.as_bytes());
    fs::create_dir_all(lab.path(name).parent().unwrap()).unwrap();
    let mut compiler = fixtures::cc();
    compiler.args(["-O1", "-fno-builtin", "-w", "-o"]).arg(lab.path(name)).arg(text).args(arguments.split_whitespace());
    tool(compiler.current_dir(lab.path("")));
}

/// Puts a copy of a file of this machine into the lab.
fn copied(lab: &Lab, from: impl AsRef<Path>, name: &str) {
    let real = fs::canonicalize(&from).unwrap_or_else(|error| panic!("{}: {error}", from.as_ref().display()));
    lab.put(name, &fs::read(real).unwrap());
    fs::set_permissions(lab.path(name), fs::Permissions::from_mode(0o755)).unwrap();
}

/// Makes the root folder of an image with this machine's loader and libc, a program, a program with the setuid bit, and
/// a static one.
fn root(lab: &Lab) {
    built(lab, "root/usr/bin/program", PROGRAM, "");
    fs::copy(lab.path("root/usr/bin/program"), lab.path("root/usr/bin/trusted")).unwrap();
    fs::set_permissions(lab.path("root/usr/bin/trusted"), fs::Permissions::from_mode(0o4755)).unwrap();
    let made = fixtures::program::Build::PLAIN.program(&lab.path(""), "static", PROGRAM);
    fs::rename(made, lab.path("root/usr/bin/static")).unwrap();
    copied(lab, "/lib64/ld-linux-x86-64.so.2", "root/usr/lib/loader.so");
    copied(lab, "/lib/x86_64-linux-gnu/libc.so.6", "root/usr/lib/x86_64-linux-gnu/libc.so.6");
    fs::create_dir(lab.path("root/lib64")).unwrap();
    symlink("/usr/lib/loader.so", lab.path("root/lib64/ld-linux-x86-64.so.2")).unwrap();
    symlink("usr/lib", lab.path("root/lib")).unwrap();
}

fn tree(lab: &Lab) -> Vec<u8> {
    Tar::default().tree(&lab.path("root")).bytes()
}

fn inspected(lab: &Lab, path: &str) -> Value {
    let document = lab.run(["inspect", "--json", path]).exits(0).json();
    crate::documents::fits("inspect", &document);
    document
}

fn file<'d>(document: &'d Value, path: &str) -> &'d Value {
    let files = document["files"].as_array().unwrap();
    files.iter().find(|file| file["path"] == path).unwrap_or_else(|| panic!("no {path} in {document:#}"))
}

#[test]
fn every_form_has_the_answers_of_the_unpacked_tree() {
    let lab = Lab::new();
    root(&lab);
    let unpacked = lab.run(["inspect", "--json", "--root", "root", "/"]).exits(0).json();
    let tar = tree(&lab);
    let lower = Tar::default().file("usr/bin/program", 0o755, b"\x7fELF, hidden").file("opt/x", 0o644, b"!<arch>\n");
    let upper = Tar::default().file("opt/.wh.x", 0o644, b"");
    let layers = vec![(Packing::Gzip, lower.bytes()), (Packing::Zstd, tar.clone()), (Packing::Plain, upper.bytes())];
    let image = Image { architecture: "amd64", environment: Vec::new(), layers };
    Layout::of(std::slice::from_ref(&image)).write(&lab.path("layout"));
    lab.put("oci", &Layout::of(std::slice::from_ref(&image)).tar());
    lab.put("docker", &Packing::Gzip.pack(&Layout::docker(&image, "test:1").tar()));
    lab.put("plain", &tar);
    lab.put("zstd", &Packing::Zstd.pack(&tar));
    for (name, form) in [
        ("layout", "oci-layout"),
        ("oci", "oci-layout"),
        ("docker", "docker-archive"),
        ("plain", "root-tar"),
        ("zstd", "root-tar"),
    ] {
        let document = inspected(&lab, name);
        assert_eq!(document["images"][0]["form"], form, "{name}");
        let expected = unpacked["files"].as_array().unwrap();
        assert_eq!(document["files"].as_array().unwrap().len(), expected.len(), "{name}");
        for (found, expected) in document["files"].as_array().unwrap().iter().zip(expected) {
            let mut expected = expected.clone();
            let path = expected["path"].as_str().unwrap().strip_prefix("root").unwrap();
            expected["path"] = path.into();
            let mut found = found.clone();
            let fields = found.as_object_mut().unwrap();
            assert_eq!(fields.remove("image"), Some(0.into()));
            let platform = (form != "root-tar").then(|| "linux/amd64".into());
            assert_eq!(fields.remove("platform"), platform);
            assert_eq!(found, expected, "{name}");
        }
    }
    let ran = lab.run(["inspect", "oci", "--expect", "glibc"]).exits(1);
    assert!(ran.err.contains("1 of 3 executables") && ran.err.contains("`/usr/bin/static` has"), "{}", ran.err);
    assert!(ran.out.starts_with("oci: linux/amd64, sha256:"), "{}", ran.out);
}

#[test]
fn a_preload_of_the_environment_serves_or_is_warned_about() {
    let lab = Lab::new();
    root(&lab);
    lab.run(["emit", "--donor", "mimalloc", "--target", "x86_64-linux-gnu", "--as", "shared", "-o", "fast.so"])
        .exits(0);
    lab.run(["emit", "--donor", "mimalloc", "--target", "aarch64-linux-gnu", "--as", "shared", "-o", "arm.so"])
        .exits(0);
    let base = (Packing::Gzip, tree(&lab));
    let with = |path: &str, library: &str, variable: &str| {
        let layer = Tar::default().file(path, 0o755, &fs::read(lab.path(library)).unwrap()).bytes();
        let layers = vec![base.clone(), (Packing::Gzip, layer)];
        let image = Image { architecture: "amd64", environment: vec![variable.to_owned()], layers };
        lab.put("image", &Layout::of(&[image]).tar());
        let ran = lab.run(["inspect", "image", "--json"]).exits(0);
        let document = ran.json();
        crate::documents::fits("inspect", &document);
        (document, ran.err)
    };
    let malloc = |document: &Value, path: &str| file(document, path)["malloc"]["name"].as_str().unwrap().to_owned();

    let (document, warned) = with("opt/fast.so", "fast.so", "LD_PRELOAD=/opt/fast.so");
    assert_eq!(warned, "");
    assert_eq!(malloc(&document, "/usr/bin/program"), "mimalloc");
    assert_eq!(file(&document, "/usr/bin/program")["malloc"]["file"], "/opt/fast.so");
    assert_eq!(malloc(&document, "/usr/bin/trusted"), "glibc");
    assert_eq!(malloc(&document, "/usr/bin/static"), "mallocng");
    let preload = &document["images"][0]["preloads"][0];
    assert_eq!((&preload["found"], &preload["malloc"]), (&"/opt/fast.so".into(), &"mimalloc".into()));
    assert_eq!((&preload["programs"]["served"], &preload["programs"]["privileged"]), (&1.into(), &1.into()));
    assert_eq!(document["images"][0]["unaffected"]["without_loader"], 1);

    // By its name only, it is searched, also by LD_LIBRARY_PATH; a setuid program wants its bit, too.
    let (document, _) = with("usr/lib/x86_64-linux-gnu/fast.so", "fast.so", "LD_PRELOAD=fast.so");
    assert_eq!(malloc(&document, "/usr/bin/program"), "mimalloc");
    assert_eq!(malloc(&document, "/usr/bin/trusted"), "glibc");

    let (document, warned) = with("opt/fast.so", "fast.so", "LD_PRELOAD=/usr/lib/fast.so");
    assert_eq!(malloc(&document, "/usr/bin/program"), "glibc");
    assert!(
        warned.contains("`/usr/lib/fast.so` of LD_PRELOAD: it is not found") && warned.contains("`/opt/fast.so`"),
        "{warned}"
    );
    let (document, warned) = with("opt/fast.so", "arm.so", "LD_PRELOAD=/opt/fast.so");
    assert_eq!(malloc(&document, "/usr/bin/program"), "glibc");
    assert!(warned.contains("for another architecture than `/usr/bin/program` (x86_64)"), "{warned}");
    let (document, warned) = with("opt/fast.so", "source.c", "LD_PRELOAD=/opt/fast.so");
    assert_eq!(malloc(&document, "/usr/bin/program"), "glibc");
    assert!(warned.contains("is no library"), "{warned}");
    let (document, warned) = with("etc/ld.so.preload", "source.c", "LD_AUDIT=/x");
    assert_eq!(malloc(&document, "/usr/bin/program"), "unknown", "{warned}");
}
