//! An executable that was read once: its kind, the traces of a graft in it, and the ways to graft it. Every stage asks
//! this one value, so that no two stages can take a file for different kinds.

use format::needed::Needed;
use format::{Arch, LOADER, Linked, Marks};

use crate::appended::PlanError;
use crate::blob::{Blob, BlobError};
use crate::image::{Image, PT_DYNAMIC, PT_INTERP, SHT_DYNSYM, u64_at};
use crate::merge::needed::{self, Need, NeedPlan};
use crate::merge::{self, Merge, MergePlan};
use crate::plan::{self, Graft, Plan};
use crate::refusal::Refusal;
use crate::{kind, self_test};

/// A linked executable, a dynamic loader or a library, read once.
#[derive(Debug)]
pub struct Executable<'a> {
    pub(crate) image: Image<'a>,
    kind: Linked,
}

/// A donor in the form that goes into an executable, options and notes filled in.
#[derive(Debug, Clone)]
pub enum Donation {
    /// Into a program or a loader: code that functions of libc are redirected to.
    Redirect(Box<Blob>),
    /// Into a dynamic program: the shared object that becomes a part of it.
    Merge(Vec<u8>),
    /// To a dynamic program: a shared object that it loads.
    Need {
        /// Its content.
        library: Vec<u8>,
        /// Its name or path in the program, as in DT_NEEDED.
        name: Vec<u8>,
        /// The note that says which file it is.
        note: Box<Needed>,
    },
}

/// The changes that a graft makes to an executable, with the facts that it relies on.
#[derive(Debug, Clone)]
pub enum Edits {
    /// Functions of the program's own libc are redirected.
    Redirect(Plan),
    /// The donor becomes a part of a dynamic program.
    Merge(MergePlan),
    /// A dynamic program loads the donor.
    Need(NeedPlan),
}

impl Edits {
    /// The executable's architecture.
    pub fn arch(&self) -> Arch {
        match self {
            Edits::Redirect(plan) => plan.arch,
            Edits::Merge(plan) => plan.arch,
            Edits::Need(plan) => plan.arch,
        }
    }

    /// The redirected functions; `None` for a dynamic program, where no function is redirected.
    pub fn redirect(&self) -> Option<&Plan> {
        match self {
            Edits::Redirect(plan) => Some(plan),
            Edits::Merge(_) | Edits::Need(_) => None,
        }
    }
}

impl<'a> Executable<'a> {
    /// Reads an executable's headers and tables, and tells its kind by them.
    ///
    /// # Errors
    /// It is damaged, or for an architecture without donors for executables.
    pub fn read(bytes: &'a [u8]) -> Result<Executable<'a>, Refusal> {
        let image = Image::parse(bytes)?;
        let kind = Linked::from_marks(marks(&image));
        Ok(Executable { image, kind })
    }

    /// Its kind.
    pub fn kind(&self) -> Linked {
        self.kind
    }

    /// Its architecture.
    pub fn arch(&self) -> Arch {
        self.image.arch
    }

    /// All its bytes.
    pub fn bytes(&self) -> &'a [u8] {
        self.image.bytes
    }

