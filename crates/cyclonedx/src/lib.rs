//! The parts of a CycloneDX 1.6 document (ECMA-424, <https://cyclonedx.org/docs/1.6/json/>) that our bills use, for
//! inspected files and for a release. The crate `cyclonedx-bom` stops at 1.5, which has no `evidence.identity` list.

#![forbid(unsafe_code)]

use std::collections::BTreeSet;

use data_encoding::HEXLOWER;
use serde::Serialize;
use sha2::{Digest, Sha256};

const SCHEMA: &str = "http://cyclonedx.org/schema/bom-1.6.schema.json";

/// The whole document.
#[derive(Debug, Serialize)]
pub struct Bill {
    #[serde(rename = "$schema")]
    schema: &'static str,
    #[serde(rename = "bomFormat")]
    format: &'static str,
    #[serde(rename = "specVersion")]
    specification: &'static str,
    #[serde(rename = "serialNumber", skip_serializing_if = "Option::is_none")]
    serial_number: Option<String>,
    version: u32,
    metadata: Metadata,
    components: Vec<Component>,
    dependencies: Vec<Dependency>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    compositions: Vec<Composition>,
}

/// About the document itself. Inspections have no time, so that two runs give the same bytes.
#[derive(Debug, Serialize)]
struct Metadata {
    #[serde(skip_serializing_if = "Option::is_none")]
    timestamp: Option<String>,
    lifecycles: [Lifecycle; 1],
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<Tools>,
    #[serde(skip_serializing_if = "Option::is_none")]
    component: Option<Component>,
}

/// The subject of a bill.
#[derive(Debug)]
pub enum Subject {
    /// Inspected files, by the program of this component.
    Inspected {
        /// The program.
        by: Component,
    },
    /// A program that is built.
    Built {
        /// The program.
        component: Component,
        /// The time of its release, as in RFC 3339.
        released: String,
    },
}

#[derive(Debug, Serialize)]
struct Lifecycle {
    phase: &'static str,
}

#[derive(Debug, Serialize)]
struct Tools {
    components: [Component; 1],
}

/// A file, an allocator, or the program that wrote the document.
#[derive(Debug, Default, Serialize)]
pub struct Component {
    /// Its type, of the list in the specification.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The name by which other parts of the document refer to it.
    #[serde(rename = "bom-ref")]
    pub reference: String,
    /// Its maker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub supplier: Option<Supplier>,
    /// Its name.
    pub name: String,
    /// Its version, if that is exactly known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// A description.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<&'static str>,
    /// Its checksums.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hashes: Vec<Hash>,
    /// Its licences.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub licenses: Vec<License>,
    /// Its package URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub purl: Option<String>,
    /// Pages and files elsewhere.
    #[serde(rename = "externalReferences", skip_serializing_if = "Vec::is_empty")]
    pub references: Vec<Reference>,
    /// Properties without a field in the specification.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub properties: Vec<Property>,
    /// The evidence for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Proof>,
}

/// The maker of a component.
#[derive(Debug, Serialize)]
pub struct Supplier {
    /// The name.
    pub name: String,
    /// Its pages.
    pub url: Vec<String>,
}

/// A checksum.
#[derive(Debug, Serialize)]
pub struct Hash {
    /// The algorithm, as the specification spells it.
    pub alg: &'static str,
    /// The value, in hexadecimal.
    pub content: String,
}

/// An SPDX expression.
#[derive(Debug, Serialize)]
pub struct License {
    /// The expression.
    pub expression: String,
    /// `declared` by its makers, or `concluded` by the document's.
    pub acknowledgement: &'static str,
}

/// A page or a file elsewhere.
#[derive(Debug, Serialize)]
pub struct Reference {
    /// Its type, of the list in the specification.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Its address, or a package URL.
    pub url: String,
    /// Its checksums, if it is a file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hashes: Vec<Hash>,
}

/// A name and a value of our own.
#[derive(Debug, Serialize)]
pub struct Property {
    /// The name, which begins with `allograft:`.
    pub name: &'static str,
    /// The value.
    pub value: String,
}

