//! A dynamic program that loads a donor's shared object: the object's name comes first among the libraries that it
//! needs, so that every look-up of a symbol finds the donor's before libc's. It is for programs that have to stay
//! small, or that share one donor; a merge has no second file that can be lost. No byte of the program moves.
//!
//! ```text
//!  file                                                          memory
//!  the program, unchanged                                        the same addresses
//!  page   note, names                                     R      \
//!  page   dynamic section                                 RW      |  behind the program's last segment
//!  page   program headers                                 R      /
//!         names and headers of sections
//! ```

use format::needed::{self, Needed};
use format::{Arch, Linked};

use super::Libc;
use super::dynamic::{self, Dynamic, NEEDED, STRSZ, STRTAB};
use super::layout::{Block, Parts, entries};
use super::libc::{self, refused};
use super::sections::{self, Kind, Part};
use crate::appended::Appended;
use crate::code;
use crate::executable::Executable;
use crate::image::{Image, PF_R, PF_W};
use crate::kind;
use crate::location::Location;
use crate::notes::places;
use crate::refusal::Refusal;

/// The room behind the library's name, so that a copy of the program can have a different name.
const ROOM: usize = 64;

/// A program that loads a donor.
#[derive(Debug, Clone)]
pub struct Need {
    /// The parts of the graft, for reports.
    pub plan: NeedPlan,
    /// The changed file.
    pub bytes: Vec<u8>,
}

/// The changes that the graft makes, with the facts that it relies on.
#[derive(Debug, Clone)]
pub struct NeedPlan {
    /// The program's architecture.
    pub arch: Arch,
    /// Whether it has a symbol table (not that of its dynamic symbols).
    pub symbols: bool,
    /// Its libc.
    pub libc: Libc,
    /// The name of the shared object, as its loader gets it.
    pub library: Vec<u8>,
    /// Whether it can load libraries into a namespace of their own, which has a libc of its own.
    pub loads_namespaces: bool,
    /// Whether it starts with Linux 5.18 and later only: its `.bss` is too large to be written into the file as zeros.
    pub needs_later_kernel: bool,
}

/// Plans that a dynamic program loads a shared object, and makes the change (see [`Executable::need`]).
pub(crate) fn need(executable: &Executable<'_>, library: &[u8], note: &Needed) -> Result<Need, Refusal> {
    let image = &executable.image;
    if executable.kind() != Linked::Dynamic {
        return Err(refused("it has no interpreter: nothing loads libraries for it"));
    }
    let machine = code::machine(image.arch).ok_or_else(|| Refusal::Architecture(image.arch.to_string()))?;
    // The pages of its code may be guarded (BTI): the loader guards those of each library by the library's own mark.
    kind::check_unguarded(image)?;
    let dynamic = Dynamic::parse(image)?;
    libc::check(&dynamic, image.arch)?;
    let libc = Libc::recognise(&dynamic, image)?;
    check_name(library, libc)?;
    if dynamic.texts(NEEDED).contains(&library) {
        return Err(refused(format!("it needs `{}` already", String::from_utf8_lossy(library))));
    }
    let location = Location::choose_dynamic(image, machine)?;
    let plan = NeedPlan {
        arch: image.arch,
        symbols: !image.symbols().is_empty(),
        libc,
        library: library.to_owned(),
        loads_namespaces: dynamic.loads_namespaces(),
        needs_later_kernel: location.needs_later_kernel(image),
    };
    Ok(Need { plan, bytes: assemble(image, &dynamic, library, note, location, machine.page()) })
}

/// Refuses names that the loader would not take literally (glibc elf/dl-deps.c, `expand_dst`; musl ldso/dynlink.c,
/// `load_library`).
fn check_name(library: &[u8], libc: Libc) -> Result<(), Refusal> {
    let shown = || String::from_utf8_lossy(library).into_owned();
    let after_origin = library.strip_prefix(ORIGIN);
    let dollars = |text: &[u8]| text.contains(&b'$');
    match libc {
        _ if library.is_empty() || library.contains(&0) => Err(refused("the name of the shared object is empty")),
        Libc::Musl if dollars(library) => {
            Err(refused(format!("it is musl's, whose loader takes the dollar sign in `{}` literally", shown())))
        }
        Libc::Musl if is_musls_own(library) => {
            Err(refused(format!("it is musl's, whose loader takes `{}` for a part of libc", shown())))
        }
        Libc::Glibc if dollars(after_origin.unwrap_or(library)) => {
            Err(refused(format!("only `$ORIGIN/` at the beginning is known of what `{}` has", shown())))
        }
        _ if library.contains(&b'/') && !library.starts_with(b"/") && after_origin.is_none() => {
            Err(refused(format!("`{}` would be looked for in the folder that it is started in", shown())))
        }
        _ => Ok(()),
    }
}

