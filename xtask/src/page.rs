//! Tables in the docs that commands write: the text between two lines of a page, which stay. Also the figures that the
//! tables are made from.

use std::fs;

use anyhow::{Context, Result, bail};
use serde::de::DeserializeOwned;

use tools::workspace;

/// The text in place of tables whose figures have not been measured.
const NO_FIGURES: &str = "No figures are kept yet.";

/// Returns the figures that a file of the workspace keeps; `None` if there is no such file.
///
/// # Errors
/// When it cannot be read, or has a different form.
pub fn figures<T: DeserializeOwned>(kept: &str) -> Result<Option<T>> {
    let path = workspace::root().join(kept);
    if !path.is_file() {
        return Ok(None);
    }
    let bytes = fs::read(path).with_context(|| format!("cannot read `{kept}`"))?;
    serde_json::from_slice(&bytes).with_context(|| format!("`{kept}` holds no such figures")).map(Some)
}

/// The place of a table.
#[derive(Debug, Clone, Copy)]
pub struct Table {
    /// The page's path from the workspace's root.
    pub page: &'static str,
    /// The line before the table.
    pub begin: &'static str,
    /// The line after it.
    pub end: &'static str,
}

impl Table {
    /// Writes the table into the page, and prints the page's name.
    ///
    /// # Errors
    /// When the page cannot be read or written, or lacks one of the two lines.
    pub fn write(&self, text: &str) -> Result<()> {
        let path = workspace::root().join(self.page);
        let before = fs::read_to_string(&path).with_context(|| format!("cannot read `{}`", self.page))?;
        let after = self.replaced(&before, text)?;
        if after == before {
            println!("{}: unchanged", self.page);
            return Ok(());
        }
        fs::write(&path, after).with_context(|| format!("cannot write `{}`", self.page))?;
        println!("{}: written", self.page);
        Ok(())
    }

    /// Returns the page with this table.
    ///
    /// # Errors
    /// When it lacks one of the two lines.
    pub fn replaced(&self, page: &str, text: &str) -> Result<String> {
        let Table { page: name, begin, end } = self;
        let (before, rest) = page.split_once(begin).with_context(|| format!("`{name}` has no line `{begin}`"))?;
        let (_, after) = rest.split_once(end).with_context(|| format!("`{name}` has no line `{end}` behind that"))?;
        Ok(format!("{before}{begin}\n\n{}\n\n{end}{after}", text.trim_end()))
    }
}

/// A table that is made of kept figures.
#[derive(Debug, Clone, Copy)]
pub struct KeptTable<T> {
    /// The path of the file of figures, from the workspace's root.
    pub figures: &'static str,
    /// The place of the table.
    pub place: Table,
    /// Makes the table of the figures.
    pub text: fn(&T) -> String,
}

impl<T: DeserializeOwned> KeptTable<T> {
    /// Puts the table of the kept figures into its page; without figures, a line that says so.
    ///
    /// # Errors
    /// When the figures cannot be read, or the page cannot be written.
    pub fn write(&self) -> Result<()> {
        self.place.write(&self.current()?)
    }

    /// Checks that the page has the table of the kept figures.
    ///
    /// # Errors
    /// When it has a different table, when the figures or the page cannot be read, or the page has no place for the
    /// table.
    pub fn check(&self) -> Result<()> {
        let page = self.place.page;
        let text = fs::read_to_string(workspace::root().join(page)).with_context(|| format!("cannot read `{page}`"))?;
        if self.place.replaced(&text, &self.current()?)? != text {
            bail!("`{page}` has another table than `{}` makes: `cargo xtask bench tables`", self.figures);
        }
        Ok(())
    }

    fn current(&self) -> Result<String> {
        let figures: Option<T> = figures(self.figures)?;
        Ok(figures.map_or_else(|| NO_FIGURES.to_owned(), |figures| (self.text)(&figures)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_made_is_made_anew() {
        let table = Table { page: "a page", begin: "<!-- made -->", end: "<!-- end -->" };
        let new = table.replaced("before\n<!-- made -->\nold\n<!-- end -->\nafter\n", "new\n").unwrap();
        assert_eq!(new, "before\n<!-- made -->\n\nnew\n\n<!-- end -->\nafter\n");
        assert_eq!(table.replaced(&new, "new\n").unwrap(), new);
        assert!(table.replaced("nothing", "new").unwrap_err().to_string().contains("<!-- made -->"));
        assert!(table.replaced("<!-- end --><!-- made -->", "new").is_err());
    }
}
