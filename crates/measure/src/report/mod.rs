//! Results for people: HTML, Markdown and CSV.

mod csv;
pub(crate) mod figures;
mod html;
mod markdown;
mod overview;
pub mod rates;
#[cfg(test)]
pub(crate) mod samples;

pub use csv::csv;
pub use figures::{bytes, count, quotient, ratio, seconds};
pub use html::html;
pub use markdown::{markdown, measurements};
pub use overview::overview;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Results;

    #[test]
    fn the_page_is_whole_and_loads_nothing() {
        let page = html(&samples::results());
        let options = roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() };
        let document = roxmltree::Document::parse_with_options(&page, options).unwrap();
        for node in document.descendants() {
            let name = node.tag_name().name();
            assert!(!["script", "link", "img", "iframe", "object", "embed", "use", "a"].contains(&name), "<{name}>");
            for attribute in node.attributes() {
                assert!(!["src", "href", "style", "srcset"].contains(&attribute.name()), "{attribute:?}");
                assert!(!attribute.name().starts_with("on"), "{attribute:?}");
            }
        }
        let style = document.descendants().find(|node| node.tag_name().name() == "style").unwrap().text().unwrap();
        assert!(!style.contains("url(") && !style.contains("@import") && style.contains("prefers-color-scheme:dark"));
        assert!(style.contains("@media print"));
        assert_eq!(style.matches('{').count(), style.matches('}').count());
    }

    #[test]
    fn the_page_has_the_figures() {
        let page = html(&samples::results());
        let options = roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() };
        let document = roxmltree::Document::parse_with_options(&page, options).unwrap();
        let svgs = document.descendants().filter(|node| node.tag_name().name() == "svg").count();
        // Memory against time, scaling of map, degradation, the times of four cases, and two percentiles by rate.
        assert_eq!(svgs, 9);
        let text: String = document.descendants().filter_map(|node| node.text()).collect();
        for figure in [
            "0.50",
            "11.5 MB",
            "1.10",
            "> 12,345",
            "allograft graft libc.a --donor mimalloc",
            "a<b&\"c\"",
            "prints `<1>`",
            "ended with exit code 3 in every run, with stock too",
        ] {
            assert!(text.contains(figure), "{figure}");
        }
        assert!(text.contains("ends with exit code 3, with stock and in every run; stock says 3 <findings>"));
        // A NaN or an infinity would be drawn somewhere.
        assert!(!page.contains("NaN") && !page.contains("inf"), "a number that is none");
        let numbers =
            document.descendants().flat_map(|node| node.attributes()).filter(|attribute| attribute.name() == "width");
        assert!(numbers.into_iter().all(|width| width.value().parse::<f64>().is_ok_and(|width| width >= 0.0)));
    }

    #[test]
    fn kept_results_render_the_same() {
        let results = samples::results();
        let kept: Results = serde_json::from_str(&serde_json::to_string(&results).unwrap()).unwrap();
        assert_eq!(html(&kept), html(&results));
        assert_eq!(markdown(&kept), markdown(&results));
        assert_eq!(csv(&kept), csv(&results));
    }

    #[test]
    fn tables_have_a_cell_for_each_column() {
        let markdown = markdown(&samples::results());
        let mut rows = markdown.lines().filter(|line| line.starts_with('|'));
        let columns = |line: &str| line.replace("\\|", "").matches('|').count();
        let first = columns(rows.next().unwrap());
        // A column for each of four arms.
        assert_eq!(first, 6);
        for table in markdown.split("\n\n").filter(|part| part.starts_with('|')) {
            let columns: Vec<usize> = table.lines().map(columns).collect();
            assert!(columns.iter().all(|count| *count == columns[0]), "{table}");
        }
        assert!(markdown.contains("| map, 8 threads | 1.00 s | 0.50 | 0.45 | fails |"), "{markdown}");
        assert!(markdown.contains("| map, 8 threads | 10.5 MB | 1.10 | 4.00 | fails |"), "{markdown}");
        assert!(markdown.contains("\nthe program ends with exit code 3, with stock and in every run"), "{markdown}");
        assert!(markdown.contains("| geometric mean | | 0.50 | 0.45 | - |"), "{markdown}");
        assert!(overview(&samples::results()).lines().all(|line| markdown.contains(line)));
        let csv = csv(&samples::results());
        let lines: Vec<&str> = csv.lines().collect();
        // Four cases, and three rates of one of them.
        assert_eq!(lines.len(), 1 + 4 * 4 + 3 * 4);
        assert_eq!(lines[1].split(',').count(), lines[0].split(',').count());
        assert!(csv.contains("\"a<b&\"\"c\"\"\""), "{csv}");
    }

    #[test]
    fn latencies_at_equal_rates_are_in_every_form() {
        let results = samples::results();
        let says = [
            "certainly better than stock by p99: mimalloc at every rate",
            "certainly worse than stock by p99: rpmalloc from 1,000/s to 2,000/s",
            "rate not reached: stock at 3,000/s; rpmalloc from 2,000/s to 3,000/s",
            "lowest median p99: mimalloc at every rate",
        ];
        assert_eq!(rates::conclusions(&results.cases[1]), says);
        assert!(rates::conclusions(&results.cases[0]).is_empty());
        let markdown = markdown(&results);
        let rows = [
            "| requests | | p50 | p90 | p99 | to stock (95 %) | p99.9 |",
            "| 2,000/s | mimalloc | 502 µs | 1.00 ms | 2.51 ms | 0.500 (0.500–0.500) | 4.52 ms |",
            "| 3,000/s | mimalloc | 502 µs | 1.00 ms | 2.51 ms | - | 4.52 ms |",
            "| 3,000/s | stock | not reached: 1,500/s | | | | |",
        ];
        assert!(rows.iter().all(|row| markdown.contains(row)), "{markdown}");
        let page = html(&results);
        for part in ["Latency at equal rates", "stock, 3,000/s: not reached", "mimalloc, 3,000/s: 2.51 ms", says[2]] {
            assert!(page.contains(part), "{part}");
        }
        let row = csv(&results)
            .lines()
            .find(|line| line.contains(",mimalloc,") && line.contains(",2000,"))
            .unwrap()
            .to_owned();
        assert!(
            row.starts_with("map,8,,mimalloc,10,,") && row.ends_with(",,2000,10,1.004,4.518,0.5,0.5,0.5,better"),
            "{row}"
        );
        let reason = &results.recommendation.as_ref().unwrap().reason;
        assert!(reason.contains("it is better than stock by p99 of map, 8 threads at every rate."), "{reason}");
        assert!(
            results.without_runs().cases[1].rates.iter().flat_map(|rate| &rate.arms).all(|arm| arm.runs.is_empty())
        );
    }

    #[test]
    fn degradation_is_what_more_work_costs() {
        let results = samples::results();
        let degradation = crate::results::degradation(&results.cases, 0).unwrap();
        assert!((degradation - 1.0).abs() < 1e-9, "{degradation}");
    }
}
