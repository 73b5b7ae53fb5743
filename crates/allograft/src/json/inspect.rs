//! The document of `allograft inspect`.

use std::path::Path;

use inspector::Report;
use serde::Serialize;

use super::{Image, Process, text_of};
use crate::failure::Failure;
use crate::output::counted;

/// The findings of `inspect`.
#[derive(Debug, Serialize)]
pub(crate) struct Inspected<'i> {
    /// The files in the order of the arguments; those in a folder sorted by path.
    pub(crate) files: Vec<File<'i>>,
    /// With folders among the arguments: the numbers of their entries that are not in `files`, by reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) left_out: Option<LeftOut>,
    /// With images among the arguments: these, in the order of the arguments and of the index.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) images: Option<Vec<&'i Image>>,
    /// With `--pid` or `--all`: the processes, in the order of the arguments or of their numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) processes: Option<Vec<Process>>,
    /// With `--all`: how many processes may not be looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) closed_processes: Option<usize>,
}

/// The numbers of a folder's entries that are not inspected.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct LeftOut {
    /// Symbolic links: they are not followed.
    pub(crate) symbolic_links: usize,
    /// Scripts: files that begin with `#!`.
    pub(crate) scripts: usize,
    /// Other files that are neither ELF files nor static archives.
    pub(crate) other_files: usize,
    /// Pipes, sockets and devices: they are not opened.
    pub(crate) special_files: usize,
}

impl LeftOut {
    /// The sum of both.
    pub(crate) fn with(&self, other: &LeftOut) -> LeftOut {
        LeftOut {
            symbolic_links: self.symbolic_links + other.symbolic_links,
            scripts: self.scripts + other.scripts,
            other_files: self.other_files + other.other_files,
            special_files: self.special_files + other.special_files,
        }
    }

    /// Returns the numbers as words: `2 symbolic links (not followed), 1 script`. Empty if nothing is left out.
    pub(crate) fn words(&self) -> String {
        let words = [
            (self.symbolic_links, "symbolic link", " (not followed)"),
            (self.scripts, "script", ""),
            (self.other_files, "other file", " (neither ELF file nor archive)"),
            (self.special_files, "special file", " (pipe, socket or device)"),
        ];
        let words = words.into_iter().filter(|(count, ..)| *count > 0);
        let words = words.map(|(count, what, why)| counted(count, what) + why);
        words.collect::<Vec<_>>().join(", ")
    }
}

/// A file.
#[derive(Debug, Serialize)]
pub(crate) struct File<'i> {
    /// Its path. A file that cannot be read has this and `error` only; every other one has the fields of a report.
    path: String,
    /// For files in an image: the image's index in `images`, from 0. The path is inside that image.
    #[serde(skip_serializing_if = "Option::is_none")]
    image: Option<usize>,
    /// For files in an image that names its platform: the platform.
    #[serde(skip_serializing_if = "Option::is_none")]
    platform: Option<&'i str>,
    /// The report on the file.
    #[serde(flatten)]
    report: Option<&'i Report>,
    /// For backups of grafts: the path of the graft. `allograft undo` restores the backup in its place.
    #[serde(skip_serializing_if = "Option::is_none")]
    backup_of: Option<String>,
    /// With `--expect`: whether the file's malloc is the expected one; `false` also for a file that cannot be read. In
    /// images, of executables with a malloc only.
    #[serde(skip_serializing_if = "Option::is_none")]
    as_expected: Option<bool>,
    /// Why nothing was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl<'i> File<'i> {
    /// The file at `path`, what came of it, and whether its malloc is the expected one.
    pub(crate) fn new(path: &Path, result: &'i Result<Report, Failure>, as_expected: Option<bool>) -> Self {
        let (report, error) = (result.as_ref().ok(), result.as_ref().err().map(Failure::whole));
        File { path: text_of(path), image: None, platform: None, report, backup_of: None, as_expected, error }
    }

    /// The file as the backup of a graft.
    pub(crate) fn backup_of(self, host: Option<&Path>) -> Self {
        File { backup_of: host.map(text_of), ..self }
    }

    /// The same, in an image.
    pub(crate) fn in_image(self, number: usize, image: &'i Image) -> Self {
        File { image: Some(number), platform: image.platform.as_deref(), ..self }
    }
}
