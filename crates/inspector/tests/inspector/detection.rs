//! `inspect` on archives, programs and libraries, stripped ones included.

use fixtures::sample::{self, Recipe};
use inspector::{Arch as ReportArch, GraftMethod, Hook, Kind, Libc, Link, Report, Source, Strings, inspect};
use zigcc::Arch;

use crate::programs::{self, Mode, NEVER_FREES, NORMAL, OWN_MALLOC};

fn sources(report: &Report) -> Vec<Source> {
    report.malloc.evidence.iter().map(|evidence| evidence.source).collect()
}

fn evidence(report: &Report) -> String {
    report.malloc.evidence.iter().map(|evidence| evidence.detail.as_str()).collect::<Vec<_>>().join("\n")
}

#[test]
fn stock_programs_are_known_with_and_without_symbols() {
    for (arch, name) in [(Arch::X86_64, ReportArch::X86_64), (Arch::Aarch64, ReportArch::Aarch64)] {
        let libc = fixtures::debian_musl(arch).libc;
        for (mode, link) in [(Mode::Static, Link::Static), (Mode::StaticPie, Link::StaticPie)] {
            for strip in [false, true] {
                let program = programs::musl_program(arch, NORMAL, &libc, mode, strip);
                let report = inspect(&program).unwrap();
                assert_eq!((report.kind, report.arch, report.link), (Kind::Executable, name, Some(link)));
                assert_eq!((report.libc, report.malloc.name.as_str()), (Libc::Musl, "mallocng"), "{mode:?} {strip}");
                let expected: &[Source] =
                    if strip { &[Source::Constants, Source::Code] } else { &[Source::Symbols, Source::Constants] };
                assert_eq!(sources(&report), expected);
                let strings = if strip { Strings::Unknown } else { Strings::Stock };
                assert_eq!((&report.language_allocator, report.strings), (&None, strings));
                assert_eq!((&report.libc_allocator, report.graft.way), (&None, GraftMethod::Graft));
                // It does not fork, so nothing refers to the hook by name; mallocng's file contains it anyway.
                let hook = if strip { Hook::Unknown } else { Hook::Real };
                assert_eq!((report.facts.malloc_atfork, report.facts.symbols), (hook, !strip));
                assert_eq!(report.facts.thread_stack, Some(128 << 10));
                assert_eq!(report.facts.position_independent, Some(mode == Mode::StaticPie));
            }
        }
    }
}

/// Since musl 1.2.1 a byte says whether to lock. oldmalloc's `malloc` is weak since 1.2.2, so that a program with the
/// table may bring its own.
#[test]
fn oldmalloc_is_known_in_stripped_programs_where_its_malloc_is_strong() {
    let libc = fixtures::debian_musl(Arch::X86_64).libc;
    for (kind, name) in [("int", "oldmalloc"), ("signed char", "unknown")] {
        let source = programs::OLDMALLOC.replace("KIND", kind).replace("COUNT", "count_of_threads");
        for mode in [Mode::Static, Mode::StaticPie] {
            let report = inspect(&programs::musl_program(Arch::X86_64, &source, &libc, mode, true)).unwrap();
            assert_eq!((report.malloc.name.as_str(), report.libc), (name, Libc::Musl), "{kind}: {report:#?}");
        }
        for flags in ["-O1 -fno-pie -no-pie", "-O2 -fno-pie -no-pie", "-O2 -fPIE -static-pie", "-O3 -fPIE -static-pie"]
        {
            let flags: Vec<&str> =
                flags.split(' ').chain(["-fno-builtin", "-nostartfiles", "-nodefaultlibs"]).collect();
            let flags = [flags, vec!["-fno-stack-protector", "-static", "-s", "-Wl,-emain"]].concat();
            let report = inspect(&programs::native(&source, &flags)).unwrap();
            assert_eq!(report.malloc.name, name, "{kind} {flags:?}: {report:#?}");
        }
    }
}

