//! Packed bundles that are damaged or malicious: one message, the right exit code, no change.

use std::fs;
use std::io::Write;

use fixtures::Arch;

use crate::bundle::{FOLDER, SDK, libc_in, pack_zip, stock};
use crate::lab::Lab;

pub(crate) fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}

/// Makes a tar with a manifest, a `libc.a`, and what `more` adds.
pub(crate) fn tar(more: impl FnOnce(&mut tar::Builder<Vec<u8>>)) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    let manifest = format!("{{\"artifacts\": {{\"{SDK}\": {{\"type\": \"swiftSDK\"}}}}}}");
    add(&mut builder, &format!("{FOLDER}/info.json"), tar::EntryType::Regular, manifest.as_bytes());
    let libc = format!("{FOLDER}/{}", libc_in(Arch::X86_64));
    add(&mut builder, &libc, tar::EntryType::Regular, &stock(Arch::X86_64));
    more(&mut builder);
    builder.into_inner().unwrap()
}

pub(crate) fn add(builder: &mut tar::Builder<Vec<u8>>, name: &str, kind: tar::EntryType, content: &[u8]) {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(0o644);
    header.set_size(content.len() as u64);
    if name.len() <= 100 {
        // The name is written directly, since the library refuses to write such names.
        header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
        header.set_cksum();
        builder.append(&header, content).unwrap();
    } else {
        builder.append_data(&mut header, name, content).unwrap();
    }
}

fn link(builder: &mut tar::Builder<Vec<u8>>, name: &str, kind: tar::EntryType, target: &str) {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(0);
    header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
    header.set_link_name_literal(target).unwrap();
    header.set_cksum();
    builder.append(&header, &b""[..]).unwrap();
}

#[test]
fn what_is_sound_is_taken() {
    let lab = Lab::new();
    lab.put("sdk.tar.gz", &gzip(&tar(|_| {})));
    lab.run(["graft", "sdk.tar.gz"]).exits(0);
}

#[test]
fn tars_that_would_do_harm() {
    type More = fn(&mut tar::Builder<Vec<u8>>);
    let cases: [(&str, More); 9] = [
        ("holds `..`", |tar| add(tar, "x/../../etc/passwd", tar::EntryType::Regular, b"x")),
        ("is absolute", |tar| add(tar, "/etc/passwd", tar::EntryType::Regular, b"x")),
        ("appears twice", |tar| add(tar, &format!("./{FOLDER}//info.json"), tar::EntryType::Regular, b"x")),
        ("through a symbolic link", |tar| {
            link(tar, "x", tar::EntryType::Symlink, "/etc");
            add(tar, "x/passwd", tar::EntryType::Regular, b"x");
        }),
        ("holds `..`", |tar| link(tar, "x", tar::EntryType::Link, "../outside")),
        ("hard link to no file", |tar| link(tar, "x", tar::EntryType::Link, "missing")),
        ("sparse", |tar| add(tar, "x", tar::EntryType::GNUSparse, b"")),
        ("unknown kind", |tar| add(tar, "x", tar::EntryType::new(b'Z'), b"")),
        ("is not a file, but has a size", |tar| add(tar, "x", tar::EntryType::Directory, b"content")),
    ];
    for (says, more) in cases {
        let lab = Lab::new();
        lab.put("sdk.tar.gz", &gzip(&tar(more)));
        let ran = lab.changes_nothing(3, ["graft", "sdk.tar.gz"]).says(&["`sdk.tar.gz`", "entry `", says, "help: "]);
        assert_eq!(ran.err.lines().count(), 2, "{}", ran.err);
        lab.changes_nothing(3, ["graft", "sdk.tar.gz", "-o", "out.tar.gz"]);
    }
}

#[test]
fn more_than_a_bundle_has() {
    let lab = Lab::new();
    // The size of a libc.a is 8 GiB, in base-256 and without the content. Another size does not fit at all.
    for (size, code, says) in [(8_u64 << 30, 3, "more than the"), (u64::MAX >> 1, 3, "more than the")] {
        let mut bytes = tar(|builder| add(builder, "y/libc.a", tar::EntryType::Regular, b"")).clone();
        let at = bytes.windows(8).position(|window| window == b"y/libc.a").unwrap();
        let mut header = tar::Header::from_byte_slice(&bytes[at..at + 512]).clone();
        header.set_size(size);
        header.set_cksum();
        bytes[at..at + 512].copy_from_slice(header.as_bytes());
        lab.put("sdk.tar.gz", &gzip(&bytes));
        lab.changes_nothing(code, ["graft", "sdk.tar.gz"]).says(&["`sdk.tar.gz`, entry `y/libc.a`", says]);
    }
    // An extended header of a gigabyte.
    let mut header = tar::Header::new_ustar();
    header.set_entry_type(tar::EntryType::XHeader);
    header.set_size(1 << 30);
    header.set_cksum();
    lab.put("sdk.tar.gz", &gzip(&[&header.as_bytes()[..], &[0; 1024]].concat()));
    lab.changes_nothing(3, ["graft", "sdk.tar.gz"]).says(&["more than the"]);
}

