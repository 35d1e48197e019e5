/*
 * select.cuh: the best of many entries, a key and an index each, by a warp or a block. The highest key is best,
 * and of equal keys the lower index. All entries differ, so results do not depend on the order in which threads
 * come.
 *
 * Entries are sorted by bitonic networks (K. E. Batcher, 1968), in the registers of a warp or in shared memory.
 */
#ifndef KOPS_KERNELS_TOP_K_SELECT_H
#define KOPS_KERNELS_TOP_K_SELECT_H

#include <stdint.h>

namespace
{

constexpr unsigned SELECT_LANES = 32;

/* An entry with a key of 32 bits is one word: the key, then the complement of the index. */
struct wide_entry {
	uint64_t key;
	uint64_t rest; /* the complement of the index */
};

__device__ __forceinline__ bool operator>(const wide_entry &a, const wide_entry &b)
{
	return a.key > b.key || (a.key == b.key && a.rest > b.rest);
}

template <typename KEY> struct entry_of {
	typedef uint64_t type;
};
template <> struct entry_of<uint64_t> {
	typedef wide_entry type;
};
template <typename KEY> using entry = typename entry_of<KEY>::type;

__device__ __forceinline__ uint64_t make_entry(uint32_t key, uint32_t index)
{
	return (uint64_t)key << 32 | (uint32_t)~index;
}

__device__ __forceinline__ wide_entry make_entry(uint64_t key, uint32_t index)
{
	return {key, (uint32_t)~index};
}

__device__ __forceinline__ uint32_t entry_key(uint64_t e)
{
	return (uint32_t)(e >> 32);
}

__device__ __forceinline__ uint64_t entry_key(const wide_entry &e)
{
	return e.key;
}

__device__ __forceinline__ uint32_t entry_index(uint64_t e)
{
	return ~(uint32_t)e;
}

__device__ __forceinline__ uint32_t entry_index(const wide_entry &e)
{
	return ~(uint32_t)e.rest;
}

/* Below every entry that was made of a key above 0. */
template <class E> __device__ __forceinline__ E no_entry()
{
	return E{};
}

/* The one before it: what is at least e is above. */
__device__ __forceinline__ uint64_t entry_before(uint64_t e)
{
	return e ? e - 1 : 0;
}

__device__ __forceinline__ wide_entry entry_before(const wide_entry &e)
{
	if (e.rest > 0)
		return {e.key, e.rest - 1};
	return e.key > 0 ? wide_entry{e.key - 1, UINT64_MAX} : e;
}

template <class E> __device__ __forceinline__ E better(const E &a, const E &b)
{
	return a > b ? a : b;
}

/* ---- By a warp: an entry in each lane ---- */

__device__ __forceinline__ uint64_t from_lane(uint64_t e, unsigned lane)
{
	return __shfl_sync(0xffffffff, e, (int)lane);
}

__device__ __forceinline__ wide_entry from_lane(const wide_entry &e, unsigned lane)
{
	return {from_lane(e.key, lane), from_lane(e.rest, lane)};
}

/* Leaves the better of two lanes' entries in the one where `first`. */
template <class E> __device__ __forceinline__ E compare_lanes(const E &e, unsigned step, bool first)
{
	E other = from_lane(e, (threadIdx.x % SELECT_LANES) ^ step);

	return (other > e) == first ? other : e;
}

/* Sorts entries that rise, then fall, or the other way round: the best in the first lane. */
template <class E> __device__ __forceinline__ E merge_lanes(E e)
{
#pragma unroll
	for (unsigned step = SELECT_LANES / 2; step > 0; step /= 2)
		e = compare_lanes(e, step, (threadIdx.x & step) == 0);
	return e;
}

template <class E> __device__ __forceinline__ E sort_lanes(E e)
{
#pragma unroll
	for (unsigned size = 2; size < SELECT_LANES; size *= 2)
#pragma unroll
		for (unsigned step = size / 2; step > 0; step /= 2)
			e = compare_lanes(e, step, ((threadIdx.x & step) == 0) == ((threadIdx.x & size) == 0));
	return merge_lanes(e);
}

/* The best of two sorted sets, sorted. */
template <class E> __device__ __forceinline__ E join_lanes_of(const E &a, const E &b)
{
	return merge_lanes(better(a, from_lane(b, SELECT_LANES - 1 - threadIdx.x % SELECT_LANES)));
}

/* ---- By a block of GROUP threads, or a warp: N entries in shared memory ---- */

template <unsigned GROUP> __device__ __forceinline__ void meet()
{
	if constexpr (GROUP == SELECT_LANES)
		__syncwarp();
	else
		__syncthreads();
}

/* Ends with all threads through. */
template <unsigned GROUP, unsigned N, class E>
__device__ __forceinline__ void compare_shared(E *list, unsigned size, unsigned step)
{
	for (unsigned i = threadIdx.x % GROUP; i < N / 2; i += GROUP) {
		unsigned low = 2 * i - (i & (step - 1)), high = low + step;
		E a = list[low], b = list[high];

		if ((b > a) == ((low & size) == 0)) {
			list[low] = b;
			list[high] = a;
		}
	}
	meet<GROUP>();
}

/* Begins with a barrier. */
template <unsigned GROUP, unsigned N, class E> __device__ __noinline__ void sort_shared(E *list)
{
	meet<GROUP>();
	for (unsigned size = 2; size <= N; size *= 2)
		for (unsigned step = size / 2; step > 0; step /= 2)
			compare_shared<GROUP, N>(list, size, step);
}

/* Leaves the best of two sorted lists in the first one, sorted. */
template <unsigned GROUP, unsigned N, class E> __device__ __noinline__ void join_shared(E *list, const E *other)
{
	meet<GROUP>();
	for (unsigned i = threadIdx.x % GROUP; i < N; i += GROUP)
		list[i] = better(list[i], other[N - 1 - i]);
	meet<GROUP>();
	for (unsigned step = N / 2; step > 0; step /= 2)
		compare_shared<GROUP, N>(list, 2 * N, step);
}

} // namespace

#endif
