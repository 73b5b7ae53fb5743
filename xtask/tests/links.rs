//! Test: links between pages have targets: an existing file, and a heading of the page. The site has every page. Guides
//! begin with what the reader types.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};
use tools::workspace::root;

/// The contents of one page.
#[derive(Debug, Default, PartialEq, Eq)]
struct Page {
    /// Targets of links and images.
    links: Vec<String>,
    /// The anchors of its headings, as code hosts and mdBook name them.
    anchors: BTreeSet<String>,
}

impl Page {
    fn parse(text: &str) -> Page {
        let mut page = Page::default();
        let mut title: Option<String> = None;
        for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
            match event {
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    page.links.push(dest_url.into_string());
                }
                Event::Html(html) | Event::InlineHtml(html) => page.links.extend(attributes(&html)),
                Event::Start(Tag::Heading { .. }) => title = Some(String::new()),
                Event::End(TagEnd::Heading(_)) => {
                    let title = title.take().unwrap_or_default();
                    page.add_anchor(&title);
                }
                Event::Text(text) | Event::Code(text) => {
                    if let Some(title) = &mut title {
                        title.push_str(&text);
                    }
                }
                _ => {}
            }
        }
        page
    }

    /// Adds the anchor of a heading: letters and digits in lower case, `-` for a blank. A second heading of the same
    /// name gets a number.
    fn add_anchor(&mut self, title: &str) {
        let kept = title.chars().filter(|it| it.is_alphanumeric() || matches!(it, ' ' | '-' | '_'));
        let anchor = kept.collect::<String>().to_lowercase().replace(' ', "-");
        let numbered = (1..).map(|number| format!("{anchor}-{number}"));
        let free = std::iter::once(anchor.clone()).chain(numbered).find(|name| !self.anchors.contains(name));
        self.anchors.extend(free);
    }
}

/// Returns the values of `src` and `srcset` in HTML.
fn attributes(html: &str) -> impl Iterator<Item = String> {
    let values = |name| html.split(name).skip(1).filter_map(|rest: &str| rest.split('"').next());
    values("src=\"").chain(values("srcset=\"")).map(str::to_owned).collect::<Vec<_>>().into_iter()
}

/// Adds the pages below a folder of the checkout to `found`, by their path from the root.
fn add_pages(folder: &str, found: &mut BTreeMap<PathBuf, Page>) {
    for entry in fs::read_dir(root().join(folder)).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{folder}/{name}");
        if entry.file_type().unwrap().is_dir() && name != "target" {
            add_pages(&path, found);
        } else if name.ends_with(".md") {
            found.insert(PathBuf::from(&path), read(&path));
        }
    }
}

fn read(path: &str) -> Page {
    Page::parse(&fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}")))
}

/// Returns every page, by its path from the root.
fn pages() -> BTreeMap<PathBuf, Page> {
    let mut pages = BTreeMap::new();
    for path in ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"] {
        pages.insert(PathBuf::from(path), read(path));
    }
    add_pages("docs", &mut pages);
    add_pages("suite", &mut pages);
    pages
}

/// Returns the target of a link on `page`: the path from the root, and the anchor. `None` for a link to a different
/// site.
fn target(page: &Path, link: &str) -> Option<(PathBuf, Option<String>)> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = link.split_once('#').map_or((link, None), |(path, anchor)| (path, Some(anchor.to_owned())));
    if path.is_empty() {
        return Some((page.to_owned(), anchor));
    }
    let mut whole = page.parent().unwrap_or(Path::new("")).to_owned();
    for part in Path::new(path).components() {
        match part {
            Component::ParentDir => drop(whole.pop()),
            part => whole.push(part),
        }
    }
    Some((whole, anchor))
}

/// Returns the reason why a link on `page` is broken.
fn fault(pages: &BTreeMap<PathBuf, Page>, page: &Path, link: &str) -> Option<String> {
    let (path, anchor) = target(page, link)?;
    if !root().join(&path).exists() {
        return Some(format!("there is no `{}`", path.display()));
    }
    let anchor = anchor?;
    let found = pages.get(&path).is_some_and(|page| page.anchors.contains(&anchor));
    (!found).then(|| format!("`{}` has no heading `#{anchor}`", path.display()))
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    let pages = pages();
    let mut faults = Vec::new();
    let mut checked = 0;
    for (path, page) in &pages {
        checked += page.links.len();
        let broken = page.links.iter().filter_map(|link| Some((link, fault(&pages, path, link)?)));
        faults.extend(broken.map(|(link, why)| format!("{}: `{link}`: {why}", path.display())));
    }
    assert!(faults.is_empty(), "{faults:#?}");
    assert!(checked > 200, "{checked} links");
}

