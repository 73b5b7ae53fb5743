//! The files that the recorded processes have mapped. Each is read once: a script may start hundreds of processes, and
//! all of them have the same libraries, at different addresses.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

use crate::file;
use crate::memory;
use crate::module::{self, Module};
use crate::proc::{self, Identity};

/// All modules of all processes.
#[derive(Default)]
pub(crate) struct Library {
    pub(crate) modules: Vec<Module>,
    /// Their numbers; the flag says whether the file was read as a program.
    numbers: HashMap<(Identity, bool), u32>,
    /// The processor time in seconds that reading them has taken: once for each.
    pub(crate) reading_s: f64,
    /// Programs that were read before they were started, by their paths.
    prepared: HashMap<String, Module>,
}

impl Library {
    /// Reads a program before it is started: a large program may take as long as a short recording.
    pub(crate) fn prepare(&mut self, program: &Path) {
        let Ok(path) = program.canonicalize() else { return };
        // This fails for a script; its interpreter is read later.
        if let Ok(bytes) = file::read(&path)
            && let Ok(module) = Module::parse(&path.to_string_lossy(), &bytes, Path::new("/"), true)
        {
            self.prepared.insert(path.to_string_lossy().into_owned(), module);
        }
    }

    /// Returns the number of the module that a process has mapped at `range`, as its program or as a library, reading
    /// it on first use. `None` if it cannot be read, or is not a native ELF file.
    pub(crate) fn number(&mut self, pid: i32, file: &Identity, range: &Range<u64>, program: bool) -> Option<u32> {
        let key = (file.clone(), program);
        if let Some(number) = self.numbers.get(&key) {
            return Some(*number);
        }
        let began = proc::processor_s();
        let prepared = if program { self.prepared.remove(&file.path) } else { None };
        let module = prepared.or_else(|| read(pid, &file.path, range, program))?;
        // Unreadable files are tried again, so their time counts as the recording's own.
        self.reading_s += proc::processor_s() - began;
        let number = u32::try_from(self.modules.len()).ok()?;
        self.modules.push(module);
        self.numbers.insert(key, number);
        Some(number)
    }
}

fn read(pid: i32, path: &str, range: &Range<u64>, program: bool) -> Option<Module> {
    let alive = proc::alive(pid);
    let bytes = match path {
        "[vdso]" => memory::read(alive, range.start, usize::try_from(range.end - range.start).ok()?),
        _ => module::read(pid, path)?,
    };
    Module::parse(path, &bytes, Path::new(&format!("/proc/{alive}/root")), program).ok()
}
