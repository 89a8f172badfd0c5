// SPDX-License-Identifier: MIT OR GPL-2.0-only
// SipHash-2-4 (Aumasson and Bernstein, INDOCRYPT 2012) over the fields that a table hashes, in the order
// source address, destination address, source port, destination port.
#pragma once
#include "parse.h"

struct sip {
	__u64 v0, v1, v2, v3;
};

static __always_inline __u64 rotate(__u64 x, __u32 by)
{
	return x << by | x >> (64 - by);
}

static __always_inline void sip_round(struct sip *s)
{
	s->v0 += s->v1;
	s->v2 += s->v3;
	s->v1 = rotate(s->v1, 13) ^ s->v0;
	s->v3 = rotate(s->v3, 16) ^ s->v2;
	s->v0 = rotate(s->v0, 32);
	s->v2 += s->v1;
	s->v0 += s->v3;
	s->v1 = rotate(s->v1, 17) ^ s->v2;
	s->v3 = rotate(s->v3, 21) ^ s->v0;
	s->v2 = rotate(s->v2, 32);
}

static __always_inline void sip_start(struct sip *s, const __u64 key[2])
{
	s->v0 = key[0] ^ 0x736f6d6570736575;
	s->v1 = key[1] ^ 0x646f72616e646f6d;
	s->v2 = key[0] ^ 0x6c7967656e657261;
	s->v3 = key[1] ^ 0x7465646279746573;
}

static __always_inline void sip_word(struct sip *s, __u64 word)
{
	s->v3 ^= word;
	sip_round(s);
	sip_round(s);
	s->v0 ^= word;
}

static __always_inline __u64 sip_finish(struct sip *s)
{
	s->v2 ^= 0xff;
	sip_round(s);
	sip_round(s);
	sip_round(s);
	sip_round(s);
	return s->v0 ^ s->v1 ^ s->v2 ^ s->v3;
}

// The hashed ports as the low octets of a word, and their number of octets.
static __always_inline __u32 hashed_ports(__u32 ports, __u8 fields, __u32 *octets)
{
	switch (fields & (SRC_PORT | DST_PORT)) {
	case SRC_PORT:
		*octets = 2;
		return ports & 0xffff;
	case DST_PORT:
		*octets = 2;
		return ports >> 16;
	case SRC_PORT | DST_PORT:
		*octets = 4;
		return ports;
	}
	*octets = 0;
	return 0;
}

// Addresses of four octets: two addresses fill a word, as does one address with both ports; in other cases
// all fields are in the last word.
static __always_inline __u64 hash_v4(const __u64 key[2], __u8 fields, __be32 source, __be32 destination, __u32 ports)
{
	__u32 octets;
	__u64 last = hashed_ports(ports, fields, &octets);
	struct sip s;

	sip_start(&s, key);
	if ((fields & (SRC_ADDR | DST_ADDR)) == (SRC_ADDR | DST_ADDR)) {
		sip_word(&s, source | (__u64)destination << 32);
		octets += 8;
	} else if (fields & (SRC_ADDR | DST_ADDR)) {
		last = last << 32 | (fields & SRC_ADDR ? source : destination);
		octets += 4;
		if (octets == 8) {
			sip_word(&s, last);
			last = 0;
		}
	}
	sip_word(&s, last | (__u64)octets << 56);
	return sip_finish(&s);
}

// Addresses of sixteen octets: two words each.
static __always_inline __u64 hash_v6(const __u64 key[2], __u8 fields, const __u64 source[2], const __u64 destination[2],
				     __u32 ports)
{
	__u32 octets;
	__u64 last = hashed_ports(ports, fields, &octets);
	struct sip s;

	sip_start(&s, key);
	if (fields & SRC_ADDR) {
		sip_word(&s, source[0]);
		sip_word(&s, source[1]);
		octets += 16;
	}
	if (fields & DST_ADDR) {
		sip_word(&s, destination[0]);
		sip_word(&s, destination[1]);
		octets += 16;
	}
	sip_word(&s, last | (__u64)octets << 56);
	return sip_finish(&s);
}
