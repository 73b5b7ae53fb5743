//! Libraries of dynamic programs: those that bring an allocator, wherever they lie and whatever they are called; and
//! those that look up malloc's family past the program.

use std::fs;
use std::path::Path;
use std::process::Command;

use fixtures::Ran;

use crate::dynamic::glibc;
use crate::lab::{Lab, tool};

/// An allocator that gives what only it can take.
const POOL: &str = "#include <stddef.h>\nvoid abort(void);\nstatic _Alignas(16) char pool[1 << 22];\nstatic size_t used;\n\
    void *malloc(size_t n) { char *p = pool + used; used += (n + 15) & ~(size_t)15; return p; }\n\
    void free(void *p) { if (p && ((char *)p < pool || (char *)p >= pool + sizeof pool)) abort(); }\n\
    void *calloc(size_t n, size_t m) { return malloc(n * m); }\n\
    void *realloc(void *p, size_t n)\n{\n\tchar *q = malloc(n);\n\tfor (size_t i = 0; p && i < n; i++) q[i] = ((char *)p)[i];\n\
    \treturn q;\n}\n";
const USER: &str = "#include <stdlib.h>\nint main(void) { free(malloc(1)); return 0; }\n";

/// Links a library of that name into a folder of the lab.
fn library(lab: &Lab, folder: &str, name: &str, source: &str) {
    fs::create_dir_all(lab.path(folder)).unwrap();
    glibc(lab, &format!("{folder}/{name}"), source, &["-shared", "-fPIC", &format!("-Wl,-soname,{name}"), "-ldl"]);
}

/// Links a program with a library of a folder; `more` says where it finds it.
fn user(lab: &Lab, source: &str, folder: &str, name: &str, more: &[&str]) {
    let (path, name) = (format!("-L{}", lab.path(folder).display()), format!("-l:{name}"));
    let flags = [&["-Wl,--no-as-needed", &path, &name], more].concat();
    glibc(lab, "user", source, &flags);
}

/// Runs allograft where the loader looks into a folder first.
fn run(lab: &Lab, folder: &str, words: &[&str]) -> Ran {
    lab.command().env("LD_LIBRARY_PATH", lab.path(folder)).args(words).output().unwrap().into()
}

const WAYS: [&[&str]; 2] = [&["graft", "user"], &["graft", "user", "--needed"]];

/// It may be found by LD_LIBRARY_PATH only: by the variable, it is known; without it, it is not known what the library
/// is.
#[test]
fn a_library_with_an_allocator_that_only_the_variable_finds() {
    let lab = Lab::new();
    library(&lab, "pool", "libpool.so", POOL);
    user(&lab, USER, "pool", "libpool.so", &[]);
    tool(Command::new(lab.path("user")).env("LD_LIBRARY_PATH", lab.path("pool")));
    lab.run(["emit", "--target", "x86_64-linux-gnu", "--as", "shared", "-o", "liballograft.so"]).exits(0);
    for words in WAYS {
        let before = lab.snapshot();
        let ran = run(&lab, "pool", words);
        assert_eq!(ran.code, 3, "{ran:?}");
        ran.says(&["takes its malloc from `", "libpool.so`, which is another allocator's", "help: "]);
        let ran = run(&lab, "none", words);
        assert_eq!(ran.code, 3, "{ran:?}");
        ran.says(&["is not known: `libpool.so`, which ", "is not in this root", "help: ", "LD_LIBRARY_PATH"]);
        assert!(lab.snapshot() == before, "nothing was changed");
    }
    // Without an allocator, it is known by the variable, too.
    library(&lab, "pool", "libpool.so", "int pool(void) { return 1; }\n");
    run(&lab, "pool", WAYS[0]).exits(0);
    run(&lab, "pool", &["inspect", "user", "--expect", "snmalloc"]).exits(0);
}

/// The file that starts programs is libc, whatever its name; other files are not.
#[test]
fn a_library_with_an_allocator_that_has_libcs_name() {
    let lab = Lab::new();
    for name in ["libc.pool.so", "ld-musl-pool.so.1"] {
        library(&lab, "pool", name, POOL);
        user(&lab, USER, "pool", name, &[&format!("-Wl,-rpath,{}", lab.path("pool").display())]);
        tool(&mut Command::new(lab.path("user")));
        for words in WAYS {
            lab.changes_nothing(3, words).says(&["takes its malloc from `", name, "another allocator's", "help: "]);
        }
    }
}

/// Takes a block, returns a different one, and says where its `free` is.
const PLUGIN: &str = "#define _GNU_SOURCE\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n\
    void *give_back = free;\n\
    char *exchange(char *text)\n{\n\
    \ttext = realloc(text, 5000);\n\tchar *other = strdup(text), *line = 0;\n\tsize_t room = 0;\n\tfree(text);\n\
    \tFILE *stream = fmemopen(other, strlen(other), \"r\");\n\tif (getline(&line, &room, stream) < 1) abort();\n\
    \tfclose(stream);\n\tfree(other);\n\treturn line;\n}\n";
