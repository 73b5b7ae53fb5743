//! Finds zig and runs its C compiler. Only the build of allograft uses it, never allograft itself.
//!
//! | module | what lives there |
//! | --- | --- |
//! | [`arches`] | the architectures that a build embeds objects for |
//! | [`store`] | files that builds have made, kept for other builds |

pub mod arches;
pub mod store;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

pub use format::Arch;

/// The release of zig that donors are built with. It is fixed because donor objects have to be reproducible byte for
/// byte.
pub const VERSION: &str = "0.15.2";

/// The Python package with this release, as an argument of `pip install`.
pub const WHEEL: &str = "ziglang==0.15.2";

/// The folder in which a packed crate brings what its build script would make with zig.
pub const PREBUILT: &str = "prebuilt";

/// Makes `embedded`, the folder with the files that a crate embeds; called by its build script. Returns whether it is
/// complete: it is in a packed crate, whose folder `home` brings the files. Otherwise it is empty, and the build script
/// fills it.
///
/// # Errors
/// Those of the file system.
pub fn embedded(home: &Path, embedded: &Path) -> io::Result<bool> {
    match fs::symlink_metadata(embedded) {
        Ok(there) if there.is_dir() => fs::remove_dir_all(embedded)?,
        Ok(_) => fs::remove_file(embedded)?,
        Err(_) => {}
    }
    let prebuilt = home.join(PREBUILT);
    if prebuilt.is_dir() {
        // For a missing folder, cargo would run the build script each time.
        println!("cargo::rerun-if-changed={PREBUILT}");
        std::os::unix::fs::symlink(prebuilt, embedded)?;
        return Ok(true);
    }
    fs::create_dir_all(embedded)?;
    Ok(false)
}

/// The arguments of zig's compiler for an architecture.
pub trait ZigTarget: Copy {
    /// Returns zig's target triple for static musl programs.
    fn triple(self) -> &'static str;

    /// Returns the argument of `zig cc` and `zig build-obj` that chooses the processor. The code then runs on every
    /// processor that distributions support for the architecture: zig's default uses SSE2 on i686 and NEON on arm.
    fn processor(self) -> Option<&'static str>;

    /// Returns arguments of `zig cc` for this architecture. They come after more general ones.
    fn flags(self) -> impl Iterator<Item = &'static str>;
}

impl ZigTarget for Arch {
    fn triple(self) -> &'static str {
        match self {
            Arch::X86_64 => "x86_64-linux-musl",
            Arch::Aarch64 => "aarch64-linux-musl",
            Arch::Riscv64 => "riscv64-linux-musl",
            Arch::I686 => "x86-linux-musl",
            Arch::Arm => "arm-linux-musleabihf",
        }
    }

    fn processor(self) -> Option<&'static str> {
        match self {
            Arch::X86_64 | Arch::Aarch64 | Arch::Riscv64 => None,
            Arch::I686 => Some("-mcpu=i686"),
            // VFPv3-D16; the thread pointer is in a register of the processor, which the kernel sets on every ARMv7.
            Arch::Arm => Some("-mcpu=baseline-neon-d32+read_tp_tpidruro"),
        }
    }

    fn flags(self) -> impl Iterator<Item = &'static str> {
        // ARM's unwind tables refer to functions of an unwinder, which a static program in C does not link.
        let unwind: &[&str] = match self {
            Arch::Arm => &["-fno-unwind-tables", "-fno-asynchronous-unwind-tables"],
            _ => &[],
        };
        self.processor().into_iter().chain(unwind.iter().copied())
    }
}

