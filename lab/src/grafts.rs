//! Programs linked against grafts, for benchmarks.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use tools::command;
use tools::workspace;
use xtask::linking::{self, Compiler, Musl};

/// An allocator of a build, from `allograft donors --json`.
pub(crate) struct Listed {
    /// Its name for `--donor`.
    pub(crate) name: String,
    /// Its profiles for `--profile`.
    pub(crate) profiles: Vec<String>,
}

/// Returns the allocators that a build has for this machine.
///
/// # Errors
/// `allograft donors` fails.
pub(crate) fn donors(allograft: &Path) -> Result<Vec<Listed>> {
    let said = command::output(Command::new(allograft).args(["donors", "--json"]))?;
    let document: Value = serde_json::from_str(&said).context("`donors --json` printed no JSON")?;
    let here = |donor: &&Value| {
        let arches = donor["arches"].as_array().map(Vec::as_slice).unwrap_or_default();
        donor["kind"] == "malloc" && arches.iter().any(|arch| arch == std::env::consts::ARCH)
    };
    let name = |value: &Value| value["name"].as_str().map(str::to_owned).context("something without a name");
    let listed = document["donors"].as_array().context("no list of donors")?.iter().filter(here).map(|donor| {
        let profiles = donor["profiles"].as_array().map(Vec::as_slice).unwrap_or_default();
        Ok(Listed { name: name(donor)?, profiles: profiles.iter().map(name).collect::<Result<_>>()? })
    });
    listed.collect()
}

/// The tools to link programs of the suite in a folder.
pub(crate) struct Workshop {
    folder: PathBuf,
    musl: Musl,
    compiler: Compiler,
}

impl Workshop {
    /// # Errors
    /// There is no musl for this machine, or no compiler.
    pub(crate) fn new(folder: &Path) -> Result<Workshop> {
        Ok(Workshop { folder: folder.to_owned(), musl: Musl::find()?, compiler: Compiler::find()? })
    }

    /// Copies the musl into a new folder `home`, grafts it if there are arguments for that, and links
    /// `suite/NAME/NAME.c` with it for each name. Returns the programs' paths.
    ///
    /// # Errors
    /// musl cannot be copied or grafted, or a program cannot be compiled or linked.
    pub(crate) fn link(&self, home: &str, graft: Option<(&Path, &[&str])>, names: &[&str]) -> Result<Vec<PathBuf>> {
        let suite = workspace::root().join("suite");
        let sources: Vec<PathBuf> = names.iter().map(|name| suite.join(name).join(name).with_extension("c")).collect();
        self.link_sources(home, graft, &sources)
    }

    /// Links sources at any path.
    ///
    /// # Errors
    /// As [`Workshop::link`].
    pub(crate) fn link_sources(
        &self,
        home: &str,
        graft: Option<(&Path, &[&str])>,
        sources: &[PathBuf],
    ) -> Result<Vec<PathBuf>> {
        let home = self.folder.join(home);
        if home.exists() {
            fs::remove_dir_all(&home).with_context(|| format!("cannot remove `{}`", home.display()))?;
        }
        let libc = self.musl.copy(&home)?;
        if let Some((allograft, arguments)) = graft {
            command::output(Command::new(allograft).args(["-q", "graft"]).args(arguments).arg(&libc))?;
        }
        let mut programs = Vec::new();
        for source in sources {
            let program = home.join(source.file_stem().context("a source has a name")?);
            let object = program.with_extension("o");
            self.musl.compile(&self.compiler, source, &object)?;
            self.musl.link(&self.compiler, &object, &home, &program)?;
            programs.push(program);
        }
        Ok(programs)
    }

    /// Links a source with this machine's glibc, as a static program. Returns its path.
    ///
    /// # Errors
    /// It does not compile, or there is no `libc.a` of glibc.
    pub(crate) fn link_glibc(&self, source: &Path) -> Result<PathBuf> {
        let home = self.folder.join("glibc");
        fs::create_dir_all(&home)?;
        let program = home.join(source.file_stem().context("a source has a name")?);
        let object = program.with_extension("o");
        linking::compile_for_glibc(&self.compiler, &[], source, &object)?;
        linking::link_for_static_glibc(&self.compiler, &object, &program)?;
        Ok(program)
    }
}
