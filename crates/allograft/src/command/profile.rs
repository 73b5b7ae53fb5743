//! `allograft profile`: says what a program waits for, and whether that is its allocator.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use format::Arch;
use inspector::{GraftMethod, Libc, Link};
use profiler::{Analysis, Bottleneck, Error, Options, Profile as Profiled, Target, WORTH_TRYING};

use super::bench::{command_to_measure, interruption};
use super::heap::run::HeapRun;
use crate::failure::{Failure, REPORT, mend};
use crate::number::whole;
use crate::output::{Output, Page, Style, file};
use crate::program::{check_name, lacks_execution};
use crate::shell::quoted;

/// Say what a program waits for
///
/// Runs the program, or attaches to a process, and looks at all its threads some 150 times a second: at those that run,
/// and at those that are blocked, which a profile of the processor does not show. Needs neither root nor a change to
/// the program: static or dynamic, of musl or glibc, stripped or not. Ends with a verdict: the bottleneck, and what
/// another allocator would bring at best.
///
/// Arguments after the program are passed to it; options of `profile` come before it, and `--` before a program whose
/// name begins with a dash.
///
/// Threads that run are stopped for some microseconds to be read; blocked ones are not stopped. The program's children
/// are looked at, too, but not those of a process that was attached to.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  allograft profile ./program ARGS
  # ends the server after 10 seconds
  allograft profile --duration 10 -o profile ./server --port 8080
  # leaves the process running
  allograft profile --pid 1234 --duration 5
  allograft profile -o profile --format pprof,firefox ./program
  # what holds its memory? Runs a grafted copy
  allograft profile --heap -o heap ./program ARGS")]
pub(crate) struct Profile {
    /// Attach to this process
    ///
    /// Attach to this process in place of starting a command; it goes on running afterwards
    #[arg(long, value_name = "PID", conflicts_with = "command", value_parser = whole(1..=i32::MAX))]
    pid: Option<i32>,
    /// Seconds to record [default: all; 10 with --pid]
    ///
    /// Seconds to record. A command that still runs then is ended [default: until it ends; 10 with --pid]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    duration: Option<f64>,
    /// Looks a second, from 1 to 1000
    ///
    /// How many times a second to look, from 1 to 1000
    #[arg(long, value_name = "HZ", default_value_t = profiler::RATE, value_parser = rate)]
    rate: f64,
    /// Write the report and charts into DIR
    ///
    /// Write profile.html, on-cpu.svg, off-cpu.svg and profile.json into this folder
    #[arg(short, long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Also write pprof, firefox or collapsed
    ///
    /// Write these into the folder of --out, too
    #[arg(long, value_name = "FORMAT", value_enum, value_delimiter = ',', requires = "out")]
    format: Vec<Format>,
    /// Profile the heap: what holds its memory?
    ///
    /// Profile the heap in place of the time: grafts a copy of the program, in a temporary folder, with a donor that
    /// samples blocks; runs it, and reports its live blocks by call site. With --out, writes heap.html, heap.json and
    /// heap.pb.gz
    #[arg(long, conflicts_with_all = ["pid", "rate", "format"])]
    heap: bool,
    /// With --heap: one sample for so many bytes
    ///
    /// With --heap: about one block is sampled each time that the program has allocated so many bytes; fewer bytes give
    /// finer figures, and take more time
    #[arg(long, value_name = "BYTES", requires = "heap", default_value_t = 512 << 10, value_parser = whole(1..=1_u64 << 40))]
    sample_bytes: u64,
    /// Program and its arguments
    ///
    /// The program and its arguments. With --json, its standard output goes to standard error
    #[arg(trailing_var_arg = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

/// A format for other tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// profile.pb.gz, for `go tool pprof` and its like
    Pprof,
    /// profile.firefox.json, for profiler.firefox.com
    Firefox,
    /// on-cpu.collapsed and off-cpu.collapsed, for flame graph tools
    Collapsed,
}

