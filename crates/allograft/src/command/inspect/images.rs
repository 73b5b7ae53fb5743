//! `inspect IMAGE`: the programs of a container image, a root file system or a package, with the libraries of that
//! image and in its environment.

mod preloads;
mod system;

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use images::{Format, Image, Kind, Source, Tree};
use inspector::{Environment, Loader};

use super::{Inspected, cannot};
use crate::failure::Failure;
use crate::json;
use crate::output::{Output, Page, Style};
use preloads::Summary;
use system::{Root, is_wanted, is_worth_inspecting};

/// An image that was looked through.
pub(super) struct InspectedImage {
    pub(super) image: json::Image,
    /// Warnings for the users of the image, each with its remedy.
    warnings: Vec<(String, String)>,
    /// The number of executables with a malloc other than the expected one, and of all with a malloc.
    expectation: Expectation,
}

/// How an image compares with `--expect`.
#[derive(Default)]
struct Expectation {
    executables: usize,
    others: usize,
    /// The first of the others.
    shown: Vec<String>,
}

/// The most programs that are named in one message.
const MOST_NAMED: usize = 3;

/// Looks through all images at `path`. Adds them to `seen`, and their files to `inspected`, with checksums if they are
/// to be `hashed`. `false` if there is no image.
pub(super) fn look(
    path: &Path,
    hashed: bool,
    seen: &mut Vec<InspectedImage>,
    inspected: &mut Vec<Inspected>,
    output: &Output,
    progress: &dyn Fn(&str),
) -> bool {
    let source = match images::open(path) {
        Ok(Some(source)) => source,
        Ok(None) => return false,
        // The next reader of the path reports that it cannot be read. A temporary file that cannot be written says
        // nothing about the path.
        Err(images::Error { part: None, entry: None, problem: images::Problem::Io { action: "read", .. }, .. }) => {
            return false;
        }
        Err(error) => {
            inspected.push(Inspected::unread(path.to_owned(), failure(&error)));
            return true;
        }
    };
    for note in &source.notes {
        output.note(format_args!("`{}`: {note}", path.display()));
    }
    for image in &source.images {
        progress(&title(path, image));
        seen.push(one(&source, image, hashed, seen.len(), inspected));
    }
    true
}

fn failure(error: &images::Error) -> Failure {
    Failure::usage(format!("cannot inspect {error}")).with_help(error.help())
}

/// How an image is called in messages.
fn title(path: &Path, image: &Image) -> String {
    match &image.platform {
        Some(platform) => format!("{} ({platform})", path.display()),
        None => path.display().to_string(),
    }
}

fn one(source: &Source, image: &Image, hashed: bool, number: usize, inspected: &mut Vec<Inspected>) -> InspectedImage {
    let mut described = json::Image {
        path: source.path.display().to_string(),
        form: match source.form {
            Format::OciLayout => json::ImageForm::OciLayout,
            Format::DockerArchive => json::ImageForm::DockerArchive,
            Format::RootTar => json::ImageForm::RootTar,
            Format::Debian => json::ImageForm::Deb,
            Format::Alpine => json::ImageForm::Apk,
            Format::Zip => json::ImageForm::Zip,
        },
        names: image.names.clone(),
        digest: image.digest().map(|digest| digest.to_string()),
        platform: image.platform.as_ref().map(ToString::to_string),
        layers: image.layers.len(),
        environment: json::Variables {
            ld_preload: image.variable("LD_PRELOAD").map(str::to_owned),
            ld_library_path: image.variable("LD_LIBRARY_PATH").map(str::to_owned),
        },
        preloads: Vec::new(),
        unaffected: json::Unaffected::default(),
        error: None,
    };
    let failed = |mut described: json::Image, path: PathBuf, failure: Failure, inspected: &mut Vec<Inspected>| {
        described.error = Some(failure.whole());
        inspected.push(Inspected { image: Some(number), ..Inspected::unread(path, failure) });
        InspectedImage { image: described, warnings: Vec::new(), expectation: Expectation::default() }
    };
    let tree = match source.tree(image, &|path, _, start| is_wanted(path, start)) {
        Ok(tree) => tree,
        Err(error) => return failed(described, source.path.clone(), failure(&error), inspected),
    };
    let root = Root::new(&tree);
    let set =
        |name: &str| image.variable(name).filter(|value| !value.is_empty()).map(|value| value.as_bytes().to_vec());
    let environment = Environment {
        preload: set("LD_PRELOAD"),
        library_path: set("LD_LIBRARY_PATH"),
        audit: set("LD_AUDIT").is_some(),
    };
    let mut loader = Loader::in_environment(&root, environment);
    let mut summary = Summary::default();
    let before = inspected.len();
    for (path, node) in tree.nodes().filter(|(_, node)| matches!(node.kind, Kind::File { kept: true, .. })) {
        let shown = PathBuf::from(OsString::from_vec([b"/", path.as_slice()].concat()));
        let inside = || PathBuf::from(format!("{}:{}", title(&source.path, image), shown.display()));
        let bytes = tree.read(&path);
        let sha256 = bytes.as_ref().ok().filter(|_| hashed).map(|bytes| hosts::sha256(bytes));
        let mut backup_of = None;
        let result = match (bytes, root.place(&path, &node)) {
            (Ok(bytes), _) if !is_worth_inspecting(&bytes) => continue,
            (Ok(bytes), Some(place)) => {
                backup_of = hosts::backup_among(&shown, &bytes, |record| read_in(&tree, record));
                match loader.inspect_loaded(&bytes, &place) {
                    Ok(loaded) => {
                        if backup_of.is_none() {
                            summary.add(&shown, &loaded);
                        }
                        Ok(loaded.report)
                    }
                    Err(error) => Err(cannot(&inside(), &error).with_help(error.help())),
                }
            }
            (Err(problem), _) => Err(cannot(&inside(), problem)),
            (Ok(_), None) => continue,
        };
        inspected.push(Inspected { path: shown, sha256, result, image: Some(number), in_folder: false, backup_of });
    }
    if inspected.len() == before {
        let failure = cannot(Path::new(&title(&source.path, image)), "it holds no ELF file and no static archive");
        return failed(described, source.path.clone(), failure, inspected);
    }
    let (preloads, warnings) = summary.finish(&tree, &loader, described.environment.ld_preload.as_deref());
    let called = title(&source.path, image);
    let warnings = warnings.into_iter().map(|(warning, help)| (format!("`{called}`: {warning}"), help)).collect();
    described.preloads = preloads;
    described.unaffected = summary.unaffected;
    InspectedImage { image: described, warnings, expectation: Expectation::default() }
}

