//! Tests: grafts that are broken between the edit and the verification. Each is refused with the name of the check that
//! finds the fault, and nothing is placed. This tests the verifier, not the editors.

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};

use fixtures::Arch;
use fixtures::image::{Image, Layout, Tar};
use fixtures::program::Build;
use fixtures::sample::{self, Recipe};
use inspector::verify::Unsound;
use surgery::archive::Archive;
use surgery::donor::DonorObject;

use crate::error::Error;
use crate::error::remedy::Remedy;
use crate::graft::graft;
use crate::request::Request;
use crate::trials::samples;
use crate::undo::undo;

/// Breaks edited bytes; needs no other data.
type Break = fn(&mut Vec<u8>);
/// Breaks edited bytes.
type Tamper = Box<dyn Fn(&mut Vec<u8>)>;
/// The fault, the function that makes it, and the name of a check that finds it.
type Case<T> = (&'static str, T, &'static str);

thread_local! {
    static TAMPER: RefCell<Option<Tamper>> = const { RefCell::new(None) };
}

/// The edited bytes, broken by the function that a test on this thread has set.
pub(crate) fn tampered(mut bytes: Vec<u8>) -> Vec<u8> {
    TAMPER.with_borrow(|tamper| {
        if let Some(tamper) = tamper {
            tamper(&mut bytes);
        }
    });
    bytes
}

/// All files under `folder`, with their content.
fn listing(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut open = vec![folder.to_owned()];
    let mut found = Vec::new();
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            match entry.file_type().unwrap().is_dir() {
                true => open.push(entry.path()),
                false => found.push((entry.path(), fs::read(entry.path()).unwrap())),
            }
        }
    }
    found.sort();
    found
}

/// The names of the checks that a broken graft of `target` fails. Asserts that nothing in `folder` has changed.
fn failing(folder: &Path, target: &str, request: &Request, tamper: impl Fn(&mut Vec<u8>) + 'static) -> Vec<String> {
    let before = listing(folder);
    TAMPER.set(Some(Box::new(tamper)));
    let outcome = graft(&folder.join(target), request);
    TAMPER.set(None);
    let Err(error) = outcome else {
        undo(&folder.join(target)).unwrap();
        return Vec::new();
    };
    assert!(listing(folder) == before, "{error}");
    // No check found the fault, but the self-test did, or reading the file for the self-test.
    if matches!(error, Error::SelfTest { .. } | Error::Executable { .. }) {
        return Vec::new();
    }
    assert_eq!(error.exit_code(), 3, "{error}");
    let names = match &error {
        Error::Unsound { unsound: Unsound::Failed(checks), .. } => {
            checks.iter().map(|check| check.name.clone()).collect()
        }
        Error::Unsound { unsound: Unsound::Unreadable(_), .. } => vec!["unreadable".to_owned()],
        other => panic!("{other}"),
    };
    assert!(names.iter().all(|name| name == "unreadable" || error.to_string().contains(name.as_str())), "{error}");
    assert_eq!(error.remedy(), Remedy::Report);
    names
}

fn request() -> Request {
    Request::new(donors::default_for(Arch::X86_64))
}

