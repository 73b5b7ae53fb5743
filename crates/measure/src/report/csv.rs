//! CSV after RFC 4180: a line for each arm of each case.

use crate::results::Results;

/// Returns the table. A field that could not be measured is empty.
pub fn csv(results: &Results) -> String {
    let mut text = "case,threads,size,arm,rounds,median_s,q1_s,q3_s,ratio,ratio_low,ratio_high,p_value,user_s,system_s,\
                    peak_memory_bytes,last_memory_bytes,minor_faults,major_faults,voluntary_switches,\
                    involuntary_switches,futex,mmap,munmap,madvise,calls_complete,requests_per_second,p50_ms,p99_ms,processor_ratio,\
                    processor_ratio_low,processor_ratio_high,failure\r\n"
        .to_owned();
    for case in &results.cases {
        for arm in &case.arms {
            let (cost, ratio, figures, calls) = (arm.cost_s, arm.ratio_to_stock, arm.typical, arm.calls);
            let service = figures.and_then(|figures| figures.service);
            let fields = [
                Some(case.name.clone()),
                show(case.threads),
                show(case.size),
                Some(arm.name.clone()),
                Some(case.rounds.to_string()),
                show(cost.map(|cost| cost.median)),
                show(cost.map(|cost| cost.q1)),
                show(cost.map(|cost| cost.q3)),
                show(ratio.map(|ratio| ratio.value)),
                show(ratio.and_then(|ratio| ratio.low)),
                show(ratio.and_then(|ratio| ratio.high)),
                show(ratio.map(|ratio| ratio.p_value)),
                show(figures.map(|figures| figures.user_s)),
                show(figures.map(|figures| figures.system_s)),
                show(arm.peak_memory_bytes),
                show(arm.last_memory_bytes),
                show(figures.map(|figures| figures.minor_faults)),
                show(figures.map(|figures| figures.major_faults)),
                show(figures.map(|figures| figures.voluntary_switches)),
                show(figures.map(|figures| figures.involuntary_switches)),
                show(calls.map(|calls| calls.futex)),
                show(calls.map(|calls| calls.mmap)),
                show(calls.map(|calls| calls.munmap)),
                show(calls.map(|calls| calls.madvise)),
                show(calls.map(|calls| calls.complete)),
                show(service.map(|service| service.requests_per_second)),
                show(service.and_then(|service| service.p50_ms)),
                show(service.and_then(|service| service.p99_ms)),
                show(arm.processor_ratio_to_stock.map(|ratio| ratio.value)),
                show(arm.processor_ratio_to_stock.and_then(|ratio| ratio.low)),
                show(arm.processor_ratio_to_stock.and_then(|ratio| ratio.high)),
                arm.failure.clone(),
            ];
            let fields: Vec<String> = fields.into_iter().map(|field| quoted(&field.unwrap_or_default())).collect();
            text.push_str(&fields.join(","));
            text.push_str("\r\n");
        }
    }
    text
}

fn show<T: std::fmt::Display>(value: Option<T>) -> Option<String> {
    value.map(|value| value.to_string())
}

fn quoted(field: &str) -> String {
    if field.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}
