//! The cases of the suite: a program, its work, and the numbers of threads.

use crate::source;

/// A case.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// Its name: that of its program, or of a different work for a program.
    pub name: &'static str,
    /// The program.
    pub program: &'static str,
    /// The program's source, in C.
    pub source: &'static str,
    /// The arguments after the number of threads. `{size}` is the size of the work, if there are several.
    work: &'static [&'static str],
    /// Its arguments for a quick run.
    quick: &'static [&'static str],
    /// The sizes of the work. Empty: it has one.
    pub sizes: &'static [u64],
    /// The default numbers of threads.
    pub threads: &'static [u32],
}

impl Case {
    const fn new(
        name: &'static str,
        program: &'static str,
        work: &'static [&'static str],
        quick: &'static [&'static str],
    ) -> Case {
        let source = source(program).expect("a program of the suite");
        Case { name, program, source, work, quick, sizes: &[], threads: &[1, 8] }
    }

    /// Returns the program's arguments, for little work if `quick` is set.
    pub fn arguments(&self, threads: u32, size: Option<u64>, quick: bool) -> Vec<String> {
        let size = size.unwrap_or_default().to_string();
        let work = if quick { self.quick } else { self.work }.iter().map(|word| word.replace("{size}", &size));
        std::iter::once(threads.to_string()).chain(work).collect()
    }
}

/// All cases, in the order of the suite's tables.
pub static CASES: [Case; 13] = [
    Case::new("map", "map", &["20000", "1000000"], &["100", "1000"]),
    Case::new("map-kept", "map", &["20000", "2000000", "1"], &["100", "1000", "1"]),
    Case::new("map-large", "map", &["500000", "500000"], &["1000", "1000"]),
    Case::new("boxed", "boxed", &["800000"], &["1000"]),
    Case::new("larson", "larson", &["2000000", "50"], &["1000", "2"]),
    Case::new("pipeline", "pipeline", &["800000"], &["1000"]),
    Case::new("growth", "growth", &["400"], &["8"]),
    Case::new("blocks", "blocks", &["4000"], &["8"]),
    Case::new("small", "small", &["12000"], &["8"]),
    Case::new("fragments", "fragments", &["60"], &["1"]),
    Case::new("bursts", "bursts", &["2000"], &["16"]),
    Case::new("http", "http", &["12000"], &["100"]),
    Case { sizes: &[4, 8], threads: &[8], ..Case::new("dataset", "dataset", &["{size}", "30000"], &["{size}", "100"]) },
];

/// Returns the names of all cases.
pub fn names() -> impl Iterator<Item = &'static str> {
    CASES.iter().map(|case| case.name)
}
