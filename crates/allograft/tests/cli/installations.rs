//! Folders of programs: what can be grafted is, the rest is named with the reason, and all of it comes back.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use fixtures::program::Build;
use serde_json::Value;

use crate::lab::{Lab, tool};

/// Allocates, and prints a line.
const SOURCE: &str = "#include <stdio.h>\n#include <stdlib.h>\nint main(int count, char **words)\n{\n\
    \tchar *volatile block = malloc(1000 * count);\n\tputs(block ? \"served\" : words[0]);\n\tfree(block);\n\treturn 0;\n}\n";

/// Does not allocate, and has no libc.
const BARE: &str = "void _start(void)\n{\n\t__asm__ volatile(\"mov $60, %eax; xor %edi, %edi; syscall\");\n}\n";

/// An installation with a program of each kind, a script, a library, data and links.
fn installation() -> Lab {
    let lab = Lab::new();
    for folder in ["app/bin/deep", "app/share", "outside"] {
        fs::create_dir_all(lab.path(folder)).unwrap();
    }
    let server = fs::read(Build::PLAIN.program(&lab.path(""), "server", SOURCE)).unwrap();
    for name in ["app/bin/server", "app/bin/deep/worker", "outside/tool"] {
        executable(&lab, name, &server);
    }
    executable(&lab, "app/bin/cut", &server[..2000]);
    executable(&lab, "app/bin/ls", &fs::read("/bin/ls").expect("a dynamic program"));
    executable(&lab, "app/bin/start.sh", b"#!/bin/sh\nexec server\n");
    lab.put("app/share/data", &[0, 1, 2, 255]);
    for (source, name, flags) in [
        (SOURCE, "app/bin/glibc", &["-static"][..]),
        (BARE, "app/bin/bare", &["-static", "-nostdlib"]),
        (SOURCE, "app/libserver.so", &["-shared", "-fPIC"]),
    ] {
        lab.put("source.c", source.as_bytes());
        tool(fixtures::cc().args(flags).arg("-o").arg(lab.path(name)).arg(lab.path("source.c")));
    }
    symlink("server", lab.path("app/bin/alias")).unwrap();
    symlink("../../outside/tool", lab.path("app/bin/tool")).unwrap();
    symlink("../share/data", lab.path("app/bin/data")).unwrap();
    lab
}

fn executable(lab: &Lab, name: &str, bytes: &[u8]) {
    lab.put(name, bytes);
    fs::set_permissions(lab.path(name), fs::Permissions::from_mode(0o755)).unwrap();
}

fn list(document: &Value, list: &str, field: &str) -> Vec<String> {
    document[list].as_array().unwrap().iter().map(|one| one[field].as_str().unwrap().to_owned()).collect()
}

fn serves(program: &Path) {
    let output = Command::new(program).output().unwrap();
    assert_eq!(output.stdout, b"served\n", "{}: {output:?}", program.display());
}

const HOSTS: [&str; 2] = ["app/bin/deep/worker", "app/bin/server"];

