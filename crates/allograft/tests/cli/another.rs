//! A libc.a like that of SDK 0.1.0: mimalloc was put in by hand, and some functions were lost. It is refused or
//! replaced.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use fixtures::Arch;
use fixtures::sample::OF_ALLOCATOR;

use crate::lab::{Lab, debian, tool};

/// Returns mimalloc's sources in the folder where cargo keeps the donors' packages.
fn sources() -> PathBuf {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let metadata = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--offline", "--locked"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let metadata: serde_json::Value = serde_json::from_slice(&metadata.stdout).unwrap();
    let mut packages = metadata["packages"].as_array().unwrap().iter();
    let package = packages.find(|package| package["name"] == "libmimalloc-sys2").unwrap();
    PathBuf::from(package["manifest_path"].as_str().unwrap()).with_file_name("c_src/mimalloc")
}

/// Makes `sdk/libc.a` in the lab from musl's, by the steps of the SDK's build script (swiftlang/swift-docker:
/// `swift-ci/sdks/static-linux/scripts/build.sh`).
fn by_hand(lab: &Lab) {
    lab.libc("sdk/libc.a");
    let source = sources();
    let mut compile = vec!["cc", "-target", "x86_64-linux-musl", "-c", "-O2", "-g0", "-fPIC", "-Wno-date-time"];
    compile.extend(["-DMI_MALLOC_OVERRIDE", "-DMI_LIBC_MUSL=1", "-DMI_STATIC_LIB", "-DNDEBUG"]);
    let mut command = fixtures::zig().command();
    command.args(compile).arg("-I").arg(source.join("include")).arg(source.join("src/static.c"));
    tool(command.arg("-o").arg(lab.path("mimalloc.o")));
    exchange(lab, &[&allocator()[..], &["strdup.lo", "strndup.lo", "wcsdup.lo"]].concat());
}

/// Deletes members of `sdk/libc.a`, and adds `mimalloc.o`, as `ar` does it.
fn exchange(lab: &Lab, deleted: &[&str]) {
    tool(Command::new("ar").arg("d").arg(lab.path("sdk/libc.a")).args(deleted));
    tool(Command::new("ar").arg("r").arg(lab.path("sdk/libc.a")).arg(lab.path("mimalloc.o")));
    fs::remove_file(lab.path("mimalloc.o")).unwrap();
}

/// The members of musl's own allocator in Debian's archive, but for `donate.lo`: `ar` deletes one member for each time
/// that a name is given, and two members each have these two.
fn allocator() -> Vec<&'static str> {
    let named = OF_ALLOCATOR.into_iter().filter(|name| *name != "donate.lo");
    named.chain(["free.lo", "realloc.lo"]).collect()
}

/// Makes `sdk/libc.a` with the small allocator of `foreign.c` for x86_64, compiled with these definitions, and without
/// these members of musl.
fn imitation(lab: &Lab, definitions: &str, deleted: &[&str]) {
    lab.libc("sdk/libc.a");
    let source = lab.put("foreign.c", format!("{}{definitions}", include_str!("foreign.c")).as_bytes());
    let flags = ["-c", "-O1", "-fno-builtin", "-fno-stack-protector", "-o"];
    tool(fixtures::cc().args(flags).arg(lab.path("mimalloc.o")).arg(source));
    exchange(lab, deleted);
}

const PROGRAM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>
int main(void)
{
	char *one = strdup("one"), *two = strndup("two more", 3);
	wchar_t *three = wcsdup(L"three");
	void *four = aligned_alloc(64, 640);
	int ok = one && two && three && four && !strcmp(one, "one") && !strcmp(two, "two") && !wcscmp(three, L"three");
	free(one), free(two), free(three), free(four);
	puts(ok ? "ok" : "wrong");
	return !ok;
}
"#;

/// Links a program against `sdk/libc.a` and runs it.
fn runs(lab: &Lab) -> String {
    let musl = fixtures::debian_musl(Arch::X86_64);
    let source = lab.put("main.c", PROGRAM.as_bytes());
    let (object, program) = (lab.path("main.o"), lab.path("main"));
    let mut compile = fixtures::cc();
    compile.args(["-c", "-O1", "-fno-stack-protector", "-U_FORTIFY_SOURCE", "-nostdinc", "-isystem"]);
    tool(compile.arg(musl.include).arg("-o").arg(&object).arg(source));
    let mut link = fixtures::cc();
    link.args(["-static", "-nostdlib", "-o"]).arg(&program).arg(musl.libdir.join("crt1.o"));
    link.arg(musl.libdir.join("crti.o")).arg(&object).arg(lab.path("sdk/libc.a"));
    tool(link.args(["-lgcc", "-lgcc_eh"]).arg(lab.path("sdk/libc.a")).arg(musl.libdir.join("crtn.o")));
    let ran = Command::new(&program).output().unwrap();
    String::from_utf8(ran.stdout).unwrap()
}

