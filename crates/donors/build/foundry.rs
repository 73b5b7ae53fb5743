//! Builds donors: from a recipe, one relocatable object that defines only the symbols that the recipe names.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use format::{Arch, DonorKind, StringFunction, windows};
use relocatable::{Coff, ObjectError};
use zigcc::{Zig, ZigTarget};

use crate::recipe::{Recipe, Role, Unit, Upstream};

/// One object has to serve `-static` and `-static-pie` (hence -fPIE), and thread-local variables have fixed offsets in
/// both (hence local-exec). Without `-fno-builtin-malloc` and similar flags, the compiler would make assumptions about
/// the malloc family in its own definitions. Unwind tables let a debugger walk out of the allocator.
const COMPILE: [&str; 21] = [
    "-c",
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

/// The flags of an object for Windows. Its code is position-independent by nature, and all of it stays.
const COMPILE_WINDOWS: [&str; 14] = [
    "-c",
    "-O3",
    "-g0",
    "-fomit-frame-pointer",
    "-fno-builtin-malloc",
    "-fno-builtin-calloc",
    "-fno-builtin-realloc",
    "-fno-builtin-free",
    "-fno-stack-protector",
    "-fno-sanitize=all",
    "-fno-addrsig",
    "-DNDEBUG",
    "-Wno-date-time",
    "-Wno-unused-command-line-argument",
];

/// The flags of a shared object in place of the corresponding ones above. Its code is loaded at any address. It is
/// loaded when the program starts, so that the offsets of thread-local variables are known then.
const COMPILE_SHARED: [&str; 3] = ["-fPIC", "-ftls-model=initial-exec", "-DGRAFT_SHARED"];

/// The flags of a donor for the dynamic loader in addition to the ones above. libc.so has no thread-local storage, so
/// each access to such a variable calls a function of the runtime.
const COMPILE_LOADER: [&str; 2] = ["-femulated-tls", "-DGRAFT_LOADER"];

/// The file that a donor's object is linked into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    /// A static program, when it is linked or later.
    Program,
    /// The dynamic loader, which is musl's libc.so.
    Loader,
}

impl Target {
    /// The part of file names that identifies the form.
    fn suffix(self) -> &'static str {
        match self {
            Target::Program => "",
            Target::Loader => "-loader",
        }
    }

    fn flags(self) -> &'static [&'static str] {
        match self {
            Target::Program => &[],
            Target::Loader => &COMPILE_LOADER,
        }
    }
}

/// The environment variable with an additional preprocessor definition for the glue, to measure the cost of a part of
/// it.
pub(crate) const DEFINE: &str = "ALLOGRAFT_DONOR_DEFINE";

/// zig's arguments for the language of a unit.
const C: [&str; 2] = ["cc", "-std=gnu17"];
/// A static program in C has no C++ runtime: no exceptions, no run-time type information, no guards of static
/// variables.
const CXX: [&str; 6] =
    ["c++", "-std=c++20", "-fno-exceptions", "-fno-rtti", "-fno-threadsafe-statics", "-fno-use-cxa-atexit"];

