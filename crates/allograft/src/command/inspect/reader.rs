//! Reads files and inspects them; those of a folder in several threads.

use std::fs::{self, File};
use std::io::{self, Read};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{panic, thread};

use hosts::System;
use inspector::{Loader, Report};

use super::{Inspected, cannot, unreadable};
use crate::failure::Failure;
use crate::json::LeftOut;

/// The most threads: each has a file in memory.
const MOST_THREADS: usize = 4;

/// Inspects files, with the libraries that they have in a system.
pub(super) struct Reader<'s> {
    system: &'s System,
    loader: Loader<'s>,
    /// Whether the checksums of files are wanted.
    hashed: bool,
}

impl<'s> Reader<'s> {
    pub(super) fn new(system: &'s System, hashed: bool) -> Reader<'s> {
        Reader { system, loader: Loader::new(system), hashed }
    }

    pub(super) fn file(&mut self, path: PathBuf) -> Inspected {
        let bytes = match read(&path) {
            Ok(bytes) => bytes,
            Err(error) => return Inspected::unread(path.clone(), unreadable(&path, error)),
        };
        let sha256 = self.hashed.then(|| hosts::sha256(&bytes));
        let backup_of = hosts::backup_of(&path, &bytes);
        Inspected { result: self.report(&path, &bytes), sha256, image: None, in_folder: false, backup_of, path }
    }

    fn report(&mut self, path: &Path, bytes: &[u8]) -> Result<Report, Failure> {
        let place = self.system.place(path).map_err(|error| cannot(path, error))?;
        self.loader.inspect(bytes, &place).map_err(|error| cannot(path, &error).with_help(error.help()))
    }

    /// Inspects every file under `folder` that looks like an ELF file or an archive. Returns them in the order of the
    /// paths, with what cannot be read, and the numbers of everything else.
    pub(super) fn folder(&mut self, folder: &Path, progress: &dyn Fn(&Path)) -> (Vec<Inspected>, LeftOut) {
        let (mut entries, mut left_out) = (Vec::new(), LeftOut::default());
        look_for_files(folder, &mut entries, &mut left_out);
        let files: Vec<PathBuf> = entries.iter().filter_map(|entry| entry.as_ref().ok().cloned()).collect();
        let mut reports = self.files(&files, progress).into_iter();
        let inspected = |entry: Result<_, Box<_>>| entry.map_or_else(|unread| Some(*unread), |_| reports.next());
        (entries.into_iter().filter_map(inspected).collect(), left_out)
    }

    /// Inspects files, here and in threads beside, each with a loader of its own, which remembers libraries.
    fn files(&mut self, files: &[PathBuf], progress: &dyn Fn(&Path)) -> Vec<Inspected> {
        let (system, hashed) = (self.system, self.hashed);
        let threads = thread::available_parallelism().map_or(1, NonZero::get).min(MOST_THREADS).min(files.len());
        let next = AtomicUsize::new(0);
        let work = |reader: &mut Reader<'_>, progress: &dyn Fn(&Path)| {
            let mut done = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Some(path) = files.get(number) else { return done };
                progress(path);
                done.push((number, reader.file(path.clone())));
            }
        };
        let mut all = thread::scope(|scope| {
            // Where no more threads may be started, this one does the rest.
            let beside = (1..threads).map_while(|_| {
                let work = || work(&mut Reader::new(system, hashed), &|_| {});
                thread::Builder::new().spawn_scoped(scope, work).ok()
            });
            let beside: Vec<_> = beside.collect();
            let mut all = work(self, progress);
            for thread in beside {
                all.extend(thread.join().unwrap_or_else(|failure| panic::resume_unwind(failure)));
            }
            all
        });
        all.sort_by_key(|(number, _)| *number);
        all.into_iter().map(|(_, inspected)| inspected).collect()
    }
}

