//! Programs that are grafted after they were linked: those of the conformance suite and released ones.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use conformance::Program;
use fixtures::Arch;
use fixtures::corpus::{self, Released};
use hosts::Request;

use crate::bench::{Bench, Donors};
use crate::link::LinkSetup;

/// The program with a malloc of its own. Only musl itself uses musl's malloc in it, so it is refused, with and without
/// symbols.
pub const OWN_MALLOC: &str = "interposer";

/// The donors that are put into a program.
#[derive(Debug, Clone, Copy)]
pub struct Graft {
    /// The allocator.
    pub donor: &'static donors::Donor,
    /// Whether string functions are exchanged, too.
    pub strings: bool,
}

/// Links a conformance program with stock musl, in a folder of its own.
///
/// # Errors
/// The linker's message.
pub fn stock(
    bench: &Bench,
    program: &Program,
    way: LinkSetup,
    flags: &[OsString],
    label: &str,
) -> Result<PathBuf, String> {
    let arch = way.host.arch();
    if !matches!(arch, Arch::X86_64 | Arch::Aarch64) {
        return Err(format!("no executables are grafted for {arch}"));
    }
    let object = bench.file(&format!("{} {arch}.o", program.name), program.object(arch));
    let folder = bench.path(label);
    std::fs::create_dir(&folder).map_err(|error| error.to_string())?;
    let stock = folder.join("stock");
    way.link(bench, &bench.libc(way.host, Donors::STOCK, &[]), &[object], flags, &stock)?;
    Ok(stock)
}

impl Graft {
    /// Returns its name in the names of tests and files.
    pub fn name(self) -> String {
        format!("{}{}", self.donor.name, if self.strings { "+strings" } else { "" })
    }
}

/// Returns the request to graft an executable. The graft may be untested, since the tests run the program themselves.
pub fn request(Graft { donor, strings }: Graft) -> Request {
    Request { strings: Some(strings), untested: true, ..Request::new(donor) }
}

/// Grafts a stock conformance program, applies `later` to the graft, and runs it.
///
/// # Errors
/// A description of the fault.
pub fn check(
    program: &Program,
    with: Graft,
    way: LinkSetup,
    stock: &Path,
    later: impl FnOnce(&Path) -> Result<(), String>,
    scale: &str,
) -> Result<(), String> {
    let graft = stock.with_file_name(program.name);
    match hosts::graft(stock, &Request { out: Some(graft.clone()), ..request(with) }) {
        Ok(_) if program.name == OWN_MALLOC => return Err("it brings its own malloc, and was grafted".into()),
        Ok(_) => {}
        Err(hosts::Error::Executable { .. }) if program.name == OWN_MALLOC => return Ok(()),
        Err(error) => return Err(error.to_string()),
    }
    later(&graft)?;
    let output = way.run(&graft, &[("ALLOGRAFT_SCALE".to_owned(), scale.to_owned())])?;
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.success() && stdout == format!("ok {}\n", program.name) {
        return Ok(());
    }
    Err(format!("{}, stdout {stdout:?}, stderr {stderr:?}", output.status))
}

/// Returns the released programs for an architecture that can be grafted.
pub fn released(arch: Arch) -> impl Iterator<Item = Released> {
    let fits = move |released: &Released| {
        released.arch == arch.name()
            && released.malloc == "mallocng"
            && matches!(released.link.as_deref(), Some("static" | "static-pie"))
    };
    corpus::listed().into_iter().filter(fits)
}

/// Grafts a released program. The graft must report the same version, from the same place. If the graft is refused,
/// this fails, so that the refusal is investigated.
///
/// # Errors
/// A description of the fault.
pub fn check_released(bench: &Bench, arch: Arch, released: &Released, strings: bool) -> Result<(), String> {
    let stock = corpus::place(released);
    let folder = bench.path(&format!("released {} {strings}", released.name));
    std::fs::create_dir(&folder).map_err(|error| error.to_string())?;
    let program = folder.join(stock.file_name().ok_or("a name")?);
    std::fs::copy(&stock, &program).map_err(|error| format!("{error}: run `cargo xtask setup corpus`"))?;
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&program, mode).map_err(|error| error.to_string())?;
    let version =
        || fixtures::output(fixtures::run(arch, &program).arg("--version")).map_err(|error| error.to_string());
    let before = version()?;
    let donor = donors::default_for(arch);
    hosts::graft(&program, &request(Graft { donor, strings })).map_err(|error| error.to_string())?;
    let after = version()?;
    if (before.status, &before.stdout) == (after.status, &after.stdout) {
        return Ok(());
    }
    Err(format!("{before:?} became {after:?}"))
}
