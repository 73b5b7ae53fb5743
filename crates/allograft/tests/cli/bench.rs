//! `bench`: builds, measures and recommends; makes reports from saved results; refuses.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use fixtures::shell::word;
use fixtures::{Arch, Ran};
use serde_json::Value;

use crate::lab::{Lab, tool};

/// Allocates in a loop and prints a checksum. With `--usable`, prints a value that differs between allocators.
pub(crate) const PROGRAM: &str = r#"
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "--usable") == 0) return !printf("%zu\n", malloc_usable_size(malloc(24)));
    const char *tunables = getenv("GLIBC_TUNABLES");
    if (argc > 1 && strcmp(argv[1], "--tunables") == 0) return !puts(tunables ? tunables : "none");
    long rounds = argc > 1 ? atol(argv[1]) : 20000, sum = 0;
    static char *held[1000];
    for (long i = 0; i < rounds; i++) {
        free(held[i % 1000]);
        held[i % 1000] = malloc(16 + i * 7 % 400);
        memset(held[i % 1000], (int)i, 16);
        sum += held[i % 1000][3];
    }
    if (argc > 2 && strcmp(argv[2], "--code") == 0) fprintf(stderr, "findings\n"), exit(atoi(argv[3]));
    /* One that ends otherwise each time. */
    if (argc > 2 && strcmp(argv[2], "--flip") == 0) {
        FILE *runs = fopen("runs", "a");
        fputc('x', runs);
        exit(1 + (int)(ftell(runs) % 2));
    }
    if (argc > 2 && strcmp(argv[2], "--die") == 0) abort();
    const char *threads = getenv("THREADS");
    printf("sum %ld\n", sum);
    return threads ? fprintf(stderr, "%s threads\n", threads) < 0 : 0;
}
"#;

/// A folder with a program, and the musl of this machine's architecture.
pub(crate) struct Bench {
    pub(crate) lab: Lab,
    libc: PathBuf,
}

impl Bench {
    pub(crate) fn new() -> Bench {
        let lab = Lab::new();
        lab.put("main.c", PROGRAM.as_bytes());
        Bench { lab, libc: fixtures::debian_musl(Arch::X86_64).libc }
    }

    /// Returns the command that builds the program as musl-gcc does, with the libc.a of that folder.
    pub(crate) fn build(&self, libdir: &str) -> String {
        let include = fixtures::debian_musl(Arch::X86_64).include;
        format!(
            "cc -O2 -fno-stack-protector -U_FORTIFY_SOURCE -fno-pie -nostdinc -isystem {} -static -no-pie -nostdlib \
             {libdir}/crt1.o {libdir}/crti.o main.c {{object}} -Wl,--start-group {libdir}/libc.a -lgcc -Wl,--end-group \
             {libdir}/crtn.o -o {{out}}",
            word(include)
        )
    }

    /// Returns the stock libc's folder as a word for the shell.
    fn libdir(&self) -> String {
        word(self.libc.parent().unwrap())
    }

    /// Makes a bench whose program is already linked with stock musl, as `finished`.
    fn finished() -> Bench {
        let bench = Bench::new();
        let build = bench.build(&bench.libdir()).replace("{object}", "").replace("{out}", "finished");
        tool(Command::new("sh").args(["-c", &build]).current_dir(bench.lab.path("")));
        bench
    }

    /// Measures the finished program with few rounds.
    fn run_finished(&self, more: &[&str]) -> Ran {
        self.lab.run(["bench", "--rounds", "2", "--budget", "1h", "--json"].iter().chain(more))
    }

    fn run(&self, more: &[&str]) -> Ran {
        let build = self.build("{libdir}");
        self.run_built(&build.replace("{object}", ""), more)
    }

    pub(crate) fn run_built(&self, build: &str, more: &[&str]) -> Ran {
        let host = self.libc.to_str().unwrap();
        let start = ["bench", "--host", host, "--build", build, "--budget", "1h"];
        self.lab.run(start.iter().chain(more))
    }
}

