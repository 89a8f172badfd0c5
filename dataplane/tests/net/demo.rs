//! `dataplane demo`: its counters, and that it leaves nothing behind.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::hash::SipKey;
use dataplane::host::sys::process::terminate;
use dataplane::redirect::Redirect;
use dataplane::redirect::clients::HostAddresses;
use dataplane::redirect::config::RedirectConfig;

fn demo(temporary: &Path) -> Child {
    Command::new(env!("CARGO_BIN_EXE_dataplane"))
        .args(["demo", "--json"])
        .env("TMPDIR", temporary)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn may_load_programs() -> bool {
    let config = "{version: 1, directors: [10.0.0.1], backends: [10.0.0.2], vips: [10.0.0.3]}";
    let config = RedirectConfig::parse("probe", config).unwrap();
    Redirect::load(&config, &HostAddresses::default(), [0; 6], SipKey::new([7; 16])).is_ok()
}

fn is_empty(folder: &Path) -> bool {
    std::fs::read_dir(folder).unwrap().next().is_none()
}

#[test]
fn the_demo_breaks_only_the_connections_that_it_announces() {
    if !crate::privileged() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let output = demo(folder.path()).wait_with_output().unwrap();
    let counted: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(output.status.success(), "{counted}");
    assert_eq!(counted["answered"], 300);
    // Cables between namespaces have native XDP only for those who prepare both ends.
    let modes = if may_load_programs() { ["xdp generic"; 2] } else { ["af-packet", "socket"] };
    assert_eq!([&counted["director_mode"], &counted["redirect_mode"]], modes);
    assert_eq!(counted["served"], counted["expected"]);
    assert_eq!(counted["drain"]["connections"]["broken"], 0);
    assert!(counted["drain"]["packets_by_second_hop"].as_u64().unwrap() > 0);
    assert_eq!(counted["drain"]["new_connections"]["web-1"], 0);
    assert_eq!(counted["director_killed"]["broken"], 0);
    let control = &counted["without_second_chance"];
    assert_eq!(control["connections"]["broken"], control["on_drained"]);
    assert!(is_empty(folder.path()));
}

#[test]
fn an_interrupted_demo_leaves_nothing_behind() {
    if !crate::privileged() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut child = demo(folder.path());
    for _ in 0..2_000 {
        if !is_empty(folder.path()) {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(!is_empty(folder.path()), "it has files while it runs");
    terminate(&child).unwrap();
    child.wait().unwrap();
    assert!(is_empty(folder.path()));
}
