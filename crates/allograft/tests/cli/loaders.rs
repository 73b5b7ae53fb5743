//! musl's dynamic loader as a host: in place, live, and back again.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use fixtures::Arch;
use fixtures::image::{Image, Layout, Tar};

use crate::lab::Lab;

/// A loader of its own in the test's folder, and a program that is linked with it.
pub(crate) fn system(lab: &Lab, source: &str) -> (PathBuf, PathBuf) {
    let folder = lab.path("root/lib");
    fs::create_dir_all(&folder).unwrap();
    let loader = folder.join("ld-musl-x86_64.so.1");
    fs::copy(fixtures::musl_loader(Arch::X86_64), &loader).unwrap();
    let program = fixtures::program::linked_with_musl(&lab.path(""), "program", source, true, &loader);
    (loader, program)
}

pub(crate) const PROGRAM: &str = "#include <stdlib.h>\n#include <unistd.h>\n\
    int main(int count, char **words) { char *p = malloc(100); if (!p) return 1; p[0] = 'x'; if (count > 1) pause();\n\
    free(p); return write(1, \"done\\n\", 5) != 5; }\n";

fn says(program: &std::path::Path) -> String {
    let output = Command::new(program).env("ALLOGRAFT_VERBOSE", "1").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
}

#[test]
fn every_dynamic_program_has_the_donor_and_loses_it() {
    let lab = Lab::new();
    let (loader, program) = system(&lab, PROGRAM);
    let stock = fs::read(&loader).unwrap();
    assert_eq!(says(&program), "done\n");
    let path = loader.to_str().unwrap();
    let report = &lab.run(["inspect", path, "--json"]).exits(0).json()["files"][0]["graft"];
    assert_eq!(report["way"], "graft");
    assert!(report["detail"].as_str().unwrap().contains("musl's dynamic loader"), "{report}");
    fs::create_dir(lab.path("root/bin")).unwrap();
    fs::copy(&program, lab.path("root/bin/true")).unwrap();
    let grafted = lab.run(["graft", path, "--donor", "mimalloc"]);
    assert_eq!(grafted.code, 0, "{grafted:?}");
    for part in
        ["self-test: passed", "bin/true` started by it: exit status: 0, as by stock", "allow_thp=0", "rescue:", "undo:"]
    {
        assert!(grafted.out.contains(part), "{part}: {}", grafted.out);
    }
    assert!(says(&program).contains("mimalloc 2.5.2 serves malloc"), "{}", says(&program));
    let inspected = lab.run(["inspect", "-v", path]);
    assert!(
        inspected.out.contains("mimalloc 2.5.2") && inspected.out.contains("musl's dynamic loader"),
        "{inspected:?}"
    );
    let verified = lab.run(["verify", path]).exits(0);
    assert!(verified.out.contains("the ends of threads and processes"), "{verified:?}");
    assert!(!verified.out.contains("main"), "a loader has none: {verified:?}");
    // A second graft changes nothing; another donor replaces it, made anew from stock.
    assert!(lab.run(["graft", path, "--donor", "mimalloc"]).out.starts_with("unchanged"));
    assert_eq!(lab.run(["graft", path, "--donor", "snmalloc"]).code, 0);
    assert!(says(&program).contains("snmalloc"), "{}", says(&program));
    assert_eq!(lab.run(["undo", path]).code, 0);
    assert_eq!(fs::read(&loader).unwrap(), stock);
    assert_eq!(says(&program), "done\n");
}

/// A program that ends by main's return, by `exit` if it gets an argument, or at once if it gets two.
pub(crate) const ENDS: &str = "#include <stdio.h>\n#include <stdlib.h>\n#include <unistd.h>\n\
    static void *volatile block;\n\
    static void last(void) { fputs(\"last\\n\", stderr); block = malloc(77); free(block); }\n\
    __attribute__((destructor)) static void destroyed(void) { fputs(\"destroyed\\n\", stderr); }\n\
    int main(int count, char **words) { block = malloc(100); free(block); atexit(last); (void)words;\n\
    if (count == 2) exit(7); if (count == 3) _exit(8); return 9; }\n";

/// Checks that the statistics are written however the program ends by `exit`, and after all that has been registered
/// for that; not if it ends at once.
pub(crate) fn reports_at_exit(program: &Path, label: &str) {
    for (arguments, code, text) in [(&[][..], 9, true), (&["a"], 7, true), (&["a", "b"], 8, false)] {
        let output = Command::new(program).args(arguments).env("ALLOGRAFT_STATS", "1").output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{label}: {said}");
        assert_eq!(said.matches("statistics of").count(), usize::from(text), "{label} {arguments:?}: {said}");
        assert!(!text || said.starts_with("last\ndestroyed\n"), "{label}: {said}");
    }
    let silent = Command::new(program).output().unwrap();
    assert_eq!(silent.stderr, b"last\ndestroyed\n", "{label}");
}

#[test]
fn statistics_are_written_at_exit() {
    let lab = Lab::new();
    let (loader, program) = system(&lab, ENDS);
    for donor in ["mimalloc", "rpmalloc", "snmalloc"] {
        assert_eq!(lab.run(["graft", loader.to_str().unwrap(), "--donor", donor]).code, 0);
        reports_at_exit(&program, donor);
    }
}

