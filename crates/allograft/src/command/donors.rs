//! `allograft donors`: what can be put in.

use std::process::ExitCode;

use clap::Args;
use comfy_table::{ContentArrangement, Table, presets};
use donors::Donor;
use serde_json::{Value, json};
use surgery::donor::{DonorKind, DonorOption};

use crate::failure::Failure;
use crate::output::{Output, Style};

/// List the allocators and string functions in this build, and their options
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  allograft donors
  allograft donors --json")]
pub(crate) struct Donors {}

impl Donors {
    pub(crate) fn run(&self, output: &Output) -> Result<ExitCode, Failure> {
        let mut listed = Vec::new();
        for donor in donors::all().iter().chain([donors::strings()]) {
            let options = donor
                .options()
                .map_err(|error| Failure::usage(format!("donor `{}` in this build is damaged: {error}", donor.name)))?;
            listed.push((donor, options));
        }
        if output.json {
            output.document(document(&listed))?;
        } else {
            output.text(&overview(&listed, output))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn arches(donor: &Donor) -> Vec<&'static str> {
    donor.arches().map(|arch| arch.name()).collect()
}

fn document(listed: &[(&Donor, Vec<DonorOption>)]) -> Value {
    let donors: Vec<Value> = listed
        .iter()
        .map(|(donor, options)| {
            let options: Vec<Value> = options
                .iter()
                .map(|option| {
                    json!({ "name": option.name, "default": option.value, "min": option.min, "max": option.max })
                })
                .collect();
            json!({
                "name": donor.name,
                "kind": donor.kind,
                "version": donor.version,
                "license": donor.license,
                "character": donor.character,
                "default": donor.name == donors::DEFAULT,
                "arches": arches(donor),
                "options": options,
                "profiles": profiles(donor),
            })
        })
        .collect();
    json!({ "donors": donors })
}

/// The profiles of an allocator, the one that sets nothing first.
fn profiles(donor: &Donor) -> Vec<Value> {
    let default = json!({ "name": donors::DEFAULT_PROFILE, "about": DEFAULT_ABOUT, "options": {} });
    let more = donor.profiles.iter().map(|profile| {
        let options: serde_json::Map<String, Value> =
            profile.options.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
        json!({ "name": profile.name, "about": profile.about, "options": options })
    });
    match donor.kind {
        DonorKind::Malloc => [default].into_iter().chain(more).collect(),
        DonorKind::Strings => Vec::new(),
    }
}

const DEFAULT_ABOUT: &str = "the donor's own defaults";

fn table(head: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic).set_header(head);
    table
}

fn overview(listed: &[(&Donor, Vec<DonorOption>)], output: &Output) -> String {
    let mut donors = table(&["donor", "version", "licence", "architectures", "character"]);
    let mut options = table(&["donor", "option", "default", "from", "to"]);
    for (donor, settable) in listed {
        let name = match donor.kind {
            _ if donor.name == donors::DEFAULT => format!("{} (default)", donor.name),
            DonorKind::Malloc => donor.name.to_owned(),
            DonorKind::Strings => format!("{} (--strings)", donor.name),
        };
        donors.add_row([&name, donor.version, donor.license, &arches(donor).join(" "), donor.character]);
        for option in settable {
            options.add_row([
                donor.name,
                &option.name,
                &option.value.to_string(),
                &option.min.to_string(),
                &option.max.to_string(),
            ]);
        }
    }
    let mut profiles = table(&["donor", "profile", "sets", "for"]);
    for (donor, profile) in listed.iter().flat_map(|(donor, _)| donor.profiles.iter().map(move |it| (donor, it))) {
        let sets: Vec<String> = profile.options.iter().map(|(name, value)| format!("{name}={value}")).collect();
        profiles.add_row([donor.name, profile.name, &sets.join(" "), profile.about]);
    }
    let mut text = lines(donors);
    if listed.iter().any(|(_, options)| !options.is_empty()) {
        let title = output.paint(Style::Strong, "Options for `graft --set OPTION=VALUE`:");
        text.push_str(&format!("\n{title}\n{}", lines(options)));
    }
    if listed.iter().any(|(donor, _)| !donor.profiles.is_empty()) {
        let title = output.paint(Style::Strong, "Options set together, `graft --profile PROFILE`:");
        text.push_str(&format!("\n{title}\n{}", lines(profiles)));
    }
    text
}

/// The table without blanks at the ends of its lines.
fn lines(mut table: Table) -> String {
    for column in table.column_iter_mut() {
        column.set_padding((0, 1));
    }
    table.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}
