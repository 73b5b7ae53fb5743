//! Facts about the machine, and its other work during a measurement.

use std::fs;

use nix::sys::resource::{UsageWho, getrusage};
use serde::{Deserialize, Serialize};

/// Facts that figures depend on. Facts that the machine does not report are absent.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Machine {
    /// Its architecture, as Rust names it.
    pub arch: String,
    /// The processor's model name.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub processor: Option<String>,
    /// The number of processors that this process may use.
    pub processors: usize,
    /// Bytes of main memory.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub memory_bytes: Option<u64>,
    /// The kernel's release.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub kernel: Option<String>,
    /// Whether it is a virtual machine (only x86 reports that).
    pub is_virtual: bool,
    /// The governor of its clock frequency.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub governor: Option<String>,
    /// When the kernel uses huge pages: `always`, `madvise` or `never`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub huge_pages: Option<String>,
}

impl Machine {
    /// Returns the facts about this machine.
    pub fn this() -> Machine {
        let information = read("/proc/cpuinfo").unwrap_or_default();
        let field = |name: &str| {
            let line = information.lines().find(|line| line.starts_with(name))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let memory = read("/proc/meminfo").and_then(|text| {
            let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?.trim().to_owned();
            line.strip_suffix("kB")?.trim().parse::<u64>().ok()
        });
        let huge_pages = read("/sys/kernel/mm/transparent_hugepage/enabled");
        Machine {
            arch: std::env::consts::ARCH.to_owned(),
            processor: field("model name").or_else(|| field("CPU part")),
            processors: processors(),
            memory_bytes: memory.map(|kibibytes| kibibytes * 1024),
            kernel: read("/proc/sys/kernel/osrelease").map(|text| text.trim().to_owned()),
            is_virtual: field("flags").is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
            governor: read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").map(|text| text.trim().to_owned()),
            huge_pages: huge_pages.and_then(|text| Some(text.split_once('[')?.1.split_once(']')?.0.to_owned())),
        }
    }

    /// Returns a description on one line.
    pub fn description(&self) -> String {
        let mut parts = vec![self.processor.clone().unwrap_or_else(|| self.arch.clone())];
        parts.push(format!("{} processors", self.processors));
        if let Some(memory) = self.memory_bytes {
            parts.push(format!("{} GiB", (memory + (1 << 29)) >> 30));
        }
        parts.extend(self.kernel.as_ref().map(|kernel| format!("Linux {kernel}")));
        if self.is_virtual {
            parts.push("virtual".to_owned());
        }
        parts.extend(self.governor.as_ref().map(|governor| format!("governor {governor}")));
        parts.extend(self.huge_pages.as_ref().map(|setting| format!("huge pages: {setting}")));
        parts.join(", ")
    }
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok()
}

/// Other work of the machine during a measurement. Figures that the machine does not report are absent.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Disturbance {
    /// The number of processes ready to run, averaged over the minute before.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub load_before: Option<f64>,
    /// The share of all processor time that programs other than the measured ones used, 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub others: Option<f64>,
    /// The share of all processor time that the hypervisor took from this machine, 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub stolen: Option<f64>,
}

impl Disturbance {
    /// Combines two spans of time: the load before the first, the greater of both for the other figures.
    #[must_use]
    pub fn and(self, later: Disturbance) -> Disturbance {
        let worse = |one: Option<f64>, other: Option<f64>| one.into_iter().chain(other).max_by(f64::total_cmp);
        Disturbance {
            load_before: self.load_before,
            others: worse(self.others, later.others),
            stolen: worse(self.stolen, later.stolen),
        }
    }

