//! A folder of its own for each test, archives to work on, and the program.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use fixtures::{Arch, Ran};

/// A test's folder; deleted in the end.
pub(crate) struct Lab {
    folder: tempfile::TempDir,
}

/// The state of a file, link or folder, with its time of change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    mode: u32,
    inode: u64,
    modified: (i64, i64),
    content: Vec<u8>,
}

impl Lab {
    pub(crate) fn new() -> Lab {
        // Some tests run the program as another user.
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        Lab { folder }
    }

    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Puts bytes into a file, making its folders, with an old time of modification.
    pub(crate) fn put(&self, name: impl AsRef<Path>, bytes: &[u8]) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        File::options().write(true).open(&path).unwrap().set_modified(long_ago()).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        path
    }

    /// Makes a copy of Debian's musl for x86_64.
    pub(crate) fn libc(&self, name: impl AsRef<Path>) -> PathBuf {
        self.put(name, &debian())
    }

    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_allograft"));
        // A test sets this variable itself if it needs it.
        command.env_remove("NO_COLOR").current_dir(self.folder.path()).stdin(Stdio::null());
        command
    }

    /// Runs the program in the test's folder.
    pub(crate) fn run<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Ran {
        self.command().args(arguments).output().unwrap().into()
    }

    /// Runs the program with the arguments after some shell commands, such as `umask 077`.
    pub(crate) fn run_after(&self, shell: &str, arguments: &[&str]) -> Ran {
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("{shell}; exec \"$0\" \"$@\"")).arg(env!("CARGO_BIN_EXE_allograft"));
        command.args(arguments).current_dir(self.folder.path()).stdin(Stdio::null()).output().unwrap().into()
    }

    /// Returns the state of everything in the folder.
    pub(crate) fn snapshot(&self) -> BTreeMap<PathBuf, Entry> {
        let mut entries = BTreeMap::new();
        let mut waiting = vec![self.folder.path().to_owned()];
        while let Some(path) = waiting.pop() {
            let metadata = fs::symlink_metadata(&path).unwrap();
            let content = if metadata.is_dir() {
                waiting.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
                Vec::new()
            } else if metadata.is_symlink() {
                fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes()
            } else {
                fs::read(&path).unwrap()
            };
            let entry = Entry {
                mode: metadata.mode(),
                inode: metadata.ino(),
                modified: (metadata.mtime(), metadata.mtime_nsec()),
                content,
            };
            entries.insert(path.strip_prefix(self.folder.path()).unwrap().to_owned(), entry);
        }
        entries
    }

    /// Returns the same without the times of folders, which every temporary file changes.
    pub(crate) fn files(&self) -> BTreeMap<PathBuf, Entry> {
        let mut entries = self.snapshot();
        let folders = entries.iter_mut().filter(|(path, _)| fs::symlink_metadata(self.path(path)).unwrap().is_dir());
        folders.for_each(|(_, entry)| entry.modified = (0, 0));
        entries
    }

    /// Returns the names of everything in the folder.
    pub(crate) fn names(&self) -> Vec<String> {
        self.snapshot().keys().map(|path| path.display().to_string()).filter(|name| !name.is_empty()).collect()
    }

    /// Asserts that a run with these arguments ends with `code` and changes nothing at all.
    #[track_caller]
    pub(crate) fn changes_nothing<S: AsRef<OsStr>>(&self, code: i32, arguments: impl IntoIterator<Item = S>) -> Ran {
        let before = self.snapshot();
        let ran = self.run(arguments).exits(code);
        assert_same(&before, &self.snapshot());
        ran
    }
}

/// Asserts that two snapshots are equal, and lists the differences.
#[track_caller]
pub(crate) fn assert_same(before: &BTreeMap<PathBuf, Entry>, after: &BTreeMap<PathBuf, Entry>) {
    let names = before.keys().chain(after.keys());
    let changed: Vec<_> = names.filter(|name| before.get(*name) != after.get(*name)).collect();
    assert!(changed.is_empty(), "changed: {changed:?}");
}

/// The time of modification that `put` gives to its files.
pub(crate) fn long_ago() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::new(1_500_000_000, 123_456_789)
}

/// Debian's `libc.a` for x86_64.
pub(crate) fn debian() -> Vec<u8> {
    fs::read(fixtures::debian_musl(Arch::X86_64).libc).unwrap()
}

/// zig's `libc.a`.
pub(crate) fn zig(arch: Arch) -> Vec<u8> {
    fs::read(fixtures::zig_musl(arch)).unwrap()
}

/// Runs a tool that has to succeed.
#[track_caller]
pub(crate) fn tool(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Makes a program that names musl's dynamic linker. The linker is in the test's folder, under its usual name.
pub(crate) fn dynamic_with_musl(lab: &Lab, source: &str, name: &str) -> PathBuf {
    let interpreter = lab.path("ld-musl-x86_64.so.1");
    std::os::unix::fs::symlink(fixtures::musl_loader(Arch::X86_64), &interpreter).expect("a link");
    fixtures::program::linked_with_musl(&lab.path(""), name, source, true, &interpreter)
}
