//! Random tables and frames through pipeline and program: the results must be equal. Seeded, so that a
//! failure can be reproduced: it prints table and frame. `XDP_FUZZ_SECONDS` is the duration (2 by default),
//! `XDP_FUZZ_SEED` the first seed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use common::backend::Backend;
use common::bind::{Bind, PortRange, Prefix, Protocol};
use common::flow::HashFields;
use common::hash::{SipKey, mix};
use common::table::{ForwardingTable, Lists, Ranking, Seed, Table};
use dataplane::pipeline::{Echo, NextHop, Pipeline, Underlay, Verdict};
use dataplane::wire::ethernet::Mac;

use crate::judge::{INGRESS, LONGEST, PASS, SHORTEST, compare, load};
use crate::support::{
    frames::{checksum, ethernet},
    tables::{UNDERLAY, via_gateway},
};

const FRAMES_A_TABLE: u64 = 20_000;
const ROWS: u32 = 65_536;

/// splitmix64.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(mix(seed))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).unwrap()
    }

    pub(crate) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub(crate) fn octet(&mut self) -> u8 {
        u8::try_from(self.below(256)).unwrap()
    }

    pub(crate) fn word(&mut self) -> u16 {
        u16::try_from(self.below(65_536)).unwrap()
    }

    pub(crate) fn of<T: Copy>(&mut self, some: &[T]) -> T {
        some[self.below(some.len())]
    }

    pub(crate) fn octets(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.octet()).collect()
    }
}

/// Few addresses, so that binds nest, overlap and are hit.
fn vip(random: &mut Random) -> IpAddr {
    let (low, next) = (random.of(&[0, 1, 2, 3, 64, 127, 128, 255]), random.of(&[0, 1]));
    if random.one_in(2) {
        IpAddr::from([203, 0, next, low])
    } else {
        IpAddr::from([0x2001, 0xdb8, 0, u16::from(next), 0, 0, u16::from(next), u16::from(low)])
    }
}

fn port(random: &mut Random) -> u16 {
    match random.below(8) {
        0 => random.word(),
        1 => random.of(&[0, 65_535, 255, 256, 257]),
        _ => random.of(&[80, 443, 444, 53, 5_000, 5_010]),
    }
}

fn bind(random: &mut Random) -> Bind {
    let address = vip(random);
    let cut = random.of(&[0, 0, 0, 0, 1, 7, 8, 24, 32]);
    let (width, bits) = match address {
        IpAddr::V4(v4) => (32, u128::from(v4.to_bits())),
        IpAddr::V6(v6) => (128, v6.to_bits()),
    };
    let masked = if cut == 32 && width == 32 { 0 } else { bits >> cut << cut };
    let address = match address {
        IpAddr::V4(_) => IpAddr::from(Ipv4Addr::from_bits(u32::try_from(masked).unwrap())),
        IpAddr::V6(_) => IpAddr::from(Ipv6Addr::from_bits(masked)),
    };
    let (a, b) = (port(random), port(random));
    let ports = match random.below(3) {
        0 => PortRange::single(a),
        1 => PortRange::new(a.min(b), a.max(b)).unwrap(),
        _ => PortRange::new(random.of(&[0, 1, a]), 65_535).unwrap(),
    };
    let protocol = random.of(&[Protocol::Tcp, Protocol::Udp]);
    Bind { prefix: Prefix::new(address, width - cut).unwrap(), protocol, ports }
}

