//! `inspect` of container images, root file systems and packages.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use fixtures::Arch;
use fixtures::image::{Image, Layout, Packing, Tar};
use fixtures::program::Build;
use serde_json::Value;

use crate::lab::{Lab, tool};

const PROGRAM: &str = "#include <stdio.h>\n#include <stdlib.h>\n\
                       int main(void) { char *volatile p = malloc(9); if (!p) return 1; free(p); return 0; }\n";

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
pub(crate) fn root(lab: &Lab) {
    built(lab, "root/usr/bin/program", PROGRAM, "");
    fs::copy(lab.path("root/usr/bin/program"), lab.path("root/usr/bin/trusted")).unwrap();
    fs::set_permissions(lab.path("root/usr/bin/trusted"), fs::Permissions::from_mode(0o4755)).unwrap();
    let made = Build::PLAIN.program(&lab.path(""), "static", PROGRAM);
    fs::rename(made, lab.path("root/usr/bin/static")).unwrap();
    copied(lab, "/lib64/ld-linux-x86-64.so.2", "root/usr/lib/loader.so");
    copied(lab, "/lib/x86_64-linux-gnu/libc.so.6", "root/usr/lib/x86_64-linux-gnu/libc.so.6");
    fs::create_dir(lab.path("root/lib64")).unwrap();
    symlink("/usr/lib/loader.so", lab.path("root/lib64/ld-linux-x86-64.so.2")).unwrap();
    symlink("usr/lib", lab.path("root/lib")).unwrap();
}

pub(crate) fn tree(lab: &Lab) -> Vec<u8> {
    Tar::default().tree(&lab.path("root")).bytes()
}

fn inspected(lab: &Lab, path: &str) -> Value {
    let document = lab.run(["inspect", "--json", path]).exits(0).json();
    crate::documents::fits("inspect", &document);
    document
}

pub(crate) fn file<'d>(document: &'d Value, path: &str) -> &'d Value {
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
    Layout::new(std::slice::from_ref(&image)).write(&lab.path("layout"));
    lab.put("oci", &Layout::new(std::slice::from_ref(&image)).tar());
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
        lab.put("image", &Layout::new(&[image]).tar());
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

/// A malloc that only counts up.
const OWN: &str = "#include <stddef.h>\nstatic _Alignas(16) char room[1 << 20];\nstatic size_t used;\n\
                   void *malloc(size_t n) { void *p = room + used; used += (n + 15) & -16; return p; }\n\
                   void free(void *p) { (void)p; }\n";

/// The document and the messages of an image with these files and this variable.
fn of_files(lab: &Lab, files: &[(&str, &str)], variable: &str) -> (Value, String) {
    let tar = files
        .iter()
        .fold(Tar::default(), |tar, (path, from)| tar.file(path, 0o755, &fs::read(lab.path(from)).unwrap()));
    lab.put("image", &Layout::new(&[Image::new(tar.bytes()).with(variable)]).tar());
    let ran = lab.run(["inspect", "image", "--json"]).exits(0);
    let document = ran.json();
    crate::documents::fits("inspect", &document);
    (document, ran.err)
}

#[test]
fn preloads_of_musl_and_of_the_other_libc() {
    let lab = Lab::new();
    let loader = Path::new("/lib/ld-musl-x86_64.so.1");
    fixtures::program::linked_with_musl(&lab.path(""), "program", PROGRAM, true, loader);
    copied(&lab, fixtures::musl_loader(Arch::X86_64), "loader");
    for target in ["x86_64-linux-musl", "aarch64-linux-musl"] {
        lab.run(["emit", "--donor", "mimalloc", "--target", target, "--as", "shared", "-o", target]).exits(0);
    }
    built(&lab, "glibc.so", OWN, "-shared -fPIC -Wl,--no-as-needed -lc");
    let base = [("bin/program", "program"), ("lib/ld-musl-x86_64.so.1", "loader")];
    let with = |preload: (&'static str, &'static str), variable: &str| {
        let (document, warned) = of_files(&lab, &[base[0], base[1], preload], variable);
        (file(&document, "/bin/program")["malloc"]["name"].as_str().unwrap().to_owned(), warned)
    };
    let (malloc, warned) = with(("opt/fast.so", "x86_64-linux-musl"), "LD_PRELOAD=/opt/none.so /opt/fast.so");
    assert_eq!(malloc, "mimalloc");
    assert!(warned.contains("`/opt/none.so` of LD_PRELOAD: it is not found"), "{warned}");
    assert_eq!(
        with(("usr/lib/fast.so", "x86_64-linux-musl"), "LD_PRELOAD=fast.so"),
        ("mimalloc".to_owned(), String::new())
    );
    let (malloc, warned) = with(("opt/fast.so", "x86_64-linux-musl"), "LD_PRELOAD=fast.so");
    assert_eq!(malloc, "mallocng");
    assert!(warned.contains("it lies at `/opt/fast.so` in this image"), "{warned}");
    let (malloc, warned) = with(("opt/fast.so", "aarch64-linux-musl"), "LD_PRELOAD=/opt/fast.so");
    assert_eq!(malloc, "unknown");
    assert!(warned.contains("for another architecture than `/bin/program` (x86_64)"), "{warned}");
    let (malloc, warned) = with(("opt/fast.so", "glibc.so"), "LD_PRELOAD=/opt/fast.so");
    assert_eq!(malloc, "unknown");
    assert!(warned.contains("for another libc than `/bin/program`"), "{warned}");
    assert_eq!(with(("opt/lib/fast.so", "x86_64-linux-musl"), "LD_LIBRARY_PATH=/opt/lib").0, "mallocng");
}

