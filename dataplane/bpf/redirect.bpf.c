// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The redirector's kernel program. It decapsulates GUE for this host and passes the inner packet to the
// kernel, if the packet opens a connection or this host's kernel knows its flow; otherwise it forwards the
// packet to its next hop. It punts every other packet unchanged to the UDP socket of `dataplane redirect`, or
// to the kernel if the packet is not for the redirector.
//
// It handles packets with these properties. Outside: no tag, IPv4 without options and with a right checksum,
// UDP checksum 0, lengths that agree, and no congestion mark that the inner packet would have to take over.
// Inside: TCP or UDP over IPv4 without options or over IPv6 without extension headers, from an address that a
// client can have, and no GUE for this host again.
#include "hash.h"
#include "parse.h"
#include "redirect_abi.h"
#include "source.h"

const volatile struct redirect_config redirect_config = {};

struct map SEC("maps") fates = { MAP_PER_CPU_ARRAY, 4, sizeof(__u64), FATES, 0 };
struct map SEC("maps") neighbours = { MAP_HASH, 4, sizeof(struct neighbour), 4096, 0 };
// Addresses of this host, and VIPs that are configured as single addresses.
struct map SEC("maps") no_clients = { MAP_PREFIXES, sizeof(struct prefix), 1, 4096, MAP_NO_PREALLOC };
// Recently accepted SYNs, by the hash of their flow: tag (24 bits) | second of arrival (8) | initial sequence
// number (32). User space reads and writes the same words; `redirect::recent` explains why and how.
struct map SEC("maps") recent_syns = { MAP_ARRAY, 4, sizeof(__u64), RECENT_SYNS, MAP_MMAPABLE };
struct map SEC("maps") forwarded_to = { MAP_PER_CPU_HASH, 4, sizeof(struct tally), 4096, 0 };
struct map SEC("maps") second_hop_from = { MAP_PER_CPU_HASH, 4, sizeof(struct tally), 4096, 0 };

struct udp_header {
	__be16 source;
	__be16 destination;
	__be16 length;
	__be16 checksum;
};

struct gue_header {
	__u8 length;
	__u8 protocol;
	__be16 flags;
	__be16 private_type;
	__u8 next_hop;
	__u8 hop_count;
};

struct tcp_header {
	struct ports ports;
	__be32 sequence;
	__be32 acknowledgement;
	__u8 offset;
	__u8 flags;
	__be16 window;
	__be16 checksum;
	__be16 urgent;
};

struct outer {
	struct link_header link;
	// Addresses without ports.
	__u8 ip[20];
	struct udp_header udp;
	struct gue_header gue;
};
_Static_assert(sizeof(struct outer) == 50, "outer");

static __always_inline int count(__u32 at, int action)
{
	__u64 *packets = map_lookup(&fates, &at);

	if (packets)
		*packets += 1;
	return action;
}

static __always_inline void tell(const struct map *map, __be32 address)
{
	struct tally *known = map_lookup(map, &address);

	if (known) {
		known->packets += 1;
		known->last_ns = monotonic_ns();
		return;
	}
	struct tally first = { 1, monotonic_ns() };
	map_update(map, &address, &first, 0);
}

static __always_inline int is_own(__be32 address)
{
	for (__u32 i = 0; i < MAX_PREFIXES && i < redirect_config.own_count; i++) {
		if (redirect_config.own[i] == address)
			return 1;
	}
	return 0;
}

static __always_inline int holds_v4(const volatile struct prefix_v4 *list, __u32 length, __be32 address)
{
	for (__u32 i = 0; i < MAX_PREFIXES && i < length; i++) {
		if ((address & list[i].mask) == list[i].network)
			return 1;
	}
	return 0;
}

static __always_inline int is_vip_v6(const __u64 address[2])
{
	for (__u32 i = 0; i < MAX_PREFIXES && i < redirect_config.vip_v6_count; i++) {
		const volatile struct prefix_v6 *vip = &redirect_config.vips_v6[i];
		if ((address[0] & vip->mask[0]) == vip->network[0] && (address[1] & vip->mask[1]) == vip->network[1])
			return 1;
	}
	return 0;
}

