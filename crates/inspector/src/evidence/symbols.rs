//! Identifies allocators by the symbols around `malloc`: whose internals are present, and to which of them `malloc`
//! belongs.

use foldhash::{HashMap, HashSet};
use memchr::memmem;

use crate::elf::{Definition, STB_GLOBAL, STB_LOCAL, Symbol};
use crate::report::name;

/// Names that musl's string functions share among themselves (musl: src/string/). Only musl has these. The other names
/// in this file are from musl src/malloc and glibc malloc/malloc.c.
const MUSL_STRINGS: [&str; 4] = ["__memrchr", "__stpcpy", "__stpncpy", "__strchrnul"];

/// Parts of mangled names that are searched for.
const PARTS: &[(&str, Part)] = &[
    ("__rust_alloc", Part::Rust),
    ("__rust_no_alloc_shim", Part::Rust),
    ("__rg_alloc", Part::RustGlobal),
    ("__rdl_alloc", Part::RustDefault),
    ("heap.SmpAllocator.alloc", Part::Zig),
    ("heap.PageAllocator.alloc", Part::Zig),
    ("heap.smp_allocator", Part::Zig),
];

/// Each of them begins with one of these; few other names have them.
const BEGINNINGS: [&str; 2] = ["__r", "heap."];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Rust,
    RustGlobal,
    RustDefault,
    Zig,
}

/// An allocator's own names of its `malloc`, with the allocator's.
fn own_names() -> impl Iterator<Item = (&'static str, &'static str)> {
    known::ROWS.iter().flat_map(|row| row.malloc.iter().map(|own| (*own, row.name)))
}

/// The description of a `malloc` that no symbol ties to an allocator.
pub(crate) const UNTIED: &str = "`malloc` is defined, and no known allocator's insides are tied to it";

/// The symbols of one file, by name.
#[derive(Debug, Default)]
pub(crate) struct Marks<'a> {
    defined: HashMap<&'a [u8], Symbol<'a>>,
    /// Names that the file needs from others.
    needed: HashSet<&'a [u8]>,
    parts: Vec<Part>,
}

/// The result of the symbols for `malloc`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is this allocator, for this reason.
    Is(&'static str, String),
    /// There is a `malloc`, of an unknown allocator or of one without a name here.
    Unnamed(String),
    /// The program has its own `malloc`, and libc's allocator is there for libc's own blocks.
    Beside {
        /// A description of its `malloc`.
        malloc: String,
        /// libc's allocator.
        libc: &'static str,
        /// The evidence.
        detail: String,
    },
    /// No symbol is evidence of an allocator.
    Silent,
}

impl<'a> Marks<'a> {
    pub(crate) fn new<'s>(symbols: impl IntoIterator<Item = &'s Symbol<'a>>) -> Self
    where
        'a: 's,
    {
        let parts: Vec<_> = PARTS.iter().map(|&(text, part)| (memmem::Finder::new(text), part)).collect();
        let beginnings: Vec<_> = BEGINNINGS.iter().map(memmem::Finder::new).collect();
        let mut marks = Marks::default();
        for symbol in symbols {
            if symbol.is_defined() {
                // Other objects are bound to a visible definition; a local one may be from any object of the program.
                let known = marks.defined.entry(symbol.name).or_insert(*symbol);
                if known.binding == STB_LOCAL {
                    *known = *symbol;
                }
            } else if symbol.is_needed() {
                marks.needed.insert(symbol.name);
            }
            if symbol.name.len() >= 10 && beginnings.iter().any(|finder| finder.find(symbol.name).is_some()) {
                for (finder, part) in &parts {
                    if !marks.parts.contains(part) && finder.find(symbol.name).is_some() {
                        marks.parts.push(*part);
                    }
                }
            }
        }
        marks
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.defined.contains_key(name.as_bytes())
    }

    pub(crate) fn needs(&self, name: &str) -> bool {
        self.needed.contains(name.as_bytes())
    }

    /// Whether both names are defined, at the same address.
    pub(crate) fn same(&self, one: &str, other: &str) -> bool {
        let pair = self.symbol(one).zip(self.symbol(other));
        pair.is_some_and(|(one, other)| {
            (one.value, one.place) == (other.value, other.place) && one.place != Definition::Common
        })
    }

    /// Whether `malloc` is libc's own (of a graft or of glibc, where both names are one). `None` if either name is
    /// missing.
    pub(crate) fn malloc_is_libcs(&self) -> Option<bool> {
        (self.has("malloc") && self.has("__libc_malloc")).then(|| self.same("malloc", "__libc_malloc"))
    }

    pub(crate) fn has_musl_parts(&self) -> bool {
        self.has("__libc_start_main") && (self.has("__init_libc") || self.has("__libc_start_init"))
    }

    /// Returns how many of the names that musl's string functions share are there. A program has those that it needs.
    pub(crate) fn musl_strings(&self) -> usize {
        MUSL_STRINGS.iter().filter(|name| self.has(name)).count()
    }

    /// Whether all of those names are there.
    pub(crate) fn has_all_musl_strings(&self) -> bool {
        self.musl_strings() == MUSL_STRINGS.len()
    }

