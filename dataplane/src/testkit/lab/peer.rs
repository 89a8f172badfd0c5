//! Prepares the peer of a veth for XDP programs in the driver of the other end.
//!
//! A veth's program may send a frame back (`XDP_TX`) or redirect a frame (`XDP_REDIRECT`). The peer receives
//! such a frame only while it polls; otherwise the frame is lost and counted as `xdp_tx_errors`. A veth polls
//! with GRO or with a program of its own. With GRO alone it is not woken for frames that were sent back,
//! which wait until something else arrives. So the peer gets a program that passes every frame to the kernel.

use anyhow::Context;
use aya::programs::Xdp;
use aya::programs::xdp::XdpMode;
use aya::{Ebpf, EbpfLoader};

static OBJECT: &[u8] = aya::include_bytes_aligned!("../../../bpf/measure.bpf.o");

/// An interface that receives the frames of its peer's program, until this value is dropped.
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
