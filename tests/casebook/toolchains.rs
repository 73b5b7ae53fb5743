//! Programs in other languages, linked by their own compilers against a grafted `libc.a`. They run, and the inspector
//! finds the donor in them. The compilers are in a Debian that `cargo xtask setup toolchains` unpacks.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Command;

use fixtures::lab::Lab;
use fixtures::toolchains;
use hosts::{Candidate, Request};

/// The folder of musl's files in that Debian.
const MUSL: &str = "/usr/lib/x86_64-linux-musl";

/// A work folder, which the compilers see under a different path.
struct Work(Lab);

impl Deref for Work {
    type Target = Lab;

    fn deref(&self) -> &Lab {
        &self.0
    }
}

impl Work {
    fn new() -> Work {
        Work(Lab::default())
    }

    /// Copies a source of this repository.
    fn source(&self, source: &str, name: &str) {
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("toolchains").join(source);
        let mode = fs::metadata(&from).unwrap_or_else(|error| panic!("{}: {error}", from.display())).permissions();
        let to = self.write(name, fs::read(&from).expect("a source"));
        fs::set_permissions(to, mode).expect("a mode");
    }

    /// Runs a script. Returns its output, or its messages if it fails.
    fn run(&self, script: &str) -> Result<String, String> {
        let output = toolchains::command(self.folder(), script).output().expect("unshare starts");
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        match output.status.success() {
            true => Ok(printed),
            false => Err(format!("{}\n{printed}\n{}", output.status, String::from_utf8_lossy(&output.stderr))),
        }
    }

    #[track_caller]
    fn prints(&self, script: &str, expected: &str) {
        let printed = self.run(script).unwrap_or_else(|error| panic!("{script}\n{error}"));
        assert!(printed.lines().any(|line| line.starts_with(expected)), "{printed}");
    }

    /// Returns the malloc of a program.
    fn malloc(&self, program: &str) -> String {
        let bytes = fs::read(self.path(program)).expect("a program");
        inspector::inspect(&bytes).expect("an ELF file").malloc.name
    }
}

fn request(donor: &str) -> Request {
    let candidates = donors::find(donor).map(Candidate::new).into_iter().collect();
    Request { candidates, strings: Some(true), ..Request::default() }
}

/// Returns whether the test cannot run here, and prints the reason.
fn cannot_run() -> bool {
    let reason = toolchains::unavailable();
    if let Some(reason) = &reason {
        eprintln!("skipped: {reason}");
    }
    reason.is_some()
}

/// Links the program `out` with `script`, against stock and against the graft, and runs both.
fn stock_and_graft(sources: &[(&str, &str)], script: &str) {
    for donor in [None, Some(donors::DEFAULTS[0])] {
        let work = Work::new();
        for (source, name) in sources {
            work.source(source, name);
        }
        // Inside that Debian, it replaces the toolchain's own libc.a.
        fs::copy(format!("{}{MUSL}/libc.a", toolchains::folder().display()), work.path("libc.a")).expect("musl's");
        if let Some(donor) = donor {
            hosts::graft(&work.path("libc.a"), &request(donor)).expect("a graft");
        }
        work.prints(&format!("{script}\n./out"), "ok");
        assert_eq!(work.malloc("out"), donor.unwrap_or("mallocng"));
    }
}

#[test]
#[ignore = "toolchains: takes compilers of other languages, 3.9 GB"]
fn cxx_with_libstdcxx() {
    if cannot_run() {
        return;
    }
    stock_and_graft(
        &[("cxx/main.cc", "main.cc"), ("glibc_names.c", "names.c")],
        "musl-gcc -O2 -c names.c
         g++ -O2 -std=c++17 -c main.cc
         musl=/usr/lib/x86_64-linux-musl gcc=$(dirname $(g++ -print-libgcc-file-name))
         ld -static --eh-frame-hdr -o out $musl/crt1.o $musl/crti.o $gcc/crtbeginT.o main.o names.o --start-group \
            $gcc/libstdc++.a $gcc/libgcc.a $gcc/libgcc_eh.a $musl/libc.a --end-group $gcc/crtend.o $musl/crtn.o",
    );
}

#[test]
#[ignore = "toolchains: takes compilers of other languages, 3.9 GB"]
fn go_with_cgo() {
    if cannot_run() {
        return;
    }
    stock_and_graft(
        &[("go/main.go", "main.go")],
        "export CGO_ENABLED=1 CC=musl-gcc
         go build -o out -ldflags '-linkmode external -extldflags \"-static\"' main.go",
    );
}

#[test]
#[ignore = "toolchains: takes compilers of other languages, 3.9 GB"]
fn ocaml() {
    if cannot_run() {
        return;
    }
    stock_and_graft(
        &[("ocaml/main.ml", "main.ml"), ("glibc_names.c", "names.c")],
        "musl-gcc -O2 -c names.c
         ocamlopt -I +unix -I +threads unix.cmxa threads.cmxa -cc musl-gcc -ccopt \"-static $PWD/names.o\" main.ml -o out",
    );
}

