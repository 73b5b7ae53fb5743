//! The proof that the code of a function is a string function, and nothing else. Bytes in, an answer out: the program
//! is not changed, and its code is executed only by the interpreter.
//!
//! | module | what lives there |
//! | --- | --- |
//! | `program` | the parts of a program that a proof reads |
//! | `proof` | runs a function on inputs, and compares the results |
//! | `unproven` | the reasons why a function is not proven |
//! | `inputs_blocks` | inputs for functions of blocks: memcpy, memmove, memset, memcmp, bcmp, memchr, memrchr |
//! | `inputs_texts` | inputs for functions of texts: strlen, strchr, strcmp, strcasecmp, strcpy, strcat, strspn and their like |
//! | `interpreter` | runs x86_64's instructions on memory that is watched |

#![forbid(unsafe_code)]

mod inputs_blocks;
mod inputs_texts;
mod interpreter;
mod program;
mod proof;
mod unproven;

pub use program::Program;
pub use proof::{Prover, Strictness};
pub use unproven::Unproven;
