//! A Rust toolchain with musl targets, laid out as by rustup: Debian's compiler and musl, and the standard library
//! built for musl from the source that belongs to the compiler.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use zigcc::{Arch, ZigTarget};

use crate::debian::Apt;
use crate::{command, folder, workspace};

/// Debian 12's packages with the compiler, its libraries and the library's source.
const PACKAGES: [&str; 12] = [
    "rustc-web",
    "cargo-web",
    "libstd-rust-web-1.96",
    "libstd-rust-web-dev",
    "rust-web-src",
    "libllvm22",
    "libgit2-1.5",
    "libhttp-parser2.9",
    "libmbedcrypto7",
    "libmbedtls14",
    "libmbedx509-1",
    "patchelf",
];

/// For each target: compiler-rt's start and end files and builtins, and the unwinder.
const RUNTIME: [&str; 2] = ["libunwind-22-dev", "libclang-rt-22-dev"];
const LLVM: &str = "22";

/// The version of this recipe, written into the folder: a change here makes the folder anew.
const RECIPE: &str = "rust 1.96, 1";

/// Makes the toolchain if it does not exist: some 250 MB to download, and some minutes to build.
///
/// # Errors
/// When it cannot be made: on a Debian other than 12, or if crates.io is unreachable.
pub(crate) fn prepare() -> Result<()> {
    let tools = fixtures::tools();
    let folder = tools.join("rust-musl");
    let whole = fixtures::RUST_MUSL.iter().all(|arch| fixtures::rust_libc_below(&folder, *arch).is_file());
    if whole && fs::read_to_string(folder.join("recipe")).is_ok_and(|recipe| recipe == RECIPE) {
        return Ok(());
    }
    if let Some(reason) = fixtures::rust_musl_unavailable() {
        bail!("a Rust toolchain with musl targets cannot be made here: {reason}");
    }
    let _lock = folder::lock(&tools.join(".rust-musl.lock"))?;
    folder::announce("a Rust toolchain with musl targets (250 MB; minutes to build)", || folder::place(&folder, fill))
}

fn fill(folder: &Path) -> Result<()> {
    let debian = folder::Scratch::beside(&folder.join("packages"), "unpacked")?;
    let state = folder::Scratch::beside(&folder.join("apt"), "state")?;
    let foreign = fixtures::RUST_MUSL.iter().filter_map(|arch| crate::debian::debian_name(*arch));
    let apt = Apt::new(&state.0, foreign)?;
    let _ = apt.update();
    for package in PACKAGES {
        apt.unpack(package, &debian.0)?;
    }
    let usr = debian.0.join("usr");
    compiler(&usr, folder)?;
    for arch in fixtures::RUST_MUSL {
        let name = crate::debian::debian_name(arch).context("an architecture of Debian's")?;
        let runtime = folder::Scratch::beside(&folder.join(arch.name()), "runtime")?;
        for package in RUNTIME {
            apt.unpack(&format!("{package}:{name}"), &runtime.0)?;
        }
        let llvm = runtime.0.join("usr/lib").join(format!("llvm-{LLVM}"));
        self_contained(&llvm, folder, arch)?;
        standard_library(&llvm, &usr, folder, arch)?;
    }
    Ok(fs::write(folder.join("recipe"), RECIPE)?)
}

/// Copies the compiler and cargo so that they find their libraries beside themselves.
fn compiler(usr: &Path, folder: &Path) -> Result<()> {
    let (bin, lib) = (folder.join("bin"), folder.join("lib"));
    fs::create_dir_all(&bin)?;
    fs::create_dir_all(&lib)?;
    for name in ["rustc", "rustdoc", "cargo"] {
        fs::copy(usr.join("bin").join(name), bin.join(name)).with_context(|| format!("no {name}"))?;
    }
    command::output(Command::new("cp").arg("-a").arg(usr.join("lib/rustlib")).arg(&lib))?;
    // A link to the source, which is elsewhere.
    let _ = fs::remove_file(lib.join("rustlib/src/rust"));
    for entry in fs::read_dir(usr.join("lib/x86_64-linux-gnu"))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let wanted = ["librustc_driver-", "libLLVM.so.", "libgit2.so.", "libhttp_parser.so.", "libmbed"];
        if path.is_file() && wanted.iter().any(|start| name.starts_with(start)) {
            fs::copy(&path, lib.join(&name)).with_context(|| format!("cannot copy {name}"))?;
        }
    }
    let patchelf = usr.join("bin/patchelf");
    let point =
        |path: &Path, origin: &str| command::output(Command::new(&patchelf).arg("--set-rpath").arg(origin).arg(path));
    for entry in fs::read_dir(&bin)? {
        point(&entry?.path(), "$ORIGIN/../lib")?;
    }
    for entry in fs::read_dir(&lib)? {
        let path = entry?.path();
        if path.is_file() {
            point(&path, "$ORIGIN")?;
        }
    }
    Ok(())
}