/// The loader's variable for the program's own folder, at the beginning of a path.
const ORIGIN: &[u8] = b"$ORIGIN/";

/// Whether musl's loader answers a request for this library by itself (ldso/dynlink.c, `load_library`).
fn is_musls_own(name: &[u8]) -> bool {
    const RESERVED: [&[u8]; 7] = [b"c.", b"pthread.", b"rt.", b"m.", b"dl.", b"util.", b"xnet."];
    name.strip_prefix(b"lib").is_some_and(|rest| RESERVED.iter().any(|reserved| rest.starts_with(reserved)))
}

fn assemble(
    image: &Image<'_>,
    program: &Dynamic<'_>,
    library: &[u8],
    needed: &Needed,
    location: Location,
    page: u64,
) -> Vec<u8> {
    let mut read_only = Block::new(location.base);
    let note = read_only.lay(&needed.encode(), 1);
    let name = program.strings.len() as u64;
    let strings = read_only.lay(&[program.strings, library, &[0; ROOM]].concat(), 1);
    let fill = |block: &mut Block| {
        let end = block.bytes.len().next_multiple_of(page as usize);
        block.bytes.resize(end, 0);
    };
    fill(&mut read_only);

    let mut table = [NEEDED, name].into_iter().flat_map(u64::to_le_bytes).collect::<Vec<u8>>();
    table.extend(entries(program, vec![(STRTAB, strings.start), (STRSZ, strings.end - strings.start)]));
    // To the end of its page, so that tools which cut a segment at the end of its last section keep all of it.
    table.resize(table.len().next_multiple_of(page as usize), 0);
    let mut data = Block::new(read_only.end());
    let dynamic = data.lay(&table, 1);

    let parts = Parts {
        appended: Appended { location, page, headers_at: data.end() },
        notes: vec![note.clone()],
        tls: None,
        dynamic: dynamic.clone(),
        loads: vec![(PF_R, location.base..read_only.end()), (PF_R | PF_W, dynamic.clone())],
    };
    let mut file = image.bytes.to_vec();
    file.resize(location.offset as usize, 0);
    file.extend(read_only.bytes.iter().chain(&data.bytes));
    parts.write_headers(&mut file, image);
    if !image.sections.is_empty() {
        let rest = strings.end..read_only.end();
        let mut all = vec![
            Part { kind: Kind::NoteOnNeeded, range: note },
            Part { kind: Kind::Strings, range: strings },
            Part { kind: Kind::Constants, range: rest },
            Part { kind: Kind::Dynamic, range: dynamic },
        ];
        all.retain(|part| !part.range.is_empty());
        sections::append(&mut file, image, &all, None, &parts, sections::ForTools::default());
    }
    file
}

/// The note on the shared object that a program loads; `None` if it loads none, or has several notes.
pub(crate) fn note(program: &[u8]) -> Option<Needed> {
    let head = needed::head();
    let mut found = places(program, &head).filter_map(|at| Needed::parse(&program[at..]));
    found.next().filter(|_| found.next().is_none())
}

/// The name of the shared object that a grafted program loads, as its loader gets it; `None` if it loads none.
pub(crate) fn library(program: &Image<'_>) -> Option<Vec<u8>> {
    note(program.bytes)?;
    let dynamic = Dynamic::parse(program).ok()?;
    dynamic.texts(NEEDED).first().map(|name| name.to_vec())
}

/// Returns a copy of a program that loads a donor, in which none of the program's own constructors runs; those of its
/// libraries do. `None` if the program loads no donor.
pub(crate) fn without_constructors(program: &Image<'_>) -> Option<Vec<u8>> {
    note(program.bytes)?;
    let mut copy = program.bytes.to_vec();
    for tag in [dynamic::PREINIT_ARRAYSZ, dynamic::INIT_ARRAYSZ] {
        if let Some(at) = dynamic::value_at(program, tag) {
            copy[at..at + 8].fill(0);
        }
    }
    Some(copy)
}

/// Returns a copy of a program that loads its donor from `library`. `None` if the program loads no donor, or the path
/// is too long.
pub(crate) fn with_library(program: &Image<'_>, library: &[u8]) -> Option<Vec<u8>> {
    note(program.bytes)?;
    let dynamic = Dynamic::parse(program).ok()?;
    let old = dynamic.texts(NEEDED).first()?.len();
    let (_, first) = *dynamic.entries.iter().find(|(tag, _)| *tag == NEEDED)?;
    if library.len() >= ROOM + old {
        return None;
    }
    let at = program.offset(dynamic.value(STRTAB)? + first)?;
    let mut copy = program.bytes.to_vec();
    let place = copy.get_mut(at..at + old + ROOM)?;
    place.fill(0);
    place[..library.len()].copy_from_slice(library);
    Some(copy)
}
