//! Programs that look as if an allocator served which does not: an answer is right, or `unknown`. The generator in
//! `attack/tests/origins` makes thousands; these are one of each kind that was answered wrongly once.

use std::fmt::Write as _;

use fixtures::sample::{self, Recipe};
use inspector::{Report, inspect};
use zigcc::Arch;

use crate::programs::{self, Mode, OWN_MALLOC};

fn musl(source: &str, strip: bool) -> Report {
    let libc = fixtures::debian_musl(Arch::X86_64).libc;
    inspect(&programs::musl_program(Arch::X86_64, source, &libc, Mode::Static, strip)).unwrap()
}

/// C code with an allocator's texts.
fn texts(id: &str) -> String {
    let row = known::ROWS.iter().find(|row| row.id == id).unwrap();
    row.marks.iter().enumerate().fold(String::new(), |mut text, (number, mark)| {
        let bytes: Vec<String> = mark.bytes().iter().map(u8::to_string).collect();
        let _ = writeln!(
            text,
            "__attribute__((used)) static const unsigned char mark{number}[] = {{ {} }};",
            bytes.join(",")
        );
        text
    })
}

/// C code with functions of these names.
fn functions(names: &[&str]) -> String {
    names.iter().enumerate().fold(String::new(), |mut text, (number, name)| {
        let _ = writeln!(
            text,
            "__attribute__((used)) long f{number}(long) __asm__(\"{name}\"); long f{number}(long n) {{ return n; }}"
        );
        text
    })
}

#[test]
fn a_second_name_of_malloc_is_no_proof() {
    for name in ["mi_malloc", "je_malloc", "tc_malloc", "rpmalloc", "scudo_malloc", "sn_rust_alloc", "c.malloc.malloc"]
    {
        let alias =
            format!("{OWN_MALLOC}\nvoid *other(size_t) __attribute__((alias(\"malloc\"))) __asm__(\"{name}\");\n");
        assert_eq!(musl(&alias, false).malloc.name, "unknown", "{name}");
    }
}

#[test]
fn a_function_that_malloc_calls_is_no_proof_by_its_name() {
    let take = "size_t mi_take(size_t n) __attribute__((noinline));";
    let source = OWN_MALLOC
        .replace(
            "void *malloc(size_t n) {",
            &format!("{take}\nsize_t mi_take(size_t n) {{ return (used + n + 31) & -16; }}\nvoid *malloc(size_t n) {{"),
        )
        .replace("used = (used + n + 31) & -16;", "used = mi_take(n);");
    assert!(source.contains("used = mi_take(n)"));
    assert_eq!(musl(&source, false).malloc.name, "unknown");
}

#[test]
fn names_of_insides_are_no_proof() {
    let main = "int main(void) { return 0; }\n";
    for (names, wrong) in [
        (&["runtime.mallocgc", "runtime.newobject"][..], "go"),
        (&["heap.SmpAllocator.alloc", "heap.PageAllocator.alloc"], "zig"),
        (&["mal", "__bin_chunk", "__expand_heap"], "oldmalloc"),
        (&["__malloc_context", "__malloc_size_classes"], "mallocng"),
    ] {
        let report = musl(&format!("{}{main}", functions(names)), false);
        assert!(report.malloc.name != wrong, "{report:#?}");
        assert!(report.libc_allocator.is_none_or(|allocator| allocator.name != wrong), "{wrong}");
        assert!(report.language_allocator.is_none_or(|language| language.name == "unknown"), "{wrong}");
    }
    let go = musl(&format!("{}{main}", texts("go")), false);
    assert_eq!(go.language_allocator, None, "the names of Go's functions, without its table of them");
}

/// glibc's messages are proof where code hands them to one function.
#[test]
fn messages_of_glibc_are_no_proof_without_the_code_that_prints_them() {
    let source = format!("{}{OWN_MALLOC}", texts("glibc"));
    assert_eq!(musl(&source, true).malloc.name, "unknown");
    for flags in [&["-static", "-s"][..], &["-static-pie", "-s"]] {
        let stock = programs::native(programs::NORMAL, &[&["-O1"], flags].concat());
        assert_eq!(inspect(&stock).unwrap().malloc.name, "glibc", "{flags:?}");
    }
}

/// The notes of a graft, in a program that has no donor.
#[test]
fn notes_that_were_copied_are_no_proof() {
    let arch = Arch::X86_64;
    let graft = programs::grafted_program(
        arch,
        programs::NORMAL,
        &sample::graft(arch, &Recipe::default()),
        Mode::Static,
        false,
    );
    let at = memchr(&graft, b"donor=sample\nversion").unwrap() - 24;
    let note: Vec<String> = graft[at..at + 24 + 512].iter().map(u8::to_string).collect();
    // A bond note whose distances agree.
    let bond = "10,0,0,0, 16,0,0,0, 3,0,0,0, 97,108,108,111,103,114,97,102,116,0,0,0, \
                9,0,0,0, 5,0,0,0, 9,0,0,0, 5,0,0,0";
    let copy = format!(
        "__asm__(\".pushsection .note.allograft,\\\"a\\\",@note\\n.balign 4\\n.byte {}\\n.popsection\\n\
         .pushsection .note.allograft.bond,\\\"a\\\",@note\\n.balign 4\\n.byte {bond}\\n.popsection\");\n",
        note.join(",")
    );
    for strip in [false, true] {
        let report = musl(&format!("{copy}{OWN_MALLOC}"), strip);
        assert_eq!(report.malloc.name, "unknown", "{report:#?}");
        let report = musl(&format!("{copy}{}", programs::NORMAL), strip);
        assert!(["unknown", "mallocng"].contains(&report.malloc.name.as_str()), "{report:#?}");
    }
}

fn memchr(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

/// A dynamic program's own `malloc` is among the symbols that the loader reads, with section headers or without.
#[test]
fn a_malloc_of_the_programs_own_is_found_without_section_headers() {
    let own = "void *malloc(unsigned long n) { static char all[9999]; static int at; return all + (at += n); }\n\
               void free(void *p) {}\nint main(void) { free(malloc(3)); return 0; }\n";
    for style in ["gnu", "sysv", "both"] {
        let flags = ["-O1", "-fno-builtin", "-rdynamic", "-s", &format!("-Wl,--hash-style={style}")];
        let mut program = programs::native(own, &flags);
        assert_eq!(inspect(&program).unwrap().malloc.name, "unknown");
        program[40..48].fill(0);
        program[60..64].fill(0);
        let report = inspect(&program).unwrap();
        assert_eq!(report.malloc.name, "unknown", "{style}: {report:#?}");
    }
}

/// Without the loader, a library is known by its name alone: anything may have it in folders of the program's choice.
#[test]
fn a_library_in_a_folder_of_the_programs_choice_may_be_anything() {
    let source = "#include <math.h>\nint main(int n, char **a) { return sin(n) > 2; }\n";
    let report = inspect(&programs::native(source, &["-O0", "-lm", "-Wl,--no-as-needed", "-lm"])).unwrap();
    assert_eq!(report.malloc.name, "glibc");
    let report =
        inspect(&programs::native(source, &["-O0", "-Wl,--no-as-needed", "-lm", "-Wl,-rpath,$ORIGIN"])).unwrap();
    assert_eq!(report.malloc.name, "unknown", "{report:#?}");
}
