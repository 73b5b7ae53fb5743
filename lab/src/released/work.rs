//! The work of each released program, and its input: real, pinned packages, and projects made for it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use tools::packages::{self, Package};
use tools::{command, folder};

/// The work of a program, and its input.
pub(crate) struct Work {
    /// Its name in tests/corpus/corpus.toml, or among the crates in `compiled.rs`.
    pub(crate) program: &'static str,
    /// A description, for the table.
    pub(crate) about: &'static str,
    /// The folder in which it runs, below the folder of inputs.
    pub(crate) folder: &'static str,
    pub(crate) arguments: &'static [&'static str],
    /// Whether lines are sorted before they are compared, since threads print them in any order.
    pub(crate) sorted: bool,
    /// The beginning of lines that differ in each run.
    pub(crate) ignored: Option<&'static str>,
    /// Whether standard error, which has the program's findings, is compared, too.
    pub(crate) errors: bool,
}

const fn work(
    program: &'static str,
    about: &'static str,
    folder: &'static str,
    arguments: &'static [&'static str],
) -> Work {
    Work { program, about, folder, arguments, sorted: false, ignored: None, errors: false }
}

impl Work {
    const fn sorted(self) -> Work {
        Work { sorted: true, ..self }
    }

    const fn with_errors(self) -> Work {
        Work { errors: true, ..self }
    }

    const fn without(self, start: &'static str) -> Work {
        Work { ignored: Some(start), ..self }
    }
}

/// Programs that use musl's own malloc for all their blocks. None of them needs a network.
pub(crate) const ALL: [Work; 15] = [
    // Without --quiet, threads mix the lines of their output.
    work("leptosfmt", "check the format of 3600 made components", "components", &["--check", "--quiet", "src"])
        .with_errors(),
    work("tombi", "lint the manifests of all locked crates", "", &["lint", "--offline", "--no-cache", "toml"])
        .sorted()
        .with_errors(),
    work("tombi", "check their format", "", &["format", "--check", "--offline", "--no-cache", "toml"])
        .sorted()
        .with_errors(),
    work("typos", "spell-check Django's tools", "", &["--format", "brief", "django/django/contrib/admin"]).sorted(),
    work("zuban", "check the types of Django's core", "django", &["check", "django/core"]).sorted(),
    work("shellcheck", "lint jemalloc's shell scripts", "shell", &["-f", "gcc", "install-sh", "autogen.sh"]),
    work("hadolint", "lint 40 Dockerfiles", "", &["-f", "gnu", "--no-fail", "-c", "hadolint.yaml", "docker/all"]),
    work("dprint", "check the format of TypeScript's libraries", "", &["check", "--config", "dprint.json"]).sorted(),
    work("prek", "run its built-in hooks on Django", "repository", &["run", "--all-files", "--color", "never"]),
    work("turbo", "plan the build of 120 packages", "packages", &["run", "build", "test", "--dry=json"])
        .without("  \"id\":"),
    work("sentry-cli", "look for source maps in TypeScript", "", &["sourcemaps", "inject", "--dry-run", "typescript"]),
    work("sentry-cli", "read a program's debug information", "", &["debug-files", "check", "program"]),
    work("git-cliff", "write the change log of 4000 made commits", "history", &["--offline", "--no-exec"]),
    work(
        "wasm-opt",
        "optimize a module of 620 KB",
        "plugins/json/package",
        &["-O1", "--all-features", "plugin.wasm", "-o", "/dev/stdout"],
    ),
    work("maturin", "write a project's CI", "module", &["generate-ci", "github"]),
];

/// Returns environment variables that keep programs off the network and out of the home folder.
pub(crate) fn environment(inputs: &Path) -> Vec<(&'static str, PathBuf)> {
    let home = inputs.join("home");
    // maturin runs cargo, which may be rustup's proxy.
    let own = |name: &str, folder: &str| {
        let default = || std::env::home_dir().unwrap_or_default().join(folder);
        std::env::var_os(name).map_or_else(default, PathBuf::from)
    };
    vec![
        ("CARGO_HOME", own("CARGO_HOME", ".cargo")),
        ("RUSTUP_HOME", own("RUSTUP_HOME", ".rustup")),
        ("HOME", home.clone()),
        ("XDG_CACHE_HOME", home.join("cache")),
        ("DPRINT_CACHE_DIR", home.join("dprint")),
        ("PREK_HOME", home.join("prek")),
        ("TURBO_TELEMETRY_DISABLED", "1".into()),
        ("SENTRY_DISABLE_UPDATE_CHECK", "1".into()),
        ("ZUBAN_TYPESHED", inputs.join("zuban/zuban/third_party/typeshed")),
        ("PATH", std::env::var_os("PATH").unwrap_or_default().into()),
    ]
}

