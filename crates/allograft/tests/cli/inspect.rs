//! `inspect`: the contents of each file, and the exit codes of `--expect`.

use std::fs;
use std::process::Command;

use fixtures::program::Build;
use serde_json::Value;

use crate::lab::Lab;

#[test]
fn stock_and_graft_are_told_apart() {
    let lab = Lab::new();
    lab.libc("libc.a");
    let name = |lab: &Lab| {
        let document = lab.run(["inspect", "libc.a", "--json"]).exits(0).json();
        let file = &document["files"][0];
        assert_eq!(
            (&file["path"], &file["kind"], &file["arch"]),
            (&"libc.a".into(), &"archive".into(), &"x86_64".into())
        );
        assert_ne!(file["malloc"]["evidence"].as_array().unwrap().len(), 0);
        file["malloc"]["name"].as_str().unwrap().to_owned()
    };
    assert_eq!(name(&lab), "mallocng");
    lab.changes_nothing(0, ["inspect", "libc.a", "--expect", "mallocng"]);
    for donor in ["mimalloc", "mimalloc3"] {
        lab.run(["graft", "libc.a", "--donor", donor]).exits(0);
        assert_eq!(name(&lab), donor);
        lab.run(["inspect", "libc.a", "--expect", donor]).exits(0);
        lab.run(["inspect", "libc.a", "--expect", "mallocng"]).exits(1).says(&["libc.a", donor, "mallocng"]);
    }
}

#[test]
fn one_unreadable_file_does_not_hide_the_others() {
    let lab = Lab::new();
    lab.libc("libc.a");
    lab.put("text", b"no ELF\n");
    let ran = lab.run(["inspect", "missing", "text", "libc.a", "--json"]).exits(2).says(&["`missing`", "`text`"]);
    let document = ran.json();
    let files = document["files"].as_array().unwrap();
    assert!(files[0]["error"].is_string() && files[1]["error"].is_string());
    assert_eq!(files[2]["malloc"]["name"], "mallocng");
    // An unreadable file outweighs an unexpected allocator.
    lab.run(["inspect", "missing", "libc.a", "--expect", "go"]).exits(2);
}

#[test]
fn folders_are_walked() {
    let lab = Lab::new();
    lab.libc("sdk/b/libc.a");
    lab.put("sdk/a/program", &fs::read(env!("CARGO_BIN_EXE_allograft")).unwrap());
    lab.put("sdk/readme", b"text");
    let document = lab.run(["inspect", "sdk", "--json"]).exits(0).json();
    let paths: Vec<_> = document["files"].as_array().unwrap().iter().map(|file| file["path"].clone()).collect();
    assert_eq!(paths, ["sdk/a/program", "sdk/b/libc.a"]);
    lab.put("none/readme", b"text");
    lab.run(["inspect", "none"]).exits(2).says(&["`none`"]);
}

/// Other files are counted too, and those that fit, that do not, and that cannot be read.
#[test]
fn a_folder_is_counted_whole() {
    let lab = Lab::new();
    lab.libc("bin/libc.a");
    lab.put("bin/run.sh", b"#!/bin/sh\n");
    lab.put("bin/readme", b"text");
    lab.put("bin/cut", b"\x7fELF\x02");
    std::os::unix::fs::symlink("libc.a", lab.path("bin/link.a")).unwrap();
    crate::lab::tool(Command::new("mkfifo").arg(lab.path("bin/pipe")));
    let left_out = "left out: 1 symbolic link (not followed), 1 script, 1 other file (neither ELF file nor archive), \
                    1 special file (pipe, socket or device)";
    let last = |words: &[&str]| lab.run(words.iter().copied()).exits(2).out.lines().last().unwrap().to_owned();
    assert_eq!(last(&["inspect", "bin"]), format!("2 files: 1 unreadable; {left_out}"));
    assert_eq!(
        last(&["inspect", "bin", "--expect", "mallocng"]),
        format!("2 files: 1 as expected, 0 not, 1 unreadable; {left_out}")
    );
    let document = lab.run(["inspect", "bin", "--expect", "mallocng", "--json"]).exits(2).json();
    let numbers = serde_json::json!({"symbolic_links": 1, "scripts": 1, "other_files": 1, "special_files": 1});
    assert_eq!(document["left_out"], numbers);
    let fits = |document: &Value| -> Vec<_> {
        document["files"].as_array().unwrap().iter().map(|file| file["as_expected"].clone()).collect()
    };
    // A file that cannot be read is not as expected.
    assert_eq!(fits(&document), [false, true]);
    fs::remove_file(lab.path("bin/cut")).unwrap();
    let document = lab.run(["inspect", "bin", "bin", "--expect", "glibc", "--json"]).exits(1).json();
    assert_eq!(fits(&document), [false, false]);
    assert_eq!(document["left_out"]["scripts"], 2);
    let said = lab.run(["inspect", "bin/libc.a", "bin/libc.a", "--expect", "mallocng"]).exits(0).out;
    assert!(said.ends_with("\n2 files: 2 as expected, 0 not, 0 unreadable\n"), "{said}");
}

/// In a folder, `--expect` is about what has a malloc: not about start files, nor about backups of grafts.
#[test]
fn a_grafted_folder_is_as_expected() {
    let lab = Lab::new();
    lab.libc("sdk/libc.a");
    lab.put("empty.c", b"int nothing;\n");
    crate::lab::tool(fixtures::cc().args(["-c", "-o", "sdk/crt1.o", "empty.c"]).current_dir(lab.path("")));
    lab.run(["graft", "sdk"]).exits(0);
    lab.run(["inspect", "sdk", "--expect", "snmalloc"]).exits(0);
    lab.run(["inspect", "sdk/crt1.o", "--expect", "snmalloc"]).exits(1);
    lab.run(["inspect", "sdk", "--expect", "mallocng"]).exits(1).says(&["`sdk/libc.a`"]);
    lab.run(["undo", "sdk"]).exits(0);
    lab.run(["inspect", "sdk", "--expect", "snmalloc"]).exits(1).says(&["`sdk/libc.a`"]);
}

