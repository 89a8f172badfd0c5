// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Addresses that no client can have; `pipeline::source` is the list, with its reasons. Both programs use it.
#pragma once
#include "bpf.h"

// 1.0.0.0 to 223.255.255.255, except 127.0.0.0/8. In the byte order of this machine.
static __always_inline int is_client_v4(__u32 address)
{
	__u32 first = address >> 24;

	return first - 1 < 223 && first != 127;
}

// Neither `::` nor `::1`, nor a mapped IPv4 address, nor a group. Halves in the byte order of this machine.
static __always_inline int is_client_v6(__u64 high, __u64 low)
{
	return high >> 56 != 0xff && (high || (low > 1 && low >> 32 != 0xffff));
}
