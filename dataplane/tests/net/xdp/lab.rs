//! The whole service with both programs in the kernel.

use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use dataplane::testkit::lab::modes::Modes;
use dataplane::testkit::lab::service::Service;
use dataplane::testkit::lab::topology::{Size, service};
use dataplane::testkit::lab::world::{Setup, World};

use crate::judge::{INGRESS, load};
use crate::support::vectors::PIPELINE;

/// A SYN that is lost is sent again after a second.
const PATIENCE: Duration = Duration::from_secs(10);
/// Long enough to see that no host answers.
const SOON: Duration = Duration::from_millis(400);

fn setup() -> Setup {
    Setup {
        size: Size { clients: 1, directors: 1, backends: 1, shared: false, underlay_mtu: 1_600 },
        binary: PathBuf::from(env!("CARGO_BIN_EXE_dataplane")),
        second_chance: true,
        fast_path: true,
        director_lines: String::new(),
        service: Service::with_backends(1).unwrap(),
        seed: 7,
        modes: Modes::from_environment(),
    }
}

/// Whether a program is on the backend's interface, and whether a client gets through to it within
/// `patience`.
fn state(world: &World, patience: Duration) -> (bool, bool) {
    let link = || Command::new("ip").args(["link", "show", "eth0"]).output().unwrap().stdout;
    let link = world.network.backends[0].run(link);
    let to: SocketAddr = service(true);
    let reached = world.network.clients[0].run(move || TcpStream::connect_timeout(&to, patience));
    (String::from_utf8(link).unwrap().contains("xdp"), reached.is_ok())
}

/// A killed redirector leaves nothing behind, and nothing decapsulates by an old configuration. When it is
/// started again it continues with the existing connections.
#[test]
fn a_killed_redirector_leaves_no_program_and_its_connections_go_on() {
    if load(&PIPELINE, INGRESS).is_none() {
        return;
    }
    let mut world = World::new(setup()).unwrap();
    assert_eq!(world.modes().unwrap(), ["xdp generic"; 2]);
    world.open(20).unwrap();
    for round in 0..2 {
        assert_eq!(state(&world, PATIENCE), (true, true), "round {round}");
        world.kill_redirector(0).unwrap();
        assert_eq!(state(&world, SOON), (false, false), "round {round}, killed");
        world.start_redirector(0).unwrap();
        let counts = world.exchange();
        assert_eq!((counts.alive, counts.broken()), (20, 0), "round {round}: {counts}");
        let counters = world.hops().unwrap();
        assert!(counters.first > 0, "round {round}: {counters:?}");
    }
    assert_eq!(world.modes().unwrap(), ["xdp generic"; 2]);
}
