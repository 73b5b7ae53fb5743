//! The results document: the measured programs and the machine, every raw run, and the conclusions.
//! Reports are made from the document alone, so a report made later equals the one made after the measurement.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::case::{Case, title};
use crate::executor::{Calls, Figures, Memory, Status};
use crate::machine::{Disturbance, Machine, Watch};
use crate::rates::{self, Rate, RateResult};
use crate::recommendation::Recommendation;
use crate::session::{ArmRuns, Plan, Run, Session, SessionError, Stopped, Tools, log_ratios, processor_log_ratios};
use crate::statistics::{Method, Ratio, Spread, geometric_mean, median};

/// The version of the document. Fields may be added, never renamed.
pub const SCHEMA_VERSION: u32 = 1;

/// The results of a comparison.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Results {
    /// The version of the document, 1.
    pub schema_version: u32,
    /// The version of allograft that measured.
    pub allograft: String,
    /// The measured programs.
    pub input: Input,
    /// The machine.
    pub machine: Machine,
    /// The amount of measuring.
    pub plan: Plan,
    /// The arms, stock first.
    pub arms: Vec<ArmResult>,
    /// The comparisons.
    pub cases: Vec<CaseResult>,
    /// The choice of an arm. `None` if there is nothing to choose from.
    pub recommendation: Option<Recommendation>,
    /// Warnings for readers of the figures.
    pub warnings: Vec<String>,
    /// Whether the user ended it early.
    pub interrupted: bool,
}

impl Results {
    /// Returns the results rounded to the six digits that the document keeps, so that a report now equals a report from
    /// the document later.
    ///
    /// # Errors
    /// JSON errors. JSON can hold every figure that can be measured.
    pub fn as_kept(&self) -> Result<Results, serde_json::Error> {
        let mut document = serde_json::to_value(self)?;
        round(&mut document);
        serde_json::from_value(document)
    }

    /// Returns the results without single runs. Every table and chart is made from these, in a tenth of the space.
    #[must_use]
    pub fn without_runs(mut self) -> Results {
        for arm in &mut self.arms {
            arm.runs.clear();
            arm.warm_up.clear();
            arm.memory_runs.clear();
        }
        for arm in self.cases.iter_mut().flat_map(|case| &mut case.rates).flat_map(|rate| &mut rate.arms) {
            arm.runs.clear();
        }
        self
    }

    /// Returns the document, as [`document`] writes it.
    ///
    /// # Errors
    /// As for [`Results::as_kept`].
    pub fn json(&self) -> Result<String, serde_json::Error> {
        document(self)
    }
}

/// Returns `value` as JSON. A list or an object that contains no list or object is on one line, so a run takes one
/// line.
///
/// # Errors
/// `value` cannot be written as JSON.
pub fn document(value: &impl Serialize) -> Result<String, serde_json::Error> {
    let mut text = String::new();
    lines(&serde_json::to_value(value)?, 0, usize::MAX, &mut text);
    Ok(text + "\n")
}

/// Returns `value` as JSON for a file that is kept in a repository: each element of a list of `value`, such as a case
/// or an arm, is on one line.
///
/// # Errors
/// `value` cannot be written as JSON.
pub fn compact(value: &impl Serialize) -> Result<String, serde_json::Error> {
    let mut text = String::new();
    lines(&serde_json::to_value(value)?, 0, 2, &mut text);
    Ok(text + "\n")
}

/// The number of digits of a figure in the document: a run of an hour to the hundredth of a second, far more than any
/// run repeats.
const DIGITS: usize = 6;

fn round(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            let figure = number.as_f64().unwrap_or_default();
            let rounded = format!("{figure:.0$e}", DIGITS - 1).parse().ok();
            if let Some(rounded) = rounded.and_then(serde_json::Number::from_f64) {
                *number = rounded;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(round),
        Value::Object(fields) => fields.values_mut().for_each(round),
        _ => {}
    }
}