/// The reason why a donor could not be built.
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
    #[error("the sources of `{donor}` are not in `{folder}`\nhelp: `cargo xtask setup` brings them", folder = folder.display())]
    Sources { donor: String, folder: PathBuf },
    #[error("`{file}` of the package `{package}` does not say `{text}`: its version is not the recipe's", file = file.display())]
    Version { package: String, file: PathBuf, text: String },
    #[error("`{path}`: the recipe has no value for `@{name}@`", path = path.display())]
    Template { path: PathBuf, name: String },
    #[error("the object of `{donor}` for {arch}: {source}")]
    Object { donor: String, arch: &'static str, source: ObjectError },
    #[error("the object of `{donor}` for {arch} defines `{symbol}`, which the recipe does not export")]
    Export { donor: String, arch: &'static str, symbol: String },
    #[error("one recipe has string functions; found {count}")]
    Strings { count: usize },
    #[error("{variable} names `{name}`, which is not an allocator of this crate")]
    Unknown { variable: &'static str, name: String },
    #[error("a thread that built donors broke off")]
    Worker,
}

/// The tools of a build: zig, the sources and the output folder.
pub(crate) struct Foundry {
    zig: Zig,
    glue: PathBuf,
    /// The folder of the glue for Windows.
    windows: PathBuf,
    /// The folder of the code that a donor needs beside it in a linked executable.
    transplant: PathBuf,
    out: PathBuf,
    packages: BTreeMap<String, PathBuf>,
    /// The folder of the sources that cargo does not fetch.
    sources: PathBuf,
}

impl Foundry {
    pub(crate) fn new(zig: Zig, home: &Path, out: &Path) -> Result<Foundry, FoundryError> {
        Ok(Foundry {
            zig,
            glue: home.join("glue"),
            windows: home.join("windows"),
            transplant: home.join("transplant"),
            out: out.to_owned(),
            packages: packages(home)?,
            sources: zigcc::sources_folder(home),
        })
    }

    pub(crate) fn object_path(&self, recipe: &Recipe, arch: Arch, form: Target) -> PathBuf {
        self.out.join(format!("{}-{}{}.o", recipe.name, arch.name(), form.suffix()))
    }

    /// Returns the path of the licence's text.
    pub(crate) fn licence_path(&self, recipe: &Recipe) -> PathBuf {
        self.out.join(format!("{}.licence", recipe.name))
    }

    /// Writes the text of the donor's licence.
    pub(crate) fn write_licence(&self, recipe: &Recipe) -> Result<(), FoundryError> {
        let source = self.source(recipe)?;
        let mut texts = Vec::new();
        for file in &recipe.license_files {
            let folder = if source.join(file).is_file() { &source } else { &recipe.folder };
            let text = String::from_utf8_lossy(&read(&folder.join(file))?).replace('\r', "").replace('\t', "        ");
            texts.push(text.trim_matches('\n').to_owned() + "\n");
        }
        let path = self.licence_path(recipe);
        fs::write(&path, texts.join("\n")).map_err(|source| FoundryError::File { path: path.clone(), source })
    }

    /// Returns the path of the shared object.
    pub(crate) fn library_path(&self, recipe: &Recipe, arch: Arch) -> PathBuf {
        self.out.join(format!("{}-{}.so", recipe.name, arch.name()))
    }

    /// Compiles and links a shared object. It exports the public names of the malloc family, and needs no library by
    /// name: the same file serves programs of musl and of glibc.
    pub(crate) fn cast_library(&self, recipe: &Recipe, arch: Arch) -> Result<(), FoundryError> {
        let source = self.source(recipe)?;
        let scratch = self.out.join(format!("{}-{}-shared", recipe.name, arch.name()));
        fs::create_dir_all(&scratch).map_err(|source| FoundryError::File { path: scratch.clone(), source })?;
        let headers = headers(recipe, &source, &scratch)?;
        let (exports, library) = (scratch.join("exports"), self.library_path(recipe, arch));
        let public: Vec<&str> = format::family::exported().collect();
        let text = format!("{{ global: {}; local: *; }};\n", public.join("; "));
        fs::write(&exports, text).map_err(|source| FoundryError::File { path: exports.clone(), source })?;
        let mut line: Vec<OsString> = ["ld.lld", "-shared", "--gc-sections", "--strip-all", "--hash-style=both"]
            .into_iter()
            .chain(["-z", "now", "-z", "relro", "-z", "noexecstack", "-soname", "liballograft.so"])
            // The note of type 3 must describe this file's malloc, whichever malloc comes first when a program is
            // loaded.
            .chain(["-Bsymbolic", "-o"])
            .map(OsString::from)
            .collect();
        line.extend([library.clone().into(), join("--version-script=", &exports, "")]);
        for (number, unit) in recipe.units(&source).into_iter().enumerate() {
            let object = scratch.join(format!("{number}.o"));
            let mut compile = self.compile(recipe, arch, &source, headers.as_deref(), &unit, &object);
            compile.extend(COMPILE_SHARED.map(OsString::from));
            self.zig.run(compile)?;
            line.push(object.into());
        }
        self.zig.run(line)?;
        Ok(())
    }

    /// Compiles, links into one object, removes code that the exported symbols do not reach, and makes all other
    /// symbols local.
    pub(crate) fn cast(&self, recipe: &Recipe, arch: Arch, form: Target) -> Result<(), FoundryError> {
        let source = self.source(recipe)?;
        let scratch = self.out.join(format!("{}-{}{}", recipe.name, arch.name(), form.suffix()));
        fs::create_dir_all(&scratch).map_err(|source| FoundryError::File { path: scratch.clone(), source })?;
        let headers = headers(recipe, &source, &scratch)?;
        let mut objects = Vec::new();
        for unit in recipe.units(&source) {
            let object = scratch.join(format!("{}.o", objects.len()));
            let mut compile = self.compile(recipe, arch, &source, headers.as_deref(), &unit, &object);
            compile.extend(form.flags().iter().map(OsString::from));
            self.zig.run(compile)?;
            objects.push(object);
        }

        let exports = exports(recipe, arch, &objects)?;
        let merged = scratch.join("merged.o");
        self.zig.run(link(&exports, &objects, &merged))?;

        let kept = |name: &[u8]| exports.iter().any(|kept| kept.as_bytes() == name);
        let object = relocatable::localise(&read(&merged)?, &kept).map_err(|source| damaged(recipe, arch, source))?;
        let path = self.object_path(recipe, arch, form);
        fs::write(&path, object).map_err(|source| FoundryError::File { path: path.clone(), source })
    }

    /// Returns the path of the object for Windows.
    pub(crate) fn windows_path(&self, recipe: &Recipe) -> PathBuf {
        self.out.join(format!("{}-windows.obj", recipe.name))
    }

    /// Compiles the object for Windows on x86_64, and makes all symbols local but those of the family and the pointers
    /// to them. It is compiled whole: no linker makes one COFF object from several.
    pub(crate) fn cast_windows(&self, recipe: &Recipe) -> Result<(), FoundryError> {
        let source = self.source(recipe)?;
        let path = self.windows_path(recipe);
        let mut line: Vec<OsString> = C.iter().map(OsString::from).collect();
        line.extend(["-target", "x86_64-windows-gnu"].map(OsString::from));
        line.extend(COMPILE_WINDOWS.map(OsString::from));
        line.extend(self.identity(recipe, windows::NOTE_SECTION));
        let include = recipe.upstream.iter().flat_map(|upstream| &upstream.include);
        for folder in include.map(|folder| source.join(folder)).chain([self.windows.clone(), self.glue.clone()]) {
            line.extend([OsString::from("-I"), folder.into()]);
        }
        line.push(join("-ffile-prefix-map=", &source, "=source"));
        line.extend([recipe.folder.join("windows.c").into(), "-o".into(), path.clone().into()]);
        self.zig.run(line)?;
        let kept = |name: &[u8]| {
            let name = name.strip_prefix(windows::IMPORT.as_bytes()).unwrap_or(name);
            windows::FAMILY.iter().any(|known| known.as_bytes() == name)
        };
        let bytes = read(&path)?;
        let object = Coff::parse(&bytes).and_then(|object| object.localised(&kept));
        let object = object.map_err(|source| damaged(recipe, Arch::X86_64, source))?;
        fs::write(&path, object).map_err(|source| FoundryError::File { path: path.clone(), source })
    }

    /// Returns the path of the blob, or of the blob with string functions.
    pub(crate) fn blob_path(&self, recipe: &Recipe, strings: Option<&Recipe>, arch: Arch) -> PathBuf {
        let strings = strings.map_or_else(String::new, |strings| format!("-{}", strings.name));
        self.out.join(format!("{}{strings}-{}.blob", recipe.name, arch.name()))
    }

    /// Returns the path of the blob for the dynamic loader, or of the blob with string functions.
    pub(crate) fn loader_path(&self, recipe: &Recipe, strings: Option<&Recipe>, arch: Arch) -> PathBuf {
        self.blob_path(recipe, strings, arch).with_extension(format!("{}.blob", &Target::Loader.suffix()[1..]))
    }

    /// Links a donor's object, and that of string functions if given, with the parts of libc that it needs, to a blob
    /// for linked executables. The objects must have been built before.
    pub(crate) fn cast_blob(&self, recipe: &Recipe, strings: Option<&Recipe>, arch: Arch) -> Result<(), FoundryError> {
        let path = self.blob_path(recipe, strings, arch);
        let own = self.object_path(recipe, arch, Target::Program);
        let mut units = vec!["runtime", "selftest"];
        units.extend(strings.map(|_| "selftest_strings"));
        self.link_transplant("transplant.ld", arch, (own, strings), (&units, &[]), path)
    }

    /// Links a donor for the dynamic loader, and string functions if given, with the parts of libc that the donor
    /// needs. The objects must have been built before.
    pub(crate) fn cast_loader(
        &self,
        recipe: &Recipe,
        strings: Option<&Recipe>,
        arch: Arch,
    ) -> Result<(), FoundryError> {
        let path = self.loader_path(recipe, strings, arch);
        let own = self.object_path(recipe, arch, Target::Loader);
        let define = [&["-DTRANSPLANT_LOADER"], Target::Loader.flags()].concat();
        self.link_transplant("loader.ld", arch, (own, strings), (&["runtime"], &define), path)
    }

    /// Links a donor's object, and string functions if given, with units of the transplant's runtime.
    fn link_transplant(
        &self,
        script: &str,
        arch: Arch,
        (own, strings): (PathBuf, Option<&Recipe>),
        (units, define): (&[&str], &[&str]),
        path: PathBuf,
    ) -> Result<(), FoundryError> {
        let (mut objects, mut roots, mut define) = (vec![own], Vec::new(), define.to_vec());
        if let Some(strings) = strings {
            objects.push(self.object_path(strings, arch, Target::Program));
            roots = exports(strings, arch, &objects[1..])?;
            // The program calls no others.
            roots.retain(|name| StringFunction::named(name.as_bytes()).is_some());
            define.push("-DTRANSPLANT_STRINGS");
        }
        self.transplant_units(units, arch, &define, &path.with_extension(""), &mut objects)?;
        self.zig.run(self.link_blob(script, arch, roots.iter().map(String::as_str), objects, path))?;
        Ok(())
    }

    /// Returns the paths of the program and of the library that test a grafted loader.
    pub(crate) fn loader_test_paths(&self, arch: Arch) -> [PathBuf; 2] {
        ["loader-test", "loader-test.so"].map(|name| self.out.join(format!("{name}-{}", arch.name())))
    }

    /// Returns the path of the library that tests a merged program.
    pub(crate) fn merged_test_path(&self, arch: Arch) -> PathBuf {
        self.out.join(format!("merged-test.so-{}", arch.name()))
    }

    /// Compiles and links the library that tests a merged program. It needs no library by name, so that it goes into
    /// programs of musl and of glibc.
    pub(crate) fn cast_merged_test(&self, arch: Arch) -> Result<(), FoundryError> {
        let object = self.out.join(format!("merged-test-{}.o", arch.name()));
        let mut line: Vec<OsString> = C.iter().map(OsString::from).collect();
        line.extend(["-target", arch.triple(), "-c", "-O2", "-g0", "-fPIC", "-fno-builtin"].map(OsString::from));
        line.extend(["-fno-sanitize=all", "-fno-stack-protector"].map(OsString::from));
        line.push(join("-ffile-prefix-map=", &self.transplant, "=transplant"));
        line.extend([self.transplant.join("merged_test.c").into(), "-o".into(), object.clone().into()]);
        self.zig.run(line)?;
        let mut line: Vec<OsString> =
            ["ld.lld", "-shared", "--strip-all", "--hash-style=both", "-z", "now", "-o"].map(OsString::from).into();
        line.extend([self.merged_test_path(arch).into(), object.into()]);
        self.zig.run(line)?;
        Ok(())
    }

    /// Compiles and links the program and the library that test a grafted loader. They are dynamic, and need only
    /// musl's libc.
    pub(crate) fn cast_loader_test(&self, arch: Arch) -> Result<(), FoundryError> {
        let [program, library] = self.loader_test_paths(arch);
        for (source, out, kind) in [("loader_test.c", program, "-pie"), ("loader_library.c", library, "-shared")] {
            let mut line: Vec<OsString> = C.iter().map(OsString::from).collect();
            line.extend(["-target", arch.triple(), "-dynamic", kind, "-O2", "-g0", "-s", "-fPIC"].map(OsString::from));
            line.extend(["-fno-builtin", "-fno-sanitize=all", "-fno-stack-protector"].map(OsString::from));
            line.push(join("-ffile-prefix-map=", &self.transplant, "=transplant"));
            line.extend([self.transplant.join(source).into(), "-o".into(), out.into()]);
            self.zig.run(line)?;
        }
        Ok(())
    }

    /// Compiles units of the transplant's runtime with these further arguments, and adds their objects to `objects`.
    fn transplant_units(
        &self,
        units: &[&str],
        arch: Arch,
        further: &[&str],
        scratch: &Path,
        objects: &mut Vec<PathBuf>,
    ) -> Result<(), FoundryError> {
        fs::create_dir_all(scratch).map_err(|source| FoundryError::File { path: scratch.to_owned(), source })?;
        for unit in units {
            let object = scratch.join(format!("{unit}.o"));
            let mut line: Vec<OsString> = C.iter().map(OsString::from).collect();
            line.extend(["-target", arch.triple()].map(OsString::from));
            line.extend(COMPILE.map(OsString::from));
            // Its memcpy must not become a call of memcpy. The code around it may have landing pads.
            line.extend(["-fno-builtin", "-fno-asynchronous-unwind-tables"].map(OsString::from));
            line.extend((arch == Arch::X86_64).then(|| OsString::from("-fcf-protection=full")));
            line.extend(arch.flags().map(OsString::from));
            line.extend(further.iter().map(OsString::from));
            line.push(join("-ffile-prefix-map=", &self.transplant, "=transplant"));
            line.extend([self.transplant.join(unit).with_extension("c").into(), "-o".into(), object.clone().into()]);
            self.zig.run(line)?;
            objects.push(object);
        }
        Ok(())
    }

    /// Returns the linker's arguments for a blob with the layout of that script.
    fn link_blob<'r>(
        &self,
        script: &str,
        arch: Arch,
        roots: impl Iterator<Item = &'r str>,
        objects: Vec<PathBuf>,
        out: PathBuf,
    ) -> Vec<OsString> {
        let mut line: Vec<OsString> =
            ["ld.lld", "-pie", "--no-dynamic-linker", "-z", "norelro", "-z", "notext"].map(OsString::from).into();
        line.extend(["-z", page_size(arch), "--gc-sections", "--emit-relocs", "-T"].map(OsString::from));
        line.extend([self.transplant.join(script).into(), "-o".into(), out.into()]);
        line.extend(roots.flat_map(|name| [OsString::from("-u"), name.into()]));
        line.extend(objects.into_iter().map(OsString::from));
        line
    }

    /// Returns the folder of the sources: those of upstream, with a checked version, or those of the recipe itself.
    pub(crate) fn source(&self, recipe: &Recipe) -> Result<PathBuf, FoundryError> {
        let Some(Upstream { package, debian, source, evidence, .. }) = &recipe.upstream else {
            return Ok(recipe.folder.clone());
        };
        let donor = recipe.name.clone();
        let source = if let Some(debian) = debian {
            let folder = self.sources.join(format!("{package}-{version}", version = debian.version));
            if !folder.is_dir() {
                return Err(FoundryError::Sources { donor, folder });
            }
            folder.join(source)
        } else {
            let missing = || FoundryError::Package { donor, package: package.clone() };
            self.packages.get(package).ok_or_else(missing)?.join(source)
        };
        let file = source.join(&evidence.file);
        let text = fs::read_to_string(&file).map_err(|source| FoundryError::File { path: file.clone(), source })?;
        if !text.contains(&evidence.text) {
            return Err(FoundryError::Version { package: package.clone(), file, text: evidence.text.clone() });
        }
        Ok(source)
    }

    fn compile(
        &self,
        recipe: &Recipe,
        arch: Arch,
        source: &Path,
        headers: Option<&Path>,
        unit: &Unit,
        object: &Path,
    ) -> Vec<OsString> {
        let language = if unit.is_cxx() { CXX.as_slice() } else { &C };
        let mut line: Vec<OsString> = language.iter().map(OsString::from).collect();
        line.extend(["-target", arch.triple()].map(OsString::from));
        line.extend(COMPILE.map(OsString::from));
        line.extend(arch.flags().map(OsString::from));
        if unit.role == Role::Donor {
            line.extend(self.identity(recipe, recipe.kind.note_section()));
            line.extend(std::env::var(DEFINE).ok().map(|define| OsString::from(format!("-D{define}"))));
        }
        let prelude = recipe.folder.join("prelude.h");
        if unit.role == Role::Upstream && prelude.is_file() {
            line.extend([OsString::from("-include"), prelude.into()]);
        }
        line.extend(recipe.flags_for(arch).map(OsString::from));
        line.extend(recipe.define_for(arch).map(|define| OsString::from(format!("-D{define}"))));
        let include = recipe.upstream.iter().flat_map(|upstream| &upstream.include);
        let own = headers.map(Path::to_owned).into_iter().chain([recipe.folder.clone(), self.glue.clone()]);
        for folder in include.map(|folder| source.join(folder)).chain(own) {
            line.extend([OsString::from("-I"), folder.into()]);
        }
        // Paths of this machine must not be in the object, or two builds would differ.
        line.push(join("-ffile-prefix-map=", source, "=source"));
        line.extend(headers.map(|headers| join("-ffile-prefix-map=", headers, "=headers")));
        line.extend([unit.path.clone().into(), OsString::from("-o"), object.into()]);
        line
    }

    /// Returns the definitions that describe the donor to the unit with the glue. The note is in the section
    /// `note_section`.
    fn identity(&self, recipe: &Recipe, note_section: &str) -> [OsString; 6] {
        let kind = recipe.kind;
        [
            format!("-DGRAFT_DONOR=\"{}\"", recipe.name).into(),
            format!("-DGRAFT_VERSION=\"{}\"", recipe.version).into(),
            format!("-DGRAFT_NOTE_SECTION=\"{note_section}\"").into(),
            format!("-DGRAFT_NOTE_TYPE={}", kind.note_type()).into(),
            // Sources that need nothing else of the glue do not include it, but must have the note.
            "-include".into(),
            self.glue.join("note.h").into(),
        ]
    }
}

/// Returns the largest page size of an architecture's kernels. With it, code and data never share a page.
fn page_size(arch: Arch) -> &'static str {
    if arch == Arch::Aarch64 { "max-page-size=65536" } else { "max-page-size=4096" }
}

