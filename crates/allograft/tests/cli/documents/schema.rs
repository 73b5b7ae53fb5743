//! The schema of each JSON document, read from the Rust types that serde writes it from.
//!
//! This code interprets serde's attributes a second time. That both agree is tested: every golden file has to fit its
//! schema.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;
use syn::{Attribute, Expr, ExprLit, Fields, GenericArgument, Item, Lit, LitStr, Meta, PathArguments, Token, Type};

/// The source files with the types, below `crates`.
const SOURCES: [&str; 35] = [
    "allograft/src/json/mod.rs",
    "allograft/src/json/donors.rs",
    "allograft/src/json/emit.rs",
    "allograft/src/json/failure.rs",
    "allograft/src/json/graft.rs",
    "allograft/src/json/image.rs",
    "allograft/src/json/inspect.rs",
    "allograft/src/json/process.rs",
    "allograft/src/json/text.rs",
    "allograft/src/json/undo.rs",
    "allograft/src/json/verify.rs",
    "allograft/src/command/emit.rs",
    "format/src/arch.rs",
    "format/src/kind.rs",
    "format/src/note.rs",
    "hosts/src/outcome.rs",
    "hosts/src/undo.rs",
    "inspector/src/report.rs",
    "inspector/src/verify/differences.rs",
    "inspector/src/verify/check.rs",
    "inspector/src/verify/mod.rs",
    "measure/src/executor.rs",
    "measure/src/machine.rs",
    "measure/src/rates/result.rs",
    "measure/src/recommendation.rs",
    "measure/src/results.rs",
    "measure/src/session.rs",
    "measure/src/statistics/mod.rs",
    "measure/src/statistics/ratio.rs",
    "profiler/src/analysis.rs",
    "profiler/src/heap/growth.rs",
    "profiler/src/heap/reader.rs",
    "profiler/src/heap/report.rs",
    "profiler/src/heap/retention.rs",
    "profiler/src/verdict.rs",
];

/// The documents: name of the golden files, the heading in the page, the type.
pub(crate) const DOCUMENTS: [(&str, &str, &str); 12] = [
    ("graft", "`allograft graft --json`", "Document<Grafts>"),
    ("undo", "`allograft undo --json`", "Document<Undone>"),
    ("verify", "`allograft verify --json`", "Document<Verified>"),
    ("inspect", "`allograft inspect --json`", "Document<Inspected>"),
    ("donors", "`allograft donors --json`", "Document<Donors>"),
    ("emit", "`allograft emit --json`", "Document<Emitted>"),
    ("emit_folder", "`allograft emit --as cmake --json`", "Document<EmittedFolder>"),
    ("bench", "`allograft bench --json`", "Results"),
    ("profile", "`allograft profile --json`", "Document<Analysis>"),
    ("heap", "`allograft heap --json`, `profile --heap --json`", "Document<HeapReport>"),
    ("text", "`allograft man --json`, `completions --json`", "Document<Text>"),
    ("failure", "Any of them, when it fails", "Document<Failed>"),
];

/// The form of a value.
#[derive(Debug, Clone)]
pub(crate) enum Shape {
    /// `string`, `integer`, `number` or `boolean`.
    Plain(&'static str),
    /// One of several strings, each with its meaning.
    Choice(Vec<(String, String)>),
    /// Any number of values.
    Array(Box<Shape>),
    /// An array with one value of each of these shapes, in this order.
    Tuple(Vec<Shape>),
    /// An object whose fields have any names.
    Map(Box<Shape>),
    /// An object of the type that is named.
    Object(String, Vec<Field>),
    /// One of several objects, each with the variant's meaning.
    Either(Vec<(String, Shape)>),
}

/// A field of an object.
#[derive(Debug, Clone)]
pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) about: String,
    pub(crate) shape: Shape,
    /// Whether it may be null.
    pub(crate) nullable: bool,
    /// Whether it may be absent.
    pub(crate) optional: bool,
}

/// A file with types.
struct Source {
    items: Vec<Item>,
}

/// A shape, and whether null is allowed as well.
type Known = (Shape, bool);

