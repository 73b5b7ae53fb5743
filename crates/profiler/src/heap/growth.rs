//! The growth between two profiles of one program, and the call sites in it that may be leaks.

use std::collections::HashMap;

use serde::Serialize;

use super::names::Function;
use super::reader::{Amount, HeapProfile, LIFETIMES};
use super::sites::Sums;
use crate::size::{change, count, size};

/// The growth since an older profile.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Growth {
    /// Whether both profiles are of one process; null if a profile does not name its process.
    pub same_process: Option<bool>,
    /// The seconds between the profiles; null if they are unknown, or if the profiles are of two processes.
    pub seconds: Option<f64>,
    /// The live bytes that were added.
    pub bytes: i64,
    /// The live blocks that were added.
    pub objects: i64,
    /// The call sites that changed, the largest growth first.
    pub sites: Vec<SiteGrowth>,
}

/// The growth of a call site.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SiteGrowth {
    /// The function.
    pub function: String,
    /// Its file, without folders.
    pub module: String,
    /// The live bytes that were added.
    pub bytes: i64,
    /// The live blocks that were added.
    pub objects: i64,
    /// The blocks that it allocated between the profiles.
    pub allocated: Amount,
    /// Whether it may be a leak. Never true for profiles of two processes.
    pub suspect: bool,
    /// The reasons for that.
    pub reasons: Vec<String>,
    /// The reasons against it.
    pub doubts: Vec<String>,
}

/// The least part of what a site allocated that a leak keeps.
const KEPT: f64 = 0.5;
/// The least part of all live bytes that a leak's growth is.
const PART: f64 = 0.01;
/// The upper ends of the lifetimes, in seconds.
const ENDS: [f64; LIFETIMES.len()] = [0.001, 0.01, 0.1, 1.0, 10.0, f64::INFINITY];

/// The difference between two numbers.
fn difference(new: u64, old: u64) -> i64 {
    let difference = new.abs_diff(old).min(i64::MAX as u64).cast_signed();
    if new < old { -difference } else { difference }
}

/// The seconds of a profile since its program's start.
pub(super) fn seconds(profile: &HeapProfile) -> Option<f64> {
    let seconds = profile.facts.get("seconds")?.parse::<f64>().ok()?;
    // The text may be of whole seconds.
    let exact = (profile.duration > 0).then(|| profile.duration as f64 / 1e9);
    exact.or(Some(seconds)).filter(|seconds| seconds.is_finite() && *seconds >= 0.0)
}

impl Growth {
    /// Compares the sums of a profile with those of an older one.
    pub(crate) fn new(
        (profile, new): (&HeapProfile, &HashMap<Function, Sums>),
        (older, old): (&HeapProfile, &HashMap<Function, Sums>),
    ) -> Growth {
        let process = |profile: &HeapProfile| profile.facts.get("process").cloned();
        let same_process = process(profile).zip(process(older)).map(|(new, old)| new == old);
        let written = || {
            let (new, old) = (profile.time, older.time);
            (old > 0 && new >= old).then(|| (new - old) as f64 / 1e9)
        };
        let since_start = seconds(profile).zip(seconds(older)).map(|(new, old)| (new - old).max(0.0));
        let seconds = since_start.or_else(written).filter(|_| same_process != Some(false));
        let none = Sums::empty();
        let live: u64 = new.values().fold(0, |sum, site| sum.saturating_add(site.live.bytes));
        let mut grown = Vec::new();
        let functions = new.keys().chain(old.keys().filter(|function| !new.contains_key(*function)));
        for function in functions {
            let (new, old) = (new.get(function).unwrap_or(&none), old.get(function).unwrap_or(&none));
            let mut site = SiteGrowth::new(function, new, old);
            if site.bytes == 0 && site.objects == 0 {
                continue;
            }
            let much = site.bytes as f64 >= PART * live as f64 && is_above_noise(new, old, profile.period);
            if same_process != Some(false) && much && site.objects > 0 {
                site.judge(new, old, seconds);
            }
            grown.push(site);
        }
        grown.sort_by(|one, other| (other.bytes, &one.function).cmp(&(one.bytes, &other.function)));
        let total = |value: fn(&SiteGrowth) -> i64| grown.iter().map(value).fold(0, i64::saturating_add);
        let (bytes, objects) = (total(|site| site.bytes), total(|site| site.objects));
        Growth { same_process, seconds, bytes, objects, sites: grown }
    }
}