pub(crate) fn arm<'d>(document: &'d Value, name: &str) -> &'d Value {
    document["arms"].as_array().unwrap().iter().find(|arm| arm["name"] == name).unwrap()
}

#[test]
fn a_program_is_built_measured_and_judged() {
    let bench = Bench::new();
    let before = fs::read(&bench.libc).unwrap();
    let ran = bench.run(&[
        "--donors",
        "stock,mimalloc,mimalloc:small:only",
        "--rounds",
        "8",
        "--json",
        "--html",
        "report.html",
        "--save",
        "results.json",
        "--csv",
        "table.csv",
        "--",
        "60000",
    ]);
    let document = ran.exits(0).json();
    crate::documents::fits("bench", &document);
    for name in ["stock", "mimalloc", "mimalloc:small:only"] {
        let arm = arm(&document, name);
        let runs = arm["runs"].as_array().unwrap();
        assert!(!runs.is_empty() && runs.iter().all(|run| run["wall_s"].as_f64().unwrap() > 0.0), "{arm}");
        assert!(arm["median_wall_s"].as_f64().unwrap() > 0.0);
        assert!(arm["peak_memory_bytes"].as_u64().unwrap() > 100_000);
        let ratio = &arm["ratio_to_stock"];
        let part = |part: &str| ratio[part].as_f64().unwrap();
        assert!(part("low") <= part("value") && part("value") <= part("high"), "{ratio}");
    }
    assert_eq!(arm(&document, "stock")["ratio_to_stock"]["value"], 1.0);
    assert_eq!(arm(&document, "stock")["donor"], Value::Null);
    assert_eq!(arm(&document, "mimalloc:small:only")["donor"], "mimalloc");
    assert_eq!(arm(&document, "mimalloc:small:only")["strings"], false);
    let calls = &document["cases"][0]["arms"][0]["calls"];
    assert!(
        calls["complete"] == true && calls["brk"].as_u64().unwrap() + calls["mmap"].as_u64().unwrap() > 0,
        "{calls}"
    );
    let recommendation = &document["recommendation"];
    assert!(recommendation["arm"].is_string() && recommendation["reason"].is_string(), "{recommendation}");
    assert!(document["plan"]["seed"].is_u64() && document["machine"]["processors"].is_u64());
    // The host is unchanged, and the temporary files are gone.
    assert!(fs::read(&bench.libc).unwrap() == before);
    assert_eq!(bench.lab.names(), ["main.c", "report.html", "results.json", "table.csv"]);

    let kept: Value = serde_json::from_slice(&fs::read(bench.lab.path("results.json")).unwrap()).unwrap();
    assert_eq!(kept, document);
    let html = fs::read_to_string(bench.lab.path("report.html")).unwrap();
    assert!(html.contains("mimalloc:small:only") && html.contains("<svg"));
    assert_eq!(fs::read_to_string(bench.lab.path("table.csv")).unwrap().lines().count(), 4);

    // The saved results give the same reports, on any machine.
    bench.lab.run(["bench", "--from", "results.json", "--html", "again.html", "--markdown", "table.md", "-q"]).exits(0);
    assert_eq!(fs::read_to_string(bench.lab.path("again.html")).unwrap(), html);
    let markdown = fs::read_to_string(bench.lab.path("table.md")).unwrap();
    assert!(markdown.contains("| stock |") && markdown.contains("| mimalloc |"), "{markdown}");
    let shown = bench.lab.run(["bench", "--from", "results.json"]).exits(0).out;
    assert!(shown.contains("take:") && shown.contains("mimalloc:small:only"), "{shown}");
    crate::pull_requests::say_what_was_decided(&bench.lab, document);
}

