//! Dynamic programs as hosts: a donor is merged into them, they are run, inspected, verified, and given back.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use fixtures::Arch;

use crate::lab::{Lab, tool};

/// Copies its arguments into blocks and prints them; a thread and a child do the same with one.
pub(crate) const SOURCE: &str = "#include <pthread.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n\
    #include <sys/wait.h>\n#include <unistd.h>\n\
    static __thread const char *own = \"own\";\n\
    static void *copy(void *text)\n{\n\tif (strcmp(own, \"own\")) abort();\n\treturn strdup(text);\n}\n\
    int main(int count, char **words)\n{\n\tfor (int i = 1; i < count; i++) {\n\
    \t\tpthread_t thread;\n\t\tvoid *block;\n\t\tint status = 1;\n\
    \t\tif (pthread_create(&thread, 0, copy, words[i]) || pthread_join(thread, &block)) return 1;\n\
    \t\tputs(block);\n\t\tfflush(stdout);\n\t\tfree(block);\n\
    \t\tif (!fork()) { free(copy(words[i])); _exit(0); }\n\t\tif (wait(&status) < 0 || status) return 2;\n\t}\n\
    \treturn 0;\n}\n";

pub(crate) fn glibc(lab: &Lab, name: &str, source: &str, flags: &[&str]) -> Vec<u8> {
    let source = lab.put(format!("{name}.c"), source.as_bytes());
    tool(fixtures::cc().args(["-O1", "-fno-builtin"]).arg(&source).args(flags).arg("-o").arg(lab.path(name)));
    fs::remove_file(source).unwrap();
    fs::read(lab.path(name)).unwrap()
}

pub(crate) fn musl(lab: &Lab, name: &str, position_independent: bool) -> Vec<u8> {
    let loader = fixtures::musl_loader(Arch::X86_64);
    let loader = lab.put("ld-musl-x86_64.so.1", &fs::read(loader).unwrap());
    fs::set_permissions(&loader, fs::Permissions::from_mode(0o755)).unwrap();
    let made = fixtures::program::linked_with_musl(&lab.path(""), name, SOURCE, position_independent, &loader);
    fs::read(made).unwrap()
}

#[track_caller]
pub(crate) fn serves(program: &Path, donor: &str) {
    let output = Command::new(program).args(["one", "two"]).env("ALLOGRAFT_VERBOSE", "1").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "one\ntwo\n");
    assert!(String::from_utf8_lossy(&output.stderr).contains(&format!("allograft: {donor} ")), "{output:?}");
}

#[test]
fn a_program_of_glibc_is_merged_and_given_back() {
    let lab = Lab::new();
    let stock = glibc(&lab, "pie", SOURCE, &["-lpthread"]);
    merged_in_place_and_given_back(&lab, &stock, "pie", "glibc");
}

#[test]
fn a_program_of_glibc_at_fixed_addresses_is_merged_and_given_back() {
    let lab = Lab::new();
    let stock = glibc(&lab, "fixed", SOURCE, &["-no-pie", "-fno-pie", "-lpthread"]);
    merged_in_place_and_given_back(&lab, &stock, "fixed", "glibc");
}

#[test]
fn a_program_of_musl_is_merged_and_given_back() {
    let lab = Lab::new();
    let stock = musl(&lab, "ofmusl", true);
    merged_in_place_and_given_back(&lab, &stock, "ofmusl", "musl");
}

#[test]
fn a_program_of_musl_at_fixed_addresses_is_merged_and_given_back() {
    let lab = Lab::new();
    let stock = musl(&lab, "fixedmusl", false);
    merged_in_place_and_given_back(&lab, &stock, "fixedmusl", "musl");
}

/// Merges donors into the program `name`, whose bytes are `stock`, and undoes it.
fn merged_in_place_and_given_back(lab: &Lab, stock: &[u8], name: &str, libc: &str) {
    let path = lab.path(name);
    assert!(lab.changes_nothing(0, ["graft", name, "--dry-run"]).out.contains("would graft"));
    let ran = lab.run(["graft", name, "--json", "--set", "purge_delay=0", "--try", "--", "one", "two"]).exits(0);
    let host = &ran.json()["hosts"][0];
    assert_eq!((host["link"].as_str(), host["action"].as_str()), (Some("dynamic"), Some("grafted")));
    assert_eq!(host["tried"][0], "self-test: passed");
    assert!(host["tried"][1].as_str().unwrap().contains("exit status: 0 and the same 8 bytes"), "{host}");
    serves(&path, "snmalloc");
    let inspected = lab.run(["inspect", name, "--expect", "snmalloc", "--json"]).exits(0).json();
    let graft = &inspected["files"][0]["graft"];
    assert_eq!(graft["way"], "graft", "{graft}");
    assert!(graft["detail"].as_str().unwrap().contains("before that of every library, LD_PRELOAD's too"), "{graft}");
    let verified = lab.run(["verify", name]).exits(0).out;
    for check in ["lookup", "program", "symbols", "relocations", "dynamic", "donor", "bytes", "self-test: passed"] {
        assert!(verified.contains(check), "{check}: {verified}");
    }
    assert!(lab.changes_nothing(0, ["graft", name, "--set", "purge_delay=0"]).out.contains("unchanged"));
    let again = lab.run(["graft", name, "--donor", "mimalloc"]).exits(0).out;
    assert!(again.contains(&format!("come before {libc}'s")), "{again}");
    serves(&path, "mimalloc");
    lab.run(["undo", name]).exits(0);
    assert!(fs::read(&path).unwrap() == stock, "{name} is stock again");
}