/// A failed compilation.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The variable with the architectures names something else.
    #[error(
        "{variable} is `{found}`, which is not a list of architectures\n\
         help: `all`, `native`, or names with commas between them: {all}",
        variable = arches::ARCHES,
        all = Arch::ALL.map(Arch::name).join(", ")
    )]
    Arches {
        /// Its value.
        found: String,
    },
    /// No zig of the pinned release was found.
    #[error(
        "zig {VERSION} is needed to build the donors, and was not found (looked at {looked})\n\
         help: `cargo xtask setup` puts it into the build folder; or `pip install {WHEEL}`, \
         or set ALLOGRAFT_ZIG to the executable"
    )]
    Missing {
        /// The places that were searched, for the message.
        looked: String,
    },
    /// zig could not be started.
    #[error("cannot run `{zig}`: {source}")]
    Start {
        /// The zig executable.
        zig: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// zig ran and failed.
    #[error("`{command}` failed:\n{stderr}")]
    Failed {
        /// The command line.
        command: String,
        /// Its standard error.
        stderr: String,
    },
}

/// A zig executable of the pinned release.
#[derive(Debug, Clone)]
pub struct Zig {
    program: PathBuf,
    cache: PathBuf,
}

impl Zig {
    /// Searches `$ALLOGRAFT_ZIG`, then `tools` (where `cargo xtask setup` installs it), then the command path, and
    /// returns the first zig of release [`VERSION`]. `cache` is the folder for zig's own compiled files.
    ///
    /// # Errors
    /// [`Error::Missing`] with the places that were searched.
    pub fn find(tools: &Path, cache: &Path) -> Result<Zig, Error> {
        let in_tools = installed_path(tools);
        let candidates =
            [std::env::var_os("ALLOGRAFT_ZIG").map(PathBuf::from), Some(in_tools), Some(PathBuf::from("zig"))];
        let mut looked = Vec::new();
        for program in candidates.into_iter().flatten() {
            match release(&program) {
                Some(version) if version == VERSION => {
                    return Ok(Zig { program, cache: cache.to_owned() });
                }
                Some(version) => looked.push(format!("`{}`: release {version}", program.display())),
                None => looked.push(format!("`{}`: none", program.display())),
            }
        }
        Err(Error::Missing { looked: looked.join(", ") })
    }

    /// Returns the path of the executable.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Returns a command for this zig with its caches inside the build folder, so that it needs no home folder.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.env("ZIG_GLOBAL_CACHE_DIR", &self.cache).env("ZIG_LOCAL_CACHE_DIR", &self.cache);
        command
    }

    /// Runs zig with these arguments and returns its standard output.
    ///
    /// # Errors
    /// [`Error::Start`] or [`Error::Failed`], the latter with zig's standard error.
    pub fn run<I, S>(&self, arguments: I) -> Result<Vec<u8>, Error>
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        let mut command = self.command();
        command.args(arguments);
        let output = command.output().map_err(|source| Error::Start { zig: self.program.clone(), source })?;
        if output.status.success() {
            return Ok(output.stdout);
        }
        Err(Error::Failed {
            command: format!("{command:?}"),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }
}

/// Returns the path below the folder of tools where `cargo xtask setup` installs zig.
pub fn installed_path(tools: &Path) -> PathBuf {
    tools.join(format!("ziglang-{VERSION}")).join("ziglang").join("zig")
}

/// Returns the folder of tools in the build folder of the workspace that `manifest_dir` (a package's folder) belongs
/// to.
pub fn tools_folder(manifest_dir: &Path) -> PathBuf {
    build_folder(manifest_dir).join("tools")
}

/// Returns the folder of the donors' sources that cargo does not fetch, in the same build folder. `cargo xtask setup`
/// puts each into a folder `PACKAGE-VERSION`.
pub fn sources_folder(manifest_dir: &Path) -> PathBuf {
    tools_folder(manifest_dir).join("sources")
}

/// Returns `target` in the workspace that holds `manifest_dir`. Tools and fixtures are there even when CARGO_TARGET_DIR
/// names another folder, so that every call of cargo finds the same ones.
pub fn build_folder(manifest_dir: &Path) -> PathBuf {
    let root = manifest_dir.ancestors().find(|folder| folder.join("Cargo.lock").is_file()).unwrap_or(manifest_dir);
    root.join("target")
}

fn release(program: &Path) -> Option<String> {
    let output = Command::new(program).arg("version").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
