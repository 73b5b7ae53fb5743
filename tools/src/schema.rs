//! CycloneDX's schema and a validator for the slow tests, out of their wheels.

use std::path::Path;

use anyhow::Result;
use fixtures::schema::{self, WHEELS};

use crate::folder;
use crate::packages::{self, Package};

/// Fetches both unless they exist.
///
/// # Errors
/// When a wheel cannot be fetched.
pub fn prepare() -> Result<()> {
    if schema::folder().is_dir() {
        return Ok(());
    }
    let fill = |folder: &Path| {
        WHEELS.into_iter().try_for_each(|(wheel, sha256)| packages::unpack(Package::Wheel(wheel, None), sha256, folder))
    };
    folder::announce("the schema of CycloneDX", || folder::place(&schema::folder(), fill))
}
