//! Programs in C++, Rust, zig, Go, Swift, OCaml and Nim: the allocators of the language are known by construction, too.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use anyhow::{Context, Result};
use attack::workers;
use fixtures::{Arch, toolchains};
use object::{Object, ObjectSymbol};

use crate::case::Libc;
use crate::disk::Disk;
use crate::linked;
use crate::workshop::{Part, Workshop, succeed};

/// The compiler of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Compiler {
    /// The machine's C++ compiler.
    Cpp,
    /// zig's, with its C++ library.
    ZigCpp,
    /// The machine's rustc.
    Rust,
    /// That of the slow tier's toolchain with musl targets, for this one.
    RustMusl(Arch),
    /// This zig.
    Zig(PathBuf),
    /// This script, in the Debian that has compilers of other languages. The source is `program.SUFFIX`.
    Script { name: &'static str, suffix: &'static str, source: &'static str, script: &'static str },
}

/// The allocator of the language's own blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blocks {
    /// libc's `malloc`.
    Libc,
    /// libc's, called by an allocator that counts.
    Counted,
    /// One that the program brings: C++'s `new` operator, Rust's global allocator, one of zig's library.
    Own,
    /// The pages of the kernel.
    Pages,
    /// mimalloc, by its own names.
    Mimalloc,
    /// The `malloc` that the program brings.
    OwnMalloc,
    /// That of Go's runtime.
    Go,
}

/// A program in a language.
#[derive(Debug, Clone)]
pub(crate) struct Recipe {
    pub(crate) compiler: Compiler,
    /// `None` without a libc.
    pub(crate) libc: Option<Libc>,
    pub(crate) blocks: Blocks,
    pub(crate) flags: Vec<&'static str>,
}

const CPP: &str = r#"
#include <cstdlib>
#include <map>
#include <new>
#include <string>
#ifdef OWN
static char arena[1 << 20];
static std::size_t used;
void *operator new(std::size_t n) { used = (used + n + 31) & -16; return arena + used - ((n + 15) & -16); }
void operator delete(void *) noexcept {}
void operator delete(void *, std::size_t) noexcept {}
#endif
#ifdef COUNTED
static long count;
void *operator new(std::size_t n) { count++; if (void *p = std::malloc(n)) return p; throw std::bad_alloc(); }
void operator delete(void *p) noexcept { std::free(p); }
void operator delete(void *p, std::size_t) noexcept { std::free(p); }
#endif
int main() {
    std::map<int, std::string> map;
    for (int n = 0; n < 100; n++) map[n * 7919 % 101] = std::to_string(n) + " is a number of this program";
    void *volatile block = std::malloc(100);
    std::free(block);
    return map.size() != 100;
}
"#;

const RUST: &str = r#"
#[allow(unused_imports)]
use std::alloc::{GlobalAlloc, Layout, System};
#[allow(unused_imports)]
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
#[allow(dead_code)]
static COUNT: AtomicUsize = AtomicUsize::new(0);
#[cfg(counted)]
mod global {
    use super::*;
    struct Counted;
    unsafe impl GlobalAlloc for Counted {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 { COUNT.fetch_add(1, Relaxed); unsafe { System.alloc(layout) } }
        unsafe fn dealloc(&self, block: *mut u8, layout: Layout) { unsafe { System.dealloc(block, layout) } }
    }
    #[global_allocator]
    static GLOBAL: Counted = Counted;
}
#[cfg(own)]
mod global {
    use super::*;
    struct Arena;
    static mut BYTES: [u128; 1 << 16] = [0; 1 << 16];
    unsafe impl GlobalAlloc for Arena {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            let size = layout.size() + layout.align() + 16 & !15;
            let at = COUNT.fetch_add(size, Relaxed) + layout.align() - 1 & !(layout.align() - 1);
            unsafe { (&raw mut BYTES).cast::<u8>().add(at) }
        }
        unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
    }
    #[global_allocator]
    static GLOBAL: Arena = Arena;
}
#[cfg(mimalloc)]
mod global {
    use super::*;
    unsafe extern "C" {
        fn mi_malloc_aligned(size: usize, alignment: usize) -> *mut u8;
        fn mi_free(block: *mut u8);
    }
    struct Mimalloc;
    unsafe impl GlobalAlloc for Mimalloc {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 { unsafe { mi_malloc_aligned(layout.size(), layout.align()) } }
        unsafe fn dealloc(&self, block: *mut u8, _: Layout) { unsafe { mi_free(block) } }
    }
    #[global_allocator]
    static GLOBAL: Mimalloc = Mimalloc;
}
fn main() {
    let numbers: Vec<String> = (0..100).map(|number| number.to_string()).collect();
    println!("{} {}", numbers.join(" "), COUNT.load(Relaxed));
}
"#;

const ZIG: &str = r#"
const std = @import("std");
pub fn main() !void {
    const allocator = std.heap.ALLOCATOR;
    const block = try allocator.alloc(u8, 100);
    std.mem.doNotOptimizeAway(block.ptr);
    allocator.free(block);
}
"#;

