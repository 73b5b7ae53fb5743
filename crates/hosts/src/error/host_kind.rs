//! The kind of a host, so that help fits it: a toolchain's archive is installed again, a program is linked again.

use format::Linked;

/// The kind of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostKind {
    /// A static archive.
    Archive,
    /// A linked file.
    Linked(Linked),
    /// A packed Swift SDK bundle.
    Bundle,
    /// A container image.
    Image,
}

impl HostKind {
    /// How to get a host's stock file without a backup, as a request. `kind` is `None` if the host cannot be read.
    pub(super) fn stock_again(kind: Option<HostKind>) -> &'static str {
        match kind {
            Some(HostKind::Archive) => "install the toolchain's `libc.a` again",
            Some(HostKind::Linked(Linked::Program)) => {
                "link the program again, or get it again from where it came from"
            }
            Some(HostKind::Linked(Linked::Loader)) => "install the package of musl's dynamic loader again",
            Some(HostKind::Linked(Linked::Dynamic)) => "install the program's package again, or link the program again",
            Some(HostKind::Linked(Linked::Library)) => "install the library's package again",
            Some(HostKind::Bundle) => "get the bundle again from where it was published",
            Some(HostKind::Image) => "get the stock image again from where it was built or published",
            None => "get the stock file again from where it came from",
        }
    }

    /// Whether processes may execute a host of this kind: then it is replaced by a rename. `cp` over it would fail, or
    /// change the code that they run.
    pub(super) fn may_be_running(kind: Option<HostKind>) -> bool {
        !matches!(kind, Some(HostKind::Archive | HostKind::Bundle | HostKind::Image))
    }
}