#[test]
fn the_one_object_way() {
    let bench = Bench::new();
    // The libc stays stock; the donor comes as an object.
    let build = bench.build(&bench.libdir());
    let ran = bench.run_built(&build, &["--donors", "rpmalloc,rpmalloc:only", "--rounds", "1", "--json"]).exits(0);
    let document = ran.json();
    assert_eq!(document["arms"].as_array().unwrap().len(), 3);
    assert!(document["arms"].as_array().unwrap().iter().all(|arm| arm["failure"].is_null()));
}

#[test]
fn glibc_is_compared_and_never_taken() {
    let bench = Bench::new();
    let glibc =
        ["--build-glibc", "cc -O2 main.c -o {out}", "--donors", "strings", "--rounds", "2", "--for", "speed", "--json"];
    let document = bench.run(&glibc).exits(0).json();
    assert!(arm(&document, "glibc")["median_wall_s"].as_f64().is_some(), "{document}");
    assert_eq!(arm(&document, "glibc")["eligible"], false);
    assert!(!document["recommendation"]["pareto"].as_array().unwrap().contains(&"glibc".into()));
    // An arm that does not build is left out; the others are measured.
    let ran = bench.run(&["--build-glibc", "false {out}", "--donors", "strings", "--rounds", "1", "--json"]).exits(1);
    let document = ran.says(&["glibc: the build command failed"]).json();
    assert!(arm(&document, "glibc")["failure"].as_str().unwrap().starts_with("the build command failed"));
    assert!(arm(&document, "strings")["median_wall_s"].as_f64().is_some());
}

#[test]
fn threads_are_swept() {
    let bench = Bench::new();
    let sweep = ["--donors", "mimalloc", "--rounds", "1", "--threads", "1,3", "--threads-var", "THREADS", "--json"];
    let document = bench.run(&sweep).exits(0).json();
    let threads: Vec<_> =
        document["cases"].as_array().unwrap().iter().map(|case| case["threads"].as_u64().unwrap()).collect();
    assert_eq!(threads, [1, 3]);
    assert_eq!(arm(&document, "mimalloc")["runs"].as_array().unwrap().len(), 2);
    bench.run(&["--threads", "1,3", "--", "100"]).exits(2).says(&["number of threads", "{threads}", "--threads-var"]);
}

#[test]
fn another_answer_is_said_and_is_exit_code_1() {
    let bench = Bench::new();
    let ran = bench.run(&["--donors", "mimalloc,strings", "--rounds", "1", "--json", "--", "--usable"]).exits(1);
    let document = ran.json();
    let failure = arm(&document, "mimalloc")["failure"].as_str().unwrap();
    assert!(failure.contains("prints `") && failure.contains("stock prints `"), "{failure}");
    assert!(arm(&document, "strings")["failure"].is_null());
    bench.run(&["--donors", "mimalloc", "--rounds", "1", "--any-output", "--", "--usable"]).exits(0);
}

#[test]
fn a_build_that_ignores_the_graft_is_found_out() {
    let bench = Bench::new();
    let stock = bench.build(&bench.libdir()).replace("{object}", "");
    let build = format!("{stock} # {{libdir}}");
    let ran = bench.run_built(&build, &["--donors", "mimalloc"]).exits(2);
    ran.says(&["mimalloc: the program that was built carries mallocng, not mimalloc", "{libdir}", "earlier build"]);
}

