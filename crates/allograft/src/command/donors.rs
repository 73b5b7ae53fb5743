//! `allograft donors`: lists the allocators and string functions of this build.

use std::process::ExitCode;

use clap::Args;
use donors::Donor;
use format::{DonorKind, DonorOption};

use crate::failure::Failure;
use crate::json;
use crate::output::{Cell, Output, Page, Style, Table};

/// List the allocators and string functions in this build, and their options
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  allograft donors
  allograft donors --licenses
  allograft donors --json")]
pub(crate) struct Donors {
    /// Print the text of each licence, which programs with a donor have to pass on
    #[arg(long)]
    licenses: bool,
}

impl Donors {
    pub(crate) fn run(&self, output: &Output) -> Result<ExitCode, Failure> {
        let mut listed = Vec::new();
        for donor in donors::all().iter().chain([donors::strings()]) {
            let options = donor.options().map_err(|error| {
                Failure::usage(format!("donor `{}` in this build is damaged: {error}", donor.name))
                    .with_help("get allograft anew, and compare its checksum; then please report this")
            })?;
            listed.push((donor, options));
        }
        if output.json {
            output.document(json::Donors::new(&listed, self.licenses))?;
        } else if self.licenses {
            output.text(&licenses(&listed, output))?;
        } else {
            output.text(&overview(&listed, output))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn arches(donor: &Donor) -> Vec<&'static str> {
    donor.arches().map(|arch| arch.name()).collect()
}

fn overview(listed: &[(&Donor, Vec<DonorOption>)], output: &Output) -> Page {
    let table = |head: &[&str]| output.table(head).fitting();
    let mut donors = table(&["donor", "version", "licence", "architectures", "character"]);
    let mut options = table(&["donor", "option", "default", "from", "to"]);
    for (donor, settable) in listed {
        let default_for: Vec<&str> = donor.default_for().map(|arch| arch.name()).collect();
        let name = match donor.kind {
            DonorKind::Malloc if donors::DEFAULTS[0] == donor.name => format!("{} (default)", donor.name),
            DonorKind::Malloc if default_for.is_empty() => donor.name.to_owned(),
            DonorKind::Malloc => format!("{} (default for {})", donor.name, default_for.join(", ")),
            DonorKind::Strings => format!("{} (--strings)", donor.name),
        };
        donors.row([&name, donor.version, donor.license, &arches(donor).join(" "), donor.character].map(Cell::from));
        for option in settable {
            let (value, min, max) = (option.value.to_string(), option.min.to_string(), option.max.to_string());
            options.row([donor.name, &option.name, &value, &min, &max].map(Cell::from));
        }
    }
    let mut profiles = table(&["donor", "profile", "sets", "for"]);
    for (donor, profile) in listed.iter().flat_map(|(donor, _)| donor.profiles.iter().map(move |it| (donor, it))) {
        let sets: Vec<String> = profile.options.iter().map(|(name, value)| format!("{name}={value}")).collect();
        profiles.row([donor.name, profile.name, &sets.join(" "), profile.about].map(Cell::from));
    }
    let mut text = output.page();
    text.table(&donors.spaced(1));
    if listed.iter().any(|(_, options)| !options.is_empty()) {
        let title = output.paint(Style::Strong, "Options for `graft --set OPTION=VALUE`:");
        titled(&mut text, &title, options);
    }
    if listed.iter().any(|(donor, _)| !donor.profiles.is_empty()) {
        let title = output.paint(Style::Strong, "Options set together, `graft --profile PROFILE`:");
        titled(&mut text, &title, profiles);
    }
    text
}

/// The text of each licence, once for all donors that share it.
fn licenses(listed: &[(&Donor, Vec<DonorOption>)], output: &Output) -> Page {
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
            let _ = writeln!(page, "{line}");
        }
    }
    page
}

fn titled(text: &mut Page, title: &str, table: Table) {
    text.blank();
    // Writing to a page does not fail.
    let _ = writeln!(text, "{title}");
    text.table(&table.spaced(1));
}