/// At fixed addresses, a function's address is that of the program's stub, for every library. So it is for those of
/// the family that only glibc has.
#[test]
fn addresses_of_functions_that_only_glibc_has() {
    const ADDRESSES: &str = "#include <malloc.h>\n#include <stdio.h>\n\
        static int (*volatile trim)(size_t);\nstatic int (*volatile option)(int, int);\n\
        static void (*volatile give)(void *);\nint main(void)\n{\n\
        \ttrim = malloc_trim, option = mallopt, give = free;\n\tgive(pvalloc(10));\n\ttrim(0);\n\
        \tif (option(M_MMAP_THRESHOLD, 4096) != 1) return 1;\n\tputs(\"one\\ntwo\");\n\treturn 0;\n}\n";
    let lab = Lab::new();
    let stock = glibc(&lab, "program", ADDRESSES, &["-no-pie", "-fno-pie"]);
    lab.put("stock", &stock);
    lab.run(["graft", "program"]).exits(0);
    serves(&lab.path("program"), "snmalloc");
    let verified = lab.run(["verify", "program"]).exits(0).out;
    assert!(verified.contains("17 functions are found in the donor first"), "{verified}");
    // Each of these stubs resolves to a donor symbol that has a name of its own.
    let graft = fs::read(lab.path("program")).unwrap();
    for name in ["free", "malloc_trim", "mallopt"] {
        let alias = format!("allograft.{name}\0");
        let at = graft.windows(alias.len()).position(|window| window == alias.as_bytes()).unwrap();
        let mut bytes = graft.clone();
        bytes[at] = b'b';
        lab.put("damaged", &bytes);
        fs::set_permissions(lab.path("damaged"), fs::Permissions::from_mode(0o755)).unwrap();
        let said = lab.run(["verify", "damaged", "--stock", "stock"]).exits(1).out;
        assert!(said.contains(&format!("`{name}` is at")), "{name}: {said}");
    }
    lab.run(["undo", "program"]).exits(0);
    assert!(fs::read(lab.path("program")).unwrap() == stock);
}

#[test]
fn a_merged_program_that_was_stripped_later_is_whole() {
    let lab = Lab::new();
    glibc(&lab, "stock", SOURCE, &["-rdynamic", "-lpthread"]);
    for strip in ["strip", "objcopy"] {
        lab.run(["graft", "stock", "-o", "graft"]).exits(0);
        tool(Command::new(strip).arg(lab.path("graft")));
        serves(&lab.path("graft"), "snmalloc");
        assert!(lab.run(["verify", "graft", "--stock", "stock"]).exits(0).out.contains("self-test: passed"), "{strip}");
        lab.run(["inspect", "graft", "--expect", "snmalloc"]).exits(0);
        fs::remove_file(lab.path("graft")).unwrap();
    }
}

#[test]
#[ignore = "minutes: seven seconds of processor time"]
fn a_damaged_merge_is_told() {
    let lab = Lab::new();
    glibc(&lab, "stock", SOURCE, &["-lpthread"]);
    lab.run(["graft", "stock", "-o", "graft"]).exits(0);
    let graft = fs::read(lab.path("graft")).unwrap();
    // A place in each of: the program's code, the symbols, the donor's code, its data. The note comes first.
    let note = b"\x0a\0\0\0\x38\0\0\0\x05\0\0\0allograft";
    let new = graft.windows(note.len()).position(|window| window == note).unwrap();
    for at in [0x1100, new + 0x200, new + 0x12000, graft.len() - 0x3000] {
        let mut bytes = graft.clone();
        bytes[at] ^= 0x10;
        lab.put("damaged", &bytes);
        fs::set_permissions(lab.path("damaged"), fs::Permissions::from_mode(0o755)).unwrap();
        let ran = lab.run(["verify", "damaged", "--stock", "stock"]);
        assert!(ran.code != 0 && !ran.out.contains("self-test: passed"), "the byte {at:#x}: {ran:?}");
    }
    // Cut off at any place.
    for size in (0..graft.len()).step_by(graft.len() / 50) {
        lab.put("damaged", &graft[..size]);
        assert_ne!(lab.run(["verify", "damaged", "--stock", "stock"]).code, 0, "{size} bytes");
    }
}

