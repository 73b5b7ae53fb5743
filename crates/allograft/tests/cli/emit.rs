//! `emit`: the contents of objects, archives and shared objects, and programs that are linked with them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use fixtures::shell::word;
use fixtures::{Arch, ZigTarget};

use crate::lab::{Lab, dynamic_with_musl, tool};

pub(crate) const PROGRAM: &str = "#include <pthread.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n#include <sys/wait.h>\n\
    #include <unistd.h>\n\
    static void *work(void *p) { for (int i = 0; i < 2000; i++) free(memset(malloc(1 + i % 300), 1, 1)); return p; }\n\
    int main(void) { pthread_t t; pthread_create(&t, 0, work, 0); work(0); int status = 1;\n\
    if (!fork()) { work(0); _exit(0); } wait(&status); pthread_join(t, 0);\n\
    puts(strdup(status ? \"bad\" : \"ok\")); return 0; }\n";

/// Compiles [`PROGRAM`] for Debian's musl and links it with `first` before everything else.
fn linked(lab: &Lab, arch: Arch, first: &Path, name: &str, linker: &Path, pie: bool) -> PathBuf {
    let musl = fixtures::debian_musl(arch);
    let object = lab.path(format!("{name}.o"));
    let source = lab.put("program.c", PROGRAM.as_bytes());
    let flags = [
        "cc",
        "-target",
        arch.triple(),
        "-c",
        "-O1",
        "-fPIE",
        "-fno-builtin",
        "-fno-sanitize=all",
        "-nostdinc",
        "-isystem",
    ];
    let mut compile = fixtures::zig().command();
    tool(compile.args(flags).arg(&musl.include).arg(source).arg("-o").arg(&object));
    let program = lab.path(name);
    let mut link = Command::new(linker);
    // malloc is needed from the start, so that an archive that comes first provides it.
    link.args(["-u", "malloc"]);
    let runtime = lab.put(format!("{name}.runtime.a"), conformance::runtime_library(arch));
    tool(&mut musl.link(pie).line(link, [first, &object], [runtime], &program));
    program
}

fn carries(lab: &Lab, program: &Path, strings: &str) {
    let report = lab.run(["inspect", "--json", "--expect", "snmalloc"].map(Path::new).into_iter().chain([program]));
    let file = &report.exits(0).json()["files"][0];
    assert_eq!((&file["strings"], &file["malloc"]["name"]), (&strings.into(), &"snmalloc".into()), "{file:#}");
}

#[test]
fn an_object_links_under_every_linker_and_runs() {
    let lab = Lab::new();
    let lld = fixtures::lld_folder().join("ld.lld");
    let targets = [(Arch::X86_64, "x86_64-unknown-linux-musl"), (Arch::Aarch64, "aarch64-swift-linux-musl")];
    for (arch, target) in targets.into_iter().filter(|(arch, _)| conformance::is_built_for(*arch)) {
        let name = format!("{}.donor.o", arch.name());
        let document = lab.run(["emit", "--target", target, "-o", &name, "--json"]).exits(0).json();
        assert_eq!((&document["arch"], &document["as"]), (&arch.name().into(), &"object".into()));
        assert_eq!(document["donor"]["donor"], "snmalloc");
        let linkers = if arch == Arch::X86_64 { vec![Path::new("ld"), &lld] } else { vec![lld.as_path()] };
        for (number, linker) in linkers.into_iter().enumerate() {
            for pie in [false, true] {
                let name = format!("{}-{number}-{pie}", arch.name());
                let object = lab.path(format!("{}.donor.o", arch.name()));
                let program = linked(&lab, arch, &object, &name, linker, pie);
                carries(&lab, &program, "grafted");
                let output = fixtures::run(arch, &program).output().unwrap();
                assert_eq!(String::from_utf8_lossy(&output.stdout), "ok\n", "{name}: {output:?}");
            }
        }
    }
}

#[test]
fn no_member_of_libcs_own_malloc_is_linked() {
    let lab = Lab::new();
    for strings in ["on", "off"] {
        lab.run(["emit", "--target", "x86_64-linux-musl", "--strings", strings]).exits(0);
        let program = linked(&lab, Arch::X86_64, &lab.path("allograft.o"), strings, Path::new("ld"), false);
        carries(&lab, &program, if strings == "on" { "grafted" } else { "stock" });
        let listed = Command::new("nm").arg(&program).output().unwrap();
        let symbols = String::from_utf8_lossy(&listed.stdout).into_owned();
        for name in ["__malloc_alloc_meta", "__libc_malloc_impl", "__malloc_context"] {
            assert!(!symbols.contains(name), "{name}");
        }
        assert_eq!(symbols.matches(" __malloc_atfork\n").count(), 1);
    }
}

