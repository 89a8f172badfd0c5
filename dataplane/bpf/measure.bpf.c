// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Measures the cost of a program. Repeated test runs of the kernel do not restore the frame, so a program
// that grows it would see its own output. `measure` restores the frame and calls the program under test. The
// cost of that is known from `grown` and `left`, which change the same number of octets and decide nothing.
#include "parse.h"

// The frame that is restored.
struct original {
	__u32 len;
	// Whether each round has another client address, for IPv4 or IPv6 packets without tags.
	__u32 change_source;
	// Number of octets by which `grown` grows the frame.
	__s32 growth;
	// Whether the first 64 octets are restored instead of the link header only.
	__u32 restore_all;
	__u64 head[8];
	// The flow that `looked_up` looks up in the kernel.
	struct tuple_v4 tuple;
};

const volatile struct original original = {};
volatile __u64 rounds = 0;

struct map SEC("maps") programs = { MAP_PROGRAMS, 4, 4, 1, 0 };

// A right checksum stays right: the sum decreases by what the address increases (RFC 1624).
static __always_inline int change_source(void *ip, void *end, __be16 type)
{
	__u32 number = (__u32)(rounds++ * 0x9e3779b97f4a7c15 >> 32);

	if (type == bpf_htons(TYPE_IPV6)) {
		struct ipv6_header *v6 = ip;
		if ((void *)(v6 + 1) > end)
			return 0;
		v6->source[1] = number;
		return 1;
	}
	struct ipv4_header *v4 = ip;
	if ((void *)(v4 + 1) > end)
		return 0;
	__u32 sum = (__u16)~v4->checksum;
	sum += (__u16)~v4->source + (__u16)~(v4->source >> 16) + (number & 0xffff) + (number >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	v4->checksum = ~sum;
	v4->source = number;
	return 1;
}

SEC("xdp")
int measure(struct xdp_md *ctx)
{
	__u32 len = frame_end(ctx) - frame_start(ctx);

	if (len != original.len && adjust_head(ctx, len - original.len))
		return XDP_ABORTED;
	__u64 *to = frame_start(ctx);
	if ((void *)(to + 2) > frame_end(ctx))
		return XDP_ABORTED;
	to[0] = original.head[0];
	((__u32 *)to)[2] = original.head[1];
	((__u16 *)to)[6] = original.head[1] >> 32;
	if (original.restore_all) {
		if ((void *)(to + 8) > frame_end(ctx))
			return XDP_ABORTED;
#pragma unroll
		for (int i = 1; i < 8; i++)
			to[i] = original.head[i];
	}
	if (original.change_source && !change_source((void *)to + 14, frame_end(ctx), ((__u16 *)to)[6]))
		return XDP_ABORTED;
	tail_call(ctx, &programs, 0);
	return XDP_ABORTED;
}

SEC("xdp")
int grown(struct xdp_md *ctx)
{
	// Negative: the frame shrinks.
	return adjust_head(ctx, -(int)original.growth) ? XDP_ABORTED : XDP_TX;
}

SEC("xdp")
int left(struct xdp_md *ctx __attribute__((unused)))
{
	return XDP_PASS;
}

// Only the socket look-up, which `redirect` needs in any case.
SEC("xdp")
int looked_up(struct xdp_md *ctx)
{
	struct tuple_v4 tuple = original.tuple;
	struct socket *socket = find_socket(ctx, &tuple, sizeof(tuple), THIS_NETNS, 0);

	if (!socket)
		return XDP_ABORTED;
	release_socket(socket);
	return XDP_PASS;
}

const char LICENSE[] SEC("license") = "Dual MIT/GPL";
