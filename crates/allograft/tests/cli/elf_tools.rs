//! Tools that change ELF files, after a graft: the program runs as before, and `inspect` and `verify` report its state.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

use fixtures::program::Build;

use crate::dynamic::{SOURCE, glibc, serves};
use crate::lab::{Lab, tool};
use crate::loaders;

/// The kinds of programs that are grafted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Static,
    StaticPie,
    /// For glibc, with the donor merged into it.
    Merged,
    /// For glibc, with the donor in a file of its own.
    Needed,
}

const STATIC: &[Kind] = &[Kind::Static, Kind::StaticPie];
const DYNAMIC: &[Kind] = &[Kind::Merged, Kind::Needed];
const ALL: &[Kind] = &[Kind::Static, Kind::StaticPie, Kind::Merged, Kind::Needed];

/// Makes the files `stock` and `graft`, with symbols and debug information.
fn graft(lab: &Lab, kind: Kind) {
    let build = Build { position_independent: kind == Kind::StaticPie, compile: &["-g"], ..Build::PLAIN };
    match kind {
        Kind::Static | Kind::StaticPie => drop(build.program(&lab.path(""), "stock", SOURCE)),
        Kind::Merged | Kind::Needed => {
            drop(glibc(lab, "stock", SOURCE, &["-g", "-lpthread", "-Wl,-rpath,/nowhere/at/all"]));
        }
    }
    let mut words = vec!["graft", "stock", "-o", "graft"];
    if kind == Kind::Needed {
        lab.run(["emit", "--target", "x86_64-linux-gnu", "--as", "shared", "-o", "liballograft.so"]).exits(0);
        words.push("--needed");
    }
    lab.run(words).exits(0);
}

/// Runs a line of words in the lab's folder: elfutils' tools and the like from Debian's packages, others from the
/// command path. `None` if there is no such tool.
fn run(lab: &Lab, line: &str) -> Option<Output> {
    let words: Vec<&str> = line.split(' ').collect();
    let packed = ["patchelf", "chrpath", "dwz", "debugedit"].contains(&words[0]) || words[0].starts_with("eu-");
    let mut command = if packed { fixtures::elf_tool(words[0]) } else { Command::new(words[0]) };
    match command.args(&words[1..]).current_dir(lab.path("")).output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        output => Some(output.unwrap()),
    }
}

/// Makes `copy` of a file, which can be run.
fn copy(lab: &Lab, file: &str) {
    fs::copy(lab.path(file), lab.path("copy")).unwrap();
    fs::set_permissions(lab.path("copy"), fs::Permissions::from_mode(0o755)).unwrap();
}

/// Checks that the program `copy` works and has the donor, by its own words, by `inspect` and by `verify`.
#[track_caller]
fn is_whole(lab: &Lab, what: &str) {
    serves(&lab.path("copy"), "snmalloc");
    lab.run(["inspect", "copy", "--expect", "snmalloc"]).exits(0);
    let ran = lab.run(["verify", "copy", "--stock", "stock"]);
    assert!(ran.code == 0 && ran.out.contains("self-test: passed"), "{what}: {ran:?}");
}

/// elfutils write over everything that no section covers, the program headers of a graft too if they have none.
#[test]
fn eu_strip_keeps_every_kind_of_graft() {
    for kind in ALL {
        let lab = Lab::new();
        graft(&lab, *kind);
        for line in ["eu-strip copy", "eu-strip -g -f copy.debug copy"] {
            copy(&lab, "graft");
            let output = run(&lab, line).unwrap();
            assert!(output.status.success(), "{kind:?}, {line}: {output:?}");
            assert!(fs::read(lab.path("copy")).unwrap() != fs::read(lab.path("graft")).unwrap(), "{kind:?}, {line}");
            serves(&lab.path("copy"), "snmalloc");
        }
        is_whole(&lab, &format!("{kind:?}"));
    }
}

