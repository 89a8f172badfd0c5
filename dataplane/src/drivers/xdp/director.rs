//! One generation in the kernel: loaded, attached, replaced, read.

use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};

use aya::maps::{Array, Map, PerCpuArray};
use aya::programs::Xdp;
use aya::programs::links::FdLink;
use aya::programs::xdp::{XdpLink, XdpLinkId, XdpMode};
use aya::{Ebpf, EbpfLoader, VerifierLogLevel};

use super::abi::HOP;
use super::layout::{self, Layout};
use super::{Left, XdpError};
use crate::host::sys::bpf;
use crate::host::sys::interface::Interface;
use crate::pipeline::Pipeline;

static OBJECT: &[u8] = aya::include_bytes_aligned!("../../../bpf/director.bpf.o");
const PROGRAM: &str = "director";
/// The longest IP packet that drivers take for a program without fragments: a page less 256 octets in front, some 320
/// behind, and the link header.
const LONGEST: u32 = 3_498;

/// How a program is attached to an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attached {
    /// In the driver, before the kernel makes a packet of the frame.
    Native,
    /// In the kernel's network stack, for drivers that know no XDP: slower, and works everywhere.
    Generic,
}

impl Attached {
    /// The word in logs and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Generic => "generic",
        }
    }
}

/// How a program came onto an interface.
#[derive(Clone, Debug)]
pub struct Placed {
    /// How it is attached.
    pub attached: Attached,
    /// Why not natively, if that was tried.
    pub refused: Option<String>,
}

impl fmt::Display for Placed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.attached.name())?;
        self.refused.as_ref().map_or(Ok(()), |why| write!(f, ", for it cannot be native: {why}"))
    }
}

/// What one generation has counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames encapsulated, by primary: all backends of all tables, in the order of the table file.
    pub primaries: Vec<u64>,
    /// Frames left to user space, by [`Left::number`].
    pub left: Vec<u64>,
}

impl Counts {
    /// Frames left for that reason.
    #[must_use]
    pub fn left(&self, reason: Left) -> u64 {
        self.left.get(usize::from(reason.number())).copied().unwrap_or(0)
    }

    /// Frames that the program sent.
    #[must_use]
    pub fn encapsulated(&self) -> u64 {
        self.primaries.iter().sum()
    }
}

/// The program of one forwarding table, in the kernel. Dropping it takes it off its interfaces.
#[derive(Debug)]
pub struct Director {
    ebpf: Ebpf,
    links: BTreeMap<u32, (XdpLinkId, Attached)>,
    backends: u32,
    /// Which half of the hops the program reads.
    second_half: bool,
}

impl Director {
    /// Loads the program and fills its maps. `egress` has the interface that each backend is reached by: all backends
    /// of all tables, in the order of the table file; 0 for one that is not reached over a link.
    pub fn load(pipeline: &Pipeline, egress: &[u32]) -> Result<Self, XdpError> {
        let layout = Layout::new(pipeline)?;
        let hops = layout::hops(pipeline, egress)?;
        let mut ebpf = load_object(&layout)?;
        for (name, octets) in [
            ("binds_v4", &layout.binds_v4),
            ("binds_v6", &layout.binds_v6),
            ("port_pages", &layout.ports),
            ("tables", &layout.tables),
            ("hops", &hops),
        ] {
            fill(&ebpf, name, 0, octets)?;
        }
        let mut at = 0;
        for table in pipeline.forwarding().tables() {
            let rows = layout::rows(table);
            fill(&ebpf, "rows", at, &rows)?;
            at += rows.len();
        }
        program(&mut ebpf)?.load()?;
        Ok(Self { ebpf, links: BTreeMap::new(), backends: layout.backends, second_half: false })
    }

    /// Puts the program on an interface: into the driver if it can, else into the network stack.
    pub fn attach(&mut self, interface: u32) -> Result<Placed, XdpError> {
        let (link, placed) = attach_native_or_generic(program(&mut self.ebpf)?, interface, true)?;
        self.links.insert(interface, (link, placed.attached));
        Ok(placed)
    }

    /// Puts the program on an interface in one way alone.
    pub fn attach_as(&mut self, interface: u32, how: Attached) -> Result<(), XdpError> {
        let link = attach_as(program(&mut self.ebpf)?, interface, how)?;
        self.links.insert(interface, (link, how));
        Ok(())
    }

    /// The interfaces that it is attached to, and how.
    pub fn attached(&self) -> impl Iterator<Item = (u32, Attached)> {
        self.links.iter().map(|(interface, (_, how))| (*interface, *how))
    }

    /// Takes the place of `last` on all its interfaces, in one step each, and returns what `last` has counted once it
    /// does not run any more.
    pub fn replace(&mut self, last: &mut Self) -> Result<Counts, XdpError> {
        while let Some((interface, (id, how))) = last.links.pop_first() {
            let link = program(&mut last.ebpf)?.take_link(id)?;
            let id = program(&mut self.ebpf)?.attach_to_link(link)?;
            self.links.insert(interface, (id, how));
        }
        bpf::wait_for_programs().map_err(XdpError::Wait)?;
        last.counts()
    }

