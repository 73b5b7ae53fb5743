//! Serd by Meson: unchanged, and with the dependency in its build files.

use std::fs;

use fixtures::projects::SERD;
use serde_json::Value;

use crate::built::{Built, Place, integration, programs, succeeds};

/// The results of Meson's tests that count as passed; serd has tests that have to fail.
const GOOD: [&str; 2] = ["OK", "EXPECTEDFAIL"];

/// Arguments for Meson that link programs of musl. Another argument for the linker may follow.
fn fixed(more: &str) -> Vec<String> {
    vec!["-Ddefault_library=static".to_owned(), format!("-Dc_link_args=['-static'{more}]")]
}

/// `compiler`: the C compiler. `arguments`: those of `meson setup`.
fn build(place: &Place, name: &str, compiler: &str, arguments: &[String]) -> Built {
    succeeds(place.command("meson").env("CC", compiler).args(["setup", name, "source"]).args(arguments));
    succeeds(place.command("meson").args(["compile", "-C", name]));
    succeeds(place.command("meson").args(["test", "-C", name]));
    let log = fs::read_to_string(place.path(name).join("meson-logs/testlog.json")).expect("a log");
    let tests = log.lines().map(|line| {
        let test: Value = serde_json::from_str(line).expect("a test");
        let text = |key: &str| test[key].as_str().expect("a text").to_owned();
        (text("name"), text("result"))
    });
    Built { tests: tests.collect(), programs: programs(&place.path(name)) }
}

/// Makes every executable depend on allograft, the only change to the project.
fn depend(place: &Place) {
    for file in ["source/meson.build", "source/test/meson.build"] {
        let path = place.path(file);
        let text = fs::read_to_string(&path).expect("a build file");
        let found = "dependencies: serd_dep,";
        assert_eq!(text.matches(found).count(), 1, "{file}");
        let changed = text.replace(found, "dependencies: [dependency('allograft'), serd_dep],");
        fs::write(path, changed).expect("a build file");
    }
    succeeds(place.command("mkdir").arg("source/subprojects"));
    std::os::unix::fs::symlink(integration("meson"), place.path("source/subprojects/allograft")).expect("a link");
}

#[test]
#[ignore = "projects: builds another project, and runs its tests"]
fn serd_passes_its_tests_static() {
    let Some(place) = Place::new(SERD) else { return };
    let stock = build(&place, "stock", "musl-gcc", &fixed(""));
    stock.passes(43, 9, &GOOD, false);

    // The unchanged project, with one argument for the linker.
    succeeds(place.command("allograft").args(["emit", "--target", "x86_64-linux-musl"]));
    let object = format!(", '{}'", place.path("allograft.o").display());
    let by_argument = build(&place, "argument", "musl-gcc", &fixed(&object));
    by_argument.passes(43, 9, &GOOD, true);
    assert_eq!(stock.tests, by_argument.tests);

    depend(&place);
    let by_dependency = build(&place, "dependency", "musl-gcc", &fixed(""));
    by_dependency.passes(43, 9, &GOOD, true);
    assert_eq!(stock.tests, by_dependency.tests);
    assert_eq!(stock.programs.len(), by_dependency.programs.len());
}

#[test]
#[ignore = "projects: builds another project, and runs its tests"]
fn serd_passes_its_tests_dynamic() {
    let Some(place) = Place::new(SERD) else { return };
    let stock = build(&place, "stock", "cc", &[]);
    stock.passes(43, 9, &GOOD, false);
    depend(&place);
    let graft = build(&place, "graft", "cc", &[]);
    graft.passes(43, 9, &GOOD, true);
    assert_eq!(stock.tests, graft.tests);
}
