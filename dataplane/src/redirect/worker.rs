//! One thread: receives a batch, decides each packet, hands the batch on. No allocation, lock or clock per packet;
//! one clock reading, one question to the kernel and at most four sends per batch.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use super::clients::{NoClients, Own};
use super::config::{RedirectConfig, Udp};
use super::counters::Counters;
use super::decide::{Decision, Facts, Keep, Known, Refuse, asks, decide};
use super::ecn;
use super::envelope::{Envelope, HEADROOM, outer};
use super::identification;
use super::inner::{Flow, Inner, Kind, Unfit};
use super::routes::{Route, Routes};
use super::run::Shared;
use super::sockets::{Memory, SocketTable};
use crate::host::sys::datagram::{self, BATCH, Buffers};
use crate::wire::gue::{Gue, GueError};
use crate::wire::unfinished;

/// The longest datagram that UDP can carry.
const LONGEST: usize = 65_535;

/// Everything one thread needs; nothing but counters and the memory of SYNs is shared.
#[derive(Debug)]
pub(super) struct Worker {
    shared: Arc<Shared>,
    counters: Arc<Counters>,
    memory: Memory,
    sockets: SocketTable,
    /// The flows of this batch that the kernel is asked about.
    questions: Vec<Flow>,
    /// Of this batch: who passed on what is kept, and to whom the rest is passed on. Counted under one lock.
    arrived: Vec<IpAddr>,
    passed_on: Vec<IpAddr>,
    routes: Routes,
    buffers: Buffers,
    local: Raw,
    out: Raw,
    plans: [Plan; BATCH],
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

/// What becomes of one datagram of a batch.
#[derive(Clone, Debug)]
enum Plan {
    Nothing,
    /// Read, and waiting for a decision.
    Packet(Packet),
    /// These octets of the message go to this VIP.
    Keep(Range<usize>, IpAddr),
    /// The message with these many octets of its headroom goes to this hop.
    Forward(usize, IpAddr),
}

/// A datagram that may be here.
#[derive(Clone, Debug)]
struct Packet {
    /// Octets of the GUE header.
    header: usize,
    inner: Inner,
    next_hop: u8,
    next: Option<IpAddr>,
    sender: SocketAddr,
    /// The place of this packet's question among those of the batch.
    asked: Option<Answer>,
}

/// A hop that a packet may be passed on to.
#[derive(Clone, Copy, Debug)]
struct Hop {
    /// Its position among the hops.
    at: u8,
    address: IpAddr,
    way: Way,
}

#[derive(Clone, Copy, Debug)]
enum Way {
    /// From this address of this host.
    From(IpAddr),
    /// The kernel has no route.
    Unknown,
    /// The hop is not one of `backends`.
    Forbidden,
}

#[derive(Clone, Copy, Debug)]
enum Answer {
    Remembered,
    Question(usize),
}

impl Worker {
    pub(super) fn new(shared: Arc<Shared>, counters: Arc<Counters>) -> io::Result<Self> {
        let local = Raw::on_loopback(shared.config.mark)?;
        Ok(Self {
            shared,
            counters,
            memory: Memory::default(),
            sockets: SocketTable::open()?,
            questions: Vec::with_capacity(BATCH),
            arrived: Vec::with_capacity(BATCH),
            passed_on: Vec::with_capacity(BATCH),
            routes: Routes::default(),
            buffers: Buffers::new(HEADROOM, LONGEST),
            local,
            out: Raw::open()?,
            plans: std::array::from_fn(|_| Plan::Nothing),
        })
    }

    /// One batch. An error of the receiving socket is returned; all others are counted.
    pub(super) fn round(&mut self, server: &OwnedFd) -> io::Result<()> {
        let count = match self.buffers.receive(server.as_fd()) {
            Ok(count) => count,
            // The timeout, or a signal: the caller looks whether it should stop.
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
            self.keep_all(count);
        }
        self.send(count);
        Ok(())
    }

    fn read(&mut self, count: usize) {
        let own = self.shared.own.load();
        for index in 0..count {
            let from = Arrival { sender: self.buffers.sender(index), looped: self.buffers.looped(index) };
            let read = read(&self.shared.config, &own, self.buffers.message(index), from);
            let outside = self.buffers.traffic_class(index);
            let marked = read.and_then(|packet| {
                packet.congested_by(outside, self.buffers.message_with_headroom_mut(index))
            });
            self.plans[index] = match marked {
                Ok(packet) => {
                    let finished = packet.finish_checksum(self.buffers.message_with_headroom_mut(index));
                    self.counters.finish_checksum(finished);
                    Plan::Packet(packet)
                }
                Err(reason) => {
                    self.counters.refuse(reason);
                    Plan::Nothing
                }
            };
        }
    }

