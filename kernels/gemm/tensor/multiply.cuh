/* multiply.cuh: how a consumer multiplies tiles of K and adds up their products. */
#ifndef KOPS_KERNELS_GEMM_TENSOR_MULTIPLY_H
#define KOPS_KERNELS_GEMM_TENSOR_MULTIPLY_H

#include "common/hopper/descriptor.cuh"
#include "common/hopper/shared.cuh"
#include "gemm/tensor/form.cuh"

namespace
{

#ifdef KOPS_HOPPER

template <class F> __device__ __forceinline__ uint64_t b_at(uint32_t address, int step)
{
	if constexpr (F::B_ACROSS)
		return hopper::matrix_across_at(address, F::TILE_DEPTH * LINE_BYTES) + step * 2048 / 16;
	else
		return hopper::matrix_at<LINE_BYTES>(address) + step * 32 / 16;
}

template <class F> __device__ __forceinline__ uint64_t a_at(uint32_t address, int step)
{
	if constexpr (F::A_ACROSS)
		return hopper::matrix_across_at(address, F::TILE_DEPTH * LINE_BYTES) + step * 2048 / 16;
	else
		return hopper::matrix_at<LINE_BYTES>(address) + step * 32 / 16;
}

/* This thread's numbers of a wave's tile of A that lies across: boxes of 32 rows, 8 lines of K for each step.
 */
template <class F> __device__ __forceinline__ void load_a(float (&a)[STEPS][4], uint32_t tile)
{
	lane_place<F> me;
	int k = me.lane % 4;
	uint32_t lines = tile + me.team() * F::TILE_DEPTH * LINE_BYTES + k * LINE_BYTES;

#pragma unroll
	for (int i = 0; i < 4; i++) {
		int row = me.row(i % 2), deeper = i / 2 * 4;
		uint32_t at = lines + deeper * LINE_BYTES + (row / 4 ^ k ^ deeper) * 16 + row % 4 * 4;
#pragma unroll
		for (int step = 0; step < STEPS; step++)
			a[step][i] = hopper::load_shared(at + step * 8 * LINE_BYTES);
	}
}

template <class F> __device__ __forceinline__ void settle(wave_sums<F> &sums)
{
#pragma unroll
	for (int wave = 0; wave < F::CUT::WAVES; wave++)
		hopper::settle(sums[wave]);
}

/* Begins the products of a tile of K; keep: adds them to the sums. */
template <class F>
__device__ __forceinline__ void multiply_tile(wave_sums<F> &sums, uint32_t a, uint32_t b, int keep)
{
	settle<F>(sums);
	hopper::products_begin();
#pragma unroll
	for (int step = 0; step < STEPS; step++)
#pragma unroll
		for (int wave = 0; wave < F::CUT::WAVES; wave++)
			hopper::add_products<F::E, F::A_ACROSS, F::B_ACROSS>(
			    sums[wave], a_at<F>(a + wave * WAVE_ROWS * LINE_BYTES, step), b_at<F>(b, step),
			    keep || step > 0);
	hopper::products_commit();
}

template <class F>
__device__ __forceinline__ void multiply_tile(wave_sums<F> &sums, const float (&a)[STEPS][4], uint32_t b,
                                              int keep)
{
	static_assert(F::CUT::WAVES == 1);
	settle<F>(sums);
	hopper::products_begin();
#pragma unroll
	for (int step = 0; step < STEPS; step++)
		hopper::add_products_from(sums[0], a[step], b_at<F>(b, step), keep || step > 0);
	hopper::products_commit();
}

/*
 * The sums of a consumer over all of K. The products of one tile are still under way when those of the next
 * begin, and those of the last tile when this returns: its stage. meanwhile(k): what there is to do beside
 * them.
 */
template <class F, class MEANWHILE>
__device__ __forceinline__ pipeline<typename F::CUT> add_up(wave_sums<F> &sums, pipeline<typename F::CUT> &r,
                                                            int consumer, unsigned k_tiles, MEANWHILE meanwhile)
{
	pipeline<typename F::CUT> last = r;

#pragma unroll 1
	for (unsigned k = 0; k < k_tiles; k++, r.step()) {
		uint32_t a = r.bytes() + consumer * F::CUT::WAVES * WAVE_ROWS * LINE_BYTES;
		uint32_t b = r.bytes() + F::CUT::A_BYTES;

		hopper::barrier_wait(r.full(), r.parity);
		multiply_tile<F>(sums, a, b, k > 0);
		meanwhile(k);
		hopper::products_wait<1>();
		settle<F>(sums);
		if (k > 0)
			release(last);
		last = r;
	}
	return last;
}

/* The same with A by registers, which are loaded for the next tile while the products of one are under way. */
template <class F>
__device__ __forceinline__ pipeline<typename F::CUT>
add_up_by_registers(wave_sums<F> &sums, pipeline<typename F::CUT> &r, int consumer, unsigned k_tiles)
{
	pipeline<typename F::CUT> last = r;
	float now[STEPS][4], next[STEPS][4] = {};

	hopper::barrier_wait(r.full(), r.parity);
	load_a<F>(now, r.bytes() + consumer * WAVE_ROWS * LINE_BYTES);
#pragma unroll 2
	for (unsigned k = 0; k < k_tiles; k++) {
		multiply_tile<F>(sums, now, r.bytes() + F::CUT::A_BYTES, k > 0);
		last = r;
		r.step();
		if (k + 1 == k_tiles)
			break;
		hopper::barrier_wait(r.full(), r.parity);
		load_a<F>(next, r.bytes() + consumer * WAVE_ROWS * LINE_BYTES);
		hopper::products_wait();
		settle<F>(sums);
		release(last);
#pragma unroll
		for (int i = 0; i < STEPS * 4; i++)
			now[i / 4][i % 4] = next[i / 4][i % 4];
	}
	return last;
}

#endif

} // namespace

#endif
