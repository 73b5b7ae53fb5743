//! Finds the allocator that the code behind `malloc` calls.

use std::collections::{HashMap, HashSet};

use crate::code::{Code, Exit};
use crate::elf::{Definition, Elf, Symbol};
use crate::pointers::Pointers;

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

/// Whether a function can reach libc's `malloc`, by its code and the names of the functions that it calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// It may: it calls one of libc's functions for taking a block, other files, or an address that is not known.
    Possible,
    /// It cannot.
    No,
    /// It is not seen to, but a function that it calls has no name: in a static program one of its own, elsewhere
    /// perhaps a stub that calls another file.
    Nameless,
}

/// Returns whether `start` can reach `malloc`. A panic does not return: what it calls takes no block for the caller.
pub(crate) fn reach_of_malloc(elf: &Elf<'_>, start: &Symbol<'_>) -> Reach {
    const TAKE: [&[u8]; 6] = [b"malloc", b"calloc", b"realloc", b"aligned_alloc", b"posix_memalign", b"memalign"];
    let Some(code) = Code::new(elf).filter(|_| start.size > 0) else { return Reach::Possible };
    let (functions, pointers) = (functions(elf), Pointers::new(elf));
    let mut seen = HashSet::from([start.value]);
    let mut waiting = vec![(start.value, start.size)];
    let mut reach = Reach::No;
    while let Some((address, size)) = waiting.pop() {
        if seen.len() > MOST {
            return Reach::Possible;
        }
        for exit in code.exits(address, size) {
            let target = match exit {
                Exit::To(target) => Some(target),
                Exit::Slot(place) => pointers.target(place),
                Exit::Unknown => None,
            };
            let Some(callee) = target else { return Reach::Possible };
            let Some(function) = functions.get(&callee) else {
                reach = Reach::Nameless;
                continue;
            };
            if TAKE.iter().any(|name| function.name.ends_with(name)) {
                return Reach::Possible;
            }
            if seen.insert(callee) && !readable(function.name).starts_with("core::panicking::") {
                waiting.push((callee, function.size));
            }
        }
    }
    reach
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