#[test]
fn wrong_usage_is_explained() {
    let bench = Bench::new();
    let with = |build: &str, more: &[&str]| bench.run_built(build, more);
    with("cc {libdir}", &[]).exits(2).says(&["does not say `{out}`", "help: "]);
    with("cc main.c -o {out}", &[]).exits(2).says(&["neither `{libdir}` nor `{object}`"]);
    with("false {libdir} {out}", &["--donors", "mimalloc"])
        .exits(2)
        .says(&["stock: the build command failed", "false"]);
    with("true {libdir} {out}", &["--donors", "mimalloc"]).exits(2).says(&["left no program"]);
    with("cc {libdir} {out}", &["--donors", "mimaloc"]).exits(2).says(&["no arm `mimaloc`", "mimalloc"]);
    let host = |path: &str| bench.lab.run(["bench", "--host", path, "--build", "cc {libdir} {out}"]);
    host("missing.a").exits(2).says(&["missing.a"]);
    host("main.c").exits(2).says(&["main.c"]);
    fs::copy(&bench.libc, bench.lab.path("libc.a")).unwrap();
    bench.lab.run(["graft", "libc.a", "-o", "graft.a"]).exits(0);
    host("graft.a").exits(2).says(&["carries snmalloc already", "undo"]);
    // These are refused before anything is measured.
    with("cc {libdir} {out}", &["--html", "missing/report.html"]).exits(2).says(&["missing/report.html", "folder"]);
    for dashes in [&["--"][..], &[]] {
        let run = |words: &[&str]| bench.lab.run([&["bench"], dashes, words].concat()).exits(2);
        run(&["./program", "x"]).says(&["cannot read `./program`", "help: "]);
        run(&["./main.c", "--bogus"]).says(&["`./main.c` is not an ELF program", "--build"]);
        run(&["."]).says(&["`.` is a folder", "`allograft bench ./PROGRAM ARGS`"]);
    }
    // A word without a slash is a case, or else a program that a shell would find.
    let says = ["neither a program `lasron` nor a case", "did you mean the case `larson`?"];
    bench.lab.run(["bench", "lasron"]).exits(2).says(&says);
    bench
        .lab
        .run(["bench", "map", "./main.c"])
        .exits(2)
        .says(&["`./main.c` is not a case", "`allograft bench PROGRAM ARGS`"]);
    bench.lab.put("map", b"");
    let says = ["`map` is a case", "`allograft bench ./map`", "`allograft bench suite:map`"];
    let ran = bench.lab.run(["bench", "--json", "map", "larson"]).exits(2).says(&says);
    assert_eq!(ran.json()["error"]["exit_code"], 2);
    bench.lab.run(["bench", "suite:map", "--host", "missing.a"]).exits(2).says(&["missing.a"]);
    bench.lab.run(["bench", "./map"]).exits(2).says(&["`./map` is not an ELF program"]);
    // A dynamic program has nothing to graft, and a preloaded object has no string functions.
    let dynamic = env!("CARGO_BIN_EXE_allograft");
    let ran = bench.lab.run(["bench", "--donors", "strings", "--", dynamic]);
    ran.exits(2).says(&["a dynamic program of glibc has no arm `strings`", "mimalloc"]);
    bench.lab.put("results.json", b"{\"schema_version\": 9}");
    bench.lab.run(["bench", "--from", "results.json"]).exits(2).says(&["schema_version is 9, expected 1"]);
}

#[test]
fn a_finished_program_is_grafted_and_measured() {
    let bench = Bench::finished();
    let before = fs::read(bench.lab.path("finished")).unwrap();
    let ran = bench.lab.run([
        "bench",
        "--donors",
        "mimalloc,mimalloc:small",
        "--threads",
        "1,2",
        "--threads-var",
        "THREADS",
        "--rounds",
        "2",
        "--budget",
        "1h",
        "--json",
        "--",
        "./finished",
        "20000",
    ]);
    let document = ran.exits(0).json();
    assert_eq!(document["input"]["kind"], "executable");
    for name in ["stock", "mimalloc", "mimalloc:small"] {
        let arm = arm(&document, name);
        assert!(arm["failure"].is_null() && arm["runs"].as_array().is_some_and(|runs| runs.len() >= 2), "{arm}");
    }
    let command = arm(&document, "mimalloc:small")["command"].as_str();
    assert_eq!(command, Some("allograft graft ./finished --donor mimalloc --profile small"));
    assert_eq!(fs::read(bench.lab.path("finished")).unwrap(), before);
}

