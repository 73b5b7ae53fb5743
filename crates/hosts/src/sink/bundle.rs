//! Grafts a packed bundle in two passes: the first plans every `libc.a`, the second writes the bundle with the grafts.
//! One pass would write before it is known that every graft succeeds, or would need the memory of all of them.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::digest;
use crate::error::packed::PackedError;
use crate::error::programs::Programs;
use crate::error::rollback::Purpose;
use crate::error::skipped::Skipped;
use crate::error::{Error, IoContext};
use crate::file::attributes;
use crate::file::bundle::Format;
use crate::file::host_file::{HostFile, Identity};
use crate::file::names::{backup_path, record_path};
use crate::file::signature::{Signature, signature_of};
use crate::file::temporaries::new_file;
use crate::host::Carried;
use crate::host::planner::Planner;
use crate::outcome::{Action, Bundle, Grafted, Grafts};
use crate::packed::carried::carries_graft;
use crate::packed::entry::{Entries, Libcs, is_libc};
use crate::packed::{Editor, MOST_LIBC, Source, inside};
use crate::prove::prepared;
use crate::prove::prepared::{ReadyGraft, record};
use crate::record::backup::Backup;
use crate::record::{Record, sidecar};
use crate::sink::{Sink, out};
use crate::swift::bundle;
use crate::transaction::Transaction;
use crate::transaction::pending::Pending;
use crate::transaction::place::{Change, Content, Observer, place};
use crate::transaction::staged::Staged;

const MOST_MANIFEST: u64 = 1 << 20;

/// A `libc.a` with its finished plan.
struct PlannedLibc {
    grafted: Grafted,
    ready: ReadyGraft,
}

/// The `libc.a`s of a bundle, all planned and verified.
#[derive(Default)]
struct Survey {
    decided: BTreeMap<Vec<u8>, PlannedLibc>,
    skipped: Vec<Skipped>,
    swift_sdks: Vec<String>,
    /// SHA-256 of the bundle.
    sha256: String,
}

impl Survey {
    /// Plans the graft of a file in the bundle, verifies it, and drops its bytes.
    fn plan(&mut self, bundle: &Path, name: &[u8], bytes: &[u8], planner: &mut Planner<'_>) -> Result<(), Error> {
        let path = inside(bundle, name);
        if let Some(found) = signature_of(bytes).found() {
            self.skipped.push(Skipped::new(path, found));
            return Ok(());
        }
        let host = prepared::read(&path, bytes)?;
        if let Some(reason) = host.skip_reason() {
            self.skipped.push(Skipped::new(path.clone(), reason));
            return Ok(());
        }
        let prepared = prepared::prepare(&*host, &path, digest::sha256(bytes), planner)?;
        let mut grafted = prepared.report(prepared.action());
        grafted.stock_sha256 = Some(prepared.before_sha256.clone());
        let (ready, trial) = prepared.prove(bytes, planner)?;
        grafted.add(trial);
        ready.drop_bytes();
        self.decided.insert(name.to_vec(), PlannedLibc { grafted, ready });
        Ok(())
    }
}

/// `FOLDER/info.json`.
fn is_manifest(name: &[u8]) -> bool {
    name.iter().filter(|byte| **byte == b'/').count() == 1 && name.ends_with(b"/info.json")
}

fn survey(source: &Source<'_>, planner: &mut Planner<'_>) -> Result<Survey, Error> {
    let path = source.path;
    let mut survey = Survey::default();
    let wants = |name: &[u8]| {
        if is_manifest(name) { Some(MOST_MANIFEST) } else { is_libc(name).then_some(MOST_LIBC) }
    };
    let (entries, sha256) = source.scan(&wants, &mut |name, bytes| {
        if !is_manifest(name) {
            return survey.plan(path, name, bytes, planner);
        }
        survey.swift_sdks.extend(bundle::swift_sdks(bytes));
        Ok(())
    })?;
    let Libcs { files, skipped: links } = entries.libcs();
    if survey.swift_sdks.is_empty() {
        return Err(Error::Packed { path: path.to_owned(), entry: None, problem: PackedError::NoSwiftSdk });
    }
    // Files of any name to which a link called libc.a points: the links are known only now.
    let by_link: Vec<Vec<u8>> = files.into_iter().filter(|name| !is_libc(name)).collect();
    if !by_link.is_empty() {
        let wants = |name: &[u8]| by_link.iter().any(|wanted| wanted == name).then_some(MOST_LIBC);
        let again = source.scan(&wants, &mut |name, bytes| survey.plan(path, name, bytes, planner))?;
        if again.1 != sha256 {
            return Err(Error::ChangedMeanwhile { path: path.to_owned() });
        }
    }
    survey.sha256 = sha256;
    let skipped = |(name, reason): (Vec<u8>, &str)| Skipped::new(inside(path, &name), reason);
    survey.skipped.extend(links.into_iter().map(skipped));
    survey.skipped.sort_by(|one, other| one.path.cmp(&other.path));
    match (survey.decided.is_empty(), survey.skipped.is_empty()) {
        (false, _) => Ok(survey),
        (true, false) => {
            let (folder, skipped) = (path.to_owned(), survey.skipped);
            Err(Error::NothingGraftable { folder, skipped, programs: Programs::default() })
        }
        (true, true) => Err(Error::NoHost { folder: path.to_owned() }),
    }
}

