//! Files that a build has made with zig, kept for the other builds of this machine: debug and release, worktrees and
//! clones. Cargo's own folder serves one checkout and one profile only.
//!
//! An entry is a folder named by the hash of everything that its files are made of. It holds the files and a list of
//! their hashes, by which a damaged entry is known; such an entry counts as missing.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use std::{env, process};

use sha2::{Digest, Sha256};

/// The environment variable that turns the store off, with the value `off`, or names another folder for it.
pub const STORE: &str = "ALLOGRAFT_BUILD_CACHE";

/// The list of hashes in an entry.
const SUMS: &str = "sums";

/// The time after which an entry that no build has used is removed.
const UNUSED: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// The hash of the sources of files, while it is collected.
#[derive(Debug, Clone)]
pub struct Key(Sha256);

impl Key {
    /// Begins with the release of zig, and with the sources of the crates that the files go through: this one, and
    /// those of `crates`, which are folders.
    ///
    /// # Errors
    /// When a source cannot be read.
    pub fn new(crates: &[PathBuf]) -> io::Result<Key> {
        let mut key = Key(Sha256::new());
        key.text(crate::VERSION);
        for file in [include_str!("lib.rs"), include_str!("store.rs")] {
            key.text(file);
        }
        crates.iter().try_for_each(|folder| key.folder(folder))?;
        Ok(key)
    }

    /// Adds a text.
    pub fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    /// Adds the names and contents of all files below `folder`, or of the file of that name.
    ///
    /// # Errors
    /// When one cannot be read.
    pub fn folder(&mut self, folder: &Path) -> io::Result<()> {
        if !folder.is_dir() {
            return self.file(folder);
        }
        let mut paths: Vec<PathBuf> =
            fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<_>>()?;
        paths.sort();
        for path in paths {
            self.text(&path.file_name().unwrap_or_default().to_string_lossy());
            self.folder(&path)?;
        }
        Ok(())
    }

    fn file(&mut self, path: &Path) -> io::Result<()> {
        let mut bytes = Vec::new();
        File::open(path)?.read_to_end(&mut bytes)?;
        self.bytes(&bytes);
        Ok(())
    }

