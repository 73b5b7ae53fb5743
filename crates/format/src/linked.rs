//! The kinds of linked files: what a graft does to each is another thing.

/// What a linked ELF file is to a graft.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Linked {
    /// A static program: functions of its own libc are redirected to the donor.
    Program,
    /// musl's libc.so, which is also the dynamic loader: the same, for every program that it starts.
    Loader,
    /// A program with an interpreter: a donor is merged into it, or it loads one.
    Dynamic,
    /// Any other shared library: its malloc is that of the program that loads it.
    Library,
}

/// What tells the kinds apart, as a reader of ELF files finds it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Marks {
    /// Whether it loads at any address (`e_type` is ET_DYN).
    pub position_independent: bool,
    /// Whether it names a dynamic loader (PT_INTERP).
    pub interpreter: bool,
    /// Whether it says that it is a program (DF_1_PIE, a flag of GNU's in DT_FLAGS_1).
    pub program: bool,
    /// Whether it has a name as a library (DT_SONAME).
    pub soname: bool,
    /// Whether it needs libraries (DT_NEEDED).
    pub needs: bool,
    /// Whether it exports what only musl's libc.so does: [`LOADER`].
    pub loader: bool,
}

/// Names that musl's libc.so exports and no other library does: the loader's last stage (ldso/dynlink.c), and where
/// programs start.
pub const LOADER: [&[u8]; 2] = [b"__dls3", b"__libc_start_main"];

impl Linked {
    /// The kind of a file with these marks. A library may name an interpreter, as glibc's libc.so.6 does, and a program
    /// may have a name or need libraries without one (gABI, "Dynamic Section").
    pub fn of(marks: Marks) -> Linked {
        let Marks { position_independent, interpreter, program, soname, needs, loader } = marks;
        if position_independent && !interpreter && loader {
            Linked::Loader
        } else if position_independent && soname && !program {
            Linked::Library
        } else if interpreter {
            Linked::Dynamic
        } else if (soname || needs) && !program {
            Linked::Library
        } else {
            Linked::Program
        }
    }

    /// Names the kind in a message, with an article.
    pub fn described(self) -> &'static str {
        match self {
            Linked::Program => "a linked executable",
            Linked::Loader => "a dynamic loader",
            Linked::Dynamic => "a dynamic program",
            Linked::Library => "a shared library",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_by_its_marks() {
        let none = Marks::default();
        let pie = Marks { position_independent: true, program: true, ..none };
        let library = Marks { position_independent: true, soname: true, needs: true, ..none };
        for (marks, kind) in [
            (none, Linked::Program),
            (pie, Linked::Program),
            // By linkers before DF_1_PIE.
            (Marks { program: false, ..pie }, Linked::Program),
            (Marks { interpreter: true, needs: true, ..none }, Linked::Dynamic),
            (Marks { interpreter: true, needs: true, ..pie }, Linked::Dynamic),
            (Marks { interpreter: true, needs: true, program: false, ..pie }, Linked::Dynamic),
            // A program that others may load by its name.
            (Marks { interpreter: true, soname: true, ..pie }, Linked::Dynamic),
            (library, Linked::Library),
            (Marks { soname: false, ..library }, Linked::Library),
            // glibc's libc.so.6.
            (Marks { interpreter: true, ..library }, Linked::Library),
            // musl's libc.so, as upstream makes it and with a name.
            (Marks { position_independent: true, loader: true, ..none }, Linked::Loader),
            (Marks { loader: true, needs: false, ..library }, Linked::Loader),
            // A static program with these functions exports nothing that counts.
            (Marks { loader: true, ..none }, Linked::Program),
        ] {
            assert_eq!(Linked::of(marks), kind, "{marks:?}");
        }
    }
}
