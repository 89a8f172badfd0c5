// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Programs for both ends of a cable on which another program is measured. Frames are created where they are
// sent, and counted and dropped where they return, so that neither end is slower than the program in between.
// Also the minimal program that can be in between.
#include "bpf.h"

enum place {
	SWAPPED = 0,
	TAKEN = 1,
	PLACES = 2,
};

// The frame that is sent repeatedly, and the interface that sends it. A TCP packet over IPv4 without tags;
// its source port distinguishes flows.
struct flood {
	__u64 head[8];
	__u32 ifindex;
	__u32 flows;
};
_Static_assert(sizeof(struct flood) == 72, "flood");

const volatile struct flood flood = {};
volatile __u32 rounds = 0;

struct map SEC("maps") counted = { MAP_PER_CPU_ARRAY, 4, sizeof(__u64), PLACES, 0 };

static __always_inline void count(__u32 at)
{
	__u64 *frames = map_lookup(&counted, &at);

	if (frames)
		*frames += 1;
}

// The kernel reuses the memory of returned frames with their contents.
SEC("xdp")
int sent(struct xdp_md *ctx)
{
	__u64 *to = frame_start(ctx);

	if ((void *)(to + 8) > frame_end(ctx))
		return XDP_ABORTED;
#pragma unroll
	for (int i = 0; i < 8; i++)
		to[i] = flood.head[i];
	((__be16 *)to)[17] = bpf_htons(1024 + (rounds++ & (flood.flows - 1)));
	return redirect_to(flood.ifindex, 0);
}

SEC("xdp")
int swapped(struct xdp_md *ctx)
{
	__u16 *to = frame_start(ctx);

	if ((void *)(to + 7) > frame_end(ctx))
		return XDP_ABORTED;
#pragma unroll
	for (int i = 0; i < 3; i++) {
		__u16 octets = to[i];
		to[i] = to[i + 3];
		to[i + 3] = octets;
	}
	count(SWAPPED);
	return XDP_TX;
}

SEC("xdp")
int taken(struct xdp_md *ctx __attribute__((unused)))
{
	count(TAKEN);
	return XDP_DROP;
}

const char LICENSE[] SEC("license") = "Dual MIT/GPL";
