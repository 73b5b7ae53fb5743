//! `allograft cc`: real links with a compiler for musl, by one process and by many, and what is handed to the compiler.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;

use fixtures::shell::word;
use fixtures::{Arch, Ran};

use crate::emit::PROGRAM;
use crate::lab::{Lab, assert_same, debian, tool};

/// A folder with `musl-gcc` on the command path, a cache folder whose name has a blank, and a program.
struct Place {
    lab: Lab,
}

impl Place {
    fn new() -> Place {
        let lab = Lab::new();
        fs::create_dir(lab.path("bin")).unwrap();
        fixtures::musl_gcc(&lab.path("bin")).unwrap();
        lab.put("program.c", PROGRAM.as_bytes());
        Place { lab }
    }

    /// Lets a command find the compiler and the cache.
    fn equipped<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        let path = std::env::var("PATH").unwrap();
        command.env("PATH", format!("{}:{path}", self.lab.path("bin").display()));
        command.env("XDG_CACHE_HOME", self.lab.path("the cache")).env_remove("ALLOGRAFT_CC");
        command.current_dir(self.lab.path("")).stdin(Stdio::null())
    }

    fn command(&self, before: &[&str], arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_allograft"));
        self.equipped(&mut command).args(before).arg("cc").args(arguments);
        command
    }

    fn cc(&self, arguments: &[&str]) -> Ran {
        self.command(&[], arguments).output().unwrap().into()
    }

    /// Asserts that the program runs, is linked so, and carries the donor.
    #[track_caller]
    fn carries(&self, program: &str, link: &str, donor: &str) -> serde_json::Value {
        let ran: Ran = Command::new(self.lab.path(program)).output().unwrap().into();
        assert_eq!(ran.exits(0).out, "ok\n");
        let report = self.lab.run(["inspect", "--json", "--expect", donor, program]).exits(0).json();
        assert_eq!(report["files"][0]["link"], link, "{report}");
        report["files"][0].clone()
    }

    /// Runs the compiler with and without this program, and asserts that both say the same.
    #[track_caller]
    fn says_what_the_compiler_says(&self, arguments: &[&str]) {
        let mut plain = Command::new("musl-gcc");
        let plain: Ran = self.equipped(&mut plain).args(arguments).output().unwrap().into();
        let ran = self.cc(arguments);
        // gcc names temporary files of its own.
        let lines =
            |text: &str| text.lines().filter(|line| !line.contains("/cc")).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!((ran.code, &ran.out, lines(&ran.err)), (plain.code, &plain.out, lines(&plain.err)), "{arguments:?}");
    }

    /// Returns the grafted copies in the cache; there is nothing else but their checksums.
    #[track_caller]
    fn copies(&self) -> Vec<PathBuf> {
        let Ok(folders) = fs::read_dir(self.lab.path("the cache/allograft/cc")) else { return Vec::new() };
        let mut copies = Vec::new();
        for folder in folders.map(|entry| entry.unwrap().path()) {
            let mut files: Vec<PathBuf> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
            files.sort();
            assert_eq!(files, [folder.join("libc.a"), folder.join("libc.a.sha256")]);
            copies.push(folder.join("libc.a"));
        }
        copies
    }
}

#[test]
fn a_program_carries_the_donor_and_the_toolchain_stays() {
    let place = Place::new();
    let before = debian();
    let said = place.cc(&["-O1", "-fno-builtin", "-o", "one", "program.c"]).exits(0);
    assert_eq!((said.out.as_str(), said.err.as_str()), ("", ""), "configure takes any word for a warning");
    assert_eq!(place.carries("one", "static", "snmalloc")["strings"], "grafted");
    // The next link reads the copy, and writes nothing into the cache, which may be read-only.
    let cached = |place: &Place| {
        let mut all = place.lab.snapshot();
        all.retain(|path, _| path.starts_with("the cache"));
        all
    };
    let cache = cached(&place);
    place.cc(&["-pie", "-fPIE", "program.c", "-lpthread"]).exits(0);
    place.carries("a.out", "static", "snmalloc");
    assert_same(&cache, &cached(&place));
    assert_eq!(place.copies().len(), 1);
    // Another choice is another copy.
    let choice = ["--donor", "mimalloc", "--set", "purge_delay=0", "--strings=off"];
    place.cc(&[&choice[..], &["-static", "-s", "-o", "two", "program.c"]].concat()).exits(0);
    let report = place.carries("two", "static", "mimalloc");
    assert!(report["strings"] == "stock" && report.to_string().contains("purge_delay=0"), "{report}");
    let said: Ran = place.command(&["--verbose"], &["program.c"]).output().unwrap().into();
    said.exits(0).says(&["note: `a.out` carries snmalloc", "and strings"]);
    assert_eq!(place.copies().len(), 2);
    assert!(before == debian(), "the toolchain's libc.a is as it was");
}

