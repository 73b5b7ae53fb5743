//! `allograft inspect`: tells which allocator is in a file.

mod images;
pub(super) mod overview;
mod processes;
mod reader;

use std::fmt::Display;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use hosts::System;
use inspector::{GraftMethod, Libc, Link, Report};
use reader::Reader;

use crate::command::verdict;
use crate::failure::{Failure, REPORT, mend};
use crate::json::{self, LeftOut};
use crate::number::whole;
use crate::output::Output;
use crate::sbom;
use crate::shell::shell_quoted;
use crate::similar::similar;
use crate::target::located;

/// Say which allocator files or processes have
///
/// Takes any ELF file or static archive, stripped or not, whether or not allograft made it. In a folder, a container
/// image or a package, it inspects every ELF file and archive, and follows no symbolic links. A dynamic program's
/// libraries are found as its loader finds them, in this system, in the one that --root names, or in the image; nothing
/// is run. If the files do not show the allocator, the answer is `unknown`; it never guesses.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  allograft inspect ./server                     # -v lists the evidence
  allograft inspect ./server --expect snmalloc   # exit code 1 if it is not
  allograft inspect build/bin                    # a table of what is in there
  allograft inspect --root image /usr/bin        # with the image's libraries
  allograft inspect app.tar                      # a container image's programs
  allograft inspect --pid 1234                   # did LD_PRELOAD take effect?
  allograft inspect --all                        # all processes, as a table
  allograft inspect --sbom cyclonedx build/bin
  allograft inspect --json /usr/lib/x86_64-linux-musl/libc.a")]
pub(crate) struct Inspect {
    /// Files, folders, images, packages, or swift:ID
    ///
    /// Executables, libraries, objects, archives, folders with these; container images (OCI layout, `docker save`),
    /// root file systems as tars, packages (.deb, .apk, .whl); packed Swift SDK bundles, or swift:ID
    #[arg(required_unless_present_any = ["pid", "all", "root"])]
    files: Vec<PathBuf>,
    /// Exit with 1 unless malloc is this one
    ///
    /// Exit with 1 unless every file's malloc is this one, and with 2 if a file cannot be read. In folders, programs
    /// and what has a malloc count, without allograft's backups; in images, executables with a malloc. The name is a
    /// donor's, mallocng, oldmalloc, glibc, go, zig, another allocator's, none, or unknown
    #[arg(long, value_name = "NAME")]
    expect: Option<String>,
    /// Root folder of an image with the files
    ///
    /// The root folder of an image that holds the files and their libraries. Their paths start there, and symbolic
    /// links are read as in the image. Without a path, all of it is inspected
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Inspect this running process; repeatable
    ///
    /// Inspect the running process with this number; can be given several times
    #[arg(long, value_name = "N", value_parser = whole(1..=u32::MAX), conflicts_with_all = ["files", "root"])]
    pid: Vec<u32>,
    /// Inspect all processes that may be read
    ///
    /// Inspect all running processes that may be looked at
    #[arg(long, conflicts_with_all = ["files", "root", "pid"])]
    all: bool,
    /// Print a bill of materials: cyclonedx
    ///
    /// Print a software bill of materials instead: the files, and the allocators that they carry
    #[arg(long, value_name = "FORMAT", conflicts_with_all = ["pid", "all"])]
    sbom: Option<sbom::Format>,
}

/// The names of donors, and of the mallocs of libcs.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    donors::all().iter().map(|donor| donor.name).chain(["mallocng", "oldmalloc", "glibc", "none", "unknown"])
}

/// Whether `--expect` takes that name. Another build of allograft may have more donors.
fn is_known(name: &str) -> bool {
    donors::find(name).is_some() || inspector::name::is_reported(name)
}

/// A file with its report, or with the reason why it has none.
struct Inspected {
    path: PathBuf,
    /// SHA-256 of its bytes, where a bill of materials is wanted.
    sha256: Option<String>,
    result: Result<Report, Failure>,
    /// The image that it is in, by its place among those that were seen.
    image: Option<usize>,
    /// Whether it was found in a folder that the user named.
    in_folder: bool,
    /// The host whose backup it is: the file that `allograft undo` restores.
    backup_of: Option<PathBuf>,
}

impl Inspected {
    /// A file of which nothing could be read.
    fn unread(path: PathBuf, failure: Failure) -> Inspected {
        Inspected { path, sha256: None, result: Err(failure), image: None, in_folder: false, backup_of: None }
    }

