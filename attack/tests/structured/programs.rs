//! Programs, linked in many ways, grafted and run: the graft does what stock does, and binutils read it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use fixtures::Arch;
use fixtures::program::{Build, linked_with_musl};
use hosts::{Error, Request};
use proptest::prelude::*;

use crate::{cases, tool};

/// How a program is linked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Link {
    Static,
    StaticPie,
    /// musl's loader starts it.
    Musl,
    MuslPie,
    /// This machine's libc.
    Glibc,
    GlibcPie,
}

impl Link {
    fn is_static(self) -> bool {
        matches!(self, Link::Static | Link::StaticPie)
    }
}

/// A program.
#[derive(Debug, Clone)]
struct Program {
    link: Link,
    /// Parts of its source.
    parts: Vec<&'static str>,
    compile: Vec<&'static str>,
    /// Flags of GNU ld.
    linker: Vec<&'static str>,
}

/// Parts of a source: declarations outside of functions, and the statement that uses it, between `@`.
const PARTS: &[&str] = &[
    "static _Thread_local long count = 5;@count += argc; sum += count;",
    "static _Thread_local char zeros[300];@zeros[argc] = 1; sum += zeros[argc];",
    "static _Thread_local struct { long a __attribute__((aligned(64))); } aligned;@aligned.a = 3; sum += ((unsigned long)&aligned & 63) + aligned.a;",
    "__attribute__((section(\".note.mine\"), aligned(4), used)) static const unsigned note[] = { 4, 4, 77, 0x65706d, 1 };@sum += note[2];",
    "__attribute__((section(\"mine\"), used)) static int my_value = 4; extern int __start_mine, __stop_mine;@sum += &__stop_mine - &__start_mine;",
    "static long started; __attribute__((constructor)) static void start(void) { char *p = malloc(40); started = p != 0; free(p); }@sum += started;",
    "__attribute__((destructor)) static void end(void) { free(malloc(7)); puts(\"end\"); }@sum++;",
    "static const char big[70000] = { 1 };@sum += big[argc * 100];",
    "static char zero[1 << 20];@zero[argc << 10] = 2; sum += zero[argc << 10];",
    "@char *p[300]; for (int i = 0; i < 300; i++) { p[i] = malloc(i * 37); memset(p[i], i, i * 37); } for (int i = 0; i < 300; i++) { if (i) sum += p[i][i]; free(p[i]); }",
    "@char *p = 0; for (int i = 1; i < 2000; i += 13) { p = realloc(p, i * 5); p[i * 4] = i; sum += p[i * 4]; } free(p);",
    "@long *p = calloc(1000, 8); for (int i = 0; i < 1000; i++) sum += p[i]; free(p);",
    "@void *p = aligned_alloc(4096, 8192); sum += (unsigned long)p & 4095; free(p);",
    "@void *p = 0; if (posix_memalign(&p, 256, 999) == 0) sum += (unsigned long)p & 255; free(p);",
    "@char *p = strdup(\"a text of some length\"); sum += strlen(p); free(p);",
    "@char *p = malloc(3 << 20); p[1 << 20] = 9; sum += p[1 << 20]; free(p);",
    "static int by_size(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }@int n[50]; for (int i = 0; i < 50; i++) n[i] = i * 7919 % 50; qsort(n, 50, sizeof *n, by_size); sum += n[argc];",
    "@printf(\"%d %s %.3f\\n\", argc, \"text\", argc / 3.0);",
    "@char b[64]; snprintf(b, sizeof b, \"%ld\", sum); sum += b[0];",
];

const COMPILE: &[&str] = &[
    "-O0",
    "-O2",
    "-Os",
    "-ffunction-sections",
    "-fdata-sections",
    "-g",
    "-fno-asynchronous-unwind-tables",
    "-fcf-protection",
];

const LINKER: &[&str] = &[
    "-s",
    "--gc-sections",
    "--build-id",
    "-zrelro",
    "-znorelro",
    "-znow",
    "-znoseparate-code",
    "-zseparate-code",
    "-zmax-page-size=65536",
    "-zcommon-page-size=4096",
    "--hash-style=sysv",
    "--hash-style=both",
    "--no-eh-frame-hdr",
    "-zstack-size=262144",
    "-S",
    "--sort-section=alignment",
];

fn program(link: impl Strategy<Value = Link>) -> impl Strategy<Value = Program> {
    (
        link,
        proptest::sample::subsequence(PARTS, 1..9),
        proptest::sample::subsequence(COMPILE, 0..4),
        proptest::sample::subsequence(LINKER, 0..5),
    )
        .prop_map(|(link, parts, compile, linker)| Program { link, parts, compile, linker })
}

fn any_link() -> impl Strategy<Value = Link> {
    prop_oneof![
        3 => Just(Link::Static),
        3 => Just(Link::StaticPie),
        1 => Just(Link::Musl),
        1 => Just(Link::MuslPie),
        2 => Just(Link::Glibc),
        2 => Just(Link::GlibcPie),
    ]
}

