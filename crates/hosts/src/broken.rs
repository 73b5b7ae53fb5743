//! Tests: grafts that are broken between the edit and the verification. Each is refused with the name of the check, and nothing is
//! placed.

use std::cell::RefCell;

type Tamper = Box<dyn Fn(&mut Vec<u8>)>;

thread_local! {
    static TAMPER: RefCell<Option<Tamper>> = const { RefCell::new(None) };
}

/// The edited bytes, broken in the way that a test on this thread has asked for.
pub(crate) fn tampered(mut bytes: Vec<u8>) -> Vec<u8> {
    TAMPER.with_borrow(|tamper| {
        if let Some(tamper) = tamper {
            tamper(&mut bytes);
        }
    });
    bytes
}
