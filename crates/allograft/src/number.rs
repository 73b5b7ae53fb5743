//! Numbers on the command line.

use std::ops::RangeInclusive;

/// Returns a parser of whole numbers in a range. Its error says what is expected; what was found is in the parser's own
/// message.
pub(crate) fn whole<N>(range: RangeInclusive<N>) -> impl Fn(&str) -> Result<N, String> + Clone + Send + Sync + 'static
where
    N: std::str::FromStr + PartialOrd + std::fmt::Display + Clone + Send + Sync + 'static,
{
    move |typed| {
        let number = typed.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| format!("expected a whole number from {} to {}", range.start(), range.end()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_expected() {
        let number = whole(1..=1024_u32);
        assert_eq!(number("8"), Ok(8));
        for wrong in ["0", "1025", "x", "", "1.5", "-1", "99999999999999"] {
            assert_eq!(number(wrong), Err("expected a whole number from 1 to 1024".to_owned()), "{wrong}");
        }
    }
}
