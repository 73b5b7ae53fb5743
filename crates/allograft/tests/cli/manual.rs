//! Help, manual pages, completions, and wrong usage.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use fixtures::shell::word;

use crate::lab::Lab;

const COMMANDS: [&str; 9] = ["graft", "undo", "inspect", "verify", "emit", "run", "donors", "completions", "man"];

/// The names of all pages; the first is that of the program.
const PAGES: [&str; 14] = [
    "",
    "graft",
    "undo",
    "inspect",
    "verify",
    "emit",
    "cc",
    "run",
    "donors",
    "bench",
    "profile",
    "completions",
    "man",
    "cargo",
];

#[test]
fn help_names_every_command_and_has_examples() {
    let lab = Lab::new();
    let out = lab.run(["--help"]).exits(0).out;
    for command in COMMANDS {
        assert!(out.contains(command), "{command}");
        let help = lab.run([command, "--help"]).exits(0).out;
        assert!(help.contains("Examples:"), "{command}");
    }
    // Every flag behind it is the compiler's.
    let help = lab.run(["help", "cc"]).exits(0).out;
    assert!(help.contains("Examples:") && help.contains("--cc") && !help.contains("--help"), "{help}");
    lab.run(["man", "cook"]).exits(2).says(&["`cook`", "help: "]);
}

/// `-h`, `--help` and `help` say the same, which fits on a screen. The words of flags are counted in `src/help.rs`.
#[test]
fn help_fits_on_a_screen() {
    let lab = Lab::new();
    let said = |words: &[&str]| {
        let ran = lab.command().args(words).env("COLUMNS", "80").output().unwrap();
        fixtures::Ran::from(ran).exits(0).out
    };
    for command in PAGES.iter().filter(|name| !["", "cargo"].contains(name)) {
        let help = said(&["help", command]);
        let most = if *command == "bench" { 52 } else { 40 };
        assert!(help.lines().count() <= most, "{command}: {} lines: {help}", help.lines().count());
        assert!(help.lines().all(|line| line.chars().count() <= 80), "{help}");
        // Every flag behind `cc` is the compiler's.
        if *command != "cc" {
            assert_eq!(said(&[command, "--help"]), help);
            assert_eq!(said(&[command, "-h"]), help);
        }
    }
    let help = said(&["--help"]);
    assert_eq!((said(&["-h"]), said(&["help"])), (help.clone(), help.clone()));
    assert!(help.lines().count() <= 40 && help.lines().all(|line| line.chars().count() <= 80), "{help}");
    for host in ["libc.a", "program", "loader", "image"] {
        assert!(help.contains(host), "{host}: {help}");
    }
}

/// Returns a page as a terminal of 80 columns shows it, and what groff says of it.
fn shown(page: &str) -> (String, String) {
    let mut groff = Command::new("groff")
        .args(["-man", "-ww", "-Tascii", "-P-cbou", "-rLL=78n"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("groff, of Debian's groff-base");
    let mut input = groff.stdin.take().unwrap();
    let text = page.to_owned();
    let writer = std::thread::spawn(move || std::io::Write::write_all(&mut input, text.as_bytes()).unwrap());
    let output = groff.wait_with_output().unwrap();
    writer.join().unwrap();
    assert!(output.status.success(), "{page}");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr))
}

