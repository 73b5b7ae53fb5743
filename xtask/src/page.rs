//! Tables in the docs that commands write: the text between two lines of a page, which stay.

use std::fs;

use anyhow::{Context, Result, ensure};

use tools::workspace;

/// The place of a table.
#[derive(Debug, Clone, Copy)]
pub struct Table<'t> {
    /// The page's path from the workspace's root.
    pub page: &'t str,
    /// The line before the table.
    pub begin: &'t str,
    /// The line after it.
    pub end: &'t str,
}

impl Table<'_> {
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

    /// Checks that the page has this table.
    ///
    /// # Errors
    /// When it has a different one, when it cannot be read, or lacks one of the two lines.
    pub fn check(&self, text: &str) -> Result<()> {
        let path = workspace::root().join(self.page);
        let page = fs::read_to_string(&path).with_context(|| format!("cannot read `{}`", self.page))?;
        let begin = self.begin;
        ensure!(self.replaced(&page, text)? == page, "`{}` has another table than is made now: {begin}", self.page);
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
