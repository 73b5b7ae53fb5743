//! A program, and the answers that are right.

/// How a program is linked, and with which libc.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Libc {
    MuslStatic,
    MuslStaticPie,
    /// musl's loader starts it.
    Musl,
    GlibcStatic,
    Glibc,
}

impl Libc {
    pub(crate) const ALL: [Libc; 5] =
        [Libc::MuslStatic, Libc::MuslStaticPie, Libc::Musl, Libc::GlibcStatic, Libc::Glibc];

    pub(crate) fn is_musl(self) -> bool {
        matches!(self, Libc::MuslStatic | Libc::MuslStaticPie | Libc::Musl)
    }

    pub(crate) fn is_static(self) -> bool {
        !matches!(self, Libc::Musl | Libc::Glibc)
    }

    /// The name of its allocator.
    pub(crate) fn allocator(self) -> &'static str {
        if self.is_musl() { "mallocng" } else { "glibc" }
    }
}

/// The provider of `malloc`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Provider {
    /// libc.
    Libc,
    /// libc, of which the program never frees a block: musl then links an allocator without a name.
    NeverFrees,
    /// Nothing: the program asks for no block.
    Nothing,
    /// The program, strong.
    Own,
    /// The program, weak.
    OwnWeak,
    /// The program, in the file that has `main`.
    Inline,
    /// The program: its malloc calls a function that is named like mimalloc's.
    CallsNamesake,
    /// libc; the program has mimalloc, too, and calls it by its own name.
    BesideMimalloc,
    /// The program's, which calls mimalloc.
    AroundMimalloc,
    /// mimalloc, as its authors build it.
    Mimalloc,
    /// rpmalloc, as its authors build it.
    Rpmalloc,
    /// A donor in libc.a.
    Archive(&'static str),
    /// The program, with a donor in libc.a.
    OwnBesideArchive(&'static str),
    /// A donor's object on the link line.
    Object(&'static str),
    /// A donor that was put into the program when it was linked.
    Program(&'static str),
    /// A library with a malloc of its own under this name.
    Library(&'static str),
    /// A library of this name without one; libc serves.
    Namesake(&'static str),
    /// A donor's library.
    DonorsLibrary(&'static str),
}

/// Something that makes a program look as if another allocator served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Fake {
    /// The texts that mark an allocator.
    Texts(&'static str),
    /// The tables that mark an allocator.
    Tables(&'static str),
    /// Functions with its names.
    Names(&'static str),
    /// The program's own malloc has its name, too.
    Alias(&'static str),
    /// Sections with its name.
    Sections(&'static str),
    /// Names of libc's own insides.
    Insides(&'static str),
    /// The notes of a graft.
    Notes,
}

/// The symbols that are left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Strip {
    Nothing,
    /// `ld -x`: local symbols are gone.
    Locals,
    Symbols,
    /// No section headers either.
    Sections,
}

/// The state of the libraries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Files {
    Whole,
    Missing,
    Unreadable,
    /// The loader itself is missing.
    NoLoader,
}

/// A program.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Case {
    pub(crate) libc: Libc,
    pub(crate) provider: Provider,
    pub(crate) fakes: Vec<Fake>,
    pub(crate) strip: Strip,
    /// Whether the provider comes before the program and the libc on the link line, or behind.
    pub(crate) first: bool,
    pub(crate) files: Files,
}

impl Case {
    /// The allocator that serves `malloc`; `unknown` if none with a name does.
    pub(crate) fn malloc(&self) -> &'static str {
        let libcs = self.libc.allocator();
        match self.provider {
            Provider::Libc | Provider::BesideMimalloc => libcs,
            Provider::NeverFrees if self.libc == Libc::MuslStatic || self.libc == Libc::MuslStaticPie => "unknown",
            Provider::NeverFrees => libcs,
            // musl then has none. glibc's start allocates; a dynamic program has the one of its libc.
            Provider::Nothing if self.libc.is_musl() && self.libc.is_static() => "none",
            Provider::Nothing => libcs,
            Provider::Own | Provider::OwnWeak | Provider::Inline | Provider::CallsNamesake => "unknown",
            Provider::AroundMimalloc | Provider::Mimalloc => "mimalloc",
            Provider::Rpmalloc => "rpmalloc",
            Provider::Archive(donor) | Provider::Object(donor) | Provider::Program(donor) => donor,
            Provider::OwnBesideArchive(_) => "unknown",
            // The loader takes the system's own.
            Provider::Library("libz.so.1") if self.files == Files::Missing && !self.libc.is_musl() => libcs,
            // The loader would not start it.
            Provider::Library(_) | Provider::DonorsLibrary(_) if self.files == Files::Missing => "unknown",
            Provider::Library(_) if self.first => "unknown",
            Provider::DonorsLibrary(donor) if self.first => donor,
            Provider::Library(_) | Provider::DonorsLibrary(_) | Provider::Namesake(_) => libcs,
        }
    }

    /// The allocator of libc's own blocks, if not `malloc`'s.
    pub(crate) fn libcs(&self) -> &'static str {
        match self.provider {
            Provider::OwnBesideArchive(donor) | Provider::Archive(donor) => donor,
            _ => self.libc.allocator(),
        }
    }

    /// Whether all files that its loader needs are there.
    pub(crate) fn is_plain(&self) -> bool {
        self.files == Files::Whole
    }

    /// Whether there is such a program.
    fn is_possible(&self) -> bool {
        let is_static_musl = self.libc.is_musl() && self.libc.is_static();
        let has_library =
            matches!(self.provider, Provider::Library(_) | Provider::Namesake(_) | Provider::DonorsLibrary(_));
        let own = matches!(self.provider, Provider::Own | Provider::OwnWeak);
        // A function of mimalloc's name and mimalloc's marks, both: the limit that docs/reliability.md states.
        let imitates_twice = self.provider == Provider::CallsNamesake
            && self.fakes.iter().any(|fake| matches!(fake, Fake::Texts("mimalloc") | Fake::Tables("mimalloc")));
        let fits = match self.provider {
            Provider::Archive(_) | Provider::OwnBesideArchive(_) | Provider::Object(_) => is_static_musl,
            Provider::Program(_) => self.libc != Libc::GlibcStatic && self.strip != Strip::Sections,
            Provider::Library(_) | Provider::Namesake(_) => !self.libc.is_static(),
            Provider::DonorsLibrary(_) => self.libc == Libc::Musl,
            // glibc's own malloc.o is linked for other functions in it, and defines it a second time.
            Provider::OwnWeak => self.libc != Libc::GlibcStatic,
            _ => true,
        };
        let has_order = matches!(
            self.provider,
            Provider::Own | Provider::Library(_) | Provider::Namesake(_) | Provider::DonorsLibrary(_)
        );
        fits && !imitates_twice && (self.first || has_order)
            && (self.files == Files::Whole || has_library)
            && self.fakes.iter().all(|fake| own || !matches!(fake, Fake::Alias(_)))
            // Sections can only be cut off where nothing needs them any more.
            && (self.strip != Strip::Sections || self.libc != Libc::GlibcStatic || self.fakes.is_empty())
    }
}

/// Allocators that are imitated.
const IMITATED: [&str; 8] = ["mimalloc", "jemalloc", "snmalloc", "rpmalloc", "scudo", "tcmalloc", "hardened", "glibc"];

/// Returns the fakes that a program may have, alone and in pairs.
fn fakes() -> Vec<Vec<Fake>> {
    let of = |make: fn(&'static str) -> Fake| IMITATED.into_iter().map(move |name| vec![make(name)]);
    let mut fakes = vec![Vec::new()];
    fakes.extend(of(Fake::Texts).chain(of(Fake::Tables)).chain(of(Fake::Names)).chain(of(Fake::Alias)));
    fakes.extend(of(Fake::Sections));
    fakes.extend(["glibc", "mallocng", "oldmalloc", "zig", "go"].map(|name| vec![Fake::Insides(name)]));
    fakes.push(vec![Fake::Notes]);
    fakes.push(vec![Fake::Notes, Fake::Names("mimalloc")]);
    fakes.push(vec![Fake::Texts("mimalloc"), Fake::Names("jemalloc")]);
    fakes.push(vec![Fake::Texts("glibc"), Fake::Insides("glibc")]);
    fakes.push(vec![Fake::Texts("go"), Fake::Insides("go")]);
    fakes.extend(IMITATED.map(|name| vec![Fake::Texts(name), Fake::Sections(name)]));
    fakes
}

/// Names of libraries that people know.
const LIBRARIES: [&str; 6] =
    ["libown.so", "libjemalloc.so.2", "libmimalloc.so.2", "libtcmalloc.so.4", "libsnmallocshim.so", "libz.so.1"];

/// Returns the programs. `also_large`: those that take an allocator as its authors build it, which takes seconds.
pub(crate) fn all(also_large: bool) -> Vec<Case> {
    let donors: Vec<&'static str> = donors::all().iter().map(|donor| donor.name).collect();
    let donors = if also_large { donors } else { vec!["snmalloc"] };
    let of = |make: fn(&'static str) -> Provider| donors.iter().map(move |name| make(name));
    let mut providers = vec![
        Provider::Libc,
        Provider::NeverFrees,
        Provider::Nothing,
        Provider::Own,
        Provider::OwnWeak,
        Provider::Inline,
        Provider::CallsNamesake,
    ];
    if also_large {
        providers.extend([Provider::BesideMimalloc, Provider::AroundMimalloc, Provider::Mimalloc, Provider::Rpmalloc]);
    }
    let simple = providers.len();
    providers.extend(of(Provider::Archive).chain(of(Provider::OwnBesideArchive)).chain(of(Provider::Object)));
    providers.extend(of(Provider::Program).chain(of(Provider::DonorsLibrary)));
    providers.extend(LIBRARIES.map(Provider::Library).into_iter().chain(LIBRARIES.map(Provider::Namesake)));
    let mut cases = Vec::new();
    for (number, provider) in providers.into_iter().enumerate() {
        for fakes in fakes() {
            // Donors and libraries with a few of the fakes only: they are many.
            let few = fakes.is_empty() || matches!(fakes[..], [Fake::Notes | Fake::Texts("mimalloc" | "jemalloc")]);
            if number >= simple && !few {
                continue;
            }
            for libc in Libc::ALL {
                for strip in [Strip::Nothing, Strip::Locals, Strip::Symbols, Strip::Sections] {
                    for first in [true, false] {
                        for files in [Files::Whole, Files::Missing, Files::Unreadable, Files::NoLoader] {
                            let fakes = fakes.clone();
                            cases.push(Case { libc, provider, fakes, strip, first, files });
                        }
                    }
                }
            }
        }
    }
    cases.retain(Case::is_possible);
    cases
}
