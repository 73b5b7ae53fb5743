//! A folder to build in, and the output of `emit` there.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// A program with threads, allocation and a fork, and with functions of libc that allocate inside.
pub(crate) const PROGRAM: &str = "#include <pthread.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n#include <sys/wait.h>\n\
    #include <unistd.h>\n\
    static void *work(void *p) { for (int i = 0; i < 2000; i++) free(memset(malloc(1 + i % 300), 1, 1)); return p; }\n\
    int main(void) { pthread_t t; pthread_create(&t, 0, work, 0); work(0); int status = 1;\n\
    if (!fork()) { work(0); _exit(0); } wait(&status); pthread_join(t, 0);\n\
    puts(strdup(status ? \"bad\" : \"ok\")); return 0; }\n";

/// A folder that is deleted with this value.
pub(crate) struct Place {
    _made: tempfile::TempDir,
    pub(crate) folder: PathBuf,
}

impl Place {
    /// Makes a folder with this name. The name may have a blank, so that every path has one.
    pub(crate) fn new(name: &str) -> Place {
        let made = tempfile::tempdir().expect("a temporary folder");
        let folder = made.path().join(name);
        fs::create_dir(&folder).expect("a folder");
        Place { _made: made, folder }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub(crate) fn put(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    }

    /// Returns the text that `emit` prints with these arguments, by build system.
    pub(crate) fn emit(&self, arguments: &[&str]) -> BTreeMap<String, String> {
        let mut emit = Command::new(env!("CARGO_BIN_EXE_allograft"));
        emit.args(["emit", "--json"]).args(arguments).current_dir(&self.folder);
        let output = emit.output().expect("allograft starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        snippets(&String::from_utf8_lossy(&output.stdout))
    }

    /// Asserts that the inspector finds the donor in a program.
    #[track_caller]
    pub(crate) fn carries(&self, program: &Path, donor: &str) {
        let mut inspect = Command::new(env!("CARGO_BIN_EXE_allograft"));
        let output = inspect.args(["inspect", "--expect", donor]).arg(program).output().expect("allograft starts");
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{out}{err}");
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
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}\n{out}\n{err}");
    out.into_owned()
}
