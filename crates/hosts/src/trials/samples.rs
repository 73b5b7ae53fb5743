//! Tests: small archives cut out of musl's real `libc.a`, so that a test can graft many of them in a short time.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use surgery::archive::Archive;

/// The symbols whose members are kept: a libc.a of a few dozen members that can be grafted.
const KEPT: [&[u8]; 30] = [
    b"__init_libc",
    b"__init_tp",
    b"__copy_tls",
    b"__libc",
    b"__syscall_ret",
    b"__ofl_lock",
    b"__unmapself",
    b"__pthread_tsd_run_dtors",
    b"malloc",
    b"free",
    b"realloc",
    b"calloc",
    b"__libc_malloc_impl",
    b"__libc_free",
    b"__libc_realloc",
    b"__libc_calloc",
    b"aligned_alloc",
    b"memalign",
    b"posix_memalign",
    b"valloc",
    b"malloc_usable_size",
    b"reallocarray",
    b"__malloc_donate",
    b"__malloc_replaced",
    b"fork",
    b"strdup",
    b"wcsdup",
    b"memcpy",
    b"pthread_create",
    b"abort",
];

fn cut(and: &[u8]) -> Vec<u8> {
    let whole = std::fs::read(fixtures::debian_musl(fixtures::Arch::X86_64).libc).unwrap();
    let archive = Archive::parse(&whole).unwrap();
    // The donors' own references to libc have to be kept, too.
    let needed: BTreeSet<Vec<u8>> = donors::all()
        .iter()
        .chain([donors::strings()])
        .flat_map(|donor| relocatable::symbols(donor.object(format::Arch::X86_64).unwrap()).unwrap())
        .filter(|symbol| !symbol.defined)
        .map(|symbol| symbol.name.to_vec())
        .collect();
    let kept: BTreeSet<usize> = archive
        .indexed()
        .filter(|(_, symbol)| KEPT.contains(symbol) || needed.contains(*symbol) || *symbol == and)
        .map(|(ordinal, _)| ordinal)
        .collect();
    let all: BTreeSet<usize> = archive.members().iter().map(|member| member.ordinal).collect();
    archive.edit(&all.difference(&kept).copied().collect(), None)
}

/// A stock libc.a.
pub(crate) fn libc() -> Vec<u8> {
    static LIBC: OnceLock<Vec<u8>> = OnceLock::new();
    LIBC.get_or_init(|| cut(b"qsort")).clone()
}

/// A stock libc.a of a different release.
pub(crate) fn libc_of_another_release() -> Vec<u8> {
    static LIBC: OnceLock<Vec<u8>> = OnceLock::new();
    LIBC.get_or_init(|| cut(b"bsearch")).clone()
}

/// A packed Swift SDK bundle with a `libc.a`.
pub(crate) fn bundle() -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    let mut add = |name: &str, bytes: &[u8]| {
        let mut header = tar::Header::new_ustar();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, name, bytes).unwrap();
    };
    add("sdk.artifactbundle/info.json", br#"{"artifacts": {"sdk": {"type": "swiftSDK"}}}"#);
    add("sdk.artifactbundle/sdk/x86_64/usr/lib/libc.a", &libc());
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut gzip, &tar.into_inner().unwrap()).unwrap();
    gzip.finish().unwrap()
}
