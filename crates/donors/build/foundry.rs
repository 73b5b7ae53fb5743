//! Casts donors: from a recipe to one relocatable object that defines the malloc family and nothing else.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use zigcc::{Arch, Zig};

use crate::recipe::Recipe;

/// What a donor object may define for others to see, public names and musl's internal ones
/// (musl 1.2.6: src/malloc, src/process/fork.c, src/internal/fork_impl.h).
const FAMILY: [&str; 17] = [
    "malloc",
    "calloc",
    "realloc",
    "free",
    "aligned_alloc",
    "memalign",
    "posix_memalign",
    "valloc",
    "pvalloc",
    "reallocarray",
    "malloc_usable_size",
    "__libc_malloc",
    "__libc_calloc",
    "__libc_realloc",
    "__libc_free",
    "__malloc_donate",
    "__malloc_atfork",
];

/// One object has to serve `-static` and `-static-pie` (hence -fPIE), and threads' variables lie at fixed offsets in both
/// (hence local-exec). Without `-fno-builtin-malloc` and its like, the compiler would see through the family's own bodies.
/// Unwind tables let a debugger walk out of the allocator.
const COMPILE: [&str; 22] = [
    "-c",
    "-std=gnu17",
    "-O3",
    "-g0",
    "-fPIE",
    "-ftls-model=local-exec",
    "-fvisibility=hidden",
    "-ffunction-sections",
    "-fdata-sections",
    "-fomit-frame-pointer",
    "-fasynchronous-unwind-tables",
    "-fno-builtin-malloc",
    "-fno-builtin-calloc",
    "-fno-builtin-realloc",
    "-fno-builtin-free",
    "-fno-stack-protector",
    "-fno-sanitize=all",
    "-fno-addrsig",
    "-DNDEBUG",
    "-Wno-date-time",
    "-Wno-unknown-attributes",
    "-Wno-unused-command-line-argument",
];

/// Why a donor could not be built.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FoundryError {
    #[error(transparent)]
    Zig(#[from] zigcc::Error),
    #[error("`{path}`: {source}", path = path.display())]
    File { path: PathBuf, source: std::io::Error },
    #[error("`{path}`: {message}", path = path.display())]
    Recipe { path: PathBuf, message: String },
    #[error(
        "`cargo metadata` did not say where the donors' sources are: {message}\nhelp: `cargo fetch --locked` brings them"
    )]
    Metadata { message: String },
    #[error("the package `{package}` with the sources of `{donor}` is not in the lock file")]
    Package { donor: String, package: String },
    #[error("`{file}` of the package `{package}` does not say `{text}`: its version is not the recipe's", file = file.display())]
    Version { package: String, file: PathBuf, text: String },
    #[error("the object of `{donor}` for {arch}: {source}")]
    Object { donor: String, arch: &'static str, source: surgery::object::ObjectError },
    #[error("a thread that built donors broke off")]
    Worker,
}

/// The place where donors are cast: zig, the sources and the folder for what comes out.
pub(crate) struct Foundry {
    zig: Zig,
    glue: PathBuf,
    out: PathBuf,
    packages: BTreeMap<String, PathBuf>,
}

impl Foundry {
    pub(crate) fn new(zig: Zig, home: &Path, out: &Path) -> Result<Foundry, FoundryError> {
        Ok(Foundry { zig, glue: home.join("glue"), out: out.to_owned(), packages: packages(home)? })
    }

    pub(crate) fn object_path(&self, recipe: &Recipe, arch: Arch) -> PathBuf {
        self.out.join(format!("{}-{}.o", recipe.name, arch.name()))
    }

