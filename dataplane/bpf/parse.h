// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Parses the packets that the programs handle: at most one VLAN tag, IPv4 without options or fragments, IPv6
// without extension headers, TCP or UDP with its ports.
#pragma once
#include "abi.h"

enum ethertype {
	TYPE_IPV4 = 0x0800,
	TYPE_VLAN = 0x8100,
	TYPE_IPV6 = 0x86dd,
	TYPE_SERVICE_VLAN = 0x88a8,
	TYPE_OLD_QINQ = 0x9100,
};

enum protocol {
	PROTOCOL_IPV4 = 4,
	PROTOCOL_TCP = 6,
	PROTOCOL_UDP = 17,
	PROTOCOL_IPV6 = 41,
};

// Offset of the checksum in the transport header, in octets.
enum {
	UDP_CHECKSUM = 6,
	TCP_CHECKSUM = 16,
};

// Not packed, because clang reads a packed field octet by octet. The kernel reads unaligned words on all
// machines in use.
struct link_header {
	__u8 addresses[12];
	__be16 type;
};

struct tag {
	__be16 control;
	__be16 type;
};

struct ports {
	__be16 source;
	__be16 destination;
};

struct ipv4_header {
	__u8 version_and_length;
	__u8 traffic_class;
	__be16 total_length;
	__be16 identification;
	__be16 fragment;
	__u8 ttl;
	__u8 protocol;
	__u16 checksum;
	__be32 source;
	__be32 destination;
	struct ports ports;
};
_Static_assert(sizeof(struct ipv4_header) == 24, "IPv4 header and ports");

struct ipv6_header {
	__be32 first;
	__be16 payload_length;
	__u8 next_header;
	__u8 hop_limit;
	__u64 source[2];
	__u64 destination[2];
};
_Static_assert(sizeof(struct ipv6_header) == 40, "IPv6 header");

// A parsed packet. Lengths are in octets.
struct packet {
	__u32 link_len;
	// Header and payload of the client's packet, without padding.
	__u32 len;
	// Octets after the packet.
	__u32 padding;
	__u32 ports;
	__u16 source_port;
	__u16 destination_port;
	__u8 version;
	__u8 protocol;
	__u8 ecn;
};

static __always_inline int is_tag(__be16 type)
{
	return type == bpf_htons(TYPE_VLAN) || type == bpf_htons(TYPE_SERVICE_VLAN) ||
	       type == bpf_htons(TYPE_OLD_QINQ);
}

static __always_inline int is_bound(__u8 protocol)
{
	__u32 compared = unnarrowed(protocol, 0xff);
	return compared == PROTOCOL_TCP || compared == PROTOCOL_UDP;
}

static __always_inline void read_ports(const struct ports *ports, struct packet *packet)
{
	packet->source_port = bpf_ntohs(ports->source);
	packet->destination_port = bpf_ntohs(ports->destination);
	packet->ports = ports->source | (__u32)ports->destination << 16;
}

// Folds a sum of 32-bit words to 16 bits.
static __always_inline __u16 fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return (sum & 0xffff) + (sum >> 16);
}

// The one's complement sum over a right header is 0xffff (RFC 1071), in either byte order.
static __always_inline int checksum_holds(const struct ipv4_header *ip)
{
	const __u32 *words = (const void *)ip;

	return fold((__u64)words[0] + words[1] + words[2] + words[3] + words[4]) == 0xffff;
}

// The transport checksum in the packet's byte order. Zero if the frame ends before it; zero never counts as
// unfinished.
static __always_inline __u16 transport_checksum(const void *transport, __u8 protocol, const void *end)
{
	const __u16 *field = transport + (protocol == PROTOCOL_UDP ? UDP_CHECKSUM : TCP_CHECKSUM);

	return (const void *)(field + 1) > end ? 0 : *field;
}

// Whether the sender left the transport checksum to hardware (CHECKSUM_PARTIAL): the field then contains the
// sum of the pseudo header, which is never 0. A finished checksum is equal by chance once in 65,536 packets.
// The outer packet has no such mark, or loses it on the way, so nothing would finish the checksum after
// encapsulation.
static __always_inline int is_unfinished_v4(const struct ipv4_header *ip, __u32 len, const void *end)
{
	__u64 sum = (__u64)ip->source + ip->destination + bpf_htons(ip->protocol) + bpf_htons(len - 20);

	return transport_checksum(&ip->ports, ip->protocol, end) == fold(sum);
}

static __always_inline int is_unfinished_v6(const struct ipv6_header *ip, const void *end)
{
	const __u32 *words = (const void *)ip->source;
	__u64 sum = (__u64)ip->payload_length + bpf_htons(ip->next_header);

#pragma unroll
	for (int i = 0; i < 8; i++)
		sum += words[i];
	return transport_checksum(ip + 1, ip->next_header, end) == fold(sum);
}

// Parses a packet. Returns LEFT_REASONS if the program handles it, else the reason to punt it.
static __always_inline enum left read_v4(const struct ipv4_header *ip, const void *end, struct packet *packet)
{
	const __u32 shortest = sizeof(*ip);

	if ((const void *)(ip + 1) > end)
		return LEFT_SHORT;
	if (ip->version_and_length != 0x45)
		return LEFT_IP_HEADER;
	if (ip->fragment & bpf_htons(0x3fff))
		return LEFT_FRAGMENT;
	if (!is_bound(ip->protocol))
		return LEFT_PROTOCOL;
	packet->len = bpf_ntohs(ip->total_length);
	__u32 there = end - (const void *)ip;
	if (packet->len < shortest || packet->len > there)
		return LEFT_TRUNCATED;
	packet->padding = there - packet->len;
	packet->version = PROTOCOL_IPV4;
	packet->protocol = ip->protocol;
	packet->ecn = ip->traffic_class & 3;
	read_ports(&ip->ports, packet);
	return LEFT_REASONS;
}

static __always_inline enum left read_v6(const struct ipv6_header *ip, const void *end, struct packet *packet)
{
	const struct ports *ports = (const void *)(ip + 1);

	if ((const void *)(ports + 1) > end)
		return LEFT_SHORT;
	if ((ip->first & 0xf0) != 0x60)
		return LEFT_IP_HEADER;
	if (!is_bound(ip->next_header))
		return LEFT_PROTOCOL;
	packet->len = sizeof(*ip) + bpf_ntohs(ip->payload_length);
	__u32 there = end - (const void *)ip;
	if (packet->len < sizeof(*ip) + sizeof(*ports) || packet->len > there)
		return LEFT_TRUNCATED;
	packet->padding = there - packet->len;
	packet->version = PROTOCOL_IPV6;
	packet->protocol = ip->next_header;
	packet->ecn = ip->first >> 12 & 3;
	read_ports(ports, packet);
	return LEFT_REASONS;
}
