//! `allograft heap` and `allograft profile --heap`: names from files, what is refused, and runs.
//!
//! The program of these tests writes a profile of its own making, with addresses of its own code.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use fixtures::program::Build;
use serde_json::Value;

use crate::documents::fits;
use crate::lab::{Lab, tool};

/// Makes the program.
fn writer(lab: &Lab, name: &str, build: Build<'_>) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/profile/heap_writer.c");
    build.program(&lab.path(""), name, &fs::read_to_string(source).unwrap())
}

/// Runs the program, which writes `name`.
fn written(lab: &Lab, program: &Path, name: &str, build_id: &str) {
    let path = format!("{}:16384", lab.path(name).display());
    tool(Command::new(program).env("ALLOGRAFT_HEAP", path).env("BUILD_ID", build_id));
}

/// Returns the document of a report.
fn report(lab: &Lab, words: &[&str]) -> Value {
    let document = lab.run(["heap", "--json"].iter().chain(words)).exits(0).json();
    fits("heap", &document);
    document
}

/// The first call site's function, and its live blocks.
fn first(document: &Value) -> (&str, u64) {
    let site = &document["sites"][0];
    (site["function"].as_str().unwrap(), site["live"]["objects"].as_u64().unwrap())
}

const ID: &str = "0102030405060708090a0b0c0d0e0f1011121314";
const LINKED: [&str; 1] = ["--build-id=0x0102030405060708090a0b0c0d0e0f1011121314"];

/// Both places of `leak` are one row, by its name and by its start in a stripped program: that is in its unwind tables.
#[test]
fn names_come_from_the_programs_file() {
    let lab = Lab::new();
    let plain = Build { compile: &["-g", "-funwind-tables"], link: &LINKED, ..Build::PLAIN };
    for position_independent in [false, true] {
        let program = writer(&lab, "writer", Build { position_independent, ..plain });
        written(&lab, &program, "heap.pb", ID);
        let document = report(&lab, &["heap.pb"]);
        assert_eq!(first(&document), ("leak", 256), "{document:#}");
        let site = &document["sites"][0];
        assert!(site["line"].as_str().unwrap().starts_with(".program.c:"), "{document:#}");
        assert_eq!(site["callers"][0]["functions"], serde_json::json!(["grow", "main"]), "{document:#}");
        assert_eq!((&document["donor"], &document["retention"]["verdict"]), (&"snmalloc".into(), &"retained".into()));
        assert_eq!(document["program"], program.to_str().unwrap());
        let symbols = Command::new("nm").arg(&program).output().unwrap().stdout;
        let symbols = String::from_utf8(symbols).unwrap();
        let start = |name: &str| {
            let line = symbols.lines().find(|line| line.ends_with(&format!(" t {name}"))).unwrap();
            u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap()
        };
        let addresses = ["leak", "grow"].map(|name| format!("writer+{:#x}", start(name)));
        tool(Command::new("strip").arg("-s").arg(&program));
        let document = report(&lab, &["heap.pb"]);
        assert_eq!(first(&document), (addresses[0].as_str(), 256), "{document:#}");
        assert_eq!(document["sites"][0]["callers"][0]["functions"][0], addresses[1], "{document:#}");
        assert_eq!(document["warnings"], serde_json::json!([]));
    }
}

/// A file with another build id, or with other code if there are no ids, gives wrong names: it is named and not used.
#[test]
fn a_wrong_file_is_not_used() {
    let lab = Lab::new();
    let other = Build { link: &["--build-id=0x1112131415161718"], ..Build::PLAIN };
    let long =
        "#include <stdio.h>\nint main(int n, char **w) { return printf(\"%s %d %f\\n\", w[0], n, n * 1.5) < 0; }\n";
    for (flags, id, reason) in [(&LINKED, ID, "its build id is"), (&["--build-id=none"], "", "do not follow a call")] {
        let program = writer(&lab, "writer", Build { link: flags, compile: &["-falign-functions=64"], ..Build::PLAIN });
        written(&lab, &program, "heap.pb", id);
        fs::rename(&program, lab.path("moved")).unwrap();
        let ran = lab.run(["heap", "heap.pb"]).exits(0).says(&["gives no names", "cannot be read"]);
        assert!(ran.out.contains("writer+0x"), "{}", ran.out);
        let program = match id {
            "" => Build::PLAIN.program(&lab.path(""), "writer", long),
            _ => writer(&lab, "writer", other),
        };
        lab.run(["heap", "heap.pb"]).exits(0).says(&["gives no names to its functions", reason]);
        assert_eq!(first(&report(&lab, &["heap.pb", "--program", "moved"])), ("leak", 256));
        let wrong = ["heap", "heap.pb", "--program", program.to_str().unwrap()];
        lab.run(wrong).exits(2).says(&["is not the profile's program", reason, "help: "]);
        lab.run(["heap", "heap.pb", "--program", "missing"]).exits(2).says(&["`missing` is not", "cannot be read"]);
    }
}

