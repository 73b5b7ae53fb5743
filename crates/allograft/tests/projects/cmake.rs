//! Jansson by CMake, which knows nothing of allograft.

use fixtures::projects::JANSSON;

use crate::built::{Built, Place, integration, programs, succeeds};

/// Flags for CMake that link programs of musl.
const STATIC: [&str; 2] = ["-DCMAKE_C_COMPILER=musl-gcc", "-DCMAKE_EXE_LINKER_FLAGS=-static"];

fn build(place: &Place, name: &str, flags: &[&str], with_donor: bool) -> Built {
    let mut configure = place.command("cmake");
    configure.args([
        "-G",
        "Ninja",
        "-S",
        "source",
        "-B",
        name,
        "-DCMAKE_BUILD_TYPE=Release",
        "-DJANSSON_BUILD_DOCS=OFF",
    ]);
    // Newer CMake refuses projects that ask for less.
    configure.arg("-DCMAKE_POLICY_VERSION_MINIMUM=3.19").args(flags);
    if with_donor {
        let everywhere = integration("cmake/allograft-everywhere.cmake");
        configure.arg(format!("-DCMAKE_PROJECT_INCLUDE={}", everywhere.display()));
    }
    succeeds(&mut configure);
    succeeds(place.command("cmake").args(["--build", name]));
    let said = succeeds(place.command("ctest").args(["--test-dir", name]));
    let tests = said.lines().filter_map(test).map(|(name, said)| (name.to_owned(), said.to_owned()));
    Built { tests: tests.collect(), programs: programs(&place.path(name)) }
}

/// Returns a test's name and what it said, from a line such as `12/213 Test  #12: name ....   Passed    0.00 sec`.
fn test(line: &str) -> Option<(&str, &str)> {
    let (number, rest) = line.split_once(": ")?;
    let (name, said) = rest.split_once(" ..")?;
    let said = said.trim_start_matches('.').split_whitespace().next()?;
    number.contains(" Test ").then_some((name, said))
}

fn passes_with_donor(flags: &[&str]) {
    let Some(place) = Place::new(JANSSON) else { return };
    let (stock, graft) = (build(&place, "stock", flags, false), build(&place, "graft", flags, true));
    stock.passes(213, 9, &["Passed"], false);
    graft.passes(213, 9, &["Passed"], true);
    assert_eq!(stock.tests, graft.tests);
    assert_eq!(stock.programs.len(), graft.programs.len());
}

#[test]
#[ignore = "projects: builds another project, and runs its tests"]
fn jansson_passes_its_tests_static() {
    passes_with_donor(&STATIC);
}

#[test]
#[ignore = "projects: builds another project, and runs its tests"]
fn jansson_passes_its_tests_dynamic() {
    passes_with_donor(&[]);
}
