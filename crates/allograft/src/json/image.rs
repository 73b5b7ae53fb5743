//! The images in the document of `allograft inspect`.

use inspector::Libc;
use serde::Serialize;

/// An image for one platform, a root file system, or a package.
#[derive(Debug, Serialize)]
pub(crate) struct Image {
    /// The path of the layout, archive or package that it is in.
    pub(crate) path: String,
    /// The kind of that file or folder.
    pub(crate) form: ImageForm,
    /// Its names there, such as `docker.io/library/alpine:3.20`.
    pub(crate) names: Vec<String>,
    /// The digest of its manifest, or of its configuration if it has no manifest: `sha256:` and 64 hexadecimal digits.
    /// Null for root file systems and packages.
    pub(crate) digest: Option<String>,
    /// What it runs on: `linux/amd64`, `linux/arm64/v8`. Null for root file systems and packages.
    pub(crate) platform: Option<String>,
    /// The number of its layers.
    pub(crate) layers: usize,
    /// The variables of its configuration that a loader reads.
    pub(crate) environment: Variables,
    /// The files that its programs are to load before all others, in order.
    pub(crate) preloads: Vec<ImagePreload>,
    /// The programs that load no preload, or take no `malloc` of one.
    pub(crate) unaffected: Unaffected,
    /// Why its files are not known. They are not in `files` then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

/// The kinds of files and folders with images.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ImageForm {
    /// An OCI layout: a folder, or a tar of it.
    OciLayout,
    /// An archive of `docker save`.
    DockerArchive,
    /// A root file system, as a tar.
    RootTar,
    /// A Debian package.
    Deb,
    /// An Alpine package.
    Apk,
    /// A zip, such as a Python wheel.
    Zip,
}

/// Variables that a loader reads. Null if they are not set.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Variables {
    /// `LD_PRELOAD`.
    pub(crate) ld_preload: Option<String>,
    /// `LD_LIBRARY_PATH`.
    pub(crate) ld_library_path: Option<String>,
}

/// A file that the programs of an image are to load before all others.
#[derive(Debug, Serialize)]
pub(crate) struct ImagePreload {
    /// Its name there.
    pub(crate) file: String,
    /// Where it is named: the variable `LD_PRELOAD`, or the file `/etc/ld.so.preload`.
    pub(crate) source: &'static str,
    /// The file that it resolves to, as a path in the image; null if there is no such file.
    pub(crate) found: Option<String>,
    /// That file's architecture.
    pub(crate) arch: Option<String>,
    /// That file's libc.
    pub(crate) libc: Option<Libc>,
    /// The allocator in that file; `none` if it has no `malloc`.
    pub(crate) malloc: Option<String>,
    /// The number of programs by effect.
    pub(crate) programs: Affected,
    /// Why it has no effect on some programs or all of them, as a clause. Null if it is
    /// loaded by all that look at it.
    pub(crate) problem: Option<String>,
}

/// In how many programs a preload has which effect.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Affected {
    /// It is loaded, and its `malloc` serves.
    pub(crate) served: usize,
    /// It is loaded, and its `malloc`, if it has one, does not serve.
    pub(crate) loaded: usize,
    /// Their loader does not find it.
    pub(crate) missing: usize,
    /// It is for another architecture.
    pub(crate) other_architecture: usize,
    /// It is for another libc.
    pub(crate) other_libc: usize,
    /// It is not a library.
    pub(crate) no_library: usize,
    /// They run with other rights than their caller, and their loader leaves it out.
    pub(crate) privileged: usize,
    /// It is not known.
    pub(crate) unknown: usize,
}

/// Programs whose `malloc` no preload changes, in numbers.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Unaffected {
    /// They are static.
    pub(crate) without_loader: usize,
    /// They are dynamic, and bring their own `malloc` or need none.
    pub(crate) own_malloc: usize,
}
