//! Profiles that are written here, read and reported.

use std::io::Write;

use super::*;
use crate::protobuf::Message;

/// A profile in the making.
pub(crate) struct Builder {
    texts: Vec<String>,
    message: Message,
}

/// A sample: its functions from the innermost on, [allocated blocks, bytes, live blocks, bytes], its lifetime's label,
/// and its number of sampled blocks.
type Sample<'s> = (&'s [&'s str], [u64; 4], &'s str, u64);

const KINDS: [&str; 4] = ["alloc_objects", "alloc_space", "inuse_objects", "inuse_space"];

impl Builder {
    pub(crate) fn new(kinds: &[&str]) -> Builder {
        let mut builder = Builder { texts: vec![String::new()], message: Message::default() };
        for kind in kinds {
            let mut value = Message::default();
            value.number(1, builder.text(kind));
            builder.message.message(1, &value);
        }
        builder
    }

    fn text(&mut self, text: &str) -> u64 {
        let at = self.texts.iter().position(|known| known == text).unwrap_or_else(|| {
            self.texts.push(text.to_owned());
            self.texts.len() - 1
        });
        at as u64
    }

    fn fact(&mut self, name: &str, value: &str) {
        let at = self.text(&format!("allograft: {name}={value}"));
        self.message.packed(13, [at]);
    }

    /// Adds a sample. Each name gets a function and a location of that number.
    fn sample(&mut self, (names, values, lifetime, sampled): Sample<'_>) {
        let mut sample = Message::default();
        let numbers: Vec<u64> = names.iter().map(|name| self.text(name) + 1).collect();
        sample.packed(1, numbers.iter().copied());
        sample.packed(2, values);
        for (label, text, number) in [("lifetime", lifetime, 0), ("sampled", "", sampled)] {
            let mut message = Message::default();
            message.number(1, self.text(label));
            message.number(2, self.text(text));
            message.number(3, number);
            if number > 0 || !text.is_empty() {
                sample.message(3, &message);
            }
        }
        self.message.message(2, &sample);
        for (number, name) in numbers.into_iter().zip(names) {
            let (mut function, mut line, mut location) = (Message::default(), Message::default(), Message::default());
            function.number(1, number);
            function.number(2, self.text(name));
            function.number(4, self.text("/src/x.c"));
            line.number(1, number);
            line.number(2, 7);
            location.number(1, number);
            location.message(4, &line);
            self.message.message(4, &location);
            self.message.message(5, &function);
        }
    }

    pub(crate) fn bytes(mut self) -> Vec<u8> {
        for text in std::mem::take(&mut self.texts) {
            self.message.bytes(6, text.as_bytes());
        }
        self.message.0
    }

    fn profile(self) -> HeapProfile {
        HeapProfile::parse(&self.bytes()).unwrap()
    }
}

/// Blocks of 1024 bytes: allocated ones, live ones.
fn blocks(allocated: u64, live: u64) -> [u64; 4] {
    [allocated, allocated << 10, live, live << 10]
}

