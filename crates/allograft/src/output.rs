//! Prints results on standard output and everything else on standard error.
//!
//! Nothing else prints. Text from a file, a path or another program is escaped here, on its way to the terminal: a
//! message is one line, and so is each line of a [`Page`] and each cell of a [`Table`]. Only styles that were requested
//! here reach the terminal. Callers need not escape anything. JSON keeps all characters, escaped as JSON does it.

pub(crate) mod file;
mod fold;
mod page;

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use clap::ColorChoice;
use hosts::Locking;
use serde::Serialize;

use crate::failure::{Failure, REPORT};
use crate::global::Global;
use crate::json;
pub(crate) use crate::printable::{acts, printable};
use page::Marks;
pub(crate) use page::{Cell, Page, Table, counted};

/// The output settings of this run.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) json: bool,
    pub(crate) quiet: bool,
    pub(crate) verbose: bool,
    color_out: bool,
    color_err: bool,
    silent_err: bool,
    /// The columns of a terminal behind standard output, and behind standard error.
    width_out: Option<usize>,
    width_err: Option<usize>,
    marks: Marks,
}

/// The text styles.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Style {
    Good,
    Bad,
    Notice,
    Strong,
    Faint,
}

impl Style {
    const ALL: [Style; 5] = [Style::Good, Style::Bad, Style::Notice, Style::Strong, Style::Faint];

    fn code(self) -> &'static str {
        match self {
            Style::Good => "32",
            Style::Bad => "31",
            Style::Notice => "33",
            Style::Strong => "1",
            Style::Faint => "2",
        }
    }
}

impl Output {
    pub(crate) fn new(global: &Global) -> Output {
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let choose = |terminal: bool| match global.color {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            ColorChoice::Auto => terminal && !no_color && !dumb,
        };
        Output {
            json: global.json,
            quiet: global.quiet,
            verbose: global.verbose,
            color_out: choose(io::stdout().is_terminal()),
            color_err: choose(io::stderr().is_terminal()),
            silent_err: false,
            width_out: fold::width(io::stdout()),
            width_err: fold::width(io::stderr()),
            marks: Marks::new(),
        }
    }

    /// Returns the output of a run whose command line is wrong and whose message is printed already.
    pub(crate) fn json_only() -> Output {
        let (color_out, color_err, marks) = (false, false, Marks::new());
        let (width_out, width_err) = (None, None);
        let (json, quiet, verbose, silent_err) = (true, true, false, true);
        Output { json, quiet, verbose, color_out, color_err, silent_err, width_out, width_err, marks }
    }

    /// Returns an empty text for standard output.
    pub(crate) fn page(&self) -> Page {
        Page::new(self.color_out.then_some(self.marks))
    }

    /// Returns a table without rows, for a page.
    pub(crate) fn table(&self, head: &[&str]) -> Table {
        Table::new(head, self.color_out)
    }

    /// Returns the columns that a table may take; `None` if nothing limits them.
    pub(crate) fn columns(&self) -> Option<usize> {
        fold::table_width()
    }

    /// Returns text for a page, in a style if the page is coloured.
    pub(crate) fn paint(&self, style: Style, text: impl Display) -> String {
        let text = printable(text);
        if self.color_out { self.marks.around(style, &text) } else { text }
    }

    /// Returns the marks of a check that passed and of one that failed: words if the locale may not show the signs.
    pub(crate) fn marks(&self) -> (&'static str, &'static str) {
        // POSIX, 8.2: the first of these that is set and not empty decides.
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(|name| {
            std::env::var_os(name).filter(|value| !value.is_empty()).map(|value| value.to_string_lossy().to_lowercase())
        });
        let utf8 = locale.is_some_and(|locale| locale.contains("utf-8") || locale.contains("utf8"));
        if utf8 { ("✓", "✗") } else { ("ok  ", "FAIL") }
    }

    /// Prints a result that is not JSON. With `--quiet` it prints nothing.
    pub(crate) fn text(&self, page: &Page) -> Result<(), Failure> {
        if self.quiet { Ok(()) } else { self.raw(&page.text(self.width_out)) }
    }

    /// Prints a JSON document, whatever the flags.
    pub(crate) fn json(&self, document: &str) -> Result<(), Failure> {
        self.raw(&crate::printable::json(document))
    }