    /// The control of every experiment: a redirector that only takes the packet out of its envelope.
    fn keep_all(&mut self, count: usize) {
        for index in 0..count {
            let Plan::Packet(packet) = &self.plans[index] else { continue };
            let packet = packet.clone();
            self.counters.keep(Keep::Off, packet.next_hop > 0);
            self.plans[index] = self.keep(&packet, index);
        }
    }

    fn decide(&mut self, count: usize, now_ms: u64) {
        let known = self.ask(count, now_ms);
        for index in 0..count {
            let Plan::Packet(packet) = &self.plans[index] else { continue };
            let known = match packet.asked {
                Some(Answer::Question(place)) => known[place],
                Some(Answer::Remembered) => Known::Yes,
                None => Known::No,
            };
            let packet = packet.clone();
            self.plans[index] = self.carry_out(&packet, index, known, now_ms);
        }
        self.counters.second_hops(&self.arrived, &self.passed_on, now_ms);
        self.arrived.clear();
        self.passed_on.clear();
    }

    /// Finds out what the kernel knows about the flows of a batch.
    fn ask(&mut self, count: usize, now_ms: u64) -> [Known; BATCH] {
        let mut known = [Known::No; BATCH];
        self.questions.clear();
        for plan in &mut self.plans[..count] {
            let Plan::Packet(packet) = plan else { continue };
            let Some(flow) = asks(&packet.inner.kind, self.shared.config.udp == Udp::Socket) else {
                if let Kind::Tcp(flow, segment) = packet.inner.kind {
                    self.memory.forget(&flow);
                    self.shared.syns.remember(&flow, segment.sequence, now_ms);
                }
                continue;
            };
            if self.memory.knows(&flow, packet.next_hop, now_ms) {
                packet.asked = Some(Answer::Remembered);
                continue;
            }
            packet.asked = Some(Answer::Question(self.questions.len()));
            self.questions.push(flow);
        }
        let asked = self.questions.len();
        if asked > 0 {
            let unanswered = self.sockets.ask(&self.questions, &mut known[..asked]).unwrap_or(asked);
            self.counters.lookups(asked, unanswered);
        }
        known
    }

    fn carry_out(&mut self, packet: &Packet, index: usize, known: Known, now_ms: u64) -> Plan {
        let follows_syn = match packet.inner.kind {
            Kind::Tcp(flow, segment) if known == Known::No => self.shared.syns.fits(&flow, segment, now_ms),
            _ => false,
        };
        let wanted = packet.asked.is_some() && known == Known::No && !follows_syn;
        let hop = if wanted { self.next_elsewhere(index, now_ms) } else { None };
        let next_is_own = wanted && packet.next.is_some() && hop.is_none();
        let facts =
            Facts { known, follows_syn, next: hop.map_or(packet.next, |hop| Some(hop.address)), next_is_own };
        match decide(&packet.inner.kind, packet.asked.is_some(), &facts) {
            Decision::Keep(reason) => {
                self.remember(packet, reason, now_ms);
                self.counters.keep(reason, packet.next_hop > 0);
                if packet.next_hop > 0 && matches!(reason, Keep::Socket | Keep::Cookie) {
                    self.arrived.push(packet.sender.ip());
                }
                self.keep(packet, index)
            }
            Decision::Forward(_) => hop.map_or(Plan::Nothing, |hop| self.forward(packet, index, hop)),
            Decision::Refuse(reason) => {
                self.counters.refuse(reason);
                Plan::Nothing
            }
        }
    }

    fn keep(&mut self, packet: &Packet, index: usize) -> Plan {
        if packet.inner.unidentified {
            let message = self.buffers.message_with_headroom_mut(index);
            identification::write(message.get_mut(HEADROOM + packet.header..).unwrap_or_default());
        }
        Plan::Keep(packet.header..packet.header + packet.inner.len, packet.inner.destination)
    }

    fn remember(&mut self, packet: &Packet, reason: Keep, now_ms: u64) {
        let Kind::Tcp(flow, segment) = packet.inner.kind else { return };
        if segment.closes() {
            self.memory.forget(&flow);
        } else if reason == Keep::Socket && !matches!(packet.asked, Some(Answer::Remembered)) {
            self.memory.learn(flow, packet.next_hop, now_ms);
        }
    }