#[test]
fn what_links_no_program_is_the_compiler_s() {
    let place = Place::new();
    let program = fixtures::cc()
        .args(["-O1", "-c", "-o"])
        .arg(place.lab.path("given.o"))
        .arg("-x")
        .arg("c")
        .arg("-")
        .stdin(Stdio::null())
        .status();
    assert!(program.unwrap().success());
    place.lab.put("compile", b"-c program.c -o listed.o");
    for arguments in [
        &["--version"][..],
        &["-v"],
        &["-V"],
        &["--help"],
        &["-dumpmachine"],
        &["-print-search-dirs"],
        &["-###", "program.c"],
        &["-E", "program.c"],
        &["-c", "program.c", "-fsanitize=address", "-o", "compiled.o"],
        &["@compile"],
        &["-shared", "-nostdlib", "-o", "shared.so", "given.o"],
        &["-r", "-nostdlib", "-o", "partial.o", "given.o"],
        &["-nostdlib", "-Wl,-e,0", "-o", "bare", "given.o"],
        &[],
    ] {
        place.says_what_the_compiler_says(arguments);
    }
    for made in ["compiled.o", "listed.o", "shared.so", "partial.o", "bare"] {
        assert!(place.lab.path(made).is_file(), "{made}");
    }
    assert!(!place.lab.path("the cache").exists(), "nothing was grafted");
    // A program that cannot be compiled or linked fails with the compiler's message.
    for arguments in [["no-such-file.c", "-O1"], ["-no-such-flag", "program.c"], ["program.c", "-lno-such-library"]] {
        place.says_what_the_compiler_says(&arguments);
    }
}

#[test]
fn response_files_may_link() {
    let place = Place::new();
    place.lab.put("words", b"-O1 -o 'a program' program.c @more");
    place.lab.put("more", b"-lpthread");
    place.cc(&["@words"]).exits(0);
    place.carries("a program", "static", "snmalloc");
}

#[test]
fn compilers_at_work_at_the_same_time_make_one_copy() {
    let place = Place::new();
    place.cc(&["-c", "-O1", "program.c"]).exits(0);
    let link = |number: usize| place.cc(&["-o", &format!("program{number}"), "program.o"]);
    thread::scope(|scope| {
        let links: Vec<_> = (0..8).map(|number| scope.spawn(move || link(number))).collect();
        for link in links {
            assert_eq!(link.join().unwrap().exits(0).err, "");
        }
    });
    for number in 0..8 {
        place.carries(&format!("program{number}"), "static", "snmalloc");
    }
    assert_eq!(place.copies().len(), 1);
}

#[test]
fn a_libc_that_is_a_graft_already_gets_the_donor_that_is_asked_for() {
    let place = Place::new();
    place.lab.libc("sysroot/libc.a");
    place.lab.run(["graft", "sysroot/libc.a"]).exits(0);
    let grafted = fs::read(place.lab.path("sysroot/libc.a")).unwrap();
    place.lab.put("alone/libc.a", &grafted);
    let link = |folder: &str, choice: &[&str]| place.cc(&[choice, &[folder, "-O1", "program.c"]].concat());
    link("-Lsysroot", &[]).exits(0);
    place.carries("a.out", "static", "snmalloc");
    link("-Lsysroot", &["--donor", "jemalloc"]).exits(0);
    place.carries("a.out", "static", "jemalloc");
    // libc's own string functions come from the stock file, if it is there.
    link("-Lalone", &["--strings", "off"]).exits(3).says(&["alone/libc.a", "stock file", "help: "]);
    link("-Lsysroot", &["--strings", "off"]).exits(0);
    assert_eq!(place.carries("a.out", "static", "snmalloc")["strings"], "stock");
    assert!(grafted == fs::read(place.lab.path("sysroot/libc.a")).unwrap());
}