    /// Whether `--expect` is about it. In a folder it is not about start files and libraries without a malloc, nor
    /// about allograft's own backups.
    fn counts(&self, report: &Report) -> bool {
        let has_none = report.kind != inspector::Kind::Executable && report.malloc.name == inspector::name::NONE;
        !self.in_folder || !(self.backup_of.is_some() || has_none)
    }
}

impl Inspect {
    pub(crate) fn run(mut self, output: &Output) -> Result<ExitCode, Failure> {
        // Names are taken in any case.
        if let Some(name) = self.expect.as_deref().and_then(|typed| names().find(|it| it.eq_ignore_ascii_case(typed))) {
            self.expect = Some(name.to_owned());
        }
        if let Some(name) = self.expect.as_deref().filter(|name| !is_known(name)) {
            output.warn(format_args!("no donor of this build, and no other allocator, is called `{name}`"));
        }
        if self.all || !self.pid.is_empty() {
            return self.processes(output);
        }
        if self.sbom.is_some() && output.json {
            return Err(Failure::usage("`--sbom` and `--json` are two documents, and standard output takes one")
                .with_help("leave one of them out: a bill of materials in CycloneDX's format is JSON, too"));
        }
        // Without a path, the whole root folder.
        if self.files.is_empty() && self.root.is_some() {
            self.files.push("/".into());
        }
        let hashed = self.sbom.is_some();
        let root = self.root.as_deref();
        let system = System::new(root).map_err(|error| unreadable(root.unwrap_or(Path::new("/")), error))?;
        let mut reader = Reader::new(&system, hashed);
        let progress = output.progress();
        let (mut inspected, mut seen, mut left_out) = (Vec::new(), Vec::new(), None);
        for path in &self.files {
            let path = &located(path, root)?;
            let step = |what: &str| progress.step(what);
            if images::look(path, hashed, &mut seen, &mut inspected, output, &step) {
                continue;
            }
            if path.is_dir() {
                let (mut files, others) = reader.folder(path, &|path| progress.step(&path.display().to_string()));
                left_out = Some(others.with(&left_out.unwrap_or_default()));
                if files.is_empty() {
                    let mut problem = "it holds no ELF file and no static archive".to_owned();
                    if others != LeftOut::default() {
                        problem += &format!(", only {}", others.words());
                    }
                    let failure = cannot(path, problem);
                    files.push(Inspected::unread(path.clone(), failure));
                }
                inspected.extend(files.into_iter().map(|file| Inspected { in_folder: true, ..file }));
            } else if is_packed(path) {
                progress.step(&path.display().to_string());
                inspect_packed(path, hashed, &mut inspected);
            } else {
                inspected.push(reader.file(path.clone()));
            }
        }
        progress.finish();
        let mut all_read = true;
        for failure in inspected.iter().filter_map(|file| file.result.as_ref().err()) {
            output.error(failure);
            all_read = false;
        }
        let expected = self.expect.as_deref();
        let (fits, as_expected) = compare(&inspected, &mut seen, expected, output);
        if let Some(sbom::Format::Cyclonedx) = self.sbom {
            output.json(&bill_of_materials(&inspected, &seen, root)?)?;
        } else if output.json {
            let files = inspected.iter().zip(&fits).map(|(file, fits)| described(file, *fits, &seen)).collect();
            let images = (!seen.is_empty()).then(|| seen.iter().map(|seen| &seen.image).collect());
            output.document(json::Inspected { files, left_out, images, processes: None, closed_processes: None })?;
        } else {
            let mut text = overview::text(&inspected, &seen, output);
            overview::totals(&mut text, &inspected, expected.map(|_| &*fits), left_out.as_ref());
            output.text(&text)?;
        }
        Ok(if all_read { verdict(as_expected) } else { ExitCode::from(2) })
    }