/// A linked executable keeps its string functions unless others are requested. Both variants are measured, and the
/// recommended command makes the variant that was measured.
#[test]
#[ignore = "minutes: eight seconds of processor time"]
fn a_finished_program_is_measured_with_string_functions_too() {
    let bench = Bench::finished();
    let document = bench.run_finished(&["--donors", "all", "--", "./finished", "20000"]).exits(0).json();
    let names: Vec<&str> =
        document["arms"].as_array().unwrap().iter().map(|arm| arm["name"].as_str().unwrap()).collect();
    let fitting: Vec<&str> =
        donors::all().iter().filter(|donor| donor.has_blob(Arch::X86_64)).map(|donor| donor.name).collect();
    let both = fitting.iter().flat_map(|name| [(*name).to_owned(), format!("{name}:strings")]);
    assert_eq!(names, ["stock".to_owned()].into_iter().chain(both).collect::<Vec<_>>());
    for (name, strings, options) in [("mimalloc", false, ""), ("mimalloc:strings", true, " --strings on")] {
        let arm = arm(&document, name);
        assert_eq!((&arm["strings"], &arm["donor"]), (&strings.into(), &"mimalloc".into()));
        assert!(arm["failure"].is_null() && arm["runs"].as_array().is_some_and(|runs| runs.len() >= 2), "{arm}");
        assert_eq!(arm["command"], format!("allograft graft ./finished --donor mimalloc{options}"));
    }
    assert_eq!(document["warnings"], Value::Array(Vec::new()));
    let command = arm(&document, "mimalloc:strings")["command"].as_str().unwrap().to_owned();
    bench.lab.run(command.split(' ').skip(1).chain(["-o", "applied"])).exits(0);
    let report = &bench.lab.run(["inspect", "applied", "--json"]).exits(0).json()["files"][0];
    assert_eq!((&report["strings"], &report["malloc"]["name"]), (&"grafted".into(), &"mimalloc".into()));
    bench.run_finished(&["--donors", "strings", "--", "./finished"]).exits(2).says(&["no arm `strings`", "mimalloc"]);

    // If no string functions can be exchanged, only the arms without are measured. An arm with them that was named is
    // refused.
    let mut rename = Command::new("objcopy");
    let internal = ["__memrchr", "__strchrnul", "__stpcpy", "__stpncpy"];
    let functions = fixtures::strings::FUNCTIONS.into_iter().chain(internal);
    tool(
        rename.args(functions.map(|name| format!("--redefine-sym={name}=own_{name}"))).arg(bench.lab.path("finished")),
    );
    let document = bench.run_finished(&["--", "./finished", "20000"]).exits(0).json();
    assert_eq!(document["arms"].as_array().unwrap().len(), 1 + fitting.len());
    let warning = document["warnings"][0].as_str().unwrap();
    assert!(warning.contains("no arm has string functions") && warning.contains("can be exchanged"), "{warning}");
    bench.run_finished(&["--donors", "mimalloc:strings", "--", "./finished"]).exits(3).says(&["can be exchanged"]);
}

