//! Defined symbols become local.

use fixtures::objects;
use object::write::{Object, Symbol, SymbolSection};
use object::{
    Architecture, BinaryFormat, Endianness, ObjectSection, SectionFlags, SectionKind, SymbolFlags, SymbolKind,
    SymbolScope, elf,
};
use relocatable::{Binding, ObjectError, localise, symbols};

const ARCHITECTURES: [Architecture; 5] =
    [Architecture::X86_64, Architecture::Aarch64, Architecture::Riscv64, Architecture::I386, Architecture::Arm];

#[test]
fn what_is_not_kept_is_local_and_comes_first() {
    for architecture in ARCHITECTURES {
        let words = "inner malloc weak:other needs:memcpy hidden:last";
        let object = objects::object_for(architecture, Endianness::Little, words);
        let local = localise(&object, &|name| name == b"malloc").expect("localised");
        assert_eq!(local.len(), object.len());
        let shown: Vec<(Binding, bool, String)> = symbols(&local)
            .expect("symbols")
            .iter()
            .filter(|symbol| !symbol.name.is_empty())
            .map(|symbol| (symbol.binding, symbol.defined, String::from_utf8_lossy(symbol.name).into_owned()))
            .collect();
        let expected = [
            (Binding::Local, true, "inner"),
            (Binding::Local, true, "other"),
            (Binding::Local, true, "last"),
            (Binding::Global, true, "malloc"),
            (Binding::Global, false, "memcpy"),
        ];
        let expected = expected.map(|(binding, defined, name)| (binding, defined, name.to_owned()));
        assert_eq!(shown, expected, "{architecture:?}");
        assert_eq!(localise(&local, &|name| name == b"malloc").expect("localised"), local, "twice is once");
        assert_eq!(localise(&object, &|_| true).expect("localised").len(), object.len());
    }
}

#[test]
fn other_files_are_refused() {
    assert_eq!(localise(b"text", &|_| true), Err(ObjectError::NotAnObject));
    let big = objects::object_for(Architecture::PowerPc64, Endianness::Big, "g");
    assert!(matches!(localise(&big, &|_| true), Err(ObjectError::Machine { .. })));
}

/// LLVM's list of symbols whose addresses matter has their numbers, which change. Without it, all addresses matter.
#[test]
fn a_list_of_symbols_by_number_is_taken_out() {
    use object::Object as _;
    let mut file = Object::new(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little);
    let text = file.add_section(Vec::new(), b".text".to_vec(), SectionKind::Text);
    file.append_section_data(text, &[0xc3, 0xc3], 1);
    for (value, name) in (0..).zip(["inner", "malloc"]) {
        file.add_symbol(Symbol {
            name: name.into(),
            value,
            size: 1,
            kind: SymbolKind::Text,
            scope: SymbolScope::Linkage,
            weak: false,
            section: SymbolSection::Section(text),
            flags: SymbolFlags::None,
        });
    }
    let list = file.add_section(Vec::new(), b".llvm_addrsig".to_vec(), SectionKind::Other);
    file.section_mut(list).flags =
        SectionFlags::Elf { sh_type: elf::SectionType(0x6fff_4c03), sh_flags: elf::SHF_EXCLUDE };
    file.append_section_data(list, &[2], 1);
    let local = localise(&file.write().expect("an object"), &|name| name == b"malloc").expect("localised");
    let local = object::File::parse(local.as_slice()).expect("an object");
    let section = local.section_by_name(".llvm_addrsig").expect("its header stays");
    assert_eq!((section.size(), section.kind()), (0, SectionKind::Other), "no list, and not an empty one");
}
