//! The document of `allograft undo`.

use hosts::UndoneAction;
use serde::Serialize;

use super::text_of;

/// The result of `undo`.
#[derive(Debug, Serialize)]
pub(crate) struct Undone<'u> {
    /// The hosts, sorted by path.
    hosts: Vec<Host<'u>>,
}

/// A host that is stock now, or would be (`planned`).
#[derive(Debug, Serialize)]
struct Host<'u> {
    /// Its path.
    path: String,
    /// The action taken.
    action: UndoneAction,
    /// SHA-256 of the stock host, in hexadecimal.
    sha256: &'u str,
    /// Warnings: clauses whose subject is the host.
    notes: &'u [String],
}

impl<'u> From<&'u [hosts::Undone]> for Undone<'u> {
    fn from(undone: &'u [hosts::Undone]) -> Self {
        let host = |host: &'u hosts::Undone| Host {
            path: text_of(&host.path),
            action: host.action,
            sha256: &host.stock_sha256,
            notes: &host.notes,
        };
        Undone { hosts: undone.iter().map(host).collect() }
    }
}
