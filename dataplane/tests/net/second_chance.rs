//! The promise: connections survive operators' changes and failures. Each scenario runs twice, the second
//! time with the second chance switched off; then connections must break, or the scenario proves nothing.
//!
//! Every connection is real TCP between real kernels and every octet that comes back is checked.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::PathBuf;

use common::backend::{Health, State};
use common::flow::HashFields;
use dataplane::control::socket::{Format, query};
use dataplane::testkit::lab::client::CrowdCounts;
use dataplane::testkit::lab::modes::Modes;
use dataplane::testkit::lab::netns::Namespace;
use dataplane::testkit::lab::server::Server;
use dataplane::testkit::lab::service::{Service, name};
use dataplane::testkit::lab::topology::Size;
use dataplane::testkit::lab::world::{Setup, World};

/// Long connections of a scenario.
const CROWD: usize = 500;

pub(crate) fn setup(directors: u8, backends: u8, serving: u8) -> Setup {
    Setup {
        size: Size { clients: 2, directors, backends, shared: false, underlay_mtu: 1_600 },
        binary: PathBuf::from(env!("CARGO_BIN_EXE_dataplane")),
        second_chance: true,
        fast_path: false,
        director_lines: String::new(),
        service: Service::with_backends(serving).unwrap(),
        seed: 7,
        modes: Modes::from_environment(),
    }
}

/// The result of a scenario.
pub(crate) struct End {
    pub(crate) counts: CrowdCounts,
    /// Connections that nothing could have saved: those of hosts that died.
    pub(crate) lost: usize,
}

impl From<CrowdCounts> for End {
    fn from(counts: CrowdCounts) -> Self {
        Self { counts, lost: 0 }
    }
}

/// Runs a scenario with the second chance and without, prints the row of the table, and checks it.
pub(crate) fn prove(title: &str, setup: Setup, play: impl Fn(&mut World) -> anyhow::Result<End>) {
    if !crate::privileged() {
        return;
    }
    let run = |second_chance| {
        let mut world = World::new(Setup { second_chance, ..setup.clone() })?;
        let end = play(&mut world)?;
        world.check_modes()?;
        anyhow::Ok((end, world.hops()?))
    };
    let (with, hops) = run(true).unwrap_or_else(|error| panic!("{title}: {error:#}"));
    let (without, _) = run(false).unwrap_or_else(|error| panic!("{title}, second chance off: {error:#}"));
    println!(
        "| {title} | {} | {} | {} | {} | {} / {} / {} |",
        with.counts.opened,
        with.lost,
        with.counts.broken(),
        without.counts.broken(),
        hops.first,
        hops.later,
        hops.forwarded,
    );
    assert_eq!(with.counts.broken(), with.lost, "{title}: {}", with.counts);
    assert!(without.counts.broken() > without.lost, "{title}: nothing broke without: {}", without.counts);
}

/// Requests on all connections, a few times over.
fn exchanges(world: &mut World, times: usize) -> CrowdCounts {
    (0..times).map(|_| world.exchange()).last().unwrap_or_default()
}

fn on(counts: &BTreeMap<String, usize>, number: u8) -> usize {
    counts.get(&name(number)).copied().unwrap_or(0)
}

/// New connections, and that none of them went to these backends.
fn open_elsewhere(world: &mut World, count: usize, not: &[u8]) -> anyhow::Result<()> {
    let before = world.by_backend();
    world.open(count)?;
    let after = world.by_backend();
    for &number in not {
        assert_eq!(on(&before, number), on(&after, number), "new connections on {}", name(number));
    }
    Ok(())
}

pub(crate) fn drain(world: &mut World, numbers: &[u8]) -> anyhow::Result<End> {
    world.open(CROWD)?;
    numbers.iter().for_each(|&number| world.service.set(number, State::Draining));
    world.publish()?;
    exchanges(world, 2);
    open_elsewhere(world, CROWD / 5, numbers)?;
    let counts = exchanges(world, 2);
    // Over time the clients finish; the operator sees it and removes the backends.
    numbers.iter().for_each(|&number| world.close_on(&name(number)));
    numbers.iter().for_each(|&number| world.service.set(number, State::Inactive));
    world.publish()?;
    let after = exchanges(world, 2);
    Ok(CrowdCounts { broken: if after.broken() > 0 { after.broken } else { counts.broken }, ..counts }.into())
}