// Removes the outer headers; the kernel then gets the inner packet.
static __always_inline int keep(struct xdp_md *ctx, __u32 reason, __u32 strip, const struct outer *outer)
{
	const __u32 *ip = (const void *)outer->ip;
	__be32 sender = ip[3];
	__u32 later = outer->gue.next_hop > 0;
	__be16 type = bpf_htons(outer->gue.protocol == PROTOCOL_IPV4 ? TYPE_IPV4 : TYPE_IPV6);
	struct link_header link = outer->link;

	if (adjust_head(ctx, strip))
		return count(LEFT_OUTER, XDP_PASS);
	struct link_header *to = frame_start(ctx);
	if ((void *)(to + 1) > frame_end(ctx))
		return XDP_ABORTED;
	link.type = type;
	*to = link;
	if (later && (reason == KEPT_SOCKET || reason == KEPT_COOKIE))
		tell(&second_hop_from, sender);
	return count(reason + (later ? KEPT_LATER : 0), XDP_PASS);
}

static __always_inline int forward(struct xdp_md *ctx, struct outer *outer, __be32 next, __u8 ecn)
{
	const struct neighbour *way = map_lookup(&neighbours, &next);

	if (!way || !holds_v4(redirect_config.backends, redirect_config.backend_count, next))
		return count(LEFT_UNRESOLVED, XDP_PASS);
	struct ipv4_header *ip = (void *)outer->ip;
	__builtin_memcpy(outer->link.addresses, way->destination, 6);
	__builtin_memcpy(outer->link.addresses + 6, way->source, 6);
	ip->traffic_class = ecn;
	ip->identification = 0;
	ip->fragment = bpf_htons(0x4000);
	ip->ttl = 64;
	ip->checksum = 0;
	ip->source = way->source_address;
	ip->destination = next;
	const __u32 *words = (const void *)ip;
	__u64 sum = (__u64)words[0] + words[1] + words[2] + words[3] + words[4];
	ip->checksum = ~fold(sum);
	outer->gue.next_hop += 1;
	tell(&forwarded_to, next);
	return count(FORWARDED, way->ifindex == ctx->ingress_ifindex ? XDP_TX : redirect_to(way->ifindex, 0));
}

static __always_inline __u64 *recent_syn(__u64 hash)
{
	__u32 at = hash & (RECENT_SYNS - 1);

	return map_lookup(&recent_syns, &at);
}

static __always_inline __u64 second(void)
{
	return monotonic_ns() / 1000000000;
}

// The tag is never 0, so that no flow matches an empty word.
static __always_inline __u64 tag_of(__u64 hash)
{
	return hash >> 40 | 1;
}

static __always_inline void remember(__u64 hash, const struct tcp_header *tcp)
{
	__u64 *word = recent_syn(hash);

	if (word)
		*word = tag_of(hash) << 40 | (second() & 0xff) << 32 | bpf_ntohl(tcp->sequence);
}

// Whether this segment can complete the handshake of a SYN that was accepted here, or be sent right after it.
// The writer of the word may have read the clock slightly later.
static __always_inline int follows_syn(__u64 hash, const struct tcp_header *tcp)
{
	__u64 *slot = recent_syn(hash);

	if ((tcp->flags & 0x16) != 0x10 || !slot)
		return 0;
	__u64 word = *slot;
	__u64 age = (second() - (word >> 32) + 1) & 0xff;
	__u32 offset = bpf_ntohl(tcp->sequence) - (__u32)word - 1;
	return word >> 40 == tag_of(hash) && age <= RECENT_SECONDS + 1 && offset <= 65535;
}

// Whether a socket in any state but LISTEN has the flow. Without one the kernel may have answered the flow's
// SYN with a cookie. The kernel's own cookie check is not used: it would accept the cookies of all containers
// on this kernel.
static __always_inline enum fate judge_tcp(struct xdp_md *ctx, const void *tuple, __u32 size, __u64 hash,
					   const struct tcp_header *tcp)
{
	if ((tcp->flags & 0x16) == 0x02) {
		remember(hash, tcp);
		return KEPT_SYN;
	}
	struct socket *socket = find_socket(ctx, tuple, size, THIS_NETNS, 0);
	if (socket) {
		__u32 state = socket->state;
		release_socket(socket);
		if (state != SOCKET_LISTENS)
			return KEPT_SOCKET;
	}
	return follows_syn(hash, tcp) ? KEPT_COOKIE : FORWARDED;
}

