//! `cargo xtask upstream`: compares the releases that donors are made of and that tests use with the newest in
//! registries.
//!
//! A project may have its newest release in a different registry or package than the one that a donor is built from. So
//! `upstreams.toml` lists all known packages. It also notes releases that no registry has. A newer release is news, and
//! a registry that does not answer is a warning; neither is an error.

use anyhow::{Context, Result, bail, ensure};
use fixtures::{musls, toolchains};
use serde::Deserialize;
use tools::debian::Apt;
use tools::sources::{self, Recipe};
use tools::{command, folder, workspace};

/// The release of Debian that gets new versions first. Its packages may be incomplete for some architectures.
const DEBIAN: &str = "unstable";

/// All projects.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Projects {
    project: Vec<Project>,
}

/// A project, and the packages with its releases.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Project {
    name: String,
    /// The donors that are made of it. A project without any is a compiler or a libc of tests.
    #[serde(default)]
    donors: Vec<String>,
    /// The beginning of the versions that count.
    #[serde(default)]
    line: String,
    #[serde(default)]
    crates: Vec<Package>,
    /// A binary package of Debian.
    debian: Option<String>,
    /// A package of Python's registry.
    wheel: Option<String>,
    noted: Option<Noted>,
}

/// A package of crates.io that holds a project's sources.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Package {
    name: String,
    /// The release of the package that was checked last.
    version: String,
    /// The version of the sources in it.
    brings: String,
}

/// The newest noted release.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Noted {
    version: String,
    /// The day, as `2026-11-27`.
    on: String,
}

/// A release of a project, and who has it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Release {
    version: String,
    origin: String,
}

/// The findings on a project.
#[derive(Debug)]
struct Finding {
    name: String,
    /// The version that allograft has.
    ours: String,
    /// The newest release that is newer than ours.
    newer: Option<Release>,
    /// Newer releases of packages that have not been checked.
    unseen: Vec<String>,
}

/// Prints a line for each project.
///
/// # Errors
/// When the list of projects does not fit the recipes, and arguments.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    if let Some(extra) = arguments.first() {
        bail!("`upstream` takes no arguments, and got `{extra}`");
    }
    let (findings, warnings) = findings()?;
    for finding in &findings {
        let known = match &finding.newer {
            Some(release) => format!("{} is newer: {}", release.version, release.origin),
            None => "the newest that is known".to_owned(),
        };
        println!("{:<16} {:<20} {known}", finding.name, finding.ours);
        finding.unseen.iter().for_each(|unseen| println!("{:37} {unseen}", ""));
    }
    warnings.iter().for_each(|warning| eprintln!("warning: {warning}"));
    let newer = findings.iter().filter(|finding| finding.newer.is_some()).count();
    println!("{} projects, {newer} of which have a newer release", findings.len());
    Ok(())
}

/// Prints one warning on stderr if anything is newer or unknown. CI must not fail because of a project's new release.
pub(crate) fn warn() {
    let known = findings();
    let news: Vec<String> = match &known {
        Err(error) => vec![format!("{error:#}")],
        Ok((findings, warnings)) => findings.iter().filter_map(Finding::news).chain(warnings.iter().cloned()).collect(),
    };
    if !news.is_empty() {
        eprintln!("warning: `cargo xtask upstream`: {}", news.join("; "));
    }
}

impl Finding {
    fn news(&self) -> Option<String> {
        let newer = self.newer.iter().map(|release| format!("{} {} (ours: {})", self.name, release.version, self.ours));
        let news: Vec<String> = newer.chain(self.unseen.iter().cloned()).collect();
        (!news.is_empty()).then(|| news.join("; "))
    }
}