impl Recipe {
    /// The answers on `malloc` that are right, beside `unknown`. `has_malloc`: whether the linker took one.
    fn mallocs(&self, has_malloc: bool) -> Vec<&'static str> {
        let is_zig = matches!(self.compiler, Compiler::Zig(_));
        match (self.libc, self.blocks) {
            (_, Blocks::OwnMalloc) => vec![],
            // A program without `malloc`: `inspect` names the language's allocator, or says `none`.
            (None, Blocks::Go) => vec!["go", "none"],
            (None, _) => vec!["zig", "none"],
            (Some(libc), _) if !libc.is_static() || has_malloc => vec![libc.allocator()],
            // zig's `c_allocator` takes aligned blocks: musl's allocator is linked without the name `malloc`.
            (Some(libc), Blocks::Libc) => vec![libc.allocator(), "none"],
            (Some(_), _) if is_zig => vec!["zig", "none"],
            (Some(_), _) => vec!["none"],
        }
    }

    /// The answers on the language's blocks that are right, beside `unknown`. An empty one means that they are
    /// `malloc`'s.
    /// `is_named`: whether Rust's function that takes a block has its name still.
    fn languages(&self, is_named: bool) -> &'static [&'static str] {
        let is_rust = matches!(self.compiler, Compiler::Rust | Compiler::RustMusl(_));
        match self.blocks {
            Blocks::Go => &["go"],
            Blocks::Mimalloc => &["mimalloc"],
            Blocks::Own if is_rust && is_named => &[],
            // Of the other languages `inspect` says nothing.
            _ => &[""],
        }
    }

    /// Makes the program, with all its symbols.
    fn make(&self, workshop: &Workshop, folder: &Path) -> Result<PathBuf> {
        let (out, musl) = (folder.join("program"), self.libc.is_some_and(Libc::is_musl));
        let part = |part| workshop.part(part)?.with_context(|| format!("there is no {part:?}"));
        let object = match self.blocks {
            Blocks::OwnMalloc => Some(part(Part::Own)?),
            Blocks::Mimalloc => Some(part(Part::Mimalloc { musl, family: false })?),
            _ => None,
        };
        let write = |suffix: &str, text: &str| -> Result<PathBuf> {
            let path = folder.join(format!("program.{suffix}"));
            fs::write(&path, text)?;
            Ok(path)
        };
        let blocks = match self.blocks {
            Blocks::Counted => "counted",
            Blocks::Own => "own",
            Blocks::Mimalloc => "mimalloc",
            _ => "libcs",
        };
        match &self.compiler {
            Compiler::Cpp | Compiler::ZigCpp => {
                let mut command = match self.compiler {
                    Compiler::Cpp => Command::new(std::env::var_os("CXX").unwrap_or_else(|| "c++".into())),
                    _ => {
                        let mut zig = fixtures::zig().command();
                        zig.args(["c++", "-target", "x86_64-linux-musl", "-fno-sanitize=all"]);
                        zig
                    }
                };
                let kind = match self.libc.context("C++ has a libc")? {
                    Libc::Musl | Libc::Glibc => "-pie",
                    Libc::MuslStaticPie => "-static-pie",
                    Libc::MuslStatic | Libc::GlibcStatic => "-static",
                };
                command.args([kind, "-w", &format!("-D{}", blocks.to_uppercase())]).args(&self.flags);
                succeed(command.arg("-o").arg(&out).arg(write("cpp", CPP)?).args(object))?;
            }
            Compiler::Rust | Compiler::RustMusl(_) => {
                let mut command = match self.compiler {
                    Compiler::RustMusl(arch) => {
                        let mut command = Command::new(fixtures::rust_musl().join("bin/rustc"));
                        command.args(["--target", fixtures::rust_target(arch)]);
                        if !fixtures::native(arch) {
                            command
                                .arg("-C")
                                .arg(format!("linker={}", fixtures::lld_folder().join("ld.lld").display()));
                        }
                        command
                    }
                    _ => Command::new("rustc"),
                };
                let is_static = self.libc.is_some_and(Libc::is_static);
                let crt = format!("target-feature={}crt-static", if is_static { '+' } else { '-' });
                command.args(["--edition", "2024", "-A", "warnings", "--cfg", blocks, "-C", &crt]).args(&self.flags);
                if let Some(object) = object {
                    // In a library, it precedes libc on the link line; `link-arg` would put it behind.
                    succeed(Command::new("ar").arg("rcs").arg(folder.join("libprovider.a")).arg(object))?;
                    command.arg("-L").arg(folder).args(["-l", "static:+whole-archive=provider"]);
                }
                succeed(command.arg("-o").arg(&out).arg(write("rs", RUST)?))?;
            }
            Compiler::Zig(zig) => {
                let allocator = match self.blocks {
                    Blocks::Libc => "c_allocator",
                    Blocks::Pages => "page_allocator",
                    _ => "smp_allocator",
                };
                let mut command = Command::new(zig);
                let caches = folder.join("cache");
                command.env("ZIG_LOCAL_CACHE_DIR", &caches).env("ZIG_GLOBAL_CACHE_DIR", zig_cache(zig));
                command.arg("build-exe").arg(write("zig", &ZIG.replace("ALLOCATOR", allocator))?).args(&self.flags);
                match self.libc {
                    None => command.args(["-target", "x86_64-linux-musl"]),
                    Some(libc) if libc.is_musl() => command.args(["-target", "x86_64-linux-musl", "-lc"]),
                    Some(_) => command.args(["-target", "x86_64-linux-gnu", "-lc"]),
                };
                succeed(command.arg(format!("-femit-bin={}", out.display())))?;
            }
            Compiler::Script { suffix, source, script, .. } => {
                write(suffix, source)?;
                succeed(&mut toolchains::command(folder, script))?;
            }
        }
        Ok(out)
    }
}