/// Grafts with donors that are broken in one way each.
#[test]
fn broken_donors() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("libc.a"), sample::stock(Arch::X86_64)).unwrap();
    let (define, alone) = (|define| Recipe { define: Some(define), ..Recipe::default() }, Recipe::default());
    let cases: [(Recipe, &[&str]); 11] = [
        (define("WITHOUT_HOOK"), &["exports", "fork-hook"]),
        (define("EMPTY_HOOK"), &["fork-hook"]),
        (define("WITH_STRDUP"), &["exports", "differences"]),
        (define("WITH_NEED"), &["donor-needs"]),
        (Recipe { touch: true, ..alone.clone() }, &["object-checksum"]),
        (Recipe { patience: Some(11), ..alone.clone() }, &["options"]),
        (Recipe { noted: Some("patience=4"), ..alone.clone() }, &["options"]),
        (Recipe { unindexed: &["strlen"], ..alone.clone() }, &["index"]),
        (Recipe { also_remove: &["wcsdup.lo"], ..alone.clone() }, &["removed-members", "symbols-kept", "differences"]),
        (Recipe { keep: &["malloc.lo"], ..alone.clone() }, &["no-trace"]),
        (
            Recipe { keep: &["malloc_usable_size.lo"], ..alone },
            &["one-provider", "no-trace", "removed-members", "symbols-kept", "differences"],
        ),
    ];
    for (recipe, names) in cases {
        let broken = sample::graft(Arch::X86_64, &recipe);
        let found = failing(folder.path(), "libc.a", &request(), move |bytes| bytes.clone_from(&broken));
        assert_eq!(found, names, "{recipe:?}");
    }
}

/// The offset of the header of the member that defines a symbol.
fn member(archive: &[u8], symbol: &[u8]) -> usize {
    let parsed = Archive::parse(archive).unwrap();
    let ordinal = parsed.indexed().find(|(_, name)| *name == symbol).unwrap().0;
    let data = parsed.members().iter().find(|member| member.ordinal == ordinal).unwrap().data;
    data.as_ptr() as usize - archive.as_ptr() as usize - 60
}

/// Faults of an archive, each with a check that finds it.
fn broken_archives() -> Vec<Case<Break>> {
    vec![
        ("a byte too many", |bytes| bytes.push(0), "unreadable"),
        ("a byte too few", |bytes| bytes.truncate(bytes.len() - 1), "unreadable"),
        ("a wrong index", |bytes| bytes[8 + 60 + 4 + 3] ^= 1, "index"),
        ("the mode of the index", |bytes| bytes[8 + 40] ^= 1, "members-kept"),
        ("a tab behind the size of the index", |bytes| bytes[8 + 57] = b'\t', "members-kept"),
        (
            "a lost member",
            |bytes| {
                let archive = Archive::parse(bytes).unwrap();
                let lost = archive.indexed().find(|(_, symbol)| *symbol == b"wcsdup").unwrap().0;
                let edited = archive.edit(&[lost].into(), None);
                *bytes = edited;
            },
            "removed-members",
        ),
        (
            "a member's byte",
            |bytes| {
                let at = member(bytes, b"fork") + 60 + 64;
                bytes[at] ^= 1;
            },
            "members-kept",
        ),
        (
            "a member's mode",
            |bytes| {
                let at = member(bytes, b"fork") + 40;
                bytes[at] ^= 1;
            },
            "members-kept",
        ),
        (
            "a byte of the donor",
            |bytes| {
                let at = member(bytes, b"malloc") + 60 + 64;
                bytes[at] ^= 1;
            },
            "object-checksum",
        ),
        (
            "the donor's date",
            |bytes| {
                let at = member(bytes, b"malloc") + 16;
                bytes[at] ^= 1;
            },
            "members-kept",
        ),
        (
            "the name of the donor's member",
            |bytes| {
                let at = member(bytes, b"malloc");
                bytes[at] ^= 1;
            },
            "members-kept",
        ),
    ]
}

#[test]
fn broken_edits_of_an_archive() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = "sdk.artifactbundle.tar.gz";
    fs::create_dir(folder.path().join("sysroot")).unwrap();
    fs::write(folder.path().join("sysroot/libc.a"), samples::libc()).unwrap();
    fs::write(folder.path().join(bundle), samples::bundle()).unwrap();
    let out = folder.path().join("out");
    for (what, tamper, check) in broken_archives() {
        for target in ["sysroot/libc.a", "sysroot", bundle] {
            for out in [None, Some(out.clone())] {
                let request = Request { out, ..request() };
                let found = failing(folder.path(), target, &request, tamper);
                assert!(found.iter().any(|name| name == check), "{what} of {target}: {found:?}");
            }
        }
    }
}

