//! A dynamic program: run unchanged, with each donor merged into a copy of it or preloaded, and with other settings of
//! glibc's own malloc.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use format::{Arch, Linked};
use hosts::Request;
use inspector::Libc as Found;
use measure::case::Invocation;
use measure::results::Origin;
use transplant::Executable;

use super::arms::{self, Arm, ArmGraft, Fitting, Libc, Selection, Setting};
use super::preload::{self, PRELOAD};
use super::template;
use crate::failure::Failure;
use crate::program::on_path;
use crate::tuning;

/// The list of settings that glibc reads when a program starts, separated by colons.
const TUNABLES: &str = "GLIBC_TUNABLES";

/// The user's program.
pub(super) struct Dynamic {
    /// The path that the user gave.
    pub(super) typed: String,
    path: PathBuf,
    pub(super) sha256: String,
    arch: Arch,
    /// The libc's name in a target triple.
    libc: &'static str,
    /// The whole command that the user gave.
    command: Vec<OsString>,
    /// Why no donor is merged into it, or `None` if they are.
    unmerged: Option<String>,
}

impl Dynamic {
    /// Returns the program of the command if it is a dynamic one, else `None`.
    ///
    /// # Errors
    /// A dynamic program that no donor can be loaded into.
    pub(super) fn find(command: &[OsString]) -> Result<Option<Dynamic>, Failure> {
        let path = on_path(&command[0]).unwrap_or_else(|| PathBuf::from(&command[0]));
        let typed = command[0].to_string_lossy().into_owned();
        let Ok(bytes) = fs::read(&path) else { return Ok(None) };
        let program = match Executable::read(&bytes) {
            Ok(program) if program.kind() == Linked::Dynamic => program,
            // Making the arms says what it is.
            Ok(_) | Err(_) => return Ok(None),
        };
        let refused = |why: String, help: &str| Err(Failure::refused(format!("`{typed}` {why}")).with_help(help));
        let libc = match inspector::inspect(&bytes).map(|report| report.libc) {
            Ok(Found::Glibc) => "gnu",
            Ok(Found::Musl) => "musl",
            Ok(_) | Err(_) => {
                return refused(
                    "is dynamic, and its libc is neither glibc nor musl".to_owned(),
                    "donors are merged or preloaded into programs of these",
                );
            }
        };
        let arch = program.arch();
        if arch.name() != std::env::consts::ARCH {
            return refused(
                format!("is for {arch}, and this machine is {}", std::env::consts::ARCH),
                "measure on a machine of that architecture: rankings do not carry over",
            );
        }
        super::executable::check_rights(&path, &typed)?;
        let sha256 = hosts::sha256(&bytes);
        let unmerged = unmerged(&path, &program);
        Ok(Some(Dynamic { typed, path, sha256, arch, libc, command: command.to_vec(), unmerged }))
    }