    /// The path of its dynamic loader (PT_INTERP); `None` if it names none.
    pub fn interpreter(&self) -> Option<&'a [u8]> {
        let segment = self.image.segment(PT_INTERP)?;
        let text = self.bytes().get(usize::try_from(segment.offset).ok()?..)?;
        let text = text.get(..usize::try_from(segment.file_size).ok()?)?;
        Some(text.strip_suffix(b"\0").unwrap_or(text))
    }

    /// Whether it may look for libraries by its own place (DT_RPATH, DT_RUNPATH with `$ORIGIN`).
    pub fn may_search_beside_itself(&self) -> bool {
        [&b"$ORIGIN"[..], b"${ORIGIN}"].into_iter().any(|text| memchr::memmem::find(self.bytes(), text).is_some())
    }

    /// Whether a donor was merged into it.
    pub fn is_merged(&self) -> bool {
        self.kind == Linked::Dynamic && merge::note(self.bytes()).is_some()
    }

    /// The name of the shared object that a grafted program loads, as its loader gets it; `None` if it loads none.
    pub fn loads(&self) -> Option<Vec<u8>> {
        needed::library(&self.image)
    }

    /// Returns a copy that loads its donor from `library`. `None` if it loads no donor, or the path is too long.
    pub fn loading(&self, library: &[u8]) -> Option<Vec<u8>> {
        needed::with_library(&self.image, library)
    }

    /// Returns a copy of a graft that runs its self-test in place of the program; `None` unless the file carries
    /// exactly one graft in this version's format.
    pub fn with_self_test(&self) -> Option<Vec<u8>> {
        self_test::copy(self)
    }

    /// Returns that copy of an executable or a loader in three consecutive parts: large files need not be in
    /// memory twice.
    pub fn self_test_parts(&self) -> Option<[&[u8]; 3]> {
        let at = self_test::switch(self)?;
        Some([&self.bytes()[..at], &[self_test::SWITCHED_ON], &self.bytes()[at + 1..]])
    }

    /// Checks what is known before any donor is: that it is not a library, carries no graft, and uses libc's malloc.
    ///
    /// # Errors
    /// Why it is left alone.
    pub fn check(&self) -> Result<(), Refusal> {
        match self.kind {
            // Whether the pages of its code are guarded counts only where code goes in.
            Linked::Dynamic => kind::check_unguarded(&self.image),
            Linked::Program | Linked::Loader => kind::check(&self.image),
            Linked::Library => kind::check(&self.image).and(Err(Refusal::Library)),
        }
    }

    /// Grafts a copy of it with a donor that is for its kind.
    ///
    /// # Errors
    /// The donor cannot be used: a bug in allograft. A refusal is the inner error.
    pub fn graft(&self, donor: &Donation) -> Result<Result<(Edits, Vec<u8>), Refusal>, BlobError> {
        Ok(match donor {
            Donation::Redirect(blob) => {
                self.redirect(blob, false)?.map(|graft| (Edits::Redirect(graft.plan), graft.bytes))
            }
            Donation::Merge(library) => self.merge(library)?.map(|merge| (Edits::Merge(merge.plan), merge.bytes)),
            Donation::Need { name, note, .. } => self.need(name, note).map(|need| (Edits::Need(need.plan), need.bytes)),
        })
    }

    /// Finds everything in a program or a loader that its graft needs, and makes the graft; or refuses.
    ///
    /// `as_if_stripped` ignores a program's symbols, for tests.
    ///
    /// # Errors
    /// As [`Executable::graft`].
    pub fn redirect(&self, blob: &Blob, as_if_stripped: bool) -> Result<Result<Graft, Refusal>, BlobError> {
        separate_refusal(plan::graft(self, blob, as_if_stripped))
    }

    /// Merges the shared object `donor`, whose note and options are filled in, into a dynamic program; or refuses.
    ///
    /// # Errors
    /// As [`Executable::graft`].
    pub fn merge(&self, donor: &[u8]) -> Result<Result<Merge, Refusal>, BlobError> {
        separate_refusal(merge::merge(self, donor))
    }

    /// Makes a dynamic program load the shared object `library` first, which is a name or a path as in DT_NEEDED.
    /// `note` says which file that is.
    ///
    /// # Errors
    /// Why that would not be safe.
    pub fn need(&self, library: &[u8], note: &Needed) -> Result<Need, Refusal> {
        needed::need(self, library, note)
    }
}

/// Separates a fault of the donor from the plan or refusal.
fn separate_refusal<T>(planned: Result<T, PlanError>) -> Result<Result<T, Refusal>, BlobError> {
    match planned {
        Ok(planned) => Ok(Ok(planned)),
        Err(PlanError::Refusal(refusal)) => Ok(Err(refusal)),
        Err(PlanError::Blob(error)) => Err(error),
    }
}

/// The marks in the headers by which [`Linked`] tells the kinds apart.
fn marks(image: &Image<'_>) -> Marks {
    const DT_NEEDED: u64 = 1;
    const DT_SONAME: u64 = 14;
    const DT_FLAGS_1: u64 = 0x6fff_fffb;
    const DF_1_PIE: u64 = 0x0800_0000;
    let dynamic = image.segment(PT_DYNAMIC);
    let table = dynamic.and_then(|it| image.read(it.address, usize::try_from(it.file_size).ok()?));
    let entry = |entry: &[u8]| Some((u64_at(entry, 0)?, u64_at(entry, 8)?));
    let entries: Vec<(u64, u64)> =
        table.unwrap_or_default().chunks_exact(16).filter_map(entry).take_while(|(tag, _)| *tag != 0).collect();
    let has = |wanted: u64| entries.iter().any(|(tag, _)| *tag == wanted);
    let interpreter = image.segment(PT_INTERP).is_some();
    let exports_loader = || {
        let symbols = image.symbols_of(SHT_DYNSYM);
        LOADER.into_iter().all(|name| symbols.iter().any(|symbol| symbol.section != 0 && symbol.name == name))
    };
    Marks {
        position_independent: image.position_independent,
        interpreter,
        program: entries.iter().any(|(tag, value)| *tag == DT_FLAGS_1 && value & DF_1_PIE != 0),
        soname: has(DT_SONAME),
        needs: has(DT_NEEDED),
        // Evaluated only here, since a large program has many symbols.
        loader: image.position_independent && !interpreter && exports_loader(),
    }
}
