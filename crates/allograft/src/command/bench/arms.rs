//! The arms of a comparison and the names that users type for them: `stock`, `mimalloc`, `mimalloc:small`,
//! `mimalloc:only`, `mimalloc:strings`, `mimalloc:preload`, `strings`, `glibc`, `glibc:arena_max=2`, `tcmalloc`,
//! `preload:PATH`.

use std::path::{Path, PathBuf};

use format::Arch;
use hosts::{Candidate, Request};
use measure::results::Origin;

use crate::choice::{STRINGS, meant};
use crate::failure::Failure;
use crate::setting;
use crate::similar::similar;

/// An arm.
#[derive(Debug, Clone)]
pub(crate) struct Arm {
    /// The name that the user typed.
    pub(crate) name: String,
    pub(crate) libc: Libc,
}

/// The libc of an arm's program.
#[derive(Debug, Clone)]
pub(crate) enum Libc {
    /// Unchanged, or a dynamic glibc program with a setting.
    Stock(Setting),
    Graft(ArmGraft),
    /// This machine's glibc, with its own build command.
    Glibc,
    /// Stock, preceded by an allocator that never frees.
    Bump,
}

/// The setting with which a dynamic glibc program is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Setting {
    /// Nothing.
    Plain,
    /// These tunables of glibc's own malloc.
    Tunables(Vec<(String, i64)>),
    /// This shared object is loaded first: an allocator that is not a donor.
    Preload(PathBuf),
}

/// The graft of an arm, in the terms of `allograft graft`.
#[derive(Debug, Clone)]
pub(crate) struct ArmGraft {
    /// The allocator. `None` for string functions alone.
    pub(crate) donor: Option<&'static donors::Donor>,
    pub(super) profile: Option<String>,
    pub(super) settings: Vec<(String, i64)>,
    pub(crate) strings: bool,
    /// Whether the donor is loaded into a dynamic program by its loader, and not merged into it.
    pub(super) preload: bool,
    kind: HostKind,
}

/// The kind of file that a donor goes into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HostKind {
    /// A libc.a: string functions go in with a donor.
    Archive,
    /// A linked executable: string functions go in only on request.
    Executable,
    /// A dynamic program: string functions never go in.
    Shared,
}

impl HostKind {
    /// Whether string functions go in with a donor by default.
    fn has_strings(self) -> bool {
        self == HostKind::Archive
    }
}

pub(super) const STOCK: &str = "stock";
const GLIBC: &str = "glibc";
pub(super) const BUMP: &str = "bump";
/// The name of an arm with any shared object, and the suffix after a donor's name for "preloaded, not merged".
const PRELOAD: &str = "preload";
/// Allocators that systems have as shared objects, and the names of their files, the best first.
const INSTALLED: [(&str, &[&str]); 2] = [
    ("tcmalloc", &["libtcmalloc_minimal.so.4", "libtcmalloc.so.4", "libtcmalloc_minimal.so", "libtcmalloc.so"]),
    ("mesh", &["libmesh.so.1", "libmesh.so"]),
];
/// The tunables of glibc's malloc (The GNU C Library, "Memory Allocation Tunables").
const TUNABLES: [&str; 13] = [
    "arena_max",
    "arena_test",
    "check",
    "hugetlb",
    "mmap_max",
    "mmap_threshold",
    "mxfast",
    "perturb",
    "tcache_count",
    "tcache_max",
    "tcache_unsorted_limit",
    "top_pad",
    "trim_threshold",
];
/// The arms that often help a dynamic program of glibc without another allocator: few arenas (`MALLOC_ARENA_MAX=2`),
/// and thresholds that do not grow, so that large blocks go back to the system when they are freed.
pub(super) const TUNED: [&str; 2] = ["glibc:arena_max=2", "glibc:mmap_threshold=131072:trim_threshold=131072"];

/// The suffix after a donor's name for "without string functions". [`STRINGS`] as a suffix means "with them".
const ONLY: &str = "only";

/// An entry of a list: string functions alone, and every donor.
pub(super) const ALL: &str = "all";
/// An entry of a list: every donor with each of its profiles that set something.
const PROFILES: &str = "profiles";

/// The profile that `--for memory` adds to `all`.
pub(super) const SMALL: &str = "small";

/// The arms that the user asks for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Selection<'l> {
    /// The names of `--donors`. `None`: `all`.
    pub(super) names: Option<&'l [String]>,
    /// The profile with which `all` has each donor once more, if the donor has that one.
    pub(super) profile: Option<&'static str>,
}

