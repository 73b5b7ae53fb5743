//! Grafts container images: OCI layouts, as folders or tars, and archives of `docker save`. A layer with the grafts is
//! put on top of an image's own layers, into a new image. The stock layers keep their bytes, so removing that layer
//! restores stock.
//!
//! | module | what lives there |
//! | --- | --- |
//! | `survey` | the hosts of an image |
//! | `layer` | the layer that is added |
//! | `document` | configuration, manifest and index with that layer |
//! | `layout` | copies of a layout with changes |
//! | `origin` | the data for `undo`, in the new index |
//! | `comparison` | the comparison of the new image with stock |

mod comparison;
mod document;
mod layer;
mod layout;
pub(crate) mod origin;
mod survey;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use images::{Document, Format, Source};
use serde_json::Value;

use self::document::NewDocument;
use self::layout::{Blob, Changes, INDEX, LIST, Naming, Replacement};
use self::origin::Origin;
use self::survey::Survey;
use crate::digest;
use crate::error::rollback::Purpose;
use crate::error::{Error, IoContext};
use crate::file::attributes;
use crate::file::host_file::HostFile;
use crate::file::temporaries::{TemporaryFolder, new_file};
use crate::host::planner::Planner;
use crate::outcome::Grafts;
use crate::sink::{Sink, out};
use crate::transaction::Transaction;
use crate::transaction::pending::Pending;
use crate::transaction::staged::{Staged, StagedFolder};
use crate::undo::{Undone, UndoneAction};
use crate::watch::Watch;

impl From<images::Error> for Error {
    fn from(error: images::Error) -> Error {
        Error::Image(Box::new(error))
    }
}

fn opened(path: &Path) -> Result<Source, Error> {
    let unknown = || Error::ChangedMeanwhile { path: path.to_owned() };
    let is_image = |source: &Source| matches!(source.form, Format::OciLayout | Format::DockerArchive);
    images::open(path)?.filter(is_image).ok_or_else(unknown)
}

fn damaged(path: &Path, what: impl Into<String>) -> Error {
    Error::ImageChanged { path: path.to_owned(), reason: what.into() }
}

/// The folder for a new image like the one in the folder `path`, which has to be one that can be copied.
fn folder_for(out: &Path, path: &Path) -> Result<PathBuf, Error> {
    layout::holds_its_blobs(path)?;
    out::folder(out, Some(&path.canonicalize().context(path, "read")?))
}

/// The place for a graft of the image at `path`: a folder or a file, like the image. With `force`, any existing file is
/// replaced. Returns with it the file that is replaced.
fn place_for(out: &Path, path: &Path, force: bool) -> Result<(PathBuf, Option<HostFile>), Error> {
    if path.is_dir() {
        return Ok((folder_for(out, path)?, None));
    }
    let is_graft = |there: &HostFile| opened(there.path()).is_ok_and(|there| matches!(origin_of(&there), Ok(Some(_))));
    out::graft(out, &HostFile::open(path.to_owned())?, force, |there| Ok(is_graft(there)))
}

/// The index of a layout.
fn index_of(source: &Source) -> Result<&Document, Error> {
    let first = source.images.first().and_then(|image| image.indexes.first());
    first.map(AsRef::as_ref).ok_or_else(|| damaged(&source.path, "it has no index"))
}

fn origin_of(source: &Source) -> Result<Option<Origin>, Error> {
    let origin = match source.form {
        Format::DockerArchive => {
            let list = file_of(&source.path, LIST)?;
            let value = list.and_then(|list| serde_json::from_slice(&list.content).ok());
            Origin::read(&value.unwrap_or_default())
        }
        _ => Origin::read(&index_of(source)?.value),
    };
    let origin = origin.transpose();
    origin.map_err(|why| damaged(&source.path, format!("the origin in its index cannot be read: {why}")))
}