/// Whether more blocks are live than chance explains: by twice the deviation of the difference of the samples.
fn is_above_noise(new: &Sums, old: &Sums, period: u64) -> bool {
    // A block of many times the period is one sample, and a profile without a period counts every block.
    let guessed = |sums: &Sums| (sums.live.bytes / period.max(1)).min(sums.live.objects);
    let [new, old] = [new, old].map(|sums| sums.sampled.unwrap_or_else(|| guessed(sums)) as f64);
    new - old > 2.0 * (new + old).sqrt() || new - old >= 1.0 && period <= 1
}

impl SiteGrowth {
    fn new(function: &Function, new: &Sums, old: &Sums) -> SiteGrowth {
        SiteGrowth {
            function: function.name.to_string(),
            module: function.module.to_string(),
            bytes: difference(new.live.bytes, old.live.bytes),
            objects: difference(new.live.objects, old.live.objects),
            allocated: Amount {
                bytes: new.allocated.bytes.saturating_sub(old.allocated.bytes),
                objects: new.allocated.objects.saturating_sub(old.allocated.objects),
            },
            suspect: false,
            reasons: Vec::new(),
            doubts: Vec::new(),
        }
    }

    /// Weighs a site that has grown by more than chance explains. `seconds`: between the profiles.
    fn judge(&mut self, new: &Sums, old: &Sums, seconds: Option<f64>) {
        let kept = self.bytes as f64 / self.allocated.bytes.max(1) as f64;
        if self.allocated.bytes > 0 && kept < KEPT {
            self.doubts.push(format!("of what it allocated meanwhile, {:.0} % is freed again", 100.0 * (1.0 - kept)));
            return;
        }
        self.suspect = true;
        let during = seconds.map_or_else(String::new, |seconds| format!(" in {seconds:.1} s"));
        let blocks = count(self.objects.unsigned_abs());
        self.reasons.push(format!("grew by {} and {blocks} blocks{during}", size(self.bytes.unsigned_abs())));
        if self.allocated.bytes > 0 {
            self.reasons.push(format!("{:.0} % of what it allocated meanwhile is live", (100.0 * kept).min(100.0)));
        }
        let oldest = (0..LIFETIMES.len()).rev().find(|at| new.freed[*at].objects > 0);
        match (oldest, seconds) {
            (None, _) if new.allocated.objects <= new.live.objects => {
                self.reasons.push("no block of it was seen freed".to_owned());
            }
            (Some(at), Some(seconds)) if ENDS[at] <= seconds => {
                self.reasons.push(format!("the blocks that it frees live {}", LIFETIMES[at]));
            }
            (Some(at), _) => {
                let blocks = count(new.freed[at].objects);
                self.doubts
                    .push(format!("{blocks} blocks that it freed had lived {}: it may be a cache", LIFETIMES[at]));
            }
            (None, _) => {}
        }
        if old.live.bytes == 0 {
            self.doubts.push("it had nothing in the older profile: it may be data that is loaded once".to_owned());
        }
    }
}

impl Growth {
    /// One sentence that sums it up.
    pub fn summary(&self) -> String {
        let during = self.seconds.map_or_else(String::new, |seconds| format!(" in {seconds:.1} s"));
        let suspects = self.sites.iter().filter(|site| site.suspect).count();
        let found = match (self.same_process, suspects) {
            (Some(false), _) => "the profiles are of two processes, so that a difference need not be a growth",
            (_, 0) => "no call site grew as a leak does",
            (_, 1) => "one call site grew as a leak does",
            _ => return format!("{} live{during}; {suspects} call sites grew as leaks do", change(self.bytes)),
        };
        format!("{} live{during}; {found}", change(self.bytes))
    }
}

/// A caution: two profiles do not show whether a growth ends.
pub const LIMITS: &str = "A cache that fills, or data that is loaded once, grows the same way: write a third profile \
                          later, and compare it with this one. A leak goes on growing.";