/// Linters end with a code other than 0 if they find something.
#[test]
fn an_exit_code_is_what_every_arm_repeats() {
    let bench = Bench::finished();
    let run = |more: &[&str]| bench.run_finished(&[&["--donors", "mimalloc", "--"], more].concat());
    let document = run(&["./finished", "2000", "--code", "3"]).exits(0).json();
    let arm = arm(&document, "mimalloc");
    assert!(arm["failure"].is_null() && arm["runs"].as_array().is_some_and(|runs| runs.len() >= 2), "{arm}");
    let case = &document["cases"][0];
    assert_eq!((&case["exit_code"], &case["complaint"]), (&3.into(), &"findings".into()));
    assert!(case["arms"][0]["calls"]["complete"] == true || case["arms"][0]["no_calls"].is_string(), "{case}");
    let table = ["bench", "--donors", "mimalloc", "--rounds", "1", "./finished", "2000", "--code", "3"];
    let shown = bench.lab.run(table).exits(0).out;
    assert!(shown.contains("ends with exit code 3, with stock and in every run; stock says `findings`"), "{shown}");
    // `graft --try` accepts the same.
    let tried = ["graft", "finished", "-o", "tried", "--json", "--try", "--", "2000", "--code", "3"];
    let tried = bench.lab.run(tried).exits(0).json()["hosts"][0]["tried"].to_string();
    assert!(tried.contains("exit status: 3 and the same"), "{tried}");
    // Other codes are refused: stock that ends differently each time, a signal, and a code of one arm alone.
    run(&["./finished", "2000", "--die"]).exits(2).says(&["stock ends with signal 6"]);
    let said = run(&["./finished", "2000", "--flip"]).exits(2);
    said.says(&["stock does not end the same way twice: with exit code 1, then with exit code 2", "help: "]);
    let build = bench.build("{libdir}").replace("{object}", "");
    // Only the second arm's program ends with a different code.
    let other = format!("{build} && if test -e seen; then printf '#!/bin/sh\nexit 5\n' >{{out}}; fi; touch seen");
    let document =
        bench.run_built(&other, &["--donors", "mimalloc", "--rounds", "1", "--any-output", "--json"]).exits(1).json();
    let failure = self::arm(&document, "mimalloc")["failure"].as_str().unwrap();
    assert_eq!(failure, "ends with exit code 5, not with exit code 0 as stock");
}

/// The command that applies the result contains the options that were typed, and it works.
#[test]
fn a_graft_in_place_is_compared_with_its_stock() {
    let bench = Bench::new();
    for name in ["libc.a", "crt1.o", "crti.o", "crtn.o"] {
        fs::copy(bench.libc.with_file_name(name), bench.lab.path(name)).unwrap();
    }
    bench.lab.run(["graft", "libc.a", "--donor", "rpmalloc"]).exits(0);
    let build = bench.build("{libdir}").replace("{object}", "");
    let ran = bench.lab.run([
        "bench", "--host", "libc.a", "--build", &build, "--donors", "mimalloc", "--rounds", "1", "--budget", "1h",
        "--json",
    ]);
    assert_eq!(arm(&ran.exits(0).json(), "mimalloc")["failure"], Value::Null);
}

#[test]
fn a_server_is_measured_by_its_load() {
    let bench = Bench::new();
    // A script takes the place of the server. The load prints fixed figures.
    let build = bench.build("{libdir}").replace("{object}", "") + " && test -n '{out}'";
    let server = "sh -c '{out} && exec python3 -m http.server --bind 127.0.0.1 {port}'";
    let load = "echo '{ \"requests_per_second\": 100.0, \"p99_ms\": 2.5 }'";
    let more = ["--donors", "mimalloc", "--rounds", "1", "--server", server, "--load", load, "--json"];
    let document = bench.run_built(&build, &more).exits(0).json();
    let run = &arm(&document, "mimalloc")["runs"][0];
    assert_eq!((&run["service"]["requests_per_second"], &run["service"]["p99_ms"]), (&100.0.into(), &2.5.into()));
    assert_eq!(arm(&document, "mimalloc")["ratio_to_stock"]["value"], 1.0);
}

