//! `allograft profile` of programs of known nature, of a web server, and of released programs: the second tier.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use fixtures::program::Build;
use serde_json::Value;

use crate::documents::fits;
use crate::lab::Lab;
use crate::profile::{How, profiled, program};

fn share(document: &Value, name: &str) -> f64 {
    document["verdict"]["share"][name].as_f64().unwrap()
}

/// The change of a share of the time that other work on the machine may cause.
const MARGIN: f64 = 0.15;

/// Asserts what a program waits for: by its share of the time and the allocator's, with a margin, since other programs
/// take their part of the processors.
#[track_caller]
fn waits_for(name: &str, how: How, threads: u32, bottleneck: &str) -> Value {
    let lab = Lab::new();
    let document = profiled(&lab, &program(&lab, name, how), threads);
    let shares = document["verdict"]["share"].as_object().unwrap();
    let greatest = shares.values().map(|share| share.as_f64().unwrap()).fold(0.0, f64::max);
    let own = share(&document, bottleneck);
    println!("{name} {how:?} {threads}: {} {:.2} {}", bottleneck, own, document["verdict"]["share"]);
    assert!(own >= greatest - MARGIN, "{name}, {how:?}, {threads} threads: {document:#}");
    if bottleneck != "allocator" {
        assert!(share(&document, "allocator") < MARGIN, "{name}, {how:?}, {threads} threads: {document:#}");
        // No other allocator is recommended.
        assert!(document["verdict"]["best_speedup"][0].as_f64().unwrap() < 1.05, "{document:#}");
    }
    document
}

#[test]
#[ignore = "minutes: it belongs to the second tier"]
fn what_is_the_allocator() {
    for (name, how, threads) in [
        ("small_blocks", How::Static, 1),
        ("small_blocks", How::StaticPie, 2),
        ("small_blocks", How::Stripped, 4),
        ("small_blocks", How::Musl, 1),
        ("small_blocks", How::Musl, 4),
        ("small_blocks", How::Glibc, 1),
        ("small_blocks", How::Grafted, 2),
        ("small_blocks", How::GraftedStripped, 2),
        ("large_blocks", How::Static, 1),
        ("large_blocks", How::StaticPie, 4),
        ("large_blocks", How::Stripped, 2),
        ("large_blocks", How::Musl, 2),
        ("grown", How::Static, 1),
        ("grown", How::Stripped, 2),
    ] {
        let document = waits_for(name, how, threads, "allocator");
        // A donor copies the blocks that musl lets the kernel move.
        let least = document["verdict"]["best_speedup"][0].as_f64().unwrap();
        assert_eq!(least < 1.0, name == "grown", "{document:#}");
    }
}

#[test]
#[ignore = "minutes: it belongs to the second tier"]
fn what_is_not_the_allocator() {
    for (name, how, threads, bottleneck) in [
        ("fresh_pages", How::Static, 1, "page-faults"),
        ("fresh_pages", How::Musl, 2, "page-faults"),
        ("fresh_pages", How::Grafted, 1, "page-faults"),
        ("own_maps", How::Static, 1, "page-faults"),
        ("own_maps", How::Stripped, 2, "page-faults"),
        ("copies", How::Static, 1, "strings"),
        ("copies", How::Musl, 2, "strings"),
        ("copies", How::Grafted, 1, "strings"),
        ("texts", How::StaticPie, 2, "strings"),
        ("texts", How::Glibc, 1, "strings"),
        ("own_lock", How::Static, 4, "lock"),
        ("own_lock", How::Stripped, 4, "lock"),
        ("own_lock", How::Musl, 4, "lock"),
        ("own_lock", How::Grafted, 4, "lock"),
        ("spin", How::Static, 4, "lock"),
        ("input", How::Static, 2, "io"),
        ("pipes", How::Stripped, 2, "io"),
        ("pipes", How::Glibc, 1, "io"),
        ("sleeper", How::Stripped, 1, "io"),
        ("sleeper", How::GraftedStripped, 4, "io"),
        ("numbers", How::Stripped, 1, "cpu"),
        ("numbers", How::StaticPie, 4, "cpu"),
        ("numbers", How::Grafted, 2, "cpu"),
        ("pointers", How::Static, 1, "cpu"),
        ("pointers", How::Glibc, 2, "cpu"),
        ("shared_line", How::Static, 2, "cpu"),
        ("handed_on", How::Static, 2, "cpu"),
    ] {
        waits_for(name, how, threads, bottleneck);
    }
}

/// The number of calls is known: 16 pairs of `mmap` and `munmap` in each 16 rounds.
#[test]
#[ignore = "minutes: it belongs to the second tier"]
fn calls_are_counted_about() {
    let lab = Lab::new();
    for (name, calls) in [("own_maps", 2.0), ("large_blocks", 16.0)] {
        let path = program(&lab, name, How::Static);
        let ran = lab.run(["profile", "-o", "out", "--", path.to_str().unwrap(), "1", "3"]).exits(0);
        let rounds =
            ran.err.split_once("rounds_per_second=").unwrap().1.lines().next().unwrap().parse::<f64>().unwrap();
        let document: Value = serde_json::from_str(&fs::read_to_string(lab.path("out/profile.json")).unwrap()).unwrap();
        let told = document["rates"]["memory_calls"].as_f64().unwrap();
        println!("{name}: {told:.0} of {:.0}", rounds * calls);
        // Where others use the processors too, each stop of the program leaves it with cold caches.
        let most = 3.0 / (1.0 - document["detail"]["processor_wait"].as_f64().unwrap());
        assert!((rounds * calls / most..rounds * calls * most).contains(&told), "{rounds} rounds; {document:#}");
        assert!(document["rates"]["futex_calls"].as_f64().unwrap() < told / 100.0, "{document:#}");
    }
}

