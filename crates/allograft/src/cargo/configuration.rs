//! Reads cargo's configuration: `build.target` and the programs that cargo calls.
//!
//! Cargo reads `.cargo/config.toml` of the current folder and of those above it, then that of its home; nearer files
//! win (The Cargo Book, Configuration). `cargo config get` would print it, but is not stable; the crate `cargo-config2`
//! (0.1.45) does not take cargo's own `--config`, whose values win over all files.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

use crate::failure::Failure;

/// The whole configuration, the strongest source first: `--config`, then files. The environment is read elsewhere.
#[derive(Debug, Default)]
pub(super) struct Configuration {
    /// The sources, each with the folder that its paths are relative to.
    sources: Vec<(Option<PathBuf>, Table)>,
}

impl Configuration {
    /// Reads the configuration of cargo in `folder` with these values of `--config`.
    pub(super) fn read(folder: &Path, given: &[OsString]) -> Result<Configuration, Failure> {
        let mut sources = Vec::new();
        // Later values win over earlier ones.
        for text in given.iter().rev() {
            let path = folder.join(text);
            match path.is_file() {
                true => sources.push((Some(folder.to_owned()), table(&path)?)),
                // Cargo itself reports a value that is neither.
                false => sources.extend(text.to_str().and_then(|text| Some((None, text.parse::<Table>().ok()?)))),
            }
        }
        let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
        let home = home.or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cargo")));
        let mut folders: Vec<PathBuf> = folder.ancestors().map(|folder| folder.join(".cargo")).collect();
        folders.extend(home.filter(|home| !folders.contains(home)));
        for folder in folders {
            // The older name wins where both are there.
            let path = ["config", "config.toml"].map(|name| folder.join(name)).into_iter().find(|path| path.is_file());
            if let Some(path) = path {
                sources.push((folder.parent().map(Path::to_owned), table(&path)?));
            }
        }
        Ok(Configuration { sources })
    }

    /// Returns the first value of `build.KEY`, and the folder that a path in it is relative to.
    fn build(&self, key: &str) -> Option<(&Value, Option<&Path>)> {
        self.sources.iter().find_map(|(folder, table)| Some((table.get("build")?.get(key)?, folder.as_deref())))
    }

    /// Returns `build.target`: one or several.
    pub(super) fn targets(&self) -> Vec<String> {
        match self.build("target") {
            Some((Value::String(target), _)) => vec![target.clone()],
            Some((Value::Array(targets), _)) => {
                targets.iter().filter_map(|target| target.as_str().map(str::to_owned)).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Whether intermediate files have a folder other than the target folder.
    pub(super) fn has_build_folder(&self) -> bool {
        let variable = std::env::var_os("CARGO_BUILD_BUILD_DIR").filter(|folder| !folder.is_empty());
        variable.is_some() || self.build("build-dir").is_some()
    }

    /// Returns a program that cargo calls, from the environment variable, else from `build.KEY`.
    pub(super) fn program(&self, variable: &str, key: &str) -> Option<OsString> {
        if let Some(program) = std::env::var_os(variable).filter(|program| !program.is_empty()) {
            return Some(program);
        }
        let (value, folder) = self.build(key)?;
        let name = value.as_str().filter(|name| !name.is_empty())?;
        // A bare name is searched on the command path.
        Some(match folder {
            Some(folder) if name.contains('/') => folder.join(name).into(),
            _ => name.into(),
        })
    }
}

fn table(path: &Path) -> Result<Table, Failure> {
    let cannot = |problem: String| {
        Failure::usage(format!("cannot read `{}`: {problem}", path.display()))
            .with_help("cargo reads this file, too: mend it, or its permissions")
    };
    let text = fs::read_to_string(path).map_err(|error| cannot(error.to_string()))?;
    text.parse().map_err(|error: toml::de::Error| cannot(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_file_wins_and_the_command_line_over_all() {
        let root = tempfile::tempdir().unwrap();
        let inner = root.path().join("a/b");
        fs::create_dir_all(inner.join(".cargo")).unwrap();
        fs::create_dir_all(root.path().join(".cargo")).unwrap();
        let far = "[build]\ntarget = \"far\"\nrustdoc = \"tools/doc\"\n";
        fs::write(root.path().join(".cargo/config.toml"), far).unwrap();
        fs::write(inner.join(".cargo/config.toml"), "[build]\ntarget = [\"near\", \"other\"]\n").unwrap();
        let read = |given: &[&str]| {
            Configuration::read(&inner, &given.iter().map(OsString::from).collect::<Vec<_>>()).unwrap()
        };
        assert_eq!(read(&[]).targets(), ["near", "other"]);
        assert_eq!(read(&["build.target=\"typed\""]).targets(), ["typed"]);
        assert_eq!(read(&[]).program("NO_SUCH_VARIABLE", "rustdoc").unwrap(), root.path().join("tools/doc"));
        fs::write(inner.join(".cargo/config.toml"), "[build").unwrap();
        assert_eq!(Configuration::read(&inner, &[]).unwrap_err().exit_code, 2);
    }
}
