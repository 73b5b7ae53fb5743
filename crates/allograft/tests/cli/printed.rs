//! Text from files, and their names, are printed without effect on a terminal: no control characters but the program's
//! own line ends, no forged line, no colour but the program's own.

use std::ffi::OsStr;
use std::process::Command;

use fixtures::{Arch, Ran};

use crate::bundle::{FOLDER, SDK, stock};
use crate::bundles_hostile::{add, gzip, tar};
use crate::lab::Lab;

/// Sets a terminal's title, rings the bell, begins a line, clears the screen by a C1 sequence, and reverses the
/// direction of text.
const HOSTILE: &str = "x\x1b]0;owned\x07\x1b[31m\nFORGED\r\nFORGED \u{9b}2J\u{202e}\u{2066}";

/// Whether a terminal would act on the character.
fn acts(character: char) -> bool {
    character.is_control()
        || ('\u{202a}'..='\u{202e}').contains(&character)
        || ('\u{2066}'..='\u{2069}').contains(&character)
}

#[track_caller]
fn clean(ran: &Ran) {
    for text in [&ran.out, &ran.err] {
        assert!(!text.replace('\n', "").contains(acts), "{text:?}");
        assert!(!text.lines().any(|line| line.trim_start().starts_with("FORGED")), "{text:?}");
    }
}

/// Runs the program with and without colours. With colours, no other control sequences than the program's own may
/// remain. Returns the run without.
#[track_caller]
fn run(lab: &Lab, arguments: &[&str]) -> Ran {
    let colored = lab
        .run(arguments.iter().chain(&["--color=always", "--dry-run"][..if arguments[0] == "graft" { 2 } else { 1 }]));
    let plain = |text: &str| {
        let own = ["1", "2", "31", "32", "33", "0"];
        let text = own.iter().fold(text.to_owned(), |text, code| text.replace(&format!("\x1b[{code}m"), ""));
        // The parser of command lines underlines, too.
        text.replace("\x1b[4m", "")
    };
    clean(&Ran { code: 0, out: plain(&colored.out), err: plain(&colored.err) });
    assert!(!(colored.out + &colored.err).contains("\x1b[31m\\n"), "a colour of somebody else's");
    let ran = lab.run(arguments);
    clean(&ran);
    ran
}

/// Returns the graft with a note of any donor, version and options.
fn with_note(mut graft: Vec<u8>, note: &str) -> Vec<u8> {
    let at = graft.windows(15).position(|window| window == b"donor=mimalloc\n").expect("a note");
    graft[at..at + 512].fill(0);
    graft[at..at + note.len()].copy_from_slice(note.as_bytes());
    graft
}

#[test]
fn what_a_note_says() {
    let lab = Lab::new();
    let libc = lab.libc("libc.a");
    lab.libc("stock.a");
    lab.run(["graft", "libc.a", "--donor", "mimalloc", "--strings", "off"]).exits(0);
    let value = HOSTILE.replace('\n', "\x0b");
    let note = format!(
        "donor=mimalloc{value}\nversion={value}\nFORGED=1\noptions={value}\nobject={value}\nallograft={value}\n"
    );
    let graft = with_note(std::fs::read(&libc).unwrap(), &note);
    std::fs::write(&libc, &graft).unwrap();
    lab.put("alone.a", &graft);
    let shown = r"mimallocx\u{1b}]0;owned\u{7}\u{1b}[31m\u{b}FORGED";
    let said = run(&lab, &["inspect", "alone.a"]).out;
    assert!(said.contains(shown), "{said}");
    for arguments in [&["inspect", "-v", "alone.a", "stock.a"][..], &["inspect", "alone.a", "stock.a"]] {
        let said = run(&lab, arguments).out;
        assert!(said.contains(shown), "{said}");
    }
    let ran = run(&lab, &["inspect", "alone.a", "--expect", "mimalloc"]).exits(1);
    assert!(ran.err.contains(shown), "{}", ran.err);
    let ran = lab.run(["inspect", "alone.a", "--json"]).exits(0);
    clean(&ran);
    assert_eq!(ran.json()["files"][0]["malloc"]["name"], format!("mimalloc{value}"), "JSON keeps everything");
    for arguments in [
        &["verify", "--static-only", "alone.a"][..],
        &["verify", "--static-only", "alone.a", "--stock", "stock.a"],
        &["graft", "alone.a"],
        &["undo", "libc.a"],
    ] {
        run(&lab, arguments);
    }
}

