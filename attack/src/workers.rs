//! Work that is divided among threads.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::Result;

/// Does each piece of work once, in so many threads. Prints the errors, and returns their number.
pub fn each<T: Sync>(work: &[T], threads: usize, one: impl Fn(&T) -> Result<()> + Sync) -> usize {
    let (next, errors) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let work_on = || {
        while let Some(piece) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Err(error) = one(piece) {
                eprintln!("error: {error:#}");
                errors.fetch_add(1, Ordering::Relaxed);
            }
        }
    };
    thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work_on))));
    errors.into_inner()
}

/// The number of the machine's processors.
pub fn processors() -> usize {
    thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn each_piece_is_done_once_and_errors_are_counted() {
        let pieces: Vec<usize> = (0..100).collect();
        let done = Mutex::new(Vec::new());
        let errors = each(&pieces, 3, |piece| {
            done.lock().unwrap().push(*piece);
            anyhow::ensure!(piece % 25 != 7, "the piece {piece}");
            Ok(())
        });
        let mut done = done.into_inner().unwrap();
        done.sort_unstable();
        assert_eq!((errors, done), (4, pieces));
    }
}
