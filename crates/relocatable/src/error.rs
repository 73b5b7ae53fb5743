//! What can be wrong with an object.

/// Why an object cannot be read or changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ObjectError {
    /// Something else.
    #[error("not a relocatable ELF object")]
    NotAnObject,
    /// An object of a kind that is only read.
    #[error("an object for {found}, expected a 64-bit little-endian one")]
    Machine {
        /// What it is for.
        found: String,
    },
    /// A table that reaches beyond the file, or has no sense.
    #[error("{part} cannot be read: {problem}")]
    Damaged {
        /// Which table.
        part: &'static str,
        /// What the reader says.
        problem: String,
    },
    /// A symbol's name outside the string table.
    #[error("symbol {index} has a name outside the string table")]
    Name {
        /// Its place in the symbol table.
        index: usize,
    },
    /// Something that refers to a symbol which is not there.
    #[error("section {section} refers to symbol {symbol}, found {count} symbols")]
    NoSuchSymbol {
        /// Index of the section that refers.
        section: usize,
        /// Index of the symbol.
        symbol: u64,
        /// Symbols in the table.
        count: usize,
    },
    /// A section that could hold numbers of symbols in a form that is not known here.
    #[error("section {section} has the type {kind:#x}, and it is not known whether it refers to symbols by number")]
    SectionType {
        /// Its index.
        section: usize,
        /// `sh_type`.
        kind: u32,
    },
    /// A section that belongs to a symbol table other than the object's.
    #[error("section {section} belongs to section {found}, expected the symbol table, section {expected}")]
    Link {
        /// Its index.
        section: usize,
        /// `sh_link`.
        found: u32,
        /// Index of the symbol table.
        expected: usize,
    },
    /// Two objects that do not go into one.
    #[error("an object for {first} and one for {second} cannot be made one")]
    Mixed {
        /// What the first is for.
        first: String,
        /// What the second is for.
        second: String,
    },
    /// A symbol that two objects define, neither of them weakly.
    #[error("both objects define `{symbol}`")]
    Twice {
        /// Its name.
        symbol: String,
    },
    /// More sections or symbols than the fields of an object hold.
    #[error("too many sections or symbols for one object")]
    TooMany,
    /// Two symbol tables.
    #[error("two symbol tables: sections {first} and {second}")]
    SecondSymbolTable {
        /// Index of the first.
        first: usize,
        /// Index of the second.
        second: usize,
    },
    /// A common symbol cannot be local.
    #[error("`{symbol}` is a common symbol, which cannot become local: compile with -fno-common")]
    Common {
        /// Its name.
        symbol: String,
    },
}

impl ObjectError {
    pub(crate) fn reading(part: &'static str) -> impl Fn(object::read::Error) -> ObjectError + Copy {
        move |error| ObjectError::Damaged { part, problem: error.to_string() }
    }
}
