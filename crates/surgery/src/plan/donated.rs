//! The shared symbols of a donor's object.

use foldhash::HashSet;
use relocatable::{Binding, ObjectError, Symbol, symbols};

/// A donor's shared symbols.
pub(super) struct Donated<'d> {
    /// The symbols that it defines, in the order of its symbol table.
    pub(super) defines: Vec<Symbol<'d>>,
    /// The symbols that it refers to other than weakly, in the same order.
    pub(super) needed: Vec<&'d [u8]>,
    provides: HashSet<&'d [u8]>,
    /// All symbols that it refers to, weakly or not.
    refers: HashSet<&'d [u8]>,
}

impl<'d> Donated<'d> {
    pub(super) fn read(object: &'d [u8]) -> Result<Self, ObjectError> {
        let (defines, undefined): (Vec<_>, Vec<_>) =
            symbols(object)?.into_iter().filter(Symbol::is_shared).partition(|symbol| symbol.defined);
        let needed =
            undefined.iter().filter(|symbol| symbol.binding != Binding::Weak).map(|symbol| symbol.name).collect();
        Ok(Donated {
            needed,
            provides: defines.iter().map(|symbol| symbol.name).collect(),
            refers: undefined.iter().map(|symbol| symbol.name).collect(),
            defines,
        })
    }

    pub(super) fn provides(&self, name: &[u8]) -> bool {
        self.provides.contains(name)
    }

    pub(super) fn needs(&self, name: &[u8]) -> bool {
        self.refers.contains(name)
    }
}
