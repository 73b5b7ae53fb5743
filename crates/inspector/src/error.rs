//! The errors of the reader.

/// An error: the file is not of a kind that carries an allocator, or it is damaged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InspectError {
    /// Neither ELF nor an archive.
    #[error("this is neither an ELF file nor an `ar` archive: it starts with {0}")]
    NotRecognised(String),
    /// An archive that keeps its members in other files.
    #[error("this is a thin archive: its members are in other files, so there is nothing to read in it")]
    ThinArchive,
    /// An archive whose structure is broken.
    #[error("the archive is malformed at byte {offset}: {problem}")]
    Archive {
        /// The offset in the file.
        offset: usize,
        /// The fault: what was found, and what was expected.
        problem: String,
    },
    /// An ELF file whose structure is broken.
    #[error("the ELF file is malformed: {0}")]
    Elf(String),
    /// A file of Windows whose structure is broken.
    #[error("the file of Windows is malformed: {0}")]
    Pe(String),
    /// A member of an archive whose structure is broken.
    #[error("member {ordinal} (`{name}`) of the archive is malformed: {problem}")]
    Member {
        /// 1 for the first member after the index and the name table.
        ordinal: usize,
        /// The member's name.
        name: String,
        /// The fault: what was found, and what was expected.
        problem: String,
    },
    /// A file of a kind that carries no allocator of its own.
    #[error("this ELF file is {0}, not an executable, a shared object or a relocatable object")]
    Kind(String),
}

impl InspectError {
    /// Returns a remedy for the user.
    pub fn help(&self) -> &'static str {
        match self {
            InspectError::NotRecognised { .. } | InspectError::Kind { .. } => {
                "give an executable, a shared object, a relocatable object or a static archive"
            }
            InspectError::ThinArchive => "inspect the members themselves, or make an archive without `--thin`",
            InspectError::Archive { .. }
            | InspectError::Elf { .. }
            | InspectError::Pe { .. }
            | InspectError::Member { .. } => "the file is damaged or cut short: get it again from where it came from",
        }
    }
}
