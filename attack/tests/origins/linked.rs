//! The file of a case, and the answer of `inspect`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use fixtures::{Arch, link};
use hosts::Request;
use inspector::{Loader, ProgramFile, Tree};

use crate::case::{Case, Fake, Files, Libc, Provider, Strip};
use crate::disk::Disk;
use crate::workshop::{Part, Workshop, donor, succeed};

/// The answer of `inspect`.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) malloc: String,
    pub(crate) libc: Option<String>,
    pub(crate) language: Option<String>,
}

/// A program in a folder of its own, which may be that of its libraries too.
#[derive(Debug)]
pub(crate) struct Program {
    folder: tempfile::TempDir,
    library: Option<PathBuf>,
}

impl Program {
    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("program")
    }
}

/// Makes the program of a case. An error that says `impossible` is not one: there is no such program.
pub(crate) fn program(workshop: &Workshop, case: &Case) -> Result<Program> {
    let part = |part| workshop.part(part)?.with_context(|| format!("impossible: {part:?}"));
    let musl = case.libc.is_musl();
    let main = part(match case.provider {
        Provider::NeverFrees => Part::NeverFrees,
        Provider::Nothing => Part::Nothing,
        Provider::BesideMimalloc | Provider::AroundMimalloc => Part::WithMimalloc,
        Provider::Inline => Part::Inline,
        _ => Part::Program,
    })?;
    let alias = case.fakes.iter().find_map(|fake| match fake {
        Fake::Alias(name) => Some(*name),
        _ => None,
    });
    let own = match alias {
        Some(name) => Part::OwnNamed(name),
        None => Part::Own,
    };
    let mut provider = match case.provider {
        Provider::Own | Provider::OwnBesideArchive(_) => vec![part(own)?],
        Provider::OwnWeak => vec![part(alias.map_or(Part::OwnWeak, Part::OwnNamed))?],
        Provider::CallsNamesake => vec![part(Part::CallsNamesake)?],
        Provider::BesideMimalloc => vec![part(Part::Mimalloc { musl, family: false })?],
        Provider::AroundMimalloc => vec![part(Part::Around)?, part(Part::Mimalloc { musl, family: false })?],
        Provider::Mimalloc => vec![part(Part::Mimalloc { musl, family: true })?],
        Provider::Rpmalloc => vec![part(Part::Rpmalloc { musl })?],
        Provider::Object(name) => vec![part(Part::Object(name))?],
        _ => Vec::new(),
    };
    for fake in &case.fakes {
        if !matches!(fake, Fake::Alias(_)) {
            provider.push(part(Part::Fake(*fake))?);
        }
    }
    let folder = tempfile::tempdir()?;
    let library = match case.provider {
        Provider::Library(name) => Some(part(Part::Library(name, true))?),
        Provider::Namesake(name) => Some(part(Part::Library(name, false))?),
        Provider::DonorsLibrary(name) => Some(part(Part::DonorsLibrary(name))?),
        _ => None,
    };
    let library = match library {
        Some(made) => {
            let path = folder.path().join(made.file_name().context("a name")?);
            fs::copy(made, &path)?;
            Some(path)
        }
        None => None,
    };
    let archive = match case.provider {
        Provider::Archive(name) | Provider::OwnBesideArchive(name) => Some(part(Part::Archive(name))?),
        _ => None,
    };
    let objects = if case.first { [provider, vec![main]].concat() } else { [vec![main], provider].concat() };
    let out = folder.path().join("program");
    link(case, objects, library.as_deref(), archive.as_deref(), &out)?;
    if let Provider::Program(name) = case.provider {
        graft(&out, name)?;
    }
    if case.strip == Strip::Sections {
        cut_section_headers(&out)?;
    }
    Ok(Program { folder, library })
}

/// Does what `strip --strip-section-headers` does: e_shoff, e_shnum and e_shstrndx become zero.
pub(crate) fn cut_section_headers(path: &Path) -> Result<()> {
    let mut bytes = fs::read(path)?;
    bytes[40..48].fill(0);
    bytes[60..64].fill(0);
    fs::write(path, bytes)?;
    Ok(())
}

