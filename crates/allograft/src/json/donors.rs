//! The document of `allograft donors`.

use std::collections::BTreeMap;

use format::{DonorKind, DonorOption};
use serde::Serialize;

/// The donors in this build.
#[derive(Debug, Serialize)]
pub(crate) struct Donors<'d> {
    /// The allocators, sorted by name, then the string functions.
    donors: Vec<Donor<'d>>,
}

/// An allocator, or the string functions.
#[derive(Debug, Serialize)]
struct Donor<'d> {
    /// Its name, as `--donor` takes it.
    name: &'static str,
    /// The functions that it replaces.
    kind: DonorKind,
    /// Its upstream version; allograft's own where the sources are ours.
    version: &'static str,
    /// The SPDX expression of its licence.
    license: &'static str,
    /// With `--licenses`: the licence's text.
    #[serde(skip_serializing_if = "Option::is_none")]
    license_text: Option<&'static str>,
    /// When to take it, in one line.
    character: &'static str,
    /// Whether `graft` takes it when no donor is named, for any architecture.
    default: bool,
    /// The architectures for which `graft` takes it when no donor is named.
    default_for: Vec<&'static str>,
    /// The architectures that it can be grafted for.
    arches: Vec<&'static str>,
    /// The options that `--set` takes.
    options: Vec<Settable<'d>>,
    /// The sets of options that `--profile` takes, the one that sets nothing first. Empty for string functions.
    profiles: Vec<Profile>,
}

/// An option.
#[derive(Debug, Serialize)]
struct Settable<'d> {
    /// Its name.
    name: &'d str,
    /// Its value unless it is set.
    default: i64,
    /// Its least value.
    min: i64,
    /// Its greatest value.
    max: i64,
    /// The unit of these values: `ms`, `KiB`, `bytes` or `%`. Null: a number of things, or one of a few choices.
    unit: Option<&'static str>,
    /// Its effect.
    about: Option<&'static str>,
}

/// Options that serve one purpose together.
#[derive(Debug, Serialize)]
struct Profile {
    /// Its name.
    name: &'static str,
    /// Its purpose, in one line.
    about: &'static str,
    /// The values that it sets, by option.
    options: BTreeMap<&'static str, i64>,
}

impl<'d> Donors<'d> {
    pub(crate) fn new(listed: &'d [(&'static donors::Donor, Vec<DonorOption>)], licenses: bool) -> Self {
        Donors { donors: listed.iter().map(|(donor, options)| Donor::new(donor, options, licenses)).collect() }
    }
}

impl<'d> Donor<'d> {
    fn new(donor: &'static donors::Donor, options: &'d [DonorOption], licenses: bool) -> Self {
        let settable = |option: &'d DonorOption| {
            let DonorOption { name, value, min, max, .. } = option;
            let known = donors::about_option(donor.name, name);
            let unit = known.map(|known| known.unit.name()).filter(|unit| !unit.is_empty());
            Settable { name, default: *value, min: *min, max: *max, unit, about: known.map(|known| known.text) }
        };
        Donor {
            name: donor.name,
            kind: donor.kind,
            version: donor.version,
            license: donor.license,
            license_text: licenses.then(|| donor.license_text()),
            character: donor.character,
            default: donor.default_for().next().is_some(),
            default_for: donor.default_for().map(|arch| arch.name()).collect(),
            arches: donor.arches().map(|arch| arch.name()).collect(),
            options: options.iter().map(settable).collect(),
            profiles: profiles(donor),
        }
    }
}

fn profiles(donor: &'static donors::Donor) -> Vec<Profile> {
    if donor.kind == DonorKind::Strings {
        return Vec::new();
    }
    let (name, about) = (donors::DEFAULT_PROFILE, "the donor's own defaults");
    let default = Profile { name, about, options: BTreeMap::new() };
    let others = donor.profiles.iter().map(|profile| Profile {
        name: profile.name,
        about: profile.about,
        options: profile.options.iter().copied().collect(),
    });
    [default].into_iter().chain(others).collect()
}
