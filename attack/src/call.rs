//! System calls of x86_64: their names, the errors that each may return, and those that change files.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::libc;
use nix::unistd::Pid;

/// The number of a file on its file system.
pub(crate) type Inode = u64;

/// A system call that a process is about to make, or has made.
#[derive(Debug, Clone, Copy)]
pub struct Call {
    /// The process, which is named in `/proc`.
    pub(crate) process: Pid,
    pub(crate) number: i64,
    pub(crate) arguments: [u64; 6],
}

/// A row: the numbers of calls, their names, the errors that they may return for reasons outside the program, and
/// whether they change files.
type Row = (&'static [(i64, &'static str)], &'static [Errno], bool);

/// The numbers and names of calls.
macro_rules! calls {
    ($($call:ident)*) => { &[$((libc::$call, stringify!($call))),*] };
}

use Errno::{EACCES, EAGAIN, EDQUOT, EINTR, EIO, EMFILE, ENOLCK, ENOMEM, ENOSPC, EROFS};

/// The calls that can fail, with the errors that are in turn returned: those of the manual's pages that a full disk, a
/// broken one, a lack of rights, of memory or of descriptors, or a signal brings about. Calls that are not here fail
/// by a program's own fault only (`munmap`, `rt_sigaction`), or return no error (`brk`, `getpid`).
const ROWS: &[Row] = &[
    (calls![SYS_open SYS_openat SYS_creat], &[EACCES, EMFILE, EIO, EINTR, ENOMEM], false),
    (calls![SYS_read SYS_pread64 SYS_readv SYS_preadv], &[EIO, EINTR], false),
    (calls![SYS_write SYS_pwrite64 SYS_writev SYS_pwritev], &[ENOSPC, EIO, EDQUOT, EINTR], true),
    (calls![SYS_copy_file_range SYS_sendfile SYS_splice], &[ENOSPC, EIO, EDQUOT, ENOMEM], true),
    (calls![SYS_ftruncate SYS_truncate SYS_fallocate], &[ENOSPC, EIO, EINTR, EDQUOT], true),
    (calls![SYS_fsync SYS_fdatasync SYS_syncfs], &[EIO, ENOSPC, EDQUOT, EROFS], true),
    (
        calls![SYS_rename SYS_renameat SYS_renameat2 SYS_link SYS_linkat SYS_symlink SYS_symlinkat SYS_mkdir SYS_mkdirat],
        &[EACCES, EROFS, ENOSPC, EIO, EDQUOT, ENOMEM],
        true,
    ),
    (calls![SYS_unlink SYS_unlinkat SYS_rmdir], &[EACCES, EROFS, EIO, ENOMEM], true),
    (
        calls![SYS_chmod SYS_fchmod SYS_fchmodat SYS_chown SYS_fchown SYS_fchownat SYS_lchown SYS_utimensat],
        &[Errno::EPERM, EROFS, EIO],
        true,
    ),
    (calls![SYS_setxattr SYS_lsetxattr SYS_fsetxattr SYS_fremovexattr], &[Errno::EPERM, ENOSPC, EDQUOT, EIO], true),
    (
        calls![SYS_stat SYS_fstat SYS_lstat SYS_statx SYS_newfstatat SYS_access SYS_faccessat SYS_faccessat2 SYS_readlink
            SYS_readlinkat SYS_getdents64 SYS_chdir SYS_statfs SYS_fstatfs],
        &[EACCES, EIO, ENOMEM],
        false,
    ),
    (calls![SYS_getxattr SYS_fgetxattr SYS_listxattr SYS_flistxattr SYS_llistxattr], &[EACCES, EIO], false),
    (calls![SYS_lseek], &[EIO], false),
    (calls![SYS_mmap SYS_mremap SYS_mprotect SYS_madvise], &[ENOMEM], false),
    (calls![SYS_clone SYS_clone3 SYS_fork SYS_vfork SYS_execve], &[EAGAIN, ENOMEM], false),
    (calls![SYS_memfd_create SYS_pipe2 SYS_eventfd2 SYS_pidfd_open SYS_socketpair], &[EMFILE, ENOMEM], false),
    (calls![SYS_dup SYS_dup2 SYS_dup3 SYS_fcntl], &[EMFILE], false),
    (calls![SYS_flock], &[EINTR, ENOLCK], false),
    (calls![SYS_wait4 SYS_waitid SYS_poll SYS_ppoll SYS_nanosleep SYS_clock_nanosleep SYS_getrandom], &[EINTR], false),
    (calls![SYS_close], &[EIO, EINTR], false),
];

impl Call {
    /// Reads the call from the registers at its entry.
    pub(crate) fn new(process: Pid, registers: &libc::user_regs_struct) -> Call {
        let libc::user_regs_struct { rdi, rsi, rdx, r10, r8, r9, .. } = *registers;
        Call { process, number: registers.orig_rax.cast_signed(), arguments: [rdi, rsi, rdx, r10, r8, r9] }
    }

