/*
 * ring.cuh: how the warps of a product share their work on Hopper. One warpgroup brings tiles of K into a ring
 * of stages in shared memory, two multiply what is there.
 *
 * CUT says how C is cut: STAGES of STAGE_BYTES; SHARERS blocks of a cluster that fill each other's stages, or
 * SPLITS, at most, that do not, and have a part of K each.
 */
#ifndef KOPS_KERNELS_GEMM_RING_H
#define KOPS_KERNELS_GEMM_RING_H

#include "common/hopper.cuh"
#include "common/overlap.cuh"

namespace
{

constexpr int CONSUMERS = 2, WARPGROUP = 128;
constexpr int PRODUCT_THREADS = (1 + CONSUMERS) * WARPGROUP;

#ifdef KOPS_HOPPER

/* The stages that the producer fills and the consumers empty, one after the other. */
template <class CUT> struct ring {
	uint32_t data, barriers;
	unsigned stage = 0, parity = 0;

	__device__ explicit ring(uint32_t shared)
	    : data((shared + 1023) & ~1023u), barriers(data + CUT::STAGES * CUT::STAGE_BYTES)
	{
	}
	__device__ __forceinline__ uint32_t full() const
	{
		return barriers + stage * 8;
	}
	__device__ __forceinline__ uint32_t empty() const
	{
		return barriers + (CUT::STAGES + stage) * 8;
	}
	__device__ __forceinline__ uint32_t bytes() const
	{
		return data + stage * CUT::STAGE_BYTES;
	}
	__device__ __forceinline__ void step()
	{
		if (++stage == CUT::STAGES)
			stage = 0, parity ^= 1;
	}
};

template <class CUT> __device__ void init_barriers(ring<CUT> r)
{
	for (int i = 0; i < CUT::STAGES; i++, r.step()) {
		hopper::barrier_init(r.full(), 1);
		hopper::barrier_init(r.empty(), CUT::SHARERS * CONSUMERS * WARPGROUP / 32);
	}
	hopper::barriers_ready();
}

/* This warp has read the stage: whoever fills it may. */
template <class CUT> __device__ __forceinline__ void release(const ring<CUT> &r)
{
	if (threadIdx.x % 32 < CUT::SHARERS)
		hopper::barrier_arrive(r.empty(), CUT::SPLITS > 1 ? hopper::cluster_rank() : threadIdx.x % 32);
}

#endif

} // namespace

#endif
