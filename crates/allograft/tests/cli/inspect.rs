//! `inspect`: what is in each file, and the exit codes of `--expect`.

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
    // What cannot be read weighs more than what is not as expected.
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
