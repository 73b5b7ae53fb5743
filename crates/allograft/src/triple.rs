//! Target triples as Rust, clang, Swift, zig and Debian spell them.

use format::Arch;

use crate::printable::printable;
use crate::similar::similar;

/// Usual triples, as shells complete them. Others are parsed all the same.
pub(crate) const USUAL: [&str; 15] = [
    "x86_64-linux-musl",
    "x86_64-unknown-linux-musl",
    "x86_64-swift-linux-musl",
    "x86_64-linux-gnu",
    "x86_64-pc-windows-gnu",
    "aarch64-linux-musl",
    "aarch64-unknown-linux-musl",
    "aarch64-swift-linux-musl",
    "aarch64-linux-gnu",
    "riscv64-linux-musl",
    "riscv64gc-unknown-linux-musl",
    "i686-linux-musl",
    "i686-unknown-linux-musl",
    "arm-linux-musleabihf",
    "armv7-unknown-linux-musleabihf",
];

/// Returns those of the usual triples that are Rust's names of targets of musl.
pub(crate) fn rust_names() -> impl Iterator<Item = &'static str> {
    USUAL.into_iter().filter(|name| name.contains("-unknown-linux-musl"))
}

/// The vendors in the triples of toolchains.
const VENDORS: [&str; 5] = ["unknown", "swift", "alpine", "chimera", "openwrt"];

/// The parts of a triple that matter for a donor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Triple {
    /// The text that the user gave.
    pub(crate) text: String,
    pub(crate) arch: Arch,
    pub(crate) libc: Libc,
}

/// The C library of a triple.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Libc {
    Musl,
    Glibc,
    /// Windows' own, for programs that a GNU or LLVM toolchain links.
    WindowsGnu,
    /// Windows' own, for programs that Microsoft's linker links.
    WindowsMsvc,
}

impl Triple {
    /// Parses a triple as [`Triple::read`] does. The error ends with the triple that may be meant.
    ///
    /// # Errors
    /// As for `read`.
    pub(crate) fn parse(text: &str) -> Result<Triple, String> {
        Triple::read(text).map_err(|problem| match meant(text) {
            Some(triple) => format!("{problem}; did you mean `{triple}`?"),
            None => problem,
        })
    }

    /// Returns Rust's name of a target of musl (The rustc book, Platform Support).
    pub(crate) fn rust_name(&self) -> &str {
        let own = ["x86_64", "aarch64", "riscv64gc", "i686", "i586", "arm", "armv7", "thumbv7neon"];
        let is_own = self.text.split_once("-unknown-linux-musl").is_some_and(|(arch, _)| own.contains(&arch));
        match self.arch {
            _ if is_own => &self.text,
            Arch::X86_64 => "x86_64-unknown-linux-musl",
            Arch::Aarch64 => "aarch64-unknown-linux-musl",
            Arch::Riscv64 => "riscv64gc-unknown-linux-musl",
            Arch::I686 => "i686-unknown-linux-musl",
            Arch::Arm => "armv7-unknown-linux-musleabihf",
        }
    }