/// Whether the file is a bundle of this format that carries a graft. One that is damaged is not.
fn is_graft(there: &HostFile, format: Format) -> bool {
    there.signature() == Signature::Packed(format) && carries_graft(there.path(), format).unwrap_or(false)
}

/// Grafts every `libc.a` in the bundle at `host`, or on an error none.
pub(crate) fn graft(
    host: &Path,
    format: Format,
    planner: &mut Planner<'_>,
    observe: Observer<'_>,
) -> Result<Pending<Grafts>, Error> {
    let (request, watch) = (planner.request, planner.watch);
    let place_for = |out: &Path| {
        let is_graft = |there: &HostFile| Ok(is_graft(there, format));
        out::graft(out, &HostFile::open(host.to_owned())?, request.force, is_graft).map(|(place, _)| place)
    };
    let out = request.out.as_deref().map(place_for).transpose()?;
    let place = out.as_deref().unwrap_or(host);
    let purpose = if out.is_some() { Purpose::Write } else { Purpose::Graft };
    let sink = Sink::of_graft(request, purpose, [place], watch)?;
    let file = File::open(host).context(host, "read")?;
    let identity = Identity::new(&file.metadata().context(host, "read")?);
    let source = Source { path: host, file: &file, format, watch };
    let mut surveyed = survey(&source, planner)?;
    let before: BTreeMap<Vec<u8>, Carried> =
        surveyed.decided.iter().map(|(name, decided)| (name.clone(), decided.grafted.before.clone())).collect();
    let grafted_before = before.values().any(Carried::anything);
    let mut unchanged = surveyed.decided.values().all(|decided| decided.grafted.unchanged);
    let host_sha256 = surveyed.sha256.clone();
    let known = Record::read(host).unwrap_or(None).filter(|record| record.knows(&host_sha256));
    if out.is_none() {
        sidecar::may_be_written(host, (!grafted_before).then_some(host_sha256.as_str()))?;
    }
    let stock = match &known {
        Some(record) if grafted_before && !unchanged => {
            record.stock(host, Backup::beside(host)?).ok().map(Backup::into_file).transpose()?
        }
        _ => None,
    };
    // A graft is replaced by starting from its stock file, if that is available: so nothing of an earlier donor
    // remains.
    let source = match &stock {
        None => source,
        Some(stock) => {
            let from_stock = Source { path: host, file: stock, format, watch };
            match survey(&from_stock, planner) {
                Ok(found) => {
                    surveyed = found;
                    from_stock
                }
                // The backup has a foreign allocator, and lacks members that the graft has.
                Err(Error::Foreign { .. }) => source,
                Err(Error::Refused { refusal, .. }) if refusal.is_about_foreign() => source,
                Err(error) => return Err(error),
            }
        }
    };
    let mut bundle = Bundle {
        path: place.to_owned(),
        source: out.as_ref().map(|_| host.to_owned()),
        format,
        swift_sdks: surveyed.swift_sdks.clone(),
        action: Action::on(grafted_before, unchanged),
        sha256: None,
        tar_sha256: None,
        stock_sha256: match grafted_before {
            false => Some(host_sha256.clone()),
            true => known.as_ref().map(|known| known.stock_sha256.clone()),
        },
        backup: None,
        backup_lacks: Vec::new(),
        notes: Vec::new(),
    };
    if out.is_none() && (!grafted_before || stock.is_some() || known.is_some() && backup_path(host).exists()) {
        bundle.backup = Some(backup_path(host));
    }
    if grafted_before && out.is_none() && bundle.backup.is_none() {
        bundle.notes.push("has no backup of its stock file, so that it cannot be undone".to_owned());
    }
    if !place.as_os_str().as_bytes().ends_with(format.ending().as_bytes()) {
        let ending = format.ending();
        bundle.notes.push(format!("does not end in `{ending}`, which `swift sdk install` goes by: rename it"));
    }
    unchanged &= out.is_none();
    if unchanged {
        bundle.sha256 = Some(host_sha256);
        return Ok(Pending::nothing(grafts(surveyed, before, bundle)));
    }
    if request.dry_run {
        bundle.action = Action::Planned;
    }
    let written = sink.write(bundle, |bundle, transaction| {
        write(&source, &surveyed, bundle, &host_sha256, identity, transaction, observe)
    })?;
    Ok(written.map(|bundle| grafts(surveyed, before, bundle)))
}