#[test]
fn the_loader_of_running_programs_takes_a_confirmation() {
    let lab = Lab::new();
    let (loader, program) = system(&lab, PROGRAM);
    let mut running = Command::new(&program).arg("wait").stdout(Stdio::null()).spawn().unwrap();
    let path = loader.to_str().unwrap();
    let before = fs::metadata(&loader).unwrap().ino();
    // Until the kernel has mapped it.
    let mapped = format!("/proc/{}/maps", running.id());
    while !fs::read_to_string(&mapped).unwrap().contains("ld-musl-x86_64.so.1") {
        std::thread::yield_now();
    }
    let refused = lab.run(["graft", path]);
    assert_eq!(refused.code, 3, "{refused:?}");
    assert!(refused.err.contains("--yes") && refused.err.contains(&running.id().to_string()), "{refused:?}");
    assert_eq!(fs::metadata(&loader).unwrap().ino(), before);
    // Elsewhere it needs none, and by confirmation it goes in place: by another file, which the running program keeps.
    let out = lab.path("out.so");
    assert_eq!(lab.run(["graft", path, "-o", out.to_str().unwrap()]).code, 0);
    assert_eq!(lab.run(["graft", path, "--yes"]).code, 0);
    assert_ne!(fs::metadata(&loader).unwrap().ino(), before);
    assert!(running.try_wait().unwrap().is_none(), "it runs on");
    running.kill().unwrap();
    running.wait().unwrap();
}

/// A loader that an emulator from the folder of tools can run is tested; without an emulator, it is grafted only with
/// `--untested`.
#[test]
#[ignore = "aarch64: ten seconds under an emulator"]
fn the_loader_of_a_foreign_architecture_is_tested_by_an_emulator() {
    let Some(emulator) = fixtures::emulator(Arch::Aarch64) else { return };
    let lab = Lab::new();
    lab.put("libc.so", &fs::read(fixtures::musl_loader(Arch::Aarch64)).unwrap());
    let folder = emulator.parent().unwrap().as_os_str();
    let run = |path, arguments: &[&str]| crate::foreign_executables::run(&lab, path, arguments);
    let says = |output: std::process::Output, code| {
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        assert_eq!(output.status.code(), Some(code), "{said}");
        said
    };
    for donor in donors::DEFAULTS {
        let grafted = says(run(Some(folder), &["graft", "libc.so", "--donor", donor]), 0);
        assert!(grafted.contains("aarch64") && grafted.contains("self-test: passed"), "{grafted}");
    }
    let verified = says(run(Some(folder), &["verify", "libc.so"]), 0);
    assert!(verified.contains("self-test: passed"), "{verified}");
    let refused = says(run(Some(folder), &["graft", "libc.so", "-o", "strings.so", "--strings", "on"]), 3);
    assert!(refused.contains("proven in linked executables for x86_64, and it is for aarch64"), "{refused}");
    lab.run(["inspect", "libc.so", "--expect", donors::DEFAULTS[1]]).exits(0);
    lab.run(["undo", "libc.so"]).exits(0);
    if Command::new("/lib/ld-musl-aarch64.so.1").output().is_err() {
        let refused = says(run(None, &["graft", "libc.so"]), 3);
        assert!(refused.contains("no emulator") && refused.contains("--untested"), "{refused}");
    }
}

/// The string functions that are proven are exchanged, for libc itself and for every program.
#[test]
fn string_functions_go_in_with_the_allocator() {
    let source = PROGRAM.replace("p[0] = 'x';", "strcpy(p, words[0]); if (strlen(p) < 3 || !strchr(p, '/')) return 2;");
    let lab = Lab::new();
    let (loader, program) = system(&lab, &format!("#include <string.h>\n{source}"));
    let path = loader.to_str().unwrap();
    let stock = fs::read(&loader).unwrap();
    let grafted = lab.run(["graft", path, "--strings", "on"]).exits(0);
    let redirected = grafted.out.lines().find(|line| line.trim_start().starts_with("strings:")).unwrap();
    for name in ["memcmp", "strlen", "strchr"] {
        assert!(redirected.contains(name), "{name}: {grafted:?}");
    }
    assert!(grafted.out.contains("self-test: passed"), "{grafted:?}");
    assert!(says(&program).contains("done\n"), "{}", says(&program));
    let inspected = lab.run(["inspect", "-v", path]).exits(0);
    assert!(inspected.out.contains("strings"), "{inspected:?}");
    let verified = lab.run(["verify", path]).exits(0);
    assert!(verified.out.contains("self-test: passed"), "{verified:?}");
    lab.run(["undo", path]).exits(0);
    assert_eq!(fs::read(&loader).unwrap(), stock);
}

