// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The interface between the redirector's program and its loader. `dataplane/src/redirect/program_abi.rs` is
// the Rust side.
#pragma once
#include "bpf.h"

// Counters by verdict and reason. Reasons to accept have the numbers of `redirect::decide::Accept`; those of
// packets that another redirector had forwarded follow them.
enum fate {
	KEPT_SYN = 0,
	KEPT_SOCKET = 1,
	KEPT_COOKIE = 2,
	KEPT_LAST_HOP = 3,
	KEPT_OWN_HOP = 4,
	KEPT_UDP = 5,
	KEPT_LATER = 6,
	FORWARDED = 12,
	// Punted to user space, or to the kernel if the packet is not for the redirector.
	LEFT_NOT_OURS = 13,
	LEFT_OUTER = 14,
	LEFT_SENDER = 15,
	LEFT_GUE = 16,
	LEFT_INNER = 17,
	LEFT_UNRESOLVED = 18,
	LEFT_INNER_UNFINISHED = 19,
	FATES = 20,
};

enum {
	// Largest number of prefixes in each list.
	MAX_PREFIXES = 16,
	// Number of words of the array of recently accepted SYNs.
	RECENT_SYNS = 1 << 18,
	// Lifetime of a SYN in seconds.
	RECENT_SECONDS = 60,
};

struct prefix_v4 {
	__be32 network;
	__be32 mask;
};

struct prefix_v6 {
	__u64 network[2];
	__u64 mask[2];
};

// Constants, written into the object before the kernel verifies it. The counts give the lengths of the lists.
struct redirect_config {
	__u8 mac[6];
	__be16 port;
	__u8 max_hops;
	__u8 keeps_udp;
	__u8 own_count;
	__u8 director_count;
	__u8 backend_count;
	__u8 vip_v4_count;
	__u8 vip_v6_count;
	__u8 reserved;
	__be32 own[MAX_PREFIXES];
	struct prefix_v4 directors[MAX_PREFIXES];
	struct prefix_v4 backends[MAX_PREFIXES];
	struct prefix_v4 vips_v4[MAX_PREFIXES];
	struct prefix_v6 vips_v6[MAX_PREFIXES];
	// Key of the hash of flows in the array of SYNs.
	__u64 syn_key[2];
};
_Static_assert(sizeof(struct redirect_config) == 992, "redirect_config");

// The link of a next hop, by the hop's address. User space resolves it and fills the map.
struct neighbour {
	__u8 destination[6];
	__u8 source[6];
	__be32 source_address;
	__u32 ifindex;
	__u32 reserved;
};
_Static_assert(sizeof(struct neighbour) == 24, "neighbour");

// Addresses that no client of this host can have, besides those of source.h. An IPv4 address has the prefix
// ::ffff:0:0/96.
struct prefix {
	__u32 bits;
	__u32 address[4];
};
_Static_assert(sizeof(struct prefix) == 20, "prefix");

// Packets by another host's address, and the arrival time of the last (CLOCK_MONOTONIC).
struct tally {
	__u64 packets;
	__u64 last_ns;
};
_Static_assert(sizeof(struct tally) == 16, "tally");
