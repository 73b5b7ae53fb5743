//! Functions as compilers write them, right ones and others that are nearly right (tests/strings).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::proof::{Strictness, Trial, Unproven};
use crate::image::Image;
use format::StringFunction;

/// How the sources are compiled: nothing may become a call of what it is meant to be. SSE2 is x86_64's own.
const FLAGS: [&str; 7] = [
    "-ffreestanding",
    "-fno-builtin",
    "-fno-stack-protector",
    "-fomit-frame-pointer",
    "-fno-pie",
    "-fno-asynchronous-unwind-tables",
    "-w",
];

#[derive(Debug, Clone, Copy)]
enum Compiler {
    Gcc,
    Zig,
    ZigForAarch64,
}

/// A program without a libc that holds a source's functions.
fn compiled(source: &str, compiler: Compiler, level: &str, folder: &Path) -> Vec<u8> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join("strings").join(source);
    let object: PathBuf = folder.join("functions.o");
    let program = folder.join("functions");
    let succeeds = |mut command: Command| {
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    match compiler {
        Compiler::Gcc => {
            let mut command = fixtures::cc();
            // gcc would make calls of loops that it knows.
            command.arg("-fno-tree-loop-distribute-patterns");
            command.args(FLAGS).arg(level).arg("-c").arg(&source).arg("-o").arg(&object);
            succeeds(command);
        }
        Compiler::Zig | Compiler::ZigForAarch64 => {
            let target = if matches!(compiler, Compiler::Zig) { "x86_64-linux-musl" } else { "aarch64-linux-musl" };
            let mut line: Vec<std::ffi::OsString> =
                ["cc", "-target", target, "-fno-sanitize=all", "-fno-vectorize"].map(Into::into).into();
            line.extend(FLAGS.map(Into::into));
            line.extend([level.into(), "-c".into(), source.into(), "-o".into(), object.clone().into()]);
            fixtures::zig().run(line).unwrap();
        }
    }
    let mut link = match compiler {
        Compiler::ZigForAarch64 => Command::new(fixtures::lld_folder().join("ld.lld")),
        _ => Command::new("ld"),
    };
    link.args(["-static", "-e", "0", "-o"]).arg(&program).arg(&object);
    succeeds(link);
    fs::read(program).unwrap()
}

/// The functions of a program that its symbols name: before two underscores, if there are any, which function it is.
fn named(image: &Image<'_>) -> Vec<(StringFunction, String, u64)> {
    let symbols = image.symbols();
    let functions = symbols.iter().filter(|symbol| symbol.kind == crate::image::STT_FUNC).filter_map(|symbol| {
        let name = String::from_utf8(symbol.name.to_vec()).unwrap();
        let function = StringFunction::named(name.split("__").next().unwrap().as_bytes())?;
        Some((function, name, symbol.value))
    });
    functions.collect()
}

fn prove(image: &Image<'_>, function: StringFunction, address: u64) -> Result<(), Unproven> {
    let mut trial = Trial::of(image, Strictness::Sign).unwrap();
    trial.read(address)?;
    trial.prove(function)
}

#[test]
fn functions_are_proven_as_compilers_write_them() {
    let folder = tempfile::tempdir().unwrap();
    let levels = [
        (Compiler::Gcc, "-O1"),
        (Compiler::Gcc, "-Os"),
        (Compiler::Gcc, "-O2"),
        (Compiler::Zig, "-Os"),
        (Compiler::ZigForAarch64, "-O1"),
        (Compiler::ZigForAarch64, "-Os"),
        (Compiler::ZigForAarch64, "-O2"),
    ];
    for (compiler, level) in levels {
        let program = compiled("functions.c", compiler, level, folder.path());
        let image = Image::parse(&program).unwrap();
        let functions = named(&image);
        assert_eq!(functions.len(), 20);
        for (function, name, address) in functions {
            // Without an overlap, and with: the one is the other's inputs and more.
            let proven = prove(&image, function, address);
            // LLVM leaves branches there that no input can take.
            let unrolled = matches!((compiler, level), (Compiler::ZigForAarch64, "-O1" | "-O2"))
                && matches!(function, StringFunction::Stpncpy | StringFunction::Strncpy);
            match proven {
                Err(Unproven::Untested { .. }) if unrolled => {}
                _ => assert_eq!(proven, Ok(()), "{name} by {compiler:?} {level}"),
            }
            if function == StringFunction::Memcpy {
                assert!(prove(&image, StringFunction::Memmove, address).is_err(), "{compiler:?} {level}");
            }
        }
    }
}

/// No function is taken for another: what one is, nearly all the others are not.
#[test]
fn one_is_not_another() {
    use StringFunction::{Bcmp, Memcmp, Memcpy, Memmove};
    let folder = tempfile::tempdir().unwrap();
    let program = compiled("functions.c", Compiler::Gcc, "-Os", folder.path());
    let image = Image::parse(&program).unwrap();
    for (function, name, address) in named(&image) {
        for other in StringFunction::all().filter(|other| *other != function) {
            let more = matches!((function, other), (Memcmp, Bcmp) | (Bcmp, Memcmp) | (Memmove, Memcpy));
            // memmove has a branch that memcpy's inputs do not reach.
            if !more {
                assert!(prove(&image, other, address).is_err(), "{name} was taken for {other}");
            }
        }
    }
}

#[test]
fn near_misses_are_not_proven() {
    let folder = tempfile::tempdir().unwrap();
    for (compiler, level) in [
        (Compiler::Gcc, "-O1"),
        (Compiler::Gcc, "-Os"),
        (Compiler::Gcc, "-O2"),
        (Compiler::Gcc, "-O3"),
        (Compiler::Zig, "-Os"),
        (Compiler::Zig, "-O2"),
        (Compiler::ZigForAarch64, "-O1"),
        (Compiler::ZigForAarch64, "-Os"),
        (Compiler::ZigForAarch64, "-O2"),
    ] {
        let program = compiled("near_misses.c", compiler, level, folder.path());
        let image = Image::parse(&program).unwrap();
        let functions = named(&image);
        assert!(functions.len() > 30);
        for (function, name, address) in functions {
            let proven = prove(&image, function, address);
            assert!(proven.is_err(), "{name} by {compiler:?} {level} is proven");
            let wanted = match name.split_once("__").map(|(_, what)| what) {
                Some("constant_time") => Some(Unproven::ConstantTime),
                Some("short_length" | "short_limit") if function == StringFunction::Memset => {
                    Some(Unproven::ShortLength)
                }
                _ => None,
            };
            // What is vectorised, or made a call of something else, has other faults before.
            if let (Some(wanted), "-O1") = (wanted, level) {
                assert_eq!(proven, Err(wanted), "{name}");
            }
        }
    }
}