    /// Reads `ARCH[-VENDOR]-linux-LIBC`, or a triple of Windows: `ARCH[-VENDOR]-windows-gnu`, `-gnullvm` and `-msvc`,
    /// and `ARCH-w64-mingw32`.
    ///
    /// # Errors
    /// The part that is not known, and the values that are.
    fn read(text: &str) -> Result<Triple, String> {
        let mut parts: Vec<&str> = text.split('-').collect();
        let windows = match parts[1..] {
            ["w64", "mingw32"] | ["windows", "gnu" | "gnullvm"] => Some(Libc::WindowsGnu),
            [_, "windows", "gnu" | "gnullvm"] => Some(Libc::WindowsGnu),
            ["windows", "msvc"] | [_, "windows", "msvc"] => Some(Libc::WindowsMsvc),
            _ => None,
        };
        if let Some(libc) = windows {
            return match arch(parts[0]) {
                Some(arch @ Arch::X86_64) => Ok(Triple { text: text.to_owned(), arch, libc }),
                _ => Err(format!("no donor for Windows is for `{}`; there are some for x86_64", printable(parts[0]))),
            };
        }
        let (Some(libc), true) = (parts.pop(), parts.len() >= 2) else {
            return Err("expected ARCH[-VENDOR]-linux-LIBC, such as x86_64-linux-musl".to_owned());
        };
        if parts.len() > 3 || parts.pop() != Some("linux") {
            return Err("expected ARCH[-VENDOR]-linux-LIBC or x86_64-pc-windows-gnu: donors are for Linux and Windows"
                .to_owned());
        }
        let name = parts[0];
        if text.starts_with("x86-64-") {
            return Err("the architecture is spelt `x86_64`".to_owned());
        }
        let arch = arch(name).ok_or_else(|| {
            let known: Vec<&str> = Arch::ALL.into_iter().map(Arch::name).collect();
            format!("no donor is for `{}`; there are some for {}", printable(name), known.join(", "))
        })?;
        // Any word may be a vendor, but for a slip in one of those that toolchains have.
        if let Some(vendor) = parts.get(1).filter(|vendor| !VENDORS.contains(vendor))
            && similar(vendor, VENDORS).is_some()
        {
            return Err(format!("no toolchain has the vendor `{}`", printable(vendor)));
        }
        // In zig's `gnu.2.31`, the number is the glibc release to link for.
        let family = libc.split('.').next().unwrap_or(libc);
        let libc = match family {
            "musl" | "musleabihf" => Libc::Musl,
            "gnu" | "gnueabihf" => Libc::Glibc,
            "musleabi" | "gnueabi" => {
                let libc = printable(libc);
                return Err(format!("`{libc}` passes floats in integer registers; donors are for hard float (eabihf)"));
            }
            _ => return Err(format!("`{}` is neither musl nor glibc", printable(libc))),
        };
        // Debian, clang and Rust all spell ARM `eabihf`; `arm-linux-musl` would be soft float.
        if arch == Arch::Arm && !family.ends_with("eabihf") {
            return Err("on ARM donors are for hard float: expected an end in `eabihf`, as in `arm-linux-musleabihf`"
                .to_owned());
        }
        Ok(Triple { text: text.to_owned(), arch, libc })
    }
}

/// Returns the triple that a misspelt one may mean: the known spelling of each part, in the order of a triple.
pub(crate) fn meant(text: &str) -> Option<String> {
    const ARCHES: [&str; 8] = ["x86_64", "amd64", "aarch64", "arm64", "riscv64", "riscv64gc", "i686", "armv7"];
    const LIBCS: [&str; 4] = ["musl", "gnu", "musleabihf", "gnueabihf"];
    // Some write dashes or blanks where others write underscores, or join what belongs apart.
    const ELSEWHERE: [&str; 6] = ["windows", "w64", "mingw32", "apple", "darwin", "android"];
    if text.split('-').any(|part| ELSEWHERE.contains(&part)) {
        return None;
    }
    let typed = text;
    let text = text.trim().to_lowercase().replace([' ', '/'], "-").replace("x86-64", "x86_64").replace('_', "-");
    let text = text.replace("x86-64", "x86_64").replace("x64", "x86_64");
    let parts: Vec<&str> = text.split('-').filter(|part| !part.is_empty()).collect();
    let (first, last) = (*parts.first()?, *parts.last()?);
    let known = |part: &str, names: &'static [&'static str]| {
        names.iter().find(|name| **name == part).copied().or_else(|| similar(part, names.iter().copied()))
    };
    let arch = known(first, &ARCHES)?;
    let libc = known(last, &LIBCS).or_else(|| (last == "linux" || parts.len() == 1).then_some("musl"))?;
    let vendor = parts.iter().find_map(|part| known(part, &VENDORS));
    let vendor = vendor.map(|vendor| format!("-{vendor}")).unwrap_or_default();
    let hard = if arch == "armv7" && !libc.ends_with("eabihf") { "eabihf" } else { "" };
    let triple = format!("{arch}{vendor}-linux-{libc}{hard}");
    (triple != typed && Triple::read(&triple).is_ok()).then_some(triple)
}

