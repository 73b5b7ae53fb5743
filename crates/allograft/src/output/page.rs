//! Results for people, line by line. Text from a file, a path or another program stays on its line: it cannot begin
//! another line, change colours, or control the terminal.

use std::fmt::{self, Display};
use std::hash::{BuildHasher, RandomState};

use comfy_table::{Attribute, CellAlignment, Color, ContentArrangement, presets};

use super::{Style, fold};
use crate::printable::{acts, printable};

/// The marks of styles in the text of a [`Page`]. They are random in each run, so that no file can contain them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Marks {
    secret: u64,
}

impl Marks {
    pub(super) fn new() -> Marks {
        Marks { secret: RandomState::new().hash_one(std::process::id()) }
    }

    /// Returns `text` with the marks of a style around it.
    pub(super) fn around(self, style: Style, text: &str) -> String {
        let mark = |code: &str| format!("\x1b{:016x}{code}m", self.secret);
        format!("{}{text}{}", mark(style.code()), mark("0"))
    }

    /// Returns the terminal sequence for the mark that `rest` starts with, and the mark's length.
    fn sequence(self, rest: &str) -> Option<(String, usize)> {
        let code = rest.strip_prefix(&format!("\x1b{:016x}", self.secret))?;
        let code = &code[..code.find('m')?];
        let known = code == "0" || Style::ALL.iter().any(|style| style.code() == code);
        known.then(|| (format!("\x1b[{code}m"), 1 + 16 + code.len() + 1))
    }
}

/// A text for standard output.
#[derive(Debug)]
pub(crate) struct Page {
    lines: Vec<Line>,
    /// `None` if the page is not coloured.
    marks: Option<Marks>,
}

#[derive(Debug)]
struct Line {
    text: String,
    /// Whether it is never broken.
    whole: bool,
}

impl Page {
    pub(super) fn new(marks: Option<Marks>) -> Page {
        Page { lines: Vec::new(), marks }
    }

    /// Adds one line that is not broken on a narrow terminal: a command, or a text in lines of its own.
    pub(crate) fn whole(&mut self, line: impl Display) {
        // Writing to a page does not fail.
        let _ = writeln!(self, "{line}");
        if let Some(last) = self.lines.last_mut() {
            last.whole = true;
        }
    }

    /// Adds one line; `writeln!` and `write!` call this. It cannot fail: the return type is what those macros expect.
    pub(crate) fn write_fmt(&mut self, line: fmt::Arguments<'_>) -> fmt::Result {
        let line = line.to_string();
        let mut text = String::new();
        let mut rest = line.strip_suffix('\n').unwrap_or(&line);
        while let Some(at) = rest.find(acts) {
            text.push_str(&rest[..at]);
            rest = &rest[at..];
            let (shown, length) = match self.marks.and_then(|marks| marks.sequence(rest)) {
                Some(sequence) => sequence,
                None => {
                    let length = rest.chars().next().map_or(rest.len(), char::len_utf8);
                    (printable(&rest[..length]), length)
                }
            };
            text.push_str(&shown);
            rest = &rest[length..];
        }
        text.push_str(rest);
        self.lines.push(Line { text, whole: false });
        Ok(())
    }

    /// Adds an empty line.
    pub(crate) fn blank(&mut self) {
        self.lines.push(Line { text: String::new(), whole: true });
    }

    /// Adds a table, without blanks at the ends of its lines.
    pub(crate) fn table(&mut self, table: &Table) {
        for line in table.inner.lines() {
            self.lines.push(Line { text: line.trim_end().to_owned(), whole: true });
        }
    }

    /// Returns the text, its lines broken for a terminal of that many columns.
    pub(super) fn text(&self, width: Option<usize>) -> String {
        let line = |Line { text, whole }: &Line| match width.filter(|_| !whole) {
            Some(width) => fold::folded(text, width, 4),
            None => text.clone(),
        };
        self.lines.iter().map(line).fold(String::new(), |text, line| text + &line + "\n")
    }
}