    /// The libc that provides stock's malloc.
    pub(super) fn libc(&self) -> &'static str {
        if self.libc == "gnu" { "glibc" } else { "musl" }
    }

    /// Why no donor is merged into it: a clause whose subject is a donor. `None` if they are merged.
    pub(super) fn unmerged(&self) -> Option<&str> {
        self.unmerged.as_deref()
    }

    /// Whether the arm's donor is loaded by the loader, and no part of the program.
    fn preloads(&self, graft: &ArmGraft) -> bool {
        graft.preload || self.unmerged.is_some()
    }

    /// Whether one of these arms has its donor preloaded.
    pub(super) fn any_preloaded(&self, arms: &[Arm]) -> bool {
        arms.iter().any(|arm| matches!(&arm.libc, Libc::Graft(graft) if self.preloads(graft)))
    }

    /// Returns the arms that were asked for, stock first. `all` is every donor that such a program can have, alone and
    /// with the selection's profile, and glibc with other settings if that is the program's libc.
    pub(super) fn arms(&self, asked: Selection<'_>) -> Result<Vec<Arm>, Failure> {
        let offered: Vec<_> = donors::all().iter().filter(|donor| donor.has_library(self.arch)).collect();
        let every: Vec<&str> = offered.iter().map(|donor| donor.name).collect();
        let tunable = self.libc == "gnu";
        let settings = match tunable {
            true => {
                "; settings of glibc are `glibc:TUNABLE=VALUE`, other allocators `tcmalloc`, `mesh`, `preload:PATH`"
            }
            false => "",
        };
        let help = format!("it can have: {}, each also `:preload`{settings}", every.join(", "));
        let tuned = arms::TUNED.into_iter().filter(|_| tunable).map(str::to_owned);
        let all: Vec<String> = offered.iter().flat_map(|donor| asked.each(donor)).chain(tuned).collect();
        let program = Fitting {
            name: if tunable { "a dynamic program of glibc" } else { "a dynamic program of musl" },
            kind: arms::HostKind::Shared,
            takes: &|donor| donor.has_library(self.arch),
            is_settable: tunable,
            all: &all,
            help: &help,
        };
        program.arms(asked, self.arch)
    }

    /// Makes the arm's file in `folder`, and returns its path: a copy of the program with a donor in it, or a shared
    /// object that the program takes. An arm with other settings is the program itself.
    pub(super) fn make(&self, arm: &Arm, folder: &Path) -> Result<PathBuf, Failure> {
        let trial = preload::Program { typed: &self.typed, path: &self.path, arguments: &self.command[1..] };
        match &arm.libc {
            Libc::Stock(Setting::Preload(library)) => {
                preload::nameable(library, "make a link to it whose path has none")?;
                trial.loads(library)?;
                Ok(library.clone())
            }
            Libc::Graft(graft @ ArmGraft { donor: Some(donor), .. }) => {
                fs::create_dir_all(folder).map_err(Failure::io("write", folder))?;
                if !self.preloads(graft) {
                    // The file keeps its name, since some programs depend on it.
                    let out = folder.join(self.path.file_name().unwrap_or_default());
                    hosts::graft(&self.path, &graft.request(out.clone()))?;
                    return Ok(out);
                }
                let library = folder.join(format!("lib{}.so", donor.name));
                preload::nameable(&library, "set TMPDIR to a folder without them")?;
                let (bytes, note) = tuning::library(donor, self.arch, &graft.options())?;
                let donor_file = tuning::verified(bytes, [Some(&note), None])?;
                fs::write(&library, donor_file.bytes()).map_err(Failure::io("write", &library))?;
                trial.takes(donor.name, &library)?;
                Ok(library)
            }
            _ => Ok(self.path.clone()),
        }
    }

    /// Returns a run of the arm, whose file is `made`.
    pub(super) fn invocation(
        &self,
        line: &super::program::Line<'_>,
        arm: &Arm,
        made: &Path,
        threads: Option<u32>,
    ) -> Invocation {
        let (name, value) = match &arm.libc {
            Libc::Graft(graft) if self.preloads(graft) => (PRELOAD, preload::before_own(PRELOAD, made.as_os_str())),
            Libc::Stock(Setting::Preload(_)) => (PRELOAD, preload::before_own(PRELOAD, made.as_os_str())),
            // Of two values the last counts.
            Libc::Stock(Setting::Tunables(tunables)) => {
                (TUNABLES, preload::behind_own(TUNABLES, settings(tunables).as_ref()))
            }
            _ => return line.invocation(made, threads),
        };
        // A shell starts the server. What is for the server must not be in the shell's environment, so `env` sets it
        // and executes the server.
        let words = [format!("{name}={}", value.to_string_lossy()), self.path.to_string_lossy().into_owned()];
        let words: Vec<String> = words.iter().map(|word| crate::shell::quoted(word)).collect();
        line.served(&format!("env {}", words.join(" ")), threads).unwrap_or_else(|| {
            let mut invocation = line.invocation(&self.path, threads);
            invocation.environment.push((name.into(), value));
            invocation
        })
    }

    /// The arm's origin, for the results.
    pub(super) fn origin(&self, arm: &Arm, server: Option<&str>) -> Origin {
        let command = match &arm.libc {
            Libc::Graft(graft) if self.preloads(graft) => Some(self.applied(graft, server)),
            Libc::Graft(_) => return arm.origin(&self.typed, false),
            Libc::Stock(Setting::Tunables(tunables)) => {
                Some(format!("{TUNABLES}={} {}", settings(tunables), self.started(server)))
            }
            Libc::Stock(Setting::Preload(library)) => {
                let library = crate::shell::quoted(&library.to_string_lossy());
                Some(format!("{PRELOAD}={library} {}", self.started(server)))
            }
            _ => None,
        };
        Origin { command, ..arm.origin(&self.typed, false) }
    }

    /// The commands that make the shared object and use it.
    fn applied(&self, graft: &ArmGraft, server: Option<&str>) -> String {
        let name = graft.donor.map_or(arms::STOCK, |donor| donor.name);
        let target = format!("{}-linux-{}", self.arch.name(), self.libc);
        let words = self.started(server);
        let tuned = graft.tuning("--profile");
        format!(
            "allograft emit --donor {name}{tuned} --target {target} --as shared -o lib{name}.so && {PRELOAD}=./lib{name}.so {words}"
        )
    }

    /// The command that starts the program.
    fn started(&self, server: Option<&str>) -> String {
        let words: Vec<String> =
            self.command.iter().map(|word| crate::shell::quoted(&word.to_string_lossy())).collect();
        let words = words.join(" ");
        server.map_or_else(|| words.clone(), |server| template::filled(server, &[("out", &words)]))
    }
}

/// Returns the tunables as glibc reads them.
fn settings(tunables: &[(String, i64)]) -> String {
    let each: Vec<String> = tunables.iter().map(|(name, value)| format!("glibc.malloc.{name}={value}")).collect();
    each.join(":")
}

/// Returns why no donor is merged into a program: a clause whose subject is a donor. `None` if one can be.
fn unmerged(path: &Path, program: &Executable<'_>) -> Option<String> {
    if program.may_search_beside_itself() {
        return Some(format!(
            "is not merged into a copy of `{}`, which may look for files beside itself ($ORIGIN)",
            path.display()
        ));
    }
    let donor = donors::default_for(program.arch());
    let request = Request { dry_run: true, ..Request::new(donor) };
    hosts::graft(path, &request).err().map(|error| format!("cannot be merged: {error}"))
}
