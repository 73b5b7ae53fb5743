//! `allograft donors`: which allocator to take when, and what can be set about it.

use std::process::ExitCode;

use clap::Args;
use donors::Donor;
use format::{DonorKind, DonorOption};

use crate::choice::DonorNames;
use crate::failure::Failure;
use crate::json;
use crate::output::{Cell, Output, Page, Style};

/// Say which donor to take when, and its options
///
/// Without a name, it is a table of the allocators in this build, and when to take each. With one, it is everything on
/// that donor: version, licence, architectures, the options that `--set` takes with unit, range and default, and the
/// sets of options that `--profile` takes.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  allograft donors
  allograft donors snmalloc    # its options
  allograft donors --licenses
  allograft donors --json")]
pub(crate) struct Donors {
    /// Donor to describe with its options
    #[arg(value_parser = DonorNames(names), hide_possible_values = true)]
    name: Option<String>,
    /// Print the licences, which programs pass on
    ///
    /// Print the text of each licence, which programs with a donor have to pass on
    #[arg(long)]
    licenses: bool,
}

/// A donor, and the options that it has in this build.
type Listed = (&'static Donor, Vec<DonorOption>);

/// The donors, then the string functions.
fn listed() -> impl Iterator<Item = &'static Donor> {
    donors::all().iter().chain([donors::strings()])
}

fn names() -> Vec<&'static str> {
    listed().map(|donor| donor.name).collect()
}

impl Donors {
    pub(crate) fn run(&self, output: &Output) -> Result<ExitCode, Failure> {
        let is_wanted = |donor: &&Donor| self.name.as_ref().is_none_or(|name| name.eq_ignore_ascii_case(donor.name));
        let mut wanted: Vec<Listed> = Vec::new();
        for donor in listed().filter(is_wanted) {
            let options = donor.options().map_err(|error| {
                Failure::usage(format!("donor `{}` in this build is damaged: {error}", donor.name))
                    .with_help("get allograft anew, and compare its checksum; then please report this")
            })?;
            wanted.push((donor, options));
        }
        if output.json {
            output.document(json::Donors::new(&wanted, self.licenses))?;
        } else if self.licenses {
            output.text(&licenses(&wanted, output))?;
        } else if self.name.is_some() || output.verbose {
            output.text(&everything(&wanted, output))?;
        } else {
            output.text(&overview(&wanted, output))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The name, and what it is the default for.
fn titled(donor: &Donor) -> String {
    let default_for: Vec<&str> = donor.default_for().map(|arch| arch.name()).collect();
    match donor.kind {
        DonorKind::Malloc if donors::DEFAULTS[0] == donor.name => format!("{} (default)", donor.name),
        DonorKind::Malloc if default_for.is_empty() => donor.name.to_owned(),
        DonorKind::Malloc => format!("{} (default for {})", donor.name, default_for.join(", ")),
        DonorKind::Strings => format!("{} (--strings)", donor.name),
    }
}

/// Which donor to take when: a line for each, the default first.
fn overview(listed: &[Listed], output: &Output) -> Page {
    let mut table = output.table(&["donor", "take it"]).fitting();
    let is_default = |donor: &Donor| donors::DEFAULTS[0] == donor.name;
    let (first, others): (Vec<_>, Vec<_>) = listed.iter().partition(|(donor, _)| is_default(donor));
    for (donor, _) in first.into_iter().chain(others) {
        table.row([titled(donor), donor.character.to_owned()].map(Cell::from));
    }
    let mut text = output.page();
    text.table(&table.spaced(2));
    text.blank();
    // Writing to a page does not fail.
    let _ = writeln!(text, "`allograft donors NAME` has its options, version and licence; `-v` has all.");
    let _ = writeln!(text, "`allograft bench ./program` measures which one pays.");
    text
}

/// Everything about each donor.
fn everything(listed: &[Listed], output: &Output) -> Page {
    let mut text = output.page();
    for (number, (donor, options)) in listed.iter().enumerate() {
        if number > 0 {
            text.blank();
        }
        describe(&mut text, donor, options, output);
    }
    text
}

fn describe(text: &mut Page, donor: &Donor, options: &[DonorOption], output: &Output) {
    let arches: Vec<&str> = donor.arches().map(|arch| arch.name()).collect();
    let _ = writeln!(text, "{}: {}", output.paint(Style::Strong, titled(donor)), donor.character);
    let mut facts = vec![("version", donor.version.to_owned()), ("licence", donor.license.to_owned())];
    facts.push(("for", arches.join(" ")));
    facts.extend(donor.homepage.map(|page| ("home", page.to_owned())));
    for (what, fact) in facts {
        let _ = writeln!(text, "  {} {fact}", output.paint(Style::Faint, format_args!("{:<8}", format!("{what}:"))));
    }
    if !options.is_empty() {
        section(text, "Options, for `--set OPTION=VALUE`, with their defaults:", output);
        for option in options {
            let DonorOption { name, value, min, max, .. } = option;
            let about = donors::about_option(donor.name, name);
            let unit = about.map(|about| format!(" {}", about.unit.name())).unwrap_or_default();
            let set = format!("{name}={value}");
            let _ = writeln!(text, "  {set:<38}  {min} to {max}{}", unit.trim_end());
            if let Some(about) = about {
                let _ = writeln!(text, "      {}", about.text);
            }
        }
    }
    if !donor.profiles.is_empty() {
        section(text, "Options set together, for `--profile PROFILE`:", output);
        for profile in donor.profiles {
            let sets: Vec<String> = profile.options.iter().map(|(name, value)| format!("{name}={value}")).collect();
            let _ = writeln!(text, "{}", format!("  {:<8}  {}", profile.name, sets.join(" ")).trim_end());
            let _ = writeln!(text, "      {}", profile.about);
        }
    }
}

fn section(text: &mut Page, title: &str, output: &Output) {
    text.blank();
    // Writing to a page does not fail.
    let _ = writeln!(text, "{}", output.paint(Style::Strong, title));
}

/// The text of each licence, once for all donors that share it.
fn licenses(listed: &[Listed], output: &Output) -> Page {
    let mut texts: Vec<(&str, Vec<&Donor>)> = Vec::new();
    for (donor, _) in listed {
        let text = donor.license_text();
        match texts.iter_mut().find(|(other, _)| *other == text) {
            Some((_, donors)) => donors.push(donor),
            None => texts.push((text, vec![donor])),
        }
    }
    let mut page = output.page();
    for (number, (text, donors)) in texts.iter().enumerate() {
        if number > 0 {
            page.blank();
        }
        let names: Vec<String> = donors.iter().map(|donor| format!("{} {}", donor.name, donor.version)).collect();
        let title = output.paint(Style::Strong, format_args!("{} ({}):", names.join(", "), donors[0].license));
        // Writing to a page does not fail.
        let _ = writeln!(page, "{title}");
        page.blank();
        for line in text.lines() {
            page.whole(line);
        }
    }
    page
}
