//! Does this host's kernel have a socket for a flow? One exact question each (sock_diag(7), no dump), all of a
//! batch in one system call, and a small memory of positive answers.
//!
//! The kernel's exact search finds a listening socket when it finds nothing better; that one knows no flow and
//! counts as nothing. Sockets that are bound to a device other than `lo` are not found, and could not receive what
//! is delivered through `lo` either.
//!
//! ## Why the memory cannot misroute a new connection
//! It holds positive answers only, and a wrong one could do harm only to a flow that this host knew, that was
//! opened anew with the same addresses and ports on another host, and whose packets now come here first. To open
//! it anew the client must see the old connection end. If the client ends it, its FIN or RST passes here and
//! strikes the entry out, as its next SYN does. If the service aborts it, the entry lives for [`LIFETIME_MS`] more,
//! in which the row's owner would have to change twice. Memory is per flow *and* hop position, so an entry that was
//! made while this host was the second chance never answers for packets that have it as their owner.

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;

use common::bind::Protocol;

use super::decide::Known;
use super::inner::Flow;
use crate::host::sys::datagram::{BATCH, Buffers, netlink};

/// How long a positive answer is believed.
const LIFETIME_MS: u64 = 250;
/// Flows remembered, one a slot.
const SLOTS: usize = 1 << 15;

/// Positive answers, newest wins.
#[derive(Debug)]
pub(super) struct Memory {
    slots: Box<[Option<Entry>]>,
    key: RandomState,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    flow: Flow,
    hop: u8,
    until_ms: u64,
}

impl Default for Memory {
    fn default() -> Self {
        Self { slots: vec![None; SLOTS].into_boxed_slice(), key: RandomState::new() }
    }
}

impl Memory {
    pub(super) fn knows(&self, flow: &Flow, hop: u8, now_ms: u64) -> bool {
        self.slots[self.index(flow)]
            .is_some_and(|entry| entry.until_ms > now_ms && entry.hop == hop && entry.flow == *flow)
    }

    pub(super) fn learn(&mut self, flow: Flow, hop: u8, now_ms: u64) {
        let index = self.index(&flow);
        self.slots[index] = Some(Entry { flow, hop, until_ms: now_ms + LIFETIME_MS });
    }

