//! Sysroots of all kinds as folders, and the root folders of images.

use std::fs;
use std::os::unix::fs::symlink;

use fixtures::Arch;

use crate::lab::{Lab, debian, zig};

/// The paths of the hosts in the document's list, relative to `below`.
fn hosts(document: &serde_json::Value, list: &str, below: &str) -> Vec<String> {
    let path = |host: &serde_json::Value| host["path"].as_str().unwrap().trim_start_matches(below).to_owned();
    document[list].as_array().unwrap().iter().map(path).collect()
}

/// Makes an Alpine root with musl-dev, laid out as apk does it.
fn alpine(lab: &Lab, root: &str) {
    lab.libc(format!("{root}/usr/lib/libc.a"));
    for name in ["libm.a", "libpthread.a", "libdl.a", "librt.a"] {
        lab.put(format!("{root}/usr/lib/{name}"), b"!<arch>\n");
    }
    for name in ["crt1.o", "rcrt1.o", "crti.o", "crtn.o"] {
        let start = fs::read(fixtures::debian_musl(Arch::X86_64).libdir.join(name)).unwrap();
        lab.put(format!("{root}/usr/lib/{name}"), &start);
    }
    lab.put(format!("{root}/lib/ld-musl-x86_64.so.1"), b"\x7fELF");
    symlink("/lib/ld-musl-x86_64.so.1", lab.path(format!("{root}/lib/libc.musl-x86_64.so.1"))).unwrap();
    symlink("/lib/ld-musl-x86_64.so.1", lab.path(format!("{root}/usr/lib/libc.so"))).unwrap();
}

#[test]
fn an_alpine_image() {
    let lab = Lab::new();
    alpine(&lab, "image");
    symlink("/usr/lib", lab.path("image/toolchain")).unwrap();
    symlink("/usr/lib/libc.a", lab.path("image/libc.a")).unwrap();
    for target in ["/usr/lib/libc.a", "usr/lib/libc.a", "/toolchain/libc.a", "/toolchain", "/libc.a", "/", "../../usr"]
    {
        let document = lab.run(["graft", "--root", "image", target, "--json"]).exits(0).json();
        assert_eq!(hosts(&document, "hosts", "image/"), ["usr/lib/libc.a"], "{target}");
        assert_eq!(hosts(&document, "skipped", "image/"), [""; 0], "{target}");
        assert!(lab.path("image/usr/lib/libc.a.allograft-stock").is_file(), "the backup is in the image");
        lab.changes_nothing(0, ["verify", "--root", "image", target, "--static-only"]);
        lab.run(["undo", "--root", "image", target]).exits(0);
        assert!(fs::read(lab.path("image/usr/lib/libc.a")).unwrap() == debian());
    }
}

#[test]
fn a_link_never_leads_out_of_an_image() {
    let lab = Lab::new();
    alpine(&lab, "image");
    let outside = lab.libc("outside/libc.a");
    symlink(&outside, lab.path("image/usr/lib/absolute.a")).unwrap();
    symlink("../../../outside/libc.a", lab.path("image/usr/lib/above.a")).unwrap();
    symlink("circle.a", lab.path("image/usr/lib/circle.a")).unwrap();
    for link in ["absolute.a", "above.a", "circle.a"] {
        let target = format!("/usr/lib/{link}");
        lab.changes_nothing(2, ["graft", "--root", "image", &target]).says(&["`image/usr/lib/", link]);
        lab.changes_nothing(2, ["undo", "--root", "image", &target]);
    }
    lab.changes_nothing(2, ["graft", "--root", "missing", "/usr/lib/libc.a"]);
}

#[test]
fn debian_with_several_architectures() {
    let lab = Lab::new();
    for arch in fixtures::DEBIAN {
        let musl = fixtures::debian_musl(arch);
        let triple = musl.libdir.file_name().unwrap().to_str().unwrap().to_owned();
        lab.put(format!("root/usr/lib/{triple}/libc.a"), &fs::read(musl.libc).unwrap());
        fs::create_dir_all(lab.path(format!("root/usr/{triple}"))).unwrap();
        symlink(format!("../lib/{triple}"), lab.path(format!("root/usr/{triple}/lib"))).unwrap();
    }
    lab.put("root/usr/lib/x86_64-linux-gnu/libc.a", &fs::read(fixtures::glibc()).unwrap());
    symlink("usr/lib", lab.path("root/lib")).unwrap();
    let document = lab.run(["graft", "root", "--json"]).exits(0).json();
    let arches: Vec<&str> =
        document["hosts"].as_array().unwrap().iter().map(|host| host["arch"].as_str().unwrap()).collect();
    assert_eq!(arches, ["aarch64", "arm", "i686", "x86_64"]);
    assert_eq!(hosts(&document, "skipped", "root/"), ["usr/lib/x86_64-linux-gnu/libc.a"]);
    lab.changes_nothing(0, ["verify", "root", "--static-only"]);
    lab.run(["undo", "root"]).exits(0);
}

