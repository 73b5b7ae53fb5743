//! The words of a compiler's command line: those of response files too, and what they ask for.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use crate::failure::Failure;

/// Options of `allograft cc`, all of which take a value.
const OWN: [&str; 5] = ["--cc", "--donor", "--profile", "--strings", "--set"];

/// The number of response files that are read: one may name itself.
const FILES: usize = 1000;

/// Options of gcc and clang whose value may be the next word (gcc's `common.opt`, `c.opt` and `*.opt`, where they are
/// `Separate`; clang's `Options.td`).
const TAKES_VALUE: [&str; 40] = [
    "-o",
    "-x",
    "-T",
    "-u",
    "-z",
    "-e",
    "-I",
    "-L",
    "-D",
    "-U",
    "-B",
    "-F",
    "-include",
    "-imacros",
    "-idirafter",
    "-iprefix",
    "-iwithprefix",
    "-iwithprefixbefore",
    "-isystem",
    "-iquote",
    "-isysroot",
    "-imultilib",
    "-MF",
    "-MT",
    "-MQ",
    "-Xlinker",
    "-Xassembler",
    "-Xpreprocessor",
    "-Xclang",
    "-Xanalyzer",
    "-mllvm",
    "-target",
    "-arch",
    "--param",
    "-aux-info",
    "-dumpbase",
    "-dumpdir",
    "-wrapper",
    "--sysroot",
    "-specs",
];

/// Words with which no program is linked.
const NO_LINK: [&str; 16] = [
    "-c",
    "-S",
    "-E",
    "-M",
    "-MM",
    "-fsyntax-only",
    "-shared",
    "--shared",
    "-r",
    "--relocatable",
    "-###",
    "--version",
    "--target-help",
    "--analyze",
    "--precompile",
    "-emit-ast",
];

/// The beginnings of words that ask the compiler about itself.
const QUESTIONS: [&str; 4] = ["-print-", "--print-", "-dump", "--help"];

/// Sanitizers that bring a malloc of their own.
const SANITIZERS: [&str; 5] = ["address", "hwaddress", "leak", "memory", "thread"];

/// Returns the place of the compiler's first word in a command line of this program, if the command is `cc` and there
/// is one. A user's own `--` has that effect already.
pub(super) fn first_foreign(arguments: &[OsString]) -> Option<usize> {
    let text = |at: usize| arguments.get(at).map(|word| word.to_string_lossy());
    let mut at = 1;
    while let Some(word) = text(at).filter(|word| word.starts_with('-')) {
        at += if word == "--color" { 2 } else { 1 };
    }
    text(at).filter(|word| word == "cc")?;
    at += 1;
    while let Some(word) = text(at) {
        at += match word.split_once('=') {
            Some((name, _)) if OWN.contains(&name) => 1,
            None if OWN.contains(&&*word) => 2,
            _ if word == "--" => return None,
            _ => return Some(at),
        };
    }
    None
}

/// Returns the words with those of response files (`@FILE`) in their place, as gcc and clang read them. A name without
/// a file stays a word.
///
/// # Errors
/// A file cannot be read: the compiler might read it a moment later.
pub(in crate::command) fn expanded(words: &[OsString]) -> Result<Vec<OsString>, Failure> {
    let mut waiting: Vec<OsString> = words.iter().rev().cloned().collect();
    let (mut done, mut files) = (Vec::new(), 0);
    while let Some(word) = waiting.pop() {
        let file = word.as_bytes().strip_prefix(b"@").filter(|_| files < FILES);
        let file = file.map(|file| Path::new(OsStr::from_bytes(file)));
        match file.map(|file| (file, fs::read(file))) {
            Some((_, Ok(text))) => {
                files += 1;
                waiting.extend(split(&text).into_iter().rev().map(OsString::from_vec));
            }
            Some((file, Err(error))) if !is_no_file(error.kind()) => return Err(Failure::io("read", file)(error)),
            _ => done.push(word),
        }
    }
    Ok(done)
}

/// Whether there is no file of a name: the linker has words such as `@loader_path/..`.
fn is_no_file(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::IsADirectory | ErrorKind::InvalidFilename
    )
}

/// Splits a text at blanks. Quotes of both kinds keep blanks, and a backslash keeps the next character (gcc's manual,
/// Overall Options, `@file`).
pub(super) fn split(text: &[u8]) -> Vec<Vec<u8>> {
    let mut words = Vec::new();
    let mut word: Option<Vec<u8>> = None;
    let mut quote = None;
    let mut bytes = text.iter().copied();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => word.get_or_insert_default().extend(bytes.next()),
            _ if quote == Some(byte) => quote = None,
            b'"' | b'\'' if quote.is_none() => {
                quote = Some(byte);
                word.get_or_insert_default();
            }
            _ if quote.is_none() && byte.is_ascii_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(byte),
        }
    }
    words.extend(word);
    words
}

/// Returns the options: all words but the values of others.
fn options(words: &[OsString]) -> impl Iterator<Item = &[u8]> {
    let mut is_value = false;
    words.iter().map(|word| word.as_bytes()).filter(move |word| {
        let skipped = is_value;
        is_value = !skipped && TAKES_VALUE.iter().any(|option| option.as_bytes() == *word);
        !skipped
    })
}

