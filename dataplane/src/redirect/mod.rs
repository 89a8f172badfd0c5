//! `dataplane redirect`: runs on each backend host and receives what the directors encapsulate.
//!
//! Packets arrive in GUE. A packet whose connection this host has is delivered to its kernel. Any other
//! packet is forwarded to the next hop that it carries, the *second chance*. That is how a connection
//! survives when the row of its flow gets another owner.
//!
//! ```text
//! UDP 19523 ─► batch ─► GUE: allowed here? ─► inner packet: kind? ─► socket look-up: does the kernel know it?
//!                                                                         │
//!       raw socket on lo, to the VIP  ◄── accept ── decide ──► forward ──► raw socket, next_hop + 1
//! ```
//!
//! * [`inner`] and [`decide`] are pure: they take octets and facts, return a decision, and make no system
//!   call.
//! * A packet cannot circle. It is forwarded only while `next_hop < hop_count`; `next_hop` grows each time
//!   (by more than one where it skips hops that are this host) and `hop_count` never changes. So a packet is
//!   forwarded at most 30 times (what GUE has room for), whichever hops it names.
//! * Accepted packets are sent through a socket that is bound to `lo`. They reach this host and nothing else,
//!   even if the VIP is missing here.
//! * A packet with a source address that no client can have is rejected ([`clients`]), so no service here
//!   answers itself.
//! * **GUE in GUE is rejected.** A packet that is delivered through `lo` can be a datagram for this
//!   redirector's own socket, with any source address that the inner packet claims; it would be taken for a
//!   director's. Three rules prevent that:
//!   * An inner packet for this socket is rejected (`tunnel`).
//!   * A fragment has no readable port, so it does come back through `lo`. What arrives on `lo` is accepted
//!     only from an address of this host (`loopback`), which is how a director on the same host sends.
//!   * An inner packet with such a source address is never accepted in the first place (`inner_source`).
//!
//!   The kernel program's packets come back on the interface on which they arrived, so it punts both kinds to
//!   the socket.
//! * No queueing discipline can delay forwarded packets, as `fq` could: the sockets set no transmit time, no
//!   pacing rate and no priority. The test checks the socket options, because the kernels that run the tests
//!   may lack `fq`.
//! * A congestion mark on the outer header is copied to the inner packet (RFC 6040), both when the packet is
//!   accepted and when it is forwarded.
//!
//! Sources: GUE is draft-ietf-intarea-gue-09; the private data is GLB Director's; ICMP quotes are RFC 792 and
//! RFC 4443.

pub mod args;
pub mod clients;
pub mod config;
pub mod counters;
pub mod decide;
mod drops;
mod ecn;
mod identification;
pub mod inner;
mod kernel_path;
mod outer;
mod program;
mod program_abi;
mod recent;
mod routes;
pub mod run;
mod socket_lookup;
mod worker;

pub use program::{Neighbour, Redirect, RedirectCounts};
pub(crate) use recent::WORDS as SYN_WORDS;
