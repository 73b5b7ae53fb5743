//! The data that `undo` needs, inside the grafted image: in the annotations of `index.json` or, in older archives of
//! `docker save`, in the first item of `manifest.json`, whose readers skip unknown fields. So a copy of the image can
//! still be undone.

use data_encoding::BASE64;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::layout::{Changes, DOCUMENTS, Naming, Replacement};

/// The name of the annotation or the field.
const ANNOTATION: &str = "allograft.origin";

/// The version of this format.
const SCHEMA_VERSION: u32 = 1;

/// The stock layout, as far as the grafted one differs.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Origin {
    schema_version: u32,
    /// The version of allograft that grafted.
    allograft: String,
    /// SHA-256 of the stock layout, if it is a tar.
    pub(super) sha256: Option<String>,
    /// The files that were replaced.
    replaced: Vec<Replaced>,
    /// The names of the blobs that were added.
    pub(super) added: Vec<String>,
}

/// A file of the stock layout.
#[derive(Debug, Serialize, Deserialize)]
struct Replaced {
    name: String,
    /// Its header in a tar, in base64.
    header: Option<String>,
    /// Its content in base64.
    content: String,
}

impl Origin {
    pub(super) fn new(sha256: Option<String>, replaced: Vec<(String, Replacement)>, added: Vec<String>) -> Origin {
        let one = |(name, Replacement { header, content }): (String, Replacement)| Replaced {
            name,
            header: header.map(|header| BASE64.encode(&header)),
            content: BASE64.encode(&content),
        };
        let replaced = replaced.into_iter().map(one).collect();
        Origin { schema_version: SCHEMA_VERSION, allograft: crate::VERSION.to_owned(), sha256, replaced, added }
    }

    /// Writes the origin into an index, or into a list of images.
    pub(super) fn annotate(&self, document: &mut Value) -> Result<(), serde_json::Error> {
        let text = serde_json::to_string(self)?;
        if let Some(first) = document.get_mut(0).and_then(Value::as_object_mut) {
            first.insert(ANNOTATION.to_owned(), Value::String(text));
        } else if let Some(index) = document.as_object_mut() {
            let annotations = index.entry("annotations").or_insert_with(|| Value::Object(Default::default()));
            if let Some(annotations) = annotations.as_object_mut() {
                annotations.insert(ANNOTATION.to_owned(), Value::String(text));
            }
        }
        Ok(())
    }

    /// Reads the origin from an index, or from a list of images. `None` if the document has no origin; an error if it
    /// has one that cannot be read.
    pub(super) fn read(document: &Value) -> Option<Result<Origin, String>> {
        let text = document.get("annotations").or_else(|| document.get(0))?.get(ANNOTATION)?;
        let read = text.as_str().ok_or_else(|| "it is not a text".to_owned());
        let origin: Result<Origin, String> =
            read.and_then(|text| serde_json::from_str(text).map_err(|error| error.to_string()));
        Some(origin.and_then(|origin| match origin.schema_version {
            SCHEMA_VERSION => Ok(origin),
            other => Err(format!(
                "it has schema_version {other}, expected {SCHEMA_VERSION}: allograft {} wrote it",
                origin.allograft
            )),
        }))
    }

    /// Returns the changes that restore stock.
    pub(super) fn back(&self) -> Result<Changes<'static>, String> {
        let decoded = |text: &str| BASE64.decode(text.as_bytes()).map_err(|error| error.to_string());
        let mut changes = Changes::default();
        for Replaced { name, header, content } in &self.replaced {
            // The annotation may come from any author: it has to name files of the layout itself.
            if !DOCUMENTS.contains(&name.as_str()) {
                return Err(format!("it replaces `{name}`"));
            }
            let header = header.as_deref().map(decoded).transpose()?;
            changes.replaced.insert(name.clone(), Replacement { header, content: decoded(content)? });
        }
        for name in &self.added {
            if !Naming::is_known(name) {
                return Err(format!("`{name}` is not the name of a blob"));
            }
            changes.dropped.insert(name.clone());
        }
        Ok(changes)
    }
}

/// The files of a layout that `undo` writes and removes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageChanges {
    /// Documents that get their earlier content.
    pub replaced: Vec<String>,
    /// Blobs that are removed.
    pub dropped: Vec<String>,
}

/// Returns the files that `undo` would change by the origin in an index, or in a list of images. `None` if it has none.
///
/// # Errors
/// Why the origin is not followed.
pub fn image_changes(document: &Value) -> Option<Result<ImageChanges, String>> {
    let changes = Origin::read(document)?.and_then(|origin| origin.back());
    Some(changes.map(|changes| ImageChanges {
        replaced: changes.replaced.into_keys().collect(),
        dropped: changes.dropped.into_iter().collect(),
    }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn origin(name: &str, added: &str) -> Origin {
        let replacement = Replacement { header: None, content: b"{}".to_vec() };
        Origin::new(None, vec![(name.to_owned(), replacement)], vec![added.to_owned()])
    }

    #[test]
    fn it_comes_back_out_of_an_index_and_a_list() {
        let name = format!("blobs/sha256/{}", "a".repeat(64));
        for mut document in [json!({ "annotations": { "n": "v" } }), json!({}), json!([{ "Config": "c" }])] {
            assert!(Origin::read(&document).is_none(), "{document}");
            origin("index.json", &name).annotate(&mut document).expect("a text");
            let back = Origin::read(&document).expect("an origin").expect("a sound one").back().expect("changes");
            assert_eq!(back.replaced["index.json"].content, b"{}");
            assert!(back.dropped.contains(&name));
        }
    }

    /// The image's author wrote the annotation.
    #[test]
    fn it_leads_to_nothing_but_documents_and_blobs() {
        let hex = "a".repeat(64);
        for (name, added) in [
            ("../index.json", format!("{hex}.json")),
            ("oci-layout", format!("{hex}.json")),
            ("index.json", format!("../{hex}.json")),
            ("index.json", format!("blobs/sha256/../{hex}")),
            ("index.json", "index.json".to_owned()),
        ] {
            assert!(origin(name, &added).back().is_err(), "{name} {added}");
        }
        let mut later = json!({});
        Origin { schema_version: 99, ..origin("index.json", &format!("{hex}.json")) }
            .annotate(&mut later)
            .expect("a text");
        let problem = Origin::read(&later).expect("an origin").expect_err("of a later version");
        assert!(problem.contains("schema_version 99, expected 1"), "{problem}");
        let wrong = json!({ "annotations": { ANNOTATION: "{}" } });
        assert!(Origin::read(&wrong).is_some_and(|origin| origin.is_err()));
    }
}
