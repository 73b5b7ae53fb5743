//! musl's libc.so, Debian's for x86_64, and what a graft makes of it. It is run in tests/casebook.

use std::fs;
use std::sync::LazyLock;

use format::{Arch, Role};
use proptest::prelude::*;
use surgery::donor::DonorObject;
use transplant::{Blob, Graft, Refusal, graft, is_loader};

const ARCH: Arch = Arch::X86_64;

fn donor() -> &'static donors::Donor {
    donors::defaults().find(|donor| donor.has_loader(ARCH)).unwrap()
}

fn blob(linked: &[u8]) -> Blob {
    let tuned = DonorObject::parse(donor().object(ARCH).unwrap()).unwrap().tuned(&[], "0").unwrap();
    let tuned = DonorObject::parse(&tuned).unwrap();
    Blob::parse(linked, &tuned.note(), &tuned.options()).unwrap()
}

static BLOB: LazyLock<Blob> = LazyLock::new(|| blob(donor().loader(ARCH).unwrap()));
static LIBC: LazyLock<Vec<u8>> = LazyLock::new(|| fs::read(fixtures::musl_loader(ARCH)).unwrap());

fn refused(bytes: &[u8]) -> Refusal {
    graft(bytes, &BLOB, false).unwrap().expect_err("it is refused")
}

fn grafted() -> Graft {
    graft(&LIBC, &BLOB, false).unwrap().unwrap()
}

/// The address of an exported symbol, by another reader.
fn exported(name: &str) -> u64 {
    use object::{Object, ObjectSymbol};
    let file = object::File::parse(LIBC.as_slice()).unwrap();
    let symbol = file.dynamic_symbols().find(|symbol| symbol.name() == Ok(name));
    symbol.unwrap_or_else(|| panic!("{name} is exported")).address()
}

#[test]
fn every_function_of_the_family_is_redirected() {
    let Graft { plan, bytes } = grafted();
    let at = |role: Role| plan.entries.iter().filter(move |entry| entry.role == role).map(|entry| entry.address);
    for role in [Role::IsZero, Role::ForkHook, Role::Donate] {
        assert_eq!(at(role).count(), 1, "{role}");
    }
    for (role, name) in [
        (Role::Malloc, "malloc"),
        (Role::Free, "free"),
        (Role::Calloc, "calloc"),
        (Role::Realloc, "realloc"),
        (Role::AlignedAlloc, "aligned_alloc"),
        (Role::UsableSize, "malloc_usable_size"),
    ] {
        assert!(at(role).any(|address| address == exported(name)), "{name}");
    }
    assert!(plan.fork_hook && plan.thread_end && plan.symbols);
    let values = plan.key_values.unwrap();
    assert_eq!((values.size, values.storage % 64), (1024, 0));
    assert_eq!(bytes, grafted().bytes, "two runs give the same bytes");
}

/// Every byte that stock loads is where it was, but for jumps, one call and one word of data.
#[test]
fn memory_stays() {
    use object::{Object, ObjectSegment};
    let Graft { plan, bytes } = grafted();
    let (stock, file) = (object::File::parse(LIBC.as_slice()).unwrap(), object::File::parse(bytes.as_slice()).unwrap());
    let values = plan.key_values.unwrap();
    let mut others = 0;
    for segment in stock.segments() {
        let same = file.segments().find(|other| other.address() == segment.address()).unwrap();
        assert_eq!(same.size(), segment.size());
        let mut was = segment.data().unwrap().to_vec();
        was.resize(segment.size() as usize, 0);
        let mut is = same.data().unwrap().to_vec();
        is.resize(segment.size() as usize, 0);
        for (at, _) in was.iter().zip(&is).enumerate().filter(|(_, (was, is))| was != is) {
            let address = segment.address() + at as u64;
            // A jump of five bytes, perhaps behind a landing pad of four.
            let known = plan.entries.iter().any(|entry| (entry.address..entry.address + 9).contains(&address))
                || (values.variable..values.variable + 8).contains(&address)
                || address < 64;
            others += u32::from(!known);
        }
    }
    assert!((1..=4).contains(&others), "the call at the end of a thread, and no more: {others} bytes");
}

#[test]
fn other_files_are_told_apart() {
    assert!(is_loader(&LIBC) && is_loader(&grafted().bytes));
    for other in ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"] {
        let bytes = fs::read(other).unwrap();
        assert!(!is_loader(&bytes), "{other}");
    }
    let mut renamed = LIBC.to_vec();
    for place in memchr::memmem::find_iter(LIBC.as_slice(), b"__dls3\0") {
        renamed[place + 5] = b'4';
    }
    assert!(!is_loader(&renamed));
    assert!(matches!(refused(&grafted().bytes), Refusal::Grafted(_)));
}

/// Where the byte at an address lies in the file.
fn offset(address: u64) -> usize {
    use object::{Object, ObjectSegment};
    let file = object::File::parse(LIBC.as_slice()).unwrap();
    let segment = file.segments().find(|it| (it.address()..it.address() + it.size()).contains(&address)).unwrap();
    (segment.file_range().0 + (address - segment.address())) as usize
}

#[test]
fn what_is_not_musls_is_refused() {
    // __pthread_tsd_size has another value.
    let values = grafted().plan.key_values.unwrap();
    let mut other = LIBC.to_vec();
    other[offset(values.variable)..][..8].copy_from_slice(&1032u64.to_le_bytes());
    assert!(refused(&other).to_string().contains("`__pthread_tsd_size`"), "{}", refused(&other));
    // pthread_getspecific is another function: it returns at once.
    let mut other = LIBC.to_vec();
    other[offset(exported("pthread_getspecific"))] = 0xc3;
    assert!(refused(&other).to_string().contains("pthread_getspecific"), "{}", refused(&other));
    // memalign is another function.
    let mut other = LIBC.to_vec();
    other[offset(exported("memalign"))] = 0xc3;
    assert!(refused(&other).to_string().contains("memalign"), "{}", refused(&other));
    // malloc leads nowhere.
    let mut other = LIBC.to_vec();
    other[offset(exported("malloc"))] = 0xc3;
    refused(&other);
}

#[test]
fn a_blob_goes_where_it_is_for() {
    assert!(graft(&LIBC, &blob(donor().blob(ARCH).unwrap()), false).is_err());
}

#[test]
fn a_file_that_is_cut_off_is_refused() {
    for cut in (0..LIBC.len()).step_by(LIBC.len() / 97) {
        assert!(matches!(graft(&LIBC[..cut], &BLOB, false), Ok(Err(_))), "{cut}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Damage is refused, or does not matter; it is never a panic.
    #[test]
    fn damage_is_survived(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..40)) {
        let mut bytes = LIBC.to_vec();
        for (place, byte) in changes {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        let _ = graft(&bytes, &BLOB, false);
    }
}