    pub(crate) fn has_glibc_parts(&self) -> bool {
        ["_IO_2_1_stdout_", "_nl_C_locobj", "__libc_setup_tls"].iter().any(|name| self.has(name))
    }

    /// Whether the symbol table is there at all. In a stripped program a missing name proves nothing.
    pub(crate) fn has_program(&self) -> bool {
        self.has("_start")
    }

    /// Whether the symbols show a program, but no libc that starts it.
    pub(crate) fn has_program_without_libc(&self) -> bool {
        (self.has_program() || self.is_go()) && !self.has("__libc_start_main") && !self.needs("__libc_start_main")
    }

    pub(crate) fn is_go(&self) -> bool {
        self.has("runtime.mallocgc")
    }

    /// Returns the allocator that serves `malloc`, by the symbols.
    pub(crate) fn verdict(&self) -> Verdict {
        let is = |name, detail: &str| Verdict::Is(name, detail.to_owned());
        for (own, allocator) in own_names() {
            if self.same("malloc", own) {
                return is(allocator, &format!("`malloc` and `{own}` are the same function"));
            }
        }
        if self.same("malloc", "__libc_malloc") && self.has("_int_malloc") && self.has("main_arena") {
            return is(name::GLIBC, "`malloc` is `__libc_malloc`, beside `_int_malloc` and `main_arena`");
        }
        let jemalloc_inside = self.has("je_arena_malloc_hard") || self.has("_rjem_je_arena_malloc_hard");
        if self.has("malloc") && self.has("mallocx") && self.has("sdallocx") && jemalloc_inside {
            return is("jemalloc", "`malloc` beside `mallocx` and `sdallocx` without a prefix, and jemalloc's insides");
        }
        self.verdict_on_musl().unwrap_or_else(|| {
            if self.has("malloc") {
                Verdict::Unnamed(UNTIED.to_owned())
            } else if self.is_go() {
                is(name::GO, "`runtime.mallocgc`, and no `malloc`")
            } else if self.parts.contains(&Part::Zig) {
                is(name::ZIG, "the allocators of zig's standard library, and no `malloc`")
            } else {
                Verdict::Silent
            }
        })
    }

    /// Returns the result for musl. Its `malloc` is weak since 1.2.1 (src/malloc/lite_malloc.c), so a strong one is the
    /// program's.
    fn verdict_on_musl(&self) -> Option<Verdict> {
        let malloc = self.symbol("malloc");
        let overridden =
            malloc.is_some_and(|malloc| malloc.binding == STB_GLOBAL) && !self.same("malloc", "__libc_malloc_impl");
        let mallocng = self.has("__malloc_context") && self.has("__malloc_size_classes");
        let oldmalloc = self.has("mal") && (self.has("__bin_chunk") || self.has("__expand_heap"));
        let (found, detail) = if mallocng {
            (name::MALLOCNG, "`__malloc_context` and `__malloc_size_classes`")
        } else if oldmalloc {
            (name::OLDMALLOC, "`mal` beside `__bin_chunk` or `__expand_heap`")
        } else if self.has("__bump_lockptr") && malloc.is_some_and(|malloc| malloc.binding != STB_GLOBAL) {
            let detail = "`malloc` is musl's bump allocator (lite_malloc): nothing in this program frees";
            return Some(Verdict::Unnamed(detail.to_owned()));
        } else {
            return None;
        };
        // The compiler may have inlined the program's own.
        if malloc.is_none() {
            return Some(Verdict::Beside {
                malloc: "there is no symbol `malloc`, so the program's own malloc is unknown".to_owned(),
                libc: found,
                detail: detail.to_owned(),
            });
        }
        // Before 1.2.1 there was no `__libc_malloc_impl`, and the strong malloc was oldmalloc's own.
        if overridden && (mallocng || self.has("__libc_malloc_impl")) {
            return Some(Verdict::Beside {
                malloc: "`malloc` is a strong symbol, so it is the program's own".to_owned(),
                libc: found,
                detail: format!("{detail}, beside a `malloc` that is not theirs"),
            });
        }
        let owner = match overridden {
            true => "; `malloc` is theirs: it has no `__libc_malloc_impl` below it",
            false => "; `malloc` is musl's weak one",
        };
        Some(Verdict::Is(found, format!("{detail}{owner}")))
    }

    /// Whether this is a Rust program.
    pub(crate) fn is_rust(&self) -> bool {
        [Part::Rust, Part::RustGlobal, Part::RustDefault].iter().any(|part| self.parts.contains(part))
            || self.has("rust_eh_personality")
            || self.has("rust_begin_unwind")
    }

    /// Whether the program has Rust's default allocator, which is `malloc`, and names no other.
    pub(crate) fn has_rust_default(&self) -> bool {
        self.parts.contains(&Part::RustDefault) && !self.has_rust_global()
    }

    /// Whether a Rust program names its allocator with `#[global_allocator]`. It is often only a wrapper that counts
    /// and then calls the system's allocator.
    pub(crate) fn has_rust_global(&self) -> bool {
        self.parts.contains(&Part::RustGlobal)
    }