#[test]
#[ignore = "zig-musl: takes zig's C++ library"]
fn refused_and_replaced() {
    let lab = Lab::new();
    by_hand(&lab);
    let (mine, stock) = (fs::read(lab.path("sdk/libc.a")).unwrap(), lab.put("stock/libc.a", &debian()));
    lab.changes_nothing(3, ["graft", "sdk"]).says(&["mimalloc", "any more: `wcsdup`", "--force", "--stock"]);
    // Without `--stock`, these functions would be missing.
    lab.changes_nothing(3, ["graft", "sdk", "--force"]).says(&["`strdup`", "`strndup`", "`_Znwm`", "--stock"]);
    // musl's libc.a brings back the C functions, but not the operators.
    let ran = lab.changes_nothing(3, ["graft", "sdk", "--force", "--stock", "stock"]).says(&["`_Znwm`", "libc++abi.a"]);
    assert!(!ran.err.contains("`strdup`"), "{}", ran.err);
    lab.changes_nothing(2, ["graft", "sdk", "--stock", "stock"]).says(&["--force"]);
    lab.changes_nothing(2, ["graft", "sdk", "--force", "--stock", "sdk/missing"]);

    let operators = fixtures::zig_cxx(Arch::X86_64).remove(1);
    let operators = lab.put("stock/lib/libc++abi.a", &fs::read(operators).unwrap());
    let with_all = ["graft", "sdk", "--force", "--stock", "stock", "--json"];
    let document = lab.run(with_all).exits(0).json();
    crate::documents::fits("graft", &document);
    let host = &document["hosts"][0];
    assert_eq!(host["another"]["allocator"], "mimalloc");
    let names = |list: &str| -> Vec<&str> {
        host["another"][list].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect()
    };
    for name in ["_ZdlPv", "_Znwm", "strdup", "strndup", "wcsdup"] {
        assert!(names("restored").contains(&name), "{name} in {:?}", names("restored"));
    }
    assert_eq!(names("missing"), [""; 0]);
    assert_eq!(runs(&lab), "ok\n");
    lab.run(["inspect", "main", "--expect", "snmalloc"]).exits(0);
    let libc = lab.path("sdk/libc.a");
    let graft = fs::read(&libc).unwrap();
    // No function of stock is missing. But `ar` wrote every header anew, and the restored members are at the end.
    let verified = lab.run(["verify", "sdk", "--static-only", "--json", "--stock", stock.to_str().unwrap()]).json();
    let failed = verified["checks"].as_array().unwrap().iter().filter(|check| check["ok"] == false);
    let failed: Vec<&str> = failed.map(|check| check["name"].as_str().unwrap()).collect();
    assert_eq!(failed, ["members-kept", "removed-members"]);
    // The backup of this graft is not a stock file.
    lab.run(["verify", "sdk", "--static-only"]).exits(0).says(&["somebody else's mimalloc"]);
    // Grafts again, with and without `--force`, then undoes the graft.
    for again in [&with_all[..], &["graft", "sdk"]] {
        let document = lab.changes_nothing(0, again);
        assert!(fs::read(&libc).unwrap() == graft, "{}", document.out);
    }
    lab.run(["undo", "sdk"]).exits(0);
    assert!(fs::read(&libc).unwrap() == mine);

    // If functions cannot be brought back, a warning lists them. Here stock's libc.a is missing; the operators and two
    // of the other functions are given.
    let own = lab
        .put("dup.c", b"char *strdup(const char *s) { return 0; } char *strndup(const char *s, long n) { return 0; }");
    tool(fixtures::cc().args(["-c", "-fno-builtin", "-o"]).arg(lab.path("dup.o")).arg(own));
    tool(Command::new("ar").arg("rc").arg(lab.path("dup.a")).arg(lab.path("dup.o")));
    let arguments = ["graft", "sdk", "--force", "--stock", "dup.a", "--stock", operators.to_str().unwrap()];
    lab.run(arguments).exits(0).says(&["warning: ", "lacks `wcsdup`"]);
    lab.run(["undo", "sdk"]).exits(0);
}

#[test]
fn stock_of_another_version_or_machine_brings_nothing() {
    let lab = Lab::new();
    by_hand(&lab);
    let other = fs::read(fixtures::debian_musl(Arch::Aarch64).libc).unwrap();
    let mut newer = debian();
    let at = newer.windows(6).position(|window| window == b"1.2.3\0").unwrap();
    newer[at + 4] = b'5';
    lab.put("stock/aarch64/libc.a", &other);
    lab.put("stock/newer/libc.a", &newer);
    lab.changes_nothing(3, ["graft", "sdk", "--force", "--stock", "stock"]).says(&["`strdup`"]);
}

