//! The string functions must run on a processor without AVX: no AVX instruction may precede the branch on the choice.
//!
//! The public functions are compiled for AVX2 and begin with a branch to their base versions, since that costs less
//! than a jump in the other order. Only the instructions show whether the compiler keeps this order.

use format::Arch;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic};
use object::{Object, ObjectSection, ObjectSymbol};

/// The instructions of a function that are checked.
#[derive(Clone, Copy, PartialEq)]
enum Extent {
    /// All.
    Whole,
    /// The instructions before its branch on the choice of AVX2, which must exist. Branches on a length or an address,
    /// and on the choice of masks, may precede it.
    BeforeTheChoice,
}

#[test]
fn base_paths_hold_no_avx() {
    let object = donors::strings().object(Arch::X86_64).expect("an object for x86_64");
    let file = object::File::parse(object).expect("an object");
    let (mut base, mut chosen) = (0, 0);
    for symbol in file.symbols().filter(|symbol| symbol.kind() == object::SymbolKind::Text && symbol.size() > 0) {
        let name = symbol.name().expect("a name");
        let extent = if symbol.is_global() { Extent::BeforeTheChoice } else { Extent::Whole };
        if extent == Extent::Whole && !(name.starts_with("base_") || name == "strings_count") {
            continue;
        }
        let section = file.section_by_index(symbol.section_index().expect("a section")).expect("a section");
        let start = symbol.address() as usize;
        let code = &section.data().expect("code")[start..start + symbol.size() as usize];
        check(name, code, extent);
        match extent {
            Extent::Whole => base += 1,
            Extent::BeforeTheChoice => chosen += 1,
        }
    }
    // Both kinds occur: if names or the choice changed, the test would check nothing.
    assert!(base >= 10 && chosen >= 20, "{base} base functions and {chosen} public ones were looked at");
}

fn check(name: &str, code: &[u8], extent: Extent) {
    let mut decoder = Decoder::with_ip(64, code, 0, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    let mut asks = false;
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        let needs = instruction.cpuid_features();
        let plain = needs.iter().all(|feature| {
            let feature = format!("{feature:?}");
            !["AVX", "BMI", "FMA", "LZCNT"].iter().any(|newer| feature.starts_with(newer))
        });
        // To a processor without BMI1, tzcnt is bsf with a prefix that means nothing; the results are the same for a
        // number that is not zero, and compilers use it only for such numbers.
        assert!(
            plain || instruction.mnemonic() == Mnemonic::Tzcnt,
            "`{name}` at {:#x}: {needs:?} before the choice is looked at",
            instruction.ip()
        );
        match instruction.flow_control() {
            FlowControl::ConditionalBranch if extent == Extent::BeforeTheChoice && asks => return,
            // A tail call of another function, for example from a second name.
            FlowControl::UnconditionalBranch if extent == Extent::BeforeTheChoice => return,
            _ => {}
        }
        // The bit of AVX2 is the lowest (`CHOICE_WIDE`).
        asks = instruction.mnemonic() == Mnemonic::Test && instruction.try_immediate(1).ok() == Some(1);
    }
    assert!(extent == Extent::Whole, "`{name}` has no branch on the choice");
}