#[test]
fn a_library_path_of_the_environment() {
    let lab = Lab::new();
    root(&lab);
    built(&lab, "lib/libown.so", OWN, "-shared -fPIC -Wl,-soname,libown.so");
    built(&lab, "user", PROGRAM, "-Wl,--no-as-needed -Llib -lown");
    fs::copy(lab.path("user"), lab.path("root/usr/bin/user")).unwrap();
    lab.put("root/opt/libown.so", &fs::read(lab.path("lib/libown.so")).unwrap());
    let found = |variable: &str| {
        lab.put("image", &Layout::new(&[Image::new(tree(&lab)).with(variable)]).tar());
        file(&inspected(&lab, "image"), "/usr/bin/user")["malloc"]["file"].clone()
    };
    assert_eq!(found("LD_LIBRARY_PATH=/usr/local/lib;/opt"), "/opt/libown.so");
    assert_eq!(found("LD_LIBRARY_PATH=/usr/local/lib"), Value::Null);
    // A library for musl ends a program of glibc.
    built(&lab, "libc.musl-x86_64.so.1", "", "-shared -nostdlib -Wl,-soname,libc.musl-x86_64.so.1");
    built(&lab, "root/opt/musl.so", OWN, "-shared -fPIC -nostdlib -Wl,--no-as-needed -L. -l:libc.musl-x86_64.so.1");
    lab.put("image", &Layout::new(&[Image::new(tree(&lab)).with("LD_PRELOAD=/opt/musl.so")]).tar());
    let ran = lab.run(["inspect", "image", "--json"]).exits(0);
    assert_eq!(file(&ran.json(), "/usr/bin/program")["malloc"]["name"], "unknown");
    assert!(ran.err.contains("for another libc than"), "{}", ran.err);
}

/// An image with files at the paths that they have on this machine, so that this machine's loader can be asked.
#[test]
fn the_loader_agrees_about_preloads() {
    let lab = Lab::new();
    let at = |name: &str| lab.path(name).display().to_string();
    built(&lab, "program", PROGRAM, "");
    built(&lab, "fast.so", OWN, "-shared -fPIC");
    built(&lab, "other.so", OWN, "-shared -fPIC -Wl,-soname,fast.so");
    built(&lab, "needs.so", "int x;\n", "-shared -fPIC -Wl,--no-as-needed fast.so -Wl,-rpath,$ORIGIN");
    lab.run(["emit", "--donor", "mimalloc", "--target", "aarch64-linux-gnu", "--as", "shared", "-o", "arm.so"])
        .exits(0);
    lab.put("text.so", b"text");
    copied(&lab, "/lib64/ld-linux-x86-64.so.2", "loader");
    copied(&lab, "/lib/x86_64-linux-gnu/libc.so.6", "libc");
    let names = ["program", "fast.so", "other.so", "needs.so", "arm.so", "text.so"];
    let paths: Vec<String> = names.iter().map(|name| at(name)).collect();
    let mut files: Vec<(&str, &str)> = paths.iter().map(String::as_str).zip(names).collect();
    files.extend([("lib64/ld-linux-x86-64.so.2", "loader"), ("lib/x86_64-linux-gnu/libc.so.6", "libc")]);
    let tar = files.iter().fold(Tar::default(), |tar, (path, from)| {
        tar.file(path.trim_start_matches('/'), 0o755, &fs::read(lab.path(from)).unwrap())
    });
    let tar = tar.bytes();
    let all = |names: &[&str]| names.iter().map(|name| at(name)).collect::<Vec<_>>().join(":");
    let cases = [
        (all(&["fast.so"]), String::new()),
        (all(&["none.so", "arm.so", "text.so", "program", "fast.so"]), String::new()),
        (all(&["arm.so"]), String::new()),
        (all(&["text.so"]), String::new()),
        (all(&["program"]), String::new()),
        (all(&["other.so", "fast.so"]), String::new()),
        (all(&["fast.so", "other.so"]), String::new()),
        (all(&["needs.so"]), String::new()),
        ("fast.so".to_owned(), String::new()),
        ("none.so fast.so".to_owned(), format!("/none:{}", at(""))),
        ("$ORIGIN/fast.so".to_owned(), String::new()),
        (String::new(), at("")),
    ];
    for (preload, path) in cases {
        let variables = [("LD_PRELOAD", preload.as_str()), ("LD_LIBRARY_PATH", path.as_str())];
        let image = variables
            .iter()
            .fold(Image::new(tar.clone()), |image, (name, value)| image.with(&format!("{name}={value}")));
        lab.put("image", &Layout::new(&[image]).tar());
        let ran = lab.run(["inspect", "image", "--json"]).exits(0);
        let found = file(&ran.json(), &at("program"))["malloc"]["file"].as_str().unwrap_or("unknown").to_owned();
        let expected = crate::libraries::bound_with(&lab.path("program"), &variables);
        let expected: Vec<String> = expected.iter().map(|path| path.display().to_string()).collect();
        let expected = expected.iter().map(|path| path.trim_start_matches("/usr")).collect::<Vec<_>>();
        assert_eq!(expected, [found.as_str()], "LD_PRELOAD={preload} LD_LIBRARY_PATH={path}");
    }
}

