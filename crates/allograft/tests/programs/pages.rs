//! The tables of programs in the docs, which are those of `tests/programs`. With `ALLOGRAFT_BLESS=1` they are written.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use fixtures::{installed, released};
use libtest_mimic::Trial;

use crate::trial::{for_dynamic, for_static};

const BEGIN: &str = "<!-- table: written by the test -->\n";
const END: &str = "<!-- end of the programs -->\n";

pub(crate) fn trials() -> Vec<Trial> {
    let dynamic = || compare("dynamic-executables.md", &installed_programs()).map_err(Into::into);
    let released = || compare("released.md", &released_programs()).map_err(Into::into);
    vec![Trial::test("pages/dynamic-executables", dynamic), Trial::test("pages/released", released)]
}

/// Compares a page's part with what it has to be, or writes it.
fn compare(page: &str, wanted: &str) -> Result<(), String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(page);
    let text = fs::read_to_string(&path).map_err(|error| error.to_string())?;
    let (before, rest) = text.split_once(BEGIN).ok_or_else(|| format!("{page} has no `{BEGIN}`"))?;
    let (found, after) = rest.split_once(END).ok_or_else(|| format!("{page} has no `{END}`"))?;
    if std::env::var_os("ALLOGRAFT_BLESS").is_some() {
        return fs::write(&path, [before, BEGIN, wanted, END, after].concat()).map_err(|error| error.to_string());
    }
    let is_same = found == wanted;
    is_same.then_some(()).ok_or_else(|| format!("{page} is out of date\nhelp: ALLOGRAFT_BLESS=1 writes it"))
}

/// Returns the second donor for a program of the Debian as installed.
pub(crate) fn second_donor(program: &installed::Program, index: usize) -> &'static str {
    if program.loads.starts_with("static") { for_static(index) } else { for_dynamic(index) }
}

/// One row of a table.
struct Row {
    cells: [String; 3],
    second: &'static str,
    refused: Option<String>,
}

/// Returns the counts and the tables.
fn text(tables: &[(&str, Vec<Row>)], titles: [&str; 3]) -> String {
    let rows = || tables.iter().flat_map(|(_, rows)| rows);
    let refused = rows().filter(|row| row.refused.is_some()).count();
    let all = rows().count();
    let mut text = format!(
        "\n{all} programs: {} grafted, each by two donors, with the same result as stock, verified and undone; \
         {refused} refused.\n",
        all - refused
    );
    for (title, rows) in tables {
        let [first, second, third] = titles;
        let _ =
            write!(text, "\n### {title}\n\n| {first} | {second} | {third} | outcome |\n| --- | --- | --- | --- |\n");
        for row in rows {
            let [first, second, third] = &row.cells;
            let outcome = match &row.refused {
                Some(reason) => format!("refused: {reason}"),
                None => format!("same: snmalloc, {}", row.second),
            };
            let _ = writeln!(text, "| {first} | {second} | {third} | {outcome} |");
        }
    }
    text.push('\n');
    text
}

fn installed_programs() -> String {
    let mut index = 0..;
    let mut rows = |programs: Vec<installed::Program>| -> Vec<Row> {
        let row = |program: installed::Program| Row {
            second: second_donor(&program, index.next().unwrap_or_default()),
            cells: [program.name, program.loads, program.does],
            refused: program.refused,
        };
        programs.into_iter().map(row).collect()
    };
    let tables: Vec<_> = installed::tables().into_iter().map(|(title, programs)| (title, rows(programs))).collect();
    text(&tables, ["program", "loads", "work"])
}

fn released_programs() -> String {
    let mut index = 0..;
    let mut rows = |programs: Vec<released::Program>| -> Vec<Row> {
        let row = |program: released::Program| Row {
            cells: [program.name.clone(), format!("`{}`", program.package()), program.does],
            second: for_static(index.next().unwrap_or_default()),
            refused: program.refused,
        };
        programs.into_iter().map(row).collect()
    };
    let tables: Vec<_> = released::tables().into_iter().map(|(title, programs)| (title, rows(programs))).collect();
    text(&tables, ["program", "package", "work"])
}
