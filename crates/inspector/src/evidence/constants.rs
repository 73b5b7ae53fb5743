//! Finds the marks of [`super::catalogue`] in a file, and the version texts of some allocators.

use std::sync::OnceLock;

use aho_corasick::AhoCorasick;
use memchr::memmem::find;

use super::catalogue::{MARKS, Origin, glibc_banner, go_build_information};
use crate::report::name;

/// The marks and versions found in a file.
#[derive(Debug, Default)]
pub(crate) struct Constants {
    found: Vec<(Origin, Vec<&'static str>)>,
    /// The versions that constants state, by the allocator's name.
    versions: Vec<(&'static str, String)>,
}

impl Constants {
    /// Searches the loaded parts of a file.
    pub(crate) fn of(parts: &[&[u8]]) -> Self {
        let mut seen = vec![false; MARKS.len()];
        for part in parts {
            for found in searcher().find_iter(part) {
                seen[found.pattern().as_usize()] = true;
            }
        }
        let mut constants = Constants::default();
        let mut lines = Vec::new();
        for (mark, _) in MARKS.iter().zip(seen).filter(|(_, seen)| *seen) {
            match constants.found.iter_mut().find(|(origin, _)| *origin == mark.origin) {
                Some((_, details)) => details.push(mark.what),
                None => constants.found.push((mark.origin, vec![mark.what])),
            }
            lines.extend(mark.version);
        }
        constants.found.retain(|(origin, details)| details.len() >= origin.enough());
        // A matching prefix is not enough: jemalloc itself has to be there too.
        let jemalloc = constants.has(Origin::Jemalloc);
        constants.found.retain(|(origin, _)| *origin != Origin::JemallocPrefixed || jemalloc);
        if constants.has(Origin::Mimalloc) {
            lines.dedup();
            constants.state("mimalloc", lines.into_iter().map(str::to_owned).collect());
        }
        if jemalloc {
            let mut versions: Vec<String> = parts.iter().flat_map(|part| jemalloc_versions(part)).collect();
            versions.dedup();
            constants.state("jemalloc", versions);
        }
        if constants.has(Origin::Glibc) {
            constants.state(name::GLIBC, parts.iter().find_map(|part| glibc_version(part)).into_iter().collect());
        }
        if constants.has(Origin::Go) {
            constants.state("go", parts.iter().find_map(|part| go_version(part)).into_iter().collect());
        }
        constants
    }

    pub(crate) fn has(&self, origin: Origin) -> bool {
        self.found.iter().any(|(found, _)| *found == origin)
    }

    /// Returns every origin that was found, with a description of its marks.
    pub(crate) fn found(&self) -> impl Iterator<Item = (Origin, String)> + '_ {
        self.found.iter().map(|(origin, details)| (*origin, details.join("; ")))
    }

    /// Returns a description of the marks of one origin.
    pub(crate) fn details(&self, origin: Origin) -> Option<String> {
        self.found().find(|(found, _)| *found == origin).map(|(_, details)| details)
    }

    /// Returns the version of the named allocator, if a constant states it.
    pub(crate) fn version(&self, name: &str) -> Option<String> {
        self.versions.iter().find(|(known, _)| *known == name).map(|(_, version)| version.clone())
    }

    /// Records the version of an allocator, unless constants of several are there.
    fn state(&mut self, name: &'static str, versions: Vec<String>) {
        self.versions.extend(<[_; 1]>::try_from(versions).ok().map(|[version]| (name, version)));
    }

    /// Returns the allocators in the file, without musl's and the Go runtime's: those that may serve `malloc` or a
    /// language.
    pub(crate) fn others(&self) -> Vec<(Origin, String)> {
        let prefixed = self.has(Origin::JemallocPrefixed);
        let known = [Origin::Mallocng, Origin::Oldmalloc, Origin::Glibc];
        self.found()
            .filter(|(origin, _)| match origin {
                Origin::Jemalloc => !prefixed,
                Origin::JemallocPrefixed => true,
                other => other.serves_malloc() && !known.contains(other),
            })
            .collect()
    }
}

/// Searches for all marks at once, so that a file is read only once.
fn searcher() -> &'static AhoCorasick {
    static SEARCHER: OnceLock<AhoCorasick> = OnceLock::new();
    SEARCHER.get_or_init(|| {
        let marks = MARKS.iter().map(|mark| mark.bytes());
        // The marks are constants of this program and its tests search for them, so this cannot fail.
        AhoCorasick::new(marks).expect("the marks make a searcher")
    })
}

/// Finds jemalloc's JEMALLOC_VERSION, `5.3.0-0-g` and 40 hexadecimal digits. Returns each part before the first dash.
fn jemalloc_versions(data: &[u8]) -> Vec<String> {
    let mut versions = Vec::new();
    let mut from = 0;
    while let Some(place) = data.get(from..).and_then(|rest| find(rest, b"-g")).map(|place| from + place) {
        from = place + 2;
        let hash = data.get(from..from + 40).unwrap_or_default();
        if hash.len() != 40 || !hash.iter().all(u8::is_ascii_hexdigit) {
            continue;
        }
        let before = &data[place.saturating_sub(24)..place];
        let start =
            before.iter().rposition(|byte| !byte.is_ascii_digit() && !b".-".contains(byte)).map_or(0, |at| at + 1);
        let text = String::from_utf8_lossy(&before[start..]);
        let version = text.split('-').next().unwrap_or_default();
        if version.split('.').count() == 3 && version.split('.').all(|number| !number.is_empty()) {
            versions.push(version.to_owned());
        }
    }
    versions
}

