//! A project in a folder of its own, and the cargo of a toolchain with musl targets.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use fixtures::lab::Lab;
use fixtures::{Arch, Ran};
use serde_json::Value;

pub(crate) const TARGET: &str = "x86_64-unknown-linux-musl";

/// The project's library: it works in threads, and has unit tests and documentation tests.
const LIB: &str = "/// ```\n/// assert_eq!(app::work(3), 3);\n/// assert!(app::carries(\"snmalloc\"));\n/// ```\n\
    pub fn work(n: usize) -> usize {\n    let part = move || (0..n).map(|i| vec![i; 1 + i % 99]).collect::<Vec<_>>().len();\n\
    \x20   let threads: Vec<_> = (0..3).map(|_| std::thread::spawn(move || part())).collect();\n\
    \x20   threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>() / 3\n}\n\
    /// Whether the running program has that donor's note.\npub fn carries(donor: &str) -> bool {\n\
    \x20   let (file, wanted) = (std::fs::read(std::env::current_exe().unwrap()).unwrap(), format!(\"donor={donor}\\nversion\"));\n\
    \x20   file.windows(wanted.len()).any(|bytes| bytes == wanted.as_bytes())\n}\n\
    #[test]\nfn unit() {\n    assert!(carries(\"snmalloc\"));\n}\n";
const MAIN: &str =
    "fn main() {\n    println!(\"{} {:?}\", app::work(2000), std::env::args().skip(1).collect::<Vec<_>>());\n}\n";

pub(crate) struct Project {
    lab: Lab,
    environment: Vec<(String, String)>,
}

impl Project {
    /// Makes a project without files.
    pub(crate) fn empty() -> Project {
        // The folder's name has a blank, so that every path that is passed on has one.
        let lab = Lab::named("allograft cargo", env!("CARGO_BIN_EXE_allograft"));
        Project { lab, environment: Vec::new() }
    }

    /// Makes a project with the package `app`.
    pub(crate) fn app() -> Project {
        let project = Project::empty();
        project.put("Cargo.toml", "[package]\nname = \"app\"\nversion = \"0.1.0\"\nedition = \"2021\"\n");
        project.put("src/lib.rs", LIB);
        project.put("src/main.rs", MAIN);
        project
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.lab.path(name)
    }

    pub(crate) fn put(&self, name: &str, text: &str) -> PathBuf {
        self.lab.write(name, text)
    }

    pub(crate) fn script(&self, name: &str, text: &str) -> PathBuf {
        self.lab.program(name, format!("#!/bin/sh\n{text}\n"))
    }

    /// Appends to an existing file.
    pub(crate) fn append(&self, name: &str, text: &str) {
        let old = fs::read_to_string(self.path(name)).unwrap();
        self.put(name, &format!("{old}{text}"));
    }

    pub(crate) fn set(&mut self, name: &str, value: impl Into<String>) {
        self.environment.push((name.to_owned(), value.into()));
    }

    /// Runs cargo with the words of `line`.
    pub(crate) fn cargo(&self, line: &str) -> Ran {
        let mut command = Command::new(toolchain().join("bin/cargo"));
        self.run(command.args(line.split_whitespace()))
    }

    pub(crate) fn run(&self, command: &mut Command) -> Ran {
        let ours = Path::new(env!("CARGO_BIN_EXE_cargo-allograft")).parent().unwrap();
        let path = std::env::var("PATH").unwrap();
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            // Cargo sets these variables for the test. They must not reach the cargo that the test runs.
            if (text.starts_with("CARGO") && text != "CARGO_HOME") || text.starts_with("RUST") {
                command.env_remove(&name);
            }
        }
        command.env("PATH", format!("{}:{}:{path}", toolchain().join("bin").display(), ours.display()));
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.current_dir(self.lab.folder()).stdin(Stdio::null()).output().unwrap().into()
    }

    /// The path of the program with that name.
    pub(crate) fn program(&self, profile: &str, name: &str) -> PathBuf {
        self.path("target").join(TARGET).join(profile).join(name)
    }

    /// Asserts the malloc and the link that the inspector reports for a program.
    #[track_caller]
    pub(crate) fn carries(&self, program: &Path, malloc: &str, link: &str) {
        let ran = self.run(Command::new(env!("CARGO_BIN_EXE_allograft")).args(["inspect", "--json"]).arg(program));
        let document: Value = serde_json::from_str(&ran.exits(0).out).unwrap();
        let file = &document["files"][0];
        assert_eq!((&file["malloc"]["name"], &file["link"]), (&malloc.into(), &link.into()), "{file:#}");
    }

    /// Returns the times and sizes of everything in the toolchain's library folder, to show that a test left it
    /// unchanged.
    pub(crate) fn toolchain_state() -> BTreeMap<PathBuf, (i64, i64, u64)> {
        let libc = fixtures::rust_libc_below(&toolchain(), Arch::X86_64);
        let folder = libc.parent().unwrap();
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        entries
            .map(|path| {
                let metadata = fs::metadata(&path).unwrap();
                (path, (metadata.mtime(), metadata.mtime_nsec(), metadata.size()))
            })
            .collect()
    }
}

pub(crate) fn toolchain() -> PathBuf {
    fixtures::rust_musl()
}
