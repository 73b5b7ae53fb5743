//! The allocators that other people put into programs, and other code that leaves marks: a row for each.
//!
//! Inspection, refusals and profiles ask this one table, so a new allocator is one row. It is data about other people's
//! code and says nothing about how a graft is made, which is why `inspector` may use it: it shares nothing else with
//! the editors. docs/contributing/evidence.md adds a row.
//!
//! | module | what lives there |
//! | --- | --- |
//! | `allocators` | the rows |
//! | `tables` | the tables of numbers that are marks |
//! | `veil` | marks as this program keeps them |

#![forbid(unsafe_code)]

mod allocators;
mod tables;
mod veil;

pub use allocators::ROWS;
pub use veil::{Mark, unveil, veiled};

/// One allocator, or other code that leaves marks.
#[derive(Debug)]
pub struct Row {
    /// The row's own name. It differs from `name` only if an allocator has several rows.
    pub id: &'static str,
    /// The name in reports and refusals.
    pub name: &'static str,
    /// Whether it can serve `malloc`.
    pub serves_malloc: bool,
    /// The row of which this one is a special build: both have their marks in a file.
    pub build_of: Option<&'static str>,
    /// Names that are the same function as its `malloc`.
    pub malloc: &'static [&'static str],
    /// Prefixes of the C names of its functions: proof that a function is its own.
    pub prefixes: &'static [&'static str],
    /// Outermost C++ namespaces of its functions, mangled.
    pub namespaces: &'static [&'static str],
    /// Further prefixes, and parts, of names that make a member of a `libc.a` foreign. They need not be proof, because
    /// such a member is refused in any case: they only name the allocator.
    pub foreign: Foreign,
    /// Functions that a program calls only if it means this allocator.
    pub interface: &'static [&'static str],
    /// Prefixes of mangled names of the same kind.
    pub interface_prefixes: &'static [&'static str],
    /// Names that its library exports beside `malloc`, if no other library has all of them. They count together with
    /// its marks.
    pub exports: &'static [&'static str],
    /// Prefixes of the file names of its shared objects.
    pub libraries: &'static [&'static str],
    /// Prefixes of functions inside of it, demangled, as profiles see them.
    pub inside: &'static [&'static str],
    /// Bytes that are in every file that contains it and survive `strip`.
    pub marks: &'static [Mark],
    /// The number of different marks that prove it: one only for a table that is too long to be chance.
    pub enough: usize,
}

/// Names in a `libc.a`.
#[derive(Debug)]
pub struct Foreign {
    /// Prefixes.
    pub prefixes: &'static [&'static str],
    /// Parts at any place.
    pub parts: &'static [&'static str],
}

impl Row {
    /// A row with nothing but a name.
    const fn new(name: &'static str) -> Row {
        Row {
            id: name,
            name,
            serves_malloc: true,
            build_of: None,
            malloc: &[],
            prefixes: &[],
            namespaces: &[],
            foreign: Foreign { prefixes: &[], parts: &[] },
            interface: &[],
            interface_prefixes: &[],
            exports: &[],
            libraries: &[],
            inside: &[],
            marks: &[],
            enough: 2,
        }
    }

    /// Whether it is an allocator that comes with a libc.
    pub fn is_libcs(&self) -> bool {
        ["mallocng", "oldmalloc", "glibc"].contains(&self.id)
    }

    /// Whether an inspection can name it.
    pub fn is_reported(&self) -> bool {
        self.serves_malloc && !(self.marks.is_empty() && self.malloc.is_empty())
    }

    /// Whether a function of that name is its own.
    pub fn has_function(&self, symbol: &[u8]) -> bool {
        begins(symbol, self.prefixes) || self.namespaces.iter().any(|space| is_within(symbol, space.as_bytes()))
    }

    /// Whether a reference to that name shows that a program means this allocator.
    pub fn is_interface(&self, symbol: &[u8]) -> bool {
        self.interface.iter().any(|name| name.as_bytes() == symbol) || begins(symbol, self.interface_prefixes)
    }
}

fn begins(symbol: &[u8], prefixes: &[&str]) -> bool {
    prefixes.iter().any(|prefix| symbol.starts_with(prefix.as_bytes()))
}

/// Whether a mangled C++ name is in a namespace: `_ZN`, qualifiers, the namespace (Itanium C++ ABI, 5.1.4). Names of
/// entities within functions start with another `Z`.
fn is_within(symbol: &[u8], space: &[u8]) -> bool {
    let Some(mut rest) = symbol.strip_prefix(b"_Z") else { return false };
    while let Some(inner) = rest.strip_prefix(b"Z") {
        rest = inner;
    }
    let Some(rest) = rest.strip_prefix(b"N") else { return false };
    rest.strip_prefix(b"K").unwrap_or(rest).starts_with(space)
}

/// The allocator that a function of that name belongs to.
pub fn family(symbol: &[u8]) -> Option<&'static str> {
    ROWS.iter().find(|row| row.has_function(symbol)).map(|row| row.name)
}

/// The allocator that a symbol of a `libc.a` belongs to, if it is not libc's own and is known.
pub fn foreign(symbol: &[u8]) -> Option<&'static str> {
    let holds = |part: &&str| symbol.windows(part.len()).any(|window| window == part.as_bytes());
    let is_foreign = |row: &&Row| {
        !row.is_libcs()
            && (row.has_function(symbol) || begins(symbol, row.foreign.prefixes) || row.foreign.parts.iter().any(holds))
    };
    ROWS.iter().find(is_foreign).map(|row| row.name)
}

/// The allocator whose shared objects usually have the name of this file.
pub fn of_library(path: &[u8]) -> Option<&'static str> {
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    ROWS.iter().find(|row| begins(name, row.libraries)).map(|row| row.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_belong_to_the_allocator_that_they_are_named_after() {
        assert_eq!(family(b"_mi_malloc_generic"), Some("mimalloc"));
        assert_eq!(family(b"_ZN8snmalloc4PoolIvE7acquireEv"), Some("snmalloc"));
        assert_eq!(family(b"_ZZN5scudo4initEvE4once"), Some("scudo"));
        assert_eq!(family(b"_ZNK8tcmalloc4Span3endEv"), Some("tcmalloc"));
        // The type of an argument is not a namespace of the function.
        assert_eq!(family(b"_Z4useN8snmalloc4PoolE"), None);
        assert_eq!(family(b"mixer"), None);
    }

    #[test]
    fn a_member_of_libc_is_foreign_by_looser_names() {
        assert_eq!(foreign(b"sn_malloc"), Some("snmalloc"));
        assert_eq!(foreign(b"init_scudo_once"), Some("scudo"));
        assert_eq!(foreign(b"dlmalloc_trim"), Some("dlmalloc"));
        for own in ["malloc", "__malloc_alloc_meta", "__libc_malloc", "_int_malloc"] {
            assert_eq!(foreign(own.as_bytes()), None, "{own}");
        }
    }

    #[test]
    fn rows_have_names_of_their_own_and_say_how_many_marks_are_enough() {
        for (place, row) in ROWS.iter().enumerate() {
            assert!(ROWS[..place].iter().all(|other| other.id != row.id), "{} twice", row.id);
            assert!(row.marks.is_empty() || (1..=row.marks.len()).contains(&row.enough), "{}", row.id);
            assert!(row.build_of.is_none_or(|of| ROWS.iter().any(|other| other.id == of)), "{}", row.id);
        }
    }
}
