//! A dynamic program: run unchanged, with each donor's shared object loaded before its libc, and with other settings of
//! glibc's own malloc.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use format::Arch;
use inspector::{Kind, Libc as Found, Link};
use measure::case::Invocation;
use measure::results::Origin;

use super::arms::{self, Arm, ArmGraft, Fitting, Libc, Setting};
use super::template;
use crate::failure::{Failure, mend};
use crate::tuning;

/// The loader's list of files to load first. Only the measured programs have it in their environment, never this
/// process.
const PRELOAD: &str = "LD_PRELOAD";
/// The list of settings that glibc reads when a program starts, separated by colons.
const TUNABLES: &str = "GLIBC_TUNABLES";
/// The time within which the program must report the donor, which it does first of all.
const SAYS: Duration = Duration::from_secs(60);

/// The user's program.
pub(super) struct Preloaded {
    /// The path that the user gave.
    pub(super) typed: String,
    path: PathBuf,
    pub(super) sha256: String,
    arch: Arch,
    /// The libc's name in a target triple.
    libc: &'static str,
    /// The whole command that the user gave.
    command: Vec<OsString>,
}

impl Preloaded {
    /// Returns the program of the command if it is a dynamic one, else `None`.
    ///
    /// # Errors
    /// A dynamic program that no donor can be loaded into.
    pub(super) fn find(command: &[OsString]) -> Result<Option<Preloaded>, Failure> {
        let path = super::executable::on_path(&command[0]).unwrap_or_else(|| PathBuf::from(&command[0]));
        let typed = command[0].to_string_lossy().into_owned();
        let Ok(bytes) = fs::read(&path) else { return Ok(None) };
        let Ok(report) = inspector::inspect(&bytes) else { return Ok(None) };
        if report.kind != Kind::Executable || report.link != Some(Link::Dynamic) {
            return Ok(None);
        }
        let refused = |why: String, help: &str| Err(Failure::refused(format!("`{typed}` {why}")).with_help(help));
        let libc = match report.libc {
            Found::Glibc => "gnu",
            Found::Musl => "musl",
            _ => {
                return refused(
                    "is dynamic, and its libc is neither glibc nor musl".to_owned(),
                    "preloading is for these",
                );
            }
        };
        let arch = report.arch.name();
        let Some(arch) = Arch::from_name(&arch).filter(|arch| arch.name() == std::env::consts::ARCH) else {
            return refused(
                format!("is for {arch}, and this machine is {}", std::env::consts::ARCH),
                "measure on a machine of that architecture: rankings do not carry over",
            );
        };
        const SETUID_OR_SETGID: u32 = 0o6000;
        if fs::metadata(&path).is_ok_and(|file| file.mode() & SETUID_OR_SETGID != 0) {
            return refused(
                "is setuid or setgid: nothing is preloaded into it".to_owned(),
                "measure a copy without that bit",
            );
        }
        let sha256 = hosts::sha256(&bytes);
        Ok(Some(Preloaded { typed, path, sha256, arch, libc, command: command.to_vec() }))
    }

