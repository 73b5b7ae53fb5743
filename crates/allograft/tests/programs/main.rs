//! Programs that other people built, at their work: dynamic ones of an installed Debian, with the plugins that its
//! configuration loads, and released static ones. Each is tried as stock and with two donors: the same output and exit
//! code, `inspect` and `verify` agree, and `undo` gives the stock bytes back. A program that is refused is refused for
//! the reason that its row names.
//!
//! | module | what lives there |
//! | --- | --- |
//! | [`trial`] | what is done with each program |
//! | [`pages`] | the tables in the docs |

mod pages;
mod trial;

use std::process::ExitCode;

use fixtures::trials::slow;
use libtest_mimic::Trial;

fn main() -> ExitCode {
    let mut trials = pages::trials();
    for (index, program) in fixtures::installed::programs().into_iter().enumerate() {
        let name = format!("installed/{}", program.name);
        let second = pages::second_donor(&program, index);
        let run = move || trial::installed(&program, second).map_err(Into::into);
        trials.push(slow(Trial::test(name, run), "installed"));
    }
    for (index, program) in fixtures::released::programs().into_iter().enumerate() {
        let name = format!("released/{}", program.name);
        let run = move || trial::released(&program, trial::for_static(index)).map_err(Into::into);
        trials.push(slow(Trial::test(name, run), "released"));
    }
    fixtures::trials::run(trials)
}
