//! Builds, rebuilds, and the contents of the programs.

use std::fs;
use std::process::Command;

use crate::project::{Project, TARGET, toolchain};

#[test]
#[ignore = "rust: compiles with a toolchain of the slow tier"]
fn relinks_when_donor_or_options_change_and_not_otherwise() {
    let before = Project::toolchain_state();
    let project = Project::app();
    // A dependency in the workspace, which a change of donor need not compile again.
    project.append("Cargo.toml", "[workspace]\nmembers = [\"inner\"]\n[dependencies]\ninner = { path = \"inner\" }\n");
    project.put("inner/Cargo.toml", "[package]\nname = \"inner\"\nversion = \"0.1.0\"\nedition = \"2021\"\n");
    project.put("inner/src/lib.rs", "pub fn two() -> u32 { 2 }\n");
    let build = |more: &str| project.cargo(&format!("allograft build --target {TARGET} {more}")).exits(0);
    let program = project.program("debug", "app");
    let first = build("").says(&["carries snmalloc "]);
    assert_eq!(first.compiled(), 2, "{}", first.err);
    project.carries(&program, "snmalloc", "static-pie");
    assert_eq!(build("").compiled(), 0);
    let other = build("--donor mimalloc3").says(&["carries mimalloc3 "]);
    assert!(!other.err.contains("Compiling inner"), "{}", other.err);
    project.carries(&program, "mimalloc3", "static-pie");
    assert_eq!(build("--donor mimalloc3").compiled(), 0);
    let options = build("--donor mimalloc3 --set purge_delay=7");
    assert_eq!(options.compiled(), 1, "{}", options.err);
    let bytes = fs::read(&program).unwrap();
    assert!(bytes.windows(22).any(|part| part == b"options=purge_delay=7\n"));
    assert_eq!(build("--donor none").says(&["carries mallocng and strings"]).compiled(), 1);
    assert_eq!(build("").compiled(), 1);
    // Stock comes back as easily as ever.
    project.cargo(&format!("build --target {TARGET}")).exits(0);
    project.carries(&program, "mallocng", "static-pie");
    assert_eq!(build("").compiled(), 0);
    project.carries(&program, "snmalloc", "static-pie");
    // Nothing outside the target folder has changed.
    assert_eq!(Project::toolchain_state(), before);
    let mut names: Vec<String> = fs::read_dir(project.path(""))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["Cargo.lock", "Cargo.toml", "inner", "src", "target"]);
}

#[test]
#[ignore = "rust: compiles with a toolchain of the slow tier"]
fn every_command_and_the_arguments_of_programs() {
    let project = Project::app();
    project.put("tests/whole.rs", "#[test]\nfn whole() {\n    assert!(app::carries(\"snmalloc\"));\n}\n");
    project.put("examples/shown.rs", "fn main() {\n    assert!(app::carries(\"snmalloc\"));\n}\n");
    // Without `--target`, the target is this machine's.
    let ran = project.cargo("allograft run -- --donor x").exits(0);
    assert_eq!(ran.out, "2000 [\"--donor\", \"x\"]\n");
    project.cargo(&format!("allograft run --example shown --target={TARGET}")).exits(0);
    // The documentation test looks for the donor as well.
    let ran = project.cargo(&format!("allograft test --target {TARGET}")).exits(0);
    assert_eq!(ran.out.matches("test result: ok. 1 passed").count(), 3, "{}", ran.out);
    project.cargo(&format!("allograft bench --target {TARGET} --no-run")).exits(0);
    project
        .cargo(&format!("allograft install --path . --root to --target {TARGET}"))
        .exits(0)
        .says(&["carries snmalloc "]);
    project.carries(&project.path("to/bin/app"), "snmalloc", "static-pie");
    let ran = project.cargo(&format!("allograft rustc --release --target {TARGET} -- -Cdebuginfo=0")).exits(0);
    ran.says(&["carries snmalloc "]);
    project.carries(&project.program("release", "app"), "snmalloc", "static-pie");
    project.cargo("allograft check").exits(0);
    // Cargo passes on the program's own exit code.
    project.put("src/main.rs", "fn main() {\n    std::process::exit(7)\n}\n");
    project.cargo("allograft run").exits(7);
    project.put("src/main.rs", "fn main() {\n    nonsense\n}\n");
    project.cargo("allograft build").exits(101).says(&["nonsense"]);
}