    fn processes(&self, output: &Output) -> Result<ExitCode, Failure> {
        let mut processes = processes::look(&self.pid, self.all)?;
        let mut as_expected = true;
        for process in &mut processes.seen {
            let name = &process.report.malloc.name;
            let Some(expected) = &self.expect else { continue };
            process.as_expected = Some(expected == name);
            if expected != name {
                as_expected = false;
                output.error(
                    &Failure::usage(format!(
                        "process {} (`{}`) has the malloc `{name}`, expected `{expected}`",
                        process.pid, process.path
                    ))
                    .with_help(format!(
                        "`allograft inspect -v --pid {}` says where it is from; start it again with the other",
                        process.pid
                    )),
                );
            }
        }
        let closed = processes.closed;
        if output.json {
            output.document(json::Inspected {
                files: Vec::new(),
                left_out: None,
                images: None,
                processes: Some(processes.seen),
                closed_processes: self.all.then_some(closed),
            })?;
        } else {
            output.text(&processes::text(&processes, output))?;
            if closed > 0 {
                output.note(format_args!("left out as they cannot be read: {closed} of the processes"));
            }
        }
        Ok(verdict(as_expected))
    }
}

/// A file in the document.
fn described<'i>(file: &'i Inspected, as_expected: Option<bool>, seen: &'i [images::InspectedImage]) -> json::File<'i> {
    let described = json::File::new(&file.path, &file.result, as_expected).backup_of(file.backup_of.as_deref());
    match file.image {
        Some(number) => described.in_image(number, &seen[number].image),
        None => described,
    }
}

/// Compares every file with the malloc that is expected. Returns whether each one has it, if it counts, and whether all
/// that count and could be read have it.
fn compare(
    inspected: &[Inspected],
    seen: &mut [images::InspectedImage],
    expected: Option<&str>,
    output: &Output,
) -> (Vec<Option<bool>>, bool) {
    let mut as_expected = true;
    let mut fits = Vec::with_capacity(inspected.len());
    for file in inspected {
        let (Some(expected), Ok(report)) = (expected, &file.result) else {
            // A file that cannot be read is not known to have it.
            fits.push(expected.map(|_| false));
            continue;
        };
        if let Some(number) = file.image {
            fits.push(seen[number].expects(file, expected));
            continue;
        }
        if !file.counts(report) {
            fits.push(None);
            continue;
        }
        let name = &report.malloc.name;
        fits.push(Some(name == expected));
        if name != expected {
            as_expected = false;
            output.error(
                &Failure::usage(format!(
                    "`{}` carries the malloc `{name}`, expected `{expected}`",
                    file.path.display()
                ))
                .with_help(to_have(expected, &file.path, report)),
            );
        }
    }
    let is_looked_at = inspected.iter().any(|file| file.in_folder && file.result.is_ok());
    if let (Some(expected), true) = (expected, is_looked_at && seen.is_empty() && fits.iter().all(Option::is_none)) {
        as_expected = false;
        output.error(
            &Failure::unexpected(format!("no program and no archive with a malloc is there to carry `{expected}`"))
                .with_help("name a folder with programs, or with a `libc.a`"),
        );
    }
    for seen in seen {
        as_expected &= seen.tell(expected, output) != Some(false);
    }
    (fits, as_expected)
}

/// Returns what to do to have the file at `path` carry the malloc that is expected.
fn to_have(expected: &str, path: &Path, report: &Report) -> String {
    let found = &report.malloc.name;
    let file = shell_quoted(&path.to_string_lossy());
    let is_donor = donors::find(expected).is_some();
    let is_stock = matches!(expected, "mallocng" | "oldmalloc" | "glibc");
    match () {
        () if is_donor
            && report.kind == inspector::Kind::Executable
            && report.libc == Libc::Glibc
            && report.link != Some(Link::Dynamic)
            && !found.contains("unknown") =>
        {
            "static programs of glibc take no donor: link it with musl, or dynamically".to_owned()
        }
        () if is_donor && !goes_in(expected, report) => format!(
            "`{expected}` does not go into linked programs: link it with a graft, as `cargo allograft build --donor \
             {expected}` and `allograft cc --donor {expected}` do"
        ),
        () if is_donor && donors::find(found).is_some() && report.kind == inspector::Kind::Executable => format!(
            "`allograft graft {file} --donor {expected}` exchanges the donor where the stock file is beside it; else \
             graft the stock file again"
        ),
        () if is_donor && report.graft.way != GraftMethod::Graft => report.graft.detail.clone(),
        () if is_donor && donors::find(found).is_some() => {
            format!("`allograft graft {file} --donor {expected}` exchanges the donor")
        }
        () if is_donor => {
            let bench = match report.kind {
                inspector::Kind::Archive => format!("allograft bench --host {file}"),
                _ if path.components().count() == 1 => format!("allograft bench ./{file}"),
                _ => format!("allograft bench {file}"),
            };
            format!("`allograft graft {file} --donor {expected}` puts it there, or `{bench}` says whether that pays")
        }
        () if is_stock && donors::find(found).is_some() => format!(
            "it is a graft: `allograft undo {file}` gives stock back where it was grafted in place; else link it with \
             stock"
        ),
        () if !is_known(expected) => match similar(expected, names()) {
            Some(name) => format!("did you mean `{name}`?"),
            None => {
                "`allograft donors` lists the names of donors; others are mallocng, oldmalloc, glibc, none".to_owned()
            }
        },
        () if is_stock => format!("`{expected}` is a libc's own malloc: link the program with that libc"),
        () if expected == "none" => format!("something in it brings a malloc: `allograft inspect -v {file}` says what"),
        () => format!(
            "no donor is called `{expected}`: it comes from how the file is linked, and `allograft inspect -v {file}` \
             says how"
        ),
    }
}