/// Appends `value`. What is `deepest` levels down, or deeper, is on one line.
fn lines(value: &Value, depth: usize, deepest: usize, text: &mut String) {
    let (open, close, items): (_, _, Vec<(String, &Value)>) = match value {
        Value::Array(items) => ('[', ']', items.iter().map(|item| (String::new(), item)).collect()),
        Value::Object(fields) => {
            let named = |(name, field)| (format!("{}: ", Value::String(String::clone(name))), field);
            ('{', '}', fields.iter().map(named).collect())
        }
        plain => return text.push_str(&plain.to_string()),
    };
    let nested = |value: &Value| matches!(value, Value::Array(_) | Value::Object(_));
    if depth >= deepest || !items.iter().any(|(_, item)| nested(item)) {
        return text.push_str(&value.to_string());
    }
    text.push(open);
    for (at, (name, item)) in items.iter().enumerate() {
        text.push_str(if at == 0 { "\n" } else { ",\n" });
        text.extend(std::iter::repeat_n(' ', depth + 1));
        text.push_str(name);
        lines(item, depth + 1, deepest, text);
    }
    text.push('\n');
    text.extend(std::iter::repeat_n(' ', depth));
    text.push(close);
}

/// The measured programs.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Input {
    /// `program`, `server`, `executable`, `preloaded`, `cargo` or `suite`.
    pub kind: String,
    /// The commands as typed, each with its purpose.
    pub commands: Vec<(String, String)>,
    /// The grafted libc, as the user named it.
    pub host: String,
    /// SHA-256 of the stock libc.
    pub host_sha256: String,
}

/// The origin of an arm.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Origin {
    /// Its name.
    pub name: String,
    /// The donor's name. `None` for stock, glibc and string functions alone.
    pub donor: Option<String>,
    /// The donor's version.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub version: Option<String>,
    /// Whether it has allograft's string functions.
    pub strings: bool,
    /// The donor's options that were set.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub options: Vec<(String, i64)>,
    /// The command that makes it from the host. `None` if there is no such command.
    pub command: Option<String>,
    /// Whether it may be chosen: stock and every arm with a command.
    pub eligible: bool,
}

/// The results of an arm over all comparisons.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ArmResult {
    /// Its origin.
    #[serde(flatten)]
    pub origin: Origin,
    /// The reason why it is excluded.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub failure: Option<String>,
    /// The median time of a run in seconds; over several cases the sum.
    pub median_wall_s: Option<f64>,
    /// The greatest peak over all cases.
    pub peak_memory_bytes: Option<u64>,
    /// A server's memory a second after its load, the greatest over all cases. `None` for programs that end.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub idle_memory_bytes: Option<u64>,
    /// Time, paired by round; over several cases the geometric mean.
    pub ratio_to_stock: Option<Ratio>,
    /// Processor time, paired by round; over several cases the geometric mean.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub processor_ratio_to_stock: Option<Ratio>,
    /// The ratio of the greatest peaks.
    pub memory_ratio_to_stock: Option<f64>,
    /// Every timed run.
    pub runs: Vec<OfCase<Run>>,
    /// The runs before those, which do not count.
    pub warm_up: Vec<OfCase<Figures>>,
    /// The runs that measured memory.
    pub memory_runs: Vec<OfCase<Memory>>,
}

/// A value for one of the cases.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct OfCase<T> {
    /// The case's place in the list.
    pub case: usize,
    /// The value.
    #[serde(flatten)]
    pub of: T,
}