/// Collects the files under `folder` that look like ELF files or archives, in the order of their paths, and what cannot
/// be read. Adds everything else to `left_out`.
fn look_for_files(folder: &Path, found: &mut Vec<Result<PathBuf, Box<Inspected>>>, left_out: &mut LeftOut) {
    let unread = |path: &Path, error| Err(Box::new(Inspected::unread(path.to_owned(), unreadable(path, error))));
    let entries = fs::read_dir(folder).and_then(|entries| entries.collect::<Result<Vec<_>, _>>());
    let mut entries = match entries {
        Ok(entries) => entries,
        Err(error) => {
            found.push(unread(folder, error));
            return;
        }
    };
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => look_for_files(&path, found, left_out),
            Ok(kind) if kind.is_file() => match start(&path) {
                Ok(start) if start.starts_with(b"\x7fELF") || start == b"!<arch>\n" => found.push(Ok(path)),
                Ok(start) if start.starts_with(b"#!") => left_out.scripts += 1,
                Ok(_) => left_out.other_files += 1,
                Err(error) => found.push(unread(&path, error)),
            },
            Ok(kind) if kind.is_symlink() => left_out.symbolic_links += 1,
            Ok(_) => left_out.special_files += 1,
            Err(error) => found.push(unread(&path, error)),
        }
    }
}

/// Reads the file's bytes. It does not map the file: if another process truncated a mapped file, a signal would end
/// this program.
pub(super) fn read(path: &Path) -> io::Result<Vec<u8>> {
    // Opening a pipe or a device could wait forever.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is neither a file nor a folder"));
    }
    let file = File::open(path)?;
    read_of_size(&file, file.metadata()?.len())
}

/// Reads the rest of `source`, which must be `size` bytes.
fn read_of_size(source: impl Read, size: u64) -> io::Result<Vec<u8>> {
    let room = usize::try_from(size).map_err(|_| io::ErrorKind::FileTooLarge)?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(room).map_err(|_| io::Error::other(format!("there is no memory for its {size} bytes")))?;
    source.take(size).read_to_end(&mut bytes)?;
    match bytes.len() as u64 {
        found if found == size => Ok(bytes),
        found => Err(io::Error::other(format!(
            "it was cut while it was read: found {found} bytes, expected {size}; inspect it when nobody writes it"
        ))),
    }
}

/// Returns the first eight bytes of a file, which say what it is.
fn start(path: &Path) -> io::Result<Vec<u8>> {
    let mut start = Vec::new();
    File::open(path)?.take(8).read_to_end(&mut start)?;
    Ok(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_cut_meanwhile_is_an_error() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        fs::write(file.path(), [7; 10_000]).expect("content");
        assert_eq!(read(file.path()).expect("all of it"), [7; 10_000]);
        let opened = File::open(file.path()).expect("a file");
        File::options().write(true).open(file.path()).expect("a file").set_len(4_000).expect("a cut");
        let error = read_of_size(opened, 10_000).expect_err("what is gone");
        assert!(error.to_string().contains("found 4000 bytes, expected 10000"), "{error}");
        fs::write(file.path(), b"").expect("nothing");
        assert_eq!(read(file.path()).expect("nothing"), b"");
    }

    #[test]
    fn files_of_a_folder_come_in_the_order_of_their_paths() {
        let folder = tempfile::tempdir().expect("a folder");
        let program = fs::read(fixtures::musl_loader(fixtures::Arch::X86_64)).expect("a libc.so");
        for number in 0..40 {
            let inside = folder.path().join(format!("{}", number % 7));
            fs::create_dir_all(&inside).expect("a folder");
            let bytes = if number % 5 == 0 { &program[..100] } else { &program[..program.len() - number] };
            fs::write(inside.join(format!("{number:02}")), bytes).expect("a file");
        }
        let system = System::new(None).expect("a system");
        let all = Reader::new(&system, true).folder(folder.path(), &|_| {}).0;
        assert_eq!(all.len(), 40);
        assert!(all.is_sorted_by_key(|file| file.path.clone()));
        for file in &all {
            let one = Reader::new(&system, true).file(file.path.clone());
            assert_eq!(file.sha256, one.sha256);
            assert_eq!(file.result.as_ref().ok(), one.result.as_ref().ok());
            assert_eq!(file.result.is_err(), fs::read(&file.path).expect("the file").len() == 100);
        }
    }
}
