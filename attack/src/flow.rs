//! One command of allograft on one kind of host.

use std::collections::HashSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, ensure};
use donors::Donor;
use fixtures::Arch;
use format::Linked;

use crate::files::{Files, RoleOf};
use crate::traced::{Calm, End, Ran, Watch, run};

/// A command that is attacked. Command lines are words between blanks, and run in the folder.
#[derive(Debug)]
pub struct Flow {
    /// Its name.
    pub name: &'static str,
    /// Fills the folder.
    pub(crate) prepare: fn(&Path),
    /// Runs that precede the attacked one.
    pub(crate) before: &'static [&'static str],
    /// The attacked run.
    pub(crate) line: &'static str,
    /// A run that takes back what the attacked one does. `None` if there is nothing to take back.
    pub(crate) back: Option<&'static str>,
    /// The roles of the files.
    pub(crate) role: RoleOf,
    /// The build that allograft is a part of. `None` where it does all of the work itself.
    pub(crate) build: Option<Build>,
    /// The kind of linked file that the donor goes into. `None` where each donor fits.
    pub(crate) linked: Option<Linked>,
}

/// A build with a compiler or with cargo, which do most of the work and make most of the calls.
#[derive(Debug)]
pub(crate) struct Build {
    /// The program of allograft that starts, which may start itself again below other programs.
    pub(crate) program: &'static str,
    /// The variables of a run in this folder, beside which is one for what tools keep for themselves.
    pub(crate) environment: fn(&Path, &Path) -> Vec<(&'static str, OsString)>,
    /// The lines that are run at once.
    pub(crate) at_once: &'static [&'static str],
    /// Whether programs are written in place, as compilers do it: then each line has a name of its own for the program,
    /// and a reader may see a part of it.
    pub(crate) writes_in_place: bool,
    /// Whether it takes the tests' Rust toolchain with musl targets.
    pub(crate) needs_rust: bool,
}

/// A flow in a folder, and the files that its undisturbed runs make.
#[derive(Debug)]
pub struct Scene {
    pub(crate) flow: &'static Flow,
    /// The donor of its runs.
    donor: &'static Donor,
    program: PathBuf,
    made: tempfile::TempDir,
    /// The number of calls of the undisturbed run.
    pub(crate) calls: usize,
    pub(crate) begin: Files,
    pub(crate) end: Files,
    back: Option<Files>,
    /// The files of the folder when they were read last. `None` if something has run since.
    now: Mutex<Option<Arc<Files>>>,
    /// The states in which the next run was right.
    mended: Mutex<HashSet<Known>>,
}

/// A state of the folder that undisturbed runs make, too: which one, how many names each file has, and whether the next
/// run takes back what was done.
type Known = (usize, Vec<u64>, bool);

impl Flow {
    /// Whether it takes the tests' Rust toolchain with musl targets (`cargo xtask setup rust`).
    pub fn needs_rust(&self) -> bool {
        self.build.as_ref().is_some_and(|build| build.needs_rust)
    }

    /// Returns the donors that it can be run with.
    pub fn donors(&self) -> Vec<&'static Donor> {
        let fits = |donor: &&Donor| self.linked.is_none_or(|linked| donor.goes_into(linked, Arch::X86_64));
        donors::all().iter().filter(fits).collect()
    }
}

/// Returns a command line with a donor, which differs from that of the runs before it. The default one needs no name.
fn with_donor(line: &str, donor: &Donor) -> String {
    let default = donors::default_for(Arch::X86_64);
    if donor.name == default.name {
        return line.to_owned();
    }
    if line.contains("--donor ") {
        return line.replace(&format!("--donor {}", donor.name), &format!("--donor {}", default.name));
    }
    let mut words: Vec<&str> = line.split_whitespace().collect();
    let command = words.iter().position(|word| ["graft", "emit", "cc", "build"].contains(word));
    if let Some(command) = command {
        words.splice(command + 1..command + 1, ["--donor", donor.name]);
    }
    words.join(" ")
}

