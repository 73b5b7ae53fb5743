//! The sections of pages on environment variables, files and other pages.

/// A variable, the commands that read it (none: all of them), and what it does.
pub(super) struct Variable {
    pub(super) name: &'static str,
    pub(super) commands: &'static [&'static str],
    pub(super) text: &'static str,
}

/// The variables that users set. The donors' own are on the page of each donor.
pub(super) const VARIABLES: &[Variable] = &[
    Variable {
        name: "ALLOGRAFT_VERBOSE",
        commands: &["graft", "emit", "cc", "run", "cargo"],
        text: "Read by programs that carry a donor: with `1`, they say at their start what they carry.",
    },
    Variable {
        name: "ALLOGRAFT_STATS",
        commands: &["graft", "emit", "cc", "run", "cargo"],
        text: "Read by programs that carry a donor: with `1`, they print a report on memory at exit; \
               `json:PATH` and `openmetrics:PATH` write it to a file, and `:SECONDS` after that repeats it.",
    },
    Variable {
        name: "ALLOGRAFT_STATS_SIGNAL",
        commands: &["graft", "emit", "cc", "run", "cargo"],
        text: "Read by programs that carry a donor: they report whenever they get this signal, such as `USR2`.",
    },
    Variable {
        name: "ALLOGRAFT_HEAP",
        commands: &["heap"],
        text: "Read by programs that carry a donor: they write a heap profile at exit to this path, in which `%p` is the \
               process, `%n` the number of the profile, and `%%` a percent sign. `:BYTES` after that samples one block \
               for about so many bytes.",
    },
    Variable {
        name: "ALLOGRAFT_HEAP_SIGNAL",
        commands: &["heap"],
        text: "Read by programs that carry a donor: they write a heap profile whenever they get this signal, such as \
               `USR2`.",
    },
    Variable {
        name: "ALLOGRAFT_HEAP_INTERVAL",
        commands: &["heap"],
        text: "Read by programs that carry a donor: they write a heap profile each time that so many seconds have passed.",
    },
    Variable {
        name: "ALLOGRAFT_CC",
        commands: &["cc"],
        text: "The compiler of `allograft cc`, with words of its own, if `--cc` names none.",
    },
    Variable {
        name: "ALLOGRAFT_LINKERS",
        commands: &["verify"],
        text: "The linkers that `allograft verify` links programs with: paths, separated by colons.",
    },
    Variable { name: "CC", commands: &["bench"], text: "The C compiler for the suite, if `--cc` names none." },
    Variable {
        name: "CARGO_BUILD_TARGET",
        commands: &["cargo"],
        text: "The target, as cargo reads it, if `--target` names none.",
    },
    Variable {
        name: "CARGO_TARGET_DIR",
        commands: &["cargo"],
        text: "The folder of what cargo builds. The private copies of libc.a are in it.",
    },
    Variable {
        name: "RUSTC",
        commands: &["graft", "undo", "verify", "cargo"],
        text: "The compiler that is asked where a toolchain has its targets.",
    },
    Variable {
        name: "QEMU_LD_PREFIX",
        commands: &["graft", "verify"],
        text: "The root folder with the libraries of programs for other architectures, if `--root` names none.",
    },
    Variable {
        name: "LD_LIBRARY_PATH",
        commands: &["graft", "bench"],
        text: "Folders in which a dynamic program finds its libraries, also when it is grafted.",
    },
    Variable {
        name: "XDG_CACHE_HOME",
        commands: &["cc", "run"],
        text: "The folder of caches. The default is `~/.cache`.",
    },
    Variable {
        name: "XDG_CONFIG_HOME",
        commands: &["graft", "undo", "inspect", "verify"],
        text: "The folder in which SwiftPM keeps SDKs, `swiftpm/swift-sdks`. The default is `~/.swiftpm`.",
    },
    Variable {
        name: "TMPDIR",
        commands: &["verify", "bench", "inspect", "profile"],
        text: "The folder of temporary files. The default is `/tmp`.",
    },
    Variable { name: "COLUMNS", commands: &[], text: "The width that help and tables are made for." },
    Variable { name: "NO_COLOR", commands: &[], text: "If it is set and not empty, nothing is coloured." },
];

/// Files, the commands that have to do with them, and what they are.
pub(super) const FILES: &[(&str, &[&str], &str)] = &[
    (
        "FILE.allograft-stock",
        &["graft", "undo", "verify"],
        "The backup: the stock file, beside each graft in place. `allograft undo` gives it back.",
    ),
    (
        "FILE.allograft.json",
        &["graft", "undo", "verify"],
        "The record of a graft in place, with checksums of stock and graft.",
    ),
    (
        "liballograft.so",
        &["graft", "emit"],
        "The shared object of `emit --as shared`, which `graft --needed` has a program load.",
    ),
    ("~/.cache/allograft", &["cc", "run"], "Grafted copies of libc.a, and the wrappers of `allograft run`."),
    ("~/.swiftpm/swift-sdks", &["graft", "undo", "inspect", "verify"], "The Swift SDKs that `swift:ID` names."),
];

/// Pages of the manual beside those on allograft, and the commands that go with them.
pub(super) const OTHERS: &[(&str, &[&str])] = &[
    ("ar(1)", &["graft", "emit"]),
    ("ld(1)", &["graft", "emit"]),
    ("ld.so(8)", &["emit", "inspect"]),
    ("perf(1)", &["profile"]),
    ("hyperfine(1)", &["bench"]),
    ("cargo(1)", &["cargo"]),
    ("readelf(1)", &["inspect"]),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use super::*;

    /// Variables that allograft passes to processes of its own, and those of tests and builds.
    const OWN: [&str; 8] = [
        "ALLOGRAFT_RUN",
        "ALLOGRAFT_RUN_INSIDE",
        "ALLOGRAFT_SELF_TEST",
        "ALLOGRAFT_SCALE",
        "ALLOGRAFT_HANG_SECONDS",
        "ALLOGRAFT_THREADS",
        "ALLOGRAFT_TEST",
        "ALLOGRAFT_BLESS",
    ];

    /// Adds the names in quotes that begin with ALLOGRAFT, of all sources under `folder`.
    fn gather(folder: &Path, found: &mut BTreeSet<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                gather(&path, found);
            } else if path.extension().is_some_and(|end| end == "rs" || end == "c" || end == "h") {
                let text = fs::read_to_string(&path).unwrap();
                let is_name = |word: &&str| {
                    word.len() > "ALLOGRAFT_".len()
                        && word.starts_with("ALLOGRAFT_")
                        && word.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_')
                };
                found.extend(text.split('"').filter(is_name).map(str::to_owned));
            }
        }
    }

    #[test]
    fn every_variable_of_the_code_is_on_a_page() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut found = BTreeSet::new();
        for folder in ["allograft/src", "hosts/src", "trial/src", "profiler/src", "measure/src", "donors/glue"] {
            gather(&crates.join(folder), &mut found);
        }
        assert!(found.len() > 4, "{found:?}");
        for name in found {
            let told = VARIABLES.iter().any(|variable| variable.name == name);
            assert!(told || OWN.contains(&&*name), "`{name}` is on no page");
        }
    }
}
