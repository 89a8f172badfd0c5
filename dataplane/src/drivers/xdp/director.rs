//! Loads, attaches, replaces and reads a generation of the director's kernel program.

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
use super::{PuntReason, XdpError};
use crate::host::sys::bpf;
use crate::host::sys::interface::Interface;
use crate::pipeline::Pipeline;

static OBJECT: &[u8] = aya::include_bytes_aligned!("../../../bpf/director.bpf.o");
const PROGRAM: &str = "director";
/// Length of the longest IP packet that drivers accept for a program without fragments, in octets: a page
/// without 256 octets in front, about 320 behind, and the link header.
const LONGEST: u32 = 3_498;

/// How a program is attached to an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attached {
    /// In the driver, before the kernel allocates a packet buffer for the frame.
    Native,
    /// In the kernel's network stack, for drivers without XDP: slower, but works with every driver.
    Generic,
}

impl Attached {
    /// The name in logs and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Generic => "generic",
        }
    }
}

/// The result of attaching a program to an interface.
#[derive(Clone, Debug)]
pub struct Attachment {
    /// How it is attached.
    pub attached: Attached,
    /// The error of the native attempt, if there was one.
    pub refused: Option<String>,
}

impl fmt::Display for Attachment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.attached.name())?;
        self.refused.as_ref().map_or(Ok(()), |why| write!(f, ", native is not possible: {why}"))
    }
}

/// The counters of a generation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Encapsulated frames by primary: all backends of all tables, in the order of the table file.
    pub primaries: Vec<u64>,
    /// Frames punted to user space, by [`PuntReason::number`].
    pub punted: Vec<u64>,
}

impl Counts {
    /// Frames punted for this reason.
    #[must_use]
    pub fn punted(&self, reason: PuntReason) -> u64 {
        self.punted.get(usize::from(reason.number())).copied().unwrap_or(0)
    }

    /// Number of frames that the program encapsulated and sent.
    #[must_use]
    pub fn encapsulated(&self) -> u64 {
        self.primaries.iter().sum()
    }
}

/// The kernel program of a forwarding table. Dropping it detaches the program from its interfaces.
#[derive(Debug)]
pub struct Director {
    ebpf: Ebpf,
    links: BTreeMap<u32, (XdpLinkId, Attached)>,
    backends: u32,
    /// Whether the program reads the second half of the hops.
    second_half: bool,
}

impl Director {
    /// Loads the program and fills its maps. Frames are sent only through interfaces that are `usable`;
    /// frames to other interfaces are punted to user space.
    pub fn load(pipeline: &Pipeline, usable: impl Fn(u32) -> bool) -> Result<Self, XdpError> {
        let layout = Layout::new(pipeline)?;
        let hops = layout::hops(pipeline, usable)?;
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
        let mut offset = 0;
        for table in pipeline.forwarding().tables() {
            let rows = layout::rows(table);
            fill(&ebpf, "rows", offset, &rows)?;
            offset += rows.len();
        }
        program(&mut ebpf)?.load()?;
        Ok(Self { ebpf, links: BTreeMap::new(), backends: layout.backends, second_half: false })
    }

    /// Attaches the program to an interface: in the driver if possible, else in the network stack.
    pub fn attach(&mut self, interface: u32) -> Result<Attachment, XdpError> {
        let (link, placed) = attach_native_or_generic(program(&mut self.ebpf)?, interface, true)?;
        self.links.insert(interface, (link, placed.attached));
        Ok(placed)
    }

    /// Attaches the program to an interface in the given way only.
    pub fn attach_as(&mut self, interface: u32, how: Attached) -> Result<(), XdpError> {
        let link = attach_as(program(&mut self.ebpf)?, interface, how)?;
        self.links.insert(interface, (link, how));
        Ok(())
    }

