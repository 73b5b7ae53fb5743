//! Compiles the programs, the start object and the runtime library with zig, for the architectures that this build is
//! to have.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Mutex;
use std::{env, fs, io, thread};

use format::Compressed;
use zigcc::store::{Key, Store};
use zigcc::{Arch, Zig, ZigTarget, arches};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The number of compilations that run side by side.
const WORKERS: usize = 2;

/// Every object is position-independent, since hosts link with -static and with -static-pie. It has no calls that only
/// zig's own runtime can resolve, and every call of the malloc family stays a call.
const C_FLAGS: [&str; 14] = [
    "-std=c11",
    "-O2",
    "-g0",
    "-fPIE",
    "-pthread",
    "-fno-builtin",
    "-fno-stack-protector",
    "-fno-sanitize=all",
    "-fno-asynchronous-unwind-tables",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-fno-ident",
    "-c",
];

/// The parts of the runtime library. Each one is a member, so that a link takes only those that its libc lacks.
const RUNTIME: [&str; 6] =
    ["complex.zig", "division.zig", "long_double.zig", "memory.zig", "strings.c", "trigonometry.zig"];

/// One run of zig; `in_folder` keeps machine paths out of `__FILE__`.
struct Job {
    in_folder: PathBuf,
    arguments: Vec<String>,
}

/// A program, described by the first lines of its source.
struct Program {
    name: String,
    about: String,
    seconds: u32,
}

fn main() -> ExitCode {
    match build() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}

fn build() -> Result<(), Failure> {
    let here = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let out = PathBuf::from(env::var("OUT_DIR")?);
    for watched in ["build.rs", "programs", "runtime"] {
        println!("cargo::rerun-if-changed={watched}");
    }
    println!("cargo::rerun-if-env-changed=ALLOGRAFT_ZIG");
    let embedded = out.join("embedded");
    if zigcc::embedded(&here, &embedded)? {
        return Ok(());
    }

    let cache = zigcc::build_folder(&here).join("zig-cache");
    let zig = Zig::find(&zigcc::tools_folder(&here), &cache)?;
    let programs = read_programs(&here.join("programs"))?;
    let sources = ["build.rs", "programs", "runtime", "../crates/format/src"].map(|source| here.join(source));
    let (store, key) = (Store::open(), Key::new(&sources)?);
    let arches = arches::chosen()?;
    let mut due = Vec::new();
    for arch in &arches {
        let mut key = key.clone();
        key.text(arch.name());
        let names = embedded_files(&programs, *arch);
        if !store.fetch(&key, &names, &embedded)? {
            due.push((*arch, key, names));
        }
    }
    if !due.is_empty() {
        let runtime = lay_out_runtime(&zig, &here.join("runtime"), &out)?;
        let mut jobs = Vec::new();
        for (arch, ..) in &due {
            jobs.extend(compilations(*arch, &programs, &here, &runtime, &out)?);
        }
        run_all(&zig, jobs)?;
    }
    for (arch, key, names) in due {
        pack(&zig, arch, &programs, &out, &embedded)?;
        store.keep(&key, &names, &embedded);
    }
    fs::write(embedded.join("programs.rs"), table(&programs, &arches)?)?;
    Ok(())
}

/// Returns the names of the files that are embedded for an architecture.
fn embedded_files(programs: &[Program], arch: Arch) -> Vec<String> {
    let mut names: Vec<String> = programs.iter().map(|program| object_name(program, arch)).collect();
    names.extend([format!("runtime-{arch}.a"), format!("start-{arch}.o")]);
    names
}

fn object_name(program: &Program, arch: Arch) -> String {
    format!("{}-{arch}.o.lzma", program.name)
}

