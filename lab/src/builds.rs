//! Programs for the arms of an experiment: compiled once for each libc, linked once for each arm.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tools::{command, workspace};
use xtask::linking::{self, Compiler, Musl};

use crate::experiment::parallel;

/// An allocator of a build, from `allograft donors --json`.
pub(crate) struct Donor {
    /// Its name for `--donor`.
    pub(crate) name: String,
    /// Its profiles for `--profile`.
    pub(crate) profiles: Vec<String>,
}

/// Returns the allocators that a build has for this machine.
///
/// # Errors
/// `allograft donors` fails.
pub(crate) fn donors(allograft: &Path) -> Result<Vec<Donor>> {
    let said = command::output(Command::new(allograft).args(["donors", "--json"]))?;
    let document: Value = serde_json::from_str(&said).context("`donors --json` printed no JSON")?;
    let here = |donor: &&Value| {
        let arches = donor["arches"].as_array().map(Vec::as_slice).unwrap_or_default();
        donor["kind"] == "malloc" && arches.iter().any(|arch| arch == std::env::consts::ARCH)
    };
    let name = |value: &Value| value["name"].as_str().map(str::to_owned).context("something without a name");
    let listed = document["donors"].as_array().context("no list of donors")?.iter().filter(here).map(|donor| {
        let profiles = donor["profiles"].as_array().map(Vec::as_slice).unwrap_or_default();
        Ok(Donor { name: name(donor)?, profiles: profiles.iter().map(name).collect::<Result<_>>()? })
    });
    listed.collect()
}

/// An arm: stock, string functions alone, a donor, or glibc.
pub(crate) struct LinkedArm {
    pub(crate) name: String,
    /// The arguments of its graft; `None` for arms without a graft.
    pub(crate) graft: Option<Vec<String>>,
    /// The folder of its musl; `None` for glibc.
    pub(crate) libc: Option<PathBuf>,
    /// The allocator that `inspect` must find.
    pub(crate) carries: String,
}

/// Sources that are compiled with the same flags.
pub(crate) struct Part {
    /// The name of the folder for its objects.
    pub(crate) name: &'static str,
    pub(crate) sources: Vec<PathBuf>,
    pub(crate) flags: Vec<String>,
    /// Whether the linker takes only the objects that are needed.
    pub(crate) is_archive: bool,
}

impl Part {
    /// A source of ours.
    pub(crate) fn source(path: &str) -> Part {
        Part { name: "own", sources: vec![workspace::root().join(path)], flags: Vec::new(), is_archive: false }
    }

    /// A program of the suite.
    pub(crate) fn suite(name: &str) -> Part {
        Part::source(&format!("suite/{name}/{name}.c"))
    }
}

/// The tools to build programs in a folder, for stock musl, for grafts by one allograft, and for glibc.
pub(crate) struct Workshop {
    home: PathBuf,
    pub(crate) allograft: PathBuf,
    pub(crate) musl: Musl,
    compiler: Compiler,
}

impl Workshop {
    /// # Errors
    /// There is no musl for this machine, or no compiler.
    pub(crate) fn new(home: &Path, allograft: &Path) -> Result<Workshop> {
        let (musl, compiler) = (Musl::find()?, Compiler::find()?);
        Ok(Workshop { home: home.to_owned(), allograft: allograft.to_owned(), musl, compiler })
    }

    /// Returns all arms, stock first and glibc last, with the libc of each.
    ///
    /// # Errors
    /// The donors cannot be listed, or a graft fails.
    pub(crate) fn arms(&self) -> Result<Vec<LinkedArm>> {
        let donors = donors(&self.allograft)?.into_iter().map(|donor| donor.name);
        let names = ["stock", "strings"].map(str::to_owned).into_iter().chain(donors).chain(["glibc".to_owned()]);
        names.map(|name| self.arm(&name)).collect()
    }

