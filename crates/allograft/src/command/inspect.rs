//! `allograft inspect`: which allocator is in a file.

use std::fmt::{Display, Write};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde_json::{Map, Value, json};

use crate::command::verdict;
use crate::failure::Failure;
use crate::output::{Output, Style};

/// Tell which allocator each file carries, its version, and how that is known
///
/// Any ELF file or static archive will do: stripped ones, and ones that allograft has not made. In a folder, every
/// ELF file and archive under it is inspected; symbolic links are not followed there.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  allograft inspect ./server
  allograft inspect ./server --expect mimalloc   exit code 1 unless it is that one
  allograft inspect --json /usr/lib/x86_64-linux-musl/libc.a")]
pub(crate) struct Inspect {
    /// Executables, libraries, objects, archives, or folders of them
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Exit with 1 unless every file's malloc is this one: a donor's name, or mallocng, oldmalloc, glibc, go, zig,
    /// none, unknown
    #[arg(long, value_name = "NAME")]
    expect: Option<String>,
}

/// A file and what was found in it, or why nothing was.
struct Inspected {
    path: PathBuf,
    result: Result<Map<String, Value>, Failure>,
}

impl Inspect {
    pub(crate) fn run(self, output: &Output) -> Result<ExitCode, Failure> {
        let mut inspected = Vec::new();
        for path in &self.files {
            if path.is_dir() {
                let before = inspected.len();
                inspect_folder(path, &mut inspected);
                if inspected.len() == before {
                    let failure = cannot(path, "it holds no ELF file and no static archive");
                    inspected.push(Inspected { path: path.clone(), result: Err(failure) });
                }
            } else {
                inspected.push(inspect(path.clone()));
            }
        }
        let mut all_read = true;
        for failure in inspected.iter().filter_map(|file| file.result.as_ref().err()) {
            output.error(failure);
            all_read = false;
        }
        let mut as_expected = true;
        for (file, found) in inspected.iter().filter_map(|file| Some((file, file.result.as_ref().ok()?))) {
            let name = malloc(found, "name");
            if let Some(expected) = self.expect.as_deref().filter(|expected| *expected != name) {
                as_expected = false;
                output.error(&Failure::usage(format!(
                    "`{}` carries the malloc `{name}`, expected `{expected}`",
                    file.path.display()
                )));
            }
        }
        if output.json {
            let files: Vec<Value> = inspected.iter().map(|file| document(file, self.expect.as_deref())).collect();
            output.document(json!({ "files": files }))?;
        } else {
            output.text(&overview(&inspected, output))?;
        }
        Ok(if all_read { verdict(as_expected) } else { ExitCode::from(2) })
    }
}

fn cannot(path: &Path, problem: impl Display) -> Failure {
    Failure::usage(format!("cannot inspect `{}`: {problem}", path.display()))
}

fn inspect(path: PathBuf) -> Inspected {
    let result = read(&path).map_err(|error| cannot(&path, error)).and_then(|bytes| {
        let report = inspector::inspect(&bytes).map_err(|error| cannot(&path, &error).with_help(error.help()))?;
        match serde_json::to_value(report) {
            Ok(Value::Object(fields)) => Ok(fields),
            Ok(_) => Err(cannot(&path, "the report is no object")),
            Err(error) => Err(cannot(&path, error)),
        }
    });
    Inspected { path, result }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    // Opening a pipe or a device could wait forever.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is neither a file nor a folder"));
    }
    fs::read(path)
}

/// Inspects what looks like an ELF file or an archive under `folder`, in the order of the paths.
fn inspect_folder(folder: &Path, inspected: &mut Vec<Inspected>) {
    let entries = fs::read_dir(folder).and_then(|entries| entries.collect::<Result<Vec<_>, _>>());
    let mut entries = match entries {
        Ok(entries) => entries,
        Err(error) => {
            inspected.push(Inspected { path: folder.to_owned(), result: Err(cannot(folder, error)) });
            return;
        }
    };
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => inspect_folder(&path, inspected),
            Ok(kind) if kind.is_file() => match worth_inspecting(&path) {
                Ok(false) => {}
                Ok(true) => inspected.push(inspect(path)),
                Err(error) => {
                    let result = Err(cannot(&path, error));
                    inspected.push(Inspected { path, result });
                }
            },
            _ => {}
        }
    }
}

fn worth_inspecting(path: &Path) -> io::Result<bool> {
    let mut start = Vec::new();
    File::open(path)?.take(8).read_to_end(&mut start)?;
    Ok(start.starts_with(b"\x7fELF") || start == b"!<arch>\n")
}

fn malloc<'a>(found: &'a Map<String, Value>, field: &str) -> &'a str {
    found.get("malloc").and_then(|malloc| malloc.get(field)).and_then(Value::as_str).unwrap_or_default()
}

fn document(file: &Inspected, expect: Option<&str>) -> Value {
    let mut fields = Map::new();
    fields.insert("path".to_owned(), file.path.display().to_string().into());
    match &file.result {
        Ok(found) => {
            fields.extend(found.clone());
            if let Some(expected) = expect {
                fields.insert("as_expected".to_owned(), (malloc(found, "name") == expected).into());
            }
        }
        Err(failure) => {
            fields.insert("error".to_owned(), failure.message.as_str().into());
        }
    }
    Value::Object(fields)
}

fn overview(inspected: &[Inspected], output: &Output) -> String {
    let mut text = String::new();
    // Evidence where there is room for it.
    let with_evidence = output.verbose || inspected.len() == 1;
    for (file, found) in inspected.iter().filter_map(|file| Some((file, file.result.as_ref().ok()?))) {
        let word = |field: &str| found.get(field).and_then(Value::as_str).filter(|word| !word.is_empty());
        let name = [malloc(found, "name"), malloc(found, "version")].join(" ");
        let mut what: Vec<&str> = ["kind", "arch", "link", "libc"].into_iter().filter_map(word).collect();
        what.extend(word("strings").filter(|strings| *strings == "grafted").map(|_| "fast string functions"));
        let name = output.paint(Style::Strong, name.trim_end());
        let _ = writeln!(text, "{}: {name}  ({})", file.path.display(), what.join(", "));
        let language = found.get("language_allocator").and_then(|found| found.get("name")).and_then(Value::as_str);
        if let Some(language) = language {
            let _ = writeln!(text, "  language allocator: {language}");
        }
        if with_evidence {
            let evidence = found.get("malloc").and_then(|malloc| malloc.get("evidence")).and_then(Value::as_array);
            for line in evidence.into_iter().flatten() {
                let part = |field: &str| line.get(field).and_then(Value::as_str).unwrap_or_default();
                let source = output.paint(Style::Faint, format_args!("{:<10}", part("source")));
                let _ = writeln!(text, "  {source} {}", part("detail"));
            }
        }
    }
    text
}
