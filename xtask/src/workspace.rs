//! Folders of the checkout and of its build folder.

use std::path::{Path, PathBuf};

/// The root of the checkout.
pub fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest).to_owned()
}

/// `target` in the checkout: tools, fixtures and the demo live there wherever CARGO_TARGET_DIR points.
pub fn build() -> PathBuf {
    zigcc::build_folder(Path::new(env!("CARGO_MANIFEST_DIR")))
}

/// zig's own compiled files.
pub fn zig_cache() -> PathBuf {
    build().join("zig-cache")
}

/// `path` as it is shown to people: relative to the checkout where it lies below it.
pub fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}