fn link(case: &Case, objects: Vec<PathBuf>, library: Option<&Path>, archive: Option<&Path>, out: &Path) -> Result<()> {
    let strip = match case.strip {
        Strip::Nothing => None,
        Strip::Locals => Some("-x"),
        Strip::Symbols | Strip::Sections => Some("-s"),
    };
    let library: Vec<PathBuf> = library.map(Path::to_owned).into_iter().collect();
    match case.libc {
        Libc::MuslStatic | Libc::MuslStaticPie => {
            let musl = fixtures::debian_musl(Arch::X86_64);
            let mut linker = link::gnu();
            linker.args(strip);
            let parts = musl.link(case.libc == Libc::MuslStaticPie);
            let parts = link::Static { libc: archive.unwrap_or(parts.libc), ..parts };
            succeed(&mut parts.line(linker, objects, std::iter::empty::<PathBuf>(), out))
        }
        Libc::Musl => {
            let loader = fixtures::musl_loader(Arch::X86_64);
            let folder = loader.with_file_name("");
            let dynamic =
                link::Dynamic { arch: Arch::X86_64, library: &folder, loader: &loader, position_independent: true };
            let (before, behind) = if case.first { (library, Vec::new()) } else { (Vec::new(), library) };
            let mut linker = dynamic.line(&[objects, before].concat(), &behind, out);
            succeed(linker.args(strip).args(["-rpath", "$ORIGIN"]))
        }
        Libc::GlibcStatic | Libc::Glibc => {
            let mut compiler = fixtures::cc();
            compiler.args(if case.libc.is_static() { &["-static"][..] } else { &["-pie"] });
            compiler.args(strip.map(|flag| format!("-Wl,{flag}"))).args(["-Wl,--no-as-needed", "-Wl,-rpath,$ORIGIN"]);
            compiler.arg("-o").arg(out).args(objects);
            if case.first {
                compiler.args(library);
            } else {
                compiler.arg("-lc").args(library);
            }
            succeed(compiler.arg("-pthread"))
        }
    }
}

fn graft(path: &Path, name: &str) -> Result<()> {
    match hosts::graft(path, &Request { untested: true, ..Request::new(donor(name)?) }) {
        Ok(_) => Ok(()),
        // Not every donor goes into every program.
        Err(error) => bail!("impossible: {error}"),
    }
}

/// Makes the program, and inspects it. `None` if there is no such program.
pub(crate) fn answer(workshop: &Workshop, case: &Case) -> Result<Option<Answer>> {
    let program = match program(workshop, case) {
        Err(error) if format!("{error:#}").contains("impossible: ") => return Ok(None),
        Err(error) if has_second_malloc(&error) => return Ok(None),
        program => program.with_context(|| format!("{case:?}"))?,
    };
    let real = |path: &Path| fs::canonicalize(path);
    let library = program.library.as_deref().map(real).transpose()?;
    let (missing, unreadable) = match case.files {
        Files::Whole => (None, None),
        Files::Missing => (library, None),
        Files::Unreadable => (None, library),
        Files::NoLoader => (Some(real(&loader(case.libc))?), None),
    };
    inspected(&program.path(), Some(case.libc), &Disk { missing, unreadable }).map(Some)
}

/// Whether a linker, GNU's or lld, refused a program because glibc's own malloc is linked as well: it comes with other
/// functions that the program needs.
pub(crate) fn has_second_malloc(error: &anyhow::Error) -> bool {
    let message = format!("{error:#}");
    ["multiple definition of", "duplicate symbol: malloc"].iter().any(|part| message.contains(part))
}

fn loader(libc: Libc) -> PathBuf {
    match libc {
        Libc::Musl => fixtures::musl_loader(Arch::X86_64),
        _ => PathBuf::from("/lib64/ld-linux-x86-64.so.2"),
    }
}

/// Inspects a program. `libc`: `None` without one.
pub(crate) fn inspected(path: &Path, libc: Option<Libc>, disk: &Disk) -> Result<Answer> {
    let bytes = fs::read(path)?;
    let report = if libc.is_none_or(Libc::is_static) {
        inspector::inspect(&bytes)?
    } else {
        let path = fs::canonicalize(path)?;
        let file = disk.find(path.as_os_str().as_encoded_bytes()).ok().flatten().context("the program is there")?;
        Loader::new(disk).inspect(&bytes, &ProgramFile { file, privileged: false })?
    };
    Ok(Answer {
        malloc: report.malloc.name.to_string(),
        libc: report.libc_allocator.map(|allocator| allocator.name.to_string()),
        language: report.language_allocator.map(|allocator| allocator.name.to_string()),
    })
}
