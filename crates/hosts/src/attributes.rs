//! Mode, owner, extended attributes and times of a file, carried over to the file that takes its place.

use std::ffi::OsString;
use std::fs::{File, Permissions};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};

use rustix::fs::{XattrFlags, fgetxattr, flistxattr, fsetxattr};

/// The bits of `st_mode` that chmod sets.
const MODE: u32 = 0o7777;

/// Gives `to` the mode of `from`, and its owner and extended attributes as far as the system permits.
///
/// The mode is exact or an error; the umask has no say. Returns what could not be carried over, as clauses whose subject is the file.
pub(crate) fn carry(from: &File, to: &File) -> io::Result<Vec<String>> {
    let mut lost = Vec::new();
    let wanted = from.metadata()?;
    let have = to.metadata()?;
    // The group alone can be given by its members, the owner by root only.
    if have.gid() != wanted.gid() && fchown(to, None, Some(wanted.gid())).is_err() {
        lost.push(format!("could not keep its group {}", wanted.gid()));
    }
    if have.uid() != wanted.uid() && fchown(to, Some(wanted.uid()), None).is_err() {
        lost.push(format!("could not keep its owner {}", wanted.uid()));
    }
    for name in extended_names(from)? {
        if let Err(error) = carry_extended(from, to, &name) {
            lost.push(format!("could not keep its extended attribute `{}`: {error}", name.display()));
        }
    }
    // Last, since chown clears the set-id bits and an ACL changes the group's.
    to.set_permissions(Permissions::from_mode(wanted.mode() & MODE))?;
    Ok(lost)
}

/// Gives `to` the access and modification time of `from`.
pub(crate) fn carry_times(from: &File, to: &File) -> io::Result<()> {
    let times = from.metadata()?;
    to.set_times(std::fs::FileTimes::new().set_accessed(times.accessed()?).set_modified(times.modified()?))
}

fn extended_names(file: &File) -> io::Result<Vec<OsString>> {
    let mut list = [0_u8; 0x1_0000];
    match flistxattr(file, &mut list) {
        Ok(length) => Ok(list[..length]
            .split(|&byte| byte == 0)
            .filter(|name| !name.is_empty())
            .map(|name| OsString::from_vec(name.to_vec()))
            .collect()),
        // No extended attributes on this file system.
        Err(rustix::io::Errno::NOTSUP | rustix::io::Errno::NOSYS) => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}

fn carry_extended(from: &File, to: &File, name: &OsString) -> io::Result<()> {
    let mut value = vec![0_u8; 0x1_0000];
    let length = fgetxattr(from, name, &mut value[..])?;
    let value = &value[..length];
    let mut present = vec![0_u8; 0x1_0000];
    // A security label that the system has already given to the new file cannot always be set, and need not.
    if fgetxattr(to, name, &mut present[..]).is_ok_and(|length| &present[..length] == value) {
        return Ok(());
    }
    Ok(fsetxattr(to, name, value, XattrFlags::empty())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extended_attributes_and_mode_go_along() {
        let (from, to) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        from.set_permissions(Permissions::from_mode(0o2640)).unwrap();
        let mut expected = Vec::new();
        // Not every file system takes attributes; where it does, they have to arrive.
        if fsetxattr(&from, "user.allograft", b"kept", XattrFlags::empty()).is_ok() {
            expected.push(OsString::from("user.allograft"));
        }
        assert_eq!(carry(&from, &to).unwrap(), Vec::<String>::new());
        assert_eq!(to.metadata().unwrap().mode() & MODE, 0o2640);
        let names: Vec<_> = extended_names(&to)
            .unwrap()
            .into_iter()
            .filter(|name| name.display().to_string().starts_with("user."))
            .collect();
        assert_eq!(names, expected);
    }
}