/// Every page against its golden file; groff finds nothing to warn of. `ALLOGRAFT_BLESS=1` writes the files.
#[test]
fn manual_pages() {
    let lab = Lab::new();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/golden/man");
    for name in PAGES {
        let words: Vec<&str> = ["man", name].into_iter().filter(|word| !word.is_empty()).collect();
        let page = lab.run(words).exits(0).out;
        let (text, warnings) = shown(&page);
        assert_eq!(warnings, "", "{name}: {page}");
        assert!(text.lines().all(|line| line.len() <= 200) && !text.contains("EXTRA"), "{text}");
        for section in
            ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "ENVIRONMENT", "EXAMPLES", "SEE ALSO"]
        {
            assert!(text.lines().any(|line| line == section), "{name}: no {section}: {text}");
        }
        let file = folder.join(if name.is_empty() { "allograft.1".to_owned() } else { format!("allograft-{name}.1") });
        if std::env::var_os("ALLOGRAFT_BLESS").is_some() {
            fs::create_dir_all(&folder).unwrap();
            fs::write(&file, &page).unwrap();
        }
        let golden = fs::read_to_string(&file).unwrap_or_default();
        let help = "help: if it should be so, `ALLOGRAFT_BLESS=1 cargo xtask test cli manual` writes it";
        assert!(golden == page, "{}: found:\n{page}\n{help}", file.display());
    }
    // Commands on a page are not refilled.
    let (graft, _) = shown(&lab.run(["man", "graft"]).exits(0).out);
    for line in ["allograft graft sysroot/lib/libc.a --donor mimalloc3 --set purge_delay=0", "# string functions only"]
    {
        assert!(graft.lines().any(|shown| shown.trim() == line), "{line} in {graft}");
    }
}

