//! Makes grafts of Debian's musl with the sample donor, without any of the code that makes real ones.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::sync::{Arc, Mutex, OnceLock};

use fixtures::{Arch, ZigTarget};
use sha2::{Digest, Sha256};

/// What the sample donor defines.
const PROVIDES: [&str; 17] = [
    "malloc",
    "calloc",
    "realloc",
    "free",
    "aligned_alloc",
    "memalign",
    "posix_memalign",
    "valloc",
    "pvalloc",
    "reallocarray",
    "malloc_usable_size",
    "__libc_malloc",
    "__libc_calloc",
    "__libc_realloc",
    "__libc_free",
    "__malloc_donate",
    "__malloc_atfork",
];

/// Debian's names of the members of musl's allocator, those that are there twice included.
pub(crate) const OF_ALLOCATOR: [&str; 13] = [
    "valloc.lo",
    "calloc.lo",
    "free.lo",
    "libc_calloc.lo",
    "lite_malloc.lo",
    "aligned_alloc.lo",
    "donate.lo",
    "malloc.lo",
    "malloc_usable_size.lo",
    "realloc.lo",
    "memalign.lo",
    "posix_memalign.lo",
    "reallocarray.lo",
];

/// A graft to be, and the ways in which it is to be broken.
#[derive(Debug, Clone, Default)]
pub(crate) struct Recipe {
    /// `-D` for the donor.
    pub(crate) define: Option<&'static str>,
    /// Further members to take out.
    pub(crate) also_remove: &'static [&'static str],
    /// Members of the allocator to leave in.
    pub(crate) keep: &'static [&'static str],
    /// The options of the note, and in the block `patience=VALUE`.
    pub(crate) patience: Option<i64>,
    /// The options of the note, whatever the block has.
    pub(crate) noted: Option<&'static str>,
    /// Whether a byte of the donor's code is changed after its checksum was taken.
    pub(crate) touch: bool,
    /// What the index leaves out.
    pub(crate) unindexed: &'static [&'static str],
}

pub(crate) fn stock(arch: Arch) -> Vec<u8> {
    fs::read(fixtures::debian_musl(arch).libc).unwrap()
}

pub(crate) fn graft(arch: Arch, recipe: &Recipe) -> Vec<u8> {
    let stock = stock(arch);
    let (members, index) = parse(&stock);
    let gone = |name: &str| {
        let allocators = OF_ALLOCATOR.contains(&name) && !recipe.keep.contains(&name);
        allocators || recipe.also_remove.contains(&name)
    };
    let donor = donor(arch, recipe);
    let mut exports = PROVIDES.to_vec();
    exports.retain(|name| recipe.define != Some("WITHOUT_HOOK") || *name != "__malloc_atfork");
    exports.extend((recipe.define == Some("WITH_STRDUP")).then_some("strdup"));
    let mut kept: Vec<(Vec<u8>, Vec<String>)> = Vec::new();
    let mut inserted = false;
    for (place, (name, bytes)) in members.iter().enumerate() {
        if !gone(name) {
            kept.push((bytes.to_vec(), index.get(&place).cloned().unwrap_or_default()));
        } else if !inserted {
            inserted = true;
            kept.push((member(&donor), exports.iter().map(|&name| name.to_owned()).collect()));
        }
    }
    for (_, symbols) in &mut kept {
        symbols.retain(|symbol| !recipe.unindexed.contains(&symbol.as_str()));
    }
    build(&kept)
}

/// An archive that holds nothing but the donor.
pub(crate) fn donor_alone(arch: Arch) -> Vec<u8> {
    let member = member(&donor(arch, &Recipe::default()));
    build(&[(member, PROVIDES.map(str::to_owned).to_vec())])
}

fn member(donor: &[u8]) -> Vec<u8> {
    let header = format!("{:<16}{:<12}{:<6}{:<6}{:<8}{:<10}`\n", "allograft.o/", 0, 0, 0, 644, donor.len());
    let mut member = [header.as_bytes(), donor].concat();
    member.resize(member.len().next_multiple_of(2), b'\n');
    member
}

/// Name and bytes (with header and padding).
type RawMember<'a> = (String, &'a [u8]);