/// Grafts the image at `path` into a new one. Images in it without anything that can be grafted stay unchanged.
///
/// # Errors
/// Nothing can be grafted, or the new image cannot be written. The image is unchanged.
pub(crate) fn graft(path: &Path, planner: &mut Planner<'_>) -> Result<Pending<Grafts>, Error> {
    let Some(wanted) = planner.request.out.clone() else {
        let reason = "an image is grafted into a new one, not in place";
        return Err(Error::Out { out: path.to_owned(), reason, help: "name the new one: `-o OUT`" });
    };
    let (out, there) = place_for(&wanted, path, planner.request.force)?;
    let sink = Sink::of_graft(planner.request, Purpose::Write, [out.as_path()], planner.watch)?;
    let given = opened(path)?;
    let origin = origin_of(&given)?;
    // A graft is replaced by starting from its stock image: no layer goes on top of an earlier graft's layer.
    let scratch = origin.as_ref().map(|_| TemporaryFolder::create(&out)).transpose()?;
    let (stock, source) = match (&origin, &scratch) {
        (Some(origin), Some(scratch)) => {
            let stock = scratch.path().join("stock");
            restore(path, origin, &stock)?;
            let source = opened(&stock)?;
            (stock, source)
        }
        _ => (path.to_owned(), given),
    };
    let mut survey =
        Survey { path, out: &out, again: origin.is_some(), hosts: Vec::new(), skipped: Vec::new(), no_form: None };
    let mut grafts = Vec::new();
    for image in &source.images {
        grafts.push(survey.image(&source, image, &survey::below(&source, image), planner)?);
    }
    let Survey { hosts, mut skipped, no_form, .. } = survey;
    skipped.sort_by(|one, other| one.path.cmp(&other.path));
    if grafts.iter().all(Option::is_none) {
        return Err(match skipped.is_empty() {
            true => Error::NoHostInImage { path: path.to_owned() },
            false => Error::NothingGraftableInImage { path: path.to_owned(), skipped, no_form },
        });
    }
    let notes = there.map(|_| "takes the place of an earlier file".to_owned()).into_iter().collect();
    let report = Grafts { image: Some(out.clone()), notes, ..Grafts::new(hosts, skipped) };
    sink.write(report, |report, transaction| {
        let changes = changes(&stock, &source, &grafts)?;
        let check = |new: &Path| {
            let files: Vec<_> = grafts.iter().map(|grafts| grafts.as_ref().map(|grafts| &grafts.files)).collect();
            comparison::check(&source, &opened(new)?, &files)
        };
        report.notes.extend(write(&stock, &out, &changes, &check, transaction)?);
        Ok(())
    })
}

/// Writes the stock image of the graft at `path` to `wanted`.
///
/// # Errors
/// The image is not a graft, or has changed since; or the file `wanted` exists, and is neither empty nor that stock
/// image.
pub fn undo(path: &Path, wanted: &Path, watch: &Watch<'_>) -> Result<Pending<Vec<Undone>>, Error> {
    let out = if path.is_dir() { folder_for(wanted, path)? } else { out::file(wanted, Some(path))? };
    let origin =
        origin_of(&opened(path)?)?.ok_or_else(|| damaged(path, "its index does not say that it is a graft"))?;
    let sink = Sink::open(Purpose::Write, [out.as_path()], watch)?;
    let scratch = TemporaryFolder::create(&out)?;
    let stock = scratch.path().join("stock");
    restore(path, &origin, &stock)?;
    let sha256 = match path.is_dir() {
        true => digest::sha256(&fs::read(stock.join(INDEX)).context(&out, "read")?),
        false => File::open(&stock).and_then(|file| digest::of_file(&file)).context(&out, "read")?,
    };
    if !path.is_dir() {
        out::stock(wanted, &sha256)?;
    }
    let (place, action, stock_sha256) = (wanted.to_owned(), UndoneAction::Restored, sha256.clone());
    let undone = Undone { path: place, action, stock_sha256, notes: Vec::new() };
    sink.write(vec![undone], |_, transaction| {
        if path.is_dir() {
            // `restore` has read the image again.
            let folder = StagedFolder::container(TemporaryFolder::moved(&stock, &out)?, |_| Ok(()))?;
            return transaction.write_folder(folder, &out);
        }
        let mut new = new_file(&out)?;
        let mut from = File::open(&stock).context(&out, "read")?;
        std::io::copy(&mut from, new.as_file_mut()).context(&out, "write")?;
        let like = File::open(path).context(path, "read")?;
        attributes::carry(&like, new.as_file()).context(&out, "write")?;
        new.as_file().sync_all().context(&out, "write")?;
        let copied = |file: &Path| match File::open(file).and_then(|file| digest::of_file(&file)) {
            Ok(found) if found == sha256 => Ok(()),
            Ok(found) => Err(damaged(&out, format!("its copy has sha256 {found}, expected {sha256}"))),
            Err(error) => Err(error).context(file, "read"),
        };
        transaction.write(Staged::container(new.into_temp_path(), copied)?, &out)
    })
}

