//! `inspect` of dynamic programs: the library whose `malloc` they are bound to, compared with what their loader does.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::lab::{Lab, dynamic_with_musl, tool};

const PROGRAM: &str = "#include <stdio.h>\n#include <stdlib.h>\n\
                       int main(void) { char *p = malloc(9); if (!p) return 1; free(p); puts(\"ran\"); return 0; }\n";
/// A malloc that only counts up.
const OWN: &str = "#include <stddef.h>\nstatic _Alignas(16) char room[1 << 20];\nstatic size_t used;\n\
                   void *malloc(size_t n) { void *p = room + used; used += (n + 15) & -16; return p; }\n\
                   void free(void *p) { (void)p; }\n";

/// Compiles `source` to `name` with the arguments in one line.
#[track_caller]
fn built(lab: &Lab, source: &str, name: &str, arguments: &str) {
    let text = lab.put(format!("{name}.c"), source.as_bytes());
    fs::create_dir_all(lab.path(name).parent().unwrap()).unwrap();
    let mut compiler = fixtures::cc();
    compiler.args(["-O1", "-fno-builtin", "-w", "-o"]).arg(lab.path(name)).arg(text).args(arguments.split_whitespace());
    tool(compiler.current_dir(lab.path("")));
}

/// The files that the loader binds `malloc` of a program to. It maps everything and binds, and starts nothing (ldd -r).
fn bound(program: &Path) -> BTreeSet<PathBuf> {
    bound_with(program, &[])
}

/// The same, with these variables.
pub(crate) fn bound_with(program: &Path, variables: &[(&str, &str)]) -> BTreeSet<PathBuf> {
    let mut command = Command::new(program);
    command.env("LD_TRACE_LOADED_OBJECTS", "1").env("LD_WARN", "yes").env("LD_BIND_NOW", "yes");
    command.env("LD_DEBUG", "bindings").env_remove("LD_PRELOAD").env_remove("LD_LIBRARY_PATH").stdin(Stdio::null());
    command.envs(variables.iter().copied());
    let Ok(output) = command.output() else { return BTreeSet::new() };
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let lines = text.lines().filter(|line| line.contains(" symbol `malloc'"));
    let mut own = BTreeSet::new();
    let mut all = BTreeSet::new();
    for line in lines {
        let after = |word: &str| line.split_once(word)?.1.split(" [").next().map(PathBuf::from);
        let (Some(from), Some(to)) = (after("binding file "), after(" to ")) else { continue };
        if from == program {
            own.insert(to.clone());
        }
        all.insert(to);
    }
    let mut files = if own.is_empty() { all } else { own };
    // The address of a function, in a program at a fixed address, is in the program, and leads on.
    if files.len() > 1 {
        files.remove(program);
    }
    files.into_iter().map(|path| fs::canonicalize(path).unwrap()).collect()
}

fn inspected(lab: &Lab, arguments: &[&str]) -> Value {
    let document = lab.run([&["inspect", "--json"], arguments].concat()).exits(0).json();
    crate::documents::fits("inspect", &document);
    document["files"][0]["malloc"].clone()
}

fn told(malloc: &Value) -> String {
    let evidence = malloc["evidence"].as_array().unwrap().iter();
    evidence
        .map(|line| format!("{}: {}\n", line["source"].as_str().unwrap(), line["detail"].as_str().unwrap()))
        .collect()
}

/// Asserts that `inspect` names the file that the loader binds to.
#[track_caller]
fn agrees(lab: &Lab, program: &str, file: &str) -> Value {
    let malloc = inspected(lab, &[program]);
    let expected = fs::canonicalize(lab.path(file)).unwrap();
    assert_eq!(malloc["file"], expected.display().to_string(), "{}", told(&malloc));
    assert_eq!(bound(&lab.path(program)), BTreeSet::from([expected]), "the loader");
    malloc
}

