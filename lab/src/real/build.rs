//! Builds of the real programs: compiled once for each libc, linked once for each arm.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result};
use tools::command;
use xtask::linking::{self, Compiler, Musl};

use super::program::{self, Part};
use crate::grafts;

/// An arm: stock, string functions alone, a donor, or glibc.
pub(crate) struct RealArm {
    pub(crate) name: String,
    /// The arguments of its graft; `None` for arms without a graft.
    pub(crate) graft: Option<Vec<String>>,
    pub(crate) is_glibc: bool,
    /// The allocator that `inspect` must find.
    pub(crate) carries: String,
}

/// Returns all arms, stock first.
///
/// # Errors
/// The donors cannot be listed.
pub(crate) fn arms(allograft: &Path) -> Result<Vec<RealArm>> {
    let arm = |name: &str, donor: Option<&str>, carries: &str| RealArm {
        name: name.to_owned(),
        graft: donor.map(|donor| vec!["--donor".to_owned(), donor.to_owned()]),
        is_glibc: name == "glibc",
        carries: carries.to_owned(),
    };
    let mut arms = vec![arm("stock", None, "mallocng"), arm("strings", Some("none"), "mallocng")];
    for donor in grafts::donors(allograft)? {
        arms.push(arm(&donor.name, Some(&donor.name), &donor.name));
    }
    arms.push(arm("glibc", None, "glibc"));
    Ok(arms)
}

/// The tools and folders of a build.
pub(crate) struct Builder<'y> {
    pub(crate) home: &'y Path,
    pub(crate) allograft: &'y Path,
    pub(crate) musl: Musl,
    pub(crate) compiler: Compiler,
}

impl Builder<'_> {
    /// Makes the folder with the libc of each arm. Returns their paths; glibc's is empty.
    ///
    /// # Errors
    /// A graft fails.
    pub(crate) fn libcs(&self, arms: &[RealArm]) -> Result<Vec<PathBuf>> {
        let made = arms.iter().map(|arm| {
            if arm.is_glibc {
                return Ok(PathBuf::new());
            }
            let folder = self.home.join("libc").join(&arm.name);
            if folder.exists() {
                fs::remove_dir_all(&folder).with_context(|| format!("cannot remove `{}`", folder.display()))?;
            }
            let libc = self.musl.copy(&folder)?;
            self.graft(arm, &libc)?;
            Ok(folder)
        });
        made.collect()
    }

    /// Grafts a copy of a `libc.a` with the arm's arguments.
    ///
    /// # Errors
    /// The graft fails.
    pub(crate) fn graft(&self, arm: &RealArm, libc: &Path) -> Result<()> {
        let Some(arguments) = &arm.graft else { return Ok(()) };
        command::output(Command::new(self.allograft).args(["-q", "graft"]).args(arguments).arg(libc)).map(drop)
    }

    /// Compiles the parts for a libc on all processors, unless the objects exist. Returns the files to link.
    ///
    /// # Errors
    /// A part does not compile.
    pub(crate) fn compile(&self, program: &str, parts: &[Part], for_glibc: bool) -> Result<Vec<PathBuf>> {
        let home = self.home.join("objects").join(if for_glibc { "glibc" } else { "musl" }).join(program);
        let mut files = Vec::new();
        for part in parts {
            let folder = home.join(part.name);
            fs::create_dir_all(&folder)?;
            let name = |source: &PathBuf| source.file_name().unwrap_or_default().to_owned();
            let objects: Vec<PathBuf> =
                part.sources.iter().map(|source| folder.join(name(source)).with_extension("o")).collect();
            let next = AtomicUsize::new(0);
            let work = || -> Result<()> {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some((source, object)) = part.sources.get(at).zip(objects.get(at)) else { return Ok(()) };
                    if is_newer(object, source) {
                        continue;
                    }
                    // A compiler that is killed leaves a partial object, which must not get the final name.
                    let partial = object.with_extension("partial");
                    if for_glibc {
                        linking::compile_for_glibc(&self.compiler, &part.flags, source, &partial)?;
                    } else {
                        self.musl.compile_with(&self.compiler, &part.flags, source, &partial)?;
                    }
                    fs::rename(&partial, object)?;
                }
            };
            let count = std::thread::available_parallelism().map_or(1, usize::from);
            std::thread::scope(|scope| {
                let threads: Vec<_> = (0..count).map(|_| scope.spawn(work)).collect();
                let ends = threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Ok(())));
                ends.collect::<Result<()>>()
            })
            .with_context(|| format!("{program} does not compile"))?;
            if part.is_archive {
                let archive = home.join(format!("lib{}.a", part.name));
                program::archive(&objects, &archive)?;
                files.push(archive);
            } else {
                files.extend(objects);
            }
        }
        Ok(files)
    }

    /// Links a program for an arm. `files`: the objects compiled for musl, and for glibc.
    ///
    /// # Errors
    /// It does not link.
    pub(crate) fn link(&self, program: &str, files: [&[PathBuf]; 2], arm: &RealArm, libc: &Path) -> Result<PathBuf> {
        let folder = self.home.join("programs").join(&arm.name);
        fs::create_dir_all(&folder)?;
        let out = folder.join(program);
        if arm.is_glibc {
            linking::link_for_glibc(&self.compiler, files[1], &out)?;
        } else {
            self.musl.link_all(&self.compiler, files[0], libc, &out)?;
        }
        Ok(out)
    }
}

fn is_newer(object: &Path, source: &Path) -> bool {
    let time = |path: &Path| fs::metadata(path).and_then(|file| file.modified());
    time(object).is_ok_and(|made| time(source).is_ok_and(|written| made > written))
}
