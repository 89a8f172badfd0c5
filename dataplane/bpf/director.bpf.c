// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The director's kernel program: encapsulates a packet to a bind for its row's backends and sends it. It
// punts every other frame unchanged to user space, so that only `pipeline` has the whole policy. Each frame
// that it sends must equal, octet for octet, the frame that `Pipeline::process` would send.
#include "abi.h"
#include "bind.h"
#include "encap.h"
#include "hash.h"
#include "parse.h"
#include "source.h"

const volatile struct config config = {};
volatile __u32 hops_half = 0;

// The loader sets the number of entries of each map.
struct map SEC("maps") binds_v4 = { MAP_ARRAY, 4, sizeof(struct bind_v4), 1, MAP_MMAPABLE };
struct map SEC("maps") binds_v6 = { MAP_ARRAY, 4, sizeof(struct bind_v6), 1, MAP_MMAPABLE };
struct map SEC("maps") port_pages = { MAP_ARRAY, 4, sizeof(struct page), 1, MAP_MMAPABLE };
struct map SEC("maps") tables = { MAP_ARRAY, 4, sizeof(struct table), 1, MAP_MMAPABLE };
struct map SEC("maps") rows = { MAP_ARRAY, 4, sizeof(struct row), 1, MAP_MMAPABLE };
struct map SEC("maps") hops = { MAP_ARRAY, 4, sizeof(struct hop), 1, MAP_MMAPABLE };
// Packets that this program encapsulated, by primary.
struct map SEC("maps") primaries = { MAP_PER_CPU_ARRAY, 4, sizeof(__u64), 1, 0 };
// Frames that this program punted to user space, by reason.
struct map SEC("maps") left = { MAP_PER_CPU_ARRAY, 4, sizeof(__u64), LEFT_REASONS, 0 };

static __always_inline int leave(enum left reason)
{
	__u32 at = reason;
	__u64 *frames = map_lookup(&left, &at);

	if (frames)
		*frames += 1;
	return XDP_PASS;
}

static __always_inline const struct row *find_row(const struct table *table, __u64 hash)
{
	__u32 at = table->first_row + ((__u32)hash & table->row_mask);

	return map_lookup(&rows, &at);
}

// `alternative` is the row of the second look-up, if the table has one; such packets use a separate copy of
// this code.
static __always_inline int forward(struct xdp_md *ctx, const struct packet *packet, const struct table *table,
				   __u64 hash, const struct row *alternative)
{
	const struct row *row = find_row(table, hash);
	struct followers followers = {};
	__u32 half = hops_half, first = table->first_hop;
	int action;

	if (!row || row->backends[0] == NO_BACKEND)
		return leave(LEFT_NO_BACKEND);
	const struct hop *hop = find_hop(half, first, row->backends[0]);
	if (!hop || hop->way != WAY_LINK)
		return leave(LEFT_NO_ROUTE);
	follow(row, half, first, &followers);
	if (alternative)
		follow_alternative(alternative, half, first, &followers);
	enum left reason = encapsulate(ctx, packet, hop, hash, &followers,
				       alternative ? MAX_FOLLOWERS : MAX_HOPS - 1, &action);
	if (unlikely(reason != LEFT_REASONS))
		return leave(reason);
	count_primary(first + row->backends[0]);
	return action;
}

static __always_inline int direct_v4(struct xdp_md *ctx, const struct ipv4_header *ip, struct packet *packet)
{
	enum left reason = read_v4(ip, frame_end(ctx), packet);

	if (reason != LEFT_REASONS)
		return leave(reason);
	__u32 at = find_v4(ip->destination, packet->protocol, packet->destination_port);
	if (at == NONE)
		return leave(LEFT_NO_BIND);
	if (unlikely(!checksum_holds(ip)))
		return leave(LEFT_CHECKSUM);
	__u32 client = bpf_ntohl(ip->source);
	if (unlikely(!is_client_v4(client) || names_v4(client)))
		return leave(LEFT_SOURCE);
	if (unlikely(is_unfinished_v4(ip, packet->len, frame_end(ctx))))
		return leave(LEFT_UNFINISHED);
	const struct table *table = map_lookup(&tables, &at);
	if (!table)
		return leave(LEFT_NO_BACKEND);
	__u64 hash = hash_v4(table->key, table->fields, ip->source, ip->destination, packet->ports);
	if (likely(!table->alt_fields))
		return forward(ctx, packet, table, hash, 0);
	__u64 second = hash_v4(table->key, table->alt_fields, ip->source, ip->destination, packet->ports);
	const struct row *alternative = find_row(table, second);
	return alternative ? forward(ctx, packet, table, hash, alternative) : leave(LEFT_NO_BACKEND);
}

static __always_inline int direct_v6(struct xdp_md *ctx, const struct ipv6_header *ip, struct packet *packet)
{
	enum left reason = read_v6(ip, frame_end(ctx), packet);

	if (reason != LEFT_REASONS)
		return leave(reason);
	__u64 source[2] = { ip->source[0], ip->source[1] };
	__u64 destination[2] = { ip->destination[0], ip->destination[1] };
	__u32 at = find_v6(destination, packet->protocol, packet->destination_port);
	if (at == NONE)
		return leave(LEFT_NO_BIND);
	__u64 high = bpf_be64(source[0]), low = bpf_be64(source[1]);
	if (unlikely(!is_client_v6(high, low) || names_v6(high, low)))
		return leave(LEFT_SOURCE);
	if (unlikely(is_unfinished_v6(ip, frame_end(ctx))))
		return leave(LEFT_UNFINISHED);
	const struct table *table = map_lookup(&tables, &at);
	if (!table)
		return leave(LEFT_NO_BACKEND);
	__u64 hash = hash_v6(table->key, table->fields, source, destination, packet->ports);
	if (likely(!table->alt_fields))
		return forward(ctx, packet, table, hash, 0);
	__u64 second = hash_v6(table->key, table->alt_fields, source, destination, packet->ports);
	const struct row *alternative = find_row(table, second);
	return alternative ? forward(ctx, packet, table, hash, alternative) : leave(LEFT_NO_BACKEND);
}

SEC("xdp")
int director(struct xdp_md *ctx)
{
	struct packet packet = { .link_len = LINK_LEN };
	const struct link_header *link = frame_start(ctx);
	const void *end = frame_end(ctx);

	if ((const void *)(link + 1) > end)
		return leave(LEFT_SHORT);
	__be16 type = link->type;
	if (unlikely(is_tag(type))) {
		const struct tag *tag = (const void *)(link + 1);
		if ((const void *)(tag + 1) > end)
			return leave(LEFT_SHORT);
		type = tag->type;
		packet.link_len += sizeof(*tag);
		if (is_tag(type))
			return leave(LEFT_TAGS);
	}
	const void *ip = (const void *)link + packet.link_len;
	if (type == bpf_htons(TYPE_IPV4))
		return direct_v4(ctx, ip, &packet);
	if (type == bpf_htons(TYPE_IPV6))
		return direct_v6(ctx, ip, &packet);
	return leave(LEFT_NOT_IP);
}

const char LICENSE[] SEC("license") = "Dual MIT/GPL";
