//! The workplace of the cases: a temporary folder with grafted archives and compiled objects, each made once.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock};

use fixtures::lab::Lab;
use fixtures::{Arch, ZigTarget, musls};
use hosts::{Candidate, Request};

/// A musl to graft.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Host {
    /// Debian's. Its members are named `.lo`, and two names occur twice.
    Debian(Arch),
    /// zig's. Its members' names are paths, and it has two mallocs.
    Zig(Arch),
    /// The newest release, compiled from its sources for x86_64.
    Newest,
}

impl Host {
    /// Returns its architecture.
    pub fn arch(self) -> Arch {
        match self {
            Host::Debian(arch) | Host::Zig(arch) => arch,
            Host::Newest => Arch::X86_64,
        }
    }

    /// Returns its stock `libc.a`.
    ///
    /// # Panics
    /// When setup has not made it.
    pub fn libc(self) -> PathBuf {
        match self {
            Host::Debian(arch) => fixtures::debian_musl(arch).libc,
            Host::Zig(arch) => fixtures::zig_musl(arch),
            Host::Newest => musls::present_archive(),
        }
    }

    /// Returns the group of slow tests that a test of this host belongs to; `None` if this machine has it at hand.
    pub fn group(self) -> Option<&'static str> {
        match self {
            Host::Debian(Arch::X86_64) => None,
            Host::Zig(Arch::X86_64) => Some("zig-musl"),
            Host::Newest => Some("musls"),
            Host::Debian(arch) | Host::Zig(arch) => Some(arch.name()),
        }
    }

    /// Returns its part of a test's name.
    pub fn name(self) -> String {
        match self {
            Host::Debian(arch) => format!("debian-{}", arch.name()),
            Host::Zig(arch) => format!("zig-{}", arch.name()),
            Host::Newest => format!("musl-{}", musls::STATIC.version),
        }
    }
}

/// Files that are made once for each key, with the key's number. Other threads that want the same file wait.
type FileCache<K> = Mutex<HashMap<K, Arc<(usize, OnceLock<PathBuf>)>>>;

/// The key of a grafted archive.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Graft {
    host: Host,
    donors: Donors,
    settings: Vec<(String, i64)>,
}

/// The donors to graft.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Donors {
    /// The allocator. `None`: musl's own stays.
    pub malloc: Option<&'static str>,
    /// Whether string functions are grafted.
    pub strings: bool,
}

impl Donors {
    /// No donor: stock.
    pub const STOCK: Donors = Donors { malloc: None, strings: false };

    /// Returns an allocator with string functions: the users' default.
    pub fn both(malloc: &'static str) -> Donors {
        Donors { malloc: Some(malloc), strings: true }
    }

    /// Whether string functions are grafted into `host`. They do not exist for every architecture that the allocators
    /// exist for.
    pub fn strings_for(self, host: Host) -> bool {
        self.strings && (self.malloc.is_none() || donors::strings().supports(host.arch()))
    }

    /// Whether all of it exists for an architecture.
    pub fn exist_for(self, arch: Arch) -> bool {
        match self.malloc {
            Some(name) => donors::find(name).is_some_and(|donor| donor.supports(arch)),
            None => !self.strings || donors::strings().supports(arch),
        }
    }

    /// Returns its part of a test's name.
    pub fn name(self) -> String {
        match (self.malloc, self.strings) {
            (Some(malloc), true) => malloc.to_owned(),
            (Some(malloc), false) => format!("{malloc} alone"),
            (None, true) => "strings".to_owned(),
            (None, false) => "stock".to_owned(),
        }
    }
}

/// The folder and its contents.
#[derive(Debug)]
pub struct Bench {
    lab: Lab,
    grafts: FileCache<Graft>,
    objects: FileCache<Vec<OsString>>,
}

impl Default for Bench {
    fn default() -> Self {
        Bench::new()
    }
}

impl Bench {
    /// Makes an empty bench. The folder's name has a blank, so that every path that is passed on has one.
    ///
    /// # Panics
    /// When the system grants no temporary folder.
    pub fn new() -> Bench {
        Bench { lab: Lab::named("allograft case", ""), grafts: Mutex::default(), objects: Mutex::default() }
    }