    pub(super) fn forget(&mut self, flow: &Flow) {
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
/// `struct inet_diag_req_v2`, and the header before it.
const QUESTION: usize = HEADER + 56;
const QUESTION_LEN: u32 = 72;
/// An answer without extensions has 88 octets; an error quotes the question.
const ANSWER: usize = 512;

/// A question-and-answer socket to the kernel.
#[derive(Debug)]
pub(super) struct SocketTable {
    netlink: File,
    questions: Vec<u8>,
    answers: Buffers,
    /// Number of the next batch's first question: an answer that comes late belongs to no later question.
    next: u32,
}

impl SocketTable {
    pub(super) fn open() -> io::Result<Self> {
        Ok(Self {
            netlink: File::from(netlink(NETLINK_SOCK_DIAG)?),
            questions: Vec::with_capacity(QUESTION * BATCH),
            answers: Buffers::new(0, ANSWER),
            next: 0,
        })
    }

    /// Answers for at most [`BATCH`] flows, in `known`, which has as many places. Gives the number of flows that
    /// the kernel said nothing about; they count as unknown.
    pub(super) fn ask(&mut self, flows: &[Flow], known: &mut [Known]) -> io::Result<usize> {
        debug_assert!(flows.len() <= BATCH);
        known.fill(Known::No);
        self.questions.clear();
        let first = self.next;
        for flow in flows {
            self.questions.extend_from_slice(&question(flow, self.next));
            self.next = self.next.wrapping_add(1);
        }
        // The kernel answers while it takes the questions, so that all answers are there when this returns.
        self.netlink.write_all(&self.questions)?;
        let mut missing = flows.len();
        while missing > 0 {
            let count = match self.answers.receive_ready(self.netlink.as_fd()) {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            };
            for index in 0..count {
                if let Some((sequence, answer)) = answer(self.answers.message(index)) {
                    let place = usize::try_from(sequence.wrapping_sub(first)).unwrap_or(usize::MAX);
                    if let Some(place) = known.get_mut(place) {
                        *place = answer;
                    }
                }
            }
            missing = missing.saturating_sub(count);
        }
        Ok(missing)
    }
}

/// `nlmsghdr` and `inet_diag_req_v2` (linux/inet_diag.h), host byte order but for ports and addresses.
fn question(flow: &Flow, sequence: u32) -> [u8; QUESTION] {
    let mut octets = [0; QUESTION];
    // Little need to be clever: the fields one by one, at their offsets.
    octets[..4].copy_from_slice(&QUESTION_LEN.to_ne_bytes());
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

/// The question's number and what the kernel knows. An error is almost always "no such socket".
fn answer(octets: &[u8]) -> Option<(u32, Known)> {
    let header = octets.first_chunk::<HEADER>()?;
    let kind = u16::from_ne_bytes([header[4], header[5]]);
    let sequence = u32::from_ne_bytes([header[8], header[9], header[10], header[11]]);
    let known = match kind {
        SOCK_DIAG_BY_FAMILY => state(*octets.get(HEADER + 1)?),
        NLMSG_ERROR => Known::No,
        _ => return None,
    };
    Some((sequence, known))
}

const fn state(number: u8) -> Known {
    if number == TCP_LISTEN { Known::No } else { Known::Yes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream, UdpSocket};

    fn ask(table: &mut SocketTable, flow: Flow) -> Known {
        let mut known = [Known::Yes];
        assert_eq!(table.ask(&[flow], &mut known).unwrap(), 0);
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
            assert_eq!(ask(&mut table, tcp(local, stranger)), Known::No);
            let client = TcpStream::connect(local).unwrap();
            let (server, remote) = listener.accept().unwrap();
            assert_eq!(ask(&mut table, tcp(local, remote)), Known::Yes);
            // The service closes first: FIN_WAIT2, then TIME_WAIT, both known.
            drop(server);
            assert_eq!(ask(&mut table, tcp(local, remote)), Known::Yes);
            drop(client);
            assert_eq!(ask(&mut table, tcp(local, remote)), Known::Yes);
        }
    }

    /// A listener of `::` has IPv4 connections of the IPv6 kind.
    #[test]
    fn ipv4_connections_of_a_dual_stack_listener_are_known() {
        let Ok(listener) = TcpListener::bind("[::]:0") else {
            println!("SKIPPED: this host lacks IPv6");
            return;
        };
        let local: SocketAddr = ([127, 0, 0, 1], listener.local_addr().unwrap().port()).into();
        let client = TcpStream::connect(local).unwrap();
        let mut table = SocketTable::open().unwrap();
        assert_eq!(ask(&mut table, tcp(local, client.local_addr().unwrap())), Known::Yes);
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
        assert_eq!(ask(&mut table, udp(&bound, peer)), Known::Yes);
        assert_eq!(ask(&mut table, udp(&connected, peer)), Known::Yes);
        assert_eq!(ask(&mut table, udp(&connected, other)), Known::No);
    }

    #[test]
    fn a_full_batch_is_answered_in_its_order_and_twice() {
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
            let mut known = [Known::No; BATCH];
            assert_eq!(table.ask(&flows, &mut known).unwrap(), 0);
            assert!(known.chunks(2).all(|pair| pair == [Known::Yes, Known::No]));
        }
    }

    #[test]
    fn answers_that_end_early_say_nothing() {
        let mut octets = question(&tcp(([1, 2, 3, 4], 5).into(), ([6, 7, 8, 9], 10).into()), 3).to_vec();
        octets[17] = TCP_LISTEN;
        assert_eq!(answer(&octets), Some((3, Known::No)));
        octets[17] = 1;
        assert_eq!(answer(&octets), Some((3, Known::Yes)));
        for len in 0..18 {
            assert_eq!(answer(&octets[..len]), None);
        }
    }

    #[test]
    fn memory_ends_by_time_by_hop_and_by_request() {
        let flow = |port| tcp(([203, 0, 113, 10], 443).into(), ([198, 51, 100, 7], port).into());
        let mut memory = Memory::default();
        memory.learn(flow(1), 0, 1_000);
        assert!(memory.knows(&flow(1), 0, 1_249));
        assert!(!memory.knows(&flow(1), 0, 1_250));
        assert!(!memory.knows(&flow(1), 1, 1_000), "learnt as owner, asked as second chance");
        assert!(!memory.knows(&flow(2), 0, 1_000));
        memory.forget(&flow(2));
        assert!(memory.knows(&flow(1), 0, 1_000));
        memory.forget(&flow(1));
        assert!(!memory.knows(&flow(1), 0, 1_000));
    }
}
