//! The CI integrations: their shell steps run verbatim, with the program of this build in a release's archive.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use fixtures::Ran;
use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::lab::Lab;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A composite action, as far as a runner needs it here.
#[derive(Deserialize)]
struct Action {
    inputs: BTreeMap<String, Input>,
    runs: Runs,
}

#[derive(Deserialize)]
struct Input {
    default: String,
}

#[derive(Deserialize)]
struct Runs {
    steps: Vec<Step>,
}

#[derive(Deserialize)]
struct Step {
    #[serde(rename = "if")]
    condition: Option<String>,
    shell: String,
    env: BTreeMap<String, String>,
    run: String,
}

/// A GitLab job.
#[derive(Deserialize)]
struct Job {
    #[serde(default)]
    variables: BTreeMap<String, String>,
    #[serde(default)]
    before_script: Vec<String>,
    #[serde(default)]
    script: Vec<String>,
}

fn integration<T: for<'de> Deserialize<'de>>(path: &str) -> T {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../integrations").join(path);
    let text = fs::read_to_string(&path).unwrap();
    serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Packs the program as `cargo xtask release` does. Returns the archive, which is in a folder that looks like a
/// release's downloads.
fn archive(lab: &Lab) -> PathBuf {
    let name = format!("allograft-{VERSION}-{}-unknown-linux-musl", std::env::consts::ARCH);
    let path = lab.path(format!("downloads/owner/allograft/releases/download/v{VERSION}/{name}.tar.gz"));
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let file = fs::File::create(&path).unwrap();
    let mut tar = tar::Builder::new(flate2::write::GzEncoder::new(file, flate2::Compression::fast()));
    tar.append_path_with_name(env!("CARGO_BIN_EXE_allograft"), format!("{name}/allograft")).unwrap();
    tar.into_inner().unwrap().finish().unwrap();
    let sum: String = Sha256::digest(fs::read(&path).unwrap()).iter().map(|byte| format!("{byte:02x}")).collect();
    let other = "0".repeat(64);
    fs::write(path.with_file_name("SHA256SUMS"), format!("{other}  other.deb\n{sum}  {name}.tar.gz\n")).unwrap();
    path
}

/// Runs the action with these inputs as GitHub's runner does. Returns the last step's run, and the job's summary.
fn github(lab: &Lab, given: &[(&str, &str)]) -> (Ran, String) {
    let action: Action = integration("github/action.yml");
    let mut inputs: BTreeMap<&str, &str> =
        action.inputs.iter().map(|(name, input)| (name.as_str(), input.default.as_str())).collect();
    for (name, value) in given {
        assert!(inputs.insert(name, value).is_some(), "the action has no input `{name}`");
    }
    let term = |term: &str| match term.trim().strip_prefix("inputs.") {
        Some(name) => inputs[name].to_owned(),
        None if term.trim() == "github.action_repository" => "owner/allograft".to_owned(),
        None => panic!("what is `{term}`?"),
    };
    let value = |text: &str| match text.strip_prefix("${{").and_then(|text| text.strip_suffix("}}")) {
        Some(terms) => terms.split("||").map(term).find(|value| !value.is_empty()).unwrap_or_default(),
        None => panic!("`{text}` is no expression"),
    };
    let at = |name: &str| lab.path(name);
    fs::create_dir_all(at("runner")).unwrap();
    fs::write(at("runner/path"), "").unwrap();
    fs::write(at("runner/summary"), "").unwrap();
    let mut last = None;
    for step in &action.runs.steps {
        let wanted = step.condition.as_ref().is_none_or(|condition| {
            let (name, none) = condition.split_once(" != ").unwrap();
            assert_eq!(none, "''");
            !term(name).is_empty()
        });
        if !wanted {
            continue;
        }
        assert_eq!(step.shell, "bash");
        let mut run = Command::new("bash");
        // The command that the runner calls for `shell: bash`.
        run.args(["--noprofile", "--norc", "-eo", "pipefail", "-c", &step.run])
            .current_dir(at(""))
            .stdin(Stdio::null());
        let mut path: Vec<PathBuf> =
            fs::read_to_string(at("runner/path")).unwrap().lines().map(PathBuf::from).collect();
        path.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap()));
        run.env("PATH", std::env::join_paths(path).unwrap()).env("RUNNER_TEMP", at("runner"));
        run.env("GITHUB_PATH", at("runner/path")).env("GITHUB_STEP_SUMMARY", at("runner/summary"));
        run.env("GITHUB_SERVER_URL", format!("file://{}", at("downloads").display()));
        run.envs(step.env.iter().map(|(name, text)| (name, value(text))));
        let ran: Ran = run.output().unwrap().into();
        let failed = ran.code != 0;
        last = Some(ran);
        if failed {
            break;
        }
    }
    (last.unwrap(), fs::read_to_string(at("runner/summary")).unwrap())
}

