//! The processes in the document of `allograft inspect`.

use inspector::Report;
use serde::Serialize;

/// A running process.
#[derive(Debug, Serialize)]
pub(crate) struct Process {
    /// Its number.
    pub(crate) pid: u32,
    /// Its name, as `ps` shows it.
    pub(crate) name: String,
    /// The program's path in the process's own root.
    pub(crate) path: String,
    /// Whether another file is at that path now, or none.
    pub(crate) deleted: bool,
    /// The report on the program. `malloc` is what the process is bound to, by the files that it has mapped.
    #[serde(flatten)]
    pub(crate) report: Report,
    /// The files that it was to load before all others, in order.
    pub(crate) preloads: Vec<Preload>,
    /// Its memory.
    pub(crate) memory: Footprint,
    /// With `--expect`: whether its malloc is the expected one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) as_expected: Option<bool>,
}

/// A file that a process was to load before all others.
#[derive(Debug, Serialize)]
pub(crate) struct Preload {
    /// Its name there.
    pub(crate) file: String,
    /// Where it is named: the variable `LD_PRELOAD`, or the file `/etc/ld.so.preload`.
    pub(crate) source: &'static str,
    /// Whether it is loaded.
    pub(crate) loaded: bool,
    /// Whether its `malloc` serves the process.
    pub(crate) serves: bool,
}

/// The memory of a process, as the kernel counts it.
#[derive(Debug, Serialize)]
pub(crate) struct Footprint {
    /// In memory now (`VmRSS`).
    pub(crate) resident_bytes: Option<u64>,
    /// The most that was in memory (`VmHWM`).
    pub(crate) peak_resident_bytes: Option<u64>,
    /// In memory now, and of no file (`RssAnon`): mostly heap and stacks.
    pub(crate) anonymous_bytes: Option<u64>,
    /// Written to swap space (`VmSwap`).
    pub(crate) swapped_bytes: Option<u64>,
    /// The size of the mapping that `brk` extends, resident or not.
    pub(crate) heap_mapped_bytes: u64,
    /// The size of all mappings of data without a file, that one included, but for the first thread's stack.
    pub(crate) data_mapped_bytes: u64,
}
