//! The files of an image, in which a dynamic program finds its libraries.

use images::{Kind, Node, Tree};
use inspector::{ProgramFile, TreeFile};

/// The root of an image.
pub(super) struct Root<'t> {
    tree: &'t Tree,
}

impl<'t> Root<'t> {
    pub(super) fn new(tree: &'t Tree) -> Self {
        Root { tree }
    }

    /// Returns where a program is: what its dynamic section calls its own folder.
    pub(super) fn place(&self, path: &[u8], node: &Node) -> Option<ProgramFile> {
        Some(ProgramFile { file: found(path, node)?, privileged: node.is_privileged() })
    }
}

/// Whether the content of a file of an image is looked at: ELF files and archives, and what configures a loader.
pub(super) fn is_wanted(path: &[u8], start: &[u8]) -> bool {
    let mut parts = path.rsplit(|byte| *byte == b'/');
    let (name, folder) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    is_worth_inspecting(start)
        || name.starts_with(b"ld.so.")
        || (name.starts_with(b"ld-musl-") && name.ends_with(b".path"))
        || folder == b"ld.so.conf.d"
        // Records of grafts say which files are backups.
        || name.ends_with(b".allograft.json")
}

/// Whether a file is an ELF file or an archive, by its first bytes.
pub(super) fn is_worth_inspecting(start: &[u8]) -> bool {
    start.starts_with(b"\x7fELF") || start.starts_with(b"!<arch>\n")
}

fn found(path: &[u8], node: &Node) -> Option<TreeFile> {
    match node.kind {
        Kind::File { number, .. } => Some(TreeFile { path: [b"/", path].concat(), identity: (0, number) }),
        _ => None,
    }
}

fn plain(path: &[u8]) -> &[u8] {
    path.strip_prefix(b"/").unwrap_or(path)
}

impl inspector::Tree for Root<'_> {
    fn find(&self, path: &[u8]) -> Result<Option<TreeFile>, String> {
        let Some(path) = self.tree.resolve(path) else { return Ok(None) };
        Ok(self.tree.get(&path).and_then(|node| found(&path, &node)))
    }

    fn read(&self, file: &TreeFile) -> Result<Vec<u8>, String> {
        let path = plain(&file.path);
        match self.tree.get(path).map(|node| node.kind) {
            // No loader takes a file that is neither an ELF file nor one of those that configure it.
            Some(Kind::File { kept: false, .. }) => Ok(Vec::new()),
            _ => self.tree.read(path).map_err(|problem| problem.to_string()),
        }
    }

    fn list(&self, folder: &[u8]) -> Result<Vec<Vec<u8>>, String> {
        let folder = self.tree.resolve(folder);
        Ok(folder.map(|folder| self.tree.list(&folder).map(<[u8]>::to_vec).collect()).unwrap_or_default())
    }

    fn is_folder(&self, path: &[u8]) -> Result<bool, String> {
        Ok(match self.tree.resolve(path) {
            Some(path) => path.is_empty() || self.tree.get(&path).is_some_and(|node| node.kind == Kind::Folder),
            None => false,
        })
    }

    fn is_setuid(&self, file: &TreeFile) -> Option<bool> {
        self.tree.get(plain(&file.path)).map(|node| node.mode & 0o4000 != 0)
    }
}
