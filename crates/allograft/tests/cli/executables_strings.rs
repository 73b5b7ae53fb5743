//! `--strings on` for linked executables: exchanges, their report, refusals.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use fixtures::{Arch, link};

use crate::lab::{Lab, tool};

/// Calls [`linked`] for this machine.
fn proof(lab: &Lab, name: &str, position_independent: bool) -> PathBuf {
    linked(lab, name, Arch::X86_64, position_independent, false)
}

/// Links the proof of the string functions (suite/strings) with stock musl. The proof calls every one under its own
/// name. A second file makes it need musl's allocator.
fn linked(lab: &Lab, name: &str, arch: Arch, position_independent: bool, stripped: bool) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let suite = root.join("suite").join("strings");
    let musl = fixtures::debian_musl(arch);
    let foreign = arch != Arch::X86_64;
    let allocates = "#include <stdlib.h>\n__attribute__((constructor)) static void start(void)\n\
                     {\n\tvoid *volatile block = realloc(malloc(100), 100000);\n\tfree(block);\n\tblock = 0;\n}\n";
    let sources = [
        suite.join("proof.c"),
        suite.join("proof_blocks.c"),
        suite.join("proof_texts.c"),
        suite.join("proof_seek.c"),
        suite.join("proof_sets.c"),
        suite.join("proof_letters.c"),
        root.join("tests").join("strings").join("grafted.c"),
        lab.put("allocates.c", allocates.as_bytes()),
    ];
    let mut linker = if foreign { link::lld() } else { link::gnu() };
    linker.args(stripped.then_some("-s"));
    let mut objects = Vec::new();
    for (index, source) in sources.iter().enumerate() {
        let object = lab.path(format!("{index}.o"));
        let mut compile = if foreign { fixtures::zig().command() } else { fixtures::cc() };
        if foreign {
            compile.args(["cc", "-target", &format!("{}-linux-musl", arch.name()), "-fno-sanitize=all"]);
        }
        compile.args(["-O2", "-fPIE", "-fno-builtin", "-fno-stack-protector", "-w", "-nostdinc"]);
        // Functions of wide characters stay the program's own.
        compile.args(["-DWITHOUT_WCHARS", "-isystem"]);
        compile.arg(&musl.include).args(fixtures::strings::FUNCTIONS.map(|name| format!("-Dproof_{name}={name}")));
        tool(compile.arg("-c").arg("-o").arg(&object).arg(source));
        objects.push(object);
    }
    // Its long double has 128 bits.
    let runtime = if foreign { link::compiler_rt(arch) } else { None };
    tool(&mut musl.link(position_independent).line(linker, &objects, runtime, &lab.path(name)));
    objects.into_iter().chain([lab.path("allocates.c")]).for_each(|file| fs::remove_file(file).unwrap());
    lab.path(name)
}

/// Asserts that the proof passes.
#[track_caller]
fn passes(program: &Path) {
    let output = fixtures::run(Arch::X86_64, program).args(["8", "64"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("right in") && !said.contains("wrong"), "{output:?}");
}

fn names(list: &serde_json::Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|entry| entry["name"].as_str().unwrap()).collect()
}

#[test]
#[ignore = "minutes: ten seconds of processor time"]
fn string_functions_are_exchanged_and_given_back() {
    exchanged_and_given_back([(true, true)]);
}

#[test]
#[ignore = "minutes: the same three times more, each of which takes half a minute"]
fn so_are_those_of_other_kinds_of_programs() {
    exchanged_and_given_back([(false, false), (true, false), (false, true)]);
}

/// Grafts and undoes programs that are position-independent or not, and stripped or not.
fn exchanged_and_given_back<const N: usize>(programs: [(bool, bool); N]) {
    for (position_independent, stripped) in programs {
        let lab = Lab::new();
        let path = linked(&lab, "proof", Arch::X86_64, position_independent, stripped);
        let stock = fs::read(&path).unwrap();
        lab.run(["graft", "proof", "-o", "plain"]).exits(0);
        let ran = lab.run(["graft", "proof", "--strings", "on", "--json"]).exits(0);
        let host = &ran.json()["hosts"][0];
        assert_eq!(host["tried"][0], "self-test: passed");
        let strings = &host["strings"];
        assert_eq!((&strings["action"], &strings["donor"]["name"]), (&"grafted".into(), &"strings".into()));
        let redirected = names(&strings["entries"]);
        for name in [
            "memcpy",
            "memmove",
            "memset",
            "memcmp",
            "memchr",
            "memrchr",
            "strlen",
            "strchrnul",
            "strncmp",
            "stpcpy",
            "strcasecmp",
            "strncasecmp",
        ] {
            assert!(redirected.contains(&name), "{name}: {strings}");
        }
        passes(&path);
        let report = &lab.run(["inspect", "proof", "--json"]).exits(0).json()["files"][0];
        assert_eq!((&report["strings"], &report["malloc"]["name"]), (&"grafted".into(), &"snmalloc".into()));
        let evidence = report["strings_evidence"].to_string();
        // The program may have several copies of one function; each name is printed once.
        let mut once = redirected.clone();
        let mut seen = std::collections::BTreeSet::new();
        once.retain(|name| seen.insert(*name));
        assert!(evidence.contains(&format!("jump to the donor: {}", once.join(", "))), "{evidence}");
        let verified = lab.run(["verify", "proof"]).exits(0).out;
        let entries = format!("string functions jump into the donor's segment: {}\n", redirected.join(" "));
        assert!(verified.contains(&entries) && verified.contains("self-test: passed"), "{verified}");
        // A second graft changes nothing. Without string functions, the graft is the one that it would have been
        // before.
        lab.run(["graft", "proof", "--strings", "on"]).exits(0);
        lab.run(["graft", "proof"]).exits(0);
        assert!(fs::read(&path).unwrap() == fs::read(lab.path("plain")).unwrap());
        let report = &lab.run(["inspect", "proof", "--json"]).exits(0).json()["files"][0];
        assert_eq!(report["strings"], "stock");
        lab.run(["undo", "proof"]).exits(0);
        assert!(fs::read(&path).unwrap() == stock);
    }
}