#[test]
#[ignore = "aarch64: links with that architecture's runtime library"]
fn several_platforms_and_one_that_cannot_be_read() {
    let lab = Lab::new();
    let image = |arch: Arch, architecture: &'static str| {
        let name = format!("program-{architecture}");
        Build { arch, ..Build::PLAIN }.program(&lab.path(""), &name, PROGRAM);
        let layer = Tar::default().file("program", 0o755, &fs::read(lab.path(name)).unwrap()).bytes();
        Image { architecture, ..Image::new(layer) }.with("LD_PRELOAD=libfast.so")
    };
    let images = [image(Arch::X86_64, "amd64"), image(Arch::Aarch64, "arm64")];
    let layout = Layout::new(&images);
    layout.write(&lab.path("layout"));
    let ran = lab.run(["inspect", "layout", "--json", "--expect", "mallocng"]).exits(0);
    let document = ran.json();
    crate::documents::fits("inspect", &document);
    for (number, (arch, platform)) in [("x86_64", "linux/amd64"), ("aarch64", "linux/arm64")].into_iter().enumerate() {
        assert_eq!(document["images"][number]["platform"], platform);
        assert_eq!(document["images"][number]["preloads"][0]["programs"]["served"], 0);
        let file = &document["files"][number];
        assert_eq!((&file["image"], &file["platform"]), (&number.into(), &platform.into()));
        assert_eq!((&file["arch"], &file["malloc"]["name"]), (&arch.into(), &"mallocng".into()));
        assert_eq!(file["as_expected"], true);
        assert!(
            ran.err.contains(&format!("`layout ({platform})`: `libfast.so` of LD_PRELOAD: no program")),
            "{}",
            ran.err
        );
    }
    let arm = &images[1].layers[0];
    fs::remove_file(lab.path(format!("layout/blobs/sha256/{}", fixtures::image::sha256(&arm.0.pack(&arm.1))))).unwrap();
    let ran = lab.run(["inspect", "layout", "--json"]).exits(2).says(&["cannot inspect `layout`, layer 1 (sha256:"]);
    let document = ran.json();
    crate::documents::fits("inspect", &document);
    assert_eq!(document["images"][0].get("error"), None);
    assert!(document["images"][1]["error"].as_str().unwrap().contains("is missing"));
    assert_eq!(document["files"][0]["malloc"]["name"], "mallocng");
    let ran = lab.run(["inspect", "layout"]).exits(2);
    assert!(ran.out.contains("linux/amd64") && ran.out.contains("/program"), "{}", ran.out);
}