#[test]
fn grafted_programs_say_so_by_their_note() {
    // Compiler support functions, which libc does not contain, are built with the conformance programs.
    for arch in fixtures::DEBIAN.into_iter().filter(|arch| conformance::is_built_for(*arch)) {
        let graft = sample::graft(arch, &Recipe { patience: Some(7), ..Recipe::default() });
        for mode in [Mode::Static, Mode::StaticPie] {
            for strip in [false, true] {
                let mut program = programs::grafted_program(arch, NORMAL, &graft, mode, strip);
                for without_sections in [false, true] {
                    if without_sections {
                        // As `strip --strip-sections` does it: e_shoff and e_shnum, where EI_CLASS says that they are.
                        let (offset, number) = if program[4] == 2 { (40..48, 60..62) } else { (32..36, 48..50) };
                        program[offset].fill(0);
                        program[number].fill(0);
                    }
                    let report = inspect(&program).unwrap();
                    assert_eq!(report.malloc.name, "sample", "{mode:?} {strip} {without_sections}");
                    assert_eq!(report.malloc.version.as_deref(), Some("1.2"));
                    assert_eq!(sources(&report)[0], Source::Note);
                    assert!(evidence(&report).contains("patience=7"));
                    assert_eq!((report.libc, report.strings), (Libc::Musl, Strings::Stock));
                    assert!(report.link.is_some());
                }
            }
        }
    }
}

#[test]
fn a_program_with_its_own_malloc_is_not_taken_for_libcs() {
    for arch in [Arch::X86_64, Arch::Aarch64] {
        let libc = fixtures::debian_musl(arch).libc;
        let graft = sample::graft(arch, &Recipe::default());
        for (mode, strip) in [(Mode::Static, false), (Mode::Static, true), (Mode::StaticPie, true)] {
            let report = inspect(&programs::musl_program(arch, OWN_MALLOC, &libc, mode, strip)).unwrap();
            assert_eq!((report.malloc.name.as_str(), report.libc), ("unknown", Libc::Musl), "{report:#?}");
            let said = if strip { "mallocng is in the file" } else { "strong" };
            assert!(evidence(&report).contains(said), "{report:#?}");
            let libcs = report.libc_allocator.map(|allocator| allocator.name);
            assert_eq!(libcs.as_deref(), (!strip).then_some("mallocng"));

            let report = inspect(&programs::grafted_program(arch, OWN_MALLOC, &graft, mode, strip)).unwrap();
            assert_eq!(report.malloc.name, "unknown", "{report:#?}");
            assert!(evidence(&report).contains("sample 1.2"), "{report:#?}");
            assert!(evidence(&report).contains("the program brings its own"), "{report:#?}");
            assert_eq!(report.libc_allocator.map(|allocator| allocator.name).as_deref(), Some("sample"));
        }
    }
}

#[test]
fn a_malloc_of_the_programs_own_may_be_weak() {
    for arch in [Arch::X86_64, Arch::Aarch64] {
        let libc = fixtures::debian_musl(arch).libc;
        let source = OWN_MALLOC.replace("void *malloc(", "__attribute__((weak)) void *malloc(");
        let report = inspect(&programs::musl_program(arch, &source, &libc, Mode::Static, false)).unwrap();
        assert_eq!(report.malloc.name, "unknown", "{report:#?}");
        assert_eq!(report.libc_allocator.map(|allocator| allocator.name).as_deref(), Some("mallocng"));
    }
}

#[test]
fn an_allocator_in_a_rust_program_is_not_said_to_be_its_own_without_proof() {
    let source = "#include <stdio.h>\n\
        void rust_eh_personality(void) {}\n\
        const char *volatile a = \"mimalloc: error: \", *volatile b = \"mimalloc: warning: \";\n\
        int main(void) { puts(a); return puts(b) < 0; }\n";
    let report = inspect(&programs::native(source, &["-O1"])).unwrap();
    let language = report.language_allocator.unwrap();
    assert_eq!((report.malloc.name.as_str(), language.name.as_str()), ("glibc", "unknown"));
    assert!(language.evidence[0].detail.contains("mimalloc"), "{language:?}");
    let without = source.replace("mimalloc: error: ", "");
    assert_eq!(inspect(&programs::native(&without, &["-O1"])).unwrap().language_allocator, None);
}

#[test]
fn a_graft_without_the_second_note_is_believed_only_with_symbols() {
    let arch = Arch::X86_64;
    let graft = sample::graft(arch, &Recipe { define: Some("WITHOUT_BOND"), ..Recipe::default() });
    for (source, strip, name) in [(NORMAL, false, "sample"), (NORMAL, true, "unknown"), (OWN_MALLOC, true, "unknown")] {
        let report = inspect(&programs::grafted_program(arch, source, &graft, Mode::Static, strip)).unwrap();
        assert_eq!(report.malloc.name, name, "{report:#?}");
    }
}

