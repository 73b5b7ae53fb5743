//! A folder to build in, and the output of `emit` there.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::ops::Deref;
use std::path::Path;
use std::process::Command;

use fixtures::lab::Lab;
use serde_json::Value;

/// A program with threads, allocation and a fork, and with functions of libc that allocate inside.
pub(crate) const PROGRAM: &str = "#include <pthread.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n#include <sys/wait.h>\n\
    #include <unistd.h>\n\
    static void *work(void *p) { for (int i = 0; i < 2000; i++) free(memset(malloc(1 + i % 300), 1, 1)); return p; }\n\
    int main(void) { pthread_t t; pthread_create(&t, 0, work, 0); work(0); int status = 1;\n\
    if (!fork()) { work(0); _exit(0); } wait(&status); pthread_join(t, 0);\n\
    puts(strdup(status ? \"bad\" : \"ok\")); return 0; }\n";

/// A folder, deleted with this value, in which allograft runs.
pub(crate) struct Place(Lab);

impl Deref for Place {
    type Target = Lab;

    fn deref(&self) -> &Lab {
        &self.0
    }
}

impl Place {
    /// Makes a folder with this name. The name may have a blank, so that every path has one.
    pub(crate) fn new(name: &str) -> Place {
        Place(Lab::named(name, env!("CARGO_BIN_EXE_allograft")))
    }

    /// Returns the text that `emit` prints with these arguments, by build system.
    pub(crate) fn emit(&self, arguments: &[&str]) -> BTreeMap<String, String> {
        snippets(&self.run(["emit", "--json"].iter().chain(arguments)).exits(0).out)
    }

    /// Asserts that the inspector finds the donor in a program.
    #[track_caller]
    pub(crate) fn carries(&self, program: &Path, donor: &str) {
        self.run([OsStr::new("inspect"), OsStr::new("--expect"), OsStr::new(donor), program.as_os_str()]).exits(0);
    }
}

pub(crate) fn snippets(json: &str) -> BTreeMap<String, String> {
    let document: Value = serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {json}"));
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let list = document["snippets"].as_array().expect("snippets");
    list.iter().map(|snippet| (text(&snippet["for"]), text(&snippet["text"]))).collect()
}

/// Runs the command, asserts that it succeeds, and returns what it printed.
#[track_caller]
pub(crate) fn succeeds(command: &mut Command) -> String {
    fixtures::lab::succeeds(command).out
}