/// A table whose cells hold one line each.
#[derive(Debug)]
pub(crate) struct Table {
    inner: comfy_table::Table,
    color: bool,
}

/// The contents of a cell of a [`Table`].
#[derive(Debug)]
pub(crate) struct Cell {
    text: String,
    style: Option<Style>,
}

impl Cell {
    pub(crate) fn styled(self, style: Style) -> Cell {
        Cell { style: Some(style), ..self }
    }

    /// Its width.
    pub(crate) fn columns(&self) -> usize {
        self.text.chars().count()
    }
}

impl<T: Display> From<T> for Cell {
    fn from(text: T) -> Cell {
        Cell { text: printable(text), style: None }
    }
}

impl Table {
    pub(super) fn new(head: &[&str], color: bool) -> Table {
        let mut inner = comfy_table::Table::new();
        inner.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled).set_header(head);
        if color {
            inner.enforce_styling();
        }
        Table { inner, color }
    }

    /// Wraps long cells so that the table fits the terminal, or the columns that COLUMNS names.
    pub(crate) fn fitting(mut self) -> Table {
        self.inner.set_content_arrangement(ContentArrangement::Dynamic);
        if let Some(width) = fold::table_width().and_then(|width| u16::try_from(width).ok()) {
            self.inner.set_width(width);
        }
        self
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        let cell = |cell: Cell| {
            let shown = comfy_table::Cell::new(cell.text);
            match cell.style.filter(|_| self.color) {
                None => shown,
                Some(Style::Good) => shown.fg(Color::Green),
                Some(Style::Bad) => shown.fg(Color::Red),
                Some(Style::Notice) => shown.fg(Color::Yellow),
                Some(Style::Strong) => shown.add_attribute(Attribute::Bold),
                Some(Style::Faint) => shown.add_attribute(Attribute::Dim),
            }
        };
        let row: Vec<comfy_table::Cell> = cells.into_iter().map(cell).collect();
        self.inner.add_row(row);
    }

    /// Sets the number of blanks between the columns.
    pub(crate) fn spaced(mut self, blanks: u16) -> Table {
        for column in self.inner.column_iter_mut() {
            column.set_padding((0, blanks));
        }
        self
    }

    /// Aligns every column but the first to the right, for numbers.
    pub(crate) fn numbers(mut self) -> Table {
        for column in self.inner.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        self
    }
}

/// A number of things: `1 script`, `2 scripts`.
pub(crate) fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_stays_a_line_and_only_own_styles_colour_it() {
        let marks = Marks::new();
        let hostile = "x\n\x1b[31mforged\x1b[0m\x1b0000000000000000\x31m\u{9b}2J";
        let mut page = Page::new(Some(marks));
        let good = marks.around(Style::Good, "fine");
        writeln!(page, "{good} {hostile}").unwrap();
        write!(page, "ends\n\n").unwrap();
        let escaped = r"x\n\u{1b}[31mforged\u{1b}[0m\u{1b}00000000000000001m\u{9b}2J";
        assert_eq!(page.text(None), format!("\x1b[32mfine\x1b[0m {escaped}\nends\\n\n"));
    }

    #[test]
    fn a_cell_stays_in_its_row() {
        for color in [false, true] {
            let mut table = Table::new(&["a", "b"], color);
            table.row(["one\ntwo\tthree", "\x1b]0;title\x07"].map(Cell::from));
            let mut page = Page::new(None);
            page.table(&table.spaced(2));
            let text = page.text(None);
            let lines: Vec<&str> = text.lines().collect();
            assert_eq!(lines.len(), 2, "{lines:?}");
            assert!(lines[1].contains(r"one\ntwo\tthree") && lines[1].contains(r"\u{1b}]0;title\u{7}"), "{lines:?}");
        }
    }
}
