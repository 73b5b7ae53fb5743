//! The shared object that a dynamic program loads: its name in the program, the file that the loader picks for the
//! name, and the check that this file is the donor. The loader's search is followed, since the name alone does not say
//! which file it is.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use format::Note;
use inspector::{Loader, ProgramFile, TreeFile};
use surgery::donor::DonorObject;
use transplant::Executable;

use crate::digest::sha256;
use crate::error::needed::{Emit, NeededError};
use crate::error::{Error, IoContext};
use crate::request::Request;
use crate::system::System;
use crate::system::privileges::is_privileged;
use crate::system::root::in_root;

/// The default name of the shared object, beside the program; `emit` has the same default.
const BESIDE: &str = "liballograft.so";
const ORIGIN: &[u8] = b"$ORIGIN/";

/// The file that a program's loader picks as its donor.
#[derive(Debug)]
pub struct NeededFile {
    /// Its path, outside of any root folder.
    pub path: PathBuf,
    /// Its content.
    pub bytes: Vec<u8>,
}

/// The loader finds no file, or it is not known which.
pub(crate) struct NoFile {
    /// A clause.
    pub(crate) why: String,
    /// The path where the file should be, or its name if the loader searches for it.
    path: PathBuf,
}

/// The place where a program will be: its path, and the root folder in which its own paths are resolved.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Destination<'p> {
    path: &'p Path,
    root: Option<&'p Path>,
    /// Whether its place differs from that of the file it is made from.
    elsewhere: bool,
}

impl<'p> Destination<'p> {
    /// The destination of the graft of the file at `path`.
    pub(crate) fn new(path: &'p Path, request: &'p Request) -> Destination<'p> {
        let out = request.out.as_deref();
        Destination { path: out.unwrap_or(path), root: request.root.as_deref(), elsewhere: out.is_some() }
    }

    /// The destination of a file that is in its place.
    pub(crate) fn in_place(path: &'p Path, root: Option<&'p Path>) -> Destination<'p> {
        Destination { path, root, elsewhere: false }
    }

    /// Whether the program's paths name nothing yet at the destination.
    pub(crate) fn is_elsewhere(&self) -> bool {
        self.elsewhere || self.root.is_some()
    }

    fn system(&self) -> Result<System, Error> {
        System::new(self.root).context(self.root.unwrap_or(Path::new("/")), "read")
    }

    /// The folder of the program.
    fn folder(&self) -> Result<PathBuf, Error> {
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        fs::canonicalize(folder).context(folder, "read")
    }

    /// The folder as a path below the root, which is how the program sees it.
    fn folder_inside(&self) -> Result<PathBuf, Error> {
        let folder = self.folder()?;
        let Some(root) = self.root else { return Ok(folder) };
        let root = fs::canonicalize(root).context(root, "read")?;
        let inside = folder.strip_prefix(&root).map_err(|_| std::io::Error::other("it is not in the root folder"));
        Ok(Path::new("/").join(inside.context(&folder, "use")?))
    }

    /// The shared object's name for the program: the requested one, or else the path of a file beside it.
    pub(crate) fn name(&self, named: Option<&OsStr>) -> Result<Vec<u8>, Error> {
        match named {
            Some(name) => Ok(name.as_bytes().to_owned()),
            None => Ok(self.folder_inside()?.join(BESIDE).into_os_string().into_vec()),
        }
    }

    /// The file that the loader picks for the program's first library, with its content; else the reason why the loader
    /// finds no file.
    pub(crate) fn library(&self, program: &[u8], name: &[u8]) -> Result<Result<NeededFile, NoFile>, Error> {
        let shown = String::from_utf8_lossy(name);
        let path = if let Some(rest) = name.strip_prefix(ORIGIN) {
            self.folder_inside()?.join(OsStr::from_bytes(rest))
        } else if name.starts_with(b"/") {
            PathBuf::from(OsStr::from_bytes(name))
        } else {
            let folder = self.folder_inside()?.into_os_string().into_vec();
            let own = self.path.file_name().unwrap_or_default().as_bytes();
            // The program's file may not exist yet. No other file has this identity.
            let file = TreeFile { path: [&folder, b"/".as_slice(), own].concat(), identity: (u64::MAX, u64::MAX) };
            let place = ProgramFile { file, privileged: self.is_privileged() };
            let system = self.system()?;
            let named = || PathBuf::from(OsStr::from_bytes(name));
            match Loader::new(&system).inspect(program, &place).map(|report| report.malloc) {
                Ok(inspector::Allocator { file: Some(file), .. }) => PathBuf::from(file),
                Ok(malloc) => {
                    let why: Vec<&str> = malloc.evidence.iter().map(|it| it.detail.as_str()).collect();
                    let why =
                        format!("it is not certain which file its loader takes for `{shown}`: {}", why.join("; "));
                    return Ok(Err(NoFile { why, path: named() }));
                }
                Err(error) => return Ok(Err(NoFile { why: error.to_string(), path: named() })),
            }
        };
        let outside = |path: &Path| match self.root {
            Some(root) => in_root(root, path),
            None => Ok(path.to_owned()),
        };
        let missing =
            |path: PathBuf| Ok(Err(NoFile { why: format!("there is no file `{shown}`, which it would load"), path }));
        let there = match outside(&path) {
            Ok(there) => there,
            Err(error) if error.is_missing() => {
                let inside = path.strip_prefix("/").unwrap_or(&path);
                return missing(self.root.unwrap_or(Path::new("/")).join(inside));
            }
            Err(error) => return Err(error),
        };
        match fs::read(&there).context(&there, "read") {
            Ok(bytes) => Ok(Ok(NeededFile { path: there, bytes })),
            Err(error) if error.is_missing() => missing(there),
            Err(error) => Err(error),
        }
    }

    /// Whether the loader ignores the environment of the program at the destination: AT_SECURE.
    fn is_privileged(&self) -> bool {
        is_privileged(self.path)
    }
}