    /// Prints a text of allograft's own words only, whatever the flags.
    pub(crate) fn raw(&self, text: &str) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            // A reader that closed the pipe needs no more.
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                Err(Failure::usage(format!("cannot write to standard output: {error}"))
                    .with_help("make room where standard output goes, or send it elsewhere"))
            }
            _ => Ok(()),
        }
    }

    /// Prints a text that is the whole result, or the document with it.
    pub(crate) fn printed(&self, text: &str) -> Result<(), Failure> {
        if self.json { self.document(json::Text { text }) } else { self.raw(text) }
    }

    /// Prints the one JSON document of this run, which has these fields beside its version.
    pub(crate) fn document(&self, fields: impl Serialize) -> Result<(), Failure> {
        let text = json::document(fields).map_err(|error| {
            Failure::usage(format!("the result cannot be written as JSON: {error}")).with_help(REPORT)
        })?;
        self.json(&text)
    }

    /// Prints an important message on standard error, even with `--quiet`.
    pub(crate) fn warn(&self, message: impl Display) {
        self.message(Style::Notice, "warning", message);
    }

    /// Prints an important message on standard error, and what to do about it, even with `--quiet`.
    pub(crate) fn warn_with_help(&self, message: impl Display, help: impl Display) {
        self.warn(message);
        self.message(Style::Strong, "help", help);
    }

    /// Prints a message on standard error, but not with `--quiet`.
    pub(crate) fn note(&self, message: impl Display) {
        if !self.quiet {
            self.message(Style::Faint, "note", message);
        }
    }

    /// Prints that this run waits for another allograft, or cannot exclude one.
    pub(crate) fn locking(&self, locking: Locking<'_>) {
        match locking {
            Locking::Waiting(folder) => {
                self.note(format_args!("waiting for another allograft, which works in `{}`", folder.display()));
            }
            Locking::Unlocked(folder, error) => self.warn(format_args!(
                "`{}` cannot be locked ({error}): let no other allograft work there at the same time",
                folder.display()
            )),
        }
    }

    /// Returns the progress of work that takes over a second, shown on standard error if a user may be watching.
    pub(crate) fn progress(&self) -> Progress {
        let shown = match (self.quiet, io::stderr().is_terminal()) {
            (true, _) => Shown::Nothing,
            (false, true) => Shown::InOneLine,
            (false, false) if self.verbose => Shown::LineByLine,
            (false, false) => Shown::Nothing,
        };
        Progress { shown }
    }

    fn message(&self, style: Style, label: &str, message: impl Display) {
        if !self.silent_err {
            // An error cannot be reported if standard error is closed.
            let label = match self.color_err {
                true => format!("\x1b[{}m{label}\x1b[0m", style.code()),
                false => label.to_owned(),
            };
            let line = format!("{label}: {}", printable(message));
            let line = match self.width_err {
                Some(width) => fold::folded(&line, width, 2),
                None => line,
            };
            let _ = writeln!(io::stderr(), "{line}");
        }
    }

    /// Prints an error that does not end the run, and its help.
    pub(crate) fn error(&self, failure: &Failure) {
        self.message(Style::Bad, "error", &failure.message);
        for line in failure.said.iter().filter(|_| !self.silent_err) {
            let _ = writeln!(io::stderr(), "  {}", printable(line));
        }
        self.message(Style::Strong, "help", &failure.help);
    }

    /// Prints the error that ends the run, with its help and, with `--json`, as a document. Returns the exit code.
    pub(crate) fn fail(&self, failure: &Failure) -> ExitCode {
        self.error(failure);
        if self.json {
            let _ = self.document(json::Failed::from(failure));
        }
        ExitCode::from(failure.exit_code)
    }
}

/// Shows the current activity.
pub(crate) struct Progress {
    shown: Shown,
}

#[derive(Clone, Copy)]
enum Shown {
    Nothing,
    InOneLine,
    LineByLine,
}

impl Progress {
    pub(crate) fn step(&self, name: &str) {
        let name = printable(name);
        let _ = match self.shown {
            Shown::Nothing => Ok(()),
            // Back to the start of the line, and clear it.
            Shown::InOneLine => write!(io::stderr(), "\r\x1b[K{name} ...").and_then(|()| io::stderr().flush()),
            Shown::LineByLine => writeln!(io::stderr(), "{name} ..."),
        };
    }

    pub(crate) fn finish(&self) {
        if matches!(self.shown, Shown::InOneLine) {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