#[test]
fn a_page_is_written_and_text_says_what_matters() {
    let lab = Lab::new();
    let program = writer(&lab, "writer", Build::PLAIN);
    written(&lab, &program, "heap.pb", "");
    let ran = lab.run(["heap", "heap.pb", "-o", "heap.html"]).exits(0).says(&["wrote heap.html"]);
    for part in [
        "4.00 MiB live in 256 blocks",
        "(snmalloc, process ",
        "2.5 s after its start",
        "One call site holds 100 % of the live bytes. Estimated from 256 sampled blocks",
        "called by grow < main",
        "Leak or retention? Of 16.0 MiB that the allocator has in memory, about 4.00 MiB (25 %) are live",
        "try: allograft graft PROGRAM --donor snmalloc --profile small",
    ] {
        assert!(ran.out.contains(part), "{part}: {}", ran.out);
    }
    let page = fs::read_to_string(lab.path("heap.html")).unwrap();
    assert!(page.contains("data-name=\"leak\"") && page.contains("data-whole=\"bytes\""), "{page}");
    assert!(!page.contains("src=") && !page.contains("href="), "{page}");
    // The older one is compared, and has to be the older one.
    written(&lab, &program, "older.pb", "");
    let ran = lab.run(["heap", "heap.pb", "older.pb"]).exits(0);
    assert!(ran.out.contains("Growth: +0 B live; the profiles are of two processes"), "{}", ran.out);
    fits("heap", &lab.run(["heap", "heap.pb", "older.pb", "--json"]).exits(0).json());
}

#[test]
fn what_is_no_profile_is_told() {
    let lab = Lab::new();
    let program = writer(&lab, "writer", Build::PLAIN);
    lab.put("empty", b"");
    lab.put("cut.gz", &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 1, 2]);
    lab.put("text", b"hello, reader\n");
    for (file, says) in [
        ("missing", "cannot read `missing`"),
        ("empty", "it is empty"),
        ("cut.gz", "its gzip stream is damaged or ends early"),
        ("text", "it is not a pprof profile"),
        (program.to_str().unwrap(), "`allograft profile --heap "),
        (".", "it is not a regular file"),
    ] {
        let ran = lab.run(["heap", file]).exits(2).says(&[says, "help: "]);
        assert_eq!(ran.out, "");
        fits("failure", &lab.run(["heap", file, "--json"]).exits(2).json());
    }
    lab.run(["heap"]).exits(2).says(&["FILE"]);
}

/// The donor itself writes the profile: of a program with symbols, and of the same one stripped, by its unwind tables.
#[test]
fn the_donor_of_the_copy_says_who_holds_memory() {
    let lab = Lab::new();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/statistics/sites.c");
    let build = Build { compile: &["-O2", "-fno-builtin", "-funwind-tables", "-w"], ..Build::PLAIN };
    let program = build.program(&lab.path(""), "sites", &fs::read_to_string(source).unwrap());
    let run = || {
        let document = lab.run(["profile", "--heap", "--json", "--sample-bytes", "4096", "./sites"]).exits(0).json();
        fits("heap", &document);
        let sites = document["sites"].as_array().unwrap().clone();
        let held = sites.into_iter().map(|site| {
            let (name, bytes) =
                (site["function"].as_str().unwrap().to_owned(), site["live"]["bytes"].as_u64().unwrap());
            (name, bytes)
        });
        held.take(4).collect::<Vec<_>>()
    };
    for (name, bytes) in run() {
        let wanted = match name.as_str() {
            "keep_nodes" | "keep_large" => 24_000_000,
            "grow_vector" => 20_000_000,
            "keep_aligned" => 8_000_000,
            other => panic!("{other} holds {bytes}"),
        };
        assert!(bytes.abs_diff(wanted) <= wanted / 10, "{name}: {bytes}");
    }
    tool(Command::new("strip").arg("-s").arg(&program));
    let held = run();
    let total: u64 = held.iter().map(|(_, bytes)| bytes).sum();
    assert!(held.iter().all(|(name, _)| name.starts_with("sites+0x")), "{held:?}");
    assert!(total.abs_diff(76_000_000) <= 7_600_000, "{held:?}");
}

