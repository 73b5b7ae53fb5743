//! Tells allocators apart by tables and texts that survive `strip`.
//!
//! They are kept veiled here and unveiled at run time: this program, too, is a file that somebody inspects, and must not
//! carry the marks of allocators that are not in it.

use std::hint::black_box;

use memchr::memmem::{Finder, find};

/// What a mark belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Origin {
    Mallocng,
    Oldmalloc,
    Mimalloc,
    Jemalloc,
    /// jemalloc as the Rust crate builds it: its functions have a prefix, so that it is not `malloc`.
    JemallocPrefixed,
    Glibc,
    Scudo,
    Tcmalloc,
    Hardened,
    Snmalloc,
    Go,
    MuslMessages,
}

impl Origin {
    /// The name in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Origin::Mallocng => "mallocng",
            Origin::Oldmalloc => "oldmalloc",
            Origin::Mimalloc => "mimalloc",
            Origin::Jemalloc | Origin::JemallocPrefixed => "jemalloc",
            Origin::Glibc => "glibc",
            Origin::Scudo => "scudo",
            Origin::Tcmalloc => "tcmalloc",
            Origin::Hardened => "hardened",
            Origin::Snmalloc => "snmalloc",
            Origin::Go => "go",
            Origin::MuslMessages => "musl",
        }
    }

    /// How many different marks have to be there: one where a mark cannot be anything else.
    fn enough(self) -> usize {
        match self {
            Origin::Mimalloc | Origin::Glibc | Origin::Jemalloc => 2,
            _ => 1,
        }
    }
}

/// Every byte complemented.
const fn veiled<const N: usize>(plain: &[u8; N]) -> [u8; N] {
    let mut bytes = [0; N];
    let mut at = 0;
    while at < N {
        bytes[at] = !plain[at];
        at += 1;
    }
    bytes
}

/// The same for 16-bit numbers, as they lie in a little-endian file.
const fn veiled_numbers<const N: usize, const BYTES: usize>(plain: &[u16; N]) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    let mut at = 0;
    while at < N {
        bytes[2 * at] = !(plain[at] as u8);
        bytes[2 * at + 1] = !((plain[at] >> 8) as u8);
        at += 1;
    }
    bytes
}

/// musl src/malloc/mallocng/malloc.c, `__malloc_size_classes`.
static SIZE_CLASSES: [u8; 96] = veiled_numbers(&[
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 18, 20, 25, 31, 36, 42, 50, 63, 72, 84, 102, 127, 146, 170, 204, 255, 292,
    340, 409, 511, 584, 682, 818, 1023, 1169, 1364, 1637, 2047, 2340, 2730, 3276, 4095, 4680, 5460, 6552, 8191,
]);

/// musl src/malloc/oldmalloc/malloc.c, `bin_tab` of `bin_index`.
static BIN_TABLE: [u8; 60] = veiled(&[
    32, 33, 34, 35, 36, 36, 37, 37, 38, 38, 39, 39, 40, 40, 40, 40, 41, 41, 41, 41, 42, 42, 42, 42, 43, 43, 43, 43, 44,
    44, 44, 44, 44, 44, 44, 44, 45, 45, 45, 45, 45, 45, 45, 45, 46, 46, 46, 46, 46, 46, 46, 46, 47, 47, 47, 47, 47, 47,
    47, 47,
]);

/// Go cmd/link: the start of the build information.
static GO_MAGIC: &[u8] = &veiled(b"\xff Go buildinf:");

/// A mark as it lies in a file.
struct Mark {
    origin: Origin,
    veiled: &'static [u8],
    what: &'static str,
}

/// A mark that is a text, veiled as a whole.
macro_rules! text {
    ($origin:ident, $text:literal, $what:literal) => {
        Mark {
            origin: Origin::$origin,
            veiled: {
                static VEILED: &[u8] = &veiled($text);
                VEILED
            },
            what: $what,
        }
    };
}

