//! The maps of the director's kernel program, built from a pipeline: the octets of each map of a generation.

use common::table::{ForwardingTable, Table};

use super::XdpError;
use super::abi::{Config, HOP, MAX_HOPS, NO_BACKEND, Octets, ROW, TABLE, TableEntry, WAY_LINK};
use super::binds::Binds;
use crate::pipeline::{Head, Pipeline, backends};

/// Largest number of rows of all tables: 1 GiB of map memory.
const MAX_ROWS: u64 = 1 << 27;
/// Largest number of backends of all tables.
const MAX_BACKENDS: u64 = 1 << 24;

/// All maps except the hops, which change more often. Has no `Debug`: `tables` holds secrets.
pub(super) struct Layout {
    pub(super) config: Vec<u8>,
    pub(super) binds_v4: Vec<u8>,
    pub(super) binds_v6: Vec<u8>,
    pub(super) ports: Vec<u8>,
    /// Contains the tables' hash keys.
    pub(super) tables: Vec<u8>,
    pub(super) rows: u32,
    pub(super) backends: u32,
}

impl Layout {
    pub(super) fn new(pipeline: &Pipeline) -> Result<Self, XdpError> {
        let forwarding = pipeline.forwarding();
        let sum = |of: fn(&Table) -> usize| forwarding.tables().iter().map(|table| of(table) as u64).sum();
        let rows = limited("rows", sum(|table| table.hops.len()), MAX_ROWS)?;
        let backends = limited("backends", sum(|table| table.backends.len()), MAX_BACKENDS)?;
        let binds = Binds::new(&forwarding.binds())?;
        let config = Config {
            seed: binds.seed,
            mtu: pipeline.underlay().mtu,
            lengths_v4: &binds.lengths_v4,
            lengths_v6: &binds.lengths_v6,
            slots_v4: binds.slots_v4,
            slots_v6: binds.slots_v6,
            named_v4: &binds.named_v4,
            named_v6: &binds.named_v6,
        };
        Ok(Self {
            config: config.octets(),
            tables: tables(forwarding),
            binds_v4: binds.v4,
            binds_v6: binds.v6,
            ports: binds.ports,
            rows,
            backends,
        })
    }
}

fn limited(what: &'static str, found: u64, most: u64) -> Result<u32, XdpError> {
    let error = XdpError::TooMany { what, most, found };
    u32::try_from(found).ok().filter(|_| found <= most).ok_or(error)
}

fn tables(forwarding: &ForwardingTable) -> Vec<u8> {
    let mut to = Octets::with_capacity(forwarding.tables().len() * TABLE);
    let (mut first_row, mut first_hop) = (0, 0);
    for table in forwarding.tables() {
        let entry = TableEntry {
            key: table.hash_key,
            first_row,
            row_mask: table.rows().wrapping_sub(1),
            first_hop,
            fields: table.hash_fields.bits(),
            alt_fields: table.alt_hash_fields.bits(),
        };
        entry.write(&mut to);
        first_row += table.rows();
        first_hop +=
            u32::try_from(table.backends.len()).expect("invariant: a table has at most 65,534 backends");
    }
    to.into_inner()
}

/// The octets of a table's rows.
pub(super) fn rows(table: &Table) -> Vec<u8> {
    let width = table.hops.width();
    let mut octets = vec![0xff; table.hops.len() * ROW];
    let rows = octets.as_chunks_mut::<ROW>().0;
    for (row, cells) in rows.iter_mut().zip(table.hops.cells().chunks_exact(width.max(1))) {
        for (to, cell) in row.as_chunks_mut::<2>().0.iter_mut().zip(cells) {
            *to = cell.to_le_bytes();
        }
    }
    octets
}

const _: () = assert!(ROW == MAX_HOPS * size_of::<u16>() && NO_BACKEND == 0xffff);

/// The octets of the hops of all backends. A backend's frames are punted if its interface is not `usable`.
pub(super) fn hops(pipeline: &Pipeline, usable: impl Fn(u32) -> bool) -> Result<Vec<u8>, XdpError> {
    let mut to = Octets::default();
    for (key, backend) in backends(pipeline.forwarding()) {
        if backend.address.is_unspecified() {
            return Err(XdpError::Unspecified(backend.id.clone()));
        }
        match pipeline.head(key) {
            Some(head) => write_hop(&mut to, &head, head.ifindex.filter(|ifindex| usable(*ifindex))),
            None => to.put([0; HOP]),
        }
    }
    Ok(to.into_inner())
}

/// Writes `struct hop`. The fields that differ between packets are zero, and the complement of the header's
/// checksum is undone.
fn write_hop(to: &mut Octets, head: &Head<'_>, ifindex: Option<u32>) {
    let mut words = *head.octets.first_chunk::<48>().expect("invariant: the headers have 50 octets");
    let sum = !u16::from_le_bytes([words[24], words[25]]);
    // Checksum; GUE and private data.
    words[24..26].fill(0);
    words[40..].fill(0);
    to.put(words);
    to.put(head.address.octets());
    to.u32(ifindex.unwrap_or(0));
    to.u32(sum.into());
    to.u16(if ifindex.is_some() { WAY_LINK } else { 0 });
    to.u16(0);
}
