//! The redirector's plain case in the kernel: GUE packets whose connection is known here are unwrapped where they come
//! in, and those of other hosts passed on. What it leaves, and all that follows from it, is `crate::redirect`'s.

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

use super::SYN_SLOTS;
use super::clients::Own;
use super::config::RedirectConfig;
use super::program_abi::{self, FATES, FORWARDED, KEPT, LEFT};
use crate::drivers::xdp::XdpError;
use crate::drivers::xdp::director::{Attached, Placed, attach_native_or_generic};
use crate::host::sys::bpf::Words;

static OBJECT: &[u8] = aya::include_bytes_aligned!("../../bpf/redirect.bpf.o");
const PROGRAM: &str = "redirect";
/// Of `struct neighbour`.
const NEIGHBOUR: usize = 24;

/// The program in the kernel. Dropping it takes it off its interface.
#[derive(Debug)]
pub struct Redirect {
    ebpf: Ebpf,
    link: Option<XdpLinkId>,
    attached: Option<Attached>,
    vips: Vec<Prefix>,
    /// What the program was told that no client has.
    no_clients: BTreeSet<Prefix>,
}

/// How a next hop is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Its link address, or that of the way to it.
    pub destination: [u8; 6],
    /// That of our interface.
    pub source: [u8; 6],
    /// Our address, which it sees.
    pub source_address: Ipv4Addr,
    /// Our interface.
    pub ifindex: u32,
}

/// What it has counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RedirectCounts {
    /// Packets kept, by the number of the reason (`Keep as usize`).
    pub kept: [u64; KEPT],
    /// The same, of packets that another redirector had passed on.
    pub kept_later: [u64; KEPT],
    /// Passed on, by next hop.
    pub forwarded_to: BTreeMap<Ipv4Addr, u64>,
    /// Passed on.
    pub forwarded: u64,
    /// Packets whose connection lives here although another host owns its row, by who passed them on.
    pub second_hop_from: BTreeMap<Ipv4Addr, u64>,
    /// When the last of them came, in nanoseconds of the monotonic clock; 0 if none did.
    pub last_second_hop_ns: u64,
    /// Left to user space, by reason.
    pub left: BTreeMap<&'static str, u64>,
}

