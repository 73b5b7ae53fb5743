//! C, Go and Swift, with the compilers of the Debian that `cargo xtask setup toolchains` unpacks.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use fixtures::toolchains;

use crate::place::{PROGRAM, Place, snippets, succeeds};

/// Makes a folder with allograft in it, so that the paths which `emit` prints are those inside that Debian. Returns
/// `None`, with a message, if there is no such Debian.
fn place() -> Option<Place> {
    if let Some(reason) = toolchains::unavailable() {
        eprintln!("skipped: {reason}");
        return None;
    }
    let place = Place::new("work");
    fs::copy(env!("CARGO_BIN_EXE_allograft"), place.path("allograft")).expect("a copy");
    Some(place)
}

fn run(place: &Place, script: &str) -> String {
    succeeds(&mut toolchains::command(place.folder(), script))
}

/// Runs `emit` in there. The object's folder has a blank in its name.
fn emit(place: &Place, form: &str) -> BTreeMap<String, String> {
    fs::create_dir_all(place.path("a folder")).expect("a folder");
    let folder = "cd 'a folder'\n../allograft emit --json --target x86_64-linux-musl --as ";
    snippets(&run(place, &format!("{folder}{form}")))
}

#[test]
#[ignore = "toolchains: takes compilers of other languages, 3.9 GB"]
fn a_link_line_of_a_c_compiler() {
    let Some(place) = place() else { return };
    place.write("main.c", PROGRAM);
    // The compiler's name is the user's own choice.
    let compiler =
        "mkdir -p bin\nln -sf /usr/bin/musl-gcc bin/cc\nexport PATH=$PWD/bin:$PATH\ncc -O1 -fno-builtin -c main.c\n";
    for (form, name) in [("object", "cc, before every library"), ("archive", "cc, before every other library")] {
        let line = &emit(&place, form)[name];
        let printed = run(&place, &format!("{compiler}rm -f program\n{line}\n./program"));
        assert!(printed.ends_with("ok\n"), "{printed}");
        place.carries(&place.path("program"), "snmalloc");
    }
}

#[test]
#[ignore = "toolchains: takes compilers of other languages, 3.9 GB"]
fn go_with_cgo() {
    let Some(place) = place() else { return };
    place.write("go.mod", "module example\n\ngo 1.21\n");
    let main = fs::read_to_string(shared("go/main.go")).expect("a source");
    place.write("main.go", &main);
    let line = &emit(&place, "object")["Go with cgo"];
    let printed = run(&place, &format!("{line}\n./example"));
    assert!(printed.lines().any(|line| line.starts_with("ok")), "{printed}");
    place.carries(&place.path("example"), "snmalloc");
}

const SDK: &str = "swift-6.0.3-RELEASE_static-linux-0.0.1";

/// Copies sources that the casebook links too, and makes and installs an SDK with a stock `libc.a`.
fn swift_sdk(place: &Place, sources: &[(&str, &str)]) {
    for (source, name) in [("glibc_names.c", "names.c"), ("swift/sdk.sh", "sdk.sh")].iter().chain(sources) {
        place.write(name, fs::read_to_string(shared(source)).expect("a source"));
    }
    run(place, &format!("musl-gcc -O2 -c names.c && sh sdk.sh {SDK} && swift sdk install {SDK}.artifactbundle.tar.gz"));
}

/// The package names the object; the SDK's `libc.a` stays stock.
#[test]
#[ignore = "toolchains: takes compilers of other languages, 3.9 GB"]
fn a_swift_package() {
    let Some(place) = place() else { return };
    swift_sdk(&place, &[("swift/Package.swift", "Package.swift"), ("swift/main.swift", "Sources/map/main.swift")]);
    let build = format!("swift build -c release --swift-sdk {SDK} 2>&1\n.build/release/map 20000 4");
    assert!(run(&place, &build).lines().any(|line| line.starts_with("ok")));
    place.carries(&place.path(".build/release/map"), "mallocng");

    let setting = &emit(&place, "object")["Package.swift, in the target"];
    let package = fs::read_to_string(place.path("Package.swift")).expect("a package");
    let with = package.replace("(name: \"map\")]", &format!("(name: \"map\", {setting})]"));
    assert_ne!(with, package);
    place.write("Package.swift", &with);
    assert!(run(&place, &build).lines().any(|line| line.starts_with("ok")));
    place.carries(&place.path(".build/release/map"), "snmalloc");
}

/// The command plugin of the example. The SDK's `libc.a` stays stock.
#[test]
#[ignore = "toolchains: takes compilers of other languages, 3.9 GB"]
fn a_swift_command_plugin() {
    let Some(place) = place() else { return };
    swift_sdk(&place, &[]);
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../integrations/examples/swift");
    succeeds(std::process::Command::new("cp").arg("-r").arg(example).arg(place.path("example")));
    let program = place.path("example/.build/release/server");
    let here = "export PATH=$PATH:/mnt\ncd example\n";
    let graft = |options: &str| format!("{here}swift package --swift-sdk {SDK} allograft {options} 2>&1");
    // Another donor is linked without a step in between.
    for (options, donor) in [("", "snmalloc"), ("--donor mimalloc --set purge_delay=0", "mimalloc")] {
        let printed = run(&place, &format!("{}\n.build/release/server", graft(options)));
        assert!(printed.contains(&format!("server: {donor} ")) && printed.ends_with("served\n"), "{printed}");
        place.carries(&program, donor);
    }
    // SwiftPM would take up the plan of its last build.
    run(&place, &format!("{here}swift package clean\nswift build -c release --swift-sdk {SDK} 2>&1"));
    place.carries(&program, "mallocng");
    // An unknown donor fails the build, with allograft's message.
    let wrong = format!("{here}! swift package --swift-sdk {SDK} allograft --donor dlmalloc 2>&1");
    assert!(run(&place, &wrong).contains("dlmalloc"));
    // By hand, and behind libc: the check says so.
    run(&place, &format!("{here}allograft emit --target x86_64-linux-musl --as archive -o /mnt/liballograft.a"));
    let package = fs::read_to_string(place.path("example/Package.swift")).expect("a package");
    let settings = "(name: \"server\", linkerSettings: [\
         .unsafeFlags([\"-Xlinker\", \"-lc\", \"-Xlinker\", \"/mnt/liballograft.a\"])])";
    let with = package.replace("(name: \"server\")", settings);
    assert_ne!(with, package);
    place.write("example/Package.swift", &with);
    run(&place, &format!("{here}swift build -c release --swift-sdk {SDK} 2>&1"));
    let check = format!("{here}! allograft inspect --expect snmalloc .build/release/server");
    assert!(run(&place, &check).contains("server: mallocng "));
}

/// Returns the path of a source that the casebook links too.
fn shared(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/toolchains").join(name)
}