#[test]
fn an_archive_holds_the_object() {
    let lab = Lab::new();
    lab.run(["emit", "--target", "x86_64-linux-musl"]).exits(0);
    let document = lab.run(["emit", "--target", "x86_64-linux-musl", "--as", "archive", "--json"]).exits(0).json();
    assert_eq!(document["path"], lab.path("liballograft.a").canonicalize().unwrap().display().to_string());
    tool(Command::new("ar").args(["x", "liballograft.a", "--output", "."]).current_dir(lab.path("")));
    assert_eq!(lab.names(), ["allograft.o", "liballograft.a"]);
    let program = linked(&lab, Arch::X86_64, &lab.path("liballograft.a"), "program", Path::new("ld"), false);
    carries(&lab, &program, "grafted");
}

#[test]
fn options_are_in_it_and_two_runs_give_the_same_bytes() {
    let lab = Lab::new();
    let emit = |name: &str, more: &[&str]| {
        let start = ["emit", "--target", "x86_64-linux-musl", "--donor", "mimalloc", "-o", name];
        lab.run([&start, more].concat()).exits(0);
        fs::read(lab.path(name)).unwrap()
    };
    let set = ["--set", "purge_delay=0", "--set", "allow_thp=0"];
    assert!(emit("a.o", &set) == emit("b.o", &["--profile", "small"]));
    assert!(emit("c.o", &[]) != emit("a.o", &set));
    let report = lab.run(["inspect", "a.o", "--json"]).exits(0).out;
    assert!(report.contains("purge_delay=0"), "{report}");
}

#[test]
fn architectures_without_string_functions_get_the_allocator() {
    let lab = Lab::new();
    let ran = lab.run(["emit", "--target", "riscv64gc-unknown-linux-musl", "--json"]).exits(0);
    let ran = ran.says(&["string functions stay", "riscv64"]);
    assert_eq!(ran.json()["strings"], serde_json::Value::Null);
    lab.changes_nothing(3, ["emit", "--target", "riscv64-linux-musl", "--donor", "none"]).says(&["riscv64", "help: "]);
    lab.run(["emit", "--target", "x86_64-linux-musl", "--donor", "none", "-o", "strings.o"]).exits(0);
}

#[test]
fn refusals() {
    let lab = Lab::new();
    let emit = |code, arguments: &[&str]| lab.changes_nothing(code, [&["emit", "--target"], arguments].concat());
    emit(2, &["x86_64-apple-darwin"]).says(&["Linux"]);
    emit(2, &["mips-linux-musl"]).says(&["`mips`", "x86_64, aarch64"]);
    emit(2, &["arm-linux-musleabi"]).says(&["hard float"]);
    emit(3, &["x86_64-linux-gnu"]).says(&["glibc", "help: "]);
    emit(3, &["aarch64-linux-musl", "--donor", "hardened"]).says(&["hardened", "x86_64", "help: "]);
    emit(2, &["x86_64-linux-musl", "--set", "cook=1"]).says(&["`cook`"]);
    emit(2, &["x86_64-linux-musl", "--donor", "none", "--strings", "off"]).says(&["nothing to emit"]);
    emit(2, &["x86_64-linux-musl", "--donor", "none", "--set", "purge_delay=0"]).says(&["purge_delay"]);
    emit(2, &["x86_64-linux-musl", "-o", "."]).says(&["it is a folder"]);
    emit(2, &["x86_64-linux-musl", "-o", "no/such/a.o"]).says(&["no such folder"]);
}

/// Compiles [`PROGRAM`] for this machine's glibc, dynamically.
pub(crate) fn dynamic(lab: &Lab) -> PathBuf {
    let (source, program) = (lab.put("program.c", PROGRAM.as_bytes()), lab.path("program"));
    tool(fixtures::cc().args(["-O1", "-fno-builtin", "-pthread", "-o"]).arg(&program).arg(source));
    program
}

