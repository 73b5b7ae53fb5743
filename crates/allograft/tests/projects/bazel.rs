//! PCRE2 by Bazel, with the project's own build files.

use std::fs;

use fixtures::projects::PCRE2;

use crate::built::{Built, Place, integration, succeeds};

/// The results of a part of the test that count as passed: all is as expected, or the part is for different builds of
/// the library.
const GOOD: [&str; 4] = [
    "OK",
    "Skipped when running 8-bit tests",
    "Skipped because JIT is not available or nojit was specified",
    "Skipped because \\C is not disabled",
];

fn build(place: &Place, malloc: &[&str]) -> Built {
    let mut bazel = place.command("bazel");
    bazel.current_dir(place.path("source")).args([
        "test",
        "--linkopt=-static",
        "--test_output=all",
        "--nocache_test_results",
    ]);
    let said = succeeds(bazel.args(malloc).arg("//:pcre2_test"));
    // The test names each of its parts, and then says how it went.
    let lines: Vec<&str> = said.lines().collect();
    let parts = lines.windows(2).filter(|pair| pair[0].starts_with("Test ") && pair[0].contains(": "));
    let tests = parts.map(|pair| (pair[0].to_owned(), pair[1].trim().to_owned())).collect();
    // A copy, since Bazel replaces it.
    let program = place.path(if malloc.is_empty() { "stock" } else { "graft" });
    fs::copy(place.path("source/bazel-bin/pcre2test"), &program).expect("the program");
    Built { tests, programs: vec![program] }
}

#[test]
#[ignore = "projects: builds another project, and runs its tests"]
fn pcre2_passes_its_tests() {
    let Some(place) = Place::new(PCRE2) else { return };
    let (bin, home) = (place.path("bin"), place.path("home"));
    fs::create_dir(&home).expect("a folder");
    fixtures::bazel::install(&bin, &home, &bin.join("musl-gcc")).expect("a script");
    // Only later releases of Bazel have `select` on what a platform says.
    let file = place.path("source/BUILD.bazel");
    let text = fs::read_to_string(&file).expect("a build file");
    assert!(text.contains("@platforms//os:windows"));
    fs::write(file, text.replace("@platforms//os:windows", "@bazel_tools//src/conditions:windows"))
        .expect("a build file");
    // The only other change to the project.
    let workspace = place.path("source/WORKSPACE.bazel");
    let text = fs::read_to_string(&workspace).expect("a workspace");
    let rules = integration("bazel").display().to_string();
    let more = format!(
        "local_repository(name = \"allograft_bazel\", path = {rules:?})\n\
         load(\"@allograft_bazel//:repository.bzl\", \"allograft_repository\")\n\
         allograft_repository(name = \"allograft\")\n"
    );
    fs::write(workspace, text + &more).expect("a workspace");
    let stock = build(&place, &[]);
    stock.passes(27, 1, &GOOD, false);
    let graft = build(&place, &["--custom_malloc=@allograft//:malloc"]);
    graft.passes(27, 1, &GOOD, true);
    assert_eq!(stock.tests, graft.tests);
}
