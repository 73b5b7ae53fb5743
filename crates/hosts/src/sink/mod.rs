//! Where grafts go, other than over their hosts in place.
//!
//! | module | what lives there |
//! | --- | --- |
//! | `out` | where `-o` may write |
//! | `folder` | a copy of a folder with grafts in it |
//! | `emitted` | a file made from a donor alone |
//! | `bundle` | every `libc.a` of a packed bundle grafted |

pub(crate) mod bundle;
pub(crate) mod emitted;
pub(crate) mod folder;
pub(crate) mod out;