fn table(random: &mut Random, name: usize, taken: &mut Vec<Bind>) -> Table {
    let mut binds = Vec::new();
    for _ in 0..random.of(&[1, 2, 5, 30, 200]) {
        let new = bind(random);
        if taken.iter().all(|other| !other.ties_with(&new)) {
            taken.push(new);
            binds.push(new);
        }
    }
    if binds.is_empty() {
        let address = IpAddr::from([10, 255, 255, u8::try_from(name).unwrap()]);
        binds.push(Bind {
            prefix: Prefix::host(address),
            protocol: Protocol::Tcp,
            ports: PortRange::single(1),
        });
    }
    binds.sort_unstable();
    let backends: Vec<_> = (0..1 + random.below(9)).map(|n| backend(random, n)).collect();
    let width = random.of(&[2_u8, 3, 4]);
    let mut hops = Lists::empty(ROWS, width);
    for row in 0..ROWS {
        let mut all: Vec<u16> = (0..u16::try_from(backends.len()).unwrap()).collect();
        let len = random.of(&[0, 1, 2, 2, 2, 3, 4]).min(usize::from(width)).min(all.len());
        hops.set(row, (0..len).map(|_| all.swap_remove(random.below(all.len()))).collect::<Vec<_>>());
    }
    let fields = |bits: usize| HashFields::from_bits(u8::try_from(bits).unwrap()).unwrap();
    Table {
        name: format!("{name:03}"),
        max_hops: width,
        ranking: Ranking::Hrw,
        seed: Seed([1; 16]),
        hash_key: SipKey::new(random.octets(16).try_into().unwrap()),
        hash_fields: if random.one_in(2) { HashFields::DEFAULT } else { fields(1 + random.below(15)) },
        alt_hash_fields: if random.one_in(3) { fields(random.below(16)) } else { HashFields::NONE },
        spread_zones: false,
        max_share: None,
        lineage: Lists::empty(ROWS, width - 1),
        backends,
        binds,
        hops,
    }
}

fn backend(random: &mut Random, number: usize) -> Backend {
    let last = u8::try_from(number + 1).unwrap();
    let address = if random.one_in(6) {
        IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, u16::from(last)])
    } else {
        IpAddr::from([10, random.octet(), random.octet(), last])
    };
    Backend::new(format!("b{number}"), address)
}

fn pipeline(random: &mut Random) -> Pipeline {
    let mut taken = Vec::new();
    let tables = (0..1 + random.below(4)).map(|name| table(random, name, &mut taken)).collect();
    let underlay = Underlay {
        source_ipv4: (!random.one_in(20)).then_some(Ipv4Addr::new(10, 0, 0, 1)),
        source_ipv6: (!random.one_in(3)).then_some(Ipv6Addr::LOCALHOST),
        mtu: random.of(&[600, 1_280, 1_500, 1_500, 9_000]),
        echo: random.of(&[Echo::Forward, Echo::Pass, Echo::Answer]),
    };
    let (source, mac) = (Mac(random.octets(6).try_into().unwrap()), random.octets(6));
    let destination = Mac(mac.try_into().unwrap());
    let mut next_hops = Random(random.next());
    let next_hop = |_, _| match next_hops.below(12) {
        0 => Some(NextHop::Local),
        1 => None,
        _ => Some(NextHop::Link { ifindex: INGRESS, source, destination }),
    };
    Pipeline::new(ForwardingTable::new(None, tables).unwrap(), underlay, next_hop).unwrap()
}

/// An address that some bind holds, now and then; its ports and protocol likewise.
fn target(random: &mut Random, pipeline: &Pipeline) -> (IpAddr, u8, u16) {
    if random.one_in(5) {
        return (vip(random), random.of(&[6, 6, 17, 17, 1, 58, 47, 0, 43, 44]), port(random));
    }
    let tables = pipeline.forwarding().tables();
    let table = &tables[random.below(tables.len())];
    let bind = table.binds[random.below(table.binds.len())];
    let near = |port: u16, by: u16| if by == 2 { port.saturating_sub(1) } else { port.saturating_add(by) };
    let port = random.of(&[bind.ports.first(), bind.ports.last()]);
    let by = random.of(&[0, 0, 0, 0, 1, 2]);
    (bind.prefix.address(), bind.protocol.number(), near(port, by))
}