/// Words that `bash` completes a command line with.
fn completed(lab: &Lab, words: &[&str]) -> Vec<String> {
    let script = lab.put("completions.bash", lab.run(["completions", "bash"]).exits(0).out.as_bytes());
    let (current, previous) = (words[words.len() - 1], words[words.len() - 2]);
    let quoted: Vec<String> = words.iter().map(word).collect();
    let commands = format!(
        "source {}; COMP_WORDS=({}); COMP_CWORD={}; _allograft allograft {} {}; \
         printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        word(&script),
        quoted.join(" "),
        words.len() - 1,
        word(current),
        word(previous)
    );
    let output = Command::new("bash").args(["--norc", "-c", &commands]).output().expect("bash");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn completions_for_shells() {
    let lab = Lab::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = lab.run(["completions", shell]).exits(0).out;
        let values = ["snmalloc", "x86_64-unknown-linux-musl", "purge_delay=", "mallocng"];
        for word in COMMANDS.iter().chain(&values) {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
}

/// bash completes values as well as flags: donors, triples, options, names for `--expect`, commands.
#[test]
fn bash_completes_values() {
    let lab = Lab::new();
    for (words, expected) in [
        (&["allograft", "gr"][..], "graft"),
        (&["allograft", "graft", "--donor", "snm"], "snmalloc-checks"),
        (&["allograft", "graft", "--strings", "o"], "off"),
        (&["allograft", "graft", "--profile", "s"], "small"),
        (&["allograft", "graft", "--set", "purge_d"], "purge_delay="),
        (&["allograft", "emit", "--target", "x86_64-un"], "x86_64-unknown-linux-musl"),
        (&["allograft", "emit", "--as", "sh"], "shared"),
        (&["allograft", "inspect", "--expect", "mall"], "mallocng"),
        (&["allograft", "donors", "sn"], "snmalloc"),
        (&["allograft", "man", "gr"], "graft"),
        (&["allograft", "bench", "--donors", "prof"], "profiles"),
        (&["allograft", "completions", "z"], "zsh"),
        (&["allograft", "graft", "--dry"], "--dry-run"),
    ] {
        let found = completed(&lab, words);
        let typed = words[words.len() - 1];
        assert!(found.iter().any(|word| word == expected), "{words:?}: {found:?}");
        assert!(found.iter().all(|word| word.starts_with(typed)), "{words:?}: {found:?}");
    }
}

/// Text for a narrow terminal is broken between words; commands are not broken at all.
#[test]
fn a_narrow_terminal() {
    let lab = Lab::new();
    lab.libc("libc.a");
    let on_terminal = |columns: usize, command: &str| {
        let script = format!("stty cols {columns} rows 40; \"$ALLOGRAFT\" {command}");
        let mut run = Command::new("script");
        run.args(["-qec", &script, "/dev/null"]).env("ALLOGRAFT", env!("CARGO_BIN_EXE_allograft"));
        let output = run.env("TERM", "dumb").env("NO_COLOR", "1").current_dir(lab.path("")).stdin(Stdio::null());
        String::from_utf8(output.output().expect("script, of Debian's bsdutils").stdout).unwrap().replace('\r', "")
    };
    let wide = on_terminal(200, "donors --licenses --color never");
    assert!(wide.contains("Permission is hereby granted"), "{wide}");
    for command in ["graft missing", "inspect -v libc.a", "inspect libc.a --expect jemalloc", "donors", "donors -v"] {
        let (wide, narrow) = (on_terminal(400, command), on_terminal(60, command));
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let longest = words(&wide).iter().map(|word| word.chars().count()).max().unwrap_or_default();
        assert!(wide.lines().any(|line| line.chars().count() > 60), "{command}: {wide}");
        for line in narrow.lines() {
            let quoted = line.contains('`') && line.chars().count() <= 60 + longest;
            assert!(line.chars().count() <= 60 || quoted, "{command}: {line}");
        }
        if !command.starts_with("donors") {
            assert_eq!(words(&wide), words(&narrow), "{command}: a broken word");
        }
    }
    let said = on_terminal(40, "graft libc.a -o a-name-that-is-longer-than-the-terminal-is-wide.a");
    assert!(said.lines().any(|line| line.ends_with("is-wide.a --stock libc.a")), "a whole command: {said}");
}

#[test]
fn wrong_usage_is_2_in_words_and_in_json() {
    let lab = Lab::new();
    let first = lab.run::<&str>([]).exits(2);
    assert_eq!((first.out.as_str(), first.err.lines().count()), ("", 5), "{}", first.err);
    for next in ["inspect ./program", "bench ./program", "graft ./program", "help", "cargo allograft build"] {
        assert!(first.err.contains(next), "{next} in {}", first.err);
    }
    assert!(first.err.lines().all(|line| line.len() <= 110), "{}", first.err);
    for wrong in [&["graft"][..], &["cook"], &["graft", "a", "--no-such"], &["inspect"], &["graft", "a", "-q", "-v"]] {
        let ran = lab.run(wrong).exits(2);
        assert_eq!(ran.out, "");
        assert!(ran.err.contains("Usage:") || ran.err.contains("--help"), "{}", ran.err);
        let ran = lab.run(wrong.iter().chain(&["--json"])).exits(2);
        assert_eq!(ran.json()["error"]["exit_code"], 2, "{wrong:?}");
        assert!(!ran.err.is_empty());
    }
}

#[test]
fn colours_when_asked_for() {
    let lab = Lab::new();
    let colourful = |ran: fixtures::Ran| ran.err.contains("\x1b[");
    assert!(!colourful(lab.run(["graft", "missing"])));
    assert!(colourful(lab.run(["graft", "missing", "--color=always"])));
    assert!(!colourful(lab.run(["graft", "missing", "--color", "never"])));
}

#[test]
fn the_version_tells_which_allocator_the_program_carries_itself() {
    let lab = Lab::new();
    assert_eq!(lab.run(["--version"]).exits(0).out, format!("allograft {}\n", env!("CARGO_PKG_VERSION")));
    let inspected = lab.run(["inspect", env!("CARGO_BIN_EXE_allograft"), "--json"]).exits(0).json();
    let malloc = inspected["files"][0]["malloc"]["name"].as_str().unwrap().to_owned();
    for flags in [&["--version", "--verbose"][..], &["-v", "--version"], &["-Vv"]] {
        let out = lab.run(flags).exits(0).out;
        assert!(out.starts_with(&format!("allograft {}\n", env!("CARGO_PKG_VERSION"))), "{out}");
        assert!(out.contains(&format!("carries: {malloc}")), "{malloc} in {out}");
        assert!(donors::all().iter().all(|donor| out.contains(&format!("{} {}", donor.name, donor.version))), "{out}");
    }
}
