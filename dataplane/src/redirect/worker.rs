//! A worker thread: receives a batch of packets, decides each packet, sends the batch. No allocation, lock or
//! clock reading per packet; one clock reading, one netlink request and at most four sends per batch.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use super::clients::{ForbiddenSources, HostAddresses};
use super::config::{RedirectConfig, Udp};
use super::counters::Counters;
use super::decide::{Accept, Decision, Facts, Reject, SocketLookup, decide, flow_to_look_up};
use super::ecn;
use super::identification;
use super::inner::{Flow, Inner, InnerError, Kind};
use super::outer::{self, HEADROOM, OuterHeader};
use super::routes::{Route, Routes};
use super::run::Shared;
use super::socket_lookup::{FlowCache, SocketTable};
use crate::host::sys::datagram::{self, BATCH, Buffers};
use crate::wire::gue::{Gue, GueError};
use crate::wire::unfinished;

/// Length of the longest UDP datagram, in octets.
const LONGEST: usize = 65_535;

/// The state of one thread. Only the counters and the table of SYNs are shared.
#[derive(Debug)]
pub(super) struct Worker {
    shared: Arc<Shared>,
    counters: Arc<Counters>,
    cache: FlowCache,
    sockets: SocketTable,
    /// The flows of this batch that are looked up in the kernel.
    requests: Vec<Flow>,
    /// Of this batch: the senders of accepted second-hop packets, and the next hops of forwarded packets.
    /// Counted under one lock.
    second_hop_senders: Vec<IpAddr>,
    forwarded_to: Vec<IpAddr>,
    routes: Routes,
    buffers: Buffers,
    local: Raw,
    out: Raw,
    outcomes: [Outcome; BATCH],
}

/// Raw sockets of both families; a host may lack IPv6.
#[derive(Debug)]
struct Raw {
    v4: OwnedFd,
    v6: Option<OwnedFd>,
}

impl Raw {
    fn open() -> io::Result<Self> {
        Ok(Self { v4: datagram::raw_ip(true)?, v6: datagram::raw_ip(false).ok() })
    }

    fn on_loopback(mark: Option<NonZeroU32>) -> io::Result<Self> {
        let raw = Self::open()?;
        for socket in [Some(&raw.v4), raw.v6.as_ref()].into_iter().flatten() {
            datagram::bind_to_loopback(socket.as_fd())?;
            mark.map_or(Ok(()), |mark| datagram::mark(socket.as_fd(), mark.get()))?;
        }
        Ok(raw)
    }
}

/// The outcome for one datagram of a batch.
#[derive(Clone, Debug)]
enum Outcome {
    Nothing,
    /// Parsed and not decided yet.
    Packet(Packet),
    /// Send these octets of the message to this VIP.
    Accept(Range<usize>, IpAddr),
    /// Send the message, with this number of octets of its headroom, to this hop.
    Forward(usize, IpAddr),
}

/// A valid datagram.
#[derive(Clone, Debug)]
struct Packet {
    /// Length of the GUE header in octets.
    header: usize,
    inner: Inner,
    next_hop: u8,
    next: Option<IpAddr>,
    sender: SocketAddr,
    /// The look-up of this packet's flow, if it needs one.
    lookup: Option<Lookup>,
}

/// A hop that a packet can be forwarded to.
#[derive(Clone, Copy, Debug)]
struct Hop {
    /// Its index in the packet's list of hops.
    index: u8,
    address: IpAddr,
    reach: Reach,
}

#[derive(Clone, Copy, Debug)]
enum Reach {
    /// Reachable from this address of this host.
    From(IpAddr),
    /// The kernel has no route.
    NoRoute,
    /// The hop is in none of the prefixes `backends`.
    NotAllowed,
}

#[derive(Clone, Copy, Debug)]
enum Lookup {
    /// The cache has the flow.
    Cached,
    /// The index of the flow among the batch's requests.
    Request(usize),
}

impl Worker {
    pub(super) fn new(shared: Arc<Shared>, counters: Arc<Counters>) -> io::Result<Self> {
        let local = Raw::on_loopback(shared.config.mark)?;
        Ok(Self {
            shared,
            counters,
            cache: FlowCache::default(),
            sockets: SocketTable::open()?,
            requests: Vec::with_capacity(BATCH),
            second_hop_senders: Vec::with_capacity(BATCH),
            forwarded_to: Vec::with_capacity(BATCH),
            routes: Routes::default(),
            buffers: Buffers::new(HEADROOM, LONGEST),
            local,
            out: Raw::open()?,
            outcomes: std::array::from_fn(|_| Outcome::Nothing),
        })
    }