impl Scene {
    /// Prepares a flow of this program of allograft, beside which its other programs are, and runs it undisturbed.
    ///
    /// # Errors
    /// A run fails, or two equal runs make different files.
    pub fn new(flow: &'static Flow, program: &Path) -> Result<Scene> {
        Scene::with_donor(flow, program, donors::default_for(Arch::X86_64))
    }

    /// Prepares a flow with one of [`Flow::donors`].
    ///
    /// # Errors
    /// As [`Scene::new`].
    pub fn with_donor(flow: &'static Flow, program: &Path, donor: &'static Donor) -> Result<Scene> {
        let program = match &flow.build {
            Some(build) => &program.with_file_name(build.program),
            None => program,
        };
        let made = tempfile::tempdir()?;
        for name in ["folder", "scratch", "tools"] {
            std::fs::create_dir(made.path().join(name))?;
        }
        let mut scene = Scene {
            flow,
            donor,
            program: program.to_owned(),
            made,
            calls: 0,
            begin: Files::default(),
            end: Files::default(),
            back: None,
            now: Mutex::default(),
            mended: Mutex::default(),
        };
        (flow.prepare)(&scene.folder());
        for line in flow.before {
            scene.succeeds(line)?;
        }
        scene.begin = scene.files()?;
        scene.succeeds(flow.line)?;
        scene.end = scene.files()?;
        ensure!(scene.begin != scene.end, "{}: the undisturbed run changes nothing", flow.name);
        if let Some(line) = flow.back {
            scene.succeeds(line)?;
            scene.back = Some(scene.files()?);
        }
        scene.begin.write(&scene.folder())?;
        let again = scene.traced(&mut Calm)?;
        ensure!(again.end == End::Exit(0), "{} under ptrace: {:?}\n{}", flow.name, again.end, again.said);
        let differences = scene.files()?.differences(&scene.end);
        ensure!(differences.is_empty(), "{}: two runs make different files: {differences:?}", flow.name);
        scene.calls = again.calls;
        Ok(scene)
    }

    /// The flow, and the donor of its runs.
    pub fn name(&self) -> String {
        format!("{} with {}", self.flow.name, self.donor.name)
    }

    /// The folder in which the flow runs.
    pub(crate) fn folder(&self) -> PathBuf {
        self.made.path().join("folder")
    }

    /// Runs the flow's command under ptrace.
    pub(crate) fn traced(&self, watch: &mut dyn Watch) -> Result<Ran> {
        let scratch = self.made.path().join("scratch");
        let command = self.command(self.flow.line);
        run(&command, &scratch, self.flow.build.is_some(), watch)
    }

    /// Reads the files of the folder.
    pub(crate) fn files(&self) -> std::io::Result<Files> {
        Files::read(&self.folder(), self.flow.role)
    }

