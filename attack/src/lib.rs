//! Attacks on allograft itself. Each runs a command of allograft on a folder under ptrace, disturbs it at one system
//! call, and then asks two questions: is every host whole, either as before or as after an undisturbed run; and does
//! the next run make the same files as if nothing had happened?
//!
//! | module | what lives there |
//! | --- | --- |
//! | `call` | system calls: their names, the errors that each may return, those that change files |
//! | `endurance` | programs with each donor that run for long: forks, threads, producers and consumers, a server |
//! | `files` | the files of a folder, to compare |
//! | `flips` | grafts with one byte changed, and what `verify` says of them |
//! | `flow` | one command on one kind of host, and what its undisturbed run makes |
//! | `flows` | all of them |
//! | `fuzzing` | builds and runs the fuzzers of `attack/targets` |
//! | `interference` | ends a run at a call, or fails the call; judges what is left |
//! | `ledger` | counts, added up over runs: `attack/counts.tsv` |
//! | `order` | the order in which a run syncs files and changes names |
//! | `places` | names for the places of bytes in a file |
//! | `power` | what a run had written when the power was lost |
//! | `races` | several runs at once, some of them killed |
//! | `traced` | a run under ptrace |
//! | `workers` | work that is divided among threads |
//!
//! The attacks are a program of their own and not tests of the crate `hosts`, because what is attacked is what users
//! start: the whole process with its threads, its loader's calls and its exit code. They work on x86_64 only, whose
//! registers they set.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

pub mod call;
pub mod endurance;
mod files;
pub mod flips;
pub mod flow;
pub mod flows;
pub mod fuzzing;
pub mod interference;
pub mod ledger;
pub mod order;
mod places;
pub mod power;
pub mod races;
mod traced;
pub mod workers;
