//! The document: live blocks by call site, retention, growth.

use std::collections::HashMap;
use std::path::Path;

use serde::Serialize;

use super::error::HeapError;
use super::growth::{self, Growth};
use super::names::{Function, Names};
use super::reader::{Amount, HeapProfile, LIFETIMES};
use super::retention::Retention;
use super::sites::Sums;
use crate::size::{count, size};

/// A heap profile with names, and its report.
pub struct Heap {
    /// The document.
    pub report: HeapReport,
    pub(crate) profile: HeapProfile,
    pub(crate) names: Names,
    /// The profile to compare with.
    pub(crate) older: Option<(HeapProfile, Names)>,
}

/// The report on a heap profile.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HeapReport {
    /// The program's path, as the profile names it; `unknown` if it names none.
    pub program: String,
    /// The donor that wrote the profile; null for profiles of others.
    pub donor: Option<String>,
    /// The donor's version; null if it is unknown.
    pub version: Option<String>,
    /// The process; null if it is unknown.
    pub process: Option<u64>,
    /// Seconds from the process's start to the profile; null if they are unknown.
    pub seconds: Option<f64>,
    /// When the profile was written, in seconds since 1970; null if that is unknown.
    pub written_unix_s: Option<u64>,
    /// About one block is sampled for each number of bytes so large; null if it is unknown.
    pub sample_bytes: Option<u64>,
    /// The blocks in use, estimated from samples.
    pub live: Amount,
    /// How many sampled blocks that is estimated from; null if it is unknown.
    pub sampled: Option<u64>,
    /// All blocks that were allocated since the start, estimated from samples.
    pub allocated: Amount,
    /// How many of the first call sites hold 80 % of the live bytes; of the allocated ones, if none are live.
    pub most: usize,
    /// The call sites, those with the most live bytes first, at most 1000.
    pub sites: Vec<HeapSite>,
    /// Leak or retention?
    pub retention: Retention,
    /// With an older profile: what grew since.
    pub growth: Option<Growth>,
    /// Restrictions of the figures, for the reader.
    pub warnings: Vec<String>,
}

/// A call site: the function that wanted the blocks, behind the allocator, language runtimes and containers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HeapSite {
    /// The function. Without a name: its file and address.
    pub function: String,
    /// Its file, without folders.
    pub module: String,
    /// The line of its source with most of its bytes, such as `server.c:12`; null if it is unknown.
    pub line: Option<String>,
    /// The ways to it with the most of its bytes, at most five. A wrapper of `malloc` has many.
    pub callers: Vec<Callers>,
    /// Its blocks in use.
    pub live: Amount,
    /// Their part of all live bytes.
    pub share: f64,
    /// How many sampled blocks they are estimated from; null if that is unknown.
    pub sampled: Option<u64>,
    /// All blocks that it allocated.
    pub allocated: Amount,
    /// Those of them that were freed, by lifetime, the shortest first; empty if the profile does not say it.
    pub freed: Vec<Freed>,
}

/// A way to a call site.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Callers {
    /// The functions, from the site's caller on; at most four.
    pub functions: Vec<String>,
    /// Their part of the site's bytes.
    pub share: f64,
}

/// Blocks that were freed after a time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Freed {
    /// Their lifetime: `under 1 ms`, `under 10 ms`, `under 100 ms`, `under 1 s`, `under 10 s`, `10 s or longer`.
    pub lifetime: &'static str,
    /// Bytes.
    pub bytes: u64,
    /// Blocks.
    pub objects: u64,
}

/// The part of the bytes that the first call sites are counted for.
const MOST: f64 = 0.8;
/// The most call sites of a document.
const SITES: usize = 1000;
/// The fewest samples for shares to rely on.
const FEW: u64 = 20;

