//! Tables whose rows nobody ranked: what is measured is what is done with them.

use std::net::IpAddr;

use common::backend::Backend;
use common::bind::{Bind, PortRange, Prefix, Protocol};
use common::flow::HashFields;
use common::hash::SipKey;
use common::table::{Lists, Ranking, Seed, Table};

const ROWS: u32 = 65_536;

/// A table of 65,536 rows, each with the two hops that `pair` says; all else as configurations have it by default.
#[must_use]
pub fn table(
    name: &str,
    max_hops: u8,
    backends: Vec<Backend>,
    mut binds: Vec<Bind>,
    pair: impl Fn(u32) -> [u16; 2],
) -> Table {
    let mut hops = Lists::empty(ROWS, max_hops);
    (0..ROWS).for_each(|row| hops.set(row, pair(row)));
    binds.sort_unstable();
    Table {
        name: name.to_owned(),
        max_hops,
        ranking: Ranking::Hrw,
        seed: Seed([1; 16]),
        hash_key: SipKey::new([2; 16]),
        hash_fields: HashFields::DEFAULT,
        alt_hash_fields: HashFields::NONE,
        spread_zones: false,
        max_share: None,
        backends,
        binds,
        hops,
        lineage: Lists::empty(ROWS, max_hops - 1),
    }
}

/// TCP to port 443 of an address.
#[must_use]
pub fn https(address: IpAddr) -> Bind {
    Bind { prefix: Prefix::host(address), protocol: Protocol::Tcp, ports: PortRange::single(443) }
}
