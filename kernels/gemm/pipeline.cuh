/*
 * pipeline.cuh: how the warps of a product share their work on Hopper. One warpgroup brings tiles of K into a
 * ring of stages in shared memory, two multiply what is there.
 *
 * CUT says how C is cut: STAGES of STAGE_BYTES; SHARERS blocks of a cluster that fill each other's stages, or
 * SPLITS, at most, that do not, and have a part of K each.
 */
#ifndef KOPS_KERNELS_GEMM_PIPELINE_H
#define KOPS_KERNELS_GEMM_PIPELINE_H

#include "common/hopper/barrier.cuh"
#include "common/hopper/cluster.cuh"
#include "common/hopper/shared.cuh"
#include "common/hopper/wgmma.cuh"
#include "common/overlap.cuh"

namespace
{

constexpr int CONSUMERS = 2, WARPGROUP = 128;
constexpr int PRODUCT_THREADS = (1 + CONSUMERS) * WARPGROUP;

#ifdef KOPS_HOPPER

/* The stages that the producer fills and the consumers empty, one after the other. */
template <class CUT> struct pipeline {
	uint32_t data, barriers;
	unsigned stage = 0, parity = 0;

	__device__ explicit pipeline(uint32_t shared)
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

/* fill, empty: so many arrivals say that a stage is. */
template <class CUT>
__device__ void init_barriers(pipeline<CUT> r, unsigned fill = 1,
                              unsigned empty = CUT::SHARERS * CONSUMERS * WARPGROUP / 32)
{
	for (int i = 0; i < CUT::STAGES; i++, r.step()) {
		hopper::barrier_init(r.full(), fill);
		hopper::barrier_init(r.empty(), empty);
	}
	hopper::barriers_ready();
}

/* This warp has read the stage: whoever fills it may. */
template <class CUT> __device__ __forceinline__ void release(const pipeline<CUT> &r)
{
	if (threadIdx.x % 32 < CUT::SHARERS)
		hopper::barrier_arrive(r.empty(), CUT::SPLITS > 1 ? hopper::cluster_rank() : threadIdx.x % 32);
}

/* ---- Parts of K ---- */

/*
 * The sums of a cluster's tile, of which each block has a part of K: QUADS for each consumer's thread, in every
 * block. Each block adds up its share of them, the parts in their order. They lie in the stages, which are free
 * then.
 */
template <class CUT, int QUADS> struct parts {
	static constexpr int THREADS = CONSUMERS * WARPGROUP;
	static_assert(QUADS * THREADS * 16 <= CUT::STAGES * CUT::STAGE_BYTES);
	uint32_t stages;
	unsigned count; /* divides QUADS */

	__device__ __forceinline__ unsigned share() const
	{
		return QUADS / count;
	}

	/* Gives each block its share. All threads of the cluster meet twice, its producers by sit_out(). */
	__device__ __forceinline__ void exchange(const float (&sums)[QUADS * 4]) const
	{
		unsigned to = 0, quad = 0;

		hopper::cluster_meet();
#pragma unroll
		for (int q = 0; q < QUADS; q++) {
			const float *s = sums + q * 4;
			hopper::store_there(hopper::address_in(to, at(hopper::cluster_rank(), quad)),
			                    make_float4(s[0], s[1], s[2], s[3]));
			if (++quad == share()) {
				quad = 0;
				to++;
			}
		}
		hopper::cluster_sync();
	}
	static __device__ __forceinline__ void sit_out()
	{
		hopper::cluster_meet();
		hopper::cluster_sync();
	}

	/* Of this block's share. */
	__device__ __forceinline__ float4 total(unsigned quad) const
	{
		float4 all = hopper::load_shared_quad(at(0, quad));

		for (unsigned part = 1; part < count; part++) {
			float4 v = hopper::load_shared_quad(at(part, quad));
			all = make_float4(all.x + v.x, all.y + v.y, all.z + v.z, all.w + v.w);
		}
		return all;
	}

      private:
	__device__ __forceinline__ uint32_t at(unsigned part, unsigned quad) const
	{
		return stages + ((part * share() + quad) * THREADS + threadIdx.x - WARPGROUP) * 16;
	}
};

#endif

} // namespace

#endif