/// Returns the shape of the document with this name.
pub(crate) fn document(name: &str) -> Shape {
    let (.., written) = DOCUMENTS.iter().find(|(known, ..)| *known == name).expect("a document");
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let read = |path: &&str| {
        let text = std::fs::read_to_string(crates.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
        Source { items: syn::parse_file(&text).unwrap_or_else(|error| panic!("{path}: {error}")).items }
    };
    let types = Types { sources: SOURCES.iter().map(read).collect() };
    types.shape(&syn::parse_str(written).expect("a type"), &types.sources[0], &BTreeMap::new()).0
}

/// Every type that may occur in a document.
struct Types {
    sources: Vec<Source>,
}

impl Types {
    /// Returns the shape of a type that the file `home` names. `given` are its type parameters.
    fn shape(&self, written: &Type, home: &Source, given: &BTreeMap<String, Known>) -> Known {
        let path = match written {
            Type::Reference(reference) => return self.shape(&reference.elem, home, given),
            Type::Slice(slice) => return (Shape::Array(Box::new(self.shape(&slice.elem, home, given).0)), false),
            Type::Tuple(tuple) => {
                return (Shape::Tuple(tuple.elems.iter().map(|one| self.shape(one, home, given).0).collect()), false);
            }
            Type::Path(path) => path.path.segments.last().expect("a path"),
            _ => panic!("a type of another form in a document"),
        };
        let arguments: Vec<Known> = match &path.arguments {
            PathArguments::AngleBracketed(list) => list.args.iter().filter_map(|one| match one {
                GenericArgument::Type(one) => Some(self.shape(one, home, given)),
                _ => None,
            }),
            _ => return self.named(&path.ident.to_string(), home, given, Vec::new()),
        }
        .collect();
        self.named(&path.ident.to_string(), home, given, arguments)
    }

    fn named(&self, name: &str, home: &Source, given: &BTreeMap<String, Known>, arguments: Vec<Known>) -> Known {
        let last = || Box::new(arguments.last().expect("an argument").0.clone());
        let shape = match name {
            "String" | "str" => Shape::Plain("string"),
            "bool" => Shape::Plain("boolean"),
            "u8" | "u32" | "u64" | "usize" | "i32" | "i64" => Shape::Plain("integer"),
            "f64" | "Duration" => Shape::Plain("number"),
            "Vec" => Shape::Array(last()),
            "BTreeMap" => Shape::Map(last()),
            "Box" => *last(),
            "Option" => return (*last(), true),
            _ if given.contains_key(name) => return given[name].clone(),
            _ => return (self.item(name, home, arguments), false),
        };
        (shape, false)
    }

    /// Returns the type with this name in the file `home` or, if that has none, the type of another file that serde
    /// writes.
    fn item(&self, name: &str, home: &Source, arguments: Vec<Known>) -> Shape {
        let is = |item: &&Item| match item {
            Item::Struct(item) => item.ident == name,
            Item::Enum(item) => item.ident == name,
            _ => false,
        };
        if let Some(item) = home.items.iter().find(is) {
            return self.shape_of(item, home, arguments);
        }
        let others = self.sources.iter().flat_map(|source| source.items.iter().map(move |item| (source, item)));
        let others: Vec<_> = others.filter(|(_, item)| is(item) && is_written(item)).collect();
        let [(source, item)] = others[..] else { panic!("{} files have the type `{name}`", others.len()) };
        self.shape_of(item, source, arguments)
    }

    fn shape_of(&self, item: &Item, home: &Source, arguments: Vec<Known>) -> Shape {
        let item = match item {
            // A hand-written implementation writes it as its name.
            item if !is_written(item) => return Shape::Plain("string"),
            Item::Struct(item) => item,
            Item::Enum(item) => {
                let attributes = Attributes::of(&item.attrs);
                let variants = item.variants.iter();
                if attributes.has("untagged") {
                    let either = variants.map(|variant| {
                        let field = variant.fields.iter().next().expect("a field");
                        (documentation(&variant.attrs), self.shape(&field.ty, home, &BTreeMap::new()).0)
                    });
                    return Shape::Either(either.collect());
                }
                let cased = variants.map(|variant| {
                    assert!(matches!(variant.fields, Fields::Unit), "`{}` has fields", variant.ident);
                    let name = variant.ident.to_string();
                    let renamed = Attributes::of(&variant.attrs).value("rename");
                    let name = renamed.unwrap_or_else(|| in_case(&name, attributes.value("rename_all").as_deref()));
                    (name, documentation(&variant.attrs))
                });
                return Shape::Choice(cased.collect());
            }
            _ => unreachable!("no other items are looked for"),
        };
        let parameters = item.generics.type_params().map(|parameter| parameter.ident.to_string());
        let given: BTreeMap<String, Known> = parameters.zip(arguments.iter().cloned()).collect();
        let fields = item.fields.iter().flat_map(|field| self.fields(field, home, &given)).collect();
        Shape::Object(format!("{}{arguments:?}", item.ident), fields)
    }

    /// Returns the fields that serde writes for a field: itself, the fields of its value, or none.
    fn fields(&self, field: &syn::Field, home: &Source, given: &BTreeMap<String, Known>) -> Vec<Field> {
        let attributes = Attributes::of(&field.attrs);
        if attributes.has("skip") {
            return Vec::new();
        }
        let (shape, nullable) = self.shape(&field.ty, home, given);
        if attributes.has("flatten") {
            let Shape::Object(_, mut fields) = shape else { panic!("only fields can be flattened") };
            fields.iter_mut().for_each(|field| field.optional |= nullable);
            return fields;
        }
        let written = field.ident.as_ref().expect("a name").to_string();
        let (name, about) = (attributes.value("rename").unwrap_or(written), documentation(&field.attrs));
        let optional = attributes.has("skip_serializing_if");
        assert!(!about.is_empty(), "`{name}` has no documentation");
        vec![Field { name, about, shape, nullable: nullable && !optional, optional }]
    }
}

/// Whether serde derives the type's form from its fields or variants.
fn is_written(item: &Item) -> bool {
    let attributes = match item {
        Item::Struct(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        _ => return false,
    };
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) => list.path.is_ident("derive") && list.tokens.to_string().contains("Serialize"),
        _ => false,
    })
}

