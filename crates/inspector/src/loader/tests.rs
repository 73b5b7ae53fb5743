//! Tests on trees in memory, with generated files.

use std::cell::Cell;
use std::collections::BTreeMap;

use super::*;

/// A tree in memory. Links are not followed: that is the work of the tree on disk.
pub(super) struct MemoryTree {
    files: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Files that are found and cannot be read.
    unreadable: Vec<Vec<u8>>,
    /// Folders in which nothing can be found.
    closed: Vec<Vec<u8>>,
    /// The questions that were asked, and the one that is answered by an error, as by EMFILE.
    asked: Cell<usize>,
    fails: Option<usize>,
}

impl MemoryTree {
    pub(super) fn new() -> MemoryTree {
        let (files, asked) = (BTreeMap::new(), Cell::new(0));
        MemoryTree { files, unreadable: Vec::new(), closed: Vec::new(), asked, fails: None }
    }

    pub(super) fn with(mut self, path: &str, content: impl AsRef<[u8]>) -> MemoryTree {
        self.files.insert(path.as_bytes().to_vec(), content.as_ref().to_vec());
        self
    }

    fn without_reading(mut self, path: &str) -> MemoryTree {
        self.unreadable.push(path.as_bytes().to_vec());
        self
    }

    fn without_looking_into(mut self, folder: &str) -> MemoryTree {
        self.closed.push([folder.as_bytes(), b"/"].concat());
        self
    }

    fn failing_at(mut self, question: usize) -> MemoryTree {
        self.fails = Some(question);
        self
    }

    /// Counts a question about a path. The error says that there is no answer.
    fn denied(&self, path: &[u8]) -> Result<(), String> {
        let question = self.asked.replace(self.asked.get() + 1);
        match self.fails == Some(question) || self.closed.iter().any(|folder| path.starts_with(folder)) {
            true => Err("Permission denied".to_owned()),
            false => Ok(()),
        }
    }
}

impl Tree for MemoryTree {
    fn find(&self, path: &[u8]) -> Result<Option<TreeFile>, String> {
        let path = path::normalised(path);
        let path = path.strip_suffix(b"/").unwrap_or(&path).to_owned();
        self.denied(&path)?;
        let inode = self.files.keys().position(|known| *known == path);
        Ok(inode.map(|inode| TreeFile { path, identity: (1, inode as u64) }))
    }

    fn read(&self, file: &TreeFile) -> Result<Vec<u8>, String> {
        match self.unreadable.contains(&file.path) {
            true => Err("Permission denied".to_owned()),
            false => Ok(self.files[&file.path].clone()),
        }
    }

    fn list(&self, folder: &[u8]) -> Result<Vec<Vec<u8>>, String> {
        self.denied(folder)?;
        let inside = self.files.keys().filter_map(|path| path.strip_prefix(folder)?.strip_prefix(b"/"));
        Ok(inside.map(|rest| rest.split(|&byte| byte == b'/').next().unwrap().to_owned()).collect())
    }

    fn is_folder(&self, path: &[u8]) -> Result<bool, String> {
        self.denied(path)?;
        Ok(self.files.keys().any(|file| file.strip_prefix(path).is_some_and(|rest| rest.starts_with(b"/"))))
    }
}

const ALL_LOADED: u32 = 5;

/// A file for a dynamic loader, with one segment whose addresses are offsets.
#[derive(Clone, Default)]
struct Dynamic<'d> {
    interpreter: &'d str,
    needed: &'d [&'d str],
    soname: &'d str,
    rpath: &'d str,
    runpath: &'d str,
    /// Binding, visibility and section of its symbol `malloc`.
    malloc: Option<(u8, u8, u16)>,
    /// Whether it has the symbols by which musl recognises a libc.
    is_libc: bool,
    machine: u16,
    /// Bytes at the end.
    more: &'d [u8],
}