/// Whether the compiler may link a program: it has something to link, and no word says otherwise.
pub(in crate::command) fn may_link(words: &[OsString]) -> bool {
    let is_input = |word: &[u8]| !word.starts_with(b"-") || word == b"-" || word.starts_with(b"-l");
    let asks = |word: &[u8]| QUESTIONS.iter().any(|start| word.starts_with(start.as_bytes()));
    let forbids = |word: &[u8]| NO_LINK.iter().any(|known| known.as_bytes() == word) || asks(word);
    options(words).any(is_input) && !options(words).any(forbids)
}

/// Returns the flag that makes a link static, unless one is there. `-static` wins over `-pie`, in gcc and in clang.
pub(super) fn static_link(words: &[OsString]) -> Option<&'static str> {
    let is_there = options(words).any(|word| [&b"-static"[..], b"--static", b"-static-pie"].contains(&word));
    (!is_there).then_some("-static")
}

/// Returns the flag that turns a sanitizer with a malloc of its own on, if none turns it off again.
pub(in crate::command) fn sanitizer(words: &[OsString]) -> Option<String> {
    let mut on: Vec<(&str, &str)> = Vec::new();
    for word in options(words).filter_map(|word| std::str::from_utf8(word).ok()) {
        if let Some(names) = word.strip_prefix("-fsanitize=") {
            on.extend(names.split(',').filter(|name| SANITIZERS.contains(name)).map(|name| (name, word)));
        } else if let Some(names) = word.strip_prefix("-fno-sanitize=") {
            on.retain(|(name, _)| !names.split(',').any(|off| off == "all" || off == *name));
        }
    }
    on.first().map(|(_, word)| (*word).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        split(text.as_bytes()).into_iter().map(OsString::from_vec).collect()
    }

    #[test]
    fn own_options_end_at_the_first_other_word() {
        let foreign = |text: &str| first_foreign(&words(text));
        assert_eq!(foreign("allograft cc -v"), Some(2));
        assert_eq!(foreign("allograft cc --version"), Some(2));
        assert_eq!(foreign("allograft -v cc --donor jemalloc --set=a=1 -O2 --donor"), Some(6));
        assert_eq!(foreign("allograft --color never cc --cc 'ccache musl-gcc' x.c --cc y"), Some(6));
        assert_eq!(foreign("allograft cc --donor"), None);
        assert_eq!(foreign("allograft cc -- -v"), None, "the user has said it");
        for other in ["allograft", "allograft graft cc", "allograft --version", "allograft -v"] {
            assert_eq!(foreign(other), None, "{other}");
        }
    }

    #[test]
    fn what_is_quoted_stays_one_word() {
        let split = |text: &str| words(text).iter().map(|word| word.to_str().unwrap().to_owned()).collect::<Vec<_>>();
        assert_eq!(split(" a  'b c'\n\"d \\\" e\"f\\ g '' \t"), ["a", "b c", "d \" ef g", ""]);
        assert_eq!(split("-o 'it''s' \"half"), ["-o", "its", "half"]);
        assert!(split(" \n").is_empty());
    }

    #[test]
    fn response_files_are_read_where_they_stand() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        fs::write(path("one"), format!("-c '@{}' @/no/such/file", path("two words"))).unwrap();
        fs::write(path("two words"), "-o x.o").unwrap();
        let given = [OsString::from("-O2"), format!("@{}", path("one")).into(), "x.c".into()];
        assert_eq!(expanded(&given).unwrap(), words("-O2 -c -o x.o @/no/such/file x.c"));
        // One that names itself ends.
        fs::write(path("one"), format!("-c @{}", path("one"))).unwrap();
        assert!(expanded(&given).unwrap().len() > FILES);
    }

    #[test]
    fn what_links_a_program() {
        for links in ["x.c", "-O2 -o x x.o -lm", "-", "-MD -MF -c x.c", "-Xlinker -E x.o", "-o -c x.c", "-v x.c -lfoo"]
        {
            assert!(may_link(&words(links)), "{links}");
        }
        for other in ["", "-v", "-c x.c", "-E -", "x.c -S", "-MM x.c", "x.o -shared -o x.so", "-r x.o", "--version"] {
            assert!(!may_link(&words(other)), "{other}");
        }
        for other in ["x.c --version", "-print-search-dirs", "x.c -print-file-name=libc.a", "-dumpmachine", "-### x.c"]
        {
            assert!(!may_link(&words(other)), "{other}");
        }
    }

    #[test]
    fn a_link_is_static() {
        assert_eq!(static_link(&words("-pie x.o")), Some("-static"));
        assert_eq!(static_link(&words("-static-libgcc x.o -o -static")), Some("-static"));
        for there in ["x.o -static", "-static-pie x.o", "--static x.o"] {
            assert_eq!(static_link(&words(there)), None, "{there}");
        }
    }

    #[test]
    fn sanitizers_that_bring_a_malloc() {
        let found = |text: &str| sanitizer(&words(text));
        assert_eq!(found("-fsanitize=undefined,address x.c").as_deref(), Some("-fsanitize=undefined,address"));
        assert_eq!(found("-fsanitize=leak -fno-sanitize=address").as_deref(), Some("-fsanitize=leak"));
        for none in ["-fsanitize=undefined", "-fsanitize=thread -fno-sanitize=all", "-fsanitize-recover=address", "x.c"]
        {
            assert_eq!(found(none), None, "{none}");
        }
    }
}