fn word(bytes: &[u8], at: usize) -> usize {
    u64::from_le_bytes(*bytes[at..].first_chunk().unwrap()) as usize
}

/// The offsets at which a stock file's code differs from its graft's: the first jump, and the last edit.
fn edits(stock: &[u8], graft: &[u8]) -> (usize, usize) {
    // The segment of the type PT_LOAD that may be executed (gABI, "Program Header").
    let headers = (0..usize::from(stock[56])).map(|index| word(stock, 32) + 56 * index);
    let code = headers.into_iter().find(|at| stock[*at] == 1 && stock[*at + 4] & 1 == 1).unwrap();
    let start = word(stock, code + 8).max(64);
    let mut changed = (start..word(stock, code + 8) + word(stock, code + 32)).filter(|at| stock[*at] != graft[*at]);
    (changed.next().unwrap(), changed.next_back().unwrap())
}

#[test]
fn broken_edits_of_an_executable() {
    let anywhere = Build { position_independent: true, ..Build::PLAIN };
    break_edits(&[("fixed", Build::PLAIN), ("anywhere", anywhere)]);
}

#[test]
#[ignore = "aarch64: links with that architecture's runtime library"]
fn broken_edits_of_an_executable_for_aarch64() {
    break_edits(&[("foreign", Build { arch: Arch::Aarch64, ..Build::PLAIN })]);
}

/// An image is written with sound grafts, or not at all.
#[test]
fn broken_edits_in_an_image() {
    let folder = tempfile::tempdir().unwrap();
    let layer = Tar::default().file("usr/lib/libc.a", 0o644, &samples::libc()).bytes();
    let layout = Layout::new(&[Image::new(layer)]);
    layout.write(&folder.path().join("layout"));
    fs::write(folder.path().join("image.tar"), layout.tar()).unwrap();
    for (what, tamper, check) in broken_archives() {
        for target in ["layout", "image.tar"] {
            let request = Request { out: Some(folder.path().join("out")), ..request() };
            let found = failing(folder.path(), target, &request, tamper);
            assert!(found.iter().any(|name| name == check), "{what} of {target}: {found:?}");
        }
    }
}

/// A flipped bit anywhere in the graft of a dynamic program, a loader, or a program that loads its donor: in the
/// headers, the program, the donor, or the bytes between them.
#[test]
fn broken_edits_of_a_dynamic_program_and_of_a_loader() {
    break_everywhere(7);
}

#[test]
#[ignore = "minutes: the same at many places"]
fn broken_edits_of_a_dynamic_program_and_of_a_loader_everywhere() {
    break_everywhere(150);
}

fn break_everywhere(places: usize) {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let source = "#include <stdlib.h>\nint main(void) { free(malloc(10)); return 0; }\n";
    fs::write(path("main.c"), source).unwrap();
    let linked = fixtures::cc().arg("-o").args([path("dynamic"), path("main.c")]).status().unwrap();
    assert!(linked.success());
    fs::copy(fixtures::musl_loader(Arch::X86_64), path("loader")).unwrap();
    fs::copy(path("dynamic"), path("needing")).unwrap();
    let donor = donors::default_for(Arch::X86_64);
    let library = DonorObject::parse_library(donor.library(Arch::X86_64).unwrap()).unwrap();
    fs::write(path("liballograft.so"), library.tuned(&[], crate::VERSION).unwrap()).unwrap();
    for name in ["dynamic", "loader", "needing"] {
        let stock = fs::metadata(path(name)).unwrap().len() as usize;
        let needed = (name == "needing").then_some(None);
        let request = Request { needed, ..request() };
        graft(&path(name), &Request { out: Some(path("good")), ..request.clone() }).unwrap();
        let good = fs::read(path("good")).unwrap();
        fs::remove_file(path("good")).unwrap();
        let headers = word(&good, 32)..word(&good, 32) + 56 * usize::from(good[56]);
        let spread = |range: std::ops::Range<usize>| {
            let step = (range.len() / places).max(1);
            range.step_by(step).collect::<Vec<_>>()
        };
        let places = [spread(4..56), spread(headers), spread(64..stock), spread(stock..good.len())].concat();
        let is_missed = |at: &usize| {
            let at = *at;
            failing(folder.path(), name, &request, move |bytes| bytes[at] ^= 1).is_empty()
        };
        let missed: Vec<String> = places.iter().copied().filter(is_missed).map(|at| format!("{at:#x}")).collect();
        assert!(missed.is_empty(), "bytes of {name}, whose stock has {stock:#x}: {}", missed.join(" "));
    }
}