#[test]
fn tars_that_are_damaged() {
    let lab = Lab::new();
    let whole = gzip(&tar(|_| {}));
    for length in [20, 600, 100_000, whole.len() - 9, whole.len() - 1] {
        lab.put("sdk.tar.gz", &whole[..length]);
        lab.changes_nothing(2, ["graft", "sdk.tar.gz"]).says(&["`sdk.tar.gz`", "help: "]);
    }
    for at in [whole.len() / 3, whole.len() - 5] {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        lab.put("sdk.tar.gz", &bytes);
        // The damage may be in a libc.a of the bundle.
        lab.changes_nothing(2, ["graft", "sdk.tar.gz"]).says(&["`sdk.tar.gz", "help: "]);
    }
    let plain = tar(|_| {});
    let mut wrong_sum = plain.clone();
    wrong_sum[512 + 512 + 3] ^= 1;
    let mut behind = plain.clone();
    behind.extend([b'x'; 512]);
    let without_end = &plain[..plain.len() - 1024];
    for (bytes, says) in
        [(&wrong_sum[..], "checksum"), (&behind, "end mark"), (without_end, "end mark of the tar is missing")]
    {
        lab.put("sdk.tar.gz", &gzip(bytes));
        lab.changes_nothing(2, ["graft", "sdk.tar.gz"]).says(&["`sdk.tar.gz`", says]);
    }
    lab.put("sdk.tar.gz", &gzip(b"no tar"));
    lab.changes_nothing(2, ["graft", "sdk.tar.gz"]).says(&["holds no tar"]);
}

#[test]
fn what_holds_no_swift_sdk() {
    let lab = Lab::new();
    let mut builder = tar::Builder::new(Vec::new());
    add(&mut builder, "usr/lib/libc.a", tar::EntryType::Regular, &stock(Arch::X86_64));
    lab.put("package.apk", &gzip(&builder.into_inner().unwrap()));
    lab.changes_nothing(3, ["graft", "package.apk"]).says(&["not a Swift SDK", "unpack it"]);
    let mut builder = tar::Builder::new(Vec::new());
    let manifest = format!("{{\"artifacts\": {{\"{SDK}\": {{\"type\": \"swiftSDK\"}}}}}}");
    add(&mut builder, &format!("{FOLDER}/info.json"), tar::EntryType::Regular, manifest.as_bytes());
    lab.put("sdk.tar.gz", &gzip(&builder.into_inner().unwrap()));
    lab.changes_nothing(2, ["graft", "sdk.tar.gz"]).says(&["no `libc.a`"]);
}

#[test]
fn zips_that_are_damaged_or_would_do_harm() {
    let lab = Lab::new();
    let path = pack_zip(&lab, "sdk.zip");
    let whole = fs::read(&path).unwrap();
    let directory = whole.windows(4).position(|window| window == b"PK\x01\x02").unwrap();
    for length in [4, 30, 1000, directory, whole.len() - 1] {
        lab.put("sdk.zip", &whole[..length]);
        lab.changes_nothing(2, ["graft", "sdk.zip"]).says(&["`sdk.zip`", "help: "]);
    }
    let edit = |code: i32, says: &str, change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = whole.clone();
        change(&mut bytes);
        lab.put("sdk.zip", &bytes);
        lab.changes_nothing(code, ["graft", "sdk.zip"]).says(&["`sdk.zip`", says, "help: "]);
    };
    let end = whole.len() - 22 - "a comment".len();
    let libc = whole.windows(4).enumerate().skip(directory).find_map(|(at, window)| {
        let name = whole.get(at + 46..)?;
        let length = usize::from(whole[at + 28]);
        (window == b"PK\x01\x02" && name[..length].ends_with(b"x86_64/usr/lib/libc.a")).then_some(at)
    });
    let libc = libc.unwrap();
    edit(3, "zip64", &|bytes| bytes[end + 16..end + 20].fill(0xff));
    edit(2, "as many entries", &|bytes| bytes[end + 8..end + 12].copy_from_slice(&[1, 0, 1, 0]));
    edit(2, "checksum", &|bytes| bytes[libc + 16] ^= 1);
    edit(3, "more than the", &|bytes| bytes[libc + 27] = 0x70);
    edit(3, "encrypted", &|bytes| bytes[libc + 8] |= 1);
    edit(3, "a method other than deflate", &|bytes| bytes[libc + 10] = 93);
    edit(2, "overlap", &|bytes| bytes[libc + 23] = 0x7f);
    edit(3, "is absolute", &|bytes| bytes[directory + 46] = b'/');
    edit(2, "another name", &|bytes| bytes[directory + 46] = b'X');
}