/// Returns the compilations for an architecture, whose results go to a folder of its name in `out`.
fn compilations(
    arch: Arch,
    programs: &[Program],
    here: &Path,
    runtime: &Path,
    out: &Path,
) -> Result<Vec<Job>, Failure> {
    let folder = out.join(arch.name());
    fs::create_dir_all(&folder)?;
    let mut jobs = Vec::new();
    for program in programs {
        let mut arguments = compile(arch, &format!("{}.c", program.name), &folder.join(format!("{}.o", program.name)))?;
        arguments.push(format!("-DPROGRAM_NAME=\"{}\"", program.name));
        // The watchdog ends the program before the time limit of the test that runs it.
        arguments.push(format!("-DPROGRAM_SECONDS={}", program.seconds - program.seconds / 10));
        jobs.push(Job { in_folder: here.join("programs"), arguments });
    }
    let start = compile(arch, "start.c", &folder.join("start.o"))?;
    jobs.push(Job { in_folder: here.join("runtime"), arguments: start });
    for part in RUNTIME {
        let object = folder.join(part).with_extension("o");
        let arguments = match part.ends_with(".c") {
            true => compile(arch, part, &object)?,
            false => compile_zig(arch, part, &object)?,
        };
        jobs.push(Job { in_folder: runtime.to_owned(), arguments });
    }
    Ok(jobs)
}

/// Puts an architecture's compiled files into the folder of embedded files.
fn pack(zig: &Zig, arch: Arch, programs: &[Program], out: &Path, embedded: &Path) -> Result<(), Failure> {
    let folder = out.join(arch.name());
    for program in programs {
        let object = fs::read(folder.join(format!("{}.o", program.name)))?;
        fs::write(embedded.join(object_name(program, arch)), Compressed::compress(&object, None)?)?;
    }
    let library = folder.join("runtime.a");
    if library.exists() {
        fs::remove_file(&library)?;
    }
    // Run inside the folder, so that members' names have no path.
    let mut arguments = vec!["ar".to_owned(), "rcsD".to_owned(), "runtime.a".to_owned()];
    arguments.extend(RUNTIME.iter().filter_map(|part| Some(part.rsplit_once('.')?.0)).map(|stem| format!("{stem}.o")));
    run(zig, &Job { in_folder: folder.clone(), arguments })?;
    fs::copy(library, embedded.join(format!("runtime-{arch}.a")))?;
    fs::copy(folder.join("start.o"), embedded.join(format!("start-{arch}.o")))?;
    Ok(())
}

fn compile(arch: Arch, source: &str, object: &Path) -> Result<Vec<String>, Failure> {
    let mut arguments: Vec<String> = ["cc", "-target", arch.triple()].map(str::to_owned).to_vec();
    arguments.extend(C_FLAGS.map(str::to_owned));
    arguments.extend(arch.flags().map(str::to_owned));
    if arch == Arch::Aarch64 {
        // Atomic operations are instructions, since a host's runtime may lack the __aarch64_* functions.
        arguments.push("-mno-outline-atomics".to_owned());
    }
    arguments.extend([source.to_owned(), "-o".to_owned(), text(object)?]);
    Ok(arguments)
}

fn compile_zig(arch: Arch, source: &str, object: &Path) -> Result<Vec<String>, Failure> {
    let mut arguments: Vec<String> = ["build-obj", "-target", arch.triple()].map(str::to_owned).to_vec();
    arguments.extend(arch.processor().map(str::to_owned));
    arguments.extend(
        ["-OReleaseSmall", "-fstrip", "-fPIE", "-fno-stack-check", "-fno-stack-protector", "-fno-unwind-tables"]
            .map(str::to_owned),
    );
    arguments.extend([format!("-femit-bin={}", text(object)?), source.to_owned()]);
    Ok(arguments)
}

fn text(path: &Path) -> Result<String, Failure> {
    path.to_str().map(str::to_owned).ok_or_else(|| format!("`{}` is not UTF-8", path.display()).into())
}

/// Runs the jobs on [`WORKERS`] threads. Returns the first failure.
fn run_all(zig: &Zig, jobs: Vec<Job>) -> Result<(), Failure> {
    let queue = Mutex::new(jobs.into_iter());
    let work = || -> Result<(), Failure> {
        loop {
            let next = queue.lock().map_err(|_| "another compilation failed")?.next();
            match next {
                Some(job) => run(zig, &job)?,
                None => return Ok(()),
            }
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(work)).collect();
        let mut outcome = Ok(());
        for worker in workers {
            let result = worker.join().unwrap_or_else(|_| Err("a compilation panicked".into()));
            outcome = outcome.and(result);
        }
        outcome
    })
}

