//! Objects, libraries and archives, each made once.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result, ensure};
use fixtures::Arch;
use hosts::Request;
use object::{Object, ObjectSection};

use crate::case::Fake;

/// Takes blocks, and gives them back.
const PROGRAM: &str = "void *malloc(unsigned long); void *realloc(void *, unsigned long); void free(void *);\n\
    int puts(const char *);\nvoid *volatile block;\n\
    int main(void) { block = malloc(100); block = realloc(block, 200); free(block); return puts(\"done\") < 0; }\n";
const NEVER_FREES: &str = "void *malloc(unsigned long);\nvoid *volatile block;\n\
    int main(void) { block = malloc(100); return block == 0; }\n";
const NOTHING: &str = "int main(void) { return 0; }\n";
const WITH_MIMALLOC: &str = "void *malloc(unsigned long); void free(void *); void *mi_malloc(unsigned long); void mi_free(void *);\n\
    void *volatile block;\n\
    int main(void) { block = malloc(9); free(block); block = mi_malloc(9); mi_free(block); return 0; }\n";

/// A malloc of its own, with all of the family. `TAKE` is the function that it calls.
const OWN: &str = r#"
typedef unsigned long size;
static char arena[1 << 20];
static size used;
#ifdef TAKE
__attribute__((noinline)) void *TAKE(size n) { used = (used + n + 31) & -16; return arena + used - ((n + 15) & -16); }
#else
static __attribute__((noinline)) void *take(size n) { used = (used + n + 31) & -16; return arena + used - ((n + 15) & -16); }
#define TAKE take
#endif
LINK void *malloc(size n) { return TAKE(n); }
LINK void free(void *p) { (void)p; }
LINK void *calloc(size m, size n) { char *p = malloc(m * n); for (size i = 0; i < m * n; i++) p[i] = 0; return p; }
LINK void *realloc(void *p, size n) { char *q = malloc(n), *o = p; for (size i = 0; o && i < n; i++) q[i] = o[i]; return q; }
LINK void *memalign(size a, size n) { return (void *)(((size)malloc(n + a) + a - 1) & -a); }
LINK void *aligned_alloc(size a, size n) { return memalign(a, n); }
LINK int posix_memalign(void **p, size a, size n) { *p = memalign(a, n); return 0; }
LINK size malloc_usable_size(void *p) { return 0; }
#ifdef ALIAS
extern __attribute__((weak, alias("malloc"))) void *alias(size) __asm__(ALIAS);
#endif
"#;

/// A malloc that passes all on to mimalloc.
const AROUND: &str = "typedef unsigned long size;\n\
    void *mi_malloc(size); void mi_free(void *); void *mi_calloc(size, size); void *mi_realloc(void *, size);\n\
    void *mi_malloc_aligned(size, size);\nlong calls;\n\
    void *malloc(size n) { calls++; return mi_malloc(n); }\nvoid free(void *p) { mi_free(p); }\n\
    void *calloc(size m, size n) { return mi_calloc(m, n); }\nvoid *realloc(void *p, size n) { return mi_realloc(p, n); }\n\
    void *memalign(size a, size n) { return mi_malloc_aligned(n, a); }\n\
    void *aligned_alloc(size a, size n) { return mi_malloc_aligned(n, a); }\n\
    int posix_memalign(void **p, size a, size n) { *p = mi_malloc_aligned(n, a); return 0; }\n";