    /// Handles one batch. Returns errors of the receiving socket; all other errors are counted.
    pub(super) fn round(&mut self, server: &OwnedFd) -> io::Result<()> {
        let count = match self.buffers.receive(server.as_fd()) {
            Ok(count) => count,
            // The timeout, or a signal: the caller checks whether it should stop.
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let now_ms = self.shared.now_ms();
        self.read(count);
        if self.shared.config.second_chance {
            self.decide(count, now_ms);
        } else {
            self.accept_all(count);
        }
        self.send(count);
        Ok(())
    }

    fn read(&mut self, count: usize) {
        let own = self.shared.own.load();
        for index in 0..count {
            let from = Arrival {
                sender: self.buffers.sender(index),
                from_loopback: self.buffers.from_loopback(index),
            };
            let read = read(&self.shared.config, &own, self.buffers.message(index), from);
            let outer = self.buffers.traffic_class(index);
            let marked = read.and_then(|packet| {
                packet.with_congestion(outer, self.buffers.message_with_headroom_mut(index))
            });
            self.outcomes[index] = match marked {
                Ok(packet) => {
                    let finished = packet.finish_checksum(self.buffers.message_with_headroom_mut(index));
                    self.counters.finish_checksum(finished);
                    Outcome::Packet(packet)
                }
                Err(reason) => {
                    self.counters.reject(reason);
                    Outcome::Nothing
                }
            };
        }
    }

    /// `second_chance: off`: only decapsulates. The baseline of experiments.
    fn accept_all(&mut self, count: usize) {
        for index in 0..count {
            let Outcome::Packet(packet) = &self.outcomes[index] else { continue };
            let packet = packet.clone();
            self.counters.accept(Accept::Off, packet.next_hop > 0);
            self.outcomes[index] = self.accept(&packet, index);
        }
    }

    fn decide(&mut self, count: usize, now_ms: u64) {
        let results = self.look_up(count, now_ms);
        for index in 0..count {
            let Outcome::Packet(packet) = &self.outcomes[index] else { continue };
            let socket = match packet.lookup {
                Some(Lookup::Request(request)) => results[request],
                Some(Lookup::Cached) => SocketLookup::Found,
                None => SocketLookup::NotFound,
            };
            let packet = packet.clone();
            self.outcomes[index] = self.finish(&packet, index, socket, now_ms);
        }
        self.counters.second_hops(&self.second_hop_senders, &self.forwarded_to, now_ms);
        self.second_hop_senders.clear();
        self.forwarded_to.clear();
    }

    /// Looks up the flows of a batch, first in the cache, then in the kernel.
    fn look_up(&mut self, count: usize, now_ms: u64) -> [SocketLookup; BATCH] {
        let mut results = [SocketLookup::NotFound; BATCH];
        self.requests.clear();
        for plan in &mut self.outcomes[..count] {
            let Outcome::Packet(packet) = plan else { continue };
            let Some(flow) = flow_to_look_up(&packet.inner.kind, self.shared.config.udp == Udp::Socket)
            else {
                if let Kind::Tcp(flow, segment) = packet.inner.kind {
                    self.cache.remove(&flow);
                    self.shared.syns.remember(&flow, segment.sequence, now_ms);
                }
                continue;
            };
            if self.cache.contains(&flow, packet.next_hop, now_ms) {
                packet.lookup = Some(Lookup::Cached);
                continue;
            }
            packet.lookup = Some(Lookup::Request(self.requests.len()));
            self.requests.push(flow);
        }
        let flows = self.requests.len();
        if flows > 0 {
            let unanswered = self.sockets.look_up(&self.requests, &mut results[..flows]).unwrap_or(flows);
            self.counters.lookups(flows, unanswered);
        }
        results
    }

    /// Decides a packet after its look-up, and carries out the verdict.
    fn finish(&mut self, packet: &Packet, index: usize, socket: SocketLookup, now_ms: u64) -> Outcome {
        let follows_syn = match packet.inner.kind {
            Kind::Tcp(flow, segment) if socket == SocketLookup::NotFound => {
                self.shared.syns.completes_handshake(&flow, segment, now_ms)
            }
            _ => false,
        };
        let needs_hop = packet.lookup.is_some() && socket == SocketLookup::NotFound && !follows_syn;
        let hop = if needs_hop { self.next_remote_hop(index, now_ms) } else { None };
        let next_is_own = needs_hop && packet.next.is_some() && hop.is_none();
        let next = hop.map_or(packet.next, |hop| Some(hop.address));
        let facts = Facts { socket, follows_syn, next, next_is_own };
        match decide(&packet.inner.kind, packet.lookup.is_some(), &facts) {
            Decision::Accept(reason) => {
                self.remember(packet, reason, now_ms);
                self.counters.accept(reason, packet.next_hop > 0);
                if packet.next_hop > 0 && matches!(reason, Accept::Socket | Accept::Cookie) {
                    self.second_hop_senders.push(packet.sender.ip());
                }
                self.accept(packet, index)
            }
            Decision::Forward(_) => hop.map_or(Outcome::Nothing, |hop| self.forward(packet, index, hop)),
            Decision::Reject(reason) => {
                self.counters.reject(reason);
                Outcome::Nothing
            }
        }
    }

    fn accept(&mut self, packet: &Packet, index: usize) -> Outcome {
        if packet.inner.needs_identification {
            let message = self.buffers.message_with_headroom_mut(index);
            let inner = message.get_mut(HEADROOM + packet.header..);
            identification::write(inner.expect("invariant: the packet was parsed from this message"));
        }
        Outcome::Accept(packet.header..packet.header + packet.inner.len, packet.inner.destination)
    }

    fn remember(&mut self, packet: &Packet, reason: Accept, now_ms: u64) {
        let Kind::Tcp(flow, segment) = packet.inner.kind else { return };
        if segment.flags.closes() {
            self.cache.remove(&flow);
        } else if reason == Accept::Socket && !matches!(packet.lookup, Some(Lookup::Cached)) {
            self.cache.insert(flow, packet.next_hop, now_ms);
        }
    }

    /// The first remaining hop that is not this host. A director that does two look-ups may list a host
    /// twice, and the host after the repetition may know the connection.
    fn next_remote_hop(&mut self, index: usize, now_ms: u64) -> Option<Hop> {
        let gue = Gue::parse(self.buffers.message(index)).ok()?;
        for index in gue.next_hop..=u8::MAX {
            let address = gue.hops.address(usize::from(index))?;
            // Only backends are looked up: a packet cannot make this host resolve other addresses.
            let allowed = self.shared.config.backends.iter().any(|prefix| prefix.contains(address));
            let reach = match allowed.then(|| self.routes.to(address, now_ms)) {
                Some(Some(Route::Local)) => continue,
                Some(Some(Route::Source(source))) => Reach::From(source),
                Some(None) => Reach::NoRoute,
                None => Reach::NotAllowed,
            };
            return Some(Hop { index, address, reach });
        }
        None
    }

    fn forward(&mut self, packet: &Packet, index: usize, hop: Hop) -> Outcome {
        let source = match hop.reach {
            Reach::From(source) => source,
            Reach::NoRoute => {
                self.counters.send_failed(1);
                return Outcome::Nothing;
            }
            Reach::NotAllowed => {
                self.counters.reject(Reject::NextHop);
                return Outcome::Nothing;
            }
        };
        let end = HEADROOM + packet.header + packet.inner.len;
        let Some(message) = self.buffers.message_with_headroom_mut(index).get_mut(..end) else {
            return Outcome::Nothing;
        };
        let ecn = packet.inner.traffic_class & 3;
        let header = OuterHeader {
            source,
            destination: hop.address,
            source_port: packet.sender.port(),
            ecn,
            next_hop: hop.index.saturating_add(1),
        };
        match outer::write(message, &header) {
            Some(used) => {
                self.forwarded_to.push(hop.address);
                Outcome::Forward(used, hop.address)
            }
            None => Outcome::Nothing,
        }
    }

    fn send(&self, count: usize) {
        for v4 in [true, false] {
            self.send_family(count, v4);
        }
    }

    fn send_family(&self, count: usize, v4: bool) {
        let outcomes = || self.outcomes[..count].iter().enumerate();
        let kept = outcomes().filter_map(|(index, plan)| match plan {
            Outcome::Accept(range, to) if to.is_ipv4() == v4 => {
                Some((self.buffers.message(index).get(range.clone())?, SocketAddr::new(*to, 0)))
            }
            _ => None,
        });
        self.send_all(&self.local, v4, kept);
        let forwarded = outcomes().filter_map(|(index, plan)| match plan {
            Outcome::Forward(used, to) if to.is_ipv4() == v4 => {
                let message = self.buffers.message_with_headroom(index);
                Some((message.get(HEADROOM - used..)?, SocketAddr::new(*to, 0)))
            }
            _ => None,
        });
        self.send_all(&self.out, v4, forwarded);
    }

    fn send_all<'b>(&self, raw: &Raw, v4: bool, outgoing: impl Iterator<Item = (&'b [u8], SocketAddr)>) {
        let socket = if v4 { Some(&raw.v4) } else { raw.v6.as_ref() };
        match socket {
            Some(socket) => datagram::send(socket.as_fd(), outgoing, |_| self.counters.send_failed(1)),
            None => self.counters.send_failed(outgoing.count()),
        }
    }
}

