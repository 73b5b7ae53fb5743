//! The software bill of materials of inspected files: which allocators they carry, and how that is known.
//!
//! | module | what lives there |
//! | --- | --- |
//! | `component` | a file and an allocator as components |
//! | `upstream` | where an allocator comes from |
//!
//! A bill is made of a list of files, wherever they were read: it opens none of them.

mod component;
mod upstream;

use std::collections::{BTreeMap, BTreeSet};

use clap::ValueEnum;
use cyclonedx::{Bill, Component, Composition, Dependency, Subject};
use inspector::Report;

use component::{Carried, CarriedFiles};

/// The formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// CycloneDX 1.6 (ECMA-424), as JSON
    Cyclonedx,
}

/// A file that was inspected.
#[derive(Debug)]
pub(crate) struct File<'f> {
    /// Its path, as the bill names it.
    pub(crate) name: String,
    /// The image that it is in: its digest or, where it has none, its path.
    pub(crate) image: Option<&'f str>,
    /// SHA-256 of its bytes in hexadecimal, unless it could not be read.
    pub(crate) sha256: Option<&'f str>,
    /// The name of the graft whose backup it is. Backups do not run, so their allocators are left out of the
    /// components.
    pub(crate) backup_of: Option<String>,
    /// The report, or the reason why it has none.
    pub(crate) result: Result<&'f Report, String>,
}

impl File<'_> {
    /// Returns a path with the image that it is in.
    fn placed(&self, path: &str) -> String {
        match self.image {
            Some(image) => format!("{image}:{path}"),
            None => path.to_owned(),
        }
    }
}

