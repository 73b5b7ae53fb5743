//! Where results and messages go, and how they look: results on standard output, everything else on standard error.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use clap::ColorChoice;
use hosts::Locking;
use serde_json::{Value, json};

use crate::arguments::Global;
use crate::failure::Failure;

/// The version of all JSON documents: fields may be added, never renamed.
const SCHEMA_VERSION: u32 = 1;

/// How this run prints.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) json: bool,
    pub(crate) quiet: bool,
    pub(crate) verbose: bool,
    color_out: bool,
    color_err: bool,
    silent_err: bool,
}

/// The few styles that there are.
#[derive(Clone, Copy)]
pub(crate) enum Style {
    Good,
    Bad,
    Notice,
    Strong,
    Faint,
}

impl Style {
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

fn painted(color: bool, style: Style, text: impl Display) -> String {
    if color { format!("\x1b[{}m{text}\x1b[0m", style.code()) } else { text.to_string() }
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
        }
    }

    /// For a command line that could not be understood, and whose message is printed already.
    pub(crate) fn json_only() -> Output {
        Output { json: true, quiet: true, verbose: false, color_out: false, color_err: false, silent_err: true }
    }

    /// Whether standard output is coloured.
    pub(crate) fn is_colored(&self) -> bool {
        self.color_out
    }

    /// Text for standard output, in a style if that is a terminal.
    pub(crate) fn paint(&self, style: Style, text: impl Display) -> String {
        painted(self.color_out, style, text)
    }

    /// The marks of a check that passed and of one that failed: words where the locale may not show the signs.
    pub(crate) fn marks(&self) -> (&'static str, &'static str) {
        // POSIX, 8.2: the first of these that is set and not empty decides.
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(|name| {
            std::env::var_os(name).filter(|value| !value.is_empty()).map(|value| value.to_string_lossy().to_lowercase())
        });
        let utf8 = locale.is_some_and(|locale| locale.contains("utf-8") || locale.contains("utf8"));
        if utf8 { ("✓", "✗") } else { ("ok  ", "FAIL") }
    }

    /// Prints a result that is no JSON: nothing with `--quiet`.
    pub(crate) fn text(&self, text: &str) -> Result<(), Failure> {
        if self.quiet { Ok(()) } else { self.raw(text) }
    }

    /// Prints a result that was asked for, whatever the flags.
    pub(crate) fn raw(&self, text: &str) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            // Whoever closed the pipe has seen enough.
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                Err(Failure::usage(format!("cannot write to standard output: {error}"))
                    .with_help("make room where standard output goes, or send it elsewhere"))
            }
            _ => Ok(()),
        }
    }

    /// Prints the one JSON document of this run; `fields` is an object, the schema's version goes first.
    pub(crate) fn document(&self, fields: Value) -> Result<(), Failure> {
        let mut document = json!({ "schema_version": SCHEMA_VERSION });
        if let (Value::Object(document), Value::Object(fields)) = (&mut document, fields) {
            document.extend(fields);
        }
        self.raw(&format!("{document:#}\n"))
    }

    /// A message on standard error that the user should not miss; also with `--quiet`.
    pub(crate) fn warn(&self, message: impl Display) {
        self.message(Style::Notice, "warning", message);
    }

    /// A message on standard error for who asked for it or has the time.
    pub(crate) fn note(&self, message: impl Display) {
        if !self.quiet {
            self.message(Style::Faint, "note", message);
        }
    }

    /// Says that another run is waited for, or cannot be kept out.
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

    /// For work that takes over a second: says on standard error what is being done, where somebody may be watching.
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
            // There is nowhere to report that standard error is closed.
            let _ = writeln!(io::stderr(), "{}: {message}", painted(self.color_err, style, label));
        }
    }

    /// An error that does not end the run, and its help.
    pub(crate) fn error(&self, failure: &Failure) {
        self.message(Style::Bad, "error", &failure.message);
        if let Some(help) = &failure.help {
            self.message(Style::Strong, "help", help);
        }
    }

    /// Ends the run with an error: the message, its help and, with `--json`, the document that says the same.
    pub(crate) fn fail(&self, failure: &Failure) -> ExitCode {
        self.error(failure);
        if self.json {
            let Failure { message, help, exit_code } = failure;
            let error = json!({ "error": { "message": message, "help": help, "exit_code": exit_code } });
            let _ = self.document(error);
        }
        ExitCode::from(failure.exit_code)
    }
}

/// What is being done just now.
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