#[test]
fn a_program_without_an_allocator_says_so_where_it_has_symbols() {
    let libc = fixtures::debian_musl(Arch::X86_64).libc;
    let source = "int main(void) { return 0; }\n";
    for (strip, name) in [(false, "none"), (true, "unknown")] {
        let report = inspect(&programs::musl_program(Arch::X86_64, source, &libc, Mode::Static, strip)).unwrap();
        assert_eq!(report.malloc.name, name, "{report:#?}");
    }
}

#[test]
fn a_program_that_never_frees_has_only_musls_bump_allocator() {
    let libc = fixtures::debian_musl(Arch::X86_64).libc;
    let report = inspect(&programs::musl_program(Arch::X86_64, NEVER_FREES, &libc, Mode::Static, false)).unwrap();
    assert_eq!(report.malloc.name, "unknown");
    assert!(evidence(&report).contains("bump allocator"), "{report:?}");
}

#[test]
fn glibc_is_known_linked_either_way() {
    let dynamic = inspect(&programs::native(NORMAL, &["-O1"])).unwrap();
    assert_eq!((dynamic.link, dynamic.libc), (Some(Link::Dynamic), Libc::Glibc));
    assert_eq!(dynamic.malloc.name, "glibc");
    assert!(evidence(&dynamic).contains("from libc.so.6 at run time"));
    assert!(dynamic.libc_version.unwrap().starts_with(">=2."));
    assert_eq!(dynamic.graft.way, GraftMethod::Graft);
    assert!(dynamic.graft.detail.contains("merges a donor into the program"), "{}", dynamic.graft.detail);
    for arguments in [&["-O1", "-static"][..], &["-O1", "-static", "-s"]] {
        let report = inspect(&programs::native(NORMAL, arguments)).unwrap();
        assert_eq!((report.link, report.libc), (Some(Link::Static), Libc::Glibc));
        assert_eq!(report.malloc.name, "glibc", "{arguments:?}");
    }
    // The messages that the releases with and without fastbins, and those before 2.29, do not share.
    let mut stripped = programs::native(NORMAL, &["-O1", "-static", "-s"]);
    for gone in [
        "malloc(): corrupted top size",
        "malloc_consolidate(): unaligned fastbin chunk detected",
        "free(): invalid next size (fast)",
        "corrupted size vs. prev_size while consolidating",
        "malloc(): unsorted double linked list corrupted",
    ] {
        let at = memchr::memmem::find(&stripped, gone.as_bytes()).unwrap_or_else(|| panic!("no `{gone}`"));
        stripped[at] = b'?';
    }
    for at in memchr::memmem::find_iter(&stripped.clone(), b"chunk detected\0") {
        stripped[at] = b'?';
    }
    let report = inspect(&stripped).unwrap();
    assert_eq!((report.malloc.name.as_str(), report.libc), ("glibc", Libc::Glibc), "{report:#?}");
    let report = inspect(&std::fs::read(fixtures::glibc()).unwrap()).unwrap();
    assert_eq!((report.kind, report.libc, report.malloc.name.as_str()), (Kind::Archive, Libc::Glibc, "glibc"));
}

/// Two marks that no other allocator has, and the name: then a library with a `malloc` is the allocator's. A library
/// around that allocator has its marks, too, and any file may have that name.
#[test]
fn a_library_is_an_allocators_by_its_marks_and_its_name() {
    let marks =
        "const char marks[] = \"Failed to initialise snmalloc.\\0Failed to initialise thread local allocator.\";\n";
    let malloc = "void *malloc(unsigned long n) { static char b[99]; return b + (n & 0); }\n";
    let name = |source: &str, soname: &str| {
        let soname = format!("-Wl,-soname,{soname}");
        let flags = ["-shared", "-fPIC", "-O1", "-fno-builtin", "-nostdlib", "-s", &soname];
        inspect(&programs::native(source, &flags)).unwrap().malloc.name
    };
    let both = format!("{marks}{malloc}");
    assert_eq!(name(&both, "libsnmallocshim.so"), "snmalloc");
    for (source, soname) in
        [(malloc, "libsnmallocshim.so"), (&both, "libwrapper.so"), (&both, "libmimalloc.so.2"), (&both, "libc.so.6")]
    {
        assert_eq!(name(source, soname), "unknown", "{soname}");
    }
    assert_eq!(name(marks, "libsnmallocshim.so"), "unknown", "no malloc");
}

