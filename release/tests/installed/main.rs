//! Installs each package of a release into a fresh root folder by the commands of `docs/install.md`, and uses it there
//! without a compiler and without a network. Builds the images of `docs/containers.md` with the archives.
//!
//! The packages are those in `$ALLOGRAFT_RELEASE_FILES`, or in `target/release-files`, where `cargo xtask release` puts
//! them: without packages, these tests fail. With
//! `$ALLOGRAFT_RELEASE_PROGRAMS`, a folder with static builds of `allograft` and `cargo-allograft`, they are made from
//! these. `$ALLOGRAFT_APK` names apk-tools' `apk`, which Debian does not have; without it, the test unpacks Alpine's
//! package as apk does.

mod crates;
mod emulated;
mod images;
mod page;
mod tree;

use std::env;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use data_encoding::HEXLOWER;
use fixtures::Arch;
use fixtures::lab::Lab;
use fixtures::program::Build;
use fixtures::shell::word;
use flate2::bufread::GzDecoder;
use page::INSTALL;
use release::{Inputs, Payload};
use sha2::{Digest, Sha256};
use tree::{BUSYBOX, DEBIAN, LINTIAN, NODE, PYTHON, SYSTEMD, Tree};

/// Uses an installed allograft, whose command is `allograft`.
const USE: &str = r#"
cp libc.a stock.a
allograft graft libc.a
! cmp -s libc.a stock.a
allograft inspect libc.a --expect snmalloc
allograft verify --static-only libc.a
allograft verify libc.a >checks
grep -q 'not run: programs: no linker' checks
allograft undo libc.a
cmp libc.a stock.a

cp program stock
allograft graft program
./program
allograft inspect program --expect snmalloc
allograft verify program
allograft undo program
cmp program stock
allograft bench --donors snmalloc --budget 5s -- ./program
"#;

