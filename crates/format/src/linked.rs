//! The kinds of linked files. Each kind is grafted differently, so all parts of allograft decide by this one list.

/// The kind of a linked ELF file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Linked {
    /// A static program: functions of its own libc are redirected to the donor.
    Program,
    /// musl's libc.so, which is also the dynamic loader: its functions are redirected, too, for every program that it
    /// starts.
    Loader,
    /// A program with an interpreter: a donor is merged into it, or it loads one.
    Dynamic,
    /// Any other shared library: its malloc is that of the program that loads it.
    Library,
}

/// The marks by which the kinds are recognised, as read from an ELF file.
#[derive(Debug, Clone, Copy, Default)]
pub struct Marks {
    /// Whether it loads at any address (`e_type` is ET_DYN).
    pub position_independent: bool,
    /// Whether it names a dynamic loader (PT_INTERP).
    pub interpreter: bool,
    /// Whether it is marked as a program (DF_1_PIE, a GNU flag in DT_FLAGS_1).
    pub program: bool,
    /// Whether it has a name as a library (DT_SONAME).
    pub soname: bool,
    /// Whether it needs libraries (DT_NEEDED).
    pub needs: bool,
    /// Whether it exports the names in [`LOADER`], like only musl's libc.so.
    pub loader: bool,
}

/// Names that only musl's libc.so exports together: the loader's last stage (ldso/dynlink.c), and the start of
/// programs.
pub const LOADER: [&[u8]; 2] = [b"__dls3", b"__libc_start_main"];

impl Linked {
    /// The kind of a file with these marks. A library may name an interpreter, as glibc's libc.so.6 does, and a program
    /// may have a name or need libraries without one (gABI, "Dynamic Section").
    pub fn from_marks(marks: Marks) -> Linked {
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
            // Made by linkers before DF_1_PIE.
            (Marks { program: false, ..pie }, Linked::Program),
            (Marks { interpreter: true, needs: true, ..none }, Linked::Dynamic),
            (Marks { interpreter: true, needs: true, ..pie }, Linked::Dynamic),
            (Marks { interpreter: true, needs: true, program: false, ..pie }, Linked::Dynamic),
            // A program that can be loaded by its name.
            (Marks { interpreter: true, soname: true, ..pie }, Linked::Dynamic),
            (library, Linked::Library),
            (Marks { soname: false, ..library }, Linked::Library),
            // glibc's libc.so.6.
            (Marks { interpreter: true, ..library }, Linked::Library),
            // musl's libc.so, upstream's and one with a name.
            (Marks { position_independent: true, loader: true, ..none }, Linked::Loader),
            (Marks { loader: true, needs: false, ..library }, Linked::Loader),
            // In a static program, exports of these functions do not count.
            (Marks { loader: true, ..none }, Linked::Program),
        ] {
            assert_eq!(Linked::from_marks(marks), kind, "{marks:?}");
        }
    }
}
