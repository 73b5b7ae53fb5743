//! musl's dynamic loader as a host: in place, live, and back again.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use fixtures::Arch;

use crate::lab::Lab;

/// A loader of its own in the test's folder, and a program that is linked with it.
fn system(lab: &Lab, source: &str) -> (PathBuf, PathBuf) {
    let folder = lab.path("root/lib");
    fs::create_dir_all(&folder).unwrap();
    let loader = folder.join("ld-musl-x86_64.so.1");
    fs::copy(fixtures::musl_loader(Arch::X86_64), &loader).unwrap();
    let search = fixtures::musl_loader(Arch::X86_64).with_file_name("");
    let libc = ["-L".as_ref(), search.as_os_str(), "-l:libc.so".as_ref()];
    let program = crate::lab::linked_with_musl(lab, source, "program", &loader, &libc);
    (loader, program)
}

const PROGRAM: &str = "#include <stdlib.h>\n#include <unistd.h>\n\
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
    let inspected = lab.run(["inspect", path]);
    assert!(inspected.out.contains("mimalloc 2.5.2"), "{inspected:?}");
    assert_eq!(lab.run(["verify", path]).code, 0);
    // The same graft again changes nothing; another donor replaces it, made anew from stock.
    assert!(lab.run(["graft", path, "--donor", "mimalloc"]).out.starts_with("unchanged"));
    assert_eq!(lab.run(["graft", path, "--donor", "snmalloc"]).code, 0);
    assert!(says(&program).contains("snmalloc"), "{}", says(&program));
    assert_eq!(lab.run(["undo", path]).code, 0);
    assert_eq!(fs::read(&loader).unwrap(), stock);
    assert_eq!(says(&program), "done\n");
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

/// What an emulator from the folder of tools runs is tested; without any, it is grafted only when that is said.
#[test]
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
    for donor in ["snmalloc", "mimalloc", "rpmalloc"] {
        let grafted = says(run(Some(folder), &["graft", "libc.so", "--donor", donor]), 0);
        assert!(grafted.contains("aarch64") && grafted.contains("self-test: passed"), "{grafted}");
    }
    let verified = says(run(Some(folder), &["verify", "libc.so"]), 0);
    assert!(verified.contains("self-test: passed"), "{verified}");
    lab.run(["inspect", "libc.so", "--expect", "rpmalloc"]).exits(0);
    lab.run(["undo", "libc.so"]).exits(0);
    if Command::new("/lib/ld-musl-aarch64.so.1").output().is_err() {
        let refused = says(run(None, &["graft", "libc.so"]), 3);
        assert!(refused.contains("no emulator") && refused.contains("--untested"), "{refused}");
    }
}

#[test]
fn what_cannot_be_put_into_a_loader_is_said() {
    let lab = Lab::new();
    let (loader, _) = system(&lab, PROGRAM);
    let path = loader.to_str().unwrap();
    let jemalloc = lab.run(["graft", path, "--donor", "jemalloc"]);
    assert_eq!(jemalloc.code, 3, "{jemalloc:?}");
    assert!(jemalloc.err.contains("dynamic loader") && jemalloc.err.contains("mimalloc"), "{jemalloc:?}");
    let strings = lab.run(["graft", path, "--strings", "on"]);
    assert_eq!(strings.code, 3, "{strings:?}");
    let cut = lab.put("cut.so", &fs::read(&loader).unwrap()[..300_000]);
    assert_eq!(lab.run(["graft", cut.to_str().unwrap()]).code, 2);
}
