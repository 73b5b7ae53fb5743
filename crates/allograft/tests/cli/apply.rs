//! `graft` in place: what changes, and what does not.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use crate::lab::{Lab, assert_same, debian, long_ago, zig};

#[test]
fn in_place_with_backup_and_record() {
    let lab = Lab::new();
    let libc = lab.libc("libc.a");
    let ran = lab.run(["graft", "libc.a", "--json"]).exits(0);
    assert_eq!(ran.err, "");
    let document = ran.json();
    let host = &document["hosts"][0];
    assert_eq!(host["path"], "libc.a");
    assert_eq!(host["action"], "grafted");
    assert_eq!(host["arch"], "x86_64");
    assert_eq!(host["donor"]["name"], "snmalloc");
    assert_eq!(host["fork_hook"], true);
    assert_eq!(host["backup"], "libc.a.allograft-stock");
    assert_eq!(document["skipped"].as_array().unwrap().len(), 0);
    let defined: Vec<&str> = host["removed"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|member| member["defines"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()))
        .collect();
    for name in ["malloc", "free", "realloc", "__libc_malloc", "__libc_free", "__malloc_atfork"] {
        assert!(defined.contains(&name), "{name} in {defined:?}");
    }
    assert_eq!(lab.names(), ["libc.a", "libc.a.allograft-stock", "libc.a.allograft.json"]);
    assert_ne!(fs::read(&libc).unwrap(), debian());
    let backup = lab.path("libc.a.allograft-stock");
    assert!(fs::read(&backup).unwrap() == debian());
    assert_eq!(fs::metadata(backup).unwrap().modified().unwrap(), long_ago());
    // Build systems have to see a new time of modification.
    assert_ne!(fs::metadata(&libc).unwrap().modified().unwrap(), long_ago());
    let record: serde_json::Value =
        serde_json::from_slice(&fs::read(lab.path("libc.a.allograft.json")).unwrap()).unwrap();
    assert_eq!(record["schema_version"], 1);
    assert_eq!(record["stock_sha256"], host["stock_sha256"]);
    assert_eq!(record["graft_sha256"], host["graft_sha256"]);
    assert_eq!(record["donor"], "snmalloc");
}

#[test]
fn says_what_it_did_and_what_comes_next() {
    let lab = Lab::new();
    lab.libc("a folder/libc.a");
    let ran = lab.run(["graft", "a folder/libc.a", "-v"]).exits(0);
    for part in [
        "grafted  a folder/libc.a  x86_64  snmalloc ",
        "backup: ",
        "allograft undo 'a folder/libc.a'",
        "__malloc_atfork",
    ] {
        assert!(ran.out.contains(part), "{part} in {}", ran.out);
    }
    assert!(!ran.out.contains('\x1b'), "colours where there is no terminal");
    let ran = lab.run(["undo", "a folder/libc.a", "-q"]).exits(0);
    assert_eq!((ran.out.as_str(), ran.err.as_str()), ("", ""));
}

#[test]
fn a_dry_run_touches_nothing() {
    let lab = Lab::new();
    lab.libc("libc.a");
    let ran = lab.changes_nothing(0, ["graft", "libc.a", "--dry-run", "--json"]);
    let planned = ran.json();
    assert_eq!(planned["hosts"][0]["action"], "planned");
    assert_eq!(planned["hosts"][0]["plan"], "graft");
    let real = lab.run(["graft", "libc.a", "--json"]).exits(0).json();
    assert_eq!(planned["hosts"][0]["graft_sha256"], real["hosts"][0]["graft_sha256"]);
    assert_eq!(planned["hosts"][0]["removed"], real["hosts"][0]["removed"]);
    let ran = lab.changes_nothing(0, ["graft", "libc.a", "--dry-run", "--donor", "mimalloc3"]);
    assert!(ran.out.contains("would replace"), "{}", ran.out);
}

#[test]
fn the_same_bytes_every_time_and_nothing_the_second_time() {
    let lab = Lab::new();
    let (one, two) = (lab.libc("one/libc.a"), lab.libc("two/elsewhere.a"));
    lab.run(["graft", "one/libc.a"]).exits(0);
    lab.run(["graft", "two/elsewhere.a"]).exits(0);
    assert!(fs::read(&one).unwrap() == fs::read(&two).unwrap());
    let ran = lab.changes_nothing(0, ["graft", "one/libc.a", "--json"]);
    assert_eq!(ran.json()["hosts"][0]["action"], "unchanged");
    assert_eq!(ran.json()["hosts"][0]["backup"], "one/libc.a.allograft-stock");
    assert!(lab.changes_nothing(0, ["graft", "one/libc.a"]).out.contains("unchanged"));
}

