//! Test: cycles of modules do not grow. A module in a cycle cannot be read, tested or moved without the others, so each
//! crate's largest cycle has a limit.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};
use syn::{Attribute, ItemMod, ItemUse, UseTree};

use crate::workspace::root;

/// Each crate's largest cycle of modules, and its largest cycle of rooms: folders and files right below its root. A
/// crate without a cycle is not named. Lower a number, raise none.
const LARGEST: [(&str, usize, usize); 9] = [
    ("allograft", 8, 3),
    ("equivalence", 6, 3),
    ("hosts", 3, 0),
    ("images", 2, 2),
    ("inspector", 5, 4),
    ("measure", 4, 3),
    ("profiler", 3, 3),
    ("surgery", 4, 0),
    ("transplant", 11, 6),
];

/// A path to a module, from the crate's root: `["host", "archive"]`.
type Module = Vec<String>;

/// Collects the paths that a module names and that begin in its crate. Tests are left out.
struct Named<'m> {
    module: &'m Module,
    paths: BTreeSet<Module>,
}

impl Named<'_> {
    /// Adds a path. `crate` is the root, `super` the parent, `self` the module itself; others begin at a module of
    /// this module, or outside the crate: the modules that exist decide.
    fn add(&mut self, segments: &[String]) {
        let mut at = match segments.first().map(String::as_str) {
            Some("crate") => Module::new(),
            _ => self.module.clone(),
        };
        for segment in segments {
            match segment.as_str() {
                "crate" | "self" => {}
                "super" => drop(at.pop()),
                name => at.push(name.to_owned()),
            }
        }
        self.paths.insert(at);
    }

    fn tree(&mut self, tree: &UseTree, before: &mut Vec<String>) {
        match tree {
            UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.tree(&path.tree, before);
                before.pop();
            }
            UseTree::Group(group) => group.items.iter().for_each(|item| self.tree(item, before)),
            UseTree::Name(name) => self.add(&[before.as_slice(), &[name.ident.to_string()]].concat()),
            UseTree::Rename(name) => self.add(&[before.as_slice(), &[name.ident.to_string()]].concat()),
            _ => self.add(before),
        }
    }
}

fn is_test(attributes: &[Attribute]) -> bool {
    let is_cfg_test = |attribute: &Attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Path>().is_ok_and(|condition| condition.is_ident("test"))
    };
    attributes.iter().any(is_cfg_test)
}

impl<'ast> Visit<'ast> for Named<'_> {
    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if !is_test(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        self.tree(&item.tree, &mut Vec::new());
    }

    fn visit_local(&mut self, local: &'ast syn::Local) {
        if !is_test(&local.attrs) {
            visit::visit_local(self, local);
        }
    }

    /// `pub(super)` uses nothing.
    fn visit_vis_restricted(&mut self, _: &'ast syn::VisRestricted) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if segments.first().is_some_and(|first| first == "crate" || first == "super") {
            self.add(&segments);
        }
        visit::visit_path(self, path);
    }
}

/// Collects the modules below `folder`, those of tests alone included, each with its file.
fn modules(folder: &Path, before: &Module, found: &mut BTreeMap<Module, PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            modules(&path, &[before.as_slice(), &[stem]].concat(), found);
        } else if stem == "mod" {
            found.insert(before.clone(), path);
        } else if path.extension().is_some_and(|extension| extension == "rs") && stem != "lib" && stem != "main" {
            found.insert([before.as_slice(), &[stem]].concat(), path);
        }
    }
}

/// Returns the modules that each module of the crate with the sources `folder` uses. The root module is left out: it
/// names every module.
fn uses(folder: &Path) -> BTreeMap<Module, BTreeSet<Module>> {
    let mut files = BTreeMap::new();
    modules(folder, &Module::new(), &mut files);
    let used = |(module, file): (&Module, &PathBuf)| {
        let mut named = Named { module, paths: BTreeSet::new() };
        named.visit_file(&syn::parse_file(&fs::read_to_string(file).unwrap()).unwrap());
        // A path names the module of its longest beginning.
        let target = |path: &Module| {
            let mut beginnings = (1..=path.len()).rev().map(|length| path[..length].to_vec());
            beginnings.find(|beginning| files.contains_key(beginning))
        };
        let targets = named.paths.iter().filter_map(target);
        (module.clone(), targets.filter(|target| target != module).collect())
    };
    files.iter().map(used).collect()
}