fn break_edits(builds: &[(&str, Build<'_>)]) {
    let source = "#include <pthread.h>\n#include <stdlib.h>\n__thread int own = 3;\n\
                  static void *run(void *argument) { return argument; }\n\
                  int main(void) { pthread_t thread; void *back; pthread_create(&thread, 0, run, malloc(10));\n\
                  pthread_join(thread, &back); free(realloc(back, 1000)); return own - 3; }\n";
    let folder = tempfile::tempdir().unwrap();
    for &(name, build) in builds {
        let path = build.program(folder.path(), name, source);
        let stock = fs::read(&path).unwrap();
        let is_x86_64 = build.arch == Arch::X86_64;
        let size = stock.len();
        let good = folder.path().join("good");
        graft(&path, &Request { out: Some(good.clone()), untested: true, ..request() }).unwrap();
        let bytes = fs::read(&good).unwrap();
        let (jump, edit) = edits(&stock, &bytes);
        // The last byte that differs is in the symbol of the thread-local variable.
        let symbol = (0..size).rfind(|at| stock[*at] != bytes[*at]).unwrap();
        fs::remove_file(good).unwrap();
        // The last byte of a jump of aarch64 is its opcode; the first differs in the distance.
        let section = |bytes: &[u8]| word(bytes, 40) + 64 + 24;
        let cases: [Case<Tamper>; 12] = [
            ("a byte too many", Box::new(|bytes| bytes.push(0)), "file"),
            ("a byte too few", Box::new(|bytes| bytes.truncate(bytes.len() - 1)), "file"),
            (
                "a moved section",
                Box::new(move |bytes| {
                    let at = section(bytes);
                    bytes[at] ^= 16
                }),
                "file",
            ),
            ("a jump off", Box::new(move |bytes| bytes[jump + usize::from(is_x86_64)] ^= 2), "redirections"),
            ("an edit off", Box::new(move |bytes| bytes[edit] ^= 1), "redirections"),
            (
                "an edit undone",
                {
                    let stock = stock.clone();
                    Box::new(move |bytes| bytes[edit - 3..=edit].copy_from_slice(&stock[edit - 3..=edit]))
                },
                "redirections",
            ),
            ("a variable's symbol off", Box::new(move |bytes| bytes[symbol] ^= 1), "file"),
            ("another entry point", Box::new(|bytes| bytes[24] ^= 1), "donor"),
            (
                "other flags of a segment",
                Box::new(|bytes| {
                    let at = word(bytes, 32) + 4;
                    bytes[at] ^= 2
                }),
                "file",
            ),
            ("a byte between program and donor", Box::new(move |bytes| bytes[size] ^= 1), "file"),
            (
                "a byte of the donor",
                Box::new(|bytes| {
                    let at = word(bytes, 32) - 9;
                    bytes[at] ^= 1
                }),
                "donor",
            ),
            (
                "a byte that is not loaded",
                {
                    let at = word(&stock, 40) + 70;
                    Box::new(move |bytes| bytes[at] ^= 1)
                },
                "file",
            ),
        ];
        for (what, tamper, check) in cases {
            let request = Request { untested: true, ..request() };
            let found = failing(folder.path(), name, &request, tamper);
            assert!(found.iter().any(|name| name == check), "{what} of {name}: {found:?}");
        }
    }
}
