//! Objects and archives after surgery, linked and run.

use std::ffi::OsString;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Command;

use fixtures::lab::{Lab, succeeds};
use fixtures::{Arch, ZigTarget};
use relocatable::{Binding, localise, symbols};
use surgery::archive::Archive;
use surgery::donor::DonorObject;
use surgery::plan::plan;

use crate::samples;

/// A folder for one test, and the tools for an architecture.
struct Bench {
    lab: Lab,
    arch: Arch,
}

impl Deref for Bench {
    type Target = Lab;

    fn deref(&self) -> &Lab {
        &self.lab
    }
}

impl Bench {
    fn new(arch: Arch) -> Bench {
        Bench { lab: Lab::default(), arch }
    }

    fn source(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/surgery/sources").join(name)
    }

    fn compile(&self, source: &str, to: &str, flags: &[&str]) -> PathBuf {
        let front = if source.ends_with(".c") { "cc" } else { "c++" };
        let mut arguments: Vec<OsString> = vec![front.into(), "-target".into(), self.arch.triple().into()];
        arguments.extend(self.arch.flags().map(OsString::from));
        arguments.extend(
            ["-c", "-O1", "-fPIE", "-ffunction-sections", "-fno-builtin", "-fno-sanitize=all"].map(OsString::from),
        );
        arguments.extend(flags.iter().map(OsString::from));
        arguments.extend([Bench::source(source).into(), "-o".into(), self.path(to).into()]);
        fixtures::zig().run(arguments).unwrap_or_else(|error| panic!("{error}"));
        self.path(to)
    }

    /// Links statically against a folder's start files and these inputs.
    fn link(&self, linker: &Path, flags: &[&str], inputs: &[PathBuf]) -> PathBuf {
        let out = self.path("program");
        succeeds(Command::new(linker).args(flags).arg("-o").arg(&out).args(inputs));
        out
    }

    fn run(&self, program: &Path) -> String {
        succeeds(&mut fixtures::run(self.arch, program)).out
    }

    /// The small donor, made from one object by `ld.lld -r` like real donors, its helpers local.
    fn donor(&self) -> Vec<u8> {
        let compiled = self.compile("donor.c", "compiled.o", &[]);
        let merged = self.path("merged.o");
        fixtures::zig()
            .run([OsString::from("ld.lld"), "-r".into(), compiled.into(), "-o".into(), merged.clone().into()])
            .unwrap_or_else(|error| panic!("{error}"));
        let merged = samples::bytes(&merged);
        let shared =
            |name: &[u8]| samples::DONOR.split_whitespace().any(|word| word.ends_with(&*String::from_utf8_lossy(name)));
        assert!(
            symbols(&merged)
                .expect("symbols")
                .iter()
                .any(|symbol| symbol.name == b"secret" && symbol.binding == Binding::Global)
        );
        localise(&merged, &shared).expect("localised")
    }
}

fn lld() -> PathBuf {
    fixtures::lld_folder().join("ld.lld")
}

/// Whether the default tier has a libc: Debian's for this machine.
fn is_at_hand(arch: Arch, of_zig: bool) -> bool {
    fixtures::native(arch) && !of_zig
}

#[test]
fn a_grafted_libc_links_and_runs() {
    links_and_runs(is_at_hand);
}

#[test]
#[ignore = "zig-musls: takes zig's musl for three architectures, and emulators"]
fn every_grafted_libc_links_and_runs() {
    links_and_runs(|arch, of_zig| !is_at_hand(arch, of_zig));
}