/// The results of one comparison.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CaseResult {
    /// The name of the program.
    pub name: String,
    /// The number of threads that it is started with.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub threads: Option<u32>,
    /// The size of the work.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub size: Option<u64>,
    /// The reason why it ended.
    pub stopped: Stopped,
    /// The number of whole rounds.
    pub rounds: usize,
    /// The exit code of stock, which every run of every arm had to repeat.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub exit_code: Option<i32>,
    /// The end of stock's standard error, if that code is not 0.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub complaint: Option<String>,
    /// Other work of the machine.
    pub disturbance: Disturbance,
    /// The reason why small differences cannot be detected here.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub too_noisy: Option<String>,
    /// The arms, in order.
    pub arms: Vec<CaseArm>,
    /// A server at equal rates, in ascending order. Empty if it was measured at full load alone.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub rates: Vec<RateResult>,
}

/// An arm in one comparison. Values that were not measured are absent.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct CaseArm {
    /// Its name.
    pub name: String,
    /// The reason why it is excluded.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub failure: Option<String>,
    /// Wall time in seconds; for a server, the time for one request.
    pub cost_s: Option<Spread>,
    /// Time relative to stock's in the same rounds.
    pub ratio_to_stock: Option<Ratio>,
    /// Processor time, in the program and in the kernel, relative to stock's in the same rounds; for a server, per
    /// request.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub processor_ratio_to_stock: Option<Ratio>,
    /// The number of timed runs. Arms whose interval is narrow are left out of later rounds.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub runs: Option<usize>,
    /// The other figures of timed runs: means of user and system time, which some kernels count in ticks longer than a
    /// short run; medians of the rest.
    pub typical: Option<Figures>,
    /// The median of the peaks.
    pub peak_memory_bytes: Option<u64>,
    /// The median of the memory still resident at the end.
    pub last_memory_bytes: Option<u64>,
    /// The reason why there are no memory figures.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub no_memory: Option<String>,
    /// System calls.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub calls: Option<Calls>,
    /// The reason why there are no counts.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub no_calls: Option<String>,
}

impl CaseArm {
    /// A server's memory a second after its load. `None` for a program that ends.
    pub fn idle_memory_bytes(&self) -> Option<u64> {
        self.typical?.service.and(self.last_memory_bytes)
    }

    /// The page faults of a run.
    pub fn page_faults(&self) -> Option<u64> {
        self.typical.map(|figures| figures.minor_faults + figures.major_faults)
    }
}

/// The limit for a run at a rate: this many times the longest run at full load, plus this time.
const PATIENCE: (u32, Duration) = (20, Duration::from_secs(30));

impl CaseResult {
    /// Returns the results of one comparison.
    pub fn new(case: &Case, session: &Session, plan: &Plan, disturbance: Disturbance) -> CaseResult {
        let arms: Vec<CaseArm> = case
            .arms
            .iter()
            .zip(&session.arms)
            .enumerate()
            .map(|(at, (arm, runs))| summary(&arm.name, runs, (at != 0).then_some(&session.arms[0])))
            .collect();
        let too_noisy = too_noisy(&arms, plan, &disturbance);
        let exit_code = session.end.as_ref().and_then(|end| match end.status {
            Status::Exit(code) => Some(code),
            Status::Signal(_) => None,
        });
        let complaint = session.end.as_ref().map(|end| end.complaint.clone());
        CaseResult {
            name: case.name.clone(),
            threads: case.threads,
            size: case.size,
            stopped: session.stopped,
            rounds: session.arms[0].runs.len(),
            exit_code,
            complaint: complaint.filter(|said| !said.is_empty() && exit_code != Some(0)),
            disturbance,
            too_noisy,
            arms,
            rates: Vec::new(),
        }
    }

    /// Returns its name for people.
    pub fn title(&self) -> String {
        title(&self.name, self.threads, self.size)
    }

    /// Returns the requests per second of the arm that answers the fewest. `None` for other programs than
    /// servers.
    pub fn least_requests_per_second(&self) -> Option<f64> {
        let measured = self.arms.iter().filter(|arm| arm.failure.is_none());
        measured.filter_map(|arm| Some(arm.typical?.service?.requests_per_second)).reduce(f64::min)
    }

