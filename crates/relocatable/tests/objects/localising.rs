//! Defined symbols become local.

use fixtures::objects;
use object::{Architecture, Endianness};
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
