//! A running director with its kernel path, on cables.

use std::time::Duration;

use common::table::ForwardingTable;
use dataplane::host::sys::interface::{Interface, Offload};

use crate::host::{Host, Load, Running, Seen, by_backend, collect, expected, packet, syn, table};
use crate::judge::{INGRESS, load};
use crate::namespace::{ip, isolated};
use crate::support::vectors::PIPELINE;

const FOUR: [&str; 4] = ["10.0.0.11", "10.0.0.12", "10.0.0.13", "10.0.0.14"];

/// Runs the test in a namespace of its own, if BPF programs may be loaded.
fn with_bpf(test: impl FnOnce() + Send) {
    if load(&PIPELINE, INGRESS).is_some() {
        isolated(test);
    }
}

fn resolved(director: &Running) {
    director.until("all backends have a next hop", |status| {
        let backends = status["tables"][0]["backends"].as_array().unwrap();
        backends.iter().all(|backend| backend["unreachable"].is_null())
    });
}

fn seen_right(all: &mut [Seen], table: &ForwardingTable, count: u32) {
    all.sort_by_key(|seen| seen.number);
    let hops: Vec<_> = all.iter().map(|seen| (seen.number, seen.hops.clone())).collect();
    assert_eq!(hops, (0..count).map(|number| (number, expected(table, number))).collect::<Vec<_>>());
}

/// A worker does not see the frames that the program sends; one set of counters covers both.
fn forwards(mode: &str, attached: &str) {
    let host = Host::new();
    // A veth takes redirected frames natively only while its other end polls, which GRO makes it do.
    host.backends.visit(|| Offload::Gro.switch("far", true).unwrap());
    let table = table(None, &FOUR, 0);
    host.install(&table.encode());
    let mut ring = host.listen();
    let director = host.run(&format!("mode: {mode}\nworkers: 1"), &[]);
    resolved(&director);
    host.sender().send(&(0..500).map(syn).collect::<Vec<_>>());
    let mut all = collect(&mut ring, 500);
    seen_right(&mut all, &table, 500);
    let link = ip_link("front");
    assert_eq!((link.contains("xdp"), link.contains("xdpgeneric")), (true, attached == "generic"), "{link}");
    let (report, said) = director.stop();
    assert_eq!(report["fast_path"]["attached"], attached, "{report:#}\n{said}");
    assert_eq!(report["fast_path"]["encapsulated"], 500);
    assert_eq!((&report["encapsulated"], &report["driver"]["sent"]), (&500.into(), &0.into()));
    assert_eq!(by_backend(&report).values().sum::<u64>(), 500);
    assert!(!ip_link("front").contains("xdp"), "nothing stays behind");
}

/// A driver accepts no program if frames may be longer than a page: then it is attached generically, and the
/// log has the reason.
#[test]
fn jumbo_frames_are_no_case_for_a_driver() {
    with_bpf(|| {
        let host = Host::new();
        for (peer, near, far, mtu) in
            [(&host.client, "front", "client", 9_000), (&host.backends, "back", "far", 9_100)]
        {
            ip(&format!("link set {near} mtu {mtu}"));
            peer.visit(|| ip(&format!("link set {far} mtu {mtu}")));
        }
        let table = table(None, &FOUR, 0);
        host.install(&table.encode());
        let mut ring = host.listen();
        let director = host.run("mode: xdp\nworkers: 1", &[]);
        resolved(&director);
        let sender = host.sender();
        for number in 0..20 {
            let frame = packet(number, &[0x5a; 8_900]);
            assert_eq!(sender.socket.send(sender.ifindex, &frame).unwrap(), frame.len());
        }
        seen_right(&mut collect(&mut ring, 20), &table, 20);
        let (report, said) = director.stop();
        let index = Interface::named("front").unwrap().index;
        let why = format!(
            "front: XDP, generic, native is not possible: interface {index}: its MTU is 9000, and a frame has to fit \
             one page: expected at most 3498"
        );
        assert!(said.contains(&why), "{said}");
        assert_eq!(report["fast_path"]["encapsulated"], 20, "{report:#}");
    });
}

fn ip_link(name: &str) -> String {
    let output = std::process::Command::new("ip").args(["link", "show", name]).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn auto_on_a_cable_is_generic_and_forwards_by_the_table() {
    with_bpf(|| forwards("auto", "generic"));
}

#[test]
fn xdp_is_native_and_forwards_by_the_table() {
    with_bpf(|| forwards("xdp", "native"));
}

/// A killed director leaves nothing: no program, no forwarding by an old table. It can be started again.
#[test]
fn a_killed_director_leaves_no_program() {
    with_bpf(|| {
        let host = Host::new();
        let table = table(None, &FOUR, 0);
        host.install(&table.encode());
        let mut ring = host.listen();
        for round in 0..3 {
            let director = host.run("mode: auto\nworkers: 1", &[]);
            resolved(&director);
            assert!(ip_link("front").contains("xdpgeneric"), "round {round}: {}", director.said());
            host.sender().send(&(0..100).map(syn).collect::<Vec<_>>());
            seen_right(&mut collect(&mut ring, 100), &table, 100);
            // Drop is SIGKILL.
            drop(director);
            assert!(!ip_link("front").contains("xdp"), "round {round}");
            host.sender().send(&(0..100).map(syn).collect::<Vec<_>>());
            assert_eq!(collect(&mut ring, 1), [], "round {round}: nothing forwards");
        }
    });
}

/// Packets are sent while the table is replaced repeatedly (`XDP_RELOADS`, 50 times by default): none is
/// lost, duplicated or corrupted, and no program or map is left.
#[test]
fn reloads_under_load_lose_nothing() {
    with_bpf(|| {
        let reloads: u64 = std::env::var("XDP_RELOADS").map_or(50, |text| text.parse().unwrap());
        let host = Host::new();
        let tables = [table(None, &FOUR, 0), table(None, &FOUR, 1)];
        host.install(&tables[0].encode());
        let director = host.run("mode: auto\nworkers: 1", &[]);
        resolved(&director);
        let (descriptors, (_, locked)) = (director.descriptors(), director.memory());
        assert!(locked > 0);
        let load = Load { swaps: reloads, pause: Duration::from_millis(4), limit: Duration::from_secs(300) };
        let (mut settled, mut grown) = (0, 0);
        let flowed = host.swap_under_load(&director, &tables, &load, |swap| {
            // By then the allocator has what two tables at once need.
            if swap == reloads.min(20) {
                settled = director.memory().0;
            }
            if swap == reloads {
                grown = director.memory().0.saturating_sub(settled);
            }
        });
        eprintln!("grown by {grown} KiB of {settled}");
        assert!(grown < settled / 4, "{grown} KiB more than {settled} after {reloads} reloads");
        assert_eq!(director.descriptors(), descriptors, "maps and programs of old tables are gone");
        assert_eq!(director.memory().1, locked, "and their memory");
        let (report, said) = director.stop();
        flowed.judge(&tables, reloads, &report, &said);
        let sent = flowed.sent;
        let fast = report["fast_path"]["encapsulated"].as_u64().unwrap();
        eprintln!("{sent} packets, {fast} of them by the program");
        assert_eq!(fast, u64::from(sent));
    });
}
