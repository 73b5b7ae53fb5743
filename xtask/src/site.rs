//! `cargo xtask site`: the site of the docs, made by mdBook.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use tools::{command, workspace};

use crate::installed;

/// The version of mdBook, which is built without its web server.
const MDBOOK: &str = "0.5.4";
const FEATURES: [&str; 3] = ["--no-default-features", "--features", "search"];

/// The folder of the pages, and the page that lists them.
const DOCS: &str = "docs";
const SUMMARY: &str = "docs/SUMMARY.md";
/// Files outside of the folder that the pages link to. Pages of `suite` are found by their ending.
const OTHERS: [&str; 5] = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "LICENSE-MIT", "LICENSE-APACHE"];
const SUITE: &str = "suite";

/// Makes `target/site` from `docs`, the README and the files that they link to. The first call builds mdBook (some
/// minutes).
///
/// # Errors
/// When mdBook cannot be built, or refuses a page.
pub(crate) fn build(arguments: &[String]) -> Result<()> {
    if let Some(argument) = arguments.first() {
        bail!("`site` takes no `{argument}`");
    }
    let mdbook = installed::program("mdbook", MDBOOK, &FEATURES)?;
    // mdBook takes one folder of pages, so the files are copied into one under the paths that they have here.
    let book = workspace::build().join("site-source");
    let pages = book.join("pages");
    if book.exists() {
        fs::remove_dir_all(&book)?;
    }
    for file in OTHERS {
        copy(file, &pages)?;
    }
    copy_below(DOCS, &pages, |_| true)?;
    copy_below(SUITE, &pages, |path| path.extension() == Some(OsStr::new("md")))?;
    let summary = fs::read_to_string(workspace::root().join(SUMMARY)).context(SUMMARY)?;
    fs::write(pages.join("SUMMARY.md"), from_the_root(&summary))?;
    fs::remove_file(pages.join(SUMMARY))?;
    for file in ["book.toml", "site.css"] {
        fs::rename(pages.join(DOCS).join(file), book.join(file))?;
    }
    command::run(Command::new(mdbook).arg("build").arg(&book))?;
    println!("{}", workspace::shown(&workspace::build().join("site/index.html")));
    Ok(())
}

/// Copies a file of the checkout to its place in `pages`.
fn copy(file: &str, pages: &Path) -> Result<()> {
    let to = pages.join(file);
    fs::create_dir_all(to.parent().unwrap_or(pages))?;
    fs::copy(workspace::root().join(file), &to).map(drop).with_context(|| format!("cannot copy `{file}`"))
}

/// Copies the wanted files below a folder of the checkout.
fn copy_below(folder: &str, pages: &Path, wanted: fn(&Path) -> bool) -> Result<()> {
    for entry in fs::read_dir(workspace::root().join(folder))? {
        let entry = entry?;
        let name = entry.file_name();
        let path = format!("{folder}/{}", name.to_string_lossy());
        // Build results of the suite.
        if name == "target" {
            continue;
        }
        if entry.file_type()?.is_dir() {
            copy_below(&path, pages, wanted)?;
        } else if wanted(&entry.path()) {
            copy(&path, pages)?;
        }
    }
    Ok(())
}

/// Rewrites the links of a page in `docs` to links from the root. A chapter without a page, which only groups others,
/// has an empty link.
fn from_the_root(summary: &str) -> String {
    summary.replace("](", "](docs/").replace("](docs/../", "](").replace("](docs/)", "]()")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_of_the_summary_are_moved() {
        assert_eq!(from_the_root("[a](../A.md)\n- [b](c/d.md)\n"), "[a](A.md)\n- [b](docs/c/d.md)\n");
        assert_eq!(from_the_root("- [group]()\n"), "- [group]()\n");
    }
}
