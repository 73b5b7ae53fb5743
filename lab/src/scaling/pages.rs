//! A program's memory, read from and written to `/proc/PID/mem` by pages that are kept between instructions.

use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use anyhow::{Context, Result};
use foldhash::fast::FixedState;

use super::caches::LINE;
use super::processor::{Memory, Unfit};

/// Bytes of a page.
pub(crate) const PAGE: u64 = 4096;

/// A mapping of the program, from `/proc/PID/maps`.
#[derive(Debug, Clone)]
pub(crate) struct Mapping {
    begin: u64,
    end: u64,
    is_readable: bool,
    is_writable: bool,
    is_of_file: bool,
}

#[derive(Debug)]
struct Page {
    bytes: Box<[u8; PAGE as usize]>,
    is_writable: bool,
    is_changed: bool,
}

/// The memory of a stopped program.
#[derive(Debug)]
pub(crate) struct Pages {
    process: i32,
    memory: File,
    residency: File,
    pages: HashMap<u64, Page, FixedState>,
    mappings: Option<Vec<Mapping>>,
    /// The lines that were accessed since they were taken, and whether they were written.
    lines: Vec<(u64, bool)>,
    faults: u64,
}

impl Pages {
    /// # Errors
    /// The files of the process in `/proc` cannot be opened.
    pub(crate) fn new(process: i32) -> Result<Pages> {
        let open = |name: &str, is_written| {
            let path = format!("/proc/{process}/{name}");
            File::options().read(true).write(is_written).open(&path).with_context(|| format!("cannot open `{path}`"))
        };
        Ok(Pages {
            process,
            memory: open("mem", true)?,
            residency: open("pagemap", false)?,
            pages: HashMap::default(),
            mappings: None,
            lines: Vec::new(),
            faults: 0,
        })
    }

    /// Returns the lines that were accessed and the page faults, since the last call.
    pub(crate) fn take_accesses(&mut self, lines: &mut Vec<(u64, bool)>) -> u64 {
        lines.clear();
        std::mem::swap(lines, &mut self.lines);
        std::mem::take(&mut self.faults)
    }

    /// Puts back what was taken.
    pub(crate) fn restore_accesses(&mut self, lines: Vec<(u64, bool)>, faults: u64) {
        self.lines = lines;
        self.faults = faults;
    }