#[test]
fn the_action_grafts_verifies_and_checks() {
    let lab = Lab::new();
    archive(&lab);
    lab.libc("sysroot/lib/libc.a");
    let options = ("options", "--strings off --set purge_delay=0");
    let inputs = [("graft", "sysroot\n"), ("donor", "mimalloc3"), options, ("verify", "--static-only")];
    let (ran, summary) = github(&lab, &inputs);
    assert!(ran.out.contains("mimalloc3") && ran.out.contains("checks passed"), "{}\n{}", ran.out, ran.err);
    let ran = ran.exits(0);
    assert_eq!((summary.as_str(), ran.err.contains("error")), ("", false), "{}", ran.err);
    // The programs of a release, without and with one that is not as expected.
    let (ran, summary) = github(&lab, &[("check", "\nsysroot/lib/libc.a\n"), ("expect", "mimalloc3")]);
    ran.exits(0);
    assert!(summary.contains("All of them carry mimalloc3.") && summary.contains("libc.a"), "{summary}");
    lab.libc("sysroot/lib/stock.a");
    let (ran, summary) = github(&lab, &[("check", "sysroot"), ("donor", "mimalloc3")]);
    ran.exits(1);
    assert!(summary.contains("**Not all of them carry mimalloc3.**") && summary.contains("mallocng"), "{summary}");
}

#[test]
fn the_action_takes_no_other_archive_than_the_release_s() {
    let lab = Lab::new();
    let archive = archive(&lab);
    let (ran, _) = github(&lab, &[("archive", archive.to_str().unwrap())]);
    assert!(ran.exits(0).out.starts_with(&format!("allograft {VERSION}\n")));
    // The download does not have the checksum that the list has for it.
    let lab = Lab::new();
    let archive = self::archive(&lab);
    let mut bytes = fs::read(&archive).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&archive, bytes).unwrap();
    let (ran, _) = github(&lab, &[]);
    assert!(ran.code != 0 && !lab.path("runner/allograft/allograft").exists(), "{}", ran.out);
}

/// Runs the scripts of GitLab's jobs, one after the other in one shell, as its runner does.
fn gitlab(lab: &Lab, given: &[(&str, &str)]) -> Ran {
    let mut jobs: BTreeMap<String, Job> = integration("gitlab/allograft.yml");
    let job = jobs.remove(".allograft").unwrap();
    let mut variables = job.variables;
    for (name, value) in given {
        assert!(variables.insert((*name).to_owned(), (*value).to_owned()).is_some(), "there is no variable `{name}`");
    }
    let check = jobs.remove(".allograft-check").unwrap();
    let scripts: Vec<String> = job.before_script.into_iter().chain(check.script).collect();
    let mut run = Command::new("sh");
    run.args(["-c", &scripts.join("\n")]).current_dir(lab.path("")).stdin(Stdio::null()).envs(variables);
    run.output().unwrap().into()
}

#[test]
fn gitlab_s_job_grafts_verifies_and_checks() {
    let lab = Lab::new();
    let archive = archive(&lab);
    lab.libc("sysroot/lib/libc.a");
    lab.libc("sysroot/other place/libc.a");
    let archive = format!("file://{}", archive.display());
    let one = [
        ("ALLOGRAFT_ARCHIVE", archive.as_str()),
        ("ALLOGRAFT_GRAFT", "sysroot/lib/libc.a\n"),
        ("ALLOGRAFT_VERIFY", "--static-only"),
    ];
    let both = [one.as_slice(), &[("ALLOGRAFT_CHECK", "sysroot/lib/libc.a\nsysroot/other place/libc.a\n")]].concat();
    // The second is stock's.
    gitlab(&lab, &both).exits(1);
    let report = fs::read_to_string(lab.path("allograft.txt")).unwrap();
    assert!(report.contains("snmalloc ") && report.contains("mallocng"), "{report}");
    let all = [("ALLOGRAFT_GRAFT", "sysroot/lib/libc.a\nsysroot/other place/libc.a"), ("ALLOGRAFT_SHA256", "")];
    let ran = gitlab(&lab, &[both.as_slice(), &all].concat()).exits(0);
    assert!(ran.out.contains("checks passed"), "{}", ran.out);
    let zeros = "0".repeat(64);
    let wrong = [both.as_slice(), &[("ALLOGRAFT_SHA256", zeros.as_str())]].concat();
    assert!(gitlab(&lab, &wrong).code != 0);
}

/// Bazel's repository has a library for each donor.
#[test]
fn bazel_s_rules_know_every_donor() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../integrations/bazel/repository.bzl");
    let text = fs::read_to_string(path).unwrap();
    let (_, list) = text.split_once("DONORS = [").unwrap();
    let (list, _) = list.split_once(']').unwrap();
    let listed: Vec<&str> = list.split('"').skip(1).step_by(2).collect();
    let lab = Lab::new();
    let said: serde_json::Value = serde_json::from_str(&lab.run(["donors", "--json"]).exits(0).out).unwrap();
    let donors = said["donors"].as_array().unwrap().iter().map(|donor| donor["name"].as_str().unwrap());
    // Only donors of malloc count here.
    let donors = donors.filter(|name| *name != "strings");
    assert_eq!(listed, donors.collect::<Vec<_>>());
}
