//! Bazel, with the musl compiler of the machine's Debian.

use std::path::Path;
use std::process::Command;

use crate::place::{PROGRAM, Place, succeeds};

/// Bazel downloads its rules when it starts. The rules for C only forward to built-in ones, and so do these.
const RULES: [(&str, &str, &str); 3] = [
    (
        "rules_cc",
        "cc",
        "cc_binary cc_import cc_library cc_proto_library cc_test cc_toolchain cc_toolchain_suite fdo_prefetch_hints fdo_profile \
         objc_library",
    ),
    (
        "rules_java",
        "java",
        "java_binary java_import java_library java_lite_proto_library java_package_configuration java_plugin java_proto_library \
         java_runtime java_test java_toolchain",
    ),
    ("rules_proto", "proto", "proto_lang_toolchain proto_library"),
];

/// Returns the rules for Bazel's command line.
fn rules(place: &Place) -> Vec<String> {
    let rules = RULES.iter().map(|(name, package, rules)| {
        let mut text: String = rules
            .split_whitespace()
            .map(|rule| format!("def {rule}(**given):\n    native.{rule}(**given)\n"))
            .collect();
        if *name == "rules_cc" {
            for flags in ["cc_flags_supplier", "compiler_flag"] {
                text += &format!("def {flags}(**given):\n    pass\n");
            }
        }
        place.put(&format!("{name}/WORKSPACE"), "");
        place.put(&format!("{name}/{package}/BUILD"), "");
        place.put(&format!("{name}/{package}/defs.bzl"), &text);
        format!("--override_repository={name}={}", place.path(name).display())
    });
    rules.collect()
}

/// A Bazel whose server and files are in the test's folder.
struct Bazel<'p> {
    place: &'p Place,
    program: &'p Path,
    source: &'p str,
}

impl Bazel<'_> {
    fn command(&self) -> Command {
        let mut command = Command::new(self.program);
        command.arg("--batch").arg(format!("--output_user_root={}", self.place.path("output").display()));
        command.current_dir(self.place.path(self.source)).env("HOME", self.place.path("home"));
        // The default list of libraries is cleared, since it has the C++ library of another libc.
        command.env("CC", self.place.path("musl-gcc")).env("BAZEL_LINKLIBS", "").env("BAZEL_LINKOPTS", "");
        command
    }
}

#[test]
#[ignore = "takes Bazel, 42 MB"]
fn bazel() {
    let program = fixtures::toolchains::bazel();
    if std::env::consts::ARCH != "x86_64" {
        eprintln!("skipped: this Bazel is for x86_64");
        return;
    }
    assert!(program.is_file(), "Bazel is missing at `{}`: run `cargo xtask toolchains`", program.display());
    let place = Place::new("source");
    fixtures::musl_gcc(&place.path("")).expect("musl-gcc");
    let rules = rules(&place);
    let bazel = Bazel { place: &place, program: &program, source: "workspace" };
    place.put("workspace/WORKSPACE", "");
    place.put("workspace/main.c", PROGRAM);
    let build = |rule: &str| {
        place.put("workspace/BUILD", rule);
        succeeds(
            bazel
                .command()
                .args(["build", "--color=no", "--curses=no", "--copt=-fno-builtin"])
                .args(&rules)
                .arg(":program"),
        );
        let built = place.path("workspace/bazel-bin/program");
        assert_eq!(succeeds(&mut Command::new(&built)), "ok\n");
        built
    };
    let without = build("cc_binary(name = \"program\", srcs = [\"main.c\"], linkopts = [\"-static\"])\n");
    place.carries(&without, "mallocng");

    let snippets = place.emit(&["--target", "x86_64-linux-musl", "-o", "workspace/allograft.o"]);
    let with = build(&snippets["Bazel, in BUILD (the file copied beside it)"]);
    place.carries(&with, "snmalloc");
}