/// Returns the architecture with this name or alias.
fn arch(name: &str) -> Option<Arch> {
    Some(match name {
        "x86_64" | "amd64" => Arch::X86_64,
        "aarch64" | "arm64" => Arch::Aarch64,
        "riscv64" | "riscv64gc" => Arch::Riscv64,
        "i386" | "i486" | "i586" | "i686" | "x86" => Arch::I686,
        "arm" | "armv7" | "armv7a" | "armv7l" | "thumbv7neon" => Arch::Arm,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings() {
        let musl = |text: &str| Triple::parse(text).map(|triple| (triple.arch, triple.libc));
        for text in [
            "x86_64-unknown-linux-musl",
            "x86_64-swift-linux-musl",
            "x86_64-linux-musl",
            "x86_64-alpine-linux-musl",
            "x86_64-pc-linux-musl",
            "amd64-linux-musl",
        ] {
            assert_eq!(musl(text), Ok((Arch::X86_64, Libc::Musl)), "{text}");
        }
        assert_eq!(musl("aarch64-swift-linux-musl"), Ok((Arch::Aarch64, Libc::Musl)));
        assert_eq!(musl("aarch64-linux-gnu.2.31"), Ok((Arch::Aarch64, Libc::Glibc)));
        assert_eq!(musl("riscv64gc-unknown-linux-musl"), Ok((Arch::Riscv64, Libc::Musl)));
        assert_eq!(musl("x86-linux-musl"), Ok((Arch::I686, Libc::Musl)));
        assert_eq!(musl("armv7-unknown-linux-musleabihf"), Ok((Arch::Arm, Libc::Musl)));
        assert_eq!(musl("arm-linux-gnueabihf"), Ok((Arch::Arm, Libc::Glibc)));
        for text in ["x86_64-pc-windows-gnu", "x86_64-pc-windows-gnullvm", "x86_64-windows-gnu", "x86_64-w64-mingw32"] {
            assert_eq!(musl(text), Ok((Arch::X86_64, Libc::WindowsGnu)), "{text}");
        }
        assert_eq!(musl("x86_64-pc-windows-msvc"), Ok((Arch::X86_64, Libc::WindowsMsvc)));
    }

    #[test]
    fn usual_triples_are_triples() {
        for text in USUAL {
            Triple::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        }
    }

    #[test]
    fn names_in_rust() {
        for (text, name) in [
            ("x86_64-linux-musl", "x86_64-unknown-linux-musl"),
            ("amd64-unknown-linux-musl", "x86_64-unknown-linux-musl"),
            ("riscv64-linux-musl", "riscv64gc-unknown-linux-musl"),
            ("i586-unknown-linux-musl", "i586-unknown-linux-musl"),
            ("armv7l-unknown-linux-musleabihf", "armv7-unknown-linux-musleabihf"),
            ("arm-unknown-linux-musleabihf", "arm-unknown-linux-musleabihf"),
        ] {
            assert_eq!(Triple::parse(text).unwrap().rust_name(), name);
        }
    }

    #[test]
    fn misspelt_triples() {
        for (typed, meant) in [
            ("x86_64-unknown-linux-mus", "x86_64-unknown-linux-musl"),
            ("x86-64-unknown-linux-musl", "x86_64-unknown-linux-musl"),
            ("X86_64-unknown-linux-musl", "x86_64-unknown-linux-musl"),
            ("x86_64-unkown-linx-musl", "x86_64-unknown-linux-musl"),
            ("x86_64-linux-mulsl", "x86_64-linux-musl"),
            ("x86_64_linux_musl", "x86_64-linux-musl"),
            ("x86_64-musl", "x86_64-linux-musl"),
            ("x86_64-linux", "x86_64-linux-musl"),
            ("x86_64-unkown-linux-musl", "x86_64-unknown-linux-musl"),
            ("aarch64-swfit-linux-musl", "aarch64-swift-linux-musl"),
            ("aarch46-linux-gnu", "aarch64-linux-gnu"),
            ("aarch64", "aarch64-linux-musl"),
            ("armv7-linux-musl", "armv7-linux-musleabihf"),
        ] {
            let error = Triple::parse(typed).expect_err(typed);
            assert!(error.ends_with(&format!("; did you mean `{meant}`?")), "{typed}: {error}");
        }
        for other in ["", "mips-linux-musl", "x86_64-apple-darwin", "windows", "x86_64-linux-android"] {
            let error = Triple::parse(other).expect_err(other);
            assert!(!error.contains("did you mean"), "{other}: {error}");
        }
    }

    #[test]
    fn what_no_donor_is_for() {
        for (text, part) in [
            ("x86_64", "ARCH"),
            ("x86_64-linux", "ARCH"),
            ("", "ARCH"),
            ("x86_64-apple-darwin", "Linux"),
            ("x86_64-a-b-linux-musl", "Linux"),
            ("mips-linux-musl", "`mips`"),
            ("aarch64-pc-windows-gnu", "`aarch64`"),
            ("x86_64-pc-windows-cygnus", "Windows"),
            ("x86_64-linux-muslx32", "`muslx32`"),
            ("x86_64-linux-android", "neither"),
            ("arm-linux-musleabi", "hard float"),
            ("arm-linux-musl", "hard float"),
        ] {
            let error = Triple::parse(text).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
