/* descriptor.cuh: how wgmma is told where a matrix lies in shared memory. */
#ifndef KOPS_KERNELS_HOPPER_DESCRIPTOR_H
#define KOPS_KERNELS_HOPPER_DESCRIPTOR_H

#include <stdint.h>

namespace hopper
{

/*
 * matrix_at: a matrix in shared memory with K along lines of LINE bytes whose 16-byte pieces are exchanged by
 * the swizzle of that name: piece i of line r stands at i ^ r % 8 where LINE is 128, at i ^ r / 2 % 4 where it
 * is 64. 8 lines are one unit, aligned to its size. 16 of K further is 32 bytes further.
 */
template <int LINE> __device__ __forceinline__ uint64_t matrix_at(uint32_t address)
{
	static_assert(LINE == 128 || LINE == 64);
	return (uint64_t)(address >> 4 & 0x3fff) | (uint64_t)1 << 16 | (uint64_t)(8 * LINE >> 4) << 32 |
	       (uint64_t)(LINE == 128 ? 1 : 2) << 62;
}

/* Of 8 lines only, which are all rows or columns again and again. */
template <int LINE> __device__ __forceinline__ uint64_t repeated_matrix_at(uint32_t address)
{
	return matrix_at<LINE>(address) & ~((uint64_t)0x3fff << 32);
}

/*
 * The same of 16-bit numbers with K across lines of 128 bytes: 64 rows or columns in a line, 8 lines of K in a
 * unit, units that follow each other along K, and `apart` bytes to the next 64 rows or columns. 16 of K further
 * is 2048 bytes further.
 */
__device__ __forceinline__ uint64_t matrix_across_at(uint32_t address, unsigned apart)
{
	return (uint64_t)(address >> 4 & 0x3fff) | (uint64_t)(apart >> 4) << 16 | (uint64_t)(1024 >> 4) << 32 |
	       (uint64_t)1 << 62;
}

} // namespace hopper

#endif
