//! The user's own program: built once for each arm by the user's command, run with the user's arguments.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use measure::case::{Invocation, Load};

use super::arms::{Arm, ArmGraft, Libc};
use super::host::StockMusl;
use super::template::{filled, has};
use crate::failure::{Failure, mend};
use crate::shell::quoted;
use crate::tuning;

/// How a program is built.
pub(super) struct Recipe<'r> {
    pub(super) build: &'r str,
    pub(super) build_glibc: Option<&'r str>,
}

impl Recipe<'_> {
    /// # Errors
    /// When the command lacks a place that it needs.
    pub(super) fn check(&self) -> Result<(), Failure> {
        if !has(self.build, "out") {
            return Err(Failure::usage("the `--build` command does not say `{out}`").with_help(
                "it has to write the program to `{out}`: `--build 'make LIBDIR={libdir} && cp server {out}'`",
            ));
        }
        if !has(self.build, "libdir") && !has(self.build, "object") {
            return Err(Failure::usage("the `--build` command says neither `{libdir}` nor `{object}`").with_help(
                "`{libdir}` is a folder with the libc.a to link with, `{object}` the allocator's object file to link: \
                 without either, all arms would be the same program",
            ));
        }
        match self.build_glibc {
            Some(build) if !has(build, "out") => {
                Err(Failure::usage("the `--build-glibc` command does not say `{out}`")
                    .with_help("write `{out}` where the compiler gets the path of the program"))
            }
            _ => Ok(()),
        }
    }

    /// Builds the arm's program in `folder`. The error is a sentence with the reason why it cannot be built.
    pub(super) fn make(&self, arm: &Arm, host: &StockMusl, folder: &Path) -> Result<PathBuf, Failure> {
        let (libdir, out) = (folder.join("lib"), folder.join("program"));
        fs::create_dir_all(folder).map_err(Failure::io("make", folder))?;
        let mut template = self.build;
        let mut objects = Vec::new();
        match &arm.libc {
            Libc::Glibc => match self.build_glibc {
                Some(build) => template = build,
                None => {
                    return Err(Failure::usage(
                        "the arm `glibc` takes a build command of its own: `--build-glibc CMD`",
                    )
                    .with_help("add it, or leave the arm out of `--donors`"));
                }
            },
            Libc::Bump => {
                return Err(Failure::usage("the arm `bump` is for the suite's programs")
                    .with_help("leave it out of `--donors`"));
            }
            Libc::Stock(_) => host.copy(arm, &libdir)?,
            Libc::Graft(graft) => {
                host.copy(arm, &libdir)?;
                if has(template, "object") {
                    objects = write_objects(graft, host, folder)?;
                }
            }
        }
        let shown = |path: &Path| quoted(&path.to_string_lossy());
        let objects: Vec<String> = objects.iter().map(|path| shown(path)).collect();
        let places = [("libdir", &*shown(&libdir)), ("object", &*objects.join(" ")), ("out", &*shown(&out))];
        build(&filled(template, &places), &arm.name)?;
        let runs = fs::metadata(&out).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0);
        if !runs {
            return Err(Failure::usage(format!("{}: the build command left no program at `{{out}}`", arm.name))
                .with_help("write `{out}` where the compiler gets the path of the program, and make it executable"));
        }
        carries(arm, host, &out)?;
        Ok(out)
    }
}

/// Writes the objects of the donors, with their options baked in, to files.
fn write_objects(graft: &ArmGraft, host: &StockMusl, folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let strings = graft.strings.then(donors::strings);
    let mut paths = Vec::new();
    for donor in graft.donor.into_iter().chain(strings) {
        let is_strings = std::ptr::eq(donor, donors::strings());
        // The string functions do not exist for every architecture that the allocators exist for.
        if is_strings && !donor.supports(host.arch) {
            continue;
        }
        let options = if is_strings { Vec::new() } else { graft.options() };
        let (tuned, note) = tuning::object(donor, host.arch, &options)?;
        let tuned = tuning::verified(tuned, if is_strings { [None, Some(&note)] } else { [Some(&note), None] })?;
        let path = folder.join(format!("{}.o", donor.name));
        fs::write(&path, tuned.bytes()).map_err(Failure::io("write", &path))?;
        paths.push(path);
    }
    Ok(paths)
}

/// The number of lines of a failed build that are shown.
const SHOWN: usize = 15;

fn build(command: &str, arm: &str) -> Result<(), Failure> {
    let output = Command::new("sh").arg("-c").arg(command).stdin(Stdio::null()).output();
    let output =
        output.map_err(|error| Failure::usage(format!("`sh` does not start: {error}")).with_help(mend(&error)))?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    let lines: Vec<&str> = said.lines().collect();
    let last = lines[lines.len().saturating_sub(SHOWN)..].iter().map(|line| (*line).to_owned()).collect();
    let failure = Failure::usage(format!("{arm}: the build command failed ({}): `{command}`", output.status))
        .with_help("run it by hand, with the folder of your libc for {libdir} and a file for {out}");
    Err(Failure { said: last, ..failure })
}

