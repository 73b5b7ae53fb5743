//! The symbol table of a whole archive: for each symbol, the members that define it and those that refer to it.

use crate::archive::Archive;
use foldhash::HashMap;
use relocatable::{Binding, Machine, Object, ObjectError, Symbol, Visibility};

/// A number for a symbol's name.
pub(super) type Id = u32;

/// A shared symbol that a member defines.
#[derive(Debug, Clone, Copy)]
pub(super) struct Definition<'a> {
    pub(super) id: Id,
    pub(super) name: &'a [u8],
    pub(super) weak: bool,
    pub(super) visibility: Visibility,
}

/// A member's machine and its shared symbols.
#[derive(Debug, Clone, Default)]
pub(super) struct Entry<'a> {
    /// `None` for a member that is not an ELF object: LLVM bitcode, text.
    pub(super) machine: Option<Machine>,
    /// In the order of the member's symbol table; for a member that is not an ELF object, in the order of the archive's
    /// index.
    pub(super) defines: Vec<Definition<'a>>,
    pub(super) refers: Vec<Id>,
}

/// The symbol table. Members are counted from 0 here: a position is the ordinal less one.
#[derive(Debug, Clone, Default)]
pub(super) struct SymbolTable<'a> {
    pub(super) entries: Vec<Entry<'a>>,
    ids: HashMap<&'a [u8], Id>,
    /// By id: the members that define it, and whether weakly, in the archive's order.
    definers: Vec<Vec<(usize, bool)>>,
    /// By id: the members that refer to it, weakly or not, in the archive's order.
    referrers: Vec<Vec<usize>>,
    /// By id: whether a member refers to it other than weakly.
    wanted: Vec<bool>,
}

/// A member whose content is an ELF object that cannot be read.
pub(super) struct Unreadable {
    pub(super) position: usize,
    pub(super) source: ObjectError,
}

impl<'a> SymbolTable<'a> {
    /// Reads all members. Members that cannot be read count as if they were not objects, and are returned as well.
    pub(super) fn take(archive: &Archive<'a>) -> (SymbolTable<'a>, Vec<Unreadable>) {
        let members = archive.members();
        let mut table = SymbolTable { entries: Vec::with_capacity(members.len()), ..SymbolTable::default() };
        let mut unreadable = Vec::new();
        for (position, member) in members.iter().enumerate() {
            let object = Object::recognise(member.data);
            // Sections that are outside the file are damage, too, though nothing here needs them.
            let read = |object: Object<'a>| object.sections().and_then(|_| object.symbols());
            let symbols = match object {
                Some(object) => read(object),
                // A program, or an object whose header is damaged.
                None if member.data.starts_with(b"\x7fELF") => Err(ObjectError::NotAnObject),
                None => Ok(Vec::new()),
            };
            table.entries.push(Entry { machine: object.map(|object| object.machine), ..Entry::default() });
            match symbols {
                Ok(symbols) => table.enter(position, &symbols),
                Err(source) => unreadable.push(Unreadable { position, source }),
            }
        }
        // The index gives the definitions of a member that is not an object. Its references are unknown.
        for (ordinal, symbol) in archive.indexed() {
            if table.entries[ordinal - 1].machine.is_none() {
                table.define(ordinal - 1, symbol, false, Visibility::Default);
            }
        }
        (table, unreadable)
    }

    fn enter(&mut self, position: usize, symbols: &[Symbol<'a>]) {
        for symbol in symbols.iter().filter(|symbol| symbol.is_shared()) {
            if symbol.defined {
                self.define(position, symbol.name, symbol.binding == Binding::Weak, symbol.visibility);
            } else {
                let id = self.intern(symbol.name);
                self.referrers[id as usize].push(position);
                self.wanted[id as usize] |= symbol.binding != Binding::Weak;
                self.entries[position].refers.push(id);
            }
        }
    }

    fn define(&mut self, position: usize, name: &'a [u8], weak: bool, visibility: Visibility) {
        let id = self.intern(name);
        self.definers[id as usize].push((position, weak));
        self.entries[position].defines.push(Definition { id, name, weak, visibility });
    }

    fn intern(&mut self, name: &'a [u8]) -> Id {
        let next = self.definers.len() as Id;
        let id = *self.ids.entry(name).or_insert(next);
        if id == next {
            self.definers.push(Vec::new());
            self.referrers.push(Vec::new());
            self.wanted.push(false);
        }
        id
    }

    /// The number of a name; `None` if the name does not occur in the archive.
    pub(super) fn id(&self, name: &[u8]) -> Option<Id> {
        self.ids.get(name).copied()
    }

    /// The members that define the symbol, and whether weakly.
    pub(super) fn definers(&self, id: Id) -> &[(usize, bool)] {
        &self.definers[id as usize]
    }

    /// The members that refer to the symbol.
    pub(super) fn referrers(&self, id: Id) -> &[usize] {
        &self.referrers[id as usize]
    }

    /// Whether members refer to the symbol and none defines it, so that another library has to. zig's libc.a leaves
    /// memcpy to its compiler's runtime library.
    pub(super) fn is_left_to_others(&self, id: Id) -> bool {
        self.wanted[id as usize] && self.definers(id).is_empty()
    }

    /// Whether a member defines the symbol.
    pub(super) fn defines(&self, name: &[u8]) -> bool {
        self.id(name).is_some_and(|id| !self.definers(id).is_empty())
    }
}