/// Writes the bundle with the grafts in it: over the host, if it still has this SHA-256 and identity, or to `out`.
fn write(
    source: &Source<'_>,
    survey: &Survey,
    bundle: &mut Bundle,
    host_sha256: &str,
    identity: Identity,
    transaction: &mut Transaction,
    observe: Observer<'_>,
) -> Result<(), Error> {
    let (host, place_of_it) = (source.path, bundle.path.clone());
    let like = File::open(host).context(host, "read")?;
    let mut new = new_file(&place_of_it)?;
    let wants = &|name: &[u8]| survey.decided.contains_key(name).then_some(MOST_LIBC);
    let edit = &mut |name: &[u8], bytes: &[u8]| {
        let decided = survey.decided.get(name).filter(|decided| !decided.grafted.unchanged);
        decided.map(|decided| decided.ready.graft(bytes)).transpose()
    };
    let copied = source.copy(new.as_file_mut(), &place_of_it, Editor { entries: Entries::default(), wants, edit })?;
    if copied.source != survey.sha256 {
        return Err(Error::ChangedMeanwhile { path: host.to_owned() });
    }
    let lost = attributes::carry(&like, new.as_file()).context(&place_of_it, "write")?;
    bundle.notes.extend(lost.iter().map(ToString::to_string));
    new.as_file().sync_all().context(&place_of_it, "write")?;
    bundle.tar_sha256 = copied.written_tar;
    // Read back from disk: each graft is the proven one, and the checksum is the file's.
    let graft = Staged::container(new.into_temp_path(), |written| {
        let changed = || Error::ChangedMeanwhile { path: place_of_it.clone() };
        let file = File::open(written).context(&place_of_it, "read")?;
        let again = Source { path: &place_of_it, file: &file, format: source.format, watch: source.watch };
        let mut left = survey.decided.len();
        let (_, sha256) = again.scan(wants, &mut |name, bytes| {
            let expected = survey.decided.get(name).map(|decided| decided.grafted.graft_sha256.as_str());
            left -= usize::from(expected == Some(digest::sha256(bytes).as_str()));
            Ok(())
        })?;
        if left == 0 && sha256 == copied.written { Ok(()) } else { Err(changed()) }
    })?;
    if bundle.source.is_some() {
        transaction.write(graft, &place_of_it)?;
    } else {
        let operation = survey.decided.values().next().map(|decided| &decided.grafted.operation);
        let record = operation.and_then(|operation| {
            let mut record = record(operation, bundle.stock_sha256.as_deref()?, &copied.written);
            if bundle.action == Action::Replaced {
                record.replaced_sha256 = Some(host_sha256.to_owned());
            }
            Some(record)
        });
        let backup = bundle.action == Action::Grafted;
        // A graft without a known stock file gets no record; an existing record of a different file is reported.
        if record.is_none() && fs::symlink_metadata(record_path(host)).is_ok() {
            bundle.notes.push("has a record beside it that belongs to a different file".to_owned());
        }
        let change = Change {
            host,
            read: None,
            expected: host_sha256,
            graft: Some(Content::bundle(graft, &copied.written, identity)),
            backup,
            record: record.as_ref(),
        };
        for notes in place(&[change], transaction, observe)? {
            bundle.notes.extend(notes.on_host);
            bundle.backup_lacks.extend(notes.backup_lacks);
        }
    }
    bundle.sha256 = Some(copied.written);
    Ok(())
}

fn grafts(survey: Survey, mut before: BTreeMap<Vec<u8>, Carried>, bundle: Bundle) -> Grafts {
    let mut hosts = Vec::new();
    for (name, PlannedLibc { mut grafted, .. }) in survey.decided {
        grafted.before = before.remove(&name).unwrap_or_default();
        grafted.action = match bundle.action {
            Action::Planned if !grafted.unchanged => Action::Planned,
            _ => Action::on(grafted.before.anything(), grafted.unchanged),
        };
        grafted.stock_sha256 = (!grafted.before.anything()).then(|| grafted.stock_sha256.take()).flatten();
        grafted.path = inside(&bundle.path, &name);
        grafted.source = bundle.source.as_deref().map(|source| inside(source, &name));
        hosts.push(grafted);
    }
    Grafts { bundle: Some(bundle), swift_sdks: survey.swift_sdks, ..Grafts::new(hosts, survey.skipped) }
}
