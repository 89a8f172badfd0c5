//! The fuzzing checks on a stable compiler: valid inputs with random changes of the kinds that break parsers.
//!
//! `TRYST_FUZZ_INPUTS` sets the number of inputs per check. Inputs depend on nothing else, so a failure can
//! be reproduced.

#[path = "../fuzz/checks.rs"]
mod checks;

use common::flow::HashFields;
use common::table::ForwardingTable;

/// splitmix64: random enough to choose offsets and values.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        common::hash::mix(self.0)
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit.max(1) as u64).unwrap_or_default()
    }
}

fn inputs() -> usize {
    std::env::var("TRYST_FUZZ_INPUTS").ok().and_then(|inputs| inputs.parse().ok()).unwrap_or(20_000)
}

/// One to four changes: an octet set, a bit flipped, a word set to an extreme value, a piece removed,
/// duplicated or truncated.
fn mutate(random: &mut Random, seed: &[u8]) -> Vec<u8> {
    let mut octets = seed.to_vec();
    for _ in 0..=random.below(4) {
        let at = random.below(octets.len());
        let end = (at + 1 + random.below(8)).min(octets.len());
        match random.below(7) {
            0 if at < octets.len() => octets[at] = random.next().to_le_bytes()[0],
            1 if at < octets.len() => octets[at] ^= 1 << random.below(8),
            2 => octets[at..end].fill([0, 0xff, 0x7f, 0x80][random.below(4)]),
            3 => drop(octets.drain(at..end)),
            4 => octets.extend_from_within(at..end),
            5 => octets.truncate(at),
            _ => octets.splice(at..at, random.next().to_be_bytes()).for_each(drop),
        }
    }
    octets
}

fn run(check: fn(&[u8]), inputs: usize, seeds: &[Vec<u8>]) {
    seeds.iter().for_each(|seed| check(seed));
    let mut random = Random(1);
    for _ in 0..inputs {
        let seed = random.below(seeds.len());
        check(&mutate(&mut random, &seeds[seed]));
    }
}

#[test]
fn tables() {
    let table =
        ForwardingTable::new(None, vec![checks::sample(HashFields::DEFAULT)]).expect("the sample is right");
    let seed = table.encode();
    // Each input is hashed twice over 650 kB: fewer of them.
    run(checks::table, inputs() / 200, &[seed]);
    let headers =
        [b"TRYSTFWD\x01\0\0\0\x01\0\0\0", b"TRYSTFWD\x02\0\0\0\x01\0\0\0"].map(|head| head.repeat(9));
    run(checks::table, inputs(), &headers);
    run(checks::table, inputs() / 2, &[b"GLBD\x02\0\0\0".repeat(9)]);
}

#[test]
fn configs() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../configs");
    let files = std::fs::read_dir(folder).expect("the folder of examples").filter_map(Result::ok);
    let yaml =
        files.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|end| end == "yaml"));
    let seeds: Vec<_> = yaml.map(|path| std::fs::read(path).expect("an example")).collect();
    run(checks::config, inputs() / 20, &seeds);
}

#[test]
fn frames() {
    run(checks::frame, inputs(), &sample_frames());
}

#[test]
fn datagrams() {
    let inner: Vec<_> = sample_frames().iter().map(|frame| frame[14..].to_vec()).collect();
    run(checks::datagram, inputs(), &inner);
    let gue = |header: [u8; 12], packet: &Vec<u8>| [header.as_slice(), packet].concat();
    let wrapped: Vec<_> = inner.iter().map(|p| gue([2, 4, 0, 0, 0, 0, 0, 1, 10, 0, 0, 2], p)).collect();
    run(checks::datagram, inputs(), &wrapped);
}

/// TCP, UDP, an ICMP error and an echo request over IPv4 and IPv6, with options, extension headers and tags.
fn sample_frames() -> Vec<Vec<u8>> {
    let tcp = [&[0xc8, 0x01, 0x01, 0xbb], [0; 8].as_slice(), &[0x50, 0x02, 0xff, 0xff, 0, 0, 0, 0]].concat();
    let udp = [0xc8, 0x01, 0x13, 0x88, 0, 12, 0, 0, 1, 2, 3, 4].to_vec();
    let quoted = v4(6, [203, 0, 113, 1], [198, 51, 100, 7], &[], &[0x01, 0xbb, 0xc8, 0x01, 0, 0, 0, 0]);
    let error = [[3, 4, 0, 0, 0, 0, 5, 0].as_slice(), &quoted].concat();
    let to = |protocol, options: &[u8], payload: &[u8]| {
        v4(protocol, [198, 51, 100, 7], [203, 0, 113, 1], options, payload)
    };
    let mut frames = vec![
        ethernet(&[0x0800], &to(6, &[], &tcp)),
        ethernet(&[0x0800], &to(17, &[1, 1, 1, 0], &udp)),
        ethernet(&[0x8100, 5, 0x0800], &to(1, &[], &error)),
        ethernet(&[0x0800], &to(1, &[], &[8, 0, 0, 0, 0, 1, 0, 1])),
        ethernet(&[0x0806], &[0; 46]),
    ];
    let hop_by_hop = [&[6, 0, 1, 4, 0, 0, 0, 0], tcp.as_slice()].concat();
    let fragment = [&[17, 0, 0, 1, 0, 0, 0, 9], udp.as_slice()].concat();
    for (next, payload) in [(6, &tcp), (17, &udp), (0, &hop_by_hop), (44, &fragment)] {
        frames.push(ethernet(&[0x88a8, 5, 0x8100, 6, 0x86dd], &v6(next, payload)));
        frames.push(ethernet(&[0x86dd], &v6(next, payload)));
    }
    frames.push(ethernet(&[0x86dd], &v6(58, &[[2, 0, 0, 0, 0, 0, 5, 0].as_slice(), &v6(6, &tcp)].concat())));
    frames
}

fn ethernet(words: &[u16], packet: &[u8]) -> Vec<u8> {
    let types = words.iter().flat_map(|word| word.to_be_bytes());
    [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2].into_iter().chain(types).chain(packet.iter().copied()).collect()
}

fn v4(protocol: u8, source: [u8; 4], destination: [u8; 4], options: &[u8], payload: &[u8]) -> Vec<u8> {
    let header_len = 20 + options.len();
    let total = u16::try_from(header_len + payload.len()).expect("small").to_be_bytes();
    let words = u8::try_from(header_len / 4).expect("small");
    let mut header = vec![0x40 | words, 0, total[0], total[1], 0, 1, 0x40, 0, 64, protocol, 0, 0];
    header.extend([source, destination].concat());
    header.extend(options);
    let sum: u32 = header.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let checksum = !u16::try_from(folded & 0xffff).expect("folded");
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    [header.as_slice(), payload].concat()
}

fn v6(next: u8, payload: &[u8]) -> Vec<u8> {
    let len = u16::try_from(payload.len()).expect("small").to_be_bytes();
    let client = [0x20, 1, 0x0d, 0xb8, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7];
    let vip = [0x20, 1, 0x0d, 0xb8, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    [&[0x60, 0, 0, 0, len[0], len[1], next, 64], client.as_slice(), &vip, payload].concat()
}