#[test]
#[ignore = "toolchains: takes compilers of other languages, 3.9 GB"]
fn nim() {
    if cannot_run() {
        return;
    }
    if !toolchains::folder().join("usr/bin/nim").is_file() {
        eprintln!("skipped: this machine's Debian has no Nim");
        return;
    }
    stock_and_graft(
        &[("nim/main.nim", "main.nim")],
        // Debian's Nim is older than its gcc, which treats mismatched pointer types as an error.
        "nim c --threads:on -d:release -d:useMalloc --mm:orc --gcc.exe:musl-gcc --gcc.linkerexe:musl-gcc \
             --passC:-fpermissive --passL:-static --hints:off --nimcache:$PWD/cache -o:out main.nim",
    );
}

/// zig compiles musl and libc++ into its cache. After a graft of the libc.a in the cache, zig links with it.
#[test]
#[ignore = "zigs: zig compiles musl and libc++ anew, which takes minutes"]
fn zigs_cache() {
    let work = Work::new();
    work.source("cxx/main.cc", "main.cc");
    let link = || {
        let mut zig = fixtures::zig().command();
        zig.args(["c++", "-target", "x86_64-linux-musl", "-O2", "-std=c++17", "-o", "out", "main.cc"]);
        zig.env("ZIG_GLOBAL_CACHE_DIR", work.path("cache")).env("ZIG_LOCAL_CACHE_DIR", work.path("local"));
        let output = zig.current_dir(work.folder()).output().expect("zig starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let ran = Command::new(work.path("out")).output().expect("the program starts");
        assert_eq!(String::from_utf8_lossy(&ran.stdout), "ok\n");
        work.malloc("out")
    };
    assert_eq!(link(), "mallocng");
    hosts::graft(&work.path("cache"), &request(donors::DEFAULTS[0])).expect("a graft of the cache");
    assert_eq!(link(), donors::DEFAULTS[0]);
}

/// Serves one file to any number of requests until the test ends. Returns the port.
fn serve(path: PathBuf) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A client may close the connection early.
            let _ = answer(stream, &path);
        }
    });
    port
}

fn answer(mut stream: TcpStream, path: &Path) -> io::Result<()> {
    let mut request = Vec::new();
    let mut buffer = [0; 4096];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            length => request.extend_from_slice(&buffer[..length]),
        }
    }
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n")?;
    if !request.starts_with(b"HEAD") {
        io::copy(&mut file, &mut stream)?;
    }
    Ok(())
}

/// A bundle is grafted, installed with the printed checksum, and used for a build; then the installed bundle is grafted
/// in place.
#[test]
#[ignore = "toolchains: takes compilers of other languages, 3.9 GB"]
fn a_swift_sdk() {
    const SDK: &str = "swift-6.0.3-RELEASE_static-linux-0.0.1";
    const BUILD: &str = "swift build -c release --swift-sdk swift-6.0.3-RELEASE_static-linux-0.0.1 2>&1";
    if cannot_run() {
        return;
    }
    let work = Work::new();
    for (source, name) in [
        ("glibc_names.c", "names.c"),
        ("swift/sdk.sh", "sdk.sh"),
        ("swift/Package.swift", "Package.swift"),
        ("swift/main.swift", "Sources/map/main.swift"),
    ] {
        work.source(source, name);
    }
    work.run(&format!("musl-gcc -O2 -c names.c && sh sdk.sh {SDK}")).unwrap_or_else(|error| panic!("{error}"));
    let stock = work.path(format!("{SDK}.artifactbundle.tar.gz"));
    let out = work.path("grafted.artifactbundle.tar.gz");
    let grafts = hosts::graft(&stock, &Request { out: Some(out.clone()), ..request("mimalloc") }).expect("a graft");
    let bundle = grafts.bundle.expect("a packed bundle");
    assert_eq!(bundle.swift_sdks, [SDK]);
    let url = format!("http://127.0.0.1:{}/{SDK}.artifactbundle.tar.gz", serve(out));
    let wrong = work.run(&format!("swift sdk install {url} --checksum {}", "0".repeat(64)));
    assert!(wrong.is_err_and(|error| error.contains("checksum")), "another checksum is refused");
    let sha256 = bundle.sha256.expect("a checksum");
    work.prints(&format!("swift sdk install {url} --checksum {sha256}\nswift sdk list"), SDK);
    work.prints(&format!("{BUILD}\n.build/release/map 20000 4"), "ok");
    assert_eq!(work.malloc(".build/release/map"), "mimalloc");

    // The installed bundle is grafted in place. SwiftPM does not notice until a rebuild is requested.
    let installed = work.path(format!(".swiftpm/swift-sdks/{SDK}.artifactbundle"));
    hosts::graft(&installed, &request("mimalloc3")).expect("a graft of the installed SDK");
    work.prints(BUILD, "Build complete");
    assert_eq!(work.malloc(".build/release/map"), "mimalloc");
    work.prints(&format!("swift package clean\n{BUILD}\n.build/release/map 20000 4"), "ok");
    assert_eq!(work.malloc(".build/release/map"), "mimalloc3");
}
