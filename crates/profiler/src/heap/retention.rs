//! Leak or retention? The donor's own figures beside the estimate of live bytes.

use serde::Serialize;

use super::reader::HeapProfile;
use crate::size::size;

/// The memory of the allocator, as the program wrote it into the profile.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Retention {
    /// The answer.
    pub verdict: Holds,
    /// The answer, in words.
    pub text: String,
    /// The allocator's memory that is resident; null if it is unknown.
    pub resident_bytes: Option<u64>,
    /// The part of it that is not live: what the allocator keeps, or loses between blocks. Null if it is unknown.
    pub retained_bytes: Option<u64>,
    /// Address space that the allocator has; null if it is unknown.
    pub reserved_bytes: Option<u64>,
    /// The bytes that the allocator has given back to the kernel since the start; null if they are unknown.
    pub returned_bytes: Option<u64>,
    /// The least and the greatest number of live bytes that fits the samples, in 95 of 100 cases; null if the number
    /// of samples is unknown.
    pub live_range: Option<(u64, u64)>,
}

/// The main part of an allocator's resident memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Holds {
    /// Mostly live blocks: the program keeps them.
    Live,
    /// Mostly memory that is not live: the allocator keeps it.
    Retained,
    /// Much of both.
    Both,
    /// It is unknown.
    Unknown,
}

/// The part of resident memory from which on one kind of it is most of it.
const MOST: f64 = 0.7;
/// The fewest samples for an answer.
const FEWEST: u64 = 20;

impl Retention {
    /// Compares the figures in `profile` with its live bytes, which are estimated from `sampled` blocks.
    pub(crate) fn new(profile: &HeapProfile, live: u64, sampled: Option<u64>) -> Retention {
        let figure = |name: &str| profile.facts.get(name).and_then(|value| value.parse::<u64>().ok());
        let resident = figure("resident_bytes").filter(|bytes| *bytes > 0);
        // Samples are drawn independently: their number has a Poisson distribution, whose double deviation covers 95 %.
        let spread = sampled.filter(|sampled| *sampled > 0).map(|sampled| 2.0 / (sampled as f64).sqrt());
        let range = spread.map(|spread| (live as f64 * (1.0 - spread).max(0.0), live as f64 * (1.0 + spread)));
        let retained = resident.map(|resident| resident.saturating_sub(live));
        let verdict = match (resident, range, sampled) {
            (Some(resident), Some((least, greatest)), Some(FEWEST..)) => match resident as f64 {
                resident if least >= MOST * resident => Holds::Live,
                resident if greatest <= (1.0 - MOST) * resident => Holds::Retained,
                _ => Holds::Both,
            },
            _ => Holds::Unknown,
        };
        let shares = resident.zip(retained).map(|(resident, retained)| {
            let share = (100.0 * live as f64 / resident as f64).min(100.0);
            format!(
                "Of {} that the allocator has in memory, about {} ({share:.0} %) are live, and {} are not",
                size(resident),
                size(live.min(resident)),
                size(retained)
            )
        });
        let answer = match verdict {
            Holds::Live => "The program keeps these blocks: look at the call sites",
            Holds::Retained => {
                "No leak shows in the live blocks: the allocator keeps what the program has freed, or its blocks lie \
                 scattered over it"
            }
            Holds::Both => "Look at the call sites for the one part, at the allocator's options for the other",
            Holds::Unknown => "Too few blocks were sampled to say more",
        };
        let text = match shares {
            Some(shares) => format!("{shares}. {answer}."),
            None => "The profile does not say how much memory the allocator has, so that nothing is known of what it \
                     retains."
                .to_owned(),
        };
        Retention {
            verdict,
            text,
            resident_bytes: resident,
            retained_bytes: retained,
            reserved_bytes: figure("reserved_bytes"),
            returned_bytes: figure("returned_bytes"),
            live_range: range.map(|(least, greatest)| (least as u64, greatest as u64)),
        }
    }
}
