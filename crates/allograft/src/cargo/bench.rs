//! `cargo allograft bench --donors ...`: compiles the project's program once, links it once for each arm, and measures
//! the results.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{CommandFactory, FromArgMatches, Parser};

use super::arguments::{self, CargoCommand, Order};
use super::check_program;
use super::configuration::Configuration;
use super::relink::{self, Relink};
use super::run::{CopyFolder, build, cargo, conclude, targets};
use super::wrapper::{self, Session};
use crate::arguments::tell_and_end;
use crate::command::bench::{Arm, Bench, Libc, Linked, Scratch, StockMusl, typed};
use crate::failure::Failure;
use crate::global::Global;
use crate::help::on_a_screen;
use crate::output::Output;
use crate::program::Expected;
use crate::rust::Rustc;

/// The options of `allograft bench` that `cargo allograft bench` accepts.
#[derive(Debug, Parser)]
#[command(
    name = "cargo-allograft-bench",
    bin_name = "cargo allograft bench",
    override_usage = "cargo allograft bench [CARGO OPTIONS] [OPTIONS] [-- ARGS]"
)]
pub(crate) struct Measuring {
    #[command(flatten)]
    global: Global,
    #[command(flatten)]
    bench: Bench,
}

const ABOUT: &str = "Measure a Cargo project's program with stock musl and with each donor";

const AFTER_HELP: &str = "\
Any of these options selects this command. Without one, `cargo allograft bench`
is `cargo bench` with a donor in every benchmark. It builds for release, unless
--profile names another. All other options are cargo's own: --bin NAME ...

After `--` come the program's arguments, or a whole command that contains {out}.
In it, {threads} is replaced by each number of --threads.

Examples:
  cargo allograft bench --donors all -- --input data.txt
  cargo allograft bench --donors mimalloc,mimalloc3 --bin server -- --self-test";

/// The fields of `allograft bench`'s options that cargo decides here. These options are refused with a usage message,
/// since cargo has none of these names either.
const CARGO_DECIDES: [&str; 8] = ["suite", "host", "build", "build_glibc", "cc", "include", "quick", "from"];

/// Options that cargo has as well. They alone do not select this command.
const SHARED: [&str; 3] = ["color", "quiet", "verbose"];

impl Measuring {
    /// Returns the parser of the command line, with only the options that have a meaning here.
    pub(crate) fn parser() -> clap::Command {
        let parser = on_a_screen(Measuring::command().about(ABOUT)).after_help(AFTER_HELP);
        parser.mut_args(|argument| match argument.get_id().as_str() {
            id if CARGO_DECIDES.contains(&id) => argument.hide(true),
            "command" => argument.help("Arguments, or a command with {out}"),
            _ => argument,
        })
    }

    fn parse(ours: &[OsString]) -> Result<Measuring, clap::Error> {
        let mut parser = Measuring::parser();
        let matches =
            parser.try_get_matches_from_mut(std::iter::once(OsString::from("bench")).chain(ours.iter().cloned()))?;
        let typed = |id: &&&str| matches.value_source(id) == Some(ValueSource::CommandLine);
        if let Some(id) = CARGO_DECIDES.iter().find(typed) {
            let message =
                format!("`--{}` is not for `cargo allograft bench`: cargo builds the program", id.replace('_', "-"));
            return Err(parser.error(ErrorKind::ArgumentConflict, message));
        }
        Measuring::from_arg_matches(&matches)
    }
}

/// Returns the options of `allograft bench` in the spelling of the command line, each with whether it takes a value.
fn options() -> Vec<(String, bool)> {
    let parser = Measuring::command();
    let options = parser.get_arguments().filter(|argument| !["quiet", "verbose"].contains(&argument.get_id().as_str()));
    let option =
        |argument: &clap::Arg| Some((format!("--{}", argument.get_long()?), argument.get_action().takes_values()));
    options.filter_map(option).collect()
}

