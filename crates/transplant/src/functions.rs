//! The functions of musl's malloc family in a program, for readers that want names rather than a graft.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::code::{self, Code};
use crate::family;
use crate::image::Image;
use crate::relocations::Relocations;

/// Returns the functions of musl's allocator in a static program that is stripped or not: their addresses, before any
/// base is added, with musl's names for them. Functions of the family without a role are `malloc's own`. Empty if the
/// family is not there, or not certain.
pub fn functions(program: &[u8]) -> Vec<(Range<u64>, String)> {
    let Ok(image) = Image::parse(program) else { return Vec::new() };
    let (Some(machine), Ok(relocations)) = (code::machine(image.arch), Relocations::read_static(&image)) else {
        return Vec::new();
    };
    let mut code = Code::new(machine, &image, &relocations, true);
    let Ok(family) = family::find(&mut code) else { return Vec::new() };
    let roles: BTreeMap<u64, &str> = family
        .core
        .iter()
        .map(|(role, address)| (*address, role.name()))
        .chain(family.wrappers.iter().map(|(role, address)| (*address, role.name())))
        .collect();
    let mut found = BTreeMap::new();
    for (start, name) in &roles {
        let end = code.function(*start).and_then(|function| function.instructions.values().map(|one| one.next).max());
        found.insert(*start, (end.unwrap_or(*start), (*name).to_owned()));
    }
    for (start, function) in &family.functions {
        let end = function.instructions.values().map(|one| one.next).max().unwrap_or(*start);
        found.entry(*start).or_insert((end, "malloc's own".to_owned()));
    }
    found.into_iter().map(|(start, (end, name))| (start..end.max(start), name)).collect()
}
