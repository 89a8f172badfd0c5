//! Director and backend on a single host: its own kernel serves packets that enter it, as the primary and as
//! the second hop, and it forwards others.

use std::collections::BTreeMap;

use dataplane::testkit::lab::world::{Setup, World};

use crate::second_chance::{End, drain, prove, setup};

/// The first backend's host is the only director.
fn one_host() -> Setup {
    let mut setup = setup(1, 3, 3);
    setup.size.shared = true;
    setup
}

/// All packets enter the draining host: its own packets go to another host, are unknown there, and come back.
#[test]
fn the_host_is_the_primary_and_then_the_second_hop() {
    prove("one host is director and backend; it is drained", one_host(), |world| drains(world, 0));
}

/// Packets for the host itself are unknown there and forwarded.
#[test]
fn the_host_is_the_primary_of_what_it_passes_on() {
    prove("one host is director and backend; another is drained", one_host(), |world| drains(world, 1));
}

#[test]
fn the_host_is_reached_by_its_ipv6_address_as_well() {
    let setup = one_host();
    let setup = Setup { service: setup.service.over_ipv6(), ..setup };
    prove("one host is director and backend, IPv6 underlay; it is drained", setup, |world| drains(world, 0));
}

fn drains(world: &mut World, number: u8) -> anyhow::Result<End> {
    world.open(60)?;
    // Each connection is on the backend of the table, also those of this host: its kernel accepted none by
    // itself.
    assert_eq!(world.by_backend(), world.expected());
    assert_eq!(world.by_backend().len(), 3);
    let end = drain(world, &[number])?;
    assert_eq!(world.director_counters(0)?["driver"]["undelivered"], 0);
    Ok(end)
}

/// The reason for the rules: a kernel that has the VIP answers every packet that enters, although the
/// director also forwards it.
#[test]
fn without_the_rules_the_kernel_accepts_packets_for_other_backends() {
    if !crate::privileged() {
        return;
    }
    let mut world = World::new(one_host()).unwrap();
    if world.modes().unwrap()[0] != "af-packet" {
        println!("SKIPPED: a program takes the packets before the kernel sees them, rules or no rules");
        return;
    }
    world.network.director(0).shell("ip rule del pref 1; ip -6 rule del pref 1").unwrap();
    let opened = world.open(60);
    let by_backend: BTreeMap<_, _> = world.by_backend();
    assert!(opened.is_err() || by_backend != world.expected(), "{by_backend:?}");
}