impl Heap {
    /// Makes the report on a profile. `older`: a profile to compare with. `program`: where the program's file is now,
    /// if it is not at the path that the profile names.
    ///
    /// # Errors
    /// The file at `program` is not the profile's program, or the older profile is the younger one.
    pub fn new(profile: HeapProfile, older: Option<HeapProfile>, program: Option<&Path>) -> Result<Heap, HeapError> {
        let same = |name: &str, older: &HeapProfile| {
            profile.facts.get(name).is_some_and(|value| older.facts.get(name) == Some(value))
        };
        if let Some(older) = &older
            && same("process", older)
            && growth::seconds(&profile) < growth::seconds(older)
        {
            return Err(HeapError::Swapped);
        }
        let names = Names::new(&profile, program)?;
        let older = match older {
            Some(older) => Some(Names::new(&older, program).map(|names| (older, names))?),
            None => None,
        };
        let sums = Sums::all(&profile, &names);
        let growth = older.as_ref().map(|(older, older_names)| {
            let old = Sums::all(older, older_names);
            Growth::new((&profile, &sums), (older, &old))
        });
        let mut report = report(&profile, &names, &sums);
        if let Some((older, older_names)) = &older {
            let build = |profile: &HeapProfile| profile.mappings.first().map(|mapping| mapping.build_id.clone());
            if build(&profile) != build(older) {
                report
                    .warnings
                    .push("the older profile is of another build: call sites are compared by name".to_owned());
            }
            let known = |warning: &&String| !report.warnings.contains(*warning);
            let more: Vec<String> = older_names.warnings.iter().filter(known).cloned().collect();
            report.warnings.extend(more);
        }
        report.growth = growth;
        Ok(Heap { report, profile, names, older })
    }
}

fn report(profile: &HeapProfile, names: &Names, sums: &HashMap<Function, Sums>) -> HeapReport {
    let fact = |name: &str| profile.facts.get(name).cloned();
    let total = |amount: fn(&Sums) -> Amount| {
        let mut sum = Amount::default();
        sums.values().for_each(|site| sum.add(amount(site)));
        sum
    };
    let (live, allocated) = (total(|site| site.live), total(|site| site.allocated));
    let with_blocks = sums.values().filter(|site| site.live.objects > 0);
    let sampled = with_blocks.map(|site| site.sampled).try_fold(0_u64, |sum, site| Some(sum.saturating_add(site?)));
    let (key, whole) = weight(live, allocated);
    let mut order: Vec<(&Function, &Sums)> = sums.iter().collect();
    order.sort_by_key(|(function, site)| (std::cmp::Reverse(key(site)), (*function).clone()));
    let mut held = 0.0;
    let most = order.iter().take_while(|(_, site)| {
        let is_part = held < MOST * whole as f64;
        held += key(site).0 as f64;
        is_part && key(site).0 > 0
    });
    let most = most.count();
    order.truncate(SITES);
    let sites = order.into_iter().map(|(function, sums)| site(profile, names, function, sums, live)).collect();
    HeapReport {
        program: profile
            .mappings
            .first()
            .map(|it| it.file.to_string())
            .filter(|it| !it.is_empty())
            .unwrap_or_else(|| "unknown".to_owned()),
        donor: fact("donor"),
        version: fact("version"),
        process: fact("process").and_then(|process| process.parse().ok()),
        seconds: growth::seconds(profile),
        written_unix_s: Some(profile.time / 1_000_000_000).filter(|seconds| *seconds > 0),
        sample_bytes: Some(profile.period).filter(|period| *period > 0),
        live,
        sampled,
        allocated,
        most,
        sites,
        retention: Retention::new(profile, live.bytes, sampled),
        growth: None,
        warnings: warnings(profile, names, live, sampled),
    }
}

/// The numbers by which a call site is sorted.
type Weight = fn(&Sums) -> (u64, u64);

/// The bytes by which call sites are sorted, and their sum: live ones, or allocated ones if none are live.
fn weight(live: Amount, allocated: Amount) -> (Weight, u64) {
    match live.bytes {
        0 => (|site| (site.allocated.bytes, site.allocated.objects), allocated.bytes),
        _ => (|site| (site.live.bytes, site.allocated.bytes), live.bytes),
    }
}

