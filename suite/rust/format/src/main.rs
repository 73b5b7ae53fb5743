//! `format THREADS ROUNDS FOLDER...`: reads the Rust sources below the folders. Then threads parse each and print it
//! again, as formatters do, with trees of many small blocks. Prints counts and a checksum of the results.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{fs, io};

use rayon::prelude::*;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| words.get(at).and_then(|word| word.parse::<usize>().ok());
    let (Some(threads), Some(rounds), [_, _, folders @ ..]) = (number(0), number(1), words.as_slice()) else {
        eprintln!("usage: format THREADS ROUNDS FOLDER...");
        return ExitCode::from(2);
    };
    let mut sources = Vec::new();
    for folder in folders {
        if let Err(error) = read(Path::new(folder), &mut sources) {
            eprintln!("error: cannot read `{folder}`: {error}");
            return ExitCode::FAILURE;
        }
    }
    // Files that the printer does not support cause a panic, which is counted and not printed.
    std::panic::set_hook(Box::new(|_| {}));
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
    let mut made = Vec::new();
    for _ in 0..rounds {
        made = pool.install(|| sources.par_iter().map(|source| again(source)).collect());
    }
    let printed: Vec<&(usize, u32)> = made.iter().flatten().collect();
    let bytes: usize = printed.iter().map(|(bytes, _)| bytes).sum();
    let mut checksum = crc32fast::Hasher::new();
    for (_, of_one) in &printed {
        checksum.update(&of_one.to_le_bytes());
    }
    println!("{} of {} files, {bytes} bytes, {:08x}", printed.len(), made.len(), checksum.finalize());
    ExitCode::SUCCESS
}

/// Returns length and checksum of the printed source; `None` if it cannot be parsed or printed.
fn again(source: &str) -> Option<(usize, u32)> {
    let file = syn::parse_file(source).ok()?;
    let text = std::panic::catch_unwind(|| prettyplease::unparse(&file)).ok()?;
    Some((text.len(), crc32fast::hash(text.as_bytes())))
}

/// Reads the sources in the same order on every machine.
fn read(folder: &Path, sources: &mut Vec<String>) -> io::Result<()> {
    let entries: io::Result<Vec<_>> = fs::read_dir(folder)?.collect();
    let mut paths: Vec<PathBuf> = entries?.into_iter().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            read(&path, sources)?;
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            // Some test files are not UTF-8 on purpose.
            sources.extend(fs::read_to_string(&path).ok());
        }
    }
    Ok(())
}
