//! JSON documents. A fuzzer cannot guess a digest: an input is several documents, and names others by their numbers.

use std::fs;
use std::path::Path;

use hosts::Record;
use serde_json::Value;
use tempfile::TempDir;

use crate::files::trees;

/// The byte between two documents.
pub(crate) const BETWEEN: u8 = 0x1e;

/// Returns the documents of an input. In each, `@N` becomes the digest of the document N, and `#N` its size: N is one
/// digit, and counts from the end, so that a document names those that follow it. 0 is `layer`.
fn documents(input: &[u8], layer: Vec<u8>) -> Vec<Vec<u8>> {
    let mut done = vec![layer];
    for part in input.rsplit(|byte| *byte == BETWEEN).take(9) {
        let mut document = Vec::new();
        let mut bytes = part.iter().copied().peekable();
        while let Some(byte) = bytes.next() {
            let named = bytes.peek().filter(|digit| digit.is_ascii_digit());
            let named = named.and_then(|digit| done.get(usize::from(*digit - b'0')));
            match (byte, named) {
                (b'@', Some(named)) => document.extend_from_slice(hosts::sha256(named).as_bytes()),
                (b'#', Some(named)) => document.extend_from_slice(named.len().to_string().as_bytes()),
                _ => {
                    document.push(byte);
                    continue;
                }
            }
            bytes.next();
        }
        done.push(document);
    }
    done
}

/// A tar with one file.
pub(crate) fn layer() -> Vec<u8> {
    let mut header = [0; 512];
    header[..1].copy_from_slice(b"x");
    header[100..108].copy_from_slice(b"0000755\0");
    header[124..136].copy_from_slice(b"00000000000\0");
    header[156] = b'0';
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    [&header[..], &[0; 1024]].concat()
}

fn write(folder: &Path, name: &str, bytes: &[u8]) {
    fs::write(folder.join(name), bytes).expect("a temporary folder");
}

fn opened(folder: TempDir) {
    match images::open(folder.path()) {
        Ok(Some(source)) => trees(&source),
        Ok(None) => {}
        Err(error) => drop((error.to_string(), error.help())),
    }
}

/// An OCI layout: the first document is its index.
pub(crate) fn oci(input: &[u8]) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let documents = documents(input, layer());
    fs::create_dir_all(folder.path().join("blobs/sha256")).expect("a temporary folder");
    for document in &documents {
        write(&folder.path().join("blobs/sha256"), &hosts::sha256(document), document);
    }
    write(folder.path(), "index.json", documents.last().map_or(&b""[..], Vec::as_slice));
    write(folder.path(), "oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#);
    opened(folder);
}

/// An archive of `docker save`: the first document is its list, the others are configurations.
pub(crate) fn docker(input: &[u8]) {
    let documents = documents(input, layer());
    let mut tar = Vec::new();
    for (number, document) in documents.iter().enumerate() {
        let name = match number {
            _ if number + 1 == documents.len() => "manifest.json".to_owned(),
            0 => format!("{}/layer.tar", hosts::sha256(document)),
            _ => format!("{}.json", hosts::sha256(document)),
        };
        entry(&mut tar, &name, document);
    }
    tar.resize(tar.len() + 1024, 0);
    crate::files::image(&tar);
}

/// Adds a file to a tar.
fn entry(tar: &mut Vec<u8>, name: &str, content: &[u8]) {
    let mut header: [u8; 512] = layer()[..512].try_into().expect("a block");
    header[..name.len()].copy_from_slice(name.as_bytes());
    header[124..136].copy_from_slice(format!("{:011o}\0", content.len()).as_bytes());
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    tar.extend_from_slice(&header);
    tar.extend_from_slice(content);
    tar.resize(tar.len().next_multiple_of(512), 0);
}

/// The record of a graft.
pub(crate) fn record(input: &[u8]) {
    let record = match Record::parse(input) {
        Ok(record) => record,
        Err(error) => return drop(error),
    };
    let written = serde_json::to_vec_pretty(&record).expect("a record that can be written");
    assert_eq!(Record::parse(&written).as_ref(), Ok(&record));
}

/// The origin of a grafted image, in an index or in a list.
pub(crate) fn origin(input: &[u8]) {
    let Ok(document) = serde_json::from_slice::<Value>(input) else { return };
    let Some(Ok(changes)) = hosts::image_changes(&document) else { return };
    for name in &changes.replaced {
        assert!(matches!(name.as_str(), "index.json" | "manifest.json"), "it replaces `{name}`");
    }
    for name in &changes.dropped {
        let hex = name.strip_prefix("blobs/sha256/").or_else(|| name.strip_suffix(".json"));
        let hex = hex.or_else(|| name.strip_suffix("/layer.tar")).or_else(|| name.strip_suffix(".tar"));
        let hex = hex.unwrap_or_else(|| panic!("it drops `{name}`"));
        assert!(hex.len() == 64 && hex.bytes().all(|digit| digit.is_ascii_hexdigit()), "it drops `{name}`");
    }
}
