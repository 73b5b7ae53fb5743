//! Which known name a mistyped one may stand for.

/// Returns the name that is nearest to `typed`, if it is near enough to be a slip: at most one letter in three, and at
/// most two, are missing, added, exchanged or wrong. Case does not count.
pub(crate) fn similar<'n>(typed: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let most = (typed.chars().count() / 3).min(2);
    let distances = names.into_iter().map(|name| (distance(&typed.to_lowercase(), &name.to_lowercase()), name));
    distances.filter(|(distance, _)| *distance <= most).min_by_key(|(distance, _)| *distance).map(|(_, name)| name)
}

/// The number of letters to insert, delete, replace, or exchange with the next one (the restricted Damerau-Levenshtein
/// distance).
fn distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let mut rows = vec![vec![0; other.len() + 1]; one.len() + 1];
    for (at, row) in rows.iter_mut().enumerate() {
        row[0] = at;
    }
    rows[0] = (0..=other.len()).collect();
    for a in 1..=one.len() {
        for b in 1..=other.len() {
            let replaced = rows[a - 1][b - 1] + usize::from(one[a - 1] != other[b - 1]);
            let mut least = replaced.min(rows[a - 1][b] + 1).min(rows[a][b - 1] + 1);
            if a > 1 && b > 1 && one[a - 1] == other[b - 2] && one[a - 2] == other[b - 1] {
                least = least.min(rows[a - 2][b - 2] + 1);
            }
            rows[a][b] = least;
        }
    }
    rows[one.len()][other.len()]
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
