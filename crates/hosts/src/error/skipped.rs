//! A file that is left alone.

use std::path::PathBuf;

/// A file that looked like a host, and is left alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// The file.
    pub path: PathBuf,
    /// The reason.
    pub reason: String,
    /// Whether it may be grafted if the user names it.
    pub by_name: bool,
}

impl Skipped {
    /// A file that is left alone, also if the user names it.
    pub(crate) fn new(path: impl Into<PathBuf>, reason: impl Into<String>) -> Skipped {
        Skipped { path: path.into(), reason: reason.into(), by_name: false }
    }
}

/// The reasons, each with the first files that it holds for.
pub(super) fn by_reason(skipped: &[Skipped]) -> String {
    const SHOWN: usize = 3;
    let mut reasons: Vec<(&str, Vec<String>)> = Vec::new();
    for Skipped { path, reason, .. } in skipped {
        let name = format!("`{}`", path.display());
        match reasons.iter_mut().find(|(known, _)| known == reason) {
            Some((_, names)) => names.push(name),
            None => reasons.push((reason, vec![name])),
        }
    }
    let described = |(reason, names): &(&str, Vec<String>)| {
        let shown = names[..names.len().min(SHOWN)].join(", ");
        match names.len().saturating_sub(SHOWN) {
            0 => format!("{shown}: {reason}"),
            more => format!("{shown} and {more} more: {reason}"),
        }
    };
    reasons.iter().map(described).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_said_once() {
        let of = |path: &str, reason: &str| Skipped::new(path, reason);
        let dynamic = ["a", "b", "c", "d", "e"].map(|path| of(path, "dynamic"));
        assert_eq!(by_reason(&dynamic), "`a`, `b`, `c` and 2 more: dynamic");
        assert_eq!(by_reason(&[of("a", "go"), of("b", "dynamic"), of("c", "go")]), "`a`, `c`: go; `b`: dynamic");
    }
}
