//! Looks up flows in the kernel's socket tables: does this host have a socket for a flow? Each flow is one
//! exact query (sock_diag(7), no dump); the queries of a batch are one system call; positive results are
//! cached briefly.
//!
//! The kernel's exact search returns a listening socket if it finds no better one. A listener has no
//! connection with the client and counts as not found. Sockets that are bound to a device other than `lo` are
//! not found; they could not receive packets delivered through `lo` either.
//!
//! ## Why the cache cannot misroute a new connection
//! The cache holds positive results only. A wrong entry can do harm only to a flow that this host had, that
//! was later opened again with the same addresses and ports on another host, and whose packets now arrive
//! here first. To open it again, the client must see the old connection end. If the client ends it, its FIN
//! or RST passes here and removes the entry, as its next SYN does. If the service aborts it, the entry lives
//! for [`LIFETIME_MS`] more, and in that time the row's owner would have to change twice. Entries are per
//! flow *and* hop index, so an entry that was made while this host was the second chance never matches
//! packets that have this host as their owner.
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;

use common::bind::Protocol;

use super::decide::SocketLookup;
use super::inner::Flow;
use crate::host::sys::datagram::{BATCH, Buffers, netlink};

/// Lifetime of a cached result.
const LIFETIME_MS: u64 = 250;
/// Number of cached flows, one per slot.
const SLOTS: usize = 1 << 15;

/// Cached positive results; the newest entry of a slot wins.
#[derive(Debug)]
pub(super) struct FlowCache {
    slots: Box<[Option<Entry>]>,
    key: RandomState,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    flow: Flow,
    hop: u8,
    until_ms: u64,
}

impl Default for FlowCache {
    fn default() -> Self {
        Self { slots: vec![None; SLOTS].into_boxed_slice(), key: RandomState::new() }
    }
}

impl FlowCache {
    pub(super) fn contains(&self, flow: &Flow, hop: u8, now_ms: u64) -> bool {
        self.slots[self.index(flow)]
            .is_some_and(|entry| entry.until_ms > now_ms && entry.hop == hop && entry.flow == *flow)
    }

    pub(super) fn insert(&mut self, flow: Flow, hop: u8, now_ms: u64) {
        let index = self.index(&flow);
        self.slots[index] = Some(Entry { flow, hop, until_ms: now_ms + LIFETIME_MS });
    }

    pub(super) fn remove(&mut self, flow: &Flow) {
        let index = self.index(flow);
        if self.slots[index].is_some_and(|entry| entry.flow == *flow) {
            self.slots[index] = None;
        }
    }

    fn index(&self, flow: &Flow) -> usize {
        #[expect(clippy::cast_possible_truncation, reason = "masked to the table's size")]
        let hash = self.key.hash_one(flow) as usize;
        hash & (SLOTS - 1)
    }
}

const NETLINK_SOCK_DIAG: i32 = 4;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
const NLMSG_ERROR: u16 = 2;
const TCP_LISTEN: u8 = 10;
const HEADER: usize = 16;
/// Length of a request: the netlink header and `struct inet_diag_req_v2`.
const REQUEST: usize = HEADER + 56;
const REQUEST_LEN: u32 = 72;
/// Room for a reply. A reply without extensions has 88 octets; an error quotes the request.
const REPLY: usize = 512;

/// A netlink socket for requests and replies.
#[derive(Debug)]
pub(super) struct SocketTable {
    netlink: File,
    requests: Vec<u8>,
    replies: Buffers,
    /// Sequence number of the next batch's first request. It never repeats soon, so a late reply matches no
    /// later request.
    next: u32,
}

impl SocketTable {
    pub(super) fn open() -> io::Result<Self> {
        Ok(Self {
            netlink: File::from(netlink(NETLINK_SOCK_DIAG)?),
            requests: Vec::with_capacity(REQUEST * BATCH),
            replies: Buffers::new(0, REPLY),
            next: 0,
        })
    }

