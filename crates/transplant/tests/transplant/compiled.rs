//! Functions of musl as other compilers write them: found by `cargo xtask proof`, made here out of Debian's functions.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use format::Role;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Mnemonic};
use object::{Object, ObjectSymbol};
use surgery::archive::Archive;
use transplant::{Graft, Plan};

use crate::{BLOB, graft, linked};

/// Grafts with symbols and as if stripped: both find the same. Then runs the graft.
pub(crate) fn grafted(program: &[u8], folder: &Path, name: &str) -> Plan {
    let made = |as_if_stripped| graft(program, &BLOB, as_if_stripped).unwrap().unwrap();
    let (Graft { plan: with, bytes }, without) = (made(false), made(true).plan);
    // Symbols name functions that nothing calls, too.
    assert!(
        without.entries.iter().all(|entry| with.entries.contains(entry)),
        "{:?} {:?}",
        with.entries,
        without.entries
    );
    run(&bytes, folder, name);
    with
}

pub(crate) fn run(graft: &[u8], folder: &Path, name: &str) {
    let path = folder.join("graft");
    fs::write(&path, graft).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    let output = Command::new(&path).env("ALLOGRAFT_SCALE", "3").current_dir(folder).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("ok {name}\n"), "{output:?}");
}

/// gcc 12 at -Os makes the lock anew by way of a register: `xor eax, eax; mov [lock], eax`.
#[test]
fn a_fork_hook_that_writes_a_register() {
    let folder = tempfile::tempdir().unwrap();
    let mut program = fs::read(linked(folder.path(), "fork_owners", false)).unwrap();
    let before = graft(&program, &BLOB, false).unwrap().unwrap().plan;
    let starts = |at: &usize| {
        let bytes = &program[*at..];
        bytes.starts_with(b"\x85\xff\x78") && bytes[4] == 0x74 && bytes[6..].starts_with(b"\xc7\x05")
    };
    let found: Vec<usize> = (0..program.len() - 32).filter(starts).collect();
    let [at] = found.as_slice() else { panic!("{found:x?} read as Debian's __malloc_atfork") };
    let store = at + 6;
    let distance = i32::from_le_bytes(program[store + 2..store + 6].try_into().unwrap());
    // The instruction ends two bytes earlier.
    let mut code = b"\x31\xc0\x89\x05".to_vec();
    code.extend((distance + 2).to_le_bytes());
    code.extend(b"\x66\x90");
    program[store..store + 10].copy_from_slice(&code);
    let after = grafted(&program, folder.path(), "fork_owners");
    assert!(after.fork_hook);
    assert_eq!(after.entries, before.entries);
    // With who in the register instead of 0, the store re-initialises nothing: then there is no hook, and a program
    // that forks is refused.
    program[store..store + 2].copy_from_slice(b"\x89\xf8");
    for as_if_stripped in [false, true] {
        assert!(graft(&program, &BLOB, as_if_stripped).unwrap().is_err());
    }
}

/// A program that ends in several ways has calls side by side that do not return: they are not `exit`.
#[test]
fn the_end_of_the_process_is_found_beside_other_ends() {
    let folder = tempfile::tempdir().unwrap();
    let program = fs::read(linked(folder.path(), "endings", false)).unwrap();
    for as_if_stripped in [false, true] {
        assert!(graft(&program, &BLOB, as_if_stripped).unwrap().unwrap().plan.process_end);
    }
}

/// gcc at -O1 calls where it could jump: the public names would be taken for an allocator of the program's own.
#[test]
fn public_names_that_call_instead_of_jumping() {
    let folder = tempfile::tempdir().unwrap();
    let mut program = fs::read(linked(folder.path(), "family", false)).unwrap();
    let before = graft(&program, &BLOB, false).unwrap().unwrap().plan;
    let mut changed = 0;
    for entry in before.entries.iter().filter(|entry| [Role::Malloc, Role::Free, Role::Realloc].contains(&entry.role)) {
        // ld puts the file at this address (its default script).
        let at = usize::try_from(entry.address - 0x40_0000).unwrap();
        let room =
            program[at] == 0xe9 && [b"\x66\x2e", b"\x66\x66"].contains(&program[at + 5..].first_chunk().unwrap());
        if !room {
            continue;
        }
        let distance = i32::from_le_bytes(program[at + 1..at + 5].try_into().unwrap());
        let mut code = b"\x48\x83\xec\x08\xe8".to_vec();
        code.extend((distance - 4).to_le_bytes());
        code.extend(b"\x48\x83\xc4\x08\xc3");
        program[at..at + 14].copy_from_slice(&code);
        changed += 1;
    }
    assert!(changed >= 3, "{:?}", before.entries);
    let after = grafted(&program, folder.path(), "family");
    assert_eq!(after.entries, before.entries);
}

