//! What can be done about an archive in which another allocator is in libc's place.

/// Which grafts of the archive would succeed. Each was planned, and the plan was thrown away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignWays {
    /// The allocator by the archive's contents, with the evidence; `None` if the contents do not show it.
    pub contents: Option<String>,
    /// Whether the string functions can be exchanged by themselves.
    pub strings: bool,
    /// Whether a donor can take the allocator's place.
    pub replacement: Replacement,
    /// Functions that are not in the archive any more. Programs that need them do not link.
    pub lost: Vec<&'static str>,
    /// musl's release, which a stock archive to take functions from must have.
    pub musl: Option<String>,
}

/// Whether a donor can take another allocator's place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Replacement {
    /// It can, and nothing that stays needs the allocator.
    Possible,
    /// Only with stock archives: these symbols would be gone with the allocator.
    NeedsStock(Vec<String>),
    /// Not at all, for this reason.
    Impossible(String),
}

/// The contents' own evidence, as the end of a message.
pub(super) fn by_contents(ways: &ForeignWays) -> String {
    ways.contents.as_ref().map(|contents| format!("; by its contents it is {contents}")).unwrap_or_default()
}
