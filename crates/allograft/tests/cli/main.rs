//! The program as users run it: exit codes, files, JSON and messages.

mod apply;
mod donors;
mod elsewhere;
mod folders;
mod inspect;
mod lab;
mod manual;
mod refusals;
mod strings;
mod trouble;
mod undo;
mod verify;
