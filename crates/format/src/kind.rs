//! What a donor replaces, and how its object shows it (docs/note.md).

use std::fmt;

/// What a donor replaces.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DonorKind {
    /// The malloc family.
    #[default]
    Malloc,
    /// memcpy, strlen and their like.
    Strings,
}

impl DonorKind {
    /// Both.
    pub const ALL: [DonorKind; 2] = [DonorKind::Malloc, DonorKind::Strings];

    /// The section that holds the donor's note. A kind has a section of its own, so that linkers never put a note of
    /// one between those who look for the other.
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

    /// What the archive's member with the donor is called.
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
