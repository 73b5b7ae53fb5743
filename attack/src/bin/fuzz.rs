//! `cargo xtask fuzz`: runs the fuzzers, prints what they did, and keeps the counts if asked.

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod command {
    use std::process::ExitCode;
    use std::sync::Mutex;
    use std::time::Duration;

    use anyhow::{Context, Result, ensure};
    use attack::fuzzing::{self, Outcome, Programs};
    use attack::ledger::{self, Line, Stamp};
    use attack::workers;
    use clap::Parser;
    use targets::{TARGETS, Target};

    /// Fuzzes the parsers and the editors.
    #[derive(Debug, Parser)]
    #[command(name = "fuzz", bin_name = "cargo xtask fuzz")]
    struct Fuzz {
        /// The targets [default: all]
        targets: Vec<String>,
        /// How long each runs: `60s`, `10m`, `2h`
        #[arg(long, value_name = "TIME", default_value = "60s", value_parser = time)]
        time: Duration,
        /// How many run at once [default: one for each processor]
        #[arg(long, value_name = "N")]
        jobs: Option<usize>,
        /// Only the targets of one part of ten, as CI runs them
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..PARTS))]
        part: Option<u64>,
        /// Add the counts to attack/counts.tsv and docs/reliability.md
        #[arg(long)]
        keep: bool,
        /// A graft of a damaged file that only the verifier stops is a failure, too
        #[arg(long)]
        strict: bool,
        /// List the targets
        #[arg(long)]
        list: bool,
    }

    const PARTS: u64 = tools::groups::PARTS;

    /// How long a find is made smaller.
    const MINIMISE: Duration = Duration::from_secs(30);

    fn time(text: &str) -> Result<Duration, String> {
        let wrong = || format!("`{text}` is not a time such as `60s`, `10m` or `2h`");
        let split = text.find(|letter: char| !letter.is_ascii_digit()).ok_or_else(wrong)?;
        let number: u64 = text[..split].parse().map_err(|_| wrong())?;
        let unit = match &text[split..] {
            "s" => 1,
            "m" => 60,
            "h" => 3600,
            _ => return Err(wrong()),
        };
        number.checked_mul(unit).filter(|seconds| *seconds > 0).map(Duration::from_secs).ok_or_else(wrong)
    }

    fn wanted(asked: &Fuzz) -> Result<Vec<&'static Target>> {
        let named = |name: &String| {
            Target::find(name).with_context(|| format!("there is no target `{name}`: `--list` lists them"))
        };
        let all: Vec<&Target> = match asked.targets.is_empty() {
            true => TARGETS.iter().collect(),
            false => asked.targets.iter().map(named).collect::<Result<_>>()?,
        };
        let is_in_part = |(number, _): &(usize, &Target)| asked.part.is_none_or(|part| *number as u64 % PARTS == part);
        Ok(all.into_iter().enumerate().filter(is_in_part).map(|(_, target)| target).collect())
    }

    pub(crate) fn run() -> Result<ExitCode> {
        let asked = Fuzz::parse();
        let wanted = wanted(&asked)?;
        if asked.list {
            wanted.iter().for_each(|target| println!("{:<12} {}", target.name, target.about));
            return Ok(ExitCode::SUCCESS);
        }
        let programs = fuzzing::build()?;
        let jobs = asked.jobs.unwrap_or_else(workers::processors);
        ensure!(jobs > 0, "`--jobs` takes a number above 0");
        let stamp = asked.keep.then(Stamp::now).transpose()?;
        let outcomes = Mutex::new(Vec::new());
        let troubles = workers::each(&wanted, jobs, |target| {
            let outcome = fuzzing::run(&programs, target, asked.time, asked.strict)?;
            print(&programs, target, &outcome);
            let mut outcomes = outcomes.lock().expect("no thread panicked with it");
            // A run of hours may be ended early: what it has done counts.
            let kept = stamp.as_ref().map_or(Ok(()), |stamp| ledger::keep(&lines(stamp, target, &outcome)));
            outcomes.push(outcome);
            kept
        });
        let outcomes = outcomes.into_inner().expect("no thread panicked with it");
        let executions: u64 = outcomes.iter().map(|outcome| outcome.executions).sum();
        let seconds: f64 = outcomes.iter().map(|outcome| outcome.time.as_secs_f64()).sum();
        let findings = outcomes.iter().filter(|outcome| outcome.finding.is_some()).count();
        println!("{executions} executions in {:.2} hours of processor time, {findings} findings", seconds / 3600.0);
        ensure!(troubles == 0, "{troubles} targets did not run");
        Ok(if findings == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn print(programs: &Programs, target: &Target, outcome: &Outcome) {
        let Outcome { executions, edges: (first, last), time, finding } = outcome;
        let seconds = time.as_secs_f64();
        println!("{:<12} {executions:9} executions, {seconds:6.0} s, edges {first} to {last}", target.name);
        let Some((path, printed)) = finding else { return };
        let small = fuzzing::minimise(programs, target, path, MINIMISE).unwrap_or_else(|_| path.clone());
        println!("  fails with `{}`:\n    {}", small.display(), printed.replace('\n', "\n    "));
        println!("  when it is mended, keep the input in `fuzz/finds/{}`, which a test runs", target.name);
    }

    fn lines(stamp: &Stamp, target: &Target, outcome: &Outcome) -> [Line; 2] {
        let findings = u64::from(outcome.finding.is_some());
        [
            stamp.line(ledger::EXECUTIONS, target.name, outcome.executions, findings),
            stamp.line(ledger::SECONDS, target.name, outcome.time.as_secs(), 0),
        ]
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn times() {
            assert_eq!(time("90s"), Ok(Duration::from_secs(90)));
            assert_eq!(time("2h"), Ok(Duration::from_secs(7200)));
            for wrong in ["", "60", "s", "0s", "1d", "-1s", "99999999999999999999h", "5124095576030432h"] {
                assert!(time(wrong).is_err(), "{wrong}");
            }
        }

        #[test]
        fn each_target_is_in_one_part() {
            let in_part = |part| {
                let asked = Fuzz::parse_from(["fuzz", "--part", &format!("{part}")]);
                wanted(&asked).unwrap().into_iter().map(|target| target.name).collect::<Vec<_>>()
            };
            let mut all: Vec<&str> = (0..PARTS).flat_map(in_part).collect();
            all.sort_unstable();
            let mut expected: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
            expected.sort_unstable();
            assert_eq!(all, expected);
            assert!((0..PARTS).all(|part| in_part(part).len() < 3));
        }
    }
}

fn main() -> std::process::ExitCode {
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    let outcome = command::run();
    #[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
    let outcome: anyhow::Result<std::process::ExitCode> = Err(anyhow::anyhow!("the seeds are programs for x86_64"));
    outcome.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        std::process::ExitCode::FAILURE
    })
}
