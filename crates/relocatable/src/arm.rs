//! ARM's build attributes: whether objects are for a processor and a calling convention that the donors support.
//!
//! Source: "Addenda to, and Errata in, the ABI for the Arm Architecture", build attributes.

use object::elf;

use crate::Object;

/// The section of attributes, as toolchains name it.
const SECTION: &[u8] = b".ARM.attributes";
const SHT_ARM_ATTRIBUTES: u32 = 0x7000_0003;
const TAG_FILE: u64 = 1;
const TAG_CPU_ARCH: u64 = 6;
const TAG_ABI_VFP_ARGS: u64 = 28;
/// Values of `Tag_CPU_arch` from ARMv7 on without an A profile: v6-M, v6S-M, v7E-M, v8-M.
const MICROCONTROLLERS: [u64; 6] = [11, 12, 13, 16, 17, 21];
const ARMV7: u64 = 10;

/// The attributes of one object.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Attributes {
    processor: u64,
    float_registers: bool,
}

/// Returns the reason why an archive of these objects, all for little-endian ARM, is not supported; `None` if it is for
/// ARMv7 or later and passes floats in registers. One object with these attributes is enough: objects written in
/// assembly have none.
pub fn unsupported<'a>(objects: impl Iterator<Item = Object<'a>>) -> Option<&'static str> {
    let (mut processor, mut float_registers) = (0, false);
    for attributes in objects.filter_map(|object| attributes(&object)) {
        if !MICROCONTROLLERS.contains(&attributes.processor) {
            processor = attributes.processor.max(processor);
        }
        float_registers |= attributes.float_registers;
    }
    match (float_registers, processor >= ARMV7) {
        (false, _) => Some("arm, soft-float"),
        (true, false) => Some("arm, before ARMv7"),
        (true, true) => None,
    }
}

fn attributes(object: &Object<'_>) -> Option<Attributes> {
    let sections = object.sections().ok()?;
    let section = sections
        .iter()
        .find(|section| section.name == SECTION && section.kind == elf::SectionType(SHT_ARM_ATTRIBUTES))?;
    parse(section.data)
}

/// Parses the section: a letter A, then for each vendor a length, a name and blocks. In the part of `aeabi`, the wanted
/// block is the one for the whole file.
fn parse(section: &[u8]) -> Option<Attributes> {
    let mut rest = section.strip_prefix(b"A")?;
    while !rest.is_empty() {
        let (vendor, after) = sized(rest, 4, 0)?;
        rest = after;
        let Some(mut blocks) = vendor.strip_prefix(b"aeabi\0") else { continue };
        while let Some((&tag, _)) = blocks.split_first() {
            let (block, after) = sized(blocks, 5, 1)?;
            blocks = after;
            if u64::from(tag) == TAG_FILE {
                return of_file(block);
            }
        }
    }
    None
}

/// Splits off the bytes that a length at `at` counts, including itself and the bytes before it, without the first
/// `skip` bytes.
fn sized(bytes: &[u8], skip: usize, at: usize) -> Option<(&[u8], &[u8])> {
    let length = u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?) as usize;
    let (whole, after) = bytes.split_at_checked(length)?;
    Some((whole.get(skip..)?, after))
}

/// Parses pairs of a tag and a value. Values are numbers in ULEB128, and texts if the tag is 4, 5, 67 or odd from 33
/// on; 32 has both.
fn of_file(mut block: &[u8]) -> Option<Attributes> {
    let mut found = Attributes::default();
    while !block.is_empty() {
        let tag = number(&mut block)?;
        let text = matches!(tag, 4 | 5 | 32 | 67) || tag > 32 && tag % 2 == 1;
        let value = if text && tag != 32 { 0 } else { number(&mut block)? };
        if text {
            let end = block.iter().position(|byte| *byte == 0)?;
            block = &block[end + 1..];
        }
        match tag {
            TAG_CPU_ARCH => found.processor = value,
            TAG_ABI_VFP_ARGS => found.float_registers = value == 1,
            _ => {}
        }
    }
    Some(found)
}

fn number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..63).step_by(7) {
        let (&byte, after) = bytes.split_first()?;
        *bytes = after;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A section with these attributes of the whole file.
    fn section(attributes: &[u8]) -> Vec<u8> {
        let mut block = vec![1];
        block.extend((attributes.len() as u32 + 5).to_le_bytes());
        block.extend(attributes);
        let mut section = b"A".to_vec();
        section.extend((block.len() as u32 + 10).to_le_bytes());
        section.extend(b"aeabi\0");
        section.extend(block);
        section
    }

    #[test]
    fn attributes_behind_texts_are_found() {
        // Tag_conformance, Tag_CPU_name, Tag_CPU_arch, Tag_compatibility, Tag_ABI_VFP_args.
        let section = section(b"\x43\x32.09\0\x05\x37-A\0\x06\x0a\x20\x01gnu\0\x1c\x01");
        assert_eq!(parse(&section), Some(Attributes { processor: 10, float_registers: true }));
        for cut in 0..section.len() {
            assert_eq!(parse(&section[..cut]).filter(|found| found.float_registers), None);
        }
    }

    #[test]
    fn what_is_no_table_says_nothing() {
        assert_eq!(parse(b""), None);
        assert_eq!(parse(b"A"), None);
        assert_eq!(parse(b"A\0\0\0\0"), None);
        assert_eq!(parse(&section(b"\x06\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01")), None);
    }
}