    fn row(&self) -> Option<(&'static Row, &'static str)> {
        ROWS.iter().find_map(|row| {
            let (_, name) = row.0.iter().find(|(number, _)| *number == self.number)?;
            Some((row, name.strip_prefix("SYS_").unwrap_or(name)))
        })
    }

    /// Returns its name, or its number if it is not one that can fail.
    pub fn name(&self) -> String {
        self.row().map_or_else(|| format!("call {}", self.number), |(_, name)| name.to_owned())
    }

    /// Returns the errors that it may return.
    pub fn errors(&self) -> Vec<Errno> {
        let Some((row, _)) = self.row() else { return Vec::new() };
        let transfers = self.length().is_some() || [libc::SYS_readv, libc::SYS_writev].contains(&self.number);
        if transfers && !self.is_of_file() {
            // Pipes and sockets have no disk behind them.
            return vec![EINTR];
        }
        if self.number == libc::SYS_close && self.is_of_folder() {
            // No file system fails to close a folder, and Rust's standard library relies on that.
            return vec![EINTR];
        }
        let opens = [libc::SYS_open, libc::SYS_openat, libc::SYS_creat].contains(&self.number);
        let more: &[Errno] = if opens && self.changes() { &[EROFS, ENOSPC, EDQUOT] } else { &[] };
        row.1.iter().chain(more).copied().collect()
    }

    /// Returns the path below `within`, where the process runs, that an argument names: the text at an address,
    /// relative to the folder with this number, if there is one. `None` if it is outside.
    pub(crate) fn path(&self, within: &Path, folder: Option<u64>, text: u64) -> Option<PathBuf> {
        let text = text_at(self.process, text)?;
        let base = match folder {
            // The number is an `int`.
            Some(number) if number as i32 != libc::AT_FDCWD => fs::read_link(self.descriptor(number)).ok()?,
            _ => within.to_owned(),
        };
        let mut path = PathBuf::new();
        for part in base.join(text).components() {
            match part {
                Component::CurDir => {}
                Component::ParentDir => drop(path.pop()),
                part => path.push(part),
            }
        }
        Some(path.strip_prefix(within).ok()?.to_owned())
    }

    /// Returns the inode and the path of an open file or folder that is below `within`.
    pub(crate) fn opened(&self, within: &Path, number: u64) -> Option<(Inode, PathBuf)> {
        let link = self.descriptor(number);
        let path = fs::read_link(&link).ok()?;
        let path = path.strip_prefix(within).ok()?.to_owned();
        Some((fs::metadata(link).ok()?.ino(), path))
    }

    /// The link in `/proc` of a descriptor, whose number is an `int`.
    pub(crate) fn descriptor(&self, number: u64) -> PathBuf {
        PathBuf::from(format!("/proc/{}/fd/{}", self.process, number as i32))
    }

    /// Whether its first argument is an open file, and not a pipe, a socket or memory.
    fn is_of_file(&self) -> bool {
        fs::read_link(self.descriptor(self.arguments[0]))
            .is_ok_and(|path| path.is_absolute() && !path.starts_with("/memfd:"))
    }

    fn is_of_folder(&self) -> bool {
        fs::metadata(self.descriptor(self.arguments[0])).is_ok_and(|found| found.is_dir())
    }

    /// Whether it can change a file, or write one to disk.
    pub fn changes(&self) -> bool {
        let flags = match self.number {
            libc::SYS_creat => return true,
            libc::SYS_open => self.arguments[1],
            libc::SYS_openat => self.arguments[2],
            _ => return self.row().is_some_and(|(row, _)| row.2),
        };
        let changing = libc::O_WRONLY | libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC;
        flags & u64::from(changing.cast_unsigned()) != 0
    }

    /// Returns the index of the argument that is a number of bytes, of which the kernel may do less.
    pub(crate) fn length(&self) -> Option<usize> {
        match self.number {
            libc::SYS_read | libc::SYS_write | libc::SYS_pread64 | libc::SYS_pwrite64 => Some(2),
            libc::SYS_sendfile => Some(3),
            libc::SYS_copy_file_range => Some(4),
            _ => None,
        }
    }

    /// Whether its number of bytes can be halved.
    pub(crate) fn can_be_halved(&self) -> bool {
        self.length().is_some_and(|at| self.arguments[at] > 1)
    }
}

/// Reads a text that ends with a zero byte from the memory of a stopped process.
fn text_at(process: Pid, address: u64) -> Option<PathBuf> {
    let mut memory = File::open(format!("/proc/{process}/mem")).ok()?;
    let mut text = Vec::new();
    memory.seek(SeekFrom::Start(address)).ok()?;
    // A path has at most 4096 bytes. What follows it may not be mapped: one byte at a time.
    let mut byte = [0];
    while text.len() < 4096 {
        memory.read_exact(&mut byte).ok()?;
        if byte == [0] {
            return Some(OsString::from_vec(text).into());
        }
        text.push(byte[0]);
    }
    None
}