/// A linked program can also be a server: static, or dynamic.
#[test]
#[ignore = "minutes: ten seconds of processor time"]
fn a_finished_server_is_measured_by_its_load() {
    let bench = Bench::finished();
    let load = "echo '{ \"requests_per_second\": 100.0 }'";
    // The script runs the program, which records its malloc, and then listens in its place.
    let server = "sh -c '{out} --usable >>told && exec python3 -m http.server --bind 127.0.0.1 {port}'";
    let run = |more: &[&str]| bench.run_finished(&[&["--server", server, "--load", load], more].concat());
    let document = run(&["--donors", "mimalloc,mimalloc:strings", "--", "./finished"]).exits(0).json();
    assert_eq!(document["input"]["kind"], "executable");
    for name in ["stock", "mimalloc", "mimalloc:strings"] {
        let arm = arm(&document, name);
        assert_eq!(arm["runs"][0]["service"]["requests_per_second"], 100.0, "{arm}");
    }
    let told = fs::read_to_string(bench.lab.path("told")).unwrap();
    assert!(told.contains("24\n") && told.contains("32\n"), "stock and graft: {told}");
    let commands = document["input"]["commands"].to_string();
    assert!(commands.contains(&server[..20]) && commands.contains("./finished"), "{commands}");

    tool(Command::new("sh").args(["-c", "cc -O2 -fno-builtin main.c -o dynamic"]).current_dir(bench.lab.path("")));
    fs::remove_file(bench.lab.path("told")).unwrap();
    let document = run(&["--donors", "mimalloc,mimalloc:preload", "--", "./dynamic"]).exits(0).json();
    assert_eq!(document["input"]["kind"], "executable");
    assert_eq!(arm(&document, "mimalloc")["runs"][0]["service"]["requests_per_second"], 100.0);
    let told = fs::read_to_string(bench.lab.path("told")).unwrap();
    assert!(told.contains("24\n") && told.contains("32\n"), "stock and donors: {told}");
    let command = arm(&document, "mimalloc:preload")["command"].as_str().unwrap();
    assert!(command.contains("LD_PRELOAD=./libmimalloc.so sh -c './dynamic --usable >>told"), "{command}");

    let plain = "{out} --port {port}";
    let wrong = |more: &[&str]| bench.lab.run(["bench"].iter().chain(more)).exits(2);
    wrong(&["--server", plain, "--load", load]).says(&["there is no server to start", "--build"]);
    wrong(&["--server", plain, "--load", load, "--", "./finished", "x"]).says(&["`x` would not reach the server"]);
    wrong(&["--server", "./finished {port}", "--load", load, "--", "./finished"]).says(&["does not say `{out}`"]);
    wrong(&["--server", "{out}", "--load", load, "--", "./finished"]).says(&["does not say `{port}`"]);
    wrong(&["--server", plain, "--", "./finished"]).says(&["--load"]);
}