#[test]
#[ignore = "minutes: seven seconds of processor time"]
fn a_plan_lists_what_is_exchanged_and_what_stays() {
    let lab = Lab::new();
    let path = proof(&lab, "proof", false);
    let planned = lab.changes_nothing(0, ["graft", "proof", "--strings", "on", "--dry-run"]).out;
    assert!(planned.contains("would graft") && planned.contains("  strings: "), "{planned}");
    // This memcmp does not do what its name says, and its callers may depend on that: it returns 1 more.
    let mut bytes = fs::read(&path).unwrap();
    let document = lab.run(["graft", "proof", "--strings", "on", "--dry-run", "--json"]).exits(0).json();
    let strings = &document["hosts"][0]["strings"];
    let everywhere: Vec<&str> =
        ["entries", "kept", "absent"].into_iter().flat_map(|list| names(&strings[list])).collect();
    let different: std::collections::BTreeSet<&str> = everywhere.iter().copied().collect();
    assert_eq!((everywhere.len(), different.len()), (24, 24), "{strings}");
    let memcmp = strings["entries"].as_array().unwrap().iter().find(|entry| entry["name"] == "memcmp").unwrap();
    let address = u64::from_str_radix(&memcmp["address"].as_str().unwrap()[2..], 16).unwrap();
    // ld loads the file at this address by default.
    let at = usize::try_from(address - 0x40_0000).unwrap();
    // mov eax, 1; ret
    bytes[at..at + 6].copy_from_slice(b"\xb8\x01\0\0\0\xc3");
    fs::write(lab.path("other"), bytes).unwrap();
    let document = lab.run(["graft", "other", "--strings", "on", "--dry-run", "--json"]).exits(0).json();
    let strings = &document["hosts"][0]["strings"];
    assert!(!names(&strings["entries"]).contains(&"memcmp"));
    let kept = strings["kept"].as_array().unwrap();
    let memcmp = kept.iter().find(|entry| entry["name"] == "memcmp").unwrap();
    assert_eq!(memcmp["reason"], "it gives a different result");
    let planned = lab.run(["graft", "other", "--strings", "on", "--dry-run", "-v"]).exits(0).out;
    assert!(planned.contains("  stays:   memcmp at "), "{planned}");
    let planned = lab.run(["graft", "other", "--strings", "on", "--dry-run"]).exits(0).out;
    assert!(
        !planned.contains("stays:") && planned.contains(" stay, ") && planned.contains("`-v` says why"),
        "{planned}"
    );
    // The default is off.
    let document = lab.run(["graft", "proof", "--dry-run", "--json"]).exits(0).json();
    assert_eq!(document["hosts"][0]["strings"]["action"], "off");
}

#[test]
fn what_cannot_be_exchanged_is_refused() {
    let lab = Lab::new();
    let path = proof(&lab, "proof", false);
    // No symbol names a string function, so none is looked for.
    let mut rename = Command::new("objcopy");
    let internal = ["__memrchr", "__strchrnul", "__stpcpy", "__stpncpy"];
    rename.args(
        fixtures::strings::FUNCTIONS
            .into_iter()
            .chain(internal)
            .map(|name| format!("--redefine-sym={name}=own_{name}")),
    );
    tool(rename.arg(&path));
    lab.changes_nothing(3, ["graft", "proof", "--strings", "on"]).says(&[
        "none of its string functions can be exchanged",
        "none was found",
        "help: leave `--strings on` out",
    ]);
    lab.run(["graft", "proof"]).exits(0);
}

/// In linked files string functions come with an allocator only.
#[test]
fn without_a_donor_nothing_is_grafted() {
    let lab = Lab::new();
    linked(&lab, "proof", Arch::X86_64, false, true);
    std::fs::copy("/bin/true", lab.path("dynamic")).unwrap();
    let beside = "name a donor too, such as snmalloc";
    for (target, strings, help) in
        [("proof", &[][..], beside), ("proof", &["--strings", "on"], beside), ("dynamic", &[], "name a donor")]
    {
        let line = [&["graft", target, "--donor", "none"], strings].concat();
        lab.changes_nothing(2, line).says(&[&format!("into `{target}` without a donor"), "help: ", help]);
    }
}

/// Their instructions are not among those of the proof.
#[test]
#[ignore = "aarch64: zig compiles for it"]
fn those_of_aarch64_are_refused() {
    let lab = Lab::new();
    linked(&lab, "proof", Arch::Aarch64, false, true);
    let line = ["graft", "proof", "--untested", "--strings", "on"];
    lab.changes_nothing(3, line).says(&["proven in linked executables for x86_64, and it is for aarch64", "help: "]);
    let line = ["graft", "proof", "--untested", "--donor", "none", "--strings", "on"];
    lab.changes_nothing(2, line).says(&["into `proof` without a donor", "help: ", "for x86_64 only"]);
    lab.run(["graft", "proof", "--untested"]).exits(0);
}
