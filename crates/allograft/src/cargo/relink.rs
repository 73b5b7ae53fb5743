//! Replaces the linker for `cargo allograft bench`: runs the link line of a program once for each arm.
//!
//! The whole compilation before that is done once. rustc removes its object files right after the link, so further
//! links must be done at that time.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output, Stdio};

use serde::{Deserialize, Serialize};

use super::wrapper::written;
use crate::failure::{Failure, mend};
use crate::stand_in::{cannot_run, exit_code};

/// The environment variable that tells this program to act as the linker.
const VARIABLE: &str = "CARGO_ALLOGRAFT_RELINK";
/// The file in an arm's folder with the linker's message if it failed.
const COMPLAINT: &str = "complaint";

/// The settings for linking programs again.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Relink {
    /// The folder for links to this program. A link has the name of the real linker, by which rustc recognises its
    /// kind.
    pub(super) links: PathBuf,
    /// The real linker.
    pub(super) linker: PathBuf,
    /// The folders of all arms, stock's first. Each contains `lib`, a folder with `libc.a`, and `bin`, the folder of
    /// linked programs.
    pub(super) arms: Vec<PathBuf>,
}

/// Returns the folder of an arm's libc.
pub(super) fn lib(arm: &Path) -> PathBuf {
    arm.join("lib")
}

impl Relink {
    pub(super) fn of_environment() -> Option<Relink> {
        serde_json::from_str(&std::env::var(VARIABLE).ok()?).ok()
    }

    /// Makes rustc call this program instead of `linker`.
    pub(super) fn arrange(&self, linker: &OsStr, compiler: &mut Command) -> Result<(), Failure> {
        let cannot = |error: std::io::Error| {
            Failure::usage(format!("cannot link in `{}`: {error}", self.links.display())).with_help(mend(&error))
        };
        let itself = std::env::current_exe().map_err(cannot)?;
        fs::create_dir_all(&self.links).map_err(cannot)?;
        let name = Path::new(linker).file_name().unwrap_or(linker);
        let link = self.links.join(name);
        match std::os::unix::fs::symlink(itself, &link) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(cannot(error)),
            _ => {}
        }
        let mut option = OsString::from("linker=");
        option.push(&link);
        let text = written(&Relink { linker: linker.into(), ..self.clone() })?;
        // The last such option wins.
        compiler.arg("-C").arg(option).env(VARIABLE, text);
        Ok(())
    }

    /// Acts as the linker: links the requested program with stock's libc, then with that of each arm.
    pub(super) fn link(&self, arguments: &[OsString]) -> ExitCode {
        let mut command = Command::new(&self.linker);
        let status = match command.args(arguments).env_remove(VARIABLE).status() {
            Ok(status) if status.success() => status,
            Ok(status) => return exit_code(status),
            Err(error) => return cannot_run(self.linker.as_os_str(), &error),
        };
        for arm in &self.arms {
            let complaint = match self.link_arm(arm, arguments) {
                Ok(output) if output.status.success() => continue,
                Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
                Err(error) => error.to_string(),
            };
            // If the file cannot be written, the missing program is message enough.
            let _ = fs::write(arm.join(COMPLAINT), complaint);
        }
        exit_code(status)
    }

    fn link_arm(&self, arm: &Path, arguments: &[OsString]) -> std::io::Result<Output> {
        let bin = arm.join("bin");
        fs::create_dir_all(&bin)?;
        let stock = lib(&self.arms[0]);
        let mut words = Vec::new();
        let mut is_out = false;
        for (number, word) in arguments.iter().enumerate() {
            let file = word.to_str().and_then(|word| word.strip_prefix('@')).filter(|_| !is_out);
            words.push(match (is_out, file) {
                (true, _) => bin.join(Path::new(word).file_name().unwrap_or_default()).into(),
                (false, Some(list)) => {
                    let list = fs::read_to_string(list)?;
                    let own = arm.join(format!("arguments{number}"));
                    fs::write(&own, of_arm_in_list(&list, &stock, &lib(arm), &bin))?;
                    let mut word = OsString::from("@");
                    word.push(own);
                    word
                }
                (false, None) => match word.to_str() {
                    Some(text) => text.replace(&*stock.to_string_lossy(), &lib(arm).to_string_lossy()).into(),
                    None => word.clone(),
                },
            });
            is_out = word == "-o";
        }
        Command::new(&self.linker).args(words).env_remove(VARIABLE).stdin(Stdio::null()).output()
    }

    /// Returns the arm's program that cargo calls `name`. The error is the reason why it is missing.
    pub(super) fn program(arm: &Path, name: &OsStr) -> Result<PathBuf, String> {
        let crate_name = name.to_string_lossy().replace('-', "_");
        // rustc appends a dash and a number.
        let linked =
            fs::read_dir(arm.join("bin")).into_iter().flatten().flatten().map(|entry| entry.path()).find(|path| {
                let file = path.file_name().unwrap_or_default().to_string_lossy().replace('-', "_");
                file.strip_prefix(&crate_name).is_some_and(|rest| rest.is_empty() || is_number(rest))
            });
        let complaint = || fs::read_to_string(arm.join(COMPLAINT)).unwrap_or_default();
        let linked = linked.ok_or_else(|| match complaint().trim().lines().last() {
            Some(last) => format!("it cannot be linked: {last}"),
            None => "it was not linked".to_owned(),
        })?;
        // Programs may depend on their own name.
        let program = arm.join(name);
        fs::rename(&linked, &program).map_err(|error| format!("cannot rename `{}`: {error}", linked.display()))?;
        Ok(program)
    }
}

