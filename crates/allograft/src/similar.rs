//! The known name that a mistyped one may mean.

use strsim::osa_distance;

/// Returns the name that is nearest to `typed`, if it is near enough to be a slip: at most one letter in three, and at
/// most two, are missing, added, exchanged or wrong. Case does not count.
pub(crate) fn similar<'n>(typed: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let most = (typed.chars().count() / 3).min(2);
    let distances = names.into_iter().map(|name| (osa_distance(&typed.to_lowercase(), &name.to_lowercase()), name));
    distances.filter(|(distance, _)| *distance <= most).min_by_key(|(distance, _)| *distance).map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_and_other_words() {
        let names = ["musl", "gnu", "mimalloc", "snmalloc", "jemalloc"];
        for (typed, name) in
            [("mslu", None), ("mul", Some("musl")), ("mulsl", Some("musl")), ("MIMALOC", Some("mimalloc"))]
        {
            assert_eq!(similar(typed, names), name, "{typed}");
        }
        assert_eq!(similar("snmalocl", names), Some("snmalloc"));
        for other in ["", "x", "gn", "oldmalloc", "musleabihf"] {
            assert_eq!(similar(other, names.into_iter().filter(|name| *name != other)), None, "{other}");
        }
    }
}