/// Asks the registries. Returns the findings on each project, and the questions without an answer.
fn findings() -> Result<(Vec<Finding>, Vec<String>)> {
    let recipes = sources::recipes(&workspace::root())?;
    let mut warnings = Vec::new();
    let scratch = folder::Scratch::beside(&fixtures::tools().join("apt-upstream"), "state")?;
    let debian = Apt::of_release(&scratch.0, DEBIAN).and_then(|apt| {
        // Sources of the machine that are not Debian's may be unreachable. The test is whether a package is known.
        let updated = apt.update();
        apt.version("libc6").or_else(|error| updated.and(Err(error)))?;
        Ok(apt)
    });
    if let Err(error) = &debian {
        warnings.push(format!("Debian's packages are not known: {error:#}"));
    }
    let mut findings = Vec::new();
    for project in projects()?.project {
        let (mut releases, mut unseen) = (Vec::new(), Vec::new());
        let mut answer = |answer: Result<String>, origin: String| match answer {
            Ok(version) => Some(Release { version, origin }),
            Err(error) => {
                warnings.push(format!("{origin}: {error:#}"));
                None
            }
        };
        for package in &project.crates {
            releases.push(Release { version: package.brings.clone(), origin: format!("crate `{}`", package.name) });
            let newest = answer(newest_crate(&package.name), format!("crate `{}`", package.name));
            unseen.extend(newest.and_then(|newest| unseen_release(package, &newest.version)));
        }
        if let Ok(debian) = &debian {
            let series = project.recipe(&recipes).and_then(|recipe| recipe.upstream.as_ref()?.debian.as_ref());
            let named = project.debian.iter().map(|package| Ok(package.clone()));
            for package in named.chain(series.map(|package| debian.newest(&package.series))) {
                let origin = format!("Debian's {}", package.as_deref().unwrap_or("package"));
                releases.extend(answer(package.and_then(|package| debian.version(&package)), origin));
            }
        }
        if let Some(wheel) = &project.wheel {
            releases.extend(answer(newest_wheel(wheel), format!("wheel `{wheel}`")));
        }
        releases.extend(project.noted.iter().map(|noted| Release {
            version: noted.version.clone(),
            origin: format!("noted on {}, in no registry", noted.on),
        }));
        let ours = project.ours(&recipes)?;
        let newer = newest(&releases, &project.line).filter(|release| order(&release.version) > order(&ours));
        findings.push(Finding { name: project.name, newer: newer.cloned(), ours, unseen });
    }
    Ok((findings, warnings))
}

fn projects() -> Result<Projects> {
    toml::from_str(include_str!("../upstreams.toml")).context("`xtask/upstreams.toml` is malformed")
}

impl Project {
    fn recipe<'r>(&self, recipes: &'r [Recipe]) -> Option<&'r Recipe> {
        recipes.iter().find(|recipe| self.donors.contains(&recipe.name))
    }

    /// Returns the version that allograft has: its donor's, or the newest that tests use.
    fn ours(&self, recipes: &[Recipe]) -> Result<String> {
        if let Some(recipe) = self.recipe(recipes) {
            return recipe.version.clone().with_context(|| format!("`{}` has no upstream", recipe.name));
        }
        ensure!(self.donors.is_empty(), "no donor is called `{}`", self.donors.join("` or `"));
        let versions: Vec<&str> = match self.name.as_str() {
            "zig" => toolchains::ZIGS.iter().map(|(version, _)| *version).collect(),
            "musl" => musls::RELEASES.iter().map(|release| release.version).collect(),
            "glibc" => fixtures::glibcs::RELEASES.iter().map(|release| release.version).collect(),
            name => bail!("`{name}` has no donors, and no test is known to use it"),
        };
        let newest = versions.into_iter().max_by_key(|version| order(version));
        Ok(newest.with_context(|| format!("no test uses `{}`", self.name))?.to_owned())
    }
}

/// Returns the newest of the releases of a line.
fn newest<'r>(releases: &'r [Release], line: &str) -> Option<&'r Release> {
    let of_line = releases.iter().filter(|release| release.version.starts_with(line));
    // The first of equal ones: a package comes before a note.
    of_line.rev().max_by_key(|release| order(&release.version))
}

/// Returns the numbers of a version, which are compared one by one: those before anything but digits and dots.
fn order(version: &str) -> Vec<u64> {
    let numbers = version.split(|c: char| !c.is_ascii_digit() && c != '.').next().unwrap_or_default();
    numbers.split('.').filter_map(|number| number.parse().ok()).collect()
}

/// Returns the warning that a release of a package has not been checked, if it is newer than the checked one.
fn unseen_release(package: &Package, newest: &str) -> Option<String> {
    let Package { name, version, brings } = package;
    (order(newest) > order(version))
        .then(|| format!("crate `{name}` {newest} is not looked at; {version} has {brings}"))
}

/// Returns the newest version of a package of crates.io. Runs cargo outside the workspace, where it knows no locked
/// version. By default it would prefer a version that the compiler in use can build.
fn newest_crate(package: &str) -> Result<String> {
    let mut info = command::cargo(&["info", "--quiet", package]);
    info.env("CARGO_RESOLVER_INCOMPATIBLE_RUST_VERSIONS", "allow");
    let said = command::output(info.current_dir(std::env::temp_dir()))?;
    crate_version(&said).with_context(|| format!("cargo names no version of `{package}`"))
}

/// Returns the newest version that `cargo info` names. It may show an older version, with the newest behind `latest`.
fn crate_version(said: &str) -> Option<String> {
    let line = said.lines().find_map(|line| line.strip_prefix("version: "))?;
    let version = line.split_once("(latest ").map_or(line, |(_, latest)| latest);
    Some(version.split([' ', ')', '+']).next()?.to_owned())
}