fn site(profile: &HeapProfile, names: &Names, function: &Function, sums: &Sums, live: Amount) -> HeapSite {
    let freed = LIFETIMES.iter().zip(sums.freed).filter(|(_, amount)| amount.objects > 0);
    HeapSite {
        function: function.name.to_string(),
        module: function.module.to_string(),
        line: sums.line(profile, names),
        callers: sums.callers(names).into_iter().map(|(functions, share)| Callers { functions, share }).collect(),
        live: sums.live,
        share: sums.live.bytes as f64 / live.bytes.max(1) as f64,
        sampled: sums.sampled,
        allocated: sums.allocated,
        freed: freed.map(|(lifetime, Amount { bytes, objects })| Freed { lifetime, bytes, objects }).collect(),
    }
}

fn warnings(profile: &HeapProfile, names: &Names, live: Amount, sampled: Option<u64>) -> Vec<String> {
    let mut warnings = names.warnings.clone();
    let lost = |name: &str| profile.facts.get(name).and_then(|value| value.parse::<u64>().ok()).filter(|it| *it > 0);
    if let Some(stacks) = lost("truncated_stacks") {
        warnings.push(format!("{} stacks end before the thread's first function", count(stacks)));
    }
    if let Some(samples) = lost("lost_samples") {
        warnings.push(format!("{} sampled blocks found no room, and are missing: sample fewer", count(samples)));
    }
    if profile.rows.iter().any(|row| row.cut) {
        warnings.push("the outermost frames of very deep stacks are left out".to_owned());
    }
    if !profile.has_live {
        warnings.push("the profile does not say which blocks are live, only what was allocated".to_owned());
    }
    if let Some(sampled @ ..FEW) = sampled
        && live.objects > 0
        && profile.period > 1
    {
        warnings.push(format!(
            "only {sampled} sampled blocks stand behind the live bytes, one for each {} or so: shares are rough",
            size(profile.period)
        ));
    }
    warnings
}

impl HeapReport {
    /// The call sites that hold most, in a sentence.
    pub fn summary(&self) -> String {
        let held = |sites: &[HeapSite]| sites.iter().map(|site| site.live.bytes).fold(0, u64::saturating_add);
        let part = 100.0 * held(&self.sites[..self.most.min(self.sites.len())]) as f64 / self.live.bytes.max(1) as f64;
        match (self.live.bytes, self.most) {
            (0, _) if self.allocated.bytes == 0 => "no block was sampled".to_owned(),
            (0, most) => format!("nothing is live; {} allocated 80 % of the bytes", sites(most)),
            (_, 1) => format!("one call site holds {part:.0} % of the live bytes"),
            (_, most) => format!("{} hold {part:.0} % of the live bytes", sites(most)),
        }
    }
}

fn sites(number: usize) -> String {
    if number == 1 { "one call site".to_owned() } else { format!("{number} call sites") }
}

impl HeapSite {
    /// The ways to it in words: those with a twentieth of its bytes or more. A share is shown if there are several.
    pub fn called_by(&self) -> Vec<String> {
        let most = self.callers.iter().filter(|callers| callers.share >= 0.05);
        most.map(|Callers { functions, share }| match *share < 0.95 {
            true => format!("{:.0} % by {}", 100.0 * share, functions.join(" < ")),
            false => format!("called by {}", functions.join(" < ")),
        })
        .collect()
    }

    /// How long its freed blocks lived, in a few words: the class in which the middle one of them is. `None` if the
    /// profile does not say it.
    pub fn lifetime(&self) -> Option<String> {
        let all: u64 = self.freed.iter().map(|freed| freed.objects).fold(0, u64::saturating_add);
        let mut sum = 0;
        let middle = self.freed.iter().find(|freed| {
            sum += freed.objects.min(all - sum);
            sum >= all.div_ceil(2)
        });
        match (middle, self.allocated.bytes > self.live.bytes) {
            (Some(freed), _) => Some(freed.lifetime.to_owned()),
            (None, false) if self.live.bytes > 0 => Some("none freed".to_owned()),
            (None, _) => None,
        }
    }
}
