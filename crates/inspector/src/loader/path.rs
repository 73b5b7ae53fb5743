//! Expands the variables in paths of a dynamic section: the file's own folder, the library folder and the processor.

use crate::loader::configuration::folder_of;

/// The longest search path that is followed, in bytes.
const LONGEST: usize = 1 << 20;

/// The values of the variables in a path.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tokens<'p> {
    /// The path of the file that has the path.
    pub(super) file: &'p [u8],
    /// The value of `$LIB`.
    pub(super) library: &'p [u8],
    /// The possible values of `$PLATFORM`.
    pub(super) processors: &'p [Vec<u8>],
}

/// Returns the possible expansions of a path with tokens: several with `$PLATFORM`, none if it is unknown (glibc
/// elf/dl-load.c, `_dl_dst_substitute`).
pub(super) fn expanded(path: &[u8], tokens: &Tokens<'_>) -> Vec<Vec<u8>> {
    // The kernel accepts no longer path (PATH_MAX).
    if path.len() >= 4096 {
        return Vec::new();
    }
    let mut paths = vec![Vec::new()];
    let mut rest = path;
    while let Some(place) = memchr::memchr(b'$', rest) {
        let (before, dollar) = rest.split_at(place);
        let (stands_for, length): (Vec<&[u8]>, usize) = if let Some(length) = token(dollar, b"ORIGIN") {
            let origin = folder_of(tokens.file);
            (vec![if origin.is_empty() { b"/" } else { origin }], length)
        } else if let Some(length) = token(dollar, b"LIB") {
            (vec![tokens.library], length)
        } else if let Some(length) = token(dollar, b"PLATFORM") {
            (tokens.processors.iter().map(Vec::as_slice).collect(), length)
        } else {
            (vec![b"$"], 1)
        };
        paths = stands_for
            .into_iter()
            .flat_map(|part| paths.iter().map(move |path| [path.as_slice(), before, part].concat()))
            .take(16)
            .collect();
        rest = &dollar[length..];
    }
    paths.into_iter().map(|path| [&path, rest].concat()).collect()
}

/// Returns the length of a token at the start of a text.
fn token(text: &[u8], name: &[u8]) -> Option<usize> {
    let inside = &text[1..];
    if let Some(curly) = inside.strip_prefix(b"{") {
        return curly.strip_prefix(name)?.starts_with(b"}").then_some(name.len() + 3);
    }
    inside.starts_with(name).then_some(name.len() + 1)
}

/// Returns musl's reading of a search path: only `$ORIGIN` is known, and with any other token the path does not count
/// (musl ldso/dynlink.c, `fixup_rpath`).
pub(super) fn expanded_by_musl(path: &[u8], file: &[u8]) -> Option<Vec<u8>> {
    let mut result = Vec::new();
    let mut rest = path;
    while let Some(place) = memchr::memchr(b'$', rest) {
        result.extend(&rest[..place]);
        result.extend(folder_of(file));
        rest = &rest[place + token(&rest[place..], b"ORIGIN")?..];
        if result.len() > LONGEST {
            return None;
        }
    }
    result.extend(rest);
    Some(result)
}

/// Removes empty parts, `.` and `..` from an absolute path, as text.
pub(super) fn normalised(path: &[u8]) -> Vec<u8> {
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in path.split(|&byte| byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    let mut path: Vec<u8> = parts.into_iter().flat_map(|part| [b"/", part].concat()).collect();
    path.push(b'/');
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_stand_for_folders() {
        let processors = [b"haswell".to_vec(), b"x86_64".to_vec()];
        let tokens = Tokens { file: b"/opt/bin/tool", library: b"lib64", processors: &processors };
        let all = |path: &str| -> Vec<String> {
            expanded(path.as_bytes(), &tokens).into_iter().map(|path| String::from_utf8(path).unwrap()).collect()
        };
        assert_eq!(all("$ORIGIN/../lib"), ["/opt/bin/../lib"]);
        assert_eq!(all("${ORIGIN}x/$LIB"), ["/opt/binx/lib64"]);
        assert_eq!(all("/a/${PLATFORM}/b"), ["/a/haswell/b", "/a/x86_64/b"]);
        assert_eq!(all("/a/$HOME/${ORIGIN"), ["/a/$HOME/${ORIGIN"]);
        assert_eq!(all(&"$PLATFORM".repeat(100)).len(), 16);
    }

    #[test]
    fn musl_knows_one_token() {
        assert_eq!(expanded_by_musl(b"$ORIGIN/a:${ORIGIN}", b"/x/y"), Some(b"/x/a:/x".to_vec()));
        assert_eq!(expanded_by_musl(b"/a:$LIB", b"/x/y"), None);
    }

    #[test]
    fn paths_are_made_plain() {
        assert_eq!(normalised(b"/usr//lib/./x/../"), b"/usr/lib/");
        assert_eq!(normalised(b"/../.."), b"/");
    }
}