/// A package, its SHA-256, and the folder for its content.
struct Input {
    package: Package<'static>,
    sha256: &'static str,
    folder: &'static str,
}

const PACKAGES: [Input; 5] = [
    Input {
        package: Package::Wheel("django==5.2.7", None),
        sha256: "59a13a6515f787dec9d97a0438cd2efac78c8aca1c80025244b0fe507fe0754b",
        folder: "django",
    },
    Input {
        package: Package::Npm("typescript@5.9.3"),
        sha256: "10e108c9cf7d5f2879053dff18515fb405abf2ccef63eaaf017d9c571687a1d3",
        folder: "typescript",
    },
    Input {
        package: Package::Npm("@dprint/typescript@0.96.1"),
        sha256: "fa0b31757d3c18e30679a1ab581dd8678632fe80276d0aa26025a57e37dd6745",
        folder: "plugins/typescript",
    },
    Input {
        package: Package::Npm("@dprint/json@0.24.0"),
        sha256: "b7a39358a22bd9f3dd4c1e613fd606358d4e2f2df56cc71947d83550e5c7540a",
        folder: "plugins/json",
    },
    Input {
        package: Package::Npm("@dprint/markdown@0.28.1"),
        sha256: "4e2765e6dfe9e501476f1a9a22ad5920f366239a60a50a68bf93500351e8270c",
        folder: "plugins/markdown",
    },
];

/// The version of the inputs, written into the folder: a change here makes the folder anew.
const RECIPE: &str = "3: with a history";

/// Returns the folder of inputs. Makes it if it does not exist.
///
/// # Errors
/// A package cannot be fetched, or its checksum differs.
pub(crate) fn inputs(home: &Path) -> Result<PathBuf> {
    let place = home.join("inputs");
    if !fs::read_to_string(place.join("complete")).is_ok_and(|recipe| recipe == RECIPE) {
        folder::announce("input for released programs (40 MB)", || folder::place(&place, fill))?;
    }
    Ok(place)
}

fn fill(folder: &Path) -> Result<()> {
    for input in &PACKAGES {
        packages::unpack(input.package, input.sha256, &folder.join(input.folder))?;
    }
    typeshed(folder)?;
    manifests(&folder.join("toml"))?;
    components(&folder.join("components/src"))?;
    history(&folder.join("history"))?;
    projects(folder)?;
    Ok(fs::write(folder.join("complete"), RECIPE)?)
}

/// Unpacks the stubs that zuban looks for beside its Python package, which the corpus leaves out.
fn typeshed(folder: &Path) -> Result<()> {
    let zuban = fixtures::corpus::listed().into_iter().find(|released| released.name == "zuban");
    let zuban = zuban.context("the corpus has no zuban")?;
    let (name, platform) = (zuban.pypi.context("a wheel")?, zuban.platform.context("a platform")?);
    packages::unpack(Package::Wheel(&name, Some(&platform)), &zuban.sha256, &folder.join("zuban"))
}

/// Copies the manifest of every package in the lock file, twice.
fn manifests(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    let arguments = ["metadata", "--format-version", "1", "--locked", "--offline"];
    let metadata: serde_json::Value = serde_json::from_str(&command::output(&mut command::cargo(&arguments))?)?;
    for package in metadata["packages"].as_array().context("cargo names no packages")? {
        let field = |name: &str| package[name].as_str().unwrap_or_default();
        if package["source"].is_string() {
            for copy in 0..2 {
                let name = format!("{}-{}-{copy}.toml", field("name"), field("version"));
                fs::copy(field("manifest_path"), folder.join(name))?;
            }
        }
        if field("name") == "tikv-jemalloc-sys" {
            scripts(Path::new(field("manifest_path")), &folder.with_file_name("shell"))?;
        }
    }
    Ok(())
}

/// Copies jemalloc's scripts, and autoconf's scripts beside them.
fn scripts(manifest: &Path, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    let crate_folder = manifest.parent().context("a manifest has a folder")?;
    let find = command::output(Command::new("find").arg(crate_folder).args(["-type", "f"]))?;
    for name in ["config.guess", "config.sub", "install-sh", "autogen.sh"] {
        let found = find.lines().find(|path| path.ends_with(&format!("/{name}")));
        fs::copy(found.with_context(|| format!("jemalloc's sources have no {name}"))?, folder.join(name))?;
    }
    Ok(())
}

/// Makes typical components of Leptos, unformatted, in 300 files.
fn components(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    for file in 0..300 {
        let mut text = String::from("use leptos::prelude::*;\n");
        for part in 0..12 {
            text += &COMPONENT.replace("FILE", &file.to_string()).replace("PART", &part.to_string());
        }
        fs::write(folder.join(format!("part{file}.rs")), text)?;
    }
    Ok(())
}