#[test]
fn s01_drain_one_of_four() {
    prove("1. drain one of four, remove it", setup(2, 4, 4), |world| drain(world, &[0]));
}

#[test]
fn s02_drain_two_at_once() {
    prove("2. drain two of four at once, remove them", setup(2, 4, 4), |world| drain(world, &[1, 3]));
}

#[test]
fn s03_add_one() {
    prove("3a. add one", setup(2, 5, 4), |world| {
        world.open(CROWD)?;
        world.service.set(4, State::Active);
        world.publish()?;
        world.open(CROWD / 5)?;
        Ok(exchanges(world, 3).into())
    });
}

#[test]
fn s03_add_two_at_once() {
    prove("3b. add two at once", setup(2, 6, 4), |world| {
        world.open(CROWD)?;
        world.service.set(4, State::Active);
        world.service.set(5, State::Active);
        world.publish()?;
        world.open(CROWD / 5)?;
        Ok(exchanges(world, 3).into())
    });
}

#[test]
fn s03_fill_two_step_by_step() {
    prove("3c. fill two: 5 %, 25 %, active", setup(2, 6, 4), |world| {
        world.open(CROWD)?;
        for percent in [5, 25, 100] {
            for number in [4, 5] {
                world.service.fill(number, percent);
            }
            if percent == 100 {
                [4, 5].iter().for_each(|&number| world.service.set(number, State::Active));
            }
            world.publish()?;
            world.open(CROWD / 10)?;
            exchanges(world, 1);
        }
        Ok(exchanges(world, 2).into())
    });
}

#[test]
fn s04_false_alarm() {
    prove("4. one marked down that is up, and back", setup(2, 4, 4), |world| {
        world.open(CROWD)?;
        world.service.set_health(2, Health::Down);
        world.publish()?;
        exchanges(world, 2);
        open_elsewhere(world, CROWD / 5, &[2])?;
        world.service.set_health(2, Health::Up);
        world.publish()?;
        Ok(exchanges(world, 3).into())
    });
}

/// Then it comes back, and takes its rows back from the backends of connections opened meanwhile.
#[test]
fn s05_a_backend_dies_and_returns() {
    prove("5. one dies, another is drained", setup(2, 4, 4), |world| {
        world.open(CROWD)?;
        let lost = on(&world.by_backend(), 1);
        world.kill_backend(1)?;
        world.service.set_health(1, Health::Down);
        world.publish()?;
        world.service.set(3, State::Draining);
        world.publish()?;
        world.exchange_within(std::time::Duration::from_secs(3));
        let counts = exchanges(world, 2);
        assert_eq!(on(&world.broken_by_backend(), 1), lost, "all of its connections, counted exactly");
        Ok(End { counts, lost })
    });
}

#[test]
fn s06_a_director_dies_during_a_drain() {
    prove("6. a director of three dies during a drain", setup(3, 4, 4), |world| {
        world.open(CROWD)?;
        world.service.set(0, State::Draining);
        world.publish()?;
        exchanges(world, 1);
        world.kill_director(1)?;
        exchanges(world, 2);
        world.open(CROWD / 5)?;
        Ok(exchanges(world, 1).into())
    });
}

#[test]
fn s07_directors_with_different_tables() {
    prove("7. two directors on old and new tables, flows moving between them", setup(2, 4, 4), |world| {
        world.open(CROWD / 2)?;
        world.service.set(0, State::Draining);
        world.publish_to(&[1])?;
        for seed in 1..=5 {
            world.rehash(seed)?;
            world.open(CROWD / 10)?;
            exchanges(world, 2);
        }
        world.publish()?;
        Ok(exchanges(world, 2).into())
    });
}

