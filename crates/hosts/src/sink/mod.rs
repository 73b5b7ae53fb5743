//! What is written elsewhere than over a host.
//!
//! | module | what lives there |
//! | --- | --- |
//! | `out` | where `-o` may write |
//! | `folder` | a copy of a folder with grafts in it |
//! | `emitted` | a file made from a donor alone |

pub(crate) mod emitted;
pub(crate) mod folder;
pub(crate) mod out;
