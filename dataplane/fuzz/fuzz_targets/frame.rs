//! The checks of frames, driven by libFuzzer.

#![no_main]

#[path = "../checks.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|octets: &[u8]| checks::frame(octets));
