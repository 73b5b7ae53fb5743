//! Finds the marks of the known allocators in a file, and the version texts of some allocators. A mark shows that an
//! allocator is in the file, not that it serves `malloc`: a program may have a `malloc` of its own beside it.

use std::sync::OnceLock;

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use known::{Mark, Row, unveil, veiled};
use memchr::memmem::find;

use crate::report::name;

/// The marks and versions found in a file.
#[derive(Debug, Default)]
pub(crate) struct Constants {
    found: Vec<(&'static Row, Vec<&'static str>)>,
    /// The versions that constants state, by the allocator's name.
    versions: Vec<(&'static str, String)>,
}

impl Constants {
    /// Searches the loaded parts of a file.
    pub(crate) fn search(parts: &[&[u8]]) -> Self {
        let mut seen = vec![false; marks().count()];
        for part in parts {
            for found in searcher().find_iter(part) {
                seen[found.pattern().as_usize()] = true;
            }
        }
        let mut constants = Constants::default();
        let mut lines = Vec::new();
        for ((row, mark), _) in marks().zip(seen).filter(|(_, seen)| *seen) {
            match constants.found.iter_mut().find(|(known, _)| known.id == row.id) {
                Some((_, details)) => details.push(mark.what),
                None => constants.found.push((row, vec![mark.what])),
            }
            lines.extend(mark.version);
        }
        constants.found.retain(|(row, details)| details.len() >= row.enough);
        // The marks of a special build are not enough: the allocator itself has to be there too.
        let there: Vec<&str> = constants.found.iter().map(|(row, _)| row.id).collect();
        constants.found.retain(|(row, _)| row.build_of.is_none_or(|of| there.contains(&of)));
        if constants.has("mimalloc") {
            lines.dedup();
            constants.state("mimalloc", lines.into_iter().map(str::to_owned).collect());
        }
        if constants.has("jemalloc") {
            let mut versions: Vec<String> = parts.iter().flat_map(|part| jemalloc_versions(part)).collect();
            versions.dedup();
            constants.state("jemalloc", versions);
        }
        if constants.has(name::GLIBC) {
            constants.state(name::GLIBC, parts.iter().find_map(|part| glibc_version(part)).into_iter().collect());
        }
        if constants.has(name::GO) {
            constants.state(name::GO, parts.iter().find_map(|part| go_version(part)).into_iter().collect());
        }
        constants
    }

    /// Whether the row of that id was found.
    pub(crate) fn has(&self, id: &str) -> bool {
        self.details_of(id).is_some()
    }

    /// The marks of the row of that id, if it was found.
    fn details_of(&self, id: &str) -> Option<&[&'static str]> {
        debug_assert!(known::ROWS.iter().any(|row| row.id == id), "no row is called `{id}`");
        self.found.iter().find(|(row, _)| row.id == id).map(|(_, details)| details.as_slice())
    }

    /// Returns every row that was found, with a description of its marks.
    pub(crate) fn found(&self) -> impl Iterator<Item = (&'static Row, String)> + '_ {
        self.found.iter().map(|(row, details)| (*row, details.join("; ")))
    }

    /// Returns a description of the marks of one row.
    pub(crate) fn details(&self, id: &str) -> Option<String> {
        Some(self.details_of(id)?.join("; "))
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
    pub(crate) fn others(&self) -> Vec<(&'static Row, String)> {
        let is_built = |row: &Row| self.found.iter().any(|(other, _)| other.build_of == Some(row.id));
        self.found()
            .filter(|(row, _)| row.build_of.is_some() || (row.serves_malloc && !row.is_libcs() && !is_built(row)))
            .collect()
    }
}

/// All marks, with their rows.
fn marks() -> impl Iterator<Item = (&'static Row, &'static Mark)> {
    known::ROWS.iter().flat_map(|row| row.marks.iter().map(move |mark| (row, mark)))
}

/// Go cmd/link: returns the start of the build information.
fn go_build_information() -> Vec<u8> {
    static MAGIC: &[u8] = &veiled(b"\xff Go buildinf:");
    unveil(MAGIC)
}

/// glibc csu/version.c: returns the start of the banner.
fn glibc_banner() -> Vec<u8> {
    static BANNER: &[u8] = &veiled(b"GNU C Library (");
    unveil(BANNER)
}

/// Searches for all marks at once, so that a file is read only once. Only for the leftmost match does the library look
/// at many bytes at a time, which takes a half to a quarter of a table of states.
fn searcher() -> &'static AhoCorasick {
    static SEARCHER: OnceLock<AhoCorasick> = OnceLock::new();
    SEARCHER.get_or_init(|| {
        let marks = marks().map(|(_, mark)| mark.bytes());
        // The marks are constants of this program and its tests search for them, so this cannot fail.
        let mut builder = AhoCorasick::builder();
        builder.match_kind(MatchKind::LeftmostFirst).kind(Some(AhoCorasickKind::ContiguousNFA));
        builder.build(marks).expect("the marks make a searcher")
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
        for row in known::ROWS.iter().filter(|row| !row.marks.is_empty()) {
            let mut data = vec![0xaau8; 100];
            for (_, mark) in marks().filter(|(other, _)| other.id == row.id || row.build_of == Some(other.id)) {
                data.extend(mark.bytes());
                data.extend([0xaa; 9]);
            }
            let constants = Constants::search(&[&data]);
            let details = &constants.found.iter().find(|(found, _)| found.id == row.id).unwrap().1;
            assert_eq!(details.len(), row.marks.len(), "{}: {details:?}", row.id);
        }
    }

    #[test]
    fn each_mark_is_found_alone() {
        for (place, (_, mark)) in marks().enumerate() {
            let data = [b"\xaa\xaa\xaa".as_slice(), &mark.bytes(), b"\xaa"].concat();
            let found: Vec<usize> = searcher().find_iter(&data).map(|found| found.pattern().as_usize()).collect();
            assert_eq!(found, [place], "{}", mark.what);
        }
    }

    #[test]
    fn this_program_does_not_carry_the_marks_that_it_looks_for() {
        let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let found: Vec<&str> = Constants::search(&[&program]).found.iter().map(|(row, _)| row.id).collect();
        // Tests contain the texts of Rust's library, as every Rust program does.
        assert_eq!(found, ["rust"]);
    }

    #[test]
    fn one_mark_is_not_enough_where_it_could_be_chance() {
        let marks = |id: &str, most: usize| -> Vec<u8> {
            marks().filter(|(row, _)| row.id == id).take(most).flat_map(|(_, mark)| mark.bytes()).collect()
        };
        assert!(!Constants::search(&[&marks("jemalloc", 1)]).has("jemalloc"));
        assert!(Constants::search(&[&marks("jemalloc", 2)]).has("jemalloc"));
        assert!(!Constants::search(&[&marks("jemalloc-of-rust", 2)]).has("jemalloc-of-rust"));
    }

    #[test]
    fn the_two_lines_of_mimalloc_are_told_apart() {
        let table = |line: &str| {
            let table = marks().find(|(_, mark)| mark.version == Some(line));
            let prefix = marks().find(|(row, mark)| row.id == "mimalloc" && mark.version.is_none());
            [prefix, table].iter().flat_map(|mark| mark.unwrap().1.bytes()).collect::<Vec<u8>>()
        };
        let (two, three) = (table("2.x"), table("3.x"));
        assert_eq!(Constants::search(&[&two]).version("mimalloc").as_deref(), Some("2.x"));
        assert_eq!(Constants::search(&[&three]).version("mimalloc").as_deref(), Some("3.x"));
        assert_eq!(Constants::search(&[&two, &three]).version("mimalloc"), None);
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
