//! A Swift SDK bundle with the real layout, made from real musl archives: unpacked, as a tar.gz, as a zip.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use fixtures::Arch;

use crate::lab::{Lab, tool};

/// The name of the SDK.
pub(crate) const SDK: &str = "swift-6.1.2-RELEASE_static-linux-0.0.1";
/// The folder of the bundle.
pub(crate) const FOLDER: &str = "swift-6.1.2-RELEASE_static-linux-0.0.1.artifactbundle";

/// Returns the path of a `libc.a` in the bundle's folder.
pub(crate) fn libc_in(arch: Arch) -> String {
    format!("{SDK}/swift-linux-musl/musl-1.2.5.sdk/{}/usr/lib/libc.a", arch.name())
}

pub(crate) fn stock(arch: Arch) -> Vec<u8> {
    fs::read(fixtures::debian_musl(arch).libc).unwrap()
}

pub(crate) const ARCHES: [Arch; 2] = [Arch::X86_64, Arch::Aarch64];

/// Puts the unpacked bundle into the lab, laid out as by swiftlang/swift-docker:
/// `swift-ci/sdks/static-linux/scripts/build.sh`.
pub(crate) fn folder(lab: &Lab) -> PathBuf {
    let inside = |name: &str| format!("{FOLDER}/{name}");
    let manifest = format!(
        "{{\n  \"schemaVersion\": \"1.0\",\n  \"artifacts\": {{\n    \"{SDK}\": {{\n      \"variants\": [ {{ \"path\": \
         \"{SDK}/swift-linux-musl\" }} ],\n      \"version\": \"0.0.1\",\n      \"type\": \"swiftSDK\"\n    }}\n  }}\n}}\n"
    );
    lab.put(inside("info.json"), manifest.as_bytes());
    let triples: Vec<String> = ARCHES
        .iter()
        .map(|arch| {
            let root = format!("musl-1.2.5.sdk/{}", arch.name());
            format!(
                "    \"{}-swift-linux-musl\": {{ \"toolsetPaths\": [ \"toolset.json\" ], \"sdkRootPath\": \"{root}\", \
                 \"swiftResourcesPath\": \"{root}/usr/lib/swift_static\" }}",
                arch.name()
            )
        })
        .collect();
    let sdk =
        format!("{{\n  \"schemaVersion\": \"4.0\",\n  \"targetTriples\": {{\n{}\n  }}\n}}\n", triples.join(",\n"));
    let musl = format!("{SDK}/swift-linux-musl");
    lab.put(inside(&format!("{musl}/swift-sdk.json")), sdk.as_bytes());
    lab.put(inside(&format!("{musl}/toolset.json")), b"{ \"rootPath\": \"swift.xctoolchain\" }\n");
    for arch in ARCHES {
        let usr = format!("{musl}/musl-1.2.5.sdk/{}/usr", arch.name());
        lab.put(inside(&libc_in(arch)), &stock(arch));
        let libdir = fixtures::debian_musl(arch).libdir;
        for name in ["crt1.o", "rcrt1.o", "Scrt1.o", "crti.o", "crtn.o", "libm.a"] {
            lab.put(inside(&format!("{usr}/lib/{name}")), &fs::read(libdir.join(name)).unwrap());
        }
        let swift = format!("{usr}/lib/swift_static");
        lab.put(inside(&format!("{swift}/linux-static/static-executable-args.lnk")), b"-static\n");
        let deep = format!("{swift}/{}/Swift.swiftmodule/{}.swiftinterface", "module/".repeat(12), "x".repeat(120));
        lab.put(inside(&deep), b"// swift-interface-format-version: 1.0\n");
        symlink("lib", lab.path(inside(&format!("{usr}/lib64")))).unwrap();
        symlink("../libc.a", lab.path(inside(&format!("{usr}/lib/swift_static/libc.a")))).unwrap();
        fs::hard_link(
            lab.path(inside(&format!("{usr}/lib/libm.a"))),
            lab.path(inside(&format!("{usr}/lib/libm-second-name.a"))),
        )
        .unwrap();
    }
    let program = lab.put(inside(&format!("{musl}/swift.xctoolchain/usr/bin/tool")), b"#!/bin/sh\n");
    fs::set_permissions(program, fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir_all(lab.path(inside("empty folder"))).unwrap();
    lab.path(FOLDER)
}

/// Packs the folder as `name`, in one of tar's formats, and deletes it.
pub(crate) fn pack_tar(lab: &Lab, name: &str, format: &str) -> PathBuf {
    folder(lab);
    let path = lab.path(name);
    let mut tar = Command::new("tar");
    tar.args(["--format", format, "--owner=builder:1234", "--group=wheel:4321", "--sort=name", "-czf"]);
    tool(tar.arg(&path).arg(FOLDER).current_dir(lab.path("")));
    fs::remove_dir_all(lab.path(FOLDER)).unwrap();
    path
}

/// Packs the folder as a zip, and deletes it.
pub(crate) fn pack_zip(lab: &Lab, name: &str) -> PathBuf {
    let path = lab.path(name);
    fill_zip(lab, zip::ZipWriter::new(File::create_new(&path).unwrap()));
    path
}

/// Does the same with a tool that cannot seek back to fill in sizes, and writes them behind each entry.
pub(crate) fn pack_streamed_zip(lab: &Lab, name: &str) -> PathBuf {
    let path = lab.path(name);
    fill_zip(lab, zip::ZipWriter::new_stream(File::create_new(&path).unwrap()));
    path
}

fn fill_zip<W: Write + std::io::Seek>(lab: &Lab, mut zip: zip::ZipWriter<W>) {
    use zip::write::SimpleFileOptions;
    let mut waiting = vec![folder(lab)];
    while let Some(at) = waiting.pop() {
        let inside = at.strip_prefix(lab.path("")).unwrap().to_str().unwrap().to_owned();
        let metadata = fs::symlink_metadata(&at).unwrap();
        let options = SimpleFileOptions::default().unix_permissions(metadata.permissions().mode());
        if metadata.is_symlink() {
            zip.add_symlink(inside, fs::read_link(&at).unwrap().to_str().unwrap(), options).unwrap();
        } else if metadata.is_dir() {
            zip.add_directory(inside, options).unwrap();
            let mut below: Vec<_> = fs::read_dir(&at).unwrap().map(|entry| entry.unwrap().path()).collect();
            below.sort();
            waiting.extend(below);
        } else {
            zip.start_file(inside, options).unwrap();
            zip.write_all(&fs::read(&at).unwrap()).unwrap();
        }
    }
    zip.set_comment("a comment").unwrap();
    zip.finish().unwrap();
    fs::remove_dir_all(lab.path(FOLDER)).unwrap();
}

/// Returns the uncompressed content of a gzip file.
pub(crate) fn unzipped(path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    flate2::bufread::GzDecoder::new(&fs::read(path).unwrap()[..]).read_to_end(&mut bytes).unwrap();
    bytes
}

/// The grafts of the two `libc.a`s, made from them as single files with the default donor.
pub(crate) fn grafts(lab: &Lab) -> Vec<Vec<u8>> {
    ARCHES
        .iter()
        .map(|arch| {
            let name = format!("single-{}.a", arch.name());
            let path = lab.put(&name, &stock(*arch));
            lab.run(["graft", &name, "-o", "single-graft.a"]).exits(0);
            let graft = fs::read(lab.path("single-graft.a")).unwrap();
            fs::remove_file(path).unwrap();
            fs::remove_file(lab.path("single-graft.a")).unwrap();
            graft
        })
        .collect()
}
