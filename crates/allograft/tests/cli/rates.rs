//! `bench` at equal rates of requests: the suite's server and its load, with a `malloc` that makes the server slow.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::bench::{Bench, arm};
use crate::lab::{Lab, tool};

/// Sleeps 5 ms where the server allocates a response, so that its capacity is known and takes no processor time. With
/// STALLS, each 20th response takes 40 ms.
const SLOW: &str = r#"
#define _POSIX_C_SOURCE 200809L
#include <stddef.h>
#include <time.h>
void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size) {
    static _Atomic unsigned responses;
    struct timespec pause = {0, 5000000};
    if (STALLS && size == 1024 && ++responses % 20 == 0) pause.tv_nsec = 40000000;
    if (size == 1024) nanosleep(&pause, NULL);
    return __real_malloc(size);
}
"#;

/// Writes the suite's server and the slow `malloc`, and builds the load, as `load`.
fn sources(lab: &Lab) {
    let http = suite::source("http").unwrap().replace("#include \"../workload.h\"\n", suite::HEADER);
    lab.put("http.c", http.as_bytes());
    lab.put("slow.c", SLOW.as_bytes());
    tool(Command::new("cc").args(["-O2", "-pthread", "http.c", "-o", "load"]).current_dir(lab.path("")));
}

/// The arm after stock stalls, which full load does not show as a latency. No arm reaches the greater rate.
#[test]
fn a_stall_shows_at_an_equal_rate_and_saturation_is_no_latency() {
    let bench = Bench::new();
    sources(&bench.lab);
    let build = bench
        .build("{libdir}")
        .replace("{object}", "")
        .replace("main.c", "http.c slow.c -Wl,--wrap=malloc -DSTALLS=$(test -e built && echo 1 || echo 0)")
        + " && touch built";
    let load = format!("{} --load {{port}} 4 1 {{rate}}", bench.lab.path("load").display());
    let server = ["--server", "{out} --serve {port} 4", "--load", &load, "--rates", "30%,5000"];
    let files = ["--save", "saved.json", "--html", "report.html", "--csv", "table.csv", "--json"];
    let more = [&["--donors", "rpmalloc:only", "--rounds", "2"], &server[..], &files].concat();
    let ran = bench.run_built(&build, &more).exits(0);
    let document = ran.json();
    crate::documents::fits("bench", &document);

    // Full load is a rate that neither arm reaches, so that there are requests and no latencies.
    let service = &arm(&document, "stock")["runs"][0]["service"];
    let answered = service["requests_per_second"].as_f64().unwrap();
    // Four connections wait for at least 5 ms each time.
    assert!(answered <= 804.0 && service["rate"].as_f64().unwrap() > answered, "{service}");
    assert!(service["p99_ms"].is_null(), "{service}");

    let rates = document["cases"][0]["rates"].as_array().unwrap();
    let [low, saturated] = rates.as_slice() else { panic!("{rates:?}") };
    let capacity = arm(&document, "rpmalloc:only")["runs"][0]["service"]["requests_per_second"].as_f64().unwrap();
    let rate = low["requests_per_second"].as_f64().unwrap();
    assert!((0.15..0.5).contains(&(rate / capacity)), "{rate} of {capacity}");
    let [stock, stalls] = [0, 1].map(|at| &low["arms"][at]);
    let p99 = |arm: &Value| arm["p99"]["ms"]["median"].as_f64().unwrap();
    assert!(stock["reached"] == true && stalls["reached"] == true, "{low:#}");
    assert!(p99(stalls) >= 40.0 && p99(stock) < p99(stalls), "{low:#}");
    assert!(stalls["p99"]["ratio_to_stock"]["value"].as_f64().unwrap() > 1.0, "{low:#}");
    assert_eq!(saturated["requests_per_second"], 5000);
    for arm in saturated["arms"].as_array().unwrap() {
        assert!(arm["reached"] == false && arm["reached_runs"] == 0 && arm["p99"].is_null(), "{arm}");
        assert!(arm["answered_per_second"].as_f64().unwrap() <= 804.0 && arm["standing"].is_null(), "{arm}");
    }

    // Every form of the saved results has them, a terminal of 80 columns as well.
    let shown = bench.lab.command().args(["bench", "--from", "saved.json"]).env("COLUMNS", "80").output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    let table = shown.split_once("p99.9").unwrap().1.split_once("take:").unwrap().0;
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{shown}");
    for part in ["stock: not reached: ", "rpmalloc:only: not reached: ", "rate not reached: stock at 5,000/s; rpmalloc"]
    {
        assert!(shown.contains(part), "`{part}` is missing: {shown}");
    }
    let html = fs::read_to_string(bench.lab.path("report.html")).unwrap();
    assert!(html.contains("Latency at equal rates") && html.contains("rpmalloc:only, 5,000/s: not reached"));
    // A head; two arms at full load and at two rates.
    assert_eq!(fs::read_to_string(bench.lab.path("table.csv")).unwrap().lines().count(), 1 + 2 * 3);
}

