//! The receive ring and the batch sender against a real kernel, over a veth pair.

use std::net::UdpSocket;
use std::time::Duration;

use dataplane::host::sys::batch::{Batch, Sent};
use dataplane::host::sys::interface::{Interface, Offload};
use dataplane::host::sys::packet::{Fanout, PacketSocket};
use dataplane::host::sys::ring::{Ring, Shape};

use crate::namespace::{Peer, cable, cable_to, ip, isolated};

/// An ethertype for experiments (IEEE 802), which no other program sends.
const OURS: [u8; 2] = [0x88, 0xb5];

fn frame(number: u32, len: usize) -> Vec<u8> {
    let mut frame = vec![0xa5; len];
    frame[..6].fill(0xff);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
    frame[12..14].copy_from_slice(&OURS);
    frame[14..18].copy_from_slice(&number.to_be_bytes());
    frame
}

/// Frames of our ethertype, tagged or not, until none comes for a while.
fn drain(ring: &mut Ring) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let mut quiet = 0;
    while quiet < 20 {
        ring.wait(Duration::from_millis(10)).unwrap();
        let Some(mut block) = ring.block() else {
            quiet += 1;
            continue;
        };
        quiet = 0;
        while let Some(frame) = block.frame() {
            let ethertype = if frame.bytes[12..14] == [0x81, 0] { 16 } else { 12 };
            if frame.bytes[ethertype..ethertype + 2] == OURS {
                frames.push(frame.bytes.to_vec());
            }
        }
        assert_eq!(block.malformed(), 0);
    }
    frames
}

fn send(frames: &[Vec<u8>], ifindex: u32) -> Sent {
    let socket = PacketSocket::open().unwrap();
    let mut batch = Batch::new(2048);
    let mut total = Sent::default();
    for frames in frames.chunks(dataplane::host::sys::batch::BATCH) {
        for frame in frames {
            batch.slot()[..frame.len()].copy_from_slice(frame);
            batch.push(frame.len(), ifindex);
        }
        let sent = batch.send(&socket);
        total.frames += sent.frames;
        total.congested += sent.congested;
        total.refused += sent.refused;
    }
    total
}

#[test]
fn every_frame_arrives_once_and_in_order_while_the_ring_goes_round() {
    isolated(|| {
        cable("left", "right");
        // 8 × 16 KiB hold about 500 of these frames: 5,000 go round ten times.
        let shape = Shape { block_len: 16 << 10, blocks: 8, retire_millis: 1 };
        let mut ring = Ring::open(Interface::named("right").unwrap().index, shape, None).unwrap();
        let to = Interface::named("left").unwrap().index;
        let frames: Vec<_> = (0..5000).map(|number| frame(number, 60 + number as usize % 90)).collect();
        let mut seen = Vec::new();
        for some in frames.chunks(200) {
            assert_eq!(send(some, to), Sent { frames: 200, ..Sent::default() });
            seen.extend(drain_some(&mut ring, 200));
        }
        assert_eq!(seen, frames);
        assert_eq!(ring.arrivals().unwrap().lost, 0);
    });
}

/// As `drain`, but stops at `count`.
fn drain_some(ring: &mut Ring, count: usize) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for _ in 0..1000 {
        if frames.len() >= count {
            break;
        }
        ring.wait(Duration::from_millis(10)).unwrap();
        if let Some(mut block) = ring.block() {
            while let Some(frame) = block.frame() {
                if frame.bytes[12..14] == OURS {
                    frames.push(frame.bytes.to_vec());
                }
            }
        }
    }
    frames
}

#[test]
fn a_host_does_not_see_what_it_sends_itself() {
    isolated(|| {
        cable("left", "right");
        let end = Interface::named("right").unwrap().index;
        let mut ring = Ring::open(end, Shape::default(), None).unwrap();
        send(&[frame(1, 60)], end);
        send(&[frame(2, 60)], Interface::named("left").unwrap().index);
        assert_eq!(drain(&mut ring), [frame(2, 60)]);
    });
}

#[test]
fn vlan_tags_are_seen_as_they_were_sent() {
    isolated(|| {
        cable("left", "right");
        let mut ring = Ring::open(Interface::named("right").unwrap().index, Shape::default(), None).unwrap();
        let plain = frame(1, 60);
        let one = [&plain[..12], &[0x81, 0, 0x60, 7], &plain[12..]].concat();
        send(&[one.clone(), plain.clone()], Interface::named("left").unwrap().index);
        assert_eq!(drain(&mut ring), [one, plain]);
    });
}

