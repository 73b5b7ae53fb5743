//! Which programs in C++, Rust, zig, Go, OCaml and Nim are made.

use fixtures::{Arch, toolchains};

use crate::case::Libc;
use crate::languages::{Blocks, Compiler, Recipe};

/// A recipe for each libc, allocator and set of flags.
fn product(
    compiler: &Compiler,
    libcs: &[Option<Libc>],
    blocks: &[Blocks],
    flags: &[&'static [&'static str]],
) -> Vec<Recipe> {
    let mut recipes = Vec::new();
    for libc in libcs {
        for blocks in blocks {
            for flags in flags {
                let compiler = compiler.clone();
                recipes.push(Recipe { compiler, libc: *libc, blocks: *blocks, flags: flags.to_vec() });
            }
        }
    }
    recipes
}

/// C++, with the machine's compiler and with zig's.
pub(crate) fn cpp() -> Vec<Recipe> {
    let blocks = [Blocks::Libc, Blocks::Counted, Blocks::Own, Blocks::OwnMalloc];
    let glibc = [Some(Libc::Glibc), Some(Libc::GlibcStatic)];
    let musl = [Some(Libc::MuslStatic), Some(Libc::MuslStaticPie)];
    let flags: [&[&str]; 4] = [&["-O0"], &["-O2"], &["-O2", "-flto"], &["-Os", "-static-libstdc++", "-static-libgcc"]];
    let mut recipes = product(&Compiler::Cpp, &glibc, &blocks, &flags);
    recipes.extend(product(&Compiler::ZigCpp, &musl, &blocks, &[&["-O0"], &["-O2"], &["-Oz"]]));
    recipes
}

const RUST_FLAGS: [&[&str]; 6] = [
    &[],
    &["-C", "opt-level=3", "-C", "overflow-checks=on"],
    &["-C", "opt-level=3"],
    &["-C", "opt-level=s", "-C", "panic=abort"],
    &["-C", "opt-level=3", "-C", "lto=fat"],
    &["-C", "opt-level=3", "-C", "lto=fat", "-C", "panic=abort", "-C", "codegen-units=1"],
];

const RUST_BLOCKS: [Blocks; 5] = [Blocks::Libc, Blocks::Counted, Blocks::Own, Blocks::Mimalloc, Blocks::OwnMalloc];

/// Rust for glibc.
pub(crate) fn rust() -> Vec<Recipe> {
    product(&Compiler::Rust, &[Some(Libc::Glibc), Some(Libc::GlibcStatic)], &RUST_BLOCKS, &RUST_FLAGS)
}

/// Rust for musl. The parts for the other blocks are objects for x86_64.
pub(crate) fn rust_musl() -> Vec<Recipe> {
    let of = |arch, blocks| product(&Compiler::RustMusl(arch), &[Some(Libc::MuslStaticPie)], blocks, &RUST_FLAGS);
    let mut recipes = of(Arch::X86_64, &RUST_BLOCKS);
    recipes.extend(of(Arch::Aarch64, &[Blocks::Libc, Blocks::Counted, Blocks::Own]));
    recipes
}

const ZIG_FLAGS: [&[&str]; 4] =
    [&["-ODebug"], &["-OReleaseSafe"], &["-OReleaseFast"], &["-OReleaseSmall", "-fno-strip"]];

/// zig, with the release that builds the donors.
pub(crate) fn zig() -> Vec<Recipe> {
    let zig = Compiler::Zig(fixtures::zig().program().to_owned());
    let blocks = [Blocks::Own, Blocks::Pages];
    let libcs = [Some(Libc::MuslStatic), Some(Libc::Glibc)];
    let mut recipes = product(&zig, &[None], &blocks, &ZIG_FLAGS);
    recipes.extend(product(&zig, &libcs, &[Blocks::Libc, Blocks::Own], &ZIG_FLAGS));
    recipes
}

/// zig's other releases, without a libc.
pub(crate) fn zigs() -> Vec<Recipe> {
    let of = |(release, _): &(&'static str, &str)| {
        // 0.13 has no allocator of its own but that for debugging.
        let blocks: &[Blocks] = if *release == "0.13.0" { &[Blocks::Pages] } else { &[Blocks::Own, Blocks::Pages] };
        product(&Compiler::Zig(toolchains::zig(release)), &[None], blocks, &ZIG_FLAGS)
    };
    toolchains::ZIGS.iter().flat_map(of).collect()
}

