//! musl's libc.so, from Debian for each architecture, and its grafts. It is run in tests/casebook.

use std::collections::BTreeSet;
use std::fs;
use std::sync::LazyLock;

use format::{Arch, Linked, Role};
use proptest::prelude::*;
use surgery::donor::DonorObject;
use transplant::{Blob, BlobError, Executable, Graft, Refusal, StringEntry};

/// The graft of a program with these bytes.
fn graft(program: &[u8], blob: &Blob, as_if_stripped: bool) -> Result<Result<Graft, Refusal>, BlobError> {
    Executable::read(program).map_or_else(|refusal| Ok(Err(refusal)), |program| program.redirect(blob, as_if_stripped))
}

fn is_loader(bytes: &[u8]) -> bool {
    Executable::read(bytes).is_ok_and(|file| file.kind() == Linked::Loader)
}

/// A libc.so, and a donor for it.
struct Loader {
    arch: Arch,
    libc: Vec<u8>,
    blob: Blob,
    /// `ret`
    end: &'static [u8],
    /// The most bytes that a jump takes, with a landing pad before it, and the most that differ in a call.
    jump: (u64, u32),
}

fn donor(arch: Arch) -> &'static donors::Donor {
    donors::defaults().find(|donor| donor.has_loader(arch)).unwrap()
}

fn blob(arch: Arch, linked: &[u8]) -> Blob {
    let tuned = DonorObject::parse(donor(arch).object(arch).unwrap()).unwrap().tuned(&[], "0").unwrap();
    let tuned = DonorObject::parse(&tuned).unwrap();
    Blob::parse(linked, &tuned.note(), &tuned.options()).unwrap()
}

static LOADERS: LazyLock<[Loader; 2]> = LazyLock::new(|| {
    let of = |arch, end, jump| Loader {
        arch,
        libc: fs::read(fixtures::musl_loader(arch)).unwrap(),
        blob: blob(arch, donor(arch).loader(arch).unwrap()),
        end,
        jump,
    };
    [of(Arch::X86_64, b"\xc3", (9, 4)), of(Arch::Aarch64, b"\xc0\x03\x5f\xd6", (8, 4))]
});

impl Loader {
    fn refusal(&self, bytes: &[u8]) -> Refusal {
        graft(bytes, &self.blob, false).unwrap().expect_err("it is refused")
    }

    fn grafted(&self) -> Graft {
        graft(&self.libc, &self.blob, false).unwrap().unwrap()
    }

    fn file(&self) -> object::File<'_> {
        object::File::parse(self.libc.as_slice()).unwrap()
    }

    /// The address of an exported symbol, read by the object crate.
    fn exported(&self, name: &str) -> u64 {
        use object::{Object, ObjectSymbol};
        let symbol = self.file().dynamic_symbols().find(|symbol| symbol.name() == Ok(name)).map(|it| it.address());
        symbol.unwrap_or_else(|| panic!("{name} is exported"))
    }

    /// The byte's offset in the file.
    fn offset(&self, address: u64) -> usize {
        use object::{Object, ObjectSegment};
        let file = self.file();
        let segment = file.segments().find(|it| (it.address()..it.address() + it.size()).contains(&address)).unwrap();
        (segment.file_range().0 + (address - segment.address())) as usize
    }
}

#[test]
fn every_function_of_the_family_is_redirected() {
    for loader in LOADERS.iter() {
        let Graft { plan, bytes } = loader.grafted();
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
            assert!(at(role).any(|address| address == loader.exported(name)), "{name}");
        }
        assert!(plan.fork_hook && plan.thread_end && plan.symbols && plan.arch == loader.arch);
        let values = plan.key_values.unwrap();
        assert_eq!((values.size, values.storage % 64), (1024, 0));
        assert_eq!(values.field < 0, loader.arch == Arch::Aarch64, "`struct pthread` ends at the thread pointer there");
        assert_eq!(bytes, loader.grafted().bytes, "two runs give the same bytes");
    }
}