    /// Returns the arm of this name.
    ///
    /// # Errors
    /// The graft fails, as with a donor that does not exist.
    pub(crate) fn arm(&self, name: &str) -> Result<LinkedArm> {
        let (donor, carries) = match name {
            "stock" => (None, "mallocng"),
            "strings" => (Some("none"), "mallocng"),
            "glibc" => (None, "glibc"),
            donor => (Some(donor), donor),
        };
        let graft = donor.map(|donor| vec!["--donor".to_owned(), donor.to_owned()]);
        let libc = if name == "glibc" { None } else { Some(self.libc(name, graft.as_deref())?) };
        Ok(LinkedArm { name: name.to_owned(), graft, libc, carries: carries.to_owned() })
    }

    /// Copies the musl into a folder with this name, which it empties, and grafts it if there are arguments for that.
    fn libc(&self, name: &str, graft: Option<&[impl AsRef<std::ffi::OsStr>]>) -> Result<PathBuf> {
        let folder = self.home.join("libc").join(name);
        if folder.exists() {
            fs::remove_dir_all(&folder).with_context(|| format!("cannot remove `{}`", folder.display()))?;
        }
        let libc = self.musl.copy(&folder)?;
        graft.map_or(Ok(()), |arguments| self.graft(arguments, &libc))?;
        Ok(folder)
    }

    /// Grafts a `libc.a` with these arguments.
    ///
    /// # Errors
    /// The graft fails.
    pub(crate) fn graft(&self, arguments: &[impl AsRef<std::ffi::OsStr>], libc: &Path) -> Result<()> {
        command::output(Command::new(&self.allograft).args(["-q", "graft"]).args(arguments).arg(libc)).map(drop)
    }

    /// Compiles a program for both libcs and links it for each arm. Checks the allocator of each. Returns the paths.
    ///
    /// # Errors
    /// A part does not compile or link, or an arm carries another allocator.
    pub(crate) fn programs(&self, name: &str, parts: &[Part], arms: &[LinkedArm]) -> Result<Vec<PathBuf>> {
        eprintln!("bench: building {name} ...");
        let [of_musl, of_glibc] = [self.compile(name, parts, false)?, self.compile(name, parts, true)?];
        let programs = arms.iter().map(|arm| {
            let files = if arm.libc.is_some() { &of_musl } else { &of_glibc };
            let program = self.link(&arm.name, name, files, arm.libc.as_deref())?;
            carries(&self.allograft, &program, &arm.carries)?;
            Ok(program)
        });
        programs.collect()
    }

    /// Links each source with a musl of this name, which is grafted if there are arguments for that. Returns the
    /// programs' paths.
    ///
    /// # Errors
    /// The graft fails, or a source does not compile or link.
    pub(crate) fn with_musl(&self, name: &str, graft: Option<&[&str]>, sources: &[Part]) -> Result<Vec<PathBuf>> {
        let libc = self.libc(name, graft)?;
        let linked = sources.iter().map(|part| {
            let program = part.sources[0].file_stem().unwrap_or_default().to_string_lossy();
            let files = self.compile(&program, std::slice::from_ref(part), false)?;
            self.link(name, &program, &files, Some(&libc))
        });
        linked.collect()
    }

    /// Builds a program for glibc, dynamic as programs usually are.
    ///
    /// # Errors
    /// It does not compile or link.
    pub(crate) fn with_glibc(&self, name: &str, parts: &[Part]) -> Result<PathBuf> {
        self.link("glibc", name, &self.compile(name, parts, true)?, None)
    }

    /// Builds a static program for glibc.
    ///
    /// # Errors
    /// It does not compile, or there is no `libc.a` of glibc.
    pub(crate) fn with_static_glibc(&self, name: &str, source: Part) -> Result<PathBuf> {
        let (files, program) = (self.compile(name, &[source], true)?, self.place("static-glibc", name)?);
        linking::link_for_static_glibc(&self.compiler, &files[0], &program)?;
        Ok(program)
    }

    fn link(&self, arm: &str, name: &str, files: &[PathBuf], libc: Option<&Path>) -> Result<PathBuf> {
        let program = self.place(arm, name)?;
        match libc {
            Some(libc) => self.musl.link_all(&self.compiler, files, libc, &program)?,
            None => linking::link_for_glibc(&self.compiler, files, &program)?,
        }
        Ok(program)
    }

