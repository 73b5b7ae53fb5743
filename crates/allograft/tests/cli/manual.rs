//! Help, manual pages, completions, and wrong usage.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use fixtures::shell::word;

use crate::lab::Lab;

const COMMANDS: [&str; 10] =
    ["graft", "undo", "inspect", "verify", "emit", "run", "donors", "heap", "completions", "man"];

/// The names of all pages; the first is that of the program.
const PAGES: [&str; 15] = [
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
    "heap",
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

/// Command lines as an interactive `bash` has them after a key that completes. `more` is shell code that is read before
/// the script.
fn completed(lab: &Lab, more: &str, lines: &[&str]) -> Vec<String> {
    let script = lab.put("completions.bash", lab.run(["completions", "bash"]).exits(0).out.as_bytes());
    let setup = lab.put("bashrc", format!("PS1=; {more}\nsource {}\n", word(&script)).as_bytes());
    // The line is completed, shown by `echo`, and run as that.
    let mut keys: String = lines.iter().map(|line| format!("{line}\t\x01echo completed: \n")).collect();
    keys.push_str("exit\n");
    let program = Path::new(env!("CARGO_BIN_EXE_allograft")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
    let mut bash = Command::new("script");
    bash.arg("-qec").arg(format!("bash --noprofile --rcfile {} -i", word(&setup))).arg("/dev/null");
    bash.env("PATH", path).env("TERM", "dumb").env("HOME", lab.path("")).env_remove("RUSTUP_HOME");
    bash.env("INPUTRC", "/dev/null").env_remove("XDG_CONFIG_HOME").current_dir(lab.path(""));
    let mut bash = bash.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("script, of Debian's bsdutils");
    bash.stdin.take().unwrap().write_all(keys.as_bytes()).unwrap();
    let text = String::from_utf8(bash.wait_with_output().unwrap().stdout).unwrap().replace('\r', "");
    let shown: Vec<String> = text
        .lines()
        .filter_map(|line| line.strip_prefix("completed: "))
        .map(|line| line.trim_end().to_owned())
        .collect();
    assert_eq!(shown.len(), lines.len(), "{text}");
    shown
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

/// bash completes values as well as flags: donors, triples, options, names for `--expect`, commands; also where it
/// breaks a value into words of its own, at `:`, `=` and `@`; and it completes `cargo allograft`.
#[test]
fn bash_completes_values() {
    let lab = Lab::new();
    fs::create_dir_all(lab.path(".rustup/toolchains/nightly-2026")).unwrap();
    let sdks = lab.path(".swiftpm/swift-sdks");
    for (bundle, id) in [("one", "swift-6.2_static-linux-0.1.0"), ("two", "swift-$(touch ran)")] {
        let bundle = sdks.join(bundle).with_extension("artifactbundle");
        fs::create_dir_all(&bundle).unwrap();
        let manifest = format!("{{\"artifacts\": {{\"{id}\": {{\"type\": \"swiftSDK\"}}}}}}");
        fs::write(bundle.join("info.json"), manifest).unwrap();
    }
    let cases = [
        ("allograft gra", "allograft graft"),
        ("allograft graft --donor snmalloc-c", "allograft graft --donor snmalloc-checks"),
        ("allograft graft --donor=snmalloc-c", "allograft graft --donor=snmalloc-checks"),
        ("allograft graft --strings of", "allograft graft --strings off"),
        ("allograft graft --profile s", "allograft graft --profile s"),
        ("allograft graft --profile sm", "allograft graft --profile small"),
        ("allograft graft --set purge_del", "allograft graft --set purge_delay="),
        ("allograft graft --set=purge_del", "allograft graft --set=purge_delay="),
        ("allograft emit --target x86_64-un", "allograft emit --target x86_64-unknown-linux-musl"),
        ("allograft emit --as sh", "allograft emit --as shared"),
        ("allograft inspect --expect mallocn", "allograft inspect --expect mallocng"),
        ("allograft donors snmalloc-c", "allograft donors snmalloc-checks"),
        ("allograft man gra", "allograft man graft"),
        ("allograft bench --donors prof", "allograft bench --donors profiles"),
        ("allograft completions z", "allograft completions zsh"),
        ("allograft graft --dry", "allograft graft --dry-run"),
        ("allograft graft ru", "allograft graft rust:"),
        ("allograft graft rust:ri", "allograft graft rust:riscv64gc-unknown-linux-musl"),
        ("allograft verify -v  rust:x86_64", "allograft verify -v rust:x86_64-unknown-linux-musl"),
        ("allograft undo rust:T@ni", "allograft undo rust:T@nightly-2026"),
        ("allograft inspect swift:sw", "allograft inspect swift:swift-6.2_static-linux-0.1.0"),
        ("allograft graft comp", "allograft graft completions.bash"),
        ("cargo allograft insta", "cargo allograft install"),
        ("cargo +nightly allograft insta", "cargo +nightly allograft install"),
        ("cargo allograft build --donor snmalloc-c", "cargo allograft build --donor snmalloc-checks"),
        ("cargo allograft build --donor=snmalloc-c", "cargo allograft build --donor=snmalloc-checks"),
        ("cargo allograft build --rel", "cargo allograft build --release"),
        ("cargo allograft --donor-pro", "cargo allograft --donor-profile"),
        ("cargo allograft bench --donors prof", "cargo allograft bench --donors profiles"),
        ("cargo allograft bench --preci", "cargo allograft bench --precision"),
        ("cargo-allograft insta", "cargo-allograft install"),
        ("cargo-allograft build --donor=snmalloc-c", "cargo-allograft build --donor=snmalloc-checks"),
        ("cargo build --rel", "cargo build --release"),
        ("cargo metad", "cargo metadata"),
    ];
    // In the manner of cargo's own.
    let cargo = "_cargo() { case ${COMP_WORDS[1]} in build) COMPREPLY=($(compgen -W '--release --target' -- \"$2\"));; \
                 *) COMPREPLY=($(compgen -W 'build metadata' -- \"$2\"));; esac; }\n\
                 complete -o bashdefault -o default -F _cargo cargo";
    let (typed, expected): (Vec<&str>, Vec<&str>) = cases.into_iter().unzip();
    assert_eq!(completed(&lab, cargo, &typed), expected);
    // Words that are not broken at these characters.
    let whole = "COMP_WORDBREAKS=$' \\t\\n\"><;|&('";
    assert_eq!(completed(&lab, whole, &typed[..typed.len() - 2])[..22], expected[..22]);
    assert!(!lab.path("ran").exists());
}

/// Where bash-completion loads what completes `cargo` when it is asked for it, that is loaded, and asked before.
#[test]
fn bash_loads_what_completes_cargo() {
    let lab = Lab::new();
    let lazy = "_comp_load() { _cargo() { COMPREPLY=(metadata); }; complete -F _cargo cargo; }";
    let expected = ["cargo metadata", "cargo allograft install", "cargo metadata"];
    assert_eq!(completed(&lab, lazy, &["cargo metad", "cargo allograft insta", "cargo m"]), expected);
    assert_eq!(completed(&lab, "", &["cargo metad", "cargo allograft insta"]), ["cargo metad", expected[1]]);
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
