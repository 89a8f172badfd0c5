//! The checks of configurations, driven by libFuzzer.

#![no_main]

#[path = "../checks.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|octets: &[u8]| checks::config(octets));
