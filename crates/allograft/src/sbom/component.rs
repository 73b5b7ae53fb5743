//! A file, and an allocator that files carry, as components.

use std::collections::BTreeSet;

use cyclonedx::{Component, Hash, Identity, License, Method, Occurrence, Proof, Property, Reference, Supplier};
use inspector::{Allocator, Evidence, Report, Source, name};
use serde::Serialize;

use super::File;
use super::upstream;

/// Returns the allocators that a report names, each with what it serves.
pub(super) fn allocators(report: &Report) -> impl Iterator<Item = (&'static str, &Allocator)> {
    let others = [("language", report.language_allocator.as_ref()), ("libc", report.libc_allocator.as_ref())];
    [("malloc", &report.malloc)]
        .into_iter()
        .chain(others.into_iter().filter_map(|(role, allocator)| Some((role, allocator?))))
}

/// An allocator that a file carries: not an unknown one, and not none.
#[derive(Debug, Clone, Copy)]
pub(super) struct Carried<'a> {
    name: &'a str,
    version: Option<&'a str>,
}

impl<'a> Carried<'a> {
    pub(super) fn from_allocator(allocator: &'a Allocator) -> Option<Carried<'a>> {
        let is_one = !matches!(allocator.name.as_str(), name::UNKNOWN | name::NONE);
        is_one.then(|| Carried { name: &allocator.name, version: allocator.version.as_deref() })
    }

    /// Returns the name by which other parts of the document refer to it.
    pub(super) fn reference(self) -> String {
        match self.version {
            Some(version) => format!("allocator:{}@{version}", self.name),
            None => format!("allocator:{}", self.name),
        }
    }

    /// Returns the version, unless it is a line of releases (`2.x`) or a bound (`>=2.34`).
    fn exact(self) -> Option<&'a str> {
        self.version.filter(|version| !version.starts_with(['<', '>', '~']) && !version.ends_with(".x"))
    }

    /// Returns the package URL. `generic`: no registry has these packages, and scanners take `pkg:github` for actions.
    fn purl(self) -> String {
        let name = encoded(self.name);
        match self.exact() {
            Some(version) => format!("pkg:generic/{name}@{}", encoded(version)),
            None => format!("pkg:generic/{name}"),
        }
    }
}

/// Returns the text with all but unreserved characters percent-encoded (RFC 3986, section 2.3; purl-spec).
fn encoded(text: &str) -> String {
    let one = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-' | b'_' | b'~' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(one).collect()
}

/// An allocator with the files that it was found in.
#[derive(Debug)]
pub(super) struct CarriedFiles<'a> {
    carried: Carried<'a>,
    sources: BTreeSet<Source>,
    occurrences: Vec<Occurrence>,
}

