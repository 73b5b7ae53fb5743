//! Operations on single files. This room uses only `error` and `watch`, so every other room can build on it.
//!
//! | module | what lives there |
//! | --- | --- |
//! | `signature` | the kind of a file, by its first bytes |
//! | `bundle` | the formats of packed bundles |
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