#[test]
fn a_shared_object_is_preloaded_into_programs_of_glibc() {
    let lab = Lab::new();
    let program = dynamic(&lab);
    let donors = donors::all().iter().filter(|donor| donor.has_library(format::Arch::X86_64));
    let names: Vec<&str> = donors.map(|donor| donor.name).collect();
    for expected in
        ["jemalloc", "mimalloc", "mimalloc-secure", "mimalloc3", "rpmalloc", "scudo", "snmalloc", "snmalloc-checks"]
    {
        assert!(names.contains(&expected), "{expected} is not among {names:?}");
    }
    for name in names {
        let arguments = ["emit", "--target", "x86_64-linux-gnu", "--as", "shared", "--json", "--donor", name];
        let document = lab.run(arguments).exits(0).json();
        assert_eq!(document["donor"]["donor"], name);
        let library = lab.path("liballograft.so");
        // Of its symbols, only the exported names are left.
        lab.run(["inspect", "--expect", name, "liballograft.so"]).exits(0);
        let run = || {
            let mut command = Command::new("timeout");
            command.args(["-s", "KILL", "120"]).arg(&program).env("LD_PRELOAD", &library);
            command
        };
        for _ in 0..10 {
            let output = run().output().unwrap();
            assert_eq!(String::from_utf8_lossy(&output.stdout), "ok\n", "{name}: {output:?}");
            assert!(output.status.success() && output.stderr.is_empty(), "{name}: {output:?}");
        }
        let said = String::from_utf8(run().env("ALLOGRAFT_VERBOSE", "1").output().unwrap().stderr).unwrap();
        assert!(said.starts_with(&format!("allograft: {name} ")), "{said}");
    }
}

/// The file also works under musl's loader.
#[test]
fn a_shared_object_is_preloaded_into_programs_of_musl() {
    let (lab, loader) = (Lab::new(), fixtures::musl_loader(Arch::X86_64));
    let program = dynamic_with_musl(&lab, PROGRAM, "program");
    for name in donors::all().iter().filter(|donor| donor.has_library(format::Arch::X86_64)).map(|donor| donor.name) {
        let target = ["emit", "--target", "x86_64-linux-musl", "--as", "shared", "-q", "--donor", name];
        lab.run(target).exits(0);
        for _ in 0..5 {
            let mut command = Command::new("timeout");
            command.args(["-s", "KILL", "120"]).arg(&loader).arg(&program);
            command.env("LD_PRELOAD", lab.path("liballograft.so")).env("ALLOGRAFT_VERBOSE", "1");
            let output = command.output().unwrap();
            assert_eq!(String::from_utf8_lossy(&output.stdout), "ok\n", "{name}: {output:?}");
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success() && said.starts_with(&format!("allograft: {name} ")), "{name}: {output:?}");
        }
    }
}

#[test]
fn options_are_written_into_a_shared_object() {
    let lab = Lab::new();
    let program = dynamic(&lab);
    let emit = |name: &str, more: &[&str]| {
        let start = ["emit", "--target", "x86_64-linux-musl", "--as", "shared", "--donor", "mimalloc", "-o", name];
        lab.run([&start, more].concat()).exits(0);
        fs::read(lab.path(name)).unwrap()
    };
    let set = emit("set.so", &["--set", "purge_delay=0", "--set", "allow_thp=0"]);
    assert!(set == emit("profile.so", &["--profile", "small"]), "two ways, the same bytes");
    assert_eq!(set.len(), emit("plain.so", &[]).len(), "written in place");
    let mut command = Command::new(&program);
    command.env("LD_PRELOAD", lab.path("set.so")).env("ALLOGRAFT_VERBOSE", "1");
    let said = String::from_utf8(command.output().unwrap().stderr).unwrap();
    assert!(said.contains("purge_delay=0") && said.contains("allow_thp=0"), "{said}");
}

#[test]
fn shared_objects_that_there_are_not() {
    let lab = Lab::new();
    let emit = |code, arguments: &[&str]| {
        lab.changes_nothing(code, [&["emit", "--as", "shared", "--target"], arguments].concat())
    };
    let static_only = ["`hardened`", "static programs only", "help: ", "mimalloc", "--as object"];
    emit(3, &["x86_64-linux-gnu", "--donor", "hardened"]).says(&static_only);
    emit(3, &["riscv64-linux-musl", "--donor", "jemalloc"]).says(&["`jemalloc`", "riscv64", "help: "]);
    emit(3, &["arm-linux-gnueabihf"]).says(&["32-bit", "help: "]);
    emit(3, &["x86_64-linux-musl", "--strings", "on"]).says(&["string functions", "help: "]);
    emit(2, &["x86_64-linux-musl", "--donor", "none"]).says(&["none", "help: "]);
    emit(2, &["x86_64-linux-musl", "--set", "cook=1"]).says(&["`cook`"]);
}

