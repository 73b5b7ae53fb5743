//! Files that are made without a host: one with a donor, and a folder of files for a build system.

use std::fs;
use std::path::Path;

use inspector::verify::Verified;

use crate::error::rollback::Purpose;
use crate::error::{Error, IoContext};
use crate::file::temporaries::TemporaryFolder;
use crate::prove::proven::Proven;
use crate::sink::{Sink, out};
use crate::transaction::pending::Pending;
use crate::transaction::staged::{Staged, StagedFolder};
use crate::watch::Watch;

/// Writes a verified file to `out`, in one step: a reader sees the old file or the whole new one. The result is
/// pending; `watch` is called for locks that are waited for.
///
/// # Errors
/// `out` is a folder or a special file, or its folder is missing or cannot be written to.
pub fn write(out: &Path, file: Verified, watch: &Watch<'_>) -> Result<Pending<()>, Error> {
    let out = out::file(out, None)?;
    let file = Proven::of_donors(file);
    Sink::open(Purpose::Write, [out.as_path()], watch)?.write((), |(), transaction| {
        let (new, _) = Staged::proven(&out, &file, None)?;
        transaction.write(new, &out)
    })
}

/// Writes files to the folder `out`, which must be missing or empty, in one step. The result is pending; `watch` is
/// called for locks that are waited for.
///
/// # Errors
/// `out` is neither missing nor an empty folder, or its folder is missing or cannot be written to.
pub fn write_folder(out: &Path, files: &[(&str, &[u8])], watch: &Watch<'_>) -> Result<Pending<()>, Error> {
    let out = out::folder(out, None)?;
    Sink::open(Purpose::Write, [out.as_path()], watch)?.write((), |(), transaction| {
        let building = TemporaryFolder::create(&out)?;
        for (name, bytes) in files {
            fs::write(building.path().join(name), bytes).context(&out.join(name), "write")?;
        }
        let staged = StagedFolder::container(building, |written| {
            files.iter().try_for_each(|(name, bytes)| match fs::read(written.join(name)).context(&out, "read")? {
                read if read == *bytes => Ok(()),
                _ => Err(Error::ChangedMeanwhile { path: out.join(name) }),
            })
        })?;
        transaction.write_folder(staged, &out)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    use format::Arch;
    use surgery::donor::DonorObject;

    /// The object of a donor, and its bytes.
    fn object(index: usize) -> (Verified, &'static [u8]) {
        let bytes = donors::all()[index].object(Arch::X86_64).unwrap();
        let note = DonorObject::parse(bytes).unwrap().note().encode().unwrap();
        let note = String::from_utf8(note.split(|byte| *byte == 0).next().unwrap().to_vec()).unwrap();
        (Verified::donors(bytes.to_vec(), [Some(note.as_str()), None]).unwrap(), bytes)
    }

    fn written(out: &Path, index: usize) -> Result<&'static [u8], Error> {
        let (verified, bytes) = object(index);
        write(out, verified, &Watch::default()).map(|pending| {
            pending.commit();
            bytes
        })
    }

    #[test]
    fn all_of_it_or_what_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("allograft.o");
        written(&out, 0).unwrap();
        let second = written(&out, 1).unwrap();
        assert!(fs::read(&out).unwrap() == second);
        let link = folder.path().join("link.o");
        std::os::unix::fs::symlink("allograft.o", &link).unwrap();
        let third = written(&link, 2).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert!(fs::read(&out).unwrap() == third);
        for wrong in [folder.path(), &folder.path().join("no/such/folder.o"), Path::new("/dev/null")] {
            assert!(matches!(written(wrong, 0), Err(Error::Out { .. })), "{}", wrong.display());
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "nothing else is left");
    }

    #[test]
    fn a_folder_is_whole_or_not_there() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("cmake");
        let files: [(&str, &[u8]); 2] = [("one", b"1"), ("two", b"2")];
        write_folder(&out, &files, &Watch::default()).unwrap().commit();
        assert!(fs::read(out.join("one")).unwrap() == b"1" && fs::read(out.join("two")).unwrap() == b"2");
        // Existing files are never mixed with new ones.
        let again = write_folder(&out, &files, &Watch::default());
        assert!(matches!(again, Err(Error::Out { .. })), "{}", again.is_ok());
        let pending = write_folder(&folder.path().join("other"), &files, &Watch::default()).unwrap();
        pending.roll_back().unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left");
    }

    /// A note says what its writer meant: a file that defines or sets something else is not that donor.
    #[test]
    fn a_file_is_asked_itself_and_not_its_note_alone() {
        let note = |file: &[u8]| {
            let text =
                |note: Vec<u8>| String::from_utf8(note.split(|byte| *byte == 0).next().unwrap().to_vec()).unwrap();
            transplant::notes(file).map(|note| note.map(text))
        };
        let verify = |file: &[u8], texts: &[Option<String>; 2]| {
            let texts = texts.each_ref().map(Option::as_deref);
            Verified::donors(file.to_vec(), texts).err().map(|unsound| unsound.to_string())
        };
        let mut libraries = 0;
        for donor in donors::all().iter().chain([donors::strings()]) {
            for arch in Arch::ALL {
                libraries += usize::from(donor.library(arch).is_some());
                for file in [donor.object(arch), donor.library(arch)].into_iter().flatten() {
                    let (name, texts) = (format!("{} for {arch}", donor.name), note(file));
                    assert_eq!(verify(file, &texts), None, "{name}");
                    let wanted: &[u8] = if texts[0].is_some() { b"calloc\0" } else { b"strlen\0" };
                    let mut renamed = file.to_vec();
                    while let Some(at) = renamed.windows(wanted.len()).position(|part| part == wanted) {
                        renamed[at] = b'x';
                    }
                    let said = verify(&renamed, &texts).unwrap_or_default();
                    assert!(said.contains("exports"), "{name}: {said}");
                    let Some(options) = file.windows(4).position(|part| part == b"ARGO") else { continue };
                    let mut set = file.to_vec();
                    // The flags of the first option (docs/options-block.md): it is set.
                    set[options + 16 + 56] ^= 1;
                    let said = verify(&set, &texts).unwrap_or_default();
                    assert!(said.contains("options"), "{name}: {said}");
                }
            }
        }
        assert!(libraries > 0);
    }
}