    /// Reads the files of the folder, and remembers them until something runs.
    pub(crate) fn look(&self) -> std::io::Result<Arc<Files>> {
        let files = Arc::new(self.files()?);
        *self.now.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&files));
        Ok(files)
    }

    /// Brings back the folder's state before the flow's run. Files that are known to be in that state are not written.
    pub(crate) fn restore(&self) -> std::io::Result<()> {
        let now = self.now.lock().unwrap_or_else(PoisonError::into_inner).take();
        match now {
            // Builds have files of other programs as well.
            Some(now) if self.flow.build.is_none() => self.begin.write_over(&now, &self.folder()),
            _ => self.begin.write(&self.folder()),
        }
    }

    /// Names the hosts that are as in none of the `states`.
    pub(crate) fn torn(&self, files: &Files, states: &[&Files]) -> Vec<String> {
        files.torn(states, self.flow.role)
    }

    /// Asks what the next run makes of what is in the folder, `now`, as [`Scene::next`] does; but only once for a state
    /// that undisturbed runs make, too: a run that was stopped before it wrote something leaves no other.
    ///
    /// # Errors
    /// As [`Scene::next`].
    pub(crate) fn next_of(&self, now: &Files, takes_back: bool) -> Result<Option<String>> {
        let known = self.states().iter().position(|state| *state == now).filter(|_| self.flow.build.is_none());
        let Some(number) = known else { return self.next(takes_back) };
        let key = (number, now.links(&self.folder())?, takes_back);
        let mended = || self.mended.lock().unwrap_or_else(PoisonError::into_inner);
        if mended().contains(&key) {
            return Ok(None);
        }
        let wrong = self.next(takes_back)?;
        if wrong.is_none() {
            mended().insert(key);
        }
        Ok(wrong)
    }

    /// Asks what the next run makes of what is in the folder: the same command, or, if `takes_back`, the one that takes
    /// it back. Returns what is wrong.
    ///
    /// # Errors
    /// The files cannot be read, or the program does not start.
    pub(crate) fn next(&self, takes_back: bool) -> Result<Option<String>> {
        let (line, expected) = match (self.flow.back, &self.back) {
            (Some(line), Some(files)) if takes_back => (line, files),
            _ => (self.flow.line, &self.end),
        };
        let output = self.plain(line)?;
        let differences = self.look()?.differences(expected);
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        Ok((!differences.is_empty()).then(|| {
            format!("`allograft {line}` then ended with {}, and these differ: {differences:?}\n{said}", output.status)
        }))
    }

    /// Runs these lines, and returns the files then.
    ///
    /// # Errors
    /// A run fails, or the files cannot be read.
    pub(crate) fn one_by_one(&self, lines: &[&str]) -> Result<Files> {
        lines.iter().try_for_each(|line| self.succeeds(line))?;
        Ok(self.files()?)
    }

    /// The states in which the files are whole: before the flow's run, after it, and when that was taken back.
    pub(crate) fn states(&self) -> Vec<&Files> {
        [Some(&self.begin), Some(&self.end), self.back.as_ref()].into_iter().flatten().collect()
    }

    /// Returns a run of the program in the folder.
    pub(crate) fn command(&self, line: &str) -> Command {
        *self.now.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let mut command = Command::new(&self.program);
        command
            .args(with_donor(line, self.donor).split_whitespace())
            .current_dir(self.folder())
            .stdin(std::process::Stdio::null());
        if let Some(build) = &self.flow.build {
            // Cargo sets these for the process that attacks.
            let set = std::env::vars_os().map(|(name, _)| name);
            let strange =
                set.filter(|name| ["CARGO", "RUST"].iter().any(|own| name.to_string_lossy().starts_with(own)));
            strange.for_each(|name| {
                command.env_remove(name);
            });
            command.envs((build.environment)(&self.folder(), &self.made.path().join("tools")));
        }
        command
    }

    fn plain(&self, line: &str) -> Result<std::process::Output> {
        self.command(line).output().with_context(|| format!("`{}` does not start", self.program.display()))
    }

    fn succeeds(&self, line: &str) -> Result<()> {
        let output = self.plain(line)?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{}: `allograft {line}`: {}\n{said}", self.flow.name, output.status);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_with_a_donor() {
        let donor = |name| donors::all().iter().find(|donor| donor.name == name).unwrap();
        let default = donors::default_for(Arch::X86_64);
        let other = donor("rpmalloc");
        for (line, expected) in [
            ("graft libc.a -o out.a", "graft --donor rpmalloc libc.a -o out.a"),
            ("emit --as object -o out.o", "emit --donor rpmalloc --as object -o out.o"),
            ("cc -O1 -o second program.c", "cc --donor rpmalloc -O1 -o second program.c"),
            ("allograft build --release", "allograft build --donor rpmalloc --release"),
            ("graft libc.a --donor mimalloc", "graft libc.a --donor mimalloc"),
            ("undo libc.a", "undo libc.a"),
        ] {
            assert_eq!(with_donor(line, other), expected);
            assert_eq!(with_donor(line, default), line);
        }
        assert_eq!(with_donor("graft a --donor rpmalloc", other), format!("graft a --donor {}", default.name));
    }
}
