//! The order in which a run syncs files and changes their names, as a list for people.
//!
//! `power` judges what each loss of power may leave; this says what the run does for it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use nix::libc;

use crate::call::Call;
use crate::flow::Scene;
use crate::traced::{Act, End, Watch};

/// A part of each temporary name.
const TEMPORARY: &str = ".allograft-tmp-";

/// Returns the steps of the flow's run, a line each: `sync`, `link`, `rename`, `exchange` and `delete`, with the names
/// of files. Temporary ones are numbered, in parentheses.
///
/// # Errors
/// The run fails.
pub fn steps(scene: &Scene) -> Result<Vec<String>> {
    scene.restore()?;
    let folder = fs::canonicalize(scene.folder())?;
    let mut order = Order { folder, temporaries: Vec::new(), steps: Vec::new() };
    let ran = scene.traced(&mut order)?;
    ensure!(ran.end == End::Exit(0), "{}: {:?}\n{}", scene.name(), ran.end, ran.said);
    Ok(order.steps)
}

/// Records the steps of a run.
struct Order {
    folder: PathBuf,
    temporaries: Vec<PathBuf>,
    steps: Vec<String>,
}

impl Order {
    /// Returns a file's name for people: each temporary part of it is a number.
    fn name(&mut self, path: &Path) -> String {
        if path.as_os_str().is_empty() {
            return ".".to_owned();
        }
        let (mut full, mut parts) = (PathBuf::new(), Vec::new());
        for part in path {
            full.push(part);
            let part = part.to_string_lossy().into_owned();
            parts.push(if part.contains(TEMPORARY) { format!("({})", self.number(&full)) } else { part });
        }
        parts.join("/")
    }

    /// Returns the number of a temporary file, counted from 1.
    fn number(&mut self, path: &Path) -> usize {
        let known = self.temporaries.iter().position(|known| known == path);
        known.unwrap_or_else(|| {
            self.temporaries.push(path.to_owned());
            self.temporaries.len() - 1
        }) + 1
    }

    fn step(&mut self, verb: &str, paths: &[Option<PathBuf>]) {
        let names: Option<Vec<String>> = paths.iter().map(|path| Some(self.name(path.as_deref()?))).collect();
        self.steps.extend(names.map(|names| format!("{verb:8} {}", names.join("  "))));
    }
}

impl Watch for Order {
    fn enters(&mut self, _number: usize, _call: &Call) -> Act {
        Act::Let
    }

    fn leaves(&mut self, call: &Call, result: i64) {
        if result < 0 {
            return;
        }
        let [a, b, c, d, e, _] = call.arguments;
        let path = |folder, text| call.path(&self.folder, folder, text);
        match call.number {
            libc::SYS_fsync | libc::SYS_fdatasync => {
                let opened = call.opened(&self.folder, a).map(|(_, path)| path);
                self.step("sync", &[opened]);
            }
            libc::SYS_syncfs => self.steps.push("sync     the file system".to_owned()),
            libc::SYS_link => self.step("link", &[path(None, a), path(None, b)]),
            libc::SYS_linkat => self.step("link", &[path(Some(a), b), path(Some(c), d)]),
            libc::SYS_rename => self.step("rename", &[path(None, a), path(None, b)]),
            libc::SYS_renameat | libc::SYS_renameat2 => {
                let is_exchange = call.number == libc::SYS_renameat2 && e & libc::RENAME_EXCHANGE as u64 != 0;
                let verb = if is_exchange { "exchange" } else { "rename" };
                self.step(verb, &[path(Some(a), b), path(Some(c), d)]);
            }
            libc::SYS_unlink | libc::SYS_rmdir => self.step("delete", &[path(None, a)]),
            libc::SYS_unlinkat => self.step("delete", &[path(Some(a), b)]),
            _ => {}
        }
    }
}