#[test]
fn the_suite_runs_with_everything_that_can_be_an_arm() {
    let bench = Bench::new();
    let include = fixtures::debian_musl(Arch::X86_64).include;
    let ran = bench.lab.run([
        "bench",
        "bursts",
        "--host",
        bench.libc.to_str().unwrap(),
        "--include",
        include.to_str().unwrap(),
        "--donors",
        "mimalloc,bump,glibc",
        "--threads",
        "2",
        "--rounds",
        "1",
        "--quick",
        "--json",
    ]);
    let document = ran.exits(0).json();
    let names: Vec<_> = document["arms"].as_array().unwrap().iter().map(|arm| arm["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["stock", "mimalloc", "bump", "glibc"]);
    assert!(document["arms"].as_array().unwrap().iter().all(|arm| arm["failure"].is_null()), "{document}");
    assert_eq!(document["cases"][0]["name"], "bursts");
    assert_ne!(document["recommendation"]["arm"], "glibc");
}

#[test]
fn what_the_budget_leaves_out_is_said() {
    let bench = Bench::new();
    let include = fixtures::debian_musl(Arch::X86_64).include;
    let ran = bench.lab.run([
        "bench",
        "bursts",
        "small",
        "--host",
        bench.libc.to_str().unwrap(),
        "--include",
        include.to_str().unwrap(),
        "--donors",
        "strings",
        "--threads",
        "1",
        "--quick",
        "--budget",
        "0s",
        "--json",
    ]);
    let document = ran.exits(0).json();
    let warnings = document["warnings"].as_array().unwrap();
    let said = |part: &str| warnings.iter().any(|warning| warning.as_str().unwrap().contains(part));
    assert!(
        said("the budget was spent before these were measured: ") && document["interrupted"] == false,
        "{warnings:?}"
    );
    assert_eq!(document["cases"].as_array().unwrap().len(), 1);
    // Figures over all cases are those of the cases that were measured.
    assert!(arm(&document, "strings")["ratio_to_stock"]["value"].as_f64().is_some());
}

#[test]
fn ctrl_c_keeps_the_rounds_that_were_complete() {
    let bench = Bench::new();
    let build = bench.build("{libdir}").replace("{object}", "");
    let mut command = bench.lab.command();
    command.args(["bench", "--host", bench.libc.to_str().unwrap(), "--build", &build, "--donors", "mimalloc"]);
    let ran = ended_by(rustix::process::Signal::INT, "round 4,", command, &[]).exits(0);
    let document = ran.json();
    assert_eq!((&document["interrupted"], &document["cases"][0]["stopped"]), (&true.into(), &"interrupted".into()));
    let runs = |name| arm(&document, name)["runs"].as_array().unwrap().len();
    assert!(runs("stock") >= 3 && runs("stock") == runs("mimalloc"));
    ran.says(&["interrupted"]);
}

/// Starts a bench that would take an hour, and sends it the signal when it has said that. Its document is read
/// meanwhile: after many rounds it is longer than what a pipe takes.
fn ended_by(signal: rustix::process::Signal, wanted: &str, mut command: Command, program: &[&str]) -> Ran {
    // With -v each step is a line, also if the output is not a terminal.
    command.args(["--budget", "1h", "--precision", "0.05", "-v", "--json"]).args(program);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let document = std::thread::spawn(move || io::read_to_string(&mut stdout).unwrap());
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains(wanted)), "it ended by itself");
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), signal).unwrap();
    let err = lines.map(Result::unwrap).collect::<Vec<_>>().join("\n");
    let code = child.wait().unwrap().code().unwrap_or(-1);
    Ran { code, out: document.join().unwrap(), err }
}

/// The folder of a run that ends by itself, or by a signal that can be caught, is deleted; that of a killed one by the
/// next run.
#[test]
fn no_folder_is_left_over() {
    let lab = Lab::new();
    crate::executables::program(&lab, "echo");
    fs::create_dir(lab.path("tmp")).unwrap();
    let left = || fs::read_dir(lab.path("tmp")).unwrap().count();
    let ended_by = |signal: rustix::process::Signal| {
        // Under nohup all its children ignore HUP, and allograft leaves an ignored signal ignored.
        let (program, mut command) = (lab.command(), Command::new("env"));
        command.arg("--default-signal=HUP").arg(program.get_program()).current_dir(lab.folder());
        command.env("TMPDIR", lab.path("tmp")).args(["bench", "--donors", "mimalloc"]);
        ended_by(signal, "round 2,", command, &["--", "./echo", "x"])
    };
    ended_by(rustix::process::Signal::KILL);
    assert_eq!(left(), 1, "no process was there to delete it");
    // A program that the killed run had started may still use its folder, and a child that has not begun yet its lock.
    while crate::lab::is_used(&lab.path("tmp")) {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let ran = ended_by(rustix::process::Signal::HUP).exits(0);
    assert_eq!(ran.json()["interrupted"], true);
    assert_eq!(left(), 0);
}

#[test]
fn nothing_is_written_through_a_link_or_into_a_pipe() {
    let lab = Lab::new();
    crate::executables::program(&lab, "echo");
    lab.put("victim", b"kept");
    std::os::unix::fs::symlink("victim", lab.path("link")).unwrap();
    tool(Command::new("mkfifo").arg(lab.path("pipe")));
    for (flag, name) in [("--html", "link"), ("--save", "pipe")] {
        // Before anything is measured.
        let ran = lab.run(["bench", "--donors", "mimalloc", "--budget", "1h", flag, name, "--", "./echo"]).exits(2);
        ran.says(&[&format!("cannot write `{name}`"), "help: "]);
    }
    assert_eq!(fs::read(lab.path("victim")).unwrap(), b"kept");
}