impl Packet {
    /// The packet with the congestion mark of its outer header.
    fn with_congestion(mut self, outer: u8, message: &mut [u8]) -> Result<Self, Reject> {
        let before = self.inner.traffic_class;
        let after = ecn::decapsulated(outer, before).ok_or(Reject::Congestion)?;
        if after != before {
            let packet = message.get_mut(HEADROOM + self.header..);
            ecn::write(packet.expect("invariant: the packet was parsed from this message"), after);
            self.inner.traffic_class = after;
        }
        Ok(self)
    }

    /// Finishes the transport checksum if the packet's sender left it to hardware. A director on the same
    /// host sends such packets as it received them, and the raw sockets here do not finish checksums. Returns
    /// whether it did.
    fn finish_checksum(&self, message: &mut [u8]) -> bool {
        let start = HEADROOM + self.header;
        let packet = message
            .get_mut(start..start + self.inner.len)
            .expect("invariant: the packet was parsed from this message");
        let found = unfinished::find(packet);
        found.inspect(|partial| unfinished::finish(packet, *partial)).is_some()
    }
}

/// Sender and interface of a datagram.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    sender: SocketAddr,
    /// Whether it arrived on the loopback interface.
    from_loopback: bool,
}

/// Parses a datagram and checks everything but its flow.
fn read(
    config: &RedirectConfig,
    own: &HostAddresses,
    datagram: &[u8],
    from: Arrival,
) -> Result<Packet, Reject> {
    let sender = from.sender;
    if from.from_loopback && !own.contains(sender.ip()) {
        return Err(Reject::Loopback);
    }
    let sent_by = |list: &[common::bind::Prefix]| list.iter().any(|prefix| prefix.contains(sender.ip()));
    let (director, backend) = (sent_by(&config.directors), sent_by(&config.backends));
    if !director && !backend {
        return Err(Reject::Source);
    }
    let gue = Gue::parse(datagram)?;
    if gue.hops.len() > usize::from(config.max_hops) {
        return Err(Reject::HopCount);
    }
    // Directors send packets with `next_hop` 0, redirectors forward packets with a later `next_hop`; neither
    // may send the other kind.
    if !(if gue.next_hop == 0 { director } else { backend }) {
        return Err(Reject::Source);
    }
    let inner = Inner::parse(gue.inner_protocol, gue.inner)?;
    if !config.vips.iter().any(|prefix| prefix.contains(inner.destination)) {
        return Err(Reject::Destination);
    }
    let forbidden = ForbiddenSources { own, vips: &config.vips };
    if inner.remote_addresses().any(|address| forbidden.contains(address)) {
        return Err(Reject::InnerSource);
    }
    if matches!(inner.kind, Kind::Udp(flow) if config.listens_at(flow.local)) {
        return Err(Reject::Tunnel);
    }
    let header = datagram.len() - gue.inner.len();
    let (next_hop, next) = (gue.next_hop, gue.hops.address(usize::from(gue.next_hop)));
    Ok(Packet { header, inner, next_hop, next, sender, lookup: None })
}

