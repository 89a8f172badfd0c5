// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The interface between the director's program and its loader. `dataplane/src/drivers/xdp/abi.rs` is the Rust
// side. Both sides assert the sizes, all multiples of eight, because the kernel rounds the sizes of array
// entries up. All numbers are in the byte order of this machine unless they are __be16 or __be32.
#pragma once
#include "bpf.h"

// No table, no backend.
static const __u32 NONE = 0xffffffff;
static const __u16 NO_BACKEND = 0xffff;

// Why a frame is punted to user space, unchanged. The numbers are those of `xdp::PuntReason`.
enum left {
	LEFT_NOT_IP = 0,
	LEFT_TAGS = 1,
	LEFT_SHORT = 2,
	LEFT_IP_HEADER = 3,
	LEFT_FRAGMENT = 4,
	LEFT_PROTOCOL = 5,
	LEFT_TRUNCATED = 6,
	LEFT_NO_BIND = 7,
	LEFT_CHECKSUM = 8,
	LEFT_NO_BACKEND = 9,
	LEFT_NO_ROUTE = 10,
	LEFT_TOO_BIG = 11,
	LEFT_NO_ROOM = 12,
	LEFT_UNFINISHED = 13,
	LEFT_SOURCE = 14,
	LEFT_REASONS = 15,
};

// Constants of a generation, written into the object before the kernel verifies it. Prefix lengths in use are
// sorted, longest first; a bind's `rank` is the index of its length there. `named` has a bit for the hash of
// each address that a bind names in full.
enum { NAMED_BITS = 12 };

struct config {
	__u64 seed;
	__u32 mtu;
	__u32 lengths_v4;
	__u32 lengths_v6;
	__u32 slots_v4;
	__u32 slots_v6;
	__u32 reserved;
	__u32 masks_v4[34];
	__u64 masks_v6[129][2];
	__u64 named_v4[1 << (NAMED_BITS - 6)];
	__u64 named_v6[1 << (NAMED_BITS - 6)];
};
_Static_assert(sizeof(struct config) == 3256, "config");

// A slot of a bind table. A key is in the first of its two slots, or in the second; then the first is marked.
enum bind_flags {
	BIND_MORE = 1,
	BIND_PAGED = 2,
};

// The fields that both families share. `target` is the table or, if the bind is paged, its directory.
struct bind {
	__u8 protocol;
	__u8 rank;
	__u8 flags;
	__u8 reserved;
	__u16 first_port;
	__u16 last_port;
	__u32 target;
};

struct bind_v4 {
	__u32 address;
	struct bind bind;
};
_Static_assert(sizeof(struct bind_v4) == 16, "bind_v4");

struct bind_v6 {
	__u64 high;
	__u64 low;
	struct bind bind;
	__u32 reserved;
};
_Static_assert(sizeof(struct bind_v6) == 32, "bind_v6");

// A directory has page numbers; a page has tables.
struct page {
	__u32 cells[256];
};
_Static_assert(sizeof(struct page) == 1024, "page");

enum field {
	SRC_ADDR = 1,
	DST_ADDR = 2,
	SRC_PORT = 4,
	DST_PORT = 8,
	ALL_FIELDS = 15,
};

struct table {
	__u64 key[2];
	__u32 first_row;
	__u32 row_mask;
	__u32 first_hop;
	__u8 fields;
	__u8 alt_fields;
	__u16 reserved;
};
_Static_assert(sizeof(struct table) == 32, "table");

enum { MAX_HOPS = 4 };

struct row {
	__u16 backends[MAX_HOPS];
};
_Static_assert(sizeof(struct row) == 8, "row");

// A backend with an IPv4 address. `head` is the prebuilt start of a frame to it, written by Rust: link
// header, IPv4 header and UDP header, with zero in the fields that differ between packets. `sum` is the sum
// of that IPv4 header. A backend with an IPv6 address is all zero except for its family; its frames are
// punted to user space.
enum way {
	WAY_LEFT = 0,
	WAY_LINK = 1,
};

struct hop {
	__u64 head[6];
	__be32 address;
	__u32 ifindex;
	__u32 sum;
	__u16 way;
	__u16 reserved;
};
_Static_assert(sizeof(struct hop) == 64, "hop");
