//! One command of allograft on one kind of host.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::files::Files;
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
}

/// A flow in a folder, and the files that its undisturbed runs make.
#[derive(Debug)]
pub struct Scene {
    pub(crate) flow: &'static Flow,
    program: PathBuf,
    made: tempfile::TempDir,
    /// The number of calls of the undisturbed run.
    pub(crate) calls: usize,
    pub(crate) begin: Files,
    pub(crate) end: Files,
    back: Option<Files>,
}

impl Scene {
    /// Prepares a flow of this program of allograft, and runs it undisturbed.
    ///
    /// # Errors
    /// A run fails, or two equal runs make different files.
    pub fn new(flow: &'static Flow, program: &Path) -> Result<Scene> {
        let made = tempfile::tempdir()?;
        for name in ["folder", "scratch"] {
            std::fs::create_dir(made.path().join(name))?;
        }
        let mut scene = Scene {
            flow,
            program: program.to_owned(),
            made,
            calls: 0,
            begin: Files::default(),
            end: Files::default(),
            back: None,
        };
        (flow.prepare)(&scene.folder());
        for line in flow.before {
            scene.succeeds(line)?;
        }
        scene.begin = Files::read(&scene.folder())?;
        scene.succeeds(flow.line)?;
        scene.end = Files::read(&scene.folder())?;
        ensure!(scene.begin != scene.end, "{}: the undisturbed run changes nothing", flow.name);
        if let Some(line) = flow.back {
            scene.succeeds(line)?;
            scene.back = Some(Files::read(&scene.folder())?);
        }
        scene.begin.write(&scene.folder())?;
        let again = scene.traced(&mut Calm)?;
        ensure!(again.end == End::Exit(0), "{} under ptrace: {:?}\n{}", flow.name, again.end, again.said);
        let differences = Files::read(&scene.folder())?.differences(&scene.end);
        ensure!(differences.is_empty(), "{}: two runs make different files: {differences:?}", flow.name);
        scene.calls = again.calls;
        Ok(scene)
    }

    /// The folder in which the flow runs.
    pub(crate) fn folder(&self) -> PathBuf {
        self.made.path().join("folder")
    }

    /// Runs the flow's command under ptrace.
    pub(crate) fn traced(&self, watch: &mut dyn Watch) -> Result<Ran> {
        let scratch = self.made.path().join("scratch");
        run(&self.program, self.flow.line.split_whitespace(), &self.folder(), &scratch, watch)
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
        let differences = Files::read(&self.folder())?.differences(expected);
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        Ok((!differences.is_empty()).then(|| {
            format!("`allograft {line}` then ended with {}, and these differ: {differences:?}\n{said}", output.status)
        }))
    }

    /// The states in which the files are whole: before the flow's run, after it, and when that was taken back.
    pub(crate) fn states(&self) -> Vec<&Files> {
        [Some(&self.begin), Some(&self.end), self.back.as_ref()].into_iter().flatten().collect()
    }

    /// Returns a run of the program in the folder.
    pub(crate) fn command(&self, line: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.args(line.split_whitespace()).current_dir(self.folder()).stdin(std::process::Stdio::null());
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
