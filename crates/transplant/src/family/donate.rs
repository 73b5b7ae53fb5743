//! `__malloc_donate` (src/malloc/mallocng/donate.c): the dynamic loader gives the gaps between segments to the
//! allocator. Only the loader has it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use format::Role;

use crate::code::{Code, Function};
use crate::refusal::Refusal;

/// The loader's last stage, which libc.so exports (ldso/dynlink.c).
const LAST_STAGE: &[u8] = b"__dls3";
/// Calls from there to donate(): reclaim_gaps, reclaim, `__malloc_donate` and donate, where none is inlined.
const DEPTH: usize = 4;

/// Finds the function by which the loader's last stage uses the allocator's context, other than by the functions in
/// `family`. `None` in a program.
pub(super) fn find(
    code: &mut Code<'_>,
    context: &Range<u64>,
    family: &BTreeMap<u64, Function>,
) -> Result<Option<u64>, Refusal> {
    let mut open: Vec<(u64, usize)> = code.named(LAST_STAGE).into_iter().map(|start| (start, 0)).collect();
    let (mut seen, mut found) = (BTreeSet::new(), BTreeSet::new());
    while let Some((start, depth)) = open.pop() {
        if family.contains_key(&start) || !seen.insert(start) {
            continue;
        }
        let Some(function) = code.function(start) else { continue };
        if function.refers_into(context.clone()) {
            found.insert(start);
        } else if depth < DEPTH {
            open.extend(function.leads_to().map(|to| (to, depth + 1)));
        }
    }
    match found.iter().copied().collect::<Vec<_>>().as_slice() {
        [] => Ok(None),
        [one] => Ok(Some(*one)),
        many => Err(Refusal::Ambiguous { role: Role::Donate, found: many.to_vec() }),
    }
}
