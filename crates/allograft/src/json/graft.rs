//! The document of `allograft graft`.

use format::{Arch, DonorKind, Note};
use hosts::{Action, ArchiveOperation, Edits, ExecutableOperation, Grafted, Operation, StringEntry};
use serde::Serialize;
use surgery::plan::RemovedMember;

use super::text_of;

/// The result of `graft` or, with `--dry-run`, the plan.
#[derive(Debug, Serialize)]
pub(crate) struct Grafts<'g> {
    /// The hosts, sorted by path.
    hosts: Vec<Host<'g>>,
    /// Every `libc.a` or program in the folder, and every program in the image, that was left alone, sorted by path.
    skipped: Vec<Skipped<'g>>,
    /// The number of scripts in a folder of programs: these are not linked, and neither grafted nor skipped.
    scripts: usize,
    /// The packed bundle that holds the hosts.
    bundle: Option<Bundle<'g>>,
    /// The new container image, if the hosts are in one.
    image: Option<String>,
    /// The names of the Swift SDKs whose bundle the target is, packed or not.
    swift_sdks: &'g [String],
    /// Warnings about the copy of a folder: clauses whose subject is the copy.
    notes: &'g [String],
}

/// A host: the fields depend on what it is.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Host<'g> {
    /// A `libc.a`
    Archive(Box<Archive<'g>>),
    /// An executable
    Executable(Box<Executable<'g>>),
}

/// A `libc.a`.
#[derive(Debug, Serialize)]
struct Archive<'g> {
    /// The graft: the host itself or, with `--out`, the file that was written.
    path: String,
    /// With `--out`: the host that was read.
    source: Option<String>,
    /// The action taken.
    action: Action,
    /// The change of the host, done or planned.
    plan: Change,
    /// The host's architecture.
    arch: Arch,
    /// The allocator that comes in. Null with `--donor strings`.
    donor: Option<Donor<'g>>,
    /// With `--force`: the foreign allocator that is replaced.
    another: Option<Another<'g>>,
    /// The members that go because of the allocator, in their order.
    removed: Vec<Member>,
    /// The symbols that the allocator defines.
    provides: &'g [String],
    /// The string functions.
    strings: Strings<'g>,
    /// Whether libc's fork tells the allocator, as musl's does from 1.2.2 on.
    fork_hook: bool,
    /// The files.
    #[serde(flatten)]
    files: Files<'g>,
}

/// An executable.
#[derive(Debug, Serialize)]
struct Executable<'g> {
    /// The graft: the host itself or, with `--out`, the file that was written.
    path: String,
    /// With `--out`: the host that was read.
    source: Option<String>,
    /// Always `executable`.
    kind: &'static str,
    /// The action taken.
    action: Action,
    /// The change of the host, done or planned: never `replace`.
    plan: Change,
    /// The host's architecture.
    arch: Arch,
    /// How it is linked.
    link: Link,
    /// The allocator that comes in.
    donor: Donor<'g>,
    /// Whether it has a symbol table, which agreed with what was found.
    symbols: bool,
    /// The functions that are redirected to the donor's.
    entries: Vec<Entry>,
    /// With `--needed`: the shared object that a dynamic program loads, as its loader gets it. Null where the donor is
    /// in the file.
    needed: Option<String>,
    /// The string functions.
    strings: Exchange<'g>,
    /// Whether its fork tells the allocator; a program without has no fork.
    fork_hook: bool,
    /// Whether its threads tell the allocator when they end; a program without has no threads.
    thread_end: bool,
    /// Whether its `exit` tells the donor, which writes the statistics there; if not, they are written when main
    /// returns.
    process_end: bool,
    /// The trials before the graft was placed, one line each.
    tried: &'g [String],
    /// The files.
    #[serde(flatten)]
    files: Files<'g>,
}

/// The change of a host by a graft.
#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum Change {
    /// The host's own functions go.
    Graft,
    /// The donors of an earlier graft go.
    Replace,
    /// The host carries these donors with these options already.
    Unchanged,
}

