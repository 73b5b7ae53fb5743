//! Executables that are refused, each with its reason, and cases of files on a disk. Every refusal leaves everything
//! unchanged.

use std::ffi::CString;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};

use fixtures::Arch;
use fixtures::program::Build;

use crate::lab::{Lab, tool};

/// A static program that allocates, linked with Debian's musl.
pub(crate) fn program(lab: &Lab, name: &str, source: &str) -> Vec<u8> {
    fs::read(Build::PLAIN.program(&lab.path(""), name, source)).unwrap()
}

const PLAIN: &str = "#include <stdlib.h>\nint main(void) { free(realloc(malloc(10), 1000)); return 0; }\n";

/// Waits for a line, so that a test can examine the running program.
const WAITS: &str = "#include <stdio.h>\n#include <stdlib.h>\nint main(void)\n{\n\tint first = getchar();\n\
    \tchar *block = malloc(100000);\n\tif (!block)\n\t\treturn 9;\n\tprintf(\"%c\\n\", first);\n\tfree(block);\n\treturn 0;\n}\n";

fn succeeds(path: &Path) {
    let output = Command::new(path).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn setuid_and_setgid_bits_take_a_confirmation_and_stay() {
    let lab = Lab::new();
    program(&lab, "program", PLAIN);
    fs::set_permissions(lab.path("program"), fs::Permissions::from_mode(0o6755)).unwrap();
    for mode in [0o4755, 0o2755, 0o6755] {
        fs::set_permissions(lab.path("program"), fs::Permissions::from_mode(mode)).unwrap();
        for more in [&["program"][..], &["program", "-o", "elsewhere"]] {
            let words = [&["graft"], more].concat();
            lab.changes_nothing(3, words).says(&["is setuid or setgid", "--yes"]);
        }
    }
    lab.changes_nothing(3, ["bench", "--", "./program"]).says(&["setuid or setgid", "help: "]);
    lab.run(["graft", "program", "--yes"]).exits(0).says(&["setuid"]);
    assert_eq!(fs::metadata(lab.path("program")).unwrap().mode() & 0o7777, 0o6755);
    succeeds(&lab.path("program"));
    lab.run(["graft", "program", "--yes", "-o", "other", "--donor", "mimalloc-secure"]).exits(0);
    assert_eq!(fs::metadata(lab.path("other")).unwrap().mode() & 0o7777, 0o6755);
    lab.run(["undo", "program"]).exits(0);
    assert_eq!(fs::metadata(lab.path("program")).unwrap().mode() & 0o7777, 0o6755);
}

/// `security.capability` of xattr(7), version 2: cap_net_raw, permitted and effective.
#[test]
fn file_capabilities_take_a_confirmation_and_stay() {
    if !is_root() {
        eprintln!("file_capabilities_take_a_confirmation_and_stay: left out: only root may give a file capabilities");
        return;
    }
    let capabilities: [u8; 20] = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let lab = Lab::new();
    program(&lab, "program", PLAIN);
    let flags = rustix::fs::XattrFlags::empty();
    if let Err(error) = rustix::fs::setxattr(lab.path("program"), "security.capability", &capabilities, flags) {
        eprintln!("file_capabilities_take_a_confirmation_and_stay: left out: this file system takes none: {error}");
        return;
    }
    lab.changes_nothing(3, ["graft", "program"]).says(&["has capabilities", "--yes"]);
    lab.run(["graft", "program", "--yes"]).exits(0);
    let of = |name: &str| {
        let mut value = [0; 64];
        let name = CString::new(lab.path(name).into_os_string().into_encoded_bytes()).unwrap();
        let length = rustix::fs::getxattr(name.as_c_str(), "security.capability", &mut value[..]).unwrap();
        value[..length].to_vec()
    };
    assert_eq!(of("program"), capabilities);
    succeeds(&lab.path("program"));
    lab.run(["undo", "program"]).exits(0);
    assert_eq!(of("program"), capabilities);
}

#[test]
fn a_running_program_goes_on_with_stock() {
    let lab = Lab::new();
    let stock = program(&lab, "program", WAITS);
    let start = || {
        let mut command = Command::new(lab.path("program"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
    };
    let mut running = start();
    // The kernel permits no writes to a running program's file, so the new file takes its name.
    lab.run(["graft", "program"]).exits(0);
    assert!(fs::read(lab.path("program")).unwrap() != stock);
    assert!(fs::read(format!("/proc/{}/exe", running.id())).unwrap() == stock);
    let mut later = start();
    // A running graft can be undone.
    lab.run(["undo", "program"]).exits(0);
    assert!(fs::read(lab.path("program")).unwrap() == stock);
    for child in [&mut running, &mut later] {
        child.stdin.take().unwrap().write_all(b"x").unwrap();
        let mut said = String::new();
        child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(said, "x\n");
        assert!(child.wait().unwrap().success());
    }
}

#[test]
fn programs_of_other_kinds() {
    let lab = Lab::new();
    let source = lab.put("program.c", PLAIN.as_bytes());
    let build = |arguments: &[&str], name: &str| {
        tool(fixtures::cc().args(arguments).arg(&source).arg("-o").arg(lab.path(name)));
    };
    build(&["-static"], "glibc");
    lab.changes_nothing(3, ["graft", "glibc"]).says(&["GNU C library", "help: "]);
    tool(Command::new("strip").arg("-s").arg(lab.path("glibc")));
    lab.changes_nothing(3, ["graft", "glibc"]).says(&["cannot be grafted", "help: "]);
    // The program has its own malloc, with symbols and without.
    let own = "#include <stddef.h>\nstatic char heap[1 << 20]; static size_t used;\n\
        void *malloc(size_t n) { void *p = heap + used; used += (n + 15) & ~15ul; return p; }\n\
        void free(void *p) { (void)p; }\nvoid *calloc(size_t n, size_t m) { return malloc(n * m); }\n\
        void *realloc(void *p, size_t n) { (void)p; return malloc(n); }\n\
        int setenv(const char *, const char *, int);\nint main(void) { return setenv(\"a\", \"b\", 1); }\n";
    program(&lab, "own", own);
    lab.changes_nothing(3, ["graft", "own"]).says(&["cannot be grafted", "help: "]);
    tool(Command::new("strip").arg("-s").arg(lab.path("own")));
    lab.changes_nothing(3, ["graft", "own"]).says(&["cannot be grafted", "help: "]);
    // Libraries: with others that they need, and with nothing but a name.
    for flags in [&["-shared", "-fPIC"][..], &["-shared", "-fPIC", "-nostdlib", "-Wl,-soname,library.so"]] {
        build(flags, "library.so");
        let said = ["cannot be grafted", "it is a library", "help: graft the programs that load it"];
        lab.changes_nothing(3, ["graft", "library.so"]).says(&said);
    }
}

/// A static program packed by UPX 3.96 has no sections, and `UPX!` behind the headers (its l_info, at 0x78 + 0x70).
#[test]
fn packed_programs() {
    let lab = Lab::new();
    let mut packed = program(&lab, "program", PLAIN);
    // e_shoff, e_shnum and e_shstrndx of the ELF header.
    packed[40..48].fill(0);
    packed[60..64].fill(0);
    let behind = 64 + 56 * usize::from(packed[56]);
    packed[behind + 4..behind + 8].copy_from_slice(b"UPX!");
    lab.put("packed", &packed);
    lab.changes_nothing(3, ["graft", "packed"]).says(&["packed by UPX", "upx -d"]);
}

/// A static-pie packed by UPX 4 has the type ET_DYN, no dynamic section, two segments to load, the stack's flags, and
/// `UPX!` behind them (src/p_lx_elf.cpp, src/stub/src/include/linux.h).
#[test]
fn packed_programs_that_are_position_independent() {
    let lab = Lab::new();
    for kind in [2_u16, 3] {
        let mut packed = b"\x7fELF\x02\x01\x01".to_vec();
        packed.resize(16, 0);
        packed.extend([kind, 62].map(u16::to_le_bytes).concat());
        packed.extend(1_u32.to_le_bytes());
        packed.extend([0x1000_u64, 64, 0].map(u64::to_le_bytes).concat());
        packed.extend([0_u16, 0, 64, 56, 3, 64, 0, 0].map(u16::to_le_bytes).concat());
        // Type, flags; offset, addresses, sizes in the file and in memory, alignment.
        for (kind, flags, words) in [
            (1_u32, 5_u32, [0_u64, 0, 0, 0x2000, 0x2000, 0x1000]),
            (1, 6, [0, 0x2000, 0x2000, 0, 0x8000, 0x1000]),
            (0x6474_e551, 6, [0, 0, 0, 0, 0, 16]),
        ] {
            packed.extend([kind, flags].map(u32::to_le_bytes).concat());
            packed.extend(words.map(u64::to_le_bytes).concat());
        }
        packed.extend(b"\x12\x34\x56\x78UPX!");
        packed.resize(0x2000, 0xa5);
        lab.put("packed", &packed);
        lab.changes_nothing(3, ["graft", "packed"]).says(&["packed by UPX", "upx -d"]);
        let report = lab.run(["inspect", "packed", "--json"]).exits(0).json();
        let file = &report["files"][0];
        assert_eq!((&file["kind"], &file["malloc"]["name"]), (&"executable".into(), &"unknown".into()));
        assert_eq!((&file["link"], &file["graft"]["way"]), (&serde_json::Value::Null, &"none".into()));
        let said = lab.run(["inspect", "packed"]).exits(0).out;
        assert!(said.contains("packed by UPX") && said.contains("upx -d"), "{said}");
    }
}

#[test]
fn data_behind_the_program() {
    let lab = Lab::new();
    let stock = program(&lab, "program", PLAIN);
    for payload in [b"PK\x03\x04 a zip archive".as_slice(), b"\0\0\0NODE_SEA", &[7; 100_000]] {
        lab.put("program", &[stock.as_slice(), payload].concat());
        lab.changes_nothing(3, ["graft", "program"]).says(&["appended", "help: "]);
    }
    lab.put("program", &stock);
    lab.run(["graft", "program"]).exits(0);
}

/// The file is cut at, before and behind each boundary that the headers name.
#[test]
fn truncated_programs() {
    let lab = Lab::new();
    let stock = program(&lab, "program", PLAIN);
    fs::remove_file(lab.path("program")).unwrap();
    let word = |at: usize| u64::from_le_bytes(stock[at..at + 8].try_into().unwrap()) as usize;
    let half = |at: usize| usize::from(u16::from_le_bytes(stock[at..at + 2].try_into().unwrap()));
    let (segments, sections) = (word(32), word(40));
    let (segment_count, section_count) = (half(56), half(60));
    let mut ends = vec![4, 16, 64, segments + 56 * segment_count, sections, sections + 64 * section_count];
    ends.extend((0..segment_count).flat_map(|index| {
        let at = segments + 56 * index;
        [at, word(at + 8), word(at + 8) + word(at + 32)]
    }));
    ends.extend((0..section_count).flat_map(|index| {
        let at = sections + 64 * index;
        // A section without content in the file (SHT_NOBITS) counts with its offset only.
        let size = if stock[at + 4] == 8 { 0 } else { word(at + 32) };
        [at, word(at + 24), word(at + 24) + size]
    }));
    let mut cuts: Vec<usize> = ends.into_iter().flat_map(|end| [end.saturating_sub(1), end, end + 1]).collect();
    cuts.sort_unstable();
    cuts.dedup();
    cuts.retain(|cut| *cut < stock.len());
    assert!(cuts.len() > 30, "{cuts:?}");
    for cut in cuts {
        lab.put("cut", &stock[..cut]);
        let ran = lab.changes_nothing(2, ["graft", "cut"]);
        assert!(ran.err.starts_with("error: "), "cut at {cut}: {}", ran.err);
    }
}

/// One word of the table of size classes is changed. oldmalloc has no such table, and a later mallocng may have a
/// different one.
#[test]
fn another_allocator_than_mallocng() {
    let lab = Lab::new();
    let mut stock = program(&lab, "program", PLAIN);
    // src/malloc/mallocng/malloc.c, __malloc_size_classes.
    let classes: Vec<u8> = [1u16, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15].into_iter().flat_map(u16::to_le_bytes).collect();
    let at = stock.windows(classes.len()).position(|window| window == classes).unwrap();
    stock[at + 20] = 13;
    lab.put("program", &stock);
    lab.changes_nothing(3, ["graft", "program"]).says(&["mallocng", "size classes", "help: "]);
}

/// musl's malloc serves only musl there. The message names the program's allocator, and no function that it lacks.
#[test]
fn an_allocator_of_the_programs_own_is_named() {
    const OWN: &str = "#include <stdlib.h>\n#include <string.h>\nvoid *__libc_malloc(size_t);\nvoid __libc_free(void *);\n\
        void *__libc_realloc(void *, size_t);\nstatic char heap[1 << 20];\nstatic size_t used;\n\
        void *malloc(size_t n) { void *block = heap + used; used += (n + 15) & ~15ul; return block; }\n\
        void free(void *block) { memset(block, 0, 1); }\n\
        void *calloc(size_t n, size_t m) { return malloc(n * m); }\n\
        void *realloc(void *block, size_t n) { return memcpy(malloc(n), block, n); }\n\
        void *aligned_alloc(size_t a, size_t n) { used = (used + a - 1) & -a; return malloc(n); }\n\
        size_t malloc_usable_size(void *block) { return *(char *)block; }\n\
        int main(void)\n{\n\tvoid *volatile own = malloc(10), *volatile musls = __libc_malloc(10);\n\
        \t__libc_free(__libc_realloc(musls, 1000));\n\tfree(own);\n\treturn 0;\n}\n";
    let lab = Lab::new();
    for (more, said) in [
        ("", "an allocator of its own"),
        ("int mallctl(const char *name) { return name != 0; }\n", "it brings jemalloc, by its symbols"),
        ("void *mi_malloc(size_t n) { return malloc(n); }\n", "it brings mimalloc, by its symbols"),
    ] {
        program(&lab, "program", &format!("{OWN}{more}"));
        lab.changes_nothing(3, ["graft", "program"]).says(&["its `malloc`, at 0x", "is not musl's", said, "help: "]);
    }
}

#[test]
fn a_program_without_malloc_has_nothing_to_replace() {
    let lab = Lab::new();
    program(&lab, "program", "int main(void) { return 7; }\n");
    lab.changes_nothing(3, ["graft", "program"]).says(&["no malloc is in it: there is nothing to replace", "help: "]);
    let report = lab.run(["inspect", "program", "--json"]).exits(0).json();
    assert_eq!(report["files"][0]["malloc"]["name"], "none");
    // Without symbols, it may have another table.
    tool(Command::new("strip").arg("-s").arg(lab.path("program")));
    lab.changes_nothing(3, ["graft", "program"])
        .says(&["mallocng, musl's malloc, is not in it", "help: `allograft inspect`"]);
    // musl has a simple malloc for programs that never free. It is not mallocng.
    program(&lab, "program", "#include <stdlib.h>\nint main(void) { return !malloc(10); }\n");
    lab.changes_nothing(3, ["graft", "program"]).says(&["mallocng, musl's malloc, is not in it"]);
}

/// A Go program with C code: `inspect` and `graft` name the same allocator.
#[test]
fn programs_of_go_with_c() {
    let lab = Lab::new();
    let mark = "__attribute__((section(\".go.buildinfo\"), used)) static const char mark[] = \"\\xff Go buildinf:\";\n";
    let way = |source: &str| {
        program(&lab, "program", source);
        let report = lab.run(["inspect", "program", "--json"]).exits(0).json();
        assert_eq!(report["files"][0]["malloc"]["name"], "mallocng");
        report["files"][0]["graft"]["way"].as_str().expect("a way").to_owned()
    };
    assert_eq!(way(PLAIN), "graft");
    lab.changes_nothing(0, ["graft", "program", "--dry-run"]);
    assert_eq!(way(&format!("{mark}{PLAIN}")), "relink");
    lab.changes_nothing(3, ["graft", "program", "--dry-run"]).says(&["a Go program"]);
}

/// Released programs, as they come from the registries. A program whose C code uses musl's malloc is grafted, with a
/// note if another allocator serves its language's own blocks. All others are refused, Go's and libraries by name.
#[test]
#[ignore = "corpus: takes released programs, 280 MB"]
fn released_programs() {
    let lab = Lab::new();
    for released in fixtures::corpus::listed() {
        let path = fixtures::corpus::place(&released);
        assert!(path.is_file(), "`{}` is missing: run `cargo xtask setup corpus`", path.display());
        let ran = lab.run(["graft", "--dry-run", path.to_str().unwrap()]);
        match (released.malloc.as_str(), released.link.as_deref(), released.language.as_deref()) {
            ("mallocng", _, None) => assert!(!ran.exits(0).err.contains("keeps"), "{}", released.name),
            ("mallocng", _, Some(language)) => {
                let keeps = format!("keeps {language}");
                drop(ran.exits(0).says(&[&keeps, "for its language's own blocks"]));
            }
            ("go", Some("static"), _) => {
                let ran = ran.exits(3);
                let named = ["a Go program", "what serves malloc is go"].iter().any(|named| ran.err.contains(named));
                assert!(named, "{}: {}", released.name, ran.err);
            }
            (_, None, _) => drop(ran.exits(3).says(&["it is a library", "help: graft the programs that load it"])),
            // A dynamic program is merged, unless it shows another allocator.
            _ if ran.code == 0 => assert!(ran.out.contains("merged"), "{}", released.name),
            _ => drop(ran.exits(3).says(&["is dynamic", "help: "])),
        }
    }
}

/// A program that the real UPX packed.
#[test]
#[ignore = "toolchains: takes compilers of other languages, 3.9 GB"]
fn a_program_packed_by_upx() {
    if let Some(reason) = fixtures::toolchains::unavailable() {
        eprintln!("skipped: {reason}");
        return;
    }
    let lab = Lab::new();
    program(&lab, "program", PLAIN);
    tool(&mut fixtures::toolchains::command(&lab.path(""), "upx-ucl -q --force -o packed program"));
    lab.changes_nothing(3, ["graft", "packed"]).says(&["packed by UPX", "upx -d"]);
    tool(&mut fixtures::toolchains::command(&lab.path(""), "upx-ucl -q -d packed -o unpacked"));
    lab.run(["graft", "unpacked"]).exits(0);
    succeeds(&lab.path("unpacked"));
}

/// Threads made by `clone`, through libc's function or the system call, whose thread-local storage musl did not lay
/// out.
#[test]
fn threads_with_storage_of_their_own_are_refused() {
    refused_with_storage_of_their_own(Arch::X86_64, |index, stripped| (index % 2 == 0) == stripped);
}

#[test]
#[ignore = "minutes: links thirty programs"]
fn threads_with_storage_of_their_own_are_refused_with_symbols_and_without() {
    refused_with_storage_of_their_own(Arch::X86_64, |_, _| true);
}

#[test]
#[ignore = "aarch64: links with that architecture's runtime library"]
fn threads_with_storage_of_their_own_are_refused_on_aarch64() {
    refused_with_storage_of_their_own(Arch::Aarch64, |_, _| true);
}

/// The outcomes for programs with `clone`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Grafted,
    /// It makes threads with storage of their own.
    OwnStorage,
    /// It makes processes that share its storage.
    Shared,
}

/// The flags reach `clone` as compilers pass them: at once or far before, through the stack, through other functions,
/// put together on the way. `takes`: whether a case is tried, by its number and whether it is stripped.
fn refused_with_storage_of_their_own(arch: Arch, takes: fn(usize, bool) -> bool) {
    use Answer::{Grafted, OwnStorage, Shared};
    const HEAD: &str = "#define _GNU_SOURCE\n#include <sched.h>\n#include <signal.h>\n#include <stdlib.h>\n\
        #include <sys/syscall.h>\n#include <unistd.h>\n\
        #define NEVER __attribute__((noinline, noclone))\n\
        #if defined(__x86_64__)\n#define THIRD \"rdx\"\n#else\n#define THIRD \"x2\"\n#endif\n\
        #define FLAGS (CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SETTLS)\n\
        static char stack[65536], storage[4096];\n\
        __attribute__((noinline)) static void *block(void) { return realloc(malloc(10), 1000); }\n\
        static int run(void *block) { free(block); return 0; }\n";
    let calls = |flags: &str| {
        format!(
            "int main(void)\n{{\n\treturn clone(run, stack + sizeof stack, {flags}, block(), (void *)0, storage + 2048, \
             (void *)0) < 0;\n}}\n"
        )
    };
    let far = "int main(void)\n{\n\tvoid *own = block();\n\tregister int flags __asm__(THIRD) = FLAGS;\n\
               \t__asm__ volatile(\".rept 300\\n\\tnop\\n\\t.endr\" : \"+r\"(flags));\n\
               \treturn clone(run, stack + sizeof stack, flags, own, (void *)0, storage + 2048, (void *)0) < 0;\n}\n";
    let through = "NEVER static int start(int more, int (*what)(void *))\n{\n\
                   \treturn clone(what, stack + sizeof stack, more | CLONE_VM, block(), (void *)0, storage + 2048, (void *)0);\n}\n\
                   NEVER static int twice(int (*what)(void *), int more)\n{\n\treturn start(more | CLONE_FS, what) + 1;\n}\n\
                   int main(void)\n{\n\treturn twice(run, CLONE_SETTLS | CLONE_SIGHAND) < 1;\n}\n";
    let chosen = "int main(int count, char **words)\n{\n\
                  \treturn clone(run, stack + sizeof stack, count > 1 ? CLONE_FS | SIGCHLD : FLAGS, block(), (void *)0, \
                  storage + 2048, (void *)0) < 0;\n}\n";
    let by_number = "int main(void)\n{\n\tif (!syscall(SYS_clone, FLAGS, stack + sizeof stack, 0, storage + 2048, 0))\n\
                     \t\trun(block());\n\treturn 0;\n}\n";
    let by_itself = "static long ask(long number, long flags, void *stack, void *storage)\n{\n\tlong result;\n\
                     \tregister long none __asm__(\"r10\") = 0;\n\tregister void *own __asm__(\"r8\") = storage;\n\
                     \t__asm__ volatile(\"syscall\" : \"=a\"(result) : \"a\"(number), \"D\"(flags), \"S\"(stack), \"d\"(0l), \
                     \"r\"(none), \"r\"(own) : \"rcx\", \"r11\", \"memory\");\n\treturn result;\n}\n\
                     int main(void)\n{\n\tif (!ask(SYS_clone, 0x90f00, stack + sizeof stack, storage + 2048))\n\t\trun(block());\n\
                     \treturn 0;\n}\n";
    let with_musls = "#include <pthread.h>\nstatic void *own(void *block) { free(block); return 0; }\n\
                      int main(void)\n{\n\tpthread_t thread;\n\
                      \treturn pthread_create(&thread, 0, own, block()) || pthread_join(thread, 0);\n}\n";
    let (plain, io, signal) = (calls("FLAGS"), calls("FLAGS | CLONE_IO"), calls("FLAGS | SIGUSR1"));
    let (process, shares, other) =
        (calls("CLONE_VM | CLONE_VFORK | 17"), calls("CLONE_VM | SIGCHLD"), calls("CLONE_FS | SIGCHLD"));
    let (fast, none, small) = (&["-O2"][..], &["-O0"][..], &["-Os"][..]);
    let sources: [(&str, &[&str], &str, Answer); 15] = [
        ("at -O2", fast, &plain, OwnStorage),
        ("at -O0", none, &plain, OwnStorage),
        ("at -Os", small, &plain, OwnStorage),
        ("with CLONE_IO", fast, &io, OwnStorage),
        ("with SIGUSR1", fast, &signal, OwnStorage),
        ("far before", fast, far, OwnStorage),
        ("through functions", fast, through, OwnStorage),
        ("through functions at -O0", none, through, OwnStorage),
        ("chosen", fast, chosen, OwnStorage),
        ("by number", fast, by_number, OwnStorage),
        ("by itself", fast, by_itself, OwnStorage),
        ("shares", fast, &shares, Shared),
        ("musl's", fast, with_musls, Grafted),
        ("a process", fast, &process, Grafted),
        ("a process with its own memory", fast, &other, Grafted),
    ];
    let lab = Lab::new();
    let mut wrong = Vec::new();
    for link in [[].as_slice(), &["-s"]] {
        // The system call is in assembly for one architecture.
        for (index, (what, compile, source, wanted)) in sources.into_iter().enumerate() {
            if source == by_itself && arch != Arch::X86_64 || !takes(index, !link.is_empty()) {
                continue;
            }
            Build { arch, compile, link, ..Build::PLAIN }.program(&lab.path(""), "threads", &format!("{HEAD}{source}"));
            let planned = lab.run(["graft", "threads", "--dry-run"]);
            let found = match planned.code {
                0 => Some(Grafted),
                3 if planned.err.contains("(CLONE_SETTLS)") => Some(OwnStorage),
                3 if planned.err.contains("(CLONE_VM)") => Some(Shared),
                _ => None,
            };
            if found != Some(wanted) {
                wrong.push(format!("{what}, {} {link:?}: expected {wanted:?}: {}", arch.name(), planned.err));
            } else if wanted == Grafted && arch == Arch::X86_64 {
                lab.run(["graft", "threads", "-o", "graft"]).exits(0);
                succeeds(&lab.path("graft"));
                fs::remove_file(lab.path("graft")).unwrap();
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Which donors go into executables is in their recipes. The error and the pages name the same ones.
#[test]
fn a_donor_that_does_not_go_into_executables() {
    let lab = Lab::new();
    program(&lab, "program", PLAIN);
    let (fit, other): (Vec<_>, Vec<_>) = donors::all().iter().partition(|donor| donor.has_blobs());
    let fit: Vec<&str> = fit.iter().map(|donor| donor.name).collect();
    let said = format!("help: these can: {}\n", fit.join(", "));
    lab.changes_nothing(3, ["graft", "program", "--donor", other[0].name]).says(&["linked executable", &said]);
    let (last, first) = fit.split_last().unwrap();
    let quoted: Vec<String> = first.iter().map(|name| format!("`{name}`")).collect();
    let quoted = quoted.join(", ");
    for (page, said) in [
        ("executables.md", format!("`--donor` ({quoted}, `{last}`)")),
        ("donors.md", format!("{quoted} and `{last}` also go into")),
        ("faq.md", format!("Only {} and {last} go into executables", first.join(", "))),
    ] {
        let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(page)).unwrap();
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(&said), "docs/{page} lacks: {said}");
    }
}
