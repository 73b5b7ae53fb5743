//! Surgery on real archives, generated ones, and broken ones.

mod archives;
mod donors;
mod hostile;
mod linking;
mod real_plans;
mod refusals;
mod samples;
mod strings;
