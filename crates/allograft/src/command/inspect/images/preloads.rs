//! The effects of an image's preloads on its programs, added up.

use std::path::Path;

use images::{Kind as NodeKind, Tree};
use inspector::{Arch, Effect, Kind, Link, Loaded, Loader, Origin, Preload, Source, TreeFile};

use crate::json::{Affected, Image, ImagePreload, Unaffected};
use crate::output::{Output, Page, Style};

/// The preloads of all programs.
#[derive(Default)]
pub(super) struct Summary {
    entries: Vec<Entry>,
    pub(super) unaffected: Unaffected,
}

/// A preload of several programs.
struct Entry {
    name: Vec<u8>,
    origin: Origin,
    file: Option<TreeFile>,
    programs: Affected,
    /// The first program for each way in which a preload has no effect.
    first: Vec<(Effect, String, Arch)>,
}

impl Summary {
    /// Counts a program.
    pub(super) fn add(&mut self, program: &Path, loaded: &Loaded) {
        let report = &loaded.report;
        if report.kind != Kind::Executable {
            return;
        }
        let malloc = &report.malloc;
        // The evidence shows that a loader was asked, whether it found the library or not.
        let is_looked_for =
            malloc.file.is_some() || malloc.evidence.iter().any(|evidence| evidence.source == Source::Loader);
        match report.link {
            Some(Link::Static | Link::StaticPie) => self.unaffected.without_loader += 1,
            _ if !is_looked_for => self.unaffected.own_malloc += 1,
            _ => {}
        }
        for preload in &loaded.preloads {
            let entry = self.entry(preload);
            entry.file = entry.file.take().or_else(|| preload.file.clone());
            let programs = &mut entry.programs;
            let count = match preload.effect {
                Effect::Serves => &mut programs.served,
                Effect::Loaded => &mut programs.loaded,
                Effect::Missing => &mut programs.missing,
                Effect::OtherArchitecture => &mut programs.other_architecture,
                Effect::NoLibrary => &mut programs.no_library,
                Effect::OtherLibc => &mut programs.other_libc,
                Effect::Privileged => &mut programs.privileged,
                Effect::Unknown(_) => &mut programs.unknown,
            };
            *count += 1;
            if !entry.first.iter().any(|(effect, ..)| *effect == preload.effect) {
                entry.first.push((preload.effect.clone(), program.display().to_string(), report.arch));
            }
        }
    }

    fn entry(&mut self, preload: &Preload) -> &mut Entry {
        let known = |entry: &Entry| entry.name == preload.name && entry.origin == preload.origin;
        let place = self.entries.iter().position(known).unwrap_or_else(|| {
            self.entries.push(Entry {
                name: preload.name.clone(),
                origin: preload.origin,
                file: None,
                programs: Affected::default(),
                first: Vec::new(),
            });
            self.entries.len() - 1
        });
        &mut self.entries[place]
    }

    /// Returns what to say of each preload, and the warnings with what to do about them. `variable` is `LD_PRELOAD`.
    pub(super) fn finish(
        &mut self,
        tree: &Tree,
        loader: &Loader<'_>,
        variable: Option<&str>,
    ) -> (Vec<ImagePreload>, Vec<(String, String)>) {
        // No program may have looked at it.
        let separators = |letter: char| letter == ':' || letter.is_ascii_whitespace();
        for name in variable.unwrap_or_default().split(separators).filter(|name| !name.is_empty()) {
            let (name, origin) = (name.as_bytes().to_vec(), Origin::Variable);
            self.entry(&Preload { name, origin, file: None, effect: Effect::Missing });
        }
        let mut warnings = Vec::new();
        let preloads = self.entries.iter().map(|entry| {
            let file = entry.file.as_ref();
            let report = file.and_then(|file| loader.library(file).ok());
            let problem = entry.problem(tree);
            let (name, source) = (String::from_utf8_lossy(&entry.name).into_owned(), source(entry.origin));
            if let Some((problem, help)) = &problem {
                warnings.push((format!("`{name}` of {source}: {problem}"), help.clone()));
            }
            ImagePreload {
                file: name,
                source,
                found: file.map(|file| String::from_utf8_lossy(&file.path).into_owned()),
                arch: report.as_ref().map(|report| report.arch.to_string()),
                libc: report.as_ref().map(|report| report.libc),
                malloc: report.as_ref().map(|report| report.malloc.name.clone()),
                programs: Affected { ..entry.programs },
                problem: problem.map(|(problem, _)| problem),
            }
        });
        (preloads.collect(), warnings)
    }
}

fn source(origin: Origin) -> &'static str {
    match origin {
        Origin::Variable => "LD_PRELOAD",
        Origin::List => "/etc/ld.so.preload",
    }
}

fn programs(count: usize) -> String {
    if count == 1 { "1 program".to_owned() } else { format!("{count} programs") }
}

