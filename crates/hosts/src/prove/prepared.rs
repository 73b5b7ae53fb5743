//! The steps of one host, from its bytes to a graft that is ready to be placed. Files, folders, bundles and images all
//! take them, so none can leave out a check.

use std::cell::Cell;
use std::path::{Path, PathBuf};

use inspector::verify::Verified;

use crate::digest::sha256;
use crate::error::Error;
use crate::file::host_file::HostFile;
use crate::file::signature::{Signature, signature_of};
use crate::host::archive::ArchiveHost;
use crate::host::executable::ExecutableHost;
use crate::host::planner::Planner;
use crate::host::{Carried, Host, Operation};
use crate::outcome::Action;
use crate::prove::proven::{Proven, ProvenDigest};
use crate::prove::{TestRun, prove};
use crate::record::backup::Backup;
use crate::record::{Record, sidecar};

/// Recognises a file by its bytes. Messages name it `path`.
pub(crate) fn read<'b>(path: &'b Path, bytes: &'b [u8]) -> Result<Box<dyn Host + 'b>, Error> {
    let path_of = || path.to_owned();
    match signature_of(bytes) {
        Signature::Archive => Ok(Box::new(ArchiveHost::read(path, bytes)?)),
        Signature::Executable => Ok(Box::new(ExecutableHost::read(path, bytes))),
        Signature::Unsupported { kind, reason, help } => {
            Err(Error::Unsupported { path: path_of(), kind, reason, help })
        }
        other => Err(Error::Unrecognised { path: path_of(), found: other.found().unwrap_or_default().to_owned() }),
    }
}

/// Recognises a file inside a container, by its bytes and its mode. Messages name it `path`.
pub(crate) fn read_inside<'b>(path: &'b Path, bytes: &'b [u8], mode: u32) -> Result<Box<dyn Host + 'b>, Error> {
    match signature_of(bytes) {
        Signature::Executable => Ok(Box::new(ExecutableHost::read(path, bytes).in_image(mode))),
        _ => read(path, bytes),
    }
}

/// The backup beside a graft, from which the next graft is made.
#[derive(Debug, Clone)]
struct BackupBase {
    backup: PathBuf,
    sha256: String,
}

/// A host whose graft is planned, edited and verified.
pub(crate) struct PreparedGraft {
    pub(crate) path: PathBuf,
    pub(crate) before: Carried,
    pub(crate) before_sha256: String,
    pub(crate) operation: Operation,
    pub(crate) notes: Vec<String>,
    /// The backup from which the graft was made, with its bytes; `None` if it was made from the host itself: stock, or
    /// a graft whose stock file is not available.
    base: Option<(BackupBase, Vec<u8>)>,
    verified: Verified,
}

/// Prepares the graft of a file.
pub(crate) fn prepare_file(file: &HostFile, planner: &mut Planner<'_>) -> Result<PreparedGraft, Error> {
    let (path, bytes) = (file.path(), file.bytes()?);
    prepare(&*read(path, bytes)?, path, file.sha256()?.to_owned(), planner)
}

/// Prepares the graft of the recognised `host` at `path`, which has this SHA-256. A graft is replaced by starting from
/// its stock file, if that is available: so nothing of an earlier donor or release remains.
pub(crate) fn prepare(
    host: &dyn Host,
    path: &Path,
    before_sha256: String,
    planner: &mut Planner<'_>,
) -> Result<PreparedGraft, Error> {
    let base = stock_beside(host, path, &before_sha256)?;
    let (operation, verified, notes) = match &base {
        None => verified(host, planner)?,
        Some((_, stock)) => verified(&*read(path, stock)?, planner)?,
    };
    let before = host.carried().clone();
    Ok(PreparedGraft { path: path.to_owned(), before, before_sha256, operation, notes, base, verified })
}

/// Plans, edits and verifies. Returns the remarks, too.
fn verified(host: &dyn Host, planner: &mut Planner<'_>) -> Result<(Operation, Verified, Vec<String>), Error> {
    let (operation, edited) = host.plan(planner)?;
    let verified = host.verify(&operation, edited)?;
    let remarks = host.remarks(&operation)?;
    Ok((operation, verified, remarks))
}

