/* hash.h: a hash of words, for tables of shapes. */
#ifndef KOPS_KERNELS_HASH_H
#define KOPS_KERNELS_HASH_H

#include <stdint.h>

static inline uint64_t hash_word(uint64_t hash, uint64_t word)
{
	hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
	return hash ^ hash >> 32;
}

#endif