/// Checks the other files of a system's package: completions, manual pages, licences.
const IN_PLACE: &str = "
cargo-allograft --help >help
gunzip -c /usr/share/man/man1/allograft-graft.1.gz | grep -q '^.TH allograft-graft 1'
gunzip -c /usr/share/man/man1/cargo-allograft.1.gz >page
grep -q -- --donor /usr/share/bash-completion/completions/allograft
grep -q -- --donor /usr/share/zsh/*/_allograft
grep -q donor /usr/share/fish/vendor_completions.d/allograft.fish
grep -q 'function(allograft_use' /usr/share/cmake/allograft/allograft-config.cmake
grep -q override_dependency /usr/share/allograft/meson/meson.build
ls /usr/share/allograft/meson/meson.options /usr/share/allograft/meson/emitter.py
grep -q 'allograft_bazel' /usr/share/allograft/bazel/MODULE.bazel
ls /usr/share/allograft/bazel/WORKSPACE /usr/share/allograft/bazel/BUILD.bazel /usr/share/allograft/bazel/*.bzl
";

/// A program that allocates.
const PROGRAM: &str = r#"
#include <stdio.h>
#include <stdlib.h>

int main(void)
{
	static char *volatile kept[512];
	for (unsigned i = 0; i < 2000000; i++) {
		char *volatile *place = &kept[i * 2654435761u >> 23];
		free(*place);
		*place = malloc(16 + i % 500);
		if (!*place)
			return 1;
		**place = i;
	}
	puts("done");
	return 0;
}
"#;

/// Returns the folder with the packages.
///
/// # Panics
/// When no release was made.
fn packages() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(find)
}

fn find() -> PathBuf {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    if let Some(programs) = env::var_os("ALLOGRAFT_RELEASE_PROGRAMS").map(PathBuf::from) {
        let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("packages");
        // Files of an older version would match the page's patterns too. The folder may not exist.
        let _ = fs::remove_dir_all(&out);
        let inputs = Inputs {
            version: env!("CARGO_PKG_VERSION"),
            arch: Arch::X86_64,
            time: release::time(&checkout).expect("the time of a commit"),
            programs: &programs,
            native: &programs,
            checkout: &checkout,
            licenses: "The licences of the donors.\n",
        };
        let payload = Payload::read(inputs).unwrap_or_else(|error| panic!("{error:#}"));
        release::packages(&[payload], &out).expect("packages");
        release::checksums::write(&out).expect("checksums");
        return out;
    }
    let built = || tools::workspace::build().join("release-files");
    let folder = env::var_os("ALLOGRAFT_RELEASE_FILES").map_or_else(built, PathBuf::from);
    assert!(
        folder.join(release::checksums::NAME).is_file(),
        "there are no release files in `{}`: `cargo xtask release` makes them",
        folder.display()
    );
    folder
}

/// Whether folders can be entered as root folders here. If not, prints the reason.
fn can_enter() -> bool {
    let reason = fixtures::toolchains::unavailable();
    reason.iter().for_each(|reason| eprintln!("skipped: {reason}"));
    reason.is_none()
}

/// A work folder with the packages, musl's `libc.a` and a static program.
struct Work(Lab);

impl Work {
    /// Returns a work folder. If the test cannot run here, prints the reason and returns `None`.
    fn new() -> Option<Work> {
        Work::for_arch(Arch::X86_64)
    }

    /// Returns a work folder whose `libc.a` and program are for `arch`.
    fn for_arch(arch: Arch) -> Option<Work> {
        if !can_enter() {
            return None;
        }
        let work = Lab::inside(Path::new(env!("CARGO_TARGET_TMPDIR")), "");
        for entry in fs::read_dir(packages()).expect("a folder of packages").flatten() {
            if entry.file_type().expect("a type").is_file() {
                fs::copy(entry.path(), work.path(entry.file_name())).expect("a copy");
            }
        }
        fs::copy(fixtures::debian_musl(arch).libc, work.path("libc.a")).expect("a copy");
        Build { arch, ..Build::PLAIN }.program(work.folder(), "program", PROGRAM);
        Some(Work(work))
    }

    /// Returns the paths of all files.
    fn files(&self) -> Vec<PathBuf> {
        fs::read_dir(self.0.folder()).expect("a folder").flatten().map(|entry| entry.path()).collect()
    }

    /// Returns the path of the only file that ends so.
    fn file(&self, ending: &str) -> PathBuf {
        let mut found = self.files().into_iter().filter(|path| path.to_string_lossy().ends_with(ending));
        found.next().unwrap_or_else(|| panic!("no file ends with `{ending}`"))
    }

    /// Writes a script, and returns its path.
    fn script(&self, name: &str, text: &str) -> PathBuf {
        self.0.program(name, text)
    }

    #[track_caller]
    fn run(&self, tree: &Tree, before: Option<&Path>, script: &str) -> String {
        tree.run(self.0.folder(), before, script).unwrap_or_else(|error| panic!("{error:#}"))
    }
}

#[test]
fn the_page_has_a_test_for_each_section() {
    assert_eq!(page::sections(INSTALL), ["Any Linux", "Debian and Ubuntu", "Alpine", "Python", "uv", "npm", "Cargo"]);
}

#[test]
#[ignore = "install: installs into a Debian of the slow tier"]
fn the_archive_is_unpacked() {
    let Some(work) = Work::new() else { return };
    work.run(&DEBIAN, None, &[&page::commands(INSTALL, ""), &page::commands(INSTALL, "Any Linux"), USE].concat());
}

#[test]
#[ignore = "install: installs into a Debian of the slow tier"]
fn dpkg_installs_and_removes_the_package() {
    let Some(work) = Work::new() else { return };
    let remove = "dpkg --verify allograft\ndpkg --remove allograft\n! ls /usr/bin/*allograft\n";
    work.run(&DEBIAN, None, &[&page::commands(INSTALL, "Debian and Ubuntu"), IN_PLACE, USE, remove].concat());
}

#[test]
#[ignore = "install: installs into a Debian of the slow tier"]
fn lintian_finds_nothing_in_the_debian_packages() {
    let Some(work) = Work::new() else { return };
    let check = "lintian --allow-root --no-cfg --display-info --fail-on error,warning allograft_*.deb";
    let said = work.run(&LINTIAN, None, check);
    let serious = said.lines().find(|line| line.starts_with("E:") || line.starts_with("W:"));
    assert_eq!(serious, None, "{said}");
}

/// Checks a unit with the line that `emit` prints, and one with a mistake in it. systemd says what it ignores in a
/// unit, and succeeds all the same.
const UNIT: &str = r#"
printf '[Service]\nExecStart=/usr/bin/true\n' >right.service
sed -n '/^a systemd unit:/,/^$/s/^  //p' said >>right.service
grep '^Environment="LD_PRELOAD=/.*/of-100%%/liballograft.so"$' right.service
sed 's/of-100/of \\q100/' right.service >wrong.service
for unit in right wrong; do
	systemd-analyze verify --man=no ./$unit.service >$unit 2>&1
done
cat right
[ ! -s right ] # a line with `!` would not end the script
grep 'wrong.service:3:.*liballograft.so' wrong # the check finds something
"#;

#[test]
#[ignore = "systemd: unpacks a Debian"]
fn systemd_reads_the_line_for_a_unit() {
    if !can_enter() {
        return;
    }
    // The program of this checkout: the line does not depend on how it was built.
    let program = tools::command::build_for_tests(&[]).expect("allograft builds");
    let lab = Lab::inside(Path::new(env!("CARGO_TARGET_TMPDIR")), program);
    fs::create_dir(lab.path("of-100%")).expect("a folder");
    let library = "of-100%/liballograft.so";
    let said = lab.run(["emit", "--target", "x86_64-linux-gnu", "--as", "shared", "-o", library]).exits(0).out.clone();
    lab.put("said", said.as_bytes());
    SYSTEMD.run(lab.folder(), None, UNIT).unwrap_or_else(|error| panic!("{error:#}"));
}

