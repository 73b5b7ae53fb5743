//! Dynamic programs of glibc and of musl, a donor merged into them, run. Each fault that an early version had is a
//! test.

use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use fixtures::Ran;
use fixtures::lab::{Lab, succeeds};
use format::Arch;
use format::needed::Needed;
use proptest::prelude::*;
use surgery::donor::DonorObject;
use transplant::{BlobError, Executable, Libc, Merge, Need, Refusal};

/// The merge of a program with these bytes.
fn merge(program: &[u8], donor: &[u8]) -> Result<Result<Merge, Refusal>, BlobError> {
    Executable::read(program).map_or_else(|refusal| Ok(Err(refusal)), |program| program.merge(donor))
}

/// The program, made to load that library.
fn need(program: &[u8], library: &[u8], note: &Needed) -> Result<Need, Refusal> {
    Executable::read(program)?.need(library, note)
}

/// The library that it loads.
fn loads(program: &[u8]) -> Option<Vec<u8>> {
    Executable::read(program).ok()?.loads()
}

const ARCH: Arch = Arch::X86_64;

/// The donor's shared object, with the note and no options.
fn library(name: &str) -> Vec<u8> {
    let library = donors::find(name).unwrap().library(ARCH).unwrap();
    DonorObject::parse_library(library).unwrap().tuned(&[], "0").unwrap()
}

static DEFAULT: LazyLock<Vec<u8>> = LazyLock::new(|| library("snmalloc"));

/// A folder with programs to merge a donor into.
struct Shop(Lab);

impl Deref for Shop {
    type Target = Lab;

    fn deref(&self) -> &Lab {
        &self.0
    }
}

impl Shop {
    fn new() -> Shop {
        Shop(Lab::default())
    }

    /// Compiles merge.c, and links it with this machine's libc. Returns the program.
    fn glibc(&self, flags: &[&str]) -> Vec<u8> {
        let mut compile = fixtures::cc();
        compile.args(["-O1", "-fno-builtin"]).arg(source("merge.c")).args(flags).arg("-o").arg(self.path("stock"));
        succeeds(compile.args(["-lpthread", "-ldl"]));
        fs::read(self.path("stock")).unwrap()
    }

    /// Links it with musl, to be started by its loader.
    fn musl(&self, position_independent: bool) -> Vec<u8> {
        let out = fixtures::program::linked_with_musl(
            self.folder(),
            "stock",
            &fs::read_to_string(source("merge.c")).unwrap(),
            position_independent,
            &fixtures::musl_loader(ARCH),
        );
        fs::read(out).unwrap()
    }

    /// Merges and writes the program. Returns its path.
    fn merged(&self, program: &[u8], donor: &[u8]) -> (PathBuf, Merge) {
        let merge = merge(program, donor).unwrap().unwrap();
        let path = self.program("merged", &merge.bytes);
        (path, merge)
    }
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)
}

/// Runs a merged program; the donor says that it serves it.
#[track_caller]
fn serves(path: &Path, donor: &str) {
    let Ran { out, err: said, .. } = succeeds(Command::new(path).env("ALLOGRAFT_VERBOSE", "1"));
    assert_eq!(out, format!("ok {}\n", name(path)));
    assert!(said.contains(&format!("allograft: {donor} ")), "{said}");
}

fn name(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}

/// The names of sections are copied: one outside the table of names makes a table that cannot be read.
#[test]
fn a_section_without_a_name_is_damage() {
    let stock = Shop::new().musl(true);
    let headers = u64::from_le_bytes(stock[40..48].try_into().unwrap()) as usize;
    let count = usize::from(u16::from_le_bytes([stock[60], stock[61]]));
    for section in 0..count {
        let mut damaged = stock.clone();
        damaged[headers + 64 * section..][..4].copy_from_slice(&0x00ff_ffff_u32.to_le_bytes());
        let refusal = merge(&damaged, &DEFAULT).unwrap().expect_err("damage");
        assert!(matches!(&refusal, Refusal::Malformed(why) if why.contains("a section has no name")), "{refusal}");
    }
}

/// Ways to link for glibc: position-independent, fixed, all symbols exported and bound at the start, the other hash
/// table, both hash tables with packed relocations.
const WAYS: [&[&str]; 5] = [
    &[],
    &["-no-pie", "-fno-pie"],
    &["-rdynamic", "-Wl,-z,now"],
    &["-Wl,--hash-style=sysv"],
    &["-Wl,--hash-style=both", "-Wl,-z,pack-relative-relocs"],
];

#[test]
fn every_donor_serves_programs_of_glibc() {
    for donor in donors::all().iter().filter(|donor| donor.has_library(ARCH)) {
        let shop = Shop::new();
        let (path, merge) = shop.merged(&shop.glibc(WAYS[0]), &library(donor.name));
        assert_eq!((merge.plan.libc, merge.plan.defined, merge.plan.loads_namespaces), (Libc::Glibc, 17, false));
        serves(&path, donor.name);
    }
}

