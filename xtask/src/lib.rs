//! The modules that the project's own commands and the experiments in `lab` share.
//!
//! | module | what lives there |
//! | --- | --- |
//! | `command` | running other programs, cargo among them |
//! | `corpus` | released programs: downloads |
//! | `debian` | Debian's packages, unpacked and never installed |
//! | `linking` | programs linked with copies of a musl |
//! | `musls` | musl's libc.so as others build it |
//! | `packages` | packages of the registries of Python, npm and Debian |
//! | `page` | tables in the docs that commands write |
//! | `projects` | other people's projects: sources |
//! | `rust` | a Rust toolchain with musl targets |
//! | `schema` | the schema of CycloneDX documents |
//! | `sessions` | comparisons of programs by `measure` |
//! | `setup` | the tools and fixtures that building and testing need |
//! | `sources` | the packages of the lock file, the donors' recipes, and sources from Debian |
//! | `system` | a Debian with many programs |
//! | `toolchains` | compilers of other languages |
//! | `wheels` | programs from Python's registry |
//! | `windows` | Wine and a compiler for Windows |
//! | `workspace` | folders of the checkout |
//! | `zig` | zig, its lld and its musl |

pub mod command;
pub mod corpus;
pub mod debian;
pub mod linking;
pub mod musls;
pub mod packages;
pub mod page;
pub mod projects;
pub mod rust;
pub mod schema;
pub mod sessions;
pub mod setup;
pub mod sources;
pub mod system;
pub mod toolchains;
pub mod wheels;
pub mod windows;
pub mod workspace;
pub mod zig;
