//! Compares programs that do the same work: runs in random order within rounds, paired statistics, memory, system
//! calls.
//!
//! | module | what lives there |
//! | --- | --- |
//! | `case` | the arms of a comparison and the commands that run them |
//! | `executor` | the interface to runs and their results: processes, or a mock in tests |
//! | `rates` | servers at equal rates of requests: the latency curve |
//! | `session` | checks, rounds and when to stop them |
//! | `statistics` | ratios, intervals, tests, when to stop |
//! | `process` | real runs: timed, traced for memory and for system calls, servers under load |
//! | `machine` | facts about the machine, and its other work |
//! | `results` | the document with every raw run |
//! | `recommendation` | the choice of an arm |
//! | `report` | HTML, Markdown and CSV of a document |

pub mod case;
pub mod executor;
pub mod machine;
pub mod process;
pub mod rates;
pub mod recommendation;
pub mod report;
pub mod results;
pub mod session;
pub mod statistics;