#[test]
fn every_way_to_link_gives_a_program_that_runs_also_when_it_was_stripped() {
    for way in WAYS {
        let shop = Shop::new();
        let (path, merge) = shop.merged(&shop.glibc(way), &DEFAULT);
        assert!(Executable::read(&merge.bytes).unwrap().is_merged());
        serves(&path, "snmalloc");
        for tool in [&["strip"][..], &["objcopy"], &["objcopy", "--strip-debug"]] {
            let copy = shop.program("copy", &merge.bytes);
            succeeds(Command::new(tool[0]).args(&tool[1..]).arg(&copy));
            serves(&copy, "snmalloc");
        }
    }
}

/// musl ignores DT_PREINIT_ARRAY, and finds the first symbol of a name, even if it is undefined: GNU ld puts `free`
/// into the hash table where its address is taken.
#[test]
fn programs_of_musl_start_the_donor_and_find_its_functions() {
    for position_independent in [true, false] {
        let shop = Shop::new();
        let stock = shop.musl(position_independent);
        for donor in ["snmalloc", "mimalloc", "jemalloc"] {
            let (path, merge) = shop.merged(&stock, &library(donor));
            assert_eq!(merge.plan.libc, Libc::Musl);
            serves(&path, donor);
        }
    }
}

/// An exported thread-local variable moves with the storage. The address of `free` is one and the same in the program
/// and in a library, also where the program's is that of a stub.
#[test]
fn a_library_sees_the_programs_variable_and_its_functions() {
    let shop = Shop::new();
    let library = shop.path("library.so");
    succeeds(fixtures::cc().args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source("merge_library.c")));
    for way in [&["-rdynamic"][..], &["-rdynamic", "-no-pie", "-fno-pie"]] {
        let (path, _) = shop.merged(&shop.glibc(way), &DEFAULT);
        // A program that runs in circles is ended.
        succeeds(Command::new("sh").args(["-c", "ulimit -t 60; exec \"$@\"", "sh"]).arg(&path).arg(&library));
    }
}

/// The list that the GNU C library's loader calls, whatever the program was linked with. The program's own list stays.
#[test]
fn the_donor_starts_before_everything_in_glibc() {
    use object::{Object, ObjectSection};
    let shop = Shop::new();
    let stock = shop.glibc(&[]);
    let merged = merge(&stock, &DEFAULT).unwrap().unwrap().bytes;
    let tags = |bytes: &[u8]| -> Vec<(u64, u64)> {
        let file = object::File::parse(bytes).unwrap();
        let section = file.section_by_name(".dynamic").unwrap().data().unwrap().to_vec();
        let word = |entry: &[u8], at: usize| u64::from_le_bytes(*entry[at..].first_chunk().unwrap());
        section.chunks_exact(16).map(|entry| (word(entry, 0), word(entry, 8))).collect()
    };
    let value = |bytes: &[u8], tag: u64| tags(bytes).iter().find(|(is, _)| *is == tag).map(|(_, value)| *value);
    assert_eq!((value(&stock, 33), value(&merged, 33)), (None, Some(8)));
    for tag in [25, 27] {
        assert_eq!(value(&stock, tag), value(&merged, tag));
    }
}

#[test]
fn the_same_bytes_each_time_and_the_program_in_place() {
    let shop = Shop::new();
    let stock = shop.glibc(&["-Wl,-z,lazy"]);
    let one = merge(&stock, &DEFAULT).unwrap().unwrap().bytes;
    assert!(one == merge(&stock, &DEFAULT).unwrap().unwrap().bytes);
    let changed = (64..stock.len()).filter(|at| one[*at] != stock[*at]).count();
    // The numbers of symbols in slots, and the values and sections of five thread-local symbols.
    assert!(changed < 4 * 40 + 5 * 4, "{changed}");
}

fn refused(program: &[u8]) -> Refusal {
    match merge(program, &DEFAULT).unwrap() {
        Ok(_) => panic!("it is merged"),
        Err(refusal) => refusal,
    }
}