/// gdb takes the names of a file from its symbol table alone, if it has one. Programs for fixed addresses have stubs of
/// the same names.
#[test]
fn a_debugger_finds_the_donor_by_name() {
    for further in [&["-g"][..], &["-g", "-no-pie", "-fno-pie"]] {
        let lab = Lab::new();
        glibc(&lab, "stock", SOURCE, &[further, &["-lpthread"]].concat());
        lab.run(["graft", "stock", "-o", "graft"]).exits(0);
        for line in ["", "strip -g copy", "strip -s copy", "eu-strip -g copy", "llvm-strip -g copy"] {
            copy(&lab, "graft");
            if !line.is_empty() && run(&lab, line).is_none() {
                continue;
            }
            let names = run(&lab, "nm copy").unwrap();
            let names = String::from_utf8_lossy(&names.stdout);
            let defines = |name: &str| names.lines().any(|line| line.ends_with(&format!(" T {name}")));
            let keeps = line != "strip -s copy";
            assert!([defines("malloc"), defines("free"), defines("main")] == [keeps; 3], "{line}: {names}");
        }
        copy(&lab, "graft");
        // The loader's own malloc serves the loader, before `main`.
        let mut gdb = Command::new("gdb");
        gdb.args(["-nx", "-batch", "-ex", "break main", "-ex", "run", "-ex", "break malloc", "-ex", "continue"]);
        gdb.args(["-ex", "info symbol $pc", "--args", "./copy", "one", "two"]);
        match gdb.env("DEBUGINFOD_URLS", "").current_dir(lab.path("")).output() {
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stdout);
                assert!(said.contains("in section .allograft.text"), "{further:?}: {output:?}");
            }
            Err(_) => eprintln!("left out: there is no gdb"),
        }
        is_whole(&lab, "with its symbol table");
    }
}

/// The kernel starts the loader, and the loader reads its own program headers.
#[test]
fn eu_strip_keeps_a_grafted_loader() {
    let lab = Lab::new();
    let (loader, program) = loaders::system(&lab, loaders::PROGRAM);
    let path = loader.to_str().unwrap();
    lab.run(["graft", path, "--donor", "mimalloc"]).exits(0);
    let before = fs::read(&loader).unwrap();
    tool(fixtures::elf_tool("eu-strip").arg(&loader));
    assert!(fs::read(&loader).unwrap() != before);
    let output = Command::new(program).env("ALLOGRAFT_VERBOSE", "1").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("mimalloc 2.5.2 serves malloc"), "{output:?}");
    lab.run(["verify", path]).exits(0);
}

/// A section that does not cover the program headers does not protect them.
#[test]
fn a_wrong_section_of_program_headers_is_told() {
    for kind in [Kind::Static, Kind::Merged] {
        let lab = Lab::new();
        graft(&lab, kind);
        let mut bytes = fs::read(lab.path("graft")).unwrap();
        let word = |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        let (headers, sections) = (word(&bytes, 32), word(&bytes, 40) as usize);
        let count = usize::from(u16::from_le_bytes([bytes[60], bytes[61]]));
        let size = 56 * u64::from(u16::from_le_bytes([bytes[56], bytes[57]]));
        let at = (0..count).map(|index| sections + 64 * index);
        let found: Vec<usize> =
            at.filter(|at| word(&bytes, at + 24) == headers && word(&bytes, at + 32) == size).collect();
        let [section] = found.as_slice() else { panic!("{kind:?}: {found:?}") };
        bytes[section + 32] -= 8;
        lab.put("copy", &bytes);
        fs::set_permissions(lab.path("copy"), fs::Permissions::from_mode(0o755)).unwrap();
        let ran = lab.run(["verify", "copy", "--stock", "stock"]);
        assert_ne!(ran.code, 0, "{kind:?}: {ran:?}");
    }
}

/// The state of a graft after a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum After {
    /// The tool changed the file, and the graft is whole.
    Whole,
    /// The program works, `inspect` names its donor, and `verify` says that more than the graft has changed.
    Changed,
    /// The tool refused the file and left it unchanged.
    Refused,
    /// The program does not work, and neither does stock after the same tool.
    StockToo,
    /// The program does not work, and `inspect` does not say that the donor is in it.
    Destroyed,
}

use After::{Changed, Destroyed, Refused, StockToo, Whole};

