//! `dataplane redirect`: the second half of the balancer, on each backend's host.
//!
//! Packets arrive in GUE. One that belongs to this host is handed to its kernel; one that does not goes on to the
//! next hop that it carries, the *second chance*. That is how a connection survives when its row's owner changes.
//!
//! ```text
//! UDP 19523 ─► batch ─► GUE: may it be here? ─► inner: what is it? ─► sockets: does the kernel know it?
//!                                                                       │
//!              raw socket on lo, to the VIP  ◄── keep ── decide ──► forward ──► raw socket, next_hop + 1
//! ```
//!
//! * [`inner`] and [`decide`] are pure: octets and facts in, a decision out. They ask the kernel nothing.
//! * No packet can circle: a packet is passed on only while `next_hop < hop_count`, `next_hop` grows each
//!   time (by more than one past hops that are this host) and `hop_count` never changes, so it is passed on at most 30 times (what GUE has room for), whatever the hops are.
//! * What is kept goes out of a socket that is bound to `lo`: it can reach this host and nothing else, also when
//!   the VIP is missing here.
//! * No packet comes from an address that its client cannot have ([`clients`]), so no service here answers itself.
//! * **GUE in GUE is refused.** What is handed to the kernel on `lo` may be a datagram for this very socket, with any source
//!   that the packet inside claims; as a director's it would be taken for one. Three rules, each enough for its way:
//!   a packet inside that is for this socket is refused (`tunnel`); a fragment, whose port cannot be read, comes back by
//!   `lo`, and what comes by `lo` is accepted from an address of this host only (`loopback`), which is how the
//!   director of the same host sends; and no packet inside that has such a source was ever kept (`inner_source`). The
//!   kernel program, whose packets come back by the interface that they came in by, leaves both kinds to the socket.
//! * No queueing discipline is told to hold what is passed on, as `fq` could be: the sockets set no transmit time, no
//!   pacing rate and no priority. Tested by what is set, since the kernels that the tests run on need not have `fq`.
//! * Congestion that was marked on the envelope is told to the packet inside (RFC 6040), kept or passed on.
//!
//! Sources: GUE is draft-ietf-intarea-gue-09, the private data GLB Director's; ICMP quotes RFC 792 and RFC 4443.

pub mod args;
pub mod clients;
pub mod config;
pub mod counters;
pub mod decide;
mod ecn;
mod envelope;
mod fast;
mod identification;
pub mod inner;
mod losses;
mod program;
mod program_abi;
mod recent;
mod routes;
pub mod run;
mod sockets;
mod worker;

pub use program::{Neighbour, Redirect, RedirectCounts};
pub(crate) use recent::SLOTS as SYN_SLOTS;