#[test]
fn packages() {
    let lab = Lab::new();
    Build::PLAIN.program(&lab.path(""), "program", PROGRAM);
    built(&lab, "own.so", OWN, "-shared -fPIC");
    let (program, library) = (fs::read(lab.path("program")).unwrap(), fs::read(lab.path("own.so")).unwrap());
    let data = Tar::default().folder("./").folder("./usr/").file("./usr/program", 0o755, &program).bytes();
    lab.put("a", &fixtures::image::debian_package("data.tar.xz", &Packing::Xz.pack(&data)));
    lab.put("b", &fixtures::image::alpine_package(&data));
    lab.put("c", &fixtures::image::zip(&[("usr/program", 0o755, &program), ("own.so", 0o755, &library)]));
    for (name, form, files) in [("a", "deb", 1), ("b", "apk", 1), ("c", "zip", 2)] {
        let document = inspected(&lab, name);
        assert_eq!(document["images"][0]["form"], form);
        assert_eq!(document["files"].as_array().unwrap().len(), files);
        assert_eq!(file(&document, "/usr/program")["malloc"]["name"], "mallocng");
        lab.changes_nothing(0, ["inspect", name, "--expect", "mallocng"]);
    }
    // All of them at once, and files among them.
    let ran = lab.run(["inspect", "a", "program", "c"]).exits(0);
    assert!(ran.out.contains("a: a Debian package") && ran.out.contains("c: a zip"), "{}", ran.out);
    lab.put("none", &fixtures::image::zip(&[("readme", 0o644, b"text")]));
    lab.run(["inspect", "none"]).exits(2).says(&["`none`", "no ELF file"]);
    lab.put("v3", b"ADBd....");
    lab.run(["inspect", "v3"]).exits(2).says(&["`v3`", "apk 3", "help: "]);
    lab.put("cut", &fs::read(lab.path("b")).unwrap()[..5000]);
    lab.run(["inspect", "cut"]).exits(2).says(&["`cut`", "ends too early"]);
}

/// An image of about a gigabyte, in layers that are compressed.
#[test]
#[ignore = "minutes: makes an image of a gigabyte, which takes minutes"]
fn a_large_image_takes_little_memory() {
    let lab = Lab::new();
    root(&lab);
    let mut layout = Layout::default();
    let mut layers = vec![(Packing::Gzip, tree(&lab))];
    let mut number = 1_u32;
    for layer in 0..4 {
        let mut tar = Tar::default();
        for name in 0..64 {
            // Half of it random, like programs and data.
            let mut content = Vec::with_capacity(4 << 20);
            while content.len() < 4 << 20 {
                number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                content.extend(number.to_be_bytes()[..2].iter().chain(&[0, 0]));
            }
            tar = tar.file(&format!("data/{layer}/{name}"), 0o644, &content);
        }
        layers.push((if layer % 2 == 0 { Packing::Gzip } else { Packing::Zstd }, tar.bytes()));
    }
    let image = Image { architecture: "amd64", environment: Vec::new(), layers };
    let size: usize = image.layers.iter().map(|(_, tar)| tar.len()).sum();
    let descriptor = layout.image(&image);
    layout.index(vec![descriptor]);
    layout.write(&lab.path("layout"));
    lab.put("image.tar", &layout.tar());
    drop((layout, image));
    for name in ["layout", "image.tar"] {
        let started = std::time::Instant::now();
        let mut child =
            lab.command().args(["inspect", name]).stdout(std::process::Stdio::null()).spawn().expect("the program");
        let status = format!("/proc/{}/status", child.id());
        let mut peak = 0;
        let ended = loop {
            let text = fs::read_to_string(&status).unwrap_or_default();
            let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
            let known = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
            peak = peak.max(known.unwrap_or_default());
            match child.try_wait().expect("the program") {
                Some(ended) => break ended,
                None => std::thread::sleep(std::time::Duration::from_millis(5)),
            }
        };
        println!(
            "{name}, {} MB unpacked: {:.1} s, {} MB",
            size / 1_000_000,
            started.elapsed().as_secs_f64(),
            peak / 1000
        );
        assert!(ended.success());
        assert!((1..128 << 10).contains(&peak), "{peak} kB");
    }
}

/// The packed archive was once called a folder without a `libc.a`.
#[test]
fn a_temporary_file_that_cannot_be_written_is_told() {
    let lab = Lab::new();
    let program = Build::PLAIN.program(&lab.path(""), "static", PROGRAM);
    let tar = Tar::default().file("static", 0o755, &fs::read(program).unwrap()).bytes();
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut packed, &tar).unwrap();
    lab.put("image.tar.gz", &packed.finish().unwrap());
    lab.run(["inspect", "image.tar.gz"]).exits(0);
    let mut command = lab.command();
    command.args(["inspect", "image.tar.gz"]).env("TMPDIR", lab.path("missing"));
    let ran = fixtures::Ran::from(command.output().unwrap()).exits(2);
    ran.says(&["cannot write the temporary file for it", "set TMPDIR to a folder with room"]);
}
