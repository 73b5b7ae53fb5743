//! Large pages: the configuration that makes an allocator use them, and the check that this system has them.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

/// The folder in which the kernel lists its large pages (Documentation/admin-guide/mm/hugetlbpage.rst and
/// transhuge.rst).
pub(crate) const SYSTEM: &str = "/sys/kernel/mm";

/// The pages that an allocator is configured to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Pages {
    /// Whatever it takes by itself
    Own,
    /// 2 MiB, which the kernel makes of small ones where madvise() asks for them
    Madvise,
    /// 2 MiB, reserved by the system's administrator (hugetlbfs)
    #[value(name = "hugetlb-2m")]
    Hugetlb2M,
    /// 1 GiB, reserved by the system's administrator (hugetlbfs)
    #[value(name = "hugetlb-1g")]
    Hugetlb1G,
}

/// The configuration of an allocator: arguments of `allograft emit`, and variables of the program's environment.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct AllocatorOptions {
    pub(crate) settings: Vec<&'static str>,
    pub(crate) variables: Vec<(&'static str, &'static str)>,
}

impl Pages {
    /// Returns the configuration for an allocator, a donor or `glibc`; `None` if it has no such option.
    pub(crate) fn options(self, allocator: &str) -> Option<AllocatorOptions> {
        let setting = |setting| Some(AllocatorOptions { settings: vec![setting], variables: Vec::new() });
        let variable = |name, value| Some(AllocatorOptions { settings: Vec::new(), variables: vec![(name, value)] });
        match (self, allocator) {
            (Pages::Own, _) => Some(AllocatorOptions::default()),
            // The GNU C Library, "Memory Allocation Tunables": 1 is madvise, 2 the default size of hugetlbfs, more a
            // size in bytes.
            (Pages::Madvise, "glibc") => variable("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1"),
            (Pages::Hugetlb2M, "glibc") => variable("GLIBC_TUNABLES", "glibc.malloc.hugetlb=2097152"),
            (Pages::Hugetlb1G, "glibc") => variable("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1073741824"),
            (Pages::Madvise, "jemalloc" | "mimalloc3") => setting("allow_thp=2"),
            (Pages::Madvise, "mimalloc" | "mimalloc-secure") => setting("allow_thp=1"),
            (Pages::Hugetlb2M, "mimalloc" | "mimalloc-secure" | "mimalloc3") => setting("allow_large_os_pages=1"),
            // mimalloc's own variable: the number of pages of 1 GiB that it takes at its start.
            (Pages::Hugetlb1G, "mimalloc" | "mimalloc-secure" | "mimalloc3") => {
                variable("MIMALLOC_RESERVE_HUGE_OS_PAGES", "1")
            }
            _ => None,
        }
    }

    /// Refuses pages that this system does not have. `system` is [`SYSTEM`].
    ///
    /// # Errors
    /// The system lacks the pages; the message says why, and how to get them.
    pub(crate) fn present(self, system: &Path) -> Result<()> {
        match self {
            Pages::Own => Ok(()),
            Pages::Madvise => {
                let path = system.join("transparent_hugepage/enabled");
                let said = read(&path)?;
                if said.contains("[never]") {
                    bail!(
                        "the kernel makes no huge pages: `{}` says `{said}`\nhelp: as root, `echo madvise > {0}`",
                        path.display()
                    );
                }
                Ok(())
            }
            Pages::Hugetlb2M => reserved(system, 2048),
            Pages::Hugetlb1G => reserved(system, 1024 * 1024),
        }
    }
}

/// Refuses pages of this size in kB unless some are free.
fn reserved(system: &Path, kilobytes: u32) -> Result<()> {
    let folder = system.join("hugepages").join(format!("hugepages-{kilobytes}kB"));
    if !folder.is_dir() {
        bail!(
            "this processor or kernel has no pages of {kilobytes} kB: there is no `{}`\nhelp: choose other `--pages`",
            folder.display()
        );
    }
    let number = |name: &str| {
        let path = folder.join(name);
        read(&path)?.parse::<u64>().with_context(|| format!("`{}` holds no number", path.display()))
    };
    let (all, free) = (number("nr_hugepages")?, number("free_hugepages")?);
    if free == 0 {
        bail!(
            "no page of {kilobytes} kB is free: `{}` says {all} reserved, {free} free\nhelp: as root, `echo NUMBER > \
             {0}/nr_hugepages`, best at boot",
            folder.display()
        );
    }
    Ok(())
}

fn read(path: &Path) -> Result<String> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read `{}`", path.display()))?;
    Ok(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn system(files: &[(&str, &str)]) -> tempfile::TempDir {
        let made = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = made.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        made
    }

    #[test]
    fn pages_that_the_system_lacks_are_refused_with_the_reason() {
        let large = "hugepages/hugepages-2048kB";
        let (all, free) = (format!("{large}/nr_hugepages"), format!("{large}/free_hugepages"));
        let none =
            system(&[("transparent_hugepage/enabled", "always madvise [never]\n"), (&all, "8\n"), (&free, "0\n")]);
        let refused = |pages: Pages| pages.present(none.path()).unwrap_err().to_string();
        assert!(refused(Pages::Madvise).contains("says `always madvise [never]`\nhelp: "));
        assert!(refused(Pages::Hugetlb2M).contains("says 8 reserved, 0 free\nhelp: "));
        assert!(refused(Pages::Hugetlb1G).contains("has no pages of 1048576 kB"));
        Pages::Own.present(none.path()).unwrap();
        let some =
            system(&[("transparent_hugepage/enabled", "always [madvise] never\n"), (&all, "8\n"), (&free, "3\n")]);
        Pages::Madvise.present(some.path()).unwrap();
        Pages::Hugetlb2M.present(some.path()).unwrap();
    }

    #[test]
    fn only_allocators_with_such_an_option_are_told() {
        assert_eq!(Pages::Own.options("snmalloc"), Some(AllocatorOptions::default()));
        assert_eq!(Pages::Hugetlb2M.options("snmalloc"), None);
        assert_eq!(Pages::Hugetlb2M.options("mimalloc3").unwrap().settings, ["allow_large_os_pages=1"]);
    }
}
