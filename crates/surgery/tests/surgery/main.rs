//! Surgery on real archives, on made-up ones, and on broken ones.

mod archives;
mod donors;
mod hostile;
mod linking;
mod merging;
mod real_plans;
mod refusals;
mod samples;
mod strings;