#[test]
fn each_program_is_grafted_or_named_with_the_reason() {
    let lab = installation();
    let stock = fs::read(lab.path("app/bin/server")).unwrap();
    let planned = lab.changes_nothing(0, ["graft", "app", "--dry-run"]);
    assert!(
        planned.out.contains(
            "2 of 7 programs would carry the graft; 5 would be left alone: the notes say why; 1 script not counted"
        ),
        "{}",
        planned.out
    );
    for beside in ["server.allograft-stock (would be written)", "server.allograft.json (would be written)"] {
        assert!(planned.out.contains(beside), "{}", planned.out);
    }
    let ran = lab.run(["graft", "app", "--json"]).exits(0);
    let document = ran.json();
    assert_eq!(document["scripts"], 1);
    crate::documents::fits("graft", &document);
    assert_eq!(list(&document, "hosts", "path"), HOSTS);
    let skipped = list(&document, "skipped", "path").into_iter().zip(list(&document, "skipped", "reason"));
    let expected = [
        ("app/bin/bare", "no malloc"),
        ("app/bin/cut", "malformed"),
        ("app/bin/glibc", "linked with the GNU C library, not with musl"),
        ("app/bin/ls", "a dynamic program: its malloc is that of a library"),
        ("app/bin/tool", "a symbolic link to a program outside of the folder"),
    ];
    let skipped: Vec<(String, String)> = skipped.collect();
    assert_eq!(skipped.len(), expected.len(), "{skipped:?}");
    for ((path, reason), (name, part)) in skipped.iter().zip(expected) {
        assert!(path == name && reason.contains(part) && !reason.contains(path.as_str()), "{path}: {reason}");
    }
    // The note has the commands for programs that are grafted by their names.
    ran.says(&["`allograft graft app/bin/ls`"]);
    HOSTS.iter().for_each(|name| serves(&lab.path(name)));
    assert!(fs::read(lab.path("outside/tool")).unwrap() == stock);
    let again = lab.changes_nothing(0, ["graft", "app"]);
    assert_eq!(again.out.matches("unchanged").count(), 2, "{}", again.out);
    assert!(
        again
            .out
            .contains("2 of 7 programs carry the graft; 5 were left alone: the notes say why; 1 script not counted")
    );
    assert!(again.out.contains("undo:   allograft undo app\n"), "{}", again.out);
    let said = lab.run(["verify", "app"]).exits(0).out;
    assert!(said.ends_with("\n2 grafts: 2 passed, 0 failed; no grafts: 3 programs, 1 script\n"), "{said}");
    fs::remove_file(lab.path("app/bin/cut")).unwrap();
    lab.run(["inspect", "app", "--expect", "snmalloc"]).exits(1);
    lab.run(["inspect", "app/bin/server", "app/bin/deep", "--expect", "snmalloc"]).exits(0);
    lab.run(["graft", "app", "--donor", "mimalloc"]).exits(0);
    HOSTS.iter().for_each(|name| serves(&lab.path(name)));
    lab.changes_nothing(0, ["undo", "app", "--dry-run"]);
    let document = lab.run(["undo", "app", "--json"]).exits(0).json();
    assert_eq!(list(&document, "hosts", "action"), ["restored", "restored"]);
    assert!(HOSTS.iter().all(|name| fs::read(lab.path(name)).unwrap() == stock));
    assert!(!lab.names().iter().any(|name| name.contains("allograft")), "{:?}", lab.names());
    for words in [&["undo", "app"][..], &["undo", "app", "--dry-run"]] {
        assert_eq!(lab.changes_nothing(0, words).out, "nothing to undo  app\n");
    }
}

#[test]
fn a_copy_has_the_grafts_and_all_the_rest() {
    let lab = installation();
    fs::hard_link(lab.path("app/bin/server"), lab.path("app/bin/second")).unwrap();
    let stock = fs::read(lab.path("app/bin/server")).unwrap();
    let before = lab.names();
    let ran = lab.run(["graft", "app", "-o", "fast"]).exits(0);
    assert!(ran.out.contains("verify: allograft verify fast --stock app\n"), "{}", ran.out);
    assert!(!ran.out.contains("undo:"), "{}", ran.out);
    assert!(fs::read(lab.path("app/bin/server")).unwrap() == stock);
    let stays = |name: &str| !name.starts_with("fast");
    assert_eq!(lab.names().into_iter().filter(|name| stays(name)).collect::<Vec<_>>(), before);
    for name in ["fast/bin/server", "fast/bin/second", "fast/bin/alias", "fast/bin/deep/worker"] {
        serves(&lab.path(name));
        assert!(fs::read(lab.path(name)).unwrap() != stock, "{name}");
    }
    // Names of one file are names of one graft.
    let file = |name: &str| fs::metadata(lab.path(name)).unwrap().ino();
    assert_eq!(file("fast/bin/server"), file("fast/bin/second"));
    assert_ne!(file("fast/bin/server"), file("fast/bin/deep/worker"));
    for name in ["bin/ls", "bin/start.sh", "bin/glibc", "share/data", "libserver.so"] {
        let [one, two] = ["app", "fast"].map(|folder| fs::read(lab.path(folder).join(name)).unwrap());
        assert!(one == two, "{name}");
    }
    let ran = lab.run(["verify", "fast", "--stock", "app"]).exits(0);
    assert!(!ran.out.contains("not run"), "{}", ran.out);
    assert_eq!(ran.out.matches("self-test: passed").count(), 3, "{}", ran.out);
    let ran = lab.run(["verify", "fast"]).exits(0);
    assert!(ran.out.contains("not run"), "{}", ran.out);
    lab.changes_nothing(3, ["undo", "fast"])
        .says(&["has no backup or record beside it", "stock is where you took it from"]);
    lab.changes_nothing(3, ["graft", "fast"]).says(&["it carries a graft already", "help: "]);
    // A folder with grafts in place is copied with grafts of its stock files, and compared with these.
    lab.run(["graft", "app"]).exits(0);
    lab.run(["graft", "app", "-o", "other", "--donor", "mimalloc"]).exits(0);
    let ran = lab.run(["verify", "other", "--stock", "app"]).exits(0);
    assert!(!ran.out.contains("not run"), "{}", ran.out);
    assert!(!lab.names().iter().any(|name| name.starts_with("other") && name.contains("allograft")));
}

