//! A table as JSON: one hop list per row, in row order. It is written row by row, so that four million rows need no
//! memory. [`common::table::Dump`] is the same as text.

use common::backend::Backend;
use common::table::{ForwardingTable, Table};
use serde::Serialize;
use std::io::{self, Write};

#[derive(Serialize)]
struct BackendDump<'a> {
    id: &'a str,
    address: std::net::IpAddr,
    weight: f64,
    fill: u8,
    zone: Option<&'a str>,
    state: &'static str,
    health: &'static str,
    rows: u32,
}

/// Writes all tables of the file, or the one called `name`, with the hop lists of the first `rows` rows.
pub(crate) fn write_json(
    out: &mut impl Write,
    file: &ForwardingTable,
    name: Option<&str>,
    rows: Option<u32>,
) -> io::Result<()> {
    let parents: Vec<String> = file.parent().iter().map(ToString::to_string).collect();
    write!(out, "{{\"digest\":\"{}\",\"generation\":{},", file.digest(), file.generation())?;
    write!(out, "\"built\":\"{}\",", file.built())?;
    write!(out, "\"parents\":{},\"tables\":[", serde_json::to_string(&parents)?)?;
    let shown = file.tables().iter().filter(|table| name.is_none_or(|name| table.name == name));
    for (index, table) in shown.enumerate() {
        write!(out, "{}", if index == 0 { "\n" } else { ",\n" })?;
        write_table(out, table, rows.unwrap_or(u32::MAX).min(table.rows()))?;
    }
    writeln!(out, "]}}")
}

fn write_table(out: &mut impl Write, table: &Table, rows: u32) -> io::Result<()> {
    let name = serde_json::to_string(&table.name)?;
    write!(
        out,
        "{{\"name\":{name},\"rows\":{},\"max_hops\":{},\"backends\":[",
        table.rows(),
        table.max_hops
    )?;
    for (index, (backend, owned)) in table.backends.iter().zip(table.rows_owned()).enumerate() {
        write!(out, "{}", if index == 0 { "\n" } else { ",\n" })?;
        serde_json::to_writer(&mut *out, &backend_dump(backend, owned))?;
    }
    write!(out, "],\"hops\":[")?;
    let ids: Vec<String> =
        table.backends.iter().map(|backend| serde_json::to_string(&backend.id)).collect::<Result<_, _>>()?;
    for row in 0..rows {
        let hops = table.hops.get(row).iter().map(|hop| &ids[usize::from(*hop)]);
        write!(out, "{}[", if row == 0 { "\n" } else { ",\n" })?;
        for (place, id) in hops.enumerate() {
            write!(out, "{}{id}", if place == 0 { "" } else { "," })?;
        }
        write!(out, "]")?;
    }
    write!(out, "]}}")
}

fn backend_dump(backend: &Backend, rows: u32) -> BackendDump<'_> {
    BackendDump {
        id: &backend.id,
        address: backend.address,
        weight: backend.weight,
        fill: backend.fill,
        zone: backend.zone.as_deref(),
        state: backend.state.name(),
        health: backend.health.name(),
        rows,
    }
}