/// How an executable is linked.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Link {
    /// At a fixed address.
    Static,
    /// Position-independent.
    StaticPie,
    /// musl's libc.so, the dynamic loader.
    Loader,
    /// With libraries that are loaded when it starts.
    Dynamic,
}

/// The files of a graft.
#[derive(Debug, Serialize)]
struct Files<'g> {
    /// SHA-256 of the stock host in hexadecimal, where it is known.
    stock_sha256: Option<&'g str>,
    /// SHA-256 of the graft, in hexadecimal.
    graft_sha256: &'g str,
    /// The backup that `undo` restores.
    backup: Option<String>,
    /// With `--out`: the earlier graft that was in this file and is replaced, unless it had the same bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    replaced: Option<Replaced<'g>>,
    /// Warnings: clauses whose subject is the host.
    notes: &'g [String],
}

/// The contents of a graft that is replaced.
#[derive(Debug, Serialize)]
struct Replaced<'g> {
    /// Its allocator. Null for string functions alone.
    donor: Option<Donor<'g>>,
    /// Its string functions.
    strings: Option<Donor<'g>>,
}

/// A donor, as the graft's note names it.
#[derive(Debug, Serialize)]
struct Donor<'g> {
    /// Its name.
    name: &'g str,
    /// Its version.
    version: &'g str,
    /// The options that were set, as `key=value` with spaces between.
    options: &'g str,
    /// The checksum of its object: `sha256:` and 64 hexadecimal digits.
    object: &'g str,
}

/// A foreign allocator: neither stock's nor a donor.
#[derive(Debug, Serialize)]
struct Another<'g> {
    /// Its name.
    allocator: &'static str,
    /// The functions of stock that come back, sorted.
    restored: &'g [String],
    /// The functions of stock that the archive lacks and that no `--stock` brings, sorted.
    missing: &'g [String],
}

/// A member of the archive.
#[derive(Debug, Serialize)]
struct Member {
    /// Its place in the archive that the graft is made of, from 1 on.
    ordinal: usize,
    /// Its name.
    name: String,
    /// The size of its content in bytes.
    size: usize,
    /// The symbols that it defines for others, in the order of its table.
    defines: Vec<String>,
}

/// The string functions of an archive.
#[derive(Debug, Serialize)]
struct Strings<'g> {
    /// The action taken.
    action: StringsAction,
    /// The string functions that come in.
    donor: Option<Donor<'g>>,
    /// The members that go, in their order.
    removed: Vec<Member>,
    /// The symbols that the donor defines.
    provides: &'g [String],
    /// The reason why they are not exchanged although that was requested.
    reason: Option<String>,
}

/// The fate of string functions.
#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum StringsAction {
    /// Ours come in.
    Grafted,
    /// String functions were not requested.
    Off,
    /// They cannot be exchanged; the allocator still is. In archives only.
    Refused,
}

/// The string functions of an executable.
#[derive(Debug, Serialize)]
struct Exchange<'g> {
    /// The action taken.
    action: StringsAction,
    /// The string functions that come in.
    donor: Option<Donor<'g>>,
    /// Those that are redirected, in the order of their addresses.
    entries: Vec<Entry>,
    /// Those that stay the program's own, in the order of their addresses.
    kept: Vec<Entry>,
    /// Those that the program does not show, or the donor does not have.
    absent: Vec<Absent>,
}

/// A function in an executable.
#[derive(Debug, Serialize)]
struct Entry {
    /// Its name.
    name: &'static str,
    /// Where it begins before any base is added, in hexadecimal with `0x`.
    address: String,
    /// Why it stays the program's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// A string function that is neither redirected nor kept.
#[derive(Debug, Serialize)]
struct Absent {
    /// Its name.
    name: &'static str,
    /// Why.
    reason: String,
}

/// A file that was left alone.
#[derive(Debug, Serialize)]
struct Skipped<'g> {
    /// Its path.
    path: String,
    /// Why.
    reason: &'g str,
}

