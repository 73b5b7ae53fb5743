//! `bench --pull-request`: the text for the maintainer of a project.

use std::fs;

use serde_json::Value;

use crate::lab::Lab;

/// The text for a maintainer, of results that say to change something and of results that say to change nothing.
pub(crate) fn say_what_was_decided(lab: &Lab, mut document: Value) {
    lab.libc("musl/libc.a");
    document["input"]["host"] = "musl/libc.a".into();
    let mut text = |arm: &str, command: Option<String>, undecided: bool| {
        document["recommendation"]["arm"] = arm.into();
        document["recommendation"]["undecided"] = undecided.into();
        document["recommendation"]["command"] = command.into();
        document["recommendation"]["reason"] = "The figures say so.".into();
        lab.put("decided.json", document.to_string().as_bytes());
        lab.run(["bench", "--from", "decided.json", "--pull-request", "request.md", "-q"]).exits(0);
        fs::read_to_string(lab.path("request.md")).unwrap()
    };
    let command = "allograft graft musl/libc.a --donor mimalloc".to_owned();
    let request = text("mimalloc", Some(command.clone()), false);
    let archive = format!("allograft-{}-", env!("CARGO_PKG_VERSION"));
    let version = donors::find("mimalloc").unwrap().version;
    for part in [
        format!("Use mimalloc {version} and faster string functions in the musl build: ").as_str(),
        "## The change\n\nTwo lines in the build, before the program is linked.",
        &format!("\ntar -xzf {archive}"),
        &format!("\n{command}\n```\n"),
        "## What it brings\n\nThe figures say so.\n",
        "| stock |",
        "## Risks\n\n- Peak memory is ",
        "- The program then holds code of mimalloc under MIT; ",
        "`allograft undo musl/libc.a` gives the stock file back",
    ] {
        assert!(request.contains(part), "{part}\nis not in\n{request}");
    }
    // Two lines, as they can be pasted: the second one runs.
    let lines = request.split("```sh\n").nth(1).unwrap().split("```").next().unwrap();
    assert_eq!(lines.lines().count(), 2, "{lines}");
    let words = lines.lines().nth(1).unwrap().split(' ').skip(1);
    lab.run(words.chain(["-o", "grafted.a"])).exits(0);
    assert!(text("stock", None, true).starts_with("No answer yet\n\nThe figures say so.\n"));
    let keep = text("stock", None, false);
    assert!(keep.starts_with("Keep the musl build's allocator as it is\n\nThe figures say so.\n"), "{keep}");
    assert!(!keep.contains("## The change") && keep.contains("| stock |"), "{keep}");
}