/// Whether the arguments ask for this command: the cargo command is `bench`, and there is an option of `allograft
/// bench` or a request for help.
pub(super) fn asked(words: &[OsString]) -> bool {
    let options = options();
    let (mut is_bench, mut asks) = (false, false);
    let mut own = words.iter().take_while(|word| *word != "--");
    while let Some(word) = own.next() {
        let text = word.to_string_lossy();
        let name = text.split('=').next().unwrap_or_default();
        let option = options.iter().find(|(option, _)| option == name);
        let takes_value = option.map_or(arguments::takes_value(name), |(_, takes_value)| *takes_value);
        asks |= option.is_some_and(|(option, _)| !SHARED.contains(&&option[2..])) || matches!(name, "--help" | "-h");
        if takes_value && name == text {
            own.next();
        } else if !text.starts_with('-') && !is_bench {
            // The first argument that is not an option is the command.
            is_bench = text == "bench";
            if !is_bench {
                return false;
            }
        }
    }
    is_bench && asks
}

/// Splits the arguments into cargo's and allograft's.
fn parted(words: &[OsString]) -> (Vec<OsString>, Vec<OsString>) {
    let options = options();
    let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
    let (mut cargos, mut ours) = (Vec::new(), Vec::new());
    let mut own = words[..end].iter();
    while let Some(word) = own.next() {
        let text = word.to_string_lossy();
        let name = text.split('=').next().unwrap_or_default();
        match options.iter().find(|(option, _)| option == name) {
            None => cargos.push(word.clone()),
            Some((_, takes_value)) => {
                ours.push(word.clone());
                if *takes_value && name == text {
                    ours.extend(own.next().cloned());
                }
            }
        }
        // Cargo has these too. `--quiet` holds for both; help is allograft's.
        if matches!(name, "-q" | "--quiet" | "-h" | "--help") {
            ours.push(word.clone());
        }
    }
    ours.extend(words[end..].iter().cloned());
    (cargos, ours)
}

pub(super) fn main(words: &[OsString]) -> ExitCode {
    let (cargos, ours) = parted(words);
    let parsed = Measuring::parse(&ours).and_then(|measuring| Ok((arguments::parse(&cargos)?, measuring)));
    let (arguments, measuring) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => return tell_and_end(error, "cargo allograft bench"),
    };
    let output = Output::new(&measuring.global);
    match arguments.order().and_then(|order| run(order, &measuring.bench, &output)) {
        Ok(code) => code,
        Err(failure) => output.fail(&failure),
    }
}

fn run(mut order: Order, bench: &Bench, output: &Output) -> Result<ExitCode, Failure> {
    order.command = CargoCommand::Build;
    order.name = "build".into();
    let mut typed_options = order.options.clone();
    if !order.has(&["--release", "-r"]) && order.values("--profile").is_empty() {
        order.options.push("--release".into());
        typed_options.push("--release".into());
    }
    let here = std::env::current_dir().map_err(|error| {
        Failure::usage(format!("no current folder: {error}")).with_help("change to the project's folder")
    })?;
    let configuration = Configuration::read(&here, &order.values("--config"))?;
    let rustc = Rustc::at(configuration.program("RUSTC", "rustc").unwrap_or_else(|| "rustc".into()));
    let targets = targets(&mut order, &configuration, &rustc, output)?;
    let [(name, triple)] = targets.as_slice() else {
        return Err(
            Failure::usage("programs of several targets cannot be compared").with_help("name one: `--target TRIPLE`")
        );
    };
    let host = StockMusl::find(Some(&rustc.libc(triple)?))?;
    if host.arch.name() != std::env::consts::ARCH {
        return Err(Failure::usage(format!("programs for `{triple}` do not run on this machine"))
            .with_help("measure on a machine of that architecture: rankings do not carry over"));
    }
    let arms = bench.arms_to_link(host.arch)?;
    let copies = CopyFolder::for_order(&order)?;
    apart(&mut order, &configuration, &copies.folder().join("bench"))?;
    let folder = Scratch::at(copies.folder()).map_err(Failure::io("write in", copies.folder()))?;
    let homes: Vec<PathBuf> = (0..arms.len()).map(|number| folder.path().join(format!("arm{number}"))).collect();
    for (arm, home) in arms.iter().zip(&homes) {
        host.copy(arm, &relink::lib(home))?;
    }
    let program = link(&order, &configuration, &rustc, name, folder.path(), &homes)?;
    let file = program.file_name().unwrap_or_default();
    let programs = arms.iter().zip(&homes).map(|(arm, home)| {
        let program = Relink::program(home, file)?;
        check(arm, &host, &program).map(|()| program).map_err(|failure| failure.message)
    });
    let programs: Vec<Result<PathBuf, String>> = programs.collect();
    match programs.first() {
        Some(Ok(_)) => {}
        Some(Err(reason)) => {
            return Err(Failure::usage(format!("{}: {reason}", arms[0].name)).with_help(
                "compare with stock only what a plain `cargo build` for musl links: mend that build first",
            ));
        }
        None => return Err(Failure::usage("there are no arms").with_help("name arms: `--donors all`")),
    }
    let mut command = "cargo allograft build".to_owned();
    for word in &typed_options {
        command = format!("{command} {}", typed(std::slice::from_ref(word)));
    }
    bench.run_linked(Linked { arms: &arms, programs, command, host: &host, folder }, output)
}

