/* tma.cuh: the copy engine: how it brings bytes and boxes into shared memory, and stores boxes from there. */
#ifndef KOPS_KERNELS_HOPPER_TMA_H
#define KOPS_KERNELS_HOPPER_TMA_H

#include <stdint.h>

namespace hopper
{

#if __CUDA_ARCH__ >= 900

/* ---- Bulk copies into shared memory; 16 bytes is the unit of everything ---- */

__device__ __forceinline__ void copy_bulk(uint32_t to, const void *from, unsigned bytes, uint32_t barrier)
{
	asm volatile(
	    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
	    "l"(from), "r"(bytes), "r"(barrier)
	    : "memory");
}

/* To the same address in every block of the cluster in `blocks`; each one's own barrier counts the bytes. */
__device__ __forceinline__ void copy_bulk_to(uint16_t blocks, uint32_t to, const void *from, unsigned bytes,
                                             uint32_t barrier)
{
	asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
	             "[%0], [%1], %2, [%3], %4;" ::"r"(to),
	             "l"(from), "r"(bytes), "r"(barrier), "h"(blocks)
	             : "memory");
}

/* ---- Boxes of a matrix that a tensor map describes, at (x, y, z), x along its lines ---- */

__device__ __forceinline__ void prefetch_map(const void *map)
{
	asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

__device__ __forceinline__ void copy_box(uint32_t to, const void *map, int x, int y, int z, uint32_t barrier)
{
	asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
	             "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(to),
	             "l"(map), "r"(x), "r"(y), "r"(z), "r"(barrier)
	             : "memory");
}

/* Of a map with one axis more. */
__device__ __forceinline__ void copy_box(uint32_t to, const void *map, int x, int y, int z, int w,
                                         uint32_t barrier)
{
	asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
	             "[%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(to),
	             "l"(map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(barrier)
	             : "memory");
}

/* As copy_bulk_to(). */
__device__ __forceinline__ void copy_box_to(uint16_t blocks, uint32_t to, const void *map, int x, int y, int z,
                                            uint32_t barrier)
{
	asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
	             ".multicast::cluster [%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(to),
	             "l"(map), "r"(x), "r"(y), "r"(z), "r"(barrier), "h"(blocks)
	             : "memory");
}

/* From shared memory; what lies outside the matrix is left out. Belongs to the next stores_commit(). */
__device__ __forceinline__ void store_box(const void *map, int x, int y, int z, uint32_t from)
{
	asm volatile(
	    "cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3}], [%4];" ::"l"(map),
	    "r"(x), "r"(y), "r"(z), "r"(from)
	    : "memory");
}

/* To a map with one axis more. */
__device__ __forceinline__ void store_box(const void *map, int x, int y, int z, int w, uint32_t from)
{
	asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3, %4}], "
	             "[%5];" ::"l"(map),
	             "r"(x), "r"(y), "r"(z), "r"(w), "r"(from)
	             : "memory");
}

__device__ __forceinline__ void stores_commit()
{
	asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/* Until shared memory has been read by all stores that this thread committed but the last LEFT commits. */
template <int LEFT> __device__ __forceinline__ void stores_await_read()
{
	asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(LEFT) : "memory");
}

/* Shows the copy engine and the tensor cores what this thread wrote to shared memory. */
__device__ __forceinline__ void show_to_engines()
{
	asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

#endif

} // namespace hopper

#endif
