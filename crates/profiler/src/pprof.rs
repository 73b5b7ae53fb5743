//! The profile in pprof's format: a protocol buffer (github.com/google/pprof, proto/profile.proto), packed by gzip.

use std::collections::HashMap;
use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::analysis::Profile;
use crate::protobuf::Message;

/// The texts of a profile, by number; the first is empty.
struct Texts {
    all: Vec<String>,
    known: HashMap<String, u64>,
}

impl Texts {
    fn number(&mut self, text: &str) -> u64 {
        if let Some(number) = self.known.get(text) {
            return *number;
        }
        let number = self.all.len() as u64;
        self.all.push(text.to_owned());
        self.known.insert(text.to_owned(), number);
        number
    }
}

impl Profile {
    /// The profile for `go tool pprof`: for each stack the number of samples, the time with a processor, and the time
    /// without one: blocked or waiting for one; in nanoseconds.
    pub fn pprof(&self) -> Vec<u8> {
        let mut texts = Texts { all: vec![String::new()], known: HashMap::from([(String::new(), 0)]) };
        let mut profile = Message::default();
        for (kind, unit) in [("samples", "count"), ("cpu", "nanoseconds"), ("blocked", "nanoseconds")] {
            let mut value = Message::default();
            value.number(1, texts.number(kind));
            value.number(2, texts.number(unit));
            profile.message(1, &value);
        }
        let mut sums: HashMap<(u32, u32), [u64; 3]> = HashMap::new();
        for (at, sample) in self.recording.samples.iter().enumerate() {
            let [with, without] = self.seconds(at).map(|seconds| (seconds * 1e9).round() as u64);
            let sum = sums.entry((sample.walk, sample.thread)).or_default();
            *sum = [sum[0] + 1, sum[1] + with, sum[2] + without];
        }
        let mut sums: Vec<_> = sums.into_iter().collect();
        sums.sort_unstable();
        for ((walk, thread), values) in sums {
            let mut sample = Message::default();
            let stack = &self.frames.stacks[walk as usize];
            sample.packed(1, stack.iter().map(|frame| u64::from(*frame) + 1));
            sample.packed(2, values);
            let thread = &self.recording.threads[thread as usize];
            let mut name = Message::default();
            name.number(1, texts.number("thread"));
            name.number(2, texts.number(&thread.name));
            sample.message(3, &name);
            let mut number = Message::default();
            number.number(1, texts.number("tid"));
            number.number(3, u64::from(thread.tid.unsigned_abs()));
            sample.message(3, &number);
            profile.message(2, &sample);
        }
        for (at, frame) in self.frames.all.iter().enumerate() {
            let number = at as u64 + 1;
            let mut line = Message::default();
            line.number(1, number);
            let mut location = Message::default();
            location.number(1, number);
            location.message(4, &line);
            profile.message(4, &location);
            let mut function = Message::default();
            function.number(1, number);
            function.number(2, texts.number(&frame.name));
            function.number(3, texts.number(&frame.name));
            function.number(4, texts.number(&frame.module));
            profile.message(5, &function);
        }
        let (kind, unit) = (texts.number("cpu"), texts.number("nanoseconds"));
        for text in &texts.all {
            profile.bytes(6, text.as_bytes());
        }
        profile.number(10, u64::try_from(self.recording.duration.as_nanos()).unwrap_or(0));
        let mut period = Message::default();
        period.number(1, kind);
        period.number(2, unit);
        profile.message(11, &period);
        let moments = self.recording.moments.len().max(1) as u128;
        profile.number(12, u64::try_from(self.recording.duration.as_nanos() / moments).unwrap_or(0));
        profile.number(14, kind);
        let mut packed = GzEncoder::new(Vec::new(), Compression::default());
        // Writing to memory cannot fail.
        let _ = packed.write_all(&profile.0);
        packed.finish().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::GzDecoder;

    use crate::protobuf::{Fields, Value};
    use crate::trials::Trial;

    /// The values of a field, by proto/profile.proto.
    fn field(message: &[u8], wanted: u64) -> Vec<Value<'_>> {
        let fields = Fields(message).map(Result::unwrap);
        fields.filter(|(number, _)| *number == wanted).map(|(_, value)| value).collect()
    }

    fn numbers(message: &[u8], wanted: u64) -> Vec<u64> {
        field(message, wanted).into_iter().flat_map(Value::numbers).map(Result::unwrap).collect()
    }

    #[test]
    fn samples_of_a_stack_and_a_thread_are_added_up() {
        let profile = Trial::new()
            .seen(3, &["running: malloc < work < main", "on read: read < main"])
            .seen(2, &["running: work < main", "running: work < main"])
            .profile();
        let mut message = Vec::new();
        GzDecoder::new(profile.pprof().as_slice()).read_to_end(&mut message).unwrap();
        let texts: Vec<&str> =
            field(&message, 6).into_iter().map(|text| std::str::from_utf8(text.bytes()).unwrap()).collect();
        let text = |message: &[u8], wanted: u64| {
            let number = numbers(message, wanted)[0];
            texts[usize::try_from(number).unwrap()]
        };
        let kinds: Vec<&str> = field(&message, 1).into_iter().map(|kind| text(kind.bytes(), 1)).collect();
        assert_eq!(kinds, ["samples", "cpu", "blocked"]);
        let name = |location: u64| {
            let function =
                field(&message, 5).into_iter().find(|function| numbers(function.bytes(), 1) == [location]).unwrap();
            text(function.bytes(), 2)
        };
        let samples: Vec<(String, Vec<u64>, &str)> = field(&message, 2)
            .into_iter()
            .map(|sample| {
                let stack: Vec<&str> = numbers(sample.bytes(), 1).into_iter().map(name).collect();
                let thread = field(sample.bytes(), 3)[0];
                (stack.join(" < "), numbers(sample.bytes(), 2), text(thread.bytes(), 2))
            })
            .collect();
        let ms = 1_000_000;
        let expected = [
            ("malloc < work < main".to_owned(), vec![3, 30 * ms, 0], "thread 0"),
            ("read < main".to_owned(), vec![3, 0, 30 * ms], "thread 1"),
            ("work < main".to_owned(), vec![2, 20 * ms, 0], "thread 0"),
            ("work < main".to_owned(), vec![2, 20 * ms, 0], "thread 1"),
        ];
        assert_eq!(samples, expected);
        assert_eq!((numbers(&message, 10), numbers(&message, 12)), (vec![50 * ms], vec![10 * ms]));
    }
}
