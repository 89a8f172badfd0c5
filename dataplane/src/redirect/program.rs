//! Loader of the redirector's kernel program. The program decapsulates GUE packets whose connection is known
//! here, on the interface where they arrive, and forwards those of other hosts. It punts everything else to
//! `crate::redirect`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsFd;

use aya::maps::lpm_trie::{Key, LpmTrie};
use aya::maps::{HashMap, Map, PerCpuArray, PerCpuHashMap};
use aya::programs::Xdp;
use aya::programs::xdp::XdpLinkId;
use aya::{Ebpf, EbpfLoader, VerifierLogLevel};

use common::bind::Prefix;
use common::hash::SipKey;

use super::SYN_WORDS;
use super::clients::HostAddresses;
use super::config::RedirectConfig;
use super::program_abi::{self, FATES, FORWARDED, KEPT, LEFT};
use crate::drivers::xdp::XdpError;
use crate::drivers::xdp::director::{Attached, Attachment, attach_native_or_generic};
use crate::host::sys::bpf::Words;

static OBJECT: &[u8] = aya::include_bytes_aligned!("../../bpf/redirect.bpf.o");
const PROGRAM: &str = "redirect";
/// Size of `struct neighbour` in octets.
const NEIGHBOUR: usize = 24;

/// The program in the kernel. Dropping it detaches the program from its interface.
#[derive(Debug)]
pub struct Redirect {
    ebpf: Ebpf,
    link: Option<XdpLinkId>,
    attached: Option<Attached>,
    vips: Vec<Prefix>,
    /// The contents of the map `no_clients`: addresses that no client can have.
    no_clients: BTreeSet<Prefix>,
}

/// The link through which a next hop is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Destination link address: the next hop's, or its gateway's.
    pub destination: [u8; 6],
    /// Source link address: that of the outgoing interface.
    pub source: [u8; 6],
    /// Source IP address of the outer header.
    pub source_address: Ipv4Addr,
    /// Index of the outgoing interface.
    pub ifindex: u32,
}

/// The program's counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RedirectCounts {
    /// Accepted packets, by the number of the reason (`Accept as usize`).
    pub accepted: [u64; KEPT],
    /// Accepted packets that another redirector had forwarded, by the number of the reason.
    pub accepted_later_hop: [u64; KEPT],
    /// Forwarded packets, by next hop.
    pub forwarded_to: BTreeMap<Ipv4Addr, u64>,
    /// Forwarded packets.
    pub forwarded: u64,
    /// Packets whose connection is here although another host owns its row, by the host that forwarded them.
    pub second_hop_from: BTreeMap<Ipv4Addr, u64>,
    /// When the last of these packets arrived, in nanoseconds of the monotonic clock; 0 if none arrived.
    pub last_second_hop_ns: u64,
    /// Packets punted to user space, by reason.
    pub punted: BTreeMap<&'static str, u64>,
}

impl Redirect {
    /// Loads the program. `own` are this host's addresses, `mac` is its interface's link address, and
    /// `syn_key` hashes flows to the words of [`Self::recent_syns`].
    pub fn load(
        config: &RedirectConfig,
        own: &HostAddresses,
        mac: [u8; 6],
        syn_key: SipKey,
    ) -> Result<Self, XdpError> {
        let constants = program_abi::config(config, &outer_addresses(own), mac, syn_key)?;
        let mut ebpf = EbpfLoader::new()
            .btf(None)
            .verifier_log_level(VerifierLogLevel::DISABLE)
            .override_global("redirect_config", constants.as_slice(), true)
            .load(OBJECT)?;
        program(&mut ebpf)?.load()?;
        let vips = config.vips.iter().copied().filter(|vip| vip.is_host()).collect();
        let mut this = Self { ebpf, link: None, attached: None, vips, no_clients: BTreeSet::new() };
        this.set_own(own)?;
        Ok(this)
    }

    /// Sets this host's addresses: an inner packet from one of them is not accepted. The destination
    /// addresses of outer headers stay as they were at load time.
    pub fn set_own(&mut self, own: &HostAddresses) -> Result<(), XdpError> {
        let wanted: BTreeSet<_> = own.forbidden().chain(self.vips.iter().copied()).collect();
        let map = self.ebpf.map_mut("no_clients").ok_or(XdpError::Missing("no_clients"))?;
        let mut trie: LpmTrie<_, [u8; 16], u8> = map.try_into()?;
        let key = |prefix: &Prefix| {
            let (bits, octets) = program_abi::prefix(*prefix);
            Key::new(bits, octets)
        };
        for new in wanted.difference(&self.no_clients) {
            trie.insert(&key(new), 1, 0)?;
        }
        for old in self.no_clients.difference(&wanted) {
            trie.remove(&key(old))?;
        }
        self.no_clients = wanted;
        Ok(())
    }

    /// The memory of recently accepted SYNs, which the program shares with the workers.
    pub fn recent_syns(&self) -> Result<Words, XdpError> {
        let name = "recent_syns";
        let Some(Map::Array(map)) = self.ebpf.map(name) else { return Err(XdpError::Missing(name)) };
        Words::map(map.fd().as_fd(), SYN_WORDS).map_err(|error| XdpError::Fill(name, error))
    }