    /// The first of the hops left that is not this host. A director that looks up twice may list a host twice, and
    /// the host behind the repetition may know the connection.
    fn next_elsewhere(&mut self, index: usize, now_ms: u64) -> Option<Hop> {
        let gue = Gue::parse(self.buffers.message(index)).ok()?;
        for at in gue.next_hop..=u8::MAX {
            let address = gue.hops.address(usize::from(at))?;
            // Asked only about backends: nobody makes this host look for the way to others.
            let allowed = self.shared.config.backends.iter().any(|prefix| prefix.contains(address));
            let way = match allowed.then(|| self.routes.to(address, now_ms)) {
                Some(Some(Route::Own)) => continue,
                Some(Some(Route::From(source))) => Way::From(source),
                Some(None) => Way::Unknown,
                None => Way::Forbidden,
            };
            return Some(Hop { at, address, way });
        }
        None
    }

    fn forward(&mut self, packet: &Packet, index: usize, hop: Hop) -> Plan {
        let Hop { at, address: next, way } = hop;
        let source = match way {
            Way::From(source) => source,
            Way::Unknown => {
                self.counters.send_failed(1);
                return Plan::Nothing;
            }
            Way::Forbidden => {
                self.counters.refuse(Refuse::NextHop);
                return Plan::Nothing;
            }
        };
        let end = HEADROOM + packet.header + packet.inner.len;
        let Some(message) = self.buffers.message_with_headroom_mut(index).get_mut(..end) else {
            return Plan::Nothing;
        };
        let ecn = packet.inner.traffic_class & 3;
        let envelope = Envelope {
            source,
            to: next,
            source_port: packet.sender.port(),
            ecn,
            next_hop: at.saturating_add(1),
        };
        match outer(message, &envelope) {
            Some(used) => {
                self.passed_on.push(next);
                Plan::Forward(used, next)
            }
            None => Plan::Nothing,
        }
    }

    fn send(&self, count: usize) {
        for v4 in [true, false] {
            self.send_family(count, v4);
        }
    }

