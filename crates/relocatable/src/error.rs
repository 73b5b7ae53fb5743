//! Errors of an object.

/// Why an object cannot be read or changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ObjectError {
    /// The bytes are not an object.
    #[error("not a relocatable ELF object")]
    NotAnObject,
    /// The object's kind can be read but not changed.
    #[error("an object for {found}, expected a 64-bit little-endian one")]
    Machine {
        /// The machine that the object is for.
        found: String,
    },
    /// A table reaches beyond the file, or makes no sense.
    #[error("{part} cannot be read: {problem}")]
    Damaged {
        /// Which table.
        part: &'static str,
        /// The reader's error.
        problem: String,
    },
    /// A symbol's name is outside the string table.
    #[error("symbol {index} has a name outside the string table")]
    Name {
        /// Its index in the symbol table.
        index: usize,
    },
    /// A section refers to a symbol that does not exist.
    #[error("section {section} refers to symbol {symbol}, found {count} symbols")]
    NoSuchSymbol {
        /// Index of the section that refers.
        section: usize,
        /// Index of the symbol.
        symbol: u64,
        /// The number of symbols in the table.
        count: usize,
    },
    /// A section might hold symbol numbers in an unknown form.
    #[error("section {section} has the type {kind:#x}, and it is not known whether it refers to symbols by number")]
    SectionType {
        /// Its index.
        section: usize,
        /// `sh_type`.
        kind: u32,
    },
    /// A section belongs to a symbol table other than the object's.
    #[error("section {section} belongs to section {found}, expected the symbol table, section {expected}")]
    Link {
        /// Its index.
        section: usize,
        /// `sh_link`.
        found: u32,
        /// Index of the symbol table.
        expected: usize,
    },
    /// Two objects cannot be merged.
    #[error("an object for {first} and one for {second} cannot be made one")]
    Mixed {
        /// The machine of the first.
        first: String,
        /// The machine of the second.
        second: String,
    },
    /// Two objects define a symbol, neither of them weakly.
    #[error("both objects define `{symbol}`")]
    Twice {
        /// Its name.
        symbol: String,
    },
    /// There are more sections or symbols than the fields of an object can number.
    #[error("too many sections or symbols for one object")]
    TooMany,
    /// The object has two symbol tables.
    #[error("two symbol tables: sections {first} and {second}")]
    SecondSymbolTable {
        /// Index of the first.
        first: usize,
        /// Index of the second.
        second: usize,
    },
    /// A symbol names a section that linkers take from any of several objects (COMDAT).
    #[error("`{symbol}` is in a section that another object may replace, so that it cannot become local")]
    Comdat {
        /// Its name.
        symbol: String,
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
