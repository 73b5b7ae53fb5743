//! The options that `graft`, `emit` and `cargo allograft` have in common: what to put in.

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};
use donors::Donor;

use crate::failure::Failure;
use crate::output::printable;

/// The value of `--donor` that keeps musl's own allocator.
const NONE: &str = "none";

/// As it is typed. Commands may rename an option or change its help by `mut_arg`, under the names that clap gives:
/// those of the fields.
#[derive(Debug, Clone, Args)]
pub(crate) struct Choice {
    /// The allocator to put in: see `allograft donors`. `none`: string functions only
    #[arg(long, value_name = "NAME", default_value = donors::DEFAULT, value_parser = donor_names())]
    donor: String,
    /// Whether to put in fast string functions too (memcpy, strlen and similar) [default: on; off for executables]
    #[arg(long, value_name = "WHETHER", value_enum)]
    strings: Option<Switch>,
    /// Bake in one of the donor's sets of options: see `allograft donors`
    #[arg(long, value_name = "NAME", default_value = donors::DEFAULT_PROFILE, value_parser = PossibleValuesParser::new(donors::PROFILES))]
    profile: String,
    /// Bake in an option of the donor; overrides the profile; can be given several times
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = setting)]
    settings: Vec<(String, i64)>,
}

/// Something that is wanted or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Switch {
    On,
    Off,
}

impl Choice {
    /// The allocator, or `None` for string functions alone.
    pub(crate) fn donor(&self) -> Option<&'static Donor> {
        // The parser accepts only the names of this build.
        donors::find(&self.donor)
    }

    /// Whether string functions go in, or `None` if the user did not say.
    pub(crate) fn strings(&self) -> Option<bool> {
        self.strings.map(|switch| switch == Switch::On)
    }

    /// The options to bake in: those of the profile, then those of `--set`, which win.
    ///
    /// # Errors
    /// Exit code 2 if the donor has no such profile.
    pub(crate) fn settings(&self) -> Result<Vec<(String, i64)>, Failure> {
        let mut settings = of_profile(self.donor(), &self.profile)?;
        settings.extend(self.settings.iter().cloned());
        Ok(settings)
    }
}

fn donor_names() -> PossibleValuesParser {
    PossibleValuesParser::new(donors::all().iter().map(|donor| donor.name).chain([NONE]))
}

fn setting(text: &str) -> Result<(String, i64), String> {
    let (key, value) = text.split_once('=').ok_or("expected KEY=VALUE, such as purge_delay=0")?;
    if key.is_empty() {
        return Err("the key is missing".to_owned());
    }
    let value = value.parse().map_err(|_| format!("`{}` is not a whole number", printable(value)))?;
    Ok((key.to_owned(), value))
}

fn of_profile(donor: Option<&Donor>, name: &str) -> Result<Vec<(String, i64)>, Failure> {
    let Some(donor) = donor else {
        return match name {
            donors::DEFAULT_PROFILE => Ok(Vec::new()),
            _ => Err(Failure::usage(format!("profile `{name}` is one of donors, and `--donor none` takes none"))
                .with_help("leave `--profile` out, or name a donor")),
        };
    };
    let Some(options) = donor.profile(name) else {
        let having: Vec<&str> =
            donors::all().iter().filter(|donor| donor.profile(name).is_some()).map(|donor| donor.name).collect();
        let help = match having.as_slice() {
            [] => format!("no donor of this build has the profile `{name}`"),
            having => format!("these donors have it: {}", having.join(", ")),
        };
        return Err(Failure::usage(format!("donor `{}` has no profile `{name}`", donor.name)).with_help(help));
    };
    Ok(options.iter().map(|(option, value)| ((*option).to_owned(), *value)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_whole_numbers() {
        assert_eq!(setting("purge_delay=-1"), Ok(("purge_delay".to_owned(), -1)));
        for wrong in ["purge_delay", "=1", "a=", "a=1.5", "a=b=1", "a=99999999999999999999"] {
            assert!(setting(wrong).is_err(), "{wrong}");
        }
    }
}
