//! Reads container images, root file systems and packages as trees of files: without an engine, without unpacking them,
//! in bounded memory. It prints nothing and runs nothing.
//!
//! [`open`] recognises a file or folder by its content and reads its documents; [`Source::tree`] reads the layers of
//! one image, each once from the top to the bottom, and keeps the contents that its caller wants in a temporary file
//! without a name.
//!
//! | module | what lives there |
//! | --- | --- |
//! | `arena` | memory that grows in blocks |
//! | `compression` | gzip, zstd and xz, recognised by their first bytes |
//! | `digest` | SHA-256 of what is read |
//! | `docker` | archives of `docker save` |
//! | `error` | errors, each with its place |
//! | `image` | an image: documents, environment, layers |
//! | `limits` | limits for hostile images |
//! | `merge` | one tree of several layers |
//! | `nodes` | the nodes of a tree, 32 bytes each |
//! | `oci` | indexes, manifests, configurations |
//! | `package` | `.deb`, `.apk`, and zips such as wheels |
//! | `paths` | the paths of a tree, each part once |
//! | `source` | recognises the format of a file or folder |
//! | `spool` | the temporary file |
//! | `store` | the blobs, in a folder or in a tar |
//! | [`tar`] | the entries of a tar |
//! | `tree` | the files of an image |

mod arena;
mod compression;
mod digest;
mod docker;
mod error;
mod image;
mod limits;
mod merge;
mod nodes;
mod oci;
mod package;
mod paths;
mod source;
mod spool;
mod store;
pub mod tar;
mod tree;

pub use digest::Digest;
pub use error::{Error, Problem};
pub use image::{Descriptor, Document, Image, Layer, Platform};
pub use merge::{Keep, START};
pub use source::{Format, Source, open};
pub use tree::{Kind, Node, Tree};
