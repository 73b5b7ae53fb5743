//! `docs/json.md`: a list of the fields of each document.

use std::collections::BTreeMap;

use super::schema::{DOCUMENTS, Field, Shape, document};

/// The width of the page in columns.
const WIDTH: usize = 120;

/// Returns the generated part of the page.
pub(crate) fn text() -> String {
    let mut text = String::new();
    for (name, heading, _) in DOCUMENTS {
        let mut list = List::default();
        list.parts(&document(name), "", 0);
        text += &format!("## {heading}\n\n{}\n", list.text);
    }
    text
}

/// The list of a document's fields.
#[derive(Default)]
struct List {
    text: String,
    /// The path of the first object of each type.
    listed: BTreeMap<String, String>,
}

impl List {
    /// Adds the parts of the value at `path`, indented `depth` times.
    fn parts(&mut self, shape: &Shape, path: &str, depth: usize) {
        match shape {
            Shape::Plain(_) | Shape::Tuple(_) | Shape::Map(_) => {}
            Shape::Array(shape) => self.parts(shape, &format!("{path}[]"), depth),
            Shape::Choice(choices) => {
                choices.iter().for_each(|(name, about)| self.item(depth, &format!("`{name}`: {about}")));
            }
            Shape::Either(shapes) => {
                for (about, shape) in shapes {
                    self.item(depth, &format!("{} has:", about.trim_end_matches('.')));
                    self.parts(shape, path, depth + 1);
                }
            }
            Shape::Object(name, fields) => {
                if let Some(first) = self.listed.get(name) {
                    return self.item(depth, &format!("the same fields as `{first}`"));
                }
                self.listed.insert(name.clone(), path.to_owned());
                for Field { name, about, shape, nullable, optional } in fields {
                    let optional = if *optional { "optional " } else { "" };
                    let null = if *nullable { " or null" } else { "" };
                    self.item(depth, &format!("`{name}` ({optional}{}{null}): {about}", kind(shape, "")));
                    self.parts(shape, format!("{path}.{name}").trim_start_matches('.'), depth + 1);
                }
            }
        }
    }

    /// Adds an item, wrapped to the width.
    fn item(&mut self, depth: usize, said: &str) {
        let mut line = format!("{}-", "  ".repeat(depth));
        for word in said.split(' ') {
            if line.chars().count() + 1 + word.chars().count() > WIDTH {
                self.text += &format!("{line}\n");
                line = "  ".repeat(depth) + " ";
            }
            line += &format!(" {word}");
        }
        self.text += &format!("{line}\n");
    }
}

/// The JSON type of a value. For several values, `s` is the plural's ending.
fn kind(shape: &Shape, s: &str) -> String {
    match shape {
        Shape::Plain(name) => format!("{name}{s}"),
        Shape::Choice(_) => format!("string{s}"),
        Shape::Array(shape) => format!("array{s} of {}", kind(shape, "s")),
        Shape::Tuple(shapes) => {
            format!("array{s} of {}", shapes.iter().map(|shape| kind(shape, "")).collect::<Vec<_>>().join(" and "))
        }
        Shape::Map(shape) => format!("object{s} of {}", kind(shape, "s")),
        Shape::Object(..) | Shape::Either(_) => format!("object{s}"),
    }
}
