//! The manifest of a Swift SDK bundle, `info.json` (Swift evolution SE-0305 and SE-0387).

use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde_json::Value;

/// The names of the Swift SDKs that an `info.json` lists, in the spelling of `swift sdk list` and `--swift-sdk`,
/// sorted; empty if it is not the manifest of such a bundle.
pub(crate) fn swift_sdks(manifest: &[u8]) -> Vec<String> {
    let Ok(manifest) = serde_json::from_slice::<Value>(manifest) else { return Vec::new() };
    let artifacts = manifest["artifacts"].as_object();
    let is_sdk = |artifact: &Value| {
        // The second is the name before Swift 6.0.
        matches!(artifact["type"].as_str(), Some("swiftSDK" | "crossCompilationDestination"))
    };
    let mut names: Vec<String> = artifacts
        .into_iter()
        .flatten()
        .filter(|(_, artifact)| is_sdk(artifact))
        .map(|(name, _)| name.clone())
        .collect();
    names.sort();
    names
}

/// Returns the Swift SDKs of an unpacked bundle; empty if the folder is not a bundle.
pub(crate) fn swift_sdks_in(folder: &Path) -> Vec<String> {
    let mut manifest = Vec::new();
    let path = folder.join("info.json");
    // Opening a pipe without a writer would block forever.
    if !path.is_file() {
        return Vec::new();
    }
    match File::open(path).and_then(|file| file.take(1 << 20).read_to_end(&mut manifest)) {
        Ok(_) => swift_sdks(&manifest),
        Err(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sdks_count() {
        let manifest = br#"{ "schemaVersion": "1.0", "artifacts": {
            "two": { "variants": [ { "path": "two/swift-linux-musl" } ], "version": "0.0.1", "type": "swiftSDK" },
            "one": { "variants": [], "version": "0.0.1", "type": "swiftSDK" },
            "tool": { "variants": [], "version": "1", "type": "executable" } } }"#;
        assert_eq!(swift_sdks(manifest), ["one", "two"]);
        for other in [&b""[..], b"{}", b"[]", b"{\"artifacts\": 1}", b"{\"artifacts\": {\"a\": 1}}"] {
            assert!(swift_sdks(other).is_empty());
        }
    }
}