/// Returns the bill of materials of these files as CycloneDX 1.6 in JSON. The same files give the same bytes: there is
/// no time in it, and its serial number is computed from its content. A file that is named twice is in it once.
///
/// # Errors
/// When it cannot be written as JSON.
pub(crate) fn cyclonedx(files: &[File<'_>]) -> Result<String, serde_json::Error> {
    let mut seen = BTreeSet::new();
    let files: Vec<&File<'_>> = files.iter().filter(|file| seen.insert((file.image, file.name.as_str()))).collect();
    let mut allocators: BTreeMap<String, CarriedFiles<'_>> = BTreeMap::new();
    let mut components = Vec::new();
    let mut dependencies = Vec::new();
    for file in files {
        let mut needed = BTreeSet::new();
        let runs = file.result.iter().filter(|_| file.backup_of.is_none());
        for (role, allocator) in runs.flat_map(|report| component::allocators(report)) {
            if let Some(carried) = Carried::from_allocator(allocator) {
                let reference = carried.reference();
                let found = allocators.entry(reference.clone()).or_insert_with(|| CarriedFiles::new(carried));
                found.add(file, role, allocator);
                needed.insert(reference);
            }
        }
        let component = component::file(file);
        dependencies.push(Dependency { reference: component.reference.clone(), depends_on: needed });
        components.push(component);
    }
    // A file has more in it than its allocators, and this bill does not say what.
    let incomplete = dependencies.iter().map(|dependency| dependency.reference.clone()).collect();
    for (reference, found) in allocators {
        components.push(found.component());
        dependencies.push(Dependency { reference, depends_on: BTreeSet::new() });
    }
    let by = Component {
        kind: "application",
        reference: format!("tool:allograft@{}", hosts::VERSION),
        name: "allograft".to_owned(),
        version: Some(hosts::VERSION.to_owned()),
        ..Component::default()
    };
    let compositions = vec![Composition::incomplete(incomplete)];
    Bill::new(Subject::Inspected { by }, components, dependencies, compositions).text()
}

#[cfg(test)]
mod tests {
    use super::*;
    use inspector::{Allocator, Evidence, Source};
    use serde_json::Value;

    /// The report on a dynamic program of glibc with this malloc.
    fn report(malloc: Allocator) -> Report {
        let mut report = inspector::inspect(b"!<arch>\n").expect("an empty archive");
        report.malloc = malloc;
        report
    }

    fn allocator(name: &str, version: Option<&str>, source: Source) -> Allocator {
        let evidence = vec![Evidence { source, detail: format!("{name} is seen") }];
        Allocator { name: name.to_owned(), version: version.map(str::to_owned), evidence, file: None }
    }

    fn bill(files: &[(&str, &Report)]) -> Value {
        let file = |(name, report): &(&str, _)| File {
            name: (*name).to_owned(),
            image: None,
            sha256: Some("00"),
            backup_of: name.strip_suffix(".allograft-stock").map(str::to_owned),
            result: Ok(*report),
        };
        let files: Vec<File<'_>> = files.iter().map(|pair| file(&(pair.0, pair.1))).collect();
        serde_json::from_str(&cyclonedx(&files).expect("a bill")).expect("JSON")
    }

    fn libraries(bill: &Value) -> Vec<&Value> {
        bill["components"].as_array().expect("a list").iter().filter(|it| it["type"] == "library").collect()
    }

    #[test]
    fn an_allocator_of_several_files_is_one_component() {
        let (one, other) =
            (allocator("snmalloc", Some("0.7.6"), Source::Note), allocator("none", None, Source::Symbols));
        let (one, other) = (report(one), report(other));
        let bill = bill(&[("a", &one), ("b", &one), ("c", &other), ("a", &one)]);
        let [library] = libraries(&bill)[..] else { panic!("{bill:#}") };
        assert_eq!(library["bom-ref"], "allocator:snmalloc@0.7.6");
        assert_eq!(library["purl"], "pkg:generic/snmalloc@0.7.6");
        assert_eq!(library["evidence"]["occurrences"].as_array().expect("a list").len(), 2);
        assert_eq!(library["licenses"][0]["expression"], donors::find("snmalloc").expect("a donor").license);
        let files: Vec<&Value> = bill["components"].as_array().expect("a list").iter().collect();
        assert_eq!(files.len(), 4, "{bill:#}");
        assert_eq!(bill["dependencies"][0]["dependsOn"][0], "allocator:snmalloc@0.7.6");
        assert_eq!(bill["dependencies"][2]["dependsOn"].as_array().expect("a list").len(), 0);
    }

    #[test]
    fn a_backup_is_a_file_without_allocators() {
        let (one, stock) = (
            report(allocator("snmalloc", Some("0.7.6"), Source::Note)),
            report(allocator("mallocng", None, Source::Code)),
        );
        let bill = bill(&[("a", &one), ("a.allograft-stock", &stock)]);
        let [library] = libraries(&bill)[..] else { panic!("{bill:#}") };
        assert_eq!(library["name"], "snmalloc");
        let backup = &bill["components"][1];
        assert_eq!((&backup["name"], &backup["type"]), (&"a.allograft-stock".into(), &"file".into()));
        let properties = backup["properties"].as_array().expect("a list");
        assert!(properties.iter().any(|it| it["name"] == "allograft:backup-of" && it["value"] == "a"), "{bill:#}");
        assert_eq!(bill["dependencies"][1]["dependsOn"].as_array().expect("a list").len(), 0);
    }

    #[test]
    fn what_is_unknown_is_no_component() {
        let unknown = report(allocator("unknown", None, Source::Symbols));
        let bill = bill(&[("a", &unknown)]);
        assert!(libraries(&bill).is_empty(), "{bill:#}");
        let properties = bill["components"][0]["properties"].as_array().expect("a list");
        let has = |name: &str, value: &str| properties.iter().any(|it| it["name"] == name && it["value"] == value);
        assert!(
            has("allograft:malloc", "unknown") && has("allograft:evidence", "symbols: unknown is seen"),
            "{bill:#}"
        );
    }

    #[test]
    fn a_line_of_releases_is_no_version() {
        let report = report(allocator("mimalloc", Some("2.x"), Source::Constants));
        let bill = bill(&[("a", &report)]);
        let [library] = libraries(&bill)[..] else { panic!("{bill:#}") };
        assert_eq!((&library["version"], &library["purl"]), (&Value::Null, &"pkg:generic/mimalloc".into()));
        assert_eq!(library["bom-ref"], "allocator:mimalloc@2.x");
        assert_eq!(library["properties"][0]["value"], "2.x");
    }

    #[test]
    fn the_strongest_evidence_counts() {
        let mut both = allocator("jemalloc", Some("5.3.1"), Source::Code);
        both.evidence.push(Evidence { source: Source::Symbols, detail: "a name".to_owned() });
        let report = report(both);
        let bill = bill(&[("a", &report)]);
        let identity = &libraries(&bill)[0]["evidence"]["identity"][0];
        assert_eq!(identity["confidence"], 0.9);
        assert_eq!(identity["methods"].as_array().expect("a list").len(), 2);
    }

    #[test]
    fn the_content_decides_the_serial_number() {
        let one = report(allocator("glibc", Some("2.36"), Source::Symbols));
        let serial = |name: &str| bill(&[(name, &one)])["serialNumber"].as_str().expect("a text").to_owned();
        assert_eq!(serial("a"), serial("a"));
        assert_ne!(serial("a"), serial("b"));
        // RFC 9562: version 8, and the variant of that document.
        let serial = serial("a");
        assert!(serial.starts_with("urn:uuid:") && serial.len() == 45, "{serial}");
        assert_eq!((serial.as_bytes()[23], b"89ab".contains(&serial.as_bytes()[28])), (b'8', true), "{serial}");
    }
}