/// Fills in the templates. Returns the folder of the results, if there are any.
fn headers(recipe: &Recipe, source: &Path, scratch: &Path) -> Result<Option<PathBuf>, FoundryError> {
    let Some(upstream) = recipe.upstream.as_ref().filter(|upstream| !upstream.templates.is_empty()) else {
        return Ok(None);
    };
    let folder = scratch.join("headers");
    upstream.templates.iter().try_for_each(|template| template.fill(source, &upstream.substitute, &folder))?;
    Ok(Some(folder))
}

fn join(before: &str, path: &Path, after: &str) -> OsString {
    let mut text = OsString::from(before);
    text.push(path);
    text.push(after);
    text
}

fn read(path: &Path) -> Result<Vec<u8>, FoundryError> {
    fs::read(path).map_err(|source| FoundryError::File { path: path.to_owned(), source })
}

fn damaged(recipe: &Recipe, arch: Arch, source: ObjectError) -> FoundryError {
    FoundryError::Object { donor: recipe.name.clone(), arch: arch.name(), source }
}

/// Returns the symbols that the object will export. For an allocator: the malloc family, no matter what else upstream's
/// sources define. For allograft's own sources: all that they define, which may be fewer than the recipe names on some
/// architectures; a symbol that the recipe does not name is an error.
fn exports(recipe: &Recipe, arch: Arch, objects: &[PathBuf]) -> Result<Vec<String>, FoundryError> {
    if recipe.kind == DonorKind::Malloc {
        return Ok(format::family::donated().map(str::to_owned).collect());
    }
    let mut exports = Vec::new();
    for path in objects {
        let bytes = read(path)?;
        let symbols = relocatable::symbols(&bytes).map_err(|source| damaged(recipe, arch, source))?;
        for symbol in symbols.iter().filter(|symbol| symbol.defined && symbol.is_shared()) {
            let name = String::from_utf8_lossy(symbol.name).into_owned();
            if !recipe.exports.contains(&name) {
                return Err(FoundryError::Export { donor: recipe.name.clone(), arch: arch.name(), symbol: name });
            }
            exports.push(name);
        }
    }
    Ok(exports)
}

/// Returns the arguments of `ld.lld -r`: the exported names are the roots, and everything that they do not reach is
/// removed.
fn link(exports: &[String], objects: &[PathBuf], merged: &Path) -> Vec<OsString> {
    let mut line: Vec<OsString> =
        ["ld.lld", "-r", "--gc-sections", "--force-group-allocation", "--strip-debug"].map(OsString::from).into();
    for name in exports {
        line.push("-u".into());
        line.push(name.into());
    }
    line.push("-o".into());
    line.push(merged.into());
    line.extend(objects.iter().map(OsString::from));
    line
}

/// Returns the folders of all packages in the lock file, by name. Works offline when everything has been fetched.
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
