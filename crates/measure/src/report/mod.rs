//! Results for people: HTML, Markdown and CSV.

mod csv;
pub(crate) mod figures;
mod html;
mod markdown;
mod overview;
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
        // Memory against time, scaling of map, degradation, and the times of four cases.
        assert_eq!(svgs, 7);
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
        assert_eq!(lines.len(), 1 + 4 * 4);
        assert_eq!(lines[1].split(',').count(), lines[0].split(',').count());
        assert!(csv.contains("\"a<b&\"\"c\"\"\""), "{csv}");
    }

    #[test]
    fn degradation_is_what_more_work_costs() {
        let results = samples::results();
        let degradation = crate::results::degradation(&results.cases, 0).unwrap();
        assert!((degradation - 1.0).abs() < 1e-9, "{degradation}");
    }
}