/// Has cargo build in `folder`: it links stock, and must replace neither the user's programs, which may carry a donor,
/// nor the records by which cargo knows what is built.
///
/// # Errors
/// The folder's path is not UTF-8, and a configuration has to name it.
fn apart(order: &mut Order, configuration: &Configuration, folder: &Path) -> Result<(), Failure> {
    const OPTION: &str = "--target-dir";
    let mut own = Vec::new();
    let mut words = std::mem::take(&mut order.options).into_iter();
    while let Some(word) = words.next() {
        if word == OPTION {
            words.next();
        } else if !word.to_string_lossy().starts_with(&format!("{OPTION}=")) {
            own.push(word);
        }
    }
    own.extend([OPTION.into(), folder.into()]);
    // Intermediate files may have another folder (The Cargo Book, Configuration, `build.build-dir`).
    if configuration.has_build_folder() {
        let folder = folder.to_str().ok_or_else(|| {
            Failure::usage(format!("the path `{}` is not UTF-8", folder.display()))
                .with_help("paths of the project have to be UTF-8")
        })?;
        let setting = format!("build.build-dir={}", toml::Value::from(folder));
        own.extend(["--config".into(), setting.into()]);
    }
    order.options = own;
    Ok(())
}

/// Builds the one program with cargo. The wrappers link it for every arm. Returns the program as cargo names it.
fn link(
    order: &Order,
    configuration: &Configuration,
    rustc: &Rustc,
    name: &str,
    folder: &Path,
    homes: &[PathBuf],
) -> Result<PathBuf, Failure> {
    let stock = relink::lib(&homes[0]);
    let mut session = Session {
        folders: BTreeMap::from([(name.to_owned(), stock.clone())]),
        report: folder.join("report"),
        relink: Some(Relink { links: folder.join("links"), linker: PathBuf::new(), arms: homes.to_vec() }),
        ..Session::default()
    };
    let mut cargo = cargo(&Order { rest: Vec::new(), ..order.clone() });
    session.begin(&mut cargo, configuration, rustc)?;
    // This folder is new each time, so cargo links again what it has linked before.
    cargo.env(wrapper::folder_variable(name), &stock).stdin(Stdio::null());
    let (programs, status) = build(cargo)?;
    let quiet = Output::new(&Global { json: false, quiet: true, verbose: false, color: clap::ColorChoice::Never });
    conclude(ExitCode::SUCCESS, order, &session.report, &quiet)?;
    if !status.success() {
        return Err(Failure::usage("cargo did not build the program").with_help("mend what cargo says above"));
    }
    match programs.as_slice() {
        [program] => Ok(program.clone()),
        [] => Err(Failure::usage("the project has no program").with_help("name an example: `--example NAME`")),
        several => {
            let names: Vec<_> = several.iter().filter_map(|path| Some(path.file_name()?.to_string_lossy())).collect();
            Err(Failure::usage(format!("the project has several programs: {}", names.join(", ")))
                .with_help("name one: `--bin NAME`"))
        }
    }
}

