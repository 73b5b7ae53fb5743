//! A case: a folder with a `case.toml` and the sources of one program.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use serde::Deserialize;

use crate::bench::{Bench, Donors, package};
use crate::link::LinkSetup;

/// The contents of `case.toml`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// The claim that the case proves, in one sentence.
    pub about: String,
    /// The program's sources, in the order in which they are linked; each order is a program of its own. A source is a
    /// file of the folder, or `package:NAME/PATH` for one of a package in the lock file.
    pub orders: Vec<Vec<String>>,
    /// Include folders, written like sources.
    #[serde(default)]
    pub include: Vec<String>,
    /// Preprocessor definitions.
    #[serde(default)]
    pub define: Vec<String>,
    /// More arguments for the linker.
    #[serde(default)]
    pub link: Vec<String>,
    /// The names of the allocators that the case is for. Empty: all.
    #[serde(default)]
    pub donors: Vec<String>,
    /// The signal that ends the program after its `ok`, such as `SIGABRT`.
    #[serde(default)]
    pub signal: Option<Signal>,
    /// The donor's options.
    #[serde(default)]
    pub settings: BTreeMap<String, i64>,
    /// Environment variables of the program.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// Texts that stderr must contain. Without texts, stderr must be empty.
    #[serde(default)]
    pub stderr: Vec<String>,
    /// Whether only string functions are grafted, once, instead of every allocator with them.
    #[serde(default)]
    pub strings_only: bool,
    /// Whether the default allocator is grafted without string functions, too.
    #[serde(default)]
    pub malloc_only: bool,
    /// Whether the program calls none of the string functions that are grafted on every architecture, and so may have
    /// no note of them.
    #[serde(default)]
    pub may_lack_strings: bool,
    /// Whether the case needs grafted string functions. It is skipped on architectures whose hosts keep musl's
    /// functions.
    #[serde(default)]
    pub needs_strings: bool,
    /// Whether the claim does not hold for stock musl.
    #[serde(default)]
    pub more_than_stock: bool,
    /// Whether the program is linked with a whole C++ library, and compiled with exceptions. It is built for this
    /// machine's architecture only.
    #[serde(default)]
    pub cxx: bool,
    /// The malloc that the inspector must find in the program, if that is not the donor's name.
    pub carries: Option<String>,
    /// The folder.
    #[serde(skip)]
    pub folder: PathBuf,
}

/// A signal that ends a program, with its number on Linux.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum Signal {
    /// SIGILL: from an instruction that is made to fail.
    #[serde(rename = "SIGILL")]
    Ill = 4,
    /// SIGTRAP: from a breakpoint.
    #[serde(rename = "SIGTRAP")]
    Trap = 5,
    /// SIGABRT: from `abort`.
    #[serde(rename = "SIGABRT")]
    Abrt = 6,
    /// SIGSEGV: from memory that is not mapped.
    #[serde(rename = "SIGSEGV")]
    Segv = 11,
}

impl Case {
    /// Returns every case, sorted by name.
    ///
    /// # Panics
    /// When a `case.toml` is malformed.
    pub fn all() -> Vec<Case> {
        let home = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases");
        let mut folders: Vec<PathBuf> =
            fs::read_dir(&home).expect("the folder of cases").filter_map(|entry| Some(entry.ok()?.path())).collect();
        folders.sort();
        folders.into_iter().map(Case::read).collect()
    }

    fn read(folder: PathBuf) -> Case {
        let path = folder.join("case.toml");
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let case = toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Case { folder, ..case }
    }

    /// Returns the folder's name.
    pub fn name(&self) -> String {
        self.folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Links the program in each order of its sources against a graft with these donors, or against stock, and runs it.
    ///
    /// # Errors
    /// A description of the fault.
    pub fn check(&self, bench: &Bench, donors: Donors, way: LinkSetup) -> Result<(), String> {
        let settings: Vec<(String, i64)> = self.settings.clone().into_iter().collect();
        let libc = bench.libc(way.host, donors, &settings);
        for (number, order) in self.orders.iter().enumerate() {
            let mut objects: Vec<PathBuf> = order.iter().map(|source| self.object(bench, way, source)).collect();
            if self.cxx {
                objects.extend(fixtures::zig_cxx(way.host.arch()));
            }
            let name = format!("{} {number} {} {}", self.name(), donors.name(), way.name().replace('/', " "));
            let program = bench.path(&name);
            let flags: Vec<OsString> = self.link.iter().map(OsString::from).collect();
            way.link(bench, &libc, &objects, &flags, &program)?;
            if donors != Donors::STOCK {
                let malloc = donors.malloc.unwrap_or("mallocng");
                let strings = donors.strings_for(way.host);
                self.check_carried(&program, self.carries.as_deref().unwrap_or(malloc), strings)?;
            }
            self.check_run(way, &program, donors != Donors::STOCK).map_err(|error| format!("{order:?}: {error}"))?;
        }
        Ok(())
    }

    fn object(&self, bench: &Bench, way: LinkSetup, source: &str) -> PathBuf {
        let mut arguments: Vec<OsString> = [
            "-O2",
            "-fPIE",
            "-pthread",
            "-fno-builtin",
            "-fno-sanitize=all",
            "-fno-exceptions",
            "-fno-rtti",
            "-w",
            "-Wno-date-time",
        ]
        .map(OsString::from)
        .into();
        if self.cxx {
            arguments.extend(["-fexceptions", "-frtti"].map(OsString::from));
        }
        for folder in &self.include {
            arguments.extend(["-I".into(), self.located(folder).into()]);
        }
        arguments.extend(self.define.iter().map(|define| format!("-D{define}").into()));
        bench.object(way.host.arch(), &self.located(source), &arguments)
    }

    fn located(&self, source: &str) -> PathBuf {
        match source.strip_prefix("package:").and_then(|rest| rest.split_once('/')) {
            Some((name, path)) => package(name).join(path),
            None => self.folder.join(source),
        }
    }

    fn check_carried(&self, program: &Path, expected: &str, strings: bool) -> Result<(), String> {
        let bytes = fs::read(program).map_err(|error| error.to_string())?;
        let report = inspector::inspect(&bytes).map_err(|error| error.to_string())?;
        let found = report.malloc.name.to_string();
        let grafted = report.strings == inspector::Strings::Grafted;
        if found == expected && (grafted == strings || self.may_lack_strings) {
            Ok(())
        } else {
            Err(format!("the inspector says {found}, not {expected}, or is wrong on strings: {report:#?}"))
        }
    }

    /// Whether a program ended as it should. An emulator passes its program's signal on to itself.
    fn ended(&self, status: ExitStatus) -> bool {
        self.signal.map_or(status.success(), |signal| status.signal() == Some(signal as i32))
    }

    fn check_run(&self, way: LinkSetup, program: &Path, grafted: bool) -> Result<(), String> {
        let environment: Vec<(String, String)> = self.environment.clone().into_iter().collect();
        let output = way.run(program, &environment)?;
        let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        // qemu reports the signal that ends a program.
        let emulators =
            |line: &str| !fixtures::runs_here(way.host.arch()) && line.starts_with("qemu: uncaught target signal ");
        let said = if grafted && !self.stderr.is_empty() {
            self.stderr.iter().all(|wanted| stderr.contains(wanted))
        } else {
            stderr.lines().all(emulators)
        };
        if self.ended(output.status) && stdout == "ok\n" && said {
            return Ok(());
        }
        Err(format!("{}, stdout {stdout:?}, stderr {stderr:?}", output.status))
    }
}
