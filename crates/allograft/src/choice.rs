//! The options that `graft`, `emit` and `cargo allograft` have in common: what to put in.

use std::ffi::OsStr;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Args, ValueEnum};
use donors::Donor;
use hosts::Candidate;
use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::printable::printable;
use crate::setting;
use crate::similar::similar;

/// The name of string functions alone, for `--donor` and as an arm of `bench`: musl's own allocator stays.
pub(crate) const STRINGS: &str = "strings";
/// The other name of [`STRINGS`] that is taken.
const NONE: &str = "none";

/// Returns the name that is meant by what a user typed: [`STRINGS`] for `none`, in any case.
pub(crate) fn meant(typed: &str) -> &str {
    if typed.eq_ignore_ascii_case(NONE) { STRINGS } else { typed }
}

/// In the user's spelling. Commands may rename an option or change its help by `mut_arg`, under the names that clap
/// gives: those of the fields.
#[derive(Debug, Clone, Args, Serialize, Deserialize)]
pub(crate) struct Choice {
    /// Allocator to put in, or `strings` alone
    ///
    /// The allocator to put in: see `allograft donors`, which says which one is the default. `strings`, or `none`:
    /// string functions only
    #[arg(long, value_name = "NAME", value_parser = DonorNames(donor_names), hide_possible_values = true)]
    donor: Option<String>,
    /// Put in fast string functions [default: on in libc.a]
    ///
    /// Whether to put in fast string functions too (memcpy, strlen and similar) [default: on; off for linked files and
    /// shared objects]
    #[arg(long, value_name = "on|off", value_enum, hide_possible_values = true)]
    strings: Option<Switch>,
    /// Options for one purpose: small, fast, secure
    ///
    /// Bake in one of the donor's sets of options: see `allograft donors NAME`
    #[arg(
        long,
        value_name = "NAME",
        default_value = donors::DEFAULT_PROFILE,
        hide_default_value = true,
        value_parser = PossibleValuesParser::new(donors::PROFILES),
        hide_possible_values = true
    )]
    profile: String,
    /// Set an option of the donor; repeatable
    ///
    /// Bake in an option of the donor; overrides the profile; can be given several times
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = setting::parse)]
    settings: Vec<(String, i64)>,
}

/// Something that is wanted or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
enum Switch {
    On,
    Off,
}

impl Choice {
    /// The allocators that may go in, with their options: those of the profile, then those of `--set`, which win. One
    /// if the user named it; none for string functions alone.
    ///
    /// # Errors
    /// Exit code 2 if no such allocator has the profile or an option, or if options are set for none.
    pub(crate) fn candidates(&self) -> Result<Vec<Candidate>, Failure> {
        let donors: Vec<&'static Donor> = match self.donor.as_deref() {
            None => donors::defaults().collect(),
            // The parser accepts only the names of this build.
            Some(name) => donors::find(name).into_iter().collect(),
        };
        if donors.is_empty() {
            self.takes_no_options()?;
        }
        let candidate = |donor: &&'static Donor| {
            let mut settings = of_profile(donor, &self.profile)?;
            settings.extend(self.settings.iter().cloned());
            Some(Candidate { donor, settings })
        };
        let candidates: Vec<Candidate> = donors.iter().filter_map(candidate).collect();
        // The donors that have the profile: those that may go in.
        let having: Vec<&Donor> = candidates.iter().map(|candidate| candidate.donor).collect();
        setting::check(&having, &self.settings)?;
        match donors.first() {
            Some(donor) if candidates.is_empty() => Err(no_profile(donor, &self.profile)),
            _ => Ok(candidates),
        }
    }

    /// # Errors
    /// Exit code 2 if there is a profile or an option.
    fn takes_no_options(&self) -> Result<(), Failure> {
        match (self.profile.as_str(), self.settings.first()) {
            (donors::DEFAULT_PROFILE, None) => Ok(()),
            (donors::DEFAULT_PROFILE, Some((name, _))) => {
                Err(hosts::Error::OptionWithoutDonor { name: name.clone() }.into())
            }
            (name, _) => {
                Err(Failure::usage(format!("profile `{name}` is one of donors, and `--donor strings` takes none"))
                    .with_help("leave `--profile` out, or name a donor"))
            }
        }
    }

    /// Whether the user chose nothing.
    pub(crate) fn is_default(&self) -> bool {
        self.donor.is_none()
            && self.strings.is_none()
            && self.profile == donors::DEFAULT_PROFILE
            && self.settings.is_empty()
    }

    /// Whether string functions go in, or `None` if the user did not say.
    pub(crate) fn strings(&self) -> Option<bool> {
        self.strings.map(|switch| switch == Switch::On)
    }
}

/// The parser of a donor's name, in any case.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DonorNames(pub(crate) fn() -> Vec<&'static str>);

/// The names that `--donor` takes.
fn donor_names() -> Vec<&'static str> {
    donors::all().iter().map(|donor| donor.name).chain([STRINGS]).collect()
}

impl TypedValueParser for DonorNames {
    type Value = String;

    fn parse_ref(&self, parser: &clap::Command, _: Option<&clap::Arg>, word: &OsStr) -> Result<String, clap::Error> {
        let typed = word.to_string_lossy();
        let names = (self.0)();
        if let Some(name) = names.iter().find(|name| name.eq_ignore_ascii_case(meant(&typed))) {
            return Ok((*name).to_owned());
        }
        let tip = match similar(&typed, names.iter().copied()) {
            _ if inspector::name::is_reported(&typed.to_lowercase()) => {
                "`inspect` knows it, and no donor is made of it: `allograft donors` lists those of this build"
                    .to_owned()
            }
            Some(name) => format!("did you mean `{name}`?"),
            None if donors::PROFILES.contains(&&*typed) => {
                format!("a profile is `--profile {typed}`, of the default donor or of `--donor NAME`")
            }
            None if typed.contains(',') => {
                "one donor goes in; `allograft bench --donors A,B ./program` compares several".to_owned()
            }
            None => "`allograft donors` says what each of them is good for".to_owned(),
        };
        let message =
            format!("there is no donor `{}`; there are {}\n\n  tip: {tip}\n", printable(&typed), names.join(", "));
        Err(clap::Error::raw(ErrorKind::InvalidValue, message).with_cmd(parser))
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new((self.0)().into_iter().map(PossibleValue::new)))
    }
}

/// The options of the donor's profile, if it has that one.
fn of_profile(donor: &Donor, name: &str) -> Option<Vec<(String, i64)>> {
    Some(donor.profile(name)?.iter().map(|(option, value)| ((*option).to_owned(), *value)).collect())
}

fn no_profile(donor: &Donor, name: &str) -> Failure {
    let having: Vec<&str> =
        donors::all().iter().filter(|donor| donor.profile(name).is_some()).map(|donor| donor.name).collect();
    let help = match having.as_slice() {
        [] => format!("no donor of this build has the profile `{name}`"),
        having => format!("these donors have it: {}", having.join(", ")),
    };
    Failure::usage(format!("donor `{}` has no profile `{name}`", donor.name)).with_help(help)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_whole_numbers() {
        assert_eq!(setting::parse("purge_delay=-1"), Ok(("purge_delay".to_owned(), -1)));
        for wrong in ["purge_delay", "=1", "a=", "a=1.5", "a=b=1", "a=99999999999999999999"] {
            assert!(setting::parse(wrong).is_err(), "{wrong}");
        }
    }
}