static MARKS: &[Mark] = &[
    Mark { origin: Origin::Mallocng, veiled: &SIZE_CLASSES, what: "musl's table of 48 size classes (96 bytes)" },
    Mark { origin: Origin::Oldmalloc, veiled: &BIN_TABLE, what: "oldmalloc's table of bins (60 bytes)" },
    text!(MuslMessages, b"\0No error information\0", "musl's text for error 0"),
    // glibc malloc/malloc.c.
    text!(Glibc, b"malloc(): corrupted top size\0", "a message of glibc's malloc: corrupted top size"),
    text!(
        Glibc,
        b"malloc_consolidate(): unaligned fastbin chunk detected\0",
        "a message of glibc's malloc_consolidate"
    ),
    text!(Glibc, b"free(): invalid next size (fast)\0", "a message of glibc's free: invalid next size"),
    // mimalloc src/options.c, src/init.c.
    text!(Mimalloc, b"mimalloc: error: \0", "mimalloc's prefix of errors"),
    text!(Mimalloc, b"mimalloc: warning: \0", "mimalloc's prefix of warnings"),
    text!(Mimalloc, b"mimalloc_\0", "mimalloc's prefix of environment variables"),
    text!(Mimalloc, b"\0arena_eager_commit\0", "mimalloc's option arena_eager_commit"),
    text!(Mimalloc, b"\0disallow_arena_alloc\0", "mimalloc's option disallow_arena_alloc"),
    text!(Mimalloc, b"\0disallow_os_alloc\0", "mimalloc's option disallow_os_alloc"),
    // jemalloc src/jemalloc.c, src/ctl.c, src/malloc_io.c.
    text!(Jemalloc, b"<jemalloc>: ", "jemalloc's prefix of messages"),
    text!(Jemalloc, b"dirty_decay_ms", "jemalloc's option dirty_decay_ms"),
    text!(Jemalloc, b"abort_conf", "jemalloc's option abort_conf"),
    text!(JemallocPrefixed, b"_RJEM_MALLOC_CONF\0", "the variable _RJEM_MALLOC_CONF of the Rust crate's jemalloc"),
    text!(
        JemallocPrefixed,
        b"/etc/_rjem_malloc.conf\0",
        "the file /etc/_rjem_malloc.conf of the Rust crate's jemalloc"
    ),
    // scudo standalone report.cpp; gperftools src/tcmalloc.cc; hardened_malloc util.c.
    text!(Scudo, b"Scudo ERROR: ", "scudo's prefix of errors"),
    text!(Tcmalloc, b"tcmalloc: large alloc ", "a message of tcmalloc"),
    text!(Hardened, b"fatal allocator error: ", "hardened_malloc's prefix of errors"),
    text!(Snmalloc, b"snmalloc-", "a file name of snmalloc"),
    Mark { origin: Origin::Go, veiled: GO_MAGIC, what: "Go's build information" },
];

/// What was found in a file.
#[derive(Debug, Default)]
pub(crate) struct Constants {
    found: Vec<(Origin, Vec<&'static str>)>,
    /// jemalloc's version text.
    pub(crate) jemalloc_version: Option<String>,
    /// Go's version text.
    pub(crate) go_version: Option<String>,
}

impl Constants {
    /// Looks through the parts of a file that are loaded.
    pub(crate) fn of(parts: &[&[u8]]) -> Self {
        let mut constants = Constants::default();
        for mark in MARKS {
            let needle = unveil(mark.veiled);
            let finder = Finder::new(&needle);
            if parts.iter().any(|part| finder.find(part).is_some()) {
                match constants.found.iter_mut().find(|(origin, _)| *origin == mark.origin) {
                    Some((_, details)) => details.push(mark.what),
                    None => constants.found.push((mark.origin, vec![mark.what])),
                }
            }
        }
        constants.found.retain(|(origin, details)| details.len() >= origin.enough());
        if constants.has(Origin::Jemalloc) || constants.has(Origin::JemallocPrefixed) {
            constants.jemalloc_version = parts.iter().find_map(|part| jemalloc_version(part));
        }
        if constants.has(Origin::Go) {
            constants.go_version = parts.iter().find_map(|part| go_version(part));
        }
        constants
    }

    pub(crate) fn has(&self, origin: Origin) -> bool {
        self.found.iter().any(|(found, _)| *found == origin)
    }

    /// Every origin with what was seen of it, in the order of strength.
    pub(crate) fn found(&self) -> impl Iterator<Item = (Origin, String)> + '_ {
        self.found.iter().map(|(origin, details)| (*origin, details.join("; ")))
    }