#[test]
fn the_site_has_every_page_of_the_docs_and_every_page_that_those_link_to() {
    let pages = pages();
    let summary = Path::new("docs/SUMMARY.md");
    let leads_to = |path: &Path| -> BTreeSet<PathBuf> {
        let links = pages[path].links.iter().filter_map(|link| target(path, link));
        links.map(|(path, _)| path).filter(|path| pages.contains_key(path)).collect()
    };
    let listed = leads_to(summary);
    let mut wanted: BTreeSet<PathBuf> = listed.iter().flat_map(|page| leads_to(page)).collect();
    wanted.extend(pages.keys().filter(|path| path.starts_with("docs")).cloned());
    wanted.remove(summary);
    let missing: Vec<&PathBuf> = wanted.difference(&listed).collect();
    assert!(missing.is_empty(), "{} lacks {missing:?}", summary.display());
}

/// The languages of what readers type or put into their build; a program in C is a test's scaffolding.
const TYPED: [&str; 7] = ["console", "sh", "cmake", "meson", "python", "nix", "yaml"];
/// The first block of a guide begins at the latest on this line, of those that readers see.
const LATEST: usize = 16;

/// Returns the language of a page's first block, and how many lines readers see before it.
fn first_block(text: &str) -> Option<(String, usize)> {
    let mut hidden = false;
    let mut seen = 0;
    for line in text.lines() {
        hidden |= line.starts_with("<!--");
        match line.strip_prefix("```") {
            Some(language) if !hidden => return Some((language.to_owned(), seen)),
            _ => seen += usize::from(!hidden && !line.is_empty()),
        }
        hidden &= !line.ends_with("-->");
    }
    None
}

#[test]
fn each_guide_begins_with_what_the_reader_types() {
    let summary = fs::read_to_string(root().join("docs/SUMMARY.md")).unwrap();
    let guides = summary.split("\n# ").filter(|part| part.starts_with("Guides"));
    let pages: Vec<&str> =
        guides.flat_map(|part| part.split("](").skip(1)).map(|rest| &rest[..rest.find(')').unwrap()]).collect();
    let mut faults = Vec::new();
    for page in pages.iter().filter(|page| !page.is_empty() && **page != "build-systems.md") {
        let text = fs::read_to_string(root().join("docs").join(page)).unwrap();
        match first_block(&text) {
            Some((language, seen)) if TYPED.contains(&language.as_str()) && seen <= LATEST => {}
            found => faults.push(format!("{page}: {found:?}")),
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
    assert!(pages.len() > 20, "{} guides", pages.len());
    assert_eq!(first_block("a\n<!-- run\n```c\n-->\n\nb\n```sh\n"), Some(("sh".to_owned(), 2)));
}

#[test]
fn broken_links_are_found() {
    let text = "# A `b` c?\n\n[x](#a-b-c) ![y](no.svg)\n\n# A b c\n\n<img src=\"z.svg\">\n\n```text\n[n](n.md)\n```\n";
    let page = Page::parse(text);
    assert_eq!(page.links, ["#a-b-c", "no.svg", "z.svg"]);
    assert_eq!(page.anchors, ["a-b-c", "a-b-c-1"].map(str::to_owned).into());
    let path = PathBuf::from("docs/page.md");
    assert_eq!(target(&path, "../README.md#top"), Some(("README.md".into(), Some("top".to_owned()))));
    assert_eq!(target(&path, "https://example.com"), None);
    let pages = BTreeMap::from([(path.clone(), page)]);
    assert!(fault(&pages, &path, "no.svg").is_some());
    // This page is not in the checkout, but the one that it replaces is.
    let bench = PathBuf::from("docs/bench.md");
    let pages = BTreeMap::from([(bench.clone(), read("docs/bench.md"))]);
    assert_eq!(fault(&pages, &bench, "#the-suite"), None);
    assert!(fault(&pages, &bench, "#no-such-heading").is_some());
}
