//! Results as files: JSON, HTML, Markdown, CSV.

use std::fs;
use std::path::Path;

use measure::report;
use measure::results::{Results, SCHEMA_VERSION};

use crate::failure::{Failure, REPORT};
use crate::output::file;

/// Reads saved results.
///
/// # Errors
/// When the file was not written by `--save`, or has a later version.
pub(super) fn read(path: &Path) -> Result<Results, Failure> {
    let text = fs::read_to_string(path).map_err(Failure::io("read", path))?;
    let failed = |problem: String| {
        Failure::usage(format!("`{}` holds no results: {problem}", path.display()))
            .with_help("`--from` takes what `allograft bench --save FILE` or `--json` wrote")
    };
    let document: serde_json::Value = serde_json::from_str(&text).map_err(|error| failed(error.to_string()))?;
    match document["schema_version"].as_u64() {
        Some(version) if version == u64::from(SCHEMA_VERSION) => {}
        Some(version) => return Err(failed(format!("schema_version is {version}, expected {SCHEMA_VERSION}"))),
        None => return Err(failed("there is no schema_version".to_owned())),
    }
    serde_json::from_value(document).map_err(|error| failed(error.to_string()))
}

pub(super) fn json(results: &Results) -> Result<String, Failure> {
    results
        .json()
        .map_err(|error| Failure::usage(format!("the results cannot be written as JSON: {error}")).with_help(REPORT))
}

pub(super) fn html(results: &Results) -> Result<String, Failure> {
    Ok(report::html(results))
}

pub(super) fn markdown(results: &Results) -> Result<String, Failure> {
    Ok(report::markdown(results))
}

pub(super) fn csv(results: &Results) -> Result<String, Failure> {
    Ok(report::csv(results))
}

/// Checks that the file can be written there, before minutes of measuring.
pub(super) fn check(path: &Path) -> Result<(), Failure> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if folder.is_dir() && !path.is_dir() {
        return file::check(path).map_err(Failure::io("write", path));
    }
    let problem = if path.is_dir() { "it is a folder" } else { "its folder does not exist" };
    Err(Failure::usage(format!("cannot write `{}`: {problem}", path.display()))
        .with_help("name a file in a folder that exists"))
}

/// Writes the file as a whole or not at all.
pub(super) fn write(path: &Path, text: &str) -> Result<(), Failure> {
    file::write(path, text.as_bytes()).map_err(Failure::io("write", path))
}