#[test]
fn a_path_that_cannot_be_preloaded_is_said() {
    let lab = Lab::new();
    let emit = |name: &str| lab.run(["emit", "--target", "x86_64-linux-gnu", "--as", "shared", "-o", name]).exits(0);
    assert_eq!(emit("plain.so").err, "");
    emit("with blank.so").says(&["LD_PRELOAD", "blanks"]);
}

/// The program writes the files of a checkout's `integrations`: so each way of installing has them.
#[test]
fn files_for_build_systems() {
    let lab = Lab::new();
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../integrations");
    for name in ["bazel", "cmake", "make", "meson", "nix"] {
        let document = lab.run(["emit", "--as", name, "-o", name, "--json"]).exits(0).json();
        crate::documents::fits("emit_folder", &document);
        let mut files: Vec<String> =
            document["files"].as_array().unwrap().iter().map(|file| file.as_str().unwrap().to_owned()).collect();
        for file in &files {
            let (written, kept) = (lab.path(format!("{name}/{file}")), checkout.join(name).join(file));
            assert!(fs::read(written).unwrap() == fs::read(kept).unwrap(), "{name}/{file}");
        }
        let mut there: Vec<String> = fs::read_dir(lab.path(name))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        files.sort();
        there.sort();
        assert_eq!(files, there);
        // Where it says that something goes, it names the folder.
        let folder = lab.path(name).display().to_string();
        let said = lab.run(["emit", "--as", name, "-o", &format!("other/../{name}.2")]);
        assert_ne!(said.code, 0, "the folder that it is to be in does not exist");
        let usage = document["snippets"].as_array().unwrap();
        assert!(usage.iter().any(|usage| usage["text"].as_str().unwrap().contains(&folder)), "{document}");
        lab.changes_nothing(2, ["emit", "--as", name, "-o", name]).says(&["is not empty"]);
    }
}

/// make with the file, and what is printed to do with it: a program with a donor, another donor, and none.
#[test]
fn make_with_the_file_that_is_written() {
    let lab = Lab::new();
    fs::create_dir(lab.path("bin")).unwrap();
    let compiler = fixtures::musl_gcc(&lab.path("bin")).unwrap();
    let compiler = compiler.to_str().unwrap();
    let said = lab.run(["emit", "--as", "make", "-o", "a folder"]).exits(0).out;
    let include = said.lines().map(str::trim).find(|line| line.starts_with("include ")).expect("what to write");
    lab.put(
        "server.c",
        b"#include <stdlib.h>\nint main(void) { char *p = malloc(9); int bad = !p; free(p); return bad; }\n",
    );
    lab.put("Makefile", format!("{include}\nCFLAGS = -O1\nserver: server.o\n\t$(CC) $(LDFLAGS) -o $@ $^\n").as_bytes());
    let program = env!("CARGO_BIN_EXE_allograft");
    let make = |words: &[&str]| {
        let mut make = std::process::Command::new("make");
        make.args(["-B", "server", &format!("ALLOGRAFT={}", word(program))]).args(words).current_dir(lab.path(""));
        make.env_remove("MAKEFLAGS").env_remove("CC").env("ALLOGRAFT_CC", compiler);
        tool(make.env("XDG_CACHE_HOME", lab.path("cache")));
    };
    let cc = format!("CC={compiler}");
    for (words, donor) in [
        (&[][..], "snmalloc"),
        (&["ALLOGRAFT_FLAGS=--donor mimalloc --set purge_delay=0"], "mimalloc"),
        (&[cc.as_str(), "ALLOGRAFT_FLAGS=--donor mimalloc"], "mimalloc"),
        (&[cc.as_str(), "ALLOGRAFT=off", "LDFLAGS=-static"], "mallocng"),
    ] {
        make(words);
        lab.run(["inspect", "server", "--expect", donor]).exits(0);
    }
}
