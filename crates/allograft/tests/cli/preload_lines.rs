//! The lines that `emit --as shared` prints, followed to the letter: a shell's, a Dockerfile's by the rules of its
//! reference, and a unit's by those of systemd.exec(5). `release/tests/installed` has buildah and systemd read them.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use fixtures::image::{Image, Layout, Packing, Tar};

use crate::emit::dynamic;
use crate::images::{file, root, tree};
use crate::lab::Lab;

/// Emits a shared object into a folder with a percent sign in its name. Returns the lines, by what they are for.
fn lines(lab: &Lab) -> BTreeMap<String, String> {
    fs::create_dir(lab.path("100%s")).unwrap();
    let target = ["emit", "--json", "--target", "x86_64-linux-gnu", "--as", "shared", "-o", "100%s/liballograft.so"];
    let document = lab.run(target).exits(0).json();
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let snippets = document["snippets"].as_array().unwrap().iter();
    snippets.map(|snippet| (text(&snippet["for"]), text(&snippet["text"]))).collect()
}

/// Runs the command, which starts the program, and asserts that the program has the donor.
#[track_caller]
fn serves(command: &mut Command) {
    let output = command.env("ALLOGRAFT_VERBOSE", "1").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "ok\n", "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).starts_with("allograft: snmalloc "), "{output:?}");
}

#[test]
fn the_line_for_a_shell() {
    let lab = Lab::new();
    dynamic(&lab);
    let line = format!("PATH=.:$PATH; {}", lines(&lab)["a shell"]);
    serves(Command::new("sh").args(["-ec", &line]).current_dir(lab.path("")));
}

/// Returns the variable that a line of a unit sets: quotes are taken away, C's escapes and specifiers expanded.
fn of_unit(line: &str) -> (String, String) {
    let assignment = line.strip_prefix("Environment=\"").and_then(|rest| rest.strip_suffix('"')).expect(line);
    let (mut text, mut letters) = (String::new(), assignment.chars());
    while let Some(letter) = letters.next() {
        text.push(match (letter, letter == '\\' || letter == '%') {
            (sign, true) => match letters.next() {
                Some(next @ ('\\' | '"')) if sign == '\\' => next,
                Some('%') if sign == '%' => '%',
                other => panic!("{sign}{other:?} in {line}"),
            },
            ('"', _) => panic!("a quote in {line}"),
            _ => letter,
        });
    }
    let (name, value) = text.split_once('=').expect(line);
    (name.to_owned(), value.to_owned())
}

#[test]
fn the_line_for_a_unit() {
    let lab = Lab::new();
    let program = dynamic(&lab);
    let (name, value) = of_unit(&lines(&lab)["a systemd unit"]);
    assert_eq!((&*name, &value), ("LD_PRELOAD", &lab.path("100%s/liballograft.so").display().to_string()));
    serves(Command::new(program).env(name, value));
}

/// The steps of a Dockerfile make an image, and `inspect` finds the donor in its programs.
#[test]
fn the_lines_for_a_dockerfile() {
    let lab = Lab::new();
    root(&lab);
    let (mut layer, mut environment) = (Tar::default(), Vec::new());
    for step in lines(&lab)["Dockerfile"].lines() {
        let (instruction, words) = step.split_once(' ').expect(step);
        let plain = |letter: char| letter.is_ascii_alphanumeric() || " /._-=".contains(letter);
        assert!(words.chars().all(plain), "quotes, escapes or variables: {step}");
        match (instruction, &words.split(' ').collect::<Vec<_>>()[..]) {
            // A destination with a slash at its end is a folder. The context is the folder of the file.
            ("COPY", [source, folder]) if folder.ends_with('/') => {
                let bytes = fs::read(lab.path("100%s").join(source)).unwrap();
                layer = layer.file(&format!("{folder}{source}")[1..], 0o644, &bytes);
            }
            ("ENV", [variable]) => environment.push((*variable).to_owned()),
            _ => panic!("{step}"),
        }
    }
    let layers = vec![(Packing::Plain, tree(&lab)), (Packing::Plain, layer.bytes())];
    lab.put("image", &Layout::new(&[Image { architecture: "amd64", environment, layers }]).tar());
    let ran = lab.run(["inspect", "image", "--json"]).exits(0);
    let document = ran.json();
    let malloc = &file(&document, "/usr/bin/program")["malloc"];
    assert_eq!(
        (&malloc["name"], &malloc["file"]),
        (&"snmalloc".into(), &"/usr/lib/liballograft.so".into()),
        "{}",
        ran.err
    );
}
