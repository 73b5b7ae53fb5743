//! The errors of a recording.

use std::io;

/// The reason why a program cannot be recorded.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The command does not start.
    #[error("cannot start `{program}`: {source}")]
    Start {
        /// The program, as the user named it.
        program: String,
        /// The system's error.
        source: io::Error,
    },
    /// There is no such process, or it has ended.
    #[error("there is no process {0}, or it has ended")]
    NoProcess(i32),
    /// This user may not read other programs' memory.
    #[error("process {pid} may not be traced: {reason}")]
    Permission {
        /// The process.
        pid: i32,
        /// The system's error.
        reason: String,
    },
    /// The program is stopped, or a different program traces it, so that it cannot be sampled.
    #[error(
        "{program} is stopped by a signal, or another program traces it (a debugger, strace): its own behaviour cannot \
         be sampled"
    )]
    Stopped {
        /// The program, as the user named it.
        program: String,
    },
    /// The program is for a different architecture.
    #[error("`{path}` is for {found}, expected a 64-bit program for {}", std::env::consts::ARCH)]
    Architecture {
        /// The program's file.
        path: String,
        /// The architecture that it is for.
        found: String,
    },
    /// This build cannot unwind on its own machine.
    #[error("programs of {} cannot be profiled: only those of x86_64 and aarch64 can", std::env::consts::ARCH)]
    Unsupported,
    /// It ended before there were enough samples.
    #[error("`{program}` ran for {milliseconds} ms, which gave {samples} samples: too few for a verdict")]
    Short {
        /// The program, as the user named it.
        program: String,
        /// How long it ran.
        milliseconds: u128,
        /// How often it was sampled.
        samples: usize,
    },
}
