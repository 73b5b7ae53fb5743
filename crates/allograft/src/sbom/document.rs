//! The parts of a CycloneDX 1.6 document (ECMA-424, <https://cyclonedx.org/docs/1.6/json/>) that a bill has.

use std::collections::BTreeSet;

use serde::Serialize;

const SCHEMA: &str = "http://cyclonedx.org/schema/bom-1.6.schema.json";

/// The whole document.
#[derive(Debug, Serialize)]
pub(super) struct Bill {
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
    compositions: Vec<Composition>,
}

/// About the document itself. It has no time: two runs give the same bytes.
#[derive(Debug, Serialize)]
struct Metadata {
    lifecycles: [Lifecycle; 1],
    tools: Tools,
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
pub(super) struct Component {
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    #[serde(rename = "bom-ref")]
    pub(super) reference: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) supplier: Option<Supplier>,
    pub(super) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) description: Option<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) hashes: Vec<Hash>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) licenses: Vec<License>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) purl: Option<String>,
    #[serde(rename = "externalReferences", skip_serializing_if = "Vec::is_empty")]
    pub(super) references: Vec<Reference>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) properties: Vec<Property>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) evidence: Option<Proof>,
}

/// Who makes a component.
#[derive(Debug, Serialize)]
pub(super) struct Supplier {
    pub(super) name: String,
    pub(super) url: Vec<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct Hash {
    pub(super) alg: &'static str,
    pub(super) content: String,
}

/// An SPDX expression.
#[derive(Debug, Serialize)]
pub(super) struct License {
    pub(super) expression: String,
    pub(super) acknowledgement: &'static str,
}

/// A page elsewhere.
#[derive(Debug, Serialize)]
pub(super) struct Reference {
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    pub(super) url: String,
}

#[derive(Debug, Serialize)]
pub(super) struct Property {
    pub(super) name: &'static str,
    pub(super) value: String,
}

/// How a component was found.
#[derive(Debug, Serialize)]
pub(super) struct Proof {
    pub(super) identity: Vec<Identity>,
    pub(super) occurrences: Vec<Occurrence>,
}

/// How one field of a component was found out.
#[derive(Debug, Serialize)]
pub(super) struct Identity {
    pub(super) field: &'static str,
    pub(super) confidence: f64,
    #[serde(rename = "concludedValue")]
    pub(super) concluded: String,
    pub(super) methods: Vec<Method>,
}

#[derive(Debug, Serialize)]
pub(super) struct Method {
    pub(super) technique: &'static str,
    pub(super) confidence: f64,
    pub(super) value: String,
}

/// A place where a component was found.
#[derive(Debug, Serialize)]
pub(super) struct Occurrence {
    pub(super) location: String,
    #[serde(rename = "additionalContext")]
    pub(super) context: String,
}

/// What a component needs.
#[derive(Debug, Serialize)]
pub(super) struct Dependency {
    #[serde(rename = "ref")]
    pub(super) reference: String,
    #[serde(rename = "dependsOn")]
    pub(super) depends_on: BTreeSet<String>,
}

/// How complete the lists of dependencies are.
#[derive(Debug, Serialize)]
pub(super) struct Composition {
    aggregate: &'static str,
    dependencies: Vec<String>,
}

impl Composition {
    /// Says that these components have dependencies which the document does not list.
    pub(super) fn incomplete(dependencies: Vec<String>) -> Composition {
        Composition { aggregate: "incomplete", dependencies }
    }
}

impl Bill {
    /// Makes a document, without its serial number.
    pub(super) fn new(components: Vec<Component>, dependencies: Vec<Dependency>, composition: Composition) -> Bill {
        let tool = Component {
            kind: "application",
            reference: format!("tool:allograft@{}", hosts::VERSION),
            name: "allograft".to_owned(),
            version: Some(hosts::VERSION.to_owned()),
            ..Component::default()
        };
        Bill {
            schema: SCHEMA,
            format: "CycloneDX",
            specification: "1.6",
            serial_number: None,
            version: 1,
            metadata: Metadata { lifecycles: [Lifecycle { phase: "post-build" }], tools: Tools { components: [tool] } },
            components,
            dependencies,
            compositions: vec![composition],
        }
    }

    /// Returns the text of the document, numbered by its content.
    ///
    /// # Errors
    /// When it cannot be written as JSON.
    pub(super) fn text(mut self) -> Result<String, serde_json::Error> {
        self.serial_number = Some(serial_number(&serde_json::to_string(&self)?));
        serde_json::to_string_pretty(&self).map(|text| text + "\n")
    }
}

/// Returns a UUID of version 8 made of a SHA-256 (RFC 9562, section 5.8), as a URN.
fn serial_number(text: &str) -> String {
    let digits = hosts::sha256(text.as_bytes());
    let variant = match digits.as_bytes().get(16).copied().unwrap_or_default() % 4 {
        0 => '8',
        1 => '9',
        2 => 'a',
        _ => 'b',
    };
    let part = |from: usize, to: usize| digits.get(from..to).unwrap_or_default();
    format!("urn:uuid:{}-{}-8{}-{variant}{}-{}", part(0, 8), part(8, 12), part(13, 16), part(17, 20), part(20, 32))
}