/// Each member, and for each place what the index says is defined there.
fn parse(archive: &[u8]) -> (Vec<RawMember<'_>>, HashMap<usize, Vec<String>>) {
    let (mut at, mut members, mut places, mut raw_index) = (8, Vec::new(), HashMap::new(), &[][..]);
    while at < archive.len() {
        let field = |from: usize, to: usize| std::str::from_utf8(&archive[at + from..at + to]).unwrap().trim_end();
        let size: usize = field(48, 58).parse().unwrap();
        let name = field(0, 16).to_owned();
        let end = at + 60 + size.next_multiple_of(2);
        match name.as_str() {
            "/" => raw_index = &archive[at + 60..at + 60 + size],
            "//" => members.push((name, &archive[at..end])),
            _ => {
                places.insert(at, members.len());
                let text = match name.strip_prefix('/') {
                    Some(offset) => {
                        let table = members.iter().find(|(name, _)| name == "//").unwrap().1;
                        let rest = &table[60 + offset.parse::<usize>().unwrap()..];
                        let end = rest.iter().position(|&byte| byte == b'/').unwrap();
                        String::from_utf8(rest[..end].to_vec()).unwrap()
                    }
                    None => name.trim_end_matches('/').to_owned(),
                };
                members.push((text, &archive[at..end]));
            }
        }
        at = end;
    }
    let number = |at: usize| u32::from_be_bytes(raw_index[at..at + 4].try_into().unwrap()) as usize;
    let count = number(0);
    let mut index: HashMap<usize, Vec<String>> = HashMap::new();
    let names = raw_index[4 + 4 * count..].split(|&byte| byte == 0);
    for (entry, name) in names.take(count).enumerate() {
        let symbol = String::from_utf8(name.to_vec()).unwrap();
        index.entry(places[&number(4 + 4 * entry)]).or_default().push(symbol);
    }
    (members, index)
}

fn build(members: &[(Vec<u8>, Vec<String>)]) -> Vec<u8> {
    let symbols: Vec<&str> = members.iter().flat_map(|(_, symbols)| symbols).map(String::as_str).collect();
    let names: usize = symbols.iter().map(|name| name.len() + 1).sum();
    let size = (4 + 4 * symbols.len() + names).next_multiple_of(2);
    let mut offset = 8 + 60 + size;
    let mut index = (symbols.len() as u32).to_be_bytes().to_vec();
    for (bytes, symbols) in members {
        for _ in symbols {
            index.extend((offset as u32).to_be_bytes());
        }
        offset += bytes.len();
    }
    for name in symbols {
        index.extend(name.as_bytes());
        index.push(0);
    }
    index.resize(size, 0);
    let header = format!("{:<16}{:<12}{:<6}{:<6}{:<8}{:<10}`\n", "/", 0, 0, 0, 0, size);
    let mut archive = [b"!<arch>\n", header.as_bytes(), &index].concat();
    for (bytes, _) in members {
        archive.extend(bytes);
    }
    archive
}

/// The sample donor with its note filled in.
pub(crate) fn donor(arch: Arch, recipe: &Recipe) -> Vec<u8> {
    let mut object = compiled(arch, recipe.define);
    let place =
        |object: &[u8], needle: &[u8]| object.windows(needle.len()).position(|window| window == needle).unwrap();
    let description = place(&object, b"donor=sample\n");
    let options = place(&object, b"ARGO\x01\0\0\0");
    let mut blank = object.clone();
    blank[description..description + 512].fill(0);
    blank[options..options + 16 + 2 * 64].fill(0);
    let digest: String = Sha256::digest(&blank).iter().map(|byte| format!("{byte:02x}")).collect();
    let noted = match (recipe.noted, recipe.patience) {
        (Some(noted), _) => noted.to_owned(),
        (None, Some(value)) => format!("patience={value}"),
        (None, None) => String::new(),
    };
    let text = format!("donor=sample\nversion=1.2\noptions={noted}\nobject=sha256:{digest}\nallograft=0.1.0\n");
    object[description..description + 512].fill(0);
    object[description..description + text.len()].copy_from_slice(text.as_bytes());
    if let Some(value) = recipe.patience {
        object[options + 16 + 32..][..8].copy_from_slice(&value.to_le_bytes());
        object[options + 16 + 56] = 1;
    }
    if recipe.touch {
        // A byte of padding in the ELF header.
        object[15] = 1;
    }
    object
}

type Cache = Mutex<HashMap<(Arch, Option<&'static str>), Arc<OnceLock<Vec<u8>>>>>;

/// The donor as zig compiles it, once for each set of definitions.
fn compiled(arch: Arch, define: Option<&'static str>) -> Vec<u8> {
    static CACHE: OnceLock<Cache> = OnceLock::new();
    let cell = CACHE.get_or_init(Cache::default).lock().unwrap().entry((arch, define)).or_default().clone();
    cell.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let (source, object) = (folder.path().join("donor.c"), folder.path().join("donor.o"));
        fs::write(&source, include_str!("donor.c")).unwrap();
        let fixed = ["cc", "-target", arch.triple(), "-O2", "-g0", "-fPIE", "-fno-builtin", "-fno-sanitize=all", "-c"];
        let mut arguments: Vec<OsString> = fixed.iter().map(OsString::from).collect();
        arguments.extend(arch.flags().map(OsString::from));
        arguments.extend(define.map(|define| format!("-D{define}").into()));
        arguments.extend(["-o".into(), object.clone().into(), source.into()]);
        fixtures::zig().run(&arguments).unwrap();
        fs::read(object).unwrap()
    })
    .clone()
}
