//! Candidates for each role, by the behaviour of functions.

use std::collections::{BTreeMap, BTreeSet};

use format::Role;

use crate::code::{Code, Feature, Features, Function};
use crate::refusal::Refusal;

/// Functions that may be the family's.
#[derive(Debug)]
pub(super) struct Candidates {
    pub(super) found: BTreeMap<Role, Vec<u64>>,
    /// Copies of get_meta() that were not inlined.
    pub(super) group_finders: BTreeSet<u64>,
    /// Ends of the examined functions. Other functions may begin there that nothing branches to.
    pub(super) ends: BTreeSet<u64>,
}

struct Observation {
    function: Function,
    features: Features,
    /// Whether the function itself refers to the size classes.
    table: bool,
}

/// The functions near places that only the allocator is likely to have, and how they call each other.
struct Survey {
    seen: BTreeMap<u64, Observation>,
    /// Small functions that only look something up in the table and that compilers do not inline when they optimise for
    /// size: get_stride, size_to_class.
    lookups: BTreeSet<u64>,
    group_finders: BTreeSet<u64>,
    ends: BTreeSet<u64>,
}

/// The addresses at and around the table: code compares with its ends, and points before its first entry and behind its
/// last.
fn around(table: u64) -> std::ops::Range<u64> {
    table.saturating_sub(8)..table + 98
}

/// Finds the candidates: functions that refer to the size classes, by their features.
pub(super) fn candidates(code: &mut Code<'_>, table: u64) -> Result<Candidates, Refusal> {
    let mut survey = Survey {
        seen: BTreeMap::new(),
        lookups: BTreeSet::new(),
        group_finders: BTreeSet::new(),
        ends: BTreeSet::new(),
    };
    let mut places: BTreeSet<u64> =
        code.references(around(table)).into_iter().map(|reference| reference.field).collect();
    if places.is_empty() {
        return Err(Refusal::TableUnused);
    }
    places.extend(code.machine.marks(code));
    for place in places {
        survey.add(code, place, table);
    }
    survey.lookups = survey.starts(|seen| {
        let tells = [Feature::TestsAlignment, Feature::ReadsIndexByte, Feature::Threshold];
        seen.table
            && seen.features.stores == 0
            && seen.function.calls.is_empty()
            && seen.function.instructions.len() < 60
            && !tells.iter().any(|feature| seen.features.has(*feature))
    });
    survey.group_finders = survey.starts(|seen| {
        survey.knows_table(seen)
            && seen.features.finds_group()
            && seen.features.stores == 0
            && survey.further(seen).next().is_none()
            && seen.features.has(Feature::CountsClasses)
            && !seen.features.has(Feature::Reserved)
    });
    let callers: Vec<u64> = survey
        .group_finders
        .iter()
        .chain(&survey.lookups)
        .flat_map(|start| code.branches_to(*start).iter().map(|branch| branch.site).collect::<Vec<_>>())
        .collect();
    for caller in callers {
        survey.add(code, caller, table);
    }
    Ok(survey.settle(code))
}

impl Survey {
    /// Examines the function that an address belongs to.
    fn add(&mut self, code: &mut Code<'_>, place: u64, table: u64) {
        let Some(start) = code.enclosing(place, &self.ends) else { return };
        if self.seen.contains_key(&start) {
            return;
        }
        let Some(function) = code.function(start).cloned() else { return };
        self.ends.insert(code.behind_padding(function.end()));
        let features = code.machine.features(code, &function);
        let refers = function.refers_into(around(table));
        self.seen.insert(start, Observation { function, features, table: refers });
    }

    /// The starts of the functions that have a property.
    fn starts(&self, has: impl Fn(&Observation) -> bool) -> BTreeSet<u64> {
        self.seen.iter().filter(|(_, seen)| has(seen)).map(|(start, _)| *start).collect()
    }

    /// Whether a function refers to the table, itself or through a lookup.
    fn knows_table(&self, seen: &Observation) -> bool {
        seen.table || seen.function.leads_to().any(|to| self.lookups.contains(&to))
    }

    /// The functions that it calls, except lookups.
    fn further<'s>(&'s self, seen: &'s Observation) -> impl Iterator<Item = u64> + 's {
        seen.function.leads_to().filter(|to| !self.lookups.contains(to))
    }