/// Finds the release in glibc's banner (csu/version.c): `GNU C Library (NAME) stable release version 2.36.`
fn glibc_version(data: &[u8]) -> Option<String> {
    let banner = data.get(find(data, &glibc_banner())?..)?;
    let banner = banner.get(..512).unwrap_or(banner);
    let text = &banner[find(banner, b" release version ")? + 17..];
    let number: Vec<u8> = text.iter().copied().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').collect();
    let number = String::from_utf8(number).ok()?.trim_end_matches('.').to_owned();
    number.starts_with("2.").then_some(number)
}

/// Finds the version in Go's build information. Since 1.18 it follows in line, 32 bytes after the start
/// (debug/buildinfo). The start is aligned to 16 bytes.
fn go_version(data: &[u8]) -> Option<String> {
    let start = find(data, &go_build_information())?;
    let inline = data.get(start + 15)? & 2 != 0;
    let length = usize::from(*data.get(start + 32)?);
    let text = std::str::from_utf8(data.get(start + 33..start + 33 + length)?).ok()?;
    (inline && text.starts_with("go1")).then(|| text.trim_start_matches("go").to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mark_is_found_when_all_of_its_kind_are_there() {
        for mark in MARKS {
            let mut data = vec![0xaau8; 100];
            for other in MARKS.iter().filter(|other| other.origin == mark.origin) {
                data.extend(other.bytes());
                data.extend([0xaa; 9]);
            }
            if mark.origin == Origin::JemallocPrefixed {
                for other in MARKS.iter().filter(|other| other.origin == Origin::Jemalloc) {
                    data.extend(other.bytes());
                }
            }
            let constants = Constants::of(&[&data]);
            let expected = MARKS.iter().filter(|other| other.origin == mark.origin).count();
            let details = &constants.found.iter().find(|(origin, _)| *origin == mark.origin).unwrap().1;
            assert_eq!(details.len(), expected, "{:?}: {details:?}", mark.origin);
        }
    }

    #[test]
    fn each_mark_is_found_alone() {
        for (place, mark) in MARKS.iter().enumerate() {
            let data = [b"\xaa\xaa\xaa".as_slice(), &mark.bytes(), b"\xaa"].concat();
            let found: Vec<usize> = searcher().find_iter(&data).map(|found| found.pattern().as_usize()).collect();
            assert_eq!(found, [place], "{}", mark.what);
        }
    }

    #[test]
    fn this_program_does_not_carry_the_marks_that_it_looks_for() {
        let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let found: Vec<Origin> = Constants::of(&[&program]).found.iter().map(|(origin, _)| *origin).collect();
        // Tests contain the texts of Rust's library, as every Rust program does.
        assert_eq!(found, [Origin::Rust]);
    }

    #[test]
    fn one_mark_is_not_enough_where_it_could_be_chance() {
        let marks = |origin: Origin, most: usize| -> Vec<u8> {
            MARKS.iter().filter(|mark| mark.origin == origin).take(most).flat_map(|mark| mark.bytes()).collect()
        };
        assert!(!Constants::of(&[&marks(Origin::Jemalloc, 1)]).has(Origin::Jemalloc));
        assert!(Constants::of(&[&marks(Origin::Jemalloc, 2)]).has(Origin::Jemalloc));
        assert!(!Constants::of(&[&marks(Origin::JemallocPrefixed, 2)]).has(Origin::JemallocPrefixed));
    }

    #[test]
    fn the_two_lines_of_mimalloc_are_told_apart() {
        let table = |line: &str| {
            let mut marks = MARKS.iter().filter(|mark| mark.version == Some(line));
            let prefix = MARKS.iter().find(|mark| mark.origin == Origin::Mimalloc && mark.version.is_none());
            [prefix, marks.next()].iter().flat_map(|mark| mark.unwrap().bytes()).collect::<Vec<u8>>()
        };
        let (two, three) = (table("2.x"), table("3.x"));
        assert_eq!(Constants::of(&[&two]).version("mimalloc").as_deref(), Some("2.x"));
        assert_eq!(Constants::of(&[&three]).version("mimalloc").as_deref(), Some("3.x"));
        assert_eq!(Constants::of(&[&two, &three]).version("mimalloc"), None);
    }

    #[test]
    fn versions_are_read() {
        let text = b"\0 5.3.1-0-g54eaed1d8b56b1aa528be3bdd1877e59c56fa90c\0";
        assert_eq!(jemalloc_versions(text), ["5.3.1"]);
        assert!(jemalloc_versions(b"-g54eaed1d8b56b1aa528be3bdd1877e59c56fa90c").is_empty());
        assert!(jemalloc_versions(b"1.2-g5").is_empty());
        let mut go = go_build_information();
        go.extend(b"\x08\x02");
        go.resize(32, 0);
        go.extend(b"\x08go1.24.1");
        assert_eq!(go_version(&go).as_deref(), Some("1.24.1"));
        for cut in 0..go.len() {
            go_version(&go[..cut]);
        }
        let banner = |rest: &str| glibc_version(&[b"\0", &glibc_banner()[..], rest.as_bytes()].concat());
        assert_eq!(banner("Debian GLIBC 2.36-9) stable release version 2.36.\nCopyright").as_deref(), Some("2.36"));
        assert_eq!(banner("GNU libc) development release version 2.36.9000.\n").as_deref(), Some("2.36.9000"));
        assert_eq!(banner("GNU libc) stable release"), None);
    }
}