impl Dynamic<'_> {
    fn bytes(&self) -> Vec<u8> {
        let mut strings = vec![0u8];
        let mut text = |text: &str| {
            let place = strings.len() as u64;
            strings.extend([text.as_bytes(), b"\0"].concat());
            place
        };
        let mut symbols = vec![[0u8; 24]];
        let names: &[&str] = if self.is_libc { &["malloc", "__libc_start_main", "stdin"] } else { &["malloc"] };
        for name in names {
            let Some((binding, visibility, section)) = self.malloc else { continue };
            let mut symbol = [0u8; 24];
            symbol[..4].copy_from_slice(&(text(name) as u32).to_le_bytes());
            symbol[4] = binding << 4 | 2;
            symbol[5] = visibility;
            symbol[6..8].copy_from_slice(&section.to_le_bytes());
            symbol[8..16].copy_from_slice(&(u64::from(section) * 0x1000).to_le_bytes());
            symbols.push(symbol);
        }
        let mut entries: Vec<(u64, u64)> = self.needed.iter().map(|name| (1, text(name))).collect();
        for (tag, value) in [(14, self.soname), (15, self.rpath), (29, self.runpath)] {
            if !value.is_empty() {
                entries.push((tag, text(value)));
            }
        }
        let interpreter = text(self.interpreter);
        // One bucket, and every symbol in its chain.
        let count = symbols.len() as u32;
        let mut hash = vec![1, count, count - 1, 0];
        hash.extend(0..count - 1);
        let hash: Vec<u8> = hash.into_iter().flat_map(u32::to_le_bytes).collect();
        let (start, headers) = (64, 3 * 56);
        let places = [symbols.concat(), hash, strings].into_iter().fold(
            (Vec::new(), Vec::new()),
            |(mut places, mut bytes): (Vec<u64>, Vec<u8>), part| {
                places.push((start + headers + bytes.len()) as u64);
                bytes.extend(part);
                (places, bytes)
            },
        );
        let (places, body) = places;
        entries.extend([(6, places[0]), (4, places[1]), (5, places[2]), (0, 0)]);
        let dynamic: Vec<u8> =
            entries.iter().flat_map(|(tag, value)| [tag.to_le_bytes(), value.to_le_bytes()].concat()).collect();
        let dynamic_at = (start + headers + body.len()) as u64;
        let end = dynamic_at + dynamic.len() as u64 + self.more.len() as u64;
        let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
        bytes.resize(16, 0);
        let machine = if self.machine == 0 { 62 } else { self.machine };
        bytes.extend([3u16, machine].iter().flat_map(|half| half.to_le_bytes()));
        bytes.extend(1u32.to_le_bytes());
        bytes.extend([0u64, 64, 0].iter().flat_map(|word| word.to_le_bytes()));
        bytes.extend(0u32.to_le_bytes());
        let with_interpreter = !self.interpreter.is_empty();
        bytes.extend([64u16, 56, 2 + u16::from(with_interpreter), 64, 0, 0].iter().flat_map(|half| half.to_le_bytes()));
        let mut segment = |kind: u32, at: u64, size: u64| {
            bytes.extend([kind, ALL_LOADED].iter().flat_map(|half| half.to_le_bytes()));
            bytes.extend([at, at, at, size, size, 8].iter().flat_map(|word| word.to_le_bytes()));
        };
        segment(1, 0, end);
        segment(2, dynamic_at, dynamic.len() as u64);
        segment(if with_interpreter { 3 } else { 0 }, places[2] + interpreter, self.interpreter.len() as u64 + 1);
        bytes.extend([body, dynamic, self.more.to_vec()].concat());
        bytes
    }
}

const GLIBC: &str = "/lib64/ld-linux-x86-64.so.2";
const MUSL: &str = "/lib/ld-musl-x86_64.so.1";
const DEFINED: Option<(u8, u8, u16)> = Some((1, 0, 1));
const WEAK: Option<(u8, u8, u16)> = Some((2, 0, 1));
const HIDDEN: Option<(u8, u8, u16)> = Some((1, 2, 1));
const WANTED: Option<(u8, u8, u16)> = Some((1, 0, 0));

