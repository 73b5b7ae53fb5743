//! The reports of load generators. A report says how many requests were answered each second, and how long they took.

use serde_json::Value;

use crate::executor::Service;

/// Parses the output of a load generator: text of wrk or wrk2 (percentiles with their `--latency`), or a JSON document.
/// That has `requests_per_second` and, in milliseconds, `p50_ms`, `p90_ms`, `p99_ms` and `p999_ms`; or it is that of
/// vegeta (`report -type=json`), oha (`--output-format json`) or k6 (`--summary-export`, or the data of
/// `handleSummary`). `None` for other output.
pub fn service(said: &str) -> Option<Service> {
    let json = said.find('{').and_then(|at| serde_json::from_str::<Value>(said[at..].trim()).ok());
    let service = match &json {
        Some(document) => JSON.iter().find_map(|form| form.service(document))?,
        None => wrk(said)?,
    };
    (service.requests_per_second.is_finite() && service.requests_per_second > 0.0).then_some(service)
}

/// A form of JSON documents: where they have the figures, as JSON pointers (RFC 6901).
struct Form {
    requests_per_second: &'static str,
    /// The 50th, 90th, 99th and 99.9th percentile.
    percentiles: [&'static str; 4],
    /// The milliseconds of a unit of the percentiles.
    unit: f64,
}

const JSON: [Form; 5] = [
    Form {
        requests_per_second: "/requests_per_second",
        percentiles: ["/p50_ms", "/p90_ms", "/p99_ms", "/p999_ms"],
        unit: 1.0,
    },
    // vegeta: `throughput` counts the requests that succeeded, `rate` those that were sent. No 99.9th percentile.
    Form {
        requests_per_second: "/throughput",
        percentiles: ["/latencies/50th", "/latencies/90th", "/latencies/99th", ""],
        unit: 1e-6,
    },
    // oha.
    Form {
        requests_per_second: "/summary/requestsPerSec",
        percentiles: [
            "/latencyPercentiles/p50",
            "/latencyPercentiles/p90",
            "/latencyPercentiles/p99",
            "/latencyPercentiles/p99.9",
        ],
        unit: 1e3,
    },
    // k6: the data of `handleSummary`, then that of `--summary-export`.
    Form {
        requests_per_second: "/metrics/http_reqs/values/rate",
        percentiles: [
            "/metrics/http_req_duration/values/med",
            "/metrics/http_req_duration/values/p(90)",
            "/metrics/http_req_duration/values/p(99)",
            "/metrics/http_req_duration/values/p(99.9)",
        ],
        unit: 1.0,
    },
    Form {
        requests_per_second: "/metrics/http_reqs/rate",
        percentiles: [
            "/metrics/http_req_duration/med",
            "/metrics/http_req_duration/p(90)",
            "/metrics/http_req_duration/p(99)",
            "/metrics/http_req_duration/p(99.9)",
        ],
        unit: 1.0,
    },
];

impl Form {
    fn service(&self, document: &Value) -> Option<Service> {
        let requests_per_second = document.pointer(self.requests_per_second)?.as_f64()?;
        let [p50_ms, p90_ms, p99_ms, p999_ms] =
            self.percentiles.map(|place| Some(document.pointer(place)?.as_f64()? * self.unit));
        Some(Service { requests_per_second, rate: None, p50_ms, p90_ms, p99_ms, p999_ms })
    }
}

/// Parses the text of wrk or of wrk2, whose percentiles have three digits behind the point. wrk2 counts latency from
/// when a request was due; with `-U`, the latency from its sending follows.
fn wrk(said: &str) -> Option<Service> {
    let after = |label: &str| said.lines().find_map(|line| line.trim().strip_prefix(label)).map(str::trim);
    let time = |labels: [&str; 2]| labels.into_iter().find_map(after).and_then(milliseconds);
    Some(Service {
        requests_per_second: after("Requests/sec:")?.parse().ok()?,
        rate: None,
        p50_ms: time(["50%", "50.000%"]),
        p90_ms: time(["90%", "90.000%"]),
        p99_ms: time(["99%", "99.000%"]),
        p999_ms: time(["99.9%", "99.900%"]),
    })
}

/// Converts wrk's units.
fn milliseconds(text: &str) -> Option<f64> {
    let units = [("us", 1e-3), ("ms", 1.0), ("s", 1e3), ("m", 60e3)];
    units.iter().find_map(|(unit, scale)| Some(text.strip_suffix(unit)?.parse::<f64>().ok()? * scale))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The requests a second and the percentiles, in milliseconds to the nanosecond.
    fn figures(said: &str) -> (f64, [Option<f64>; 4]) {
        let said = service(said).unwrap();
        let rounded = |ms: f64| (ms * 1e6).round() / 1e6;
        (said.requests_per_second, [said.p50_ms, said.p90_ms, said.p99_ms, said.p999_ms].map(|ms| ms.map(rounded)))
    }

    #[test]
    fn wrk_and_wrk2_are_understood() {
        let wrk = "Running 5s test @ http://127.0.0.1:8080\n  Latency Distribution\n     50%  629.00us\n     75%    1.01ms\n     \
                   90%    1.62ms\n     99%    1.20s\n  58001 requests in 5.00s\nRequests/sec:  11590.12\nTransfer/sec: 1MB\n";
        assert_eq!(figures(wrk), (11590.12, [Some(0.629), Some(1.62), Some(1200.0), None]));
        let wrk2 = "  Latency Distribution (HdrHistogram - Recorded Latency)\n 50.000%    1.10ms\n 90.000%    2.40ms\n \
                    99.000%    8.20ms\n 99.900%    0.02m\n 99.990%    1.30m\n100.000%    1.40m\n  Latency Distribution \
                    (HdrHistogram - Uncorrected Latency (measured without taking delayed starts into account))\n \
                    50.000%    1.00us\nRequests/sec:   3000.00\n";
        assert_eq!(figures(wrk2), (3000.0, [Some(1.1), Some(2.4), Some(8.2), Some(1200.0)]));
    }

    #[test]
    fn json_of_several_generators_is_understood() {
        let own = "{\"requests_per_second\": 1000.5, \"p50_ms\": 0.5, \"p999_ms\": 7}";
        assert_eq!(figures(own), (1000.5, [Some(0.5), None, None, Some(7.0)]));
        let vegeta = r#"{"latencies": {"mean": 1, "50th": 629000, "90th": 1620000, "99th": 1200000000}, "rate": 100.03,
                        "throughput": 99.5, "success": 0.99}"#;
        assert_eq!(figures(vegeta), (99.5, [Some(0.629), Some(1.62), Some(1200.0), None]));
        let oha = r#"{"summary": {"requestsPerSec": 2000.4}, "latencyPercentiles": {"p50": 0.0005, "p90": 0.0008, "p99":
                     0.0012, "p99.9": 0.0031}}"#;
        assert_eq!(figures(oha), (2000.4, [Some(0.5), Some(0.8), Some(1.2), Some(3.1)]));
        let durations = r#"{"med": 1.5, "p(90)": 2.5, "p(99)": 3.5}"#;
        let expected = (20.5, [Some(1.5), Some(2.5), Some(3.5), None]);
        let k6 = format!(
            r#"{{"metrics": {{"http_reqs": {{"count": 9, "rate": 20.5}}, "http_req_duration": {durations}}}}}"#
        );
        assert_eq!(figures(&k6), expected);
        let k6 = format!(
            r#"{{"metrics": {{"http_reqs": {{"values": {{"rate": 20.5}}}}, "http_req_duration": {{"values": {durations}}}}}}}"#
        );
        assert_eq!(figures(&k6), expected);
    }

    #[test]
    fn a_report_without_answers_is_refused() {
        assert_eq!(service("nothing"), None);
        assert_eq!(service("{\"requests_per_second\": 0}"), None);
        assert_eq!(service("{\"latencies\": {\"50th\": 1}}"), None);
    }
}
