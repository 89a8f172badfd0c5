//! Next hops from a real kernel: on the link, behind a gateway, IPv6, local, refused; and changes followed.

use std::net::IpAddr;
use std::time::Duration;

use common::bind::Prefix;
use dataplane::director::leave_to_director;
use dataplane::host::route::{Monitor, Pinned, ResolvedRoute, Resolver, Unresolved};
use dataplane::host::sys::interface::Interface;
use dataplane::host::sys::poll::readable;
use dataplane::pipeline::NextHop;
use dataplane::wire::ethernet::Mac;

use crate::namespace::{Peer, cable_to, ip, isolated};

/// `near` (192.0.2.1, 2001:db8::1) and `far` (.2, .3; ::2), which answers.
fn network() -> Peer {
    let peer = Peer::new();
    cable_to(&peer, "near", "far");
    ip("addr add 192.0.2.1/24 dev near");
    // Neighbour discovery sends from a link-local address.
    ip("addr add fe80::1/64 dev near nodad");
    ip("addr add 2001:db8::1/64 dev near nodad");
    peer.visit(|| {
        ip("link set far address 02:00:00:00:00:02");
        ip("addr add 192.0.2.2/24 dev far");
        ip("addr add 192.0.2.3/24 dev far");
        ip("addr add 2001:db8::2/64 dev far nodad");
    });
    peer
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn one(resolver: &mut Resolver, backend: &str) -> Result<ResolvedRoute, Unresolved> {
    resolver.resolve([address(backend)]).unwrap().remove(0)
}

/// Resolves again after each notification, until the route is `wanted` or no more notifications arrive.
fn follow(
    resolver: &mut Resolver,
    monitor: &mut Monitor,
    backend: &str,
    wanted: impl Fn(&ResolvedRoute) -> bool,
) -> ResolvedRoute {
    for _ in 0..20 {
        match one(resolver, backend) {
            Ok(found) if wanted(&found) => return found,
            _ => {}
        }
        for _ in 0..10 {
            readable(
                [&*monitor].map(|monitor| std::os::fd::AsFd::as_fd(monitor)),
                Duration::from_millis(100),
            )
            .unwrap();
            if monitor.changes().unwrap().concern(resolver) {
                break;
            }
        }
    }
    panic!("{backend}: {:?}", one(resolver, backend));
}

fn goes_to(mac: [u8; 6]) -> impl Fn(&ResolvedRoute) -> bool {
    move |hop| matches!(hop.next_hop, NextHop::Link { destination, .. } if destination == Mac(mac))
}

const FAR: [u8; 6] = [2, 0, 0, 0, 0, 2];

#[test]
fn backends_on_the_link_and_behind_a_gateway_over_both_families() {
    isolated(|| {
        let _peer = network();
        ip("route add 10.0.0.0/8 via 192.0.2.2 mtu 1400");
        ip("route add 2001:db8:1::/48 via 2001:db8::2");
        ip("route add 10.6.0.0/16 via inet6 2001:db8::2");
        let near = Interface::named("near").unwrap();
        let (mut resolver, mut monitor) =
            (Resolver::open(Pinned::default()).unwrap(), Monitor::open().unwrap());
        let link = NextHop::Link { ifindex: near.index, source: Mac(near.mac), destination: Mac(FAR) };
        for (backend, source, mtu) in [
            ("192.0.2.2", "192.0.2.1", 1500),
            ("192.0.2.3", "192.0.2.1", 1500),
            ("10.1.2.3", "192.0.2.1", 1400),
            ("10.6.2.3", "192.0.2.1", 1500),
            ("2001:db8::2", "2001:db8::1", 1500),
            ("2001:db8:1::5", "2001:db8::1", 1500),
        ] {
            let found = follow(&mut resolver, &mut monitor, backend, |_| true);
            assert_eq!(found, ResolvedRoute { next_hop: link, source: address(source), mtu }, "{backend}");
        }
    });
}

#[test]
fn an_address_of_this_host_is_local() {
    isolated(|| {
        let _peer = network();
        let mut resolver = Resolver::open(Pinned::default()).unwrap();
        for own in ["192.0.2.1", "2001:db8::1"] {
            let found = one(&mut resolver, own).unwrap();
            assert_eq!((found.next_hop, found.source), (NextHop::Local, address(own)));
        }
    });
}

/// Sets a switch of all interfaces for IPv4.
fn set(key: &str, value: &str) {
    std::fs::write(format!("/proc/sys/net/ipv4/conf/all/{key}"), value).unwrap();
}

fn takes(resolver: &mut Resolver, to: &str, ifindex: u32) -> bool {
    resolver.accepts([address(to)], ifindex).unwrap() == [true]
}

/// The kernel makes the route of an IPv6 address in its own time.
fn soon_taken(resolver: &mut Resolver, to: &str, ifindex: u32, what: &str) {
    let taken = (0..1_000).any(|_| {
        let taken = takes(resolver, to, ifindex);
        std::thread::sleep(Duration::from_millis(if taken { 0 } else { 2 }));
        taken
    });
    assert!(taken, "{to}: {what}");
}

/// Configures the host as its operator does if it is director and backend, for packets that arrive on `near`.
fn leave(vip: &str) {
    let command = leave_to_director(Prefix::host(address(vip)), "near");
    assert!(std::process::Command::new("sh").args(["-ec", &command]).status().unwrap().success());
}

/// A host with a VIP accepts its packets, until it is configured to leave those to its director.
#[test]
fn what_comes_in_for_an_address_of_this_host_is_taken_unless_it_is_left_to_the_director() {
    isolated(|| {
        let _peer = network();
        let near = Interface::named("near").unwrap().index;
        let mut resolver = Resolver::open(Pinned::default()).unwrap();
        for (vip, other) in [("203.0.113.10", "203.0.113.11"), ("2001:db8:5::10", "2001:db8:5::11")] {
            let bits = if address(vip).is_ipv4() { "32" } else { "128 nodad" };
            assert!(!takes(&mut resolver, vip, near), "{vip} is no address yet");
            for (address, device) in [(vip, "lo"), (other, "near")] {
                ip(&format!("addr add dev {device} {address}/{bits}"));
            }
            for strict in ["1", "0"] {
                set("rp_filter", strict);
                soon_taken(&mut resolver, vip, near, &format!("reverse path filter {strict}"));
            }
            leave(vip);
            assert!(!takes(&mut resolver, vip, near), "{vip} is left");
            soon_taken(&mut resolver, other, near, "not left");
        }
    });
}

/// For a packet that it may not accept, a router's kernel returns another error, which is the same as for a
/// packet that its reverse path filter refuses because there is no route back.
#[test]
fn a_routers_refusal_is_distinguished_from_a_missing_route() {
    isolated(|| {
        let _peer = network();
        let near = Interface::named("near").unwrap().index;
        let mut resolver = Resolver::open(Pinned::default()).unwrap();
        set("forwarding", "1");
        ip("addr add dev lo 203.0.113.10/32");
        ip("addr add dev lo 203.0.113.11/32");
        leave("203.0.113.10");
        let mut check = |filters: &[&str], what: &str| {
            for filter in filters {
                set("rp_filter", filter);
                assert!(!takes(&mut resolver, "203.0.113.10", near), "{what}, {filter}");
                assert!(takes(&mut resolver, "203.0.113.11", near), "{what}, {filter}");
            }
        };
        check(&["0", "1"], "no default route");
        ip("route add default via 192.0.2.2");
        check(&["0", "1"], "a default route");
        let other = Peer::new();
        cable_to(&other, "second", "beyond");
        ip("addr add 198.51.100.1/24 dev second");
        ip("route replace default via 198.51.100.2");
        check(&["0", "1"], "a default route elsewhere");
        ip("addr flush dev near");
        check(&["0"], "no address of its own");
    });
}

#[test]
fn what_has_no_route_says_why() {
    isolated(|| {
        let _peer = network();
        ip("route add blackhole 10.1.0.0/16");
        ip("route add prohibit 10.2.0.0/16");
        let mut resolver = Resolver::open(Pinned::default()).unwrap();
        for backend in ["10.1.0.1", "10.2.0.1", "10.3.0.1", "2001:db8:5::1"] {
            let refused = one(&mut resolver, backend);
            assert!(
                matches!(refused, Err(Unresolved::NoRoute(errno)) if errno > 0),
                "{backend}: {refused:?}"
            );
        }
        // No host has this address on the link.
        assert_eq!(one(&mut resolver, "192.0.2.99"), Err(Unresolved::Neighbour(address("192.0.2.99"))));
    });
}

#[test]
fn a_gateway_with_a_new_card_is_followed() {
    isolated(|| {
        let peer = network();
        ip("route add 10.0.0.0/8 via 192.0.2.2");
        let (mut resolver, mut monitor) =
            (Resolver::open(Pinned::default()).unwrap(), Monitor::open().unwrap());
        follow(&mut resolver, &mut monitor, "10.0.0.1", goes_to(FAR));
        peer.visit(|| ip("link set far address 02:00:00:00:00:22"));
        // The gateway sends nothing; the refresh makes the kernel send a request, or here the entry is
        // flushed, with the same effect.
        ip("neigh flush dev near");
        resolver.refresh().unwrap();
        follow(&mut resolver, &mut monitor, "10.0.0.1", goes_to([2, 0, 0, 0, 0, 0x22]));
    });
}

/// With NTF_USE the kernel treats a permanent entry as an ordinary one, sends a request, and drops the entry
/// without a reply.
#[test]
fn a_permanent_neighbour_that_answers_nothing_stays() {
    isolated(|| {
        let _peer = network();
        let fixed = goes_to([2, 0, 0, 0, 0, 0x77]);
        let state = || {
            let shown =
                std::process::Command::new("ip").args(["neigh", "show", "192.0.2.77"]).output().unwrap();
            String::from_utf8(shown.stdout).unwrap()
        };
        let mut resolver = Resolver::open(Pinned::default()).unwrap();
        ip("neigh add 192.0.2.77 lladdr 02:00:00:00:00:77 dev near nud permanent");
        assert!(fixed(&one(&mut resolver, "192.0.2.77").unwrap()));
        resolver.refresh().unwrap();
        assert!(state().contains("PERMANENT"), "{}", state());
        assert!(fixed(&one(&mut resolver, "192.0.2.77").unwrap()));
        // Made permanent since the last look-up.
        ip("neigh replace 192.0.2.77 lladdr 02:00:00:00:00:77 dev near nud stale");
        one(&mut resolver, "192.0.2.77").unwrap();
        ip("neigh replace 192.0.2.77 lladdr 02:00:00:00:00:77 dev near nud permanent");
        resolver.refresh().unwrap();
        assert!(state().contains("PERMANENT"), "{}", state());
    });
}

#[test]
fn a_changed_route_is_followed() {
    isolated(|| {
        let _peer = network();
        let other = Peer::new();
        cable_to(&other, "second", "beyond");
        ip("addr add 198.51.100.1/24 dev second");
        other.visit(|| {
            ip("link set beyond address 02:00:00:00:00:03");
            ip("addr add 198.51.100.2/24 dev beyond");
        });
        ip("route add 10.0.0.0/8 via 192.0.2.2");
        let (mut resolver, mut monitor) =
            (Resolver::open(Pinned::default()).unwrap(), Monitor::open().unwrap());
        follow(&mut resolver, &mut monitor, "10.0.0.1", goes_to(FAR));
        ip("route replace 10.0.0.0/8 via 198.51.100.2");
        let moved = follow(&mut resolver, &mut monitor, "10.0.0.1", goes_to([2, 0, 0, 0, 0, 3]));
        assert_eq!(moved.source, address("198.51.100.1"));
        ip("link set second down");
        assert!(monitor.changes().unwrap().everything);
        assert!(matches!(one(&mut resolver, "10.0.0.1"), Err(Unresolved::NoRoute(_))));
    });
}

#[test]
fn a_pinned_gateway_needs_no_neighbour() {
    isolated(|| {
        let _peer = network();
        let mut resolver =
            Resolver::open(Pinned { mac: Some([2, 9, 9, 9, 9, 9]), ..Pinned::default() }).unwrap();
        let found = one(&mut resolver, "192.0.2.99").unwrap();
        assert!(goes_to([2, 9, 9, 9, 9, 9])(&found));
    });
}

/// A director that has no address of its own: there is a route, and what is missing is an address to send
/// from.
#[test]
fn a_host_without_an_address_sends_from_the_configured_one() {
    isolated(|| {
        let _peer = network();
        ip("addr flush dev near");
        ip("link set near addrgenmode none");
        ip("-6 addr flush dev near");
        ip("route add 10.0.0.0/8 dev near");
        let missing = |resolver: &mut Resolver, backend| one(resolver, backend).unwrap_err().to_string();
        let mut resolver = Resolver::open(Pinned { mac: Some(FAR), ..Pinned::default() }).unwrap();
        assert_eq!(
            missing(&mut resolver, "10.0.0.1"),
            "a route, but this host has no IPv4 address to send from: set source_ipv4"
        );
        assert!(missing(&mut resolver, "172.16.0.1").starts_with("no route ("));
        let source: std::net::Ipv4Addr = "192.0.2.9".parse().unwrap();
        resolver.pin(Pinned { mac: Some(FAR), source_ipv4: Some(source), ..Pinned::default() });
        let found = one(&mut resolver, "10.0.0.1").unwrap();
        assert!(goes_to(FAR)(&found));
        assert_eq!(found.source, IpAddr::from(source));
    });
}
