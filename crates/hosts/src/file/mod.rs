//! Files on disk, and what is done with one of them. This room uses `error` and `watch` alone.
//!
//! | module | what lives there |
//! | --- | --- |
//! | `signature` | what a file is, by its first bytes |
//! | `bundle` | how a packed bundle is packed |
//! | `host_file` | a file that is read once |
//! | `names` | the names of the files beside a host |
//! | `temporaries` | the temporary files of this process |
//! | `links` | hard links and exchanged names |
//! | `attributes` | mode, owner and the like of a file |
//! | `lock` | one allograft at a time in a folder |

pub(crate) mod attributes;
pub(crate) mod bundle;
pub(crate) mod host_file;
pub(crate) mod links;
pub(crate) mod lock;
pub(crate) mod names;
pub(crate) mod signature;
pub(crate) mod temporaries;
