//! Linked executables: grafted, run, inspected, undone.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use fixtures::Arch;
use fixtures::program::Build;
use measure::case::Invocation;
use measure::executor::Executor;
use measure::process::Processes;

use crate::lab::{Lab, tool};
use crate::loaders::{ENDS, reports_at_exit};

/// A static program that copies its arguments into blocks and prints them, linked with stock musl.
pub(crate) fn program(lab: &Lab, name: &str) -> Vec<u8> {
    let source = "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n\
          int main(int count, char **arguments)\n{\n\
          \tfor (int i = 1; i < count; i++) {\n\
          \t\tchar *copy = malloc(strlen(arguments[i]) + 1);\n\t\tif (!copy)\n\t\t\treturn 9;\n\
          \t\tputs(strcpy(copy, arguments[i]));\n\t\tcopy = realloc(copy, 100000);\n\t\tfree(copy);\n\t}\n\
          \treturn count == 1 ? 7 : 0;\n}\n";
    let path = Build::PLAIN.program(&lab.path(""), name, source);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    fs::read(path).unwrap()
}

fn output(program: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(program).args(arguments).output().unwrap();
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

/// A trial in which nothing is printed, or which fails, is not shown as a proof; a second graft says what it replaces.
#[test]
fn a_trial_says_how_much_it_proves() {
    let lab = Lab::new();
    program(&lab, "server");
    let silent = lab.run(["graft", "server", "--try", "--"]).exits(0).out;
    assert!(silent.contains("the same 0 bytes; both print nothing, which proves little"), "{silent}");
    let telling = lab.run(["graft", "server", "--donor", "mimalloc", "--try", "--", "words"]).exits(0).out;
    assert!(telling.contains("exit status: 0 and the same 6 bytes\n"), "{telling}");
    assert!(telling.contains(" in place of snmalloc "), "{telling}");
}

/// A program that has a donor as data, as a compiler with its own libc.a has, was taken for a graft.
#[test]
fn a_donor_among_the_data_of_a_program_is_no_graft() {
    let lab = Lab::new();
    lab.run(["emit", "--target", "x86_64-linux-musl", "--donor", "mimalloc", "-o", "donor.o"]).exits(0);
    let source = format!(
        "#include <stdlib.h>\n__asm__(\".section .rodata\\n.globl data\\ndata: .incbin \\\"{}\\\"\\n.text\");\n\
         extern const char data[];\nint main(void) {{ free(realloc(malloc(9), 99)); return data[0] != 0x7f; }}\n",
        lab.path("donor.o").display()
    );
    let stock = fs::read(Build::PLAIN.program(&lab.path(""), "program", &source)).unwrap();
    lab.run(["inspect", "program", "--expect", "mallocng"]).exits(0);
    lab.changes_nothing(0, ["undo", "program"]);
    lab.run(["graft", "program", "--try"]).exits(0);
    lab.run(["inspect", "program", "--expect", "snmalloc"]).exits(0);
    lab.run(["verify", "program"]).exits(0);
    lab.run(["undo", "program"]).exits(0);
    assert!(fs::read(lab.path("program")).unwrap() == stock);
}

/// strip clears the program headers of stock, which a graft does not use. They may be in the segment with the code.
#[test]
fn a_graft_that_was_stripped_later_is_whole() {
    let lab = Lab::new();
    for layout in [&[][..], &["-z", "noseparate-code"]] {
        let build = Build { link: layout, ..Build::PLAIN };
        build.program(
            &lab.path(""),
            "stock",
            "#include <stdlib.h>\nint main(void) { free(realloc(malloc(9), 99)); return 0; }\n",
        );
        for donor in donors::all().iter().filter(|donor| donor.has_blob(Arch::X86_64)) {
            lab.run(["graft", "stock", "-o", "graft", "--donor", donor.name]).exits(0);
            tool(Command::new("strip").arg("-s").arg(lab.path("graft")));
            let ran = lab.run(["verify", "graft", "--stock", "stock"]);
            assert!(ran.exits(0).out.contains("self-test: passed"), "{}, {layout:?}", donor.name);
            lab.run(["inspect", "graft", "--expect", donor.name]).exits(0);
            fs::remove_file(lab.path("graft")).unwrap();
        }
    }
}

/// Stock and graft are in memory once each, however large: the test runs from the graft's own bytes.
#[test]
fn a_large_program_is_in_memory_twice_at_most() {
    const SIZE: u64 = 120 << 20;
    let lab = Lab::new();
    program(&lab, "stock");
    fs::File::create(lab.path("information")).and_then(|file| file.set_len(SIZE)).unwrap();
    let mut add = Command::new("objcopy");
    tool(add.args(["--add-section", ".debug_more=information", "stock", "large"]).current_dir(lab.path("")));
    let invocation = Invocation {
        program: env!("CARGO_BIN_EXE_allograft").into(),
        // In place, a file that was written a moment ago is read once more.
        arguments: vec!["graft".into(), lab.path("large").into(), "-o".into(), lab.path("graft").into()],
        ..Invocation::default()
    };
    let run = Processes::default().memory(&invocation, Duration::from_secs(600)).unwrap();
    let peak = run.memory.unwrap().peak_bytes;
    assert!((SIZE..2 * SIZE + (SIZE >> 1)).contains(&peak), "{} MB", peak >> 20);
    lab.run(["inspect", "graft", "--expect", "snmalloc"]).exits(0);
}

#[test]
fn statistics_are_written_at_exit_with_and_without_symbols() {
    let lab = Lab::new();
    for (position_independent, link) in
        [(false, &[][..]), (false, &["-s"]), (true, &["-s"]), (false, &["--gc-sections"])]
    {
        Build { position_independent, link, ..Build::PLAIN }.program(&lab.path(""), "stock", ENDS);
        for donor in donors::all().iter().filter(|donor| donor.has_blob(Arch::X86_64)) {
            let ran = lab.run(["graft", "stock", "-o", "graft", "--json", "--donor", donor.name]).exits(0);
            assert_eq!(ran.json()["hosts"][0]["process_end"], true);
            reports_at_exit(&lab.path("graft"), &format!("{}, {position_independent}, {link:?}", donor.name));
            lab.run(["verify", "graft", "--stock", "stock"]).exits(0);
            fs::remove_file(lab.path("graft")).unwrap();
        }
    }
}

#[test]
fn grafted_in_place_and_given_back() {
    let lab = Lab::new();
    let stock = program(&lab, "echo");
    let path = lab.path("echo");
    assert!(lab.changes_nothing(0, ["graft", "echo", "--dry-run"]).out.contains("would graft"));
    let ran = lab.run(["graft", "echo", "--json", "--set", "purge_delay=0", "--try", "--", "one", "two"]).exits(0);
    let host = &ran.json()["hosts"][0];
    assert_eq!(host["action"], "grafted");
    assert_eq!(host["donor"]["options"], "purge_delay=0");
    let tried: Vec<&str> = host["tried"].as_array().unwrap().iter().filter_map(|tried| tried.as_str()).collect();
    assert_eq!(tried[0], "self-test: passed");
    assert!(tried[1].contains("exit status: 0 and the same 8 bytes"), "{tried:?}");
    assert_eq!(lab.names(), ["echo", "echo.allograft-stock", "echo.allograft.json"]);
    assert_eq!(output(&path, &["three"]), (Some(0), "three\n".to_owned()));
    assert_eq!(output(&path, &[]), (Some(7), String::new()));
    let told = Command::new(&path).env("ALLOGRAFT_VERBOSE", "1").output().unwrap();
    assert!(String::from_utf8_lossy(&told.stderr).contains("options=purge_delay=0"), "{told:?}");
    lab.run(["inspect", "echo", "--expect", "snmalloc"]).exits(0);
    assert!(lab.run(["verify", "echo"]).exits(0).out.contains("self-test: passed"));
    assert!(lab.changes_nothing(0, ["graft", "echo", "--set", "purge_delay=0"]).out.contains("unchanged"));
    for donor in donors::all().iter().filter(|donor| donor.has_blob(Arch::X86_64)) {
        lab.run(["graft", "echo", "--donor", donor.name]).exits(0);
        assert_eq!(output(&path, &["three"]), (Some(0), "three\n".to_owned()), "{}", donor.name);
        lab.run(["inspect", "echo", "--expect", donor.name]).exits(0);
        assert!(lab.run(["verify", "echo"]).exits(0).out.contains("self-test: passed"), "{}", donor.name);
    }
    lab.run(["undo", "echo"]).exits(0);
    assert!(fs::read(&path).unwrap() == stock);
    assert_eq!(lab.names(), ["echo"]);
}

/// The donor in it cannot call libc's `pthread_create`.
#[test]
fn an_option_that_needs_a_thread_is_refused() {
    let lab = Lab::new();
    program(&lab, "echo");
    let ran = lab.changes_nothing(2, ["graft", "echo", "--set", "purge_period=50"]);
    assert!(ran.err.contains("`purge_period` needs a thread"), "{}", ran.err);
    assert!(ran.err.contains("a linked executable"), "{}", ran.err);
    lab.run(["graft", "echo", "--set", "purge_period=0"]).exits(0);
}

#[test]
fn elsewhere_with_its_mode_and_the_same_bytes_each_time() {
    let lab = Lab::new();
    let stock = program(&lab, "echo");
    lab.run(["graft", "echo", "-o", "one"]).exits(0);
    lab.run(["graft", "echo", "-o", "other"]).exits(0);
    assert!(fs::read(lab.path("echo")).unwrap() == stock);
    assert!(fs::read(lab.path("one")).unwrap() == fs::read(lab.path("other")).unwrap());
    assert_eq!(fs::metadata(lab.path("one")).unwrap().mode() & 0o7777, 0o755);
    assert_eq!(output(&lab.path("one"), &["a"]).1, "a\n");
    // A graft without its stock file beside it is not taken for stock.
    lab.changes_nothing(3, ["graft", "one"]).says(&["carries a graft already", "help: "]);
    lab.changes_nothing(3, ["undo", "one"]).says(&["no backup"]);
}

#[test]
fn what_a_graft_does_differently_keeps_it_from_its_place() {
    let lab = Lab::new();
    let mut bytes = program(&lab, "echo");
    // Programs may look for appended data at the end of the file.
    bytes.extend(b"PK\x03\x04 and so on");
    lab.put("echo", &bytes);
    lab.changes_nothing(3, ["graft", "echo"]).says(&["appended", "help: "]);
}

#[test]
fn running_programs_and_other_names_keep_stock() {
    let lab = Lab::new();
    let stock = program(&lab, "echo");
    fs::hard_link(lab.path("echo"), lab.path("other")).unwrap();
    lab.run(["graft", "echo"]).exits(0).says(&["hard links"]);
    assert!(fs::read(lab.path("other")).unwrap() == stock);
}

#[test]
fn a_program_whose_own_code_can_be_written_is_grafted_and_verified() {
    let lab = Lab::new();
    let source = "#include <stdlib.h>\n__asm__(\".pushsection .patched,\\\"awx\\\",@progbits\\n.byte 0xc3\\n.popsection\");\n\
                  int main(void) { free(realloc(malloc(10), 1000)); return 0; }\n";
    let path = Build::PLAIN.program(&lab.path(""), "writable", source);
    lab.run(["graft", "writable"]).exits(0);
    assert_eq!(output(&path, &[]), (Some(0), String::new()));
    let verified = lab.run(["verify", "writable"]).exits(0).out;
    assert!(
        verified.contains("only the program's own segment") && verified.contains("self-test: passed"),
        "{verified}"
    );
}

/// A program's own function around musl's malloc is not an allocator of its own, with symbols or without.
#[test]
fn a_wrapper_around_malloc_is_grafted_with_symbols_and_without() {
    let source = "#include <stdlib.h>\n#include <unistd.h>\nvoid *__libc_malloc(size_t);\nstatic volatile int calls;\n\
                  void *malloc(size_t n)\n{\n\tcalls++;\n\tvoid *block = __libc_malloc(n);\n\tif (block)\n\t\tcalls++;\n\treturn block;\n}\n\
                  int main(void)\n{\n\tvoid *volatile block = malloc(10);\n\tfree(realloc(block, 1000));\n\treturn calls;\n}\n";
    for link in [[].as_slice(), &["-s"]] {
        let lab = Lab::new();
        let path = Build { link, ..Build::PLAIN }.program(&lab.path(""), "wrapped", source);
        assert_eq!(output(&path, &[]).0, Some(2), "{link:?}: stock");
        lab.run(["graft", "wrapped"]).exits(0);
        assert_eq!(output(&path, &[]).0, Some(2), "{link:?}: the wrapper still counts");
        lab.run(["verify", "wrapped"]).exits(0);
    }
}

#[test]
fn no_environment_keeps_a_graft_from_running_the_program() {
    let lab = Lab::new();
    let stock = program(&lab, "echo");
    lab.run(["graft", "echo"]).exits(0);
    let graft = fs::read(lab.path("echo")).unwrap();
    assert!(!contains(&graft, b"ALLOGRAFT_SELF_TEST"), "the graft knows a variable for its self-test");
    // Earlier releases used this value of the variable: the beginning of the stock file's checksum, made odd.
    let checksum = u64::from_str_radix(&hosts::sha256(&stock)[..16], 16).unwrap();
    for value in [format!("{checksum:x}"), format!("{:x}", checksum | 1), "1".to_owned()] {
        let ran = Command::new(lab.path("echo")).arg("a").env("ALLOGRAFT_SELF_TEST", value).output().unwrap();
        assert_eq!((ran.status.code(), ran.stdout.as_slice()), (Some(0), b"a\n".as_slice()));
    }
}

fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|window| window == wanted)
}
/// The donor's constants in a Rust program belong to its `malloc`, not to an allocator of Rust's own.
#[test]
fn a_variant_of_an_allocator_is_not_taken_for_another_one() {
    let lab = Lab::new();
    let musl = fixtures::debian_musl(Arch::X86_64);
    let source = lab.put(
        "program.c",
        b"#include <stdlib.h>\nvoid rust_eh_personality(void) {}\nvoid *__rust_alloc(unsigned long size) { return malloc(size); }\n\
          int main(void) { free(realloc(__rust_alloc(10), 1000)); return 0; }\n",
    );
    let (object, at) = (lab.path("program.o"), |file: &str| musl.libdir.join(file));
    let mut compile = fixtures::cc();
    tool(
        compile
            .args(["-O1", "-fno-pie", "-c", "-o"])
            .args([&object, &source])
            .arg("-nostdinc")
            .arg("-isystem")
            .arg(&musl.include),
    );
    for donor in ["mimalloc", "mimalloc3", "mimalloc-secure", "snmalloc", "snmalloc-checks", "hardened-light"] {
        lab.libc("libc.a");
        lab.run(["graft", "libc.a", "--donor", donor]).exits(0);
        let mut link = Command::new("ld");
        link.args(["-static", "-o"]).arg(lab.path("program")).args([at("crt1.o"), at("crti.o"), object.clone()]);
        tool(link.args([lab.path("libc.a"), at("crtn.o")]));
        for stripped in [false, true] {
            if stripped {
                tool(Command::new("strip").arg("-s").arg(lab.path("program")));
            }
            let report = lab.run(["inspect", "program", "--json"]).exits(0).json();
            let file = &report["files"][0];
            assert_eq!(
                (&file["malloc"]["name"], &file["language_allocator"]),
                (&donor.into(), &serde_json::Value::Null)
            );
        }
        lab.run(["undo", "libc.a"]).exits(0);
    }
}

/// For a running program, the kernel shows the name by which its file was started, whatever file has that name now.
#[test]
fn a_running_program_keeps_its_name() {
    const WAITS: &str = "#include <stdlib.h>\n#include <unistd.h>\nint main(void)\n{\n\
        \tchar text[1], *volatile block = malloc(10);\n\tfree(block);\n\twrite(1, \"x\", 1);\n\tread(0, text, 1);\n\treturn 0;\n}\n";
    let lab = Lab::new();
    Build::PLAIN.program(&lab.path(""), "waits", WAITS);
    for command in ["graft", "undo"] {
        let mut running = Command::new(lab.path("waits")).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        running.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        lab.run([command, "waits"]).exits(0);
        let named = fs::read_link(format!("/proc/{}/exe", running.id())).unwrap();
        assert_eq!(named, lab.path("waits (deleted)"), "after {command}");
        drop(running.stdin.take());
        assert!(running.wait().unwrap().success());
    }
}
