//! The donors: allocators and string functions, their names, and the objects built from them.
//!
//! A donor is a folder of this crate with a recipe and its glue in C. A new donor needs no other registration: `build/`
//! finds the recipes, builds an object for each architecture, and writes the catalogue below.

mod meanings;

use format::options::{self, OPTIONS_SECTION};
use format::{Arch, Compressed, DonorKind, DonorOption, Linked, OptionsError};
use relocatable::{Object, Section, Sections};

/// An allocator, or a set of string functions, compiled for grafting.
#[derive(Debug)]
pub struct Donor {
    /// The functions that it replaces.
    pub kind: DonorKind,
    /// Its name for users, as in `--donor NAME`.
    pub name: &'static str,
    /// Upstream's version; allograft's if allograft has the sources.
    pub version: &'static str,
    /// SPDX expression of the donor's own licence.
    pub license: &'static str,
    /// The text of that licence.
    license_text: &'static Compressed,
    /// The page or the repository of the project. `None` if allograft has the sources.
    pub homepage: Option<&'static str>,
    /// One line on when to choose it.
    pub character: &'static str,
    /// The relocatable object for each architecture.
    objects: Files,
    /// The donor linked for linked executables, for each architecture where that is supported.
    blobs: Files,
    /// The donor and the string functions linked for linked executables, for each architecture where that is supported.
    blobs_with_strings: Files,
    /// The donor linked for musl's dynamic loader, for each architecture where that is supported.
    loaders: Files,
    /// Those loader blobs with the string functions.
    loaders_with_strings: Files,
    /// The options that differ there from the donor's own defaults.
    loader_options: &'static [(&'static str, i64)],
    /// The shared object for each architecture.
    libraries: Files,
    /// The object for Windows, if there is one.
    windows: Files,
    /// Sets of options beside the donor's own defaults, by name.
    pub profiles: &'static [Profile],
}

/// A file for each architecture that has one; `None` for architectures that this build leaves out.
type Files = &'static [(Arch, Option<&'static Compressed>)];

fn file(files: Files, arch: Arch) -> Option<&'static [u8]> {
    files.iter().find(|(of, _)| *of == arch).and_then(|(_, file)| *file).map(Compressed::bytes)
}

fn has(files: Files, arch: Arch) -> bool {
    files.iter().any(|(of, _)| *of == arch)
}

/// A set of options with one purpose.
#[derive(Debug)]
pub struct Profile {
    /// Its name, as in `--profile NAME`.
    pub name: &'static str,
    /// Its purpose, in one line.
    pub about: &'static str,
    /// Options and their values. Empty if the donor is built for this purpose.
    pub options: &'static [(&'static str, i64)],
}

/// The name of the profile that sets nothing, which every donor has.
pub const DEFAULT_PROFILE: &str = "default";

/// The names of all profiles.
pub const PROFILES: [&str; 4] = [DEFAULT_PROFILE, "small", "fast", "secure"];

pub use format::DEFAULT_DONORS as DEFAULTS;
pub use meanings::{About, Unit, about_option};

static DONORS: &[Donor] = include!(concat!(env!("OUT_DIR"), "/embedded/catalogue.rs"));
static STRINGS: &[Donor] = include!(concat!(env!("OUT_DIR"), "/embedded/strings.rs"));

static LOADER_TESTS: &[LoaderTest] = include!(concat!(env!("OUT_DIR"), "/embedded/loader_tests.rs"));

/// A dynamic program that tests the loader it is started by, and the library that it loads meanwhile.
#[derive(Debug)]
pub struct LoaderTest {
    arch: Arch,
    program: &'static Compressed,
    library: &'static Compressed,
}

impl LoaderTest {
    /// Returns the test for that architecture. `None` if loaders for it are not grafted.
    pub fn for_arch(arch: Arch) -> Option<&'static LoaderTest> {
        LOADER_TESTS.iter().find(|test| test.arch == arch)
    }

    /// Returns the program's file. Its one argument is the library's path.
    pub fn program(&self) -> &'static [u8] {
        self.program.bytes()
    }

    /// Returns the library's file.
    pub fn library(&self) -> &'static [u8] {
        self.library.bytes()
    }
}

static MERGED_TESTS: Files = include!(concat!(env!("OUT_DIR"), "/embedded/merged_tests.rs"));

/// Returns the library that tests a dynamic program of that architecture which a donor was merged into: it is preloaded
/// into the program, and replaces its main. `None` if no donor is merged into programs for it.
pub fn merged_test(arch: Arch) -> Option<&'static [u8]> {
    file(MERGED_TESTS, arch)
}

/// Returns every allocator of this build, ordered by name.
pub fn all() -> &'static [Donor] {
    DONORS
}

/// Returns the donors that are used when none is named, the first choice first.
pub fn defaults() -> impl Iterator<Item = &'static Donor> {
    DEFAULTS.into_iter().filter_map(find)
}

/// Returns the donor that is used for that architecture when none is named.
///
/// # Panics
/// When this build has none for it.
pub fn default_for(arch: Arch) -> &'static Donor {
    defaults().find(|donor| donor.supports(arch)).expect("a default donor for every architecture")
}

/// Returns the string functions.
pub fn strings() -> &'static Donor {
    const { assert!(STRINGS.len() == 1, "one folder of this crate holds string functions") }
    &STRINGS[0]
}

/// Returns the allocator of that name.
pub fn find(name: &str) -> Option<&'static Donor> {
    DONORS.iter().find(|donor| donor.name == name)
}

