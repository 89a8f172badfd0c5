// SPDX-License-Identifier: MIT OR GPL-2.0-only
// From a row to the encapsulated frame.
//
// | link 14 | IPv4 20 | UDP 8 | GUE 4 | private 4 | hop 1 | hop 2 | ... | the client's packet |
#pragma once
#include "parse.h"

extern const volatile struct config config;
extern struct map hops, primaries;
// Which half of `hops` is valid: user space fills the other half and then writes this word.
extern volatile __u32 hops_half;

enum {
	LINK_LEN = 14,
	// IPv4, UDP, GUE and private data.
	OUTER_LEN = 36,
	MAX_FOLLOWERS = 2 * MAX_HOPS - 1,
};

// The hops after the primary, in the order of the list. An address of zero means no hop.
struct followers {
	__be32 addresses[MAX_FOLLOWERS];
	__u32 count;
};

static __always_inline const struct hop *find_hop(__u32 half, __u32 first, __u16 backend)
{
	__u32 at = half + first + backend;

	return map_lookup(&hops, &at);
}

static __always_inline __be32 address_of(__u32 half, __u32 first, __u16 backend)
{
	const struct hop *hop = find_hop(half, first, backend);

	return hop ? hop->address : 0;
}

// The hops of the row after the primary.
static __always_inline void follow(const struct row *row, __u32 half, __u32 first, struct followers *to)
{
#pragma unroll
	for (__u32 i = 1; i < MAX_HOPS; i++) {
		if (row->backends[i] == NO_BACKEND)
			return;
		to->addresses[i - 1] = address_of(half, first, row->backends[i]);
		to->count += to->addresses[i - 1] != 0;
	}
}

// All hops of the second look-up's row, including repetitions.
static __always_inline void follow_alternative(const struct row *row, __u32 half, __u32 first, struct followers *to)
{
#pragma unroll
	for (__u32 i = 0; i < MAX_HOPS; i++) {
		if (row->backends[i] == NO_BACKEND)
			return;
		__be32 address = address_of(half, first, row->backends[i]);
		to->addresses[MAX_HOPS - 1 + i] = address;
		to->count += address != 0;
	}
}

static __always_inline __u16 ipv4_checksum(const struct hop *hop, __u8 ecn, __be16 length)
{
	__u32 sum = hop->sum + ((__u32)ecn << 8) + length;

	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

static __always_inline void write_head(__u64 *to, const struct hop *hop, const struct packet *packet, __u64 hash,
				       __u32 ip_len, __u32 count)
{
	__be16 length = bpf_htons(ip_len), udp_length = bpf_htons(ip_len - 20);
	__be16 port = bpf_htons(0x8000 | ((hash ^ packet->source_port) & 0x7fff));

	to[0] = hop->head[0];
	to[1] = hop->head[1] | (__u64)packet->ecn << 56;
	to[2] = hop->head[2] | length;
	to[3] = hop->head[3] | ipv4_checksum(hop, packet->ecn, length);
	to[4] = hop->head[4] | (__u64)port << 16 | (__u64)udp_length << 48;
	to[5] = (__u64)(1 + count) << 16 | (__u64)packet->version << 24;
	*(__u16 *)(to + 6) = count << 8;
}

static __always_inline int write_followers(__be32 *to, const void *end, const struct followers *followers,
					   __u32 slots)
{
#pragma unroll
	for (__u32 i = 0; i < MAX_FOLLOWERS; i++) {
		if (i >= slots)
			break;
		if (!followers->addresses[i])
			continue;
		if ((void *)(to + 1) > end)
			return 0;
		*to++ = followers->addresses[i];
	}
	return 1;
}

static __always_inline void count_primary(__u32 at)
{
	__u64 *packets = map_lookup(&primaries, &at);

	if (packets)
		*packets += 1;
}

// Makes room, writes the outer headers and sends the frame. Returns LEFT_REASONS on success, with `action`
// set. `slots` is the number of addresses that `followers` has room for.
static __always_inline enum left encapsulate(struct xdp_md *ctx, const struct packet *packet, const struct hop *hop,
					     __u64 hash, const struct followers *followers, __u32 slots,
					     int *action)
{
	__u32 ip_len = packet->len + OUTER_LEN + 4 * followers->count;

	if (unlikely(ip_len > config.mtu))
		return LEFT_TOO_BIG;
	if (unlikely(adjust_head(ctx, -(int)(LINK_LEN + ip_len - packet->len - packet->link_len))))
		return LEFT_NO_ROOM;
	*action = XDP_ABORTED;
	if (packet->padding && adjust_tail(ctx, -(int)packet->padding))
		return LEFT_REASONS;
	void *frame = frame_start(ctx), *end = frame_end(ctx);
	if (frame + LINK_LEN + OUTER_LEN > end)
		return LEFT_REASONS;
	write_head(frame, hop, packet, hash, ip_len, followers->count);
	if (!write_followers(frame + LINK_LEN + OUTER_LEN, end, followers, slots))
		return LEFT_REASONS;
	*action = hop->ifindex == ctx->ingress_ifindex ? XDP_TX : redirect_to(hop->ifindex, 0);
	return LEFT_REASONS;
}
