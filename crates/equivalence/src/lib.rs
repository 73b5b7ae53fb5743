//! The proof that the code of a function is a string function, and nothing else. Bytes in, an answer out: the program
//! is not changed, and its code is executed only by the interpreter.
//!
//! | module | what lives there |
//! | --- | --- |
//! | `program` | what a proof reads of a program |
//! | `proof` | how a function is run on inputs and compared |
//! | `unproven` | why a function is not proven |
//! | `inputs_blocks` | inputs for functions of blocks: memcpy, memmove, memset, memcmp, bcmp, memchr, memrchr |
//! | `inputs_texts` | inputs for functions of texts: strlen, strchr, strcmp, strcpy, strcat and their like |
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
