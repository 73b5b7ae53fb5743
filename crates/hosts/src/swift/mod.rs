//! Installed Swift SDKs. (SwiftPM: `Sources/Basics/FileSystem/FileSystem+Extensions.swift`, `swiftSDKsDirectory`, and
//! `Sources/PackageModel/SwiftSDKs/SwiftSDKBundleStore.swift`.)
//!
//! | module | what lives there |
//! | --- | --- |
//! | `bundle` | the manifest of a Swift SDK bundle |

pub(crate) mod bundle;

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::{env, fs};

use crate::error::{Error, IoContext};
use crate::swift::bundle::swift_sdks_in;

/// The prefix of a target that names an installed Swift SDK.
const PREFIX: &[u8] = b"swift:";

/// Resolves `swift:ID` to the bundle of an installed Swift SDK; returns every other target unchanged.
pub fn locate(target: &Path) -> Result<PathBuf, Error> {
    match target.as_os_str().as_bytes().strip_prefix(PREFIX) {
        Some(id) => installed(&folder_of_sdks(), &String::from_utf8_lossy(id)),
        None => Ok(target.to_owned()),
    }
}

/// The IDs of the installed Swift SDKs, as `swift sdk list` shows them.
///
/// # Errors
/// The folder of SDKs cannot be read.
pub fn installed_swift_sdks() -> Result<Vec<String>, Error> {
    Ok(bundles(&folder_of_sdks())?.iter().flat_map(|bundle| swift_sdks_in(bundle)).collect())
}

/// The folder in which SwiftPM keeps Swift SDKs on Linux.
fn folder_of_sdks() -> PathBuf {
    let variable = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = || variable("HOME").unwrap_or_default().join(".swiftpm");
    variable("XDG_CONFIG_HOME").map_or_else(home, |config| config.join("swiftpm")).join("swift-sdks")
}

/// The bundle with the SDK `id` in the folder of all bundles.
fn installed(folder: &Path, id: &str) -> Result<PathBuf, Error> {
    let mut all = Vec::new();
    let mut found = Vec::new();
    for bundle in bundles(folder)? {
        let sdks = swift_sdks_in(&bundle);
        if sdks.iter().any(|sdk| sdk == id) {
            found.push(bundle);
        }
        all.extend(sdks);
    }
    match found.as_slice() {
        [bundle] => Ok(bundle.clone()),
        _ => {
            let (id, folder) = (id.to_owned(), folder.to_owned());
            Err(Error::SwiftSdk { id, folder, matches: found.len(), installed: all })
        }
    }
}

/// The bundles in the folder of all bundles, sorted.
fn bundles(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut entries: Vec<PathBuf> = match fs::read_dir(folder) {
        Ok(entries) => entries.flatten().map(|entry| entry.path()).collect(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error).context(folder, "read"),
    };
    entries.retain(|path| path.extension().is_some_and(|ending| ending == "artifactbundle"));
    entries.sort();
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::remedy::Remedy;

    #[test]
    fn by_the_name_that_swift_sdk_list_shows() {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, sdk: &str| {
            let bundle = folder.path().join(name);
            fs::create_dir(&bundle).unwrap();
            let manifest = format!("{{\"artifacts\": {{\"{sdk}\": {{\"type\": \"swiftSDK\"}}}}}}");
            fs::write(bundle.join("info.json"), manifest).unwrap();
            bundle
        };
        let one = put("download.artifactbundle", "swift-6.1_static-linux-0.0.1");
        put("other", "not-a-bundle");
        assert_eq!(installed(folder.path(), "swift-6.1_static-linux-0.0.1").unwrap(), one);
        let missing = installed(folder.path(), "not-a-bundle").unwrap_err();
        assert_eq!(missing.exit_code(), 2);
        let Remedy::Advice(advice) = missing.remedy() else { panic!("{missing}") };
        assert!(advice.contains("swift-6.1_static-linux-0.0.1"));
        put("again.artifactbundle", "swift-6.1_static-linux-0.0.1");
        assert!(installed(folder.path(), "swift-6.1_static-linux-0.0.1").is_err());
        assert!(installed(&folder.path().join("missing"), "x").is_err());
    }
}
