//! The suite's programs, in C, and its cases. A program's folder has its name.

mod cases;

pub use cases::{CASES, Case, names};

/// The header that the programs include: `workload.h`.
pub const HEADER: &str = include_str!("../workload.h");

/// An allocator that never takes memory back.
pub const BUMP: &str = include_str!("../bump/bump.c");

/// Returns the source of a program. `None` if the suite has no program of that name.
pub const fn source(name: &str) -> Option<&'static str> {
    Some(match name.as_bytes() {
        b"blocks" => include_str!("../blocks/blocks.c"),
        b"boxed" => include_str!("../boxed/boxed.c"),
        b"bursts" => include_str!("../bursts/bursts.c"),
        b"dataset" => include_str!("../dataset/dataset.c"),
        b"fragments" => include_str!("../fragments/fragments.c"),
        b"growth" => include_str!("../growth/growth.c"),
        b"http" => include_str!("../http/http.c"),
        b"larson" => include_str!("../larson/larson.c"),
        b"map" => include_str!("../map/map.c"),
        b"pipeline" => include_str!("../pipeline/pipeline.c"),
        b"small" => include_str!("../small/small.c"),
        _ => return None,
    })
}
