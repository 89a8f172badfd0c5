//! Tests in network namespaces: real kernels, real programs, real TCP. They need root (or CAP_SYS_ADMIN, to
//! create namespaces); without it they print `SKIPPED`, and fail where `CI=true`. No interface of the host is
//! touched.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod capture;
mod checksums;
mod demo;
mod flood;
mod one_host;
mod redirect;
mod second_chance;
mod second_host;
mod soak;
mod sources;
mod speed;

/// Whether this process may create namespaces. Prints SKIPPED if not.
fn privileged() -> bool {
    match dataplane::testkit::lab::netns::Namespace::new("probe") {
        Ok(_) => true,
        Err(error) if std::env::var_os("CI").is_some_and(|ci| ci == "true") => {
            panic!("CI must run this test: {error:#}")
        }
        Err(error) => {
            println!("SKIPPED: {error:#}");
            false
        }
    }
}
