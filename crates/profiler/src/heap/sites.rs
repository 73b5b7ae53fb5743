//! Call sites: the function that wanted each block, found behind the allocator, language runtimes and containers.

use std::collections::HashMap;

use super::names::{Function, Names};
use super::reader::{Amount, HeapProfile, LIFETIMES, Row};
use crate::roles::Role;

/// The sums of one call site.
#[derive(Debug, Default, Clone)]
pub(crate) struct Sums {
    pub(crate) live: Amount,
    /// How many sampled blocks the live ones are estimated from; `None` if the profile does not say it for all.
    pub(crate) sampled: Option<u64>,
    pub(crate) allocated: Amount,
    /// Freed blocks by their lifetimes, in the order of [`LIFETIMES`].
    pub(crate) freed: [Amount; LIFETIMES.len()],
    /// Bytes by the functions that call the site, from its caller on.
    chains: HashMap<Vec<u32>, u64>,
    /// Bytes by location of the site, and its function there.
    places: HashMap<(u32, u32), u64>,
}

/// The functions of a chain that are kept.
const CHAIN: usize = 4;
/// The chains of a site that are reported.
const CHAINS: usize = 5;

/// The frames of a row: location and function, the innermost first.
pub(crate) fn frames<'p>(row: &'p Row, names: &'p Names) -> impl Iterator<Item = (u32, u32)> + Clone + 'p {
    row.stack.iter().flat_map(|at| names.at[*at as usize].iter().map(|function| (*at, *function)))
}

/// The number of the frame that wanted the blocks of a row: the first that is not the allocator's, and does not pass
/// them on; without one, the first that is not the allocator's, or the outermost. `None` without a stack.
pub(crate) fn wanting(row: &Row, names: &Names) -> Option<usize> {
    let known = |(_, function): (u32, u32)| &names.functions[function as usize];
    let all = || frames(row, names);
    let first = all().position(|frame| !known(frame).passes);
    let other = || all().position(|frame| known(frame).role != Role::Allocator);
    first.or_else(other).or_else(|| all().count().checked_sub(1))
}

impl Sums {
    /// A site without blocks.
    pub(crate) fn empty() -> Sums {
        Sums { sampled: Some(0), ..Sums::default() }
    }

    pub(crate) fn all(profile: &HeapProfile, names: &Names) -> HashMap<Function, Sums> {
        let mut sites: HashMap<Function, Sums> = HashMap::new();
        for row in &profile.rows {
            let at = wanting(row, names);
            let frame = at.and_then(|at| frames(row, names).nth(at));
            let function = match frame {
                Some((_, function)) => names.functions[function as usize].function.clone(),
                None => Function { name: "[no stack]".into(), module: "[unknown]".into() },
            };
            let sums = sites.entry(function).or_insert_with(Sums::empty);
            sums.add(row);
            let weight = row.live.bytes.max(1);
            if let (Some(frame), Some(at)) = (frame, at) {
                *sums.places.entry(frame).or_default() += weight;
                let mut chain = Vec::with_capacity(CHAIN);
                for (_, function) in frames(row, names).skip(at + 1) {
                    let is_new = chain.last() != Some(&function) && function != frame.1;
                    if chain.len() < CHAIN && is_new && !names.functions[function as usize].passes {
                        chain.push(function);
                    }
                }
                *sums.chains.entry(chain).or_default() += weight;
            }
        }
        sites
    }

    fn add(&mut self, row: &Row) {
        self.live.add(row.live);
        self.allocated.add(row.allocated);
        if let Some(lifetime) = row.lifetime {
            self.freed[lifetime].add(row.allocated);
        }
        if row.live.objects > 0 {
            self.sampled = self.sampled.zip(row.sampled).map(|(sum, sampled)| sum.saturating_add(sampled));
        }
    }

    /// The ways to the site with the most live bytes: the functions that called it, from its caller on, and the part of
    /// its bytes. A wrapper of `malloc` has many of them.
    pub(crate) fn callers(&self, names: &Names) -> Vec<(Vec<String>, f64)> {
        let mut chains: Vec<(&Vec<u32>, u64)> = self.chains.iter().map(|(chain, bytes)| (chain, *bytes)).collect();
        chains.sort_by(|one, other| (other.1, one.0).cmp(&(one.1, other.0)));
        let all = chains.iter().fold(0, |sum: u64, (_, bytes)| sum.saturating_add(*bytes));
        let name = |number: &u32| names.functions[*number as usize].function.name.to_string();
        let named = chains.into_iter().filter(|(chain, _)| !chain.is_empty()).take(CHAINS);
        named.map(|(chain, bytes)| (chain.iter().map(name).collect(), bytes as f64 / all as f64)).collect()
    }

    /// The line of the source that has most of the site's live bytes.
    pub(crate) fn line(&self, profile: &HeapProfile, names: &Names) -> Option<String> {
        let most = self.places.iter().max_by_key(|(place, bytes)| (**bytes, std::cmp::Reverse(**place)));
        most.and_then(|((at, function), _)| names.line(profile, *at as usize, *function))
    }
}
