//! The project's own commands: `cargo xtask NAME`.

mod advisories;
mod budget;
mod compatibility;
mod conformance;
mod demo;
mod edges;
mod installed;
mod part;
mod policy;
mod programs;
mod runner;
mod selection;
mod site;
mod test;
mod upstream;

use std::ffi::OsStr;
use std::process::ExitCode;

use tools::command;

/// A command of the table below.
struct Task {
    name: &'static str,
    arguments: &'static str,
    help: &'static str,
    run: fn(&[String]) -> anyhow::Result<()>,
}

const TASKS: &[Task] = &[
    Task {
        name: "demo",
        arguments: "[--quick]",
        help: "graft a real musl libc.a, run one program on stock, graft and glibc, compare, undo",
        run: demo::run,
    },
    Task {
        name: "test",
        arguments: "[--slowest N] [NAME [FILTER]..]",
        help: "the default tests, or a part of them: `test surgery`, `test cli`, `test hosts undo`",
        run: test::fast,
    },
    Task {
        name: "test-slow",
        arguments: "[--part N] [NAME [FILTER]..]",
        help: "the tests marked #[ignore], all or one part of ten: emulated, minutes long, or with large downloads",
        run: test::slow,
    },
    Task {
        name: "conformance",
        arguments: "[--write]",
        help: "the table of donors by situation from the last test-slow; --write puts it into the docs",
        run: conformance::run,
    },
    Task {
        name: "compatibility",
        arguments: "[--write]",
        help: "environments, donors and kinds of host; answers at the edge, which --write puts into the docs",
        run: compatibility::run,
    },
    Task {
        name: "ci",
        arguments: "[--tested]",
        help: "what CI runs: fmt, test with clippy, licences, docs, demo --quick, a part of fuzz and of test-slow",
        run: test::ci,
    },
    Task {
        name: "part",
        arguments: "",
        help: "the architectures that CI builds for this commit's part of test-slow",
        run: test::part,
    },
    Task {
        name: "bench",
        arguments: "[WHAT [..]]",
        help: "an experiment: what grafting costs (default), or WHAT; `bench help` lists them",
        run: bench,
    },
    Task {
        name: "attack",
        arguments: "[KIND].. [--only TEXT] [--every N] [--rounds N] [--keep]",
        help: "end allograft at each system call, fail each, lose the power; what is left has to be whole (hours)",
        run: attack,
    },
    Task {
        name: "advisories",
        arguments: "FOLDER",
        help: "list the known faults of dependencies, from a checkout of RustSec's advisory-db",
        run: advisories::update,
    },
    Task {
        name: "fuzz",
        arguments: "[TARGET].. [--time 60s] [--jobs N] [--keep]",
        help: "fuzz the parsers and editors, with counters of what is executed (needs a C++ compiler)",
        run: fuzz,
    },
    Task {
        name: "site",
        arguments: "",
        help: "make the docs into a site, target/site (the first time builds mdBook)",
        run: site::build,
    },
    Task {
        name: "setup",
        arguments: "[NAME]..",
        help: "fetch what the default tests need (the others do so themselves; no root needed); or NAME of its list",
        run: test::setup,
    },
    Task {
        name: "proof",
        arguments: "[BUILD].. [--programs A,B] [--table] [--write]",
        help: "graft conformance programs linked by compilers held out for it; a table (400 MB, an hour)",
        run: proof,
    },
    Task {
        name: "release",
        arguments: "",
        help: "make the release files: static executables, packages, crates, SBOM (downloads 250 MB; minutes)",
        run: release,
    },
    Task {
        name: "upstream",
        arguments: "",
        help: "the releases that donors are made of and tests use, beside the newest that registries have",
        run: upstream::run,
    },
    Task { name: "help", arguments: "", help: "this list", run: help },
];

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_else(|| "help".to_owned());
    let rest: Vec<String> = arguments.collect();
    let name = if matches!(name.as_str(), "--help" | "-h") { "help".to_owned() } else { name };
    let Some(task) = TASKS.iter().find(|task| task.name == name) else {
        eprintln!("error: there is no command `{name}`\nhelp: `cargo xtask help` lists them");
        return ExitCode::from(2);
    };
    // The commands themselves would take it for a name, or hand it to cargo.
    if rest.iter().take_while(|word| *word != "--").any(|word| matches!(word.as_str(), "--help" | "-h")) {
        println!("cargo xtask {} {}\n\n{}", task.name, task.arguments, task.help);
        return ExitCode::SUCCESS;
    }
    match (task.run)(&rest) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Starts `lab`, which contains the experiments.
fn bench(arguments: &[String]) -> anyhow::Result<()> {
    command::run(command::cargo(&["run", "--quiet", "--locked", "--package", "lab", "--"]).args(arguments))
}

/// Builds allograft, and attacks it.
fn attack(arguments: &[String]) -> anyhow::Result<()> {
    // The attacks are on hosts of this machine's architecture.
    let native = [(zigcc::arches::ARCHES, OsStr::new("native"))];
    let program = command::build_allograft_with(&native)?;
    // It lies beside the other.
    command::build_cargo_allograft_with(&native)?;
    // Optimised: it makes millions of checks.
    let attack = ["run", "--release", "--quiet", "--locked", "--package", "attack", "--"];
    let mut attack = command::cargo(&attack);
    command::run(attack.args(arguments).arg("--program").arg(program).envs(native))
}

/// Starts `fuzz`, which builds the fuzzers and runs them.
pub(crate) fn fuzz(arguments: &[String]) -> anyhow::Result<()> {
    let fuzz = ["run", "--quiet", "--locked", "--package", "attack", "--bin", "fuzz", "--"];
    command::run(command::cargo(&fuzz).args(arguments))
}

/// Starts `release`, which makes the release files.
fn release(arguments: &[String]) -> anyhow::Result<()> {
    command::run(command::cargo(&["run", "--quiet", "--locked", "--package", "release", "--"]).args(arguments))
}

fn proof(arguments: &[String]) -> anyhow::Result<()> {
    bench(&[&["proof".to_owned()], arguments].concat())
}

fn help(_arguments: &[String]) -> anyhow::Result<()> {
    println!("cargo xtask COMMAND\n");
    for task in TASKS {
        println!("  {:<38} {}", format!("{} {}", task.name, task.arguments), task.help);
    }
    Ok(())
}
