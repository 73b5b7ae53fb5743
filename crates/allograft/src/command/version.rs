//! `allograft --version --verbose`: what this program is, and which allocator it carries itself.

use std::{env, fs};

use super::inspect::overview;
use crate::output::{Output, Page, Style};

/// Returns the version, what `inspect` says of the running program, and the donors in it.
pub(crate) fn details(output: &Output) -> Page {
    let mut page = output.page();
    let carried = match env::current_exe().and_then(fs::read).map(|bytes| inspector::inspect(&bytes)) {
        Ok(Ok(report)) => overview::in_one_line(&report, output),
        Ok(Err(error)) => format!("unknown: {error}"),
        Err(error) => format!("unknown: this program cannot be read: {error}"),
    };
    let donors = donors::all().iter().chain([donors::strings()]);
    let donors: Vec<String> = donors.map(|donor| format!("{} {}", donor.name, donor.version)).collect();
    // Writing to a page does not fail.
    let _ = writeln!(page, "allograft {}", env!("CARGO_PKG_VERSION"));
    for (what, detail) in [("carries", &carried), ("donors", &donors.join(", "))] {
        let _ = writeln!(page, "  {} {detail}", output.paint(Style::Faint, format_args!("{:<8}", format!("{what}:"))));
    }
    page
}