fn frame(random: &mut Random, pipeline: &Pipeline) -> Vec<u8> {
    let (destination, protocol, port) = target(random, pipeline);
    let mut transport = [random.word().to_be_bytes(), port.to_be_bytes()].concat();
    let room = usize::from(pipeline.underlay().mtu);
    let len = match random.below(10) {
        0 => random.below(5),
        1 => random.below(LONGEST - 200),
        2 => (room - 80 + random.below(60)).min(LONGEST - 200),
        _ => 16 + random.below(64),
    };
    transport.extend(random.octets(len));
    if random.one_in(30) {
        transport.truncate(random.below(5));
    }
    let packet = match destination {
        IpAddr::V4(to) => packet_v4(random, to, protocol, &transport),
        IpAddr::V6(to) => packet_v6(random, to, protocol, &transport),
    };
    let mut frame = link(random, if destination.is_ipv4() { [8, 0] } else { [0x86, 0xdd] });
    frame.extend(packet);
    if random.one_in(4) {
        let padding = random.below(20);
        frame.extend(random.octets(padding));
    }
    mutate(random, &mut frame);
    frame.truncate(LONGEST);
    frame.resize(frame.len().max(SHORTEST), 0);
    frame
}

fn link(random: &mut Random, ether_type: [u8; 2]) -> Vec<u8> {
    let mut link = random.octets(12);
    for _ in 0..random.of(&[0, 0, 0, 0, 0, 0, 1, 1, 2, 3]) {
        link.extend(random.of(&[[0x81, 0], [0x88, 0xa8], [0x91, 0]]));
        link.extend(random.octets(2));
    }
    link.extend(if random.one_in(40) { [random.octet(), random.octet()] } else { ether_type });
    link
}

/// Any address, or now and then one that a bind may name, or that no client can have.
fn source(random: &mut Random, to: IpAddr) -> Vec<u8> {
    let other = vip(random);
    let named = if other.is_ipv4() == to.is_ipv4() && random.one_in(2) { other } else { to };
    match (named, random.below(12)) {
        (IpAddr::V4(named), 0) => named.octets().to_vec(),
        (IpAddr::V6(named), 0) => named.octets().to_vec(),
        (IpAddr::V4(_), 1) => vec![random.of(&[0, 1, 126, 127, 128, 223, 224, 255]), 0, 0, 1],
        (IpAddr::V6(_), 1) => {
            let low = random.of(&[0, 1, 2, 0xffff << 32 | 7, 0xfffe << 32, 1 << 48]);
            let address = u128::from(random.of(&[0_u8, 0, 0, 0xff, 0xfe])) << 120 | low;
            address.to_be_bytes().to_vec()
        }
        (IpAddr::V4(_), _) => random.octets(4),
        (IpAddr::V6(_), _) => random.octets(16),
    }
}

fn packet_v4(random: &mut Random, to: Ipv4Addr, protocol: u8, transport: &[u8]) -> Vec<u8> {
    let options = if random.one_in(12) { random.below(11) * 4 } else { 0 };
    let total = u16::try_from(20 + options + transport.len()).unwrap();
    let fragment = random.of(&[0, 0x4000, 0x4000, 0x4000, 0x8000, 0x2000, 1, 0x1fff]);
    let fragment = if random.one_in(4) { fragment } else { 0x4000 };
    let mut packet = vec![0x45 + u8::try_from(options / 4).unwrap(), random.octet()];
    packet.extend(total.to_be_bytes());
    packet.extend(random.octets(2));
    packet.extend(u16::to_be_bytes(fragment));
    packet.extend([64, protocol, 0, 0]);
    packet.extend(source(random, to.into()));
    packet.extend(to.octets());
    packet.extend(random.octets(options));
    if !random.one_in(20) {
        let sum = checksum(&packet);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    packet.extend(transport);
    packet
}

fn packet_v6(random: &mut Random, to: Ipv6Addr, protocol: u8, transport: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60 | random.octet() >> 4];
    packet.extend(random.octets(3));
    packet.extend(u16::try_from(transport.len()).unwrap().to_be_bytes());
    packet.extend([protocol, 64]);
    packet.extend(source(random, to.into()));
    packet.extend(to.octets());
    packet.extend(transport);
    packet
}

