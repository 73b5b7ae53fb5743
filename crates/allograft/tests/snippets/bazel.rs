//! Bazel, with the musl compiler of the machine's Debian: the instructions of `emit`, and the example.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::place::{PROGRAM, Place, succeeds};

/// Bazel in a folder of its own.
struct Bazel {
    made: tempfile::TempDir,
}

impl Bazel {
    /// Makes one, unless it is for another machine; then prints that.
    fn new() -> Option<Bazel> {
        if let Some(reason) = fixtures::bazel::unavailable() {
            eprintln!("skipped: {reason}");
            return None;
        }
        let program = fixtures::toolchains::bazel();
        assert!(program.is_file(), "Bazel is missing at `{}`: run `cargo xtask setup toolchains`", program.display());
        let made = tempfile::tempdir().expect("a temporary folder");
        let (bin, home) = (made.path().join("bin"), made.path().join("home"));
        fs::create_dir_all(&bin).expect("a folder");
        fs::create_dir_all(&home).expect("a folder");
        let compiler = fixtures::musl_gcc(&bin).expect("musl-gcc");
        fixtures::bazel::install(&bin, &home, &compiler).expect("a script");
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_allograft"), bin.join("allograft")).expect("a link");
        Some(Bazel { made })
    }

    /// Returns a Bazel command in a folder, with allograft on the command path.
    fn command(&self, folder: &Path, words: &[&str]) -> Command {
        let bin = self.made.path().join("bin");
        let path = std::env::var("PATH").expect("a path");
        let mut command = Command::new(bin.join("bazel"));
        command.args(words).current_dir(folder).env("PATH", format!("{}:{path}", bin.display()));
        command
    }
}

#[test]
#[ignore = "bazel: takes Bazel, 42 MB"]
fn bazel() {
    let Some(bazel) = Bazel::new() else { return };
    let place = Place::new("source");
    place.write("workspace/WORKSPACE", "");
    place.write("workspace/main.c", PROGRAM);
    let build = |rule: &str| {
        place.write("workspace/BUILD", rule);
        succeeds(&mut bazel.command(&place.path("workspace"), &["build", "--copt=-fno-builtin", ":program"]));
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

/// A copy of the example, whose rules are those of this checkout.
struct Example {
    place: Place,
    bazel: Bazel,
}

impl Example {
    fn new() -> Option<Example> {
        let bazel = Bazel::new()?;
        // Bazel takes no path with a blank.
        let place = Place::new("source");
        let example = integrations().join("examples/bazel");
        succeeds(Command::new("cp").arg("-r").arg(example).arg(place.path("example")));
        Some(Example { place, bazel })
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = self.bazel.command(&self.place.path("example"), words);
        command.arg(format!("--override_repository=allograft_bazel={}", integrations().join("bazel").display()));
        command
    }

    /// Asserts that the command fails. Returns what it said.
    #[track_caller]
    fn fails(&self, words: &[&str], code: i32) -> String {
        let output = self.command(words).output().expect("Bazel starts");
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        assert_eq!(output.status.code(), Some(code), "{said}");
        said
    }

    fn program(&self) -> PathBuf {
        self.place.path("example/bazel-bin/server")
    }

    fn edit(&self, from: &str, to: &str) {
        let text = fs::read_to_string(self.place.path("example/BUILD.bazel")).expect("a build file");
        assert_eq!(text.matches(from).count(), 1, "{from}");
        self.place.write("example/BUILD.bazel", text.replace(from, to));
    }
}

fn integrations() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../integrations").canonicalize().expect("the integrations")
}

#[test]
#[ignore = "bazel: takes Bazel, 42 MB"]
fn bazel_example() {
    let Some(example) = Example::new() else { return };
    succeeds(&mut example.command(&["test", "//..."]));
    example.place.carries(&example.program(), "snmalloc");
    assert_eq!(succeeds(&mut Command::new(example.program())), "served\n");
    // A flag decides for every program, and stock comes back by it.
    for (malloc, carried) in [("@allograft//:mimalloc", "mimalloc"), (STOCK, "mallocng")] {
        succeeds(&mut example.command(&["build", &format!("--custom_malloc={malloc}"), ":server"]));
        example.place.carries(&example.program(), carried);
    }
    let other = "load(\"@allograft//:malloc.bzl\", \"allograft_malloc\", \"allograft_test\")\n\
                 allograft_malloc(name = \"chosen\", donor = \"mimalloc\", set = [\"purge_delay=0\"], strings = \"off\")\n";
    example.edit("load(\"@allograft//:malloc.bzl\", \"allograft_test\")\n", other);
    example.edit("\"@allograft//:malloc\"", "\":chosen\"");
    example.edit("\"snmalloc\"", "\"mimalloc\"");
    succeeds(&mut example.command(&["test", "//..."]));
    let mut inspect = Command::new(env!("CARGO_BIN_EXE_allograft"));
    let said = succeeds(inspect.args(["inspect", "--expect", "mimalloc"]).arg(example.program()));
    assert!(said.contains("purge_delay=0"), "{said}");
}

/// Undefined behaviour ends the program, without a library.
const TRAP: &str = "--copt=-fsanitize-undefined-trap-on-error";

/// The malloc that programs have without ours.
const STOCK: &str = "@bazel_tools//tools/cpp:malloc";

#[test]
#[ignore = "bazel: takes Bazel, 42 MB"]
fn bazel_example_refuses_sanitizers() {
    let Some(example) = Example::new() else { return };
    for flag in ["--copt=-fsanitize=address,undefined", "--linkopt=-fsanitize=leak", "--features=tsan"] {
        let said = example.fails(&["build", flag, ":server"], 1);
        let given = flag.trim_start_matches("--copt=").trim_start_matches("--linkopt=");
        assert!(
            said.contains(&format!("the flags have {given}, and that sanitizer finds errors by a malloc")),
            "{said}"
        );
        assert!(said.contains(&format!("help: build with sanitizers with --custom_malloc={STOCK}")), "{said}");
    }
    // Others have no malloc, and none is refused without a donor.
    succeeds(&mut example.command(&["build", "--copt=-fsanitize=bounds", TRAP, ":server"]));
    succeeds(&mut example.command(&["build", "--features=tsan", &format!("--custom_malloc={STOCK}"), ":server"]));
    example.place.carries(&example.program(), "mallocng");
}

#[test]
#[ignore = "bazel: takes Bazel, 42 MB"]
fn bazel_example_finds_a_wrong_order() {
    let Some(example) = Example::new() else { return };
    example.place.emit(&["--target", "x86_64-linux-musl", "--as", "archive", "-o", "liballograft.a"]);
    // By hand, and behind libc.
    let archive = example.place.path("liballograft.a").display().to_string();
    example.edit("    malloc = \"@allograft//:malloc\",\n", "");
    example.edit("[\"-static\"]", &format!("[\"-static\", \"-lc\", \"{archive}\"]"));
    let said = example.fails(&["test", "--test_output=all", "//..."], 3);
    assert!(said.contains("mallocng") && said.contains("snmalloc"), "{said}");
    example.edit(&format!("\"-lc\", \"{archive}\""), &format!("\"-Wl,-u,malloc\", \"{archive}\", \"-lc\""));
    succeeds(&mut example.command(&["test", "//..."]));
}
