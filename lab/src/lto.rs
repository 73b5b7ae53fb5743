//! `cargo xtask bench lto`: a ThinLTO link by a real, dynamic `ld.lld`, with the donors preloaded. This is LLVM's
//! typical load: many threads that each build and destroy the representation of a module.
//!
//! Not by a static `ld.lld` with the donors linked in: Debian's archives of LLVM are for glibc, and a donor for static
//! programs replaces musl's malloc.

pub(crate) mod memory;
mod pages;

use std::ffi::OsString;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use fixtures::{Arch, ZigTarget};

use tools::debian::Apt;
use tools::{command, folder};

use crate::experiment::Bench;

/// The newest lld of this machine's Debian release.
const PACKAGE: &str = "lld-22";
const LLVM: &str = "usr/lib/llvm-22";
/// The donors of a link, without their variants.
const DONORS: [&str; 6] = ["mimalloc", "mimalloc3", "jemalloc", "snmalloc", "rpmalloc", "scudo"];
/// The number of modules, and of functions in each.
const MODULES: usize = 12;
const FUNCTIONS: usize = 40;

/// Passes all arguments to `allograft bench`, with the link as the program.
///
/// # Errors
/// A part cannot be fetched or built, or the comparison reports a fault.
pub(crate) fn bench(arguments: &[String]) -> Result<()> {
    let Load { lld, bench: Bench { home, .. }, objects, allograft } = &load()?;
    let mut bench = Command::new(allograft);
    bench.arg("bench").args(preloading(arguments)?);
    if !arguments.iter().any(|word| word.split('=').next() == Some("--threads")) {
        bench.args(["--threads", "1,8"]);
    }
    // The linked programs are compared: every arm must make the same one. Only the linker uses the unpacked libraries;
    // the shell and allograft use the machine's own.
    let line = "out=$1 libraries=$2; shift 2; LD_LIBRARY_PATH=$libraries \"$@\" -o \"$out\" && sha256sum <\"$out\"";
    bench.args(["--", "/bin/sh", "-c", line, "sh"]).arg(home.join("program"));
    bench.arg(&lld.libraries).arg(&lld.program).args(["--thinlto-jobs={threads}", "--threads={threads}", "--lto-O3"]);
    command::run(bench.args(objects))
}

/// Returns the arguments with every donor of `--donors` preloaded, and with that option if it is not among them: the
/// shell hands a preloaded donor on to the linker, but a donor that is merged into the shell stays there.
///
/// # Errors
/// An arm would be merged into the shell.
fn preloading(arguments: &[String]) -> Result<Vec<String>> {
    let (mut donors, mut others) = (None, Vec::new());
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        match word.strip_prefix("--donors=") {
            Some(names) => donors = Some(names.to_owned()),
            None if word == "--donors" => donors = words.next().cloned(),
            None => others.push(word.clone()),
        }
    }
    let mut arms = Vec::new();
    for name in donors.as_deref().unwrap_or("all").split(',') {
        match name.split(':').next().unwrap_or_default() {
            "all" => arms.extend(DONORS.map(|donor| format!("{donor}:preload"))),
            "profiles" => bail!("`profiles` cannot be preloaded; name donors with their profiles: `snmalloc:small`"),
            "stock" | "glibc" | "tcmalloc" | "mesh" | "preload" => arms.push(name.to_owned()),
            _ if name.split(':').any(|part| part == "preload") => arms.push(name.to_owned()),
            _ => arms.push(format!("{name}:preload")),
        }
    }
    others.extend(["--donors".to_owned(), arms.join(",")]);
    Ok(others)
}

/// The parts of a link: the linker, a folder of this process's own, the modules, and allograft.
struct Load {
    lld: Linker,
    bench: Bench,
    objects: Vec<PathBuf>,
    allograft: PathBuf,
}

/// Fetches and builds all parts.
fn load() -> Result<Load> {
    let bench = Bench::open("lto")?;
    let (lld, objects) = (linker()?, modules(&bench.home)?);
    Ok(Load { lld, bench, objects, allograft: command::build_allograft()? })
}

struct Linker {
    program: PathBuf,
    /// The value of LD_LIBRARY_PATH.
    libraries: String,
}

