//! Commands with places in them: `{libdir}`, `{object}`, `{out}`, `{threads}`, `{port}`, `{rate}`.

/// Replaces every `{name}` of the list in the template. Other braces stay: shells use them too.
pub(super) fn filled(template: &str, places: &[(&str, &str)]) -> String {
    let mut text = String::with_capacity(template.len());
    let mut rest = template;
    while let Some(at) = rest.find('{') {
        let place = places.iter().find(|(name, _)| rest[at + 1..].starts_with(&format!("{name}}}")));
        let (kept, skipped) = match place {
            Some((name, value)) => {
                text.push_str(&rest[..at]);
                text.push_str(value);
                ("", at + name.len() + 2)
            }
            None => (&rest[..=at], at + 1),
        };
        text.push_str(kept);
        rest = &rest[skipped..];
    }
    text + rest
}

pub(super) fn has(template: &str, place: &str) -> bool {
    template.contains(&format!("{{{place}}}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::quoted;

    #[test]
    fn places_are_filled_and_other_braces_stay() {
        let places = [("out", "/a/b"), ("libdir", "/l")];
        assert_eq!(filled("cc -L{libdir} -o {out} ${HOME} {}", &places), "cc -L/l -o /a/b ${HOME} {}");
        assert_eq!(filled("{out}{out} {out", &places), "/a/b/a/b {out");
        assert_eq!(filled("{other}", &[("out", "{libdir}"), ("libdir", "x")]), "{other}");
        // A value that was filled in is not filled again.
        assert_eq!(filled("{out}", &[("out", "{libdir}"), ("libdir", "x")]), "{libdir}");
        assert!(has("x{out}", "out") && !has("x{ out}", "out"));
    }

    #[test]
    fn words_survive_a_shell() {
        assert_eq!(quoted("/usr/lib/libc.a"), "/usr/lib/libc.a");
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's"), "'it'\\''s'");
        assert_eq!(quoted(""), "''");
    }
}