/// A packed Swift SDK bundle.
#[derive(Debug, Serialize)]
struct Bundle<'g> {
    /// The bundle itself or, with `--out`, the file that was written.
    path: String,
    /// With `--out`: the bundle that was read.
    source: Option<String>,
    /// How it is packed: `tar.gz` or `zip`.
    format: &'static str,
    /// The action taken.
    action: Action,
    /// SHA-256 of the file in hexadecimal, as `swift sdk install --checksum` takes it. Null when it was not written.
    sha256: Option<&'g str>,
    /// SHA-256 of the tar before compression, in hexadecimal. Null for a zip, and when it was not written.
    tar_sha256: Option<&'g str>,
    /// SHA-256 of the stock bundle in hexadecimal, where it is known.
    stock_sha256: Option<&'g str>,
    /// The backup that `undo` restores.
    backup: Option<String>,
    /// Warnings: clauses whose subject is the bundle.
    notes: &'g [String],
}

impl<'g> From<&'g hosts::Grafts> for Grafts<'g> {
    fn from(grafts: &'g hosts::Grafts) -> Self {
        let host = |host: &'g Grafted| match &host.operation {
            Operation::Archive(operation) => Host::Archive(Box::new(Archive::new(host, operation))),
            Operation::Executable(operation) => Host::Executable(Box::new(Executable::new(host, operation))),
        };
        let skipped = |skipped: &'g hosts::Skipped| Skipped { path: text_of(&skipped.path), reason: &skipped.reason };
        Grafts {
            hosts: grafts.hosts.iter().map(host).collect(),
            skipped: grafts.skipped.iter().map(skipped).collect(),
            scripts: grafts.scripts,
            bundle: grafts.bundle.as_ref().map(Bundle::from),
            image: grafts.image.as_deref().map(text_of),
            swift_sdks: &grafts.swift_sdks,
            notes: &grafts.notes,
        }
    }
}

impl<'g> Archive<'g> {
    fn new(host: &'g Grafted, operation: &'g ArchiveOperation) -> Self {
        let (malloc, strings) = (operation.malloc.as_ref(), operation.strings.plan());
        let another = |foreign: &'g hosts::ForeignAllocator| Another {
            allocator: foreign.allocator,
            restored: &foreign.restoration.restored,
            missing: &foreign.restoration.missing,
        };
        Archive {
            path: text_of(&host.path),
            source: host.source.as_deref().map(text_of),
            action: host.action,
            plan: match host {
                Grafted { unchanged: true, .. } => Change::Unchanged,
                Grafted { before, .. } if before.anything() => Change::Replace,
                _ => Change::Graft,
            },
            arch: operation.arch,
            donor: malloc.map(|plan| Donor::from(&plan.donor)),
            another: operation.foreign.as_ref().map(another),
            removed: removed(operation, DonorKind::Malloc),
            provides: malloc.map(|plan| plan.provides.as_slice()).unwrap_or_default(),
            strings: Strings {
                action: match &operation.strings {
                    hosts::Strings::Off => StringsAction::Off,
                    hosts::Strings::Grafted(_) => StringsAction::Grafted,
                    hosts::Strings::Refused(_) | hosts::Strings::Missing(_) => StringsAction::Refused,
                },
                donor: strings.map(|plan| Donor::from(&plan.donor)),
                removed: removed(operation, DonorKind::Strings),
                provides: strings.map(|plan| plan.provides.as_slice()).unwrap_or_default(),
                reason: operation.strings.reason(),
            },
            fork_hook: operation.fork_hook,
            files: Files::from(host),
        }
    }
}

fn removed(operation: &ArchiveOperation, kind: DonorKind) -> Vec<Member> {
    let member = |RemovedMember { ordinal, name, size, defines, .. }| Member { ordinal, name, size, defines };
    operation.removed(kind).into_iter().map(member).collect()
}