/// Debian's musl has guards on its stacks. `__uflow` ends with the call of `__stack_chk_fail`, whose trap the compiler
/// takes to return; behind it lies `__libc_realloc` here, which nothing calls: the public name jumps to it.
#[test]
fn a_function_behind_a_call_that_does_not_return() {
    const PROGRAM: &str = "#include <stdio.h>\n\
        int main(void) { int found = 0; char text[400]; FILE *maps = fopen(\"/proc/self/maps\", \"r\");\n\
        if (!maps || !fgets(text, 400, maps) || fclose(maps)) return 1;\n\
        sscanf(\"42\", \"%d\", &found); puts(found == 42 ? \"ok scan\" : \"bad\"); return found != 42; }\n";
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("scan.c"), PROGRAM).unwrap();
    let musl = fixtures::debian_musl(fixtures::Arch::X86_64);
    let flags = "-c -O0 -fno-pie -fno-builtin -fno-stack-protector -U_FORTIFY_SOURCE -nostdinc -isystem";
    let mut compile = fixtures::cc();
    compile.args(flags.split(' ')).arg(&musl.include).arg("-o").arg(at("scan.o")).arg(at("scan.c"));
    assert!(compile.status().unwrap().success());
    let archive = fs::read(&musl.libc).unwrap();
    let archive = Archive::parse(&archive).unwrap();
    let neighbours = ["__uflow", "__libc_realloc"].map(|symbol| {
        let (ordinal, _) = archive.indexed().find(|(_, name)| *name == symbol.as_bytes()).unwrap();
        fs::write(at(symbol), archive.member(ordinal).unwrap().data).unwrap();
        at(symbol)
    });
    let beside = |name: &str| musl.libdir.join(name);
    let mut link = Command::new("ld");
    link.args(["-static", "-o"]).arg(at("scan")).args([beside("crt1.o"), beside("crti.o"), at("scan.o")]);
    link.args(neighbours).arg(&musl.libc).arg(beside("crtn.o"));
    assert!(link.status().unwrap().success());
    let program = fs::read(at("scan")).unwrap();
    grafted(&program, folder.path(), "scan");
    let stripped = graft(&program, &BLOB, true).unwrap().unwrap().plan;
    let found = stripped.entries.iter().filter(|entry| entry.role == Role::Realloc).count();
    assert_eq!(found, 2, "musl's own and the public one: {:?}", stripped.entries);
}

/// Padding that reads as a call into the midst of the family's functions. The bytes behind that place belong to the
/// family, and are not an uncalled function: zig 0.14 at -O2 made a program with such bytes before `aligned_alloc`.
#[test]
#[ignore = "minutes: half a minute of processor time"]
fn bytes_that_read_as_a_call() {
    const PADDING: &[u8] = b"\x66\x2e\x0f\x1f\x84\0\0\0\0\0";
    let folder = tempfile::tempdir().unwrap();
    let stock = fs::read(linked(folder.path(), "fork_owners", false)).unwrap();
    let before = graft(&stock, &BLOB, true).unwrap().unwrap().plan;
    let padding = stock.windows(PADDING.len()).position(|bytes| bytes == PADDING).unwrap();
    // The instruction's last five bytes are an index and a distance that it does not use.
    let site = padding + 5;
    let end_of_call = 0x40_0000 + site as u64 + 5;
    let (mut all, mut grafted) = (0, 0);
    for entry in &before.entries {
        for place in (entry.address + 1..entry.address + 300).step_by(7) {
            let mut program = stock.clone();
            program[site] = 0xe8;
            program[site + 1..site + 5].copy_from_slice(&(place.wrapping_sub(end_of_call) as u32).to_le_bytes());
            all += 1;
            let Ok(Graft { plan: after, bytes }) = graft(&program, &BLOB, true).unwrap() else { continue };
            grafted += 1;
            // A function that only jumps may be served by its target.
            let found = |entry| before.entries.contains(entry);
            assert!(after.entries.iter().all(found), "{place:#x} in {}: {:?}", entry.role, after.entries);
            if after.entries != before.entries {
                run(&bytes, folder.path(), "fork_owners");
            }
        }
    }
    // Refused are calls into bytes that a graft replaces, and to places in a function that it jumps to itself.
    assert!(grafted > all / 2, "{grafted} of {all}");
}