/// Returns the entries of a file's program headers for themselves (PT_PHDR): the offset of each, with the offset and
/// the size that it states; and the offset and the size of the program headers, by the ELF header.
fn own_entries(file: &[u8]) -> (Vec<[usize; 3]>, [usize; 2]) {
    let number = |at: usize, width: usize| {
        file[at..at + width].iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte))
    };
    let (table, count) = (number(32, 8), number(56, 2));
    let entries = (0..count).map(|index| table + index * 56).filter(|at| number(*at, 4) == 6);
    (entries.map(|at| [at, number(at + 8, 8), number(at + 32, 8)]).collect(), [table, count * 56])
}

/// lld writes a PT_PHDR into a loader, GNU ld does not. It moves with the program headers, and `verify` looks at it.
#[test]
fn a_loader_that_says_where_its_program_headers_are() {
    const PT_GNU_STACK: [u8; 4] = 0x6474_e551_u32.to_le_bytes();
    let lab = Lab::new();
    let (loader, program) = system(&lab, PROGRAM);
    let mut stock = fs::read(&loader).unwrap();
    let (none, [table, size]) = own_entries(&stock);
    assert!(none.is_empty(), "{none:?}");
    // The kernel does not look at a loader's PT_GNU_STACK.
    let at = (table..table + size).step_by(56).find(|at| stock[*at..at + 4] == PT_GNU_STACK).unwrap();
    let words = [table, table, table, size, size, 8].map(|word| (word as u64).to_le_bytes());
    stock[at..at + 8].copy_from_slice(&[6, 0, 0, 0, 4, 0, 0, 0]);
    stock[at + 8..at + 56].copy_from_slice(&words.concat());
    fs::write(&loader, &stock).unwrap();
    assert_eq!(says(&program), "done\n");
    let path = loader.to_str().unwrap();
    assert!(lab.run(["graft", path]).exits(0).out.contains("self-test: passed"));
    assert!(says(&program).contains("snmalloc"), "{}", says(&program));
    lab.run(["verify", path]).exits(0);
    let graft = fs::read(&loader).unwrap();
    let (own, [table, size]) = own_entries(&graft);
    assert_eq!(own.iter().map(|[_, offset, size]| [*offset, *size]).collect::<Vec<_>>(), [[table, size]]);
    // An offset that is not the table's.
    let mut damaged = graft;
    damaged[own[0][0] + 8] ^= 8;
    lab.put("damaged.so", &damaged);
    lab.put("stock.so", &stock);
    lab.run(["verify", "damaged.so", "--stock", "stock.so", "--static-only"]).exits(1);
    lab.run(["undo", path]).exits(0);
    assert_eq!(fs::read(&loader).unwrap(), stock);
}

/// In a container image, the loader's graft goes into the layer on top, and all names of the file resolve to it.
#[test]
fn a_loader_in_an_image_is_grafted_and_comes_back() {
    let lab = Lab::new();
    let (loader, program) = system(&lab, PROGRAM);
    let (stock, program) = (fs::read(&loader).unwrap(), fs::read(&program).unwrap());
    let layer = Tar::default()
        .folder("lib/")
        .file("lib/ld-musl-x86_64.so.1", 0o755, &stock)
        .symlink("lib/libc.musl-x86_64.so.1", "ld-musl-x86_64.so.1")
        .folder("bin/")
        .file("bin/true", 0o755, &program);
    let mut layout = Layout::default();
    let descriptor = layout.image(&Image::new(layer.bytes()));
    layout.index(vec![descriptor]);
    layout.write(&lab.path("image"));
    let document = lab.run(["graft", "image", "-o", "new", "--donor", "rpmalloc", "--json"]).exits(0).json();
    let hosts = document["hosts"].as_array().unwrap();
    assert_eq!(hosts.len(), 1, "{document}");
    assert_eq!(hosts[0]["path"], "new/lib/ld-musl-x86_64.so.1");
    assert_eq!(hosts[0]["tried"][0], "self-test: passed");
    let inspected = lab.run(["inspect", "-v", "new"]).exits(0);
    assert!(inspected.out.contains("rpmalloc"), "{inspected:?}");
    // The file in the new layer is what a graft of the file itself is.
    lab.run(["graft", loader.to_str().unwrap(), "-o", "alone.so", "--donor", "rpmalloc"]).exits(0);
    let alone = fs::read(lab.path("alone.so")).unwrap();
    assert_eq!(hosts[0]["graft_sha256"], fixtures::image::sha256(&alone));
    lab.run(["undo", "new", "-o", "back"]).exits(0);
    let before = fs::read(lab.path("image/index.json")).unwrap();
    assert_eq!(fs::read(lab.path("back/index.json")).unwrap(), before);
}

#[test]
fn what_cannot_be_put_into_a_loader_is_said() {
    let lab = Lab::new();
    let (loader, _) = system(&lab, PROGRAM);
    let path = loader.to_str().unwrap();
    let jemalloc = lab.run(["graft", path, "--donor", "jemalloc"]);
    assert_eq!(jemalloc.code, 3, "{jemalloc:?}");
    assert!(jemalloc.err.contains("dynamic loader") && jemalloc.err.contains("mimalloc"), "{jemalloc:?}");
    let cut = lab.put("cut.so", &fs::read(&loader).unwrap()[..300_000]);
    assert_eq!(lab.run(["graft", cut.to_str().unwrap()]).code, 2);
}
