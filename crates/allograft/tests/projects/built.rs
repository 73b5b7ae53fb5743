//! A place to build a project in, and what a build of it says.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::ops::Deref;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use fixtures::lab::Lab;
use fixtures::projects::Project;
use fixtures::wheels::{CMAKE, MESON, NINJA};

/// A copy of a project, and the tools. It is deleted with this value.
pub(crate) struct Place(Lab);

impl Deref for Place {
    type Target = Lab;

    fn deref(&self) -> &Lab {
        &self.0
    }
}

impl Place {
    /// Makes one, unless the tools are for another machine; then prints that.
    pub(crate) fn new(project: Project) -> Option<Place> {
        if std::env::consts::ARCH != "x86_64" {
            eprintln!("skipped: the build systems are for x86_64");
            return None;
        }
        let sources = project.folder();
        let missing = format!("`{}` is missing: run `cargo xtask setup`", sources.display());
        assert!(sources.is_dir(), "{missing}");
        let lab = Lab::default();
        let bin = lab.path("bin");
        fs::create_dir(&bin).expect("a folder");
        fixtures::musl_gcc(&bin).expect("musl-gcc");
        let ctest = CMAKE.program().with_file_name("ctest");
        let tools =
            [("cmake", CMAKE.program()), ("ctest", ctest), ("meson", MESON.program()), ("ninja", NINJA.program())];
        for (name, program) in tools {
            assert!(program.is_file(), "`{}` is missing: run `cargo xtask setup`", program.display());
            symlink(program, bin.join(name)).expect("a link");
        }
        symlink(env!("CARGO_BIN_EXE_allograft"), bin.join("allograft")).expect("a link");
        let place = Place(lab);
        succeeds(place.command("cp").arg("-r").arg(sources).arg(place.path("source")));
        Some(place)
    }

    /// Returns a command that runs here, with the tools on its path.
    pub(crate) fn command(&self, program: &str) -> Command {
        let path = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{path}", self.path("bin").display());
        // The program is looked up on the new path.
        let mut command = Command::new("env");
        command.arg(format!("PATH={path}")).arg(program).current_dir(self.folder());
        for variable in ["CC", "CFLAGS", "LDFLAGS", "DESTDIR"] {
            command.env_remove(variable);
        }
        command
    }
}

/// Returns the folder of an integration.
pub(crate) fn integration(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../integrations").join(name).canonicalize().expect("an integration")
}

/// A project that was built and tested.
pub(crate) struct Built {
    /// The result of each of its tests.
    pub(crate) tests: BTreeMap<String, String>,
    /// The programs.
    pub(crate) programs: Vec<PathBuf>,
}

impl Built {
    /// Asserts that there are so many tests, each of which said one of `good`, and at least so many programs, and that
    /// the donor is in every program, or, on stock, in none.
    #[track_caller]
    pub(crate) fn passes(&self, tests: usize, programs: usize, good: &[&str], with_donor: bool) {
        let bad: Vec<_> = self.tests.iter().filter(|(_, said)| !good.contains(&said.as_str())).collect();
        assert!(bad.is_empty(), "{bad:?}");
        assert_eq!(self.tests.len(), tests);
        assert!(self.programs.len() >= programs, "only {:?}", self.programs);
        for program in &self.programs {
            let mut inspect = Command::new(env!("CARGO_BIN_EXE_allograft"));
            let inspect = inspect.args(["inspect", "--expect", "snmalloc"]).arg(program);
            let output = inspect.output().expect("allograft starts");
            let said = String::from_utf8_lossy(&output.stdout);
            assert_eq!(output.status.code(), Some(i32::from(!with_donor)), "{said}");
        }
    }
}

/// Returns the executables in a folder and below it, but none of those that the build system or allograft made to look
/// at.
pub(crate) fn programs(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry")) {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        let kind = entry.file_type().expect("a type");
        if kind.is_dir() && !["CMakeFiles", "allograft", "meson-private"].contains(&name.as_str()) {
            found.extend(programs(&path));
        } else if kind.is_file() && !name.contains('.') && is_elf(&path) {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn is_elf(path: &Path) -> bool {
    let mut start = [0; 4];
    fs::File::open(path).and_then(|mut file| file.read_exact(&mut start)).is_ok() && start == *b"\x7fELF"
}

/// Runs the command, asserts that it succeeds, and returns what it printed.
#[track_caller]
pub(crate) fn succeeds(command: &mut Command) -> String {
    fixtures::lab::succeeds(command).out
}
