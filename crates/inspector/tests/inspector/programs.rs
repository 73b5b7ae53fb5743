//! Small programs, linked in the ways that users link them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use zigcc::{Arch, ZigTarget};

/// A program that calls common functions of libc.
pub(crate) const NORMAL: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(int count, char **words) {
	char *copy = strdup(words[0]);
	copy = realloc(copy, 1000 + count);
	puts(copy);
	free(copy);
	FILE *file = fopen("/dev/null", "r");
	if (file) fclose(file);
	return 0;
}
"#;

/// Brings its own allocator, and calls functions that make libc bring its own too.
pub(crate) const OWN_MALLOC: &str = r#"
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static char arena[1 << 20];
static size_t used;
static void nothing(void) {}
void *malloc(size_t n) {
	if (!used) for (int i = 0; i < 40; i++) atexit(nothing);
	used = (used + n + 31) & -16;
	return arena + used - ((n + 15) & -16);
}
void free(void *p) { (void)p; }
void *calloc(size_t m, size_t n) { return memset(malloc(m * n), 0, m * n); }
void *realloc(void *p, size_t n) { void *q = malloc(n); if (p) memmove(q, p, n); return q; }
int main(void) { for (int i = 0; i < 40; i++) atexit(_exit == 0 ? 0 : (void (*)(void))getpid); freelocale(newlocale(LC_ALL_MASK, "C.UTF-8", 0)); return 0; }
"#;

/// Brings an allocator with the table and the locks of musl's before 1.2.1, which are taken if `COUNT`, of type `KIND`,
/// is not zero.
pub(crate) const OLDMALLOC: &str = r#"
#include <stddef.h>
static const unsigned char table[60] = {
	32,33,34,35,36,36,37,37,38,38,39,39, 40,40,40,40,41,41,41,41,42,42,42,42,43,43,43,43,
	44,44,44,44,44,44,44,44,45,45,45,45,45,45,45,45, 46,46,46,46,46,46,46,46,47,47,47,47,47,47,47,47,
};
struct chunk { size_t size; struct chunk *next; };
__attribute__((visibility("hidden"))) volatile KIND COUNT;
static struct { volatile int lock[2]; struct chunk *head; } bins[64];
static _Alignas(16) char arena[1 << 20];
static size_t used;
static inline void lock(volatile int *word) {
	if (COUNT) while (__atomic_exchange_n(word, 1, __ATOMIC_SEQ_CST)) __asm__ volatile("pause");
}
static inline void unlock(volatile int *word) {
	if (word[0]) { word[0] = 0; if (word[1]) __asm__ volatile("nop"); }
}
static inline int bin(size_t size) {
	size = size / 32 - 1;
	return size <= 32 ? size : size < 512 ? table[size / 8 - 4] : size > 0x1c00 ? 63 : table[size / 128 - 4] + 16;
}
void *malloc(size_t n) {
	n = (n + 63) & -32;
	int i = bin(n);
	lock(bins[i].lock);
	struct chunk *found = bins[i].head;
	if (found && found->size >= n) bins[i].head = found->next;
	else (found = (void *)(arena + used))->size = n, used += n;
	unlock(bins[i].lock);
	return (char *)found + 16;
}
void free(void *p) {
	if (!p) return;
	struct chunk *freed = (void *)((char *)p - 16);
	int i = bin(freed->size);
	lock(bins[i].lock);
	freed->next = bins[i].head;
	bins[i].head = freed;
	unlock(bins[i].lock);
}
int main(int count, char **words) { free(malloc(100 * count)); return words == 0; }
"#;

/// Allocates and never frees.
pub(crate) const NEVER_FREES: &str = "#include <stdlib.h>\nint main(void) { return malloc(10) == 0; }\n";

/// How to link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Static,
    StaticPie,
}

/// A program of `source`, linked against the archive at `libc` with the start files of Debian's musl.
pub(crate) fn musl_program(arch: Arch, source: &str, libc: &Path, mode: Mode, strip: bool) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let object = object(arch, source, folder.path());
    let musl = fixtures::debian_musl(arch);
    let output = folder.path().join("program");
    let mut linker = fixtures::link::lld();
    linker.args(strip.then_some("-s"));
    // The compiler's support functions: libc needs them too, on arm to divide.
    let runtime = folder.path().join("runtime.a");
    fs::write(&runtime, conformance::runtime_library(arch)).unwrap();
    let way = fixtures::link::Static { libc, ..musl.link(mode == Mode::StaticPie) };
    run(&mut way.line(linker, [object], [runtime], &output));
    fs::read(output).unwrap()
}

/// Links a program against an archive that is in memory.
pub(crate) fn grafted_program(arch: Arch, source: &str, archive: &[u8], mode: Mode, strip: bool) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let libc = folder.path().join("libc.a");
    fs::write(&libc, archive).unwrap();
    musl_program(arch, source, &libc, mode, strip)
}

/// A relocatable object of `source`.
pub(crate) fn object(arch: Arch, source: &str, folder: &Path) -> PathBuf {
    let (text, object) = (folder.join("program.c"), folder.join("program.o"));
    fs::write(&text, source).unwrap();
    let mut command = fixtures::zig().command();
    command.args(["cc", "-target", arch.triple(), "-O1", "-g0", "-fPIE", "-fno-builtin", "-w", "-c", "-o"]);
    run(command.arg(&object).arg(text).args(arch.flags()));
    object
}

/// A program or library that this machine's C compiler makes with these arguments.
pub(crate) fn native(source: &str, arguments: &[&str]) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let (text, output) = (folder.path().join("program.c"), folder.path().join("program"));
    fs::write(&text, source).unwrap();
    run(fixtures::cc().args(arguments).arg("-w").arg("-o").arg(&output).arg(text));
    fs::read(output).unwrap()
}

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}