fn run(zig: &Zig, job: &Job) -> Result<(), Failure> {
    let mut command: Command = zig.command();
    command.current_dir(&job.in_folder).args(&job.arguments);
    let output = command.output()?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("`{command:?}` failed:\n{}", String::from_utf8_lossy(&output.stderr)).into()),
    }
}

/// Returns every `.c` file. Its first line is the subject, and a line `// At most N s ...` is the time limit.
fn read_programs(folder: &Path) -> Result<Vec<Program>, Failure> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder)?.map(|entry| entry.map(|e| e.path())).collect::<Result<_, _>>()?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "c"));
    paths.sort();
    paths.iter().map(|path| read_program(path)).collect()
}

fn read_program(path: &Path) -> Result<Program, Failure> {
    let source = fs::read_to_string(path)?;
    let name = path.file_stem().and_then(|stem| stem.to_str()).ok_or("a program without a name")?.to_owned();
    let about = source.lines().next().and_then(|line| line.strip_prefix("// "));
    let about = about.ok_or_else(|| format!("`{name}.c` does not begin with a comment that says what it is about"))?;
    let limit =
        source.lines().find_map(|line| line.strip_prefix("// At most ")).and_then(|rest| rest.split(' ').next());
    let limit = limit.ok_or_else(|| format!("`{name}.c` has no line `// At most N s on a slow machine.`"))?;
    Ok(Program { name, about: about.trim_end_matches('.').to_owned(), seconds: limit.parse()? })
}

/// Makes a folder in which the runtime's sources find zig's: imports must stay inside the folder of the root file.
fn lay_out_runtime(zig: &Zig, sources: &Path, out: &Path) -> Result<PathBuf, Failure> {
    let folder = out.join("runtime");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    for part in RUNTIME {
        fs::copy(sources.join(part), folder.join(part))?;
    }
    let environment = String::from_utf8(zig.run(["env"])?)?;
    let library = environment.lines().find_map(|line| line.trim().strip_prefix(".lib_dir = \"")?.strip_suffix("\","));
    let library = library.ok_or("`zig env` names no .lib_dir")?;
    link_folder(&Path::new(library).join("compiler_rt"), &folder.join("compiler_rt"))?;
    Ok(folder)
}

#[cfg(unix)]
fn link_folder(original: &Path, link: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(original, link)
}

#[cfg(not(unix))]
fn link_folder(original: &Path, _link: &Path) -> io::Result<()> {
    Err(io::Error::other(format!("cannot link to `{}` on this system", original.display())))
}

/// Returns the Rust source of the tables that the crate includes. The objects of architectures that this build leaves
/// out are empty.
fn table(programs: &[Program], arches: &[Arch]) -> Result<String, std::fmt::Error> {
    let include = |file: &str| format!("include_bytes!(concat!(env!(\"OUT_DIR\"), \"/embedded/{file}\"))");
    let mut code = format!("static PROGRAMS: [Program; {}] = [\n", programs.len());
    for program in programs {
        let Program { name, about, seconds } = program;
        writeln!(code, "    Program {{ name: {name:?}, about: {about:?}, seconds: {seconds},")?;
        writeln!(code, "        source: include_str!(concat!(env!(\"CARGO_MANIFEST_DIR\"), \"/programs/{name}.c\")),")?;
        let objects = Arch::ALL.map(|arch| match arches.contains(&arch) {
            true => format!("Compressed::new({})", include(&object_name(program, arch))),
            false => "Compressed::new(&[])".to_owned(),
        });
        writeln!(code, "        objects: [{}] }},", objects.join(", "))?;
    }
    code.push_str("];\n\nstatic TOOLCHAINS: &[Toolchain] = &[\n");
    for arch in arches {
        let (start, runtime) = (include(&format!("start-{arch}.o")), include(&format!("runtime-{arch}.a")));
        writeln!(code, "    Toolchain {{ arch: Arch::{arch:?}, start: {start}, runtime: {runtime} }},")?;
    }
    code.push_str("];\n");
    Ok(code)
}