    /// The interfaces that the program is attached to, and how.
    pub fn attached(&self) -> impl Iterator<Item = (u32, Attached)> {
        self.links.iter().map(|(interface, (_, how))| (*interface, *how))
    }

    /// Replaces `last` on all its interfaces, in a single step for each, and returns the counters of `last`
    /// after it has stopped running.
    pub fn replace(&mut self, last: &mut Self) -> Result<Counts, XdpError> {
        while let Some((interface, (id, how))) = last.links.pop_first() {
            let link = program(&mut last.ebpf)?.take_link(id)?;
            let id = program(&mut self.ebpf)?.attach_to_link(link)?;
            self.links.insert(interface, (id, how));
        }
        bpf::wait_for_programs().map_err(XdpError::Wait)?;
        last.counts()
    }

    /// Replaces the next hops of all backends at once. The forwarding table must be that of
    /// [`Director::load`].
    pub fn set_hops(&mut self, pipeline: &Pipeline, usable: impl Fn(u32) -> bool) -> Result<(), XdpError> {
        let hops = layout::hops(pipeline, usable)?;
        let next = !self.second_half;
        fill(&self.ebpf, "hops", self.half(next) as usize * HOP, &hops)?;
        let first = self.half(next);
        let map = self.ebpf.map_mut(".bss").ok_or(XdpError::Missing(".bss"))?;
        Array::try_from(map)?.set(0, first, 0)?;
        self.second_half = next;
        // The next call writes the other half: wait until no program reads it.
        bpf::wait_for_programs().map_err(XdpError::Wait)
    }

    /// Index of the first hop of a half.
    fn half(&self, second: bool) -> u32 {
        self.backends * u32::from(second)
    }

    /// Reads the counters.
    pub fn counts(&self) -> Result<Counts, XdpError> {
        let reasons = u32::try_from(PuntReason::ALL.len()).expect("invariant: fewer than 256 reasons");
        Ok(Counts { primaries: self.sums("primaries", self.backends)?, punted: self.sums("left", reasons)? })
    }

    fn sums(&self, name: &'static str, count: u32) -> Result<Vec<u64>, XdpError> {
        let map = self.ebpf.map(name).ok_or(XdpError::Missing(name))?;
        let cells: PerCpuArray<_, u64> = map.try_into()?;
        (0..count).map(|index| Ok(cells.get(&index, 0)?.iter().sum())).collect()
    }

    /// The program itself, for test runs.
    #[must_use]
    pub fn program(&self) -> Option<&Xdp> {
        self.ebpf.program(PROGRAM)?.try_into().ok()
    }
}

/// Attaches in the driver if `native` and possible, else in the network stack.
pub(crate) fn attach_native_or_generic(
    program: &mut Xdp,
    interface: u32,
    native: bool,
) -> Result<(XdpLinkId, Attachment), XdpError> {
    let refused = match native.then(|| attach_as(program, interface, Attached::Native)) {
        Some(Ok(link)) => return Ok((link, Attachment { attached: Attached::Native, refused: None })),
        Some(Err(error)) => Some(error.to_string()),
        None => None,
    };
    match attach_as(program, interface, Attached::Generic) {
        Ok(link) => Ok((link, Attachment { attached: Attached::Generic, refused })),
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
    // Without a link the program would stay attached after this process ends. Refuse such a driver.
    let link = FdLink::try_from(link)
        .map_err(|_| XdpError::Attach { interface, text: "the driver refuses the program".to_owned() })?;
    let link = XdpLink::try_from(link).map_err(|error| refused(interface, &error))?;
    Ok(program.attach_to_link(link)?)
}

/// The error for an interface whose frames are too long. The programs take each frame in a single buffer,
/// which must fit in a page with room around it. If frames may be longer the kernel refuses to attach, with a
/// bare ERANGE.
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
    let entries = |octets: &[u8], size: usize| {
        u32::try_from(octets.len() / size).expect("invariant: the limits of the layout").max(1)
    };
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
