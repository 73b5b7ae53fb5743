//! The home of an allocator: from the catalogue of donors or, for allocators that are not donors, from a table.

/// An allocator's home.
#[derive(Debug)]
pub(super) struct Upstream {
    /// Its page, or its repository.
    pub(super) homepage: &'static str,
    /// The SPDX expression of its licence, for donors only: older releases of others may have had a different licence.
    pub(super) license: Option<&'static str>,
}

/// The homes of allocators that are not donors. Two projects are called tcmalloc, so it is not listed.
const HOMES: [(&str, &str); 5] = [
    (inspector::name::MALLOCNG, "https://musl.libc.org/"),
    (inspector::name::OLDMALLOC, "https://musl.libc.org/"),
    (inspector::name::GLIBC, "https://www.gnu.org/software/libc/"),
    (inspector::name::GO, "https://go.dev/"),
    (inspector::name::ZIG, "https://ziglang.org/"),
];

/// Returns the home of the allocator `name`, if it is known.
pub(super) fn find(name: &str) -> Option<Upstream> {
    if let Some(donor) = donors::find(name) {
        return Some(Upstream { homepage: donor.homepage?, license: Some(donor.license) });
    }
    let (_, homepage) = HOMES.into_iter().find(|(known, _)| *known == name)?;
    Some(Upstream { homepage, license: None })
}
