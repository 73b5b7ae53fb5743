//! Programs that read their own ELF header and program headers in memory, as LLVM's profile runtime does at exit.

use fixtures::Arch;
use fixtures::program::Build;

use crate::foreign_executables;
use crate::lab::Lab;

/// Reads the headers at the address where compiler-rt's `__llvm_write_binary_ids` does (InstrProfilingPlatformLinux.c).
const READER: &str = include_str!("headers.c");

/// Definitions before the reader. They vary the memory that has no bytes in the file, and the bytes of the file that
/// are not in memory.
const SHAPES: [(&str, &str); 4] = [
    ("small", ""),
    ("cleared", "#define CLEARED (40 << 20)\n"),
    ("sections", "#define SECTIONS \"3000000\"\n"),
    ("both", "#define CLEARED (3 << 20)\n#define SECTIONS \"100000\"\n"),
];

fn check(arch: Arch, link: &[&str], shapes: &[(&str, &str)]) {
    let tools = fixtures::emulator(Arch::Aarch64);
    let path = tools.as_deref().and_then(|emulator| emulator.parent()).map(|folder| folder.as_os_str());
    for (shape, defines) in shapes {
        for position_independent in [false, true] {
            let lab = Lab::new();
            let build = Build { arch, position_independent, link, ..Build::PLAIN };
            let program = build.program(&lab.path(""), "reader", &format!("{defines}{READER}"));
            let run = || {
                let output = fixtures::run(arch, &program).output().unwrap();
                (output.status.code(), String::from_utf8(output.stdout).unwrap())
            };
            let what = format!("{} {shape} {link:?} {position_independent}", arch.name());
            let stock = run();
            assert_eq!(stock.0, Some(0), "{what}: stock: {stock:?}");
            let grafted = foreign_executables::run(&lab, path, &["graft", "reader"]);
            assert!(grafted.status.success(), "{what}: {}", String::from_utf8_lossy(&grafted.stderr));
            let graft = run();
            // The graft has notes of its own, too.
            assert_eq!(graft.0, Some(0), "{what}: graft: {graft:?}");
            assert_ne!(graft.1, stock.1, "{what}");
            let verified = foreign_executables::run(&lab, path, &["verify", "reader"]);
            assert!(verified.status.success(), "{what}: {}", String::from_utf8_lossy(&verified.stdout));
        }
    }
}

#[test]
#[ignore = "minutes: ten seconds of processor time"]
fn a_program_finds_its_headers_where_the_elf_header_says() {
    for link in [["--build-id"].as_slice(), &["--build-id", "-s"], &["--build-id", "-z", "noseparate-code"]] {
        check(Arch::X86_64, link, &SHAPES);
    }
}

#[test]
#[ignore = "aarch64: runs under an emulator"]
fn so_does_one_for_aarch64() {
    for link in [["--build-id"].as_slice(), &["--build-id", "--no-rosegment", "-s"]] {
        check(Arch::Aarch64, link, &SHAPES[..2]);
    }
}

/// Data that nothing refers to must not add megabytes of zeros.
#[test]
fn a_large_program_that_does_not_read_its_headers_stays_small() {
    let lab = Lab::new();
    let source = "#include <stdlib.h>\nstatic char cleared[300 << 20];\n\
                  int main(int count, char **arguments)\n{\n\t(void)arguments;\n\tcleared[count] = 1;\n\
                  \tfree(realloc(malloc(10), 1000));\n\treturn cleared[count + 1];\n}\n";
    let program = Build::PLAIN.program(&lab.path(""), "large", source);
    let before = std::fs::metadata(&program).unwrap().len();
    lab.run(["graft", "large"]).exits(0);
    let after = std::fs::metadata(&program).unwrap().len();
    assert!(after - before < 2 << 20, "{before} {after}");
    assert!(std::process::Command::new(&program).status().unwrap().success());
    lab.run(["verify", "large"]).exits(0);
}
