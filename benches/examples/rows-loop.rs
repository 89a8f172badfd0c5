//! The first two of 65,536 rows, once, by an instruction set of choice: for counting instructions.
//!
//! `valgrind --tool=callgrind target/release/examples/rows-loop 100 avx2 [weighted]`. Valgrind 3.19 does not know AVX-512.

use std::hint::black_box;
use tryst_hrw::hash::mix;
use tryst_hrw::{Isa, Node, NodeSet};

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let count: u32 = arguments.next().unwrap_or_else(|| "100".to_owned()).parse()?;
    let wanted = arguments.next().unwrap_or_else(|| "portable".to_owned());
    let step = if arguments.next().is_some() { 0.01 } else { 0.0 };
    let isa = Isa::available().find(|isa| isa.name() == wanted);
    let isa = isa.ok_or_else(|| anyhow::anyhow!("{wanted}: not on this machine"))?;
    let node = |i: u32| Node::weighted(format!("node-{i}"), 1.0 + step * f64::from(i));
    let set = NodeSet::new(&(0..count).map(node).collect::<Result<Vec<_>, _>>()?).with_isa(isa);
    let keys: Vec<u64> = (0..1 << 16).map(mix).collect();
    let mut first = vec![0; keys.len() * 2];
    set.top_many(black_box(&keys), 2, &mut first);
    black_box(first);
    Ok(())
}