    /// Looks up at most [`BATCH`] flows and writes the results to `results`, which has the same length.
    /// Returns the number of flows without a reply; they count as not found.
    pub(super) fn look_up(&mut self, flows: &[Flow], results: &mut [SocketLookup]) -> io::Result<usize> {
        debug_assert!(flows.len() <= BATCH);
        results.fill(SocketLookup::NotFound);
        self.requests.clear();
        let first = self.next;
        for flow in flows {
            self.requests.extend_from_slice(&request(flow, self.next));
            self.next = self.next.wrapping_add(1);
        }
        // The kernel replies while it reads the requests, so all replies are there when this call returns.
        self.netlink.write_all(&self.requests)?;
        let mut missing = flows.len();
        while missing > 0 {
            let count = match self.replies.receive_ready(self.netlink.as_fd()) {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            };
            for index in 0..count {
                if let Some((sequence, lookup)) = parse_reply(self.replies.message(index)) {
                    // A late reply to an earlier batch has an index beyond the slice.
                    if let Some(result) = results.get_mut(sequence.wrapping_sub(first) as usize) {
                        *result = lookup;
                    }
                }
            }
            missing = missing.saturating_sub(count);
        }
        Ok(missing)
    }
}

/// `nlmsghdr` and `inet_diag_req_v2` (linux/inet_diag.h), in host byte order except for ports and addresses.
fn request(flow: &Flow, sequence: u32) -> [u8; REQUEST] {
    let mut octets = [0; REQUEST];
    octets[..4].copy_from_slice(&REQUEST_LEN.to_ne_bytes());
    octets[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    octets[6..8].copy_from_slice(&NLM_F_REQUEST.to_ne_bytes());
    octets[8..12].copy_from_slice(&sequence.to_ne_bytes());
    octets[16] = if flow.local.is_ipv4() { 2 } else { 10 };
    octets[17] = flow.protocol.number();
    octets[20..24].copy_from_slice(&u32::MAX.to_ne_bytes());
    // For UDP the kernel takes source and destination as the packet has them ("for historical reasons").
    let (source, destination) = match flow.protocol {
        Protocol::Tcp => (flow.local, flow.remote),
        Protocol::Udp => (flow.remote, flow.local),
    };
    octets[24..26].copy_from_slice(&source.port().to_be_bytes());
    octets[26..28].copy_from_slice(&destination.port().to_be_bytes());
    write_address(&mut octets[28..44], source);
    write_address(&mut octets[44..60], destination);
    // Any interface (0), and no cookie.
    octets[64..72].fill(0xff);
    octets
}

fn write_address(field: &mut [u8], address: SocketAddr) {
    match address.ip() {
        IpAddr::V4(v4) => field[..4].copy_from_slice(&v4.octets()),
        IpAddr::V6(v6) => field.copy_from_slice(&v6.octets()),
    }
}

/// Parses a reply: the sequence number of its request and the result. An error is almost always "no such
/// socket".
fn parse_reply(octets: &[u8]) -> Option<(u32, SocketLookup)> {
    let header = octets.first_chunk::<HEADER>()?;
    let kind = u16::from_ne_bytes([header[4], header[5]]);
    let sequence = u32::from_ne_bytes([header[8], header[9], header[10], header[11]]);
    let known = match kind {
        SOCK_DIAG_BY_FAMILY => lookup(*octets.get(HEADER + 1)?),
        NLMSG_ERROR => SocketLookup::NotFound,
        _ => return None,
    };
    Some((sequence, known))
}

const fn lookup(number: u8) -> SocketLookup {
    if number == TCP_LISTEN { SocketLookup::NotFound } else { SocketLookup::Found }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream, UdpSocket};

    fn look_up(table: &mut SocketTable, flow: Flow) -> SocketLookup {
        let mut known = [SocketLookup::Found];
        assert_eq!(table.look_up(&[flow], &mut known).unwrap(), 0);
        known[0]
    }

    fn tcp(local: SocketAddr, remote: SocketAddr) -> Flow {
        Flow { protocol: Protocol::Tcp, local, remote }
    }

    #[test]
    fn a_connection_is_known_and_a_listener_is_not() {
        let mut table = SocketTable::open().unwrap();
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else {
                println!("SKIPPED {address}: this host lacks the family");
                continue;
            };
            let local = listener.local_addr().unwrap();
            let stranger = SocketAddr::new(local.ip(), 1);
            assert_eq!(look_up(&mut table, tcp(local, stranger)), SocketLookup::NotFound);
            let client = TcpStream::connect(local).unwrap();
            let (server, remote) = listener.accept().unwrap();
            assert_eq!(look_up(&mut table, tcp(local, remote)), SocketLookup::Found);
            // The service closes first: FIN_WAIT2, then TIME_WAIT, both known.
            drop(server);
            assert_eq!(look_up(&mut table, tcp(local, remote)), SocketLookup::Found);
            drop(client);
            assert_eq!(look_up(&mut table, tcp(local, remote)), SocketLookup::Found);
        }
    }

    /// IPv4 connections of a listener on `::` are IPv6 sockets.
    #[test]
    fn ipv4_connections_of_a_dual_stack_listener_are_known() {
        let Ok(listener) = TcpListener::bind("[::]:0") else {
            println!("SKIPPED: this host lacks IPv6");
            return;
        };
        let local: SocketAddr = ([127, 0, 0, 1], listener.local_addr().unwrap().port()).into();
        let client = TcpStream::connect(local).unwrap();
        let mut table = SocketTable::open().unwrap();
        assert_eq!(look_up(&mut table, tcp(local, client.local_addr().unwrap())), SocketLookup::Found);
    }

    #[test]
    fn datagrams_find_bound_and_connected_sockets() {
        let mut table = SocketTable::open().unwrap();
        let bound = UdpSocket::bind("127.0.0.1:0").unwrap();
        let connected = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (peer, other): (SocketAddr, SocketAddr) =
            ("127.0.0.1:9".parse().unwrap(), "127.0.0.1:10".parse().unwrap());
        connected.connect(peer).unwrap();
        let udp = |socket: &UdpSocket, remote| {
            let local = socket.local_addr().unwrap();
            Flow { protocol: Protocol::Udp, local, remote }
        };
        assert_eq!(look_up(&mut table, udp(&bound, peer)), SocketLookup::Found);
        assert_eq!(look_up(&mut table, udp(&connected, peer)), SocketLookup::Found);
        assert_eq!(look_up(&mut table, udp(&connected, other)), SocketLookup::NotFound);
    }

    #[test]
    fn a_full_batch_is_answered_in_order_and_twice() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let local = listener.local_addr().unwrap();
        let clients: Vec<TcpStream> = (0..BATCH / 2).map(|_| TcpStream::connect(local).unwrap()).collect();
        let flows: Vec<Flow> = clients
            .iter()
            .flat_map(|client| {
                [tcp(local, client.local_addr().unwrap()), tcp(local, ([127, 0, 0, 1], 1).into())]
            })
            .collect();
        let mut table = SocketTable::open().unwrap();
        for _ in 0..2 {
            let mut known = [SocketLookup::NotFound; BATCH];
            assert_eq!(table.look_up(&flows, &mut known).unwrap(), 0);
            assert!(known.chunks(2).all(|pair| pair == [SocketLookup::Found, SocketLookup::NotFound]));
        }
    }

    #[test]
    fn truncated_replies_are_ignored() {
        let mut octets = request(&tcp(([1, 2, 3, 4], 5).into(), ([6, 7, 8, 9], 10).into()), 3).to_vec();
        octets[17] = TCP_LISTEN;
        assert_eq!(parse_reply(&octets), Some((3, SocketLookup::NotFound)));
        octets[17] = 1;
        assert_eq!(parse_reply(&octets), Some((3, SocketLookup::Found)));
        for len in 0..18 {
            assert_eq!(parse_reply(&octets[..len]), None);
        }
    }

    #[test]
    fn cache_entries_end_by_time_hop_and_removal() {
        let flow = |port| tcp(([203, 0, 113, 10], 443).into(), ([198, 51, 100, 7], port).into());
        let mut cache = FlowCache::default();
        cache.insert(flow(1), 0, 1_000);
        assert!(cache.contains(&flow(1), 0, 1_249));
        assert!(!cache.contains(&flow(1), 0, 1_250));
        assert!(!cache.contains(&flow(1), 1, 1_000), "cached as owner, looked up as second chance");
        assert!(!cache.contains(&flow(2), 0, 1_000));
        cache.remove(&flow(2));
        assert!(cache.contains(&flow(1), 0, 1_000));
        cache.remove(&flow(1));
        assert!(!cache.contains(&flow(1), 0, 1_000));
    }
}