impl Selection<'_> {
    /// The names of `--donors`, or `all`.
    fn names(&self) -> Vec<String> {
        self.names
            .map_or_else(|| vec![ALL.to_owned()], |names| names.iter().map(|name| meant(name).to_owned()).collect())
    }

    /// Whether `all` is among the names.
    pub(super) fn has_all(&self) -> bool {
        self.names().iter().any(|name| name == ALL)
    }

    /// Returns the names of the donor's arms in `all`: alone, and with the profile.
    pub(super) fn each(&self, donor: &donors::Donor) -> impl Iterator<Item = String> {
        let profile = self.profile.filter(|profile| donor.profile(profile).is_some());
        let name = donor.name;
        std::iter::once(name.to_owned()).chain(profile.map(|profile| format!("{name}:{profile}")))
    }
}

/// Returns the arms that were asked for, stock first.
pub(super) fn read(asked: Selection<'_>, arch: Arch, kind: HostKind) -> Result<Vec<Arm>, Failure> {
    let mut arms = vec![Arm { name: STOCK.to_owned(), libc: Libc::Stock(Setting::Plain) }];
    let mut typed: Vec<String> = Vec::new();
    for name in &asked.names() {
        let several = match name.as_str() {
            ALL => all(asked, arch),
            PROFILES => profiles(arch, &|_| true),
            _ if typed.contains(name) => {
                return Err(Failure::usage(format!("arm `{name}` is there twice")).with_help("name each arm once"));
            }
            _ => {
                typed.push(name.clone());
                vec![name.clone()]
            }
        };
        for name in several {
            if arms.iter().all(|arm| arm.name != name) {
                arms.push(one(&name, arch, kind)?);
            }
        }
    }
    Ok(arms)
}

/// A kind of program, and the arms that it can have.
pub(super) struct Fitting<'f> {
    /// Its name in a sentence.
    pub(super) name: &'f str,
    pub(super) kind: HostKind,
    /// Whether a donor goes into it.
    pub(super) takes: &'f dyn Fn(&donors::Donor) -> bool,
    /// Whether it starts with settings: a dynamic program of glibc.
    pub(super) is_settable: bool,
    /// The names of the arms of `all`.
    pub(super) all: &'f [String],
    /// The help for an arm that it cannot have.
    pub(super) help: &'f str,
}

impl Fitting<'_> {
    /// Returns the arms that were asked for, stock first.
    ///
    /// # Errors
    /// An arm that it cannot have.
    pub(super) fn arms(&self, asked: Selection<'_>, arch: Arch) -> Result<Vec<Arm>, Failure> {
        let list = asked.names();
        let mut expanded: Vec<String> = Vec::new();
        for name in &list {
            // `all` and `profiles` are those that fit. An arm that has a name in the list keeps its place.
            let several = match name.as_str() {
                ALL => self.all.to_vec(),
                PROFILES => profiles(arch, self.takes),
                _ => {
                    expanded.push(name.clone());
                    continue;
                }
            };
            let new = several.into_iter().filter(|name| !list.contains(name) && !expanded.contains(name));
            expanded.extend(new.collect::<Vec<_>>());
        }
        let arms = read(Selection { names: Some(&expanded), ..asked }, arch, self.kind)?;
        let unfit = arms.iter().find(|arm| match &arm.libc {
            Libc::Stock(setting) => *setting != Setting::Plain && !self.is_settable,
            Libc::Graft(graft) => !graft.donor.is_some_and(self.takes),
            Libc::Glibc | Libc::Bump => true,
        });
        match unfit {
            None => Ok(arms),
            Some(arm) => Err(Failure::usage(format!("{} has no arm `{}`", self.name, arm.name)).with_help(self.help)),
        }
    }
}

/// Adds the arm for the program built with glibc, unless the list has it.
pub(super) fn add_glibc(arms: &mut Vec<Arm>) {
    if arms.iter().all(|arm| arm.name != GLIBC) {
        arms.push(Arm { name: GLIBC.to_owned(), libc: Libc::Glibc });
    }
}

fn offered(arch: Arch) -> impl Iterator<Item = &'static donors::Donor> {
    donors::all().iter().filter(move |donor| donor.supports(arch))
}

fn all(asked: Selection<'_>, arch: Arch) -> Vec<String> {
    let strings = donors::strings().supports(arch).then(|| STRINGS.to_owned());
    strings.into_iter().chain(offered(arch).flat_map(|donor| asked.each(donor))).collect()
}

