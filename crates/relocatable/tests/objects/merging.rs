//! Two objects are merged into one.

use fixtures::objects;
use object::{Architecture, Endianness};
use relocatable::{Binding, ObjectError, Visibility, merge, symbols};

/// `name`, or `needs:name`, with its binding and visibility, of every symbol that others see, in order.
fn shared(object: &[u8]) -> Vec<(String, Binding, Visibility)> {
    let symbols = symbols(object).expect("symbols");
    let shown = |defined: bool, name: &[u8]| {
        format!("{}{}", if defined { "" } else { "needs:" }, String::from_utf8_lossy(name))
    };
    let shared = symbols.iter().filter(|symbol| symbol.is_shared());
    shared.map(|symbol| (shown(symbol.defined, symbol.name), symbol.binding, symbol.visibility)).collect()
}

fn one(first: &str, second: &str) -> Vec<(String, Binding, Visibility)> {
    shared(&merge(&objects::object(first), &objects::object(second)).expect("merged"))
}

#[test]
fn what_one_needs_the_other_brings() {
    use Binding::{Global, Weak};
    use Visibility::{Default, Hidden};
    let named = |name: &str, binding, visibility| (name.to_owned(), binding, visibility);
    assert_eq!(
        one("malloc needs:memcpy needs:mmap", "weak:memcpy hidden:inner needs:malloc"),
        [
            named("malloc", Global, Default),
            named("memcpy", Weak, Default),
            named("needs:mmap", Global, Default),
            named("inner", Global, Hidden),
        ]
    );
    // The rules of linking: a weak definition gives way, and the stricter visibility counts.
    assert_eq!(one("weak:f", "f"), [named("f", Global, Default)]);
    assert_eq!(one("f", "weak:f"), [named("f", Global, Default)]);
    assert_eq!(one("weak:hidden:f", "weak:f"), [named("f", Weak, Hidden)]);
    assert_eq!(one("needs:f", "hidden:f"), [named("f", Global, Hidden)]);
}

#[test]
fn what_cannot_be_one() {
    let (two, object) = (objects::object("f g"), objects::object("f"));
    assert_eq!(merge(&two, &object), Err(ObjectError::Twice { symbol: "f".to_owned() }));
    let other = objects::object_for(Architecture::Aarch64, Endianness::Little, "g");
    let error = merge(&object, &other).expect_err("machines");
    assert_eq!(error.to_string(), "an object for x86_64 and one for aarch64 cannot be made one");
    assert_eq!(merge(&object, b"text"), Err(ObjectError::NotAnObject));
    let big = objects::object_for(Architecture::PowerPc64, Endianness::Big, "g");
    assert!(matches!(merge(&big, &big), Err(ObjectError::Machine { .. })));
}

#[test]
fn the_same_bytes_each_time_and_32_bits_as_well() {
    for architecture in [Architecture::X86_64, Architecture::Riscv64, Architecture::I386, Architecture::Arm] {
        let object = |words: &str| objects::object_for(architecture, Endianness::Little, words);
        let merged = merge(&object("f needs:g"), &object("g")).expect("merged");
        assert_eq!(merged, merge(&object("f needs:g"), &object("g")).expect("merged again"));
        let names: Vec<String> = shared(&merged).into_iter().map(|(name, ..)| name).collect();
        assert_eq!(names, ["f", "g"], "{architecture:?}");
    }
}
