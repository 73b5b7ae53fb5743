//! Whether a program may be merged with a donor at all, and which libc it has.

use format::{Arch, family};

use super::dynamic::{Dynamic, NEEDED};
use crate::image::{Image, PT_NOTE};
use crate::refusal::Refusal;

/// The libc of a dynamic program. It decides who calls the donor's constructor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Libc {
    /// The GNU C library. Its loader calls the functions of DT_PREINIT_ARRAY, whatever the program was linked with;
    /// those of DT_INIT_ARRAY it leaves to the program, if that was linked with a release before 2.34.
    Glibc,
    /// musl, which ignores DT_PREINIT_ARRAY.
    Musl,
}

impl Libc {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Libc::Glibc => "glibc",
            Libc::Musl => "musl",
        }
    }

    /// Recognises the libc by the libraries that the program needs, never by the path of its interpreter, which may be
    /// any.
    pub(super) fn recognise(program: &Dynamic<'_>, image: &Image<'_>) -> Result<Libc, Refusal> {
        let needed = program.texts(NEEDED);
        let glibc = needed.contains(&b"libc.so.6".as_slice());
        let musl = needed.iter().any(|name| *name == b"libc.so" || name.starts_with(b"libc.musl-"));
        let android = image.segments.iter().filter(|segment| segment.kind == PT_NOTE).any(|segment| {
            let notes = image.read(segment.address, segment.file_size as usize).unwrap_or_default();
            memchr::memmem::find(notes, b"\x08\0\0\0\x84\0\0\0\x01\0\0\0Android\0").is_some()
        });
        match (glibc, musl) {
            _ if android => Err(refused("it is Android's, whose libc has another allocator protocol")),
            (true, false) => Ok(Libc::Glibc),
            (false, true) => Ok(Libc::Musl),
            (true, true) => Err(refused("it needs both glibc and musl")),
            (false, false) => Err(refused(
                "it does not itself need `libc.so.6` (glibc) or musl's `libc.so`, so it is not known who starts it",
            )),
        }
    }
}

/// Starts of sanitizers, each of which brings an allocator.
const SANITIZERS: [&str; 5] = ["__asan_init", "__hwasan_init", "__tsan_init", "__msan_init", "__lsan_init"];
/// glibc's own, past any replacement.
const OF_GLIBC: [&str; 6] =
    ["__malloc_hook", "__free_hook", "__malloc_initialize_hook", "malloc_set_state", "__libc_memalign", "cfree"];

/// Refuses programs whose names show another allocator, and tags of the dynamic section whose meaning a merge cannot
/// keep.
pub(super) fn check(program: &Dynamic<'_>, arch: Arch) -> Result<(), Refusal> {
    for (tag, _) in &program.entries {
        match tag {
            // DT_AUDIT, DT_DEPAUDIT: a library that watches every binding, and may change it.
            0x6fff_fefc | 0x6fff_fefb => {
                return Err(refused("it has an auditing library (DT_AUDIT), which may change what names are bound to"));
            }
            // From DT_NULL to DT_RELR; DT_TLSDESC_PLT, DT_TLSDESC_GOT; DT_GNU_HASH; DT_VERSYM to DT_VERNEEDNUM with
            // the counts and flags between.
            0..=37 | 0x6fff_fef5..=0x6fff_fef7 | 0x6fff_fff0 | 0x6fff_fff9..=0x6fff_ffff => {}
            // DT_X86_64_PLT, DT_X86_64_PLTSZ, DT_X86_64_PLTENT; DT_AARCH64_BTI_PLT, DT_AARCH64_PAC_PLT,
            // DT_AARCH64_VARIANT_PCS.
            0x7000_0000..=0x7000_0003 if arch == Arch::X86_64 => {}
            0x7000_0001 | 0x7000_0003 | 0x7000_0005 if arch == Arch::Aarch64 => {}
            other => return Err(refused(format!("its dynamic section has the tag {other:#x}, which is not known"))),
        }
    }
    let starts = program.symbols.iter().any(|it| !it.is_defined() && program.name(it) == b"__libc_start_main");
    if !starts {
        return Err(refused("it does not start by libc's __libc_start_main: its memory may be a runtime's of its own"));
    }
    for symbol in program.symbols.iter().skip(1).filter(|symbol| !symbol.is_local()) {
        let name = program.name(symbol);
        let is = |names: &[&str]| names.iter().any(|other| other.as_bytes() == name);
        let shown = || String::from_utf8_lossy(name).into_owned();
        if symbol.is_defined() && family::exported().any(|own| own.as_bytes() == name) {
            return Err(Refusal::BringsAllocator { symbol: shown(), verb: "defines" });
        }
        // A program that names a function of a different allocator would mix the blocks of both. A weak reference is
        // safe: it stays unresolved, since no library of the program brings that allocator.
        let others = is(&SANITIZERS) || known::ROWS.iter().any(|row| row.is_interface(name));
        if (others && !symbol.is_wish()) || is(&OF_GLIBC) || is(&family::OF_LIBC) {
            let verb = if symbol.is_defined() { "defines" } else { "calls" };
            return Err(Refusal::BringsAllocator { symbol: shown(), verb });
        }
    }
    Ok(())
}

pub(super) fn refused(why: impl Into<String>) -> Refusal {
    Refusal::Merge(why.into())
}