fn profiles(arch: Arch, takes: &dyn Fn(&donors::Donor) -> bool) -> Vec<String> {
    let of = |donor: &'static donors::Donor| {
        let setting = donor.profiles.iter().filter(|profile| !profile.options.is_empty());
        setting.map(|profile| format!("{}:{}", donor.name, profile.name))
    };
    offered(arch).filter(|donor| takes(donor)).flat_map(of).collect()
}

/// The name of the arm for the donor with string functions.
pub(super) fn with_strings(donor: &donors::Donor) -> String {
    format!("{}:{STRINGS}", donor.name)
}

fn one(text: &str, arch: Arch, kind: HostKind) -> Result<Arm, Failure> {
    let mut parts = text.split(':');
    let name = parts.next().unwrap_or_default();
    let libc = match name {
        STOCK => Libc::Stock(Setting::Plain),
        GLIBC if parts.clone().next().is_none() => Libc::Glibc,
        GLIBC => {
            let tunables = parts.by_ref().map(|part| tunable(part, text, kind)).collect::<Result<_, Failure>>()?;
            Libc::Stock(Setting::Tunables(tunables))
        }
        PRELOAD => {
            let path = parts.by_ref().collect::<Vec<_>>().join(":");
            Libc::Stock(Setting::Preload(preloaded(Path::new(&path), text, kind)?))
        }
        _ if INSTALLED.iter().any(|(known, _)| *known == name) => {
            let path = installed(name, arch, &library_folders(arch))?;
            Libc::Stock(Setting::Preload(preloaded(&path, text, kind)?))
        }
        BUMP => Libc::Bump,
        STRINGS => Libc::Graft(ArmGraft {
            donor: None,
            profile: None,
            settings: Vec::new(),
            strings: true,
            preload: false,
            kind,
        }),
        _ => {
            let donor = donors::find(name).ok_or_else(|| unknown(name, text, arch, kind))?;
            if !donor.supports(arch) {
                return Err(Failure::usage(format!("donor `{name}` is not for {arch}"))
                    .with_help("`allograft donors` lists the architectures of every donor"));
            }
            let strings = kind.has_strings();
            let mut graft =
                ArmGraft { donor: Some(donor), profile: None, settings: Vec::new(), strings, preload: false, kind };
            for part in parts.by_ref() {
                graft.add(part, donor)?;
            }
            Libc::Graft(graft)
        }
    };
    match parts.next() {
        Some(part) => Err(Failure::usage(format!("arm `{name}` takes no `:{part}`"))
            .with_help("profiles and options are donors': `mimalloc:small`, `mimalloc:purge_delay=0`")),
        None => Ok(Arm { name: text.to_owned(), libc }),
    }
}

/// The failure of an arm whose name is that of no donor, and of nothing else. Its help names what goes into a file of
/// this kind.
fn unknown(name: &str, text: &str, arch: Arch, kind: HostKind) -> Failure {
    let fits = |donor: &&donors::Donor| match kind {
        HostKind::Archive => donor.supports(arch),
        HostKind::Executable => donor.has_blob(arch),
        HostKind::Shared => donor.has_library(arch),
    };
    let donors: Vec<&str> = donors::all().iter().filter(fits).map(|donor| donor.name).collect();
    let others = [STOCK, STRINGS, GLIBC, PRELOAD, ALL, PROFILES].into_iter().chain(INSTALLED.map(|(name, _)| name));
    let help = match similar(name, donors.iter().copied().chain(others)) {
        Some(meant) => format!("did you mean `{}`?", text.replacen(name, meant, 1)),
        None if donors::PROFILES.contains(&name) => {
            let having = donors::all().iter().filter(|donor| donor.profile(name).is_some());
            let arms: Vec<String> = having.map(|donor| format!("{}:{name}", donor.name)).collect();
            format!("a profile stands behind its donor: {}", arms.join(", "))
        }
        None => {
            let (own, behind) = match kind {
                HostKind::Archive => ("strings, glibc and ", ", `:only` (without string functions)"),
                HostKind::Executable => ("", ", `:strings` (with string functions, too)"),
                HostKind::Shared => {
                    ("tcmalloc, mesh, preload:PATH, glibc:TUNABLE=VALUE, and ", ", `:preload` (not merged)")
                }
            };
            let donors = donors.join(", ");
            format!("arms are stock, {own}donors: {donors}; with `:PROFILE`, `:KEY=VALUE`{behind} behind them")
        }
    };
    Failure::usage(format!("there is no arm `{text}`")).with_help(help)
}

