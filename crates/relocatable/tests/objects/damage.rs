//! Objects that are damaged, or lack parts.

use fixtures::objects;
use relocatable::{localise, merge, symbols};

/// Whatever a byte of the headers says, nothing panics, and nothing is written outside of the object.
#[test]
fn every_byte_of_the_headers_at_its_extremes() {
    let object = objects::object("one weak:two needs:three");
    let sections = u64::from_le_bytes(object[40..48].try_into().expect("e_shoff")) as usize;
    for at in (0..64).chain(sections..object.len()) {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut broken = object.clone();
            broken[at] = value;
            let _ = symbols(&broken);
            let local = localise(&broken, &|_| false);
            assert!(local.is_err() || local.is_ok_and(|local| local.len() == broken.len()));
            let _ = merge(&broken, &object);
            let _ = merge(&objects::object("four needs:one"), &broken);
        }
    }
}

/// Symbols that are put in a different order would be written over the headers, or over another table.
#[test]
fn tables_that_share_bytes_are_damage() {
    let object = objects::object("one two needs:three");
    let u64_at = |at: usize| u64::from_le_bytes(object[at..at + 8].try_into().expect("8 bytes"));
    let headers = u64_at(40) as usize;
    let count = usize::from(u16::from_le_bytes([object[60], object[61]]));
    let table = (0..count).map(|number| headers + 64 * number).find(|at| object[at + 4] == 2).expect("a symbol table");
    assert!(localise(&object, &|_| false).is_ok());
    let strings = headers + 64 * usize::from(object[table + 40]) + 24;
    for offset in [0, headers as u64, headers as u64 - 24, u64_at(strings)] {
        let mut shared = object.clone();
        shared[table + 24..table + 32].copy_from_slice(&offset.to_le_bytes());
        let error = localise(&shared, &|_| false).expect_err("damage").to_string();
        assert!(error.contains("cannot be read") || error.contains("outside"), "{error}");
    }
}

/// The header of the result is that of the first object, which need not say how large section headers are.
#[test]
fn an_object_without_sections_is_merged() {
    let object = objects::object("one needs:two");
    let mut empty = object[..64].to_vec();
    empty[40..48].fill(0);
    empty[58..64].fill(0);
    for (first, second) in [(&empty, &object), (&object, &empty)] {
        let merged = merge(first, second).expect("an object");
        let symbols = symbols(&merged).expect("symbols");
        assert!(symbols.iter().any(|symbol| symbol.name == b"one" && symbol.defined));
    }
}