fn program<'d>(needed: &'d [&'d str]) -> Dynamic<'d> {
    Dynamic { interpreter: GLIBC, needed, malloc: WANTED, ..Dynamic::default() }
}

fn of_musl<'d>(needed: &'d [&'d str]) -> Dynamic<'d> {
    Dynamic { interpreter: MUSL, ..program(needed) }
}

fn library(malloc: Option<(u8, u8, u16)>) -> Dynamic<'static> {
    Dynamic { malloc, ..Dynamic::default() }
}

/// A system with glibc's loader, which has no libraries but libc.
fn glibc() -> MemoryTree {
    let texts = b"\0glibc-ld.so.cache1.1\0/etc/ld.so.cache\0/etc/ld.so.preload\0\x01/lib64/\0/usr/lib64/\0\0";
    let loader = Dynamic { soname: "ld-linux-x86-64.so.2", more: texts, ..Dynamic::default() };
    let libc =
        Dynamic { soname: "libc.so.6", needed: &["ld-linux-x86-64.so.2"], malloc: DEFINED, ..Dynamic::default() };
    MemoryTree::new().with(GLIBC, loader.bytes()).with("/usr/lib64/libc.so.6", libc.bytes())
}

fn musl() -> MemoryTree {
    let texts = b"\0%.*s/etc/ld-musl-x86_64.path\0/lib:/usr/local/lib:/usr/lib\0";
    let libc = Dynamic { soname: "libc.so", malloc: DEFINED, is_libc: true, more: texts, ..Dynamic::default() };
    MemoryTree::new().with(MUSL, libc.bytes())
}

/// Inspects `/opt/app/bin/tool`.
fn inspected(tree: &MemoryTree, program: &Dynamic<'_>) -> Allocator {
    let place =
        ProgramFile { file: TreeFile { path: b"/opt/app/bin/tool".to_vec(), identity: (9, 9) }, privileged: false };
    Loader::new(tree).inspect(&program.bytes(), &place).unwrap().malloc
}

#[track_caller]
fn serves(tree: &MemoryTree, program: &Dynamic<'_>, file: &str) -> String {
    let malloc = inspected(tree, program);
    assert_eq!(malloc.file.as_deref(), Some(file), "{malloc:#?}");
    malloc.evidence.iter().map(|evidence| evidence.detail.clone() + "\n").collect()
}

#[track_caller]
fn unknown(tree: &MemoryTree, program: &Dynamic<'_>, says: &[&str]) {
    let malloc = inspected(tree, program);
    assert_eq!((malloc.name.as_str(), &malloc.file), ("unknown", &None), "{malloc:#?}");
    let told: String = malloc.evidence.iter().map(|evidence| evidence.detail.clone() + "\n").collect();
    assert!(says.iter().all(|part| told.contains(part)), "{told}");
}

#[test]
fn the_first_definition_in_order_serves() {
    let tree = glibc()
        .with("/lib64/libone.so", Dynamic { needed: &["libdeep.so"], ..library(None) }.bytes())
        .with("/lib64/libtwo.so", library(WEAK).bytes())
        .with("/lib64/libdeep.so", library(DEFINED).bytes())
        .with("/lib64/libhidden.so", library(HIDDEN).bytes());
    serves(&tree, &program(&["libc.so.6"]), "/usr/lib64/libc.so.6");
    // Level by level, not depth first; weak definitions count; hidden ones do not.
    serves(&tree, &program(&["libone.so", "libtwo.so", "libc.so.6"]), "/lib64/libtwo.so");
    serves(&tree, &program(&["libone.so", "libhidden.so", "libc.so.6"]), "/usr/lib64/libc.so.6");
    let told = serves(&tree, &program(&["libone.so"]), "/lib64/libdeep.so");
    assert!(told.contains("`libdeep.so` of DT_NEEDED of `/lib64/libone.so`, found in `/lib64/`"), "{told}");
}

/// A program made by Go's own linker: Go's sections without C's sections, and the texts of Go's runtime.
fn of_go(needed: &[&str]) -> Vec<u8> {
    let marks = known::ROWS.iter().filter(|row| row.id == "go").flat_map(|row| row.marks);
    let texts: Vec<u8> = marks.flat_map(|mark| [b"\0", &mark.bytes()[..], b"\0"].concat()).collect();
    let program = Dynamic { interpreter: GLIBC, needed, more: &texts, ..Dynamic::default() };
    let (mut bytes, names) = (program.bytes(), b"\0.text\0.data.rel.ro.gopclntab\0.shstrtab\0");
    let names_at = bytes.len() as u64;
    bytes.extend(names);
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    let headers_at = bytes.len() as u64;
    // Name, type and size: nothing, code, Go's table, and the names.
    for (name, kind, size) in [(0u32, 0u32, 0u64), (1, 1, 8), (7, 1, 8), (30, 3, names.len() as u64)] {
        bytes.extend([name, kind].iter().flat_map(|word| word.to_le_bytes()));
        let at = if kind == 3 { names_at } else { 0 };
        bytes.extend([0, 0, at, size, 0, 1, 0].iter().flat_map(|word: &u64| word.to_le_bytes()));
    }
    bytes[40..48].copy_from_slice(&headers_at.to_le_bytes());
    bytes[58..64].copy_from_slice(&[64, 0, 4, 0, 3, 0]);
    bytes
}

/// `age-keygen` of Debian 13 is such a program: the loader is named, and has nothing to load.
#[test]
fn a_go_program_that_only_names_a_loader_needs_no_malloc() {
    let place =
        ProgramFile { file: TreeFile { path: b"/opt/app/bin/tool".to_vec(), identity: (9, 9) }, privileged: false };
    let inspected = |tree: &MemoryTree, needed: &[&str]| Loader::new(tree).inspect(&of_go(needed), &place).unwrap();
    let (bare, whole) = (MemoryTree::new().with(GLIBC, glibc().files[GLIBC.as_bytes()].clone()), glibc());
    for tree in [&bare, &whole, &MemoryTree::new()] {
        let report = inspected(tree, &[]);
        assert_eq!((report.malloc.name.as_str(), &report.malloc.file), ("go", &None), "{report:#?}");
        assert_eq!(report.graft.way, crate::GraftMethod::None);
    }
    // With a library there may be C in the process.
    let report = inspected(&whole, &["libc.so.6"]);
    assert_eq!(report.malloc.file.as_deref(), Some("/usr/lib64/libc.so.6"), "{report:#?}");
    assert_eq!(report.language_allocator.map(|go| go.name).as_deref(), Some("go"));
}

#[test]
fn a_missing_library_is_named() {
    let tree = glibc().with("/lib64/libone.so", Dynamic { needed: &["libgone.so.1"], ..library(None) }.bytes());
    unknown(&tree, &program(&["libone.so", "libc.so.6"]), &["`libgone.so.1`, which `/lib64/libone.so` needs"]);
    let tree = tree.with("/etc/ld.so.conf", "/opt/more\n").with("/opt/more/libgone.so.1", library(None).bytes());
    unknown(&tree, &program(&["libone.so"]), &["`/opt/more/libgone.so.1` lies in a folder of", "ldconfig"]);
    let malloc = inspected(&MemoryTree::new(), &program(&["libone.so"]));
    assert!(malloc.evidence.iter().any(|line| line.detail.contains("the loader `/lib64/ld-linux-x86-64.so.2` is not")));
}

#[test]
fn an_rpath_is_inherited_and_a_runpath_is_not() {
    let one = Dynamic { needed: &["libtwo.so"], ..library(None) };
    let tree =
        glibc().with("/opt/app/lib/libone.so", one.bytes()).with("/opt/app/lib/libtwo.so", library(DEFINED).bytes());
    let needed = &["libone.so"];
    serves(&tree, &Dynamic { rpath: "$ORIGIN/../lib", ..program(needed) }, "/opt/app/lib/libtwo.so");
    unknown(&tree, &Dynamic { runpath: "${ORIGIN}/../lib", ..program(needed) }, &["`libtwo.so`"]);
    // With both, the RPATH does not count.
    unknown(&tree, &Dynamic { runpath: "/none", rpath: "/opt/app/lib", ..program(needed) }, &["`libone.so`"]);
    let tree = tree.with("/opt/app/lib64/libone.so", library(DEFINED).bytes());
    serves(&tree, &Dynamic { runpath: "$ORIGIN/../$LIB", ..program(needed) }, "/opt/app/lib64/libone.so");
}

#[test]
fn libraries_for_another_machine_are_passed_over() {
    let foreign = Dynamic { machine: 183, ..library(DEFINED) };
    let tree = glibc().with("/lib64/libone.so", foreign.bytes()).with("/usr/lib64/libone.so", library(None).bytes());
    serves(&tree, &program(&["libone.so", "libc.so.6"]), "/usr/lib64/libc.so.6");
    let tree = tree.with("/lib64/libbad.so", "GROUP ( libone.so )");
    unknown(&tree, &program(&["libbad.so", "libc.so.6"]), &["`/lib64/libbad.so` cannot be read"]);
}

#[test]
fn preloads_come_before_all_libraries() {
    let tree = glibc()
        .with("/etc/ld.so.preload", "/opt/none.so # gone\n/opt/fast.so\n")
        .with("/opt/fast.so", library(DEFINED).bytes());
    let told = serves(&tree, &program(&["libc.so.6"]), "/opt/fast.so");
    assert!(told.contains("`/opt/fast.so` of `/etc/ld.so.preload`, found by its path"), "{told}");
    assert!(told.contains("`/opt/none.so`, which the loader does not find: it has no effect"), "{told}");
}

/// A loader that runs with other rights can read files that this process cannot, so its result is unknown.
#[test]
fn what_cannot_be_read_makes_the_answer_unknown() {
    let with_list =
        || glibc().with("/etc/ld.so.preload", "/opt/fast.so").with("/opt/fast.so", library(DEFINED).bytes());
    let plain = program(&["libc.so.6"]);
    serves(&with_list(), &plain, "/opt/fast.so");
    for file in [GLIBC, "/etc/ld.so.preload", "/opt/fast.so"] {
        unknown(&with_list().without_reading(file), &plain, &[file, "Permission denied"]);
    }
    unknown(&glibc().without_reading("/usr/lib64/libc.so.6"), &plain, &["/usr/lib64/libc.so.6"]);
    for folder in ["/lib64", "/etc", "/opt"] {
        unknown(&with_list().without_looking_into(folder), &plain, &["Permission denied"]);
    }
    unknown(&musl().without_reading(MUSL), &of_musl(&["libc.so"]), &[MUSL]);
    // Whatever question gets no answer, no other allocator is named for it.
    let whole = with_list();
    inspected(&whole, &plain);
    let questions = whole.asked.get();
    assert!(questions > 5, "{questions}");
    for question in 0..questions {
        let malloc = inspected(&with_list().failing_at(question), &plain);
        assert_eq!((malloc.name.as_str(), &malloc.file), ("unknown", &None), "question {question}: {malloc:#?}");
    }
}

/// Any file may have a known library's name, with any content.
#[test]
fn the_name_of_a_library_is_no_evidence_of_its_content() {
    for library_name in ["libjemalloc.so.2", "libmimalloc.so", "libtcmalloc_minimal.so.4"] {
        let path = format!("/lib64/{library_name}");
        let tree = glibc().with(&path, Dynamic { soname: library_name, ..library(DEFINED) }.bytes());
        let malloc = inspected(&tree, &program(&[library_name, "libc.so.6"]));
        assert_eq!((malloc.name.as_str(), malloc.file.as_deref()), ("unknown", Some(path.as_str())), "{malloc:#?}");
        assert!(malloc.evidence.iter().any(|line| line.detail.contains("any file may have that name")), "{malloc:#?}");
        // The result is also unknown if only the program exists.
        let malloc = inspected(&MemoryTree::new(), &program(&[library_name, "libc.so.6"]));
        assert_eq!(malloc.name, "unknown", "{malloc:#?}");
        assert!(malloc.evidence.iter().any(|line| line.detail.contains("any file may have that name")), "{malloc:#?}");
    }
}

#[test]
fn what_depends_on_the_processor_is_unknown_if_it_matters() {
    let variant = "/lib64/glibc-hwcaps/x86-64-v3/libone.so";
    let tree = glibc().with("/lib64/libone.so", library(None).bytes()).with(variant, library(None).bytes());
    serves(&tree, &program(&["libone.so", "libc.so.6"]), "/usr/lib64/libc.so.6");
    let tree = tree.with(variant, library(DEFINED).bytes());
    unknown(&tree, &program(&["libone.so", "libc.so.6"]), &["depends on the processor", variant]);
}

#[test]
fn circles_end_and_endless_needs_are_refused() {
    let names: Vec<String> = (0..5000).map(|number| format!("lib{number}.so")).collect();
    let mut tree = glibc();
    for (number, name) in names.iter().enumerate() {
        let next = names.get(number + 1).map_or("lib0.so", String::as_str);
        tree = tree.with(&format!("/lib64/{name}"), Dynamic { needed: &[next], ..library(None) }.bytes());
    }
    unknown(&tree, &program(&["lib0.so"]), &["more libraries than are followed"]);
    let tree = tree.with("/lib64/lib10.so", Dynamic { needed: &["lib0.so", "libc.so.6"], ..library(None) }.bytes());
    serves(&tree, &program(&["lib0.so"]), "/usr/lib64/libc.so.6");
}

#[test]
fn a_cache_that_is_cut_is_told() {
    let tree = glibc().with("/etc/ld.so.cache", b"glibc-ld.so.cache1.1\xff\0\0\0");
    unknown(
        &tree,
        &program(&["libc.so.6"]),
        &["`/etc/ld.so.cache` cannot be followed for `libc.so.6`: it ends before"],
    );
}

#[test]
fn musl_has_one_libc_and_its_own_folders() {
    let tree = musl()
        .with("/usr/local/lib/libone.so", library(None).bytes())
        .with("/usr/lib/libfast.so", library(WEAK).bytes());
    for libc in ["libc.musl-x86_64.so.1", "libc.so", "libpthread.so.0", MUSL] {
        serves(&tree, &of_musl(&["libone.so", libc]), MUSL);
    }
    serves(&tree, &of_musl(&["libone.so", "libfast.so", "libc.so"]), "/usr/lib/libfast.so");
    serves(&tree, &of_musl(&["libc.so", "libfast.so"]), MUSL);
    // A libc requested by a path counts as the loaded one.
    let tree = tree.with("/opt/libc.so", Dynamic { is_libc: true, ..library(DEFINED) }.bytes());
    serves(&tree, &of_musl(&["/opt/libc.so"]), MUSL);
    // With a list, only its folders.
    let tree = tree.with("/etc/ld-musl-x86_64.path", "/usr/local/lib\n");
    unknown(&tree, &of_musl(&["libfast.so", "libc.so"]), &["`libfast.so`"]);
    // A search path is inherited, also one that glibc would not hand down.
    let needs = Dynamic { needed: &["libfast.so"], ..library(None) };
    let tree =
        tree.with("/opt/app/lib/libneeds.so", needs.bytes()).with("/opt/app/lib/libfast.so", library(WEAK).bytes());
    let runpath = Dynamic { runpath: "$ORIGIN/../lib", ..of_musl(&["libneeds.so", "libc.so"]) };
    serves(&tree, &runpath, MUSL);
    let runpath = Dynamic { needed: &["libneeds.so"], ..runpath };
    serves(&tree, &runpath, "/opt/app/lib/libfast.so");
}

#[test]
fn files_that_are_cut_anywhere_end_with_an_answer() {
    let whole = Dynamic { needed: &["libc.so.6"], ..library(DEFINED) }.bytes();
    let asking = program(&["libone.so", "libc.so.6"]);
    for cut in 0..whole.len() {
        let tree = glibc().with("/lib64/libone.so", &whole[..cut]);
        let malloc = inspected(&tree, &asking);
        assert!(malloc.name == "unknown" && malloc.file.is_none(), "{cut}: {malloc:?}");
    }
    let whole = glibc().files.remove(GLIBC.as_bytes()).unwrap();
    for cut in 0..whole.len() {
        assert!(inspected(&glibc().with(GLIBC, &whole[..cut]), &asking).file.is_none(), "{cut}");
    }
}

/// Inspects `/opt/app/bin/tool` in an environment. Returns its `malloc`'s file, and the effects of the preloads.
fn in_environment(
    tree: &MemoryTree,
    program: &Dynamic<'_>,
    privileged: bool,
    (preload, library_path): (&str, &str),
) -> (Option<String>, Vec<Effect>) {
    let set = |value: &str| (!value.is_empty()).then(|| value.as_bytes().to_vec());
    let environment = Environment { preload: set(preload), library_path: set(library_path), audit: false };
    let place = ProgramFile { file: TreeFile { path: b"/opt/app/bin/tool".to_vec(), identity: (9, 9) }, privileged };
    let loaded = Loader::in_environment(tree, environment).inspect_loaded(&program.bytes(), &place).unwrap();
    (loaded.report.malloc.file, loaded.preloads.into_iter().map(|preload| preload.effect).collect())
}

#[test]
fn the_environment_preloads_before_the_list() {
    const LIBC: &str = "/usr/lib64/libc.so.6";
    let tree = glibc()
        .with("/etc/ld.so.preload", "/opt/listed.so")
        .with("/opt/listed.so", library(DEFINED).bytes())
        .with("/opt/fast.so", library(DEFINED).bytes())
        .with("/lib64/plain.so", library(None).bytes())
        .with("/opt/arm.so", Dynamic { machine: 183, ..library(DEFINED) }.bytes())
        .with("/opt/text.so", "text")
        .with("/opt/musl.so", Dynamic { needed: &["libc.musl-x86_64.so.1"], ..library(DEFINED) }.bytes());
    let plain = program(&["libc.so.6"]);
    let look = |preload: &str| in_environment(&tree, &plain, false, (preload, ""));
    let file = |path: &str| Some(path.to_owned());
    assert_eq!(look("/opt/fast.so"), (file("/opt/fast.so"), vec![Effect::Serves, Effect::Loaded]));
    let faults = "/opt/none.so:/opt/arm.so /opt/text.so::plain.so fast.so";
    let effects = vec![
        Effect::Missing,
        Effect::OtherArchitecture,
        Effect::NoLibrary,
        Effect::Loaded,
        Effect::Missing,
        Effect::Serves,
    ];
    assert_eq!(look(faults), (file("/opt/listed.so"), effects));
    assert_eq!(look("/opt/musl.so"), (None, vec![Effect::OtherLibc]));
    // The list counts for those with other rights, too; the variable does not, unless the library is trusted.
    let (found, effects) = in_environment(&tree, &plain, true, ("/opt/fast.so", "/opt"));
    assert_eq!((found, effects), (file("/opt/listed.so"), vec![Effect::Privileged, Effect::Serves]));
    let (found, effects) = in_environment(&tree, &plain, true, ("plain.so", ""));
    assert!(found.is_none() && matches!(effects.as_slice(), [Effect::Unknown(_)]), "{found:?} {effects:?}");
    assert_eq!(in_environment(&glibc(), &plain, false, ("", "")), (file(LIBC), Vec::new()));
}

#[test]
fn the_library_path_has_its_place() {
    let tree = glibc()
        .with("/opt/a/libfast.so", library(DEFINED).bytes())
        .with("/opt/b/libfast.so", library(DEFINED).bytes())
        .with("/usr/lib64/libfast.so", library(DEFINED).bytes());
    let found = |program: &Dynamic<'_>, privileged: bool, path: &str| {
        in_environment(&tree, program, privileged, ("", path)).0.unwrap()
    };
    let plain = program(&["libfast.so", "libc.so.6"]);
    assert_eq!(found(&plain, false, "/opt/none;/opt/b:/opt/a"), "/opt/b/libfast.so");
    assert_eq!(found(&plain, false, "$ORIGIN/../../a"), "/opt/a/libfast.so");
    assert_eq!(found(&plain, true, "/opt/b"), "/usr/lib64/libfast.so");
    assert_eq!(found(&Dynamic { rpath: "/opt/a", ..plain.clone() }, false, "/opt/b"), "/opt/a/libfast.so");
    assert_eq!(found(&Dynamic { runpath: "/opt/a", ..plain.clone() }, false, "/opt/b"), "/opt/b/libfast.so");
    assert_eq!(in_environment(&tree, &plain, false, ("libfast.so", "/opt/a")).0.unwrap(), "/opt/a/libfast.so");
}

