//! The bill of materials of a release, as CycloneDX 1.5 has it (ECMA-424): every donor and every library, each with the
//! package that its sources come from.

use anyhow::Result;
use jiff::{Timestamp, tz::TimeZone};
use serde_json::{Value, json};

use crate::components::{Component, Kind, Registry};

/// Returns the bill of materials as JSON. `time` is the release's, in seconds since 1970.
///
/// # Errors
/// When the time is out of range.
pub fn cyclonedx(version: &str, time: u64, components: &[Component]) -> Result<String> {
    let program = json!({
        "type": "application",
        "bom-ref": "allograft",
        "name": "allograft",
        "version": version,
        "licenses": [{ "expression": crate::LICENSE }],
    });
    let references: Vec<String> = components.iter().map(reference).collect();
    let bom = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": Timestamp::from_second(time.try_into()?)?.to_zoned(TimeZone::UTC).strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            "component": program,
        },
        "components": components.iter().map(component).collect::<Vec<Value>>(),
        "dependencies": [{ "ref": "allograft", "dependsOn": references }],
    });
    Ok(serde_json::to_string_pretty(&bom)? + "\n")
}

/// Returns the name by which other parts of the document refer to a component.
fn reference(component: &Component) -> String {
    let kind = match component.kind {
        Kind::Donor => "donor",
        Kind::Library => "library",
    };
    format!("{kind}:{}@{}", component.name, component.version)
}

fn component(component: &Component) -> Value {
    let description = match component.kind {
        Kind::Donor => "a donor: grafted programs carry it",
        Kind::Library => "a library in Rust",
    };
    let mut value = json!({
        "type": "library",
        "bom-ref": reference(component),
        "name": component.name,
        "version": component.version,
        "description": description,
        "licenses": [{ "expression": component.license }],
    });
    if let Some(package) = &component.package {
        let version = package.version.replace('+', "%2B");
        let purl = match package.registry {
            Registry::Crates => format!("pkg:cargo/{}@{version}", package.name),
            Registry::Debian => format!("pkg:deb/debian/{}@{version}?arch=source", package.name),
        };
        let hashes = json!([{ "alg": "SHA-256", "content": package.sha256 }]);
        match component.kind {
            // The donor's version is upstream's; the package that brings the sources has one of its own.
            Kind::Donor => {
                value["externalReferences"] = json!([{ "type": "source-distribution", "url": purl, "hashes": hashes }])
            }
            Kind::Library => {
                value["purl"] = json!(purl);
                value["hashes"] = hashes;
            }
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

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
        // Each reference is there once, and leads somewhere.
        let references: BTreeSet<&str> = listed.iter().map(|it| it["bom-ref"].as_str().unwrap()).collect();
        assert_eq!(references.len(), listed.len());
        let needed = bom["dependencies"][0]["dependsOn"].as_array().unwrap();
        assert!(needed.iter().all(|it| references.contains(it.as_str().unwrap())));
    }
}
