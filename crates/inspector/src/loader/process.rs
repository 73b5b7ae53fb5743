//! The file whose `malloc` a running process is bound to, by the files that it has mapped.
//!
//! The loader has done its search already, so a request is answered by the mapped file of that name; the order of the
//! files is the loader's. A file that no other file needs was loaded later, by the program itself, and serves only
//! itself.

use std::collections::VecDeque;
use std::rc::Rc;

use crate::error::InspectError;
use crate::loader::Loader;
use crate::loader::configuration::shown;
use crate::loader::module::Module;
use crate::loader::scope::{Bound, MOST_REQUESTS, Served, is_musls_own, served};
use crate::loader::tree::TreeFile;
use crate::report::{Allocator, Evidence, Kind, Report, Source, name};
use crate::subject;

/// The files that a process has mapped, as other processes see them.
#[derive(Debug, Clone)]
pub struct Mapped {
    /// The program.
    pub program: TreeFile,
    /// The files that are mapped to be executed, without the program.
    pub files: Vec<TreeFile>,
    /// The files of `files` that were preloaded, in the loader's order.
    pub preloaded: Vec<usize>,
    /// Whether all preloads are known. False if the process has overwritten its environment.
    pub knows_preloads: bool,
}

impl Loader<'_> {
    /// Inspects the program of a process. If it is a dynamic one that does not bring its own `malloc`, the files that
    /// are mapped decide. A program that is a loader runs an unknown file.
    ///
    /// # Errors
    /// As [`crate::inspect`].
    pub fn inspect_process(&mut self, program: &[u8], mapped: &Mapped) -> Result<Report, InspectError> {
        if !program.starts_with(b"\x7fELF") {
            return crate::inspect(program);
        }
        let (mut report, interpreter) = subject::image::examine(program)?;
        if report.kind == Kind::Shared {
            let detail = "the loader was started with the program as its argument, which the outside cannot see";
            report.malloc = Allocator::named(name::UNKNOWN, vec![Evidence::new(Source::Loader, detail)]);
            (report.libc_allocator, report.language_allocator) = (None, None);
        }
        if let Some(interpreter) = interpreter {
            let bound = Module::read(program)
                .map_err(|problem| vec![problem])
                .and_then(|module| self.bound_in_process(Rc::new(module), &interpreter, mapped));
            report.malloc = self.by_file(bound, report.malloc);
        }
        Ok(report)
    }

    fn bound_in_process(&self, program: Rc<Module>, interpreter: &[u8], mapped: &Mapped) -> Result<Bound, Vec<String>> {
        let is_musl = memchr::memmem::find(interpreter, b"/ld-musl-").is_some();
        let mut files = vec![(&mapped.program, program, "it is the program".to_owned())];
        let mut unreadable = Vec::new();
        for (number, file) in mapped.files.iter().enumerate() {
            match &*self.read.module(file) {
                Ok(module) => files.push((file, module.clone(), String::new())),
                Err(problem) => {
                    let told = format!("{} is mapped and cannot be read: {problem}", shown(&file.path));
                    // The file might define malloc.
                    if mapped.preloaded.contains(&number) || !mapped.knows_preloads {
                        return Err(vec![told]);
                    }
                    unreadable.push((file, told));
                }
            }
        }
        let mut order = Vec::new();
        let mut waiting = VecDeque::from([0]);
        for preloaded in mapped.preloaded.iter().filter_map(|&number| mapped.files.get(number)) {
            let Some(number) = files.iter().position(|(file, ..)| *file == preloaded) else { continue };
            files[number].2 = "it is preloaded".to_owned();
            waiting.push_back(number);
        }
        let mut requests = 0;
        while let Some(number) = waiting.pop_front() {
            if order.contains(&number) {
                continue;
            }
            order.push(number);
            let (file, module, _) = &files[number];
            let (module, asking) = (module.clone(), shown(&file.path));
            for name in &module.needed {
                requests += 1;
                if requests > MOST_REQUESTS {
                    return Err(vec!["it has more libraries than are followed".to_owned()]);
                }
                let answers = |(file, module, _): &(&TreeFile, Rc<Module>, String)| match is_musl && is_musls_own(name)
                {
                    true => module.is_libc,
                    false => module.soname.as_ref() == Some(name) || is_called(&file.path, name),
                };
                let Some(answer) = files.iter().position(answers) else {
                    if let Some((_, told)) = unreadable.iter().find(|(file, _)| is_called(&file.path, name)) {
                        return Err(vec![told.clone()]);
                    }
                    return Err(vec![format!(
                        "{}, which {asking} needs, is not among the mapped files",
                        String::from_utf8_lossy(name)
                    )]);
                };
                if files[answer].2.is_empty() {
                    files[answer].2 = format!("{} of DT_NEEDED of {asking}, and it is mapped", shown(name));
                }
                waiting.push_back(answer);
            }
        }
        let later: Vec<usize> = (0..files.len())
            .filter(|number| !order.contains(number) && !files[*number].1.definitions.is_empty())
            .filter(|number| files[*number].1.soname.as_deref().is_none_or(|name| !name.starts_with(b"ld-linux")))
            .collect();
        let names: Vec<String> = later.iter().map(|&number| shown(&files[number].0.path)).collect();
        if !later.is_empty() && !mapped.knows_preloads {
            return Err(vec![format!(
                "{} with a `malloc` is mapped, and the environment does not tell whether it was preloaded",
                names.join(", ")
            )]);
        }
        let modules: Vec<&Module> = order.iter().map(|&number| &*files[number].1).collect();
        let Served { taken, others } = served(&modules, is_musl)?;
        let mut notes: Vec<String> = others
            .into_iter()
            .map(|(from, to)| (&files[order[from]].0.path, &files[order[to]].0.path))
            .map(|(from, to)| format!("the calls of {} go to {}: they ask for another version", shown(from), shown(to)))
            .collect();
        if !names.is_empty() {
            notes.push(format!("{} has a `malloc` too; the program loaded it later (dlopen)", names.join(", ")));
        }
        let (file, _, how) = &files[order[taken]];
        Ok(Bound { file: (*file).clone(), how: how.clone(), notes })
    }
}

/// Whether a request for `name` is one for the file at `path`.
fn is_called(path: &[u8], name: &[u8]) -> bool {
    if name.contains(&b'/') {
        return path == name;
    }
    path.rsplit(|&byte| byte == b'/').next() == Some(name)
}