/// Makes a zip with a manifest and `count` entries `N/libc.a` of this content (PKWARE, APPNOTE.TXT 6.3.10: 4.3.7,
/// 4.3.12, 4.3.16).
fn zip_of(count: u32, content: &[u8]) -> Vec<u8> {
    let packed = |content: &[u8]| {
        let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(content).unwrap();
        let mut crc = flate2::Crc::new();
        crc.update(content);
        (encoder.finish().unwrap(), crc.sum(), content.len() as u32)
    };
    let (manifest, content) = (packed(b"{\"x\": \"swiftSDK\"}"), packed(content));
    let (mut zip, mut directory) = (Vec::new(), Vec::new());
    let libcs = (0..count).map(|number| (format!("{number:04}/libc.a"), &content));
    for (name, (packed, crc, size)) in [("info.json".to_owned(), &manifest)].into_iter().chain(libcs) {
        let mut common = [20_u16, 0, 8, 0, 0].map(u16::to_le_bytes).concat();
        common.extend([*crc, packed.len() as u32, *size].map(u32::to_le_bytes).concat());
        common.extend([name.len() as u16, 0].map(u16::to_le_bytes).concat());
        directory.extend([&b"PK\x01\x02\x14\0"[..], &common, &[0; 10], &(zip.len() as u32).to_le_bytes()].concat());
        directory.extend(name.as_bytes());
        zip.extend([b"PK\x03\x04", &common[..], name.as_bytes(), packed].concat());
    }
    let start = zip.len() as u32;
    zip.extend(&directory);
    let counts = [0, 0, count as u16 + 1, count as u16 + 1].map(u16::to_le_bytes).concat();
    zip.extend(
        [b"PK\x05\x06", &counts[..], &(directory.len() as u32).to_le_bytes(), &start.to_le_bytes(), &[0; 2]].concat(),
    );
    zip
}

#[test]
fn zips_that_unpack_out_of_all_proportion() {
    let lab = Lab::new();
    // A few MB that would unpack to 1,088 MiB.
    lab.put("bomb.zip", &zip_of(17, &vec![0; 64 << 20]));
    for (code, command) in [(2, "inspect"), (3, "verify"), (3, "graft")] {
        let ran = lab.changes_nothing(code, [command, "bomb.zip"]);
        ran.says(&["`bomb.zip`, entry `0016/libc.a`", "what it unpacks to"]);
    }
    // No SDK is that large.
    lab.put("sdk.zip", &zip_of(3, &[b"!<arch>\n", &vec![b'\n'; 1 << 20][..]].concat()));
    lab.run(["inspect", "sdk.zip"]).exits(2).says(&["`sdk.zip/0002/libc.a`"]);
}

#[test]
fn what_is_inspected_or_no_graft_is_not_written_anywhere() {
    let lab = Lab::new();
    lab.put("sdk.zip", &zip_of(3, &stock(Arch::X86_64)));
    // Files may have 64 KiB at most, and the folder for temporary files is not writable.
    let nowhere = "ulimit -f 128; mkdir -p none; chmod a-w none; export TMPDIR=$PWD/none";
    let ran = lab.run_after(nowhere, &["inspect", "sdk.zip", "--expect", "mallocng"]).exits(0);
    assert_eq!(ran.out.lines().count(), 5, "{}", ran.out);
    assert!(ran.out.contains("3 files: 3 as expected, 0 not, 0 unreadable"), "{}", ran.out);
    lab.run_after(nowhere.split(';').next().unwrap(), &["verify", "sdk.zip", "--static-only"])
        .exits(2)
        .says(&["no graft"]);
}
