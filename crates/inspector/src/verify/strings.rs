//! Checks that the grafted string functions are complete, are the only ones, and are weak.

use super::allocator::{known_names, unresolved};
use super::check::Check;
use super::donor::{self, Donor};
use super::names::{STRINGS, STRINGS_INTERNAL, STRINGS_OF_MUSL};
use crate::bytes::printable;
use crate::elf::{STB_WEAK, STV_HIDDEN};
use crate::library::{Library, Part};
use crate::note::Subject;
use crate::report::Arch;

/// Returns all checks of string functions, and their donor's member. No checks and `None` if the graft has none.
pub(super) fn checks(graft: &Library<'_>, stock: Option<&Library<'_>>) -> (Vec<Check>, Option<Donor>) {
    if !donor::is_there(graft, Subject::Strings) {
        return (Vec::new(), None);
    }
    let (note, donor) = donor::note("strings-note", graft, Subject::Strings);
    let mut checks = vec![note];
    if let Some(donor) = &donor {
        checks.push(donor::checksum("strings-checksum", graft, donor));
        checks.push(exports(graft, donor));
        checks.push(donor::needs("strings-needs", graft, donor));
        checks.push(one_provider(graft, donor));
        checks.push(references(graft, stock));
    }
    (checks, donor)
}

/// Checks that the functions are there, and that every name yields to a definition in a different file: zig's runtime
/// libraries define some of them strongly, and a program may have its own.
fn exports(graft: &Library<'_>, donor: &Donor) -> Check {
    let part = donor.part(graft);
    let optional = |name: &str| part.elf.arch == Arch::Aarch64 && STRINGS_OF_MUSL.contains(&name);
    let required = STRINGS.iter().chain(&STRINGS_INTERNAL).filter(|name| !optional(name));
    let missing = required.filter(|name| part.exported(name.as_bytes()).is_none());
    let mut complaints: Vec<String> = missing.map(|name| format!("`{name}` is not defined")).collect();
    for symbol in part.exports() {
        let name = printable(symbol.name);
        // In musl, names that begin with two underscores are internal.
        let (visibility, expected) = match name.starts_with("__") {
            true => (STV_HIDDEN, "weak and hidden"),
            false => (0, "weak and of default visibility"),
        };
        if symbol.binding != STB_WEAK || symbol.visibility != visibility {
            complaints.push(format!("`{name}` is not {expected}"));
        }
    }
    Check::unless("strings-exports", complaints, || format!("{} names, all weak", part.exports().count()))
}

/// Checks that only the donor defines its functions.
fn one_provider(graft: &Library<'_>, donor: &Donor) -> Check {
    let definitions = graft.definitions();
    let mut complaints = Vec::new();
    for symbol in donor.part(graft).exports() {
        let others = definitions.get(symbol.name).map_or(&[][..], Vec::as_slice).iter();
        let others = others.filter(|&&number| number != donor.number).map(|&number| &graft.parts[number]);
        for other in others.filter(|part| !is_runtime(part)) {
            complaints.push(format!("`{}` is defined by member {} too", printable(symbol.name), graft.label(other)));
        }
    }
    Check::unless("strings-one-provider", complaints, || {
        format!("{} names, each defined by one member", donor.part(graft).exports().count())
    })
}

/// Whether the member is a compiler's runtime library: it has a weak memcpy for programs without libc.
fn is_runtime(part: &Part<'_>) -> bool {
    let own = ["__multi3", "__divti3", "__udivti3"].iter().any(|name| part.exported(name.as_bytes()).is_some());
    let strings = || part.exports().filter(|symbol| STRINGS.iter().any(|name| name.as_bytes() == symbol.name));
    own && strings().all(|symbol| symbol.binding == STB_WEAK)
}

/// Checks that no member needs a symbol that was removed with the old string functions.
fn references(graft: &Library<'_>, stock: Option<&Library<'_>>) -> Check {
    let known = stock.map(known_names).unwrap_or_default();
    let mut complaints = Vec::new();
    for (name, part) in unresolved(graft, &graft.definitions()) {
        let ours = || STRINGS.iter().chain(&STRINGS_INTERNAL).any(|known| known.as_bytes() == name);
        if known.get(name).copied().unwrap_or_else(ours) {
            complaints.push(format!(
                "member {} needs `{}`, which is no longer defined",
                graft.label(part),
                printable(name)
            ));
        }
    }
    Check::unless("strings-references", complaints, || "no member needs a removed symbol".to_owned())
}
