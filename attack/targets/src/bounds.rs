//! Bounds of what an input may cost: memory, by counting what is allocated, and processor time.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;

/// The bounds of a target.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Bytes that any input may take.
    pub memory: usize,
    /// Bytes that each byte of the input may take beyond that.
    pub times: usize,
}

/// The processor time that any input may take. The slowest programs are a hundred times slower without optimisation and
/// with instrumentation.
const TIME: Duration = Duration::from_secs(20);

/// Counts the bytes that a thread allocates.
struct Counting;

thread_local! {
    // A block may be freed by another thread: a count may be negative.
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count(bytes: isize) {
    // At the end of a thread there is nothing to count with.
    let _ = LIVE.try_with(|live| {
        live.set(live.get().wrapping_add(bytes));
        PEAK.try_with(|peak| peak.set(peak.get().max(live.get())))
    });
}

fn size(layout: Layout) -> isize {
    isize::try_from(layout.size()).unwrap_or(isize::MAX)
}

#[allow(unsafe_code, reason = "an allocator is unsafe by its interface")]
// SAFETY: each call is passed on unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(size(layout));
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(size(layout));
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count(-size(layout));
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new: usize) -> *mut u8 {
        // Both blocks may exist at once.
        count(isize::try_from(new).unwrap_or(isize::MAX));
        count(-size(layout));
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(block, layout, new) }
    }
}

/// Returns the processor time of this thread.
fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    #[allow(unsafe_code, reason = "a system call")]
    // SAFETY: `time` is a timespec that may be written.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    assert_eq!(failed, 0, "a thread has a clock");
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

impl Bounds {
    /// Does some work on an input of `length` bytes.
    ///
    /// # Panics
    /// When it takes more than the bounds allow.
    pub fn check(self, length: usize, work: impl FnOnce()) {
        let (live, began) = (LIVE.get(), processor_time());
        PEAK.set(live);
        work();
        let took = processor_time() - began;
        let peak = usize::try_from(PEAK.get() - live).unwrap_or(0);
        let most = self.memory + self.times * length;
        assert!(peak <= most, "{length} bytes of input take {peak} bytes of memory, expected at most {most}");
        assert!(took <= TIME, "{length} bytes of input take {took:?}, expected at most {TIME:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_allocated_is_counted() {
        let bounds = Bounds { memory: 1 << 20, times: 10 };
        bounds.check(100, || drop(vec![1_u8; 1 << 19]));
        let too_much = || bounds.check(100, || drop(vec![1_u8; 2 << 20]));
        assert!(std::panic::catch_unwind(too_much).is_err());
        bounds.check(1 << 20, || drop(vec![1_u8; 2 << 20]));
    }
}