/// Checks that the arm's program contains the expected allocator and string functions.
fn check(arm: &Arm, host: &StockMusl, program: &Path) -> Result<(), Failure> {
    match &arm.libc {
        Libc::Graft(graft) => {
            let strings = graft.strings && host.has_strings();
            let malloc = graft.donor.iter().map(|donor| donor.name.to_owned()).collect();
            check_program(program, &Expected { malloc, strings }).map(|_| ())
        }
        _ => {
            let what = check_program(program, &Expected::default())?;
            match donors::all().iter().find(|donor| what.split(' ').next() == Some(donor.name)) {
                None => Ok(()),
                Some(donor) => Err(Failure::usage(format!(
                    "it carries {}: something else on its link line brings that",
                    donor.name
                ))
                .with_help("take other allocators off the link line: `-C link-arg`, `#[link]`, build scripts")),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn an_option_of_bench_asks_for_it() {
        for asks in [
            "bench --donors all",
            "--donors=a bench --release",
            "bench --bin app --server x --load y",
            "bench --json",
            "--donor mimalloc3 bench --rounds 3",
            "bench --quick",
            "bench --help",
            "bench -h",
        ] {
            assert!(asked(&words(asks)), "{asks}");
        }
        for asks_not in [
            "bench --release",
            "bench -q --color never --target T",
            "bench -- --donors a",
            "run --donors a",
            "run --bin bench --save x",
            "build --help",
            "--help",
        ] {
            assert!(!asked(&words(asks_not)), "{asks_not}");
        }
    }

    #[test]
    fn the_build_has_a_target_folder_of_its_own() {
        let apart = |line: &str, file: &str| {
            let folder = tempfile::tempdir().unwrap();
            std::fs::create_dir(folder.path().join(".cargo")).unwrap();
            std::fs::write(folder.path().join(".cargo/config.toml"), file).unwrap();
            let configuration = Configuration::read(folder.path(), &[]).unwrap();
            let mut order = arguments::parse(&words(line)).unwrap().order().unwrap();
            super::apart(&mut order, &configuration, Path::new("/a b/bench")).unwrap();
            order.options.iter().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>()
        };
        let expected = ["--release", "--target-dir", "/a b/bench"];
        for line in ["build --release", "build --target-dir x --release", "build --release --target-dir=x"] {
            assert_eq!(apart(line, "")[..3], expected, "{line}");
        }
        let with_intermediates = apart("build --release", "[build]\nbuild-dir = \"elsewhere\"\n");
        assert_eq!(with_intermediates[3..], ["--config", "build.build-dir=\"/a b/bench\""]);
    }

    #[test]
    fn words_go_to_whom_they_concern() {
        let (cargos, ours) =
            parted(&words("bench --bin app --donors a,b --budget=2s -q --any-output -F x -- --threads 2"));
        assert_eq!(cargos, words("bench --bin app -q -F x"));
        assert_eq!(ours, words("--donors a,b --budget=2s -q --any-output -- --threads 2"));
        assert!(Measuring::parse(&ours).unwrap().global.quiet);
    }

    /// A new option of `allograft bench` must be added here, or to those that cargo decides.
    #[test]
    fn every_option_of_bench_is_ours() {
        let options = options();
        for argument in crate::arguments::Arguments::command().find_subcommand("bench").unwrap().get_arguments() {
            let Some(long) = argument.get_long() else { continue };
            let known = options.iter().find(|(option, _)| option[2..] == *long);
            let takes_value = known.map(|(_, takes_value)| *takes_value);
            assert_eq!(takes_value, Some(argument.get_action().takes_values()), "--{long}");
        }
        assert!(options.iter().any(|(option, takes)| option == "--json" && !takes));
        for id in CARGO_DECIDES {
            assert!(Measuring::command().get_arguments().any(|argument| argument.get_id() == id), "{id}");
        }
    }

    #[test]
    fn help_and_usage_are_of_this_command() {
        let said = |line: &str| Measuring::parse(&parted(&words(line)).1).unwrap_err().to_string();
        for help in ["bench --help", "bench -h"] {
            let help = said(help);
            let wanted =
                ["Usage: cargo allograft bench", "--donors", "--server", "--save", "Measure a Cargo project's program"];
            for part in wanted {
                assert!(help.contains(part), "`{part}` is missing in:\n{help}");
            }
            for not in ["--build", "--from", "--quick", "[SUITE]", "allograft bench map"] {
                assert!(!help.contains(&format!("{not} ")), "`{not}` is in:\n{help}");
            }
        }
        let refused = said("bench --donors all --build x");
        assert!(refused.contains("`--build` is not for `cargo allograft bench`"), "{refused}");
        assert!(refused.contains("Usage: cargo allograft bench"), "{refused}");
        let wrong = said("bench --server x");
        assert!(wrong.contains("--load") && wrong.contains("Usage: cargo allograft bench"), "{wrong}");
    }
}