/// Returns the places in a function that it jumps to, and that it also reaches from the instruction before.
fn joints(program: &[u8], function: u64) -> BTreeSet<u64> {
    let size = object::File::parse(program).unwrap().symbols().find(|it| it.address() == function).unwrap().size();
    let code = &program[usize::try_from(function - 0x40_0000).unwrap()..][..usize::try_from(size).unwrap()];
    let own: Vec<_> = Decoder::with_ip(64, code, function, DecoderOptions::NONE).into_iter().collect();
    let places = own.iter().filter(|it| it.flow_control() == FlowControl::UnconditionalBranch);
    let places = places.map(iced_x86::Instruction::near_branch_target);
    let goes_on = [FlowControl::Next, FlowControl::ConditionalBranch];
    let goes_on = |it: &iced_x86::Instruction| {
        goes_on.contains(&it.flow_control()) && ![Mnemonic::Hlt, Mnemonic::Nop].contains(&it.mnemonic())
    };
    places.filter(|place| own.iter().any(|before| before.next_ip() == *place && goes_on(before))).collect()
}

/// Bytes that read as a call to a place that a function jumps to, and falls into: no function begins there. lamdera,
/// which GHC compiled, has such bytes for a `hlt` of `__malloc_allzerop`.
#[test]
fn bytes_that_read_as_a_call_to_where_a_function_jumps() {
    const PADDING: &[u8] = b"\x66\x2e\x0f\x1f\x84\0\0\0\0\0";
    let folder = tempfile::tempdir().unwrap();
    let stock = fs::read(linked(folder.path(), "family", false)).unwrap();
    let before = graft(&stock, &BLOB, true).unwrap().unwrap().plan;
    let site = stock.windows(PADDING.len()).position(|bytes| bytes == PADDING).unwrap() + 5;
    let mut tried = Vec::new();
    for entry in &before.entries {
        for place in joints(&stock, entry.address) {
            let mut program = stock.clone();
            program[site] = 0xe8;
            let distance = (place - 0x40_0000).wrapping_sub(site as u64 + 5) as u32;
            program[site + 1..site + 5].copy_from_slice(&distance.to_le_bytes());
            let after = graft(&program, &BLOB, true).unwrap();
            let after = after.unwrap_or_else(|refusal| panic!("{place:#x} in {}: {refusal}", entry.role));
            // This program does not fork, so nothing refers to the hook.
            let lost: Vec<_> = before.entries.iter().filter(|entry| !after.plan.entries.contains(entry)).collect();
            assert!(lost.iter().all(|entry| entry.role == Role::ForkHook), "{place:#x}: {lost:?}");
            tried.push(entry.role);
        }
    }
    assert!(tried.contains(&Role::IsZero) && tried.contains(&Role::UsableSize), "{tried:?}");
}

/// Bytes that read as a call to the place behind a call in pthread_exit. What is called there returns at once, so no
/// function begins behind it: cargo-lambda 1.9.2 has such bytes.
#[test]
fn bytes_that_read_as_a_call_into_pthread_exit() {
    const UNMAP_SELF: &[u8] = b"\xb8\x0b\0\0\0\x0f\x05\x48\x31\xff";
    const PADDING: &[u8] = b"\x66\x2e\x0f\x1f\x84\0\0\0\0\0";
    let folder = tempfile::tempdir().unwrap();
    let stock = fs::read(linked(folder.path(), "fork_owners", false)).unwrap();
    let before = graft(&stock, &BLOB, true).unwrap().unwrap().plan;
    assert!(before.thread_end);
    let place = |bytes: &[u8]| stock.windows(bytes.len()).position(|window| window == bytes).unwrap();
    let (unmap, padding) = (place(UNMAP_SELF), place(PADDING) + 5);
    let target = |at: usize| {
        let distance = i32::from_le_bytes(stock[at + 1..at + 5].try_into().unwrap());
        (at + 5).wrapping_add_signed(distance as isize)
    };
    let exit = (0..stock.len() - 5).find(|at| stock[*at] == 0xe8 && target(*at) == unmap).unwrap();
    let returns = |at: &usize| stock[*at] == 0xe8 && stock.get(target(*at)) == Some(&0xc3);
    let calls: Vec<usize> = (exit - 500..exit).filter(returns).collect();
    assert!(!calls.is_empty());
    for call in calls {
        let mut program = stock.clone();
        program[padding] = 0xe8;
        program[padding + 1..padding + 5].copy_from_slice(&(call.wrapping_sub(padding) as u32).to_le_bytes());
        let after = graft(&program, &BLOB, true).unwrap().unwrap_or_else(|refusal| panic!("{call:#x}: {refusal}"));
        assert!(after.plan.thread_end && after.plan.entries == before.entries, "{call:#x}");
    }
}