const GO: &str = "package main\n\nimport \"fmt\"\n\nfunc main() { fmt.Println(make([]string, 3)) }\n";
const CGO: &str = "package main\n\n// #include <stdlib.h>\nimport \"C\"\nimport \"fmt\"\n\n\
    func main() { block := C.malloc(100); C.free(block); fmt.Println(make([]string, 3)) }\n";
const OCAML: &str = "let () = print_endline (String.concat \" \" (List.init 100 string_of_int))\n";
/// Debian's OCaml is compiled for glibc: its runtime calls functions by names that musl has not.
const OCAML_WITH_MUSL: &str = concat!(
    "cat >names.c <<'END'\n",
    include_str!("../../../tests/toolchains/glibc_names.c"),
    "END\nmusl-gcc -O2 -c names.c\n\
     ocamlopt -cc musl-gcc -ccopt \"-static $PWD/names.o\" -o program program.ml"
);
const NIM: &str = "import std/[sequtils, strutils]\necho toSeq(0 ..< 100).mapIt($it).join(\" \")\n";

/// Languages whose compilers are in the Debian of the slow tests.
pub(crate) fn others() -> Vec<Recipe> {
    let script = |name, suffix, source, libc, blocks, script| Recipe {
        compiler: Compiler::Script { name, suffix, source, script },
        libc,
        blocks,
        flags: Vec::new(),
    };
    let go = |libc, source, text| script("Go", "go", source, libc, Blocks::Go, text);
    let ocaml = |libc, text| script("OCaml", "ml", OCAML, libc, Blocks::Libc, text);
    let nim = |libc, text| script("Nim", "nim", NIM, libc, Blocks::Pages, text);
    vec![
        go(None, GO, "CGO_ENABLED=0 go build -o program program.go"),
        go(None, GO, "CGO_ENABLED=0 go build -ldflags '-s -w' -o program program.go"),
        go(None, GO, "CGO_ENABLED=0 go build -gcflags 'all=-N -l' -o program program.go"),
        go(Some(Libc::Glibc), CGO, "CGO_ENABLED=1 go build -o program program.go"),
        go(
            Some(Libc::GlibcStatic),
            CGO,
            "CGO_ENABLED=1 go build -ldflags '-linkmode external -extldflags -static' -o program program.go",
        ),
        go(
            Some(Libc::MuslStatic),
            CGO,
            "CGO_ENABLED=1 CC=musl-gcc go build -ldflags '-linkmode external -extldflags -static' -o program program.go",
        ),
        ocaml(Some(Libc::Glibc), "ocamlopt -o program program.ml"),
        ocaml(Some(Libc::GlibcStatic), "ocamlopt -ccopt -static -o program program.ml"),
        ocaml(Some(Libc::MuslStatic), OCAML_WITH_MUSL),
        nim(Some(Libc::Glibc), "nim c -d:release --hints:off -o:program program.nim"),
        nim(Some(Libc::Glibc), "nim c -d:release -d:useMalloc --mm:orc --hints:off -o:program program.nim"),
        nim(
            Some(Libc::MuslStatic),
            "nim c -d:release -d:useMalloc --mm:orc --hints:off --gcc.exe:musl-gcc --gcc.linkerexe:musl-gcc \
             --passL:-static -o:program program.nim",
        ),
    ]
}

/// One of each compiler that each machine has, for the default tests.
pub(crate) fn few() -> Vec<Recipe> {
    let one = |compiler, libc, blocks, flags: &[&'static str]| Recipe {
        compiler,
        libc: Some(libc),
        blocks,
        flags: flags.to_vec(),
    };
    vec![
        one(Compiler::Cpp, Libc::Glibc, Blocks::Counted, &["-O2"]),
        one(Compiler::Rust, Libc::Glibc, Blocks::Own, &["-C", "opt-level=3"]),
        // Its arithmetic may panic.
        one(Compiler::Rust, Libc::Glibc, Blocks::Own, &[]),
        // Without local symbols, what its entry calls has no names.
        one(Compiler::Rust, Libc::GlibcStatic, Blocks::Own, &[]),
    ]
}
