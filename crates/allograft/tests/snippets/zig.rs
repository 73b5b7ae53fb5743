//! Releases of zig, by command line and by `build.zig`, in debug builds. Some releases link these with a linker of
//! their own.

use std::path::{Path, PathBuf};
use std::process::Command;

use fixtures::shell::word;

use crate::place::{PROGRAM, Place, succeeds};

/// The program for all releases. It uses nothing of zig's own library, which changes with each release.
const MAIN: &str = "extern \"c\" fn malloc(usize) ?[*]u8;
extern \"c\" fn free(?[*]u8) void;
extern \"c\" fn puts([*:0]const u8) c_int;
extern \"c\" fn pthread_create(*usize, ?*const anyopaque, *const anyopaque, ?*anyopaque) c_int;
extern \"c\" fn pthread_join(usize, ?*anyopaque) c_int;

export fn work(argument: ?*anyopaque) ?*anyopaque {
    var size: usize = 1;
    while (size < 2000) : (size += 1) {
        const block = malloc(size);
        block.?[0] = 1;
        free(block);
    }
    return argument;
}

pub fn main() void {
    var thread: usize = 0;
    if (pthread_create(&thread, null, @ptrCast(&work), null) != 0) return;
    _ = work(null);
    _ = pthread_join(thread, null);
    _ = puts(\"ok\");
}
";

/// Returns a `build.zig`. `module`: whether a program has a module as a separate value, as it does from 0.15 on.
fn build_zig(module: bool, snippet: &str) -> String {
    let (given, later) = match module {
        true => (".root_module = b.createModule(.{ .target = target, .optimize = .Debug, .link_libc = true })", ""),
        false => (".target = target, .optimize = .Debug", "    exe.linkLibC();\n"),
    };
    format!(
        "const std = @import(\"std\");\n\npub fn build(b: *std.Build) void {{\n    const target = b.standardTargetOptions(.{{}});\n\
         \x20   const exe = b.addExecutable(.{{ .name = \"hello\", {given} }});\n{later}\
         \x20   exe.root_module.addCSourceFile(.{{ .file = b.path(\"hello.c\") }});\n    {snippet}\n    b.installArtifact(exe);\n}}\n"
    )
}

fn links(compiler: PathBuf, module: bool, zig_serves: bool) {
    let place = Place::new("the source");
    let snippets = place.emit(&["--target", "x86_64-linux-musl"]);
    // zig's caches are in the same place as those of the pinned release.
    let pinned = fixtures::zig().command();
    let caches: Vec<_> = pinned.get_envs().filter_map(|(name, value)| Some((name, value?))).collect();
    let with_caches = |command: &mut Command| {
        command.envs(caches.iter().copied()).current_dir(place.folder());
    };

    place.write("main.zig", MAIN);
    let folder = word(compiler.parent().expect("a folder"));
    let mut line = Command::new("sh");
    line.args(["-ec", &format!("PATH={folder}:$PATH\n{}", snippets["zig"])]);
    with_caches(&mut line);
    succeeds(&mut line);
    assert_eq!(succeeds(&mut Command::new(place.path("main"))), "ok\n");
    place.carries(&place.path("main"), "snmalloc");

    place.write("hello.c", PROGRAM);
    place.write("build.zig", build_zig(module, &snippets["build.zig"]));
    let mut build = Command::new(&compiler);
    build.args(["build", "-Dtarget=x86_64-linux-musl"]);
    with_caches(&mut build);
    succeeds(&mut build);
    let program = place.path("zig-out/bin/hello");
    assert_eq!(succeeds(&mut Command::new(&program)), "ok\n");
    place.carries(&program, "snmalloc");
    if zig_serves {
        alone(&place, &compiler, with_caches);
    }
}

/// Without the object, what serves malloc is zig's own from 0.16 on. It leaves no mark in a stripped
/// program: it is unknown, and `inspect` says why.
fn alone(place: &Place, compiler: &Path, with_caches: impl Fn(&mut Command)) {
    for level in ["-O0", "-O2"] {
        for strip in [false, true] {
            let mut link = Command::new(compiler);
            link.args(["cc", "-target", "x86_64-linux-musl", level, "-o", "alone", "hello.c"])
                .args(strip.then_some("-s"));
            with_caches(&mut link);
            succeeds(&mut link);
            let report = place.run(["inspect", "--json", "alone"]).exits(0).json()["files"][0].clone();
            let (name, reason) = match strip {
                false => ("zig", "`malloc` and `c.malloc.malloc` are the same function"),
                true => ("unknown", "no symbols, and no marks of a known allocator: zig's"),
            };
            assert_eq!(report["malloc"]["name"], name, "{level}: {report}");
            assert!(report["malloc"]["evidence"].to_string().contains(reason), "{report}");
        }
    }
}

fn other(version: &str, module: bool, zig_serves: bool) {
    if std::env::consts::ARCH != "x86_64" {
        eprintln!("skipped: the wheels are for x86_64");
        return;
    }
    let program = fixtures::toolchains::zig(version);
    assert!(
        program.is_file(),
        "zig {version} is missing at `{}`: run `cargo xtask setup toolchains`",
        program.display()
    );
    links(program, module, zig_serves);
}

#[test]
#[ignore = "zigs: each zig compiles musl for itself"]
fn zig_0_13() {
    other("0.13.0", false, false);
}

#[test]
#[ignore = "zigs: each zig compiles musl for itself"]
fn zig_0_14() {
    other("0.14.1", false, false);
}

#[test]
#[ignore = "zigs: each zig compiles musl for itself"]
fn zig_0_15() {
    links(fixtures::zig().program().to_owned(), true, false);
}

#[test]
#[ignore = "zigs: each zig compiles musl for itself"]
fn zig_0_16() {
    other("0.16.0", true, true);
}

#[test]
#[ignore = "zigs: each zig compiles musl for itself"]
fn zig_0_17() {
    other("0.17.1", true, true);
}
