//! The memory of another process.

use std::io::IoSliceMut;

use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;

/// The number of bytes of a stack that a sample reads.
const STACK: usize = 48 << 10;

/// A copy of the part of a stack that is in use.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stack {
    /// The address of its first byte.
    pub(crate) start: u64,
    pub(crate) bytes: Vec<u8>,
    /// Whether it goes on behind the copy.
    pub(crate) cut: bool,
}

impl Stack {
    /// The word at that address.
    pub(crate) fn word(&self, address: u64) -> Option<u64> {
        let at = usize::try_from(address.checked_sub(self.start)?).ok()?;
        let bytes = self.bytes.get(at..at.checked_add(8)?)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    }

    pub(crate) fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}

/// Copies the stack from `sp` on.
pub(crate) fn stack(pid: i32, sp: u64) -> Stack {
    let bytes = read(pid, sp, STACK);
    let cut = bytes.len() == STACK;
    Stack { start: sp, bytes, cut }
}

/// Reads up to `length` bytes, to the end of the mapped memory.
pub(crate) fn read(pid: i32, address: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    let Ok(base) = usize::try_from(address) else { return Vec::new() };
    // A range for each page: the call stops before the first range that it cannot read, and keeps what it has.
    let mut ranges = Vec::new();
    let mut at = base;
    let end = base.saturating_add(length);
    while at < end {
        let next = (at | 4095).saturating_add(1).min(end);
        ranges.push(RemoteIoVec { base: at, len: next - at });
        at = next;
    }
    let got = process_vm_readv(Pid::from_raw(pid), &mut [IoSliceMut::new(&mut bytes)], &ranges).unwrap_or(0);
    bytes.truncate(got);
    bytes
}
