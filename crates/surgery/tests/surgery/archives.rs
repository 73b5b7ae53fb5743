//! Edits of archives: untouched members keep their bytes, and the index stays true.

use fixtures::objects;
use std::collections::BTreeSet;
use std::path::PathBuf;

use proptest::prelude::*;
use surgery::archive::{Archive, ArchiveError, Insert};

use crate::samples;

#[test]
fn doing_nothing_changes_no_byte() {
    check_doing_nothing_changes_no_byte(samples::real_archives());
}

#[test]
#[ignore = "zig-musls: takes zig's musl for three architectures"]
fn doing_nothing_changes_no_byte_in_zigs() {
    check_doing_nothing_changes_no_byte(samples::zig_archives());
}

fn check_doing_nothing_changes_no_byte(archives: Vec<(String, PathBuf)>) {
    for (what, path) in archives {
        let bytes = samples::bytes(&path);
        let archive = Archive::parse(&bytes).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(archive.indexed().next().is_some() && !archive.members().is_empty(), "{what}");
        assert!(archive.edit(&BTreeSet::new(), None) == bytes, "{what}");
    }
}

#[test]
fn an_archive_without_members_or_index_stays_as_it_is() {
    for bytes in [b"!<arch>\n".to_vec(), samples::archive(&[("a.o", objects::object("a"))], false)] {
        let archive = Archive::parse(&bytes).expect("an archive");
        assert_eq!(archive.edit(&BTreeSet::new(), None), bytes);
        assert!(archive.indexed().next().is_none());
    }
}

#[test]
fn members_of_one_name_are_told_apart_by_ordinal() {
    let bytes = samples::archive(
        &[("x.o", objects::object("a")), ("a/long/path/of/x.o", objects::object("b")), ("x.o", objects::object("c"))],
        true,
    );
    let archive = Archive::parse(&bytes).expect("an archive");
    let names: Vec<_> = archive.members().iter().map(|member| member.display_name()).collect();
    assert_eq!(names, ["x.o", "a/long/path/of/x.o", "x.o"]);
    let edited = archive.edit(&BTreeSet::from([3]), None);
    let edited = Archive::parse(&edited).expect("an archive");
    assert_eq!(edited.indexed().collect::<Vec<_>>(), [(1, &b"a"[..]), (2, &b"b"[..])]);
    assert_eq!(edited.members()[0].data, archive.members()[0].data);
}

#[test]
fn a_wide_index_stays_wide() {
    let object = objects::object("one");
    let mut content = 1_u64.to_be_bytes().to_vec();
    content.extend_from_slice(&(8 + 60 + 24_u64).to_be_bytes());
    content.extend_from_slice(b"one\0\0\0\0\0");
    let mut bytes = b"!<arch>\n".to_vec();
    bytes.extend(samples::member("/SYM64/", &content));
    bytes.extend(samples::member("one.o/", &object));
    let archive = Archive::parse(&bytes).expect("an archive");
    assert_eq!(archive.edit(&BTreeSet::new(), None), bytes);
    let insert = Insert::new(1, "two.o", &object, vec![b"two"]).expect("a member");
    let edited = archive.edit(&BTreeSet::new(), Some(&insert));
    assert_eq!(&edited[8..16], b"/SYM64/ ");
    let edited = Archive::parse(&edited).expect("an archive");
    assert_eq!(edited.indexed().collect::<Vec<_>>(), [(1, &b"two"[..]), (2, &b"one"[..])]);
}

#[test]
fn other_forms_are_named() {
    let thin = Archive::parse(b"!<thin>\n//  ").expect_err("thin");
    assert_eq!(thin, ArchiveError::Thin);
    for field in ["#1/20", "__.SYMDEF SORTED"] {
        let mut bytes = b"!<arch>\n".to_vec();
        bytes.extend(samples::member(field, &[0; 24]));
        let error = Archive::parse(&bytes).expect_err("BSD's form");
        assert!(matches!(error, ArchiveError::Bsd { offset: 8, .. }), "{error}");
    }
    let error = Archive::parse(b"hello, world").expect_err("text").to_string();
    assert_eq!(error, "not a static archive: it starts with \"hello, w\", expected \"!<arch>\\n\"");
}