/// Loads the plugin so that it looks into its own libraries first. A program does that, and one of its libraries.
const LOADS: &str = "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n\
    static int loads(const char *plugin, int when)\n{\n\
    \tvoid *handle = dlopen(plugin, when | RTLD_DEEPBIND);\n\tif (!handle) return 1;\n\
    \tchar *(*exchange)(char *) = (char *(*)(char *))dlsym(handle, \"exchange\");\n\
    \tchar *text = exchange(strdup(\"one\\ntwo\"));\n\tint wrong = strcmp(text, \"one\\n\") != 0;\n\tfree(text);\n\
    \tvoid **give_back = dlsym(handle, \"give_back\");\n\
    \treturn wrong || *give_back != dlsym(RTLD_DEFAULT, \"free\");\n}\n";
/// As Python's ctypes does: libc's functions by libc's handle.
const BY_HANDLE: &str = "static int by_handle(void)\n{\n\
    \tvoid *libc = dlopen(\"libc.so.6\", RTLD_LAZY);\n\tif (!libc) return 1;\n\
    \tchar *(*copy)(const char *) = (char *(*)(const char *))dlsym(libc, \"strdup\");\n\
    \tvoid (*give)(void *) = (void (*)(void *))dlsym(libc, \"free\");\n\
    \tvoid *(*take)(size_t) = (void *(*)(size_t))dlsym(libc, \"malloc\");\n\
    \tgive(copy(\"x\"));\n\tgive(malloc(100));\n\tfree(take(100000));\n\
    \treturn (void *)give != dlsym(RTLD_DEFAULT, \"free\");\n}\n";

fn works(program: &Path, plugin: &Path, preload: Option<&Path>) {
    let mut command = Command::new(program);
    command.arg(plugin).envs(preload.map(|preload| ("LD_PRELOAD", preload)));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}: {output:?}", program.display());
    assert_eq!(String::from_utf8_lossy(&output.stdout), "one\ntwo\n");
}

/// libc's own table of symbols points to the donor: a merged program, one that loads its donor, and one with the donor
/// preloaded work as stock does.
#[test]
fn blocks_that_cross_to_who_looks_into_libc_first() {
    let lab = Lab::new();
    library(&lab, "libraries", "plugin.so", PLUGIN);
    library(
        &lab,
        "libraries",
        "libhost.so",
        &format!("{LOADS}int host(const char *p) {{ return loads(p, RTLD_NOW); }}\n"),
    );
    let main = "int host(const char *);\nint main(int count, char **words)\n{\n\
        \tif (count < 2 || loads(words[1], RTLD_LAZY) || host(words[1]) || by_handle()) return 3;\n\
        \tputs(\"one\\ntwo\");\n\treturn 0;\n}\n";
    let source = format!("{LOADS}{BY_HANDLE}{main}");
    let path = format!("-Wl,-rpath,{}", lab.path("libraries").display());
    user(&lab, &source, "libraries", "libhost.so", &[&path, "-ldl"]);
    let plugin = lab.path("libraries/plugin.so");
    works(&lab.path("user"), &plugin, None);
    lab.run(["emit", "--target", "x86_64-linux-gnu", "--as", "shared", "-o", "liballograft.so"]).exits(0);
    works(&lab.path("user"), &plugin, Some(&lab.path("liballograft.so")));
    for more in [&["graft", "user"][..], &["graft", "user", "--needed"]] {
        let ran = lab.run(more).exits(0);
        assert!(!ran.err.contains("RTLD_DEEPBIND"), "{ran:?}");
        works(&lab.path("user"), &plugin, None);
        lab.run(["undo", "user"]).exits(0);
    }
}

/// A preloaded donor that does not serve the program leaves libc's table alone.
#[test]
fn a_program_with_an_allocator_of_its_own_is_left_alone_by_a_preloaded_donor() {
    let lab = Lab::new();
    let main = "#include <dlfcn.h>\n#include <string.h>\nint main(void)\n{\n\
        \tvoid *libc = dlopen(\"libc.so.6\", RTLD_LAZY);\n\tDl_info found;\n\
        \tif (!libc || !dladdr(dlsym(libc, \"free\"), &found)) return 1;\n\
        \treturn strstr(found.dli_fname, \"libc.so\") ? 0 : 2;\n}\n";
    glibc(&lab, "own", &format!("#define _GNU_SOURCE\n{POOL}{main}"), &["-rdynamic", "-ldl"]);
    lab.run(["emit", "--target", "x86_64-linux-gnu", "--as", "shared", "-o", "liballograft.so"]).exits(0);
    let output = Command::new(lab.path("own")).env("LD_PRELOAD", lab.path("liballograft.so")).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// A namespace of its own has a libc of its own: that is said.
#[test]
fn a_program_that_loads_into_namespaces_is_warned_of() {
    let lab = Lab::new();
    let source = "#define _GNU_SOURCE\n#include <dlfcn.h>\n\
        int main(void) { return dlmopen(LM_ID_NEWLM, \"x\", RTLD_NOW) != 0; }\n";
    glibc(&lab, "user", source, &["-ldl"]);
    let ran = lab.run(["graft", "user", "-o", "out"]).exits(0);
    assert!(ran.err.contains("(dlmopen)"), "{ran:?}");
}
