//! A donor's file with its options baked in, and its note.

use donors::Donor;
use format::{Arch, Note};
use inspector::verify::Verified;
use surgery::donor::{DonorError, DonorObject, note_text};

use crate::failure::{Failure, REPORT};

fn unfit(donor: &Donor) -> impl Fn(DonorError) -> Failure {
    let donor = donor.name.to_owned();
    move |source| hosts::Error::Donor { donor: donor.clone(), source }.into()
}

/// # Errors
/// When the donor supports `arch`, and this build was made without that architecture.
fn check_built(donor: &Donor, arch: Arch) -> Result<(), Failure> {
    if donor.supports(arch) && !donor.is_built_for(arch) {
        let why = format!("this build of allograft was made without donor `{}` for {arch}", donor.name);
        return Err(Failure::refused(why).with_help(hosts::NOT_BUILT));
    }
    Ok(())
}

/// Returns the relocatable object and its note.
///
/// # Errors
/// The donor has no object for `arch`, or does not have these options.
pub(crate) fn object(donor: &Donor, arch: Arch, settings: &[(String, i64)]) -> Result<(Vec<u8>, Note), Failure> {
    check_built(donor, arch)?;
    let object = donor.object(arch).ok_or_else(|| {
        let offered: Vec<&str> = donor.arches().map(|arch| arch.name()).collect();
        Failure::refused(format!("donor `{}` exists for {} only, not for {arch}", donor.name, offered.join(", ")))
            .with_help("`allograft donors` lists what there is for each architecture")
    })?;
    let unfit = unfit(donor);
    let tuned = DonorObject::parse(object).and_then(|object| object.tuned(settings, hosts::VERSION)).map_err(&unfit)?;
    let note = DonorObject::parse(&tuned).map_err(&unfit)?.note();
    Ok((tuned, note))
}

/// Returns the object for Windows and its note.
///
/// # Errors
/// As [`object`].
pub(crate) fn windows(donor: &Donor, arch: Arch, settings: &[(String, i64)]) -> Result<(Vec<u8>, Note), Failure> {
    check_built(donor, arch)?;
    let object = donor.windows(arch).ok_or_else(|| {
        let having = donors::all().iter().filter(|donor| donor.has_windows(arch)).map(|donor| donor.name);
        Failure::refused(format!("donor `{}` is not built for Windows", donor.name))
            .with_help(format!("take one of {}", having.collect::<Vec<_>>().join(", ")))
    })?;
    let unfit = unfit(donor);
    let tuned =
        DonorObject::parse_windows(object).and_then(|object| object.tuned(settings, hosts::VERSION)).map_err(&unfit)?;
    let note = DonorObject::parse_windows(&tuned).map_err(&unfit)?.note();
    Ok((tuned, note))
}

/// Returns the shared object and its note.
///
/// # Errors
/// As [`object`].
pub(crate) fn library(donor: &Donor, arch: Arch, settings: &[(String, i64)]) -> Result<(Vec<u8>, Note), Failure> {
    check_built(donor, arch)?;
    let library = donor.library(arch).ok_or_else(|| {
        let all = donors::all().iter().filter(|donor| donor.has_library(arch));
        let having: Vec<&str> = all.map(|donor| donor.name).collect();
        Failure::refused(format!(
            "donor `{}` cannot be preloaded on {arch}: it is built and tested for static programs only",
            donor.name
        ))
        .with_help(format!(
            "take one of {}; or link the program statically, with `allograft graft` or `--as object`",
            having.join(", ")
        ))
    })?;
    let unfit = unfit(donor);
    let tuned = DonorObject::parse_library(library)
        .and_then(|library| library.tuned(settings, hosts::VERSION))
        .map_err(&unfit)?;
    let note = DonorObject::parse_library(&tuned).map_err(&unfit)?.note();
    Ok((tuned, note))
}

/// Reads a file of donors again: it must be what the notes say, of an allocator and of string functions.
///
/// # Errors
/// It is not.
pub(crate) fn verified(bytes: Vec<u8>, notes: [Option<&Note>; 2]) -> Result<Verified, Failure> {
    let texts = notes.map(|note| note.and_then(|note| note_text(note).ok()));
    Verified::donors(bytes, texts.each_ref().map(Option::as_deref)).map_err(|unsound| {
        Failure::refused(format!("what was made does not pass its verification: {unsound}")).with_help(REPORT)
    })
}