    /// Compiles, links into one object, throws away what nothing in the family reaches, and makes the rest local.
    pub(crate) fn cast(&self, recipe: &Recipe, arch: Arch) -> Result<(), FoundryError> {
        let source = self.source(recipe)?;
        let compiled = self.out.join(format!("{}-{}.compiled.o", recipe.name, arch.name()));
        self.zig.run(self.compile(recipe, arch, &source, &compiled))?;

        let merged = self.out.join(format!("{}-{}.merged.o", recipe.name, arch.name()));
        self.zig.run(link(&compiled, &merged))?;

        let bytes = fs::read(&merged).map_err(|source| FoundryError::File { path: merged, source })?;
        let object = surgery::object::localise(&bytes, &|name| FAMILY.iter().any(|kept| kept.as_bytes() == name))
            .map_err(|source| FoundryError::Object { donor: recipe.name.clone(), arch: arch.name(), source })?;
        let path = self.object_path(recipe, arch);
        fs::write(&path, object).map_err(|source| FoundryError::File { path, source })
    }

    fn source(&self, recipe: &Recipe) -> Result<PathBuf, FoundryError> {
        let package = self
            .packages
            .get(&recipe.package)
            .ok_or_else(|| FoundryError::Package { donor: recipe.name.clone(), package: recipe.package.clone() })?;
        let source = package.join(&recipe.source);
        let file = source.join(&recipe.evidence.file);
        let text = fs::read_to_string(&file).map_err(|source| FoundryError::File { path: file.clone(), source })?;
        if !text.contains(&recipe.evidence.text) {
            let text = recipe.evidence.text.clone();
            return Err(FoundryError::Version { package: recipe.package.clone(), file, text });
        }
        Ok(source)
    }

    fn compile(&self, recipe: &Recipe, arch: Arch, source: &Path, object: &Path) -> Vec<OsString> {
        let mut line: Vec<OsString> = vec!["cc".into(), "-target".into(), arch.triple().into()];
        line.extend(COMPILE.map(OsString::from));
        line.push(format!("-DGRAFT_DONOR=\"{}\"", recipe.name).into());
        line.push(format!("-DGRAFT_VERSION=\"{}\"", recipe.version).into());
        line.extend(recipe.define.iter().map(|define| format!("-D{define}").into()));
        for folder in recipe.include.iter().map(|folder| source.join(folder)).chain([self.glue.clone()]) {
            line.push("-I".into());
            line.push(folder.into());
        }
        // Paths of this machine must not reach the object, or two builds would differ.
        line.push(join("-ffile-prefix-map=", source, "=source"));
        line.push(recipe.folder.join("donor.c").into());
        line.push("-o".into());
        line.push(object.into());
        line
    }
}

fn join(before: &str, path: &Path, after: &str) -> OsString {
    let mut text = OsString::from(before);
    text.push(path);
    text.push(after);
    text
}

/// `ld.lld -r`: the family's names are the roots, everything that they do not reach goes.
fn link(compiled: &Path, merged: &Path) -> Vec<OsString> {
    let mut line: Vec<OsString> =
        ["ld.lld", "-r", "--gc-sections", "--force-group-allocation", "--strip-debug"].map(OsString::from).into();
    for name in FAMILY {
        line.push("-u".into());
        line.push(name.into());
    }
    line.push("-o".into());
    line.push(merged.into());
    line.push(compiled.into());
    line
}

/// The folders of all packages in the lock file, by name. Offline when everything is fetched already.
fn packages(home: &Path) -> Result<BTreeMap<String, PathBuf>, FoundryError> {
    let metadata = metadata(home, &["--offline"]).or_else(|_| metadata(home, &[]))?;
    let packages = metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let folder = |package: &serde_json::Value| {
        let name = package["name"].as_str()?.to_owned();
        let folder = Path::new(package["manifest_path"].as_str()?).parent()?.to_owned();
        Some((name, folder))
    };
    Ok(packages.iter().filter_map(folder).collect())
}

fn metadata(home: &Path, extra: &[&str]) -> Result<serde_json::Value, FoundryError> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--locked", "--manifest-path"])
        .arg(home.join("Cargo.toml"))
        .args(extra)
        .output()
        .map_err(|error| FoundryError::Metadata { message: error.to_string() })?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(FoundryError::Metadata { message });
    }
    serde_json::from_slice(&output.stdout).map_err(|error| FoundryError::Metadata { message: error.to_string() })
}
