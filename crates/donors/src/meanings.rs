//! The meaning of each option of `--set`: its unit, and a sentence.

/// The unit of an option's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Milliseconds.
    Milliseconds,
    /// 1,024 bytes.
    KiB,
    /// Bytes.
    Bytes,
    /// One of a few values, each with a meaning.
    Choice,
    /// A number of things that the sentence names.
    Number,
    /// Per cent.
    Percent,
}

impl Unit {
    /// The unit as it follows a number; empty for numbers without one.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Milliseconds => "ms",
            Unit::KiB => "KiB",
            Unit::Bytes => "bytes",
            Unit::Percent => "%",
            Unit::Choice | Unit::Number => "",
        }
    }
}

/// An option.
#[derive(Debug)]
pub struct About {
    /// Its name.
    pub option: &'static str,
    /// The donors that this is about: those whose names begin with one of these. None: all others that have the option.
    donors: &'static [&'static str],
    /// The unit of its value.
    pub unit: Unit,
    /// Its effect, as a clause without a full stop.
    pub text: &'static str,
}

const fn about(option: &'static str, donors: &'static [&'static str], unit: Unit, text: &'static str) -> About {
    About { option, donors, unit, text }
}

use Unit::{Bytes, Choice, KiB, Milliseconds, Number, Percent};

/// The options. Rows with names of donors come before the row for the others.
static OPTIONS: &[About] = &[
    about("purge_delay", &["snmalloc"], Choice, "0: free memory goes back to the kernel; -1: never"),
    about("purge_delay", &["rpmalloc"], Choice, "0: free spans go back at once; -1: they are kept, up to the bound"),
    about("purge_delay", &["scudo"], Milliseconds, "time between two searches for unused pages; 0: at once, -1: never"),
    about(
        "purge_delay",
        &[],
        Milliseconds,
        "how long free memory waits before it goes back; 0: not at all, -1: for ever",
    ),
    about(
        "purge_decommits",
        &[],
        Choice,
        "1: pages go back at once (MADV_DONTNEED); 0: when the kernel needs them (MADV_FREE)",
    ),
    about("purge_debt", &[], KiB, "free memory that may stay resident in each place where it waits; -1: without bound"),
    about("purge_credit", &[], KiB, "how much more may stay for a program that frees memory and needs it again"),
    about("purge_period", &[], Milliseconds, "a thread gives back what is due each time; 0: no such thread"),
    about("arena_reserve", &[], KiB, "address space that is mapped at once"),
    about(
        "arena_eager_commit",
        &[],
        Choice,
        "0: arenas are committed as needed; 1: at once; 2: at once where the system overcommits",
    ),
    about("arena_purge_mult", &[], Number, "free memory in arenas waits so many times purge_delay"),
    about("allow_large_os_pages", &[], Choice, "1: take large pages of 2 or 4 MiB where the system has them"),
    about("allow_thp", &["jemalloc"], Choice, "transparent huge pages: 0 never, 1 as the system is set, 2 always"),
    about("allow_thp", &[], Choice, "0: no transparent huge pages; otherwise they are allowed"),
    about("abandoned_reclaim_on_free", &[], Choice, "1: a free takes over the segment of a thread that has ended"),
    about("max_segment_reclaim", &[], Percent, "share of abandoned segments that a thread may take over at a time"),
    about("page_full_retain", &[], Number, "free pages of each size that a thread keeps"),
    about(
        "page_max_reclaim",
        &[],
        Number,
        "pages of a size up to which a thread takes over abandoned ones; -1: without bound",
    ),
    about("arenas", &["hardened"], Number, "sets of slabs that threads are spread over"),
    about("arenas", &[], Number, "arenas that threads are spread over; 0: four for each processor"),
    about("tcache", &[], Choice, "0: threads keep no free blocks for themselves"),
    about("tcache_max", &[], Bytes, "largest block that a thread keeps for itself"),
    about("retain", &[], Choice, "1: address space is kept for later; 0: it is unmapped"),
    about("thread_cache", &["snmalloc"], KiB, "free memory that may stay resident for each thread"),
    about("thread_cache", &[], Number, "free spans of 64 KiB that a thread keeps, for each length of spans"),
    about("global_cache", &[], Number, "free spans of 64 KiB that all threads keep together, for each length"),
    about(
        "quarantine_size_kb",
        &[],
        KiB,
        "size of the quarantine, where freed blocks wait before they are used again; 0: none",
    ),
    about("thread_local_quarantine_size_kb", &[], KiB, "each thread's part of the quarantine; 0: 64 if there is one"),
    about(
        "quarantine_max_chunk_size",
        &[],
        Bytes,
        "largest block that waits in the quarantine; 0: 2048 if there is one",
    ),
    about("zero_contents", &[], Choice, "1: blocks are filled with zeros"),
    about("pattern_fill_contents", &[], Choice, "1: blocks are filled with the byte 0xab"),
    about("gwp_asan_sample_rate", &[], Number, "about one of so many allocations is sampled; 1: each, 0: none"),
    about("gwp_asan_slots", &[], Number, "sampled blocks that there are at once"),
    about("large_cache_entries", &[], Number, "freed blocks of 128 KiB or more that are kept"),
    about("large_cache_kb", &[], KiB, "largest freed block that is kept"),
];

/// Returns what is known of a donor's option.
pub fn about_option(donor: &str, option: &str) -> Option<&'static About> {
    let named = |about: &&About| about.option == option;
    let fits = |about: &&About| about.donors.is_empty() || about.donors.iter().any(|name| donor.starts_with(name));
    OPTIONS.iter().filter(named).find(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_of_every_donor_is_explained() {
        let mut used = Vec::new();
        for donor in crate::all() {
            for option in donor.options().unwrap() {
                let about = about_option(donor.name, &option.name);
                let about = about.unwrap_or_else(|| panic!("{} {}: add it to {}", donor.name, option.name, file!()));
                assert!(!about.text.ends_with('.') && about.text.len() < 100, "{}", about.text);
                used.push(std::ptr::from_ref(about));
            }
        }
        for about in OPTIONS {
            assert!(used.contains(&std::ptr::from_ref(about)), "no donor has `{}` {:?}", about.option, about.donors);
        }
    }
}
