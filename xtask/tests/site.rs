//! The site, made by mdBook: slow, as the first run builds mdBook.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tools::workspace::build;

/// Adds the files with this ending below `folder` to `found`.
fn add_files(folder: &Path, ending: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            add_files(&path, ending, found);
        } else if path.to_string_lossy().ends_with(ending) {
            found.push(path);
        }
    }
}

#[test]
#[ignore = "site: builds mdBook"]
fn the_site_is_whole_and_needs_no_other_site() {
    let output = Command::new(env!("CARGO_BIN_EXE_xtask")).arg("site").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !said.contains("WARN") && !said.contains("ERROR"), "{said}");
    let site = build().join("site");
    let mut pages = Vec::new();
    add_files(&site, ".html", &mut pages);
    assert!(pages.len() > 40, "{} pages", pages.len());
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        for tag in text.split('<') {
            let tag = tag.split('>').next().unwrap_or_default();
            let loads = ["script", "link", "img", "source"].iter().any(|name| tag.starts_with(name));
            let values = ["href=\"", "src=\"", "srcset=\""].map(|name| tag.split(name).nth(1));
            for target in values.into_iter().flatten().filter_map(|value| value.split('"').next()) {
                let is_elsewhere = target.contains("://") || target.starts_with("//");
                assert!(!(loads && is_elsewhere), "{}: <{tag}>", page.display());
                let file = target.split('#').next().unwrap_or_default();
                let base = if page.ends_with("404.html") { &site } else { page.parent().unwrap() };
                let file = base.join(file.trim_start_matches('/'));
                assert!(is_elsewhere || file.exists(), "{}: `{target}` is not there", page.display());
                let anchor = target.split_once('#').map_or("", |(_, anchor)| anchor);
                let file = if target.starts_with('#') { &page } else { &file };
                if !is_elsewhere && !anchor.is_empty() && file.extension().is_some_and(|it| it == "html") {
                    let there = fs::read_to_string(file).unwrap().contains(&format!("id=\"{anchor}\""));
                    assert!(there, "{}: `{target}` leads to no heading", page.display());
                }
            }
        }
    }
    for (folder, start) in [("", "searchindex"), ("docs/images", "before-after-dark")] {
        let names = fs::read_dir(site.join(folder)).unwrap();
        let found = names.flatten().any(|entry| entry.file_name().to_string_lossy().starts_with(start));
        assert!(found, "no `{start}` in `{folder}`");
    }
}