    /// Attaches the program to an interface: in the driver if `native` and possible, else in the network
    /// stack.
    pub fn attach(&mut self, interface: u32, native: bool) -> Result<Attachment, XdpError> {
        let (link, placed) = attach_native_or_generic(program(&mut self.ebpf)?, interface, native)?;
        (self.link, self.attached) = (Some(link), Some(placed.attached));
        Ok(placed)
    }

    /// Detaches the program from its interface.
    pub fn detach(&mut self) {
        if let (Some(link), Ok(program)) = (self.link.take(), program(&mut self.ebpf)) {
            drop(program.detach(link));
        }
    }

    /// How the program is attached, if it is.
    #[must_use]
    pub fn attached(&self) -> Option<Attached> {
        self.attached
    }

    /// Sets the link of a next hop. With `None` the next hop is unknown, and its packets are punted to user
    /// space.
    pub fn set_neighbour(&mut self, hop: Ipv4Addr, neighbour: Option<&Neighbour>) -> Result<(), XdpError> {
        let map = self.ebpf.map_mut("neighbours").ok_or(XdpError::Missing("neighbours"))?;
        let mut neighbours: HashMap<_, [u8; 4], [u8; NEIGHBOUR]> = map.try_into()?;
        match neighbour {
            Some(neighbour) => neighbours.insert(hop.octets(), neighbour.octets(), 0)?,
            None => drop(neighbours.remove(&hop.octets())),
        }
        Ok(())
    }

    /// Reads the counters.
    pub fn counts(&self) -> Result<RedirectCounts, XdpError> {
        let map = self.ebpf.map("fates").ok_or(XdpError::Missing("fates"))?;
        let cells: PerCpuArray<_, u64> = map.try_into()?;
        let mut fates = [0; FATES];
        for (index, fate) in (0..).zip(&mut fates) {
            *fate = cells.get(&index, 0)?.iter().sum();
        }
        let (second_hop_from, last_second_hop_ns) = self.packets_by_address("second_hop_from")?;
        let [accepted, accepted_later_hop] =
            [0, KEPT].map(|start| std::array::from_fn(|index| fates[start + index]));
        Ok(RedirectCounts {
            accepted,
            accepted_later_hop,
            forwarded: fates[FORWARDED],
            forwarded_to: self.packets_by_address("forwarded_to")?.0,
            second_hop_from,
            last_second_hop_ns,
            punted: LEFT.into_iter().zip(fates[FORWARDED + 1..].iter().copied()).collect(),
        })
    }

    /// Packets by address, and the arrival time of the last of all.
    fn packets_by_address(&self, name: &'static str) -> Result<(BTreeMap<Ipv4Addr, u64>, u64), XdpError> {
        let map = self.ebpf.map(name).ok_or(XdpError::Missing(name))?;
        let counters: PerCpuHashMap<_, [u8; 4], [u64; 2]> = map.try_into()?;
        let (mut packets, mut last) = (BTreeMap::new(), 0);
        for entry in counters.iter() {
            let (address, per_cpu) = entry?;
            for [count, ns] in per_cpu.iter() {
                *packets.entry(Ipv4Addr::from(address)).or_default() += count;
                last = last.max(*ns);
            }
        }
        Ok((packets, last))
    }

    /// The program itself, for test runs.
    #[must_use]
    pub fn program(&self) -> Option<&Xdp> {
        self.ebpf.program(PROGRAM)?.try_into().ok()
    }
}

impl RedirectCounts {
    /// Adds the counters of another program.
    pub fn add(&mut self, other: &Self) {
        self.accepted.iter_mut().zip(other.accepted).for_each(|(to, from)| *to += from);
        self.accepted_later_hop.iter_mut().zip(other.accepted_later_hop).for_each(|(to, from)| *to += from);
        self.forwarded += other.forwarded;
        other.forwarded_to.iter().for_each(|(key, n)| *self.forwarded_to.entry(*key).or_default() += n);
        other.second_hop_from.iter().for_each(|(key, n)| *self.second_hop_from.entry(*key).or_default() += n);
        self.last_second_hop_ns = self.last_second_hop_ns.max(other.last_second_hop_ns);
        other.punted.iter().for_each(|(key, n)| *self.punted.entry(key).or_default() += n);
    }
}

impl Neighbour {
    /// The octets of `struct neighbour`.
    fn octets(&self) -> [u8; NEIGHBOUR] {
        let mut octets = [0; NEIGHBOUR];
        octets[..6].copy_from_slice(&self.destination);
        octets[6..12].copy_from_slice(&self.source);
        octets[12..16].copy_from_slice(&self.source_address.octets());
        octets[16..20].copy_from_slice(&self.ifindex.to_ne_bytes());
        octets
    }
}

/// This host's IPv4 addresses, ascending, except loopback addresses. Includes single VIPs on the loopback
/// interface: GUE to these is for this host too.
pub(crate) fn outer_addresses(own: &HostAddresses) -> Vec<Ipv4Addr> {
    let hosts = own.prefixes().filter(|prefix| prefix.is_host());
    let mut all: Vec<_> = hosts
        .filter_map(|host| match host.address() {
            IpAddr::V4(v4) => Some(v4).filter(|v4| !v4.is_loopback()),
            IpAddr::V6(_) => None,
        })
        .collect();
    all.sort_unstable();
    all
}

fn program(ebpf: &mut Ebpf) -> Result<&mut Xdp, XdpError> {
    let program = ebpf.program_mut(PROGRAM).ok_or(XdpError::Missing(PROGRAM))?;
    Ok(program.try_into()?)
}
