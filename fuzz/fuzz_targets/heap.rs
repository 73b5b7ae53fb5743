//! See `attack/targets`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| targets::run("heap", input));
