//! `allograft bench` of dynamic programs: other allocators are loaded before the libc.

use std::fs;

use crate::bench::{PROGRAM, arm};
use crate::lab::{Lab, dynamic_with_musl};

#[test]
fn a_dynamic_program_is_measured_with_preloaded_donors() {
    let lab = Lab::new();
    lab.put("main.c", PROGRAM.as_bytes());
    let build = |flags: &str| {
        let line = format!("cc -O2 -fno-builtin {flags} main.c -o dynamic");
        let built = std::process::Command::new("sh").args(["-c", &line]).current_dir(lab.path("")).status().unwrap();
        assert!(built.success());
    };
    build("");
    let measure = |more: &[&str]| {
        let start = ["bench", "--rounds", "2", "--budget", "1h", "--json"];
        lab.run(start.iter().chain(more))
    };
    let document =
        measure(&["--threads", "1,2", "--threads-var", "THREADS", "--", "./dynamic", "20000"]).exits(0).json();
    assert_eq!(document["input"]["kind"], "preloaded");
    let names: Vec<&str> =
        document["arms"].as_array().unwrap().iter().map(|arm| arm["name"].as_str().unwrap()).collect();
    assert!(names.starts_with(&["stock"]) && names.contains(&"mimalloc") && names.contains(&"mimalloc3"), "{names:?}");
    assert!(names.contains(&"glibc:arena_max=2"), "{names:?}");
    for name in &names {
        let arm = arm(&document, name);
        assert!(arm["failure"].is_null() && arm["runs"].as_array().is_some_and(|runs| runs.len() >= 2), "{arm}");
        assert_eq!(arm["strings"], false);
    }
    assert_eq!(lab.names(), ["dynamic", "main.c"]);

    // The other allocator is in use: it reports itself.
    let document =
        measure(&["--donors", "mimalloc:small", "--any-output", "--", "./dynamic", "--usable"]).exits(0).json();
    let command = arm(&document, "mimalloc:small")["command"].as_str().unwrap().to_owned();
    assert!(
        command.starts_with("allograft emit --donor mimalloc --profile small --target x86_64-linux-gnu"),
        "{command}"
    );
    assert!(command.ends_with("LD_PRELOAD=./libmimalloc.so ./dynamic --usable"), "{command}");
    let words: Vec<&str> = command.split(" && ").next().unwrap().split(' ').skip(1).collect();
    lab.run(words).exits(0);
    let mut applied = std::process::Command::new("./dynamic");
    applied.current_dir(lab.path("")).arg("--usable");
    let said = applied.env("LD_PRELOAD", "./libmimalloc.so").env("ALLOGRAFT_VERBOSE", "1").output().unwrap();
    assert!(String::from_utf8_lossy(&said.stderr).starts_with("allograft: mimalloc "), "{said:?}");
    // For 24 bytes, glibc gives 24 and mimalloc 32. The output differs, so the arm fails.
    let document = measure(&["--donors", "mimalloc", "--", "./dynamic", "--usable"]).exits(1).json();
    assert!(arm(&document, "mimalloc")["failure"].as_str().unwrap().contains("prints `32`"), "{document}");

    // The system's own malloc has settings, which need no file.
    let document = measure(&["--donors", "glibc:arena_max=2:tcache_count=0", "--", "./dynamic", "--tunables"]);
    let document = document.exits(1).json();
    let tuned = arm(&document, "glibc:arena_max=2:tcache_count=0");
    let told = tuned["failure"].as_str().unwrap();
    assert!(told.contains("prints `glibc.malloc.arena_max=2:glibc.malloc.tcache_count=0`"), "{told}");
    let document = measure(&["--donors", "glibc:arena_max=1", "--", "./dynamic", "100"]).exits(0).json();
    let command = arm(&document, "glibc:arena_max=1")["command"].as_str().unwrap();
    assert_eq!(command, "GLIBC_TUNABLES=glibc.malloc.arena_max=1 ./dynamic 100");
    measure(&["--donors", "glibc:arenas=1", "--", "./dynamic"])
        .exits(2)
        .says(&["no tunable", "help: it knows: arena_max"]);
    measure(&["--donors", "glibc", "--", "./dynamic"]).exits(2).says(&["has no arm `glibc`", "help: "]);

    // Any other shared object: here the donor's again, by its path.
    let file = ["--donors", "preload:./libmimalloc.so", "--", "./dynamic"];
    let document = measure(&[&file[..], &["--usable"]].concat()).exits(1).json();
    let failure = arm(&document, "preload:./libmimalloc.so")["failure"].as_str().unwrap().to_owned();
    assert!(failure.contains("prints `32`"), "{failure}");
    let document = measure(&[&file[..], &["100"]].concat()).exits(0).json();
    let command = arm(&document, "preload:./libmimalloc.so")["command"].as_str().unwrap().to_owned();
    assert!(command.starts_with("LD_PRELOAD=/") && command.ends_with("/libmimalloc.so ./dynamic 100"), "{command}");
    measure(&["--donors", "preload:./main.c", "--", "./dynamic"]).exits(2).says(&[
        "does not take",
        "main.c` by LD_PRELOAD",
        "help: name a shared object",
    ]);

    // A setuid program cannot be preloaded into.
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(lab.path("dynamic"), fs::Permissions::from_mode(0o4755)).unwrap();
    measure(&["--", "./dynamic", "100"]).exits(3).says(&["setuid or setgid", "help: "]);
}

/// Under musl's loader, stock is the slow malloc.
#[test]
fn a_dynamic_program_of_musl_is_measured_with_preloaded_donors() {
    let lab = Lab::new();
    dynamic_with_musl(&lab, PROGRAM, "dynamic");
    let tuned = ["bench", "--donors", "glibc:arena_max=2", "--", "./dynamic"];
    lab.run(tuned).exits(2).says(&["a dynamic program of musl has no arm `glibc:arena_max=2`", "help: "]);
    let start = ["bench", "--rounds", "2", "--budget", "1h", "--json", "--donors", "mimalloc,rpmalloc"];
    let document = lab.run(start.iter().chain(&["--any-output", "--", "./dynamic", "--usable"])).exits(0).json();
    assert_eq!(document["input"]["kind"], "preloaded");
    for name in ["stock", "mimalloc", "rpmalloc"] {
        let arm = arm(&document, name);
        assert!(arm["failure"].is_null() && arm["runs"].as_array().is_some_and(|runs| runs.len() >= 2), "{arm}");
    }
    let command = arm(&document, "mimalloc")["command"].as_str().unwrap();
    assert!(command.starts_with("allograft emit --donor mimalloc --target x86_64-linux-musl"), "{command}");
    let words: Vec<&str> = command.split(" && ").next().unwrap().split(' ').skip(1).collect();
    lab.run(words).exits(0);
    for (preloaded, usable) in [("", "24\n"), ("./libmimalloc.so", "32\n")] {
        let mut applied = std::process::Command::new("./dynamic");
        applied.arg("--usable").env("LD_PRELOAD", preloaded).current_dir(lab.path(""));
        assert_eq!(String::from_utf8_lossy(&applied.output().unwrap().stdout), usable);
    }
}
