// SPDX-License-Identifier: MIT OR GPL-2.0-only
// From destination address, protocol and port to a table: the longest prefix that has the port wins.
//
// The binds of a family are in one array. User space stored each key in one of its two slots, so that a
// look-up reads one slot, or two if the first is marked, for any number of binds. A prefix with several port
// ranges has a directory of 256 pages of 256 ports; the directory is a page itself.
#pragma once
#include "parse.h"

extern const volatile struct config config;
extern struct map binds_v4, binds_v6, port_pages;

static const __u64 SPREAD = 0x9e3779b97f4a7c15;

struct slots {
	__u32 first, second;
};

static __always_inline struct slots slots_of(__u64 key, __u32 count)
{
	__u64 hash = (key ^ config.seed) * SPREAD;

	return (struct slots){ hash >> 40 & (count - 1), hash >> 20 & (count - 1) };
}

static __always_inline __u32 page_of(__u32 directory, __u16 port)
{
	// Prevents the compiler from computing this for every packet, also where it is not needed.
	asm volatile("" : "+r"(port));
	const struct page *page = map_lookup(&port_pages, &directory);

	if (!page)
		return NONE;
	__u32 at = page->cells[port >> 8];
	page = map_lookup(&port_pages, &at);
	return page ? page->cells[port & 0xff] : NONE;
}

static __always_inline __u32 table_of(const struct bind *bind, __u16 port)
{
	__u32 compared = unnarrowed(port, 0xffff);
	if (compared < bind->first_port || compared > bind->last_port)
		return NONE;
	if (unlikely(bind->flags & BIND_PAGED))
		return page_of(bind->target, port);
	return bind->target;
}

static __always_inline int is_v4(const struct bind_v4 *slot, __u32 address, __u8 protocol, __u8 rank)
{
	return slot->address == address && slot->bind.protocol == protocol && slot->bind.rank == rank;
}

static __always_inline __u32 find_v4(__be32 destination, __u8 protocol, __u16 port)
{
	for (__u32 rank = 0; rank < 33 && rank < config.lengths_v4; rank++) {
		__u32 address = bpf_ntohl(destination) & config.masks_v4[rank];
		struct slots at = slots_of(address | (__u64)(rank << 8 | protocol) << 32, config.slots_v4);
		const struct bind_v4 *slot = map_lookup(&binds_v4, &at.first);

		if (slot && !is_v4(slot, address, protocol, rank)) {
			if (likely(!(slot->bind.flags & BIND_MORE)))
				continue;
			slot = map_lookup(&binds_v4, &at.second);
		}
		if (!slot || !is_v4(slot, address, protocol, rank))
			continue;
		__u32 table = table_of(&slot->bind, port);
		if (table != NONE)
			return table;
	}
	return NONE;
}

static __always_inline int is_v6(const struct bind_v6 *slot, __u64 high, __u64 low, __u8 protocol, __u8 rank)
{
	/* A single comparison for all, which does not narrow their ranges for the verifier. */
	return ((slot->low ^ low) | (slot->high ^ high) | (slot->bind.protocol ^ protocol) |
		(slot->bind.rank ^ rank)) == 0;
}

// Whether a bind names exactly this address. The longest lengths are first, so such a bind has rank 0. Most
// addresses have a clear bit in `named`, which user space set for each address that a bind names.
static __always_inline int is_marked(const volatile __u64 *named, __u64 folded)
{
	__u64 at = folded * SPREAD >> (64 - NAMED_BITS);

	return named[at >> 6] >> (at & 63) & 1;
}

static __always_inline int holds_v4(__u32 address, __u8 protocol)
{
	struct slots at = slots_of(address | (__u64)protocol << 32, config.slots_v4);
	const struct bind_v4 *slot = map_lookup(&binds_v4, &at.first);

	if (slot && is_v4(slot, address, protocol, 0))
		return 1;
	slot = map_lookup(&binds_v4, &at.second);
	return slot && is_v4(slot, address, protocol, 0);
}

static __always_inline int names_v4(__u32 address)
{
	if (likely(!is_marked(config.named_v4, address)))
		return 0;
	return holds_v4(address, PROTOCOL_TCP) || holds_v4(address, PROTOCOL_UDP);
}

static __always_inline struct slots slots_of_v6(__u64 high, __u64 low, __u32 rank, __u8 protocol)
{
	__u64 folded = (low ^ config.seed) * SPREAD;

	return slots_of((folded ^ folded >> 32) + high + ((__u64)(rank << 8 | protocol) << 32), config.slots_v6);
}

static __always_inline int holds_v6(__u64 high, __u64 low, __u8 protocol)
{
	struct slots at = slots_of_v6(high, low, 0, protocol);
	const struct bind_v6 *slot = map_lookup(&binds_v6, &at.first);

	if (slot && is_v6(slot, high, low, protocol, 0))
		return 1;
	slot = map_lookup(&binds_v6, &at.second);
	return slot && is_v6(slot, high, low, protocol, 0);
}

static __always_inline int names_v6(__u64 high, __u64 low)
{
	if (likely(!is_marked(config.named_v6, low ^ (high << 32 | high >> 32))))
		return 0;
	return holds_v6(high, low, PROTOCOL_TCP) || holds_v6(high, low, PROTOCOL_UDP);
}

static __always_inline __u32 find_v6(const __u64 destination[2], __u8 protocol, __u16 port)
{
	__u64 all_high = bpf_be64(destination[0]), all_low = bpf_be64(destination[1]);

	for (__u32 rank = 0; rank < 129 && rank < config.lengths_v6; rank++) {
		__u64 high = all_high & config.masks_v6[rank][0], low = all_low & config.masks_v6[rank][1];
		struct slots at = slots_of_v6(high, low, rank, protocol);
		const struct bind_v6 *slot = map_lookup(&binds_v6, &at.first);

		if (slot && !is_v6(slot, high, low, protocol, rank)) {
			if (likely(!(slot->bind.flags & BIND_MORE)))
				continue;
			slot = map_lookup(&binds_v6, &at.second);
		}
		if (!slot || !is_v6(slot, high, low, protocol, rank))
			continue;
		__u32 table = table_of(&slot->bind, port);
		if (table != NONE)
			return table;
	}
	return NONE;
}