#[test]
fn musl_takes_preloads_from_the_variable_only() {
    let tree = musl()
        .with("/etc/ld.so.preload", "/opt/fast.so")
        .with("/opt/fast.so", library(DEFINED).bytes())
        .with("/opt/app/lib/own.so", library(DEFINED).bytes())
        .with("/opt/glibc.so", Dynamic { needed: &["libc.so.6"], ..library(DEFINED) }.bytes())
        .with("/opt/arm.so", Dynamic { machine: 183, ..library(DEFINED) }.bytes());
    let plain = of_musl(&["libc.so"]);
    let look = |privileged: bool, preload: &str, path: &str| in_environment(&tree, &plain, privileged, (preload, path));
    let file = |path: &str| Some(path.to_owned());
    assert_eq!(look(false, "", ""), (file(MUSL), Vec::new()));
    assert_eq!(look(false, "/opt/none.so\t/opt/fast.so", "").0, file("/opt/fast.so"));
    assert_eq!(look(false, "fast.so", "/opt"), (file("/opt/fast.so"), vec![Effect::Serves]));
    assert_eq!(look(false, "fast.so", ""), (file(MUSL), vec![Effect::Missing]));
    assert_eq!(look(true, "fast.so", "/opt"), (file(MUSL), vec![Effect::Privileged]));
    assert_eq!(look(false, "/opt/glibc.so", ""), (None, vec![Effect::OtherLibc]));
    assert_eq!(look(false, "/opt/arm.so", ""), (None, vec![Effect::OtherArchitecture]));
    // The program's search path is not looked at.
    let runpath = Dynamic { runpath: "$ORIGIN/../lib", ..plain.clone() };
    assert_eq!(in_environment(&tree, &runpath, false, ("own.so", "")), (file(MUSL), vec![Effect::Missing]));
}
