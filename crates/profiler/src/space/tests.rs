//! Walks on stacks and code that are written down.

use super::*;
use crate::symbols::Function;

/// The program is mapped so far from the addresses in its file.
const BIAS: u64 = 0x5555_0000_0000;
const STACK: u64 = 0x7fff_0000_0000;

/// A program of three functions: `_start` at 0x1000 calls `work` at 0x2000, which calls `leaf` at 0x3000.
fn program(work: &[u8], leaf: &[u8]) -> (Space, Library) {
    let mut code = vec![0x90; 0x3000];
    // call 0x2000, which returns to 0x1015.
    code[0x10..0x15].copy_from_slice(&[0xe8, 0xeb, 0x0f, 0, 0]);
    code[0x1000..0x1000 + work.len()].copy_from_slice(work);
    code[0x2000..0x2000 + leaf.len()].copy_from_slice(leaf);
    let names = ["_start", "work", "leaf"];
    let functions = (1..).zip(names).map(|(at, name)| Function {
        start: 0x1000 * at,
        end: 0x1000 * at + 0x100,
        name: Some(name.to_owned()),
    });
    let mut library = Library::default();
    library.modules.push(Module::of_functions("/bin/program", functions.collect(), (0x1000, code)));
    let space = Space {
        pid: 0,
        modules: vec![Placed { number: 0, range: BIAS..BIAS + 0x10000, bias: BIAS }],
        unwinder: native::Unwinding::new(),
        cache: RefCell::new(native::Cache::new()),
        sizes: RefCell::default(),
        read_at: Instant::now(),
        pause: MOST_PAUSE,
    };
    (space, library)
}

/// The addresses in the file of a walk from `pc`, with these words on the stack, and whether it was truncated.
fn walked((mut space, mut library): (Space, Library), pc: u64, words: &[u64]) -> (Vec<u64>, bool) {
    let bytes = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let stack = Stack { start: STACK, bytes, cut: false };
    let registers = Registers { pc: BIAS + pc, sp: STACK, fp: None, lr: None, call: None };
    let walk = space.walk(&mut library, registers, &stack);
    (walk.places.iter().map(|place| place.address).collect(), walk.truncated)
}

/// sub rsp, 24; call 0x3000, which returns to 0x2009.
const WORK: [u8; 9] = [0x48, 0x83, 0xec, 0x18, 0xe8, 0xf7, 0x0f, 0, 0];

#[test]
fn a_stack_is_left_by_the_effects_of_instructions_up_to_the_first_function() {
    // push rbx; nop. The second word of `work` is a stale return address.
    let stale = BIAS + 0x2009;
    let words = [7, BIAS + 0x2009, 7, stale, 7, BIAS + 0x1015, 7];
    assert_eq!(walked(program(&WORK, &[0x53, 0x90]), 0x3001, &words), (vec![0x3001, 0x2009, 0x1015], false));
}

#[test]
fn where_instructions_do_not_say_it_the_return_address_is_searched() {
    // and rsp, -16; nop. The first word looks like a return address, but no call of `leaf` is before it.
    let words = [BIAS + 0x1015, 7, BIAS + 0x2009, 7, 7, 7, BIAS + 0x1015, 7];
    let leaf = [0x48, 0x83, 0xe4, 0xf0, 0x90];
    assert_eq!(walked(program(&WORK, &leaf), 0x3004, &words), (vec![0x3004, 0x2009, 0x1015], false));
}

#[test]
fn a_function_may_be_reached_by_another_that_jumps_to_it() {
    // `work` calls 0x2080, where a jump goes to `leaf`.
    let mut work = [0x90; 0x85];
    work[..9].copy_from_slice(&[0x48, 0x83, 0xec, 0x18, 0xe8, 0x77, 0, 0, 0]);
    work[0x80..].copy_from_slice(&[0xe9, 0x7b, 0x0f, 0, 0]);
    let words = [7, 7, BIAS + 0x2009, 7, 7, 7, BIAS + 0x1015, 7];
    let leaf = [0x48, 0x83, 0xe4, 0xf0, 0x90];
    assert_eq!(walked(program(&work, &leaf), 0x3004, &words), (vec![0x3004, 0x2009, 0x1015], false));
}

#[test]
fn a_walk_that_leaves_all_modules_is_truncated() {
    // The frame of `work` ends in an address of no module.
    let words = [7, BIAS + 0x2009, 7, 7, 7, 0x1234, 7];
    let deep = [&words[..], &[7; 4096]].concat();
    let (places, truncated) = walked(program(&WORK, &[0x53, 0x90]), 0x3001, &deep);
    assert_eq!((places, truncated), (vec![0x3001, 0x2009], true));
}

#[test]
fn calls_of_all_forms_are_known_by_the_bytes_before_the_return_address() {
    let direct = call_before(&[0x90, 0x90, 0x90, 0xe8, 0x10, 0, 0, 0], 0x1000);
    assert_eq!(direct, Some(Some(0x1010)));
    let indirect: [&[u8]; 6] = [
        // Through rax, r11, [rax], [rax + 16], [rax + 4096], [rip + 16].
        &[0xff, 0xd0],
        &[0x41, 0xff, 0xd3],
        &[0xff, 0x10],
        &[0xff, 0x50, 0x10],
        &[0xff, 0x90, 0, 0x10, 0, 0],
        &[0xff, 0x15, 0x10, 0, 0, 0],
    ];
    for bytes in indirect {
        let code = [&[0x90; 8], bytes].concat();
        assert_eq!(call_before(&code[code.len() - 8..], 0x1000), Some(None), "{bytes:x?}");
    }
    // A jump through rax, a push, and nothing.
    let others: [&[u8]; 3] = [&[0xff, 0xe0], &[0xff, 0x30], &[]];
    for bytes in others {
        let code = [&[0x90; 8], bytes].concat();
        assert_eq!(call_before(&code[code.len() - 8..], 0x1000), None, "{bytes:x?}");
    }
}

#[test]
fn a_jump_leads_to_its_target() {
    assert_eq!(jump(&[0xf3, 0x0f, 0x1e, 0xfa, 0xe9, 0x10, 0, 0, 0], 0x1000), Some(0x1019));
    assert_eq!(jump(&[0xeb, 0xfe], 0x1000), Some(0x1000));
    assert_eq!(jump(&[0x90, 0xe9, 0x10, 0, 0, 0], 0x1000), None);
}

#[test]
fn calls_go_through_tables_of_addresses() {
    assert_eq!(slot_called(&[0x90, 0x90, 0xff, 0x15, 0x10, 0, 0, 0], 0x1000), Some(0x1010));
    assert_eq!(slot_called(&[0x90, 0x90, 0x90, 0xe8, 0x10, 0, 0, 0], 0x1000), None);
    assert_eq!(slot_jumped(&[0xff, 0x25, 0xf0, 0xff, 0xff, 0xff], 0x1000), Some(0xff6));
    let marked = [0xf3, 0x0f, 0x1e, 0xfa, 0xf2, 0xff, 0x25, 0x10, 0, 0, 0];
    assert_eq!(slot_jumped(&marked, 0x1000), Some(0x101b));
    assert_eq!(slot_jumped(&[0xff, 0x25, 0x10], 0x1000), None);
}
