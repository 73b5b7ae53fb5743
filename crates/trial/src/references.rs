//! Makes the smallest relocatable object that asks for given symbols, so that a linker has to find them.

/// An ELF object without code, with one undefined symbol for each name. 32-bit where the architecture is.
pub(crate) fn object(arch: format::Arch, names: &[&str]) -> Vec<u8> {
    let (machine, flags): (u16, u32) = match arch {
        format::Arch::X86_64 => (62, 0),
        format::Arch::Aarch64 => (183, 0),
        // Doubles in registers: what does not say so does not link with what does.
        format::Arch::Riscv64 => (243, 4),
        format::Arch::I686 => (3, 0),
        // EABI, version 5.
        format::Arch::Arm => (40, 0x0500_0000),
    };
    let wide = !matches!(arch, format::Arch::I686 | format::Arch::Arm);
    let (header, symbol, section) = if wide { (64, 24, 64) } else { (52, 16, 40) };
    let mut strings = vec![0u8];
    let mut symbols = vec![0u8; symbol];
    for name in names {
        symbols.extend((strings.len() as u32).to_le_bytes());
        // STB_GLOBAL, STT_NOTYPE, default visibility, SHN_UNDEF, value 0, size 0.
        let mut rest = vec![0; symbol - 4];
        rest[if wide { 0 } else { 8 }] = 1 << 4;
        symbols.extend(rest);
        strings.extend(name.as_bytes());
        strings.push(0);
    }
    let strings_at = header + symbols.len();
    let section_names = b"\0.symtab\0.strtab\0.note.GNU-stack\0";
    let names_at = strings_at + strings.len();
    let table_at = (names_at + section_names.len()).next_multiple_of(8);

    let mut file = Writer { bytes: b"\x7fELF".to_vec(), wide };
    file.bytes.extend([if wide { 2 } else { 1 }, 1, 1]);
    file.bytes.resize(16, 0);
    file.halves([1, machine]);
    file.number(1);
    // The entry, the program headers, the section headers.
    file.words([0, 0, table_at]);
    file.number(flags);
    // Sizes and counts of headers; five sections, the names in the third.
    file.halves([header as u16, 0, 0, section, 5, 3]);
    file.bytes.extend(&symbols);
    file.bytes.extend(&strings);
    file.bytes.extend(section_names);
    file.bytes.resize(table_at, 0);
    file.section([0; 10]);
    // SHT_SYMTAB, its strings in section 2, the first global symbol at 1.
    file.section([1, 2, 0, 0, header, symbols.len(), 2, 1, 8, symbol]);
    file.section([9, 3, 0, 0, strings_at, strings.len(), 0, 0, 1, 0]);
    file.section([9, 3, 0, 0, names_at, section_names.len(), 0, 0, 1, 0]);
    // Without this one a GNU ld takes the stack for executable, and warns.
    file.section([17, 1, 0, 0, names_at, 0, 0, 0, 1, 0]);
    file.bytes
}

/// Writes little-endian numbers in the sizes of ELF64 or ELF32.
struct Writer {
    bytes: Vec<u8>,
    wide: bool,
}

impl Writer {
    fn halves<const N: usize>(&mut self, numbers: [u16; N]) {
        numbers.into_iter().for_each(|number| self.bytes.extend(number.to_le_bytes()));
    }

    fn number(&mut self, number: u32) {
        self.bytes.extend(number.to_le_bytes());
    }

    /// As wide as an address.
    fn words<const N: usize>(&mut self, numbers: [usize; N]) {
        for number in numbers {
            self.bytes.extend(&(number as u64).to_le_bytes()[..if self.wide { 8 } else { 4 }]);
        }
    }

    fn section(&mut self, fields: [usize; 10]) {
        let [name, kind, flags, address, offset, size, link, info, align, entry] = fields;
        self.number(name as u32);
        self.number(kind as u32);
        self.words([flags, address, offset, size]);
        self.number(link as u32);
        self.number(info as u32);
        self.words([align, entry]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use object::{Object, ObjectSection, ObjectSymbol};

    #[test]
    fn the_object_asks_for_what_it_was_told() {
        for arch in format::Arch::ALL {
            let object = object(arch, &["wcsdup", "strdup"]);
            let machine = format!("{:?}", object::File::parse(&*object).unwrap().architecture()).to_lowercase();
            assert_eq!(machine, if arch == format::Arch::I686 { "i386" } else { arch.name() });
            let object = object::File::parse(&*object).unwrap();
            assert_eq!(object.kind(), object::ObjectKind::Relocatable);
            let needed = object.symbols().filter(|symbol| symbol.is_undefined() && symbol.is_global());
            let names: Vec<_> = needed.map(|symbol| symbol.name().unwrap().to_owned()).collect();
            assert_eq!(names, ["wcsdup", "strdup"]);
            assert!(object.sections().any(|section| section.name() == Ok(".note.GNU-stack")));
        }
    }
}