    /// Replaces the next hops of all backends at once. The forwarding table must be that of [`Director::load`].
    pub fn set_hops(&mut self, pipeline: &Pipeline, egress: &[u32]) -> Result<(), XdpError> {
        let hops = layout::hops(pipeline, egress)?;
        let next = !self.second_half;
        fill(&self.ebpf, "hops", self.half(next) as usize * HOP, &hops)?;
        let map = self.ebpf.map_mut(".bss").ok_or(XdpError::Missing(".bss"))?;
        let at = self.backends * u32::from(next);
        Array::try_from(map)?.set(0, at, 0)?;
        self.second_half = next;
        // The half that was left is written next time: nobody may read it then.
        bpf::wait_for_programs().map_err(XdpError::Wait)
    }

    fn half(&self, second: bool) -> u32 {
        self.backends * u32::from(second)
    }

    /// What it has counted so far.
    pub fn counts(&self) -> Result<Counts, XdpError> {
        let reasons = u32::try_from(Left::ALL.len()).unwrap_or(0);
        Ok(Counts { primaries: self.sums("primaries", self.backends)?, left: self.sums("left", reasons)? })
    }

    fn sums(&self, name: &'static str, count: u32) -> Result<Vec<u64>, XdpError> {
        let map = self.ebpf.map(name).ok_or(XdpError::Missing(name))?;
        let cells: PerCpuArray<_, u64> = map.try_into()?;
        (0..count).map(|at| Ok(cells.get(&at, 0)?.iter().sum())).collect()
    }

    /// The program, to be run by hand.
    #[must_use]
    pub fn program(&self) -> Option<&Xdp> {
        self.ebpf.program(PROGRAM)?.try_into().ok()
    }
}

/// Into the driver if that is wanted and it can, else into the network stack.
pub(crate) fn attach_native_or_generic(
    program: &mut Xdp,
    interface: u32,
    native: bool,
) -> Result<(XdpLinkId, Placed), XdpError> {
    let refused = match native.then(|| attach_as(program, interface, Attached::Native)) {
        Some(Ok(link)) => return Ok((link, Placed { attached: Attached::Native, refused: None })),
        Some(Err(error)) => Some(error.to_string()),
        None => None,
    };
    match attach_as(program, interface, Attached::Generic) {
        Ok(link) => Ok((link, Placed { attached: Attached::Generic, refused })),
        Err(generic) => {
            let native = refused.map_or(String::new(), |why| format!("native: {why}; "));
            Err(XdpError::Attach { interface, text: format!("{native}generic: {generic}") })
        }
    }
}

fn attach_as(program: &mut Xdp, interface: u32, how: Attached) -> Result<XdpLinkId, XdpError> {
    let mode = match how {
        Attached::Native => XdpMode::Driver,
        Attached::Generic => XdpMode::Skb,
    };
    let link = program.attach_to_if_index(interface, mode).map_err(|error| match how {
        Attached::Native => too_long(interface).unwrap_or_else(|| refused(interface, &error)),
        Attached::Generic => refused(interface, &error),
    })?;
    let link = program.take_link(link)?;
    // Where links are refused a program would be set for good, and outlive this process: not that.
    let link = FdLink::try_from(link)
        .map_err(|_| XdpError::Attach { interface, text: "the driver refuses the program".to_owned() })?;
    let link = XdpLink::try_from(link).map_err(|error| refused(interface, &error))?;
    Ok(program.attach_to_link(link)?)
}

/// The programs take frames in one piece, which has to fit a page with room around it. The kernel refuses them where
/// frames may be longer, with a bare ERANGE.
fn too_long(interface: u32) -> Option<XdpError> {
    let mtu = Interface::indexed(interface).ok()?.mtu;
    let text = format!("its MTU is {mtu}, and a frame has to fit one page: expected at most {LONGEST}");
    (mtu > LONGEST).then_some(XdpError::Attach { interface, text })
}

fn refused(interface: u32, error: &dyn std::error::Error) -> XdpError {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    XdpError::Attach { interface, text }
}

fn load_object(layout: &Layout) -> Result<Ebpf, XdpError> {
    let entries = |octets: &[u8], size: usize| u32::try_from(octets.len() / size).unwrap_or(u32::MAX).max(1);
    let mut loader = EbpfLoader::new();
    loader
        .btf(None)
        .verifier_log_level(VerifierLogLevel::DISABLE)
        .override_global("config", layout.config.as_slice(), true)
        .map_max_entries("binds_v4", entries(&layout.binds_v4, super::abi::BIND_V4))
        .map_max_entries("binds_v6", entries(&layout.binds_v6, super::abi::BIND_V6))
        .map_max_entries("port_pages", entries(&layout.ports, super::abi::PAGE))
        .map_max_entries("tables", entries(&layout.tables, super::abi::TABLE))
        .map_max_entries("rows", layout.rows.max(1))
        .map_max_entries("hops", layout.backends.max(1) * 2)
        .map_max_entries("primaries", layout.backends.max(1));
    Ok(loader.load(OBJECT)?)
}

fn program(ebpf: &mut Ebpf) -> Result<&mut Xdp, XdpError> {
    let program = ebpf.program_mut(PROGRAM).ok_or(XdpError::Missing(PROGRAM))?;
    Ok(program.try_into()?)
}

fn fill(ebpf: &Ebpf, name: &'static str, offset: usize, octets: &[u8]) -> Result<(), XdpError> {
    let map = descriptor(ebpf, name).ok_or(XdpError::Missing(name))?;
    bpf::fill(map, offset, octets).map_err(|error| XdpError::Fill(name, error))
}

fn descriptor<'a>(ebpf: &'a Ebpf, name: &str) -> Option<BorrowedFd<'a>> {
    match ebpf.map(name)? {
        Map::Array(data) => Some(data.fd().as_fd()),
        _ => None,
    }
}
