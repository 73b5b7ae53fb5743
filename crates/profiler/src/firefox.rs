//! The profile in the Firefox Profiler's processed format (github.com/firefox-devtools/profiler,
//! docs-developer/processed-profile-format.md), for profiler.firefox.com. The crate `fxprof-processed-profile` (0.8.1)
//! takes whole milliseconds as the weight of a sample; a sample here represents a few milliseconds and a fraction.

use std::collections::HashMap;

use serde_json::{Value, json};

use crate::analysis::Profile;
use crate::recording::Sample;

/// The version of the format that is written. Readers convert older ones.
const VERSION: u32 = 48;

/// A thread's tables.
#[derive(Default)]
struct Tables {
    strings: Vec<String>,
    known: HashMap<String, usize>,
    /// By the frame's number in the profile.
    functions: HashMap<u32, usize>,
    names: Vec<usize>,
    /// By prefix and function.
    stacks: HashMap<(Option<usize>, usize), usize>,
    prefixes: Vec<Option<usize>>,
    frames: Vec<usize>,
}

impl Tables {
    fn text(&mut self, text: &str) -> usize {
        let next = self.strings.len();
        let number = *self.known.entry(text.to_owned()).or_insert(next);
        if number == next {
            self.strings.push(text.to_owned());
        }
        number
    }

    /// The number of a stack, whose frames come innermost first.
    fn stack(&mut self, profile: &Profile, frames: &[u32]) -> Option<usize> {
        let mut stack = None;
        for frame in frames.iter().rev() {
            let function = match self.functions.get(frame) {
                Some(function) => *function,
                None => {
                    let name = self.text(&profile.frames.all[*frame as usize].name);
                    self.names.push(name);
                    self.functions.insert(*frame, self.names.len() - 1);
                    self.names.len() - 1
                }
            };
            let next = self.prefixes.len();
            let number = *self.stacks.entry((stack, function)).or_insert(next);
            if number == next {
                self.prefixes.push(stack);
                self.frames.push(function);
            }
            stack = Some(number);
        }
        stack
    }
}

/// The category of threads that ran, and of those that were blocked.
const RUNNING: usize = 0;
const BLOCKED: usize = 1;

impl Profile {
    /// The profile as a JSON document for profiler.firefox.com. Samples of blocked threads take no processor time.
    pub fn firefox(&self) -> String {
        let mut threads: Vec<Value> = Vec::new();
        for number in 0..self.recording.threads.len() {
            let samples: Vec<(usize, &Sample)> = self
                .recording
                .samples
                .iter()
                .enumerate()
                .filter(|(_, sample)| sample.thread as usize == number)
                .collect();
            if !samples.is_empty() {
                threads.push(self.thread(number, &samples));
            }
        }
        let moments = self.recording.moments.len().max(1) as f64;
        let category = |name: &str, color: &str| json!({ "name": name, "color": color, "subcategories": ["Other"] });
        let document = json!({
            "meta": {
                "interval": self.recording.duration.as_secs_f64() * 1000.0 / moments,
                "startTime": 0,
                "processType": 0,
                "product": self.analysis.program,
                "stackwalk": 1,
                "version": 29,
                "preprocessedProfileVersion": VERSION,
                "symbolicated": true,
                "categories": [category("Running", "yellow"), category("Blocked", "blue")],
                "markerSchema": [],
                "sampleUnits": { "time": "ms", "eventDelay": "ms", "threadCPUDelta": "µs" },
            },
            "libs": [],
            "threads": threads,
            "pages": [],
            "counters": [],
            "profilerOverhead": [],
        });
        document.to_string()
    }

