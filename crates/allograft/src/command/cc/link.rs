//! How a compiler would link, read from what it prints with `-###`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use super::{HELP, words};
use crate::failure::Failure;

/// The linker's command line, as far as it matters here.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::command) struct Link {
    /// The folders of libraries, in the order in which they are searched.
    folders: Vec<PathBuf>,
    /// The program that is written.
    pub(in crate::command) out: PathBuf,
    /// Whether the linker was told to make a static program.
    pub(in crate::command) is_static: bool,
}

impl Link {
    /// Reads the compiler's message. gcc and clang print the commands that they would run, each on a line after a
    /// blank, with some or all words in quotes. Of these, the linker's is the last. `None` if no command links a
    /// program with a C library.
    pub(super) fn read(said: &[u8]) -> Option<Link> {
        let commands = said.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b" "));
        let mut commands = commands.map(|line| words::split(line).into_iter().map(OsString::from_vec).collect());
        commands.rfind(|words: &Vec<OsString>| words.iter().any(|word| word == "-lc")).and_then(|words| parse(&words))
    }

    /// Reads a linker's own arguments. `None` if it does not link a program with a C library that it searches for.
    pub(in crate::command) fn of_linker(words: &[OsString]) -> Option<Link> {
        words.iter().any(|word| word == "-lc").then(|| parse(words)).flatten()
    }

    /// Returns the `libc.a` that is linked: the first, as all links are static.
    ///
    /// # Errors
    /// Exit code 2 if no command does. `compiler` is the compiler's name.
    pub(in crate::command) fn libc(&self, compiler: &str) -> Result<PathBuf, Failure> {
        let libc = self.folders.iter().map(|folder| folder.join("libc.a")).find(|libc| libc.is_file());
        libc.ok_or_else(|| {
            Failure::usage(format!("`{compiler}` has no libc.a to link a static program with")).with_help(HELP)
        })
    }
}

fn parse(words: &[OsString]) -> Option<Link> {
    let mut link = Link { out: "a.out".into(), ..Link::default() };
    let (mut sysroot, mut folders) = (PathBuf::new(), Vec::new());
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let text = word.to_string_lossy();
        match &*text {
            // No program: another linker's option may say so too (`-Wl,-r`).
            "-shared" | "-r" | "--relocatable" => return None,
            "-o" => link.out = words.next()?.into(),
            // `-Bstatic` says the same, and compilers say it of single libraries.
            "-static" | "--static" => link.is_static = true,
            "-L" => folders.push(words.next()?.clone()),
            _ => {
                if let Some(folder) = text.strip_prefix("-L") {
                    folders.push(folder.into());
                } else if let Some(folder) = text.strip_prefix("--sysroot=") {
                    sysroot = folder.into();
                }
            }
        }
    }
    link.folders = folders.iter().map(|folder| in_sysroot(folder, &sysroot)).collect();
    Some(link)
}

/// Returns a folder with `=` or `$SYSROOT` at its start replaced by the sysroot (ld's manual, `-L`).
fn in_sysroot(folder: &OsStr, sysroot: &Path) -> PathBuf {
    let text = folder.to_string_lossy();
    match text.strip_prefix('=').or_else(|| text.strip_prefix("$SYSROOT")) {
        Some(rest) => sysroot.join(rest.trim_start_matches('/')),
        None => folder.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paths are shortened.
    const GCC: &str = "Reading specs from /x/musl-gcc.specs
COLLECT_GCC_OPTIONS='-static' '-o' 'a b' '-mtune=generic'
 /usr/lib/gcc/12/cc1 -quiet a.c -nostdinc -isystem /usr/include/musl \"-mtune=generic\" -o /tmp/ccM5diJd.s
 as --64 -o /tmp/ccv0a4Gn.o /tmp/ccM5diJd.s
COLLECT_GCC_OPTIONS='-static' '-o' 'a b'
 /usr/lib/gcc/12/collect2 -plugin liblto_plugin.so \"-plugin-opt=-pass-through=-lc\" -static -o \"a b\" crti.o \
-L/the/user/s -L /usr/lib/gcc/12/. /tmp/ccv0a4Gn.o --start-group libgcc.a -lc --end-group crtn.o
COLLECT_GCC_OPTIONS='-static'
";
    const CLANG: &str = "clang version 19.1.7
Target: x86_64-alpine-linux-musl
 \"/usr/lib/llvm19/bin/clang-19\" \"-cc1\" \"-o\" \"/tmp/a-1.o\" \"-x\" \"c\" \"a.c\"
 \"/usr/bin/ld.lld\" \"--sysroot=/my root\" \"-static\" \"-o\" \"a.out\" \"crt1.o\" \"-L/my root/lib\" \"-L=/usr/lib\" \
\"/tmp/a-1.o\" \"--start-group\" \"-lgcc\" \"-lc\" \"--end-group\"
";

    #[test]
    fn the_linker_s_line_of_gcc_and_of_clang() {
        let folders = vec!["/the/user/s".into(), "/usr/lib/gcc/12/.".into()];
        let gcc = Link { folders, out: "a b".into(), is_static: true };
        assert_eq!(Link::read(GCC.as_bytes()), Some(gcc));
        let folders = vec!["/my root/lib".into(), "/my root/usr/lib".into()];
        let clang = Link { folders, out: "a.out".into(), is_static: true };
        assert_eq!(Link::read(CLANG.as_bytes()), Some(clang));
    }

    #[test]
    fn what_is_no_program_or_has_no_libc() {
        let compiled: String =
            GCC.lines().filter(|line| !line.contains("collect2")).map(|l| format!("{l}\n")).collect();
        for none in [&compiled, &GCC.replace(" -lc ", " "), &GCC.replace(" -static -o", " -r -o"), ""] {
            assert_eq!(Link::read(none.as_bytes()), None, "{none}");
        }
        assert_eq!(Link::read(CLANG.replace("-static", "-shared").as_bytes()), None);
        let dynamic = Link::read(GCC.replace("-plugin-opt=-pass-through=-lc\" -static", "\"").as_bytes());
        assert!(!dynamic.unwrap().is_static);
    }
}