fn links_and_runs(is_due: fn(Arch, bool) -> bool) {
    for arch in Arch::ALL.into_iter().filter(|arch| is_due(*arch, false) || is_due(*arch, true)) {
        let bench = Bench::new(arch);
        let donor = bench.donor();
        let donor = DonorObject::parse(&donor).expect("a donor");
        let tuned = donor.tuned(&[("purge_delay".to_owned(), 0)], "0.1.0").expect("tuned");
        let program = bench.compile("program.c", "program.o", &[]);
        let debian = (fixtures::DEBIAN.contains(&arch) && is_due(arch, false))
            .then(|| (fixtures::debian_musl(arch).libc, vec![]));
        let zig = (fixtures::ZIG.contains(&arch) && is_due(arch, true)).then(|| {
            let zig = fixtures::zig_musl(arch);
            let rest = ["libzigc.a", "libcompiler_rt.a"].map(|name| zig.with_file_name(name)).to_vec();
            (zig, rest)
        });
        for (stock, rest) in debian.into_iter().chain(zig) {
            let folder = stock.parent().expect("a folder");
            let bytes = samples::bytes(&stock);
            let archive = Archive::parse(&bytes).expect("an archive");
            let plan = plan(&archive, &tuned).unwrap_or_else(|refusal| panic!("{}: {refusal}", stock.display()));
            let graft = bench.put("libc.a", &plan.apply(&archive));
            let inputs = |start: &str| {
                let mut inputs = vec![folder.join(start), program.clone(), "--start-group".into(), graft.clone()];
                if matches!(arch, Arch::I686 | Arch::Arm) {
                    // musl's own functions ask the compiler's runtime library for division, which the program never
                    // does.
                    inputs.push("--unresolved-symbols=ignore-all".into());
                }
                inputs.extend(rest.clone());
                inputs.push("--end-group".into());
                inputs
            };
            let mut linkers = vec![lld()];
            if fixtures::native(arch) {
                linkers.push("ld".into());
            }
            for linker in linkers {
                for (flags, start) in [
                    (&["-static"][..], "crt1.o"),
                    (&["-static", "-pie", "--no-dynamic-linker", "-z", "text"], "rcrt1.o"),
                ] {
                    // zig's archives are not compiled for position-independent programs here.
                    if start == "rcrt1.o" && !rest.is_empty() {
                        continue;
                    }
                    let linked = bench.link(&linker, flags, &inputs(start));
                    assert_eq!(bench.run(&linked), "fine\n", "{} {flags:?}", linker.display());
                    let linked = samples::bytes(&linked);
                    let note = b"donor=small\nversion=1\noptions=purge_delay=0\nobject=sha256:";
                    assert!(linked.windows(note.len()).any(|window| window == note), "the note is not in the program");
                }
            }
        }
    }
}

#[test]
fn local_symbols_come_first_and_undefined_ones_stay() {
    for arch in Arch::ALL {
        let bench = Bench::new(arch);
        let compiled = samples::bytes(&bench.compile("donor.c", "compiled.o", &[]));
        let local = localise(&compiled, &|name| name == b"malloc").expect("localised");
        let (before, after) = (symbols(&compiled).expect("symbols"), symbols(&local).expect("symbols"));
        assert_eq!((compiled.len(), before.len()), (local.len(), after.len()));
        let shared: Vec<_> = after.iter().filter(|symbol| symbol.is_shared()).collect();
        assert!(shared.iter().all(|symbol| !symbol.defined || symbol.name == b"malloc"));
        let undefined = |symbols: &[relocatable::Symbol<'_>]| symbols.iter().filter(|symbol| !symbol.defined).count();
        assert_eq!(undefined(&before), undefined(&after));
        assert!(undefined(&after) >= 2 && shared.len() == undefined(&after) + 1);
        let first = after.iter().position(|symbol| symbol.binding != Binding::Local).expect("a shared symbol");
        assert!(after[first..].iter().all(|symbol| symbol.binding != Binding::Local));
        assert_eq!(localise(&local, &|name| name == b"malloc").expect("localised"), local, "twice is once");
    }
}

#[test]
fn a_group_whose_name_is_local_is_not_taken_for_another() {
    let bench = Bench::new(Arch::X86_64);
    let flags = |kind: &'static str, value: &'static str| [kind, value, "-fno-exceptions"];
    let one = bench.compile("group.cpp", "one.o", &flags("-DKIND=1", "-DVALUE=one"));
    let two = bench.compile("group.cpp", "two.o", &flags("-DKIND=2", "-DVALUE=two"));
    let local = localise(&samples::bytes(&two), &|name| name == b"two").expect("localised");
    let two = bench.put("two.o", &local);
    let main = bench.put("main.c", b"int one(void), two(void); int main(void) { return one() * 10 + two(); }");
    for linker in [&[][..], &["-fuse-ld=lld"]] {
        let program = bench.path("program");
        let mut command = fixtures::cc();
        command.args(linker).arg("-B").arg(fixtures::lld_folder()).args([&main, &one, &two]).arg("-o").arg(&program);
        let output = command.output().expect("the compiler starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let status = Command::new(&program).status().expect("the program starts");
        assert_eq!(status.code(), Some(12), "{linker:?}");
    }
}