#[test]
fn the_library_that_serves_is_named_as_the_loader_takes_it() {
    let lab = Lab::new();
    built(&lab, "int empty;\n", "lib/libempty.so", "-shared");
    built(&lab, OWN, "lib/libown.so", "-shared -fPIC -Wl,-soname,libown.so.1");
    symlink("libown.so", lab.path("lib/libown.so.1")).unwrap();
    let link = "-Wl,--no-as-needed -Llib -lempty -lown -Wl,-rpath,$ORIGIN/lib";
    built(&lab, PROGRAM, "program", link);
    let malloc = agrees(&lab, "program", "lib/libown.so");
    assert_eq!(malloc["name"], "unknown");
    assert!(told(&malloc).contains("`libown.so.1` of DT_NEEDED of"), "{}", told(&malloc));
    assert!(told(&malloc).contains("found by the RUNPATH of"), "{}", told(&malloc));
    let ran = lab.run(["inspect", "program", "--expect", "glibc"]).exits(1);
    assert!(ran.err.contains("`unknown`, expected `glibc`"), "{}", ran.err);

    // A definition under another version is not the one that the program asks for.
    lab.put("versions", b"OTHER_1.0 { global: malloc; free; local: *; };");
    built(&lab, PROGRAM, "plain", "-Wl,--no-as-needed -Llib -lempty -Wl,-rpath,$ORIGIN/lib");
    built(&lab, OWN, "lib/libempty.so", "-shared -fPIC -Wl,--version-script,versions");
    agrees(&lab, "plain", "/lib/x86_64-linux-gnu/libc.so.6");
    // Hidden, weak, and an old hash table.
    built(
        &lab,
        &OWN.replace("void *malloc", "__attribute__((visibility(\"hidden\"))) void *malloc"),
        "lib/libempty.so",
        "-shared -fPIC",
    );
    let malloc = agrees(&lab, "plain", "/lib/x86_64-linux-gnu/libc.so.6");
    assert_eq!(malloc["name"], "glibc");
    assert!(malloc["version"].as_str().unwrap().starts_with("2."), "{malloc}");
    let weak = OWN.replace("void *malloc", "__attribute__((weak)) void *malloc");
    built(&lab, &weak, "lib/libempty.so", "-shared -fPIC -Wl,--hash-style=sysv");
    agrees(&lab, "plain", "lib/libempty.so");

    fs::remove_file(lab.path("lib/libempty.so")).unwrap();
    let malloc = inspected(&lab, &["plain"]);
    assert_eq!((&malloc["name"], &malloc["file"]), (&"unknown".into(), &Value::Null));
    assert!(told(&malloc).contains("libempty.so`, which"), "{}", told(&malloc));
}

#[test]
fn a_donor_in_a_library_is_told_with_its_version() {
    let lab = Lab::new();
    lab.run(["emit", "--donor", "mimalloc", "--target", "x86_64-linux-gnu", "--as", "shared", "-o", "liballograft.so"])
        .exits(0);
    built(&lab, PROGRAM, "program", "-Wl,--no-as-needed -L. -lallograft -Wl,-rpath,$ORIGIN");
    let malloc = agrees(&lab, "program", "liballograft.so");
    assert_eq!(malloc["name"], "mimalloc");
    assert!(malloc["version"].is_string() && told(&malloc).contains("note: "), "{malloc}");
    lab.run(["inspect", "program", "--expect", "mimalloc"]).exits(0);
}

