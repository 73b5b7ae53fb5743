//! The overlay for Nix: its file is parsed, and the shell step that grafts runs verbatim.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use fixtures::Ran;
use fixtures::program::Build;

use crate::lab::{Lab, dynamic_with_musl};

const SOURCE: &str = "#include <stdlib.h>\n#include <stdio.h>\nint main(void) { char *p = malloc(9); if (!p) return 1; \
                      p[0] = 'o'; p[1] = 'k'; p[2] = 0; puts(p); free(p); return 0; }\n";

fn integration(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../integrations/nix").join(name)
}

/// Runs the step as nixpkgs' builder does, with a folder of the lab as the package's output.
fn fix_up(lab: &Lab, donor: &str, options: &str) -> Ran {
    let step = fs::read_to_string(integration("graft.sh")).unwrap();
    let folder = Path::new(env!("CARGO_BIN_EXE_allograft")).parent().unwrap().to_owned();
    let path =
        std::env::join_paths([folder].into_iter().chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())));
    let mut bash = Command::new("bash");
    bash.args(["--noprofile", "--norc", "-eu", "-o", "pipefail", "-c"]);
    bash.arg(format!("donor={donor}\noptions=({options})\n{step}"));
    bash.env("PATH", path.unwrap()).env("out", lab.path("out")).current_dir(lab.path("")).output().unwrap().into()
}

#[test]
fn every_static_program_of_a_package_is_grafted() {
    let lab = Lab::new();
    fs::create_dir_all(lab.path("out/bin")).unwrap();
    let program = Build::PLAIN.program(&lab.path("out/bin"), "a b", SOURCE);
    fs::remove_file(lab.path("out/bin/a b.c")).unwrap_or_default();
    let script = lab.put("out/bin/script", b"#!/bin/sh\necho ok\n");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let dynamic = dynamic_with_musl(&lab, SOURCE, "dynamic");
    fs::rename(dynamic, lab.path("out/bin/dynamic")).unwrap();
    let before = fs::read(lab.path("out/bin/dynamic")).unwrap();
    let ran = fix_up(&lab, "mimalloc", "--profile small");
    assert_eq!(ran.code, 0, "{}", ran.err);
    lab.run(["inspect", "--expect", "mimalloc", program.to_str().unwrap()]).exits(0);
    assert_eq!(Command::new(&program).output().unwrap().stdout, b"ok\n");
    assert_eq!(fs::metadata(&program).unwrap().permissions().mode() & 0o777, 0o755);
    assert!(fs::read(lab.path("out/bin/dynamic")).unwrap() == before && script.is_file());
    assert!(!lab.names().iter().any(|name| name.contains("allograft-stock") || name.contains(".grafted")));
    // The program has mimalloc already, and nothing else is there to be grafted.
    let again = fix_up(&lab, "snmalloc", "");
    assert!(again.code == 1 && again.err.contains("help: take the package from pkgsStatic"), "{}", again.err);
}

#[test]
fn the_overlay_is_nix_and_reads_the_step() {
    let text = fs::read_to_string(integration("overlay.nix")).unwrap();
    let parsed = rnix::Root::parse(&text);
    assert!(parsed.errors().is_empty(), "{:?}", parsed.errors());
    for part in ["builtins.readFile ./graft.sh", "withDonor =", "version = \"0.1.0\""] {
        assert!(text.contains(part), "{part}");
    }
    assert_eq!(env!("CARGO_PKG_VERSION"), "0.1.0", "overlay.nix names the version");
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/toolchains/nix.md");
    let page = fs::read_to_string(page).unwrap();
    let block = page.split("```nix\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    assert!(rnix::Root::parse(block).errors().is_empty(), "{block}");
}
