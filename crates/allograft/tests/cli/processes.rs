//! `inspect --pid` and `--all`: processes that run, started in the ways that users start them.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::lab::{Lab, Running, dynamic_with_musl};

/// Allocates, says so, and waits for the end of its input.
const WAITING: &str = "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\nint main(void) {\n\
                       char *p = malloc(8 << 20); if (!p) return 1; memset(p, 1, 8 << 20);\n\
                       puts(\"ready\"); fflush(stdout); getchar(); free(p); return 0; }\n";

/// Starts it, and waits until it has allocated.
#[track_caller]
fn start(command: &mut Command) -> Running {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    Running(child)
}

/// Returns its number.
fn pid(running: &Running) -> String {
    running.0.id().to_string()
}

#[track_caller]
fn inspected(lab: &Lab, running: &Running) -> Value {
    let document = lab.run(["inspect", "--pid", &pid(running), "--json"]).exits(0).json();
    crate::documents::fits("inspect", &document);
    assert_eq!(document["files"].as_array().unwrap().len(), 0);
    document["processes"][0].clone()
}

/// Makes `static` and `dynamic` of the program that waits.
fn programs(lab: &Lab) {
    let musl = fixtures::musl_gcc(&lab.path("")).unwrap();
    lab.put("waiting.c", WAITING.as_bytes());
    crate::lab::tool(
        Command::new(musl)
            .args(["-static", "-O1", "-fno-builtin", "-o", "static", "waiting.c"])
            .current_dir(lab.path("")),
    );
    crate::lab::tool(
        fixtures::cc().args(["-O1", "-fno-builtin", "-o", "dynamic", "waiting.c"]).current_dir(lab.path("")),
    );
}

#[test]
fn the_malloc_of_a_process_is_told() {
    let lab = Lab::new();
    programs(&lab);
    let run = |name: &str| start(&mut Command::new(lab.path(name)));

    let stock = run("static");
    let process = inspected(&lab, &stock);
    assert_eq!((&process["malloc"]["name"], &process["link"]), (&"mallocng".into(), &"static".into()));
    assert_eq!(process["path"], fs::canonicalize(lab.path("static")).unwrap().display().to_string());
    let resident = process["memory"]["resident_bytes"].as_u64().unwrap();
    assert!(resident >= 8 << 20 && process["memory"]["data_mapped_bytes"].as_u64().unwrap() >= 8 << 20, "{process}");
    // A graft of the file replaces it: the process still runs the old one, and says so.
    lab.run(["graft", "static", "--donor", "mimalloc"]).exits(0);
    let process = inspected(&lab, &stock);
    assert_eq!((&process["malloc"]["name"], &process["deleted"]), (&"mallocng".into(), &true.into()));
    let grafted = run("static");
    let process = inspected(&lab, &grafted);
    assert_eq!((&process["malloc"]["name"], &process["deleted"]), (&"mimalloc".into(), &false.into()));

    let dynamic = run("dynamic");
    let process = inspected(&lab, &dynamic);
    assert_eq!(process["malloc"]["name"], "glibc");
    assert!(process["malloc"]["file"].as_str().unwrap().ends_with("/libc.so.6"), "{process}");
    lab.run(["inspect", "--pid", &pid(&dynamic), "--expect", "glibc"]).exits(0);
    let by_loader = start(Command::new("/lib64/ld-linux-x86-64.so.2").arg(lab.path("dynamic")));
    let process = inspected(&lab, &by_loader);
    assert_eq!(
        (&process["malloc"]["name"], &process["malloc"]["file"]),
        (&"unknown".into(), &Value::Null),
        "{process}"
    );
    let musl = dynamic_with_musl(&lab, WAITING, "of-musl");
    let process = inspected(&lab, &start(&mut Command::new(musl)));
    assert_eq!(process["malloc"]["name"], "mallocng");
    assert!(process["malloc"]["file"].as_str().unwrap().ends_with("/libc.so"), "{process}");
    let ran = lab.run(["inspect", "--pid", &pid(&dynamic), "--pid", &pid(&grafted), "--expect", "mimalloc"]).exits(1);
    assert!(ran.err.contains("`glibc`, expected `mimalloc`"), "{}", ran.err);
    assert!(ran.out.lines().count() == 3 && ran.out.starts_with("malloc"), "{}", ran.out);
}

