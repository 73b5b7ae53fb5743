//! The private grafted copy of a target's `libc.a`.

use std::fs;
use std::path::{Path, PathBuf};

use hosts::Request;

use super::arguments::Order;
use crate::failure::Failure;
use crate::output::Output;

/// Grafts `libc` into a folder below `folder`, unless that graft exists already, and returns its folder, which holds it
/// as `libc.a`. The folder's name is a part of the graft's checksum, so that another donor, other options or another
/// libc have another folder.
pub(super) fn make(
    folder: &Path,
    target: &str,
    libc: &Path,
    order: &Order,
    output: &Output,
) -> Result<PathBuf, Failure> {
    let request = |out: PathBuf, dry_run| Request {
        candidates: order.candidates.clone(),
        strings: Some(order.strings),
        out: Some(out),
        dry_run,
        ..Request::default()
    };
    fs::create_dir_all(folder).map_err(Failure::io("make", folder))?;
    let planned = hosts::graft(libc, &request(folder.join("libc.a"), true))?;
    let Some(host) = planned.hosts.first() else { return Err(hosts::Error::NothingToGraft.into()) };
    for note in &host.notes {
        output.warn(format_args!("`{}` {note}", libc.display()));
    }
    let copy = folder.join(target).join(&host.graft_sha256[..16]);
    let file = copy.join("libc.a");
    let there = fs::read(&file).is_ok_and(|bytes| hosts::sha256(&bytes) == host.graft_sha256);
    if !there {
        fs::create_dir_all(&copy).map_err(Failure::io("make", &copy))?;
        hosts::graft(libc, &request(file, false))?;
    }
    Ok(copy)
}