/// A part of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Part {
    Program,
    NeverFrees,
    Nothing,
    WithMimalloc,
    /// The program and its own malloc in one file.
    Inline,
    Own,
    OwnWeak,
    OwnNamed(&'static str),
    CallsNamesake,
    Around,
    Fake(Fake),
    /// mimalloc for musl or glibc; with or without the names of the malloc family.
    Mimalloc {
        musl: bool,
        family: bool,
    },
    Rpmalloc {
        musl: bool,
    },
    /// A library with a malloc of its own, or without one.
    Library(&'static str, bool),
    Archive(&'static str),
    Object(&'static str),
    DonorsLibrary(&'static str),
}

/// The file of a part once it is made, or that there is no such file.
type Made = Arc<Mutex<Option<Option<PathBuf>>>>;

/// The folder of the parts.
pub(crate) struct Workshop {
    folder: tempfile::TempDir,
    made: Mutex<HashMap<Part, (usize, Made)>>,
}

impl Workshop {
    pub(crate) fn new() -> Workshop {
        Workshop { folder: tempfile::tempdir().expect("a folder"), made: Mutex::default() }
    }

    /// Returns the file of a part; `None` for a donor that is not an object or a library.
    pub(crate) fn part(&self, part: Part) -> Result<Option<PathBuf>> {
        let (number, made) = {
            let mut made = self.made.lock().expect("no thread panicked with it");
            let number = made.len();
            let (number, made) = made.entry(part).or_insert_with(|| (number, Made::default()));
            (*number, Arc::clone(made))
        };
        // The others wait.
        let mut made = made.lock().expect("no thread panicked with it");
        if let Some(path) = &*made {
            return Ok(path.clone());
        }
        let folder = self.folder.path().join(number.to_string());
        fs::create_dir_all(&folder)?;
        let path = make(part, &folder).with_context(|| format!("{part:?}"))?;
        *made = Some(path.clone());
        Ok(path)
    }
}

fn make(part: Part, folder: &Path) -> Result<Option<PathBuf>> {
    let own = |flags: &[&str]| compile(folder, OWN, &[&["-DLINK="], flags].concat());
    Ok(Some(match part {
        Part::Program => compile(folder, PROGRAM, &[])?,
        Part::NeverFrees => compile(folder, NEVER_FREES, &[])?,
        Part::Nothing => compile(folder, NOTHING, &[])?,
        Part::WithMimalloc => compile(folder, WITH_MIMALLOC, &[])?,
        Part::Inline => compile(
            folder,
            &format!(
                "{OWN}\nint puts(const char *);\nvoid *volatile block;\n\
            int main(void) {{ block = malloc(100); block = realloc(block, 200); free(block); return puts(\"done\") < 0; }}\n"
            ),
            &["-DLINK=", "-O2"],
        )?,
        Part::Own => own(&[])?,
        Part::OwnWeak => compile(folder, OWN, &["-DLINK=__attribute__((weak))"])?,
        Part::OwnNamed(name) => own(&[&format!("-DALIAS=\"{}\"", alias_of(name))])?,
        Part::CallsNamesake => own(&["-DTAKE=mi_take_from_arena"])?,
        Part::Around => compile(folder, AROUND, &[])?,
        Part::Fake(fake) => compile(folder, &fake_source(fake, folder)?, &[])?,
        Part::Mimalloc { musl, family } => mimalloc(folder, musl, family)?,
        Part::Rpmalloc { musl } => rpmalloc(folder, musl)?,
        Part::Library(name, has_malloc) => {
            let source = if has_malloc { OWN } else { "int a_function_of_it(int n) { return n + 1; }\n" };
            let (object, out) = (compile(folder, source, &["-DLINK=", "-fPIC"])?, folder.join(name));
            let soname = format!("-Wl,-soname,{name}");
            succeed(fixtures::cc().args(["-shared", "-nostdlib", &soname, "-o"]).arg(&out).arg(object))?;
            out
        }
        Part::Archive(name) => {
            let (stock, out) = (fixtures::debian_musl(Arch::X86_64).libc, folder.join("libc.a"));
            fs::copy(stock, &out)?;
            hosts::graft(&out, &Request::new(donor(name)?))?;
            out
        }
        Part::Object(name) => {
            let Some(bytes) = donor(name)?.object(Arch::X86_64) else { return Ok(None) };
            let tuned = surgery::donor::DonorObject::parse(bytes)?.tuned(&[], hosts::VERSION)?;
            write(folder.join("donor.o"), tuned)?
        }
        Part::DonorsLibrary(name) => {
            let Some(bytes) = donor(name)?.library(Arch::X86_64) else { return Ok(None) };
            let tuned = surgery::donor::DonorObject::parse_library(bytes)?.tuned(&[], hosts::VERSION)?;
            write(folder.join("liballograft.so"), tuned)?
        }
    }))
}

pub(crate) fn donor(name: &str) -> Result<&'static donors::Donor> {
    donors::all().iter().find(|donor| donor.name == name).with_context(|| format!("no donor {name}"))
}

fn write(path: PathBuf, bytes: impl AsRef<[u8]>) -> Result<PathBuf> {
    fs::write(&path, bytes)?;
    Ok(path)
}

/// Compiles a source that includes nothing: the object fits either libc.
fn compile(folder: &Path, source: &str, flags: &[&str]) -> Result<PathBuf> {
    let (c, out) = (write(folder.join("part.c"), source)?, folder.join("part.o"));
    let mut compiler = fixtures::cc();
    compiler.args(["-O1", "-g0", "-w", "-fPIE", "-fno-builtin", "-fno-stack-protector", "-U_FORTIFY_SOURCE"]);
    succeed(compiler.args(flags).args(["-c", "-o"]).args([&out, &c]))?;
    Ok(out)
}

/// Runs a tool.
///
/// # Errors
/// It fails, with what it said.
pub(crate) fn succeed(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

fn row(name: &str) -> &'static known::Row {
    known::ROWS.iter().find(|row| row.id == name).expect("a row of that name")
}

/// The name that an allocator's `malloc` has beside that one.
fn alias_of(name: &str) -> String {
    match row(name).malloc.first() {
        Some(own) => (*own).to_owned(),
        None if name == "glibc" => "__libc_malloc".to_owned(),
        None => format!("{name}_malloc"),
    }
}

fn fake_source(fake: Fake, folder: &Path) -> Result<String> {
    let mut text = String::new();
    let mut function = |name: &str| {
        let number = text.len();
        let _ = writeln!(
            text,
            "__attribute__((weak, used, noinline)) long f{number}(long n) __asm__(\"{name}\");\nlong f{number}(long n) {{ return n * {number}; }}"
        );
    };
    match fake {
        Fake::Names(name) => {
            let row = row(name);
            let names: BTreeSet<&&str> = row.malloc.iter().chain(row.interface).chain(row.exports).collect();
            names.into_iter().for_each(|name| function(name));
            row.prefixes.iter().for_each(|prefix| function(&format!("{prefix}helper")));
            row.namespaces.iter().for_each(|space| function(&format!("_ZN{space}6helperEv")));
        }
        Fake::Insides(name) => {
            let names: &[&str] = match name {
                "glibc" => &["_int_malloc", "_int_free", "main_arena", "sysmalloc", "_IO_2_1_stdout_fake"],
                "mallocng" => &["__malloc_context", "__malloc_size_classes", "__malloc_alloc_meta"],
                "oldmalloc" => &["mal", "__bin_chunk", "__expand_heap"],
                "zig" => &["heap.SmpAllocator.alloc", "heap.PageAllocator.alloc"],
                _ => &["runtime.mallocgc", "runtime.newobject"],
            };
            names.iter().for_each(|name| function(name));
        }
        Fake::Texts(name) | Fake::Tables(name) => {
            let is_table = |bytes: &[u8]| !bytes.iter().all(|byte| byte.is_ascii_graphic() || b" \0\n".contains(byte));
            for (number, mark) in row(name).marks.iter().enumerate() {
                let bytes = mark.bytes();
                if is_table(&bytes) == matches!(fake, Fake::Tables(_)) {
                    let list: Vec<String> = bytes.iter().map(u8::to_string).collect();
                    let _ = writeln!(
                        text,
                        "__attribute__((used)) static const unsigned char mark{number}[] = {{ {} }};",
                        list.join(",")
                    );
                }
            }
        }
        Fake::Sections(name) => {
            for (flags, section) in
                [("aw", format!("{name}_heap")), ("ax", format!(".text_{name}_malloc")), ("a", format!(".note.{name}"))]
            {
                let _ = writeln!(
                    text,
                    "__asm__(\".pushsection {section},\\\"{flags}\\\"; .string \\\"{name}\\\"; .popsection\");"
                );
            }
        }
        Fake::Notes => {
            let graft = folder.join("libc.a");
            fs::copy(fixtures::debian_musl(Arch::X86_64).libc, &graft)?;
            hosts::graft(&graft, &Request::new(donors::default_for(format::Arch::X86_64)))?;
            let (main, out) = (compile(folder, PROGRAM, &[])?, folder.join("grafted"));
            let musl = fixtures::debian_musl(Arch::X86_64);
            let link = fixtures::link::Static { libc: &graft, ..musl.link(false) };
            succeed(&mut link.line(fixtures::link::gnu(), [main], std::iter::empty::<PathBuf>(), &out))?;
            let bytes = fs::read(out)?;
            let file = object::File::parse(bytes.as_slice())?;
            for (number, section) in file.sections().enumerate() {
                let name = section.name()?.to_owned();
                if name.starts_with(".note.allograft") {
                    let copy = write(folder.join(format!("note{number}")), section.data()?)?;
                    let _ = writeln!(
                        text,
                        "__asm__(\".pushsection {name},\\\"a\\\",@note; .balign 4; .incbin \\\"{}\\\"; .popsection\");",
                        copy.display()
                    );
                }
            }
            ensure!(!text.is_empty(), "the graft has no note");
        }
        // The own malloc's object has it.
        Fake::Alias(_) => {}
    }
    Ok(text)
}

/// Returns the compiler for sources that include headers. zig has those of musl and of Linux.
fn compiler(musl: bool) -> Command {
    let mut command = if musl { fixtures::zig().command() } else { fixtures::cc() };
    if musl {
        command.args(["cc", "-target", "x86_64-linux-musl", "-fno-sanitize=all"]);
    }
    command.args([
        "-O1",
        "-g0",
        "-w",
        "-fPIE",
        "-fno-stack-protector",
        "-U_FORTIFY_SOURCE",
        "-ftls-model=initial-exec",
    ]);
    command
}

fn mimalloc(folder: &Path, musl: bool, family: bool) -> Result<PathBuf> {
    let (source, out) =
        (casebook::bench::package("libmimalloc-sys2").join("c_src/mimalloc"), folder.join("mimalloc.o"));
    let mut command = compiler(musl);
    command.args(musl.then_some("-DMI_LIBC_MUSL=1")).args(family.then_some("-DMI_MALLOC_OVERRIDE=1"));
    command.arg("-I").arg(source.join("include")).arg("-DNDEBUG").args(["-c", "-o"]).arg(&out);
    succeed(command.arg(source.join("src/static.c")))?;
    Ok(out)
}

fn rpmalloc(folder: &Path, musl: bool) -> Result<PathBuf> {
    let (source, out) = (casebook::bench::package("rpmalloc-sys"), folder.join("rpmalloc.o"));
    let file = ["rpmalloc/rpmalloc/rpmalloc.c", "rpmalloc/rpmalloc.c", "src/rpmalloc.c"]
        .map(|name| source.join(name))
        .into_iter()
        .find(|file| file.is_file())
        .context("the package has no rpmalloc.c")?;
    let mut command = compiler(musl);
    command.args(["-DENABLE_OVERRIDE=1", "-DENABLE_PRELOAD=0", "-DNDEBUG", "-c", "-o"]).arg(&out).arg(file);
    succeed(&mut command)?;
    Ok(out)
}