/// Whether the donor of this name can be grafted into such a file.
fn goes_in(donor: &str, report: &Report) -> bool {
    let is_linked = report.kind == inspector::Kind::Executable && report.link != Some(Link::Dynamic);
    let arch = format::Arch::from_name(&report.arch.name());
    !is_linked || donors::find(donor).zip(arch).is_some_and(|(donor, arch)| donor.has_blob(arch))
}

fn cannot(path: &Path, problem: impl Display) -> Failure {
    Failure::usage(format!("cannot inspect `{}`: {problem}", path.display())).with_help(
        "name ELF files, static archives, folders, images or packages with these, or packed Swift SDK bundles",
    )
}

/// Returns the failure of a file that the system does not let read: what to do is the system's matter then.
fn unreadable(path: &Path, error: io::Error) -> Failure {
    let help = (error.raw_os_error().is_some()).then(|| mend(&error));
    let failure = cannot(path, error);
    match help {
        Some(help) => failure.with_help(help),
        None => failure,
    }
}

/// Returns the bill of materials of these files. With a root folder, their names start there: the place of an
/// image's folder is not a property of the image.
fn bill_of_materials(
    inspected: &[Inspected],
    seen: &[images::InspectedImage],
    root: Option<&Path>,
) -> Result<String, Failure> {
    let name = |path: &Path| match root.and_then(|root| path.strip_prefix(root).ok()) {
        Some(inside) => Path::new("/").join(inside).display().to_string(),
        None => path.display().to_string(),
    };
    let files: Vec<sbom::File<'_>> = inspected
        .iter()
        .map(|file| sbom::File {
            name: name(&file.path),
            image: file.image.map(|number| seen[number].image.digest.as_deref().unwrap_or(&seen[number].image.path)),
            sha256: file.sha256.as_deref(),
            // A backup that the user names is a file like any other.
            backup_of: file.backup_of.as_deref().filter(|_| file.in_folder || file.image.is_some()).map(name),
            result: file.result.as_ref().map_err(Failure::whole),
        })
        .collect();
    sbom::cyclonedx(&files).map_err(|error| {
        Failure::usage(format!("the bill of materials cannot be written as JSON: {error}")).with_help(REPORT)
    })
}

/// Whether the file starts like a packed bundle. A file that does not is inspected as any other file.
fn is_packed(path: &Path) -> bool {
    let mut start = Vec::new();
    let mut read = || File::open(path)?.take(4).read_to_end(&mut start);
    path.is_file() && read().is_ok() && (start.starts_with(b"\x1f\x8b") || start == b"PK\x03\x04")
}

/// Inspects every libc.a in a packed bundle, while the bundle is unpacked.
fn inspect_packed(path: &Path, hashed: bool, inspected: &mut Vec<Inspected>) {
    let mut hosts = Vec::new();
    let mut one = |path: PathBuf, bytes: &[u8]| {
        let sha256 = hashed.then(|| hosts::sha256(bytes));
        let result = report(&path, bytes);
        hosts.push(Inspected { result, sha256, image: None, in_folder: false, backup_of: None, path });
    };
    match hosts::for_each_host(path, &mut one) {
        Ok(_) => {
            hosts.sort_by(|one, other| one.path.cmp(&other.path));
            inspected.extend(hosts);
        }
        Err(error) => inspected.push(Inspected::unread(path.to_owned(), error.into())),
    }
}

fn report(path: &Path, bytes: &[u8]) -> Result<Report, Failure> {
    inspector::inspect(bytes).map_err(|error| cannot(path, &error).with_help(error.help()))
}