const COMPONENT: &str = r#"
#[component]
pub fn Part_FILE_PART(items: Vec<String>) -> impl IntoView {
    let (count, set_count) = signal(PART);
    view! { <div class="part-PART" id=format!("p{}", count.get())><h2>"Part FILE"</h2>
      <button on:click=move |_| { set_count.update(|count| *count += FILE) }>{move || count.get()}" clicks"</button>
          <ul>{items.into_iter()
              .map(|item| view! { <li><a href=format!("/{item}")>{item}</a></li> }).collect_view()}</ul>
      <Show when=move || count.get().gt(&PART) fallback=|| view!{<p>"none"</p>}><p>"some"</p></Show></div> }
}
"#;

/// Makes a repository of 4000 commits.
fn history(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    let commits = folder.join("commits");
    fs::write(&commits, fixtures::history::stream(4000))?;
    command::output(Command::new("git").args(["init", "-q", "-b", "main", "."]).current_dir(folder))?;
    command::output(Command::new("sh").args(["-c", "git fast-import --quiet <commits"]).current_dir(folder))?;
    Ok(fs::remove_file(&commits)?)
}

/// Makes projects of the kinds that the programs need.
fn projects(folder: &Path) -> Result<()> {
    let put = |path: &str, text: &str| -> Result<()> {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().context("a file has a folder")?)?;
        fs::write(path, text).context("cannot write an input")
    };
    put("home/.keep", "")?;
    put("hadolint.yaml", "ignored: []\n")?;
    let mut all = String::new();
    for number in 0..40 {
        all += &format!(
            "FROM debian:{} AS stage{number}\nRUN apt-get update && apt-get install python3 curl\n\
             RUN cd /tmp && sudo make -C part{number} && echo $FOO\nADD x{number}.tar.gz /opt\n\
             RUN if [ $X == {number} ]; then rm -rf $Y/*; fi\nCMD python3 /app/main{number}.py\n",
            if number % 3 == 0 { "latest" } else { "12" }
        );
    }
    put("docker/all", &all)?;
    put(
        "dprint.json",
        "{\"incremental\": false, \"includes\": [\"typescript/package/lib/lib.es*.d.ts\", \"plugins/**/*.md\"],\n\
         \"excludes\": [], \"plugins\": [\"./plugins/typescript/package/plugin.wasm\", \
         \"./plugins/json/package/plugin.wasm\", \"./plugins/markdown/package/plugin.wasm\"]}\n",
    )?;
    put(
        "packages/package.json",
        "{\"name\": \"root\", \"private\": true, \"packageManager\": \"npm@10.0.0\", \"workspaces\": \
         [\"packages/*\"]}\n",
    )?;
    put(
        "packages/turbo.json",
        "{\"tasks\": {\"build\": {\"dependsOn\": [\"^build\"]}, \"test\": {\"dependsOn\": [\"build\"]}}}\n",
    )?;
    for number in 0..120 {
        let before = if number > 0 { format!("\"p{}\": \"*\"", number / 2) } else { String::new() };
        put(
            &format!("packages/packages/p{number}/package.json"),
            &format!(
                "{{\"name\": \"p{number}\", \"version\": \"1.0.0\", \"scripts\": {{\"build\": \"true\", \
                 \"test\": \"true\"}}, \
                 \"dependencies\": {{{before}}}}}\n"
            ),
        )?;
    }
    put("module/src/lib.rs", "")?;
    put(
        "module/Cargo.toml",
        "[package]\nname = \"m\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[lib]\ncrate-type = [\"cdylib\"]\n\
         [workspace]\n",
    )?;
    put(
        "module/pyproject.toml",
        "[build-system]\nrequires = [\"maturin>=1\"]\nbuild-backend = \"maturin\"\n[project]\nname = \
         \"m\"\nversion = \"0.1.0\"\n",
    )?;
    let program = fixtures::corpus::listed().into_iter().find(|released| released.name == "maturin");
    fs::copy(fixtures::corpus::place(&program.context("the corpus has no maturin")?), folder.join("program"))?;
    let repository = folder.join("repository");
    fs::create_dir_all(&repository)?;
    command::output(Command::new("cp").arg("-a").arg(folder.join("django/django")).arg(&repository))?;
    put(
        "repository/.pre-commit-config.yaml",
        "repos:\n  - repo: builtin\n    hooks:\n      - id: trailing-whitespace\n      - id: end-of-file-fixer\n      \
         - id: check-yaml\n      - id: check-json\n      - id: mixed-line-ending\n      - id: check-merge-conflict\n",
    )?;
    for arguments in [["init", "-q", "."], ["add", "-A", "."]] {
        command::output(Command::new("git").args(arguments).current_dir(&repository))?;
    }
    Ok(())
}