#[test]
fn programs_with_another_allocator_are_refused() {
    let lab = Lab::new();
    let own = "#include <stddef.h>\nvoid *malloc(size_t n) { return (void *)(n & 0); }\n\
               int main(void) { return malloc(1) != 0; }\n";
    glibc(&lab, "own", own, &["-rdynamic"]);
    lab.changes_nothing(3, ["graft", "own"]).says(&["defines `malloc`", "help: "]);
    // One of its libraries does: by the name, and by what the loader would take.
    let family = "void *malloc(unsigned long n) { static char b[99]; return b + (n & 0); }\n\
                  void free(void *p) { (void)p; }\n";
    let folder = lab.path("").display().to_string();
    let (path, run) = (format!("-L{folder}"), format!("-Wl,-rpath,{folder}"));
    for (name, more) in [("libjemalloc.so.2", "int mallctl(void) { return 0; }\n"), ("libpool.so", "")] {
        glibc(&lab, name, &format!("{family}{more}"), &["-shared", "-fPIC", &format!("-Wl,-soname,{name}")]);
        let flags = ["-Wl,--no-as-needed", &path, &run, &format!("-l:{name}")];
        glibc(&lab, "user", "#include <stdlib.h>\nint main(void) { free(malloc(1)); return 0; }\n", &flags);
        lab.changes_nothing(3, ["graft", "user"]).says(&[name, "another allocator's", "help: "]);
    }
}

#[test]
fn what_else_is_refused_or_takes_a_confirmation() {
    let lab = Lab::new();
    glibc(&lab, "loads", "#include <dlfcn.h>\nint main(void) { return dlopen(\"x\", 1) != 0; }\n", &["-ldl"]);
    lab.run(["graft", "loads", "-o", "out"]).exits(0);
    lab.changes_nothing(3, ["graft", "loads", "--strings", "on"]).says(&["string functions", "help: "]);
    lab.changes_nothing(3, ["graft", "loads", "--donor", "hardened"]).says(&["a dynamic program", "these can: "]);
    let mut appended = fs::read(lab.path("loads")).unwrap();
    appended.extend(b"PK\x03\x04");
    lab.put("appended", &appended);
    lab.changes_nothing(3, ["graft", "appended"]).says(&["4 bytes are appended"]);
    lab.changes_nothing(3, ["graft", "out"]).says(&["carries a graft already"]);
    fs::set_permissions(lab.path("loads"), fs::Permissions::from_mode(0o4755)).unwrap();
    for more in [&["loads"][..], &["loads", "-o", "elsewhere"]] {
        let words = [&["graft"], more].concat();
        lab.changes_nothing(3, words).says(&["is setuid or setgid", "--yes"]);
    }
    lab.run(["graft", "loads", "--yes"]).exits(0);
    assert_eq!(fs::metadata(lab.path("loads")).unwrap().permissions().mode() & 0o7777, 0o4755);
}

/// The donor's storage and the program's are adjacent, whatever gap their alignment leaves.
#[test]
fn variables_of_threads_of_any_size() {
    let lab = Lab::new();
    for words in 1..=8 {
        let source = format!(
            "#include <stdlib.h>\n__thread long own[{words}] = {{ 3 }};\n\
             int main(int count, char **words) {{ free(realloc(malloc(count), 100)); return !words + own[0] - 3; }}\n"
        );
        glibc(&lab, "program", &source, &[]);
        for donor in ["scudo", "snmalloc", "mimalloc"] {
            lab.run(["graft", "program", "--dry-run", "--donor", donor]).exits(0);
        }
    }
}

/// A variable of each thread in a library has no place in the program, whose own variables move.
#[test]
fn variables_of_threads_in_a_library_and_in_the_program() {
    let lab = Lab::new();
    let folder = lab.path("").display().to_string();
    let library = "__thread int theirs = 5, *unused;\n";
    glibc(&lab, "libvariables.so", library, &["-shared", "-fPIC", "-Wl,-soname,libvariables.so"]);
    let source = "#include <stdlib.h>\nextern __thread int theirs; __thread int own = 3, zero;\n\
        int main(int count, char **words) { free(realloc(malloc(count), 100)); (void)words;\n\
        return theirs - 5 + own - 3 + zero; }\n";
    let (path, run) = (format!("-L{folder}"), format!("-Wl,-rpath,{folder}"));
    for flags in [&["-fPIE", "-pie"][..], &["-fPIE", "-pie", "-rdynamic"], &["-fno-pie", "-no-pie"]] {
        glibc(&lab, "user", source, &[flags, &[&path, &run, "-lvariables"]].concat());
        lab.run(["graft", "user"]).exits(0);
        tool(&mut Command::new(lab.path("user")));
        lab.run(["verify", "user"]).exits(0);
    }
}

/// A program whose libraries lie beside it is tested there.
#[test]
fn a_program_that_finds_its_libraries_beside_itself() {
    let lab = Lab::new();
    glibc(&lab, "libown.so", "int answer(void) { return 42; }\n", &["-shared", "-fPIC", "-Wl,-soname,libown.so"]);
    let path = format!("-L{}", lab.path("").display());
    let flags = [path.as_str(), "-Wl,-rpath,$ORIGIN", "-l:libown.so"];
    glibc(&lab, "user", "int answer(void);\nint main(void) { return answer() - 42; }\n", &flags);
    assert!(lab.run(["graft", "user"]).exits(0).out.contains("self-test: passed"));
    tool(&mut Command::new(lab.path("user")));
    assert_eq!(lab.names(), ["libown.so", "user", "user.allograft-stock", "user.allograft.json"]);
}
