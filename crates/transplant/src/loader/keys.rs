//! Where a thread of musl keeps the values of its pthread keys. Behind them is room for the donor's thread-local
//! storage, once `__pthread_tsd_size` says so: pthread_create reads that variable when it lays out a thread, and
//! nothing else does (src/thread/pthread_create.c, pthread_key_create.c).

use std::collections::BTreeSet;

use super::refused;
use crate::code::{Code, Function};
use crate::image::{Image, u64_at};
use crate::refusal::Refusal;

/// The size of the values: 128 keys (PTHREAD_KEYS_MAX) of 8 bytes. musl's initial value of `__pthread_tsd_size`.
const SIZE: u64 = 1024;

/// The values of pthread keys in a loader, and the donor's storage behind them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyValues {
    /// The distance from the thread pointer to the field with their address: `tsd`.
    pub field: i64,
    /// Their size in bytes.
    pub size: u64,
    /// The address of the main thread's values: `__pthread_tsd_main`.
    pub main: u64,
    /// The address of the variable with the size that a thread gets: `__pthread_tsd_size`.
    pub variable: u64,
    /// The size of the donor's storage in each thread, in bytes.
    pub storage: u64,
}

/// Finds the values by the code of the exported functions.
pub(super) fn find(code: &mut Code<'_>, storage: u64) -> Result<KeyValues, Refusal> {
    let getspecific = start(code, "pthread_getspecific")?;
    let field = code.machine.key_values(code, getspecific);
    let field = field.ok_or_else(|| refused("its `pthread_getspecific` is not as in musl"))?;
    let (create_key, create) = (function(code, "pthread_key_create")?, function(code, "pthread_create")?);
    let stored = |function: &Function| code.machine.stored_addresses(code, function, field);
    let (of_key, of_thread) = (stored(&create_key), stored(&create));
    let main = match of_key.iter().copied().collect::<Vec<_>>().as_slice() {
        [one] if of_thread.contains(one) && in_memory(code.image, *one, SIZE) => *one,
        other => {
            return Err(refused(format!(
                "{} places could be the main thread's values of keys, expected one",
                other.len()
            )));
        }
    };
    let read: BTreeSet<u64> = create.addresses().filter(|at| holds_size(code.image, *at)).collect();
    let variable = match read.iter().copied().collect::<Vec<_>>().as_slice() {
        [one] => *one,
        other => return Err(refused(format!("{} variables could be `__pthread_tsd_size`, expected one", other.len()))),
    };
    // Only pthread_create may read it: what else does would expect the values to end there.
    let references = code.references(variable..variable + 8);
    for reference in references.into_iter().filter(|reference| !create.covers(reference.field)) {
        if code.machine.confirmed(code, reference, &BTreeSet::new()).is_some() {
            return Err(refused(format!("code at {:#x} uses `__pthread_tsd_size`, too", reference.field)));
        }
    }
    if code.relocations.places_of(variable..variable + 8).next().is_some()
        || code.relocations.within(variable..variable + 8).next().is_some()
    {
        return Err(refused("data refers to `__pthread_tsd_size`"));
    }
    Ok(KeyValues { field, size: SIZE, main, variable, storage })
}

fn start(code: &Code<'_>, name: &str) -> Result<u64, Refusal> {
    match code.named(name.as_bytes()).as_slice() {
        [one] => Ok(*one),
        _ => Err(refused(format!("does not export `{name}`"))),
    }
}

fn function(code: &mut Code<'_>, name: &str) -> Result<Function, Refusal> {
    let start = start(code, name)?;
    code.function(start).cloned().ok_or_else(|| refused(format!("its `{name}` cannot be followed")))
}

/// Whether memory that can be written begins there, and is as long.
fn in_memory(image: &Image<'_>, address: u64, size: u64) -> bool {
    image.is_writable(address) && image.is_writable(address.saturating_add(size - 1))
}

/// Whether a variable has musl's initial value of `__pthread_tsd_size`.
fn holds_size(image: &Image<'_>, address: u64) -> bool {
    address.is_multiple_of(8)
        && in_memory(image, address, 8)
        && image.read(address, 8).and_then(|word| u64_at(word, 0)) == Some(SIZE)
}