#[test]
fn a_cross_compiler_of_musl_cross_make() {
    let lab = Lab::new();
    lab.put("cross/aarch64-linux-musl/lib/libc.a", &fs::read(fixtures::debian_musl(Arch::Aarch64).libc).unwrap());
    symlink(".", lab.path("cross/aarch64-linux-musl/usr")).unwrap();
    symlink("lib", lab.path("cross/aarch64-linux-musl/lib64")).unwrap();
    lab.put("cross/lib/gcc/aarch64-linux-musl/11.2.0/libgcc.a", b"!<arch>\n");
    let document = lab.run(["graft", "cross", "--json"]).exits(0).json();
    assert_eq!(hosts(&document, "hosts", "cross/"), ["aarch64-linux-musl/lib/libc.a"]);
    lab.run(["undo", "cross"]).exits(0);
}

#[test]
#[ignore = "zig-musls: takes zig's musl for two architectures"]
fn the_cache_of_zig_0_15() {
    let lab = Lab::new();
    for (hash, arch) in [("4c7c", Arch::X86_64), ("a81e", Arch::Riscv64)] {
        lab.put(format!("zig/o/{hash}/libc.a"), &zig(arch));
        let beside = fs::read(fixtures::zig_musl(arch).with_file_name("libzigc.a")).unwrap();
        lab.put(format!("zig/o/{hash}0/libzigc.a"), &beside);
    }
    lab.put("zig/h/manifest.txt", b"0\n");
    let document = lab.run(["graft", "zig", "--json"]).exits(0).json();
    assert_eq!(hosts(&document, "hosts", "zig/"), ["o/4c7c/libc.a", "o/a81e/libc.a"]);
    lab.changes_nothing(0, ["verify", "zig", "--static-only"]);
    lab.run(["undo", "zig"]).exits(0);
}

#[test]
#[ignore = "zig-musl: takes zig's musl"]
fn zig_0_16_has_no_malloc_to_exchange() {
    let lab = Lab::new();
    let path = lab.put("zig/o/1234/libc.a", &zig(Arch::X86_64));
    // In zig 0.16 the malloc family is in libzigc.a, and libc.a has none.
    let archive = fs::read(&path).unwrap();
    let parsed = surgery::archive::Archive::parse(&archive).unwrap();
    let defines = |name: &[u8]| {
        ["malloc", "calloc", "realloc", "free", "memalign", "posix_memalign", "aligned_alloc", "reallocarray", "valloc"]
            .iter()
            .chain(&["malloc_usable_size", "__libc_malloc", "__libc_free", "__libc_realloc", "__libc_calloc"])
            .chain(&["__malloc_donate", "__malloc_atfork", "__malloc_allzerop", "__libc_malloc_impl"])
            .any(|known| known.as_bytes() == name)
    };
    // fork keeps its weak placeholder for the hook.
    let forks = parsed.indexed().filter(|(_, name)| *name == b"fork").map(|(ordinal, _)| ordinal).collect::<Vec<_>>();
    let gone = parsed
        .indexed()
        .filter(|(ordinal, name)| defines(name) && !forks.contains(ordinal))
        .map(|(ordinal, _)| ordinal)
        .collect();
    fs::write(&path, parsed.edit(&gone, None)).unwrap();
    lab.changes_nothing(3, ["graft", "zig"]).says(&["no allocator", "allograft emit", "--as object"]);
}

#[test]
fn an_installed_swift_sdk() {
    let lab = Lab::new();
    crate::bundle::folder(&lab);
    let sdks = lab.path("home/.swiftpm/swift-sdks");
    fs::create_dir_all(&sdks).unwrap();
    fs::rename(lab.path(crate::bundle::FOLDER), sdks.join("download.artifactbundle")).unwrap();
    let target = format!("swift:{}", crate::bundle::SDK);
    let run = |home: &str, config: Option<&str>, arguments: &[&str]| -> fixtures::Ran {
        let mut command = lab.command();
        command.env("HOME", lab.path(home)).env_remove("XDG_CONFIG_HOME");
        command.envs(config.map(|config| ("XDG_CONFIG_HOME", lab.path(config))));
        command.args(arguments).output().unwrap().into()
    };
    let ran = run("home", None, &["graft", &target]).exits(0);
    assert!(ran.out.contains(&format!("swift build --swift-sdk {}", crate::bundle::SDK)), "{}", ran.out);
    run("home", None, &["inspect", &target, "--json"]).exits(0);
    run("home", None, &["verify", &target, "--static-only"]).exits(0);
    run("home", None, &["undo", &target]).exits(0);
    run("home", None, &["graft", "swift:other"]).exits(2).says(&["`other`", crate::bundle::SDK]);
    // SwiftPM looks nowhere else if this variable is set.
    run("home", Some("config"), &["graft", &target]).exits(2).says(&["config/swiftpm/swift-sdks"]);
    fs::create_dir_all(lab.path("config")).unwrap();
    fs::rename(lab.path("home/.swiftpm"), lab.path("config/swiftpm")).unwrap();
    run("home", Some("config"), &["graft", &target]).exits(0);
}