/// Returns the newest version of a package of Python's registry.
fn newest_wheel(package: &str) -> Result<String> {
    let flags = "-m pip index versions --disable-pip-version-check --no-input";
    let mut pip = std::process::Command::new("python3");
    let said = command::output(pip.args(flags.split_whitespace()).arg(package))?;
    let version = said.split_once('(').and_then(|(_, rest)| rest.split_once(')'));
    Ok(version.with_context(|| format!("pip names no version of `{package}`"))?.0.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn release(version: &str, origin: &str) -> Release {
        Release { version: version.to_owned(), origin: origin.to_owned() }
    }

    #[test]
    fn each_donor_has_a_locked_package() {
        let locked = sources::locked(&workspace::root()).unwrap();
        let recipes = sources::recipes(&workspace::root()).unwrap();
        let upstreams: Vec<_> = recipes.into_iter().filter_map(|recipe| recipe.upstream).collect();
        assert!(upstreams.len() >= 10, "{}", upstreams.len());
        for sources::Upstream { package, debian } in upstreams {
            let in_lock_file = || locked.iter().any(|locked| locked.name == package && locked.checksum.is_some());
            assert!(debian.map_or_else(in_lock_file, |debian| debian.sha256.len() == 64), "{package}");
        }
    }

    #[test]
    fn each_donor_is_of_one_project_that_knows_its_package() {
        let locked = sources::locked(&workspace::root()).unwrap();
        let projects = projects().unwrap().project;
        for recipe in sources::recipes(&workspace::root()).unwrap() {
            let Some(upstream) = recipe.upstream else { continue };
            let of: Vec<&Project> = projects.iter().filter(|one| one.donors.contains(&recipe.name)).collect();
            let [project] = of[..] else { panic!("{}: {of:?}", recipe.name) };
            if upstream.debian.is_some() {
                continue;
            }
            // The locked release is the checked one.
            let package = project.crates.iter().find(|package| package.name == upstream.package).expect(&recipe.name);
            let version = &locked.iter().find(|locked| locked.name == package.name).unwrap().version;
            assert_eq!(order(version), order(&package.version), "{}", package.name);
            assert_eq!(order(&recipe.version.unwrap()), order(&package.brings), "{}", package.name);
        }
    }

    #[test]
    fn each_project_has_a_version_of_ours() {
        let recipes = sources::recipes(&workspace::root()).unwrap();
        for project in projects().unwrap().project {
            assert!(!order(&project.ours(&recipes).unwrap()).is_empty(), "{}", project.name);
        }
    }

    #[test]
    fn the_newest_release_counts_wherever_it_is() {
        let releases = [
            release("3.6.0", "one crate"),
            release("3.6.1", "another crate"),
            release("2.5.10", "a crate"),
            release("3.6.0+ds", "Debian"),
            release("3.10.0", "noted"),
        ];
        assert_eq!(newest(&releases, "3."), Some(&releases[4]));
        assert_eq!(newest(&releases[..4], "3."), Some(&releases[1]));
        assert_eq!(newest(&releases, "2."), Some(&releases[2]));
        assert_eq!(newest(&releases, "4."), None);
        let same = [release("2.0.1", "Debian"), release("2.0.1", "noted")];
        assert_eq!(newest(&same, ""), Some(&same[0]));
    }

    #[test]
    fn versions_are_compared_by_their_numbers() {
        assert!(order("0.10.0") > order("0.9.9"));
        assert!(order("5.4.0") > order("5.3.1-0-g0"));
        assert!(order("2.0.1") > order("1.4.3-18-gb097fd0"));
        assert_eq!(order("3.6.0+ds"), order("3.6.0"));
        assert_eq!(order("0.7.1+5.3.1-0-g81034ce"), order("0.7.1"));
    }

    #[test]
    fn a_later_release_of_a_package_is_reported_until_it_is_looked_at() {
        let package = Package { name: "a".to_owned(), version: "0.7.4".to_owned(), brings: "3.6.1".to_owned() };
        assert_eq!(unseen_release(&package, "0.7.4"), None);
        assert!(unseen_release(&package, "0.8.0").unwrap().contains("0.8.0"));
        assert_eq!(crate_version("version: 0.2.0 (latest 0.7.4)\nlicense: MIT").as_deref(), Some("0.7.4"));
        assert_eq!(crate_version("name\nversion: 0.7.1+5.3.1-0-g8\n").as_deref(), Some("0.7.1"));
        assert_eq!(crate_version("license: MIT"), None);
    }

    #[test]
    fn news_are_said_and_silence_is_none() {
        let mut finding = Finding { name: "a".to_owned(), ours: "1".to_owned(), newer: None, unseen: Vec::new() };
        assert_eq!(finding.news(), None);
        finding.newer = Some(release("2", "Debian"));
        assert_eq!(finding.news().as_deref(), Some("a 2 (ours: 1)"));
    }
}