impl<'a> CarriedFiles<'a> {
    pub(super) fn new(carried: Carried<'a>) -> CarriedFiles<'a> {
        CarriedFiles { carried, sources: BTreeSet::new(), occurrences: Vec::new() }
    }

    /// Adds a file in which the allocator serves `role`.
    pub(super) fn add(&mut self, file: &File<'_>, role: &str, allocator: &Allocator) {
        self.sources.extend(allocator.evidence.iter().map(|evidence| evidence.source));
        let (location, whose) = match &allocator.file {
            Some(library) => (file.placed(library), format!("{role} of {}", file.name)),
            None => (file.placed(&file.name), role.to_owned()),
        };
        self.occurrences.push(Occurrence { location, context: whose });
    }

    /// Returns the component.
    pub(super) fn component(self) -> Component {
        let carried = self.carried;
        let methods: Vec<Method> = self.sources.into_iter().map(method).collect();
        let confidence = methods.iter().map(|method| method.confidence).fold(0.0, f64::max);
        let identity = Identity { field: "name", confidence, concluded: carried.name.to_owned(), methods };
        let upstream = upstream::find(carried.name);
        let homepage = upstream.as_ref().map(|upstream| upstream.homepage.to_owned());
        let license = upstream.and_then(|upstream| upstream.license);
        let bound = carried.version.filter(|_| carried.exact().is_none());
        Component {
            kind: "library",
            reference: carried.reference(),
            supplier: homepage.clone().map(|page| Supplier { name: supplier(&page).to_owned(), url: vec![page] }),
            name: carried.name.to_owned(),
            version: carried.exact().map(str::to_owned),
            description: Some("an allocator"),
            licenses: license
                .map(|expression| License { expression: expression.to_owned(), acknowledgement: "declared" })
                .into_iter()
                .collect(),
            purl: Some(carried.purl()),
            references: homepage
                .map(|url| Reference { kind: "website", url, hashes: Vec::new() })
                .into_iter()
                .collect(),
            properties: bound.map(|bound| property("allograft:version", bound)).into_iter().collect(),
            evidence: Some(Proof { identity: vec![identity], occurrences: self.occurrences }),
            ..Component::default()
        }
    }
}

/// Returns who makes what has this page: the page's host or, of a repository, its owner.
fn supplier(homepage: &str) -> &str {
    let (_, address) = homepage.split_once("://").unwrap_or(("", homepage));
    let mut parts = address.split('/');
    let host = parts.next().unwrap_or_default();
    match (host, parts.next()) {
        ("github.com", Some(owner)) => owner,
        _ => host.trim_start_matches("www."),
    }
}

/// Returns the method behind a kind of evidence. The figures are an order, not measured probabilities: a note is made
/// for this question; names and code show what serves; constants show what is there, and what serves by what else is.
fn method(source: Source) -> Method {
    let (technique, confidence) = match source {
        Source::Note => ("manifest-analysis", 1.0),
        Source::Loader => ("binary-analysis", 0.95),
        Source::Symbols | Source::Code => ("binary-analysis", 0.9),
        Source::Constants => ("binary-analysis", 0.8),
    };
    Method { technique, confidence, value: source.to_string() }
}

/// Returns the component of a file.
pub(super) fn file(file: &File<'_>) -> Component {
    let hash = |content: &str| Hash { alg: "SHA-256", content: content.to_owned() };
    let backup = file.backup_of.as_deref().map(|host| property("allograft:backup-of", host));
    let place = file.image.map(|image| property("allograft:image", image)).into_iter().chain(backup);
    Component {
        kind: "file",
        reference: format!("file:{}", file.placed(&file.name)),
        name: file.name.clone(),
        hashes: file.sha256.map(hash).into_iter().collect(),
        properties: match &file.result {
            Ok(report) => place.chain(properties(report)).collect(),
            Err(reason) => place.chain([property("allograft:error", reason)]).collect(),
        },
        ..Component::default()
    }
}

fn property(name: &'static str, value: impl Into<String>) -> Property {
    Property { name, value: value.into() }
}

/// Returns the word for a value that the document of `inspect --json` has.
fn spelt(value: impl Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| Some(value.as_str()?.to_owned())).unwrap_or_default()
}

fn properties(report: &Report) -> Vec<Property> {
    let mut properties =
        vec![property("allograft:kind", spelt(report.kind)), property("allograft:arch", report.arch.to_string())];
    properties.extend(report.link.map(|link| property("allograft:link", spelt(link))));
    properties.push(property("allograft:libc", spelt(report.libc)));
    properties.extend(report.libc_version.as_deref().map(|version| property("allograft:libc-version", version)));
    properties.push(property("allograft:malloc", &report.malloc.name));
    properties.extend(report.malloc.version.as_deref().map(|version| property("allograft:malloc-version", version)));
    properties.extend(report.malloc.file.as_deref().map(|file| property("allograft:malloc-file", file)));
    let others = [
        ("allograft:language-allocator", &report.language_allocator),
        ("allograft:libc-allocator", &report.libc_allocator),
    ];
    properties.extend(others.into_iter().filter_map(|(name, other)| Some(property(name, &other.as_ref()?.name))));
    properties.push(property("allograft:strings", spelt(report.strings)));
    let seen = |Evidence { source, detail }: &Evidence| property("allograft:evidence", format!("{source}: {detail}"));
    properties.extend(allocators(report).flat_map(|(_, allocator)| &allocator.evidence).map(seen));
    properties
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suppliers_are_owners_or_hosts() {
        assert_eq!(supplier("https://github.com/microsoft/snmalloc"), "microsoft");
        assert_eq!(supplier("https://www.gnu.org/software/libc/"), "gnu.org");
        assert_eq!(supplier("https://musl.libc.org/"), "musl.libc.org");
    }

    #[test]
    fn package_urls_have_no_reserved_characters() {
        let carried = Carried { name: "rpmalloc", version: Some("1.4.3+b0 9/d") };
        assert_eq!(carried.purl(), "pkg:generic/rpmalloc@1.4.3%2Bb0%209%2Fd");
        let bound = Carried { name: "glibc", version: Some(">=2.34") };
        assert_eq!((bound.purl().as_str(), bound.exact()), ("pkg:generic/glibc", None));
    }
}
