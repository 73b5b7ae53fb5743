//! Compiled functions, correct ones and nearly correct ones (tests/programs).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use equivalence::{Program, Prover, Strictness, Unproven};
use format::{Arch, StringFunction};
use object::{Object, ObjectSegment, ObjectSymbol, SegmentFlags, elf};

/// The parts of an executable that proofs read.
#[derive(Debug)]
struct Executable {
    /// Address, flags and content of each loaded segment.
    segments: Vec<(u64, elf::ProgramFlags, Vec<u8>)>,
    /// The functions that its symbols name: the part of the name before two underscores names the string function.
    functions: Vec<(StringFunction, String, u64)>,
}

impl Executable {
    fn parse(bytes: &[u8]) -> Executable {
        let file = object::File::parse(bytes).unwrap();
        let segment = |segment: object::Segment<'_, '_>| {
            let SegmentFlags::Elf { p_flags, .. } = segment.flags() else { panic!("not an ELF file") };
            (segment.address(), p_flags, segment.data().unwrap().to_vec())
        };
        let functions = file.symbols().filter(|symbol| symbol.kind() == object::SymbolKind::Text);
        let functions = functions.filter_map(|symbol| {
            let name = symbol.name().unwrap();
            let function = StringFunction::named(name.split("__").next().unwrap().as_bytes())?;
            Some((function, name.to_owned(), symbol.address()))
        });
        Executable { segments: file.segments().map(segment).collect(), functions: functions.collect() }
    }

    /// The bytes from an address on in a segment that has `flag`, or has not.
    fn bytes_from(&self, address: u64, flag: elf::ProgramFlags, set: bool) -> &[u8] {
        let with = self.segments.iter().filter(|(_, flags, _)| (flags.0 & flag.0 != 0) == set);
        let found =
            with.filter_map(|(start, _, bytes)| bytes.get(usize::try_from(address.checked_sub(*start)?).ok()?..));
        found.into_iter().next().unwrap_or_default()
    }
}

impl Program for Executable {
    fn arch(&self) -> Arch {
        Arch::X86_64
    }

    fn code(&self, address: u64) -> &[u8] {
        self.bytes_from(address, elf::PF_X, true)
    }

    fn constant(&self, address: u64, size: usize) -> Option<&[u8]> {
        self.bytes_from(address, elf::PF_W, false).get(..size)
    }
}

/// The compiler's flags: no source may be compiled to a call of the function that it implements. SSE2 is part of
/// x86_64.
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
}

/// A program without a libc that holds a source's functions.
fn compiled(source: &str, compiler: Compiler, level: &str, folder: &Path) -> Vec<u8> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join("programs").join(source);
    let object: PathBuf = folder.join("functions.o");
    let program = folder.join("functions");
    let succeeds = |mut command: Command| {
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    match compiler {
        Compiler::Gcc => {
            let mut command = fixtures::cc();
            // gcc would replace known loops by calls.
            command.arg("-fno-tree-loop-distribute-patterns");
            command.args(FLAGS).arg(level).arg("-c").arg(&source).arg("-o").arg(&object);
            succeeds(command);
        }
        Compiler::Zig => {
            let mut line: Vec<std::ffi::OsString> =
                ["cc", "-target", "x86_64-linux-musl", "-fno-sanitize=all", "-fno-vectorize"].map(Into::into).into();
            line.extend(FLAGS.map(Into::into));
            line.extend([level.into(), "-c".into(), source.into(), "-o".into(), object.clone().into()]);
            fixtures::zig().run(line).unwrap();
        }
    }
    let mut link = Command::new("ld");
    link.args(["-static", "-e", "0", "-o"]).arg(&program).arg(&object);
    succeeds(link);
    fs::read(program).unwrap()
}

fn prove(program: &Executable, function: StringFunction, address: u64) -> Result<(), Unproven> {
    let mut prover = Prover::new(program, Strictness::Sign).unwrap();
    prover.read(address)?;
    prover.prove(function)
}

#[test]
#[ignore = "minutes: a quarter of a minute of processor time"]
fn functions_are_proven_as_compilers_write_them() {
    let folder = tempfile::tempdir().unwrap();
    let levels = [(Compiler::Gcc, "-O1"), (Compiler::Gcc, "-Os"), (Compiler::Gcc, "-O2"), (Compiler::Zig, "-Os")];
    for (compiler, level) in levels {
        let program = compiled("functions.c", compiler, level, folder.path());
        let program = Executable::parse(&program);
        let functions = program.functions.clone();
        assert_eq!(functions.len(), 24);
        for (function, name, address) in functions {
            // Proven without overlap and with overlap: memmove's inputs include memcpy's.
            assert_eq!(prove(&program, function, address), Ok(()), "{name} by {compiler:?} {level}");
            if function == StringFunction::Memcpy {
                assert!(prove(&program, StringFunction::Memmove, address).is_err(), "{compiler:?} {level}");
            }
        }
    }
}

/// No function is proven to be a different one, except where one contract includes the other.
#[test]
fn one_is_not_another() {
    use StringFunction::{Bcmp, Memcmp, Memcpy, Memmove};
    let folder = tempfile::tempdir().unwrap();
    let program = compiled("functions.c", Compiler::Gcc, "-Os", folder.path());
    let program = Executable::parse(&program);
    for (function, name, address) in program.functions.clone() {
        for other in StringFunction::all().filter(|other| *other != function) {
            let more = matches!((function, other), (Memcmp, Bcmp) | (Bcmp, Memcmp) | (Memmove, Memcpy));
            // memmove has a branch that memcpy's inputs do not reach.
            if !more {
                assert!(prove(&program, other, address).is_err(), "{name} was taken for {other}");
            }
        }
    }
}

#[test]
#[ignore = "minutes: ten seconds of processor time"]
fn near_misses_are_not_proven() {
    let folder = tempfile::tempdir().unwrap();
    for (compiler, level) in [
        (Compiler::Gcc, "-O1"),
        (Compiler::Gcc, "-Os"),
        (Compiler::Gcc, "-O2"),
        (Compiler::Gcc, "-O3"),
        (Compiler::Zig, "-Os"),
        (Compiler::Zig, "-O2"),
    ] {
        let program = compiled("near_misses.c", compiler, level, folder.path());
        let program = Executable::parse(&program);
        let functions = program.functions.clone();
        assert!(functions.len() > 30);
        for (function, name, address) in functions {
            let proven = prove(&program, function, address);
            assert!(proven.is_err(), "{name} by {compiler:?} {level} is proven");
            let wanted = match name.split_once("__").map(|(_, what)| what) {
                Some("constant_time") => Some(Unproven::ConstantTime),
                Some("short_length" | "short_limit") if function == StringFunction::Memset => {
                    Some(Unproven::ShortLength)
                }
                _ => None,
            };
            // Functions that are vectorised, or replaced by a call, fail earlier with other reasons.
            if let (Some(wanted), "-O1") = (wanted, level) {
                assert_eq!(proven, Err(wanted), "{name}");
            }
        }
    }
}
