//! The files that build systems need to link programs with a donor, embedded from this folder: `allograft emit` writes
//! them, so that each way of installing has them.

#![forbid(unsafe_code)]

/// A file.
#[derive(Debug)]
pub struct File {
    /// Its name.
    pub name: &'static str,
    /// Its content.
    pub text: &'static str,
}

/// The files for one build system.
#[derive(Debug)]
pub struct Integration {
    /// The build system, as `--as` names it.
    pub name: &'static str,
    /// The files, for one folder.
    pub files: &'static [File],
    /// How they are used: where each text goes, and the text. `{dir}` is the folder's absolute path, `{word}` that path
    /// as a word of a shell, `{make}` as one of a makefile.
    pub usage: &'static [(&'static str, &'static str)],
}

macro_rules! files {
    ($folder:literal: $($name:literal),+ $(,)?) => {
        &[$(File { name: $name, text: include_str!(concat!("../", $folder, "/", $name)) }),+]
    };
}

/// All of them, sorted by name.
pub static ALL: &[Integration] = &[
    Integration {
        name: "bazel",
        files: files!(
            "bazel": "MODULE.bazel",
            "WORKSPACE",
            "BUILD.bazel",
            "extension.bzl",
            "malloc.bzl",
            "repository.bzl",
        ),
        usage: &[
            (
                "in WORKSPACE",
                "local_repository(name = \"allograft_bazel\", path = \"{dir}\")\n\
             load(\"@allograft_bazel//:repository.bzl\", \"allograft_repository\")\n\
             allograft_repository(name = \"allograft\")",
            ),
            ("in BUILD.bazel", "cc_binary(name = \"server\", srcs = [\"server.c\"], malloc = \"@allograft//:malloc\")"),
        ],
    },
    Integration {
        name: "cmake",
        files: files!(
            "cmake": "allograft-config.cmake",
            "allograft-config-version.cmake",
            "allograft-everywhere.cmake",
            "sanitizers.cmake",
        ),
        usage: &[
            ("in CMakeLists.txt", "find_package(allograft REQUIRED)\nallograft_use(server)"),
            ("a shell", "cmake -B build -Dallograft_DIR={word}"),
        ],
    },
    Integration {
        name: "make",
        files: files!("make": "allograft.mk"),
        usage: &[("in the Makefile, before the rules", "include {make}/allograft.mk")],
    },
    Integration {
        name: "meson",
        files: files!("meson": "meson.build", "meson.options", "emitter.py"),
        usage: &[
            ("a shell, in the project", "mkdir -p subprojects && ln -s {word} subprojects/allograft"),
            ("in meson.build", "executable('server', 'server.c', dependencies: dependency('allograft'))"),
        ],
    },
    Integration {
        name: "nix",
        files: files!("nix": "overlay.nix", "graft.sh"),
        usage: &[(
            "in a configuration",
            "nixpkgs.overlays = [\n  (import \"{dir}/overlay.nix\" { archive = ./allograft-VERSION-x86_64-unknown-linux-musl.tar.gz; })\n];",
        )],
    },
];

/// Returns the files for the build system of that name.
pub fn find(name: &str) -> Option<&'static Integration> {
    ALL.iter().find(|integration| integration.name == name)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    /// Every file in a build system's folder is written.
    #[test]
    fn no_file_is_left_out() {
        for integration in ALL {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(integration.name);
            let mut names: Vec<String> =
                fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            let mut known: Vec<&str> = integration.files.iter().map(|file| file.name).collect();
            names.sort();
            known.sort();
            assert_eq!(names, known, "{}", folder.display());
        }
    }
}
