//! Every JSON document against its golden file and its schema, and the page about them.
//! With `ALLOGRAFT_BLESS=1` the golden files and the page are written.

mod page;
mod schema;

use std::fs;
use std::path::{Path, PathBuf};

use fixtures::image::{Image, Layout, Tar};
use serde_json::Value;
use similar::TextDiff;

use crate::executables::program;
use crate::lab::Lab;

/// How to write the files that the tests compare with.
const BLESS: &str = "help: if it should be so, `ALLOGRAFT_BLESS=1 cargo xtask test cli documents` writes it";

/// The lines around the schemas in the page.
const BEGIN: &str = "<!-- made by `ALLOGRAFT_BLESS=1 cargo xtask test cli documents` -->\n\n";
const END: &str = "<!-- end of what was made -->\n";

/// The number of items of a list that golden files show.
const SHOWN: usize = 2;

#[test]
fn the_page_has_every_field() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/json.md");
    let text = fs::read_to_string(&path).expect("docs/json.md");
    let (before, rest) = text.split_once(BEGIN).expect("the begin of what is made");
    let (_, after) = rest.split_once(END).expect("the end of what is made");
    same(&path, &format!("{before}{BEGIN}{}{END}{after}", page::text()));
}

#[test]
fn graft_of_an_archive_and_undo() {
    let lab = Lab::new();
    lab.libc("libc.a");
    let purge = ["graft", "libc.a", "--set", "purge_delay=0", "--json"];
    golden("graft", "graft_archive", &lab, &lab.run(purge).exits(0).out);
    golden("verify", "verify", &lab, &lab.run(["verify", "libc.a", "--static-only", "--json"]).exits(0).out);
    golden("undo", "undo", &lab, &lab.run(["undo", "libc.a", "--json"]).exits(0).out);
}

#[test]
fn graft_of_an_executable() {
    let lab = Lab::new();
    program(&lab, "echo");
    let ran = lab.run(["graft", "echo", "--strings", "on", "--json", "--try", "--", "one"]).exits(0);
    golden("graft", "graft_executable", &lab, &ran.out);
}

#[test]
fn inspect() {
    let lab = Lab::new();
    lab.libc("libc.a");
    let ran = lab.run(["inspect", "libc.a", "missing", "--expect", "mallocng", "--json"]).exits(2);
    golden("inspect", "inspect", &lab, &ran.out);
}

#[test]
fn inspect_of_an_image() {
    let lab = Lab::new();
    program(&lab, "echo");
    let layer = Tar::default().file("bin/echo", 0o755, &fs::read(lab.path("echo")).expect("a program")).bytes();
    let image = Image::new(layer).with("LD_PRELOAD=/usr/lib/libfast.so");
    lab.put("app.tar", &Layout::new(&[image]).tar());
    let ran = lab.run(["inspect", "app.tar", "--expect", "mallocng", "--json"]).exits(0);
    golden("inspect", "inspect_image", &lab, &ran.out);
}

#[test]
fn donors() {
    let lab = Lab::new();
    golden("donors", "donors", &lab, &lab.run(["donors", "--json"]).exits(0).out);
}

#[test]
fn emit() {
    let lab = Lab::new();
    let ran = lab.run(["emit", "--target", "x86_64-linux-musl", "--json"]).exits(0);
    golden("emit", "emit", &lab, &ran.out);
}

#[test]
fn texts() {
    let lab = Lab::new();
    for command in [&["man"][..], &["man", "graft"], &["completions", "bash"]] {
        let plain = lab.run(command).exits(0).out;
        let document = lab.run(command.iter().chain(&["--json"])).exits(0).json();
        fits("text", &document);
        assert_eq!(document["text"], plain, "{command:?}");
    }
}

#[test]
fn failure() {
    let lab = Lab::new();
    golden("failure", "failure", &lab, &lab.run(["undo", "missing", "--json"]).exits(2).out);
}

/// The golden file is a saved run of `bench` with one round; `--from` prints it unchanged.
#[test]
fn bench() {
    let lab = Lab::new();
    let path = golden_file("bench");
    let (kept, from) = (fs::read_to_string(&path).expect("a golden file"), path.to_str().expect("a path"));
    assert_eq!(lab.run(["bench", "--from", from, "--json"]).exits(0).out, kept);
    fits("bench", &serde_json::from_str(&kept).expect("JSON"));
}

/// Asserts that a document has the fields that the page lists.
#[track_caller]
pub(crate) fn fits(document: &str, value: &Value) {
    let misfits = schema::misfits(value, &schema::document(document), document);
    assert!(misfits.is_empty(), "{}", misfits.join("\n"));
}

/// Asserts that a document fits its schema and equals the golden file, with placeholders for variable parts.
#[track_caller]
fn golden(document: &str, name: &str, lab: &Lab, out: &str) {
    fits(document, &serde_json::from_str(out).expect("JSON"));
    golden_of(name, lab, out);
}

/// Asserts that a document equals the golden file, with placeholders for variable parts.
#[track_caller]
pub(crate) fn golden_of(name: &str, lab: &Lab, out: &str) {
    let mut value: Value = serde_json::from_str(out).expect("JSON");
    assert_eq!(format!("{value:#}\n"), out, "another layout");
    let folder = lab.path("").display().to_string();
    settle("", &mut value, folder.trim_end_matches('/'));
    same(&golden_file(name), &format!("{value:#}\n"));
}

fn golden_file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/golden").join(name).with_extension("json")
}

/// Asserts that the file has this text, or writes it.
#[track_caller]
fn same(path: &Path, text: &str) {
    if std::env::var_os("ALLOGRAFT_BLESS").is_some() {
        fs::write(path, text).expect("a file that can be written");
        return;
    }
    let kept = fs::read_to_string(path).unwrap_or_default();
    let diff = TextDiff::from_lines(kept.as_str(), text);
    let diff = diff.unified_diff().header("as it was", "as it is").to_string();
    assert!(kept == text, "{} is out of date:\n{diff}\n{BLESS}", path.display());
}

/// Replaces variable parts, such as the machine's and the donors', by placeholders, and cuts long lists. `name` is the
/// field's.
fn settle(name: &str, value: &mut Value, folder: &str) {
    match value {
        Value::Array(items) => {
            if items.len() > SHOWN {
                items.truncate(SHOWN);
                items.push("…".into());
            }
            items.iter_mut().for_each(|item| settle(name, item, folder));
        }
        Value::Object(fields) => fields.iter_mut().for_each(|(name, field)| settle(name, field, folder)),
        Value::String(text) if matches!(name, "version" | "allograft") => *text = "VERSION".to_owned(),
        Value::String(text) => *text = settled(&text.replace(folder, "/FOLDER"), matches!(name, "detail" | "member")),
        Value::Number(_) if !matches!(name, "schema_version" | "exit_code") => *value = 0.into(),
        Value::Number(_) | Value::Bool(_) | Value::Null => {}
    }
}

/// The text with placeholders for checksums and addresses and, if those vary, for counts.
fn settled(text: &str, counts: bool) -> String {
    let is_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let words = text.split_inclusive(|letter| !is_word(letter)).map(|piece| {
        let (word, end) = piece.split_at(piece.trim_end_matches(|letter| !is_word(letter)).len());
        let word = match word {
            _ if word.len() == 64 && word.bytes().all(|digit| digit.is_ascii_hexdigit()) => "SHA256",
            _ if word.starts_with("0x") => "ADDRESS",
            _ if counts && !word.is_empty() && word.bytes().all(|digit| digit.is_ascii_digit()) => "0",
            _ => word,
        };
        format!("{word}{end}")
    });
    words.collect()
}