fn is_number(rest: &str) -> bool {
    rest.strip_prefix('_')
        .is_some_and(|number| number.len() == 16 && number.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Returns the arguments of a file for an arm. The file has one argument a line, with blanks and backslashes escaped as
/// rustc does it.
fn of_arm_in_list(list: &str, stock: &Path, own: &Path, bin: &Path) -> String {
    let escaped = |path: &Path| path.to_string_lossy().replace('\\', "\\\\").replace(' ', "\\ ");
    let (stock, own) = (escaped(stock), escaped(own));
    let mut lines = Vec::new();
    let mut is_out = false;
    for line in list.lines() {
        lines.push(match is_out {
            true => format!("{}/{}", escaped(bin), line.rsplit('/').next().unwrap_or_default()),
            false => line.replace(&stock, &own),
        });
        is_out = line == "-o";
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A linker that writes its arguments to its output, and fails if a file says so.
    #[test]
    fn the_line_is_run_once_for_each_arm() {
        let folder = tempfile::Builder::new().prefix("allograft re link ").tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let script = "#!/bin/sh\nprintf '%s|' \"$@\" | tee \"$3\" >/dev/null\nfor word; do case $word in @*) cat \"${word#@}\" >>\"$3\";; esac; done\n\
                      case $1 in *bad*) echo 'no such thing' >&2; exit 1;; esac\n";
        fs::write(path("cc"), script).unwrap();
        fs::set_permissions(path("cc"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        for arm in ["stock", "good", "bad"] {
            fs::create_dir_all(path(arm)).unwrap();
        }
        let relink =
            Relink { links: path("links"), linker: path("cc"), arms: vec![path("stock"), path("good"), path("bad")] };
        let stock = lib(&path("stock"));
        let list = format!("-L\n{}\n", stock.display().to_string().replace(' ', "\\ "));
        fs::write(path("list"), list).unwrap();
        let mut first = OsString::from("-L");
        first.push(&stock);
        let out = path("my_app-0123456789abcdef");
        let mut listed = OsString::from("@");
        listed.push(path("list"));
        let _ = relink.link(&[first, "-o".into(), out.clone().into(), listed]);
        assert!(fs::read_to_string(&out).unwrap().contains("stock/lib"));
        let good = Relink::program(&path("good"), OsStr::new("my-app")).unwrap();
        assert_eq!(good, path("good/my-app"));
        let text = fs::read_to_string(good).unwrap();
        assert_eq!(text.matches("good/lib").count(), 2, "{text}");
        assert!(!text.contains("stock"), "{text}");
        let bad = Relink::program(&path("bad"), OsStr::new("other")).unwrap_err();
        assert_eq!(bad, "it cannot be linked: no such thing");
    }
}