/// Checks that the program carries the arm's allocator. A build that ignores the given libc would make all arms the
/// same program.
fn carries(arm: &Arm, host: &StockMusl, program: &Path) -> Result<(), Failure> {
    let expected = match &arm.libc {
        Libc::Graft(ArmGraft { donor: Some(donor), .. }) => Some(donor.name),
        Libc::Stock(_) => None,
        Libc::Graft(ArmGraft { donor: None, .. }) | Libc::Glibc | Libc::Bump => return Ok(()),
    };
    // If the program cannot be inspected, for example a script that starts it, nothing speaks against it.
    let Some(report) = fs::read(program).ok().and_then(|bytes| inspector::inspect(&bytes).ok()) else { return Ok(()) };
    let found = &report.malloc.name;
    let wrong = match expected {
        Some(name) => found != name && found != inspector::name::UNKNOWN,
        None => donors::find(found).is_some(),
    };
    if !wrong {
        return Ok(());
    }
    let help = match report.link {
        Some(inspector::Link::Dynamic) => {
            "it is a dynamic program: link it with `-static`, or build for a musl target".to_owned()
        }
        _ => format!(
            "link it with the libc.a in `{{libdir}}`, not with that in `{}`; was something left over from an earlier build?",
            host.typed
        ),
    };
    Err(Failure::usage(format!(
        "{}: the program that was built carries {found}, not {}",
        arm.name,
        expected.unwrap_or("stock musl's allocator")
    ))
    .with_help(help))
}

/// How a built program is run.
pub(super) struct Line<'l> {
    /// Words with places in them. If none is `{out}`, they are the program's arguments.
    pub(super) words: &'l [OsString],
    pub(super) threads_var: Option<&'l str>,
    /// The command of the server, and that of its load.
    pub(super) server: Option<(&'l str, &'l str)>,
}

impl Line<'_> {
    /// Whether it has a place for the number of threads.
    pub(super) fn takes_threads(&self) -> bool {
        let in_words = self.words.iter().any(|word| has(&word.to_string_lossy(), "threads"));
        in_words || self.threads_var.is_some() || self.server.is_some_and(|(server, _)| has(server, "threads"))
    }

    pub(super) fn invocation(&self, program: &Path, threads: Option<u32>) -> Invocation {
        let out = program.to_string_lossy().into_owned();
        if let Some(served) = self.served(&quoted(&out), threads) {
            return served;
        }
        let threads = threads.map(|threads| threads.to_string());
        let environment = self.environment(threads.as_deref());
        let number = threads.as_deref().unwrap_or("1");
        let places = [("out", &*out), ("threads", number)];
        let mut words: Vec<OsString> = self.words.iter().map(|word| filled_word(word, &places)).collect();
        let program = if self.words.iter().any(|word| has(&word.to_string_lossy(), "out")) {
            words.remove(0).into()
        } else {
            program.to_owned()
        };
        Invocation { program, arguments: words, environment, load: None }
    }

    /// Returns the server's invocation; `None` if the program is not a server. `out` is a shell's words for `{out}`.
    pub(super) fn served(&self, out: &str, threads: Option<u32>) -> Option<Invocation> {
        let (server, load) = self.server?;
        let threads = threads.map(|threads| threads.to_string());
        let places = [("out", out), ("threads", threads.as_deref().unwrap_or("1"))];
        // `exec` replaces the shell by the server, so that the server is measured. `{port}` is filled in for each run.
        let exec = OsString::from(format!("exec {}", filled(server, &places)));
        Some(Invocation {
            program: "sh".into(),
            arguments: vec!["-c".into(), exec],
            environment: self.environment(threads.as_deref()),
            load: Some(Load { command: filled(load, &places), rate: None }),
        })
    }

    fn environment(&self, threads: Option<&str>) -> Vec<(OsString, OsString)> {
        self.threads_var.zip(threads).map(|(name, threads)| (name.into(), threads.into())).into_iter().collect()
    }
}

/// Fills the places of a word. A word that is not valid UTF-8 has none.
fn filled_word(word: &OsString, places: &[(&str, &str)]) -> OsString {
    word.to_str().map_or_else(|| word.clone(), |text| filled(text, places).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    #[test]
    fn what_follows_is_arguments_or_a_whole_command() {
        let run = |given: &[&str]| {
            let given = words(given);
            let line = Line { words: &given, threads_var: None, server: None };
            let invocation = line.invocation(Path::new("/somewhere/program"), Some(4));
            (invocation.program, invocation.arguments)
        };
        assert_eq!(run(&["-t", "{threads}"]), ("/somewhere/program".into(), words(&["-t", "4"])));
        assert_eq!(
            run(&["env", "A={threads}", "{out}", "x"]),
            ("env".into(), words(&["A=4", "/somewhere/program", "x"]))
        );
        assert_eq!(run(&[]), ("/somewhere/program".into(), Vec::new()));
    }

    #[test]
    fn a_server_and_its_load_are_told_of_the_port_later() {
        let line = Line {
            words: &[],
            threads_var: Some("THREADS"),
            server: Some(("{out} {port}", "wrk -t{threads} :{port}")),
        };
        let invocation = line.invocation(Path::new("/a b/server"), Some(2));
        assert_eq!(invocation.arguments[1], OsString::from("exec '/a b/server' {port}"));
        assert_eq!(invocation.load.unwrap().command, "wrk -t2 :{port}");
        assert_eq!(invocation.environment, [("THREADS".into(), "2".into())]);
        assert!(line.takes_threads());
    }
}