    /// Returns a symbol of the Rust crate's jemalloc, whose prefix keeps it from being `malloc`.
    pub(crate) fn prefixed_jemalloc(&self) -> Option<&'static str> {
        let functions = ["_rjem_sdallocx", "_rjem_mallocx", "_rjem_malloc"];
        functions.into_iter().find(|name| self.has(name)).filter(|_| !self.same("malloc", "_rjem_malloc"))
    }

    /// Returns an allocator beside the C library's whose symbol is there, and that symbol.
    pub(crate) fn other_allocator(&self) -> Option<(&'static str, &'static str)> {
        own_names().find(|(symbol, _)| self.has(symbol) && !self.same("malloc", symbol))
    }

    /// Returns the symbol of that name, if it is defined.
    pub(crate) fn symbol(&self, name: &str) -> Option<&Symbol<'a>> {
        self.defined.get(name.as_bytes())
    }

    /// Whether all names of the malloc family are missing.
    pub(crate) fn has_no_malloc(&self) -> bool {
        ["malloc", "free", "__libc_malloc", "__libc_free", "__libc_malloc_impl"]
            .iter()
            .all(|name| !self.has(name) && !self.needs(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::STB_WEAK;

    fn symbol(name: &str, value: u64, binding: u8) -> Symbol<'_> {
        Symbol { name: name.as_bytes(), value, size: 8, place: Definition::Section(1), binding, kind: 2, visibility: 0 }
    }

    #[test]
    fn every_part_begins_as_the_first_search_expects() {
        for (text, _) in PARTS {
            assert!(text.len() >= 10 && BEGINNINGS.iter().any(|beginning| text.starts_with(beginning)), "{text}");
        }
    }

    #[test]
    fn stock_musl_is_told_from_a_program_that_brings_its_own() {
        let internals = [symbol("__malloc_context", 1, STB_LOCAL), symbol("__malloc_size_classes", 2, STB_LOCAL)];
        assert!(matches!(Marks::new(&internals).verdict(), Verdict::Beside { libc: "mallocng", .. }));
        let stock = [&internals[..], &[symbol("malloc", 3, STB_WEAK)]].concat();
        assert!(matches!(Marks::new(&stock).verdict(), Verdict::Is("mallocng", _)));
        let own = [&internals[..], &[symbol("malloc", 3, STB_GLOBAL)]].concat();
        assert!(matches!(Marks::new(&own).verdict(), Verdict::Beside { libc: "mallocng", .. }));
        let mimalloc = [&own[..], &[symbol("mi_malloc", 3, STB_GLOBAL)]].concat();
        assert!(matches!(Marks::new(&mimalloc).verdict(), Verdict::Is("mimalloc", _)));
        // The symbols of programs linked by zig 0.16 and 0.17, without libc and with the parts of musl that zig still
        // uses.
        let of_zig = [symbol("malloc", 4, STB_LOCAL), symbol("c.malloc.malloc", 4, STB_LOCAL)];
        assert!(matches!(Marks::new(&of_zig).verdict(), Verdict::Is("zig", _)));
        let own = [symbol("malloc", 4, STB_GLOBAL), symbol("c.malloc.malloc", 5, STB_LOCAL)];
        assert!(matches!(Marks::new(&own).verdict(), Verdict::Unnamed(_)));
        let crate_only = [&stock[..], &[symbol("mi_malloc", 9, STB_GLOBAL)]].concat();
        assert!(matches!(Marks::new(&crate_only).verdict(), Verdict::Is("mallocng", _)));
    }

    /// mimalloc replaces glibc's names, too; functions may have any name.
    #[test]
    fn an_allocators_own_name_counts_before_the_names_of_glibc() {
        let names = ["malloc", "__libc_malloc"].map(|name| symbol(name, 3, STB_GLOBAL));
        let insides = ["_int_malloc", "main_arena"].map(|name| symbol(name, 9, STB_LOCAL));
        let glibc = [&names[..], &insides].concat();
        assert!(matches!(Marks::new(&glibc).verdict(), Verdict::Is("glibc", _)));
        let mimalloc = [&glibc[..], &[symbol("mi_malloc", 3, STB_GLOBAL)]].concat();
        assert!(matches!(Marks::new(&mimalloc).verdict(), Verdict::Is("mimalloc", _)));
    }

    #[test]
    fn rust_with_its_own_allocator_is_told_from_rust_with_malloc() {
        let jemalloc =
            [symbol("_rjem_sdallocx", 1, STB_GLOBAL), symbol("_RNvCs_7___rustc12___rust_alloc", 2, STB_GLOBAL)];
        assert!(Marks::new(&jemalloc).is_rust() && !Marks::new(&jemalloc).has_rust_default());
        assert_eq!(Marks::new(&jemalloc).prefixed_jemalloc(), Some("_rjem_sdallocx"));
        let system = [&jemalloc[..], &[symbol("__rdl_alloc", 3, STB_GLOBAL)]].concat();
        assert!(Marks::new(&system).has_rust_default());
        assert!(!Marks::new(&jemalloc[..1]).is_rust());
    }
}