impl Entry {
    /// Why it has no effect, and what to do about that.
    fn problem(&self, tree: &Tree) -> Option<(String, String)> {
        let counts = &self.programs;
        let looked = counts.served + counts.loaded + counts.privileged + self.failed();
        if looked == 0 {
            return Some((
                "no program looks at it: all are static, or bring their own malloc".to_owned(),
                "link them with that allocator, or graft them: `allograft graft`".to_owned(),
            ));
        }
        // If it serves some, the others have a fault of their own.
        let known = |effect: &Effect| counts.served == 0 || !matches!(effect, Effect::Unknown(_));
        let fault = self.first.iter().find(|(effect, ..)| is_fault(effect) && known(effect));
        let (effect, program, arch) = fault?;
        let found = self.file.as_ref().map(|file| String::from_utf8_lossy(&file.path).into_owned());
        let whom = |count: usize| match count {
            1 => format!("`{program}`"),
            _ => format!("{}, `{program}` among them", programs(count)),
        };
        let elsewhere = || {
            let places = self.elsewhere(tree);
            match places.as_slice() {
                [] => "install the package that brings it, for this platform, or leave the variable out".to_owned(),
                [place] => format!("it lies at `{place}` in this image: name that path"),
                places => format!("files of that name in this image: `{}`", places.join("`, `")),
            }
        };
        Some(match effect {
            Effect::Missing => (format!("it is not found and has no effect on {}", whom(counts.missing)), elsewhere()),
            Effect::OtherArchitecture => (
                format!(
                    "it is for another architecture than {} ({arch}){}",
                    whom(counts.other_architecture),
                    found.map(|found| format!(": `{found}`")).unwrap_or_default()
                ),
                format!("put in the library for {arch}: with a name without a slash, each loader takes its own"),
            ),
            Effect::OtherLibc => (
                format!("it is for another libc than {}, which may not start with it", whom(counts.other_libc)),
                "take the library that is built for the image's libc: `allograft emit --as shared` makes both"
                    .to_owned(),
            ),
            Effect::NoLibrary => (
                format!("it is no library and has no effect on {}", whom(counts.no_library)),
                "name a shared library".to_owned(),
            ),
            Effect::Unknown(problem) => (
                format!("its effect is not known on {}: {problem}", whom(counts.unknown)),
                "name it by its absolute path".to_owned(),
            ),
            Effect::Serves | Effect::Loaded | Effect::Privileged => return None,
        })
    }

    fn failed(&self) -> usize {
        let Affected { missing, other_architecture, other_libc, no_library, unknown, .. } = self.programs;
        missing + other_architecture + other_libc + no_library + unknown
    }

    /// The files of the image that have its name, at other places.
    fn elsewhere(&self, tree: &Tree) -> Vec<String> {
        let name = self.name.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        let is_called = |path: &[u8]| path.rsplit(|byte| *byte == b'/').next() == Some(name);
        let files = tree.nodes().filter(|(path, node)| {
            matches!(node.kind, NodeKind::File { kept: true, .. } | NodeKind::Symlink(_))
                && is_called(path)
                && tree.resolve(path).is_some()
        });
        files.take(MOST_PLACES).map(|(path, _)| format!("/{}", String::from_utf8_lossy(&path))).collect()
    }
}

/// The most places that are named.
const MOST_PLACES: usize = 3;

fn is_fault(effect: &Effect) -> bool {
    !matches!(effect, Effect::Serves | Effect::Loaded | Effect::Privileged)
}

/// Adds what the preloads do.
pub(super) fn text(page: &mut Page, image: &Image, output: &Output) {
    let label = |name: &str| output.paint(Style::Faint, format_args!("{name:<10}"));
    for preload in &image.preloads {
        let Affected { served, loaded, privileged, .. } = preload.programs;
        let mut words = Vec::new();
        words.extend((served > 0).then(|| format!("serves {}", programs(served))));
        words.extend((loaded > 0).then(|| format!("is loaded by {} without serving `malloc`", programs(loaded))));
        words.extend((privileged > 0).then(|| format!("is left out by {} with other rights", programs(privileged))));
        words.extend(preload.problem.clone());
        let malloc = preload.malloc.as_ref().map(|malloc| format!(" ({malloc})")).unwrap_or_default();
        let _ = writeln!(
            page,
            "  {} `{}` of {}{malloc}: {}",
            label("preload"),
            preload.file,
            preload.source,
            words.join("; ")
        );
    }
    let Unaffected { without_loader, own_malloc } = image.unaffected;
    if !image.preloads.is_empty() && without_loader + own_malloc > 0 {
        let mut words = Vec::new();
        words.extend((without_loader > 0).then(|| format!("{} without a loader", programs(without_loader))));
        words.extend((own_malloc > 0).then(|| format!("{} with an own malloc or none", programs(own_malloc))));
        let _ = writeln!(page, "  {} no effect on {}", label("preload"), words.join(", "));
    }
}
