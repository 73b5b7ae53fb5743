//! Wrong calls, as people type them: `tests/wrong_calls.txt` has the exit code of each, and the part of the message
//! that cures it.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use fixtures::Ran;
use fixtures::program::Build;

use crate::lab::{Lab, tool};

/// A call, its exit code, and a part of the message.
struct Call {
    words: Vec<String>,
    code: i32,
    cure: String,
}

/// Reads the table: `CALL => CODE: CURE`, in which `#` begins a comment.
fn calls() -> Vec<Call> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wrong_calls.txt");
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let parts = line.split_once(" => ").and_then(|(call, rest)| Some((call, rest.split_once(": ")?)));
            let (call, (code, cure)) = parts.unwrap_or_else(|| panic!("{line}"));
            let words = call.split_whitespace().map(str::to_owned).collect();
            Call { words, code: code.parse().unwrap_or_else(|error| panic!("{line}: {error}")), cure: cure.to_owned() }
        })
        .collect()
}

/// A folder with a file of each kind.
fn lab() -> Lab {
    let lab = Lab::new();
    lab.libc("libc.a");
    lab.put("main.c", b"#include <stdlib.h>\nint main(void) { free(malloc(9)); return 0; }\n");
    lab.put("empty", b"");
    lab.put("map", b"");
    // Every system has programs of these names on the command path.
    lab.put("cat", b"");
    for folder in ["folder", "ls", "links"] {
        fs::create_dir(lab.path(folder)).unwrap();
    }
    symlink("../cat", lab.path("links/cat")).unwrap();
    lab.put("links/run.sh", b"#!/bin/sh\n");
    // It prints, so that libc's own parts ask for memory.
    let source = "#include <stdio.h>\n#include <stdlib.h>\nint main(int n, char **words) {\n\
                  \x20   char *volatile p = malloc(n); puts(p ? words[0] : \"\"); free(p); return 0; }\n";
    Build::PLAIN.program(&lab.path(""), "server", source);
    for (flag, name) in [("-static", "glibc-static"), ("-pie", "dynamic")] {
        tool(fixtures::cc().args(["-fPIE", "-o"]).arg(lab.path(name)).arg(flag).arg(lab.path("main.c")));
    }
    for folder in ["programs", "mixed", "installed"] {
        fs::create_dir(lab.path(folder)).unwrap();
    }
    for program in ["programs/one", "programs/two", "mixed/server"] {
        fs::copy(lab.path("server"), lab.path(program)).unwrap();
    }
    fs::copy(lab.path("dynamic"), lab.path("installed/dynamic")).unwrap();
    // Neither is a program, and this archive is not musl's.
    lab.put("programs/one.c", b"int main(void) { return 0; }\n");
    lab.put("mixed/libc.a", b"!<arch>\n");
    others(&lab);
    tool(Command::new("mkfifo").arg(lab.path("pipe")));
    fs::create_dir(lab.path("start")).unwrap();
    tool(fixtures::cc().args(["-c", "-o", "start/crt1.o"]).arg("programs/one.c").current_dir(lab.path("")));
    tool(Command::new("tar").args(["-czf", "image.tar.gz", "main.c"]).current_dir(lab.path("")));
    lab.run(["graft", "libc.a", "-o", "graft.a"]).exits(0);
    linked(&lab);
    lab.run(["graft", "server", "-o", "grafted"]).exits(0);
    fs::copy(lab.path("server"), lab.path("lost")).unwrap();
    lab.run(["graft", "lost"]).exits(0);
    fs::remove_file(lab.path("lost.allograft-stock")).unwrap();
    lab
}

