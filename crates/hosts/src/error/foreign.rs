//! The grafts that are possible for an archive in which another allocator is in libc's place.

/// The grafts of the archive that would succeed. Each was planned, and the plan discarded: a help line names no command
/// that its own plan would refuse.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignWays {
    /// The allocator by the archive's contents, with the evidence; `None` if the contents do not show it.
    pub contents: Option<String>,
    /// Whether the string functions can be exchanged by themselves.
    pub strings: bool,
    /// Whether a donor can take the allocator's place.
    pub replacement: Replacement,
    /// Functions that the archive has lost. Programs that need them do not link.
    pub lost: Vec<&'static str>,
    /// musl's release, which a stock archive to take functions from must have.
    pub musl: Option<String>,
}

/// Whether a donor can take another allocator's place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Replacement {
    /// It can: no member that stays needs the allocator.
    Possible,
    /// Only with stock archives: these symbols would be lost with the allocator.
    NeedsStock(Vec<String>),
    /// It cannot, for this reason.
    Impossible(String),
}

/// The end of a message: the evidence in the archive's contents.
pub(super) fn by_contents(ways: &ForeignWays) -> String {
    ways.contents.as_ref().map(|contents| format!("; by its contents it is {contents}")).unwrap_or_default()
}