/// Writes the stock image of a graft to `to`, which does not exist yet.
fn restore(path: &Path, origin: &Origin, to: &Path) -> Result<(), Error> {
    let back = origin.back().map_err(|why| damaged(path, format!("its index does not restore stock: {why}")))?;
    if path.is_dir() {
        fs::create_dir(to).context(to, "write")?;
        layout::copy_folder(path, to, &back)?;
    } else {
        let from = File::open(path).context(path, "read")?;
        let mut new = BufWriter::new(File::create_new(to).context(to, "write")?);
        layout::copy_tar(&from, &mut new, &back).context(to, "write")?;
        let new = new.into_inner().map_err(std::io::IntoInnerError::into_error).context(to, "write")?;
        drop(new);
        let found = File::open(to).and_then(|file| digest::of_file(&file)).context(to, "read")?;
        let expected = origin.sha256.as_deref().unwrap_or_default();
        if found != expected {
            let reason = format!("without the graft its sha256 is {found}, and the stock image's was {expected}");
            return Err(damaged(path, reason));
        }
    }
    // Check that all blobs of the stock index exist.
    opened(to).map(drop).map_err(|error| damaged(path, format!("its stock image is not whole: {error}")))
}

/// The changes that turn the stock layout into the grafted one.
fn changes<'g>(stock: &Path, source: &Source, grafts: &'g [Option<survey::Grafts>]) -> Result<Changes<'g>, Error> {
    let unfit = |what: &str| damaged(&source.path, format!("{what} does not follow the specification"));
    let naming = if source.form == Format::DockerArchive { Naming::Docker } else { Naming::Oci };
    let mut added: BTreeMap<String, Blob<'g>> = BTreeMap::new();
    let mut new: BTreeMap<String, NewDocument> = BTreeMap::new();
    let mut configs: BTreeMap<String, (NewDocument, String)> = BTreeMap::new();
    for (image, grafts) in source.images.iter().zip(grafts) {
        let Some(layer) = grafts.as_ref().and_then(|grafts| grafts.layer.as_ref()) else { continue };
        let stock_config = image.config.as_ref().ok_or_else(|| unfit("an image without a configuration"))?;
        let config = document::configuration(&stock_config.value, &layer.added);
        let config = config.ok_or_else(|| unfit("a configuration"))?;
        added.insert(naming.layer(&layer.added.blob), Blob::File(&layer.file));
        added.insert(naming.document(&config.hex), Blob::Bytes(config.raw.clone()));
        if let Some(stock_manifest) = &image.manifest {
            let manifest = document::manifest(&stock_manifest.value, &config, &layer.added);
            let manifest = manifest.ok_or_else(|| unfit("a manifest"))?;
            added.insert(naming.document(&manifest.hex), Blob::Bytes(manifest.raw.clone()));
            new.insert(stock_manifest.descriptor.digest.to_string(), manifest);
        }
        configs.insert(stock_config.descriptor.digest.to_string(), (config, layer.added.blob.clone()));
    }
    // The documents with fixed names; the one that carries the origin is the first.
    let mut documents = Vec::new();
    if source.form == Format::OciLayout {
        documents.push((INDEX, indexes(source, &mut new, &mut added)?.ok_or_else(|| unfit("the index"))?));
    }
    if let Some(list) = file_of(stock, LIST)? {
        let list = document::list(&list.content, naming, &configs);
        let reason = || {
            format!(
                "its `{LIST}` does not name each configuration by its SHA-256, `HEX.json`, as `docker save` and `podman \
                 save` do"
            )
        };
        documents.push((LIST, list.ok_or_else(|| damaged(&source.path, reason()))?));
    }
    // A blob that the stock layout has already belongs to stock, and stays after an undo.
    added.retain(|name, _| !has(stock, name));
    let mut replaced = Vec::new();
    for (name, _) in &documents {
        let found = file_of(stock, name)?.ok_or_else(|| damaged(&source.path, format!("it has no `{name}`")))?;
        replaced.push(((*name).to_owned(), found));
    }
    let sha256 = match stock.is_dir() {
        true => None,
        false => Some(File::open(stock).and_then(|file| digest::of_file(&file)).context(stock, "read")?),
    };
    if let Some((_, first)) = documents.first_mut() {
        let origin = Origin::new(sha256, replaced, added.keys().cloned().collect());
        origin.annotate(first).map_err(|error| damaged(&source.path, error.to_string()))?;
    }
    let mut changes = Changes { added, ..Changes::default() };
    for (name, value) in documents {
        let content = value.to_string().into_bytes();
        changes.replaced.insert(name.to_owned(), Replacement { header: None, content });
    }
    Ok(changes)
}