    /// The length comes first, so that two texts are not the same as one.
    fn bytes(&mut self, bytes: &[u8]) {
        self.0.update((bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }

    fn name(&self) -> String {
        hexadecimal(&self.0.clone().finalize())
    }
}

/// The folder of entries.
#[derive(Debug)]
pub struct Store {
    /// `None` if nothing is kept.
    folder: Option<PathBuf>,
}

impl Store {
    /// Opens `allograft/build` in the user's cache folder, or the folder that [`STORE`] names, and removes the entries
    /// that have not been used for a month. For build scripts: has cargo run the script again when the variable
    /// changes.
    pub fn open() -> Store {
        println!("cargo::rerun-if-env-changed={STORE}");
        let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let home = || absolute("HOME").map(|home| home.join(".cache"));
        let folder = match env::var_os(STORE) {
            Some(value) if value == "off" => None,
            Some(value) if !value.is_empty() => Some(PathBuf::from(value)),
            _ => absolute("XDG_CACHE_HOME").or_else(home).map(|cache| cache.join("allograft").join("build")),
        };
        let store = Store { folder };
        store.sweep(SystemTime::now());
        store
    }

    /// Copies the files `names` of an entry into the folder `to`. Returns whether the entry was whole.
    ///
    /// # Errors
    /// When a file cannot be written to `to`.
    pub fn fetch(&self, key: &Key, names: &[String], to: &Path) -> io::Result<bool> {
        let Some(entry) = self.folder.as_ref().map(|folder| folder.join(key.name())) else { return Ok(false) };
        let Ok(sums) = fs::read_to_string(entry.join(SUMS)) else { return Ok(false) };
        let mut files = Vec::new();
        for name in names {
            // A file without permission to read counts as missing: it is made again.
            let Ok(bytes) = fs::read(entry.join(name)) else { return Ok(false) };
            if !sums.lines().any(|line| line == sum(name, &bytes)) {
                return Ok(false);
            }
            files.push((name, bytes));
        }
        for (name, bytes) in files {
            fs::write(to.join(name), bytes)?;
        }
        // The time of the last use, for `sweep`. If it cannot be set, the entry goes a month after it was made.
        let _ =
            File::options().append(true).open(entry.join(SUMS)).and_then(|file| file.set_modified(SystemTime::now()));
        Ok(true)
    }

    /// Keeps the files `names` of the folder `from`. A store that cannot be written to is reported by a warning from
    /// cargo: the next build will take longer.
    pub fn keep(&self, key: &Key, names: &[String], from: &Path) {
        let Some(folder) = &self.folder else { return };
        if let Err(error) = keep(folder, &key.name(), names, from) {
            println!("cargo::warning=cannot keep what was built in `{}`: {error}", folder.display());
        }
    }

    /// Removes entries that were last used a month before `now`, and leftovers of killed builds.
    fn sweep(&self, now: SystemTime) {
        let entries = self.folder.as_ref().and_then(|folder| fs::read_dir(folder).ok());
        for entry in entries.into_iter().flatten().flatten() {
            let path = entry.path();
            let used = fs::metadata(path.join(SUMS)).or_else(|_| entry.metadata()).and_then(|it| it.modified());
            if used.is_ok_and(|used| now.duration_since(used).is_ok_and(|age| age > UNUSED)) {
                // If this fails, the next build tries again.
                let _ = fs::remove_dir_all(path);
            }
        }
    }
}

/// Makes the entry in a separate folder, and renames it: an entry is complete, or it does not exist.
fn keep(folder: &Path, key: &str, names: &[String], from: &Path) -> io::Result<()> {
    let made = folder.join(format!(".{}-{key}", process::id()));
    fs::create_dir_all(&made)?;
    let mut sums = String::new();
    for name in names {
        let bytes = fs::read(from.join(name))?;
        sums += &sum(name, &bytes);
        sums.push('\n');
        fs::write(made.join(name), bytes)?;
    }
    fs::write(made.join(SUMS), sums)?;
    let entry = folder.join(key);
    if fs::rename(&made, &entry).is_ok() {
        return Ok(());
    }
    // The entry exists already: a different build was faster, or the entry was damaged.
    fs::remove_dir_all(&entry)?;
    fs::rename(&made, &entry).or_else(|_| fs::remove_dir_all(&made))
}

fn sum(name: &str, bytes: &[u8]) -> String {
    format!("{} {name}", hexadecimal(&Sha256::digest(bytes)))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct TestFolder(PathBuf);

    impl TestFolder {
        fn new(name: &str) -> TestFolder {
            let folder = env::temp_dir().join(format!("allograft zigcc {name} {}", process::id()));
            fs::create_dir_all(folder.join("made")).unwrap();
            fs::create_dir_all(folder.join("out")).unwrap();
            fs::write(folder.join("made/a"), "one").unwrap();
            TestFolder(folder)
        }

        fn store(&self) -> Store {
            Store { folder: Some(self.0.join("store")) }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.join(name)
        }
    }

    impl Drop for TestFolder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn key(text: &str) -> Key {
        let mut key = Key::new(&[]).unwrap();
        key.text(text);
        key
    }

    #[test]
    fn what_was_kept_comes_back_for_the_same_key_only() {
        let place = TestFolder::new("kept");
        let (store, names) = (place.store(), ["a".to_owned()]);
        assert!(!store.fetch(&key("x"), &names, &place.path("out")).unwrap());
        store.keep(&key("x"), &names, &place.path("made"));
        assert!(!store.fetch(&key("y"), &names, &place.path("out")).unwrap());
        assert!(store.fetch(&key("x"), &names, &place.path("out")).unwrap());
        assert_eq!(fs::read_to_string(place.path("out/a")).unwrap(), "one");
        assert!(!store.fetch(&key("x"), &["b".to_owned()], &place.path("out")).unwrap(), "an entry without that file");
        assert!(!Store { folder: None }.fetch(&key("x"), &names, &place.path("out")).unwrap());
    }

    #[test]
    fn a_damaged_entry_is_made_again() {
        let place = TestFolder::new("damaged");
        let (store, names) = (place.store(), ["a".to_owned()]);
        store.keep(&key("x"), &names, &place.path("made"));
        fs::write(place.path("store").join(key("x").name()).join("a"), "two").unwrap();
        assert!(!store.fetch(&key("x"), &names, &place.path("out")).unwrap());
        store.keep(&key("x"), &names, &place.path("made"));
        assert!(store.fetch(&key("x"), &names, &place.path("out")).unwrap());
        assert_eq!(fs::read_dir(place.path("store")).unwrap().count(), 1, "nothing is left beside the entry");
    }

    #[test]
    fn a_key_tells_texts_and_files_apart() {
        let place = TestFolder::new("key");
        let two = |one: &str, other: &str| {
            let mut key = key(one);
            key.text(other);
            key.name()
        };
        assert_ne!(two("ab", "c"), two("a", "bc"));
        let of_folder = || {
            let mut key = key("");
            key.folder(&place.path("made")).unwrap();
            key.name()
        };
        let before = of_folder();
        assert_eq!(before, of_folder());
        fs::write(place.path("made/a"), "two").unwrap();
        let changed = of_folder();
        fs::rename(place.path("made/a"), place.path("made/b")).unwrap();
        assert_eq!([before == changed, changed == of_folder()], [false; 2]);
    }

    #[test]
    fn entries_go_a_month_after_their_last_use() {
        let place = TestFolder::new("unused");
        let store = place.store();
        store.keep(&key("x"), &["a".to_owned()], &place.path("made"));
        store.sweep(SystemTime::now() + UNUSED / 2);
        assert_eq!(fs::read_dir(place.path("store")).unwrap().count(), 1);
        store.sweep(SystemTime::now() + UNUSED * 2);
        assert_eq!(fs::read_dir(place.path("store")).unwrap().count(), 0);
    }
}