/// serde's attributes of a type, a field or a variant.
struct Attributes(Vec<(String, Option<String>)>);

impl Attributes {
    /// The attributes that this code understands.
    const KNOWN: [&str; 8] =
        ["rename", "rename_all", "flatten", "skip", "skip_serializing_if", "default", "with", "untagged"];

    fn of(attributes: &[Attribute]) -> Self {
        let mut found = Vec::new();
        for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("serde")) {
            let read = attribute.parse_nested_meta(|meta| {
                let name = meta.path.get_ident().map(ToString::to_string).unwrap_or_default();
                assert!(Self::KNOWN.contains(&name.as_str()), "serde's `{name}` is not understood in a schema");
                let has_value = meta.input.peek(Token![=]);
                let value = if has_value { Some(meta.value()?.parse::<LitStr>()?.value()) } else { None };
                found.push((name, value));
                Ok(())
            });
            read.expect("serde's attributes");
        }
        Attributes(found)
    }

    fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(known, _)| known == name)
    }

    fn value(&self, name: &str) -> Option<String> {
        self.0.iter().find(|(known, _)| known == name).and_then(|(_, value)| value.clone())
    }
}

/// Returns a variant's name in the case that `rename_all` sets.
fn in_case(name: &str, case: Option<&str>) -> String {
    let hyphen = match case {
        Some("lowercase") => "",
        Some("kebab-case") => "-",
        _ => panic!("`rename_all = {case:?}` is not understood in a schema"),
    };
    let spelt = name.char_indices().map(|(at, letter)| {
        let before = if at > 0 && letter.is_uppercase() { hyphen } else { "" };
        format!("{before}{}", letter.to_lowercase())
    });
    spelt.collect()
}

/// The doc comment as one line; links to other items are plain names.
fn documentation(attributes: &[Attribute]) -> String {
    let lines = attributes.iter().filter_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
            Expr::Lit(ExprLit { lit: Lit::Str(line), .. }) => Some(line.value().trim().to_owned()),
            _ => None,
        },
        _ => None,
    });
    let text = lines.collect::<Vec<_>>().join(" ").replace("[`", "`").replace("`]", "`");
    if text.is_empty() || text.ends_with('.') { text } else { text + "." }
}

/// Returns the parts of `value` that do not fit the shape, each with its place. `…` ends lists that were cut.
pub(crate) fn misfits(value: &Value, shape: &Shape, place: &str) -> Vec<String> {
    let each = |items: &[Value], shape: &Shape| {
        let items = items.iter().filter(|item| **item != "…").enumerate();
        items.flat_map(|(at, item)| misfits(item, shape, &format!("{place}[{at}]"))).collect()
    };
    let fits = match (shape, value) {
        (Shape::Plain("string"), Value::String(_)) | (Shape::Plain("boolean"), Value::Bool(_)) => true,
        (Shape::Plain("integer"), Value::Number(number)) => number.is_i64() || number.is_u64(),
        (Shape::Plain("number"), Value::Number(_)) => true,
        (Shape::Choice(choices), Value::String(text)) => choices.iter().any(|(name, _)| name == text),
        (Shape::Array(shape), Value::Array(items)) => return each(items, shape),
        (Shape::Tuple(shapes), Value::Array(items)) if shapes.len() == items.len() => {
            let parts = shapes.iter().zip(items);
            return parts.flat_map(|(shape, item)| misfits(item, shape, place)).collect();
        }
        (Shape::Map(shape), Value::Object(fields)) => {
            return fields.values().flat_map(|field| misfits(field, shape, place)).collect();
        }
        (Shape::Either(shapes), value) => shapes.iter().any(|(_, shape)| misfits(value, shape, place).is_empty()),
        (Shape::Object(_, known), Value::Object(fields)) => {
            let unknown = fields.keys().filter(|name| known.iter().all(|field| field.name != **name));
            let unknown = unknown.map(|name| format!("`{place}.{name}` is in no schema"));
            let known = known.iter().flat_map(|field| match fields.get(&field.name) {
                None if field.optional => Vec::new(),
                None => vec![format!("`{place}.{}` is missing", field.name)],
                Some(Value::Null) if field.nullable => Vec::new(),
                Some(value) => misfits(value, &field.shape, &format!("{place}.{}", field.name)),
            });
            return unknown.chain(known).collect();
        }
        _ => false,
    };
    if fits { Vec::new() } else { vec![format!("`{place}` is {value}")] }
}