    fn send_family(&self, count: usize, v4: bool) {
        let plans = || self.plans[..count].iter().enumerate();
        let kept = plans().filter_map(|(index, plan)| match plan {
            Plan::Keep(range, to) if to.is_ipv4() == v4 => {
                Some((self.buffers.message(index).get(range.clone())?, SocketAddr::new(*to, 0)))
            }
            _ => None,
        });
        self.send_all(&self.local, v4, kept);
        let forwarded = plans().filter_map(|(index, plan)| match plan {
            Plan::Forward(used, to) if to.is_ipv4() == v4 => {
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
    /// The packet with the congestion that its envelope tells of.
    fn congested_by(mut self, outside: u8, message: &mut [u8]) -> Result<Self, Refuse> {
        let inside = self.inner.traffic_class;
        let now = ecn::unwrapped(outside, inside).ok_or(Refuse::Congestion)?;
        if now != inside {
            let packet = message.get_mut(HEADROOM + self.header..);
            ecn::write(packet.unwrap_or_default(), now);
            self.inner.traffic_class = now;
        }
        Ok(self)
    }

    /// Finishes the transport checksum if the packet's sender left it to hardware. A director on the same host hands
    /// over such packets as they came. The sockets that send them on finish nothing. Returns whether it did.
    fn finish_checksum(&self, message: &mut [u8]) -> bool {
        let start = HEADROOM + self.header;
        let packet = message.get_mut(start..start + self.inner.len).unwrap_or_default();
        let found = unfinished::find(packet);
        found.inspect(|partial| unfinished::finish(packet, *partial)).is_some()
    }
}

/// Where a datagram came from.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    sender: SocketAddr,
    /// By the loopback interface.
    looped: bool,
}

/// Everything that a packet must be before anything is done with it.
fn read(config: &RedirectConfig, own: &Own, datagram: &[u8], from: Arrival) -> Result<Packet, Refuse> {
    let sender = from.sender;
    if from.looped && !own.contains(sender.ip()) {
        return Err(Refuse::Loopback);
    }
    let sent_by = |list: &[common::bind::Prefix]| list.iter().any(|prefix| prefix.contains(sender.ip()));
    let (director, backend) = (sent_by(&config.directors), sent_by(&config.backends));
    if !director && !backend {
        return Err(Refuse::Source);
    }
    let gue = Gue::parse(datagram)?;
    if gue.hops.len() > usize::from(config.max_hops) {
        return Err(Refuse::HopCount);
    }
    // Directors send fresh packets, redirectors pass packets on, and neither does the other's work.
    if !(if gue.next_hop == 0 { director } else { backend }) {
        return Err(Refuse::Source);
    }
    let inner = Inner::parse(gue.inner_protocol, gue.inner)?;
    if !config.vips.iter().any(|prefix| prefix.contains(inner.destination)) {
        return Err(Refuse::Destination);
    }
    let no_clients = NoClients { own, vips: &config.vips };
    if inner.others().any(|address| no_clients.contains(address)) {
        return Err(Refuse::InnerSource);
    }
    if matches!(inner.kind, Kind::Udp(flow) if config.listens_at(flow.local)) {
        return Err(Refuse::Tunnel);
    }
    let header = datagram.len() - gue.inner.len();
    let (next_hop, next) = (gue.next_hop, gue.hops.address(usize::from(gue.next_hop)));
    Ok(Packet { header, inner, next_hop, next, sender, asked: None })
}

impl From<Unfit> for Refuse {
    fn from(unfit: Unfit) -> Self {
        match unfit {
            Unfit::Truncated => Self::Truncated,
            Unfit::HeaderChecksum => Self::HeaderChecksum,
            Unfit::Options => Self::Options,
        }
    }
}

impl From<GueError> for Refuse {
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
    use crate::redirect::envelope::{Envelope, HEADROOM, outer};
    use crate::redirect::inner::tests::{seal, syn};
    use common::bind::Prefix;

    fn config() -> RedirectConfig {
        let text = "{version: 1, max_hops: 3, directors: [10.0.0.1], backends: [10.0.1.0/24, 10.0.0.1], vips: [203.0.113.10]}";
        RedirectConfig::parse("test", text).unwrap()
    }

    fn sender(text: &str) -> Arrival {
        Arrival { sender: SocketAddr::new(text.parse().unwrap(), 0x8123), looped: false }
    }

    /// This host's addresses.
    fn own() -> Own {
        let local = ["10.0.1.9", "10.0.0.9", "2001:db8::9"].map(|text| Prefix::host(text.parse().unwrap()));
        local.into_iter().collect()
    }

    fn read(config: &RedirectConfig, datagram: &[u8], from: Arrival) -> Result<Packet, Refuse> {
        super::read(config, &own(), datagram, from)
    }

    /// GUE by hand: hops as given, then an IPv4 SYN to `vip`.
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
    fn who_may_send_what() {
        let strict = RedirectConfig { backends: config().backends[..1].to_vec(), ..config() };
        let fresh = datagram(0, &[A], VIP);
        let passed_on = datagram(1, &[A], VIP);
        for (config, datagram, from, allowed) in [
            (&strict, &fresh, "10.0.0.1", true),
            (&strict, &fresh, "10.0.1.7", false),
            (&strict, &passed_on, "10.0.0.1", false),
            (&strict, &passed_on, "10.0.1.7", true),
            (&strict, &fresh, "192.0.2.1", false),
            (&config(), &passed_on, "10.0.0.1", true),
        ] {
            let result = read(config, datagram, sender(from));
            assert_eq!(result.is_ok(), allowed, "{from}");
            assert!(allowed || matches!(result, Err(Refuse::Source)));
        }
    }

    /// Abuse: hops A, B, A, B, … as many as fit, from a stranger and from a director.
    #[test]
    fn a_long_list_is_refused_whoever_sends_it() {
        let long = datagram(0, &[A; 30], VIP);
        assert_eq!(read(&config(), &long, sender("192.0.2.1")).unwrap_err(), Refuse::Source);
        assert_eq!(read(&config(), &long, sender("10.0.0.1")).unwrap_err(), Refuse::HopCount);
    }

    #[test]
    fn each_refusal_has_its_reason() {
        let good = datagram(0, &[A], VIP);
        assert!(read(&config(), &good, sender("10.0.0.1")).is_ok());
        for (offset, octet, expected) in [
            (0, 0x42, Refuse::Version),
            (0, 0x22, Refuse::Control),
            (0, 0x03, Refuse::Length),
            (1, 17, Refuse::Protocol),
            (1, 41, Refuse::Truncated),
            (2, 0x80, Refuse::Flags),
            (5, 2, Refuse::PrivateType),
            (6, 2, Refuse::NextHop),
            (7, 4, Refuse::Length),
            (12 + 16, 204, Refuse::HeaderChecksum),
            (12 + 3, 41, Refuse::Truncated),
        ] {
            let mut bad = good.clone();
            bad[offset] = octet;
            assert_eq!(read(&config(), &bad, sender("10.0.0.1")).unwrap_err(), expected, "octet {offset}");
        }
        for len in 0..good.len() {
            assert_eq!(read(&config(), &good[..len], sender("10.0.0.1")).unwrap_err(), Refuse::Truncated);
        }
    }

    fn with(edit: impl FnOnce(&mut [u8])) -> Vec<u8> {
        let mut octets = datagram(0, &[A], VIP);
        edit(&mut octets[12..]);
        seal(&mut octets[12..]);
        octets
    }

    fn from_director(datagram: &[u8]) -> Result<Packet, Refuse> {
        read(&config(), datagram, sender("10.0.0.1"))
    }

    #[test]
    fn each_refusal_of_the_packet_inside_has_its_reason() {
        let refused = |datagram: &[u8]| from_director(datagram).unwrap_err();
        assert_eq!(refused(&with(|ip| ip[16] = 204)), Refuse::Destination);
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
            assert_eq!(refused(&forged), Refuse::InnerSource, "{source:?}");
        }
        for source in [[10, 0, 1, 8], [169, 254, 0, 1], [192, 168, 0, 1], [203, 0, 113, 11]] {
            assert!(from_director(&with(|ip| ip[12..16].copy_from_slice(&source))).is_ok(), "{source:?}");
        }
        // IP_HDRINCL would write a right checksum over it.
        let mut wrong = with(|_| ());
        wrong[12 + 10] ^= 1;
        assert_eq!(refused(&wrong), Refuse::HeaderChecksum);
        let options = |options: [u8; 4]| {
            let mut octets = datagram(0, &[A], VIP);
            octets.splice(32..32, options);
            (octets[12], octets[12 + 3]) = (0x46, octets[12 + 3] + 4);
            seal(&mut octets[12..]);
            octets
        };
        assert!(from_director(&options([7, 4, 5, 0])).is_ok());
        assert_eq!(refused(&options([7, 1, 0, 0])), Refuse::Options);
    }

    /// UDP to the port of the tunnel, and everything that comes by `lo` from elsewhere.
    #[test]
    fn gue_in_gue_is_refused() {
        let to_port = |port: u16| {
            with(|ip| {
                ip[9] = 17;
                ip[22..24].copy_from_slice(&port.to_be_bytes());
            })
        };
        assert_eq!(from_director(&to_port(19_523)).unwrap_err(), Refuse::Tunnel);
        assert!(from_director(&to_port(19_522)).is_ok());
        let elsewhere = RedirectConfig { listen: "10.0.1.9:19523".parse().unwrap(), ..config() };
        assert!(read(&elsewhere, &to_port(19_523), sender("10.0.0.1")).is_ok());
        let fresh = datagram(0, &[A], VIP);
        let text = "{version: 1, directors: [10.0.0.0/24], backends: [10.0.1.0/24], vips: [203.0.113.10]}";
        let config = RedirectConfig::parse("test", text).unwrap();
        let looped = |from| read(&config, &fresh, Arrival { looped: true, ..sender(from) }).map(drop);
        assert_eq!(looped("10.0.0.9"), Ok(()), "the director of this host");
        assert_eq!(looped("10.0.0.1"), Err(Refuse::Loopback), "another director");
        assert_eq!(looped("10.0.1.9"), Err(Refuse::Source), "an address of this host that is no director's");
        assert_eq!(looped("198.51.100.7"), Err(Refuse::Loopback));
        assert!(read(&config, &fresh, sender("10.0.0.1")).is_ok());
    }

    /// However the hops are chosen, a packet is passed on at most `hop_count` times: `next_hop` grows each time, and
    /// a list that is used up has no next hop.
    #[test]
    fn two_redirectors_that_name_each_other_end_soon() {
        let mut octets = datagram(0, &[A, [10, 0, 1, 2], A], VIP);
        let mut passed_on = 0;
        loop {
            let packet = read(&config(), &octets, sender("10.0.0.1")).unwrap();
            let Some(next) = packet.next else { break };
            let mut message = vec![0; HEADROOM];
            message.extend(&octets);
            let next_hop = packet.next_hop + 1;
            let envelope = Envelope { source: next, to: next, source_port: 1, ecn: 0, next_hop };
            outer(&mut message, &envelope).unwrap();
            octets = message.split_off(HEADROOM);
            passed_on += 1;
            assert!(passed_on <= 3);
        }
        assert_eq!(passed_on, 3);
    }
}
