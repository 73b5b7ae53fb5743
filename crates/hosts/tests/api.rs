//! Tests of the public interface, as the program uses it.

use std::fs;
use std::path::Path;

use hosts::{Action, Request, UndoneAction};

fn request() -> Request {
    Request { strings: Some(true), ..Request::new(donors::default_for(format::Arch::X86_64)) }
}

fn stock() -> Vec<u8> {
    fs::read(fixtures::debian_musl(fixtures::Arch::X86_64).libc).unwrap()
}

#[test]
fn there_and_back() {
    let folder = tempfile::tempdir().unwrap();
    let libc = folder.path().join("libc.a");
    fs::write(&libc, stock()).unwrap();
    assert_eq!(hosts::stock_of(&libc).unwrap(), None);
    let grafts = hosts::graft(folder.path(), &request()).unwrap();
    assert_eq!(grafts.hosts.len(), 1);
    let host = &grafts.hosts[0];
    assert_eq!((host.action, host.path.as_path()), (Action::Grafted, libc.as_path()));
    assert_eq!(hosts::grafts_in(folder.path()).unwrap(), std::slice::from_ref(&libc));
    assert_eq!(hosts::stock_of(&libc).unwrap(), host.backup);
    let undone = hosts::undo(folder.path()).unwrap();
    assert_eq!(undone[0].action, UndoneAction::Restored);
    assert_eq!(Some(&undone[0].stock_sha256), host.stock_sha256.as_ref());
    assert!(fs::read(&libc).unwrap() == stock());
    assert!(matches!(hosts::grafts_in(folder.path()), Err(hosts::Error::NoGraft { .. })));
}

#[test]
fn what_is_grafted_is_what_surgery_plans() {
    let folder = tempfile::tempdir().unwrap();
    let libc = folder.path().join("libc.a");
    fs::write(&libc, stock()).unwrap();
    hosts::graft(&libc, &request()).unwrap();
    let mut bytes = stock();
    for donor in [donors::default_for(format::Arch::X86_64), donors::strings()] {
        let object = surgery::donor::DonorObject::parse(donor.object(format::Arch::X86_64).unwrap()).unwrap();
        let tuned = object.tuned(&[], env!("CARGO_PKG_VERSION")).unwrap();
        let archive = surgery::archive::Archive::parse(&bytes).unwrap();
        bytes = surgery::plan::plan(&archive, &tuned).unwrap().apply(&archive);
    }
    assert!(fs::read(&libc).unwrap() == bytes);
}

#[test]
fn errors_have_exit_codes_and_remedies() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("libc.a");
    let graft = |path: &Path| hosts::graft(path, &request()).unwrap_err();
    assert_eq!(graft(&path).exit_code(), 2);
    fs::write(&path, "text").unwrap();
    assert_eq!(graft(&path).exit_code(), 2);
    fs::write(&path, b"\x1f\x8b\x08\0").unwrap();
    assert_eq!(graft(&path).exit_code(), 2);
    fs::write(&path, b"!<thin>\n").unwrap();
    assert_eq!(graft(&path).exit_code(), 3);
    assert!(matches!(graft(&path).remedy(), hosts::Remedy::Advice(advice) if !advice.is_empty()));
    let mut settings = request();
    settings.candidates[0].settings.push(("no_such_option".to_owned(), 1));
    let error = hosts::graft(&path, &settings).unwrap_err();
    assert!(error.exit_code() == 2 && error.to_string().contains("no_such_option"), "{error}");
}

/// Small bundles, packed in each format. Their libc.a is not an archive: these tests are about the packing.
fn bundles() -> [Vec<u8>; 2] {
    use std::io::{Cursor, Write};
    let manifest = br#"{"artifacts": {"sdk": {"type": "swiftSDK"}}}"#;
    let files = [("sdk.artifactbundle/info.json", &manifest[..]), ("sdk.artifactbundle/lib/libc.a", b"!<arch>\n")];
    let mut tar = tar::Builder::new(Vec::new());
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let options = zip::write::SimpleFileOptions::default();
    for (name, bytes) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        // A name long enough for an extension entry of its own.
        let long = format!("sdk.artifactbundle/{}/file", "folder/".repeat(20));
        tar.append_data(&mut header.clone(), name, bytes).unwrap();
        tar.append_data(&mut header, format!("{long}-{}", bytes.len()), bytes).unwrap();
        zip.start_file(name, options).unwrap();
        zip.write_all(bytes).unwrap();
    }
    zip.add_symlink("sdk.artifactbundle/link", "lib", options).unwrap();
    [tar.into_inner().unwrap(), zip.finish().unwrap().into_inner()]
}

#[test]
fn damaged_bundles_give_an_answer() {
    use std::io::Write;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bundle");
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    let mut sound = 0;
    for (index, whole) in bundles().into_iter().enumerate() {
        for round in 0..1500 {
            let mut bytes = whole.clone();
            for _ in 0..round % 4 {
                let at = random(bytes.len());
                bytes[at] = [0, 0xff, b'/', b'7', bytes[at] ^ 1, bytes[at].wrapping_add(1)][random(6)];
            }
            if round % 5 == 4 {
                bytes.truncate(random(bytes.len()));
            }
            if index == 0 {
                let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
                gzip.write_all(&bytes).unwrap();
                bytes = gzip.finish().unwrap();
            }
            fs::write(&path, &bytes).unwrap();
            let dry = Request { dry_run: true, ..request() };
            let error = hosts::graft(&path, &dry).expect_err("nothing in it can be grafted");
            assert!(matches!(error.exit_code(), 2 | 3), "{error}");
            sound += usize::from(matches!(error, hosts::Error::NothingGraftable { .. }));
        }
    }
    assert!((700..2900).contains(&sound), "{sound} of 3000 were read to the end");
}
