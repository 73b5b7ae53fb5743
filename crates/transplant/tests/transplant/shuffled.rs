//! Functions in any order: lld's `--shuffle-sections`, mold, and compilers that put no two functions where others do.

use std::fs;
use std::path::Path;

use crate::graft;

use crate::BLOB;
use crate::compiled::{grafted, run};

/// Allocates by malloc and realloc only, so that calloc is not linked and nothing calls __malloc_allzerop. `sscanf`
/// takes a variable number of arguments, and ends with a call of __stack_chk_fail.
const PROGRAM: &str = "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n\
    int main(int count, char **words) { int found = 0; char *text = malloc(count * 100), *other = malloc(5000);\n\
    if (!text || !other || !(text = realloc(text, 3000))) return 1;\n\
    memset(text, 1, 3000); free(other); free(text); sscanf(\"42\", \"%d\", &found);\n\
    puts(found == 42 && words ? \"ok shuffled\" : \"bad\"); return found != 42; }\n";

/// Links the program with Debian's musl, its sections in the order that `seed` chooses.
fn shuffled(folder: &Path, seed: u32) -> Vec<u8> {
    let (source, object, out) = (folder.join("shuffled.c"), folder.join("shuffled.o"), folder.join("shuffled"));
    let musl = fixtures::debian_musl(fixtures::Arch::X86_64);
    if !object.exists() {
        fs::write(&source, PROGRAM).unwrap();
        let flags = "-c -Os -fPIE -fno-builtin -fno-stack-protector -U_FORTIFY_SOURCE -nostdinc -isystem";
        let mut compile = fixtures::cc();
        compile.args(flags.split(' ')).arg(&musl.include).arg("-o").arg(&object).arg(&source);
        assert!(compile.status().unwrap().success());
    }
    let mut linker = fixtures::link::lld();
    linker.arg(format!("--shuffle-sections=*={seed}"));
    let nothing: [&str; 0] = [];
    let mut link = musl.link(seed % 2 == 1).line(linker, [object], nothing, &out);
    assert!(link.status().unwrap().success());
    fs::read(out).unwrap()
}

/// Fills gaps between functions with zeros, as mold does, in place of lld's `int3`.
fn with_zeros(mut program: Vec<u8>) -> Vec<u8> {
    let mut at = 0;
    while at < program.len() {
        let gap = program[at..].iter().take_while(|byte| **byte == 0xcc).count();
        if (2..16).contains(&gap) && (at + gap) % 16 == 0 {
            program[at..at + gap].fill(0);
        }
        at += gap.max(1);
    }
    program
}

/// Each function is found at the start that its symbol gives: nothing calls some of them, and others fall through into
/// the next function.
#[test]
fn sections_in_any_order() {
    let folder = tempfile::tempdir().unwrap();
    for seed in 1..=10 {
        let program = shuffled(folder.path(), seed);
        let zeros = with_zeros(program.clone());
        assert!(program != zeros, "there is no gap");
        let with = grafted(&program, folder.path(), "shuffled");
        for program in [program, zeros] {
            let stripped = graft(&program, &BLOB, true).unwrap().unwrap_or_else(|why| panic!("{seed}: {why}"));
            let wrong: Vec<_> = stripped.plan.entries.iter().filter(|entry| !with.entries.contains(entry)).collect();
            assert!(wrong.is_empty(), "{seed}: {wrong:?}, where symbols say {:?}", with.entries);
            if seed <= 4 {
                run(&stripped.bytes, folder.path(), "shuffled");
            }
        }
    }
}
