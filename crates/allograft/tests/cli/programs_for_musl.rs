//! Released programs that were built on Alpine, started by a grafted loader: by its name, and in a root tree of theirs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::slice;

use fixtures::Arch;
use fixtures::link::Dynamic;
use fixtures::loaded::{self, Work};

use crate::lab::Lab;

/// The loader's path in a root tree.
const LOADER: &str = "lib/ld-musl-x86_64.so.1";

/// The released programs of the root tree.
const RELEASED: [&str; 3] = ["ninja", "clang-format", "cmake"];

/// The donors that a loader can have.
const DONORS: [&str; 3] = ["snmalloc", "mimalloc", "rpmalloc"];

fn work(name: &str) -> &'static Work {
    loaded::ALL.iter().find(|work| work.program.name == name).unwrap()
}

/// Runs a program by a loader. Returns what it prints, with the files that it made, and what it says on standard error.
fn run(lab: &Lab, loader: &Path, work: &Work, label: &str) -> (Vec<u8>, String) {
    let folder = lab.path(label);
    fs::create_dir(&folder).unwrap();
    loaded::fill(&folder).unwrap();
    let mut command = Command::new(loader);
    command.arg(work.program.program()).args(work.arguments).current_dir(&folder).env("ALLOGRAFT_VERBOSE", "1");
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{} by `{}`: {}\n{said}", work.program.name, loader.display(), output.status);
    let mut result = output.stdout;
    for number in 1..=loaded::OUTPUTS {
        result.extend(fs::read(folder.join(format!("out{number}"))).unwrap_or_default());
    }
    (result, said)
}

/// The conformance programs of the root tree, linked with musl and started there.
const CONFORMANCE: [&str; 7] =
    ["family", "threads", "thread_exit", "fork_owners", "fork_handlers", "libc_callers", "constructors"];

/// Runs the rest of its arguments with the first one as the root folder, which has `/proc` and `/dev/null`.
const ENTER: &str = "cd \"$1\" && shift && mount -t proc proc proc && mount --bind /dev/null dev/null && \
    exec chroot . \"$@\"";

/// A root tree with musl at its path, and programs that name it.
struct Tree<'a> {
    lab: &'a Lab,
    root: PathBuf,
}