static __always_inline enum fate judge_tcp_v4(struct xdp_md *ctx, const struct ipv4_header *ip,
					      const struct tcp_header *tcp)
{
	struct tuple_v4 tuple = { ip->source, ip->destination, tcp->ports.source, tcp->ports.destination };
	__u64 key[2] = { redirect_config.syn_key[0], redirect_config.syn_key[1] };
	__u32 ports = tcp->ports.source | (__u32)tcp->ports.destination << 16;

	return judge_tcp(ctx, &tuple, sizeof(tuple), hash_v4(key, ALL_FIELDS, ip->source, ip->destination, ports), tcp);
}

static __always_inline int is_no_client(struct prefix *address)
{
	address->bits = 128;
	return map_lookup(&no_clients, address) != 0;
}

static __always_inline int may_send_v4(__be32 source)
{
	struct prefix address = { .address = { 0, 0, 0xffff0000, source } };

	return is_client_v4(bpf_ntohl(source)) && !is_no_client(&address);
}

static __always_inline int may_send_v6(const __u64 source[2])
{
	struct prefix address;

	__builtin_memcpy(address.address, source, 16);
	return is_client_v6(bpf_be64(source[0]), bpf_be64(source[1])) && !is_no_client(&address);
}

// Whether UDP is for a service of this host and not for the socket of `dataplane redirect` again.
static __always_inline enum fate judge_udp(const struct ports *ports)
{
	return redirect_config.keeps_udp && ports->destination != redirect_config.port ? KEPT_UDP : LEFT_INNER;
}

// Whether the outer ECN field can be ignored. Removing or rewriting the outer header loses the field. That
// changes nothing if it was Not-ECT or ECT(0), for any inner field, or equal to the inner field (RFC 6040,
// figure 4).
static __always_inline int ecn_says_more(const struct outer *outer, __u8 inside)
{
	__u8 outside = outer->ip[1] & 3;

	return outside & 1 && outside != inside;
}

static __always_inline enum fate judge_v4(struct xdp_md *ctx, const struct outer *outer, const struct ipv4_header *ip,
					  const void *end, __u32 len, __u8 *ecn)
{
	const struct tcp_header *tcp = (const void *)ip + 20;

	// A UDP header is not longer than the first part of a TCP header.
	if ((const void *)ip + 28 > end || ip->version_and_length != 0x45 || ip->fragment & bpf_htons(0x3fff) ||
	    bpf_ntohs(ip->total_length) != len || !checksum_holds(ip) ||
	    !holds_v4(redirect_config.vips_v4, redirect_config.vip_v4_count, ip->destination) ||
	    !may_send_v4(ip->source))
		return LEFT_INNER;
	if (is_unfinished_v4(ip, len, end))
		return LEFT_INNER_UNFINISHED;
	*ecn = ip->traffic_class & 3;
	if (ecn_says_more(outer, *ecn))
		return LEFT_OUTER;
	if (ip->protocol == PROTOCOL_UDP)
		return judge_udp(&tcp->ports);
	if (ip->protocol != PROTOCOL_TCP || (const void *)(tcp + 1) > end)
		return LEFT_INNER;
	return judge_tcp_v4(ctx, ip, tcp);
}

static __always_inline enum fate judge_tcp_v6(struct xdp_md *ctx, const struct ipv6_header *ip,
					      const struct tcp_header *tcp)
{
	__u64 key[2] = { redirect_config.syn_key[0], redirect_config.syn_key[1] };
	__u32 ports = tcp->ports.source | (__u32)tcp->ports.destination << 16;
	struct tuple_v6 tuple;

	__builtin_memcpy(tuple.source, ip->source, 16);
	__builtin_memcpy(tuple.destination, ip->destination, 16);
	tuple.source_port = tcp->ports.source;
	tuple.destination_port = tcp->ports.destination;
	return judge_tcp(ctx, &tuple, sizeof(tuple), hash_v6(key, ALL_FIELDS, ip->source, ip->destination, ports), tcp);
}

