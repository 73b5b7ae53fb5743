//! Compares programs that should do the same: runs in random order within rounds, paired statistics, memory, system
//! calls.
//!
//! | module | what lives there |
//! | --- | --- |
//! | `case` | what is compared: arms and the commands that run them |
//! | `executor` | what a run gives, whoever runs it: processes, or a mock in tests |
//! | `session` | checks, rounds and the end of them |
//! | `statistics` | ratios, intervals, tests, when to stop |
//! | `process` | real runs: timed, traced for memory and for system calls, servers under load |
//! | `machine` | what machine this is, and what else it was doing |
//! | `results` | the document that is kept: every raw run |
//! | `recommendation` | what to take |
//! | `report` | HTML, Markdown and CSV of a document |

pub mod case;
pub mod executor;
pub mod machine;
pub mod process;
pub mod recommendation;
pub mod report;
pub mod results;
pub mod session;
pub mod statistics;
