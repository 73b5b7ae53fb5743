//! Real `libc.a`s and programs, grafted, linked and run. One program has all of these tests, so that they share
//! compiled objects and grafts.
//!
//! | room | its tests |
//! | --- | --- |
//! | `cases` | every case with every donor, linked in every way |
//! | `compatibility` | environments and habits of programs, with every donor, as every kind of host |
//! | `conformance` | every conformance program with every donor |
//! | `executables`, `foreign_executables` | conformance programs that are linked first and grafted later |
//! | `loaders` | conformance programs that a grafted musl loader starts |
//! | `merged` | conformance programs that a donor is merged into |
//! | `releases` | conformance programs with other releases of musl and glibc |
//! | `heap` | the heap profiles of a grafted program, and its probes |
//! | `statistics` | the reports of a grafted program |
//! | `corpus`, `carried` | the inspector's reports on released programs, and on programs linked from grafts |
//! | `strings` | the proof of the string functions |
//! | `system_calls` | the system calls of each donor |
//! | `starts` | page faults and system calls of a program's start |

mod carried;
mod cases;
mod compatibility;
mod conformance;
mod corpus;
mod executables;
mod foreign_executables;
mod heap;
mod loaders;
mod merged;
mod releases;
mod starts;
mod statistics;
mod strings;
mod system_calls;

use std::process::ExitCode;
use std::sync::Arc;

use casebook::bench::Bench;
use casebook::record;
use libtest_mimic::Arguments;

fn main() -> ExitCode {
    let bench = Arc::new(Bench::new());
    let (mut trials, cells) = conformance::trials(&bench);
    trials.extend(cases::trials(&bench));
    trials.extend(executables::trials(&bench));
    trials.extend(foreign_executables::trials(&bench));
    trials.extend(loaders::trials(&bench));
    trials.extend(merged::trials(&bench));
    trials.extend(releases::trials(&bench));
    trials.extend(statistics::trials());
    trials.extend(heap::trials());
    trials.extend(corpus::trials());
    trials.extend(carried::trials(&bench));
    trials.extend(strings::trials(&bench));
    trials.extend(system_calls::trials());
    trials.extend(starts::trials());
    trials.extend(compatibility::trials(&bench));
    let arguments = Arguments::from_args();
    if !arguments.list
        && (arguments.ignored || arguments.include_ignored)
        && let Err(error) = record::announce(&fixtures::conformance_results(), &cells)
    {
        eprintln!("cannot keep the results for the table: {error}");
    }
    libtest_mimic::run(&arguments, fixtures::trials::named(trials)).exit_code()
}
