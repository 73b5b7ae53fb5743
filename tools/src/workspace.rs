//! Folders of the checkout and of its build folder.

use std::path::{Path, PathBuf};

/// Returns the root of the checkout.
pub fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest).to_owned()
}

/// Returns `target` in the checkout. Tools, fixtures and the demo are in it, whatever CARGO_TARGET_DIR is.
pub fn build() -> PathBuf {
    zigcc::build_folder(Path::new(env!("CARGO_MANIFEST_DIR")))
}

/// Returns zig's cache of compiled files.
pub fn zig_cache() -> PathBuf {
    build().join("zig-cache")
}

/// Returns `path` for messages: relative to the checkout if it is below it.
pub fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

/// Collects the sources below `folder`.
#[cfg(test)]
pub(crate) fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        let hidden = entry.file_name().to_string_lossy().starts_with('.');
        if path.is_dir() && !hidden && !path.ends_with("target") {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Whether the line puts a value between two apostrophes. The names are those of places in commands of `bench`.
    fn quotes_by_hand(line: &str) -> bool {
        const PLACES: [&str; 5] = ["libdir", "object", "out", "threads", "port"];
        let is_name = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        line.split("'{")
            .skip(1)
            .any(|rest| rest.split_once("}'").is_some_and(|(name, _)| is_name(name) && !PLACES.contains(&name)))
    }

    /// A checkout may be in a folder with an apostrophe in its name. `fixtures::shell::word` quotes any path.
    #[test]
    fn tests_and_tools_quote_no_word_for_a_shell_by_hand() {
        // Meson's files have strings of their own.
        const OTHERS: [&str; 1] = ["crates/allograft/tests/projects/meson.rs"];
        assert!(quotes_by_hand("exec '{}' \"$@\"") && quotes_by_hand("echo >>'{log}'"));
        assert!(!quotes_by_hand("test -n '{out}'") && !quotes_by_hand("'{ \"a\": 1 }'") && !quotes_by_hand("{}"));
        let mut found = Vec::new();
        sources(&root(), &mut found);
        let mut by_hand = Vec::new();
        for path in found {
            let shown = shown(&path);
            // The program's own sources quote for more than shells.
            let of_product = shown.starts_with("crates/") && shown.split('/').nth(2) == Some("src");
            if of_product || OTHERS.contains(&shown.as_str()) || shown == file!() {
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            let lines = text.lines().enumerate().filter(|(_, line)| quotes_by_hand(line));
            by_hand.extend(lines.map(|(index, _)| format!("{shown}:{}", index + 1)));
        }
        assert!(by_hand.is_empty(), "use `fixtures::shell::word`: {by_hand:?}");
    }

    /// rustfmt wraps code but leaves comments alone. Rows of a table cannot be wrapped.
    #[test]
    fn comments_keep_to_the_width_of_a_line() {
        const WIDTH: usize = 120;
        let mut found = Vec::new();
        sources(&root(), &mut found);
        assert!(found.len() > 400, "{} sources", found.len());
        let mut wide = Vec::new();
        for path in found {
            for (index, line) in fs::read_to_string(&path).unwrap().lines().enumerate() {
                let text = line.trim_start();
                let is_comment = text.starts_with("//") && !text.trim_start_matches(['/', '!', ' ']).starts_with('|');
                if is_comment && line.chars().count() > WIDTH {
                    wide.push(format!("{}:{}", shown(&path), index + 1));
                }
            }
        }
        assert!(wide.is_empty(), "comments beyond {WIDTH} columns: {wide:?}");
    }

    /// The tests are functions, programs of conformance and cases; a page names the tests of its claims itself.
    #[test]
    fn every_strange_bug_has_a_test_that_exists() {
        let mut files = Vec::new();
        sources(&root(), &mut files);
        let text: String = files.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        let is_test = |name: &str| {
            let function = format!("fn {name}() {{");
            lines.windows(3).any(|three| three[2] == function && three[..2].contains(&"#[test]"))
        };
        let page = fs::read_to_string(root().join("docs/bugs.md")).unwrap();
        let bugs: Vec<&str> = page.split("\n## ").skip(1).collect();
        assert!(bugs.len() > 9, "{}", bugs.len());
        for bug in bugs {
            let title = bug.lines().next().unwrap_or_default();
            let tests = bug.split_once("\nTest: ").map(|(_, tests)| tests).unwrap_or_default();
            let names: Vec<&str> = tests.split('`').skip(1).step_by(2).filter(|name| !name.contains('/')).collect();
            assert!(!names.is_empty() || tests.contains(".md)"), "`{title}` names no test");
            for name in names {
                let files = [format!("conformance/programs/{name}.c"), format!("tests/cases/{name}/case.toml")];
                let exists = is_test(name) || files.iter().any(|file| root().join(file).exists());
                assert!(exists, "`{title}` names the test `{name}`, which does not exist");
            }
        }
        assert!(!is_test("no_such_test") && is_test("every_strange_bug_has_a_test_that_exists"));
    }
}