/// Now and then flips octets of the headers, or cuts the frame.
fn mutate(random: &mut Random, frame: &mut Vec<u8>) {
    if random.one_in(6) {
        for _ in 0..1 + random.below(3) {
            let at = random.below(frame.len().min(80));
            frame[at] ^= 1 << random.below(8);
        }
        // A header whose checksum is right again gets further.
        if random.one_in(2) && frame.len() >= 34 && frame[12..15] == [8, 0, 0x45] {
            frame[24..26].fill(0);
            let sum = checksum(&frame[14..34]);
            frame[24..26].copy_from_slice(&sum.to_be_bytes());
        }
    }
    if random.one_in(25) {
        let len = random.below(frame.len());
        frame.truncate(len);
    }
}

pub(crate) fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// Every set of fields over both families: an IPv4 address with both ports fills SipHash's word to the last
/// octet.
#[test]
fn every_set_of_hash_fields() {
    let mut random = Random(7);
    let addresses = [IpAddr::from([203, 0, 0, 1]), IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1])];
    for bits in 1..16 {
        let mut one = table(&mut random, 0, &mut Vec::new());
        one.hash_fields = HashFields::from_bits(bits).unwrap();
        one.alt_hash_fields = HashFields::from_bits(16 - bits).unwrap();
        one.backends = (1..=4).map(|last| Backend::new(last.to_string(), [10, 0, 0, last].into())).collect();
        one.max_hops = 4;
        (one.hops, one.lineage) = (Lists::empty(ROWS, 4), Lists::empty(ROWS, 3));
        (0..ROWS).for_each(|row| one.hops.set(row, if row % 2 == 0 { [0, 1, 2, 3] } else { [3, 2, 1, 0] }));
        let bind = |address| Bind {
            prefix: Prefix::host(address),
            protocol: Protocol::Tcp,
            ports: PortRange::single(443),
        };
        one.binds = addresses.map(bind).to_vec();
        let forwarding = ForwardingTable::new(None, vec![one]).unwrap();
        let pipeline = Pipeline::new(forwarding, UNDERLAY, via_gateway).unwrap();
        let Some(director) = load(&pipeline, INGRESS) else { return };
        for _ in 0..20 {
            let segment = [random.octets(2), vec![1, 0xbb], random.octets(16)].concat();
            let v4 = packet_v4(&mut Random(random.next() | 1), [203, 0, 0, 1].into(), 6, &segment);
            let v6 = packet_v6(&mut random, "2001:db8::1".parse().unwrap(), 6, &segment);
            for frame in [ethernet(&[0x0800], &v4), ethernet(&[0x86dd], &v6)] {
                compare(&format!("fields {bits}"), &pipeline, &director, &frame);
            }
        }
        assert!(director.counts().unwrap().encapsulated() >= 20);
    }
}

#[test]
fn random_frames_and_tables_show_no_difference() {
    let until = Instant::now() + Duration::from_secs(number("XDP_FUZZ_SECONDS", 2));
    let (mut frames, mut tables, mut sent, mut missed) = (0_u64, 0, 0_u64, 0_u64);
    let first = number("XDP_FUZZ_SEED", 1);
    for seed in first.. {
        let mut random = Random::new(seed);
        let pipeline = pipeline(&mut random);
        let Some(director) = load(&pipeline, INGRESS) else { return };
        tables += 1;
        for at in 0..FRAMES_A_TABLE {
            if at % 256 == 0 && Instant::now() >= until {
                break;
            }
            let frame = frame(&mut random, &pipeline);
            let (verdict, action) =
                compare(&format!("seed {seed}, frame {at}"), &pipeline, &director, &frame);
            frames += 1;
            sent += u64::from(action != PASS);
            missed += u64::from(action == PASS && matches!(verdict, Verdict::Encapsulate(_)));
        }
        if Instant::now() >= until {
            break;
        }
    }
    eprintln!("{frames} frames, {tables} tables: {sent} sent alike, {missed} left that the pipeline sends");
    assert!(sent > 0);
}
