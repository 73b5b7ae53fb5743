//! Tests: a graft reads each file once, and parses each once, whatever kind of host it is.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use fixtures::program::Build;
use format::Arch;

use crate::file::host_file::READ;
use crate::graft::graft;
use crate::request::Request;
use crate::trials::samples;

const SOURCE: &str =
    "#include <stdlib.h>\nint main(int count, char **words) { free(realloc(malloc(count), 100)); return !words; }\n";

/// The number of elements for which `is_it` holds.
fn times<T>(list: &[T], is_it: impl Fn(&T) -> bool) -> usize {
    list.iter().filter(|one| is_it(one)).count()
}

/// The hosts: an archive, a program of each kind, and a loader.
pub(crate) fn hosts(folder: &Path) -> Vec<PathBuf> {
    let anywhere = Build { position_independent: true, ..Build::PLAIN };
    let path = |name: &str| folder.join(name);
    fs::write(path("libc.a"), samples::libc()).unwrap();
    fs::copy(fixtures::musl_loader(Arch::X86_64), path("ld-musl-x86_64.so.1")).unwrap();
    fs::write(path("main.c"), SOURCE).unwrap();
    let linked = fixtures::cc().arg("-o").args([path("dynamic"), path("main.c")]).status().unwrap();
    assert!(linked.success());
    vec![
        path("libc.a"),
        path("ld-musl-x86_64.so.1"),
        path("dynamic"),
        Build::PLAIN.program(folder, "static", SOURCE),
        anywhere.program(folder, "anywhere", SOURCE),
    ]
}

#[test]
fn a_graft_reads_and_parses_each_file_once() {
    let folder = tempfile::tempdir().unwrap();
    for host in hosts(folder.path()) {
        // An old time, since a file that was written a moment ago is read again: its time could not show a further
        // write.
        File::options().write(true).open(&host).unwrap().set_modified(fixtures::lab::long_ago()).unwrap();
        let stock = fs::metadata(&host).unwrap().len() as usize;
        let elsewhere = host.with_extension("out");
        for out in [Some(elsewhere), None] {
            READ.take();
            transplant::count::parsed();
            let request = Request { out: out.clone(), ..Request::new(donors::default_for(Arch::X86_64)) };
            let grafts = graft(&host, &request).unwrap();
            let (read, parsed) = (READ.take(), transplant::count::parsed());
            let way = format!("{} to {out:?}: {read:?}, {parsed:?}", host.display());
            assert_eq!(times(&read, |(path, _)| *path == host), 1, "{way}");
            let made = fs::metadata(&grafts.hosts[0].path).unwrap().len() as usize;
            let is_archive = host.extension().is_some_and(|extension| extension == "a");
            for size in [stock, made] {
                assert_eq!(times(&parsed, |other| *other == size), usize::from(!is_archive), "{way}");
            }
        }
    }
}