#[test]
fn the_compiler_s_name_may_have_words_and_its_exit_code_is_handed_on() {
    let place = Place::new();
    // A wrapper as ccache is one, whose name has a blank.
    symlink("/usr/bin/env", place.lab.path("bin/my wrapper")).unwrap();
    let named = "'my wrapper' SEEN=1 musl-gcc -DWORD=1";
    place.lab.put("word.c", b"#include <stdlib.h>\nint main(void) { free(malloc(WORD)); return 0; }\n");
    place.cc(&["--cc", named, "-o", "one", "word.c"]).exits(0);
    place.lab.run(["inspect", "one", "--expect", "snmalloc"]).exits(0);
    let mut command = place.command(&[], &["-o", "two", "word.c"]);
    Ran::from(command.env("ALLOGRAFT_CC", named).output().unwrap()).exits(0);
    place.lab.run(["inspect", "two", "--expect", "snmalloc"]).exits(0);
    place.cc(&["word.c"]).exits(1).says(&["WORD"]);
    assert!(!place.lab.path("a.out").exists());
    place.cc(&["--cc", "sh -c 'exit 42'", "word.c"]).exits(42);
}

#[test]
fn refusals() {
    let place = Place::new();
    // The cache is there.
    place.cc(&["program.c"]).exits(0);
    let refused = |code, arguments: &[&str], says: &[&str]| {
        let before = place.lab.files();
        let ran = place.cc(arguments).exits(code).says(says).says(&["help: "]);
        assert_eq!(ran.err.matches("error:").count(), 1, "{}", ran.err);
        assert_same(&before, &place.lab.files());
    };
    refused(
        3,
        &["-fsanitize=undefined,address", "program.c"],
        &["-fsanitize=undefined,address", "a malloc of its own"],
    );
    let zig = word(fixtures::zig().program());
    refused(3, &["--cc", &format!("{zig} cc -target x86_64-linux-musl"), "program.c"], &["is zig", "emit"]);
    refused(2, &["--cc", "no-such-cc", "program.c"], &["cannot run `no-such-cc`", "--cc"]);
    refused(2, &["--cc", "no-such-cc", "-c", "program.c"], &["cannot run `no-such-cc`", "--cc"]);
    refused(2, &["--cc", " ", "program.c"], &["has no name"]);
    refused(2, &["--donor", "mimalloc", "--set", "cook=1", "program.c"], &["`cook`"]);
    refused(2, &["--donor", "none", "--set", "purge_delay=0", "program.c"], &["purge_delay"]);
    // The compiler for this machine's own libc.
    let own = fixtures::cc().get_program().to_string_lossy().into_owned();
    let glibc = format!("-L{}", fixtures::glibc().parent().unwrap().display());
    refused(3, &["--cc", &own, &glibc, "program.c"], &["glibc's libc.a", "--cc"]);
    let specs = fs::read_to_string(place.lab.path("bin/musl-gcc.specs")).unwrap();
    let lib = place.lab.path("bin/musl/lib").display().to_string();
    place.lab.put("none.specs", specs.replace(&lib, "/no/such/folder").as_bytes());
    refused(2, &["--cc", "gcc -specs=none.specs", "program.c"], &["has no libc.a", "--cc"]);
    refused(3, &["--cc", "musl-gcc -fsanitize=thread", "program.c"], &["-fsanitize=thread", "a malloc of its own"]);
    // A compiler that does its work, but knows no `-###`.
    let ignorant = r#"sh -c 'test "$0" != "-###"'"#;
    refused(1, &["--cc", ignorant, "program.c"], &["does not say how it links", "emit"]);
    place.cc(&["--donor", "cook", "program.c"]).exits(2).says(&["cook", "snmalloc"]);
}

