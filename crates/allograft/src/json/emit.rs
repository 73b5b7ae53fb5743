//! The document of `allograft emit`.

use format::{Arch, Note};
use serde::Serialize;

/// The file that `emit` wrote.
#[derive(Debug, Serialize)]
pub(crate) struct Emitted<'e> {
    /// Its absolute path.
    pub(crate) path: String,
    /// The kind of file.
    #[serde(rename = "as")]
    pub(crate) form: Form,
    /// The target, in the user's spelling.
    pub(crate) target: &'e str,
    /// The target's architecture.
    pub(crate) arch: Arch,
    /// The note of the allocator in the file.
    pub(crate) donor: Option<&'e Note>,
    /// The note of the string functions in the file.
    pub(crate) strings: Option<&'e Note>,
    /// Its size in bytes.
    pub(crate) size: usize,
    /// Its SHA-256, in hexadecimal.
    pub(crate) sha256: String,
    /// How the file is used, for each build system.
    pub(crate) snippets: &'e [Snippet],
}

/// The folder that `emit` wrote for a build system.
#[derive(Debug, Serialize)]
pub(crate) struct EmittedFolder<'e> {
    /// Its absolute path.
    pub(crate) path: String,
    /// The build system, as `--as` names it.
    #[serde(rename = "as")]
    pub(crate) form: &'static str,
    /// The names of the files in it.
    pub(crate) files: Vec<&'static str>,
    /// How they are used.
    pub(crate) snippets: &'e [Snippet],
}

/// How the file is used in one build system.
#[derive(Debug, Serialize)]
pub(crate) struct Snippet {
    /// The build system, or the place that the text is for.
    #[serde(rename = "for")]
    pub(crate) name: &'static str,
    /// The text to write there.
    pub(crate) text: String,
}

/// The kind of file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Form {
    /// One relocatable object, for any link line
    Object,
    /// A static library with the object, for -l
    Archive,
    /// A shared object, for LD_PRELOAD
    Shared,
}
