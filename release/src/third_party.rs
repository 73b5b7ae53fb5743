//! The third-party licences that packages have to contain.

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::components::{Component, Kind};

/// The beginnings of names of files with licences.
const NAMES: [&str; 6] = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"];

/// Returns the licences of all components in one text: `donors`, the text of the donors' licences (`allograft donors
/// --licenses`), then each library with the licence files of its package, each text once.
///
/// # Errors
/// When a file cannot be read.
pub fn licenses(donors: &str, components: &[Component]) -> Result<String> {
    let mut texts: Vec<(String, Vec<String>)> = Vec::new();
    for library in components.iter().filter(|it| it.kind == Kind::Library) {
        let title = format!("{} {} ({})", library.name, library.version, library.license);
        let mut found = Vec::new();
        for path in files(library)? {
            let bytes = fs::read(&path).with_context(|| format!("cannot read `{}`", path.display()))?;
            found.push(String::from_utf8_lossy(&bytes).replace('\r', "").trim_matches('\n').to_owned());
        }
        let text = found.join("\n\n");
        match texts.iter_mut().find(|(other, _)| *other == text) {
            Some((_, titles)) => titles.push(title),
            None => texts.push((text, vec![title])),
        }
    }
    let mut all =
        format!("THE DONORS\n\n{}\n\nLIBRARIES IN THE PROGRAMS allograft AND cargo-allograft\n", donors.trim_end());
    for (text, titles) in texts {
        // Without such a file, the package has only its SPDX expression.
        let text = if text.is_empty() { "(the package holds no text)".to_owned() } else { text };
        write!(all, "\n{}:\n\n{text}\n", titles.join("\n"))?;
    }
    Ok(all)
}

/// Returns the files with licences in a library's package, sorted.
fn files(library: &Component) -> Result<Vec<PathBuf>> {
    let Some(package) = &library.package else { return Ok(Vec::new()) };
    let folder = &package.folder;
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read `{}`", folder.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
        if path.is_file() && NAMES.iter().any(|start| name.starts_with(start)) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn every_library_is_named_and_nearly_every_one_brings_its_text() {
        let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let components = crate::components::components(checkout).unwrap();
        let text = licenses("mimalloc 2.5.2 (MIT):\n\nthe text\n", &components).unwrap();
        assert!(text.starts_with("THE DONORS\n\nmimalloc 2.5.2 (MIT):\n\nthe text\n\n"), "{}", &text[..200]);
        for library in components.iter().filter(|it| it.kind == Kind::Library) {
            assert!(text.contains(&format!("\n{} {} (", library.name, library.version)), "{}", library.name);
        }
        assert!(text.matches("(the package holds no text)").count() < 3);
        assert!(text.contains("Permission is hereby granted") && text.contains("Apache License"));
    }
}
