//! The document of `allograft inspect`.

use std::path::Path;

use inspector::Report;
use serde::Serialize;

use super::{Process, text_of};
use crate::failure::Failure;

/// What `inspect` found.
#[derive(Debug, Serialize)]
pub(crate) struct Inspected<'i> {
    /// The files in the order of the arguments; those in a folder sorted by path.
    pub(crate) files: Vec<File<'i>>,
    /// With `--pid` or `--all`: the processes, in the order of the arguments or of their numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) processes: Option<Vec<Process>>,
    /// With `--all`: how many processes may not be looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) closed_processes: Option<usize>,
}

/// A file.
#[derive(Debug, Serialize)]
pub(crate) struct File<'i> {
    /// Its path. A file that cannot be read has this and `error` only; every other one has the fields of a report.
    path: String,
    /// What was found in it.
    #[serde(flatten)]
    report: Option<&'i Report>,
    /// With `--expect`: whether the file's malloc is the expected one.
    #[serde(skip_serializing_if = "Option::is_none")]
    as_expected: Option<bool>,
    /// Why nothing was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl<'i> File<'i> {
    /// The file at `path`, what came of it, and the name of the malloc that was expected in it.
    pub(crate) fn new(path: &Path, result: &'i Result<Report, Failure>, expected: Option<&str>) -> Self {
        let report = result.as_ref().ok();
        File {
            path: text_of(path),
            report,
            as_expected: report.zip(expected).map(|(report, expected)| report.malloc.name == expected),
            error: result.as_ref().err().map(Failure::whole),
        }
    }
}