/// Command lines, one tool after the other, on the file `copy`.
const LINES: &[(&str, &[Kind], After)] = &[
    ("strip -s copy", ALL, Whole),
    ("strip -g copy", ALL, Whole),
    ("strip --strip-unneeded copy", ALL, Whole),
    ("strip copy; strip copy; objcopy copy", ALL, Whole),
    ("objcopy copy", ALL, Whole),
    ("objcopy -g copy", ALL, Whole),
    ("objcopy --compress-debug-sections copy", ALL, Whole),
    (
        "objcopy --only-keep-debug copy copy.debug; strip -g copy; objcopy --add-gnu-debuglink=copy.debug copy",
        ALL,
        Whole,
    ),
    ("llvm-strip -s copy", ALL, Whole),
    ("llvm-strip -g copy", ALL, Whole),
    ("llvm-strip --strip-unneeded copy", ALL, Whole),
    ("llvm-objcopy copy", ALL, Whole),
    ("llvm-objcopy --compress-debug-sections=zlib copy", ALL, Whole),
    (
        "llvm-objcopy --only-keep-debug copy copy.debug; llvm-strip -g copy; \
         llvm-objcopy --add-gnu-debuglink=copy.debug copy",
        ALL,
        Whole,
    ),
    ("eu-strip copy", ALL, Whole),
    ("eu-strip -g copy", ALL, Whole),
    ("eu-strip -f copy.debug copy", ALL, Whole),
    ("eu-strip --remove-comment -g -f copy.debug copy", ALL, Whole),
    ("eu-strip --strip-sections copy", ALL, Whole),
    ("eu-elfcompress copy", ALL, Whole),
    ("eu-strip -g copy; strip copy", ALL, Whole),
    ("llvm-strip -g copy; eu-strip copy", ALL, Whole),
    // GNU's tools leave out the section that keeps elfutils from overwriting the program headers.
    ("strip -g copy; eu-strip copy", ALL, Destroyed),
    ("debugedit -b / -d /source copy", ALL, Whole),
    ("dwz copy", ALL, Refused),
    ("patchelf --set-rpath /a/longer/one/that/has/no/place/where/it/was copy", DYNAMIC, Changed),
    ("patchelf --set-interpreter /lib64/../lib64/ld-linux-x86-64.so.2 copy", DYNAMIC, Changed),
    ("patchelf --add-needed libm.so.6 copy", DYNAMIC, Changed),
    ("patchelf --set-rpath /nowhere copy", &[Kind::Static], Refused),
    ("patchelf --set-rpath /nowhere copy", &[Kind::StaticPie], StockToo),
    // It takes the first table of names that there is, which is that of symbols: the path stays.
    ("chrpath -r /another copy", DYNAMIC, Whole),
    ("chrpath -r /another copy", STATIC, Refused),
];

#[test]
#[ignore = "minutes: runs each tool on each kind of graft"]
fn every_tool_in_every_mode() {
    let mut wrong = Vec::new();
    for kind in ALL {
        let lab = Lab::new();
        graft(&lab, *kind);
        let before = fs::read(lab.path("graft")).unwrap();
        for (lines, _, wanted) in LINES.iter().filter(|(_, kinds, _)| kinds.contains(kind)) {
            let outputs = change(&lab, "graft", lines);
            let done = outputs.iter().all(|output| output.status.success());
            let is_same = fs::read(lab.path("copy")).unwrap() == before;
            let (works, named, verified) = state(&lab);
            let found = match () {
                () if works && named && !done && is_same => Some(Refused),
                () if works && named && verified => Some(Whole),
                () if works && named => Some(Changed),
                () if works => None,
                () if !named => Some(Destroyed),
                () => {
                    change(&lab, "stock", lines);
                    let stock = Command::new(lab.path("copy")).args(["one", "two"]).output();
                    (!stock.is_ok_and(|output| output.status.success())).then_some(StockToo)
                }
            };
            if found != Some(*wanted) {
                wrong.push(format!("{kind:?}, `{lines}`: {found:?}, works: {works}, named: {named}: {outputs:?}"));
            }
            let _ = fs::remove_file(lab.path("copy.debug"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Runs lines of words on a copy of a file. A tool that is not there is left out, with a note.
fn change(lab: &Lab, file: &str, lines: &str) -> Vec<Output> {
    copy(lab, file);
    let mut outputs = Vec::new();
    for line in lines.split("; ") {
        match run(lab, line) {
            Some(output) => outputs.push(output),
            None => eprintln!("left out: there is no tool for `{line}`"),
        }
    }
    outputs
}

/// Whether `copy` works, whether `inspect` names its donor, and whether `verify` passes.
fn state(lab: &Lab) -> (bool, bool, bool) {
    let ran = Command::new(lab.path("copy")).args(["one", "two"]).env("ALLOGRAFT_VERBOSE", "1").output();
    let works = ran.is_ok_and(|output| {
        output.status.success()
            && output.stdout == b"one\ntwo\n"
            && String::from_utf8_lossy(&output.stderr).contains("allograft: snmalloc ")
    });
    let named = lab.run(["inspect", "copy", "--expect", "snmalloc"]).code == 0;
    let verified = lab.run(["verify", "copy", "--stock", "stock"]).code == 0;
    (works, named, verified)
}
