//! Objects that are made for the tests: symbols made local, two objects made one, damage, Windows.

mod coff;
mod damage;
mod localising;
mod merging;