#[test]
#[ignore = "install: installs into a root folder of the slow tier"]
fn apk_installs_the_package() {
    let Some(work) = Work::new() else { return };
    let unpack = match env::var_os("ALLOGRAFT_APK") {
        Some(apk) => {
            // apk runs outside, as that root has none.
            let options = "--root \"$root\" --initdb --arch x86_64 --no-network --no-cache";
            let script = format!(
                "#!/bin/sh -e\nroot=$PWD/$1\ncd \"$2\"\napk() {{ {} {options} \"$@\"; }}\n{}",
                word(&apk),
                page::commands(INSTALL, "Alpine")
            );
            work.script("install", &script)
        }
        None => {
            eprintln!("without `$ALLOGRAFT_APK`: the package is unpacked as apk does");
            unpack_as_apk(&work, Arch::X86_64)
        }
    };
    work.run(&BUSYBOX, Some(&unpack), &[IN_PLACE, USE].concat());
}

/// Returns a program that unpacks Alpine's package for `arch` into a root folder, as apk does.
fn unpack_as_apk(work: &Work, arch: Arch) -> PathBuf {
    let ending = format!(".{}.apk", arch.name());
    check_data_hash(&fs::read(work.file(&ending)).expect("a package"));
    let script = "#!/bin/sh -e\ntar --warning no-unknown-keyword --exclude .PKGINFO -C \"$1\" -xzf";
    work.script("install", &format!("{script} \"$2\"/allograft-*{ending}\n"))
}

/// Compares the `datahash` in the first stream with the bytes after that stream.
fn check_data_hash(package: &[u8]) {
    let (mut rest, mut control) = (package, String::new());
    GzDecoder::new(&mut rest).read_to_string(&mut control).expect("a stream of text");
    let (_, hash) = control.split_once("\ndatahash = ").expect("a hash");
    assert!(hash.starts_with(&format!("{}\n", HEXLOWER.encode(&Sha256::digest(rest)))), "{control}");
}

#[test]
#[ignore = "install: installs into a Debian of the slow tier"]
fn pip_installs_the_wheel() {
    let Some(work) = Work::new() else { return };
    let remove = "tools/bin/pip uninstall --yes allograft\n! ls tools/bin/*allograft\n";
    let script = [&page::commands(INSTALL, "Python"), "cargo-allograft --help >help\n", USE, remove].concat();
    work.run(&PYTHON, None, &script);
}

#[test]
#[ignore = "install: installs into a Debian of the slow tier"]
fn uvx_runs_the_wheel() {
    let Some(work) = Work::new() else { return };
    for name in ["uv", "uvx"] {
        let listed = fixtures::corpus::listed();
        let released = listed.iter().find(|released| released.name == name).expect("a released program");
        fs::copy(fixtures::corpus::place(released), work.0.path(name)).expect("`cargo xtask setup corpus` has run");
    }
    let path = "PATH=/mnt:$PATH\n";
    let function = "allograft() { uvx --quiet --offline --from ./allograft-*_x86_64.whl allograft \"$@\"; }\n";
    work.run(&PYTHON, None, &[path, &page::commands(INSTALL, "uv"), function, USE].concat());
}

#[test]
#[ignore = "install: installs into a Debian of the slow tier"]
fn npm_installs_the_packages() {
    let Some(work) = Work::new() else { return };
    let function = "allograft() { npx --offline allograft \"$@\"; }\nnpx --offline cargo-allograft --help >help\n";
    work.run(&NODE, None, &[&page::commands(INSTALL, "npm"), function, USE].concat());
}

#[test]
#[ignore = "install: compiles the program from its packed crates"]
fn cargo_installs_the_crates() {
    let Some(work) = Work::new() else { return };
    if !work.0.path(concat!("allograft-", env!("CARGO_PKG_VERSION"), ".crate")).is_file() {
        eprintln!("skipped: these packages have no crates");
        return;
    }
    let [registry, home] = ["registry", "cargo"].map(|name| work.0.path(name));
    crates::publish(work.0.folder(), &registry, &home).unwrap_or_else(|error| panic!("{error:#}"));
    let same = "
tar -xzf allograft-*-x86_64-unknown-linux-musl.tar.gz
cargo/bin/allograft graft -o of-crates libc.a
allograft-*-x86_64-unknown-linux-musl/allograft graft -o of-archive libc.a
cmp of-crates of-archive
! cmp -s of-crates libc.a
cargo/bin/cargo-allograft --help >help
";
    let script = [&page::commands(INSTALL, "Cargo"), same].concat();
    crates::run(&home, work.0.folder(), &script).unwrap_or_else(|error| panic!("{error:#}"));
}