/// Makes files that are not hosts, and a program without the right to be executed.
fn others(lab: &Lab) {
    tool(fixtures::cc().args(["-shared", "-fPIC", "-o"]).args([lab.path("lib.so"), lab.path("main.c")]));
    lab.put("run.sh", b"#!/bin/sh\nexec true\n");
    fs::set_permissions(lab.path("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    lab.put("tool.exe", &[&b"MZ\x90\0"[..], &[0; 300]].concat());
    // e_type 4 is a core dump's, and e_machine 8 is MIPS.
    for (name, at, value) in [("core", 16, 4), ("mips", 18, 8)] {
        let mut bytes = fs::read(lab.path("server")).unwrap();
        bytes[at] = value;
        lab.put(name, &bytes);
    }
    fs::copy(lab.path("server"), lab.path("noexec")).unwrap();
    fs::set_permissions(lab.path("noexec"), fs::Permissions::from_mode(0o644)).unwrap();
    symlink("nowhere", lab.path("dangling")).unwrap();
}

/// Makes the calls of these commands, and compares each with the table.
fn check(commands: &[&str]) {
    let lab = lab();
    let mut wrong = Vec::new();
    let of_these = |call: &&Call| commands.contains(&call.words[0].as_str());
    for Call { words, code, cure } in calls().iter().filter(of_these) {
        let output = lab.command().args(words).env_remove("ALLOGRAFT_CC").stdin(Stdio::null()).output().unwrap();
        let ran = Ran::from(output);
        // Whatever it is, the message ends with what to do.
        let last = ran.err.lines().rfind(|line| !line.starts_with("  ")).unwrap_or_default();
        if ran.code != *code || !ran.err.contains(cure) || !last.starts_with("help: ") {
            wrong.push(format!("{}: {}, without `{cure}`:\n{}", words.join(" "), ran.code, ran.err));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn of_graft() {
    check(&["graft"]);
}

#[test]
fn of_undo_and_verify() {
    check(&["undo", "verify"]);
}

#[test]
fn of_inspect() {
    check(&["inspect"]);
}

#[test]
fn of_emit_and_others() {
    check(OTHERS);
}

#[test]
fn of_bench_and_profile() {
    check(&["bench", "profile"]);
}

/// A graft says how every check of it is run, by the paths that were typed, and replaces what is a graft or nothing.
#[test]
fn the_way_on_from_a_graft_elsewhere() {
    let lab = lab();
    let said = lab.run(["graft", "libc.a", "-o", "new.a"]).exits(0).out;
    assert!(
        said.starts_with("grafted  new.a ") && said.contains("verify: allograft verify new.a --stock libc.a\n"),
        "{said}"
    );
    let ran = lab.run(["verify", "new.a", "--stock", "libc.a", "--static-only"]).exits(0).out;
    assert!(ran.contains("not run: programs") && !ran.contains("not run: differences"), "{ran}");
    // An earlier graft that is replaced is named, if it had other contents.
    let earlier = |words: &[&str]| {
        let words = [&["graft", "libc.a", "-o", "new.a"], words].concat();
        let said = lab.run(words).exits(0).out;
        said.lines().find(|line| line.contains("earlier")).map(str::to_owned).unwrap_or_default()
    };
    assert_eq!(earlier(&[]), "");
    let planned = earlier(&["--donor", "mimalloc", "--strings", "off", "--dry-run"]);
    assert!(planned.starts_with("  would replace an earlier graft in that file: snmalloc "), "{planned}");
    let replaced = earlier(&["--donor", "mimalloc", "--strings", "off"]);
    assert!(replaced.starts_with("  replaced an earlier graft in that file: snmalloc "), "{replaced}");
    assert!(replaced.ends_with(" and strings"), "{replaced}");
    let document = lab.run(["graft", "libc.a", "-o", "new.a", "--donor", "strings", "--json"]).exits(0).json();
    let replaced = &document["hosts"][0]["replaced"];
    assert!(replaced["donor"]["name"] == "mimalloc" && replaced["strings"].is_null(), "{document:#}");
    let document = lab.run(["graft", "libc.a", "-o", "new.a", "--donor", "none", "--json"]).exits(0).json();
    assert!(document["hosts"][0]["replaced"].is_null() && document["hosts"][0]["donor"].is_null(), "{document:#}");
    for (target, out) in [("libc.a", "graft.a"), ("libc.a", "empty"), ("server", "grafted"), ("server", "server.copy")]
    {
        fs::copy(lab.path("server"), lab.path("server.copy")).unwrap();
        lab.run(["graft", target, "-o", out, "--donor", "mimalloc"]).exits(0);
    }
    fs::create_dir_all(lab.path("sdk/lib")).unwrap();
    fs::copy(lab.path("libc.a"), lab.path("sdk/lib/libc.a")).unwrap();
    let said = lab.run(["graft", "sdk", "-o", "sdk.fast"]).exits(0).out;
    assert!(said.contains("verify: allograft verify sdk.fast --stock sdk\n"), "{said}");
    let ran = lab.run(["verify", "sdk.fast", "--stock", "sdk", "--static-only"]).exits(0).out;
    assert!(ran.ends_with("\n1 graft: 1 passed (1 with checks that were not run), 0 failed\n"), "{ran}");
    assert!(!ran.contains("not run: differences"), "{ran}");
    let said = lab.run(["graft", "sdk", "--dry-run"]).exits(0).out;
    for part in ["sdk/lib/libc.a.allograft-stock (would be written)", "sdk/lib/libc.a.allograft.json", "linked again"] {
        assert!(said.contains(part), "{said}");
    }
    lab.run(["graft", "server", "-o", "main.c"]).exits(3);
    lab.run(["graft", "server", "-o", "main.c", "--force"]).exits(0);
    let before = fs::read(lab.path("grafted")).unwrap();
    let says = ["linked with a graft, by `allograft cc` or a Cargo build", "is linked again"];
    fs::remove_file(lab.path("main.c")).unwrap();
    lab.run(["undo", "linked"]).exits(2);
    fs::copy(lab.path("made"), lab.path("linked")).unwrap();
    lab.run(["undo", "linked"]).exits(3).says(&says);
    assert!(before == fs::read(lab.path("grafted")).unwrap());
}

/// Links a program with a graft.
fn linked(lab: &Lab) {
    fs::create_dir(lab.path("bin")).unwrap();
    let compiler = fixtures::musl_gcc(&lab.path("bin")).unwrap();
    fs::create_dir(lab.path("lib")).unwrap();
    fs::copy(lab.path("graft.a"), lab.path("lib/libc.a")).unwrap();
    lab.put("source.c", b"#include <stdlib.h>\nint main(void) { free(malloc(9)); return 0; }\n");
    let mut link = Command::new(compiler);
    tool(link.args(["-static", "-fno-builtin", "-Llib", "-o", "made", "source.c"]).current_dir(lab.path("")));
}

/// The first words of all other calls.
const OTHERS: &[&str] = &[
    "emit",
    "donors",
    "cc",
    "run",
    "completions",
    "man",
    "grfat",
    "benchmark",
    "help",
    "--jsn",
    "stats",
    "list",
    "version",
    "patch",
    "restore",
    "scan",
    "undoo",
    "heap",
];

#[test]
fn every_call_is_made_by_a_test() {
    let tested = [&["graft", "undo", "verify", "inspect", "bench", "profile"], OTHERS].concat();
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for call in calls() {
        *counts.entry(call.words[0].clone()).or_default() += 1;
    }
    assert!(counts.keys().all(|word| tested.contains(&word.as_str())), "{counts:?}");
    assert!(counts.values().sum::<usize>() >= 150, "{counts:?}");
}
