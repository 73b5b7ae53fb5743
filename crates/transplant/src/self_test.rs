//! The copy of a grafted program that runs its self-test in place of the program.
//!
//! Only such a copy can run the self-test: no environment variable and no argument requests it. Otherwise anyone who
//! controls a program's environment could make it exit with 0 without having run.

use format::Linked;
use format::parameters::{FORMAT, HEAD, MAGIC, SELF_TEST};

use crate::executable::Executable;
use crate::merge;

/// Returns a copy of a grafted executable that runs its self-test.
///
/// The copy of a static program differs in one byte. The copy of a merged program differs in one word, so that the
/// donor's constructor is the only one that runs. The copy of a program that loads its donor differs in at most two
/// words.
///
/// `None` unless the file carries exactly one graft in this version's format.
pub(crate) fn copy(graft: &Executable<'_>) -> Option<Vec<u8>> {
    if graft.kind() == Linked::Dynamic {
        let image = &graft.image;
        return merge::with_only_donors_constructors(image).or_else(|| merge::needed::without_constructors(image));
    }
    let mut copy = graft.bytes().to_vec();
    copy[switch(graft)?] = SWITCHED_ON;
    Some(copy)
}

/// The value of the byte at [`switch`] in a copy that runs its self-test.
pub(crate) const SWITCHED_ON: u8 = 1;

/// Returns the offset of the byte by which a copy differs. `None` for a dynamic program, and unless the file carries
/// exactly one graft in this version's format.
pub(crate) fn switch(graft: &Executable<'_>) -> Option<usize> {
    let head = [MAGIC.to_le_bytes(), FORMAT.to_le_bytes()].concat();
    let mut found = memchr::memmem::find_iter(graft.bytes(), &head);
    let (at, None) = (found.next()?, found.next()) else { return None };
    let at = at + HEAD + 8 * SELF_TEST;
    (graft.kind() != Linked::Dynamic && at < graft.bytes().len()).then_some(at)
}
