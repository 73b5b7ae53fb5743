//! `allograft heap`: says what a heap profile holds, and what grew between two.

mod overview;
pub(crate) mod run;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use profiler::heap::{Heap as Read, HeapError, HeapProfile};

use crate::failure::{Failure, mend};
use crate::output::{Output, file};
pub(crate) use overview::overview;

/// Say what is live in a heap profile, and what grew
///
/// Reads a heap profile of a grafted program, which it writes with ALLOGRAFT_HEAP=PATH in its environment, or one that
/// Go, jemalloc or tcmalloc wrote in the format of pprof. Says which call sites hold the live bytes, and whether the
/// allocator's memory is live or retained. With an older profile of the same program, says what grew, and what may be a
/// leak.
///
/// Functions have the names of the file that the profile names, if its build id is the profile's, or of its debug file;
/// without names, they are shown by file and address. `allograft profile --heap ./program` runs a program and shows the
/// report in one step.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  allograft profile --heap ./program ARGS       # run it, and show its heap
  allograft heap server.pb.gz
  allograft heap server.2.pb.gz server.1.pb.gz  # what grew?
  allograft heap server.pb.gz -o heap.html --program ./server")]
pub(crate) struct Heap {
    /// Heap profile to read
    ///
    /// The heap profile: a protocol buffer of pprof, packed by gzip or not
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Older profile to compare with
    ///
    /// An older profile of the same program: says what grew since
    #[arg(value_name = "OLDER")]
    older: Option<PathBuf>,
    /// Write the report as a page
    ///
    /// Write the report with flame graphs into this file, as one page that needs no network
    #[arg(short = 'o', long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Where the program's file is now
    ///
    /// The program's file, for the names of its functions, if it is not where the profile says. Its build id has to be
    /// the profile's
    #[arg(long, value_name = "PATH")]
    program: Option<PathBuf>,
}

impl Heap {
    pub(crate) fn run(self, output: &Output) -> Result<ExitCode, Failure> {
        let profile = read(&self.file)?;
        let older = self.older.as_deref().map(read).transpose()?;
        let heap = Read::new(profile, older, self.program.as_deref()).map_err(|error| failed(&self.file, error))?;
        for warning in &heap.report.warnings {
            output.warn(warning);
        }
        // Before the page: if either cannot be written, the other one still is.
        let said = match output.json {
            true => output.document(&heap.report),
            false => output.text(&overview(&heap.report, output)),
        };
        if let Some(path) = &self.html {
            file::write(path, heap.page().as_bytes()).map_err(Failure::io("write", path))?;
            output.note(format_args!("wrote {}", path.display()));
        }
        said.map(|()| ExitCode::SUCCESS)
    }
}

/// Reads a heap profile.
///
/// # Errors
/// Exit code 2 if it cannot be read, or is not one.
fn read(path: &Path) -> Result<HeapProfile, Failure> {
    HeapProfile::read(path).map_err(|error| failed(path, error))
}

/// Returns the failure of reading or comparing the profile at `path`.
fn failed(path: &Path, error: HeapError) -> Failure {
    let shown = path.display();
    let help = match &error {
        HeapError::Io(source) => {
            return Failure::io("read", path)(std::io::Error::new(source.kind(), source.to_string()));
        }
        HeapError::Packed(_) => {
            "the program was perhaps ended while it wrote: take an earlier profile, or write another one".to_owned()
        }
        HeapError::IsProgram => {
            format!("to profile its heap: `allograft profile --heap {}`", crate::shell::quoted(&shown.to_string()))
        }
        HeapError::Malformed(_) | HeapError::Missing(..) => {
            "name a heap profile: a grafted program writes one with ALLOGRAFT_HEAP=PATH in its environment".to_owned()
        }
        HeapError::TooMany(_) => "write one with fewer samples: ALLOGRAFT_HEAP=PATH:4194304".to_owned(),
        HeapError::Foreign(_) => "name a heap profile; `go tool pprof` reads the others".to_owned(),
        HeapError::Difference => "name both profiles: `allograft heap FILE OLDER`".to_owned(),
        HeapError::Program(..) => "name the file that ran, or leave `--program` out".to_owned(),
        HeapError::Swapped => "name the later profile first: `allograft heap FILE OLDER`".to_owned(),
    };
    let message = match &error {
        HeapError::Program(..) => error.to_string(),
        _ => format!("cannot read the heap profile `{shown}`: {error}"),
    };
    Failure::usage(message).with_help(help)
}

/// Returns the failure of a program that cannot be started.
fn cannot_start(program: &str, error: &std::io::Error) -> Failure {
    Failure::usage(format!("cannot start `{program}`: {error}")).with_help(mend(error))
}