    /// Returns the number of pages of a range that are in memory.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub(crate) fn present(&self, begin: u64, end: u64) -> Result<u64> {
        let numbers = begin / PAGE..end.div_ceil(PAGE);
        let mut entries = vec![0; 8 * usize::try_from(numbers.end.saturating_sub(numbers.start))?];
        self.residency.read_exact_at(&mut entries, 8 * numbers.start).context("cannot read the residency of pages")?;
        let (entries, _) = entries.as_chunks();
        Ok(entries.iter().filter(|entry| is_present(**entry)).count() as u64)
    }

    /// Reads without counting an access.
    ///
    /// # Errors
    /// The program has no memory there.
    pub(crate) fn peek(&mut self, address: u64, bytes: &mut [u8]) -> Result<()> {
        let (lines, faults) = (self.lines.len(), self.faults);
        let read = self.read(address, bytes);
        self.lines.truncate(lines);
        self.faults = faults;
        read.ok().with_context(|| format!("the program has no memory at {address:#x}"))
    }

    /// Writes without counting an access, as the kernel does.
    ///
    /// # Errors
    /// The program has no memory there that it may write to.
    pub(crate) fn poke(&mut self, address: u64, bytes: &[u8]) -> Result<()> {
        let (lines, faults) = (self.lines.len(), self.faults);
        let written = self.write(address, bytes);
        self.lines.truncate(lines);
        self.faults = faults;
        written.ok().with_context(|| format!("the program may not write at {address:#x}"))
    }

    /// Writes changed pages of a range to the program, and forgets all pages of the range.
    ///
    /// # Errors
    /// A page cannot be written.
    pub(crate) fn give_back(&mut self, begin: u64, end: u64) -> Result<()> {
        let (first, last) = (begin / PAGE, end.div_ceil(PAGE));
        let numbers: Vec<u64> = if last.saturating_sub(first) < self.pages.len() as u64 {
            (first..last).filter(|number| self.pages.contains_key(number)).collect()
        } else {
            self.pages.keys().copied().filter(|number| (first..last).contains(number)).collect()
        };
        for number in numbers {
            let Some(page) = self.pages.remove(&number) else { continue };
            if page.is_changed {
                self.memory
                    .write_all_at(&page.bytes[..], number * PAGE)
                    .with_context(|| format!("cannot write to the program's page at {:#x}", number * PAGE))?;
            }
        }
        Ok(())
    }

    /// Writes changed pages to the program, and keeps them.
    ///
    /// # Errors
    /// A page cannot be written.
    pub(crate) fn flush(&mut self) -> Result<()> {
        for (number, page) in self.pages.iter_mut().filter(|(_, page)| page.is_changed) {
            self.memory.write_all_at(&page.bytes[..], number * PAGE).context("cannot write to the program's memory")?;
            page.is_changed = false;
        }
        Ok(())
    }

    /// Returns whether the program's own memory has the bytes of a line.
    pub(crate) fn is_same(&self, line: u64) -> bool {
        let address = line * LINE;
        let mut real = [0; LINE as usize];
        let Some(page) = self.pages.get(&(address / PAGE)) else { return true };
        let at = (address % PAGE) as usize;
        self.memory.read_exact_at(&mut real, address).is_ok() && page.bytes[at..at + LINE as usize] == real
    }

    /// Gives back all pages, and forgets the mappings: the program is about to run by itself.
    ///
    /// # Errors
    /// As [`Pages::give_back`].
    pub(crate) fn give_back_all(&mut self) -> Result<()> {
        self.mappings = None;
        self.give_back(0, u64::MAX)
    }

    /// Forgets the mappings, which a system call has changed.
    pub(crate) fn forget_mappings(&mut self) {
        self.mappings = None;
    }

    fn mapping(&mut self, address: u64) -> Option<Mapping> {
        if self.mappings.is_none() {
            let text = fs::read_to_string(format!("/proc/{}/maps", self.process)).ok()?;
            self.mappings = Some(text.lines().filter_map(Mapping::parse).collect());
        }
        let mappings = self.mappings.as_ref()?;
        let at = mappings.partition_point(|mapping| mapping.end <= address);
        mappings.get(at).filter(|mapping| mapping.begin <= address).cloned()
    }

    fn page(&mut self, number: u64, is_write: bool) -> Result<&mut Page, Unfit> {
        if !self.pages.contains_key(&number) {
            let mapping = self.mapping(number * PAGE).filter(|mapping| mapping.is_readable).ok_or(Unfit)?;
            let mut entry = [0; 8];
            self.residency.read_exact_at(&mut entry, number * 8).map_err(|_| Unfit)?;
            if !is_present(entry) && !mapping.is_of_file {
                self.faults += 1;
            }
            let mut bytes = Box::new([0; PAGE as usize]);
            self.memory.read_exact_at(&mut bytes[..], number * PAGE).map_err(|_| Unfit)?;
            self.pages.insert(number, Page { bytes, is_writable: mapping.is_writable, is_changed: false });
        }
        self.pages.get_mut(&number).filter(|page| page.is_writable || !is_write).ok_or(Unfit)
    }

    /// Calls `on_part` with each page of a range, the part's offset there, and its range in the whole.
    fn parts(
        &mut self,
        address: u64,
        length: usize,
        is_write: bool,
        mut on_part: impl FnMut(&mut Page, usize, std::ops::Range<usize>),
    ) -> Result<(), Unfit> {
        let mut done = 0;
        while done < length {
            let at = address.checked_add(done as u64).ok_or(Unfit)?;
            let offset = (at % PAGE) as usize;
            let count = (PAGE as usize - offset).min(length - done);
            on_part(self.page(at / PAGE, is_write)?, offset, done..done + count);
            done += count;
        }
        let last = address.checked_add(length as u64 - 1).ok_or(Unfit)?;
        for line in address / LINE..=last / LINE {
            match self.lines.last_mut() {
                // Read-modify-writes and copies access a line several times.
                Some((same, was_write)) if *same == line => *was_write |= is_write,
                _ => self.lines.push((line, is_write)),
            }
        }
        Ok(())
    }
}