#[test]
fn replacing_the_donor_keeps_the_first_backup() {
    let lab = Lab::new();
    let (libc, fresh) = (lab.libc("libc.a"), lab.libc("fresh/libc.a"));
    lab.run(["graft", "libc.a"]).exits(0);
    let ran = lab.run(["graft", "libc.a", "--donor", "mimalloc3", "--json"]).exits(0);
    assert_eq!(ran.json()["hosts"][0]["action"], "replaced");
    assert!(fs::read(lab.path("libc.a.allograft-stock")).unwrap() == debian());
    lab.run(["graft", "fresh/libc.a", "--donor", "mimalloc3"]).exits(0);
    assert!(fs::read(&libc).unwrap() == fs::read(&fresh).unwrap(), "the old donor left traces");
    lab.run(["undo", "libc.a"]).exits(0);
    assert!(fs::read(&libc).unwrap() == debian());
}

#[test]
fn options_are_baked_in_and_checked() {
    let lab = Lab::new();
    lab.libc("libc.a");
    lab.changes_nothing(2, ["graft", "libc.a", "--set", "no_such_option=1"]).says(&["no_such_option", "help:"]);
    lab.changes_nothing(2, ["graft", "libc.a", "--set", "purge_delay=soon"]).says(&["soon"]);
    lab.changes_nothing(2, ["graft", "libc.a", "--donor", "nomalloc"]).says(&["nomalloc", "mimalloc3"]);
    let listed = lab.run(["donors", "--json"]).exits(0).json();
    let option = &listed["donors"][0]["options"][0];
    let (name, max) = (option["name"].as_str().unwrap(), option["max"].as_i64().unwrap());
    let donor = listed["donors"][0]["name"].as_str().unwrap();
    let set = format!("{name}={max}");
    let ran = lab.run(["graft", "libc.a", "--donor", donor, "--set", &set, "--json"]).exits(0);
    assert_eq!(ran.json()["hosts"][0]["donor"]["options"], set);
    let ran = lab.run(["graft", "libc.a", "--donor", donor, "--json"]).exits(0);
    assert_eq!(ran.json()["hosts"][0]["action"], "replaced");
    assert_eq!(ran.json()["hosts"][0]["donor"]["options"], "");
    if let Some(beyond) = max.checked_add(1) {
        lab.changes_nothing(2, ["graft", "libc.a", "--donor", donor, "--set", &format!("{name}={beyond}")]);
    }
}

#[test]
#[ignore = "zig-musls: takes zig's musl for three architectures"]
fn zigs_archives_of_every_architecture() {
    for arch in fixtures::ZIG {
        let lab = Lab::new();
        let libc = lab.put("libc.a", &zig(arch));
        let ran = lab.run(["graft", "libc.a", "--json"]).exits(0);
        assert_eq!(ran.json()["hosts"][0]["arch"], arch.name());
        lab.run(["undo", "libc.a"]).exits(0);
        assert!(fs::read(&libc).unwrap() == zig(arch));
    }
}

#[test]
fn debians_archives_of_every_architecture() {
    for arch in fixtures::DEBIAN {
        let lab = Lab::new();
        let stock = fs::read(fixtures::debian_musl(arch).libc).unwrap();
        let libc = lab.put("libc.a", &stock);
        let is_built = |donor: &&str| donors::find(donor).is_some_and(|donor| donor.is_built_for(arch));
        for donor in ["mimalloc", "mimalloc3"].into_iter().filter(is_built) {
            let ran = lab.run(["graft", "libc.a", "--donor", donor, "--set", "purge_delay=7", "--json"]).exits(0);
            let document = ran.json();
            let host = &document["hosts"][0];
            assert_eq!((&host["arch"], &host["donor"]["options"]), (&arch.name().into(), &"purge_delay=7".into()));
            let action = if donors::strings().supports(arch) { "grafted" } else { "refused" };
            assert_eq!(host["strings"]["action"], action, "{}", arch.name());
            let verified = lab.run(["verify", "libc.a", "--static-only", "--json"]).exits(0).json();
            assert_eq!(verified["ok"], true, "{verified}");
            let file = &lab.run(["inspect", "libc.a", "--json"]).exits(0).json()["files"][0];
            assert_eq!((&file["arch"], &file["malloc"]["name"]), (&arch.name().into(), &donor.into()));
        }
        lab.run(["undo", "libc.a"]).exits(0);
        assert!(fs::read(&libc).unwrap() == stock);
    }
}

#[test]
fn modes_survive_an_odd_umask() {
    for mode in [0o644, 0o600, 0o444, 0o2664] {
        let lab = Lab::new();
        let libc = lab.libc("libc.a");
        fs::set_permissions(&libc, fs::Permissions::from_mode(mode)).unwrap();
        let mode_of = || fs::metadata(&libc).unwrap().mode() & 0o7777;
        lab.run_after("umask 077", &["graft", "libc.a"]).exits(0);
        assert_eq!(mode_of(), mode);
        lab.run_after("umask 0", &["graft", "libc.a", "--donor", "mimalloc3"]).exits(0);
        assert_eq!(mode_of(), mode);
        lab.run_after("umask 077", &["undo", "libc.a"]).exits(0);
        assert_eq!(mode_of(), mode);
    }
}