/// A release of zig keeps what it has compiled of its libraries.
fn zig_cache(zig: &Path) -> PathBuf {
    let release = zig.ancestors().nth(2).and_then(Path::file_name).unwrap_or_default();
    fixtures::tools().with_file_name("zig-cache").join(release)
}

const WHOLE: Disk = Disk { missing: None, unreadable: None };

/// The answers to some programs.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    pub(crate) programs: usize,
    pub(crate) named: usize,
    /// Recipes whose program could not be made.
    pub(crate) troubles: usize,
    pub(crate) wrong: Vec<String>,
    /// The programs with all symbols whose `malloc` was not named, by recipe.
    pub(crate) silent: BTreeMap<String, usize>,
}

/// The ways in which a program is stripped: the option of `strip`, and that of rustc for a program that this machine's
/// `strip` cannot read. The last one cuts the section headers off.
const STRIPS: [Option<(&str, &str)>; 5] = [
    None,
    Some(("-x", "link-arg=-x")),
    Some(("-g", "link-arg=--strip-debug")),
    Some(("-s", "link-arg=-s")),
    Some(("-s", "link-arg=-s")),
];

/// Makes each program, with all of its symbols, with some and with none, and inspects them.
pub(crate) fn ask(recipes: &[Recipe]) -> Answers {
    let workshop = Workshop::new();
    let answers = Mutex::new(Answers::default());
    let troubles = workers::each(recipes, workers::processors(), |recipe| {
        let folder = tempfile::tempdir()?;
        let out = match recipe.make(&workshop, folder.path()) {
            Err(error) if linked::has_second_malloc(&error) => return Ok(()),
            out => out.with_context(|| format!("{recipe:?}"))?,
        };
        // zig strips small C++ programs itself; their source calls `malloc`.
        let calls_malloc = matches!(recipe.compiler, Compiler::Cpp | Compiler::ZigCpp);
        let has_malloc = calls_malloc || defines(&out, |name| name == b"malloc")?;
        for (number, strip) in STRIPS.iter().enumerate() {
            let path = folder.path().join(format!("stripped-{number}"));
            match (strip, &recipe.compiler) {
                (None, _) => drop(fs::copy(&out, &path)?),
                (Some((_, option)), Compiler::RustMusl(arch)) if !fixtures::native(*arch) => {
                    let flags = [recipe.flags.as_slice(), &["-C", option]].concat();
                    fs::rename(Recipe { flags, ..recipe.clone() }.make(&workshop, folder.path())?, &path)?;
                }
                (Some((option, _)), _) => succeed(Command::new("strip").arg(option).arg("-o").args([&path, &out]))?,
            }
            if number + 1 == STRIPS.len() {
                linked::cut_section_headers(&path)?;
            }
            let answer = linked::inspected(&path, recipe.libc, &WHOLE)?;
            let mut answers = answers.lock().expect("no thread panicked with it");
            answers.programs += 1;
            let title = format!("{recipe:?}, strip {strip:?} ({number})");
            if answer.malloc != "unknown" {
                answers.named += 1;
                if !recipe.mallocs(has_malloc).contains(&answer.malloc.as_str()) {
                    answers.wrong.push(format!("{title}: `{}`, not {:?}", answer.malloc, recipe.mallocs(has_malloc)));
                }
            } else if number == 0 && recipe.blocks != Blocks::OwnMalloc {
                *answers.silent.entry(title.clone()).or_default() += 1;
            }
            let language = answer.language.unwrap_or_default();
            let is_named = defines(&path, |name| name.ends_with(b"__rust_alloc"))?;
            if language != "unknown" && !recipe.languages(is_named).contains(&language.as_str()) {
                answers.wrong.push(format!("{title}: the language's blocks are `{language}`'s"));
            }
        }
        Ok(())
    });
    Answers { troubles, ..answers.into_inner().expect("no thread panicked with it") }
}

/// Whether the file has a symbol, and defines it.
fn defines(path: &Path, is_it: impl Fn(&[u8]) -> bool) -> Result<bool> {
    let bytes = fs::read(path)?;
    let file = object::File::parse(bytes.as_slice())?;
    Ok(file.symbols().any(|symbol| symbol.is_definition() && symbol.name_bytes().is_ok_and(&is_it)))
}
