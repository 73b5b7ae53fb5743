//! The commands of a page of `docs`.

use std::path::Path;

/// The page on installing the packages of a release.
pub(crate) const INSTALL: &str = "install.md";

/// Returns the commands in the `sh` blocks of a section, or of the text before the first one if `section` is empty.
///
/// # Panics
/// When there is no such section, or it has no commands.
pub(crate) fn commands(page: &str, section: &str) -> String {
    blocks(page, section, "sh").concat()
}

/// Returns the blocks of a section that are in a language.
///
/// # Panics
/// When there is no such section, or it has no such block.
pub(crate) fn blocks(page: &str, section: &str, language: &str) -> Vec<String> {
    let text = text(page);
    let part = text.split("\n## ").find(|part| match section {
        "" => part.starts_with("# "),
        _ => part.lines().next() == Some(section),
    });
    let part = part.unwrap_or_else(|| panic!("docs/{page} has no section `{section}`"));
    let fence = format!("```{language}\n");
    let blocks = part.split(&fence).skip(1).filter_map(|rest| Some(rest.split("```").next()?.to_owned()));
    let blocks: Vec<String> = blocks.collect();
    assert!(!blocks.is_empty(), "the section `{section}` of docs/{page} has no block in `{language}`");
    blocks
}

/// Returns the titles of the sections.
pub(crate) fn sections(page: &str) -> Vec<String> {
    text(page).lines().filter_map(|line| Some(line.strip_prefix("## ")?.to_owned())).collect()
}

fn text(page: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(page);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