    fn role(&self, start: u64, seen: &Observation) -> Option<Role> {
        let mut features = seen.features.clone();
        let mut knows_table = self.knows_table(seen);
        let (mut calls, mut through_finder) = (0, false);
        for called in self.further(seen) {
            if self.group_finders.contains(&called) {
                features.set.extend(&self.seen[&called].features.set);
                (knows_table, through_finder) = (true, true);
            } else {
                calls += 1;
            }
            knows_table |= self.seen.get(&called).is_some_and(|seen| self.knows_table(seen));
        }
        if !knows_table {
            return None;
        }
        let finds_group = features.finds_group();
        let only_reads = finds_group && calls == 0 && seen.features.stores == 0;
        // In its own code only: a copy of get_meta() that it calls may compare, too.
        let reserved = seen.features.has(Feature::Reserved);
        match () {
            () if finds_group && features.has(Feature::GreatestAlignment) => Some(Role::AlignedAlloc),
            () if finds_group && features.has(Feature::Threshold) => Some(Role::Realloc),
            () if features.has(Feature::Threshold) => Some(Role::Malloc),
            () if finds_group && features.has(Feature::WritesFreed) => Some(Role::Free),
            () if only_reads && reserved => Some(Role::UsableSize),
            () if only_reads && (through_finder || self.group_finders.contains(&start)) => Some(Role::IsZero),
            () => None,
        }
    }

    fn settle(mut self, code: &mut Code<'_>) -> Candidates {
        let mut found: BTreeMap<Role, BTreeSet<u64>> = BTreeMap::new();
        for (start, seen) in &self.seen {
            if let Some(role) = self.role(*start, seen) {
                found.entry(role).or_default().insert(*start);
            }
        }
        self.leave_out_finders(&mut found);
        // A function that only jumps is replaced by its target.
        for starts in found.values_mut() {
            *starts = starts.iter().map(|start| code.through(*start)).collect();
            for start in starts.iter() {
                if !self.seen.contains_key(start)
                    && let Some(function) = code.function(*start).cloned()
                {
                    let features = code.machine.features(code, &function);
                    self.seen.insert(*start, Observation { function, features, table: false });
                }
            }
        }
        self.leave_out_labels(&mut found);
        self.leave_out_uncalled(&mut found);
        let found = found.into_iter().map(|(role, starts)| (role, starts.into_iter().collect())).collect();
        Candidates { found, group_finders: self.group_finders, ends: self.ends }
    }

    /// With get_meta() inlined, __malloc_allzerop looks like get_meta() itself. It is the one that no other member of
    /// the family calls.
    fn leave_out_finders(&self, found: &mut BTreeMap<Role, BTreeSet<u64>>) {
        let zero = found.get(&Role::IsZero).cloned().unwrap_or_default();
        let family: BTreeSet<u64> = found
            .iter()
            .filter(|(role, _)| **role != Role::IsZero)
            .flat_map(|(_, starts)| starts.iter().copied())
            .chain(zero.iter().copied().filter(|start| !self.group_finders.contains(start)))
            .collect();
        let called_by_family = |start: u64| {
            family.iter().any(|other| *other != start && self.further(&self.seen[other]).any(|to| to == start))
        };
        if let Some(starts) = found.get_mut(&Role::IsZero) {
            starts.retain(|start| !called_by_family(*start));
        }
    }

    /// Removes candidates inside other candidates: they were found by bytes that only look like a branch.
    fn leave_out_labels(&self, found: &mut BTreeMap<Role, BTreeSet<u64>>) {
        let all: Vec<u64> = found.values().flatten().copied().collect();
        for starts in found.values_mut() {
            starts.retain(|start| {
                let inside = |other: &u64| {
                    other != start
                        && self.seen.get(other).is_some_and(|seen| seen.function.instructions.contains_key(start))
                };
                !all.iter().any(inside)
            });
        }
    }

    /// If there are several mallocs, keeps those that other functions of the family call. The others are parts that a
    /// compiler put out of line.
    fn leave_out_uncalled(&self, found: &mut BTreeMap<Role, BTreeSet<u64>>) {
        if found.get(&Role::Malloc).is_none_or(|starts| starts.len() < 2) {
            return;
        }
        let relatives: Vec<u64> = [Role::Realloc, Role::AlignedAlloc]
            .iter()
            .flat_map(|role| found.get(role).into_iter().flatten().copied())
            .collect();
        let called: BTreeSet<u64> = found[&Role::Malloc]
            .iter()
            .copied()
            .filter(|start| {
                relatives.iter().any(|other| self.seen[other].function.calls.iter().any(|(_, to)| to == start))
            })
            .collect();
        if called.len() == 1 {
            found.insert(Role::Malloc, called);
        }
    }
}

/// Returns the start of the calloc that calls __malloc_allzerop at `site`. calloc multiplies, calls malloc, and asks
/// whether the block is clear, once each, and touches no state of the allocator (src/malloc/calloc.c).
pub(super) fn is_calloc(code: &mut Code<'_>, site: u64, is_zero: u64, malloc: u64) -> Option<u64> {
    let start = code.enclosing(site, &BTreeSet::new())?;
    if !code.is_start(start) {
        return None;
    }
    let function = code.function(start)?.clone();
    let asks = function.calls.iter().filter(|(_, to)| *to == is_zero).count();
    let makes = function.leads_to().filter(|to| code.through(*to) == malloc).count();
    let features = code.machine.features(code, &function);
    (asks == 1 && makes == 1 && features.has(Feature::Multiplies) && function.instructions.contains_key(&site))
        .then_some(start)
}
