//! Dynamic programs for aarch64 as hosts, by an emulator: a donor is merged into them, or is loaded by them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use fixtures::{Arch, Ran};

use crate::dynamic::SOURCE;
use crate::lab::Lab;

const ARCH: Arch = Arch::Aarch64;

/// The folder with the emulator, and the root folder of glibc's programs.
fn tools() -> Option<(PathBuf, PathBuf)> {
    if fixtures::runs_here(ARCH) {
        return None;
    }
    let emulator = fixtures::emulator(ARCH).expect("an emulator: `cargo xtask setup`");
    Some((emulator, fixtures::glibc_root(ARCH)))
}

/// Runs allograft where it finds the emulator, and the emulator the libraries.
fn run(lab: &Lab, words: &[&str]) -> Ran {
    let (emulator, root) = tools().expect("a foreign machine");
    let path = std::env::join_paths([emulator.parent().unwrap(), Path::new("/usr/bin"), Path::new("/bin")]).unwrap();
    lab.command().env("PATH", path).env("QEMU_LD_PREFIX", root).args(words).output().unwrap().into()
}

fn glibc(lab: &Lab, name: &str, source: &str, flags: &[&str]) -> Vec<u8> {
    fs::read(fixtures::program::linked_with_foreign_glibc(ARCH, &lab.path(""), name, source, flags)).unwrap()
}

fn musl(lab: &Lab, name: &str, position_independent: bool) -> Vec<u8> {
    let loader = lab.put("ld-musl-aarch64.so.1", &fs::read(fixtures::musl_loader(ARCH)).unwrap());
    fs::set_permissions(&loader, fs::Permissions::from_mode(0o755)).unwrap();
    let folder = lab.path("");
    let made = fixtures::program::linked_with_musl_for(ARCH, &folder, name, SOURCE, position_independent, &loader);
    fs::read(made).unwrap()
}

#[track_caller]
fn serves(program: &Path, donor: &str) {
    let (emulator, root) = tools().expect("a foreign machine");
    let mut command = Command::new("timeout");
    command.args(["-s", "KILL", "120"]).arg(emulator).arg("-L").arg(root).arg(program).args(["one", "two"]);
    let output = command.env("ALLOGRAFT_VERBOSE", "1").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "one\ntwo\n");
    assert!(String::from_utf8_lossy(&output.stderr).contains(&format!("allograft: {donor} ")), "{output:?}");
}

#[test]
#[ignore = "aarch64: runs under an emulator"]
fn merged_or_loaded_in_place_and_given_back() {
    if tools().is_none() {
        return;
    }
    let lab = Lab::new();
    let programs = [
        (glibc(&lab, "pie", SOURCE, &["-fPIE", "-pie"]), "pie", "glibc"),
        (glibc(&lab, "fixed", SOURCE, &["-no-pie", "-fno-pie"]), "fixed", "glibc"),
        (musl(&lab, "ofmusl", true), "ofmusl", "musl"),
        (musl(&lab, "fixedmusl", false), "fixedmusl", "musl"),
    ];
    run(&lab, &["emit", "--target", "aarch64-linux-gnu", "--as", "shared", "-o", "liballograft.so"]).exits(0);
    for (stock, name, libc) in programs {
        let path = lab.path(name);
        let ran = run(&lab, &["graft", name, "--json", "--set", "purge_delay=0", "--try", "--", "one", "two"]).exits(0);
        let host = &ran.json()["hosts"][0];
        assert!(host["tried"][0].as_str().unwrap().starts_with("self-test: passed (by qemu-aarch64"), "{host}");
        assert!(host["tried"][1].as_str().unwrap().contains("exit status: 0 and the same 8 bytes"), "{host}");
        serves(&path, "snmalloc");
        run(&lab, &["inspect", name]).exits(0);
        let verified = run(&lab, &["verify", name]).exits(0).out;
        for check in ["lookup", "program", "symbols", "relocations", "dynamic", "donor", "bytes", "self-test: passed"] {
            assert!(verified.contains(&format!("✓ {check}")), "{check}: {verified}");
        }
        let loads = run(&lab, &["graft", name, "--needed"]).exits(0).out;
        assert!(loads.contains(&format!("liballograft.so, which it loads before {libc}")), "{loads}");
        serves(&path, "snmalloc");
        let verified = run(&lab, &["verify", name]).exits(0).out;
        for check in ["needed", "library", "donor", "bytes", "self-test: passed"] {
            assert!(verified.contains(&format!("✓ {check}")), "{check}: {verified}");
        }
        let again = run(&lab, &["graft", name, "--donor", "mimalloc"]).exits(0).out;
        assert!(again.contains(&format!("come before {libc}'s")), "{again}");
        serves(&path, "mimalloc");
        run(&lab, &["undo", name]).exits(0);
        assert!(fs::read(&path).unwrap() == stock, "{name} is stock again");
    }
}