/// Returns the rooms that each room uses.
fn rooms(uses: &BTreeMap<Module, BTreeSet<Module>>) -> BTreeMap<Module, BTreeSet<Module>> {
    let room = |module: &Module| module[..1].to_vec();
    let mut rooms: BTreeMap<Module, BTreeSet<Module>> = BTreeMap::new();
    for (module, used) in uses {
        let others = used.iter().map(room).filter(|used| *used != room(module));
        rooms.entry(room(module)).or_default().extend(others);
    }
    rooms
}

/// Returns the largest set of modules that all use each other, directly or through modules of the set.
fn largest_cycle(uses: &BTreeMap<Module, BTreeSet<Module>>) -> BTreeSet<&Module> {
    let reached = |from: &Module| {
        let mut reached: BTreeSet<&Module> = BTreeSet::new();
        let mut waiting: Vec<&Module> = uses[from].iter().collect();
        while let Some(next) = waiting.pop() {
            if reached.insert(next) {
                waiting.extend(&uses[next]);
            }
        }
        reached
    };
    let reached: BTreeMap<&Module, BTreeSet<&Module>> = uses.keys().map(|module| (module, reached(module))).collect();
    let cycle = |module: &Module| {
        reached[module].iter().copied().filter(|other| reached[other].contains(module)).collect::<BTreeSet<_>>()
    };
    uses.keys().map(cycle).max_by_key(BTreeSet::len).unwrap_or_default()
}

#[test]
fn no_cycle_of_modules_grows() {
    let manifest: toml::Table = fs::read_to_string(root().join("Cargo.toml")).unwrap().parse().unwrap();
    let members = manifest["workspace"]["members"].as_array().unwrap().iter().map(|member| member.as_str().unwrap());
    // `tests` has test programs only.
    let folders: Vec<PathBuf> =
        members.map(|member| root().join(member)).filter(|it| it.join("src").is_dir()).collect();
    assert!(folders.len() >= 20, "{folders:?}");
    let mut wrong = Vec::new();
    for folder in folders {
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        let uses = uses(&folder.join("src"));
        let counted =
            LARGEST.iter().find(|(named, ..)| *named == name).map_or([0, 0], |(_, most, rooms)| [*most, *rooms]);
        for (uses, what, counted) in [(&uses, "modules", counted[0]), (&rooms(&uses), "rooms", counted[1])] {
            let cycle = largest_cycle(uses);
            if cycle.len() != counted {
                let modules: Vec<String> = cycle.iter().map(|module| module.join("::")).collect();
                wrong.push(format!("{name}: {} {what}, {counted} were counted: {}", cycle.len(), modules.join(", ")));
            }
        }
    }
    assert!(wrong.is_empty(), "the largest cycles are others than LARGEST says:\n{}", wrong.join("\n"));
}

#[test]
fn cycles_go_through_groups_parents_and_paths_in_code() {
    let folder = tempfile::tempdir().unwrap();
    for (file, text) in [
        ("lib.rs", "mod a; mod b; mod c; mod d; mod e;"),
        ("a.rs", "use crate::{b::{X, Y}, std};"),
        ("b/mod.rs", "mod inner; pub struct X;"),
        ("b/inner.rs", "fn f() { super::super::c::g() }"),
        ("c.rs", "use super::a::Z as W; #[cfg(test)] mod tests { use crate::d; }"),
        ("d.rs", "use crate::a;"),
        ("e.rs", "use std::fs;"),
    ] {
        let path = folder.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let uses = uses(folder.path());
    let names = |cycle: BTreeSet<&Module>| cycle.iter().map(|module| module.join("::")).collect::<Vec<_>>();
    assert!(largest_cycle(&uses).is_empty(), "b does not use b::inner: {uses:?}");
    fs::write(folder.path().join("b/mod.rs"), "mod inner; use self::inner::f;").unwrap();
    let uses = self::uses(folder.path());
    assert_eq!(names(largest_cycle(&uses)), ["a", "b", "b::inner", "c"]);
    assert_eq!(names(largest_cycle(&rooms(&uses))), ["a", "b", "c"]);
}
