//! Help, manual pages, completions, and wrong usage.

use crate::lab::Lab;

const COMMANDS: [&str; 9] = ["graft", "undo", "inspect", "verify", "emit", "run", "donors", "completions", "man"];

#[test]
fn help_names_every_command_and_has_examples() {
    let lab = Lab::new();
    let out = lab.run(["--help"]).exits(0).out;
    for command in COMMANDS {
        assert!(out.contains(command), "{command}");
        let help = lab.run([command, "--help"]).exits(0).out;
        assert!(help.contains("Examples:"), "{command}");
        let page = lab.run(["man", command]).exits(0).out;
        assert!(page.starts_with(".ie") || page.contains(".TH"), "{command}: {page}");
        assert!(page.contains(&format!("allograft\\-{command}")), "{command}: {page}");
    }
    // Every flag behind it is the compiler's.
    let help = lab.run(["help", "cc"]).exits(0).out;
    assert!(help.contains("Examples:") && help.contains("--cc") && !help.contains("--help"), "{help}");
    assert!(lab.run(["man", "cc"]).exits(0).out.contains("allograft\\-cc"));
    lab.run(["man", "cook"]).exits(2).says(&["`cook`", "help: "]);
}

#[test]
fn completions_for_shells() {
    let lab = Lab::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = lab.run(["completions", shell]).exits(0).out;
        assert!(COMMANDS.iter().all(|command| script.contains(command)), "{shell}");
    }
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
