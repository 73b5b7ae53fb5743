//! `allograft bench` of dynamic programs: donors are merged into copies, or loaded before the libc.

use std::fs;

use crate::bench::{PROGRAM, arm};
use crate::lab::{Lab, dynamic_with_musl};

#[test]
#[ignore = "minutes: ten seconds of processor time"]
fn a_dynamic_program_is_measured_with_merged_and_preloaded_donors() {
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
    assert_eq!((&document["input"]["kind"], &document["input"]["host"]), (&"executable".into(), &"./dynamic".into()));
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

    // The command makes what was measured: for 24 bytes, glibc gives 24 and mimalloc 32.
    let usable = |arm_name: &str| {
        let document = measure(&["--donors", arm_name, "--any-output", "--", "./dynamic", "--usable"]).exits(0).json();
        arm(&document, arm_name)["command"].as_str().unwrap().to_owned()
    };
    let said = |program: &str, preload: &str| {
        let mut applied = std::process::Command::new(program);
        applied.current_dir(lab.path("")).arg("--usable").env("LD_PRELOAD", preload).env("ALLOGRAFT_VERBOSE", "1");
        let said = applied.output().unwrap();
        assert_eq!(String::from_utf8_lossy(&said.stdout), "32\n");
        String::from_utf8_lossy(&said.stderr).into_owned()
    };
    let command = usable("mimalloc:small");
    assert_eq!(command, "allograft graft ./dynamic --donor mimalloc --profile small");
    lab.run(command.split(' ').skip(1).chain(["-o", "merged"])).exits(0);
    assert!(said("./merged", "").starts_with("allograft: mimalloc "));
    let command = usable("mimalloc:small:preload");
    assert!(
        command.starts_with("allograft emit --donor mimalloc --profile small --target x86_64-linux-gnu"),
        "{command}"
    );
    assert!(command.ends_with("LD_PRELOAD=./libmimalloc.so ./dynamic --usable"), "{command}");
    let words: Vec<&str> = command.split(" && ").next().unwrap().split(' ').skip(1).collect();
    lab.run(words).exits(0);
    assert!(said("./dynamic", "./libmimalloc.so").starts_with("allograft: mimalloc "));
    // Where the output differs, the arm fails.
    let both = measure(&["--donors", "mimalloc,mimalloc:preload", "--", "./dynamic", "--usable"]).exits(1).json();
    for name in ["mimalloc", "mimalloc:preload"] {
        assert!(arm(&both, name)["failure"].as_str().unwrap().contains("prints `32`"), "{both}");
    }

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

    // A copy elsewhere would not find its libraries: the donor is preloaded.
    build("'-Wl,-rpath,$ORIGIN/lib'");
    let document = measure(&["--donors", "mimalloc", "--any-output", "--", "./dynamic", "--usable"]).exits(0).json();
    let warning = document["warnings"][0].as_str().unwrap();
    assert!(
        warning.starts_with("donors are preloaded: one is not merged into a copy of `./dynamic`, which"),
        "{warning}"
    );
    assert_eq!(document["input"]["kind"], "preloaded");
    assert!(arm(&document, "mimalloc")["command"].as_str().unwrap().contains("LD_PRELOAD="), "{document}");

    // A copy of a setuid program has other rights.
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(lab.path("dynamic"), fs::Permissions::from_mode(0o4755)).unwrap();
    measure(&["--", "./dynamic", "100"]).exits(3).says(&["setuid or setgid", "help: "]);
}

/// Under musl's loader, stock is the slow malloc.
#[test]
fn a_dynamic_program_of_musl_is_measured_with_merged_and_preloaded_donors() {
    let lab = Lab::new();
    dynamic_with_musl(&lab, PROGRAM, "dynamic");
    let tuned = ["bench", "--donors", "glibc:arena_max=2", "--", "./dynamic"];
    lab.run(tuned).exits(2).says(&["a dynamic program of musl has no arm `glibc:arena_max=2`", "help: "]);
    let start =
        ["bench", "--rounds", "2", "--budget", "1h", "--json", "--donors", "mimalloc,rpmalloc,mimalloc:preload"];
    let document = lab.run(start.iter().chain(&["--any-output", "--", "./dynamic", "--usable"])).exits(0).json();
    assert_eq!(document["input"]["kind"], "executable");
    for name in ["stock", "mimalloc", "rpmalloc", "mimalloc:preload"] {
        let arm = arm(&document, name);
        assert!(arm["failure"].is_null() && arm["runs"].as_array().is_some_and(|runs| runs.len() >= 2), "{arm}");
    }
    let of = |name: &str| arm(&document, name)["command"].as_str().unwrap().to_owned();
    let (merge, preload) = (of("mimalloc"), of("mimalloc:preload"));
    assert!(preload.starts_with("allograft emit --donor mimalloc --target x86_64-linux-musl"), "{preload}");
    lab.run(merge.split(' ').skip(1).chain(["-o", "merged"])).exits(0);
    lab.run(preload.split(" && ").next().unwrap().split(' ').skip(1)).exits(0);
    for (program, preload, usable) in
        [("./dynamic", "", "24\n"), ("./merged", "", "32\n"), ("./dynamic", "./libmimalloc.so", "32\n")]
    {
        let mut applied = std::process::Command::new(program);
        applied.arg("--usable").env("LD_PRELOAD", preload).current_dir(lab.path(""));
        assert_eq!(String::from_utf8_lossy(&applied.output().unwrap().stdout), usable);
    }
}