impl Program {
    fn source(&self) -> String {
        let (mut outside, mut inside) = (String::new(), String::new());
        for part in &self.parts {
            let (front, statement) = part.split_once('@').expect("two halves");
            outside += &format!("{front}\n");
            inside += &format!("\t{{ {statement} }}\n");
        }
        format!(
            "#define _GNU_SOURCE\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n{outside}\
             int main(int argc, char **argv)\n{{\n\tlong sum = 0;\n{inside}\tchar *last = malloc(argc);\n\
             \tprintf(\"%ld %d\\n\", sum, last != 0);\n\tfree(last);\n\treturn sum & 63;\n}}\n"
        )
    }

    /// Compiles and links it.
    fn link(&self, folder: &Path) -> PathBuf {
        let source = self.source();
        match self.link {
            Link::Static | Link::StaticPie => {
                let position_independent = self.link == Link::StaticPie;
                let link: Vec<&str> = self.linker.to_vec();
                let build = Build { arch: Arch::X86_64, position_independent, compile: &self.compile, link: &link };
                build.program(folder, "stock", &source)
            }
            Link::Musl | Link::MuslPie => {
                let loader = fixtures::musl_loader(Arch::X86_64);
                linked_with_musl(folder, "stock", &source, self.link == Link::MuslPie, &loader)
            }
            Link::Glibc | Link::GlibcPie => {
                let (file, out) = (folder.join("stock.c"), folder.join("stock"));
                fs::write(&file, source).expect("a file");
                let mut compile = fixtures::cc();
                let pie = self.link == Link::GlibcPie;
                compile.args(if pie { ["-fPIE", "-pie"] } else { ["-fno-pie", "-no-pie"] });
                compile.args(&self.compile).args(self.linker.iter().map(|flag| format!("-Wl,{flag}")));
                let status = compile.arg("-o").args([&out, &file]).status();
                assert!(status.is_ok_and(|status| status.success()), "{compile:?}");
                out
            }
        }
    }
}

/// Returns the exit code and the output of a program.
fn run(program: &Path) -> (Option<i32>, String) {
    let output = Command::new(program).arg("x").output().expect("it starts");
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The names that `nm` finds, none in a stripped program.
fn names(folder: &Path, program: &str) -> BTreeSet<String> {
    let output = Command::new("nm").args(["-j", program]).current_dir(folder).output().expect("nm");
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

/// Grafts one program.
fn check(program: &Program) {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let stock = program.link(folder);
    let expected = run(&stock);
    let strings = program.link.is_static() && program.parts.len().is_multiple_of(2);
    let out = folder.join("graft");
    let request = Request {
        out: Some(out.clone()),
        strings: Some(strings),
        ..Request::new(donors::default_for(format::Arch::X86_64))
    };
    match hosts::graft(&stock, &request) {
        Ok(grafts) => assert_eq!(grafts.hosts.len(), 1),
        // Uncertain is refused; what is refused has to be a known reason, and a graft that was made has to be sound.
        Err(error @ (Error::Executable { .. } | Error::Refused { .. })) => {
            let text = error.to_string();
            assert!(!text.is_empty());
            REFUSED.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            println!("refused: {text}\n{program:?}");
            return;
        }
        Err(error) => panic!("{error}"),
    }
    assert_eq!(run(&out), expected, "the graft does something else");
    // A graft that is read by the verifier only could be a file that no other reader takes.
    tool(folder, "readelf", &["-lSsdrnW", "stock"]);
    tool(folder, "readelf", &["-lSsdrnW", "graft"]);
    let (before, after) = (names(folder, "stock"), names(folder, "graft"));
    let lost: Vec<&String> = before.difference(&after).collect();
    assert!(lost.is_empty(), "nm finds no {lost:?} in the graft");
    GRAFTED.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
}

static REFUSED: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
static GRAFTED: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);

proptest! {
    #![proptest_config(cases(2))]

    #[test]
    fn static_programs(program in program(prop_oneof![Just(Link::Static), Just(Link::StaticPie)])) {
        check(&program);
    }

    #[test]
    fn dynamic_programs(program in program(prop_oneof![Just(Link::MuslPie), Just(Link::Glibc), Just(Link::GlibcPie)])) {
        check(&program);
    }
}

/// Most programs are grafted: a generator of refused programs would prove nothing.
#[test]
#[ignore = "minutes: hundreds of programs"]
fn many_programs() {
    let mut runner = proptest::test_runner::TestRunner::new(cases(120));
    runner
        .run(&program(any_link()), |program| {
            check(&program);
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{error}"));
    let count = |counter: &std::sync::atomic::AtomicUsize| counter.load(std::sync::atomic::Ordering::Relaxed);
    let (grafted, refused) = (count(&GRAFTED), count(&REFUSED));
    println!("{grafted} grafted, {refused} refused");
    assert!(refused * 10 < grafted, "{refused} refused, {grafted} grafted");
}
