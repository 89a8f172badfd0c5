//! What the kernel program reads, made from a pipeline: the octets of each map of a generation.

use common::table::{ForwardingTable, Table};

use super::XdpError;
use super::abi::{Config, HOP, MAX_HOPS, NO_BACKEND, Octets, ROW, TABLE, TableEntry, WAY_LINK};
use super::binds::Binds;
use crate::pipeline::{Head, Pipeline};

/// Rows of all tables: 1 GiB.
const MAX_ROWS: u64 = 1 << 27;
/// Backends of all tables.
const MAX_BACKENDS: u64 = 1 << 24;

/// Everything but the hops, which change while it stays. Not printable: `tables` holds secrets.
pub(super) struct Layout {
    pub(super) config: Vec<u8>,
    pub(super) binds_v4: Vec<u8>,
    pub(super) binds_v6: Vec<u8>,
    pub(super) ports: Vec<u8>,
    /// With the tables' keys.
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
        // No table has more than 65,534.
        first_hop += u32::try_from(table.backends.len()).unwrap_or(0);
    }
    to.into_inner()
}

/// The rows of one table.
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

/// The hops of all backends; `egress` has the interface that each is reached by, in the same order.
pub(super) fn hops(pipeline: &Pipeline, egress: &[u32]) -> Result<Vec<u8>, XdpError> {
    let mut to = Octets::default();
    let backends = pipeline.forwarding().tables().iter().flat_map(|table| &table.backends);
    for (at, (head, backend)) in pipeline.heads().zip(backends).enumerate() {
        if backend.address.is_unspecified() {
            return Err(XdpError::Unspecified(backend.id.clone()));
        }
        match head {
            Some(head) => write_hop(&mut to, &head, egress.get(at).copied().unwrap_or(0)),
            None => to.put([0; HOP]),
        }
    }
    Ok(to.into_inner())
}

/// `struct hop`: the fields that differ from packet to packet are zero, and the header's checksum is taken apart.
fn write_hop(to: &mut Octets, head: &Head<'_>, ifindex: u32) {
    let mut words = [0; 48];
    words.copy_from_slice(head.octets.first_chunk::<48>().unwrap_or(&[0; 48]));
    let sum = !u16::from_le_bytes([words[24], words[25]]);
    // Checksum; GUE and private data.
    words[24..26].fill(0);
    words[40..].fill(0);
    to.put(words);
    to.put(head.address.octets());
    to.u32(ifindex);
    to.u32(sum.into());
    to.u16(if head.linked && ifindex != 0 { WAY_LINK } else { 0 });
    to.u16(0);
}
