//! The program as users run it: exit codes, files, JSON and messages.

mod another;
mod apply;
mod bench;
mod bundle;
mod bundles;
mod bundles_hostile;
mod donors;
mod elsewhere;
mod emit;
mod executables;
mod executables_refused;
mod executables_strings;
mod folders;
mod foreign_executables;
mod inspect;
mod lab;
mod manual;
mod printed;
mod refusals;
mod roots;
mod strings;
mod trouble;
mod undo;
mod verify;
