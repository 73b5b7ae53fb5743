//! Reads one process from `/proc`, without stopping or changing it.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use inspector::{Mapped, Tree, TreeFile};

use super::super::reader::read;
use crate::json::{Footprint, Preload};

const DELETED: &[u8] = b" (deleted)";

/// A process, by its folder in `/proc`: if it ends, the folder does not become another process's.
pub(super) struct Space {
    folder: File,
    pub(super) pid: u32,
}

/// The observation of a process.
pub(super) struct Observation {
    pub(super) name: String,
    /// The program's path in the process's own root.
    pub(super) path: PathBuf,
    /// Whether another file is at that path now, or none.
    pub(super) deleted: bool,
    pub(super) program: Vec<u8>,
    pub(super) mapped: Mapped,
    pub(super) preloads: Vec<Preload>,
    /// For each preload, the number of its file among the mapped ones.
    pub(super) loaded: Vec<Option<usize>>,
    pub(super) memory: Footprint,
}

/// A mapping of a file, or of no file.
struct Mapping {
    range: (u64, u64),
    rights: Vec<u8>,
    device: (u64, u64),
    inode: u64,
    path: Vec<u8>,
}

impl Space {
    pub(super) fn new(pid: u32) -> io::Result<Space> {
        Ok(Space { folder: File::open(format!("/proc/{pid}"))?, pid })
    }

    fn at(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{name}", self.folder.as_raw_fd()))
    }

    /// Looks at the process. `files` learns where its mapped files can be read.
    ///
    /// # Errors
    /// It has ended, may not be looked at, or has no program, as a kernel's thread has none.
    pub(super) fn look(&self, files: &Files) -> io::Result<Observation> {
        // It may start another program meanwhile.
        for _ in 0..3 {
            let before = fs::metadata(self.at("exe"))?;
            let seen = self.look_once(files, &before)?;
            let after = fs::metadata(self.at("exe"))?;
            if (before.dev(), before.ino()) == (after.dev(), after.ino()) {
                return Ok(seen);
            }
        }
        Err(io::Error::other("it starts one program after the other"))
    }

    fn look_once(&self, files: &Files, program: &fs::Metadata) -> io::Result<Observation> {
        let link = fs::read_link(self.at("exe"))?.into_os_string().into_vec();
        // A grafted file's old one may have a name yet, its backup's, and is not what the process was started from.
        let is_there = |path: &[u8]| {
            let path = self.at("root").join(OsStr::from_bytes(path.strip_prefix(b"/").unwrap_or(path)));
            fs::metadata(path).is_ok_and(|there| (there.dev(), there.ino()) == (program.dev(), program.ino()))
        };
        let deleted = !is_there(&link);
        let path = link.strip_suffix(DELETED).filter(|_| deleted).unwrap_or(&link).to_owned();
        let mappings: Vec<Mapping> =
            fs::read(self.at("maps"))?.split(|&byte| byte == b'\n').filter_map(mapping).collect();
        let bytes = read(&self.at("exe"))?;
        let mut seen = HashSet::new();
        let mut found = Vec::new();
        files.forget();
        for mapping in mappings.iter().filter(|mapping| mapping.rights.get(2) == Some(&b'x') && mapping.inode != 0) {
            if !mapping.path.starts_with(b"/") || mapping.path == link || !seen.insert((mapping.device, mapping.inode))
            {
                continue;
            }
            let identity = (mapping.device.0 << 32 | mapping.device.1, mapping.inode);
            let path = mapping.path.strip_suffix(DELETED).unwrap_or(&mapping.path).to_owned();
            let range = format!("map_files/{:x}-{:x}", mapping.range.0, mapping.range.1);
            let root = self.at("root").join(OsStr::from_bytes(path.strip_prefix(b"/").unwrap_or(&path)));
            files.learn(identity, [self.at(&range), root]);
            found.push(TreeFile { path, identity });
        }
        let environment = fs::read(self.at("environ"))?;
        let mut preloads = Vec::new();
        let variables: Vec<&[u8]> = environment.split(|&byte| byte == 0).filter(|text| !text.is_empty()).collect();
        for variable in variables.iter().filter_map(|variable| variable.strip_prefix(b"LD_PRELOAD=")) {
            preloads.extend(
                variable.split(|byte| b": \t\n\r\x0b\x0c".contains(byte)).map(|name| ("LD_PRELOAD", name.to_vec())),
            );
        }
        let root = self.at("root");
        let list = hosts::in_root(&root, Path::new("/etc/ld.so.preload")).ok().and_then(|list| read(&list).ok());
        let list = list.unwrap_or_default();
        preloads.extend(inspector::preloads(&list).into_iter().map(|name| ("/etc/ld.so.preload", name.to_vec())));
        preloads.retain(|(_, name)| !name.is_empty());
        let loaded: Vec<Option<usize>> = preloads.iter().map(|(_, name)| preloaded(name, &found, &root)).collect();
        let mut order: Vec<usize> = Vec::new();
        loaded.iter().flatten().for_each(|number| {
            if !order.contains(number) {
                order.push(*number);
            }
        });
        let knows = variables.iter().all(|variable| variable.contains(&b'='))
            && (environment.is_empty() || !variables.is_empty());
        let name = String::from_utf8_lossy(&fs::read(self.at("comm"))?).trim_end().to_owned();
        Ok(Observation {
            name,
            path: PathBuf::from(std::ffi::OsString::from_vec(path.clone())),
            deleted,
            program: bytes,
            mapped: Mapped {
                program: TreeFile { path, identity: (program.dev(), program.ino()) },
                files: found,
                preloaded: order,
                knows_preloads: knows,
            },
            preloads: preloads
                .into_iter()
                .zip(&loaded)
                .map(|((source, file), loaded)| Preload {
                    file: String::from_utf8_lossy(&file).into_owned(),
                    source,
                    loaded: loaded.is_some(),
                    serves: false,
                })
                .collect(),
            loaded,
            memory: memory(&fs::read_to_string(self.at("status"))?, &mappings),
        })
    }
}