#[test]
fn a_frame_longer_than_the_mtu_is_refused_alone() {
    isolated(|| {
        cable("left", "right");
        let mut ring = Ring::open(Interface::named("right").unwrap().index, Shape::default(), None).unwrap();
        let to = Interface::named("left").unwrap().index;
        let sent = send(&[frame(1, 60), frame(2, 1600), frame(3, 60)], to);
        assert_eq!(sent, Sent { frames: 2, congested: 0, refused: 1 });
        assert_eq!(drain(&mut ring), [frame(1, 60), frame(3, 60)]);
    });
}

#[test]
fn frames_are_distributed_over_a_fanout_group_and_none_arrives_twice() {
    isolated(|| {
        cable("left", "right");
        let end = Interface::named("right").unwrap().index;
        let mut group = Fanout::default();
        let mut rings = [(); 2].map(|()| Ring::open(end, Shape::default(), Some(&mut group)).unwrap());
        let frames: Vec<_> = (0..100).map(|number| frame(number, 60)).collect();
        send(&frames, Interface::named("left").unwrap().index);
        let mut seen: Vec<_> = rings.iter_mut().flat_map(drain).collect();
        seen.sort();
        assert_eq!(seen, frames);
    });
}

/// Between namespaces the kernel leaves transport checksums unfinished, because nothing can corrupt them.
#[test]
fn an_unfinished_checksum_is_finished() {
    isolated(|| {
        let peer = Peer::new();
        cable_to(&peer, "near", "far");
        ip("addr add 192.0.2.1/24 dev near");
        let far = peer.visit(|| {
            ip("addr add 192.0.2.2/24 dev far");
            assert!(Offload::TxChecksum.is_on("far").unwrap(), "the case that is tested");
            UdpSocket::bind("192.0.2.2:4000").unwrap()
        });
        let mut ring = Ring::open(Interface::named("near").unwrap().index, Shape::default(), None).unwrap();
        far.send_to(b"an odd payload!", "192.0.2.1:5000").unwrap();
        let mut seen = 0;
        for _ in 0..100 {
            ring.wait(Duration::from_millis(10)).unwrap();
            let Some(mut block) = ring.block() else { continue };
            while let Some(frame) = block.frame() {
                if frame.bytes[12..14] == [8, 0] && frame.bytes[23] == 17 {
                    seen += 1;
                    let sliced = etherparse::SlicedPacket::from_ethernet(frame.bytes).unwrap();
                    let Some(etherparse::NetSlice::Ipv4(ip)) = sliced.net else { panic!("IPv4") };
                    let Some(etherparse::TransportSlice::Udp(udp)) = sliced.transport else { panic!("UDP") };
                    let header = udp.to_header();
                    let right = header.calc_checksum_ipv4_raw(
                        ip.header().source(),
                        ip.header().destination(),
                        udp.payload(),
                    );
                    assert_eq!(header.checksum, right.unwrap());
                }
            }
            if seen > 0 {
                break;
            }
        }
        assert_eq!(seen, 1);
    });
}

#[test]
fn offloads_are_read_and_switched() {
    isolated(|| {
        cable("left", "right");
        for offload in [Offload::Gro, Offload::TxChecksum, Offload::Tso, Offload::Gso] {
            for on in [true, false, true] {
                offload.switch("left", on).unwrap();
                assert_eq!(offload.is_on("left").unwrap(), on, "{}", offload.name());
            }
        }
        assert!(!Offload::Lro.is_on("left").unwrap());
    });
}

#[test]
fn interfaces_are_found_by_name_and_by_index() {
    isolated(|| {
        cable("left", "right");
        ip("link set left address 02:00:00:00:00:0a mtu 1400");
        let a = Interface::named("left").unwrap();
        assert_eq!((a.mac, a.mtu, a.up), ([2, 0, 0, 0, 0, 0x0a], 1400, true));
        assert_eq!(Interface::indexed(a.index).unwrap(), a);
        ip("link set left down");
        assert!(!Interface::named("left").unwrap().up);
    });
}
