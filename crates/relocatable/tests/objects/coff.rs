//! Objects for Windows.

use object::write::{Object, StandardSection, Symbol, SymbolSection};
use object::{Architecture, BinaryFormat, Endianness, SymbolFlags, SymbolKind, SymbolScope};
use relocatable::{Coff, ObjectError};

fn symbol(name: &str, section: SymbolSection) -> Symbol {
    let kind = if section == SymbolSection::Undefined { SymbolKind::Unknown } else { SymbolKind::Text };
    let scope = if section == SymbolSection::Undefined { SymbolScope::Unknown } else { SymbolScope::Linkage };
    Symbol { name: name.into(), value: 0, size: 4, kind, scope, weak: false, section, flags: SymbolFlags::None }
}

/// An object that defines these functions and refers to `needed`.
fn object(architecture: Architecture, names: &[&str]) -> Vec<u8> {
    let mut object = Object::new(BinaryFormat::Coff, architecture, Endianness::Little);
    let text = object.section_id(StandardSection::Text);
    object.append_section_data(text, &[0xc3; 32], 16);
    for name in names {
        object.add_symbol(symbol(name, SymbolSection::Section(text)));
    }
    object.add_symbol(symbol("needed", SymbolSection::Undefined));
    object.write().expect("an object")
}

#[test]
fn only_what_is_kept_can_be_referred_to() {
    let bytes = object(Architecture::X86_64, &["malloc", "inner", ".refptr.inner"]);
    let coff = Coff::parse(&bytes).expect("an object");
    assert_eq!(coff.exports().expect("names"), [&b"malloc"[..], b"inner", b".refptr.inner"]);
    let local = coff.localised(&|name| name == b"malloc").expect("localised");
    assert_eq!(local.len(), bytes.len());
    // A pointer to another symbol is the same in every object; linkers take one of them.
    let after = Coff::parse(&local).expect("an object");
    assert_eq!(after.exports().expect("names"), [&b"malloc"[..], b".refptr.inner"]);
    assert_eq!(after.localised(&|name| name == b"malloc").expect("localised"), local, "twice is once");
}

#[test]
fn sections_are_found_by_their_names() {
    let bytes = object(Architecture::X86_64, &["malloc"]);
    let coff = Coff::parse(&bytes).expect("an object");
    let text = coff.sections(".text").expect("sections");
    assert_eq!(text.len(), 1);
    assert_eq!(bytes[text[0].clone()], [0xc3; 32]);
    assert_eq!(coff.sections(".none").expect("sections"), []);
}

#[test]
fn what_linkers_take_from_one_of_several_objects_cannot_be_local() {
    let mut common = Object::new(BinaryFormat::Coff, Architecture::X86_64, Endianness::Little);
    let needed = symbol("shared", SymbolSection::Undefined);
    common.add_common_symbol(Symbol { kind: SymbolKind::Data, scope: SymbolScope::Linkage, ..needed }, 8, 8);
    let bytes = common.write().expect("an object");
    let coff = Coff::parse(&bytes).expect("an object");
    assert_eq!(coff.localised(&|_| false), Err(ObjectError::Common { symbol: "shared".to_owned() }));
    assert_eq!(coff.localised(&|_| true).expect("kept"), bytes);
}

#[test]
fn other_machines_are_refused() {
    let bytes = object(Architecture::I386, &["malloc"]);
    assert!(matches!(Coff::parse(&bytes), Err(ObjectError::Machine { .. })));
    assert!(Coff::parse(b"text").is_err());
}