/// Whether the program at `path` has the symbol, by its table.
fn has_symbol(path: &std::path::Path, symbol: &str) -> bool {
    let listed = Command::new("nm").arg(path).output().unwrap();
    String::from_utf8_lossy(&listed.stdout).lines().any(|line| line.split_whitespace().last() == Some(symbol))
}

/// The refusal says what helps, and what it says works: string functions beside the other allocator, and a donor in its
/// place.
#[test]
fn an_imitation_takes_what_the_refusal_names() {
    let lab = Lab::new();
    imitation(&lab, "", &allocator());
    let libc = lab.path("sdk/libc.a");
    let mine = fs::read(&libc).unwrap();
    // Nothing is proven, so all that was seen is said.
    let seen = lab.run(["inspect", "sdk/libc.a"]).exits(0).out;
    assert!(seen.contains("unknown") && seen.contains("`mimalloc.o`) defines `malloc`"), "{seen}");
    let says = [
        "`mimalloc.o` defines `mi_version`",
        "mimalloc\n",
        "`allograft graft --donor strings` grafts the string functions alone",
        "`allograft graft --force` puts",
    ];
    let ran = lab.changes_nothing(3, ["graft", "sdk"]).says(&says);
    assert!(!ran.err.contains("--stock"), "nothing is lost: {}", ran.err);

    lab.run(["graft", "sdk", "--donor", "none"]).exits(0).says(&[]);
    assert_eq!(runs(&lab), "ok\n");
    assert!(has_symbol(&lab.path("main"), "mi_malloc"), "its allocator stays");
    let checks = lab.run(["verify", "sdk", "--static-only", "--json"]).exits(0).json();
    assert!(checks["checks"].as_array().unwrap().iter().any(|check| check["name"] == "strings-one-provider"));
    lab.run(["undo", "sdk"]).exits(0);
    assert!(fs::read(&libc).unwrap() == mine);

    lab.run(["graft", "sdk", "--force"]).exits(0);
    assert_eq!(runs(&lab), "ok\n");
    assert!(!has_symbol(&lab.path("main"), "mi_malloc"), "its allocator is gone");
    lab.run(["inspect", "main", "--expect", "snmalloc"]).exits(0);
    lab.run(["verify", "sdk", "--static-only"]).exits(0);
    lab.run(["undo", "sdk"]).exits(0);
    assert!(fs::read(&libc).unwrap() == mine);
}

/// Functions that are lost, or that only the allocator's object defines, take a stock archive, and the refusal says so.
#[test]
fn an_imitation_that_has_lost_functions() {
    let lab = Lab::new();
    lab.libc("stock.a");
    imitation(&lab, "", &[&allocator()[..], &["wcsdup.lo"]].concat());
    let says = ["any more: `wcsdup`", "`--stock` with a stock libc.a of musl 1.2.3 brings back `wcsdup`"];
    lab.changes_nothing(3, ["graft", "sdk"]).says(&says);
    lab.run(["graft", "sdk", "--force", "--stock", "stock.a"]).exits(0);
    assert_eq!(runs(&lab), "ok\n");

    let definitions = "char *strdup(const char *s) { char *c = malloc(strlen(s) + 1); return c ? strcpy(c, s) : c; }\n";
    let lab = Lab::new();
    lab.libc("stock.a");
    imitation(&lab, definitions, &[&allocator()[..], &["strdup.lo"]].concat());
    let says =
        ["`--stock` and a stock libc.a of musl 1.2.3 for what only that allocator has: `strdup`", "--donor strings"];
    lab.changes_nothing(3, ["graft", "sdk"]).says(&says);
    lab.changes_nothing(3, ["graft", "sdk", "--force"]).says(&["`strdup`", "--stock"]);
    lab.run(["graft", "sdk", "--force", "--stock", "stock.a"]).exits(0);
    assert_eq!(runs(&lab), "ok\n");
}

/// A member of libc that needs the other allocator's own functions keeps a donor from its place.
#[test]
fn an_imitation_that_libc_has_grown_together_with() {
    let lab = Lab::new();
    imitation(&lab, "", &allocator());
    let source = lab.put("user.c", b"int mi_version(void); int uses_it(void) { return mi_version(); }\n");
    tool(fixtures::cc().args(["-c", "-O1", "-o"]).arg(lab.path("user.o")).arg(source));
    tool(Command::new("ar").arg("r").arg(lab.path("sdk/libc.a")).arg(lab.path("user.o")));
    let says = ["a donor cannot take its place", "`user.o` refers to `mi_version`", "--donor strings"];
    let ran = lab.changes_nothing(3, ["graft", "sdk"]).says(&says);
    assert!(!ran.err.contains("--force"), "{}", ran.err);
    lab.changes_nothing(3, ["graft", "sdk", "--force"]).says(&["`user.o` refers to `mi_version`"]);
}