/// The user's file is not changed: a copy is grafted, and the program sees its own name and words.
#[test]
fn a_program_is_run_and_reported() {
    let lab = Lab::new();
    let program = writer(&lab, "writer", Build::PLAIN);
    let before = fs::read(&program).unwrap();
    let ran = lab.run(["profile", "--heap", "--sample-bytes", "4096", "-o", "out", "./writer"]).exits(0);
    for part in
        ["./writer: 4.00 MiB live", "leak", "wrote out/heap.html", "allograft heap out/heap.pb.gz --program ./writer"]
    {
        assert!(ran.out.contains(part), "{part}: {}", ran.out);
    }
    assert_eq!(fs::read(&program).unwrap(), before);
    // The copy is gone; its addresses are those of the program.
    assert_eq!(first(&report(&lab, &["out/heap.pb.gz", "--program", "writer"])), ("leak", 256));
    fits("heap", &serde_json::from_str(&fs::read_to_string(lab.path("out/heap.json")).unwrap()).unwrap());
    let document = lab
        .run(["profile", "--heap", "--json", "./writer", "forks"])
        .exits(0)
        .says(&["wrote a profile, too: 4.00 MiB"]);
    assert_eq!(first(&document.json()), ("leak", 512));
    lab.run(["profile", "--heap", "./writer", "fails"]).exits(0).says(&["ended with exit code 4"]);
    // A program that runs on is asked for its profile, and then ended.
    let ran = lab.run(["profile", "--heap", "--duration", "0.3", "./writer", "server"]).exits(0);
    assert!(ran.out.contains("./writer: 4.00 MiB live"), "{}", ran.out);
    // A graft that writes profiles is run itself.
    lab.run(["graft", "writer"]).exits(0);
    let document = lab.run(["profile", "--heap", "--json", "./writer"]).exits(0).json();
    assert_eq!((first(&document), &document["program"]), (("leak", 256), &program.to_str().unwrap().into()));
}

#[test]
fn programs_without_a_profile_are_told() {
    let lab = Lab::new();
    writer(&lab, "writer", Build::PLAIN);
    lab.put("script", b"#!/bin/sh\ntrue\n");
    for (words, code, says) in [
        (&["./writer", "none"][..], 2, "ended with exit code 3, and wrote no heap profile"),
        (&["./writer", "killed"], 2, "was ended by signal 9, and wrote no heap profile"),
        (&["./missing"], 2, "cannot start `./missing`"),
        (&["./script"], 2, "is not an ELF program"),
    ] {
        let ran = lab.run(["profile", "--heap"].iter().chain(words)).exits(code).says(&[says, "help: "]);
        assert_eq!(ran.out, "");
    }
    tool(
        fixtures::cc()
            .args(["-static", "-O2", "-o"])
            .arg(lab.path("glibc"))
            .arg(lab.put("m.c", b"int main(void) { return 0; }\n")),
    );
    lab.run(["profile", "--heap", "./glibc"])
        .exits(3)
        .says(&["cannot profile the heap: `./glibc` cannot be grafted", "help: "]);
    lab.run(["profile", "--heap"]).exits(2).says(&["nothing is named to profile"]);
    for flags in [&["--heap", "--pid", "1"][..], &["--heap", "--format", "pprof", "x"], &["--sample-bytes", "9", "x"]] {
        lab.run(["profile"].iter().chain(flags)).exits(2).says(&["--heap"]);
    }
}