/// Thread-local storage begins behind the thread pointer, and the donor's part behind the program's, however that is
/// aligned.
#[test]
#[ignore = "aarch64: runs under an emulator"]
fn every_donor_beside_the_programs_own_thread_local_storage() {
    if tools().is_none() {
        return;
    }
    let lab = Lab::new();
    for align in [8, 64, 4096] {
        let source = format!(
            "#include <string.h>\nstatic __thread char aligned[{align}] __attribute__((aligned({align}))) = \"text\";\n\
             static __thread int zero[33];\n\
             static int is_mine(void)\n{{\n\treturn !strcmp(aligned, \"text\") && !zero[32] && !((unsigned long)aligned % {align});\n}}\n\
             #define strcmp(one, other) (is_mine() ? (strcmp)(one, other) : 1)\n{SOURCE}"
        );
        glibc(&lab, "stock", &source, &["-fPIE", "-pie"]);
        // glibc's mutexes, and their attributes, are larger here than those of musl, whose headers donors know.
        let donors = donors::all().iter().filter(|donor| donor.has_library(format::Arch::Aarch64));
        for donor in donors.filter(|donor| align == 64 || donor.name == "snmalloc") {
            run(&lab, &["graft", "stock", "-o", "graft", "--donor", donor.name]).exits(0);
            serves(&lab.path("graft"), donor.name);
        }
    }
}

#[test]
#[ignore = "aarch64: runs under an emulator"]
fn what_cannot_be_tested_here_is_refused() {
    let Some((_, root)) = tools() else { return };
    let lab = Lab::new();
    glibc(&lab, "user", SOURCE, &["-fPIE", "-pie"]);
    // Without the loader; without an emulator.
    let (emulator, _) = tools().unwrap();
    let with = |path: &Path| {
        lab.command().env("PATH", path).env_remove("QEMU_LD_PREFIX").args(["graft", "user"]).output().unwrap()
    };
    let ran: Ran = with(emulator.parent().unwrap()).into();
    ran.exits(3).says(&["its loader `/lib/ld-linux-aarch64.so.1` is not on this machine", "--root", "--untested"]);
    fs::create_dir(lab.path("none")).unwrap();
    let mut command = lab.command();
    command.env("PATH", lab.path("none")).env("QEMU_LD_PREFIX", &root).args(["graft", "user"]);
    let ran: Ran = command.output().unwrap().into();
    ran.exits(3).says(&["there is no emulator", "--untested"]);
    // A root folder has the loader, and the program.
    let copy = Command::new("cp").arg("-a").arg(root).arg(lab.path("root")).status().unwrap();
    assert!(copy.success());
    fs::create_dir_all(lab.path("root/opt")).unwrap();
    fs::rename(lab.path("user"), lab.path("root/opt/user")).unwrap();
    let mut command = lab.command();
    command.env("PATH", emulator.parent().unwrap()).env_remove("QEMU_LD_PREFIX");
    let ran: Ran = command.args(["graft", "--root", "root", "/opt/user"]).output().unwrap().into();
    assert!(ran.exits(0).out.contains("self-test: passed (by qemu-aarch64"));
    serves(&lab.path("root/opt/user"), "snmalloc");
}

/// A program whose pages of code are guarded (BTI) loads a donor, and takes none into it. The property is written by
/// hand, since start files lack it; musl does not enforce it.
#[test]
#[ignore = "aarch64: runs under an emulator"]
fn a_guarded_program() {
    if tools().is_none() {
        return;
    }
    let lab = Lab::new();
    let loader = fixtures::musl_loader(ARCH);
    let property = [4_u32, 16, 5, 0x0055_4e47, 0xc000_0000, 4, 1, 0];
    let words = property.map(|word| format!("{word}u")).join(", ");
    let source = format!("{SOURCE}\n__attribute__((used, aligned(8))) const unsigned property[] = {{{words}}};\n");
    fixtures::program::linked_with_musl_for(ARCH, &lab.path(""), "guarded", &source, true, &loader);
    let mut bytes = fs::read(lab.path("guarded")).unwrap();
    let note = property.map(u32::to_le_bytes).concat();
    let at = bytes.windows(note.len()).position(|window| window == note).unwrap() as u64;
    // PT_GNU_STACK becomes PT_GNU_PROPERTY of these bytes, which are in the first segment.
    let header = (64..2048).step_by(8).find(|at| bytes[*at..*at + 4] == 0x6474_e551_u32.to_le_bytes()).unwrap();
    let fields = [0x4_6474_e553, at, at, at, note.len() as u64, note.len() as u64, 8];
    for (index, field) in fields.into_iter().enumerate() {
        bytes[header + 8 * index..header + 8 * index + 8].copy_from_slice(&u64::to_le_bytes(field));
    }
    fs::write(lab.path("guarded"), bytes).unwrap();
    run(&lab, &["emit", "--target", "aarch64-linux-musl", "--as", "shared", "-o", "liballograft.so"]).exits(0);
    run(&lab, &["graft", "guarded"]).exits(3).says(&["its code is guarded"]);
    run(&lab, &["graft", "guarded", "--needed"]).exits(0);
    serves(&lab.path("guarded"), "snmalloc");
}
