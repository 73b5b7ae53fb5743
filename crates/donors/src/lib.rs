//! What can be transplanted: allocators and string functions, what they are called, and the objects built from them.
//!
//! A donor is a folder of this crate with a recipe, its glue in C and nothing else to register it by: `build/` finds
//! the recipes, builds an object for each architecture, and writes the catalogue below.

use std::io::Read;

use format::options::{self, OPTIONS_SECTION};
use format::{Arch, DonorKind, DonorOption, OptionsError};
use relocatable::{Object, Section, Sections};

/// An allocator, or a set of string functions, in the form in which it is transplanted.
#[derive(Debug)]
pub struct Donor {
    /// What it replaces.
    pub kind: DonorKind,
    /// What users call it, as in `--donor NAME`.
    pub name: &'static str,
    /// Upstream's version; allograft's where the sources are ours.
    pub version: &'static str,
    /// SPDX expression of the donor's own licence.
    pub license: &'static str,
    /// One line on when to take it.
    pub character: &'static str,
    /// The relocatable object for each architecture.
    pub objects: &'static [(Arch, &'static [u8])],
    /// The same, linked for executables that are linked already, for each architecture where that can be done.
    pub blobs: &'static [(Arch, &'static [u8])],
    /// The same with the string functions, for each architecture where these can be put into executables.
    pub blobs_with_strings: &'static [(Arch, &'static [u8])],
    /// The shared object for each architecture, compressed (zlib, RFC 1950).
    libraries: &'static [(Arch, &'static [u8])],
    /// Sets of options beside the donor's own defaults, by name.
    pub profiles: &'static [Profile],
}

/// Options that serve one purpose together.
#[derive(Debug)]
pub struct Profile {
    /// As in `--profile NAME`.
    pub name: &'static str,
    /// What it is for, in one line.
    pub about: &'static str,
    /// Options and their values. None: the donor is built for this.
    pub options: &'static [(&'static str, i64)],
}

/// The profile that sets nothing, which every donor has.
pub const DEFAULT_PROFILE: &str = "default";

/// Every profile's name.
pub const PROFILES: [&str; 3] = [DEFAULT_PROFILE, "small", "secure"];

/// The donor taken when none is named.
pub const DEFAULT: &str = "mimalloc";

static DONORS: &[Donor] = include!(concat!(env!("OUT_DIR"), "/catalogue.rs"));
static STRINGS: &[Donor] = include!(concat!(env!("OUT_DIR"), "/strings.rs"));

/// Every allocator of this build, in order of their names.
pub fn all() -> &'static [Donor] {
    DONORS
}

/// The string functions.
pub fn strings() -> &'static Donor {
    const { assert!(STRINGS.len() == 1, "one folder of this crate holds string functions") }
    &STRINGS[0]
}

/// The allocator of that name.
pub fn find(name: &str) -> Option<&'static Donor> {
    DONORS.iter().find(|donor| donor.name == name)
}

impl Donor {
    /// The object for that architecture, if the donor supports it.
    pub fn object(&self, arch: Arch) -> Option<&'static [u8]> {
        self.objects.iter().find(|(of, _)| *of == arch).map(|(_, object)| *object)
    }

    /// What goes into a linked executable of that architecture, if the donor can be put into one.
    pub fn blob(&self, arch: Arch) -> Option<&'static [u8]> {
        self.blobs.iter().find(|(of, _)| *of == arch).map(|(_, blob)| *blob)
    }

    /// The same with the string functions.
    pub fn blob_with_strings(&self, arch: Arch) -> Option<&'static [u8]> {
        self.blobs_with_strings.iter().find(|(of, _)| *of == arch).map(|(_, blob)| *blob)
    }

    /// The architectures that this donor supports.
    pub fn arches(&self) -> impl Iterator<Item = Arch> {
        self.objects.iter().map(|(arch, _)| *arch)
    }

    /// The shared object for that architecture, if there is one: to be loaded before libc, in programs of musl, and of
    /// glibc where addresses have 64 bits.
    pub fn library(&self, arch: Arch) -> Option<Vec<u8>> {
        let (_, compressed) = self.libraries.iter().find(|(of, _)| *of == arch)?;
        let mut library = Vec::new();
        // What the build has packed: the tests of this crate unpack it.
        flate2::read::ZlibDecoder::new(*compressed).read_to_end(&mut library).ok()?;
        Some(library)
    }

    /// The options of a profile; none for [`DEFAULT_PROFILE`]. `None` if the donor has no profile of that name.
    pub fn profile(&self, name: &str) -> Option<&'static [(&'static str, i64)]> {
        if name == DEFAULT_PROFILE {
            return Some(&[]);
        }
        self.profiles.iter().find(|profile| profile.name == name).map(|profile| profile.options)
    }

    /// What `--set` takes for this donor, read from the object itself: the same for every architecture.
    ///
    /// # Errors
    /// An object without a sound block of options; the tests of this crate show that no embedded object is one.
    pub fn options(&self) -> Result<Vec<DonorOption>, OptionsError> {
        if !self.kind.has_options() {
            return Ok(Vec::new());
        }
        let object = self.objects.first().and_then(|(_, object)| Object::recognise(object));
        let sections = object.and_then(|object| object.sections().ok());
        let named = |section: &&Section<'_>| section.name == OPTIONS_SECTION.as_bytes();
        options::parse(sections.iter().flat_map(Sections::iter).find(named).map_or(&[], |section| section.data))
    }
}
