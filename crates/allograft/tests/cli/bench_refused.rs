//! `bench` of a program into which some donors, or all, cannot be put.

use std::fs;
use std::process::Command;

use fixtures::program::Build;

use crate::lab::{Lab, tool};

/// Allocates a little, and prints.
const SOURCE: &str = "#include <stdio.h>\n#include <stdlib.h>\nint main(int count, char **words)\n{\n\
    \tfor (int i = 0; i < 2000 * count; i++) {\n\t\tchar *volatile block = malloc(i);\n\t\tfree(block);\n\t}\n\
    \tputs(words[0] ? \"done\" : \"\");\n\treturn 0;\n}\n";

/// A program whose symbols name no string function: a donor with string functions is refused.
fn without_strings(lab: &Lab) {
    Build::PLAIN.program(&lab.path(""), "program", SOURCE);
    let internal = ["__memrchr", "__strchrnul", "__stpcpy", "__stpncpy"];
    let functions = fixtures::strings::FUNCTIONS.into_iter().chain(internal);
    let renamed = functions.map(|name| format!("--redefine-sym={name}=own_{name}"));
    tool(Command::new("objcopy").args(renamed).arg(lab.path("program")));
}

#[test]
fn a_donor_that_cannot_be_put_in_is_a_row_and_the_others_are_measured() {
    let lab = Lab::new();
    without_strings(&lab);
    let refused = "none of its string functions can be exchanged";
    for donors in ["snmalloc:strings,mimalloc,mimalloc:strings", "mimalloc,snmalloc:strings,mimalloc:strings"] {
        let line = ["bench", "--donors", donors, "--rounds", "1", "--budget", "1h", "--json", "./program"];
        let ran = lab.run(line).exits(1);
        let document = ran.says(&[refused]).json();
        crate::documents::fits("bench", &document);
        let failure = |name: &str| {
            let arms = document["arms"].as_array().unwrap();
            arms.iter().find(|arm| arm["name"] == name).unwrap()["failure"].as_str().map(str::to_owned)
        };
        assert_eq!((failure("stock"), failure("mimalloc")), (None, None));
        for name in ["snmalloc:strings", "mimalloc:strings"] {
            assert!(failure(name).is_some_and(|reason| reason.contains(refused)), "{donors}: {name}");
        }
    }
    let table =
        lab.run(["bench", "--donors", "snmalloc:strings,mimalloc", "--rounds", "1", "--budget", "1h", "./program"]);
    assert!(table.out.contains("snmalloc:strings") && table.out.contains("exchanged"), "{}", table.out);
}

#[test]
fn without_any_donor_there_is_nothing_to_compare() {
    let lab = Lab::new();
    without_strings(&lab);
    let ran = lab.run(["bench", "--donors", "snmalloc:strings,mimalloc:strings", "./program"]).exits(3);
    let ran = ran.says(&["none of its string functions can be exchanged", "help: leave `--strings on` out"]);
    assert_eq!(ran.err.matches("error: ").count(), 1, "one reason for all is said once: {}", ran.err);
    // It has no malloc at all.
    fs::write(
        lab.path("source.c"),
        "void _start(void) { __asm__ volatile(\"mov $60, %eax; xor %edi, %edi; syscall\"); }\n",
    )
    .unwrap();
    tool(fixtures::cc().args(["-static", "-nostdlib", "-o"]).arg(lab.path("bare")).arg(lab.path("source.c")));
    lab.run(["bench", "./bare"]).exits(3).says(&["cannot be grafted", "help: "]);
}
