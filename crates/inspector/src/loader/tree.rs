//! The files of a system, as the caller gives them. The reader opens no file itself: a root may be a folder, an image,
//! or made up by a test.

/// The files of a system: its root folder, perhaps of an image, in which every path starts and that no link leaves.
pub trait Tree {
    /// Finds the regular file at an absolute path, through symbolic links; `None` if it does not exist.
    ///
    /// # Errors
    /// The reason why its existence is unknown.
    fn find(&self, path: &[u8]) -> Result<Option<TreeFile>, String>;

    /// Reads a file that was found.
    ///
    /// # Errors
    /// The reason why it cannot be read.
    fn read(&self, file: &TreeFile) -> Result<Vec<u8>, String>;

    /// Returns the names in a folder, in any order; none if there is no folder.
    ///
    /// # Errors
    /// The reason why they cannot all be read.
    fn list(&self, folder: &[u8]) -> Result<Vec<Vec<u8>>, String>;

    /// Whether there is a folder at a path.
    ///
    /// # Errors
    /// The reason why its existence is unknown.
    fn is_folder(&self, path: &[u8]) -> Result<bool, String>;

    /// Whether a file that was found has the setuid bit; `None` if that is not known.
    fn is_setuid(&self, _file: &TreeFile) -> Option<bool> {
        None
    }
}

/// A file of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeFile {
    /// Its path in the tree, without symbolic links.
    pub path: Vec<u8>,
    /// Its device and inode: the loader takes two paths with the same ones for one file.
    pub identity: (u64, u64),
}

/// A program's file in the tree, and its rights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramFile {
    /// The program in the tree.
    pub file: TreeFile,
    /// Whether it runs with the rights of its owner or group, so that the loader mistrusts `$ORIGIN`.
    pub privileged: bool,
}