/// Unpacks the linker without installing it.
fn linker() -> Result<Linker> {
    let folder = fixtures::tools().join("lld");
    let program = folder.join(LLVM).join("bin/ld.lld");
    if !program.is_file() {
        let _lock = folder::lock(&fixtures::tools().join(".lld.lock"))?;
        let fill = |folder: &Path| {
            let scratch = folder::Scratch::beside(&fixtures::tools().join("apt-lld"), "state")?;
            let apt = Apt::new(&scratch.0, std::iter::empty())?;
            let update = apt.update();
            apt.unpack_whole(&[PACKAGE], folder).or_else(|error| update.and(Err(error)))
        };
        folder::announce("a dynamic ld.lld", || folder::place(&folder, fill))?;
    }
    let library = |path: &str| folder.join(path).display().to_string();
    let places = [&format!("{LLVM}/lib"), "usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"].map(library);
    Ok(Linker { program, libraries: places.join(":") })
}

/// Returns the modules as bitcode, and makes them at the first call.
fn modules(home: &Path) -> Result<Vec<PathBuf>> {
    let zig = fixtures::zig();
    let objects: Vec<PathBuf> = (0..MODULES).map(|number| home.join(format!("module{number}.o"))).collect();
    for (number, object) in objects.iter().enumerate() {
        let source = object.with_extension("c");
        let text = module(number);
        if object.is_file() && fs::read_to_string(&source).is_ok_and(|there| there == text) {
            continue;
        }
        fs::write(&source, text)?;
        let mut line: Vec<OsString> = ["cc", "-target", Arch::X86_64.triple()].map(Into::into).into();
        line.extend(["-O2", "-flto=thin", "-fno-sanitize=all", "-fno-stack-protector", "-c", "-o"].map(Into::into));
        line.extend([object.into(), source.into()]);
        zig.run(line).with_context(|| format!("module {number} does not compile"))?;
    }
    Ok(objects)
}

/// Returns a module of functions that loop, branch, and call functions of the next modules, so that link-time
/// optimisation imports them.
fn module(number: usize) -> String {
    let next = |step: usize| (number + step) % MODULES;
    let mut text = String::new();
    // Writing to a string does not fail.
    for function in 0..FUNCTIONS {
        let _ = writeln!(text, "unsigned f{}_{function}(unsigned, unsigned *);", next(1));
        let _ = writeln!(text, "unsigned f{}_{function}(unsigned, unsigned *);", next(7));
    }
    for function in 0..FUNCTIONS {
        let (one, other) = ((function * 7 + 1) % FUNCTIONS, (function * 3 + 2) % FUNCTIONS);
        let _ = writeln!(
            text,
            "unsigned f{number}_{function}(unsigned n, unsigned *p) {{\n\
             \x20 unsigned s = n * {}u;\n\
             \x20 for (unsigned i = 0; i < n % 32; i++) {{ p[i] = p[i] * 3 + s; s ^= p[i] >> (i & 7); }}\n\
             \x20 if (n < 3) return s;\n\
             \x20 switch (s % 5) {{ case 0: s += f{}_{one}(n / 2, p); break; case 1: s ^= f{}_{other}(n / 3, \
              p); break;\n\
             \x20 case 2: s *= 5; break; case 3: s += p[n % 32]; break; default: s = ~s; }}\n\
             \x20 return s;\n}}",
            function * 2 + 1,
            next(1),
            next(7)
        );
    }
    if number == 0 {
        text.push_str("unsigned values[32];\nvoid _start(void) { values[0] = f0_0(100, values); for (;;) ; }\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Donors without `:preload` were merged into the shell, and every arm linked with glibc's malloc.
    #[test]
    fn every_donor_is_preloaded() {
        let of = |line: &str| {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            preloading(&words).map(|words| words.join(" ")).map_err(|error| error.to_string())
        };
        let all = "mimalloc:preload,mimalloc3:preload,jemalloc:preload,snmalloc:preload,rpmalloc:preload,scudo:preload";
        assert_eq!(of("--budget 6m").unwrap(), format!("--budget 6m --donors {all}"));
        assert_eq!(of("--donors=all").unwrap(), format!("--donors {all}"));
        let mixed = of("--donors glibc:arena_max=2,scudo,snmalloc:small,jemalloc:preload --threads 8").unwrap();
        let arms = "glibc:arena_max=2,scudo:preload,snmalloc:small:preload,jemalloc:preload";
        assert_eq!(mixed, format!("--threads 8 --donors {arms}"));
        assert!(of("--donors profiles").unwrap_err().contains("cannot be preloaded"));
    }
}