/// The evidence for a component.
#[derive(Debug, Serialize)]
pub struct Proof {
    /// The evidence for its fields.
    pub identity: Vec<Identity>,
    /// The places where it was found.
    pub occurrences: Vec<Occurrence>,
}

/// The evidence for one field of a component.
#[derive(Debug, Serialize)]
pub struct Identity {
    /// The field.
    pub field: &'static str,
    /// From 0 to 1.
    pub confidence: f64,
    /// The value.
    #[serde(rename = "concludedValue")]
    pub concluded: String,
    /// The methods.
    pub methods: Vec<Method>,
}

/// A method of identification.
#[derive(Debug, Serialize)]
pub struct Method {
    /// Its kind, of the list in the specification.
    pub technique: &'static str,
    /// From 0 to 1.
    pub confidence: f64,
    /// The finding.
    pub value: String,
}

/// A place where a component was found.
#[derive(Debug, Serialize)]
pub struct Occurrence {
    /// The file.
    pub location: String,
    /// Its use there.
    #[serde(rename = "additionalContext")]
    pub context: String,
}

/// The dependencies of a component.
#[derive(Debug, Serialize)]
pub struct Dependency {
    /// The component, by its reference.
    #[serde(rename = "ref")]
    pub reference: String,
    /// The components that it needs, by their references.
    #[serde(rename = "dependsOn")]
    pub depends_on: BTreeSet<String>,
}

/// The completeness of the lists of dependencies.
#[derive(Debug, Serialize)]
pub struct Composition {
    aggregate: &'static str,
    dependencies: Vec<String>,
}

impl Composition {
    /// Says that these components have dependencies which the document does not list.
    pub fn incomplete(dependencies: Vec<String>) -> Composition {
        Composition { aggregate: "incomplete", dependencies }
    }
}

impl Bill {
    /// Makes a document, without its serial number.
    pub fn new(
        subject: Subject,
        components: Vec<Component>,
        dependencies: Vec<Dependency>,
        compositions: Vec<Composition>,
    ) -> Bill {
        let metadata = match subject {
            Subject::Inspected { by } => Metadata {
                timestamp: None,
                lifecycles: [Lifecycle { phase: "post-build" }],
                tools: Some(Tools { components: [by] }),
                component: None,
            },
            Subject::Built { component, released } => Metadata {
                timestamp: Some(released),
                lifecycles: [Lifecycle { phase: "build" }],
                tools: None,
                component: Some(component),
            },
        };
        Bill {
            schema: SCHEMA,
            format: "CycloneDX",
            specification: "1.6",
            serial_number: None,
            version: 1,
            metadata,
            components,
            dependencies,
            compositions,
        }
    }

    /// Returns the text of the document, numbered by its content.
    ///
    /// # Errors
    /// When it cannot be written as JSON.
    pub fn text(mut self) -> Result<String, serde_json::Error> {
        self.serial_number = Some(serial_number(&serde_json::to_string(&self)?));
        serde_json::to_string_pretty(&self).map(|text| text + "\n")
    }
}

/// Returns a UUID of version 8 made of a SHA-256 (RFC 9562, section 5.8), as a URN.
fn serial_number(text: &str) -> String {
    let digits = HEXLOWER.encode(&Sha256::digest(text));
    let variant = match digits.as_bytes().get(16).copied().unwrap_or_default() % 4 {
        0 => '8',
        1 => '9',
        2 => 'a',
        _ => 'b',
    };
    let part = |from: usize, to: usize| digits.get(from..to).unwrap_or_default();
    format!("urn:uuid:{}-{}-8{}-{variant}{}-{}", part(0, 8), part(8, 12), part(13, 16), part(17, 20), part(20, 32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serial_numbers_are_uuids_of_the_content() {
        let number = serial_number("content");
        let digits: Vec<&str> = number.strip_prefix("urn:uuid:").unwrap().split('-').collect();
        assert_eq!(digits.iter().map(|part| part.len()).collect::<Vec<_>>(), [8, 4, 4, 4, 12]);
        assert!(digits[2].starts_with('8') && "89ab".contains(&digits[3][..1]), "{number}");
        assert_ne!(number, serial_number("other content"));
    }
}