/// Returns the path of a shared object as the loader takes it, for the arm `text`.
fn preloaded(path: &Path, text: &str, kind: HostKind) -> Result<PathBuf, Failure> {
    if kind != HostKind::Shared {
        return Err(Failure::usage(format!("arm `{text}` is for dynamic programs of glibc")).with_help(
            "name the program behind `--`: `allograft bench --donors preload:./liballocator.so -- ./program`",
        ));
    }
    std::fs::canonicalize(path).map_err(|error| {
        Failure::usage(format!("arm `{text}`: cannot read `{}`: {error}", path.display()))
            .with_help("name the shared object of an allocator: `preload:/usr/lib/libtcmalloc.so`")
    })
}

/// The folders in which a system keeps its libraries: those of the loader, then the usual ones.
fn library_folders(arch: Arch) -> Vec<PathBuf> {
    let own = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let own = std::env::split_paths(&own).filter(|folder| folder.is_absolute());
    let triple = format!("/usr/lib/{}-linux-gnu", arch.name());
    own.chain(["/usr/local/lib", &triple, "/usr/lib64", "/usr/lib"].map(PathBuf::from)).collect()
}

/// Returns the file of an allocator that a system may have.
fn installed(name: &str, arch: Arch, folders: &[PathBuf]) -> Result<PathBuf, Failure> {
    let files = INSTALLED.iter().find(|(known, _)| *known == name).map(|(_, files)| *files).unwrap_or_default();
    let paths = folders.iter().flat_map(|folder| files.iter().map(|file| folder.join(file)));
    paths.into_iter().find(|path| path.is_file()).ok_or_else(|| {
        let searched: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
        Failure::usage(format!("there is no {name} for {arch}: no {} in {}", files.join(", "), searched.join(", ")))
            .with_help("install it (Debian: libtcmalloc-minimal4), or name its shared object: `preload:PATH`")
    })
}

/// Reads `NAME=VALUE` of the arm `text`.
fn tunable(part: &str, text: &str, kind: HostKind) -> Result<(String, i64), Failure> {
    if kind != HostKind::Shared {
        return Err(Failure::usage(format!("arm `{text}` is for dynamic programs of glibc"))
            .with_help("name the program behind `--`: `allograft bench --donors glibc:arena_max=2 -- ./program`"));
    }
    let (name, value) = part.split_once('=').unwrap_or((part, ""));
    match value.parse::<u32>() {
        Ok(value) if TUNABLES.contains(&name) => Ok((name.to_owned(), value.into())),
        _ => Err(Failure::usage(format!("`{part}` in `{text}` is no tunable of glibc's malloc with a number"))
            .with_help(format!("it knows: {}", TUNABLES.join(", ")))),
    }
}

impl ArmGraft {
    fn add(&mut self, part: &str, donor: &donors::Donor) -> Result<(), Failure> {
        if part == ONLY {
            self.strings = false;
        } else if part == STRINGS && self.kind != HostKind::Shared {
            self.strings = true;
        } else if part == PRELOAD && self.kind == HostKind::Shared {
            self.preload = true;
        } else if let Some((key, value)) = part.split_once('=') {
            let value = setting::number(value).map_err(|problem| {
                Failure::usage(format!("`{part}`: {problem}"))
                    .with_help(format!("`allograft donors {}` lists its options with their ranges", donor.name))
            })?;
            let setting = (key.to_owned(), value);
            setting::check(&[donor], std::slice::from_ref(&setting))?;
            self.settings.push(setting);
        } else if donor.profile(part).is_some() {
            self.profile = Some(part.to_owned());
        } else {
            let having: Vec<&str> = donor.profiles.iter().map(|profile| profile.name).collect();
            let help = match (similar(part, having.iter().copied()), having.as_slice()) {
                (Some(meant), _) => format!("did you mean `{}:{meant}`?", donor.name),
                (None, []) => format!("it has none: `{}` alone is what there is", donor.name),
                (None, _) => format!("it has: {}", having.join(", ")),
            };
            return Err(Failure::usage(format!("donor `{}` has no profile `{part}`", donor.name)).with_help(help));
        }
        Ok(())
    }

    /// The options of the profile, then those that were set.
    pub(super) fn options(&self) -> Vec<(String, i64)> {
        let of_profile = self.donor.zip(self.profile.as_ref()).and_then(|(donor, profile)| donor.profile(profile));
        let mut options: Vec<(String, i64)> =
            of_profile.unwrap_or_default().iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        options.extend(self.settings.iter().cloned());
        options
    }

