//! The targets of the fuzzers: each hands its input to public functions of one crate, and checks what has to be true
//! of every answer. A fuzzer that only waits for a panic would miss a graft that is wrong.
//!
//! | module | what lives there |
//! | --- | --- |
//! | [`bounds`] | memory and processor time, in proportion to the input |
//! | `donation` | the donors that the targets graft |
//! | `graft` | archives, executables, loaders and dynamic programs: an edit that succeeds passes the verifier |
//! | `objects` | relocatable objects, of ELF and COFF |
//! | `files` | what `inspect` reads, images and packages |
//! | `documents` | JSON documents of images, the origin of a graft, records |
//! | `formats` | notes, options, heap profiles |
//! | `seeds` | the inputs that a fuzzer starts with |

pub mod bounds;
mod documents;
mod donation;
mod files;
mod formats;
mod graft;
mod objects;
#[cfg(feature = "seeds")]
pub mod seeds;

use bounds::Bounds;
pub use graft::{GRAFTS, STRICT};

/// A target.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its name: that of its program in `fuzz/fuzz_targets`.
    pub name: &'static str,
    /// The input that it reads, and the property of each answer that it checks.
    pub about: &'static str,
    /// The largest input in bytes that a fuzzer makes.
    pub longest: usize,
    bounds: Bounds,
    run: fn(&[u8]),
}

const SMALL: Bounds = Bounds { memory: 16 << 20, times: 200 };
/// Grafts hold the donor, and a few copies of the file.
const GRAFT: Bounds = Bounds { memory: 128 << 20, times: 100 };
/// A stream of zstd may ask for a window of 100 MiB, and one of xz for 256 MiB.
const PACKED: Bounds = Bounds { memory: 320 << 20, times: 100 };

/// A small stream of gzip may hold 64 MiB, from which half a million of everything is read.
const PROFILE: Bounds = Bounds { memory: 384 << 20, times: 200 };

/// All targets.
pub const TARGETS: &[Target] = &[
    target("archive", "a static archive: no edit changes no byte, a graft is sound", 1 << 19, GRAFT, graft::archive),
    target("object", "an object: symbols made local, merged, tuned, read again", 1 << 17, GRAFT, objects::elf),
    target("executable", "a static program: a graft is sound", 1 << 18, GRAFT, graft::program),
    target("dynamic", "a dynamic program: a merge is sound, and so is a library", 1 << 17, GRAFT, graft::dynamic),
    target("loader", "musl's dynamic loader: a graft is sound", 1 << 20, GRAFT, graft::loader),
    target("inspector", "what `inspect` and `verify` read: one answer", 1 << 18, GRAFT, files::inspector),
    target("coff", "a COFF object: symbols made local, tuned, read again", 1 << 16, SMALL, objects::coff),
    target("pe", "a program for Windows: one answer", 1 << 18, GRAFT, files::inspector),
    target("tar", "a tar: what is copied is the same, an image's tree is sound", 1 << 18, PACKED, files::tar),
    target("zip", "a zip: an image's tree is sound", 1 << 17, PACKED, files::image),
    target("gzip", "a tar packed by gzip: an image's tree is sound", 1 << 17, PACKED, files::image),
    target("zstd", "a tar packed by zstd: an image's tree is sound", 1 << 17, PACKED, files::image),
    target("xz", "a tar packed by xz: an image's tree is sound", 1 << 17, PACKED, files::image),
    target("oci", "an OCI layout's documents, under their digests", 1 << 16, PACKED, documents::oci),
    target("docker", "a `docker save` archive's documents", 1 << 16, PACKED, documents::docker),
    target("note", "the notes of a graft: what is read is written the same", 1 << 12, SMALL, formats::notes),
    target("record", "a graft's record: what is read is written the same", 1 << 14, SMALL, documents::record),
    target("options", "a donor's options: what is read is written the same", 1 << 14, SMALL, formats::options),
    target("heap", "a heap profile: what is reported is what it holds", 1 << 16, PROFILE, formats::heap),
    target("origin", "`allograft.origin`: nothing but documents and blobs", 1 << 16, SMALL, documents::origin),
];

const fn target(name: &'static str, about: &'static str, longest: usize, bounds: Bounds, run: fn(&[u8])) -> Target {
    Target { name, about, longest, bounds, run }
}

impl Target {
    /// Returns the target of that name.
    pub fn find(name: &str) -> Option<&'static Target> {
        TARGETS.iter().find(|target| target.name == name)
    }

    /// Hands an input to the target.
    ///
    /// # Panics
    /// When an answer is wrong, or takes more memory or time than its input may.
    pub fn run(&self, input: &[u8]) {
        self.bounds.check(input.len(), || (self.run)(input));
    }
}

/// Hands an input to the target of that name, in a fuzzer's program.
///
/// # Panics
/// As [`Target::run`].
pub fn run(name: &str, input: &[u8]) {
    Target::find(name).expect("a target of that name").run(input);
}