#[test]
fn a_folder_in_which_nothing_can_be_grafted_is_refused() {
    let lab = installation();
    for name in HOSTS {
        fs::remove_file(lab.path(name)).unwrap();
    }
    let ran = lab.changes_nothing(3, ["graft", "app"]);
    ran.says(&["no program under `app` can be grafted", "`app/bin/bare`", "help: ", "`allograft graft app/bin/ls`"]);
    lab.changes_nothing(3, ["graft", "app", "-o", "out"]);
    for name in ["app/bin/ls", "app/bin/tool"] {
        fs::remove_file(lab.path(name)).unwrap();
    }
    lab.changes_nothing(3, ["graft", "app"]).says(&["`allograft inspect app` says what serves malloc in each"]);
    lab.changes_nothing(2, ["graft", "app/share"]).says(&["no `libc.a` and no program under `app/share`", "help: "]);
}

#[test]
fn programs_that_take_a_confirmation_are_left_alone_without() {
    let lab = installation();
    fs::set_permissions(lab.path("app/bin/server"), fs::Permissions::from_mode(0o4755)).unwrap();
    let document =
        lab.run(["graft", "app", "--json", "--dry-run"]).exits(0).says(&["setuid", "graft app/bin/server`"]).json();
    assert_eq!(list(&document, "hosts", "path"), ["app/bin/deep/worker"]);
    let document = lab.run(["graft", "app", "--yes", "--json"]).exits(0).json();
    assert_eq!(list(&document, "hosts", "path"), HOSTS);
    assert_eq!(fs::metadata(lab.path("app/bin/server")).unwrap().mode() & 0o7777, 0o4755);
}

/// A folder with a `libc.a` is a toolchain, whose programs are tools.
#[test]
fn programs_beside_a_libc_keep_theirs() {
    let lab = installation();
    let stock = fs::read(lab.path("app/bin/server")).unwrap();
    lab.libc("app/lib/libc.a");
    let document = lab.run(["graft", "app", "--json"]).exits(0).json();
    assert_eq!(list(&document, "hosts", "path"), ["app/lib/libc.a"]);
    assert!(fs::read(lab.path("app/bin/server")).unwrap() == stock);
}

/// A folder that takes no file keeps the grafts of all others from being placed.
#[test]
fn one_that_cannot_be_replaced_keeps_the_others_from_it() {
    let lab = installation();
    // Its backup's name is another file's.
    lab.put("app/bin/server.allograft-stock", b"other");
    lab.changes_nothing(3, ["graft", "app"]).says(&["app/bin/server.allograft-stock", "allograft did not make it"]);
}

#[test]
fn options_for_one_program_are_not_for_a_folder() {
    let lab = installation();
    lab.changes_nothing(2, ["graft", "app", "--try", "--", "x"]).says(&["leave `--try`"]);
    lab.changes_nothing(2, ["graft", "app", "--needed"]);
    lab.run(["graft", "app", "--untested", "--dry-run"]).exits(0);
}