/// Returns whether an entry of `/proc/PID/pagemap` is that of a page in memory: bit 63 (the kernel's
/// Documentation/admin-guide/mm/pagemap.rst).
fn is_present(entry: [u8; 8]) -> bool {
    u64::from_le_bytes(entry) >> 63 == 1
}

impl Memory for Pages {
    fn read(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), Unfit> {
        self.parts(address, bytes.len(), false, |page, offset, part| {
            bytes[part.clone()].copy_from_slice(&page.bytes[offset..offset + part.len()]);
        })
    }

    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), Unfit> {
        self.parts(address, bytes.len(), true, |page, offset, part| {
            page.bytes[offset..offset + part.len()].copy_from_slice(&bytes[part]);
            page.is_changed = true;
        })
    }
}

impl Mapping {
    /// Parses a line of `/proc/PID/maps` (proc_pid_maps(5)).
    fn parse(line: &str) -> Option<Mapping> {
        let mut words = line.split_ascii_whitespace();
        let (begin, end) = words.next()?.split_once('-')?;
        let rights = words.next()?.as_bytes();
        let inode = words.nth(2)?;
        Some(Mapping {
            begin: u64::from_str_radix(begin, 16).ok()?,
            end: u64::from_str_radix(end, 16).ok()?,
            is_readable: rights.first() == Some(&b'r'),
            is_writable: rights.get(1) == Some(&b'w'),
            is_of_file: inode != "0",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_maps_is_parsed() {
        let heap = Mapping::parse("00405000-00427000 rw-p 00000000 00:00 0                          [heap]").unwrap();
        assert_eq!((heap.begin, heap.end), (0x405000, 0x427000));
        assert!(heap.is_readable && heap.is_writable && !heap.is_of_file);
        let code = Mapping::parse("00401000-00404000 r-xp 00001000 fe:00 27 /a program").unwrap();
        assert_eq!((code.is_writable, code.is_of_file), (false, true));
        assert!(Mapping::parse("nothing").is_none());
    }

    #[test]
    fn changes_reach_the_program_when_they_are_given_back() {
        // What is given back are whole pages. Those at the ends have data of other tests.
        let mut own = vec![0_u8; 4 * PAGE as usize];
        let first = (own.as_mut_ptr() as u64).next_multiple_of(PAGE);
        let mut pages = Pages::new(i32::try_from(std::process::id()).unwrap()).unwrap();
        // Over the border of two pages.
        let across = first + PAGE - 2;
        pages.write(across, &[1, 2, 3, 4]).unwrap();
        let mut lines = Vec::new();
        pages.take_accesses(&mut lines);
        assert_eq!(lines, [(across / LINE, true), (across / LINE + 1, true)]);
        let mut read = [0; 4];
        pages.read(across, &mut read).unwrap();
        assert_eq!(read, [1, 2, 3, 4]);
        pages.give_back(across, across + 4).unwrap();
        let at = (across - own.as_ptr() as u64) as usize;
        assert_eq!(std::hint::black_box(&own)[at..at + 4], [1, 2, 3, 4]);
        assert!(pages.read(8, &mut read).is_err());
        assert!(pages.poke(8, &read).is_err());
    }
}