#[test]
fn a_cache_that_cannot_be_written_to() {
    let place = Place::new();
    place.lab.put("the cache", b"a file");
    place.cc(&["program.c"]).exits(2).says(&["the cache/allograft/cc", "XDG_CACHE_HOME"]);
    let mut command = place.command(&[], &["program.c"]);
    command.env("XDG_CACHE_HOME", "relative").env("HOME", "");
    Ran::from(command.output().unwrap()).exits(2).says(&["no cache folder", "XDG_CACHE_HOME"]);
    // Without the variable it is in the home folder.
    let mut command = place.command(&[], &["program.c"]);
    command.env_remove("XDG_CACHE_HOME").env("HOME", place.lab.path("home"));
    Ran::from(command.output().unwrap()).exits(0);
    assert!(place.lab.path("home/.cache/allograft/cc").is_dir());
    place.carries("a.out", "static", "snmalloc");
}

#[test]
fn a_program_with_another_malloc_is_an_error_and_is_not_left() {
    let place = Place::new();
    place.lab.put("own.c", format!("#include <stddef.h>\n{OWN}").as_bytes());
    place.cc(&["-O1", "-fno-builtin", "-o", "own", "program.c", "own.c"]).exits(1).says(&["`own` carries", "snmalloc"]);
    assert!(!place.lab.path("own").exists());
    // libc.a by its path comes before the copy.
    let stock = fixtures::debian_musl(Arch::X86_64).libc.display().to_string();
    place.cc(&["-O1", "-o", "stock", "program.c", &stock]).exits(1).says(&["`mallocng`", "expected `snmalloc`"]);
    assert!(!place.lab.path("stock").exists());
    // A program without malloc is right, and so is one that is not kept.
    place.lab.put("none.c", b"int main(void) { return 0; }\n");
    place.cc(&["-o", "none", "none.c"]).exits(0);
    tool(&mut Command::new(place.lab.path("none")));
    place.cc(&["-o", "/dev/null", "program.c"]).exits(0);
}

/// musl-gcc cannot make such programs; a compiler that can is simulated by its specs.
#[test]
fn a_static_program_at_any_address() {
    let place = Place::new();
    let lib = place.lab.path("bin/musl/lib").display().to_string();
    let (start, loader) = (format!("%{{!shared: {lib}/Scrt1.o}}"), "-dynamic-linker /lib/ld-musl-x86_64.so.1");
    let specs = fs::read_to_string(place.lab.path("bin/musl-gcc.specs")).unwrap();
    assert!(specs.contains(&start) && specs.contains(loader), "{specs}");
    let specs = specs
        .replace(&start, &format!("%{{static-pie: {lib}/rcrt1.o; !shared: {lib}/Scrt1.o}}"))
        .replace(loader, &format!("%{{static-pie:-static -pie --no-dynamic-linker -z text; :{loader}}}"));
    place.lab.put("pie.specs", specs.as_bytes());
    place.cc(&["--cc", "gcc -specs=pie.specs", "-O1", "-fno-builtin", "-fPIE", "-static-pie", "program.c"]).exits(0);
    place.carries("a.out", "static-pie", "snmalloc");
    // Of musl-gcc it is a dynamic program.
    let ran = place.cc(&["-O1", "-fno-builtin", "-fPIE", "-static-pie", "-o", "dynamic", "program.c"]);
    ran.exits(1).says(&["`dynamic` is linked dynamically", "help: "]);
    assert!(!place.lab.path("dynamic").exists());
}

/// The driver is clang's own, which zig holds.
#[test]
fn clang_as_the_compiler() {
    let place = Place::new();
    let musl = fixtures::debian_musl(Arch::X86_64);
    fs::create_dir_all(place.lab.path("root/usr")).unwrap();
    symlink(&musl.libdir, place.lab.path("root/usr/lib")).unwrap();
    symlink(&musl.include, place.lab.path("root/usr/include")).unwrap();
    let zig = fixtures::zig().program().to_owned();
    let libgcc = Command::new("gcc").arg("-print-libgcc-file-name").output().unwrap();
    let libgcc = PathBuf::from(String::from_utf8(libgcc.stdout).unwrap().trim_end());
    // It says that it is zig's, which only matters where zig links.
    let script = format!(
        "#!/bin/sh\n[ \"$*\" != --version ] || exec echo clang\nexec {} clang --target=x86_64-linux-musl \
         --sysroot={} --gcc-install-dir={} -nostdinc -isystem {} -isystem {} \"$@\"\n",
        word(&zig),
        word(place.lab.path("root")),
        word(libgcc.parent().unwrap()),
        word(zig.with_file_name("lib/include")),
        word(&musl.include),
    );
    place.lab.put("clang", script.as_bytes());
    for (flags, link) in [(&["-O1"][..], "static"), (&["-O1", "-fPIE", "-static-pie"], "static-pie")] {
        let start = ["--cc", "sh clang", "-fno-builtin", "-o", link, "program.c"];
        assert_eq!(place.cc(&[&start[..], flags].concat()).exits(0).err, "");
        place.carries(link, link, "snmalloc");
    }
    assert_eq!(place.copies().len(), 1);
    place.cc(&["--cc", "sh clang", "-c", "program.c", "-o", "compiled.o"]).exits(0);
    place.cc(&["--cc", "sh clang", "program.c", "-lno-such-library"]).exits(1).says(&["no-such-library"]);
}

