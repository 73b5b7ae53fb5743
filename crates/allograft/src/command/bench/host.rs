//! The musl that programs are linked with, and private copies of its folder.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use format::Arch;

use super::arms::{Arm, Libc};
use crate::failure::Failure;

/// A stock musl.
pub(crate) struct StockMusl {
    /// The path that the user gave.
    pub(super) typed: String,
    /// The libc.a.
    libc: PathBuf,
    /// The folder of the libc.a.
    folder: PathBuf,
    /// The stock file. If the libc.a is a graft, it is the backup beside it.
    stock: PathBuf,
    pub(super) sha256: String,
    pub(crate) arch: Arch,
}

/// The folders in which distributions install a static musl.
fn usual() -> [PathBuf; 4] {
    let arch = std::env::consts::ARCH;
    [
        format!("/usr/lib/{arch}-linux-musl/libc.a"),
        "/usr/lib/musl/lib/libc.a".to_owned(),
        "/usr/local/musl/lib/libc.a".to_owned(),
        "/usr/lib/libc.a".to_owned(),
    ]
    .map(PathBuf::from)
}

impl StockMusl {
    /// Finds the musl: `given`, a `libc.a` or its folder, or else that of this machine.
    pub(crate) fn find(given: Option<&Path>) -> Result<StockMusl, Failure> {
        let libc = match given {
            Some(path) if path.is_dir() => path.join("libc.a"),
            Some(path) => path.to_owned(),
            None => usual().into_iter().find(|path| path.is_file()).ok_or_else(|| {
                Failure::usage("there is no static musl in the usual places").with_help(
                    "the suite is linked with it, and so is what `--build` makes: name it, `--host LIBC`. A program \
                         that exists needs none: `allograft bench ./program ARGS`",
                )
            })?,
        };
        let stock = hosts::stock_of(&libc)?;
        let stock_is_beside = stock.is_some();
        let stock = stock.unwrap_or_else(|| libc.clone());
        let bytes = fs::read(&stock).map_err(Failure::io("read", &stock))?;
        let report = inspector::inspect(&bytes).map_err(|error| {
            Failure::usage(format!("`{}` is no libc.a: {error}", stock.display()))
                .with_help("`--host` takes the libc.a of a musl")
        })?;
        if report.libc != inspector::Libc::Musl || report.kind != inspector::Kind::Archive {
            return Err(Failure::usage(format!("`{}` is not musl's libc.a", stock.display()))
                .with_help("`--host` takes the libc.a of a musl; programs of glibc can be an arm: `--build-glibc`"));
        }
        if !stock_is_beside && donors::find(&report.malloc.name).is_some() {
            return Err(Failure::usage(format!("`{}` carries {} already", stock.display(), report.malloc.name))
                .with_help("what is compared with is stock: undo the graft, or name another libc.a"));
        }
        let arch = Arch::from_name(&report.arch.name()).ok_or_else(|| {
            Failure::usage(format!("`{}` is for {}, and there are no donors for that", stock.display(), report.arch))
                .with_help("`allograft donors` lists the architectures of every donor")
        })?;
        let folder = libc.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let folder = folder.canonicalize().map_err(Failure::io("read", folder))?;
        let sha256 = hosts::sha256(&bytes);
        Ok(StockMusl { typed: libc.display().to_string(), libc, folder, stock, sha256, arch })
    }

    /// Whether allograft has string functions for its architecture.
    pub(crate) fn has_strings(&self) -> bool {
        donors::strings().supports(self.arch)
    }

    /// Returns the folder of its headers, or `None` if it is not found.
    pub(super) fn include(&self) -> Option<PathBuf> {
        let name = self.folder.file_name()?;
        let beside = [self.folder.join("../include"), self.folder.join("../../include").join(name)];
        // glibc has a file of that name too, but without this line.
        let is_musl = |folder: &PathBuf| {
            fs::read_to_string(folder.join("features.h")).is_ok_and(|text| !text.contains("__GLIBC__"))
        };
        beside.into_iter().find(is_musl)
    }

    /// Makes a folder like the host's for an arm, with a grafted libc.a and links to everything else.
    pub(crate) fn copy(&self, arm: &Arm, folder: &Path) -> Result<(), Failure> {
        let failed = Failure::io("make", folder);
        fs::create_dir_all(folder).map_err(&failed)?;
        let libc = folder.join("libc.a");
        for entry in fs::read_dir(&self.folder).map_err(&failed)? {
            let entry = entry.map_err(&failed)?;
            let name = entry.file_name();
            if name == "libc.a" {
                continue;
            }
            if Path::new(&name).extension().is_some_and(|ending| ending == "specs") {
                self.specs(&entry.path(), &folder.join(&name), folder).map_err(&failed)?;
            } else {
                symlink(entry.path(), folder.join(&name)).map_err(&failed)?;
            }
        }
        match &arm.libc {
            // A graft is made from the stock file, if there is one beside it.
            Libc::Graft(graft) => hosts::graft(&self.libc, &graft.request(libc)).map(|_| ())?,
            Libc::Stock(_) | Libc::Glibc | Libc::Bump => {
                fs::copy(&self.stock, &libc).map(|_| ()).map_err(&failed)?;
            }
        }
        Ok(())
    }

    /// Copies the gcc specs of musl-gcc. They name the folder; those of the copy name the copy.
    fn specs(&self, from: &Path, to: &Path, folder: &Path) -> std::io::Result<()> {
        let text = fs::read_to_string(from)?;
        fs::write(to, text.replace(&*self.folder.to_string_lossy(), &folder.to_string_lossy()))
    }
}
