//! The commands of `docs/install.md`.

use std::path::Path;

/// Returns the commands in the `sh` blocks of a section, or of the text before the first one if `section` is empty.
///
/// # Panics
/// When there is no such section, or it has no commands.
pub(crate) fn commands(section: &str) -> String {
    let text = text();
    let part = text.split("\n## ").find(|part| match section {
        "" => part.starts_with("# "),
        _ => part.lines().next() == Some(section),
    });
    let part = part.unwrap_or_else(|| panic!("docs/install.md has no section `{section}`"));
    let blocks = part.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    let commands: String = blocks.collect();
    assert!(!commands.is_empty(), "the section `{section}` has no commands");
    commands
}

/// Returns the titles of the sections.
pub(crate) fn sections() -> Vec<String> {
    text().lines().filter_map(|line| Some(line.strip_prefix("## ")?.to_owned())).collect()
}

fn text() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/install.md");
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
