//! The other end of a cable, made ready for programs in a driver.
//!
//! A veth's program may send a frame back (`XDP_TX`) or redirect one (`XDP_REDIRECT`). The peer takes either
//! only while it polls, else they are lost and counted as `xdp_tx_errors`; it polls with GRO or with a
//! program of its own. With GRO alone it is not woken for what was sent back, which lies there until
//! something else arrives. So it gets a program, which leaves every frame to the kernel.

use anyhow::Context;
use aya::programs::Xdp;
use aya::programs::xdp::XdpMode;
use aya::{Ebpf, EbpfLoader};

static OBJECT: &[u8] = aya::include_bytes_aligned!("../../../bpf/measure.bpf.o");

/// An interface that takes what its peer's program sends, until this is dropped.
#[derive(Debug)]
pub struct Passing {
    _ebpf: Ebpf,
}

impl Passing {
    /// Prepares an interface of the calling thread's namespace.
    pub fn on(interface: u32) -> anyhow::Result<Self> {
        let mut ebpf = EbpfLoader::new().btf(None).load(OBJECT)?;
        let left: &mut Xdp = ebpf.program_mut("left").context("left")?.try_into()?;
        left.load()?;
        left.attach_to_if_index(interface, XdpMode::Driver)?;
        Ok(Self { _ebpf: ebpf })
    }
}
