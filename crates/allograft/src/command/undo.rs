//! `allograft undo`: restores the stock host.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use hosts::{Locking, Undone, UndoneAction, Watch};

use crate::failure::{Failure, commit_reported};
use crate::json;
use crate::output::{Output, Page, Style};
use crate::signals::Cleanup;
use crate::target::located;

/// Give back the stock file, byte for byte
///
/// Restores the backup beside the grafted file, with its mode, owner and times. Refuses if the file has changed since
/// the graft. In a folder, checks all grafts, archives and programs, before it restores the first one. Of a container
/// image, writes the stock image to another place.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  allograft undo /usr/lib/x86_64-linux-musl/libc.a
  allograft undo --dry-run sdk
  allograft undo ~/.rustup/toolchains/stable-x86_64-unknown-linux-gnu

If the file carries no graft, there is nothing to undo; this is no error.")]
pub(crate) struct Undo {
    /// What was grafted, named as for `graft`
    ///
    /// The grafted libc.a or executable, a folder with grafts under it, a packed Swift SDK bundle, swift:ID or
    /// rust:TRIPLE
    target: PathBuf,
    /// Root folder of an image with the target
    ///
    /// The root folder of an image that holds the target. The target's path starts there, and symbolic links are read
    /// as in the image
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Stock file, if the backup is lost
    ///
    /// The stock file of a graft whose backup is missing: the record beside the graft has to name its SHA-256
    #[arg(long, value_name = "FILE", conflicts_with = "out")]
    stock: Option<PathBuf>,
    /// Print what would be done
    #[arg(long, conflicts_with = "out")]
    dry_run: bool,
    /// For container images: write the stock image here
    #[arg(short, long, value_name = "STOCK")]
    out: Option<PathBuf>,
}

impl Undo {
    pub(crate) fn run(&self, output: &Output) -> Result<ExitCode, Failure> {
        let _cleanup = Cleanup::on_signals()?;
        let target = located(&self.target, self.root.as_deref())?;
        let is_one_host = || fs::read(&target).is_ok_and(|bytes| inspector::inspect(&bytes).is_ok());
        if self.out.is_some() && is_one_host() {
            return Err(Failure::usage(format!(
                "`{}` is not a container image, and `-o` is for these",
                target.display()
            ))
            .with_help("leave `-o` out: the stock file comes back in place of the graft"));
        }
        if self.stock.is_some() && target.is_dir() {
            return Err(Failure::usage(format!("`--stock` is for one graft, and `{}` is a folder", target.display()))
                .with_help("name the graft that this stock file belongs to"));
        }
        let locking = |locking: Locking<'_>| output.locking(locking);
        let watch = Watch { locking: Some(&locking), ..Watch::default() };
        if self.dry_run {
            report(&target, &hosts::planned_undo(&target, self.stock.as_deref())?, output)?;
            return Ok(ExitCode::SUCCESS);
        }
        let undone = match &self.out {
            Some(out) => hosts::undo_image(&target, out, &watch)?,
            None => hosts::undo_under(&target, self.stock.as_deref(), &watch)?,
        };
        commit_reported(undone, |undone| report(&target, undone, output))?;
        Ok(ExitCode::SUCCESS)
    }
}

fn report(target: &Path, undone: &[Undone], output: &Output) -> Result<(), Failure> {
    for host in undone {
        for note in &host.notes {
            output.warn(format_args!("`{}` {note}", host.path.display()));
        }
    }
    match output.json {
        true => output.document(json::Undone::from(undone)),
        false => output.text(&summary(target, undone, output)),
    }
}

fn summary(target: &Path, undone: &[Undone], output: &Output) -> Page {
    let mut text = output.page();
    // A folder of programs, all of them stock.
    if undone.is_empty() {
        let _ = writeln!(text, "nothing to undo  {}", target.display());
    }
    for host in undone {
        let path = host.path.display();
        let _ = match host.action {
            UndoneAction::Restored => {
                let word = output.paint(Style::Good, "restored");
                writeln!(text, "{word}  {path}  sha256 {}", host.stock_sha256)
            }
            UndoneAction::Planned => writeln!(text, "would restore  {path}  sha256 {}", host.stock_sha256),
            UndoneAction::NothingToUndo => writeln!(text, "nothing to undo  {path}"),
        };
    }
    text
}
