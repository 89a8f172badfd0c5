// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The kernel's interface for BPF programs: types, helpers by number and map definitions, as fixed by its
// stable interface (linux/bpf.h). Written here so that a clang without headers builds the programs.
#pragma once

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;

#define SEC(name) __attribute__((section(name), used))
#define __always_inline inline __attribute__((always_inline))
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

// A copy that the verifier treats as any value within `mask`. Comparisons narrow only the copy, so that
// states at the back edge of a loop stay equal and are pruned. In the worst case this leaves a fifth of the
// instructions to verify.
#define unnarrowed(value, mask)                                \
	({                                                     \
		__u32 copy_ = (value);                         \
		asm volatile("%0 &= " #mask : "+r"(copy_));    \
		copy_;                                         \
	})

// The objects are built for little-endian machines only.
#define bpf_htons(x) ((__be16)__builtin_bswap16(x))
#define bpf_ntohs(x) ((__u16)__builtin_bswap16(x))
#define bpf_ntohl(x) ((__u32)__builtin_bswap32(x))
#define bpf_be64(x) ((__u64)__builtin_bswap64(x))

enum xdp_action {
	XDP_ABORTED = 0,
	XDP_DROP = 1,
	XDP_PASS = 2,
	XDP_TX = 3,
};

struct xdp_md {
	__u32 data;
	__u32 data_end;
	__u32 data_meta;
	__u32 ingress_ifindex;
	__u32 rx_queue_index;
	__u32 egress_ifindex;
};

enum map_type {
	MAP_ARRAY = 2,
	MAP_PROGRAMS = 3,
	MAP_HASH = 1,
	MAP_PER_CPU_HASH = 5,
	MAP_PER_CPU_ARRAY = 6,
	MAP_PREFIXES = 11,
};

// The first fields of a socket that a program may read.
struct socket {
	__u32 bound_dev_if;
	__u32 family;
	__u32 type;
	__u32 protocol;
	__u32 mark;
	__u32 priority;
	__u32 src_ip4;
	__u32 src_ip6[4];
	__u32 src_port;
	__u32 dst_port;
	__u32 dst_ip4;
	__u32 dst_ip6[4];
	__u32 state;
	__s32 rx_queue_mapping;
};

enum { SOCKET_LISTENS = 10 };

// The ends of a flow, from the sender of a packet.
struct tuple_v4 {
	__be32 source;
	__be32 destination;
	__be16 source_port;
	__be16 destination_port;
};

struct tuple_v6 {
	__u32 source[4];
	__u32 destination[4];
	__be16 source_port;
	__be16 destination_port;
};

enum map_flags {
	// Entries are allocated individually, as the kernel requires for prefixes.
	MAP_NO_PREALLOC = 1 << 0,
	// User space maps the memory and fills it.
	MAP_MMAPABLE = 1 << 10,
};

struct map {
	__u32 type;
	__u32 key_size;
	__u32 value_size;
	__u32 max_entries;
	__u32 map_flags;
};

static void *(*const map_lookup)(const struct map *map, const void *key) = (void *)1;
static long (*const map_update)(const struct map *map, const void *key, const void *value, __u64 flags) = (void *)2;
static __u64 (*const monotonic_ns)(void) = (void *)5;
static long (*const tail_call)(struct xdp_md *ctx, const struct map *programs, __u32 index) = (void *)12;
static long (*const redirect_to)(__u32 ifindex, __u64 flags) = (void *)23;
static long (*const adjust_head)(struct xdp_md *ctx, int delta) = (void *)44;
static long (*const adjust_tail)(struct xdp_md *ctx, int delta) = (void *)65;
static long (*const release_socket)(struct socket *socket) = (void *)86;
static struct socket *(*const find_socket)(struct xdp_md *ctx, const void *tuple, __u32 size, __u64 netns,
					   __u64 flags) = (void *)99;

static const __u64 THIS_NETNS = (__u64)-1;

static __always_inline void *frame_start(const struct xdp_md *ctx)
{
	return (void *)(unsigned long)ctx->data;
}

static __always_inline void *frame_end(const struct xdp_md *ctx)
{
	return (void *)(unsigned long)ctx->data_end;
}
