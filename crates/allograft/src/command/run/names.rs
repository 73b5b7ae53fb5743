//! The names of compilers and linkers.

use std::ffi::OsStr;

/// Compilers that link as gcc does.
const COMPILERS: [&str; 8] = ["cc", "c++", "gcc", "g++", "clang", "clang++", "c89", "c99"];
/// Compilers for musl, whatever the system's libc.
const FOR_MUSL: [&str; 2] = ["musl-gcc", "musl-clang"];
/// Linkers with the options of GNU ld.
const LINKERS: [&str; 6] = ["ld", "ld.bfd", "ld.gold", "ld.lld", "ld.mold", "mold"];

/// Whether a program of this name has a wrapper.
pub(super) fn is_wrapped(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| is_compiler(name) || is_linker(name))
}

/// Whether it is a compiler: `gcc`, `gcc-12`, `musl-gcc`, `x86_64-linux-musl-g++`.
fn is_compiler(name: &str) -> bool {
    let plain = match name.rsplit_once('-') {
        Some((plain, version)) if version.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') => plain,
        _ => name,
    };
    let tool = for_musl(plain).unwrap_or(plain);
    COMPILERS.contains(&tool) || FOR_MUSL.contains(&plain)
}

/// Whether it is a linker.
pub(super) fn is_linker(name: &str) -> bool {
    LINKERS.contains(&for_musl(name).unwrap_or(name))
}

/// Returns the tool of a name such as `x86_64-linux-musl-gcc`.
fn for_musl(name: &str) -> Option<&str> {
    let (target, tool) = name.rsplit_once('-')?;
    target.contains("-linux-musl").then_some(tool)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for name in ["cc", "gcc", "g++-12", "clang-19", "musl-gcc", "x86_64-linux-musl-gcc", "ld", "ld.lld"] {
            assert!(is_wrapped(OsStr::new(name)), "{name}");
        }
        for name in ["arm-linux-musleabihf-g++", "x86_64-alpine-linux-musl-gcc", "x86_64-linux-musl-gcc-12.2"] {
            assert!(is_compiler(name), "{name}");
        }
        for name in
            ["allograft", "gcc-ar", "gcc-ranlib-12", "clang-format", "ccache", "lld", "make", "x86_64-linux-musl-ar"]
        {
            assert!(!is_wrapped(OsStr::new(name)), "{name}");
        }
    }
}