impl<'g> Executable<'g> {
    fn new(host: &'g Grafted, operation: &'g ExecutableOperation) -> Self {
        let (link, symbols) = match &operation.edits {
            Edits::Merge(plan) => (Link::Dynamic, plan.symbols),
            Edits::Need(plan) => (Link::Dynamic, plan.symbols),
            Edits::Redirect(plan) => match (plan.key_values, plan.position_independent) {
                (Some(_), _) => (Link::Loader, plan.symbols),
                (None, true) => (Link::StaticPie, plan.symbols),
                (None, false) => (Link::Static, plan.symbols),
            },
        };
        let plan = operation.edits.redirect();
        let entries = plan.map(|plan| plan.entries.as_slice()).unwrap_or_default();
        Executable {
            path: text_of(&host.path),
            source: host.source.as_deref().map(text_of),
            kind: "executable",
            action: host.action,
            plan: if host.action == Action::Unchanged { Change::Unchanged } else { Change::Graft },
            arch: operation.edits.arch(),
            link,
            donor: Donor::from(&operation.malloc),
            symbols,
            entries: entries.iter().map(|entry| Entry::new(entry.role.name(), entry.address, None)).collect(),
            strings: Exchange::from(operation),
            needed: match &operation.edits {
                Edits::Need(plan) => Some(String::from_utf8_lossy(&plan.library).into_owned()),
                Edits::Redirect(_) | Edits::Merge(_) => None,
            },
            // A donor of a dynamic program registers with libc itself.
            fork_hook: plan.is_none_or(|plan| plan.fork_hook),
            thread_end: plan.is_none_or(|plan| plan.thread_end),
            process_end: plan.is_none_or(|plan| plan.process_end),
            tried: &host.tried,
            files: Files::from(host),
        }
    }
}

impl<'g> From<&'g ExecutableOperation> for Exchange<'g> {
    fn from(operation: &'g ExecutableOperation) -> Self {
        let (Some(note), Some(plan)) = (&operation.strings, operation.edits.redirect()) else {
            let action = StringsAction::Off;
            return Exchange { action, donor: None, entries: Vec::new(), kept: Vec::new(), absent: Vec::new() };
        };
        let entry = |entry: &StringEntry| {
            Entry::new(entry.function.name(), entry.address, entry.kept.as_ref().map(ToString::to_string))
        };
        let (kept, entries) = plan.strings.iter().map(entry).partition(|entry| entry.reason.is_some());
        let absent = plan.strings_absent.iter();
        Exchange {
            action: StringsAction::Grafted,
            donor: Some(Donor::from(note)),
            entries,
            kept,
            absent: absent.map(|(one, why)| Absent { name: one.name(), reason: why.to_string() }).collect(),
        }
    }
}

impl Entry {
    fn new(name: &'static str, address: u64, reason: Option<String>) -> Self {
        Entry { name, address: format!("{address:#x}"), reason }
    }
}

impl<'g> From<&'g Grafted> for Files<'g> {
    fn from(host: &'g Grafted) -> Self {
        Files {
            stock_sha256: host.stock_sha256.as_deref(),
            graft_sha256: &host.graft_sha256,
            backup: host.backup.as_deref().map(text_of),
            replaced: host.replaced.anything().then(|| Replaced {
                donor: host.replaced.malloc.as_ref().map(Donor::from),
                strings: host.replaced.strings.as_ref().map(Donor::from),
            }),
            notes: &host.notes,
        }
    }
}

impl<'g> From<&'g Note> for Donor<'g> {
    fn from(note: &'g Note) -> Self {
        Donor { name: &note.donor, version: &note.version, options: &note.options, object: &note.object }
    }
}

impl<'g> From<&'g hosts::Bundle> for Bundle<'g> {
    fn from(bundle: &'g hosts::Bundle) -> Self {
        Bundle {
            path: text_of(&bundle.path),
            source: bundle.source.as_deref().map(text_of),
            format: bundle.format.ending().trim_start_matches('.'),
            action: bundle.action,
            sha256: bundle.sha256.as_deref(),
            tar_sha256: bundle.tar_sha256.as_deref(),
            stock_sha256: bundle.stock_sha256.as_deref(),
            backup: bundle.backup.as_deref().map(text_of),
            notes: &bundle.notes,
        }
    }
}
