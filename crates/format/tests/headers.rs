//! The C side of the format: the donors' headers have to agree with this crate.

use std::path::Path;

use format::{DonorKind, Role, StringFunction, entries, family, note, options, parameters, sealed, windows};

fn header(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../donors").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The text behind `before`, up to `end`.
fn between<'h>(header: &'h str, before: &str, end: &str) -> &'h str {
    let (_, rest) = header.split_once(before).unwrap_or_else(|| panic!("no `{before}`"));
    rest.split_once(end).unwrap_or_else(|| panic!("no `{end}` behind `{before}`")).0
}

/// The values of every `#define` of this name.
fn defined(header: &str, name: &str) -> Vec<u64> {
    let values = header.lines().filter_map(|line| line.strip_prefix("#define ")?.strip_prefix(name)?.strip_prefix(' '));
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    let word = |value: &str| value.split(' ').next().unwrap_or_default().trim_end_matches('u').to_owned();
    values.map(|value| number(&word(value)).unwrap_or_else(|_| panic!("{name}: {value}"))).collect()
}

/// The names of a list with commas between them, without the assigned values.
fn names(list: &str) -> Vec<&str> {
    let names = list.split(',').map(|name| name.split('=').next().unwrap_or_default().trim());
    names.filter(|name| !name.is_empty()).collect()
}

#[test]
fn parameters_are_those_of_the_header() {
    let header = header("transplant/parameters.h");
    assert_eq!(defined(&header, "TRANSPLANT_MAGIC"), [parameters::MAGIC]);
    assert_eq!(defined(&header, "TRANSPLANT_FORMAT"), [parameters::FORMAT]);
    assert_eq!(defined(&header, "TRANSPLANT_CALLS"), [parameters::CALLS as u64]);
    assert_eq!(names(between(&header, "enum {\n\tcall_malloc", "};")).len() + 1, parameters::CALLS);

    let fields = between(&header, "struct transplant_parameters {\n", "};");
    let mut words = Vec::new();
    for line in fields.lines().map(str::trim) {
        let declared = between(line, " ", ";");
        for field in names(declared) {
            let (name, count) = field.split_once('[').unwrap_or((field, "1]"));
            let count = count.trim_end_matches(']').parse().unwrap_or(parameters::CALLS);
            words.extend(std::iter::repeat_n(name, count));
        }
    }
    assert_eq!(&words[..parameters::HEAD / 8], ["magic", "format"]);
    let words = &words[parameters::HEAD / 8..];
    assert_eq!(words[parameters::SELF_TEST], "self_test");
    assert_eq!(words.iter().position(|word| *word == "calls"), Some(parameters::WORDS));
    assert_eq!(words.len(), parameters::WORDS + parameters::CALLS);

    // Each field with a value of its own is encoded at the header's offset.
    let values = parameters::Parameters {
        entry: 1,
        headers: 2,
        relocations: 3,
        relocation_count: 4,
        sealed: [5; 2],
        sealed_size: [6; 2],
        errno_offset: -7,
        key_destructors: 8,
        main: 9,
        tls_image: 10,
        tls_file_size: 11,
        tls_size: 12,
        tls_alignment: 13,
        start_main: 14,
        streams: 15,
        calls: [16; parameters::CALLS],
    };
    let names = [
        "self_test",
        "entry",
        "headers",
        "relocations",
        "relocation_count",
        "sealed",
        "sealed_size",
        "errno_offset",
        "key_destructors",
        "main",
        "tls_image",
        "tls_file_size",
        "tls_size",
        "tls_alignment",
        "start_main",
        "streams",
        "calls",
    ];
    let encoded = values.encode();
    let values: Vec<i64> = encoded.chunks_exact(8).map(|word| i64::from_le_bytes(word.try_into().unwrap())).collect();
    let encoded: Vec<&str> = values.iter().map(|value| names[value.unsigned_abs() as usize]).collect();
    assert_eq!((encoded, values[7 + 1]), (words.to_vec(), -7));
}