impl Redirect {
    /// Loads the program; `own` are this host's addresses, `mac` its interface's, and `syn_key` hashes flows to the words of
    /// [`Self::recent_syns`].
    pub fn load(config: &RedirectConfig, own: &Own, mac: [u8; 6], syn_key: SipKey) -> Result<Self, XdpError> {
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

    /// Says which addresses this host has: no packet inside may come from one of them. Those that packets outside are for
    /// stay as they were when it was loaded.
    pub fn set_own(&mut self, own: &Own) -> Result<(), XdpError> {
        let wanted: BTreeSet<_> = own.prefixes().chain(self.vips.iter().copied()).collect();
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

    /// The memory of SYNs that were kept lately, which the program shares with the workers.
    pub fn recent_syns(&self) -> Result<Words, XdpError> {
        let name = "recent_syns";
        let Some(Map::Array(map)) = self.ebpf.map(name) else { return Err(XdpError::Missing(name)) };
        Words::map(map.fd().as_fd(), SYN_SLOTS).map_err(|error| XdpError::Fill(name, error))
    }

    /// Puts the program on an interface: into the driver if it can, else into the network stack.
    pub fn attach(&mut self, interface: u32, native: bool) -> Result<Placed, XdpError> {
        let (link, placed) = attach_native_or_generic(program(&mut self.ebpf)?, interface, native)?;
        (self.link, self.attached) = (Some(link), Some(placed.attached));
        Ok(placed)
    }

    /// Takes it off its interface.
    pub fn detach(&mut self) {
        if let (Some(link), Ok(program)) = (self.link.take(), program(&mut self.ebpf)) {
            drop(program.detach(link));
        }
    }

    /// How it is attached, if it is.
    #[must_use]
    pub fn attached(&self) -> Option<Attached> {
        self.attached
    }

    /// Says how a next hop is reached; nothing: that it is not known, so that its packets are left to user space.
    pub fn set_neighbour(&mut self, hop: Ipv4Addr, way: Option<&Neighbour>) -> Result<(), XdpError> {
        let map = self.ebpf.map_mut("neighbours").ok_or(XdpError::Missing("neighbours"))?;
        let mut neighbours: HashMap<_, [u8; 4], [u8; NEIGHBOUR]> = map.try_into()?;
        match way {
            Some(way) => neighbours.insert(hop.octets(), way.octets(), 0)?,
            None => drop(neighbours.remove(&hop.octets())),
        }
        Ok(())
    }

    /// What it has counted so far.
    pub fn counts(&self) -> Result<RedirectCounts, XdpError> {
        let map = self.ebpf.map("fates").ok_or(XdpError::Missing("fates"))?;
        let cells: PerCpuArray<_, u64> = map.try_into()?;
        let mut fates = [0; FATES];
        for (at, fate) in (0..).zip(&mut fates) {
            *fate = cells.get(&at, 0)?.iter().sum();
        }
        let (second_hop_from, last_second_hop_ns) = self.tallies("second_hop_from")?;
        let at = |start: usize| std::array::from_fn(|at| fates.get(start + at).copied().unwrap_or(0));
        Ok(RedirectCounts {
            kept: at(0),
            kept_later: at(KEPT),
            forwarded: fates.get(FORWARDED).copied().unwrap_or(0),
            forwarded_to: self.tallies("forwarded_to")?.0,
            second_hop_from,
            last_second_hop_ns,
            left: LEFT.iter().copied().zip(fates.iter().skip(FORWARDED + 1).copied()).collect(),
        })
    }

    /// Packets by address, and when the last one of all came.
    fn tallies(&self, name: &'static str) -> Result<(BTreeMap<Ipv4Addr, u64>, u64), XdpError> {
        let map = self.ebpf.map(name).ok_or(XdpError::Missing(name))?;
        let tallies: PerCpuHashMap<_, [u8; 4], [u64; 2]> = map.try_into()?;
        let (mut packets, mut last) = (BTreeMap::new(), 0);
        for entry in tallies.iter() {
            let (address, of_cpus) = entry?;
            for [count, ns] in of_cpus.iter() {
                *packets.entry(Ipv4Addr::from(address)).or_default() += count;
                last = last.max(*ns);
            }
        }
        Ok((packets, last))
    }

    /// The program, to be run by hand.
    #[must_use]
    pub fn program(&self) -> Option<&Xdp> {
        self.ebpf.program(PROGRAM)?.try_into().ok()
    }
}

impl RedirectCounts {
    /// Adds what another program counted.
    pub fn add(&mut self, other: &Self) {
        self.kept.iter_mut().zip(other.kept).for_each(|(to, from)| *to += from);
        self.kept_later.iter_mut().zip(other.kept_later).for_each(|(to, from)| *to += from);
        self.forwarded += other.forwarded;
        other.forwarded_to.iter().for_each(|(key, n)| *self.forwarded_to.entry(*key).or_default() += n);
        other.second_hop_from.iter().for_each(|(key, n)| *self.second_hop_from.entry(*key).or_default() += n);
        self.last_second_hop_ns = self.last_second_hop_ns.max(other.last_second_hop_ns);
        other.left.iter().for_each(|(key, n)| *self.left.entry(key).or_default() += n);
    }
}

impl Neighbour {
    /// `struct neighbour`.
    fn octets(&self) -> [u8; NEIGHBOUR] {
        let mut octets = [0; NEIGHBOUR];
        octets[..6].copy_from_slice(&self.destination);
        octets[6..12].copy_from_slice(&self.source);
        octets[12..16].copy_from_slice(&self.source_address.octets());
        octets[16..20].copy_from_slice(&self.ifindex.to_ne_bytes());
        octets
    }
}

/// This host's IPv4 addresses, ascending. Those of the loopback and single VIPs that lie there are among them; GUE for these
/// is for this host too.
pub(crate) fn outer_addresses(own: &Own) -> Vec<Ipv4Addr> {
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
