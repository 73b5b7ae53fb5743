//! The report of a run: a file to which the wrappers, which cargo starts, add a line for each program.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::failure::Failure;

const PREFIX: &str = "report-";

/// A report, which is deleted when it is dropped.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) path: PathBuf,
    /// Locked for as long as the run lasts: a file without a lock was left by a run that was killed.
    _file: File,
}

impl Report {
    /// Makes an empty report in a folder, and deletes those of runs that were killed.
    pub(super) fn begin(folder: &Path) -> Result<Report, Failure> {
        clean(folder).and_then(|()| make(folder)).map_err(Failure::io("write in", folder))
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        // The next run deletes it otherwise.
        let _ = fs::remove_file(&self.path);
    }
}

fn make(folder: &Path) -> io::Result<Report> {
    loop {
        let (file, path) = tempfile::Builder::new().prefix(PREFIX).tempfile_in(folder)?.keep()?;
        let report = Report { path, _file: file };
        match report._file.lock() {
            Err(error) if error.kind() != io::ErrorKind::Unsupported => return Err(error),
            _ => {}
        }
        // Another run may have taken it for one that was left, before it was locked.
        let number = report._file.metadata()?.ino();
        match fs::metadata(&report.path) {
            Ok(metadata) if metadata.ino() == number => return Ok(report),
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
}

/// Deletes the reports that no run has locked.
fn clean(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes()) && entry.file_type()?.is_file() {
            match File::open(entry.path())
                .and_then(|file| Ok(file.try_lock()?))
                .and_then(|()| fs::remove_file(entry.path()))
            {
                // It is in use, or was deleted by now.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock || error.kind() == io::ErrorKind::NotFound => {}
                // Where files cannot be locked, nothing is known of it.
                Err(error) if error.kind() == io::ErrorKind::Unsupported => {}
                done => done?,
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reports(folder: &Path) -> Vec<PathBuf> {
        let mut paths: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        paths
    }

    #[test]
    fn only_reports_of_dead_runs_are_deleted() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("report-left"), "").unwrap();
        fs::create_dir(folder.path().join("report-folder")).unwrap();
        let one = Report::begin(folder.path()).unwrap();
        assert!(reports(folder.path()).contains(&one.path) && reports(folder.path()).len() == 2);
        let two = Report::begin(folder.path()).unwrap();
        assert!(one.path.is_file() && two.path.is_file());
        drop((one, two));
        assert_eq!(reports(folder.path()), [folder.path().join("report-folder")]);
    }
}