impl From<InnerError> for Reject {
    fn from(unfit: InnerError) -> Self {
        match unfit {
            InnerError::Truncated => Self::Truncated,
            InnerError::HeaderChecksum => Self::HeaderChecksum,
            InnerError::Options => Self::Options,
        }
    }
}

impl From<GueError> for Reject {
    fn from(error: GueError) -> Self {
        match error {
            GueError::Truncated => Self::Truncated,
            GueError::Version => Self::Version,
            GueError::Control => Self::Control,
            GueError::Flags => Self::Flags,
            GueError::InnerProtocol => Self::Protocol,
            GueError::HeaderLength => Self::Length,
            GueError::PrivateType => Self::PrivateType,
            GueError::NextHop => Self::NextHop,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::redirect::inner::tests::{seal, syn};
    use crate::redirect::outer::{self, HEADROOM, OuterHeader};
    use common::bind::Prefix;

    fn config() -> RedirectConfig {
        let text = "{version: 1, max_hops: 3, directors: [10.0.0.1], backends: [10.0.1.0/24, 10.0.0.1], vips: [203.0.113.10]}";
        RedirectConfig::parse("test", text).unwrap()
    }

    fn sender(text: &str) -> Arrival {
        Arrival { sender: SocketAddr::new(text.parse().unwrap(), 0x8123), from_loopback: false }
    }

    /// This host's addresses.
    fn own() -> HostAddresses {
        let local = ["10.0.1.9", "10.0.0.9", "2001:db8::9"].map(|text| Prefix::host(text.parse().unwrap()));
        local.into_iter().collect()
    }

    fn read(config: &RedirectConfig, datagram: &[u8], from: Arrival) -> Result<Packet, Reject> {
        super::read(config, &own(), datagram, from)
    }

    /// Hand-written GUE with the given hops, then an IPv4 SYN to `vip`.
    pub(crate) fn datagram(next_hop: u8, hops: &[[u8; 4]], vip: [u8; 4]) -> Vec<u8> {
        let count = u8::try_from(hops.len()).unwrap();
        let mut octets = vec![count + 1, 4, 0, 0, 0, 0, next_hop, count];
        octets.extend(hops.iter().flatten());
        octets.extend(syn([198, 51, 100, 7], vip));
        octets
    }

    pub(crate) const VIP: [u8; 4] = [203, 0, 113, 10];
    pub(crate) const A: [u8; 4] = [10, 0, 1, 1];

    #[test]
    fn each_sender_may_send_its_kind_of_packet_only() {
        let strict = RedirectConfig { backends: config().backends[..1].to_vec(), ..config() };
        let fresh = datagram(0, &[A], VIP);
        let forwarded = datagram(1, &[A], VIP);
        for (config, datagram, from, allowed) in [
            (&strict, &fresh, "10.0.0.1", true),
            (&strict, &fresh, "10.0.1.7", false),
            (&strict, &forwarded, "10.0.0.1", false),
            (&strict, &forwarded, "10.0.1.7", true),
            (&strict, &fresh, "192.0.2.1", false),
            (&config(), &forwarded, "10.0.0.1", true),
        ] {
            let result = read(config, datagram, sender(from));
            assert_eq!(result.is_ok(), allowed, "{from}");
            assert!(allowed || matches!(result, Err(Reject::Source)));
        }
    }

    /// Abuse: hops A, B, A, B, … up to the limit of GUE, from an unknown sender and from a director.
    #[test]
    fn a_long_list_of_hops_is_rejected_from_every_sender() {
        let long = datagram(0, &[A; 30], VIP);
        assert_eq!(read(&config(), &long, sender("192.0.2.1")).unwrap_err(), Reject::Source);
        assert_eq!(read(&config(), &long, sender("10.0.0.1")).unwrap_err(), Reject::HopCount);
    }

    #[test]
    fn each_rejection_has_its_reason() {
        let good = datagram(0, &[A], VIP);
        assert!(read(&config(), &good, sender("10.0.0.1")).is_ok());
        for (offset, octet, expected) in [
            (0, 0x42, Reject::Version),
            (0, 0x22, Reject::Control),
            (0, 0x03, Reject::Length),
            (1, 17, Reject::Protocol),
            (1, 41, Reject::Truncated),
            (2, 0x80, Reject::Flags),
            (5, 2, Reject::PrivateType),
            (6, 2, Reject::NextHop),
            (7, 4, Reject::Length),
            (12 + 16, 204, Reject::HeaderChecksum),
            (12 + 3, 41, Reject::Truncated),
        ] {
            let mut bad = good.clone();
            bad[offset] = octet;
            assert_eq!(read(&config(), &bad, sender("10.0.0.1")).unwrap_err(), expected, "octet {offset}");
        }
        for len in 0..good.len() {
            assert_eq!(read(&config(), &good[..len], sender("10.0.0.1")).unwrap_err(), Reject::Truncated);
        }
    }

    fn with(edit: impl FnOnce(&mut [u8])) -> Vec<u8> {
        let mut octets = datagram(0, &[A], VIP);
        edit(&mut octets[12..]);
        seal(&mut octets[12..]);
        octets
    }

    fn from_director(datagram: &[u8]) -> Result<Packet, Reject> {
        read(&config(), datagram, sender("10.0.0.1"))
    }

    #[test]
    fn each_rejection_of_the_inner_packet_has_its_reason() {
        let refused = |datagram: &[u8]| from_director(datagram).unwrap_err();
        assert_eq!(refused(&with(|ip| ip[16] = 204)), Reject::Destination);
        for source in [
            [0, 0, 0, 0],
            [0, 1, 2, 3],
            [127, 0, 0, 1],
            [224, 0, 0, 1],
            [240, 0, 0, 1],
            [255; 4],
            VIP,
            [10, 0, 1, 9],
            [10, 0, 0, 9],
        ] {
            let forged = with(|ip| ip[12..16].copy_from_slice(&source));
            assert_eq!(refused(&forged), Reject::InnerSource, "{source:?}");
        }
        for source in [[10, 0, 1, 8], [169, 254, 0, 1], [192, 168, 0, 1], [203, 0, 113, 11]] {
            assert!(from_director(&with(|ip| ip[12..16].copy_from_slice(&source))).is_ok(), "{source:?}");
        }
        // IP_HDRINCL would write a right checksum over it.
        let mut wrong = with(|_| ());
        wrong[12 + 10] ^= 1;
        assert_eq!(refused(&wrong), Reject::HeaderChecksum);
        let options = |options: [u8; 4]| {
            let mut octets = datagram(0, &[A], VIP);
            octets.splice(32..32, options);
            (octets[12], octets[12 + 3]) = (0x46, octets[12 + 3] + 4);
            seal(&mut octets[12..]);
            octets
        };
        assert!(from_director(&options([7, 4, 5, 0])).is_ok());
        assert_eq!(refused(&options([7, 1, 0, 0])), Reject::Options);
    }

    /// UDP to the tunnel's port, and packets on `lo` that this host did not send.
    #[test]
    fn gue_in_gue_is_rejected() {
        let to_port = |port: u16| {
            with(|ip| {
                ip[9] = 17;
                ip[22..24].copy_from_slice(&port.to_be_bytes());
            })
        };
        assert_eq!(from_director(&to_port(19_523)).unwrap_err(), Reject::Tunnel);
        assert!(from_director(&to_port(19_522)).is_ok());
        let elsewhere = RedirectConfig { listen: "10.0.1.9:19523".parse().unwrap(), ..config() };
        assert!(read(&elsewhere, &to_port(19_523), sender("10.0.0.1")).is_ok());
        let fresh = datagram(0, &[A], VIP);
        let text = "{version: 1, directors: [10.0.0.0/24], backends: [10.0.1.0/24], vips: [203.0.113.10]}";
        let config = RedirectConfig::parse("test", text).unwrap();
        let from_loopback =
            |from| read(&config, &fresh, Arrival { from_loopback: true, ..sender(from) }).map(drop);
        assert_eq!(from_loopback("10.0.0.9"), Ok(()), "the director of this host");
        assert_eq!(from_loopback("10.0.0.1"), Err(Reject::Loopback), "another director");
        assert_eq!(
            from_loopback("10.0.1.9"),
            Err(Reject::Source),
            "an address of this host that is no director's"
        );
        assert_eq!(from_loopback("198.51.100.7"), Err(Reject::Loopback));
        assert!(read(&config, &fresh, sender("10.0.0.1")).is_ok());
    }

    /// For every choice of hops, a packet is forwarded at most `hop_count` times: `next_hop` grows each time,
    /// and after the last hop there is no next one.
    #[test]
    fn two_redirectors_that_name_each_other_end_soon() {
        let mut octets = datagram(0, &[A, [10, 0, 1, 2], A], VIP);
        let mut forwarded = 0;
        loop {
            let packet = read(&config(), &octets, sender("10.0.0.1")).unwrap();
            let Some(next) = packet.next else { break };
            let mut message = vec![0; HEADROOM];
            message.extend(&octets);
            let next_hop = packet.next_hop + 1;
            let header = OuterHeader { source: next, destination: next, source_port: 1, ecn: 0, next_hop };
            outer::write(&mut message, &header).unwrap();
            octets = message.split_off(HEADROOM);
            forwarded += 1;
            assert!(forwarded <= 3);
        }
        assert_eq!(forwarded, 3);
    }
}
