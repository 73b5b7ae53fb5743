//! Programs that run for long, with each donor: forks while threads allocate, threads that live briefly, producers with
//! consumers, and a server with its clients. Their memory must not grow.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use donors::Donor;
use fixtures::{Arch, link, musl_gcc};
use hosts::Request;

use crate::interference::{Finding, Outcome};

/// Something that a program does again and again.
#[derive(Debug, Clone, Copy)]
pub struct Endurance {
    program: &'static str,
    /// Its source. `None` for a conformance program.
    source: Option<&'static str>,
    variable: &'static str,
    /// How many of them one round is.
    portion: usize,
    /// How many rounds one run of the program does: memory that grows slowly shows in long runs only, and most programs
    /// have a limit of time.
    at_once: usize,
}

/// Forks while threads allocate.
pub static FORKS: Endurance =
    Endurance { program: "fork_stress", source: None, variable: "ALLOGRAFT_FORKS", portion: 5000, at_once: 1 };
/// Threads that live briefly.
pub static THREADS: Endurance =
    Endurance { program: "short_threads", source: None, variable: "ALLOGRAFT_THREADS", portion: 100_000, at_once: 1 };
/// Seconds of producers and consumers, up to an hour in one run.
pub static LOAD: Endurance =
    Endurance { program: "pipeline", source: None, variable: "ALLOGRAFT_PIPELINE_SECONDS", portion: 60, at_once: 60 };
/// Seconds of a server with its clients, up to an hour in one run.
pub static SERVE: Endurance = Endurance {
    program: "server",
    source: Some(include_str!("../programs/server.c")),
    variable: "ALLOGRAFT_SERVER_SECONDS",
    portion: 60,
    at_once: 60,
};

impl Endurance {
    /// Links the program with a donor, and does so many rounds.
    ///
    /// # Errors
    /// It cannot be linked, or does not start.
    pub fn endure(&self, donor: &'static Donor, rounds: usize) -> Result<Outcome> {
        let folder = tempfile::tempdir()?;
        let program = self.linked(donor, folder.path())?;
        let mut outcome = Outcome::default();
        let mut left = rounds;
        while left > 0 {
            let now = left.min(self.at_once);
            left -= now;
            let count = now * self.portion;
            let mut command = Command::new(&program);
            let output = command.env(self.variable, count.to_string()).env("ALLOGRAFT_FIGURES", "1").output();
            let output = output.with_context(|| format!("`{}` does not start", program.display()))?;
            let said = String::from_utf8_lossy(&output.stderr);
            outcome.figures.extend(said.lines().filter_map(|line| line.strip_prefix("note: ")).map(str::to_owned));
            match self.fault(&output) {
                None => outcome.done += count,
                Some(wrong) => {
                    let at = format!("{} with {}, {} rounds before the end", self.program, donor.name, left + now);
                    outcome.findings.push(Finding { at, wrong });
                }
            }
        }
        Ok(outcome)
    }

    /// The fault of a run that failed, or did not print that it succeeded.
    fn fault(&self, output: &Output) -> Option<String> {
        let said = String::from_utf8_lossy(&[output.stdout.as_slice(), &output.stderr].concat()).into_owned();
        let is_fine = output.status.success() && said.contains(&format!("ok {}", self.program));
        (!is_fine).then(|| format!("{}\n{said}", output.status))
    }

    /// Links the program with musl's `libc.a` that was grafted with a donor.
    fn linked(&self, donor: &'static Donor, folder: &Path) -> Result<PathBuf> {
        let arch = Arch::X86_64;
        let musl = fixtures::debian_musl(arch);
        let path = |name: &str| folder.join(name);
        fs::copy(&musl.libc, path("libc.a"))?;
        hosts::graft(&path("libc.a"), &Request::new(donor))?;
        fs::write(path("program.o"), self.object(folder)?)?;
        fs::write(path("runtime.a"), conformance::runtime_library(arch))?;
        let libc = path("libc.a");
        let parts = link::Static { libc: &libc, ..musl.link(false) };
        let status = parts.line(link::gnu(), [path("program.o")], [path("runtime.a")], &path("program")).status()?;
        ensure!(status.success(), "ld with {}: {status}", donor.name);
        Ok(path("program"))
    }

    /// Returns the program's object. Its source is compiled in a folder that exists.
    fn object(&self, folder: &Path) -> Result<Vec<u8>> {
        let Some(source) = self.source else {
            let program = conformance::find(self.program);
            let program = program.with_context(|| format!("there is no program `{}`", self.program))?;
            return Ok(program.object(Arch::X86_64).to_vec());
        };
        let (c, object) = (folder.join("source.c"), folder.join("source.o"));
        fs::write(&c, source)?;
        fs::write(folder.join("check.h"), conformance::header())?;
        let mut compiler = Command::new(musl_gcc(folder)?);
        compiler.args(["-std=c11", "-O2", "-fno-builtin", "-fno-stack-protector", "-fno-pie"]);
        compiler.arg(format!("-DPROGRAM_NAME=\"{}\"", self.program)).arg("-c").arg(&c).arg("-o").arg(&object);
        let output = compiler.output().context("the compiler does not start")?;
        ensure!(output.status.success(), "`{}`: {}", self.program, String::from_utf8_lossy(&output.stderr));
        Ok(fs::read(object)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn portions_are_counted() {
        let few = Endurance { portion: 40, ..FORKS };
        let outcome = few.endure(donors::default_for(Arch::X86_64), 2).unwrap();
        assert!(outcome.done == 80 && outcome.findings.is_empty(), "{outcome:?}");
    }

    #[test]
    fn rounds_are_done_in_few_runs() {
        let few = Endurance { portion: 1, at_once: 2, ..LOAD };
        let outcome = few.endure(donors::default_for(Arch::X86_64), 3).unwrap();
        assert!(outcome.done == 3 && outcome.findings.is_empty(), "{outcome:?}");
    }

    #[test]
    fn a_server_says_what_memory_it_had() {
        let brief = Endurance { portion: 1, ..SERVE };
        let outcome = brief.endure(donors::default_for(Arch::X86_64), 1).unwrap();
        assert!(outcome.done == 1 && outcome.findings.is_empty(), "{outcome:?}");
        assert!(outcome.figures.iter().any(|figures| figures.contains(" KiB, then ")), "{outcome:?}");
    }

    #[test]
    fn a_server_that_frees_nothing_is_a_finding() {
        let source: &str = SERVE.source.unwrap().replace(" free(", " (void)(").replace("\tfree(", "\t(void)(").leak();
        let leaking = Endurance { source: Some(source), portion: 2, ..SERVE };
        let outcome = leaking.endure(donors::default_for(Arch::X86_64), 1).unwrap();
        let [Finding { wrong, .. }] = outcome.findings.as_slice() else { panic!("{outcome:?}") };
        assert!(outcome.done == 0 && wrong.contains("memory grows with requests"), "{wrong}");
    }

    #[test]
    fn a_run_that_fails_or_says_nothing_is_a_finding() {
        let run = |script: &str| Command::new("sh").args(["-c", script]).output().unwrap();
        assert_eq!(FORKS.fault(&run("echo ok fork_stress")), None);
        assert!(FORKS.fault(&run("echo ok fork_stress; exit 1")).is_some());
        assert!(FORKS.fault(&run("echo FAIL: a child hangs")).is_some());
    }
}