/// gcc's driver for C++, whose link line has the C++ library. This machine's library is for glibc, so the program uses
/// none of it.
#[test]
fn a_compiler_for_cxx() {
    let place = Place::new();
    place.lab.put("program.cc", CXX.as_bytes());
    let cxx = "g++ -specs=bin/musl-gcc.specs -nostdinc++ -fno-exceptions -fno-rtti";
    let flags = ["-O1", "-fno-builtin", "-o", "program", "program.cc"];
    assert_eq!(place.cc(&[&["--cc", cxx][..], &flags].concat()).exits(0).err, "");
    place.carries("program", "static", "snmalloc");
}

const CXX: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
void *operator new(__SIZE_TYPE__ size) { void *block = malloc(size); if (!block) abort(); return block; }
void operator delete(void *block, __SIZE_TYPE__) noexcept { free(block); }
struct Node {
	Node *next;
	virtual long sum() { return 1 + (next ? next->sum() : 0); }
	virtual ~Node() { delete next; }
};
static void *work(void *sum)
{
	for (int round = 0; round < 200; round++) {
		Node *list = nullptr;
		for (int i = 0; i < 100; i++) {
			Node *node = new Node;
			node->next = list;
			list = node;
		}
		*static_cast<long *>(sum) += list->sum();
		delete list;
	}
	return nullptr;
}
int main()
{
	long sums[2] = {};
	pthread_t thread;
	pthread_create(&thread, nullptr, work, &sums[0]);
	work(&sums[1]);
	pthread_join(thread, nullptr);
	puts(sums[0] == 20000 && sums[1] == 20000 ? "ok" : "bad");
	return 0;
}
"#;

/// A malloc that gives no memory back.
const OWN: &str = "static char arena[1 << 24];\nstatic size_t used;\n\
    void *malloc(size_t n) { void *p = arena + used; used += (n + 15) & ~(size_t)15; return p; }\n\
    void free(void *p) { (void)p; }\n\
    void *calloc(size_t n, size_t m) { return malloc(n * m); }\n\
    void *realloc(void *p, size_t n) { char *q = malloc(n); for (size_t i = 0; p && i < n; i++) q[i] = ((char *)p)[i];\n\
    return q; }\n";

/// A copy that was changed or cut, or replaced by a different library, was once linked without a check.
#[test]
fn a_copy_that_was_changed_is_made_again() {
    let place = Place::new();
    place.cc(&["-o", "one", "program.c"]).exits(0);
    let [copy] = place.copies().try_into().unwrap();
    let whole = fs::read(&copy).unwrap();
    let mut changed = whole.clone();
    changed[whole.len() / 2] ^= 1;
    for broken in [changed, whole[..whole.len() / 2].to_vec(), debian(), Vec::new()] {
        fs::write(&copy, broken).unwrap();
        place.cc(&["-o", "one", "program.c"]).exits(0);
        assert!(fs::read(&copy).unwrap() == whole);
    }
    // The checksum alone is not proof either.
    for checksum in [&b""[..], b"0000"] {
        fs::write(copy.with_extension("a.sha256"), checksum).unwrap();
        place.cc(&["-o", "one", "program.c"]).exits(0);
        assert!(fs::read(&copy).unwrap() == whole);
    }
    assert_eq!(place.copies(), [copy]);
    place.carries("one", "static", "snmalloc");
}