/// The time of a recording of a process, if none is given.
const ATTACHED: f64 = 10.0;

fn seconds(typed: &str) -> Result<f64, String> {
    let seconds: f64 = typed.parse().map_err(|_| "expected a number of seconds, such as 2.5".to_owned())?;
    let range = 0.1..=1e6;
    if range.contains(&seconds) { Ok(seconds) } else { Err("expected 0.1 to 1000000 seconds".to_owned()) }
}

fn rate(typed: &str) -> Result<f64, String> {
    let rate: f64 = typed.parse().map_err(|_| "expected a number from 1 to 1000".to_owned())?;
    if (1.0..=1000.0).contains(&rate) { Ok(rate) } else { Err("expected 1 to 1000".to_owned()) }
}

impl Profile {
    pub(crate) fn run(self, output: &Output) -> Result<ExitCode, Failure> {
        if self.pid.is_none() && self.command.is_empty() {
            return Err(Failure::usage("nothing is named to profile").with_help(
                "name a program, `allograft profile ./program ARGS`, or a running process, `allograft profile --pid PID`",
            ));
        }
        if let Some(program) = self.command.first() {
            check_name(program, if self.heap { "profile --heap" } else { "profile" })?;
        }
        // Nothing is to be recorded for nothing.
        if let Some(folder) = &self.out {
            fs::create_dir_all(folder).map_err(Failure::io("make", folder))?;
        }
        if self.heap {
            let duration = self.duration.map(Duration::from_secs_f64);
            let (command, sample_bytes, out) = (&self.command, self.sample_bytes, self.out.as_deref());
            return HeapRun { command, sample_bytes, duration, out }.run(output);
        }
        let target = match self.pid {
            Some(pid) => Target::Process(pid),
            None => Target::Command { words: self.command.clone(), output_to_errors: output.json },
        };
        let duration = self.duration.or(self.pid.map(|_| ATTACHED)).map(Duration::from_secs_f64);
        let options = Options { rate: self.rate, duration, interrupted: interruption()? };
        let recording = profiler::record(&target, &options).map_err(|error| failed(error, &self.command, self.rate))?;
        let mut profiled = profiler::analyse(recording);
        self.recommend(&mut profiled);
        for warning in &profiled.analysis.warnings {
            output.warn(warning);
        }
        // Before the files: if either cannot be written, the other one still is.
        let said = if output.json {
            output.document(&profiled.analysis)
        } else {
            output.text(&overview(&profiled.analysis, output))
        };
        let written = self.write(&profiled)?;
        said?;
        if !output.json && !written.is_empty() {
            let mut page = output.page();
            for path in written {
                // Writing to a page cannot fail.
                let _ = writeln!(page, "wrote {}", path.display());
            }
            output.text(&page)?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Adds the donor to try, and the command line to try it with.
    fn recommend(&self, profiled: &mut Profiled) {
        let Some(report) = profiled.report().cloned() else { return };
        let verdict = &mut profiled.analysis.verdict;
        let of_use = matches!(verdict.bottleneck, Bottleneck::Allocator | Bottleneck::PageFaults | Bottleneck::Strings);
        let best = verdict.best_speedup.1;
        if !of_use && verdict.share.allocator < 0.1 && best < WORTH_TRYING || best < 1.05 {
            return;
        }
        let donor = donors::default_for(if cfg!(target_arch = "aarch64") { Arch::Aarch64 } else { Arch::X86_64 });
        if report.malloc.name == donor.name {
            return;
        }
        let path = quoted(&profiled.analysis.program);
        let words: Vec<String> = self.command.iter().map(|word| quoted(&word.to_string_lossy())).collect();
        let bench = |what: &str| command_to_measure(&self.command[0].to_string_lossy(), what);
        let command = match (report.graft.way, report.link) {
            _ if words.len() == 1 && report.graft.way == GraftMethod::Graft => bench(&words[0]),
            (GraftMethod::Graft, _) if !words.is_empty() => bench(&words.join(" ")),
            (GraftMethod::Graft, _) => format!("allograft graft {path}"),
            (_, Some(Link::Dynamic)) => {
                let libc = if report.libc == Libc::Musl { "musl" } else { "gnu" };
                format!("allograft emit --target {}-linux-{libc} --as shared", std::env::consts::ARCH)
            }
            _ => return,
        };
        verdict.donor = Some(donor.name.to_owned());
        verdict.command = Some(command);
    }

    /// Writes the files that were asked for. Returns their paths.
    fn write(&self, profiled: &Profiled) -> Result<Vec<PathBuf>, Failure> {
        let Some(folder) = &self.out else { return Ok(Vec::new()) };
        let document = crate::json::document(&profiled.analysis).map_err(|error| {
            Failure::usage(format!("the result cannot be written as JSON: {error}")).with_help(REPORT)
        })?;
        let mut files: Vec<(&str, Vec<u8>)> = vec![
            ("profile.html", profiled.page().into_bytes()),
            ("on-cpu.svg", profiled.on_cpu().svg("On the processor").into_bytes()),
            ("off-cpu.svg", profiled.off_cpu().svg("Off the processor").into_bytes()),
            ("profile.json", document.into_bytes()),
        ];
        for format in &self.format {
            match format {
                Format::Collapsed => {
                    files.push(("on-cpu.collapsed", profiled.on_cpu().collapsed().into_bytes()));
                    files.push(("off-cpu.collapsed", profiled.off_cpu().collapsed().into_bytes()));
                }
                Format::Pprof => files.push(("profile.pb.gz", profiled.pprof())),
                Format::Firefox => files.push(("profile.firefox.json", profiled.firefox().into_bytes())),
            }
        }
        files.dedup_by(|later, first| later.0 == first.0);
        let mut written = Vec::new();
        for (name, bytes) in files {
            let path = folder.join(name);
            file::write(&path, &bytes).map_err(Failure::io("write", &path))?;
            written.push(path);
        }
        Ok(written)
    }
}

/// If so many samples were due, in thousandths, the machine did not let them be taken.
const MANY_DUE: f64 = 100_000.0;

/// Returns the failure of a recording. `command` is the program with its arguments; empty for a process. `rate` is how
/// often a second it was to be sampled.
fn failed(error: Error, command: &[OsString], rate: f64) -> Failure {
    let help = match &error {
        Error::Start { program, source } => match Path::new(program) {
            path if path.is_dir() => "it is a folder: name a program in it".to_owned(),
            path if path.is_file() && !program.contains('/') => {
                format!("a program is searched on the command path: that in this folder is `./{program}`")
            }
            _ if program.parse::<u32>().is_ok() => {
                format!("a running process is named by its number: `allograft profile --pid {program}`")
            }
            // The file says more than the system where it may be read.
            path if fs::read(path).is_ok_and(|bytes| inspector::inspect(&bytes).is_err()) => {
                "it is not a program: name an executable, as a build writes it".to_owned()
            }
            path if lacks_execution(path) => format!("make it executable: `chmod +x {}`", quoted(program)),
            _ => mend(source).to_owned(),
        },
        Error::NoProcess(_) => "`ps -e` lists the processes".to_owned(),
        Error::Permission { .. } => {
            "start the program by `allograft profile ./program ARGS`; or work as the user of the process, and with \
             `kernel.yama.ptrace_scope` at 0 or as root; in a container, with the capability SYS_PTRACE"
                .to_owned()
        }
        Error::Stopped { .. } => {
            "let it go on (`kill -CONT PID`), end the program that traces it, and run the command again".to_owned()
        }
        Error::Architecture { .. } | Error::Unsupported => {
            "profile it on a machine of its own architecture, with a build of allograft for that".to_owned()
        }
        Error::Short { milliseconds, .. } if *milliseconds as f64 * rate > MANY_DUE => {
            "the sampler had too little processor time beside the other work: profile when less else runs".to_owned()
        }
        Error::Short { .. } => match command.first() {
            // `bench` grafts the file, and takes no script.
            Some(program) if is_script(Path::new(program)) => {
                "give it more work; or name the program that the script starts".to_owned()
            }
            Some(program) => {
                let words: Vec<String> = command.iter().map(|word| quoted(&word.to_string_lossy())).collect();
                format!(
                    "give it more work; or time it, which takes no samples: `{}`",
                    command_to_measure(&program.to_string_lossy(), &words.join(" "))
                )
            }
            None => "record for longer: `--duration SECONDS`, or look more often: `--rate HZ`".to_owned(),
        },
    };
    Failure::usage(error.to_string()).with_help(help)
}

fn is_script(path: &Path) -> bool {
    fs::read(path).is_ok_and(|bytes| bytes.starts_with(b"#!"))
}

fn overview(analysis: &Analysis, output: &Output) -> Page {
    let mut page = output.page();
    let verdict = &analysis.verdict;
    let recording = &analysis.recording;
    // Writing to a page cannot fail.
    let _ = writeln!(
        page,
        "{}: {}  ({}, malloc {}; {:.1} s, {} moments, {})",
        analysis.program,
        output.paint(Style::Strong, verdict.bottleneck.name()),
        analysis.arch,
        analysis.malloc,
        recording.duration_s,
        recording.moments,
        match recording.threads {
            1 => "1 thread".to_owned(),
            threads => format!("{threads} threads"),
        }
    );
    page.blank();
    for line in wrapped(&verdict.text, output.columns().unwrap_or(WIDTH).min(WIDTH)) {
        let _ = writeln!(page, "{line}");
    }
    page.blank();
    let mut table = output.table(&["share of the time", ""]).fitting();
    let share = &verdict.share;
    let detail = &analysis.detail;
    for (name, share) in [
        ("allocator", share.allocator),
        ("  running in it", detail.allocator_running),
        ("  blocked on its lock", detail.allocator_lock),
        ("  memory calls for it", detail.allocator_memory),
        ("page faults, own mappings", share.page_faults),
        ("memory and string functions", share.strings),
        ("own locks", share.lock),
        ("input, output, waiting", share.io),
        ("the rest: own code", share.cpu),
    ] {
        table.row([name.into(), percent(share).into()]);
    }
    page.table(&table);
    for (title, sites) in
        [("most time on a processor", &analysis.running), ("most time blocked on locks", &analysis.locks)]
    {
        if sites.is_empty() {
            continue;
        }
        page.blank();
        let mut table = output.table(&[title, ""]).fitting();
        for site in sites.iter().take(8) {
            table.row([(&site.function).into(), percent(site.share).into()]);
        }
        page.table(&table);
    }
    page.blank();
    let rates = &analysis.rates;
    let _ = writeln!(
        page,
        "per second: {:.0} page faults, {:.0} voluntary switches{}{}",
        rates.page_faults,
        rates.voluntary_switches,
        about(rates.futex_calls, "futex"),
        about(rates.memory_calls, "mmap")
    );
    let _ = writeln!(
        page,
        "{:.2} processors in use, and waited for {:.1} % of the time that threads could run; recording took {:.1} % of \
         one",
        rates.processors,
        100.0 * detail.processor_wait,
        100.0 * recording.overhead
    );
    if let Some(command) = &verdict.command {
        let donor = verdict.donor.as_deref().unwrap_or_default();
        let with = if verdict.bottleneck == Bottleneck::Strings { " with string functions" } else { "" };
        page.whole(format_args!("try {donor}{with}: {}", output.paint(Style::Strong, command)));
    }
    page
}

/// A number of calls that is an estimate, if there is one.
fn about(rate: Option<f64>, call: &str) -> String {
    rate.map_or_else(String::new, |rate| format!(", about {rate:.0} calls of {call}"))
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// The columns of a paragraph where no terminal has fewer.
const WIDTH: usize = 100;

/// Breaks a paragraph into lines.
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