    /// The libc that provides stock's malloc.
    pub(super) fn libc(&self) -> &'static str {
        if self.libc == "gnu" { "glibc" } else { "musl" }
    }

    /// Returns stock and the arms of the list. Without a list: every donor that can be preloaded, and glibc with other
    /// settings if that is the program's libc.
    pub(super) fn arms(&self, list: Option<&[String]>) -> Result<Vec<Arm>, Failure> {
        let offered = donors::all().iter().filter(|donor| donor.has_library(self.arch));
        let every: Vec<String> = offered.map(|donor| donor.name.to_owned()).collect();
        let tunable = self.libc == "gnu";
        let settings = match tunable {
            true => {
                "; settings of glibc are `glibc:TUNABLE=VALUE`, other allocators `tcmalloc`, `mesh`, `preload:PATH`"
            }
            false => "",
        };
        let help = format!("these can be preloaded: {}{settings}", every.join(", "));
        let tuned = arms::TUNED.into_iter().filter(|_| tunable).map(str::to_owned);
        let all: Vec<String> = every.into_iter().chain(tuned).collect();
        let list = list.unwrap_or(&all);
        let program = Fitting {
            name: if tunable { "a dynamic program of glibc" } else { "a dynamic program of musl" },
            kind: arms::HostKind::Shared,
            takes: &|donor| donor.has_library(self.arch),
            is_settable: tunable,
            help: &help,
        };
        program.arms(list, self.arch)
    }

    /// Writes the arm's shared object to `folder`, tries it, and returns its path. For an arm without a shared object
    /// the path is empty.
    pub(super) fn make(&self, arm: &Arm, folder: &Path) -> Result<PathBuf, Failure> {
        if let Libc::Stock(Setting::Preload(library)) = &arm.libc {
            nameable(library, "make a link to it whose path has none")?;
            self.loads(library)?;
            return Ok(library.clone());
        }
        let Libc::Graft(graft @ ArmGraft { donor: Some(donor), .. }) = &arm.libc else { return Ok(PathBuf::new()) };
        let library = folder.join(format!("lib{}.so", donor.name));
        nameable(&library, "set TMPDIR to a folder without them")?;
        let (bytes, _) = tuning::library(donor, self.arch, &graft.options())?;
        let cannot = Failure::io("write", &library);
        fs::create_dir_all(folder).and_then(|()| fs::write(&library, bytes)).map_err(cannot)?;
        self.takes(donor.name, &library)?;
        Ok(library)
    }

    /// Lets the loader of glibc list what it would load, which does not start the program. A loader that cannot load a
    /// file prints a warning and goes on without it.
    fn loads(&self, library: &Path) -> Result<(), Failure> {
        let mut command = Command::new(&self.path);
        command.env(PRELOAD, before_own(PRELOAD, library.as_os_str())).env("LD_TRACE_LOADED_OBJECTS", "1");
        let output = command.stdin(Stdio::null()).output().map_err(|error| {
            Failure::usage(format!("`{}` cannot be started: {error}", self.typed)).with_help(mend(&error))
        })?;
        let listed = String::from_utf8_lossy(&output.stdout);
        let path = library.to_string_lossy();
        if listed.lines().any(|line| line.trim().split(" (").next() == Some(&*path)) {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.lines().next().unwrap_or("nothing");
        Err(Failure::usage(format!("`{}` does not take `{path}` by {PRELOAD}: the loader says `{said}`", self.typed))
            .with_help("name a shared object for this machine and this libc"))
    }

    /// Starts the program with the donor, and ends it once it has reported that the donor serves malloc. A loader that
    /// cannot load a file prints a warning and goes on without it; all arms would then be the same program.
    fn takes(&self, donor: &str, library: &Path) -> Result<(), Failure> {
        let mut command = Command::new(&self.path);
        command
            .args(&self.command[1..])
            .env(PRELOAD, before_own(PRELOAD, library.as_os_str()))
            .env("ALLOGRAFT_VERBOSE", "1");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0);
        let child = command.spawn();
        let mut child = child.map_err(|error| {
            Failure::usage(format!("`{}` cannot be started: {error}", self.typed)).with_help(mend(&error))
        })?;
        let wanted = format!("allograft: {donor} ");
        let (tell, told) = mpsc::channel();
        if let Some(stderr) = child.stderr.take() {
            // The thread ends with the program's standard error, which the end of its process group below closes.
            std::thread::spawn(move || {
                let mut first = None;
                for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                    if line.starts_with(&wanted) {
                        let _ = tell.send(Ok(()));
                        return;
                    }
                    first.get_or_insert(line);
                }
                let _ = tell.send(Err(first.unwrap_or_default()));
            });
        }
        let said = told.recv_timeout(SAYS).unwrap_or_else(|_| Err("nothing".to_owned()));
        // This comes before `wait`: until then no other process can get its number.
        measure::process::end_group(child.id());
        let _ = child.wait();
        said.map_err(|said| {
            Failure::usage(format!("`{}` does not take {donor} by {PRELOAD}: it says `{said}`", self.typed)).with_help(
                "has it an allocator of its own, or closed its standard error? `allograft inspect` says what it carries",
            )
        })
    }

    /// Returns a run of the arm: with its shared object, or with its settings.
    pub(super) fn invocation(
        &self,
        line: &super::program::Line<'_>,
        arm: &Arm,
        library: &Path,
        threads: Option<u32>,
    ) -> Invocation {
        let (name, value) = match &arm.libc {
            Libc::Graft(_) => (PRELOAD, before_own(PRELOAD, library.as_os_str())),
            Libc::Stock(Setting::Preload(_)) => (PRELOAD, before_own(PRELOAD, library.as_os_str())),
            // Of two values the last counts.
            Libc::Stock(Setting::Tunables(tunables)) => (TUNABLES, behind_own(TUNABLES, settings(tunables).as_ref())),
            _ => return line.invocation(&self.path, threads),
        };
        // A shell starts the server. What is for the server must not be in the shell's environment, so `env` sets it
        // and executes the server.
        let words = [format!("{name}={}", value.to_string_lossy()), self.path.to_string_lossy().into_owned()];
        let words: Vec<String> = words.iter().map(|word| template::quoted(word)).collect();
        line.served(&format!("env {}", words.join(" ")), threads).unwrap_or_else(|| {
            let mut invocation = line.invocation(&self.path, threads);
            invocation.environment.push((name.into(), value));
            invocation
        })
    }

    /// The arm's origin, for the results.
    pub(super) fn origin(&self, arm: &Arm, server: Option<&str>) -> Origin {
        let command = match &arm.libc {
            Libc::Graft(graft) => Some(self.applied(graft, server)),
            Libc::Stock(Setting::Tunables(tunables)) => {
                Some(format!("{TUNABLES}={} {}", settings(tunables), self.started(server)))
            }
            Libc::Stock(Setting::Preload(library)) => {
                let library = template::quoted(&library.to_string_lossy());
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
        let words: Vec<String> = self.command.iter().map(|word| template::quoted(&word.to_string_lossy())).collect();
        let words = words.join(" ");
        server.map_or_else(|| words.clone(), |server| template::filled(server, &[("out", &words)]))
    }
}

/// Checks that a file can be in the list of files to load first.
fn nameable(library: &Path, help: &str) -> Result<(), Failure> {
    if library.as_os_str().as_encoded_bytes().iter().any(|byte| b" :\t\n".contains(byte)) {
        let message =
            format!("`{}` cannot be named in {PRELOAD}: blanks and colons separate files there", library.display());
        return Err(Failure::usage(message).with_help(help));
    }
    Ok(())
}

/// Returns the tunables as glibc reads them.
fn settings(tunables: &[(String, i64)]) -> String {
    let each: Vec<String> = tunables.iter().map(|(name, value)| format!("glibc.malloc.{name}={value}")).collect();
    each.join(":")
}

/// Returns the value with the user's own of that variable behind it.
fn before_own(variable: &str, value: &OsStr) -> OsString {
    joined([Some(value.to_owned()), std::env::var_os(variable)])
}

/// Returns the value with the user's own of that variable before it.
fn behind_own(variable: &str, value: &OsStr) -> OsString {
    joined([std::env::var_os(variable), Some(value.to_owned())])
}

fn joined(values: [Option<OsString>; 2]) -> OsString {
    let values: Vec<OsString> = values.into_iter().flatten().filter(|value| !value.is_empty()).collect();
    values.join(OsStr::new(":"))
}
