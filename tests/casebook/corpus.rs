//! Released programs: the inspector names the allocator of each, or reports it as unknown. The answer is the same for a
//! stripped copy.

use std::fs;
use std::process::Command;
use std::time::Duration;

use fixtures::corpus::{self, Released};
use inspector::Report;
use libtest_mimic::{Failed, Trial};

/// The processor time of one inspection, to find one that does not end. A file of 100 MB takes under a second.
const SOON: Duration = Duration::from_secs(60);

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for released in corpus::listed() {
        let name = format!("corpus/{}", released.name);
        let trial = Trial::test(name, move || check(&released).map_err(Failed::from));
        trials.push(fixtures::trials::slow(trial, "corpus"));
    }
    trials
}

fn check(released: &Released) -> Result<(), String> {
    let path = corpus::place(released);
    let bytes =
        fs::read(&path).map_err(|error| format!("`{}`: {error}: run `cargo xtask setup corpus`", path.display()))?;
    let begin = fixtures::processor_time();
    let report = inspector::inspect(&bytes).map_err(|error| error.to_string())?;
    let took = fixtures::processor_time() - begin;
    if took > SOON {
        return Err(format!("it took {took:?}"));
    }
    let mut complaints = compare(released, &report);
    if report.facts.symbols {
        let stripped = if released.arch == std::env::consts::ARCH { strip(&path)? } else { without_table(bytes) };
        let again = inspector::inspect(&stripped).map_err(|error| error.to_string())?;
        complaints.extend(compare(released, &again).into_iter().map(|complaint| format!("stripped: {complaint}")));
        for (before, after) in [
            (Some(&report.malloc), Some(&again.malloc)),
            (report.language_allocator.as_ref(), again.language_allocator.as_ref()),
        ] {
            let told =
                |allocator: Option<&inspector::Allocator>| allocator.map(|it| (it.name.clone(), it.version.clone()));
            if told(before) != told(after) {
                complaints.push(format!("{:?} became {:?} when it was stripped", told(before), told(after)));
            }
        }
    }
    if complaints.is_empty() { Ok(()) } else { Err(format!("{}\n{report:#?}", complaints.join("\n"))) }
}

/// Returns the wrong answers: all but the right one and "unknown", and "unknown" too if the answer can be found.
fn compare(released: &Released, report: &Report) -> Vec<String> {
    let word = |value: serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let field = |name: &str| word(serde_json::to_value(report).unwrap_or_default()[name].take());
    let mut complaints = Vec::new();
    for (name, expected) in [
        ("kind", Some(released.kind.as_str())),
        ("arch", Some(released.arch.as_str())),
        ("link", released.link.as_deref()),
    ] {
        let found = field(name);
        if found != expected.unwrap_or_default() {
            complaints.push(format!("{name} is {expected:?}, and it says {found}"));
        }
    }
    let libc = field("libc");
    if libc != released.libc && libc != "unknown" {
        complaints.push(format!("libc is {}, and it says {libc}", released.libc));
    }
    let is_wrong = |found: &str, expected: &str| found != expected && (released.known || found != "unknown");
    if is_wrong(&report.malloc.name, &released.malloc) {
        complaints.push(format!("malloc is {}, and it says {}", released.malloc, report.malloc.name));
    }
    let language = report.language_allocator.as_ref();
    let found = language.map_or("none", |allocator| allocator.name.as_str());
    // A missing answer is not wrong, unless the answer can be found.
    let expected = released.language.as_deref().unwrap_or("none");
    if is_wrong(found, expected) && (released.known || found != "none") {
        complaints.push(format!("the language's allocator is {expected}, and it says {found}"));
    }
    let version = language.and_then(|allocator| allocator.version.as_deref());
    if version.is_some() && found != "go" && version != released.language_version.as_deref() {
        complaints.push(format!("its version is {:?}, and it says {version:?}", released.language_version));
    }
    complaints
}

fn strip(path: &std::path::Path) -> Result<Vec<u8>, String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let copy = folder.path().join("stripped");
    let output = Command::new("strip").arg("-s").arg("-o").arg(&copy).arg(path).output();
    let output = output.map_err(|error| format!("strip: {error}"))?;
    if !output.status.success() {
        return Err(format!("strip: {}", String::from_utf8_lossy(&output.stderr)));
    }
    fs::read(copy).map_err(|error| error.to_string())
}

/// Removes the symbol table from the list of sections of a file for a foreign architecture, which this machine's strip
/// may not know.
fn without_table(mut bytes: Vec<u8>) -> Vec<u8> {
    let half = |bytes: &[u8], at: usize| usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
    let headers = u64::from_le_bytes(bytes[40..48].try_into().unwrap_or_default()) as usize;
    let (size, count) = (half(&bytes, 58), half(&bytes, 60));
    for header in (0..count).map(|index| headers + size * index) {
        const SHT_SYMTAB: [u8; 4] = [2, 0, 0, 0];
        if bytes[header + 4..header + 8] == SHT_SYMTAB {
            bytes[header + 4..header + 8].fill(0);
        }
    }
    bytes
}
