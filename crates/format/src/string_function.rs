//! The string functions that an executable's graft can redirect, with their names and numbers.
//!
//! `inspector` and the conformance programs have their own lists, so that a mistake in this one is found.

use std::fmt;

/// Defines the functions and, in the same order, their names in C, under which the blob defines the replacements.
macro_rules! string_functions {
    ($($function:ident $name:literal)*) => {
        /// A function of string.h.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[allow(missing_docs, reason = "each is what C or POSIX says of the name")]
        pub enum StringFunction {
            $($function),*
        }

        const NAMES: &[(StringFunction, &str)] = &[$((StringFunction::$function, $name)),*];
    };
}

// In the order of `crates/donors/transplant/parameters.h`.
string_functions! {
    Memcpy "memcpy"
    Memmove "memmove"
    Memset "memset"
    Memcmp "memcmp"
    Bcmp "bcmp"
    Memchr "memchr"
    Memrchr "memrchr"
    Strlen "strlen"
    Strnlen "strnlen"
    Strchr "strchr"
    Strchrnul "strchrnul"
    Strrchr "strrchr"
    Strcmp "strcmp"
    Strncmp "strncmp"
    Stpcpy "stpcpy"
    Strcpy "strcpy"
    Stpncpy "stpncpy"
    Strncpy "strncpy"
    Strcat "strcat"
    Strncat "strncat"
    Strcspn "strcspn"
    Strspn "strspn"
    Strcasecmp "strcasecmp"
    Strncasecmp "strncasecmp"
}

impl StringFunction {
    /// All string functions.
    pub fn all() -> impl Iterator<Item = StringFunction> {
        NAMES.iter().map(|(function, _)| *function)
    }

    /// Its name in C, which is also the name of the blob's function.
    pub fn name(self) -> &'static str {
        NAMES[self as usize].1
    }

    /// Its number in the note on entry points (docs/note.md).
    pub fn number(self) -> u32 {
        16 + self as u32
    }

    /// The function that a symbol names: by its public name, or by a name that musl uses internally
    /// (src/include/string.h).
    pub fn named(symbol: &[u8]) -> Option<StringFunction> {
        let name = match symbol {
            b"__memrchr" => b"memrchr",
            b"__strchrnul" => b"strchrnul".as_slice(),
            b"__stpcpy" => b"stpcpy",
            b"__stpncpy" => b"stpncpy",
            public => public,
        };
        NAMES.iter().find(|(_, known)| known.as_bytes() == name).map(|(function, _)| *function)
    }
}

impl fmt::Display for StringFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