    /// What could be serving `malloc`, as far as constants can tell.
    pub(crate) fn candidates(&self) -> Vec<(Origin, String)> {
        let prefixed = self.has(Origin::JemallocPrefixed);
        self.found()
            .filter(|(origin, _)| match origin {
                Origin::JemallocPrefixed | Origin::MuslMessages | Origin::Go => false,
                Origin::Jemalloc => !prefixed,
                _ => true,
            })
            .collect()
    }
}

fn unveil(bytes: &'static [u8]) -> Vec<u8> {
    // Without the barrier the compiler may unveil when it builds.
    black_box(bytes).iter().map(|byte| !byte).collect()
}

/// `5.3.0-0-g` and 40 hexadecimal digits (jemalloc's JEMALLOC_VERSION): the part before the first dash.
fn jemalloc_version(data: &[u8]) -> Option<String> {
    let mut from = 0;
    while let Some(place) = find(data.get(from..)?, b"-g").map(|place| from + place) {
        from = place + 2;
        let hash = data.get(from..from + 40).unwrap_or_default();
        if hash.len() != 40 || !hash.iter().all(u8::is_ascii_hexdigit) {
            continue;
        }
        let before = &data[place.saturating_sub(24)..place];
        let start =
            before.iter().rposition(|byte| !byte.is_ascii_digit() && !b".-".contains(byte)).map_or(0, |at| at + 1);
        let text = std::str::from_utf8(&before[start..]).ok()?;
        let version = text.split('-').next().unwrap_or(text);
        if version.split('.').count() == 3 && version.split('.').all(|number| !number.is_empty()) {
            return Some(version.to_owned());
        }
    }
    None
}

/// Go since 1.18 writes the version in line, 32 bytes after the start of its build information (debug/buildinfo).
fn go_version(data: &[u8]) -> Option<String> {
    let start = find(data, &unveil(GO_MAGIC))?;
    let inline = data.get(start + 15)? & 2 != 0;
    let length = usize::from(*data.get(start + 32)?);
    let text = std::str::from_utf8(data.get(start + 33..start + 33 + length)?).ok()?;
    (inline && text.starts_with("go1")).then(|| text.trim_start_matches("go").to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mark_is_found_when_all_of_its_kind_are_there() {
        for mark in MARKS {
            let mut data = vec![0u8; 100];
            for other in MARKS.iter().filter(|other| other.origin == mark.origin) {
                data.extend(unveil(other.veiled));
                data.extend([0; 9]);
            }
            let constants = Constants::of(&[&data]);
            assert!(constants.has(mark.origin), "{:?}", mark.origin);
            assert_eq!(constants.found().count(), 1, "{:?}", mark.origin);
        }
    }

    #[test]
    fn this_program_does_not_carry_the_marks_that_it_looks_for() {
        let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let found = Constants::of(&[&program]);
        for origin in [Origin::Mallocng, Origin::Oldmalloc, Origin::Mimalloc, Origin::Glibc, Origin::Scudo, Origin::Go]
        {
            assert!(!found.has(origin), "{origin:?}");
        }
    }

    #[test]
    fn one_mark_is_not_enough_where_it_could_be_chance() {
        assert!(!Constants::of(&[b"abort_conf"]).has(Origin::Jemalloc));
        assert!(Constants::of(&[b"abort_conf <jemalloc>: "]).has(Origin::Jemalloc));
    }

    #[test]
    fn versions_are_read() {
        let text = b"\0 5.3.1-0-g54eaed1d8b56b1aa528be3bdd1877e59c56fa90c\0";
        assert_eq!(jemalloc_version(text).as_deref(), Some("5.3.1"));
        assert_eq!(jemalloc_version(b"-g54eaed1d8b56b1aa528be3bdd1877e59c56fa90c"), None);
        assert_eq!(jemalloc_version(b"1.2-g5"), None);
        let mut go = unveil(GO_MAGIC);
        go.extend(b"\x08\x02");
        go.resize(32, 0);
        go.extend(b"\x08go1.24.1");
        assert_eq!(go_version(&go).as_deref(), Some("1.24.1"));
        for cut in 0..go.len() {
            go_version(&go[..cut]);
        }
    }
}