#[test]
#[ignore = "rust: compiles with a toolchain of the slow tier"]
fn ways_to_compile_and_to_link() {
    let mut project = Project::app();
    project.append(
        "Cargo.toml",
        "[profile.fat]\ninherits = \"release\"\nlto = \"fat\"\n[profile.thin]\ninherits = \"release\"\nlto = \"thin\"\n\
         [profile.abort]\ninherits = \"release\"\npanic = \"abort\"\nstrip = true\n",
    );
    for profile in ["fat", "thin", "abort"] {
        project.cargo(&format!("allograft build --target {TARGET} --profile {profile}")).exits(0);
        let program = project.program(profile, "app");
        project.carries(&program, "snmalloc", "static-pie");
        assert_eq!(project.run(&mut Command::new(program)).exits(0).out, "2000 []\n");
    }
    // The user's own flags and linker are kept.
    project.put(
        ".cargo/config.toml",
        &format!("[build]\ntarget = \"{TARGET}\"\n[target.{TARGET}]\nlinker = \"own/linker\"\nrustflags = [\"-Crelocation-model=static\", \"--cfg=seen\"]\n"),
    );
    project.script("own/linker", "echo called >> \"$(dirname \"$0\")/calls\"\nexec cc \"$@\"");
    project.append("src/lib.rs", "#[cfg(not(seen))]\ncompile_error!(\"the user's flags\");\n");
    project.cargo("allograft build").exits(0);
    project.carries(&project.program("debug", "app"), "snmalloc", "static");
    assert!(project.path("own/calls").is_file());
    // So is the user's own wrapper.
    project.script("own/wrapper", "echo called >> \"$(dirname \"$0\")/wrapped\"\nexec \"$@\"");
    project.set("RUSTC_WORKSPACE_WRAPPER", project.path("own/wrapper").display().to_string());
    project.set("RUSTFLAGS", "--cfg=seen -Ccodegen-units=1");
    project.cargo("allograft build").exits(0);
    project.carries(&project.program("debug", "app"), "snmalloc", "static-pie");
    assert!(project.path("own/wrapped").is_file());
}

#[test]
#[ignore = "rust: compiles with a toolchain of the slow tier"]
fn programs_do_not_tell_where_allograft_lies() {
    let mut project = Project::app();
    project.append("Cargo.toml", "[profile.release]\nstrip = true\n");
    let mut programs = Vec::new();
    for name in ["one", "another folder"] {
        let folder = project.path(name);
        fs::create_dir(&folder).unwrap();
        let program = folder.join("cargo-allograft");
        fs::copy(env!("CARGO_BIN_EXE_cargo-allograft"), &program).unwrap();
        let path = std::env::var("PATH").unwrap();
        project.set("PATH", format!("{}:{}:{path}", toolchain().join("bin").display(), folder.display()));
        let arguments = ["allograft", "build", "--release", "--target", TARGET];
        project.run(Command::new(program).args(arguments)).exits(0);
        programs.push(fs::read(project.program("release", "app")).unwrap());
        fs::remove_dir_all(project.path("target")).unwrap();
    }
    assert!(programs[0] == programs[1]);
}

#[test]
#[ignore = "rust: compiles with a toolchain of the slow tier"]
fn one_heap_for_rust_and_c() {
    let project = Project::app();
    // C code compiled as -sys crates do it: blocks are allocated in one language and freed in the other.
    project.put("heap.c", "#include <stdlib.h>\n#include <string.h>\nchar *made(void) { return strdup(\"by C\"); }\nvoid ended(void *p) { free(p); }\n");
    project.put(
        "build.rs",
        "use std::process::Command;\nfn main() {\n    let out = std::env::var(\"OUT_DIR\").unwrap();\n\
         \x20   let run = |line: &[&str]| assert!(Command::new(line[0]).args(&line[1..]).status().unwrap().success());\n\
         \x20   run(&[\"cc\", \"-c\", \"-O2\", \"-fPIC\", \"-U_FORTIFY_SOURCE\", \"heap.c\", \"-o\", &format!(\"{out}/heap.o\")]);\n\
         \x20   run(&[\"ar\", \"rcs\", &format!(\"{out}/libheap.a\"), &format!(\"{out}/heap.o\")]);\n\
         \x20   println!(\"cargo::rustc-link-search=native={out}\");\n    println!(\"cargo::rustc-link-lib=static=heap\");\n}\n",
    );
    project.put(
        "src/main.rs",
        "use std::ffi::{c_char, c_void, CStr};\nextern \"C\" {\n    fn made() -> *mut c_char;\n    fn ended(p: *mut c_void);\n    fn malloc_usable_size(p: *mut c_void) -> usize;\n}\n\
         fn main() {\n    app::work(1);\n    unsafe {\n        let text = made();\n        println!(\"{}\", CStr::from_ptr(text).to_str().unwrap());\n        ended(text.cast());\n\
         \x20       let block = Box::into_raw(Box::new([7u64; 9]));\n        assert!(malloc_usable_size(block.cast()) >= 72);\n        ended(block.cast());\n    }\n}\n",
    );
    assert_eq!(project.cargo(&format!("allograft run --target {TARGET}")).exits(0).out, "by C\n");
    project.carries(&project.program("debug", "app"), "snmalloc", "static-pie");
}
