//! A copy of this repository, for pages that say how to add to it.
//!
//! The copy is kept from one run to the next. Only files that differ are written, so that cargo compiles only what the
//! pages have changed.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The name that pages use for it.
pub(crate) const NEED: &str = "workspace";

/// Held by the one page that uses the copy.
static TAKEN: Mutex<()> = Mutex::new(());

/// Files that are not copied: build results and the history.
const LEFT_OUT: [&str; 2] = ["target", ".git"];

/// The copy, for one page at a time.
pub(crate) struct Workspace {
    _taken: MutexGuard<'static, ()>,
}

impl Workspace {
    /// Waits for the copy and restores it to this repository's state.
    pub(crate) fn take() -> Result<Workspace, String> {
        let workspace = Workspace { _taken: TAKEN.lock().unwrap_or_else(PoisonError::into_inner) };
        let (root, folder) = (root(), workspace.folder());
        let target = folder.join("target");
        // The copy links to the tools and fixtures in this folder; cargo builds elsewhere.
        let linked = || if target.is_symlink() { Ok(()) } else { symlink(root.join("target"), &target) };
        same(&root, &folder).and_then(|()| linked()).map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(workspace)
    }

    /// Returns its path.
    pub(crate) fn folder(&self) -> PathBuf {
        build().join("source")
    }

    /// Returns the environment variables for cargo: a build folder of its own, so that this repository's programs stay
    /// unchanged.
    pub(crate) fn environment(&self) -> [(String, String); 1] {
        [("CARGO_TARGET_DIR".to_owned(), build().join("target").display().to_string())]
    }
}

fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.ancestors().nth(2).unwrap_or(manifest).to_owned()
}

fn build() -> PathBuf {
    root().join("target/pages")
}

/// Makes the folder `to` equal to `from`, without the entries that are left out.
fn same(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    let mut names = BTreeSet::<OsString>::new();
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (source, name) = (entry.path(), entry.file_name());
        if LEFT_OUT.iter().any(|left_out| name == *left_out) {
            continue;
        }
        let copy = to.join(&name);
        if source.is_dir() {
            same(&source, &copy)?;
        } else {
            let bytes = fs::read(&source)?;
            if !fs::read(&copy).is_ok_and(|there| there == bytes) {
                fs::write(&copy, bytes)?;
            }
        }
        names.insert(name);
    }
    for entry in fs::read_dir(to)? {
        let entry = entry?;
        let known = names.contains(&entry.file_name()) || LEFT_OUT.iter().any(|name| entry.file_name() == *name);
        match entry.file_type()?.is_dir() {
            _ if known => {}
            true => fs::remove_dir_all(entry.path())?,
            false => fs::remove_file(entry.path())?,
        }
    }
    Ok(())
}