    /// Measures the case, a server, at equal rates of requests, until `end` on the clock of `tools`, and adds that to
    /// its results at full load. Arms that failed there are left out. Returns the rates for which there was no time.
    ///
    /// # Errors
    /// The first arm cannot be run.
    pub fn add_rates(
        &mut self,
        case: &Case,
        rates: &[Rate],
        plan: &Plan,
        end: Duration,
        tools: &mut Tools<'_>,
    ) -> Result<Vec<u64>, SessionError> {
        let mut case = case.clone();
        for (arm, measured) in case.arms.iter_mut().zip(&self.arms) {
            arm.broken.clone_from(&measured.failure);
        }
        let rates = rates::per_second(rates, self.least_requests_per_second().unwrap_or_default());
        let slowest = self.arms.iter().filter_map(|arm| Some(arm.typical?.wall_s)).fold(0.0, f64::max);
        let limit = Duration::from_secs_f64(slowest) * PATIENCE.0 + PATIENCE.1;
        let watch = Watch::start();
        let curve = rates::measure(&case, &rates, plan, (end, limit), tools)?;
        self.disturbance = self.disturbance.and(watch.finish());
        self.rates = curve.rates;
        Ok(curve.left_out)
    }

    /// Describes the end of its runs, if it may be unintended: a linter ends with an error code, and so does a program
    /// that was called wrongly.
    pub fn ending(&self) -> Option<String> {
        let code = self.exit_code.filter(|code| *code != 0)?;
        let said = self.complaint.as_ref().map_or(String::new(), |said| format!("; stock says `{said}`"));
        Some(format!("the program ends with exit code {code}, with stock and in every run{said}"))
    }
}

fn summary(name: &str, runs: &ArmRuns, stock: Option<&ArmRuns>) -> CaseArm {
    let figures: Vec<Figures> = runs.runs.iter().map(|run| run.figures).collect();
    let costs: Vec<f64> = figures.iter().map(Figures::cost).collect();
    let middle = |of: fn(&Memory) -> u64| {
        let figures: Vec<f64> = runs.memory.iter().map(|memory| of(memory) as f64).collect();
        (!figures.is_empty()).then(|| to_u64(median(&figures)))
    };
    CaseArm {
        name: name.to_owned(),
        failure: runs.failure.clone(),
        cost_s: Spread::new(&costs),
        ratio_to_stock: match stock {
            None => Some(Ratio::ITSELF).filter(|_| !costs.is_empty()),
            Some(stock) => Ratio::of_logs(&log_ratios(&runs.runs, &stock.runs)),
        },
        processor_ratio_to_stock: match stock {
            None => Some(Ratio::ITSELF).filter(|_| figures.iter().any(|figures| figures.processor_cost().is_some())),
            Some(stock) => Ratio::of_logs(&processor_log_ratios(&runs.runs, &stock.runs)),
        },
        runs: Some(runs.runs.len()),
        typical: typical(&figures),
        peak_memory_bytes: middle(|memory| memory.peak_bytes),
        last_memory_bytes: middle(|memory| memory.last_bytes),
        no_memory: runs.no_memory.clone(),
        calls: runs.calls,
        no_calls: runs.no_calls.clone(),
    }
}

fn typical(runs: &[Figures]) -> Option<Figures> {
    let middle = |of: fn(&Figures) -> f64| median(&runs.iter().map(of).collect::<Vec<_>>());
    let service = runs.first()?.service.is_some().then(|| {
        let optional = |of: fn(&crate::executor::Service) -> Option<f64>| {
            let figures: Vec<f64> = runs.iter().filter_map(|run| of(run.service.as_ref()?)).collect();
            (!figures.is_empty()).then(|| median(&figures))
        };
        crate::executor::Service {
            requests_per_second: optional(|service| Some(service.requests_per_second)).unwrap_or_default(),
            rate: runs.first().and_then(|run| run.service?.rate),
            p50_ms: optional(|service| service.p50_ms),
            p90_ms: optional(|service| service.p90_ms),
            p99_ms: optional(|service| service.p99_ms),
            p999_ms: optional(|service| service.p999_ms),
        }
    });
    let mean = |of: fn(&Figures) -> f64| runs.iter().map(of).sum::<f64>() / (runs.len() as u64) as f64;
    Some(Figures {
        wall_s: middle(|run| run.wall_s),
        user_s: mean(|run| run.user_s),
        system_s: mean(|run| run.system_s),
        minor_faults: to_u64(middle(|run| run.minor_faults as f64)),
        major_faults: to_u64(middle(|run| run.major_faults as f64)),
        voluntary_switches: to_u64(middle(|run| run.voluntary_switches as f64)),
        involuntary_switches: to_u64(middle(|run| run.involuntary_switches as f64)),
        service,
    })
}

