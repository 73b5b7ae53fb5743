//! A bar on a terminal for work on a large file, once it has taken a second.

use std::cell::OnceCell;
use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use hosts::Progress;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output::Output;

/// The time after which the bar appears.
const PATIENCE: Duration = Duration::from_secs(1);

/// The bar of one run.
pub(crate) struct Bar {
    shown: bool,
    started: Instant,
    bar: OnceCell<ProgressBar>,
}

impl Bar {
    pub(crate) fn new(output: &Output) -> Bar {
        let shown = !output.quiet && io::stderr().is_terminal();
        Bar { shown, started: Instant::now(), bar: OnceCell::new() }
    }

    pub(crate) fn advance(&self, progress: Progress) {
        if !self.shown || self.bar.get().is_none() && self.started.elapsed() < PATIENCE {
            return;
        }
        let bar = self.bar.get_or_init(|| {
            let style = ProgressStyle::with_template("{msg:>8} [{bar:40}] {bytes}/{total_bytes} {eta}");
            let style = style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> ");
            ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10)).with_style(style)
        });
        if bar.message() != progress.doing {
            bar.set_message(progress.doing);
        }
        bar.set_length(progress.total);
        bar.set_position(progress.done);
    }

    pub(crate) fn finish(&self) {
        if let Some(bar) = self.bar.get() {
            bar.finish_and_clear();
        }
    }
}
