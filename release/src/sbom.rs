//! The bill of materials of a release: every donor and every library, each with the package that its sources come from.

use anyhow::Result;
use cyclonedx::{Bill, Component as Part, Dependency, Hash, License, Reference, Subject};
use jiff::{Timestamp, tz::TimeZone};

use crate::components::{Component, Kind, Registry};

/// Returns the bill of materials as CycloneDX in JSON. `time` is the release's, in seconds since 1970.
///
/// # Errors
/// When the time is out of range.
pub fn cyclonedx(version: &str, time: u64, components: &[Component]) -> Result<String> {
    let component = Part {
        kind: "application",
        reference: "allograft".to_owned(),
        name: "allograft".to_owned(),
        version: Some(version.to_owned()),
        licenses: vec![declared(crate::LICENSE)],
        ..Part::default()
    };
    let released = Timestamp::from_second(time.try_into()?)?.to_zoned(TimeZone::UTC);
    let released = released.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let needed = components.iter().map(reference).collect();
    let dependencies = vec![Dependency { reference: "allograft".to_owned(), depends_on: needed }];
    let parts = components.iter().map(part).collect();
    Ok(Bill::new(Subject::Built { component, released }, parts, dependencies, Vec::new()).text()?)
}

/// Returns the name by which other parts of the document refer to a component.
fn reference(component: &Component) -> String {
    let kind = match component.kind {
        Kind::Donor => "donor",
        Kind::Library => "library",
    };
    format!("{kind}:{}@{}", component.name, component.version)
}

fn declared(expression: &str) -> License {
    License { expression: expression.to_owned(), acknowledgement: "declared" }
}

fn part(component: &Component) -> Part {
    let mut part = Part {
        kind: "library",
        reference: reference(component),
        name: component.name.clone(),
        version: Some(component.version.clone()),
        description: Some(match component.kind {
            Kind::Donor => "a donor: grafted programs carry it",
            Kind::Library => "a library in Rust",
        }),
        licenses: vec![declared(&component.license)],
        ..Part::default()
    };
    if let Some(package) = &component.package {
        let version = package.version.replace('+', "%2B");
        let url = match package.registry {
            Registry::Crates => format!("pkg:cargo/{}@{version}", package.name),
            Registry::Debian => format!("pkg:deb/debian/{}@{version}?arch=source", package.name),
        };
        let hashes = vec![Hash { alg: "SHA-256", content: package.sha256.clone() }];
        match component.kind {
            // The donor's version is upstream's; the package that brings the sources has one of its own.
            Kind::Donor => part.references = vec![Reference { kind: "source-distribution", url, hashes }],
            Kind::Library => (part.purl, part.hashes) = (Some(url), hashes),
        }
    }
    part
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use serde_json::Value;

    use super::*;

    #[test]
    fn every_donor_has_source_version_licence_and_checksum() {
        let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let components = crate::components::components(checkout).unwrap();
        let bom: Value = serde_json::from_str(&cyclonedx("1.2.3", 1_700_000_000, &components).unwrap()).unwrap();
        assert_eq!(bom["metadata"]["timestamp"], "2023-11-14T22:13:20Z");
        let listed = bom["components"].as_array().unwrap();
        for donor in donors::all() {
            let found = listed.iter().find(|it| it["bom-ref"] == format!("donor:{}@{}", donor.name, donor.version));
            let found = found.unwrap_or_else(|| panic!("{} {}", donor.name, donor.version));
            assert_eq!(found["licenses"][0]["expression"], donor.license);
            let source = &found["externalReferences"][0];
            let registry = if donor.name == "scudo" { "pkg:deb/debian/llvm-toolchain-" } else { "pkg:cargo/" };
            assert!(source["url"].as_str().unwrap().starts_with(registry), "{source}");
            assert_eq!(source["hashes"][0]["content"].as_str().unwrap().len(), 64);
        }
        // Each reference occurs once, and has a target.
        let references: BTreeSet<&str> = listed.iter().map(|it| it["bom-ref"].as_str().unwrap()).collect();
        assert_eq!(references.len(), listed.len());
        let needed = bom["dependencies"][0]["dependsOn"].as_array().unwrap();
        assert!(needed.iter().all(|it| references.contains(it.as_str().unwrap())));
    }
}
