//! Every program can fail: allocators with one fault each (`saboteurs/*.c`), and the programs that have to find it.

use std::fs;
use std::path::{Path, PathBuf};

use fixtures::{Arch, ZigTarget};
use libtest_mimic::{Failed, Trial};

use crate::linking::Host;

/// Seconds after which a forked child counts as hanging where that is what has to be found: each such saboteur costs
/// this, and whoever is only slow is found too.
const SHORT_PATIENCE: &str = "2";
/// Seconds where something else has to be found: a child that is only slow, on a machine that others load, would hide
/// it.
const LONG_PATIENCE: &str = "120";

/// Runs in which a program has to find the fault once.
const TRIES: usize = 8;

/// A line `// Caught by PROGRAM[ at N percent]: TEXT[ | TEXT]...` of a saboteur's source.
struct Finding {
    program: &'static conformance::Program,
    scale: Option<String>,
    texts: Vec<String>,
}

/// `saboteurs/FILE/PROGRAM`: one for each finding that a file announces, and every program for a file that announces
/// none.
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
            trials.push(Trial::test(label, move || expect(&finding, &source)));
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

/// The program fails, and says so in the expected words.
fn expect(finding: &Finding, source: &Path) -> Result<(), Failed> {
    let scale = finding.scale.as_deref().map(|scale| ("ALLOGRAFT_SCALE", scale));
    // Where mappings come to lie is up to chance, and neighbours become one: now and then a system at its limit of
    // mappings refuses nothing, and there is nothing to find.
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
