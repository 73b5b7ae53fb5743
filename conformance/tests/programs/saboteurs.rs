//! Tests that every program can fail: allocators with one fault each (`saboteurs/*.c`), and the programs that must find
//! it.

use std::fs;
use std::path::{Path, PathBuf};

use fixtures::trials::in_group;
use fixtures::{Arch, ZigTarget};
use libtest_mimic::{Failed, Trial};

use crate::linking::Host;

/// The time in seconds after which a forked child counts as hanging, if a hang is the fault to find. Each such saboteur
/// takes this long. A child that is only slow counts as hanging, too.
const SHORT_PATIENCE: &str = "2";
/// The time in seconds if a different fault is to be found. It is long, because a child that is merely slow on a loaded
/// machine would hide that fault.
const LONG_PATIENCE: &str = "120";

/// The number of runs in which a program has to find the fault at least once.
const TRIES: usize = 8;

/// A line `// Caught by PROGRAM[ at N percent]: TEXT[ | TEXT]...` of a saboteur's source.
struct Finding {
    program: &'static conformance::Program,
    scale: Option<String>,
    texts: Vec<String>,
}

/// Returns the trials `saboteurs/FILE/PROGRAM`: one for each finding that a file announces, or every program if a file
/// announces none.
pub(crate) fn trials() -> Result<Vec<Trial>, Failed> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join("saboteurs");
    let mut sources: Vec<PathBuf> =
        fs::read_dir(&folder)?.map(|entry| Ok(entry?.path())).collect::<Result<_, Failed>>()?;
    sources.retain(|path| path.extension().is_some_and(|extension| extension == "c"));
    sources.sort();

    let mut trials = Vec::new();
    let mut unproven: Vec<&str> = conformance::programs().iter().map(|program| program.name).collect();
    for source in sources {
        let name = source.file_stem().and_then(|stem| stem.to_str()).ok_or("a saboteur without a name")?.to_owned();
        let findings = findings(&fs::read_to_string(&source)?)?;
        if findings.is_empty() {
            trials.extend(conformance::programs().iter().map(|program| {
                let source = source.clone();
                let settings = [("ALLOGRAFT_HANG_SECONDS", LONG_PATIENCE)];
                Trial::test(format!("saboteurs/{name}/{}", program.name), move || check(program, &source, &settings))
            }));
        }
        for finding in findings {
            unproven.retain(|program| *program != finding.program.name);
            let source = source.clone();
            let label = format!("saboteurs/{name}/{}", finding.program.name);
            // A leak shows after many threads or forks, which take ten seconds.
            let group = name.starts_with("leaks_").then_some("minutes");
            trials.push(in_group(Trial::test(label, move || expect(&finding, &source)), group));
        }
    }
    trials.push(Trial::test("saboteurs/every_program_is_proven", move || match unproven.is_empty() {
        true => Ok(()),
        false => Err(format!("no saboteur is caught by {}", unproven.join(", ")).into()),
    }));
    Ok(trials)
}

fn findings(source: &str) -> Result<Vec<Finding>, Failed> {
    let lines = source.lines().filter_map(|line| line.strip_prefix("// Caught by "));
    lines.map(|line| finding(line).ok_or_else(|| format!("cannot read `Caught by {line}`").into())).collect()
}

fn finding(line: &str) -> Option<Finding> {
    let (program, texts) = line.split_once(": ")?;
    let (program, scale) = match program.split_once(" at ") {
        Some((program, scale)) => (program, Some(scale.strip_suffix(" percent")?.to_owned())),
        None => (program, None),
    };
    let texts = texts.split(" | ").map(str::to_owned).collect();
    Some(Finding { program: conformance::find(program)?, scale, texts })
}

/// Asserts that the program fails with the expected text.
fn expect(finding: &Finding, source: &Path) -> Result<(), Failed> {
    let scale = finding.scale.as_deref().map(|scale| ("ALLOGRAFT_SCALE", scale));
    // The addresses of mappings are random, and adjacent mappings merge. So a system at its limit of mappings sometimes
    // refuses nothing, and there is no fault to find.
    let hangs = finding.texts.iter().any(|text| text.contains("hang"));
    let patience = ("ALLOGRAFT_HANG_SECONDS", if hangs { SHORT_PATIENCE } else { LONG_PATIENCE });
    let settings: Vec<(&str, &str)> = scale.into_iter().chain([patience]).collect();
    let found = (0..TRIES).find_map(|_| check(finding.program, source, &settings).err());
    let Some(failed) = found else {
        return Err(format!("{} found nothing wrong in {TRIES} runs", finding.program.name).into());
    };
    let said = failed.message().unwrap_or_default();
    match finding.texts.iter().any(|text| said.contains(text)) {
        true => Ok(()),
        false => Err(format!("expected one of {:?}, found: {said}", finding.texts).into()),
    }
}

fn check(program: &conformance::Program, source: &Path, settings: &[(&str, &str)]) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let object = folder.path().join("saboteur.o");
    let arguments =
        ["cc", "-target", Arch::X86_64.triple(), "-O2", "-g0", "-fPIE", "-fno-builtin", "-fno-sanitize=all"];
    let mut command = fixtures::zig().command();
    command.args(arguments).args(["-Wall", "-Wextra", "-Werror", "-c"]).arg(source).arg("-o").arg(&object);
    let output = command.output()?;
    if !output.status.success() {
        return Err(format!("`{command:?}`:\n{}", String::from_utf8_lossy(&output.stderr)).into());
    }
    Host::debian(Arch::X86_64, "-no-pie").check(program, &[object], settings)
}