impl Tree<'_> {
    fn new(lab: &Lab) -> Tree<'_> {
        let root = lab.path("root");
        for folder in ["bin", "dev", "lib", "mnt", "opt", "proc", "tmp"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        lab.put("root/dev/null", b"");
        fs::copy(loaded::loader(), root.join(LOADER)).unwrap();
        // ninja starts programs by a shell. This one is static, so no loader serves it.
        fs::copy(fixtures::system::folder().join("usr/bin/busybox"), root.join("bin/sh")).unwrap();
        for name in RELEASED {
            crate::lab::tool(Command::new("cp").arg("-a").arg(work(name).program.folder()).arg(root.join("opt")));
        }
        let (bin, loader) = (root.join("bin"), Path::new("/").join(LOADER));
        let nothing = "int main(void) { return 0; }\n";
        fixtures::program::linked_with_musl(&bin, "true", nothing, true, &loader);
        let runtime = lab.put("runtime.a", conformance::runtime_library(Arch::X86_64));
        let library = fixtures::musl_loader(Arch::X86_64).with_file_name("");
        let dynamic = Dynamic { arch: Arch::X86_64, library: &library, loader: &loader, position_independent: true };
        for name in CONFORMANCE {
            let object = conformance::find(name).unwrap().object(Arch::X86_64);
            let object = lab.put(format!("{name}.o"), object);
            crate::lab::tool(&mut dynamic.line(&[object], slice::from_ref(&runtime), &bin.join(name)));
        }
        Tree { lab, root }
    }

    /// Runs a command of the tree, whose folder `mnt` has everything that the released programs read.
    fn run(&self, command: &[&str]) -> Output {
        fs::remove_dir_all(self.root.join("mnt")).unwrap();
        fs::create_dir(self.root.join("mnt")).unwrap();
        loaded::fill(&self.root.join("mnt")).unwrap();
        let mut all = Command::new("unshare");
        all.args(["--map-root-user", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", ENTER, "enter"]);
        all.arg(&self.root).args(command).env("ALLOGRAFT_SCALE", "3");
        let output = all.output().unwrap();
        assert!(output.status.success(), "{command:?}: {output:?}");
        output
    }

    /// The results of all programs. Each of those that say so is served by the donor.
    fn results(&self, donor: Option<&str>) -> Vec<(String, Vec<u8>)> {
        let mut results = Vec::new();
        for name in RELEASED {
            let work = work(name);
            let program = Path::new("/opt").join(work.program.program().strip_prefix(fixtures::tools()).unwrap());
            let script = format!(
                "cd /mnt && ALLOGRAFT_VERBOSE=1 {} {} 2>/mnt/said && {{ cat out* 2>/dev/null; :; }}",
                program.display(),
                work.arguments.join(" ")
            );
            let output = self.run(&["/bin/sh", "-c", &script]);
            let said = fs::read_to_string(self.root.join("mnt/said")).unwrap();
            let served = said.lines().find(|line| line.contains(" serves malloc"));
            let served = served.map(|line| line.split(' ').nth(1).unwrap_or_default());
            assert_eq!(served, donor, "{name}: {said}");
            let words = said
                .lines()
                .filter(|line| !line.starts_with("allograft: "))
                .fold(String::new(), |all, line| all + line);
            results.push((name.to_owned(), [output.stdout, words.into_bytes()].concat()));
        }
        for name in CONFORMANCE {
            let said = self.run(&[&format!("/bin/{name}")]);
            assert_eq!(said.stdout, format!("ok {name}\n").into_bytes(), "{said:?}");
            results.push((name.to_owned(), said.stdout));
        }
        results
    }

    fn allograft(&self, verb: &str, more: &[&str]) -> fixtures::Ran {
        let loader = format!("/{LOADER}");
        let arguments = [&[verb, "--root", "root", &loader], more].concat();
        self.lab.run(arguments).exits(0)
    }
}

/// Tests that need a Debian, by that part of their names.
mod system {
    use super::*;

    #[test]
    #[ignore = "system: takes a Debian of 2.2 GB"]
    fn a_root_tree_is_grafted_used_and_undone() {
        if fixtures::system::is_left_out() {
            return;
        }
        let lab = Lab::new();
        let tree = Tree::new(&lab);
        let before = fs::read(tree.root.join(LOADER)).unwrap();
        let expected = tree.results(None);
        assert!(expected.iter().all(|(_, result)| !result.is_empty()));
        for donor in DONORS {
            let grafted = tree.allograft("graft", &["--donor", donor]).out;
            for part in ["self-test: passed", "bin/true` started by it: exit status: 0, as by stock"] {
                assert!(grafted.contains(part), "{part}: {grafted}");
            }
            assert_eq!(tree.results(Some(donor)), expected, "{donor}");
            tree.allograft("inspect", &["--expect", donor]);
            assert!(tree.allograft("verify", &[]).out.contains("self-test: passed"));
            tree.allograft("undo", &[]);
            assert!(fs::read(tree.root.join(LOADER)).unwrap() == before, "{donor}");
        }
        assert_eq!(tree.results(None), expected);
        let left: Vec<_> =
            fs::read_dir(tree.root.join("lib")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["ld-musl-x86_64.so.1"]);
    }

    /// The program's result is the same by each grafted loader as by stock.
    fn agrees(name: &str) {
        if fixtures::system::is_left_out() {
            return;
        }
        let work = work(name);
        let lab = Lab::new();
        let (expected, said) = run(&lab, &loaded::loader(), work, "stock");
        // cmake prints on standard error.
        let words = |text: &str| -> Vec<String> {
            text.lines().filter(|line| !line.starts_with("allograft: ")).map(str::to_owned).collect()
        };
        assert!(expected.len() + words(&said).len() > 0, "{name} has a result");
        for donor in DONORS {
            let out = lab.path(format!("{donor}.so"));
            lab.run([
                "graft".as_ref(),
                loaded::loader().as_os_str(),
                "--donor".as_ref(),
                donor.as_ref(),
                "-o".as_ref(),
                out.as_os_str(),
            ])
            .exits(0);
            let (result, said_by_graft) = run(&lab, &out, work, donor);
            assert!(said_by_graft.contains(&format!("allograft: {donor} ")), "{donor} serves {name}: {said_by_graft}");
            assert!(result == expected, "{name} on {donor}");
            assert_eq!(words(&said_by_graft), words(&said), "{name} on {donor}");
        }
    }

    #[test]
    #[ignore = "system: takes a Debian of 2.2 GB and a node"]
    fn node_compresses_in_threads() {
        agrees("node");
    }

    /// The script of the flame graphs in a page of `profile`, by an engine that is there for the loader's sake.
    #[test]
    #[ignore = "system: takes a Debian of 2.2 GB and a node"]
    fn the_script_of_flame_graphs_finds_zooms_and_walks() {
        if fixtures::system::is_left_out() {
            return;
        }
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../profiler/src/flame_test.js");
        let output = Command::new(loaded::loader()).arg(work("node").program.program()).arg(script).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && output.stdout == b"all is well\n", "{said}");
    }

    #[test]
    #[ignore = "system: takes a Debian of 2.2 GB"]
    fn clang_format_formats() {
        agrees("clang-format");
    }

    #[test]
    #[ignore = "system: takes a Debian of 2.2 GB"]
    fn cmake_runs_a_script() {
        agrees("cmake");
    }

    #[test]
    #[ignore = "system: takes a Debian of 2.2 GB"]
    fn ninja_starts_programs() {
        agrees("ninja");
    }
}