static __always_inline enum fate judge_v6(struct xdp_md *ctx, const struct outer *outer, const struct ipv6_header *ip,
					  const void *end, __u32 len, __u8 *ecn)
{
	const struct tcp_header *tcp = (const void *)(ip + 1);

	if ((const void *)(ip + 1) + 8 > end || (ip->first & 0xf0) != 0x60 ||
	    40 + bpf_ntohs(ip->payload_length) != len || !is_vip_v6(ip->destination) || !may_send_v6(ip->source))
		return LEFT_INNER;
	if (is_unfinished_v6(ip, end))
		return LEFT_INNER_UNFINISHED;
	*ecn = ip->first >> 12 & 3;
	if (ecn_says_more(outer, *ecn))
		return LEFT_OUTER;
	if (ip->next_header == PROTOCOL_UDP)
		return judge_udp(&tcp->ports);
	if (ip->next_header != PROTOCOL_TCP || (const void *)(tcp + 1) > end)
		return LEFT_INNER;
	return judge_tcp_v6(ctx, ip, tcp);
}

// Returns FATES if the program handles the outer headers and the packet is for this host and from an allowed
// sender.
static __always_inline enum fate read_outer(const struct outer *outer, __u32 frame_len)
{
	const struct ipv4_header *ip = (const void *)outer->ip;
	const struct gue_header *gue = &outer->gue;

	if (outer->link.type != bpf_htons(TYPE_IPV4) || ip->version_and_length != 0x45 ||
	    ip->protocol != PROTOCOL_UDP || outer->udp.destination != redirect_config.port || !is_own(ip->destination))
		return LEFT_NOT_OURS;
	if (ip->fragment & bpf_htons(0x3fff) || bpf_ntohs(ip->total_length) + 14u != frame_len ||
	    bpf_ntohs(outer->udp.length) + 34u != frame_len || outer->udp.checksum || !checksum_holds(ip))
		return LEFT_OUTER;
	for (int i = 0; i < 6; i++) {
		if (outer->link.addresses[i] != redirect_config.mac[i])
			return LEFT_OUTER;
	}
	if (gue->next_hop ? !holds_v4(redirect_config.backends, redirect_config.backend_count, ip->source) :
			    !holds_v4(redirect_config.directors, redirect_config.director_count, ip->source))
		return LEFT_SENDER;
	if (gue->length != 1 + gue->hop_count || gue->flags || gue->private_type ||
	    gue->hop_count > redirect_config.max_hops || gue->next_hop > gue->hop_count ||
	    (gue->protocol != PROTOCOL_IPV4 && gue->protocol != PROTOCOL_IPV6))
		return LEFT_GUE;
	return FATES;
}

SEC("xdp")
int redirect(struct xdp_md *ctx)
{
	struct outer *outer = frame_start(ctx);
	void *end = frame_end(ctx);
	__u8 ecn = 0;

	if ((void *)(outer + 1) > end)
		return count(LEFT_NOT_OURS, XDP_PASS);
	__u32 frame_len = end - (void *)outer;
	enum fate fate = read_outer(outer, frame_len);
	if (fate != FATES)
		return count(fate, XDP_PASS);
	__u32 strip = sizeof(*outer) - sizeof(outer->link) + 4 * (outer->gue.hop_count & 31);
	void *inner = (void *)outer + sizeof(outer->link) + strip;
	__u32 len = frame_len - sizeof(outer->link) - strip;
	if (outer->gue.protocol == PROTOCOL_IPV4)
		fate = judge_v4(ctx, outer, inner, end, len, &ecn);
	else
		fate = judge_v6(ctx, outer, inner, end, len, &ecn);
	if (fate > FORWARDED)
		return count(fate, XDP_PASS);
	if (fate != FORWARDED)
		return keep(ctx, fate, strip, outer);
	if (outer->gue.next_hop == outer->gue.hop_count)
		return keep(ctx, KEPT_LAST_HOP, strip, outer);
	__be32 *next = (void *)(outer + 1) + 4 * (outer->gue.next_hop & 31);
	if ((void *)(next + 1) > end)
		return count(LEFT_GUE, XDP_PASS);
	// A host may be listed twice; the host after the repetition may know the connection. An own address outside
	// of `backends` is rejected as a hop, which user space does and counts.
	if (is_own(*next)) {
		if (outer->gue.next_hop + 1 < outer->gue.hop_count ||
		    !holds_v4(redirect_config.backends, redirect_config.backend_count, *next))
			return count(LEFT_UNRESOLVED, XDP_PASS);
		return keep(ctx, KEPT_OWN_HOP, strip, outer);
	}
	return forward(ctx, outer, *next, ecn);
}

const char LICENSE[] SEC("license") = "Dual MIT/GPL";
