//! The modules that the project's own commands and the experiments in `lab` share.
//!
//! | module | what lives there |
//! | --- | --- |
//! | `linking` | programs linked with copies of a musl |
//! | `page` | tables in the docs that commands write |
//! | `sessions` | comparisons of programs by `measure` |

pub mod linking;
pub mod page;
pub mod sessions;