#[test]
fn a_preload_that_took_effect_is_told_from_one_that_did_not() {
    let lab = Lab::new();
    programs(&lab);
    let emit = ["emit", "--donor", "mimalloc", "--target", "x86_64-linux-gnu", "--as", "shared", "-o", "libfast.so"];
    lab.run(emit).exits(0);
    let fast = fs::canonicalize(lab.path("libfast.so")).unwrap().display().to_string();
    let run = |name: &str, preload: &str| {
        start(Command::new(lab.path(name)).env("LD_PRELOAD", preload).current_dir(lab.path("")))
    };
    let preload = |process: &Value| {
        let preload = &process["preloads"][0];
        (preload["source"].as_str().unwrap().to_owned(), preload["loaded"] == true, preload["serves"] == true)
    };
    let variable = "LD_PRELOAD".to_owned();

    for name in [fast.as_str(), "./libfast.so"] {
        let process = inspected(&lab, &run("dynamic", name));
        assert_eq!(
            (&process["malloc"]["name"], &process["malloc"]["file"]),
            (&"mimalloc".into(), &fast.clone().into())
        );
        assert_eq!(preload(&process), (variable.clone(), true, true), "{process}");
    }
    let wrong = run("dynamic", "/usr/lib/aarch64-linux-gnu/libfast.so");
    let process = inspected(&lab, &wrong);
    assert_eq!((&process["malloc"]["name"], preload(&process)), (&"glibc".into(), (variable.clone(), false, false)));
    let text = lab.run(["inspect", "--pid", &pid(&wrong)]).exits(0).out;
    assert!(
        text.contains("`/usr/lib/aarch64-linux-gnu/libfast.so` of LD_PRELOAD is not loaded: it has no effect"),
        "{text}"
    );
    // A static program has no loader that could.
    let process = inspected(&lab, &run("static", &fast));
    assert_eq!((&process["malloc"]["name"], preload(&process)), (&"mallocng".into(), (variable.clone(), false, false)));
    // The file is gone meanwhile. Root reads what is mapped; other users get the reason why it cannot be read.
    let running = run("dynamic", &fast);
    fs::remove_file(&fast).unwrap();
    let process = inspected(&lab, &running);
    match process["malloc"]["name"].as_str().unwrap() {
        "mimalloc" => assert_eq!(process["malloc"]["file"], fast),
        other => {
            assert_eq!(other, "unknown");
            assert!(process["malloc"]["evidence"][0]["detail"].as_str().unwrap().contains("deleted"), "{process}");
        }
    }
}

#[test]
fn all_processes_make_a_table_without_this_one() {
    let lab = Lab::new();
    programs(&lab);
    let running = start(&mut Command::new(lab.path("static")));
    let document = lab.run(["inspect", "--all", "--json"]).exits(0).json();
    crate::documents::fits("inspect", &document);
    let processes = document["processes"].as_array().unwrap();
    assert!(document["closed_processes"].is_u64());
    let own = processes.iter().find(|process| process["pid"] == running.0.id()).unwrap();
    assert_eq!(own["malloc"]["name"], "mallocng");
    let this = processes.iter().find(|process| process["pid"] == std::process::id()).unwrap();
    assert!(this["malloc"]["file"].as_str().unwrap().contains("libc.so"), "{this}");
    let table = lab.run(["inspect", "--all"]).exits(0).out;
    assert!(table.lines().any(|line| line.starts_with("mallocng") && line.contains(&pid(&running))), "{table}");
}

#[test]
fn what_is_no_process_is_told() {
    let lab = Lab::new();
    let ended = {
        let mut child = Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        child.id().to_string()
    };
    lab.run(["inspect", "--pid", &ended]).exits(2).says(&["cannot inspect process", &ended, "help: "]);
    lab.run(["inspect", "--pid", "1", "file"]).exits(2).says(&["cannot be used with"]);
    lab.run(["inspect"]).exits(2).says(&["required"]);
    // Another user's process.
    let inspector = lab.put("inspector", &fs::read(env!("CARGO_BIN_EXE_allograft")).unwrap());
    fs::set_permissions(&inspector, fs::Permissions::from_mode(0o755)).unwrap();
    if fs::metadata("/proc/self").map(|own| std::os::unix::fs::MetadataExt::uid(&own)).unwrap() == 0 {
        let line = format!("{} inspect --pid {}", inspector.display(), std::process::id());
        let ran: fixtures::Ran = Command::new("setpriv")
            .args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "sh", "-c", &line])
            .output()
            .unwrap()
            .into();
        ran.exits(2).says(&["it is another user's", "help: run this as that user, or as root"]);
    }
}
