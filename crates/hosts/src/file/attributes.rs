//! Mode, owner, extended attributes and times of a file, carried over to the file that takes its place.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Permissions};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::{fmt, io};

use rustix::fs::{XattrFlags, fgetxattr, flistxattr, fsetxattr};
use serde::{Deserialize, Serialize};

/// The bits of `st_mode` that chmod sets.
const MODE: u32 = 0o7777;
const SET_USER: u32 = 0o4000;
const SET_GROUP: u32 = 0o2000;
/// The extended attribute that holds a program's capabilities (capabilities(7)).
const CAPABILITIES: &str = "security.capability";

/// An attribute that could not be copied. Its text is a clause whose subject is the file.
#[derive(Debug)]
pub(crate) enum LostAttribute {
    Group(u32),
    Owner(u32),
    /// The set-user-ID bit, the set-group-ID bit or both, as in the mode: with a new owner they would grant rights that
    /// the old file did not.
    SetId(u32),
    Capabilities,
    Extended(OsString, io::Error),
}

impl LostAttribute {
    /// The attribute's name, for a note on all files that could not keep it.
    pub(crate) fn what(&self) -> String {
        match self {
            LostAttribute::Group(_) => "their group".to_owned(),
            LostAttribute::Owner(_) => "their owner".to_owned(),
            LostAttribute::SetId(_) => "their set-id bits".to_owned(),
            LostAttribute::Capabilities => "their capabilities".to_owned(),
            LostAttribute::Extended(name, _) => format!("the extended attribute `{}`", name.display()),
        }
    }
}

impl fmt::Display for LostAttribute {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LostAttribute::Group(group) => write!(out, "could not keep its group {group}"),
            LostAttribute::Owner(owner) => write!(out, "could not keep its owner {owner}"),
            LostAttribute::SetId(bits) => {
                let bits = match *bits {
                    SET_USER => "set-user-ID bit",
                    SET_GROUP => "set-group-ID bit",
                    _ => "set-user-ID and set-group-ID bits",
                };
                write!(out, "lost its {bits}, which would have given other rights than before")
            }
            LostAttribute::Capabilities => {
                out.write_str("lost its capabilities, as every file does that gets another owner or group")
            }
            LostAttribute::Extended(name, error) => {
                write!(out, "could not keep its extended attribute `{}`: {error}", name.display())
            }
        }
    }
}

/// Gives `to` the mode of `from`, and its owner and extended attributes as far as the system permits.
///
/// The mode is set exactly, whatever the umask is, or this fails. But a file with a different owner gets no set-id
/// bits, and one with a different group no set-group-ID bit: its user would have rights that were never granted. For
/// the same reason it gets no capabilities; chown(2) removes them from every file. Returns the attributes that could
/// not be copied.
pub(crate) fn carry(from: &File, to: &File) -> io::Result<Vec<LostAttribute>> {
    let wanted = from.metadata()?;
    let mut lost = carry_owner(from, to)?;
    let owner = lost.iter().any(|lost| matches!(lost, LostAttribute::Owner(_)));
    let group = lost.iter().any(|lost| matches!(lost, LostAttribute::Group(_)));
    for name in extended_names(from)? {
        if (owner || group) && name == CAPABILITIES {
            lost.push(LostAttribute::Capabilities);
        } else if let Err(error) = carry_extended(from, to, &name) {
            lost.push(LostAttribute::Extended(name, error));
        }
    }
    let refused = match (owner, group) {
        (true, _) => SET_USER | SET_GROUP,
        (false, true) => SET_GROUP,
        (false, false) => 0,
    };
    if wanted.mode() & refused != 0 {
        lost.push(LostAttribute::SetId(wanted.mode() & refused));
    }
    // Last, since chown clears the set-id bits and an ACL changes the group's.
    to.set_permissions(Permissions::from_mode(wanted.mode() & MODE & !refused))?;
    Ok(lost)
}

