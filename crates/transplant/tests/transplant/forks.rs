//! Programs that fork without `fork`: by musl's `_Fork`, which calls no hook, and by a system call of their own.

use std::fs;
use std::path::Path;

use transplant::Refusal;

use crate::compiled::run;
use crate::{BLOB, graft};

/// The child allocates, and frees what its parent allocated.
const PROGRAM: &str = "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n#include <unistd.h>\n\
    #include <sys/wait.h>\npid_t _Fork(void);\n\
    static long system_call(void) { long r; __asm__ volatile (\"syscall\" : \"=a\"(r) : \"a\"(57) : \"rcx\", \"r11\",\
    \"memory\"); return r; }\n\
    int main(void) { int status = 1; char *text = malloc(100); (void)system_call; strcpy(text, \"ok fork\");\n\
    pid_t child = FORK(); if (!child) { char *own = malloc(5000); memset(own, 1, 5000); free(own); free(text); _exit(0); }\n\
    if (child < 0 || waitpid(child, &status, 0) != child || status) return 1;\n\
    text = realloc(text, 200); puts(text); free(text); return 0; }\n";

/// Links the program with Debian's musl. Without unused sections, neither `fork` nor the allocator's hook is in it.
fn linked(folder: &Path, fork: &str, position_independent: bool, unused: &str) -> Vec<u8> {
    let (source, object, out) = (folder.join("fork.c"), folder.join("fork.o"), folder.join("fork"));
    let musl = fixtures::debian_musl(fixtures::Arch::X86_64);
    fs::write(&source, PROGRAM.replace("FORK", fork)).unwrap();
    let flags = "-c -Os -fPIE -fno-builtin -fno-stack-protector -U_FORTIFY_SOURCE -nostdinc -isystem";
    let mut compile = fixtures::cc();
    compile.args(flags.split(' ')).arg(&musl.include).arg("-o").arg(&object).arg(&source);
    assert!(compile.status().unwrap().success());
    let mut linker = fixtures::link::gnu();
    linker.arg(unused);
    let nothing: [&str; 0] = [];
    let mut link = musl.link(position_independent).line(linker, [object], nothing, &out);
    assert!(link.status().unwrap().success());
    fs::read(out).unwrap()
}

#[test]
fn musls_own_way_without_hooks_needs_none() {
    let folder = tempfile::tempdir().unwrap();
    for unused in ["--gc-sections", "--no-gc-sections"] {
        for position_independent in [false, true] {
            let program = linked(folder.path(), "_Fork", position_independent, unused);
            for as_if_stripped in [false, true] {
                let graft = graft(&program, &BLOB, as_if_stripped).unwrap();
                let graft =
                    graft.unwrap_or_else(|why| panic!("{unused} {position_independent} {as_if_stripped}: {why}"));
                run(&graft.bytes, folder.path(), "fork");
            }
        }
    }
}

/// With `fork` the hook is there, and it is found. Before musl 1.2.2, fork made the system call itself and had no hook:
/// what does the same is refused.
#[test]
fn fork_needs_the_hook() {
    let folder = tempfile::tempdir().unwrap();
    let program = linked(folder.path(), "fork", false, "--gc-sections");
    let own = linked(folder.path(), "system_call", false, "--gc-sections");
    for as_if_stripped in [false, true] {
        assert!(graft(&program, &BLOB, as_if_stripped).unwrap().unwrap().plan.fork_hook);
        assert!(matches!(graft(&own, &BLOB, as_if_stripped).unwrap(), Err(Refusal::ForkHook)));
    }
}