/// Returns the backup if its SHA-256 matches the record. For hosts that need stock, a missing or different backup is an
/// error. A backup with a foreign allocator is not stock: the graft has members that the backup lacks.
fn stock_beside(host: &dyn Host, path: &Path, sha256_of_host: &str) -> Result<Option<(BackupBase, Vec<u8>)>, Error> {
    let record = Record::about(path, sha256_of_host).filter(|record| record.stock_sha256 != sha256_of_host);
    let Some(record) = record.filter(|_| host.carried().anything()) else { return Ok(None) };
    let stock = Backup::beside(path).and_then(|backup| record.stock(path, backup));
    match stock.and_then(|stock| Ok((stock.bytes()?, stock))) {
        Ok((bytes, Backup { path: backup, sha256, .. })) => {
            let good = host.needs_stock() || read(path, &bytes).is_ok_and(|stock| stock.is_stock());
            Ok(good.then_some((BackupBase { backup, sha256 }, bytes)))
        }
        Err(error) if host.needs_stock() => Err(error),
        Err(_) => Ok(None),
    }
}

impl PreparedGraft {
    pub(crate) fn graft_sha256(&self) -> &str {
        self.verified.sha256()
    }

    /// Whether the graft equals the host.
    pub(crate) fn is_unchanged(&self) -> bool {
        self.before_sha256 == self.verified.sha256()
    }

    /// The action of replacing the host.
    pub(crate) fn action(&self) -> Action {
        Action::on(self.before.anything(), self.is_unchanged())
    }

    /// Proves the graft, so that it may be placed. `bytes` are the host's.
    pub(crate) fn prove(self, bytes: &[u8], planner: &Planner<'_>) -> Result<(ReadyGraft, TestRun), Error> {
        let (base, stock) = self.base.unzip();
        let stock = stock.as_deref().unwrap_or(bytes);
        let (proven, trial) = prove(&self.path, stock, &self.operation, self.verified, planner.request)?;
        let digest = proven.digest();
        let (path, before_sha256, operation) = (self.path, self.before_sha256, self.operation);
        Ok((ReadyGraft { path, before_sha256, operation, base, digest, kept: Cell::new(Some(proven)) }, trial))
    }
}

/// A host whose graft is ready to be placed.
pub(crate) struct ReadyGraft {
    path: PathBuf,
    before_sha256: String,
    operation: Operation,
    base: Option<BackupBase>,
    digest: ProvenDigest,
    kept: Cell<Option<Proven>>,
}

impl ReadyGraft {
    /// SHA-256 of the graft.
    pub(crate) fn sha256(&self) -> &str {
        self.digest.sha256()
    }

    /// Drops the graft's bytes, so that many hosts need no more memory than one. [`ReadyGraft::graft`] remakes them.
    pub(crate) fn drop_bytes(&self) {
        self.kept.take();
    }

    /// The graft, remade if its bytes were dropped. `bytes` are the host's.
    ///
    /// # Errors
    /// The host or its backup has changed since the graft was prepared.
    pub(crate) fn graft(&self, bytes: &[u8]) -> Result<Proven, Error> {
        let changed = |path: &Path| Error::ChangedMeanwhile { path: path.to_owned() };
        if sha256(bytes) != self.before_sha256 {
            return Err(changed(&self.path));
        }
        if let Some(kept) = self.kept.take() {
            return Ok(kept);
        }
        let stock = match &self.base {
            None => None,
            Some(BackupBase { backup, sha256: expected }) => match sidecar::read(backup) {
                Ok(Some(bytes)) if sha256(&bytes) == *expected => Some(bytes),
                _ => return Err(changed(backup)),
            },
        };
        let edited = read(&self.path, stock.as_deref().unwrap_or(bytes))?.edit(&self.operation)?;
        self.digest.confirm(edited.into_bytes()).ok_or_else(|| changed(&self.path))
    }
}

/// The record of a graft that has these checksums.
pub(crate) fn record(operation: &Operation, stock_sha256: &str, graft_sha256: &str) -> Record {
    let Carried { malloc, strings } = operation.brings();
    Record {
        schema_version: 1,
        stock_sha256: stock_sha256.to_owned(),
        graft_sha256: graft_sha256.to_owned(),
        replaced_sha256: None,
        donor: malloc.as_ref().map_or_else(|| "none".to_owned(), |note| note.donor.clone()),
        version: malloc.as_ref().map(|note| note.version.clone()).unwrap_or_default(),
        options: malloc.map(|note| note.options).unwrap_or_default(),
        strings: strings.map(|note| note.version),
        allograft: crate::VERSION.to_owned(),
        stock: None,
    }
}
