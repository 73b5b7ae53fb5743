//! The kinds of donors: the functions that a donor replaces, and the marks in its object (docs/note.md).

use std::fmt;

/// The functions that a donor replaces.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DonorKind {
    /// The malloc family.
    #[default]
    Malloc,
    /// memcpy, strlen and similar.
    Strings,
}

impl DonorKind {
    /// Both kinds.
    pub const ALL: [DonorKind; 2] = [DonorKind::Malloc, DonorKind::Strings];

    /// The section that holds the donor's note. Each kind has its own section, so that linkers never put a note of one
    /// kind among those of the other.
    pub fn note_section(self) -> &'static str {
        match self {
            DonorKind::Malloc => ".note.allograft",
            DonorKind::Strings => ".note.allograft.strings",
        }
    }

    /// The type of the donor's note.
    pub fn note_type(self) -> u32 {
        match self {
            DonorKind::Malloc => 1,
            DonorKind::Strings => 2,
        }
    }

    /// Whether its objects have a section of options.
    pub fn has_options(self) -> bool {
        self == DonorKind::Malloc
    }

    /// The name of the archive's member with the donor.
    pub fn member_name(self) -> &'static str {
        match self {
            DonorKind::Malloc => "allograft.o",
            DonorKind::Strings => "allograft_str.o",
        }
    }
}

impl fmt::Display for DonorKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            DonorKind::Malloc => "the allocator",
            DonorKind::Strings => "the string functions",
        })
    }
}

/// The default donors: the first one that exists for the architecture is used.
pub const DEFAULT_DONORS: [&str; 2] = ["snmalloc", "mimalloc"];
