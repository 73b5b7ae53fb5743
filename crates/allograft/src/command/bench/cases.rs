//! The names of the suite's cases.

use crate::similar::similar;

/// Whether the suite has a case of this name.
pub(super) fn is_case(name: &str) -> bool {
    suite::names().any(|case| case == name)
}

/// Returns the case whose name may be meant.
pub(super) fn similar_case(name: &str) -> Option<&'static str> {
    similar(name, suite::names())
}
