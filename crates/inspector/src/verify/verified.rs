//! Bytes that have been read again and verified. Only this module makes them, so code that accepts nothing else cannot
//! write bytes that have not been verified.

use super::check::{Check, parse};
use super::digest::sha256;
use super::{compare, donor_image, edits, emitted, executable, filled_in, merged, needed};
use crate::entry_points::EntryPoints;
use crate::error::InspectError;

/// The bytes of a file that passed every check.
pub struct Verified {
    bytes: Vec<u8>,
    sha256: String,
}

/// A fingerprint of verified bytes that outlives them: enough to recognise them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seal {
    sha256: String,
}

/// The reason why bytes are not verified.
#[derive(Debug, thiserror::Error)]
pub enum Unsound {
    /// They cannot be read.
    #[error(transparent)]
    Unreadable(#[from] InspectError),
    /// These checks failed; there is at least one.
    #[error("{}", failed(.0))]
    Failed(Vec<Check>),
}

fn failed(checks: &[Check]) -> String {
    checks.iter().map(|check| format!("`{}`: {}", check.name, check.detail)).collect::<Vec<_>>().join("; ")
}

impl Verified {
    /// Verifies a grafted archive; with the stock archive that it was made from, completely.
    ///
    /// # Errors
    /// The checks that failed.
    pub fn archive(graft: Vec<u8>, stock: Option<&[u8]>) -> Result<Verified, Unsound> {
        let checks = compare(&graft, stock)?;
        Verified::unless_failed(graft, checks)
    }

    /// Verifies an executable that was grafted after linking. `stock` is the executable before the graft, and `donor`
    /// the linked donor. `notes` are the texts of the notes that it must carry, of an allocator and of string
    /// functions. Nothing is run.
    ///
    /// # Errors
    /// The checks that failed.
    pub fn executable(
        graft: Vec<u8>,
        stock: &[u8],
        donor: &[u8],
        notes: [Option<&str>; 2],
    ) -> Result<Verified, Unsound> {
        let (elf, stock, donor) = (parse(&graft)?, parse(stock)?, parse(donor)?);
        let mut checks = executable::checks(&elf, Some(&stock));
        checks.push(donor_image::check(&elf, &donor, Some(&stock)));
        if let Ok(entry_points) = EntryPoints::required(&elf) {
            checks.push(filled_in::check(&elf, &donor, entry_points.donor(), notes));
        }
        checks.push(edits::check(&elf, &donor, &stock));
        checks.push(executable::file(&elf, &stock));
        Verified::unless_failed(graft, checks)
    }

    /// Verifies a dynamic program that a donor was merged into. `stock` is the program before, and `donor` the donor's
    /// shared object as linked. `notes` are as in [`Verified::executable`]. Nothing is run.
    ///
    /// # Errors
    /// The checks that failed.
    pub fn merged(graft: Vec<u8>, stock: &[u8], donor: &[u8], notes: [Option<&str>; 2]) -> Result<Verified, Unsound> {
        let checks = merged::complete(&parse(&graft)?, &parse(stock)?, &parse(donor)?, notes);
        Verified::unless_failed(graft, checks)
    }

    /// Verifies a dynamic program that loads its donor. `stock` is the program before, `donor` the shared object, and
    /// `name` its name as the loader has to get it. Nothing is run.
    ///
    /// # Errors
    /// The checks that failed.
    pub fn needed(graft: Vec<u8>, stock: &[u8], name: &[u8], donor: &[u8]) -> Result<Verified, Unsound> {
        let checks = needed::complete(&parse(&graft)?, &parse(stock)?, name, donor);
        Verified::unless_failed(graft, checks)
    }

    /// Verifies a file that holds donors and no host: an object, an archive of one, or a shared object. `notes` are the
    /// texts of the notes that it must carry, of an allocator and of string functions. Its symbols and options must be
    /// those of the noted donors, too.
    ///
    /// # Errors
    /// The checks that failed.
    pub fn donors(file: Vec<u8>, notes: [Option<&str>; 2]) -> Result<Verified, Unsound> {
        let checks = emitted::checks(&file, notes)?;
        Verified::unless_failed(file, checks)
    }

    fn unless_failed(bytes: Vec<u8>, mut checks: Vec<Check>) -> Result<Verified, Unsound> {
        checks.retain(|check| !check.ok);
        if checks.is_empty() { Ok(Verified { sha256: sha256(&bytes), bytes }) } else { Err(Unsound::Failed(checks)) }
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns their SHA-256, in hexadecimal.
    pub fn sha256(&self) -> &str {
        &self.sha256
    }

    /// Returns a fingerprint of the bytes.
    pub fn seal(&self) -> Seal {
        Seal { sha256: self.sha256.clone() }
    }
}

impl Seal {
    /// Returns `bytes` as verified if they are the same as before; else `None`.
    pub fn confirm(&self, bytes: Vec<u8>) -> Option<Verified> {
        let sha256 = sha256(&bytes);
        (sha256 == self.sha256).then_some(Verified { bytes, sha256 })
    }

    /// Returns their SHA-256, in hexadecimal.
    pub fn sha256(&self) -> &str {
        &self.sha256
    }
}
