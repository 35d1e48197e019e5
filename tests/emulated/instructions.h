/* instructions.h: emulates kernels/common/hopper/ and kernels/common/overlap.cuh; see there. */
#ifndef KOPS_EMULATED_INSTRUCTIONS_H
#define KOPS_EMULATED_INSTRUCTIONS_H

/* So that these are not included any more. */
#define KOPS_KERNELS_HOPPER_ASYNC_COPY_H
#define KOPS_KERNELS_HOPPER_BARRIER_H
#define KOPS_KERNELS_HOPPER_CLUSTER_H
#define KOPS_KERNELS_HOPPER_COMPARE_H
#define KOPS_KERNELS_HOPPER_GLOBAL_H
#define KOPS_KERNELS_HOPPER_MMA_H
#define KOPS_KERNELS_HOPPER_SHARED_H
#define KOPS_KERNELS_HOPPER_TMA_H
#define KOPS_KERNELS_HOPPER_WGMMA_H
#define KOPS_KERNELS_OVERLAP_H
#define KOPS_HOPPER 1

#include "device.h"

#include "common/hopper/descriptor.cuh"
#include "product.h"

namespace
{

/* Does nothing: successive kernels do not overlap. */
inline void let_next_kernel_come()
{
}

inline void await_kernel_before()
{
}

} // namespace