impl Donor {
    /// Returns the architectures for which it is used when no donor is named.
    pub fn default_for(&self) -> impl Iterator<Item = Arch> {
        self.arches()
            .filter(|arch| defaults().find(|donor| donor.supports(*arch)).is_some_and(|it| it.name == self.name))
    }

    /// Returns the text of the donor's licence, as upstream ships it.
    pub fn license_text(&self) -> &'static str {
        str::from_utf8(self.license_text.bytes()).unwrap_or_default()
    }

    /// Whether this build has the donor for an architecture that the donor supports. A build of all architectures, as
    /// in a release, has all donors; `zigcc::arches` describes other builds.
    pub fn is_built_for(&self, arch: Arch) -> bool {
        self.objects.iter().any(|(of, file)| *of == arch && file.is_some())
    }

    /// Returns the object for that architecture. `None` if the donor does not support it, or is not
    /// [built](Donor::is_built_for) for it.
    pub fn object(&self, arch: Arch) -> Option<&'static [u8]> {
        file(self.objects, arch)
    }

    /// Returns the blob for a linked executable of that architecture. `None` if the donor does not support that.
    pub fn blob(&self, arch: Arch) -> Option<&'static [u8]> {
        file(self.blobs, arch)
    }

    /// Returns the blob with the string functions. `None` as for [`Donor::blob`].
    pub fn blob_with_strings(&self, arch: Arch) -> Option<&'static [u8]> {
        file(self.blobs_with_strings, arch)
    }

    /// Returns the blob for the dynamic loader of that architecture. `None` if the donor does not support that.
    pub fn loader(&self, arch: Arch) -> Option<&'static [u8]> {
        file(self.loaders, arch)
    }

    /// Returns the blob for the dynamic loader, with the string functions.
    pub fn loader_with_strings(&self, arch: Arch) -> Option<&'static [u8]> {
        file(self.loaders_with_strings, arch)
    }

    /// Whether it goes into the dynamic loader of that architecture.
    pub fn has_loader(&self, arch: Arch) -> bool {
        has(self.loaders, arch)
    }

    /// Returns the options that differ from the donor's defaults in a loader, and their values.
    pub fn loader_options(&self) -> &'static [(&'static str, i64)] {
        self.loader_options
    }

    /// Returns the architectures that this donor supports.
    pub fn arches(&self) -> impl Iterator<Item = Arch> {
        self.objects.iter().map(|(arch, _)| *arch)
    }

    /// Whether the donor is for that architecture.
    pub fn supports(&self, arch: Arch) -> bool {
        has(self.objects, arch)
    }

    /// Whether it goes into linked executables of that architecture.
    pub fn has_blob(&self, arch: Arch) -> bool {
        has(self.blobs, arch)
    }

    /// Whether it goes into linked executables of any architecture.
    pub fn has_blobs(&self) -> bool {
        !self.blobs.is_empty()
    }

    /// Whether it has a shared object for that architecture.
    pub fn has_library(&self, arch: Arch) -> bool {
        has(self.libraries, arch)
    }

    /// Returns the shared object for that architecture, if it has one. It can be loaded before libc in programs of
    /// musl, and of glibc where addresses have 64 bits.
    pub fn library(&self, arch: Arch) -> Option<&'static [u8]> {
        file(self.libraries, arch)
    }

    /// Whether it goes into linked files of that kind, of that architecture.
    pub fn goes_into(&self, kind: Linked, arch: Arch) -> bool {
        match kind {
            Linked::Program => self.has_blob(arch),
            Linked::Loader => self.has_loader(arch),
            Linked::Dynamic => self.has_library(arch),
            Linked::Library => false,
        }
    }

    /// Whether it goes into linked files of that kind, of any architecture.
    pub fn goes_into_some(&self, kind: Linked) -> bool {
        self.arches().any(|arch| self.goes_into(kind, arch))
    }

    /// Whether it has an object for Windows on that architecture.
    pub fn has_windows(&self, arch: Arch) -> bool {
        has(self.windows, arch)
    }

    /// Returns the object for Windows, in COFF, if it has one.
    pub fn windows(&self, arch: Arch) -> Option<&'static [u8]> {
        file(self.windows, arch)
    }

    /// Returns the options of a profile; none for [`DEFAULT_PROFILE`]. `None` if the donor has no profile of that name.
    pub fn profile(&self, name: &str) -> Option<&'static [(&'static str, i64)]> {
        if name == DEFAULT_PROFILE {
            return Some(&[]);
        }
        self.profiles.iter().find(|profile| profile.name == name).map(|profile| profile.options)
    }

    /// Returns the options that `--set` accepts for this donor, read from the object itself. They are the same for
    /// every architecture.
    ///
    /// # Errors
    /// The object has no valid options block. The tests of this crate show that every embedded object has one.
    pub fn options(&self) -> Result<Vec<DonorOption>, OptionsError> {
        if !self.kind.has_options() {
            return Ok(Vec::new());
        }
        let object = self.objects.iter().find_map(|(_, object)| *object);
        let object = object.and_then(|object| Object::recognise(object.bytes()));
        let sections = object.and_then(|object| object.sections().ok());
        let named = |section: &&Section<'_>| section.name == OPTIONS_SECTION.as_bytes();
        options::parse(sections.iter().flat_map(Sections::iter).find(named).map_or(&[], |section| section.data))
    }
}