/// Makes the folder that rustup calls self-contained: musl, the start and end files of a program, and the unwinder.
fn self_contained(llvm: &Path, folder: &Path, arch: Arch) -> Result<()> {
    let libc = fixtures::rust_libc_below(folder, arch);
    let place = libc.parent().context("libc.a has a folder")?;
    fs::create_dir_all(place)?;
    let musl = fixtures::debian_musl_if_present(arch);
    let musl = musl.with_context(|| format!("Debian's musl for {} is missing", arch.name()))?.libdir;
    // With lld, the unwinder requests the last two by name. They are empty in musl's package.
    for name in ["libc.a", "crt1.o", "Scrt1.o", "rcrt1.o", "crti.o", "crtn.o", "libdl.a", "libpthread.a"] {
        fs::copy(musl.join(name), place.join(name)).with_context(|| format!("Debian's musl holds no {name}"))?;
    }
    let runtime = runtime(llvm);
    for (ends, name) in [("begin", "crtbegin"), ("end", "crtend")] {
        let from = runtime.join(format!("clang_rt.crt{ends}-{}.o", arch.name()));
        for name in [format!("{name}.o"), format!("{name}S.o")] {
            fs::copy(&from, place.join(name)).with_context(|| format!("no `{}`", from.display()))?;
        }
    }
    let unwind = place.join("libunwind.a");
    fs::copy(llvm.join("lib/libunwind.a"), &unwind).context("no libunwind.a")?;
    // The unwinder is compiled for glibc with _FORTIFY_SOURCE, whose function musl lacks.
    let (source, object) = (place.join("fortify.c"), place.join("fortify.o"));
    fs::write(&source, FORTIFY)?;
    let zig = fixtures::zig();
    let path = |path: &PathBuf| path.as_os_str().to_owned();
    let mut line = vec!["cc".into(), "-target".into(), arch.triple().into()];
    line.extend(["-O2", "-fPIC", "-c", "-o"].map(Into::into));
    line.extend([path(&object), path(&source)]);
    zig.run(line)?;
    zig.run(["ar".into(), "rs".into(), path(&unwind), path(&object)])?;
    fs::remove_file(&source)?;
    Ok(fs::remove_file(&object)?)
}

const FORTIFY: &str = "#include <stdarg.h>\n#include <stdio.h>\n\
    __attribute__((weak)) int __fprintf_chk(FILE *file, int flag, const char *format, ...)\n\
    {\n\tva_list list;\n\tva_start(list, format);\n\tint written = vfprintf(file, format, list);\n\tva_end(list);\n\
    \treturn (void)flag, written;\n}\n";

fn runtime(llvm: &Path) -> PathBuf {
    llvm.join("lib/clang").join(LLVM).join("lib/linux")
}

/// Builds the library for one target by its own rules for releases, so that it contains the bitcode that link-time
/// optimisation needs.
fn standard_library(llvm: &Path, usr: &Path, folder: &Path, arch: Arch) -> Result<()> {
    let source = fs::read_dir(usr.join("src"))?.filter_map(|entry| Some(entry.ok()?.path().join("library")));
    let source = source.into_iter().find(|library| library.is_dir()).context("rust-web-src holds no library")?;
    let target = fixtures::rust_target(arch);
    let build = folder::Scratch::beside(&folder.join(target), "build")?;
    let mut cargo = Command::new(folder.join("bin/cargo"));
    cargo.args(["build", "--quiet", "--locked", "--profile", "dist", "--target", target, "--manifest-path"]);
    cargo.arg(source.join("sysroot/Cargo.toml"));
    cargo.args(["--features", "panic-unwind backtrace compiler-builtins-c"]);
    command::apart(&mut cargo);
    cargo.env("RUSTC", folder.join("bin/rustc")).env("RUSTC_BOOTSTRAP", "1").env("CARGO_TARGET_DIR", &build.0);
    cargo.env("__CARGO_DEFAULT_LIB_METADATA", "stablestd");
    let flags = format!("CARGO_TARGET_{}_RUSTFLAGS", target.replace('-', "_").to_uppercase());
    cargo.env(flags, "-Zforce-unstable-if-unmarked -Cdebuginfo=0");
    // If cargo finds the file beside others, it takes all of them for dependencies of the library.
    let builtins = build.0.join("builtins.a");
    fs::copy(runtime(llvm).join(format!("libclang_rt.builtins-{}.a", arch.name())), &builtins)
        .context("no builtins")?;
    cargo.env("LLVM_COMPILER_RT_LIB", &builtins).current_dir(&source);
    command::output(&mut cargo).with_context(|| format!("the standard library for {target} does not build"))?;
    let libraries = fixtures::rust_libc_below(folder, arch);
    let libraries = libraries.ancestors().nth(2).context("libc.a has a folder")?;
    let mut copied = 0;
    for entry in fs::read_dir(build.0.join(target).join("dist/deps"))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.ends_with(".rlib") && !name.starts_with("libsysroot-") {
            fs::copy(&path, libraries.join(&name))?;
            copied += 1;
        }
    }
    if copied == 0 {
        bail!("the build for {target} made no library, in `{}`", workspace::shown(&build.0));
    }
    Ok(())
}
