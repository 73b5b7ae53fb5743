//! The names of the suite's cases.

use crate::similar::similar;

/// In the order of the suite's own table.
pub(super) const NAMES: [&str; 13] = [
    "map",
    "map-kept",
    "map-large",
    "boxed",
    "larson",
    "pipeline",
    "growth",
    "blocks",
    "small",
    "fragments",
    "bursts",
    "http",
    "dataset",
];

/// Whether the suite has a case of this name.
pub(super) fn is_case(name: &str) -> bool {
    NAMES.contains(&name)
}

/// Returns the case whose name may be meant.
pub(super) fn similar_case(name: &str) -> Option<&'static str> {
    similar(name, NAMES)
}