/// The server of the suite with 16 connections: its threads are blocked in stock's allocator, where a profile of the
/// processors sees hardly more than the kernel's network. How long they are depends on the number of processors.
#[test]
#[ignore = "minutes: it belongs to the second tier"]
fn a_server_is_blocked_in_its_allocator() {
    let lab = Lab::new();
    let suite = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../suite");
    let read = |path: &str| fs::read_to_string(suite.join(path)).unwrap();
    let source = read("http/http.c").replace("#include \"../workload.h\"\n", &read("workload.h"));
    let server = Build::PLAIN.program(&lab.path(""), "http", &source);
    let profiled = |seconds: &str| -> Value {
        let out = format!("out {seconds}");
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
        let load = std::thread::scope(|scope| {
            let load = scope.spawn(|| {
                std::thread::sleep(std::time::Duration::from_millis(500));
                let mut command = Command::new(&server);
                command.args(["--load", &port, "16", seconds]).stdout(Stdio::piped()).output().unwrap()
            });
            let server = server.to_str().unwrap();
            lab.run(["profile", "--duration", seconds, "-o", &out, "--", server, "--serve", &port, "16"]).exits(0);
            load.join().unwrap()
        });
        assert!(!load.stdout.is_empty() || !load.stderr.is_empty(), "the load did nothing");
        serde_json::from_str(&fs::read_to_string(lab.path(format!("{out}/profile.json"))).unwrap()).unwrap()
    };
    // A busy machine leaves the server too little processor time for its calls to be counted: it gets more.
    let mut documents = ["4", "8", "16", "32"].into_iter().map(profiled);
    let document = documents.find(|document| !document["rates"]["futex_calls"].is_null()).expect("calls are counted");
    println!("{} {}", document["verdict"]["text"], document["rates"]);
    fits("profile", &document);
    let detail = |name: &str| document["detail"][name].as_f64().unwrap();
    assert!(detail("allocator_lock") > 3.0 * detail("allocator_running"), "{document:#}");
    // Of the time in which the threads did not wait for a processor, which depends on what else the machine does.
    assert!(detail("allocator_lock") > 0.03 * (1.0 - detail("processor_wait")), "{document:#}");
    let locks = document["locks"].as_array().unwrap();
    assert!(locks.iter().any(|site| site["function"].as_str().unwrap().contains("alloc")), "{document:#}");
    let [calls, processors] = ["futex_calls", "processors"].map(|rate| document["rates"][rate].as_f64().unwrap());
    // Ten thousands on an idle machine. Threads that get a processor one after the other seldom meet at a lock: beside
    // five busy processes on two processors, 951 were seen.
    assert!(calls > 100.0 * processors, "{document:#}");
}

/// A folder of text for a linter.
fn texts(lab: &Lab, folder: &str, ending: &str, count: usize, piece: &str, pieces: usize) -> PathBuf {
    let home = lab.path(folder);
    fs::create_dir_all(&home).unwrap();
    for number in 0..count {
        fs::write(home.join(format!("{number}{ending}")), piece.repeat(pieces)).unwrap();
    }
    home
}

/// Released programs that carry stock musl: most are stripped, and in Rust, Haskell or C++.
#[test]
#[ignore = "corpus: takes released programs, 370 MB"]
fn released_programs_are_profiled() {
    let script = "for i in $(ls); do\n  if [ $i == \"a\" ]; then echo $i; fi\n  cd $i && rm -rf $1/*\ndone\n";
    let docker = "RUN cd /tmp && apt-get install -y curl; sudo make\nRUN wget http://example.org | sh\n";
    let prose = "# A titel\n\nSome text with `code` and teh usual *mistakes*,\n* a list\n+ another\n\n";
    let mut seen = 0;
    for released in fixtures::corpus::listed() {
        let lab = Lab::new();
        let (input, before): (PathBuf, &[&str]) = match released.name.as_str() {
            "shellcheck" => (texts(&lab, "in", ".sh", 1, script, 400).join("0.sh"), &["-f", "gcc", "-s", "bash"]),
            "hadolint" => {
                let input = texts(&lab, "in", "", 1, docker, 1500).join("0");
                fs::write(&input, format!("FROM debian\n{}", docker.repeat(1500))).unwrap();
                (input, &["--no-fail"])
            }
            "typos" => (texts(&lab, "in", ".txt", 200, prose, 1500), &["--format", "brief"]),
            "rumdl" => (texts(&lab, "in", ".md", 600, prose, 200), &["check", "--no-cache"]),
            _ => continue,
        };
        let path = fixtures::corpus::place(&released);
        let words = ["profile", "--json", "--duration", "20", "--", path.to_str().unwrap()];
        let ran = lab.run(words.into_iter().chain(before.iter().copied()).chain([input.to_str().unwrap()])).exits(0);
        let document = ran.json();
        fits("profile", &document);
        println!("{}: {} {}", released.name, document["verdict"]["text"], document["recording"]);
        assert_eq!(document["malloc"].as_str().unwrap(), released.malloc, "{}: {document:#}", released.name);
        // Pool threads that wait for work are distinguished from those that wait for a lock.
        assert!(share(&document, "lock") < 0.5, "{}: {document:#}", released.name);
        assert!(document["recording"]["duration_s"].as_f64().unwrap() > 0.3, "{}: {document:#}", released.name);
        seen += 1;
    }
    assert_eq!(seen, 4);
}