#[test]
fn libraries_and_objects_that_have_no_malloc_say_so() {
    let library = inspect(&programs::native(NORMAL, &["-shared", "-fPIC"])).unwrap();
    assert_eq!((library.kind, library.link, library.malloc.name.as_str()), (Kind::Shared, None, "none"));
    let object = inspect(&programs::native(NORMAL, &["-c"])).unwrap();
    assert_eq!((object.kind, object.libc, object.malloc.name.as_str()), (Kind::Object, Libc::None, "none"));
    let empty = inspect(b"!<arch>\n").unwrap();
    assert_eq!((empty.kind, empty.arch, empty.malloc.name.as_str()), (Kind::Archive, ReportArch::None, "none"));
}

#[test]
fn a_dynamic_program_that_exports_another_malloc_is_not_glibcs() {
    let source = "void *malloc(unsigned long n) { static char all[9999]; static int at; return all + (at += n); }\n\
                  int main(void) { return !malloc(3); }\n";
    let report = inspect(&programs::native(source, &["-O0", "-fno-builtin", "-rdynamic"])).unwrap();
    assert_eq!((report.link, report.malloc.name.as_str()), (Some(Link::Dynamic), "unknown"));
}

#[test]
fn archives_are_known_by_who_is_taken() {
    for arch in fixtures::DEBIAN {
        let report = inspect(&sample::stock(arch)).unwrap();
        assert_eq!((report.libc, report.malloc.name.as_str(), report.link), (Libc::Musl, "mallocng", None));
        let report = inspect(&sample::graft(arch, &Recipe::default())).unwrap();
        assert_eq!((report.kind, report.malloc.name.as_str()), (Kind::Archive, "sample"));
        assert_eq!((report.malloc.version.as_deref(), report.strings), (Some("1.2"), Strings::Stock));
        let report = inspect(&sample::donor(arch, &Recipe::default())).unwrap();
        assert_eq!((report.kind, report.malloc.name.as_str()), (Kind::Object, "sample"));
    }
}

#[test]
#[ignore = "zig-musls: takes zig's musl for three architectures"]
fn zigs_archives_have_two_allocators() {
    for arch in fixtures::ZIG {
        // zig's holds both; the linker takes mallocng.
        let report = inspect(&std::fs::read(fixtures::zig_musl(arch)).unwrap()).unwrap();
        assert_eq!((report.libc, report.malloc.name.as_str()), (Libc::Musl, "mallocng"));
        assert!(evidence(&report).contains("oldmalloc is in member"), "{report:?}");
    }
}

#[test]
fn the_report_has_the_fields_of_the_contract() {
    let report = serde_json::to_value(inspect(&sample::stock(Arch::X86_64)).unwrap()).unwrap();
    let fields: Vec<&str> = report.as_object().unwrap().keys().map(String::as_str).collect();
    let contract = ["kind", "arch", "link", "libc", "malloc", "language_allocator", "strings"];
    assert_eq!(
        fields,
        [&contract[..], &["strings_evidence", "libc_version", "libc_allocator", "facts", "graft"]].concat()
    );
    assert_eq!((&report["facts"]["malloc_atfork"], &report["graft"]["way"]), (&"real".into(), &"graft".into()));
    assert_eq!(report["kind"], "archive");
    assert_eq!(report["arch"], "x86_64");
    assert_eq!(report["link"], serde_json::Value::Null);
    assert_eq!(report["strings"], "stock");
    let malloc: Vec<&str> = report["malloc"].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(malloc, ["name", "version", "evidence", "file"]);
    assert_eq!(report["malloc"]["evidence"][0]["source"], "symbols");
    assert_eq!(serde_json::to_value(Link::StaticPie).unwrap(), "static-pie");
}

#[test]
fn what_is_neither_is_refused_with_help() {
    for other in [&b"#!/bin/sh\n"[..], b"", b"!<thin>\n", b"\x7fELF"] {
        let error = inspect(other).unwrap_err();
        assert!(!error.to_string().is_empty() && !error.help().is_empty());
    }
    assert!(inspect(b"text file\n").unwrap_err().to_string().contains("`text fil`"));
}