#[test]
fn a_symbolic_link_stays_and_its_file_is_grafted() {
    let lab = Lab::new();
    let real = lab.libc("real/libc-1.2.a");
    fs::create_dir(lab.path("lib")).unwrap();
    symlink("../real/libc-1.2.a", lab.path("lib/libc.a")).unwrap();
    lab.run(["graft", "lib/libc.a"]).exits(0);
    assert_eq!(fs::read_link(lab.path("lib/libc.a")).unwrap().to_str(), Some("../real/libc-1.2.a"));
    assert_ne!(fs::read(&real).unwrap(), debian());
    assert!(lab.path("real/libc-1.2.a.allograft-stock").exists());
    lab.run(["undo", "lib/libc.a"]).exits(0);
    assert_eq!(lab.names(), ["lib", "lib/libc.a", "real", "real/libc-1.2.a"]);
    assert!(fs::read(&real).unwrap() == debian());
}

#[test]
fn other_hard_links_keep_the_stock_file() {
    let lab = Lab::new();
    let libc = lab.libc("libc.a");
    fs::hard_link(&libc, lab.path("store.a")).unwrap();
    let before = lab.snapshot();
    let ran = lab.run(["graft", "libc.a"]).exits(0).says(&["hard link"]);
    assert!(ran.out.contains("grafted"));
    assert!(fs::read(lab.path("store.a")).unwrap() == debian());
    lab.run(["undo", "libc.a"]).exits(0);
    let folder = |mut snapshot: std::collections::BTreeMap<_, _>| {
        snapshot.remove(std::path::Path::new(""));
        snapshot
    };
    // The hard link is back, too: the inode is the same.
    assert_same(&folder(before), &folder(lab.snapshot()));
}

#[test]
fn spaces_and_bytes_that_are_no_text_in_the_path() {
    let lab = Lab::new();
    let name = std::ffi::OsStr::from_bytes(b"a \xff\xfe 'b'/lib c\xff.a");
    let libc = lab.libc(name);
    let arguments = |command: &str| vec![command.into(), name.to_owned(), "--json".into()];
    let ran = lab.run(arguments("graft")).exits(0);
    assert_eq!(ran.json()["hosts"][0]["action"], "grafted");
    assert_ne!(fs::read(&libc).unwrap(), debian());
    lab.run(arguments("undo")).exits(0);
    assert!(fs::read(&libc).unwrap() == debian());
    assert_eq!(lab.names().len(), 2);
}

#[test]
fn a_target_by_content_never_by_name() {
    let lab = Lab::new();
    lab.libc("readme.txt");
    lab.run(["graft", "readme.txt"]).exits(0);
    lab.put("libc.a", b"not an archive\n");
    lab.changes_nothing(2, ["graft", "libc.a"]);
}

#[test]
fn a_profile_is_options_that_set_overrides() {
    let lab = Lab::new();
    lab.libc("libc.a");
    let options = |arguments: &[&str]| {
        let ran = lab.run(["graft", "libc.a", "--json"].iter().chain(arguments)).exits(0);
        ran.json()["hosts"][0]["donor"]["options"].as_str().unwrap().to_owned()
    };
    let small = ["--donor", "mimalloc", "--profile", "small"];
    assert_eq!(options(&small), "purge_delay=0 allow_thp=0");
    assert_eq!(options(&[["--set", "purge_delay=5"].as_slice(), &small].concat()), "purge_delay=5 allow_thp=0");
    // Without a donor, the profile is that of the one that is taken.
    let options_of_default = options(&["--profile", "small", "--set", "purge_debt=1024"]);
    assert!(
        options_of_default.contains("purge_debt=1024") && options_of_default.contains("purge_credit=0"),
        "{options_of_default}"
    );
    assert_eq!(options(&["--profile", "default"]), "");
    assert_eq!(options(&["--donor", "mimalloc-secure", "--profile", "secure"]), "");
}

#[test]
fn a_donor_without_a_profile_names_those_that_have_it() {
    let lab = Lab::new();
    lab.libc("libc.a");
    lab.changes_nothing(2, ["graft", "libc.a", "--profile", "secure"])
        .says(&["donor `snmalloc` has no profile `secure`", "mimalloc-secure"]);
    lab.changes_nothing(2, ["graft", "libc.a", "--donor", "none", "--profile", "small"]).says(&["small", "none"]);
    lab.changes_nothing(2, ["graft", "libc.a", "--profile", "quick"]).says(&["quick", "default, small, fast, secure"]);
}