    /// Returns a description, if the disturbance was large enough.
    pub fn description(&self) -> Option<String> {
        let mut parts = Vec::new();
        if let Some(others) = self.others.filter(|others| *others > 0.05) {
            parts.push(format!("other programs took {:.0} % of the processors' time", others * 100.0));
        }
        if let Some(stolen) = self.stolen.filter(|stolen| *stolen > 0.01) {
            parts.push(format!("the virtual machine's host took away {:.0} %", stolen * 100.0));
        }
        let load = self.load_before.filter(|load| *load > processors() as f64 * 0.5);
        parts.extend(load.map(|load| format!("the load was {load:.1} on {} processors before", processors())));
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

/// Observes the machine during a measurement.
#[derive(Debug)]
pub struct Watch {
    load: Option<f64>,
    ticks: Option<Ticks>,
    own: f64,
}

impl Watch {
    /// Starts the observation.
    pub fn start() -> Watch {
        let load = read("/proc/loadavg").and_then(|text| text.split(' ').next()?.parse().ok());
        Watch { load, ticks: Ticks::now(), own: own_seconds() }
    }

    /// Returns the disturbance since the start.
    pub fn finish(self) -> Disturbance {
        let since = Ticks::now().zip(self.ticks).map(|(now, before)| now.since(before)).filter(|since| since.all > 0.0);
        // USER_HZ is 100 on every architecture that allograft supports.
        let own = (own_seconds() - self.own) * 100.0;
        Disturbance {
            load_before: self.load,
            others: since.map(|since| ((since.busy - own) / since.all).clamp(0.0, 1.0)),
            stolen: since.map(|since| since.stolen / since.all),
        }
    }
}

/// The first line of proc_stat(5).
#[derive(Debug, Clone, Copy)]
struct Ticks {
    all: f64,
    busy: f64,
    stolen: f64,
}

impl Ticks {
    fn now() -> Option<Ticks> {
        Ticks::read(&read("/proc/stat")?)
    }

    fn read(text: &str) -> Option<Ticks> {
        let line = text.lines().next()?.strip_prefix("cpu ")?;
        let ticks: Vec<f64> = line.split_whitespace().filter_map(|field| field.parse().ok()).collect();
        // user, nice, system, idle, iowait, irq, softirq, steal; guests are in user and nice.
        let [user, nice, system, idle, waiting, irq, softirq, stolen] = *ticks.get(..8)? else { return None };
        let busy = user + nice + system + irq + softirq;
        Some(Ticks { all: busy + idle + waiting + stolen, busy, stolen })
    }

    fn since(self, before: Ticks) -> Ticks {
        Ticks { all: self.all - before.all, busy: self.busy - before.busy, stolen: self.stolen - before.stolen }
    }
}

/// Returns the processor time of this process and of its children that have ended.
fn own_seconds() -> f64 {
    let seconds = |who| {
        getrusage(who).map_or(0.0, |usage| {
            let sum = usage.user_time() + usage.system_time();
            to_seconds(sum.tv_sec(), sum.tv_usec())
        })
    };
    seconds(UsageWho::RUSAGE_SELF) + seconds(UsageWho::RUSAGE_CHILDREN)
}

fn to_seconds(seconds: i64, microseconds: i64) -> f64 {
    seconds as f64 + microseconds as f64 * 1e-6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_known() {
        let machine = Machine::this();
        assert!(machine.processors > 0 && machine.kernel.is_some() && machine.memory_bytes.is_some());
        assert!(machine.description().contains("processors"));
    }

    #[test]
    fn others_are_told_from_ours() {
        let before = Ticks::read("cpu  100 0 50 800 50 0 0 0 0 0\ncpu0 1").unwrap();
        let since = Ticks::read("cpu  200 0 150 900 50 0 0 100 0 0\n").unwrap().since(before);
        assert_eq!((since.all, since.busy, since.stolen), (400.0, 200.0, 100.0));
        let disturbance = Disturbance { others: Some(0.5), stolen: Some(0.25), load_before: Some(0.0) };
        let said = disturbance.description().unwrap();
        assert!(said.contains("50 %") && said.contains("took away 25 %") && !said.contains("load"), "{said}");
        assert_eq!(Disturbance::default().description(), None);
        let later = Disturbance { others: Some(0.75), stolen: None, load_before: Some(9.0) };
        let both = disturbance.and(later);
        assert_eq!((both.others, both.stolen, both.load_before), (Some(0.75), Some(0.25), Some(0.0)));
        let watched = Watch::start().finish();
        assert!(watched.load_before.is_some());
    }
}