/// Gives `to` the group and the owner of `from`, as far as the system permits. Returns those that it refused.
pub(crate) fn carry_owner(from: &File, to: &File) -> io::Result<Vec<LostAttribute>> {
    let (wanted, have) = (from.metadata()?, to.metadata()?);
    let mut lost = Vec::new();
    // Separately: members of the group may set it, only root the owner.
    if have.gid() != wanted.gid() && fchown(to, None, Some(wanted.gid())).is_err() {
        lost.push(LostAttribute::Group(wanted.gid()));
    }
    if have.uid() != wanted.uid() && fchown(to, Some(wanted.uid()), None).is_err() {
        lost.push(LostAttribute::Owner(wanted.uid()));
    }
    Ok(lost)
}

/// Gives `to` the access and modification time of `from`.
pub(crate) fn carry_times(from: &File, to: &File) -> io::Result<()> {
    let times = from.metadata()?;
    to.set_times(std::fs::FileTimes::new().set_accessed(times.accessed()?).set_modified(times.modified()?))
}

/// A stock file's attributes, to report those that an undo could not restore. They are never applied to a file:
/// otherwise a user who can write a record could have root make a set-user-ID program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    /// The mode's lower 12 bits.
    pub mode: u32,
    /// The owner's number.
    pub owner: u32,
    /// The group's number.
    pub group: u32,
    /// The names of the extended attributes.
    pub extended: Vec<String>,
}

impl Attributes {
    pub(crate) fn read(file: &File) -> io::Result<Attributes> {
        let metadata = file.metadata()?;
        let mut extended: Vec<String> =
            extended_names(file)?.iter().map(|name| name.to_string_lossy().into_owned()).collect();
        extended.sort();
        Ok(Attributes { mode: metadata.mode() & MODE, owner: metadata.uid(), group: metadata.gid(), extended })
    }

    /// The differences between these attributes and `now`, as clauses whose subject is the file.
    pub(crate) fn missing_in(&self, now: &Attributes) -> Vec<String> {
        let mut missing = Vec::new();
        if now.owner != self.owner {
            missing.push(format!("belonged to the owner {}, and belongs to {} now", self.owner, now.owner));
        }
        if now.group != self.group {
            missing.push(format!("belonged to the group {}, and belongs to {} now", self.group, now.group));
        }
        if now.mode != self.mode {
            missing.push(format!("had the mode {:04o}, and has {:04o} now", self.mode, now.mode));
        }
        for name in self.extended.iter().filter(|name| !now.extended.contains(name)) {
            missing.push(format!("had the extended attribute `{}`, and has it no more", name.escape_debug()));
        }
        missing
    }
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

fn carry_extended(from: &File, to: &File, name: &OsStr) -> io::Result<()> {
    let mut value = vec![0_u8; 0x1_0000];
    let length = fgetxattr(from, name, &mut value[..])?;
    let value = &value[..length];
    let mut present = vec![0_u8; 0x1_0000];
    // A security label that the system has already given to the new file cannot always be set, and does not need to be.
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
        // Not every file system has extended attributes; where it has, they have to be copied.
        if fsetxattr(&from, "user.allograft", b"kept", XattrFlags::empty()).is_ok() {
            expected.push(OsString::from("user.allograft"));
        }
        assert!(carry(&from, &to).unwrap().is_empty());
        assert_eq!(to.metadata().unwrap().mode() & MODE, 0o2640);
        let names: Vec<_> = extended_names(&to)
            .unwrap()
            .into_iter()
            .filter(|name| name.display().to_string().starts_with("user."))
            .collect();
        assert_eq!(names, expected);
    }

    #[test]
    fn what_a_file_no_longer_is() {
        let was = Attributes { mode: 0o4755, owner: 0, group: 0, extended: vec!["security.capability".to_owned()] };
        assert_eq!(was.missing_in(&was), Vec::<String>::new());
        let now = Attributes { mode: 0o755, owner: 5, group: 7, extended: Vec::new() };
        let missing = was.missing_in(&now).join("; ");
        for part in ["owner 0, and belongs to 5", "group 0, and belongs to 7", "4755", "`security.capability`"] {
            assert!(missing.contains(part), "{part} in {missing}");
        }
    }
}