#[test]
fn messages_name_member_offset_found_and_expected() {
    let stock = samples::archive(&[("one.o", objects::object("one")), ("two.o", objects::object("two"))], true);
    let second = Archive::parse(&stock).expect("an archive").members()[1].offset;
    let broken = |at: usize, with: &[u8]| {
        let mut bytes = stock.clone();
        bytes[at..at + with.len()].copy_from_slice(with);
        Archive::parse(&bytes).expect_err("damage").to_string()
    };
    let place = format!("member 2 `two.o`, offset {second:#x}");
    assert_eq!(broken(second + 58, b"xx"), format!("{place}: the header ends with \"xx\", expected \"`\\n\""));
    assert_eq!(
        broken(second + 48, b"-1        "),
        format!("{place}: the size is \"-1        \", expected a decimal number")
    );
    let left = stock.len() - second - 60;
    assert_eq!(
        broken(second + 48, b"9999999999"),
        format!("{place}: the content is cut off: found {left} bytes, expected 9999999999")
    );
    assert_eq!(
        broken(second, b"/7              "),
        format!("member 2, offset {second:#x}: the name is at 7 of the name table, which has 0 bytes")
    );
    assert_eq!(
        broken(8 + 60 + 4, &[0, 0, 0, 9]),
        "the symbol index, offset 0x8: the symbol index has `one` at offset 0x9, where no member starts"
    );
    assert_eq!(
        broken(8 + 60, &[0xff; 4]),
        "the symbol index, offset 0x8: the symbol index has 20 bytes, expected at least 17179869184 for 4294967295 symbols"
    );
}

#[test]
fn a_member_that_needs_the_name_table_cannot_be_put_in() {
    for name in ["", "sixteen.letters.", "a/b.o", "a b.o", "ä.o"] {
        assert!(matches!(Insert::new(1, name, b"", Vec::new()), Err(ArchiveError::Name { .. })), "{name}");
    }
}

/// Names short and long, doubled, and paths; contents of odd and even size; symbols in no order.
fn members() -> impl Strategy<Value = Vec<(String, Vec<u8>)>> {
    let name = prop_oneof!["[a-c]{1,3}\\.o", "[a-z]{16,40}\\.lo", "/[a-z]{3}/[a-z]{9}/[a-c]\\.o"];
    let content = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..40),
        "([a-f]{1,2} ){1,3}".prop_map(|words| objects::object(&words)),
    ];
    proptest::collection::vec((name, content), 0..12)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn an_edit_keeps_all_others(
        members in members(),
        index in any::<bool>(),
        removed in proptest::collection::btree_set(1_usize..14, 0..6),
        insert in proptest::option::of((1_usize..14, proptest::collection::vec(any::<u8>(), 0..9))),
    ) {
        let members: Vec<(&str, Vec<u8>)> = members.iter().map(|(name, data)| (name.as_str(), data.clone())).collect();
        let bytes = samples::archive(&members, index);
        let archive = Archive::parse(&bytes).expect("an archive");
        prop_assert_eq!(archive.edit(&BTreeSet::new(), None), bytes.clone());

        let new = insert.as_ref().map(|(before, data)| {
            (*before, data, Insert::new(*before, "new.o", data, vec![b"new_one", b"new_two"]).expect("a member"))
        });
        let edited_bytes = archive.edit(&removed, new.as_ref().map(|(_, _, insert)| insert));
        let edited = Archive::parse(&edited_bytes).expect("an archive");

        // The expectation: the raw bytes of every member's header and content, and the index's entries by content.
        let raw = |archive: &Archive<'_>, position: usize| {
            let member = archive.members()[position];
            archive.bytes()[member.offset..member.offset + 60 + member.data.len()].to_vec()
        };
        let mut want: Vec<Option<usize>> = Vec::new();
        let mut place = new.as_ref().map(|(before, _, _)| *before);
        for ordinal in 1..=members.len() {
            if place.take_if(|before| *before <= ordinal).is_some() {
                want.push(None);
            }
            if !removed.contains(&ordinal) {
                want.push(Some(ordinal));
            }
        }
        if place.is_some() {
            want.push(None);
        }
        prop_assert_eq!(edited.members().len(), want.len());
        for (position, ordinal) in want.iter().enumerate() {
            match ordinal {
                Some(ordinal) => prop_assert_eq!(raw(&edited, position), raw(&archive, ordinal - 1)),
                None => prop_assert_eq!(Some(edited.members()[position].data), insert.as_ref().map(|(_, data)| &data[..])),
            }
        }
        let mut entries: Vec<(usize, Vec<u8>)> = archive
            .indexed()
            .filter_map(|(ordinal, symbol)| {
                Some((want.iter().position(|kept| *kept == Some(ordinal))? + 1, symbol.to_vec()))
            })
            .collect();
        if let (true, Some(position)) = (index, want.iter().position(Option::is_none)) {
            entries.extend([(position + 1, b"new_one".to_vec()), (position + 1, b"new_two".to_vec())]);
            entries.sort_by_key(|(ordinal, _)| *ordinal);
        }
        let found: Vec<(usize, Vec<u8>)> = edited.indexed().map(|(ordinal, symbol)| (ordinal, symbol.to_vec())).collect();
        prop_assert_eq!(found, entries);
        prop_assert_eq!(edited.edit(&BTreeSet::new(), None), edited_bytes.clone());
    }
}