/// The root folder of an image with this machine's loader and libc, and a program in it.
fn image(lab: &Lab) -> Vec<PathBuf> {
    built(lab, PROGRAM, "image/usr/bin/program", "");
    lab.run(["emit", "--donor", "mimalloc", "--target", "x86_64-linux-gnu", "--as", "shared", "-o", "libfast.so"])
        .exits(0);
    let loader = fs::canonicalize("/lib64/ld-linux-x86-64.so.2").unwrap();
    let libc = fs::canonicalize("/lib/x86_64-linux-gnu/libc.so.6").unwrap();
    lab.put("image/usr/lib/loader.so", &fs::read(loader).unwrap());
    fs::set_permissions(lab.path("image/usr/lib/loader.so"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(lab.path("image/lib64")).unwrap();
    symlink("/usr/lib/loader.so", lab.path("image/lib64/ld-linux-x86-64.so.2")).unwrap();
    symlink("usr/lib", lab.path("image/lib")).unwrap();
    vec![lab.put("image/usr/lib/x86_64-linux-gnu/libc.so.6", &fs::read(libc).unwrap()), lab.path("libfast.so")]
}

#[test]
fn an_image_is_looked_through_without_leaving_it() {
    let lab = Lab::new();
    let [libc, fast] = image(&lab).try_into().unwrap();
    let inside = |lab: &Lab| inspected(lab, &["--root", "image", "/usr/bin/program"]);
    let malloc = inside(&lab);
    assert_eq!((&malloc["name"], &malloc["file"]), (&"glibc".into(), &"/usr/lib/x86_64-linux-gnu/libc.so.6".into()));
    // A preload that is not there has no effect, and one that is has.
    lab.put("image/etc/ld.so.preload", b"/opt/libfast.so\n");
    let malloc = inside(&lab);
    assert_eq!(malloc["name"], "glibc");
    assert!(told(&malloc).contains("`/opt/libfast.so`, which the loader does not find: it has no effect"), "{malloc}");
    lab.put("image/opt/libfast.so", &fs::read(fast).unwrap());
    let malloc = inside(&lab);
    assert_eq!((&malloc["name"], &malloc["file"]), (&"mimalloc".into(), &"/opt/libfast.so".into()));
    lab.run(["inspect", "--root", "image", "/usr/bin", "--expect", "mimalloc"]).exits(0);
    fs::remove_file(lab.path("image/etc/ld.so.preload")).unwrap();
    // The machine has a libc at the end of this link; the image has none.
    fs::remove_file(&libc).unwrap();
    symlink("../../../../../../../../../../lib/x86_64-linux-gnu/libc.so.6", &libc).unwrap();
    let malloc = inside(&lab);
    assert_eq!((&malloc["name"], &malloc["file"]), (&"unknown".into(), &Value::Null), "{malloc}");
    assert!(told(&malloc).contains("`libc.so.6`, which `/usr/bin/program` needs"), "{malloc}");
    lab.run(["inspect", "--root", "none", "/usr/bin/program"]).exits(2).says(&["`none`"]);
}

#[test]
fn a_program_of_musl_has_the_mallocng_of_its_libc() {
    let lab = Lab::new();
    dynamic_with_musl(&lab, PROGRAM, "program");
    let malloc = inspected(&lab, &["program"]);
    let loader = fs::canonicalize(fixtures::musl_loader(fixtures::Arch::X86_64)).unwrap();
    assert_eq!(
        (&malloc["name"], &malloc["file"]),
        (&"mallocng".into(), &loader.display().to_string().into()),
        "{malloc}"
    );
    fs::remove_file(lab.path("ld-musl-x86_64.so.1")).unwrap();
    let malloc = inspected(&lab, &["program"]);
    assert_eq!(malloc["name"], "unknown");
    assert!(told(&malloc).contains("ld-musl-x86_64.so.1` is not in this root"), "{malloc}");
}

/// Every dynamic program of this system, compared with what the system's loader maps and binds.
#[test]
#[ignore = "minutes: takes all programs of the system, half a minute"]
fn every_program_of_this_system_agrees_with_its_loader() {
    let lab = Lab::new();
    let folders = ["/usr/bin", "/usr/sbin", "/usr/libexec", "/usr/lib/git-core"];
    let folders = folders.into_iter().filter(|folder| Path::new(folder).is_dir());
    let document = lab.run(["inspect", "--json"].into_iter().chain(folders)).json();
    let (mut compared, mut problems) = (0, Vec::new());
    for file in document["files"].as_array().unwrap().iter().filter(|file| file["link"] == "dynamic") {
        let path = PathBuf::from(file["path"].as_str().unwrap());
        // The loader says nothing of a program with other rights than its caller's: ask it about a copy.
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        let asked = match mode & 0o6000 {
            0 => path.clone(),
            _ => {
                let copy = lab.put(path.file_name().unwrap(), &fs::read(&path).unwrap());
                fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
                copy
            }
        };
        // Empty: for another architecture, or a library is missing.
        let expected = bound(&asked);
        if expected.is_empty() {
            continue;
        }
        compared += 1;
        let malloc = &file["malloc"];
        let found = malloc["file"].as_str().map_or_else(|| fs::canonicalize(&asked).unwrap(), PathBuf::from);
        if expected != BTreeSet::from([found]) {
            problems.push(format!("{}: the loader binds to {expected:?}; {malloc}", path.display()));
        }
    }
    println!("{compared} programs compared");
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(compared >= 100, "only {compared} programs");
}