#[test]
fn other_allocators_and_unknown_things_are_refused() {
    let shop = Shop::new();
    let program = |text: &str, flags: &[&str]| {
        let source = shop.put("other.c", text.as_bytes());
        succeeds(fixtures::cc().arg(source).args(flags).arg("-o").arg(shop.path("other")));
        fs::read(shop.path("other")).unwrap()
    };
    let own = "void *malloc(unsigned long n) { return (void *)(n & 0); }\nint main(void) { return !!malloc(1); }\n";
    let brings = |symbol: &str, verb| Refusal::BringsAllocator { symbol: symbol.to_owned(), verb };
    assert_eq!(refused(&program(own, &["-rdynamic", "-fno-builtin"])), brings("malloc", "defines"));
    let other =
        shop.put("mallocx.c", b"void *mallocx(unsigned long n, int flags) { return (void *)(n & !flags & 0); }\n");
    succeeds(fixtures::cc().args(["-shared", "-fPIC"]).arg(other).arg("-o").arg(shop.path("libother.so")));
    let other = shop.path("libother.so").display().to_string();
    for (name, flags) in [("mallocx", &["-fno-builtin", &other][..]), ("__libc_memalign", &["-fno-builtin"])] {
        let calls = format!("void *{name}(unsigned long, int);\nint main(void) {{ return {name}(1, 0) != 0; }}\n");
        assert_eq!(refused(&program(&calls, flags)), brings(name, "calls"));
    }
    // libc has this one, so that the program will find it.
    let weak = "__attribute__((weak)) void *__libc_memalign(unsigned long, int);\n\
        int main(void) { return __libc_memalign != 0; }\n";
    assert_eq!(refused(&program(weak, &["-fno-builtin"])), brings("__libc_memalign", "calls"));
    let plain = program("int main(void) { return 0; }\n", &[]);
    let audited = program("int main(void) { return 0; }\n", &["-Wl,--audit=libnothing.so"]);
    assert!(matches!(refused(&audited), Refusal::Merge(why) if why.contains("DT_AUDIT")));
    let mut appended = plain.clone();
    appended.extend(b"PK\x03\x04");
    assert_eq!(refused(&appended), Refusal::Appended(4));
    let twice = merge(&plain, &DEFAULT).unwrap().unwrap().bytes;
    assert!(matches!(refused(&twice), Refusal::Grafted(_)));
    assert!(matches!(refused(&DEFAULT), Refusal::Merge(why) if why.contains("nothing loads libraries for it")));
    let without = program("void _start(void) { for (;;); }\n", &["-nostartfiles", "-Wl,--no-as-needed"]);
    assert!(matches!(refused(&without), Refusal::Merge(why) if why.contains("__libc_start_main")));
    let started = String::from_utf8_lossy(&plain).contains("libc.so.6");
    assert!(started, "the programs above are glibc's");
}

/// Programs that ask whether a different allocator is present get no, as with stock.
#[test]
fn weak_names_of_other_allocators_are_no_reason_to_refuse() {
    let shop = Shop::new();
    let text = "#include <stdio.h>\n#include <stdlib.h>\n\
        __attribute__((weak)) void sdallocx(void *, size_t, int);\n__attribute__((weak)) int mallctl(const char *);\n\
        int main(int count, char **words)\n{\n\tvoid *block = malloc(10);\n\tif (mallctl) mallctl(\"x\");\n\
        \tif (sdallocx) sdallocx(block, 10, 0); else free(block);\n\treturn puts(\"ok merged\") < 0;\n}\n";
    let source = shop.put("weak.c", text.as_bytes());
    succeeds(fixtures::cc().arg(source).args(["-fno-builtin", "-o"]).arg(shop.path("weak")));
    let stock = fs::read(shop.path("weak")).unwrap();
    for name in ["sdallocx", "mallctl"] {
        assert!(memchr::memmem::find(&stock, name.as_bytes()).is_some(), "it names {name}");
    }
    serves(&shop.merged(&stock, &DEFAULT).0, "snmalloc");
    need(&stock, b"/donor.so", &NOTE).unwrap();
}

/// A large `.bss` stays out of the file, unless the program looks at its own ELF header; then it is refused if that
/// would take hundreds of megabytes.
#[test]
fn memory_that_is_not_in_the_file_is_not_written_into_it() {
    let shop = Shop::new();
    let made = |megabytes: u32, more: &str, flags: &[&str]| {
        let text = format!(
            "#include <stdio.h>\n#include <stdlib.h>\nextern const char __ehdr_start[];\n\
             static char large[{megabytes}u << 20];\nint main(int count, char **words)\n{{\n\
             \tfor (size_t at = 0; at < sizeof large; at += 1 << 20) large[at] += count;\n{more}\
             \tfree(malloc(10));\n\treturn large[sizeof large - (1 << 20)] != count || puts(\"ok merged\") < 0;\n}}\n"
        );
        let source = shop.put("large.c", text.as_bytes());
        succeeds(fixtures::cc().arg(source).args(["-fno-builtin", "-o"]).arg(shop.path("large")).args(flags));
        fs::read(shop.path("large")).unwrap()
    };
    let header = "\tif (__ehdr_start[1] != 'E') return 2;\n";
    for (megabytes, more, flags, later, grows_by) in [
        (900, "", &[][..], true, 0..3),
        (900, "", &["-no-pie", "-fno-pie"], true, 0..3),
        (20, "", &[], true, 0..3),
        (12, "", &[], false, 12..16),
        (20, header, &[], false, 20..24),
    ] {
        let stock = made(megabytes, more, flags);
        let (path, merge) = shop.merged(&stock, &DEFAULT);
        assert_eq!(merge.plan.needs_later_kernel, later, "{megabytes} MB");
        let grown = (merge.bytes.len() - stock.len()) >> 20;
        assert!(grows_by.contains(&grown), "{megabytes} MB: grown by {grown} MB");
        serves(&path, "snmalloc");
        let one = need(&stock, b"/donor.so", &NOTE).unwrap();
        assert_eq!((one.plan.needs_later_kernel, (one.bytes.len() - stock.len()) >> 20 < 3), (later, later));
    }
    let refused = refused(&made(400, header, &[]));
    assert!(matches!(&refused, Refusal::Merge(why) if why.contains("bytes of zeros")), "{refused}");
}

