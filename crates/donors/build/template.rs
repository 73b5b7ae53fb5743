//! Headers that upstream's configure script would make from templates: their text with each `@name@` replaced.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::foundry::FoundryError;

/// A header and its templates.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Template {
    /// Its path, relative to a folder in which upstream's files find their headers.
    to: PathBuf,
    /// Upstream's files in order, relative to its source.
    from: Vec<PathBuf>,
}

impl Template {
    /// Writes the header below `folder`. `values` holds the text for each name.
    ///
    /// # Errors
    /// A file cannot be read or written, or a name has no value.
    pub(crate) fn fill(
        &self,
        source: &Path,
        values: &BTreeMap<String, String>,
        folder: &Path,
    ) -> Result<(), FoundryError> {
        let mut header = String::new();
        for from in &self.from {
            let path = source.join(from);
            let text = fs::read_to_string(&path).map_err(|source| FoundryError::File { path: path.clone(), source })?;
            header += &filled(&text, values).map_err(|name| FoundryError::Template { path, name })?;
        }
        let path = folder.join(&self.to);
        let written = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&path, header));
        written.map_err(|source| FoundryError::File { path, source })
    }
}

/// Returns `text` with each `@name@` replaced. The error is the first name without a value. An `@` without a name after
/// it stays.
fn filled(text: &str, values: &BTreeMap<String, String>) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('@') {
        out += before;
        let name = after.split_once('@').map(|(name, _)| name).filter(|name| is_name(name));
        rest = match name {
            Some(name) => {
                out += values.get(name).ok_or(name)?;
                &after[name.len() + 1..]
            }
            None => {
                out.push('@');
                after
            }
        };
    }
    Ok(out + rest)
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}