    pub(super) fn request(&self, out: std::path::PathBuf) -> Request {
        Request {
            candidates: self.donor.map(|donor| Candidate { donor, settings: self.options() }).into_iter().collect(),
            strings: Some(self.strings),
            out: Some(out),
            ..Request::default()
        }
    }

    /// The `allograft graft` command that puts the same into the host.
    fn command(&self, host: &str) -> String {
        let mut words = vec!["allograft graft".to_owned(), crate::shell::quoted(host)];
        words.push(format!("--donor {}", self.donor.map_or(STRINGS, |donor| donor.name)));
        let strings = match (self.strings, self.kind.has_strings()) {
            (true, false) => " --strings on",
            (false, true) => " --strings off",
            _ => "",
        };
        words.join(" ") + &self.tuning("--profile") + strings
    }

    /// The `cargo allograft` command that builds with the same graft.
    pub(super) fn command_of_cargo(&self, build: &str) -> String {
        let donor = self.donor.map_or(STRINGS, |donor| donor.name);
        let strings = if self.strings { "" } else { " --strings off" };
        format!("{build} --donor {donor}{}{strings}", self.tuning("--donor-profile"))
    }

    /// The command-line options for the profile and the settings, each with a blank before it. `profile` is the
    /// command's name for its profile option.
    pub(super) fn tuning(&self, profile: &str) -> String {
        let profile = self.profile.iter().map(|name| format!(" {profile} {name}"));
        profile.chain(self.settings.iter().map(|(key, value)| format!(" --set {key}={value}"))).collect()
    }
}