#[test]
fn rates_that_nothing_takes_are_refused() {
    let bench = Bench::new();
    let run = |load: &str, rates: &str| {
        let server = ["--server", "{out} {port}", "--load", load, "--rates", rates];
        bench.run_built("cc {libdir} {out}", &server).exits(2)
    };
    run("wrk :{port}", "1000").says(&["the `--load` command does not say `{rate}`", "wrk2 -R{rate}"]);
    run("wrk2 -R{rate} :{port}", "1k").says(&["requests per second, such as 1000", "1k"]);
    bench.run_built("cc {libdir} {out}", &["--rates", "50%"]).exits(2).says(&["--load"]);
    // A load that claims to keep any rate measures nothing.
    let claims = "printf '{\"requests_per_second\": {rate}}'";
    let server = "sh -c '{out} && exec python3 -m http.server --bind 127.0.0.1 {port}'";
    let build = bench.build("{libdir}").replace("{object}", "");
    let ran = bench.run_built(&build, &["--donors", "strings", "--server", server, "--load", claims]).exits(2);
    ran.says(&["stock: the load command claims that"]);
}

/// The latency of a request at a rate counts from the moment at which it was due, so that a stall delays all requests
/// that are due meanwhile. Without a rate, one request alone shows it.
#[test]
fn the_suites_load_does_not_forgive_a_stall() {
    let lab = Lab::new();
    sources(&lab);
    let server = ["-O2", "-pthread", "-DSTALLS=1", "http.c", "slow.c", "-Wl,--wrap=malloc", "-o", "server"];
    tool(Command::new("cc").args(server).current_dir(lab.path("")));
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut server = Command::new(lab.path("server")).args(["--serve", &port.to_string(), "1"]).spawn().unwrap();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let loaded = |more: &[&str]| loaded(&lab.path("load"), port, more);
    let [closed, open, overload] = [&[][..], &["100"], &["2000"]].map(loaded);
    server.kill().unwrap();
    server.wait().unwrap();
    let figure = |document: &Value, name: &str| document[name].as_f64().unwrap();
    // After a stall of 40 ms, requests that are due each 10 ms and take 5 are late for a while: a third of all.
    assert!(figure(&open, "p90_ms") >= 15.0, "{open}");
    assert!(figure(&closed, "p90_ms") < figure(&open, "p90_ms"), "{closed} {open}");
    assert!(figure(&open, "requests_per_second") > 50.0, "{open}");
    assert!(figure(&open, "p50_ms") <= figure(&open, "p99_ms"), "{open}");
    assert!(figure(&open, "p99_ms") <= figure(&open, "p999_ms"), "{open}");
    // At ten times its capacity, most requests cannot even be sent; they count with the time that they waited.
    assert!(figure(&overload, "requests_per_second") <= 201.0 && figure(&overload, "p50_ms") >= 300.0, "{overload}");
}

/// Loads the server for a second over one connection, and returns what the load prints.
fn loaded(load: &Path, port: u16, more: &[&str]) -> Value {
    let mut command = Command::new(load);
    command.args(["--load", &port.to_string(), "1", "1"]).args(more).stdout(Stdio::piped());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}
