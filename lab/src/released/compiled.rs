//! Programs that are released as source, and their builds for musl.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use fixtures::Arch;
use fixtures::shell::word;
use tools::{command, workspace};
use zigcc::{Zig, ZigTarget};

/// A program that is released as source only.
#[derive(Debug)]
pub(super) struct Crate {
    pub(super) name: &'static str,
    pub(super) version: &'static str,
    /// Whether it has code in C or C++, which zig's compiler compiles.
    native: bool,
}

/// The programs among the released ones that come as source.
pub(super) static CRATES: [Crate; 3] = [
    Crate { name: "git-cliff", version: "2.14.2", native: true },
    Crate { name: "leptosfmt", version: "0.1.33", native: false },
    Crate { name: "wasm-opt", version: "0.116.1", native: true },
];

/// The stack size of threads in a program with native code, as in upstream's own builds for musl: musl's default of 128
/// KiB is too small for wasm-opt's passes.
const STACK: &str = "-Clink-arg=-Wl,-z,stack-size=8388608";

impl Crate {
    /// Returns the tools, by their names for `cargo xtask setup`, that its build takes besides the Rust toolchain.
    pub(super) fn tools(&self) -> &'static [&'static str] {
        if self.native { &["zig-cxx"] } else { &[] }
    }

    /// Builds the program and installs it into a folder.
    ///
    /// # Errors
    /// The program does not build.
    pub(super) fn install(&self, folder: &Path) -> Result<()> {
        let bin = fixtures::rust_musl().join("bin");
        let mut cargo = Command::new(bin.join("cargo"));
        command::apart(&mut cargo);
        cargo.env("RUSTC", bin.join("rustc")).current_dir(folder);
        if self.native {
            native(&mut cargo, folder)?;
        }
        cargo.args(["install", "--quiet", "--locked", "--version", self.version, self.name]);
        cargo.args(["--target", fixtures::rust_target(Arch::X86_64), "--root"]).arg(folder);
        command::output(&mut cargo).map(drop)
    }
}

/// Lets the build scripts of `cargo` compile C and C++ for musl by zig's compiler, and link zig's C++ library.
fn native(cargo: &mut Command, folder: &Path) -> Result<()> {
    let zig = Zig::find(&fixtures::tools(), &workspace::zig_cache())?;
    let compilers = folder.join("compilers");
    fs::create_dir(&compilers)?;
    let target = fixtures::rust_target(Arch::X86_64).replace('-', "_");
    for (variable, language) in [("CC", "cc"), ("CXX", "c++")] {
        let program = compilers.join(language);
        fs::write(&program, wrapper(&zig, language))?;
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
        cargo.env(format!("{variable}_{target}"), program);
    }
    let library = fixtures::zig_cxx(Arch::X86_64);
    let library = library.first().and_then(|file| file.parent()).context("a library is in a folder")?;
    let mut flags = vec![format!("-Lnative={}", library.display()), STACK.to_owned()];
    // They need each other and libc, which rustc names before them.
    let group = ["-Wl,--start-group", "-lc++", "-lc++abi", "-lc", "-Wl,--end-group"];
    flags.extend(group.map(|word| format!("-Clink-arg={word}")));
    let cache = workspace::zig_cache();
    cargo.env("ZIG_GLOBAL_CACHE_DIR", &cache).env("ZIG_LOCAL_CACHE_DIR", &cache);
    cargo.env(format!("CXXSTDLIB_{target}"), "c++").env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"));
    Ok(())
}

/// Returns a script that runs zig's compiler. It drops the target's name in clang's spelling, which build scripts add.
fn wrapper(zig: &Zig, language: &str) -> String {
    let triple = Arch::X86_64.triple();
    format!(
        "#!/bin/sh\nfor word; do\n\tshift\n\tcase $word in --target=*) ;; *) set -- \"$@\" \"$word\" ;; esac\ndone\n\
         exec {} {language} -target {triple} \"$@\"\n",
        word(zig.program())
    )
}
