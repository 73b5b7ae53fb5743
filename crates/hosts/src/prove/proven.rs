//! Bytes that may be placed. A type of its own, so that code that would place unverified bytes does not compile.

use inspector::verify::{Seal, Verified};

/// A graft that has passed every check that is possible. No other bytes are placed.
pub(crate) struct Proven(Verified);

/// The checksum of a proven graft whose bytes were dropped, by which the remade graft is recognised.
#[derive(Debug, Clone)]
pub(crate) struct ProvenDigest(Seal);

impl Proven {
    /// A graft that passed every check. Only `prove` calls it.
    pub(super) fn new(verified: Verified) -> Proven {
        Proven(verified)
    }

    /// The bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }

    /// Their SHA-256.
    pub(crate) fn sha256(&self) -> &str {
        self.0.sha256()
    }

    /// A file made from donors without a host: there is nothing to run.
    pub(crate) fn of_donors(verified: Verified) -> Proven {
        Proven(verified)
    }

    pub(crate) fn digest(&self) -> ProvenDigest {
        ProvenDigest(self.0.seal())
    }
}

impl ProvenDigest {
    /// The checksum.
    pub(crate) fn sha256(&self) -> &str {
        self.0.sha256()
    }

    /// Returns the remade graft; `None` if the bytes differ.
    pub(crate) fn confirm(&self, bytes: Vec<u8>) -> Option<Proven> {
        self.0.confirm(bytes).map(Proven)
    }
}