    fn place(&self, arm: &str, name: &str) -> Result<PathBuf> {
        let folder = self.home.join("programs").join(arm);
        fs::create_dir_all(&folder)?;
        Ok(folder.join(name))
    }

    /// Compiles the parts for a libc on all processors. Objects of other people's sources, which do not change, are
    /// kept. Returns the files to link.
    fn compile(&self, program: &str, parts: &[Part], for_glibc: bool) -> Result<Vec<PathBuf>> {
        let home = self.home.join("objects").join(if for_glibc { "glibc" } else { "musl" }).join(program);
        let ours = ["suite", "lab"].map(|folder| workspace::root().join(folder));
        let mut files = Vec::new();
        for part in parts {
            let folder = home.join(part.name);
            fs::create_dir_all(&folder)?;
            let name = |source: &PathBuf| source.file_name().unwrap_or_default().to_owned();
            let objects: Vec<PathBuf> =
                part.sources.iter().map(|source| folder.join(name(source)).with_extension("o")).collect();
            let compile = |at: usize| -> Result<()> {
                let (source, object) = (&part.sources[at], &objects[at]);
                if !ours.iter().any(|folder| source.starts_with(folder)) && is_newer(object, source) {
                    return Ok(());
                }
                // A compiler that is killed leaves a partial object, which must not get the final name.
                let partial = object.with_extension("partial");
                if for_glibc {
                    linking::compile_for_glibc(&self.compiler, &part.flags, source, &partial)?;
                } else {
                    self.musl.compile_with(&self.compiler, &part.flags, source, &partial)?;
                }
                Ok(fs::rename(&partial, object)?)
            };
            parallel(objects.len(), compile).with_context(|| format!("{program} does not compile"))?;
            if part.is_archive {
                let archive = home.join(format!("lib{}.a", part.name));
                let _ = fs::remove_file(&archive);
                // `ar` comes with C compilers.
                command::output(Command::new("ar").arg("rcs").arg(&archive).args(&objects))?;
                files.push(archive);
            } else {
                files.extend(objects);
            }
        }
        Ok(files)
    }
}

fn is_newer(object: &Path, source: &Path) -> bool {
    let time = |path: &Path| fs::metadata(path).and_then(|file| file.modified());
    time(object).is_ok_and(|made| time(source).is_ok_and(|written| made > written))
}

/// Checks with `allograft inspect` which allocator a program carries.
///
/// # Errors
/// The program carries a different allocator.
pub(crate) fn carries(allograft: &Path, program: &Path, expected: &str) -> Result<()> {
    let said = command::output(Command::new(allograft).args(["inspect", "--json"]).arg(program))?;
    let document: Value = serde_json::from_str(&said).context("`inspect --json` printed no JSON")?;
    let file = &document["files"][0];
    let name = &file["malloc"]["name"];
    let shown = workspace::shown(program);
    println!("{shown}: {}", traits(file));
    ensure!(*name == expected, "`{shown}` carries {name}, expected `{expected}`");
    Ok(())
}

/// Returns the allocator, the string functions and the way of linking of a file of `inspect`'s document.
fn traits(file: &Value) -> String {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let malloc = [text(&file["malloc"]["name"]), text(&file["malloc"]["version"])];
    let malloc: Vec<String> = malloc.into_iter().flatten().collect();
    let or_unknown = |value: &Value| text(value).unwrap_or_else(|| "?".to_owned());
    format!("malloc {}, strings {}, {}", malloc.join(" "), or_unknown(&file["strings"]), or_unknown(&file["link"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allocator_without_a_version_is_named_alone() {
        let file = |malloc: Value| serde_json::json!({ "malloc": malloc, "strings": "stock", "link": "static" });
        let stock = serde_json::json!({ "name": "mallocng", "version": null });
        assert_eq!(traits(&file(stock)), "malloc mallocng, strings stock, static");
        let donor = serde_json::json!({ "name": "snmalloc", "version": "0.7.6" });
        assert_eq!(traits(&file(donor)), "malloc snmalloc 0.7.6, strings stock, static");
    }
}