namespace hopper
{

using emulator::shared_address;

/* ---- Words in global memory ---- */

struct alignas(16) words {
	uint64_t first, second;
};

inline void store_relaxed(words *to, const words &w)
{
	emulator::happen_later([=] { *to = w; });
}

inline words load_relaxed(const words *from)
{
	emulator::hesitate();
	return *from;
}

inline void add_to_global(float4 *to, float4 x)
{
	to->x += x.x, to->y += x.y, to->z += x.z, to->w += x.w;
}

inline float4 load_global(const float4 *from)
{
	return *from;
}

inline uint4 load_once(const uint4 *from)
{
	if ((uintptr_t)from % 16 != 0)
		emulator::fail("16 bytes are loaded from %p", (const void *)from);
	return *from;
}

/* Return NaN if one is. */
template <typename F> F larger(F a, F b)
{
	return a > b || a != a ? a : b;
}

template <typename F> F smaller(F a, F b)
{
	return a < b || a != a ? a : b;
}

/* ---- Barriers ---- */

inline void barrier_init(uint32_t barrier, unsigned count)
{
	auto &all = emulator::self->block->mbarriers;

	if (barrier % 8 != 0 || !all.insert({barrier, {count, count, 0, 0, {}}}).second)
		emulator::fail("the barrier is initialised twice, or not aligned to 8 bytes");
}

inline void barriers_ready()
{
}

inline void barrier_expect(uint32_t barrier, unsigned bytes)
{
	emulator::mbarrier_arrive(*emulator::self->block, barrier, bytes);
}

inline void barrier_arrive(uint32_t barrier)
{
	emulator::mbarrier_arrive(*emulator::self->block, barrier, 0);
}

/* Returns a block of this cluster. */
inline emulator::block &block_at(unsigned rank)
{
	auto &blocks = emulator::self->block->team->blocks;

	if (rank >= blocks.size())
		emulator::fail("there is no block %u in the cluster", rank);
	return blocks[rank];
}

inline void barrier_arrive(uint32_t barrier, unsigned block)
{
	emulator::mbarrier_arrive(block_at(block), barrier, 0);
}

inline void barrier_arrive_copied(uint32_t barrier)
{
	emulator::mbarrier_arrive_copied(barrier);
}

inline void barrier_wait(uint32_t barrier, unsigned parity)
{
	emulator::mbarrier_wait(barrier, parity);
}

/* ---- Copies ---- */

inline void copy_element(uint32_t to, const float *from, bool there)
{
	emulator::copy_element((float *)emulator::shared_at(*emulator::self->block, to, sizeof *from), from,
	                       there ? sizeof *from : 0);
}

inline void copy_piece(uint32_t to, const void *from, int there)
{
	float *elements = (float *)emulator::shared_at(*emulator::self->block, to, 16);

	if (to % 16 != 0 || (uintptr_t)from % 16 != 0 || there < 0 || there > 16)
		emulator::fail("a copy of %d bytes that is not aligned to 16", there);
	for (int i = 0; i < 4; i++)
		emulator::copy_element(elements + i, (const float *)from + i,
		                       there < i * 4       ? 0
		                       : there > i * 4 + 4 ? 4
		                                           : (unsigned)(there - i * 4));
}

inline void copy_bulk_in(emulator::block &b, uint32_t to, const void *from, unsigned bytes, uint32_t barrier)
{
	if (to % 16 != 0 || (uintptr_t)from % 16 != 0 || bytes % 16 != 0 || bytes == 0)
		emulator::fail("a bulk copy of %u bytes that is not aligned to 16", bytes);
	emulator::copy_in(b, to, bytes, barrier, [=](emulator::block &there) {
		memcpy(emulator::shared_at(there, to, bytes), from, bytes);
	});
}

inline void copy_bulk(uint32_t to, const void *from, unsigned bytes, uint32_t barrier)
{
	copy_bulk_in(*emulator::self->block, to, from, bytes, barrier);
}

inline void copy_bulk_to(uint16_t blocks, uint32_t to, const void *from, unsigned bytes, uint32_t barrier)
{
	for (unsigned rank = 0; blocks >> rank; rank++)
		if (blocks >> rank & 1)
			copy_bulk_in(block_at(rank), to, from, bytes, barrier);
}

inline void prefetch_map(const void *)
{
}

/* tensor_map.cc */
struct box_place {
	int x, y, z, w;
};
void copy_box_in(emulator::block &b, uint32_t to, const void *map, const box_place &at, uint32_t barrier);
void store_box_at(const void *map, const box_place &at, uint32_t from);

inline void copy_box(uint32_t to, const void *map, int x, int y, int z, uint32_t barrier)
{
	copy_box_in(*emulator::self->block, to, map, {x, y, z, 0}, barrier);
}

inline void copy_box(uint32_t to, const void *map, int x, int y, int z, int w, uint32_t barrier)
{
	copy_box_in(*emulator::self->block, to, map, {x, y, z, w}, barrier);
}

inline void store_box(const void *map, int x, int y, int z, uint32_t from)
{
	store_box_at(map, {x, y, z, 0}, from);
}

inline void store_box(const void *map, int x, int y, int z, int w, uint32_t from)
{
	store_box_at(map, {x, y, z, w}, from);
}

inline void copy_box_to(uint16_t blocks, uint32_t to, const void *map, int x, int y, int z, uint32_t barrier)
{
	for (unsigned rank = 0; blocks >> rank; rank++)
		if (blocks >> rank & 1)
			copy_box_in(block_at(rank), to, map, {x, y, z, 0}, barrier);
}

inline void stores_commit()
{
	emulator::commit_copies_out();
}

template <int LEFT> void stores_await_read()
{
	emulator::await_copies_out(LEFT);
}

inline void show_to_engines()
{
}

/* ---- Shared memory ---- */

template <class T> T *shared_as(emulator::block &b, uint32_t address, unsigned n)
{
	if (address % (n * sizeof(T)) != 0)
		emulator::fail("an access to shared memory that is not aligned");
	return (T *)emulator::shared_at(b, address, n * sizeof(T));
}

inline void store_shared(uint32_t address, float value)
{
	*shared_as<float>(*emulator::self->block, address, 1) = value;
}

inline void store_pair(uint32_t address, float x, float y)
{
	float *pair = shared_as<float>(*emulator::self->block, address, 2);

	pair[0] = x;
	pair[1] = y;
}

inline float load_shared(uint32_t address)
{
	return *shared_as<float>(*emulator::self->block, address, 1);
}

inline float4 load_shared_quad(uint32_t address)
{
	return *shared_as<float4>(*emulator::self->block, address, 1);
}

inline void store_shared_quad(uint32_t address, float4 v)
{
	*shared_as<float4>(*emulator::self->block, address, 1) = v;
}

inline void store_matrices(uint32_t row, const uint32_t (&pairs)[4])
{
	unsigned lane = threadIdx.x % emulator::WARP;

	for (unsigned i = 0; i < 4; i++) {
		uint32_t line = __shfl_sync(~0u, row, (int)(i * 8 + lane / 4));
		if (line % 16 != 0)
			emulator::fail("a row of a matrix that is not aligned to 16 bytes");
		*shared_as<uint32_t>(*emulator::self->block, line + lane % 4 * 4, 1) = pairs[i];
	}
}

template <bool ACROSS> void load_matrices(uint32_t (&pairs)[4], uint32_t row)
{
	unsigned lane = threadIdx.x % emulator::WARP;
	uint16_t numbers[2];

	for (unsigned i = 0; i < 4; i++) {
		for (unsigned odd = 0; odd < 2; odd++) {
			unsigned r = lane / 4, c = lane % 4 * 2 + odd;
			uint32_t line = __shfl_sync(~0u, row, (int)(i * 8 + (ACROSS ? c : r)));
			if (line % 16 != 0)
				emulator::fail("a row of a matrix that is not aligned to 16 bytes");
			numbers[odd] =
			    *shared_as<uint16_t>(*emulator::self->block, line + (ACROSS ? r : c) * 2, 1);
		}
		memcpy(&pairs[i], numbers, sizeof numbers);
	}
}

/* ---- Clusters, warpgroups ---- */

inline unsigned cluster_rank()
{
	return emulator::self->block->rank;
}

inline void cluster_sync()
{
	emulator::meet_team();
}

inline void cluster_meet()
{
	emulator::meet_team();
}

template <int THREADS> void threads_sync(int barrier)
{
	if (barrier < 1 || barrier > 15)
		emulator::fail("there is no barrier %d", barrier);
	emulator::meet(emulator::self->block->met[barrier], THREADS, "the threads of a named barrier");
}

template <int THREADS> void threads_arrive(int barrier)
{
	if (barrier < 1 || barrier > 15)
		emulator::fail("there is no barrier %d", barrier);
	emulator::arrive(emulator::self->block->met[barrier], THREADS);
}

constexpr unsigned RANK_SHIFT = 24; /* within the address of another block's memory */

inline uint32_t address_in(unsigned block, uint32_t address)
{
	return block << RANK_SHIFT | address;
}

template <class T> void store_there(uint32_t address, T value)
{
	*shared_as<T>(block_at(address >> RANK_SHIFT), address & ((1u << RANK_SHIFT) - 1), 1) = value;
}

template <int N> void fewer_registers()
{
}

template <int N> void more_registers()
{
}

} // namespace hopper

#endif