impl Arm {
    /// The arm's origin, for the results. `strings`: whether allograft has string functions for the host.
    pub(super) fn origin(&self, host: &str, strings: bool) -> Origin {
        let name = self.name.clone();
        match &self.libc {
            Libc::Stock(setting) => {
                let options = if let Setting::Tunables(tunables) = setting { tunables.clone() } else { Vec::new() };
                Origin { name, options, eligible: true, ..Origin::default() }
            }
            Libc::Glibc | Libc::Bump => Origin { name, ..Origin::default() },
            Libc::Graft(graft) => Origin {
                name,
                donor: graft.donor.map(|donor| donor.name.to_owned()),
                version: graft.donor.map(|donor| donor.version.to_owned()),
                strings: graft.strings && strings,
                options: graft.options(),
                command: Some(graft.command(host)),
                eligible: true,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graft_into(kind: HostKind, text: &str) -> ArmGraft {
        match one(text, Arch::X86_64, kind).unwrap().libc {
            Libc::Graft(graft) => graft,
            other => panic!("{other:?}"),
        }
    }

    fn graft(text: &str) -> ArmGraft {
        graft_into(HostKind::Archive, text)
    }

    #[test]
    fn other_allocators_are_found_and_only_for_dynamic_programs() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("libtcmalloc.so.4");
        std::fs::write(&file, "").unwrap();
        let folders = [PathBuf::from("/no such folder"), folder.path().to_owned()];
        assert_eq!(installed("tcmalloc", Arch::X86_64, &folders).unwrap(), file);
        let missing = installed("mesh", Arch::X86_64, &folders).unwrap_err();
        assert!(missing.message.contains("libmesh.so") && missing.help.contains("preload:PATH"), "{missing:?}");
        let named = format!("preload:{}", file.display());
        let Libc::Stock(Setting::Preload(path)) = one(&named, Arch::X86_64, HostKind::Shared).unwrap().libc else {
            panic!("{named}")
        };
        assert_eq!(path, std::fs::canonicalize(&file).unwrap());
        for kind in [HostKind::Archive, HostKind::Executable] {
            assert!(one(&named, Arch::X86_64, kind).unwrap_err().message.contains("is for dynamic programs"));
        }
        assert!(one("preload:/no such file", Arch::X86_64, HostKind::Shared).is_err());
    }

    /// A linked executable keeps its string functions unless the command says otherwise.
    #[test]
    fn string_functions_are_asked_for_where_they_do_not_come_by_themselves() {
        let command = |text| graft_into(HostKind::Executable, text).command("./server");
        assert_eq!(command("mimalloc"), "allograft graft ./server --donor mimalloc");
        assert_eq!(command("mimalloc:only"), "allograft graft ./server --donor mimalloc");
        assert_eq!(command("mimalloc:strings"), "allograft graft ./server --donor mimalloc --strings on");
        assert_eq!(graft("mimalloc:strings").command("libc.a"), "allograft graft libc.a --donor mimalloc");
        assert!(one("mimalloc:strings", Arch::X86_64, HostKind::Shared).is_err());
    }

    #[test]
    fn arms_are_what_graft_would_do() {
        assert_eq!(graft("mimalloc").command("libc.a"), "allograft graft libc.a --donor mimalloc");
        assert_eq!(graft("mimalloc:small").command("a b"), "allograft graft 'a b' --donor mimalloc --profile small");
        let both = graft("mimalloc:small:purge_delay=5:only");
        assert_eq!(
            both.command("libc.a"),
            "allograft graft libc.a --donor mimalloc --profile small --set purge_delay=5 --strings off"
        );
        assert_eq!(both.options().last().unwrap(), &("purge_delay".to_owned(), 5));
        assert_eq!(graft("strings").command("libc.a"), "allograft graft libc.a --donor strings");
    }

    #[test]
    fn stock_comes_first_once() {
        let names = |list: &[&str]| {
            let list: Vec<String> = list.iter().map(|name| (*name).to_owned()).collect();
            read(Selection { names: Some(&list), profile: None }, Arch::X86_64, HostKind::Archive)
                .map(|arms| arms.into_iter().map(|arm| arm.name).collect::<Vec<_>>())
        };
        assert_eq!(names(&["mimalloc", "stock"]).unwrap(), ["stock", "mimalloc"]);
        assert_eq!(names(&["stock", "mimalloc"]).unwrap(), ["stock", "mimalloc"]);
        assert!(names(&["mimalloc", "mimalloc"]).is_err());
        assert!(names(&["no such"]).unwrap_err().help.contains("mimalloc"));
        assert!(names(&["mimalloc:secure"]).unwrap_err().message.contains("no profile `secure`"));
        assert!(names(&["stock:small"]).is_err() && names(&["mimalloc:purge_delay=x"]).is_err());
        assert_eq!(names(&["hardened"]).unwrap()[1], "hardened");
        let profiles = names(&["profiles", "mimalloc", "all"]).unwrap();
        assert!(profiles.contains(&"mimalloc:small".to_owned()), "{profiles:?}");
        assert_eq!(profiles.iter().filter(|name| *name == "mimalloc").count(), 1);
    }

    fn names(arms: Vec<Arm>) -> Vec<String> {
        arms.into_iter().map(|arm| arm.name).collect()
    }

    #[test]
    fn lists_of_a_linked_program_have_the_arms_that_fit() {
        let every = ["mimalloc", "snmalloc"].map(str::to_owned);
        let program = Fitting {
            name: "a linked executable",
            kind: HostKind::Executable,
            takes: &|donor| donor.has_blob(Arch::X86_64),
            is_settable: false,
            all: &every,
            help: "",
        };
        let fitting = |list: &[&str]| {
            let list: Vec<String> = list.iter().map(|name| (*name).to_owned()).collect();
            names(program.arms(Selection { names: Some(&list), profile: None }, Arch::X86_64).unwrap())
        };
        let profiles = fitting(&["mimalloc:small", "profiles"]);
        assert!(profiles.contains(&"snmalloc:small".to_owned()) && profiles.contains(&"mimalloc:small".to_owned()));
        assert!(!profiles.iter().any(|name| name.starts_with("jemalloc")), "{profiles:?}");
        assert_eq!(fitting(&["all"]), ["stock", "mimalloc", "snmalloc"]);
        assert_eq!(
            fitting(&["snmalloc", "all", "snmalloc:small"]),
            ["stock", "snmalloc", "mimalloc", "snmalloc:small"]
        );
    }

    #[test]
    fn all_is_every_donor_and_for_memory_its_small_profile() {
        let all = |profile| names(read(Selection { names: None, profile }, Arch::X86_64, HostKind::Archive).unwrap());
        let (every, with_small) = (all(None), all(Some(SMALL)));
        assert!(every.len() > donors::all().len() && every[1] == "strings");
        let having = donors::all().iter().filter(|donor| donor.profile(SMALL).is_some()).count();
        assert!(having > 2 && with_small.len() == every.len() + having, "{with_small:?}");
        assert!(
            with_small.contains(&"jemalloc:small".to_owned()) && !with_small.contains(&"hardened:small".to_owned())
        );
    }
}