/// Returns the bytes of a file of the image, whose path begins with the root.
fn read_in(tree: &Tree, path: &Path) -> Option<Vec<u8>> {
    tree.read(path.as_os_str().as_encoded_bytes().strip_prefix(b"/")?).ok()
}

impl InspectedImage {
    /// Compares a file with the malloc that is expected in the executables of the image: `None` if it does not count.
    pub(super) fn expects(&mut self, file: &Inspected, expected: &str) -> Option<bool> {
        let report = file.result.as_ref().ok().filter(|_| file.backup_of.is_none())?;
        if report.kind != inspector::Kind::Executable || report.malloc.name == inspector::name::NONE {
            return None;
        }
        self.expectation.executables += 1;
        let is_so = report.malloc.name == expected;
        if !is_so {
            self.expectation.others += 1;
            if self.expectation.shown.len() < MOST_NAMED {
                self.expectation.shown.push(format!("`{}` has `{}`", file.path.display(), report.malloc.name));
            }
        }
        Some(is_so)
    }

    /// Tells the warnings and whether the image is as expected. `None` if nothing was expected.
    pub(super) fn tell(&self, expected: Option<&str>, output: &Output) -> Option<bool> {
        for (warning, help) in &self.warnings {
            output.warn_with_help(warning, help);
        }
        let expected = expected?;
        let Expectation { executables, others, shown } = &self.expectation;
        let called = self.called();
        let (message, help) = match (executables, others) {
            _ if self.image.error.is_some() => return None,
            (0, _) => (
                format!("`{called}` has no executable with a malloc, expected `{expected}`"),
                "inspect it without `--expect` to see what is in it",
            ),
            (_, 0) => return Some(true),
            _ => (
                format!(
                    "`{called}`: {others} of {executables} executables with a malloc have another one than \
                     `{expected}`: {}{}",
                    shown.join(", "),
                    if *others > shown.len() { ", ..." } else { "" }
                ),
                "`LD_PRELOAD` in the image's environment reaches its dynamic programs; static ones have to be linked \
                 or grafted with it",
            ),
        };
        output.error(&Failure::usage(message).with_help(help));
        Some(false)
    }

    fn called(&self) -> String {
        match &self.image.platform {
            Some(platform) => format!("{} ({platform})", self.image.path),
            None => self.image.path.clone(),
        }
    }

    /// Adds what is known of the image as a whole.
    pub(super) fn text(&self, page: &mut Page, output: &Output) {
        let image = &self.image;
        let mut words: Vec<String> = image.platform.iter().cloned().collect();
        words.extend(image.names.iter().cloned());
        words.extend(image.digest.as_ref().map(|digest| digest.chars().take(19).collect()));
        words.push(match (image.form, image.layers) {
            (json::ImageForm::RootTar, _) => "a root file system".to_owned(),
            (json::ImageForm::Deb, _) => "a Debian package".to_owned(),
            (json::ImageForm::Apk, _) => "an Alpine package".to_owned(),
            (json::ImageForm::Zip, _) => "a zip".to_owned(),
            (_, 1) => "1 layer".to_owned(),
            (_, layers) => format!("{layers} layers"),
        });
        let _ = writeln!(page, "{}: {}", output.paint(Style::Strong, &image.path), words.join(", "));
        preloads::text(page, image, output);
    }
}