#[test]
fn entry_points_are_numbered_as_in_the_header() {
    let header = header("transplant/parameters.h");
    assert_eq!(defined(&header, "TRANSPLANT_ENTRIES"), [entries::ROOM_WITH_STRINGS as u64, entries::ROOM as u64]);
    let list = between(&header, "enum {\n\tstring_memcpy", "};");
    let first: u32 = list[..list.find(',').unwrap()].trim_start_matches(" = ").parse().unwrap();
    let strings: Vec<String> = StringFunction::all().map(|function| format!("string_{function}")).collect();
    let listed: Vec<&str> = std::iter::once("string_memcpy").chain(names(&list[list.find(',').unwrap()..])).collect();
    assert_eq!(listed, strings);
    let numbers: Vec<u32> = StringFunction::all().map(StringFunction::number).collect();
    assert_eq!(numbers, (first..first + strings.len() as u32).collect::<Vec<_>>());
    assert!(Role::Donate.number() < first);
}

#[test]
fn notes_and_options_are_laid_out_as_in_the_headers() {
    let glue = header("glue/note.h");
    assert_eq!(defined(&glue, "GRAFT_NOTE_SIZE"), [note::DESCRIPTION as u64]);
    assert!(glue.contains("uint32_t name_size, description_size, type;\n\tchar name[12];"), "{}", note::HEAD);
    for kind in DonorKind::ALL {
        let mut content = note::head(kind).to_vec();
        content.resize(note::HEAD + note::DESCRIPTION, 0);
        assert_eq!(note::description(kind, &content), Ok(note::HEAD..content.len()));
    }

    let glue = header("glue/options.h");
    for section in [options::OPTIONS_SECTION, options::LIBRARY_OPTIONS_SECTION, windows::OPTIONS_SECTION] {
        assert!(glue.contains(&format!("#define GRAFT_OPTIONS_SECTION \"{section}\"\n")), "{section}");
    }
    assert_eq!(defined(&glue, "GRAFT_OPTION_SET"), [1]);
    // An empty block with the header's own magic and format.
    let begins = between(&glue, "graft_options = {\n\t", "graft_option_count");
    let head: Vec<u32> = names(begins)
        .into_iter()
        .map(|number| number.strip_prefix("0x").map_or(number.parse().ok(), |hex| u32::from_str_radix(hex, 16).ok()))
        .map(Option::unwrap)
        .collect();
    let block: Vec<u8> = head.into_iter().chain([0, 64]).flat_map(u32::to_le_bytes).collect();
    assert_eq!(options::parse(&block), Ok(Vec::new()));
    assert!(glue.contains("_Static_assert(sizeof(struct graft_option) == 64"));
}

/// The donor of string functions may export more, such as musl's internal names.
#[test]
fn the_recipe_of_string_functions_exports_each() {
    let recipe = header("strings/recipe.toml");
    for function in StringFunction::all() {
        assert!(recipe.contains(&format!("    \"{function}\",\n")), "{function}");
    }
}

#[test]
fn the_glue_defines_the_family() {
    let glue = header("glue/family.h");
    for name in family::donated() {
        assert!(glue.contains(name), "{name}");
    }
}

#[test]
fn the_family_of_windows_is_what_the_headers_define() {
    let mut defined = Vec::new();
    for name in ["windows/family.h", "windows/returned.h"] {
        let text = header(name);
        for line in text.lines() {
            let begins =
                ["GRAFT_DEFINE(", "GRAFT_RETURNED(", "GRAFT_STORED("].iter().find_map(|it| line.strip_prefix(it));
            defined.extend(begins.and_then(|rest| rest.split(',').next()).map(str::to_owned));
        }
    }
    defined.sort();
    let mut family = windows::FAMILY.map(str::to_owned).to_vec();
    family.sort();
    assert_eq!(defined, family);
}

#[test]
fn what_is_sealed_is_that_of_the_header() {
    let header = header("glue/shared.h");
    let initial = between(&header, "} graft_sealed = {", "};");
    let words: Vec<&str> = initial.split(',').map(str::trim).collect();
    assert_eq!(words[0], format!("{:#x}", sealed::MAGIC));
    assert_eq!(words[1], sealed::FORMAT.to_string());
    assert_eq!(between(&header, "} ranges[", "];"), sealed::RANGES.to_string());
    assert_eq!(sealed::SIZE, 8 * (2 + 2 * sealed::RANGES));
}
