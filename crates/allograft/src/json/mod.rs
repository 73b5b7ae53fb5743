//! The JSON documents of the program, one for each command with `--json`. `docs/json.md` is made from these types.
//!
//! | module | what lives there |
//! | --- | --- |
//! | `donors` | the document of `donors` |
//! | `emit` | the document of `emit` |
//! | `failure` | the document of a command that fails |
//! | `graft` | the document of `graft` |
//! | `image` | the images in the document of `inspect` |
//! | `inspect` | the document of `inspect`, around [`inspector::Report`] |
//! | `process` | the processes in the document of `inspect` |
//! | `text` | the document of `man` and of `completions` |
//! | `undo` | the document of `undo` |
//! | `verify` | the document of `verify`, around the checks of [`inspector::verify`] |
//!
//! The document of `bench` is [`measure::results::Results`].

mod donors;
mod emit;
mod failure;
mod graft;
mod image;
mod inspect;
mod process;
mod text;
mod undo;
mod verify;

use std::path::Path;

use serde::Serialize;

pub(crate) use donors::Donors;
pub(crate) use emit::{Emitted, EmittedFolder, Form, Snippet};
pub(crate) use failure::Failed;
pub(crate) use graft::Grafts;
pub(crate) use image::{Affected, Image, ImageForm, ImagePreload, Unaffected, Variables};
pub(crate) use inspect::{File, Inspected, LeftOut};
pub(crate) use process::{Footprint, Preload, Process};
pub(crate) use text::Text;
pub(crate) use undo::Undone;
pub(crate) use verify::Verified;

/// The version of all documents: fields may be added, never renamed.
const SCHEMA_VERSION: u32 = 1;

/// A document and its version.
#[derive(Debug, Serialize)]
struct Document<D> {
    /// The version of the document, 1. Fields may be added in this version; none is renamed or removed.
    schema_version: u32,
    /// The fields of the command.
    #[serde(flatten)]
    fields: D,
}

/// The text of the document with these fields, its version first.
///
/// # Errors
/// When a field cannot be written as JSON.
pub(crate) fn document(fields: impl Serialize) -> Result<String, serde_json::Error> {
    serde_json::to_string_pretty(&Document { schema_version: SCHEMA_VERSION, fields }).map(|text| text + "\n")
}

/// A path as text; bytes that are not UTF-8 are shown as U+FFFD.
fn text_of(path: &Path) -> String {
    path.display().to_string()
}
