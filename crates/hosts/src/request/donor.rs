//! A donor with its options filled in.

use donors::Donor;
use format::Arch;
use surgery::donor::DonorObject;

use crate::error::Error;

/// The architectures that a donor is for.
pub(crate) fn offered(donor: &Donor) -> String {
    donor.arches().map(Arch::name).collect::<Vec<_>>().join(", ")
}

/// The donor's object with options and note filled in. `allograft` is this program's version, for the note.
pub(crate) fn tuned(
    donor: &Donor,
    object: &[u8],
    settings: &[(String, i64)],
    allograft: &str,
) -> Result<Vec<u8>, Error> {
    let tuned = DonorObject::parse(object).and_then(|object| object.tuned(settings, allograft));
    tuned.map_err(|source| Error::Donor { donor: donor.name.to_owned(), source })
}