    /// Returns the path of that name in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.lab.path(name)
    }

    /// Returns the `libc.a` of `host`, grafted as a copy in place by the code of `allograft graft`. Without donors it
    /// is the stock one.
    ///
    /// # Panics
    /// When it cannot be grafted.
    pub fn libc(&self, host: Host, donors: Donors, settings: &[(String, i64)]) -> PathBuf {
        if donors == Donors::STOCK {
            return host.libc();
        }
        let key = Graft { host, donors, settings: settings.to_vec() };
        once(&self.grafts, key, |number| {
            let folder = self.path(&format!("graft {number}"));
            fs::create_dir(&folder).expect("a folder");
            let path = folder.join("libc.a");
            fs::copy(host.libc(), &path).expect("a copy of a stock libc.a");
            let candidate = |name| {
                let donor = donors::find(name).expect("a donor");
                Candidate { donor, settings: settings.to_vec() }
            };
            let request = Request {
                candidates: donors.malloc.map(candidate).into_iter().collect(),
                strings: Some(donors.strings_for(host)),
                ..Request::default()
            };
            let grafts = hosts::graft(&path, &request).unwrap_or_else(|error| panic!("{}: {error}", host.name()));
            assert_eq!(grafts.hosts.len(), 1, "{}", host.name());
            path
        })
    }

    /// Returns the object that zig's compiler makes with these arguments, plus `-target` and `-c`.
    ///
    /// # Panics
    /// With the compiler's message, if it fails.
    pub fn object(&self, arch: Arch, source: &Path, arguments: &[OsString]) -> PathBuf {
        let compiler = if source.extension().is_some_and(|ending| ending == "cc") { "c++" } else { "cc" };
        let mut line: Vec<OsString> = vec![compiler.into(), "-target".into(), arch.triple().into(), "-c".into()];
        line.extend(arch.flags().map(OsString::from));
        line.extend(arguments.iter().cloned());
        line.push(source.into());
        once(&self.objects, line.clone(), |number| {
            let path = self.path(&format!("object {number}.o"));
            line.extend(["-o".into(), path.clone().into()]);
            fixtures::zig().run(&line).unwrap_or_else(|error| panic!("{error}"));
            path
        })
    }

    /// Returns a file of that name with these bytes, written once.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        self.made(name, |path| fs::write(path, bytes).map_err(|error| error.to_string()))
    }

    /// Returns the file of that name in the folder, which `make` writes to the path that it is given, once.
    ///
    /// # Panics
    /// With the error of `make`.
    pub fn made(&self, name: &str, make: impl FnOnce(&Path) -> Result<(), String>) -> PathBuf {
        once(&self.objects, vec![name.into()], |_| {
            let path = self.path(name);
            make(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
            path
        })
    }
}

fn once<K: std::hash::Hash + Eq>(made: &FileCache<K>, key: K, make: impl FnOnce(usize) -> PathBuf) -> PathBuf {
    let entry = {
        let mut made = made.lock().expect("nobody panicked with the lock");
        let number = made.len();
        Arc::clone(made.entry(key).or_insert_with(|| Arc::new((number, OnceLock::new()))))
    };
    // The number is the key's, not the caller's: a later caller may get here first.
    let (number, path) = &*entry;
    path.get_or_init(|| make(*number)).clone()
}

/// Returns the folder of a package in the lock file.
///
/// # Panics
/// When `cargo metadata` does not know it.
pub fn package(name: &str) -> PathBuf {
    static METADATA: OnceLock<serde_json::Value> = OnceLock::new();
    let metadata = METADATA.get_or_init(|| {
        let output = Command::new(env!("CARGO"))
            .args(["metadata", "--format-version", "1", "--locked", "--offline", "--manifest-path"])
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"))
            .output()
            .expect("cargo starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("JSON from cargo metadata")
    });
    let packages = metadata["packages"].as_array().expect("packages");
    let package = packages.iter().find(|package| package["name"] == name).expect("a package of that name");
    Path::new(package["manifest_path"].as_str().expect("a path")).parent().expect("a folder").to_owned()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Barrier;

    use super::*;

    /// Four threads ask for the same 64 files at once. Between a thread's question for the number and the making,
    /// others may overtake it.
    #[test]
    fn every_key_has_a_number_of_its_own() {
        const KEYS: usize = 64;
        for _ in 0..50 {
            let made: FileCache<usize> = Mutex::default();
            let start = Barrier::new(4);
            let numbers = Mutex::new(HashSet::new());
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        start.wait();
                        for key in 0..KEYS {
                            once(&made, key, |number| {
                                assert!(numbers.lock().expect("a lock").insert(number), "{number} twice");
                                PathBuf::new()
                            });
                        }
                    });
                }
            });
            assert_eq!(numbers.into_inner().expect("a lock").len(), KEYS);
        }
    }
}