/// Intervals that are at least this many times as wide as wanted, and at least this wide, are useless for users'
/// questions.
const FAR_TOO_WIDE: (f64, f64) = (2.0, 0.03);

fn too_noisy(arms: &[CaseArm], plan: &Plan, disturbance: &Disturbance) -> Option<String> {
    let compared = arms.iter().skip(1).filter_map(|arm| arm.ratio_to_stock);
    if compared.clone().next().is_some() && compared.into_iter().all(|ratio| ratio.method == Method::SinglePair) {
        return Some("one round fitted into the budget, which tells little: give it a greater `--budget`".to_owned());
    }
    let undecided = |arm: &&CaseArm| arm.failure.is_none() && arm.ratio_to_stock.is_some_and(|ratio| !ratio.differs());
    let widths = arms.iter().skip(1).filter(undecided).filter_map(|arm| arm.ratio_to_stock?.half_width());
    let widest = widths.max_by(f64::total_cmp)?;
    if widest < (plan.precision * FAR_TOO_WIDE.0).max(FAR_TOO_WIDE.1) {
        return None;
    }
    let why = match disturbance.description() {
        Some(disturbance) => disturbance,
        None => "the program itself varies, or the clock frequency did".to_owned(),
    };
    Some(format!("differences below {:.0} % cannot be detected: {why}", widest * 100.0))
}

/// Returns the arms over all comparisons, from the result of each session. `origins` is in the order of the arms.
pub fn arms(origins: &[Origin], cases: &[CaseResult], sessions: &[Session]) -> Vec<ArmResult> {
    let mut arms: Vec<ArmResult> =
        origins.iter().enumerate().map(|(at, origin)| arm(at, origin, cases, sessions)).collect();
    if let Some(stock) = arms.first().and_then(|stock| stock.peak_memory_bytes).filter(|peak| *peak > 0) {
        for arm in &mut arms {
            arm.memory_ratio_to_stock = arm.peak_memory_bytes.map(|peak| peak as f64 / stock as f64);
        }
    }
    arms
}

fn arm(at: usize, origin: &Origin, cases: &[CaseResult], sessions: &[Session]) -> ArmResult {
    let parts: Vec<&CaseArm> = cases.iter().filter_map(|case| case.arms.get(at)).collect();
    let failure = cases.iter().find_map(|case| {
        let failure = case.arms.get(at)?.failure.as_ref()?;
        Some(if cases.len() == 1 { failure.clone() } else { format!("{}: {failure}", case.title()) })
    });
    let walls: Option<Vec<f64>> = parts.iter().map(|part| Some(part.typical?.wall_s)).collect();
    let over_all = |of: fn(&CaseArm) -> Option<Ratio>| {
        let ratios: Vec<Ratio> = parts.iter().map(|part| of(part)).collect::<Option<_>>()?;
        if at == 0 { Some(Ratio::ITSELF) } else { geometric_mean(&ratios) }
    };
    let whole = failure.is_none() && !parts.is_empty();
    ArmResult {
        origin: origin.clone(),
        failure,
        median_wall_s: walls.filter(|_| whole).map(|walls| walls.iter().sum()),
        peak_memory_bytes: parts.iter().filter_map(|part| part.peak_memory_bytes).max().filter(|_| whole),
        idle_memory_bytes: parts.iter().filter_map(|part| part.idle_memory_bytes()).max().filter(|_| whole),
        ratio_to_stock: over_all(|part| part.ratio_to_stock).filter(|_| whole),
        processor_ratio_to_stock: over_all(|part| part.processor_ratio_to_stock).filter(|_| whole),
        memory_ratio_to_stock: None,
        runs: of_cases(sessions, at, |runs| &runs.runs),
        warm_up: of_cases(sessions, at, |runs| &runs.warm_up),
        memory_runs: of_cases(sessions, at, |runs| &runs.memory),
    }
}

