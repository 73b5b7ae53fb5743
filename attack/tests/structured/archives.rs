//! Archives: members of musl's libc.a among others, in each format that `ar` writes.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use format::{Arch, DonorKind};
use inspector::verify::Verified;
use object::write::{Object, Relocation, StandardSection, Symbol, SymbolSection};
use object::{
    Architecture, BinaryFormat, Endianness, RelocationEncoding, RelocationFlags, RelocationKind, SectionKind,
    SymbolFlags, SymbolKind, SymbolScope,
};
use proptest::prelude::*;
use surgery::archive::{Archive, ArchiveError};
use surgery::donor::DonorObject;
use surgery::plan::{PlanKind, Refusal, plan};

use crate::{cases, tool};

/// The format of an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Gnu,
    /// With owners, modes and times.
    Dated,
    WithoutIndex,
    /// Members are names of files.
    Thin,
    Bsd,
}

/// A symbol of a member.
#[derive(Debug, Clone)]
struct Name {
    text: String,
    weak: bool,
    hidden: bool,
    local: bool,
    defined: bool,
}

/// A member.
#[derive(Debug, Clone)]
struct Member {
    name: String,
    symbols: Vec<Name>,
    sections: Vec<String>,
    /// The offsets of references in its code, each to one of its symbols.
    references: Vec<(u64, prop::sample::Index)>,
    /// It is not an object.
    text: bool,
    place: prop::sample::Index,
}

fn name() -> impl Strategy<Value = Name> {
    let text = prop_oneof!["x_[a-z]{1,4}", "x_[a-z]{1,3}\\.[0-9]", "_ZN2x_[a-z]{30,90}E"];
    let flags = any::<(bool, bool, bool, bool)>();
    (text, flags).prop_map(|(text, (weak, hidden, local, defined))| Name {
        text,
        weak,
        hidden,
        local: local && defined,
        defined,
    })
}

fn member() -> impl Strategy<Value = Member> {
    let file = prop_oneof!["[a-c]{1,3}\\.o", "[a-z]{14,16}\\.o", "[a-z]{16,60}\\.lo", "free\\.lo", "[a-z ]{2,9}x\\.o"];
    let section =
        prop_oneof![r"\.text\.x_[a-z]", r"\.data\.rel\.ro\.[a-z]", r"\.note\.x", "x_[a-z]{3}", r"\.debug_[a-z]"];
    (
        file,
        proptest::collection::vec(name(), 0..7),
        proptest::collection::vec(section, 0..5),
        proptest::collection::vec((0_u64..8, any::<prop::sample::Index>()), 0..5),
        proptest::bool::weighted(0.1),
        any::<prop::sample::Index>(),
    )
        .prop_map(|(name, mut symbols, sections, references, text, place)| {
            let mut known = BTreeSet::new();
            symbols.retain(|symbol| known.insert(symbol.text.clone()));
            Member { name, symbols, sections, references, text, place }
        })
}

fn format() -> impl Strategy<Value = Format> {
    prop_oneof![
        6 => Just(Format::Gnu),
        2 => Just(Format::Dated),
        1 => Just(Format::WithoutIndex),
        1 => Just(Format::Thin),
        1 => Just(Format::Bsd),
    ]
}

impl Member {
    fn bytes(&self) -> Vec<u8> {
        if self.text {
            return b"no object".to_vec();
        }
        let mut object = Object::new(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little);
        let text = object.section_id(StandardSection::Text);
        object.append_section_data(text, &[0x90; 64], 16);
        for (number, name) in self.sections.iter().enumerate() {
            let kind = if number % 2 == 0 { SectionKind::ReadOnlyData } else { SectionKind::Data };
            let section = object.add_section(Vec::new(), name.as_bytes().to_vec(), kind);
            object.append_section_data(section, &[number as u8; 5], 1 << (number % 4));
        }
        let symbols: Vec<_> = self.symbols.iter().map(|name| object.add_symbol(name.symbol(text))).collect();
        for (offset, symbol) in self.references.iter().filter(|_| !symbols.is_empty()) {
            let (kind, encoding) = (RelocationKind::PltRelative, RelocationEncoding::X86Branch);
            let flags = RelocationFlags::Generic { kind, encoding, size: 32 };
            let symbol = *symbol.get(&symbols);
            object.add_relocation(text, Relocation { offset: 8 * offset, symbol, addend: -4, flags }).expect("a call");
        }
        object.write().expect("an object")
    }
}

impl Name {
    fn symbol(&self, text: object::write::SectionId) -> Symbol {
        let scope = match (self.local, self.hidden) {
            (true, _) => SymbolScope::Compilation,
            (_, true) => SymbolScope::Linkage,
            _ => SymbolScope::Dynamic,
        };
        Symbol {
            name: self.text.clone().into_bytes(),
            value: if self.defined { 16 } else { 0 },
            size: 8,
            kind: if self.defined { SymbolKind::Text } else { SymbolKind::Unknown },
            scope,
            weak: self.weak && !self.local,
            section: if self.defined { SymbolSection::Section(text) } else { SymbolSection::Undefined },
            flags: SymbolFlags::None,
        }
    }
}

