//! Builds the images of `docs/containers.md` with buildah, from bases made of Debian's packages, and runs programs
//! that they compile. buildah runs with chroot's isolation: as root, or as a user with a range of IDs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use fixtures::shell::word;

use crate::page;
use crate::tree::{ALPINE, BUILDAH, RUST, Tree};
use crate::{PROGRAM, Work};

const PAGE: &str = "containers.md";

/// Installs buildah as `docker`, makes the image `localhost/base` from the folder `/base`, and moves the packages to
/// the page's paths.
const DOCKER: &str = r#"
export BUILDAH_ISOLATION=chroot
docker() { shift; buildah build --build-arg BASE=localhost/base "$@"; }
printf 'FROM scratch\nCOPY . /\n' >base
buildah build --quiet --tag localhost/base --file base /base
mkdir --parents target/release-files
mv *.tar.gz target/release-files
"#;

/// Checks that allograft's image contains nothing else.
const HELD: &str = r#"
held=$(ls "$(buildah mount "$(buildah from localhost/allograft:0.1.0)")")
[ "$held" = "$(printf 'allograft\ncargo-allograft')" ]
"#;

/// Builds an image with the lines for a Dockerfile that `emit` prints.
const PRELOADED: &str = r#"
held=$(buildah mount "$(buildah from localhost/allograft:0.1.0)")
"$held/allograft" emit --target x86_64-linux-gnu --as shared >said
{
	echo FROM localhost/base
	sed -n '/^Dockerfile:/,/^$/s/^  //p' said
	echo RUN grep liballograft.so /proc/self/maps
} >preloaded
docker build --file preloaded .
"#;

const CARGO: &str = "[package]\nname = \"server\"\nversion = \"0.1.0\"\nedition = \"2024\"\n";
const RUST_PROGRAM: &str = "fn main() {\n    println!(\"{}\", [\"done\"; 1000].concat());\n}\n";

/// Builds an image from a file of its name, and runs its program, which prints `done`.
fn serve(name: &str, context: &str) -> String {
    format!(
        "docker build --tag localhost/{name} --file {name} {context}\n\
         buildah run \"$(buildah from localhost/{name})\" -- /server | grep done\n"
    )
}

/// A work folder and the program that mounts the base.
struct Images(Work, PathBuf);

impl Images {
    /// Returns the work folder. If the test cannot run here, prints the reason and returns `None`.
    fn new(base: &Tree) -> Option<Images> {
        let work = Work::new()?;
        if let Some(reason) = BUILDAH.unavailable() {
            eprintln!("skipped: {reason}");
            return None;
        }
        let integrations = Path::new(env!("CARGO_MANIFEST_DIR")).join("../integrations");
        let copied = Command::new("cp").arg("-r").arg(integrations).arg(work.0.folder()).status();
        assert!(copied.expect("`cp` starts").success());
        let base = base.root().unwrap_or_else(|error| panic!("{error:#}"));
        let mount = format!("#!/bin/sh -e\nmkdir \"$1/base\"\nmount --rbind {} \"$1/base\"\n", word(&base));
        let before = work.script("before", &mount);
        Some(Images(work, before))
    }

    fn file(&self, name: &str, text: &str) {
        let path = self.0.0.path(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    }

    #[track_caller]
    fn build(&self, script: &str) {
        let commands = [DOCKER, &page::commands(PAGE, ""), HELD, script].concat();
        self.0.run(&BUILDAH, Some(&self.1), &commands);
    }
}

#[test]
fn the_files_name_this_version() {
    let names = ["allograft.Dockerfile", "alpine.Dockerfile", "rust.Dockerfile", "README.md"];
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../integrations/images");
    let paths = names.iter().map(|name| folder.join(name)).chain([folder.join("../../docs/containers.md")]);
    for path in paths {
        let text = fs::read_to_string(&path).expect("a file");
        assert!(text.contains(env!("CARGO_PKG_VERSION")), "{} names another version", path.display());
    }
}

#[test]
fn the_readme_has_the_line_for_any_image() {
    let line = &page::blocks(PAGE, "Your own image", "dockerfile")[0];
    assert_eq!(page::blocks("../README.md", "I run containers", "dockerfile"), [line.as_str()]);
    assert_eq!(page::blocks("../integrations/images/README.md", "", "dockerfile"), [line.as_str()]);
}

#[test]
#[ignore = "install: builds images in a Debian of the slow tier"]
fn buildah_builds_the_images_for_c() {
    let Some(images) = Images::new(&ALPINE) else { return };
    let [line, own] = page::blocks(PAGE, "Your own image", "dockerfile").try_into().expect("two blocks");
    let after = own.lines().skip(4).collect::<Vec<_>>().join("\n");
    images.file("line", &["FROM localhost/base\n", &line, "RUN ls /usr/lib/libc.a.allograft-stock\n"].concat());
    images.file("own", &own.replacen("docker.io/library/alpine:3.22", "localhost/base", 1));
    images.file("alpine", &format!("FROM localhost/allograft-alpine AS build\n{after}\n"));
    images.file("server.c", PROGRAM);
    images.file("page.sh", &page::commands("toolchains/alpine.md", ""));
    let stock = "FROM localhost/allograft-alpine\nRUN allograft undo /usr/lib/libc.a\n";
    images.file("page", &[stock, "COPY server.c page.sh ./\nRUN sh -e page.sh\n"].concat());
    let built = ["docker build --file line .\n", &serve("own", "."), &page::commands(PAGE, "Alpine")];
    let used = [&serve("alpine", "."), "docker build --file page .\n", PRELOADED];
    images.build(&[built, used].concat().concat());
}

#[test]
#[ignore = "install: builds images in a Debian of the slow tier"]
fn buildah_builds_the_image_for_rust() {
    if let Some(reason) = fixtures::rust_musl_unavailable() {
        eprintln!("skipped: {reason}");
        return;
    }
    let Some(images) = Images::new(&RUST) else { return };
    let [own] = page::blocks(PAGE, "Rust", "dockerfile").try_into().expect("one block");
    let c = "COPY . .\nRUN musl-gcc -static -o c server.c && allograft inspect --expect snmalloc c\n";
    images.file("rust", &own.replacen("COPY . .\n", c, 1));
    images.file("server/server.c", PROGRAM);
    images.file("server/Cargo.toml", CARGO);
    images.file("server/src/main.rs", RUST_PROGRAM);
    images.build(&[page::commands(PAGE, "Rust"), serve("rust", "server")].concat());
}