/// Checks that the program `graft`, made of the file at `host`, will load the shared object `expected`, whose note is
/// `note`. Returns the path of the file.
///
/// # Errors
/// The program will not load it, or other users could replace the file of a program that runs with its owner's rights.
pub(crate) fn check(
    host: &Path,
    request: &Request,
    graft: &[u8],
    plan: &transplant::NeedPlan,
    (expected, note): (&[u8], &Note),
) -> Result<PathBuf, Error> {
    let destination = Destination::new(host, request);
    let path = || destination.path.to_owned();
    let named = |note: &Note| match note.options.as_str() {
        "" => format!("{} {}", note.donor, note.version),
        options => format!("{} {} ({options})", note.donor, note.version),
    };
    let emit = |library: PathBuf| {
        Box::new(Emit {
            donor: note.donor.clone(),
            options: note.options.clone(),
            arch: plan.arch,
            libc: if plan.libc == transplant::Libc::Musl { "musl" } else { "gnu" },
            library,
            searched: !plan.library.contains(&b'/'),
        })
    };
    let own = Destination::in_place(host, None);
    if own.is_privileged() && plan.library.starts_with(ORIGIN) {
        let why = "its loader does not start such a program whose libraries are named by `$ORIGIN`".to_owned();
        return Err(NeededError::Privileged { path: path(), why }.into());
    }
    let NeededFile { path: library, bytes: found } = match destination.library(graft, &plan.library)? {
        Ok(found) => found,
        Err(none) => {
            return Err(NeededError::Missing { path: path(), why: none.why, emit: emit(none.path) }.into());
        }
    };
    if found != expected {
        let parsed = DonorObject::parse_library(&found).ok().map(|library| library.note());
        let found = match &parsed {
            Some(other) if named(other) != named(note) => named(other),
            Some(other) => format!("{} with sha256 {}", named(other), sha256(&found)),
            None => "not a shared object that allograft made".to_owned(),
        };
        let expected = format!("{} with sha256 {}", named(note), sha256(expected));
        let emit = emit(library.clone());
        return Err(NeededError::Another { path: path(), library, found, expected, emit }.into());
    }
    if own.is_privileged()
        && let Some(why) = untrusted(host, &library)?
    {
        return Err(NeededError::Privileged { path: path(), why }.into());
    }
    Ok(library)
}

/// A clause that names the users, other than root and the program's owner, who could replace the file at `library`;
/// `None` if no other user could.
fn untrusted(host: &Path, library: &Path) -> Result<Option<String>, Error> {
    const OTHERS_WRITE: u32 = 0o022;
    const STICKY: u32 = 0o1000;
    let owner = fs::metadata(host).context(host, "read")?.uid();
    let library = fs::canonicalize(library).context(library, "read")?;
    for path in library.ancestors() {
        let metadata = fs::metadata(path).context(path, "read")?;
        let open = metadata.mode() & OTHERS_WRITE != 0 && (metadata.mode() & STICKY == 0 || path == library);
        if open || ![0, owner].contains(&metadata.uid()) {
            let mode = metadata.mode() & 0o7777;
            let (path, uid) = (path.display(), metadata.uid());
            return Ok(Some(format!(
                "others could exchange its donor: `{path}` has the owner {uid} and the mode {mode:o}"
            )));
        }
    }
    Ok(None)
}

/// The file that the loader picks as the donor of the program `graft` at `path`, in the root folder `root`, with its
/// content; `None` if the program loads none.
///
/// # Errors
/// No file is found, or it is not known which; a folder cannot be read.
pub fn needed_file(
    path: &Path,
    root: Option<&Path>,
    graft: &Executable<'_>,
) -> Result<Option<Result<NeededFile, String>>, Error> {
    let Some(name) = graft.loads() else { return Ok(None) };
    let found = Destination::in_place(path, root).library(graft.bytes(), &name)?;
    Ok(Some(found.map_err(|none| none.why)))
}

/// A remark on an undone graft: its donor stays. A clause whose subject is the program.
pub(crate) fn remark(graft: &[u8]) -> Option<String> {
    let name = Executable::read(graft).ok()?.loads()?;
    let name = String::from_utf8_lossy(&name).into_owned();
    Some(format!("loaded `{name}`, which stays: other programs may load it, too. Delete it if none does"))
}
