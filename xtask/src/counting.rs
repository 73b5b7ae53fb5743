//! `cargo xtask bench counting`: what statistics cost while they are off.

use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use crate::grafts::{self, Workshop};
use crate::rounds::{self, Effort, Spread};
use crate::{command, setup, workspace};

/// Programs and their arguments: calls and nothing else, then a program that does something.
const SUITE: [(&str, &[&str]); 2] = [("pairs", &["10"]), ("map", &["1", "20000", "1000000"])];

const EFFORT: Effort = Effort { least: 21, most: 21, budget: Duration::ZERO };

/// Compares every donor as it is, counting off, with the same donor built without counting: paired and interleaved.
///
/// # Errors
/// When something does not build, or a program fails.
pub(crate) fn bench() -> Result<()> {
    setup::prepare(setup::Extent::Demo)?;
    let folder = workspace::build().join("bench").join("counting");
    fs::create_dir_all(&folder)?;
    let _lock = setup::lock(&folder.join(".lock"))?;
    eprintln!("bench: building allograft twice, the second time with donors that cannot count ...");
    let shipped = command::build_allograft()?;
    let build = folder.join("without");
    let without = command::build_allograft_with(&[
        ("ALLOGRAFT_DONOR_DEFINE", "GRAFT_WITHOUT_COUNTING".as_ref()),
        ("CARGO_TARGET_DIR", build.as_os_str()),
    ])?;
    let workshop = Workshop::new(&folder)?;
    let names = SUITE.map(|(name, _)| name);
    println!(
        "time of the donor as it is, counting off, over that of one built without counting; {} rounds:",
        EFFORT.most
    );
    for donor in grafts::donors(&shipped)? {
        let arguments = ["--donor", &donor.name];
        let with = workshop.link(&format!("{}-shipped", donor.name), Some((&shipped, &arguments)), &names)?;
        let bare = workshop.link(&format!("{}-without", donor.name), Some((&without, &arguments)), &names)?;
        for (at, (name, arguments)) in SUITE.iter().enumerate() {
            let arms = [&bare[at], &with[at]];
            let make = |number: usize| {
                let mut command = Command::new(arms[number]);
                command.env_clear().args(*arguments);
                command
            };
            let expected = command::output(&mut make(0))?;
            let seconds = rounds::interleave(2, EFFORT, &expected, &mut |number| make(number))?;
            if let Some(Spread { median, low, high }) = Spread::of_ratios(&seconds[1], &seconds[0]) {
                println!("  {:<16} {name:<6} median {median:.3}   min {low:.3}   max {high:.3}", donor.name);
            }
        }
    }
    Ok(())
}