/// Each is redirected where it is exported, or it is said why not.
#[test]
fn every_string_function_is_accounted_for() {
    for loader in LOADERS.iter().filter(|loader| loader.arch == Arch::X86_64) {
        let with = blob(loader.arch, donor(loader.arch).loader_with_strings(loader.arch).unwrap());
        let Graft { plan, .. } = graft(&loader.libc, &with, false).unwrap().unwrap();
        let redirected: Vec<&StringEntry> = plan.strings.iter().filter(|entry| entry.kept.is_none()).collect();
        for entry in &redirected {
            assert_eq!(entry.address, loader.exported(entry.function.name()));
        }
        for name in ["strlen", "strchr", "strcmp"] {
            assert!(redirected.iter().any(|entry| entry.function.name() == name), "{name}: {:?}", plan.strings);
        }
        let names = plan.strings.iter().map(|entry| entry.function.name());
        let names: BTreeSet<&str> = names.chain(plan.strings_absent.iter().map(|(one, _)| one.name())).collect();
        assert_eq!(names.len(), format::StringFunction::all().count());
    }
}

/// Every byte that stock loads is where it was, but for jumps, two calls and one word of data.
#[test]
fn memory_stays() {
    use object::{Object, ObjectSegment};
    for loader in LOADERS.iter() {
        let Graft { plan, bytes } = loader.grafted();
        let (stock, file) = (loader.file(), object::File::parse(bytes.as_slice()).unwrap());
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
                let jump = |entry: u64| entry..entry + loader.jump.0;
                let known = plan.entries.iter().any(|entry| jump(entry.address).contains(&address))
                    || (values.variable..values.variable + 8).contains(&address)
                    || address < 64;
                others += u32::from(!known);
            }
        }
        assert!(
            (2..=2 * loader.jump.1).contains(&others),
            "the ends of threads and processes, no more: {others} bytes"
        );
        // On pages of the largest size.
        let page = if loader.arch == Arch::Aarch64 { 0x1_0000 } else { 0x1000 };
        for segment in file.segments().filter(|segment| segment.align() > 1) {
            assert_eq!((segment.align(), segment.address().wrapping_sub(segment.file_range().0) % page), (page, 0));
        }
    }
}

#[test]
fn other_files_are_told_apart() {
    for other in ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"] {
        let bytes = fs::read(other).unwrap();
        assert!(!is_loader(&bytes), "{other}");
    }
    for loader in LOADERS.iter() {
        let graft = loader.grafted().bytes;
        assert!(is_loader(&loader.libc) && is_loader(&graft));
        let mut renamed = loader.libc.clone();
        for place in memchr::memmem::find_iter(loader.libc.as_slice(), b"__dls3\0") {
            renamed[place + 5] = b'4';
        }
        assert!(!is_loader(&renamed));
        assert!(matches!(loader.refusal(&graft), Refusal::Grafted(_)));
    }
}

#[test]
fn what_is_not_musls_is_refused() {
    for loader in LOADERS.iter() {
        // __pthread_tsd_size has a different value.
        let values = loader.grafted().plan.key_values.unwrap();
        let mut other = loader.libc.clone();
        other[loader.offset(values.variable)..][..8].copy_from_slice(&1032u64.to_le_bytes());
        let refusal = loader.refusal(&other).to_string();
        assert!(refusal.contains("`__pthread_tsd_size`"), "{refusal}");
        // A function is replaced: it returns at once.
        for (name, says) in [
            ("pthread_getspecific", "pthread_getspecific"),
            ("memalign", "memalign"),
            ("exit", "`exit`"),
            ("malloc", ""),
        ] {
            let mut other = loader.libc.clone();
            other[loader.offset(loader.exported(name))..][..loader.end.len()].copy_from_slice(loader.end);
            let refusal = loader.refusal(&other).to_string();
            assert!(refusal.contains(says), "{refusal}");
        }
    }
}

#[test]
fn a_blob_goes_where_it_is_for() {
    let [one, other] = LOADERS.each_ref();
    assert!(graft(&one.libc, &blob(one.arch, donor(one.arch).blob(one.arch).unwrap()), false).is_err());
    assert!(graft(&one.libc, &other.blob, false).is_err() && graft(&other.libc, &one.blob, false).is_err());
}

#[test]
fn a_file_that_is_cut_off_is_refused() {
    for loader in LOADERS.iter() {
        for cut in (0..loader.libc.len()).step_by(loader.libc.len() / 97) {
            assert!(matches!(graft(&loader.libc[..cut], &loader.blob, false), Ok(Err(_))), "{cut}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Damage is refused, or does not matter; it is never a panic.
    #[test]
    fn damage_is_survived(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..40)) {
        for loader in LOADERS.iter() {
            let mut bytes = loader.libc.clone();
            for (place, byte) in &changes {
                let place = place.index(bytes.len());
                bytes[place] = *byte;
            }
            let _ = graft(&bytes, &loader.blob, false);
        }
    }
}
