//! Readers of whole files.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::path::PathBuf;

use images::tar::{BLOCK, Next};
use images::{Kind, Source};

/// A file of any kind. Two readings give one answer.
pub(crate) fn inspector(input: &[u8]) {
    let report = match inspector::inspect(input) {
        Ok(report) => report,
        Err(error) => return drop((error.to_string(), error.help())),
    };
    let again = inspector::inspect(input).expect("what was read before");
    assert_eq!(format!("{report:?}"), format!("{again:?}"));
    let _ = inspector::redirected(input);
    let _ = hosts::examine_archive(input, Some(input));
    let _ = inspector::verify::executable(input, Some(input));
    let _ = inspector::verify::merged(input, Some(input));
    let _ = inspector::verify::needed(input, Some(input));
}

/// A tar: the blocks of its entries, one behind the other, are the tar itself.
pub(crate) fn tar(input: &[u8]) {
    let mut copy = Vec::new();
    let (mut rest, mut at) = (input, 0);
    while let Ok(next) = images::tar::next(&mut rest, &mut at) {
        match next {
            Next::Entry(entry) => {
                copy.extend_from_slice(&entry.extensions);
                copy.extend_from_slice(&entry.header);
                let padded = usize::try_from(entry.size).ok().and_then(|size| size.checked_next_multiple_of(BLOCK));
                let Some((content, after)) = padded.and_then(|padded| rest.split_at_checked(padded)) else { break };
                copy.extend_from_slice(content);
                (rest, at) = (after, at + content.len() as u64);
            }
            Next::End(blocks) => {
                copy.extend_from_slice(&blocks);
                break;
            }
        }
        assert_eq!(at as usize, copy.len());
    }
    assert!(input.starts_with(&copy), "the copy differs");
    image(input);
}

/// A file with an image, a root file system or a package in it.
pub(crate) fn image(input: &[u8]) {
    let mut file = tempfile::tempfile().expect("a temporary file");
    file.write_all(input).and_then(|()| file.seek(SeekFrom::Start(0))).expect("a temporary file");
    match images::open(&path_of(&file)) {
        Ok(Some(source)) => trees(&source),
        Ok(None) => {}
        Err(error) => drop((error.to_string(), error.help())),
    }
}

/// The path by which this process can open a file without a name.
fn path_of(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// The trees of all images: sorted, each path below a folder, what was kept is there.
pub(crate) fn trees(source: &Source) {
    for image in &source.images {
        let tree = match source.tree(image, &|_, _, start| start.starts_with(b"\x7fELF")) {
            Ok(tree) => tree,
            Err(error) => {
                let _ = (error.to_string(), error.help());
                continue;
            }
        };
        let mut before: Option<Vec<u8>> = None;
        for (path, node) in tree.nodes() {
            assert!(before.is_none_or(|before| before < path), "sorted");
            let parts: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
            assert!(!parts.iter().any(|part| matches!(*part, b"" | b"." | b"..")), "a name leads out");
            if let Some(end) = path.iter().rposition(|byte| *byte == b'/') {
                let folder = tree.get(&path[..end]).expect("the folder of a path");
                assert!(folder.kind == Kind::Folder, "a path is below a file");
            }
            assert_eq!(tree.get(&path).as_ref(), Some(&node));
            match &node.kind {
                Kind::File { size, kept: true, .. } => {
                    assert_eq!(tree.read(&path).expect("it was kept").len() as u64, *size);
                }
                Kind::Symlink(_) => {
                    if let Some(end) = tree.resolve(&path) {
                        assert!(end.is_empty() || tree.get(&end).is_some(), "a link leads to nothing");
                    }
                }
                _ => {}
            }
            before = Some(path);
        }
    }
}