/// The stock file that `undo` restores does not count as a program of the folder or the image. A file that has only the
/// name of a backup counts.
#[test]
fn backups_of_grafts_are_marked_as_such() {
    let lab = Lab::new();
    let source = "#include <stdio.h>\n#include <stdlib.h>\n\
                  int main(int n, char **words) { char *volatile p = malloc(n); puts(words[0]); free(p); return 0; }\n";
    Build::PLAIN.program(&lab.path(""), "start", source);
    fs::create_dir_all(lab.path("root/bin")).unwrap();
    fs::copy(lab.path("start"), lab.path("root/bin/server")).unwrap();
    fs::copy(lab.path("start"), lab.path("root/bin/other.allograft-stock")).unwrap();
    lab.run(["graft", "root/bin/server"]).exits(0);
    crate::lab::tool(Command::new("tar").args(["-cf", "root.tar", "-C", "root", "."]).current_dir(lab.path("")));
    let backup = "server.allograft-stock";
    for (target, at) in [("root", "root/bin/"), ("root.tar", "/bin/")] {
        let table = lab.run(["inspect", target]).exits(0).out;
        let marked: Vec<&str> = table.lines().filter(|line| line.contains("backup of")).collect();
        let end = format!("  {at}{backup}  (backup of server)");
        assert!(marked.len() == 1 && marked[0].ends_with(&end), "{target}: {table}");

        let document = lab.run(["inspect", "--json", target]).exits(0).json();
        let files = document["files"].as_array().unwrap();
        let backups: Vec<&Value> = files.iter().filter(|file| !file["backup_of"].is_null()).collect();
        assert!(files.len() == 3 && backups.len() == 1, "{document:#}");
        assert_eq!(backups[0]["backup_of"], format!("{at}server"));
        assert_eq!(
            (&backups[0]["path"], &backups[0]["malloc"]["name"]),
            (&format!("{at}{backup}").into(), &"mallocng".into())
        );

        // The other file counts, whatever its name.
        lab.run(["inspect", target, "--expect", "snmalloc"]).exits(1).says(&["other.allograft-stock"]);
        let bill: Value =
            serde_json::from_str(&lab.run(["inspect", "--sbom", "cyclonedx", target]).exits(0).out).unwrap();
        let components = bill["components"].as_array().unwrap();
        let mallocng = components.iter().find(|it| it["name"] == "mallocng").unwrap();
        let occurrences = mallocng["evidence"]["occurrences"].as_array().unwrap();
        let where_it_is: Vec<&str> = occurrences.iter().filter_map(|it| it["location"].as_str()).collect();
        assert!(matches!(where_it_is[..], [one] if one.ends_with("other.allograft-stock")), "{bill:#}");
    }
    fs::remove_file(lab.path("root/bin/other.allograft-stock")).unwrap();
    lab.run(["inspect", "root", "--expect", "snmalloc"]).exits(0);
    // A root folder without a path is all of it.
    let all = lab.run(["inspect", "--root", "root", "--json"]).exits(0).json();
    assert_eq!(all["files"].as_array().unwrap().len(), 2);
}

#[test]
fn a_name_that_nobody_has_is_pointed_out() {
    let lab = Lab::new();
    lab.libc("libc.a");
    lab.run(["inspect", "libc.a", "--expect", "mimaloc"]).exits(1).says(&["is called `mimaloc`", "mallocng"]);
}

#[test]
fn several_files_make_a_table_and_one_tells_all() {
    let lab = Lab::new();
    lab.libc("sdk/libc.a");
    lab.put("sdk/program", &fs::read(env!("CARGO_BIN_EXE_allograft")).unwrap());
    let table = lab.run(["inspect", "sdk"]).exits(0).out;
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines.len() == 4 && lines[0].starts_with("malloc") && lines[3] == "2 files", "{table}");
    let first: Vec<&str> = lines[1].split_whitespace().collect();
    assert_eq!(first, ["mallocng", "stock", "archive", "musl", "x86_64", "sdk/libc.a"], "{table}");
    lab.run(["graft", "sdk/libc.a"]).exits(0);
    let table = lab.run(["inspect", "sdk"]).exits(0).out;
    let words: Vec<&str> = table.lines().flat_map(|line| line.split_whitespace().nth(2)).collect();
    assert!(words.contains(&"grafted"), "{table}");
    lab.run(["undo", "sdk"]).exits(0);
    assert!(lines[2].starts_with("glibc") && lines[2].contains("dynamic"), "{table}");
    // One line says what is in, and one how another allocator gets in. The evidence is for those who ask.
    let text = lab.run(["inspect", "sdk/libc.a"]).exits(0).out;
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.len() == 2 && lines[0] == "sdk/libc.a: mallocng  (archive, x86_64, musl)", "{text}");
    assert!(lines[1].starts_with("  graft      `allograft graft`"), "{text}");
    let text = lab.run(["inspect", "-v", "sdk/libc.a"]).exits(0).out;
    for part in ["symbols", "a fork hook", "graft      `allograft graft`"] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn an_empty_file_is_no_elf_file() {
    let lab = Lab::new();
    lab.put("empty", b"");
    lab.run(["inspect", "empty"]).exits(2).says(&["it is empty"]);
}
