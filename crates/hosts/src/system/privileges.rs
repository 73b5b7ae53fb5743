//! Programs with other rights than their callers.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The bits of a file's mode that give rights of its owner or group.
pub(crate) const SETUID_OR_SETGID: u32 = 0o6000;

/// Whether the program at `path` has other rights than its callers: a set-id bit, or capabilities. False if there is no
/// such file.
pub fn is_privileged(path: &Path) -> bool {
    let is_set_id = fs::metadata(path).is_ok_and(|file| file.mode() & SETUID_OR_SETGID != 0);
    is_set_id || rustix::fs::getxattr(path, "security.capability", &mut [0_u8; 64][..]).is_ok()
}
