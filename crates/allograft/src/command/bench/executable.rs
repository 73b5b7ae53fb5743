//! A linked executable. Each arm grafts it into a file of its own and runs it with the user's arguments.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use donors::Donor;
use format::Arch;
use hosts::Request;

use super::arms::{self, Arm, Fitting, HostKind, Libc, Selection};
use super::cases::similar_case;
use super::preparation::native;
use crate::failure::Failure;
use crate::program::on_path;
use crate::shell::quoted;

/// The user's program.
pub(super) struct Executable {
    /// The path that the user gave.
    pub(super) typed: String,
    path: PathBuf,
    arch: Arch,
    pub(super) sha256: String,
}

/// Refuses a program that has other rights than its callers: the measured copies would not have them.
pub(crate) fn check_rights(path: &Path, typed: &str) -> Result<(), Failure> {
    match hosts::is_privileged(path) {
        true => Err(Failure::refused(format!(
            "`{typed}` is setuid or setgid, or has capabilities: the measured programs would not have its rights"
        ))
        .with_help("measure a copy without them")),
        false => Ok(()),
    }
}

impl Executable {
    /// Finds the program as a shell would.
    ///
    /// # Errors
    /// When it cannot be read, is not a program, or is for another architecture.
    pub(super) fn find(command: &OsString) -> Result<Executable, Failure> {
        let path = on_path(command).unwrap_or_else(|| PathBuf::from(command));
        let typed = command.to_string_lossy().into_owned();
        if !path.exists() && !typed.contains('/') {
            return Err(Failure::usage(format!("there is neither a program `{typed}` nor a case of the suite"))
                .with_help(match similar_case(typed.trim_start_matches("suite:")) {
                    Some(case) if typed.starts_with("suite:") => format!("did you mean the case `suite:{case}`?"),
                    Some(case) => format!("did you mean the case `{case}`? A program here is `./{typed}`"),
                    None => {
                        "name a program, `allograft bench ./program ARGS`; `allograft bench --help` lists the cases"
                            .to_owned()
                    }
                }));
        }
        if path.is_dir() {
            return Err(Failure::usage(format!("`{typed}` is a folder")).with_help(format!(
                "name a program in it: `allograft bench {}/PROGRAM ARGS`",
                quoted(typed.trim_end_matches('/'))
            )));
        }
        let is_program = match hosts::is_executable(&path) {
            Err(hosts::Error::Unrecognised { .. }) => false,
            is_program => is_program?,
        };
        if !is_program {
            return Err(Failure::usage(format!("`{typed}` is not an ELF program")).with_help(
                "name the program that a script starts, or say how it is built: \
                 `--build 'CMD with {libdir} and {out}'`",
            ));
        }
        let bytes = fs::read(&path).map_err(Failure::io("read", &path))?;
        let program = transplant::Executable::read(&bytes)
            .map_err(|refusal| hosts::Error::Executable { path: path.clone(), refusal })?;
        let arch = program.arch();
        native(&typed, arch)?;
        check_rights(&path, &typed)?;
        let sha256 = hosts::sha256(&bytes);
        Ok(Executable { typed, path, arch, sha256 })
    }

    /// Returns the arms that were asked for, stock first. `all` is every donor that goes into executables, alone, with
    /// the selection's profile and, if some of the program's string functions can be exchanged, with string functions.
    /// If none can be exchanged, returns the reason too.
    pub(super) fn arms(&self, asked: Selection<'_>) -> Result<(Vec<Arm>, Option<String>), Failure> {
        let without = asked.has_all().then(|| self.no_strings()).flatten();
        let with = |donor| without.is_none().then(|| arms::with_strings(donor));
        let all: Vec<String> = self.offered().flat_map(|donor| asked.each(donor).chain(with(donor))).collect();
        let help = format!(
            "these go into executables: {}; with `:strings` behind them, string functions too",
            self.offered().map(|donor| donor.name).collect::<Vec<_>>().join(", ")
        );
        let program = Fitting {
            name: "a linked executable",
            kind: HostKind::Executable,
            takes: &|donor: &Donor| donor.has_blob(self.arch),
            is_settable: false,
            all: &all,
            help: &help,
        };
        Ok((program.arms(asked, self.arch)?, without))
    }

    /// The donors that go into executables.
    fn offered(&self) -> impl Iterator<Item = &'static Donor> {
        let arch = self.arch;
        donors::all().iter().filter(move |donor| donor.has_blob(arch))
    }

    /// The donors for this architecture that do not go into executables.
    pub(super) fn for_archives_only(&self) -> Vec<&'static str> {
        let others = donors::all().iter().filter(|donor| donor.supports(self.arch) && !donor.has_blob(self.arch));
        others.map(|donor| donor.name).collect()
    }

    /// Returns why the program's string functions cannot be exchanged, or `None` if they can.
    fn no_strings(&self) -> Option<String> {
        let donor = self.offered().next()?;
        let request = Request { strings: Some(true), dry_run: true, ..Request::new(donor) };
        hosts::graft(&self.path, &request).err().map(|error| error.to_string())
    }

    /// Makes the arm's program in `folder`. Stock is copied too, so that every arm starts from the same kind of folder.
    pub(super) fn make(&self, arm: &Arm, folder: &Path) -> Result<PathBuf, Failure> {
        let cannot = Failure::io("write", folder);
        fs::create_dir_all(folder).map_err(&cannot)?;
        // The file keeps its name, since some programs depend on it.
        let out = folder.join(self.path.file_name().unwrap_or_default());
        match &arm.libc {
            Libc::Graft(graft) => {
                hosts::graft(&self.path, &graft.request(out.clone()))?;
            }
            _ => fs::copy(&self.path, &out).map(|_| ()).map_err(cannot)?,
        }
        Ok(out)
    }
}