/// Debuggers set a breakpoint on malloc at the donor's: its symbol is that of a function.
#[test]
fn the_donors_symbols_are_those_of_functions() {
    let shop = Shop::new();
    for way in [&[][..], &["-Wl,--hash-style=both"], &["-s"], &["-no-pie", "-fno-pie"]] {
        shop.merged(&shop.glibc(way), &DEFAULT);
        let said = succeeds(Command::new("nm").arg("-D").arg(shop.path("merged"))).out;
        for name in ["malloc", "calloc", "aligned_alloc"] {
            assert!(said.lines().any(|line| line.ends_with(&format!(" T {name}"))), "{way:?}: {said}");
        }
    }
}

const NOTE: Needed = Needed { sha256: [1; 32], donor: [b'd'; 512] };

/// The loader takes the library's functions before libc's, and everything of the program is what it was.
#[test]
fn a_program_loads_its_donor_first() {
    let shop = Shop::new();
    let library = shop.put("donor.so", &DEFAULT);
    let name = library.as_os_str().as_encoded_bytes();
    for way in WAYS {
        let stock = shop.glibc(way);
        let one = need(&stock, name, &NOTE).unwrap();
        assert_eq!((one.plan.libc, one.plan.loads_namespaces), (Libc::Glibc, false));
        assert!(one.bytes == need(&stock, name, &NOTE).unwrap().bytes, "the same bytes each time");
        let read = Executable::read(&one.bytes).unwrap();
        assert_eq!((read.loads(), read.is_merged()), (Some(name.to_vec()), false));
        assert_eq!(transplant::notes(&one.bytes)[0], Some(NOTE.donor.to_vec()));
        let changed = (64..stock.len()).filter(|at| one.bytes[*at] != stock[*at]).count();
        assert_eq!(changed, 0, "bytes of the program");
        for copy in [one.bytes.clone(), read.loading(b"/dev/null").unwrap()] {
            let runs = copy == one.bytes;
            let path = shop.program("program", &copy);
            let output = fixtures::output(Command::new(path).env("ALLOGRAFT_VERBOSE", "1")).unwrap();
            assert_eq!(output.status.success(), runs, "{output:?}");
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(said.contains(if runs { "allograft: snmalloc " } else { "/dev/null" }), "{said}");
        }
        assert!(read.loading(&[b'x'; 4096]).is_none());
        assert!(matches!(need(&one.bytes, b"other.so", &NOTE), Err(Refusal::Grafted(_))));
    }
    let stock = shop.musl(true);
    let one = need(&stock, name, &NOTE).unwrap();
    assert_eq!(one.plan.libc, Libc::Musl);
    let ran = succeeds(Command::new(shop.program("program", &one.bytes)).env("ALLOGRAFT_VERBOSE", "1"));
    assert!(ran.err.contains("allograft: snmalloc "), "{ran:?}");
    assert!(loads(&stock).is_none() && Executable::read(&stock).unwrap().loading(b"x").is_none());
    assert_eq!(transplant::notes(&stock), [None, None]);
}

static PLAIN: LazyLock<Vec<u8>> = LazyLock::new(|| Shop::new().glibc(&["-no-pie", "-fno-pie", "-s"]));

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_programs_are_no_panic(at in any::<prop::sample::Index>(), value in any::<u8>(), cut in 0_usize..4096) {
        let mut bytes = PLAIN.clone();
        // The headers and the tables of the loader, mostly.
        let at = at.index(bytes.len().min(0x1000));
        bytes[at] = value;
        let _ = merge(&bytes, &DEFAULT).unwrap();
        let _ = need(&bytes, b"/donor.so", &NOTE);
        let _ = loads(&bytes);
        bytes.truncate(bytes.len() - cut.min(bytes.len()));
        let _ = merge(&bytes, &DEFAULT).unwrap();
    }
}
