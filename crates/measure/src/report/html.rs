//! A self-contained HTML page, without network or scripts.

mod chart;
mod curve;
mod page;
mod tables;

use std::fmt::Write;

use super::figures::rounds;
use crate::results::{CaseResult, Results};

/// Returns the page: recommendation, charts, tables, circumstances of the measurement.
pub fn html(results: &Results) -> String {
    let mut body = String::new();
    body.push_str(&head(results));
    if results.cases.len() > 1 {
        body.push_str(&tables::overview(results));
    }
    if let Some(chart) = chart::trade_off(results) {
        let has_line = results.recommendation.as_ref().is_some_and(|recommendation| recommendation.pareto.len() > 1);
        let line = if has_line { " The line joins the arms that no other one beats in both." } else { "" };
        let caption = format!("Both as ratio to stock, over everything measured; lower left is better.{line}");
        body.push_str(&figure("Memory against time", &caption, &chart));
    }
    for (name, cases) in programs(results) {
        if let Some(chart) = chart::scaling(results, &cases) {
            let caption = "Time by number of threads; lower is better.";
            body.push_str(&figure(&format!("Scaling of {name}"), caption, &chart));
        }
    }
    if let Some(chart) = chart::degradation(results) {
        let caption = "Time for the greatest size over that for the least, divided by the ratio of the sizes: 1 means \
                       in proportion to the work.";
        body.push_str(&figure("More work", caption, &chart));
    }
    for case in &results.cases {
        let rounds = rounds(case.rounds);
        // Writing to a string cannot fail.
        let _ = write!(body, "<section><h2>{} <small>{rounds}</small></h2>", escaped(&case.title()));
        if let Some(ending) = &case.ending() {
            let _ = write!(body, "<p class=\"warning\">{}.</p>", prose(ending));
        }
        if let Some(noise) = &case.too_noisy {
            let _ = write!(body, "<p class=\"warning\">{}</p>", prose(noise));
        }
        body.push_str(&wide(&chart::times(case)));
        body.push_str(&tables::case(case, results));
        body.push_str(&at_equal_rates(case));
        body.push_str("</section>");
    }
    body.push_str(&tables::circumstances(results));
    page::page("allograft bench", &body)
}

/// Returns the part on latencies at equal rates. Empty without rates.
fn at_equal_rates(case: &CaseResult) -> String {
    if case.rates.is_empty() {
        return String::new();
    }
    let mut text = "<h3>Latency at equal rates</h3><ul>".to_owned();
    for sentence in super::rates::conclusions(case) {
        // Writing to a string cannot fail.
        let _ = write!(text, "<li>{}</li>", escaped(&sentence));
    }
    text.push_str("</ul>");
    for chart in curve::charts(case) {
        text.push_str(&wide(&chart));
    }
    text + &tables::rates(case)
}

/// Returns the cases by program, in the order of each program's first case.
fn programs(results: &Results) -> Vec<(&str, Vec<&CaseResult>)> {
    let mut programs: Vec<(&str, Vec<&CaseResult>)> = Vec::new();
    for case in &results.cases {
        match programs.iter_mut().find(|(name, _)| *name == case.name) {
            Some((_, cases)) => cases.push(case),
            None => programs.push((&case.name, vec![case])),
        }
    }
    programs
}

fn head(results: &Results) -> String {
    let mut text = "<header><h1>Which allocator?</h1>".to_owned();
    if let Some(recommendation) = &results.recommendation {
        let name = match recommendation.chosen() {
            None => "No answer yet",
            Some("stock") => "Keep stock",
            Some(arm) => arm,
        };
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "<div class=\"verdict\"><p class=\"choice\">{}<small>for {}</small></p><p>{}</p>",
            escaped(name),
            recommendation.objective.name(),
            prose(&recommendation.reason)
        );
        if let Some(command) = &recommendation.command {
            let _ = write!(text, "<pre>{}</pre>", escaped(command));
        }
        let pareto: Vec<String> = recommendation.pareto.iter().map(|name| escaped(name)).collect();
        let _ = write!(text, "<p class=\"quiet\">Not beaten in both time and memory: {}.</p></div>", pareto.join(", "));
    }
    for warning in &results.warnings {
        let _ = write!(text, "<p class=\"warning\">{}</p>", prose(warning));
    }
    if results.interrupted {
        text.push_str("<p class=\"warning\">Interrupted: these are the rounds that were complete.</p>");
    }
    text + "</header>"
}

fn figure(title: &str, caption: &str, chart: &str) -> String {
    let (title, caption) = (escaped(title), escaped(caption));
    format!("<section><h2>{title}</h2><p class=\"quiet\">{caption}</p>{}</section>", wide(chart))
}

/// Returns a chart that scrolls by itself where it would be too small to read, as on a telephone.
fn wide(chart: &str) -> String {
    format!("<div class=\"wide\">{chart}</div>")
}

/// Returns a sentence as HTML: words between backticks are code.
fn prose(text: &str) -> String {
    let parts: Vec<&str> = text.split('`').collect();
    // Backticks that come in pairs leave an odd number of parts.
    if parts.len().is_multiple_of(2) {
        return escaped(text);
    }
    let part = |(at, part): (usize, &&str)| match at % 2 {
        0 => escaped(part),
        _ if is_option(part) => format!("<code class=\"whole\">{part}</code>"),
        _ => format!("<code>{}</code>", escaped(part)),
    };
    parts.iter().enumerate().map(part).collect()
}

/// Whether this is an option's name, which no line break may cut after its hyphens.
fn is_option(text: &str) -> bool {
    text.starts_with("--")
        && text.len() < 20
        && text[2..].chars().all(|letter| letter.is_ascii_lowercase() || letter == '-')
}

/// Escapes for text and for attribute values.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            // Control characters are not allowed in XML, and invisible.
            letter if letter.is_control() && letter != '\n' && letter != '\t' => escaped.push('\u{fffd}'),
            letter => escaped.push(letter),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_between_backticks_are_code() {
        assert_eq!(prose("take `--budget <1>` & `x`."), "take <code>--budget &lt;1&gt;</code> &amp; <code>x</code>.");
        assert_eq!(prose("a greater `--budget`"), "a greater <code class=\"whole\">--budget</code>");
        assert_eq!((prose("a ` b"), prose("")), ("a ` b".to_owned(), String::new()));
    }
}
