//! `cargo xtask bench tables`: the tables in the docs that are made of kept figures.

use anyhow::Result;
use measure::report;
use xtask::page::Table;

use crate::{
    asked, behind, chart, dynamic, experiment, latency, libc, loaders, profile, real, rest, scaling, stated, suite,
};

/// A table's name, its page, and its text.
type Kept = (&'static str, &'static str, fn() -> Result<String>);

/// The page of most figures.
const PAGE: &str = "docs/bench-figures.md";

/// All tables. The lines around a table in its page have its name.
const TABLES: [Kept; 11] = [
    ("suite", PAGE, || Ok(report::overview(&suite::results()?))),
    ("behind", PAGE, || Ok(behind::table(&suite::results()?, Some(&experiment::present(asked::NAME)?)))),
    ("real", PAGE, || real::EXPERIMENT.kept_table()),
    ("behind-real", PAGE, || Ok(behind::table(&experiment::present(real::EXPERIMENT.name)?, None))),
    ("rest", PAGE, || rest::EXPERIMENT.kept_table()),
    ("latency", PAGE, || latency::EXPERIMENT.kept_table()),
    ("dynamic", "docs/dynamic-executables.md", || dynamic::EXPERIMENT.kept_table()),
    ("loaders", "docs/loader.md", || loaders::EXPERIMENT.kept_table()),
    ("profile", "docs/profile-method.md", || profile::EXPERIMENT.kept_table()),
    ("scaling", "docs/scaling.md", || scaling::EXPERIMENT.kept_table()),
    ("libc", "docs/strings.md", || libc::EXPERIMENT.kept_table()),
];

/// Does something with the place of a table.
fn at<T>((name, page, _): Kept, run: impl FnOnce(&Table<'_>) -> T) -> T {
    let begin = format!("<!-- {name}: made by `cargo xtask bench tables` -->");
    run(&Table { page, begin: &begin, end: &format!("<!-- /{name} -->") })
}

/// Writes the tables, the README's chart, and the figures in sentences.
///
/// # Errors
/// Figures cannot be read, or a page cannot be written.
pub(crate) fn write() -> Result<()> {
    for table in TABLES {
        at(table, |place| place.write(&table.2()?))?;
    }
    chart::write()?;
    stated::write()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tools::workspace;

    use super::*;

    #[test]
    fn the_tables_in_the_docs_are_those_of_the_kept_figures() {
        for table in TABLES {
            at(table, |place| place.check(&table.2().unwrap()).unwrap());
        }
    }

    #[test]
    fn kept_figures_are_without_single_runs() {
        for file in fs::read_dir(workspace::root().join("docs/figures")).unwrap() {
            let (path, length) = (file.as_ref().unwrap().path(), file.unwrap().metadata().unwrap().len());
            assert!(length < 1_000_000, "`{}` has {length} bytes", path.display());
        }
    }
}