/// Returns the layout's index with each replaced manifest's descriptor updated, and adds the new nested indexes to
/// `added`. `None` if it names none of the manifests, even through nested indexes. `new` maps old digests to new
/// manifests.
fn indexes(
    source: &Source,
    new: &mut BTreeMap<String, NewDocument>,
    added: &mut BTreeMap<String, Blob<'_>>,
) -> Result<Option<Value>, Error> {
    // Innermost first: an index holds the digests of those in it.
    let mut nested = BTreeMap::new();
    for image in &source.images {
        for (depth, index) in image.indexes.iter().enumerate().skip(1) {
            nested.insert((Reverse(depth), index.descriptor.digest.to_string()), index.clone());
        }
    }
    for ((_, digest), index) in nested {
        if let Some(value) = document::index(&index.value, new) {
            let index = document::document(&value);
            added.insert(Naming::Oci.document(&index.hex), Blob::Bytes(index.raw.clone()));
            new.insert(digest, index);
        }
    }
    Ok(document::index(&index_of(source)?.value, new))
}

/// Whether a layout has a file of this name.
fn has(layout: &Path, name: &str) -> bool {
    match layout.is_dir() {
        true => layout.join(name).exists(),
        false => File::open(layout).and_then(|file| layout::in_tar(&file, name)).is_ok_and(|found| found.is_some()),
    }
}

/// A document of a layout; `None` if it has no file of this name.
fn file_of(layout: &Path, name: &str) -> Result<Option<Replacement>, Error> {
    if layout.is_dir() {
        let path = layout.join(name);
        return match path.is_file() {
            true => Ok(Some(Replacement { header: None, content: fs::read(&path).context(&path, "read")? })),
            false => Ok(None),
        };
    }
    File::open(layout).and_then(|file| layout::in_tar(&file, name)).context(layout, "read")
}

/// Writes the layout with the changes to `out`, once `check` has accepted the new layout.
fn write(
    stock: &Path,
    out: &Path,
    changes: &Changes<'_>,
    check: &dyn Fn(&Path) -> Result<(), Error>,
    transaction: &mut Transaction,
) -> Result<Vec<String>, Error> {
    if stock.is_dir() {
        let building = TemporaryFolder::create(out)?;
        let notes = layout::copy_folder(stock, building.path(), changes)?;
        transaction.write_folder(StagedFolder::container(building, check)?, out)?;
        return Ok(notes);
    }
    let from = File::open(stock).context(stock, "read")?;
    let mut new = new_file(out)?;
    let mut writer = BufWriter::new(new.as_file_mut());
    layout::copy_tar(&from, &mut writer, changes).and_then(|()| writer.flush()).context(out, "write")?;
    drop(writer);
    let lost = attributes::carry(&from, new.as_file()).context(out, "write")?;
    new.as_file().sync_all().context(out, "write")?;
    transaction.write(Staged::container(new.into_temp_path(), check)?, out)?;
    Ok(lost.iter().map(ToString::to_string).collect())
}