fn report(samples: &[Sample<'_>], facts: &[(&str, &str)]) -> HeapReport {
    Heap::new(written(samples, facts), None, None).unwrap().report
}

fn written(samples: &[Sample<'_>], facts: &[(&str, &str)]) -> HeapProfile {
    let mut builder = Builder::new(&KINDS);
    builder.message.number(12, 1024);
    facts.iter().for_each(|(name, value)| builder.fact(name, value));
    samples.iter().for_each(|sample| builder.sample(*sample));
    builder.profile()
}

/// Allocators, containers and copies of strings pass blocks on; what called them wanted the blocks.
#[test]
fn a_call_site_is_the_function_that_wanted_the_blocks() {
    let push = ["malloc", "__rust_alloc", "alloc::raw_vec::finish_grow", "app::parse", "app::read", "main"];
    let report = report(
        &[
            (&push, blocks(700, 700), "live", 700),
            (&push[..4], blocks(90, 0), "under 1 ms", 90),
            (&push[..4], blocks(10, 0), "under 10 s", 10),
            (&["strdup", "name", "main"], blocks(150, 150), "live", 150),
            (&["strdup", "name", "other", "main"], blocks(50, 50), "live", 50),
            (&["operator new", "malloc"], blocks(100, 100), "live", 100),
            (&[], blocks(1, 1), "live", 1),
        ],
        &[],
    );
    let sites: Vec<_> = report.sites.iter().map(|site| (site.function.as_str(), site.live.objects)).collect();
    assert_eq!(sites, [("app::parse", 700), ("name", 200), ("malloc", 100), ("[no stack]", 1)]);
    let parse = &report.sites[0];
    assert_eq!(
        (parse.called_by().join("; "), parse.line.as_deref()),
        ("called by app::read < main".into(), Some("x.c:7"))
    );
    assert_eq!(report.sites[1].called_by(), ["75 % by main", "25 % by other < main"]);
    assert_eq!((parse.allocated.objects, parse.lifetime().as_deref()), (800, Some("under 1 ms")));
    assert_eq!(report.sites[1].lifetime().as_deref(), Some("none freed"));
    let freed: Vec<_> = parse.freed.iter().map(|freed| (freed.lifetime, freed.objects, freed.bytes >> 10)).collect();
    assert_eq!(freed, [("under 1 ms", 90, 90), ("under 10 s", 10, 10)]);
    assert_eq!((report.live.bytes >> 10, report.allocated.bytes >> 10, report.sampled), (1001, 1101, Some(1001)));
    assert_eq!((report.most, report.summary().as_str()), (2, "2 call sites hold 90 % of the live bytes"));
}

/// The estimate's range decides, not the estimate: few samples give no answer.
#[test]
fn leak_or_retention() {
    let retention = |live: u64, sampled: u64, resident: &str| {
        report(&[(&["main"], blocks(live, live), "live", sampled)], &[("resident_bytes", resident)]).retention
    };
    let mib = (1000_u64 << 10).to_string();
    for (live, sampled, resident, expected) in [
        (950, 950, &*mib, Holds::Live),
        (720, 100, &mib, Holds::Both),
        (500, 500, &mib, Holds::Both),
        (200, 200, &mib, Holds::Retained),
        (200, 10, &mib, Holds::Unknown),
        (200, 200, "unknown", Holds::Unknown),
        (1200, 1200, &mib, Holds::Live),
    ] {
        let found = retention(live, sampled, resident);
        assert_eq!(found.verdict, expected, "{live} {sampled} {found:?}");
    }
    assert_eq!(retention(200, 400, &mib).live_range, Some((180 << 10, 220 << 10)));
    assert_eq!(retention(1200, 1200, &mib).retained_bytes, Some(0));
}

/// A leak grows by more than chance and keeps what it allocates. A site with long-lived blocks has doubts. A site that
/// frees as much as it allocates is not a suspect.
#[test]
fn growth_has_reasons_and_doubts() {
    let samples = |leak: u64, cache: u64, busy: u64| -> HeapProfile {
        let at = if leak > 100 { "61.5" } else { "1.5" };
        let samples: [Sample<'_>; 7] = [
            (&["leak", "main"], blocks(leak, leak), "live", leak),
            (&["leak", "main"], blocks(50, 0), "under 10 ms", 50),
            (&["cache", "main"], blocks(cache, cache), "live", cache),
            (&["cache", "main"], blocks(40, 0), "10 s or longer", 40),
            (&["busy", "main"], blocks(busy / 2, busy / 2), "live", busy / 2),
            (&["busy", "main"], blocks(9 * busy, 0), "under 1 s", 9 * busy),
            (&["steady", "main"], blocks(5000 + leak / 100, 5000 + leak / 100), "live", 5000),
        ];
        written(&samples, &[("process", "7"), ("seconds", at)])
    };
    let heap = Heap::new(samples(4100, 3100, 2100), Some(samples(100, 100, 100)), None).unwrap();
    let growth = heap.report.growth.as_ref().unwrap();
    assert_eq!((growth.same_process, growth.seconds, growth.objects), (Some(true), Some(60.0), 8040));
    let site = |name: &str| growth.sites.iter().find(|site| site.function == name).unwrap();
    assert_eq!((site("leak").bytes, site("leak").suspect), (4000 << 10, true));
    let reasons = ["grew by 3.91 MiB and 4,000 blocks in 60.0 s", "100 % of what it allocated meanwhile is live"];
    assert_eq!(site("leak").reasons[..2], reasons);
    assert_eq!(
        (&*site("leak").reasons[2], site("leak").doubts.len()),
        ("the blocks that it frees live under 10 ms", 0)
    );
    assert!(site("cache").suspect && site("cache").doubts[0].contains("10 s or longer: it may be a cache"));
    assert!(!site("busy").suspect && site("busy").doubts[0].contains("is freed again"));
    assert!(!site("steady").suspect && site("steady").doubts.is_empty());
    assert!(growth.summary().ends_with("2 call sites grew as leaks do"), "{}", growth.summary());
    let page = heap.page();
    for part in ["Growth", "data-name=\"leak\"", "maybe: grew by", "data-whole=\"bytes\"", "no: of what it"] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert!(!page.contains("src=") && !page.contains("href="));
    // In the wrong order, and of two processes.
    assert!(matches!(Heap::new(samples(100, 1, 1), Some(samples(4100, 1, 1)), None), Err(HeapError::Swapped)));
    let other = written(&[(&["leak", "main"], blocks(1, 1), "live", 1)], &[("process", "8")]);
    let growth = Heap::new(samples(4100, 1, 1), Some(other), None).unwrap().report.growth.unwrap();
    assert!(growth.same_process == Some(false) && growth.sites.iter().all(|site| !site.suspect));
}

/// Names from hostile files are escaped, and make no columns and no tags.
#[test]
fn a_page_escapes_names() {
    let samples: [Sample<'_>; 1] = [(&["<script>x</script>", "main\n\"'&"], blocks(9, 9), "live", 9)];
    let page = Heap::new(written(&samples, &[("donor", "<b>")]), None, None).unwrap().page();
    assert!(page.matches("<script>").count() == 1 && !page.contains("<b>") && page.contains("&lt;script&gt;x"));
}

/// Go names the sizes of blocks in use and their number the same; others have them alone.
#[test]
fn profiles_of_others() {
    for (kinds, values, live) in [
        (&KINDS[..], vec![1, 2, 3, 4], (4, 3)),
        (&["objects", "space"], vec![3, 4], (4, 3)),
        (&["inuse_space"], vec![4], (4, 0)),
        (&["alloc_objects", "alloc_space"], vec![3, 4], (0, 0)),
    ] {
        let mut builder = Builder::new(kinds);
        let mut sample = Message::default();
        // Numbers may also come one by one.
        values.iter().for_each(|value| sample.number(2, *value));
        builder.message.message(2, &sample);
        let report = Heap::new(builder.profile(), None, None).unwrap().report;
        assert_eq!((report.live.bytes, report.live.objects), live, "{kinds:?}");
        let says = report.warnings.iter().any(|warning| warning.contains("does not say which blocks are live"));
        assert_eq!(says, live == (0, 0));
        assert_eq!(report.sampled, Some(0).filter(|_| live.1 == 0));
    }
}

#[test]
fn what_is_no_heap_profile() {
    let error = |bytes: &[u8]| HeapProfile::parse(bytes).err().unwrap().to_string();
    assert!(error(b"").contains("it is empty"));
    assert!(error(b"heap profile: 1: 2 [3: 4] @ heap_v2/1\n").contains("gperftools"));
    assert!(error(b"heap_v2/524288\n").contains("jemalloc"));
    assert!(error(b"\x7fELF\x02\x01").contains("it is a program"));
    assert!(error(&Builder::new(&["samples", "cpu"]).bytes()).contains("a profile of samples, cpu, expected"));
    assert!(error(&[0x12, 0]).contains("no types of samples"));
    let refers = |field: u32, part: u32, what: &str| {
        let (mut builder, mut inner) = (Builder::new(&KINDS), Message::default());
        inner.packed(part, [77]);
        builder.message.message(field, &inner);
        assert!(error(&builder.bytes()).contains(what), "{what}");
    };
    refers(2, 1, "names location 77, which it does not contain");
    let mut builder = Builder::new(&KINDS);
    builder.sample((&["main"], [1, u64::MAX, 1, u64::MAX], "live", 1));
    assert!(matches!(HeapProfile::parse(&builder.bytes()), Err(HeapError::Difference)));
    let many: Vec<u8> = [0x12, 0].repeat(500_001);
    assert!(error(&many).contains("more samples than are read"));
}

/// Each cut and each changed byte gives a profile or an error, packed or not.
#[test]
fn damaged_profiles_are_read_without_a_panic() {
    let mut builder = Builder::new(&KINDS);
    builder.message.number(12, 1024);
    builder.sample((&["alloc::x", "app", "main"], blocks(3, 2), "live", 2));
    builder.fact("resident_bytes", "4096");
    let whole = builder.bytes();
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::none());
    packed.write_all(&whole).unwrap();
    let packed = packed.finish().unwrap();
    let read = |bytes: &[u8]| {
        HeapProfile::parse(bytes).ok().map(|profile| Heap::new(profile, None, None).map(|heap| heap.page().len()))
    };
    let (mut good, members) = (0, [&packed[..], &packed].concat());
    assert!(read(&whole).is_some() && read(&packed).is_some() && read(&members).is_some());
    for bytes in [&whole, &packed] {
        for at in 0..bytes.len() {
            good += usize::from(read(&bytes[..at]).is_some());
            for flip in [1, 0x80, 0xff] {
                let mut damaged = bytes.clone();
                damaged[at] ^= flip;
                good += usize::from(read(&damaged).is_some());
            }
        }
    }
    // A checksum protects packed ones.
    assert!(good > 10 && good < 4 * whole.len(), "{good}");
    assert!(matches!(HeapProfile::parse(&packed[..packed.len() - 9]), Err(HeapError::Packed(_))));
}

/// A small file may unpack to a large one.
#[test]
fn a_bomb_is_not_unpacked() {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let zeroes = vec![0; 1 << 20];
    (0..66).for_each(|_| packed.write_all(&zeroes).unwrap());
    let error = HeapProfile::parse(&packed.finish().unwrap()).err().unwrap();
    assert!(matches!(error, HeapError::TooMany("bytes")), "{error}");
}