    fn thread(&self, number: usize, samples: &[(usize, &Sample)]) -> Value {
        let thread = &self.recording.threads[number];
        let mut tables = Tables::default();
        let (mut stacks, mut times, mut weights, mut spent) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (at, sample) in samples {
            let moment = self.recording.moments[sample.moment as usize];
            stacks.push(tables.stack(self, &self.frames.stacks[sample.walk as usize]));
            times.push(moment.at.as_secs_f64() * 1000.0);
            weights.push(moment.span.as_secs_f64() * 1000.0);
            spent.push(self.seconds(*at)[0] * 1e6);
        }
        let functions = tables.names.len();
        let none = |count: usize| vec![Value::Null; count];
        let mostly = samples.iter().filter(|(at, _)| self.attribution.samples[*at].running).count() * 2 > samples.len();
        let category = if mostly { RUNNING } else { BLOCKED };
        json!({
            "name": thread.name,
            "isMainThread": thread.pid == thread.tid,
            "processType": "default",
            "processName": self.analysis.program,
            "processStartupTime": 0,
            "processShutdownTime": null,
            "registerTime": times.first(),
            "unregisterTime": null,
            "pausedRanges": [],
            "pid": thread.pid.to_string(),
            "tid": thread.tid,
            "samples": {
                "length": samples.len(),
                "stack": stacks,
                "time": times,
                "weight": weights,
                "weightType": "tracing-ms",
                "threadCPUDelta": spent,
            },
            "markers": {
                "length": 0, "data": [], "name": [], "startTime": [], "endTime": [], "phase": [], "category": [],
            },
            "stackTable": {
                "length": tables.prefixes.len(),
                "prefix": tables.prefixes,
                "frame": tables.frames,
                "category": vec![category; tables.prefixes.len()],
                "subcategory": vec![0; tables.prefixes.len()],
            },
            "frameTable": {
                "length": functions,
                "address": vec![-1; functions],
                "inlineDepth": vec![0; functions],
                "category": none(functions),
                "subcategory": none(functions),
                "func": (0..functions).collect::<Vec<_>>(),
                "nativeSymbol": none(functions),
                "innerWindowID": none(functions),
                "implementation": none(functions),
                "line": none(functions),
                "column": none(functions),
            },
            "funcTable": {
                "length": functions,
                "name": tables.names,
                "isJS": vec![false; functions],
                "relevantForJS": vec![false; functions],
                "resource": vec![-1; functions],
                "fileName": none(functions),
                "lineNumber": none(functions),
                "columnNumber": none(functions),
            },
            "resourceTable": { "length": 0, "lib": [], "name": [], "host": [], "type": [] },
            "nativeSymbols": { "length": 0, "libIndex": [], "address": [], "name": [], "functionSize": [] },
            "stringArray": tables.strings,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trials::Trial;

    #[test]
    fn the_tables_of_a_thread_refer_to_each_other() {
        let trial = Trial::new()
            .seen(3, &["running: malloc < work < main", "on read: read < main"])
            .seen(2, &["running: work < main", "on read: read < main"]);
        let document: Value = serde_json::from_str(&trial.profile().firefox()).unwrap();
        assert_eq!(document["meta"]["interval"], 10.0);
        let threads = document["threads"].as_array().unwrap();
        assert_eq!(threads.len(), 2);
        for (thread, [category, spent]) in threads.iter().zip([[RUNNING as f64, 10_000.0], [BLOCKED as f64, 0.0]]) {
            let number = |value: &Value| usize::try_from(value.as_u64().unwrap()).unwrap();
            let list = |table: &str, column: &str| thread[table][column].as_array().unwrap().clone();
            let table_length = |table: &str| number(&thread[table]["length"]);
            // The names of each sample's stack, the innermost first.
            let stacks: Vec<String> = list("samples", "stack")
                .iter()
                .map(|stack| {
                    let (mut names, mut at) = (Vec::new(), Some(number(stack)));
                    while let Some(stack) = at {
                        let frame = number(&list("stackTable", "frame")[stack]);
                        let function = number(&list("frameTable", "func")[frame]);
                        let name = number(&list("funcTable", "name")[function]);
                        names.push(thread["stringArray"][name].as_str().unwrap().to_owned());
                        at = list("stackTable", "prefix")[stack].as_u64().map(|it| usize::try_from(it).unwrap());
                    }
                    names.join(" < ")
                })
                .collect();
            if category == RUNNING as f64 {
                let [inner, outer] = ["malloc < work < main", "work < main"];
                assert_eq!(stacks, [inner, inner, inner, outer, outer]);
                assert_eq!((table_length("stackTable"), table_length("funcTable")), (3, 3));
            } else {
                assert_eq!(stacks, ["read < main"; 5]);
            }
            assert!(list("stackTable", "category").iter().all(|it| it.as_f64() == Some(category)));
            let times: Vec<f64> = list("samples", "time").iter().map(|it| it.as_f64().unwrap()).collect();
            assert_eq!(times, [0.0, 10.0, 20.0, 30.0, 40.0]);
            assert!(list("samples", "weight").iter().all(|it| it.as_f64() == Some(10.0)));
            let near = |it: &Value| (it.as_f64().unwrap() - spent).abs() < 1e-6;
            assert!(list("samples", "threadCPUDelta").iter().all(near));
            for table in ["samples", "stackTable", "frameTable", "funcTable"] {
                for (column, values) in thread[table].as_object().unwrap() {
                    let length = values.as_array().map_or(table_length(table), Vec::len);
                    assert_eq!(length, table_length(table), "{table}.{column}");
                }
            }
        }
    }
}
