//! Programs with rights that their callers lack.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The bits of a file's mode that grant the rights of its owner or group.
pub(crate) const SETUID_OR_SETGID: u32 = 0o6000;

/// Whether the program at `path` has rights that its callers lack: a set-id bit, or capabilities. `false` if the file
/// does not exist.
pub fn is_privileged(path: &Path) -> bool {
    let is_set_id = fs::metadata(path).is_ok_and(|file| file.mode() & SETUID_OR_SETGID != 0);
    is_set_id || rustix::fs::getxattr(path, "security.capability", &mut [0_u8; 64][..]).is_ok()
}
