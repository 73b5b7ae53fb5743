//! A trial of one program.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use fixtures::{installed, released};

/// The donors beside the default one, which take turns. The first three can be put into static programs, too.
const DONORS: [&str; 7] =
    ["mimalloc", "mimalloc-secure", "snmalloc-checks", "mimalloc3", "jemalloc", "rpmalloc", "scudo"];

/// Returns the donor that a dynamic program of this index is tried with beside the default one.
pub(crate) fn for_dynamic(index: usize) -> &'static str {
    DONORS[index % DONORS.len()]
}

/// Returns the donor that a static program of this index is tried with beside the default one.
pub(crate) fn for_static(index: usize) -> &'static str {
    DONORS[index % 3]
}

/// Does the work by stock and by each graft. `$P` is the program, `$SECOND` the second donor. Prints `whole` at its
/// end. Some programs change their way if their standard error is a file that grows, so that of each run is a file of
/// its own.
const TRY: &str = r#"
say() { echo "$*"; exit 1; }
work() { timeout -k 5 600 sh script.sh >"$1.out" 2>"$1.err" </dev/null; echo "exit code $?" >>"$1.out"; }
tell() { head -c 2000 "$1"; }
sh prepare.sh >prepare.said 2>&1 </dev/null || say "no input: $(tell prepare.said)"
work stock
test "$(wc -c <stock.out)" -gt 13 || say "stock has no result: $(tell stock.err)"
cp -p "$P" stock
for donor in snmalloc "$SECOND"; do
	./allograft graft "$P" --donor $donor >graft.said 2>&1 || say "$donor: graft ended with $?: $(tell graft.said)"
	./allograft inspect --expect $donor "$P" >said 2>&1 || say "$donor: inspect ended with $?: $(tell said)"
	work graft
	if ! cmp -s stock.out graft.out; then
		mv graft.out first.out
		diff stock.out first.out >difference
		./allograft undo "$P" >said 2>&1; mv stock.out once.out; work stock
		cmp -s once.out stock.out || say "stock has another result each time: $(diff once.out stock.out | head -5)"
		say "$donor: another result: $(tell difference) $(tail -3 graft.err)"
	fi
	./allograft verify "$P" >said 2>&1 || say "$donor: verify ended with $?: $(tell said)"
	./allograft undo "$P" >said 2>&1 || say "$donor: undo ended with $?: $(tell said)"
	cmp stock "$P" || say "$donor: undo gave other bytes"
done
echo whole
"#;

/// Tries to graft, and prints what is said and the exit code.
const REFUSE: &str = "./allograft graft \"$P\"; echo \"exit code $?\"\n";

/// Tries a program of the Debian as installed.
pub(crate) fn installed(program: &installed::Program, second: &str) -> Result<(), String> {
    if let Some(reason) = installed::unavailable() {
        eprintln!("skipped: {reason}");
        return Ok(());
    }
    let lab = tempfile::tempdir().map_err(|error| error.to_string())?;
    let (work, scratch) = (lab.path().join("work"), lab.path().join("scratch"));
    for folder in [&work, &scratch] {
        fs::create_dir(folder).map_err(|error| error.to_string())?;
    }
    fill(&work, &program.prepare, &program.script)?;
    let script = format!("export P={} SECOND={second}\n{}", program.path.display(), tried(program.refused.as_ref()));
    judge(&mut installed::command(&work, &scratch, &script), program.refused.as_deref())
}

/// Tries a released static program. It has a network of its own where the machine permits that, so that it finds none.
pub(crate) fn released(program: &released::Program, second: &str) -> Result<(), String> {
    if std::env::consts::ARCH != "x86_64" {
        eprintln!("skipped: the programs are for x86_64");
        return Ok(());
    }
    let lab = tempfile::tempdir().map_err(|error| error.to_string())?;
    let work = lab.path();
    fill(work, &program.prepare, &program.script)?;
    let place = program.place();
    let copy = work.join("bin").join(&program.name);
    fs::create_dir_all(work.join("bin")).map_err(|error| error.to_string())?;
    fs::create_dir_all(work.join("home")).map_err(|error| error.to_string())?;
    fs::copy(&place, &copy).map_err(|error| {
        format!("`{}`: {error}\nhelp: `cargo xtask setup released corpus` fetches it", place.display())
    })?;
    let alone = ["--map-root-user", "--net", "--mount", "--pid", "--mount-proc", "--fork", "--kill-child"];
    let can = Command::new("unshare").args(alone).arg("true").stderr(Stdio::null()).status();
    let mut command = if can.is_ok_and(|status| status.success()) {
        let mut command = Command::new("unshare");
        command.args(alone).arg("bash");
        command
    } else {
        Command::new("bash")
    };
    let script = format!("export P={} SECOND={second}\n{}", copy.display(), tried(program.refused.as_ref()));
    command.args(["-c", &script]).current_dir(work).env_clear();
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    // cargo may be rustup's, which looks for itself in the home folder.
    let own = |name: &str, folder: &str| {
        let default = || std::env::home_dir().unwrap_or_default().join(folder).into_os_string();
        std::env::var_os(name).unwrap_or_else(default)
    };
    let (cargo, rustup) = (own("CARGO_HOME", ".cargo"), own("RUSTUP_HOME", ".rustup"));
    for (name, value) in [
        ("PATH", std::env::var_os("PATH").unwrap_or_default().as_os_str()),
        ("HOME", work.join("home").as_os_str()),
        ("CONTENTS", place.with_file_name("contents").as_os_str()),
        ("SOURCES", sources.as_os_str()),
        ("CARGO_HOME", cargo.as_os_str()),
        ("RUSTUP_HOME", rustup.as_os_str()),
        ("LC_ALL", OsStr::new("C.UTF-8")),
    ] {
        command.env(name, value);
    }
    judge(&mut command, program.refused.as_deref())
}

fn tried(refused: Option<&String>) -> &'static str {
    if refused.is_some() { REFUSE } else { TRY }
}

fn fill(work: &Path, prepare: &str, script: &str) -> Result<(), String> {
    fs::copy(env!("CARGO_BIN_EXE_allograft"), work.join("allograft")).map_err(|error| error.to_string())?;
    fs::write(work.join("prepare.sh"), prepare).map_err(|error| error.to_string())?;
    fs::write(work.join("script.sh"), script).map_err(|error| error.to_string())
}

/// Runs the trial, and compares what it says with what the row expects.
fn judge(command: &mut Command, refused: Option<&str>) -> Result<(), String> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("{command:?}: {error}"))?;
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    let is_right = match refused {
        None => said == "whole\n",
        Some(reason) => said.contains(reason) && said.contains("exit code 3"),
    };
    if is_right { Ok(()) } else { Err(said.into_owned()) }
}
