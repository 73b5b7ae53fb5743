//! The memory of a tree: in proportion to its entries, and small, as hostile images may have two million.

use std::alloc::{GlobalAlloc, Layout, System};
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use flate2::write::GzEncoder;
use images::open;
use tar::{EntryType, Header};

/// Counts the bytes that are allocated.
struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
/// All threads are counted, so that one test at a time measures.
static MEASURING: Mutex<()> = Mutex::new(());

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count(freed: usize, allocated: usize) {
    let live = LIVE.fetch_add(allocated, Ordering::Relaxed) + allocated;
    PEAK.fetch_max(live, Ordering::Relaxed);
    LIVE.fetch_sub(freed, Ordering::Relaxed);
}

#[allow(unsafe_code, reason = "an allocator is unsafe by its interface")]
// SAFETY: each call is passed on unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(0, layout.size());
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count(layout.size(), 0);
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Both blocks exist at once, unless the allocator is lucky.
        count(layout.size(), size);
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(block, layout, size) }
    }
}

/// Returns the most bytes that were allocated at once while `work` ran, beyond those before.
fn peak(work: impl FnOnce()) -> usize {
    let before = LIVE.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    work();
    PEAK.load(Ordering::Relaxed) - before
}

/// The entries of a layer.
#[derive(Debug, Clone, Copy)]
enum Entries {
    /// Files in folders of 500, ten folders in a folder, with an owner and a time each.
    Files,
    /// Symbolic links.
    Links,
    /// Files with the label that some systems give to each.
    Labelled,
    /// Files with a hundred empty attributes each.
    Attributes,
    /// Files in a folder each.
    Folders,
    /// Files that are kept.
    Kept,
}

/// Writes a tar with that many entries, packed.
fn write(path: &Path, entries: Entries, count: usize) -> io::Result<()> {
    let mut builder =
        tar::Builder::new(GzEncoder::new(io::BufWriter::new(File::create(path)?), flate2::Compression::fast()));
    let attributes: Vec<String> = (0..100).map(|number| format!("SCHILY.xattr.{number}")).collect();
    for number in 0..count {
        let name = format!("a-name-{number:09}.so");
        let folder = format!("usr/share/{:04}/{:05}", number / 5000, number / 500);
        let path = match entries {
            Entries::Folders => format!("{name}/x"),
            _ => format!("{folder}/{name}"),
        };
        match entries {
            Entries::Labelled => {
                let label = format!("system_u:object_r:kind_{}_t:s0", number / 100);
                builder.append_pax_extensions([("SCHILY.xattr.security.selinux", label.as_bytes())])?;
            }
            Entries::Attributes => {
                builder.append_pax_extensions(attributes.iter().map(|key| (key.as_str(), &b""[..])))?;
            }
            _ => {}
        }
        let mut header = Header::new_ustar();
        header.set_mode(0o644);
        header.set_uid(number as u64 % 2_000_000);
        header.set_gid(7);
        header.set_mtime(1_600_000_000 + number as u64);
        header.set_size(0);
        header.set_path(path)?;
        if matches!(entries, Entries::Links) {
            header.set_entry_type(EntryType::Symlink);
            header.set_link_name(format!("../target-{number}"))?;
        }
        header.set_cksum();
        builder.append(&header, io::empty())?;
    }
    builder.into_inner()?.finish()?.into_inner()?;
    Ok(())
}

/// Returns the memory for a tree of that many entries.
fn memory(entries: Entries, count: usize) -> usize {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("layer.tar.gz");
    write(&path, entries, count).unwrap();
    peak(|| {
        let source = open(&path).unwrap().expect("a root file system");
        let keep = |_: &[u8], _: u64, _: &[u8]| matches!(entries, Entries::Kept);
        let tree = source.tree(&source.images[0], &keep).unwrap();
        let files = tree.nodes().filter(|(_, node)| node.kind != images::Kind::Folder);
        assert_eq!(files.count(), count);
    })
}

/// Returns the memory for each further entry of a layer in bytes.
fn per_entry(entries: Entries) -> usize {
    // The names of attributes are long.
    let count = if matches!(entries, Entries::Attributes) { 2_000 } else { 8_000 };
    (memory(entries, 2 * count) - memory(entries, count)) / count
}

#[test]
fn an_entry_needs_a_hundred_bytes() {
    let _only = MEASURING.lock().unwrap();
    for (entries, most) in [
        (Entries::Files, 100),
        (Entries::Links, 100),
        (Entries::Labelled, 100),
        // Two bytes for each attribute.
        (Entries::Attributes, 300),
        // Twice as many nodes.
        (Entries::Folders, 160),
        (Entries::Kept, 100),
    ] {
        let found = per_entry(entries);
        assert!(found <= most, "{entries:?}: {found} bytes, expected at most {most}");
    }
}

#[test]
#[ignore = "minutes: two million entries"]
fn two_million_entries_need_two_hundred_megabytes() {
    let _only = MEASURING.lock().unwrap();
    let found = memory(Entries::Files, 1_990_000);
    assert!(found < 200_000_000, "{found}");
}
