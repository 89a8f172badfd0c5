//! Properties that hold for all inputs. Each function gets untrusted input and panics only if this project
//! has a bug.

#![allow(dead_code, reason = "each target uses one of these")]

use common::backend::Backend;
use common::bind::{Bind, PortRange, Prefix, Protocol};
use common::flow::HashFields;
use common::hash::SipKey;
use common::table::{Digest, ForwardingTable, Lists, Ranking, Seed, Table};
use dataplane::pipeline::{Echo, NextHop, Pipeline, Underlay, Verdict};
use dataplane::redirect::inner::Inner;
use dataplane::wire::gue::Gue;
use std::sync::LazyLock;

/// A table file is read or refused. A table that is read encodes to the same octets.
pub(crate) fn table(octets: &[u8]) {
    read_table(octets);
    // Most mutations only break the digest. With a right digest they reach the checks after it.
    if let Some(end) = octets.len().checked_sub(32) {
        let mut resealed = octets.to_vec();
        let digest = Digest::of(&octets[..end]);
        resealed[end..].copy_from_slice(&digest.0);
        read_table(&resealed);
    }
}

fn read_table(octets: &[u8]) {
    if let Ok(table) = ForwardingTable::read(octets)
        && !octets.starts_with(&common::table::glb::MAGIC)
    {
        assert_eq!(table.encode(), octets);
    }
}

/// A configuration is accepted, or refused with a line.
pub(crate) fn config(octets: &[u8]) {
    let Ok(text) = std::str::from_utf8(octets) else { return };
    drop(tablegen::config::Config::parse(text, std::path::Path::new("fuzz.yaml")));
}

/// A frame: the written octets are within the buffer, and no octet after them was changed.
pub(crate) fn frame(octets: &[u8]) {
    for pipeline in PIPELINES.iter() {
        let mut out = vec![0xa5; pipeline.room(octets.len()) + 64];
        let written = match pipeline.process(octets, &mut out) {
            Verdict::Encapsulate(done) | Verdict::Local(done) => {
                assert!(done.len as usize > octets.len().min(14));
                assert!(done.len as usize - 14 <= usize::from(pipeline.underlay().mtu));
                done.len as usize
            }
            Verdict::Answer { len, .. } => len as usize,
            Verdict::Pass(_) | Verdict::Drop(_) => 0,
        };
        assert!(out[written..].iter().all(|octet| *octet == 0xa5));
    }
}

/// A datagram as the redirector receives it: the GUE header, then the inner packet.
pub(crate) fn datagram(octets: &[u8]) {
    let Ok(gue) = Gue::parse(octets) else { return };
    for index in 0..gue.hops.len() + 1 {
        assert_eq!(gue.hops.address(index).is_some(), index < gue.hops.len());
    }
    for protocol in [4, 41] {
        if let Ok(inner) = Inner::parse(protocol, octets) {
            assert!(inner.len <= octets.len());
        }
    }
}

/// A pipeline whose tables hash ports, and one whose tables hash addresses only and so forwards fragments.
static PIPELINES: LazyLock<[Pipeline; 2]> =
    LazyLock::new(|| [HashFields::DEFAULT, HashFields::SRC_ADDR].map(pipeline));

fn pipeline(fields: HashFields) -> Pipeline {
    let underlay = Underlay {
        source_ipv4: Some([192, 0, 2, 1].into()),
        source_ipv6: "2001:db8::1".parse().ok(),
        mtu: 1_500,
        echo: Echo::Answer,
    };
    let table = ForwardingTable::new(None, vec![sample(fields)]).expect("the sample is right");
    let link = NextHop::Link { ifindex: 1, source: Default::default(), destination: Default::default() };
    Pipeline::new(table, underlay, |_, _| Some(link)).expect("its binds do not tie")
}

/// A small table: two IPv4 backends and one IPv6, VIPs 203.0.113.0/24 and 2001:db8:1::/64, any port.
pub(crate) fn sample(fields: HashFields) -> Table {
    let rows = 1 << 16;
    let backend = |id: &str, address: &str| Backend::new(id, address.parse().expect("an address"));
    let mut binds = Vec::new();
    for (address, bits) in [("203.0.113.0", 24), ("2001:db8:1::", 64)] {
        for protocol in [Protocol::Tcp, Protocol::Udp] {
            binds.push(Bind {
                prefix: Prefix::new(address.parse().expect("an address"), bits).expect("no host bits"),
                protocol,
                ports: PortRange::new(0, 65_535).expect("in order"),
            });
        }
    }
    binds.sort_unstable();
    let mut hops = Lists::empty(rows, 3);
    (0..rows).for_each(|row| hops.set(row, [[0, 1, 2], [1, 0, 2], [2, 1, 0]][row as usize % 3]));
    Table {
        name: "sample".into(),
        max_hops: 3,
        ranking: Ranking::Hrw,
        seed: Seed([1; 16]),
        hash_key: SipKey::new([2; 16]),
        hash_fields: fields,
        alt_hash_fields: HashFields::SRC_ADDR,
        spread_zones: false,
        max_share: None,
        backends: vec![backend("a", "10.0.0.1"), backend("b", "10.0.0.2"), backend("c", "2001:db8::c")],
        binds,
        hops,
        lineage: Lists::empty(rows, 2),
    }
}