#[test]
fn s08_hash_fields_change() {
    prove("8. hash_fields change, the old ones as alt_hash_fields", setup(2, 4, 4), |world| {
        world.open(CROWD)?;
        world.service.spec.alt_hash_fields = world.service.spec.hash_fields;
        world.service.spec.hash_fields = HashFields::from_bits(0b1111).unwrap();
        world.publish()?;
        world.open(CROWD / 5)?;
        Ok(exchanges(world, 3).into())
    });
}

#[test]
fn s09_the_router_hashes_differently() {
    prove("9. the router's hash seed changes during a drain", setup(3, 4, 4), |world| {
        world.open(CROWD)?;
        world.service.set(2, State::Draining);
        world.publish()?;
        for seed in [1, 0xdead_beef, 3] {
            world.rehash(seed)?;
            exchanges(world, 1);
        }
        world.open(CROWD / 5)?;
        Ok(exchanges(world, 1).into())
    });
}

#[test]
fn an_ipv6_underlay_drains_as_well() {
    let over_ipv6 = |setup: Setup| Setup { service: setup.service.over_ipv6(), ..setup };
    prove("drain one of four over an IPv6 underlay", over_ipv6(setup(2, 4, 4)), |world| drain(world, &[0]));
}

/// Every client sends full segments, which exceed the underlay's MTU once they are encapsulated.
#[test]
fn s10_clients_learn_the_smaller_mtu() {
    if !crate::privileged() {
        return;
    }
    let narrow = |rate: u32| {
        let mut setup = setup(2, 4, 4);
        setup.size.underlay_mtu = 1_500;
        setup.director_lines = format!("too_big_per_second: {rate}\n");
        World::new(setup).unwrap()
    };
    let mut world = narrow(100);
    world.open(40).unwrap();
    let counts = exchanges(&mut world, 3);
    let answers: u64 = (0..2).map(|n| too_big(&world.director_counters(n).unwrap())).sum();
    let silent = narrow(0).open(40).unwrap_err();
    println!(
        "| 10. full segments at MTU 1500 | {} | 0 | {} | {silent:#} | |",
        counts.opened,
        counts.broken()
    );
    assert_eq!(counts.broken(), 0, "{counts}");
    assert!(answers > 0, "no client got an answer");
    assert!(format!("{silent:#}").contains("no answer"), "{silent:#}");
}

fn too_big(counters: &serde_json::Value) -> u64 {
    let answers = counters["answered"].as_object().unwrap();
    answers.iter().filter(|(name, _)| name.contains("too_big")).filter_map(|(_, count)| count.as_u64()).sum()
}

/// The report that shows an operator that a drain is done, from the drained host in both forms.
#[test]
fn status_shows_the_second_hop() {
    if !crate::privileged() {
        return;
    }
    let mut world = World::new(setup(1, 4, 4)).unwrap();
    world.open(40).unwrap();
    world.service.set(0, State::Draining);
    world.publish().unwrap();
    world.exchange();
    let socket = world.redirect_socket(0);
    let json: serde_json::Value = serde_json::from_str(&query(&socket, Format::Json).unwrap()).unwrap();
    let from = json["kept_on_second_hop_from"].as_object().unwrap();
    assert!(from.values().filter_map(serde_json::Value::as_u64).sum::<u64>() > 0, "{json}");
    assert!(json["since_second_hop_ms"].is_u64());
    let text = query(&socket, Format::Text).unwrap();
    assert!(text.contains("kept on the second hop, from: "), "{text}");
}

/// Otherwise threads of removed hosts would accumulate from world to world.
#[test]
fn a_server_closes_its_connections_when_it_ends() {
    if !crate::privileged() {
        return;
    }
    let host = Namespace::new("server").unwrap();
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], 80));
    let server = Server::start(&host, "web-1", address).unwrap();
    let mut client = host.run(move || std::net::TcpStream::connect(address)).unwrap();
    client.set_read_timeout(Some(std::time::Duration::from_secs(5))).unwrap();
    client.write_all(b"POST / HTTP/1.1\r\nContent-Length: 1\r\n\r\nx").unwrap();
    assert!(client.read(&mut [0; 200]).unwrap() > 0, "it is served");
    drop(server);
    let mut rest = Vec::new();
    assert!(client.read_to_end(&mut rest).is_ok(), "it is still open");
}