#[test]
fn names_of_files() {
    let lab = Lab::new();
    let host = format!("{HOSTILE}/libc.a");
    lab.libc(&host);
    lab.libc("b/libc.a");
    lab.put(format!("{HOSTILE}/text"), b"no archive");
    lab.put(format!("{HOSTILE}/broken.a"), b"!<arch>\nbroken");
    let text = format!("{HOSTILE}/text");
    for arguments in [
        &["inspect", HOSTILE][..],
        &["inspect", "."],
        &["inspect", &host],
        &["inspect", &host, "--expect", "go"],
        &["inspect", &host, "--expect", HOSTILE],
        &["inspect", &text],
        &["graft", HOSTILE, "--donor", "mimalloc"],
        &["inspect", &host, "-v"],
        &["verify", "--static-only", HOSTILE],
        &["graft", HOSTILE, "-v", "--donor", "mimalloc3"],
        &["graft", &host, "-o", "out.a"],
        &["graft", "out.a", "-o", HOSTILE],
        &["graft", &text],
        &["undo", HOSTILE],
        &["undo", "."],
        &["undo", &text],
        &["verify", &text],
        &["emit", "--target", "x86_64-linux-musl", "-o", &format!("{HOSTILE}/donor.o")],
        &["emit", "--target", HOSTILE],
        &["emit", "--target", &format!("{HOSTILE}-linux-musl")],
        &["graft", "b", "--donor", HOSTILE],
        &["graft", "b", "--set", HOSTILE],
        &["graft", "b", "--set", &format!("a={HOSTILE}")],
        &["graft", "b", "--set", &format!("{HOSTILE}=1")],
        &["graft", "b", HOSTILE],
        &["graft", &format!("--{HOSTILE}")],
        &[HOSTILE],
        &["bench", "--from", &text],
        &["bench", "--", &text],
    ] {
        run(&lab, arguments);
    }
    let ran = lab.run(["inspect", &host, "--json"]).exits(0);
    clean(&ran);
    assert_eq!(ran.json()["files"][0]["path"], host, "JSON keeps everything");
    let ran = lab.run(["graft", &text, "--json"]).exits(2);
    clean(&ran);
    assert!(ran.json()["error"]["message"].as_str().unwrap().contains(HOSTILE));
}

#[test]
fn what_can_be_pasted_stays_that() {
    let lab = Lab::new();
    let folder = "it's \x1b[31m\nhere";
    lab.libc(format!("{folder}/libc.a"));
    let ran = run(&lab, &["graft", &format!("{folder}/libc.a")]).exits(0);
    let undo = ran.out.lines().find_map(|line| line.trim().strip_prefix("undo:")).expect("what undoes it").trim();
    let undo = undo.replace("allograft", "\"$ALLOGRAFT\"");
    // dash, Debian's sh, does not implement POSIX.1-2024 yet.
    let mut shell = Command::new("bash");
    shell.arg("-c").arg(&undo).env("ALLOGRAFT", env!("CARGO_BIN_EXE_allograft")).current_dir(lab.path(""));
    let status = shell.status();
    assert!(status.expect("bash").success(), "{undo}");
    lab.run(["inspect", &format!("{folder}/libc.a"), "--expect", "mallocng"]).exits(0);
}

#[test]
fn names_in_bundles() {
    let lab = Lab::new();
    let libc = stock(Arch::X86_64);
    let entry = |name: &str| format!("{FOLDER}/{SDK}/{}/{name}", HOSTILE.replace('/', ""));
    for more in ["libc.a", "skipped/libc.a"] {
        let bytes = tar(|builder| {
            add(builder, &entry("usr/libc.a"), tar::EntryType::Regular, &libc);
            let content = if more == "libc.a" { &libc[..] } else { b"no archive" };
            add(builder, &entry(more), tar::EntryType::Regular, content);
        });
        lab.put("sdk.tar.gz", &gzip(&bytes));
        for arguments in [
            &["inspect", "sdk.tar.gz"][..],
            &["inspect", "-v", "sdk.tar.gz"],
            &["inspect", "sdk.tar.gz", "--expect", "go"],
            &["graft", "sdk.tar.gz", "-v"],
            &["verify", "--static-only", "sdk.tar.gz"],
            &["undo", "sdk.tar.gz"],
        ] {
            run(&lab, arguments);
        }
    }
    lab.put("sdk.tar.gz", &gzip(&tar(|builder| add(builder, &entry("../x"), tar::EntryType::Regular, b"x"))));
    let ran = run(&lab, &["graft", "sdk.tar.gz"]).exits(3);
    assert!(ran.err.contains(r"\u{1b}]0;owned"), "{}", ran.err);
}

#[test]
fn what_cargo_allograft_says() {
    for arguments in [
        &["allograft", HOSTILE][..],
        &["allograft", "build", "--config", HOSTILE],
        &["allograft", "bench", "--donors", HOSTILE],
    ] {
        let lab = Lab::new();
        let mut command = Command::new(env!("CARGO_BIN_EXE_cargo-allograft"));
        // This replaces cargo, whose own messages are not tested.
        command.env("CARGO", OsStr::new("/bin/false")).args(arguments).current_dir(lab.path(""));
        clean(&command.output().expect("a run").into());
    }
}
