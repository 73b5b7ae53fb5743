//! Folders of tools: filled aside, moved into place when complete, and locked against other processes, so that a killed
//! run leaves nothing half made.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result};

use crate::workspace;

/// Waits until only this process has locked `path`. The system releases the lock when the file is closed or the process
/// ends.
///
/// # Errors
/// When the file cannot be made or locked.
pub fn lock(path: &Path) -> Result<File> {
    let open = || File::options().create(true).truncate(false).write(true).open(path);
    let file = open().with_context(|| format!("cannot open `{}`", path.display()))?;
    if file.try_lock().is_err() {
        eprintln!("waiting for another `cargo xtask` to release `{}`", workspace::shown(path));
        file.lock().with_context(|| format!("cannot lock `{}`", path.display()))?;
    }
    Ok(file)
}

/// Fills a new folder with `fill`, and moves it to `destination` when it is complete. It replaces an existing one.
///
/// # Errors
/// Those of `fill`, and those of the file system.
pub fn place(destination: &Path, fill: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let scratch = Scratch::beside(destination, "new")?;
    fill(&scratch.0)?;
    // A folder cannot be renamed over one that is not empty.
    let old = Scratch::beside(destination, "old")?;
    match fs::rename(destination, old.0.join("it")) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("cannot replace `{}`", destination.display()));
        }
        _ => {}
    }
    fs::rename(&scratch.0, destination).with_context(|| format!("cannot move to `{}`", destination.display()))
}

/// A folder that is removed when this value is dropped. One that a killed run left is removed first.
pub struct Scratch(pub PathBuf);

impl Scratch {
    /// Makes an empty folder beside `path`, so that a rename to `path` stays in one file system.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn beside(path: &Path, suffix: &str) -> Result<Scratch> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let scratch = path.with_file_name(format!(".setup-{name}-{suffix}"));
        let made = remove(&scratch).and_then(|()| fs::create_dir_all(&scratch));
        made.with_context(|| format!("cannot make `{}`", scratch.display()))?;
        Ok(Scratch(scratch))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // If this fails, the next run removes the folder.
        let _ = remove(&self.0);
    }
}

fn remove(folder: &Path) -> std::io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Prints the name of a step, runs it, and prints its duration.
///
/// # Errors
/// Those of `step`.
pub fn announce<T>(what: &str, step: impl FnOnce() -> Result<T>) -> Result<T> {
    eprintln!("setup: {what} ...");
    let started = Instant::now();
    let done = step().with_context(|| format!("setup could not get {what}"))?;
    eprintln!("setup: {what}: {:.1} s", started.elapsed().as_secs_f64());
    Ok(done)
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("allograft xtask {name} {}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn a_folder_is_replaced_only_by_a_complete_one() {
        let home = folder("place");
        let destination = home.join("tool");
        let fill = |text: &'static str| move |folder: &Path| Ok(fs::write(folder.join("file"), text)?);
        place(&destination, fill("first")).unwrap();
        place(&destination, fill("second")).unwrap();
        let failed = place(&destination, |folder| {
            fs::write(folder.join("file"), "half")?;
            bail!("the network went away")
        });
        assert_eq!(failed.unwrap_err().to_string(), "the network went away");
        assert_eq!(fs::read_to_string(destination.join("file")).unwrap(), "second");
        assert_eq!(fs::read_dir(&home).unwrap().count(), 1, "scratch folders are gone");
        fs::remove_dir_all(home).unwrap();
    }

    #[test]
    fn what_a_killed_run_left_is_no_obstacle() {
        let home = folder("killed");
        let destination = home.join("tool");
        fs::create_dir_all(home.join(".setup-tool-new/half")).unwrap();
        fs::create_dir_all(home.join(".setup-tool-old/it/half")).unwrap();
        place(&destination, |folder| Ok(fs::write(folder.join("file"), "whole")?)).unwrap();
        assert_eq!(fs::read_dir(&destination).unwrap().count(), 1);
        fs::remove_dir_all(home).unwrap();
    }
}