/// Members of musl's libc.a, those that a graft needs among them.
static MUSL: LazyLock<Vec<(String, Vec<u8>)>> = LazyLock::new(|| {
    let (_, small) =
        targets::seeds::for_target("archive").into_iter().find(|(name, _)| name == "musl").expect("a seed");
    let archive = Archive::parse(&small).expect("an archive");
    archive.members().iter().map(|member| (member.display_name(), member.data.to_vec())).collect()
});

/// The donors' objects, ready to go in.
static DONORS: LazyLock<[Vec<u8>; 2]> = LazyLock::new(|| {
    [donors::default_for(Arch::X86_64), donors::strings()].map(|donor| {
        let object = DonorObject::parse(donor.object(Arch::X86_64).expect("it is built")).expect("a donor");
        object.tuned(&[], "0").expect("a note")
    })
});

/// Makes the archive `stock.a` of musl's members and these.
fn write(folder: &Path, format: Format, members: &[Member]) {
    let mut all = MUSL.clone();
    for member in members {
        all.insert(member.place.index(all.len() + 1), (member.name.clone(), member.bytes()));
    }
    let mut arguments: Vec<String> = match format {
        Format::Gnu => vec!["qcsD".to_owned()],
        Format::Dated => vec!["qcsU".to_owned()],
        Format::WithoutIndex => vec!["qcSD".to_owned()],
        Format::Thin => vec!["qcsDT".to_owned()],
        Format::Bsd => ["ar", "--format=bsd", "qcsD"].map(str::to_owned).to_vec(),
    };
    arguments.push("stock.a".to_owned());
    for (number, (name, bytes)) in all.iter().enumerate() {
        // A folder each: two members may have one name.
        let place = format!("{number}");
        fs::create_dir(folder.join(&place)).expect("a folder");
        fs::write(folder.join(&place).join(name), bytes).expect("a file");
        arguments.push(format!("{place}/{name}"));
    }
    if format == Format::Bsd {
        let status = fixtures::zig().command().args(arguments).current_dir(folder).status();
        assert!(status.is_ok_and(|status| status.success()), "zig ar");
    } else {
        tool(folder, "ar", &arguments);
    }
}

/// The lines of `nm` for each member, by its place.
fn symbols(folder: &Path, archive: &str) -> Vec<String> {
    let output = std::process::Command::new("nm").args(["-p", archive]).current_dir(folder).output().expect("nm");
    // It says so of each member that is not an object.
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.split("\n\n").map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect()
}

/// Grafts one archive.
fn check(format: Format, members: &[Member]) {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    write(folder, format, members);
    let stock = fs::read(folder.join("stock.a")).expect("an archive");
    let archive = match (Archive::parse(&stock), format) {
        (Err(ArchiveError::Thin), Format::Thin) | (Err(ArchiveError::Bsd { .. }), Format::Bsd) => return,
        (archive, _) => archive.expect("an archive of a known format"),
    };
    assert!(archive.edit(&BTreeSet::new(), None) == stock, "no edit changes a byte");
    for donor in DONORS.iter() {
        let plan = match plan(&archive, donor) {
            Err(Refusal::Index { .. }) if format == Format::WithoutIndex => return,
            plan => plan.expect("a host"),
        };
        let graft = plan.apply(&archive);
        if let Err(unsound) = Verified::archive(graft.clone(), Some(&stock)) {
            panic!("a graft is unsound: {unsound}");
        }
        fs::write(folder.join("graft.a"), &graft).expect("a file");
        let mut expected = tool(folder, "ar", &["t", "stock.a"]);
        let kept: Vec<String> = symbols(folder, "stock.a");
        let member = match plan.donor_kind {
            DonorKind::Malloc => DonorKind::Malloc.member_name(),
            DonorKind::Strings => DonorKind::Strings.member_name(),
        };
        for removed in plan.removed.iter().rev() {
            assert_eq!(expected.remove(removed.ordinal - 1), removed.name, "`ar` names another member");
        }
        expected.insert(plan.insert_before - 1, member.to_owned());
        assert_eq!(tool(folder, "ar", &["t", "graft.a"]), expected);
        let now: BTreeSet<String> = symbols(folder, "graft.a").into_iter().collect();
        let names: BTreeSet<&str> = plan.removed.iter().map(|removed| removed.name.as_str()).collect();
        let is_kept = |part: &&String| !names.contains(part.lines().next().unwrap_or("").trim_end_matches(':'));
        for part in kept.iter().filter(is_kept) {
            assert!(now.contains(part), "nm finds other symbols:\n{part}");
        }
        let again = Archive::parse(&graft).expect("an archive");
        let plan = surgery::plan::plan(&again, donor).expect("a graft again");
        assert_eq!(plan.kind, PlanKind::Unchanged);
        assert!(plan.apply(&again) == graft);
    }
}

proptest! {
    #![proptest_config(cases(6))]

    #[test]
    fn archives(format in format(), members in proptest::collection::vec(member(), 0..8)) {
        check(format, &members);
    }
}

proptest! {
    #![proptest_config(cases(150))]

    #[test]
    #[ignore = "minutes: hundreds of archives"]
    fn many_archives(format in format(), members in proptest::collection::vec(member(), 0..12)) {
        check(format, &members);
    }
}
