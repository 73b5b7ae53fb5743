//! Finds the allocator that the code behind `malloc` calls.

use std::collections::{HashMap, HashSet};

use crate::code::Code;
use crate::elf::{Definition, Elf, Symbol};

/// The depth to which calls are followed from a function.
const DEPTH: usize = 2;
/// The most functions that are analysed.
const MOST: usize = 400;

/// Returns a symbol's demangled name, for Rust and for C++.
pub(crate) fn readable(symbol: &[u8]) -> String {
    let text = String::from_utf8_lossy(symbol.get(..512).unwrap_or(symbol));
    let plain = match rustc_demangle::try_demangle(&text) {
        Ok(rust) => format!("{rust:#}"),
        Err(_) if text.starts_with("_Z") => {
            let parsed = cpp_demangle::Symbol::new(text.as_bytes()).ok();
            parsed.and_then(|symbol| symbol.demangle().ok()).unwrap_or_else(|| text.clone().into_owned())
        }
        Err(_) => text.into_owned(),
    };
    let shown: String = plain.chars().take(100).map(|letter| if letter.is_control() { '?' } else { letter }).collect();
    if shown.len() < plain.len() { format!("{shown}...") } else { shown }
}

/// Returns the one allocator whose functions are called from `start`, directly or through others, and one of these
/// functions. `None` if there are several: a wrapper may ask one for its own records and a second one for the blocks.
pub(crate) fn reached(elf: &Elf<'_>, start: &Symbol<'_>) -> Option<(&'static str, String)> {
    let code = Code::new(elf)?;
    let functions = functions(elf);
    let mut seen = HashSet::from([start.value]);
    let mut waiting = vec![(start.value, start.size, 0)];
    let mut found: Option<(&'static str, String)> = None;
    while let Some((address, size, depth)) = waiting.pop() {
        for callee in code.callees(address, size) {
            let Some(function) = functions.get(&callee) else { continue };
            if !seen.insert(callee) {
                continue;
            }
            if let Some(whose) = known::family(function.name) {
                match &found {
                    Some((other, _)) if *other != whose => return None,
                    Some(_) => {}
                    None => found = Some((whose, readable(function.name))),
                }
            } else if depth < DEPTH && seen.len() < MOST {
                waiting.push((callee, function.size, depth + 1));
            }
        }
    }
    found
}

/// The functions that have a name and a size, by their addresses.
fn functions<'e, 'a>(elf: &'e Elf<'a>) -> HashMap<u64, &'e Symbol<'a>> {
    elf.symbols
        .iter()
        .filter(|symbol| symbol.is_defined() && symbol.size > 0 && matches!(symbol.place, Definition::Section(_)))
        .map(|symbol| (symbol.value, symbol))
        .collect()
}

/// Whether `start` can be seen to reach no `malloc`: it and the functions that it calls have names, no indirect calls,
/// and none of libc's names for taking a block. What is loaded at run time is called indirectly or by a nameless stub.
pub(crate) fn reaches_no_malloc(elf: &Elf<'_>, start: &Symbol<'_>) -> bool {
    const TAKE: [&[u8]; 6] = [b"malloc", b"calloc", b"realloc", b"aligned_alloc", b"posix_memalign", b"memalign"];
    let Some(code) = Code::new(elf) else { return false };
    let functions = functions(elf);
    let mut seen = HashSet::from([start.value]);
    let mut waiting = vec![(start.value, start.size)];
    while let Some((address, size)) = waiting.pop() {
        if code.has_indirect_calls(address, size) || seen.len() > MOST {
            return false;
        }
        for callee in code.callees(address, size) {
            let Some(function) = functions.get(&callee) else { return false };
            if TAKE.iter().any(|name| function.name.ends_with(name)) {
                return false;
            }
            if seen.insert(callee) {
                waiting.push((callee, function.size));
            }
        }
    }
    start.size > 0
}

/// Whether the code of `start` calls the function of that name directly.
pub(crate) fn calls(elf: &Elf<'_>, start: &Symbol<'_>, name: &str) -> bool {
    let named = |symbol: &&Symbol<'_>| symbol.is_defined() && symbol.size > 0 && symbol.name == name.as_bytes();
    let wanted: Vec<u64> = elf.symbols.iter().filter(named).map(|symbol| symbol.value).collect();
    Code::new(elf).is_some_and(|code| code.callees(start.value, start.size).iter().any(|at| wanted.contains(at)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_shown_without_their_mangling() {
        assert_eq!(readable(b"_ZN8snmalloc4PoolIvE7acquireEv"), "snmalloc::Pool<void>::acquire()");
        assert_eq!(readable(b"_RNvCs1234_7___rustc12___rust_alloc"), "__rustc::__rust_alloc");
        assert_eq!(readable(b"_Zqqq\n"), "_Zqqq?");
        assert_eq!(readable(&[b'a'; 3000]).len(), 103);
    }
}
