//! The table of vectors, checked with the program in a driver. Frames enter at the far end of a cable and
//! return there or, if they are punted, arrive at the near end.

use std::time::Duration;

use dataplane::drivers::xdp::{Attached, Director};
use dataplane::host::sys::interface::Interface;
use dataplane::host::sys::packet::PacketSocket;
use dataplane::host::sys::ring::{Ring, Shape};
use dataplane::testkit::lab::peer::Passing;

use crate::judge::{INGRESS, PASS, Run, SHORTEST, TX, compare, less, load, run};
use crate::namespace::{Peer, cable_to, ip, isolated};
use crate::support::vectors::{PIPELINE, all};

/// Frames longer than the underlay's MTU must get through; a native program without fragments takes no more
/// than a page.
const MTU: u32 = 3_000;

struct Cable {
    program: Director,
    _passing: Passing,
    /// The returned frames, and those punted to the host.
    far: Ring,
    near: Ring,
    socket: PacketSocket,
    from: u32,
}

impl Cable {
    fn new() -> Self {
        let peer = Peer::new();
        cable_to(&peer, "near", "far");
        ip(&format!("link set near mtu {MTU}"));
        let (passing, far, socket, from) = peer.visit(|| {
            ip(&format!("link set far mtu {MTU}"));
            let from = Interface::named("far").unwrap().index;
            let ring = Ring::open(from, Shape::default(), None).unwrap();
            (Passing::on(from).unwrap(), ring, PacketSocket::open().unwrap(), from)
        });
        let near = Interface::named("near").unwrap().index;
        let mut program = load(&PIPELINE, near).unwrap();
        program.attach_as(near, Attached::Native).unwrap();
        Self {
            program,
            _passing: passing,
            far,
            near: Ring::open(near, Shape::default(), None).unwrap(),
            socket,
            from,
        }
    }

    /// The program's output; `None` if neither end received the frame.
    fn pass(&mut self, frame: &[u8]) -> Option<Run> {
        assert_eq!(self.socket.send(self.from, frame).unwrap(), frame.len());
        for _ in 0..100 {
            for (action, ring) in [(TX, &mut self.far), (PASS, &mut self.near)] {
                ring.wait(Duration::from_millis(1)).unwrap();
                if let Some(frame) = next(ring) {
                    return Some(Run { action, frame });
                }
            }
        }
        None
    }
}

/// The one frame that a ring has, if any.
fn next(ring: &mut Ring) -> Option<Vec<u8>> {
    let mut block = ring.block()?;
    let frame = block.frame().map(|frame| frame.bytes.to_vec());
    assert!(block.frame().is_none(), "one frame in, one out");
    frame
}

#[test]
fn every_vector_fares_alike_in_the_driver() {
    let Some(judge) = load(&PIPELINE, INGRESS) else { return };
    isolated(|| {
        let mut cable = Cable::new();
        let (mut sent, mut left, mut unseen) = (0, 0, Vec::new());
        for vector in all().iter().filter(|vector| vector.frame.len() >= SHORTEST) {
            let before = [&judge, &cable.program].map(|program| program.counts().unwrap());
            compare(vector.name, &PIPELINE, &judge, &vector.frame);
            let counted = less(&judge.counts().unwrap(), &before[0]);
            let expected = run(&judge, &vector.frame);
            match cable.pass(&vector.frame) {
                Some(done) => assert_eq!(done, expected, "{}", vector.name),
                None => unseen.push(vector.name),
            }
            assert_eq!(less(&cable.program.counts().unwrap(), &before[1]), counted, "{}", vector.name);
            sent += usize::from(expected.action == TX);
            left += usize::from(expected.action == PASS);
        }
        eprintln!(
            "{sent} sent, {left} left alike; {unseen:?} left, and dropped by the kernel behind the program"
        );
        assert!(sent >= 15 && left >= 30, "{sent} sent, {left} left");
        // A truncated tag: the kernel removes tags before any socket receives the frame.
        assert_eq!(unseen, ["tag_cut"]);
    });
}