fn of_cases<T: Copy>(sessions: &[Session], arm: usize, runs: fn(&ArmRuns) -> &Vec<T>) -> Vec<OfCase<T>> {
    let of_case = |(case, session): (usize, &Session)| {
        let runs = session.arms.get(arm).map(runs).cloned().unwrap_or_default();
        runs.into_iter().map(move |of| OfCase { case, of })
    };
    sessions.iter().enumerate().flat_map(of_case).collect()
}

/// Returns how an arm's time grows with the work: its time for the greatest size over its time for the least, divided
/// by the ratio of the sizes. 1 means in proportion.
pub fn degradation(cases: &[CaseResult], arm: usize) -> Option<f64> {
    let sized = || cases.iter().filter_map(|case| Some((case.size?, case.arms.get(arm)?.cost_s?.median)));
    let (least, greatest) = (sized().min_by_key(|(size, _)| *size)?, sized().max_by_key(|(size, _)| *size)?);
    (least.0 < greatest.0).then(|| greatest.1 / least.1 / (greatest.0 as f64 / least.0 as f64))
}

fn to_u64(figure: f64) -> u64 {
    figure.round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::samples;

    /// The kept figures are in the tree for what they say, not to be read line by line: [`compact`] writes them.
    #[test]
    fn kept_figures_have_a_line_for_each_case() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/figures");
        let mut all = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            let value: Value = serde_json::from_str(&text).unwrap();
            assert!(compact(&value).unwrap() == text, "{} is not as `compact` writes it", path.display());
            all += text.lines().count();
        }
        // 540 of them are those of docs/scaling.md: allocators, patterns and numbers of threads.
        assert!(all < 1000, "the kept figures have {all} lines");
    }

    #[test]
    fn a_compact_document_holds_the_same() {
        let results = samples::results();
        let text = compact(&results).unwrap();
        let read: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read, serde_json::to_value(&results).unwrap());
        let lines = |what: &str| text.lines().filter(|line| line.contains(what)).count();
        assert_eq!(lines("\"ratio_to_stock\""), results.arms.len() + results.cases.len(), "{text}");
    }

    #[test]
    fn what_is_kept_is_short_and_whole() {
        let mut results = samples::results();
        results.arms[0].runs[0].of.figures.wall_s = 0.123_456_789;
        let kept = results.as_kept().unwrap();
        assert_eq!(kept.arms[0].runs[0].of.figures.wall_s, 0.123_457);
        assert_eq!(kept.plan.seed, results.plan.seed);
        let text = kept.json().unwrap();
        let read: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read, serde_json::to_value(&kept).unwrap());
        let at_rates = kept.cases.iter().flat_map(|case| &case.rates).flat_map(|rate| &rate.arms);
        let runs = kept.arms.iter().map(|arm| arm.runs.len()).chain(at_rates.map(|arm| arm.runs.len()));
        let runs: usize = runs.sum();
        assert_eq!(text.lines().filter(|line| line.contains("\"round\":")).count(), runs, "a line for each run");
        // Reading does not round again.
        assert_eq!(serde_json::from_str::<Results>(&text).unwrap().as_kept().unwrap().json().unwrap(), text);
    }
}