/// Returns the mapped file that a preload is. The loader maps all that it takes, and nothing of the others.
fn preloaded(name: &[u8], files: &[TreeFile], root: &Path) -> Option<usize> {
    let last = |path: &[u8]| path.rsplit(|&byte| byte == b'/').next().map(<[u8]>::to_owned);
    // Only the loader knows the value of a token, and the folder that was current at that time.
    if !name.starts_with(b"/") || name.contains(&b'$') {
        return files.iter().position(|file| last(&file.path) == last(name));
    }
    let resolved = hosts::in_root(root, Path::new(OsStr::from_bytes(name)))
        .ok()
        .and_then(|path| Some([b"/", path.strip_prefix(root).ok()?.as_os_str().as_bytes()].concat()));
    files.iter().position(|file| file.path == name || Some(&file.path) == resolved.as_ref())
}

/// Reads a line of `/proc/PID/maps`.
fn mapping(line: &[u8]) -> Option<Mapping> {
    let mut fields = line.splitn(6, |&byte| byte == b' ');
    let text = |field: Option<&[u8]>| String::from_utf8(field?.to_vec()).ok();
    let number = |text: &str| u64::from_str_radix(text, 16).ok();
    let range = text(fields.next())?;
    let (start, end) = range.split_once('-')?;
    let rights = fields.next()?.to_vec();
    fields.next()?;
    let device = text(fields.next())?;
    let (major, minor) = device.split_once(':')?;
    let inode = text(fields.next())?.parse().ok()?;
    let path = fields.next().unwrap_or_default().trim_ascii_start().to_vec();
    Some(Mapping {
        range: (number(start)?, number(end)?),
        rights,
        device: (number(major)?, number(minor)?),
        inode,
        path,
    })
}

/// Reads the figures that the kernel keeps, in bytes.
fn memory(status: &str, mappings: &[Mapping]) -> Footprint {
    let figure = |name: &str| -> Option<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
    };
    let size = |mapping: &Mapping| mapping.range.1.saturating_sub(mapping.range.0);
    let is_data = |mapping: &&Mapping| mapping.rights.starts_with(b"rw") && mapping.rights.get(3) == Some(&b'p');
    let is_anonymous =
        |mapping: &&Mapping| mapping.path.is_empty() || mapping.path == b"[heap]" || mapping.path.starts_with(b"[anon");
    Footprint {
        resident_bytes: figure("VmRSS"),
        peak_resident_bytes: figure("VmHWM"),
        anonymous_bytes: figure("RssAnon"),
        swapped_bytes: figure("VmSwap"),
        heap_mapped_bytes: mappings.iter().filter(|mapping| mapping.path == b"[heap]").map(size).sum(),
        data_mapped_bytes: mappings.iter().filter(is_data).filter(is_anonymous).map(size).sum(),
    }
}

/// Where the mapped files of the process that is looked at can be read.
#[derive(Default)]
pub(super) struct Files {
    places: RefCell<HashMap<(u64, u64), [PathBuf; 2]>>,
}

impl Files {
    fn forget(&self) {
        self.places.borrow_mut().clear();
    }

    fn learn(&self, identity: (u64, u64), places: [PathBuf; 2]) {
        self.places.borrow_mut().insert(identity, places);
    }
}

/// Only [`Tree::read`] is asked for: the files are mapped, so nothing has to be found.
impl Tree for Files {
    fn find(&self, _: &[u8]) -> Result<Option<TreeFile>, String> {
        Ok(None)
    }

    fn read(&self, file: &TreeFile) -> Result<Vec<u8>, String> {
        let places = self.places.borrow().get(&file.identity).cloned().ok_or("it is not mapped")?;
        let [mapped, named] = &places;
        // The kernel lets only root open what is mapped; anybody may open a file by its name, if it is still that one.
        if let Ok(bytes) = read(mapped) {
            return Ok(bytes);
        }
        let metadata = fs::metadata(named).map_err(|error| error.to_string())?;
        if metadata.ino() != file.identity.1 {
            return Err("it has been deleted or replaced, and only root can read what is mapped".to_owned());
        }
        read(named).map_err(|error| error.to_string())
    }

    fn list(&self, _: &[u8]) -> Result<Vec<Vec<u8>>, String> {
        Ok(Vec::new())
    }

    fn is_folder(&self, _: &[u8]) -> Result<bool, String> {
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_are_read() {
        let line = b"7f00-7f10 r-xp 00001000 fd:01 1234                       /usr/lib/a b.so (deleted)";
        let mapping = mapping(line).expect("a mapping");
        assert_eq!((mapping.range, mapping.device, mapping.inode), ((0x7f00, 0x7f10), (0xfd, 1), 1234));
        assert_eq!(mapping.path, b"/usr/lib/a b.so (deleted)");
        assert_eq!(super::mapping(b"7f00-7f10 rw-p 00000000 00:00 0").expect("one").path, b"");
        assert!(super::mapping(b"").is_none() && super::mapping(b"x-y r").is_none());
    }
}
