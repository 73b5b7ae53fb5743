//! `inspect`: the contents of each file, and the exit codes of `--expect`.

use std::fs;

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
    assert!(lines.len() == 3 && lines[0].starts_with("malloc"), "{table}");
    assert!(lines[1].starts_with("mallocng") && lines[1].ends_with("sdk/libc.a"), "{table}");
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
