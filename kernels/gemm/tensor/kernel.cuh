/*
 * kernel.cuh: a product of 16-bit or tf32 numbers on Hopper's tensor cores, summed in f32.
 *
 * As in f16x3/product.cuh a block keeps to one multiprocessor: one warpgroup brings tiles of K into a ring of
 * stages, two multiply, each 64 or 128 rows of a tile of C. Here tensor maps describe A, B and C, so that the
 * copy engine brings any layout, fills up with zeros behind the ends, rounds f32 to tf32, to nearest (the
 * tensor cores would cut it off), and writes C while the next tile is under way.
 *
 * Whatever the type, a line of a tile is 128 bytes, 16-byte pieces exchanged by the 128-byte swizzle: a tile of
 * K is 64 numbers of 16 bits or 32 of tf32. An operand lies along K in its lines or across them. The tensor
 * cores take 16-bit numbers either way, tf32 only along K: there A may lie across, and goes by way of
 * registers.
 */
#ifndef KOPS_KERNELS_GEMM_TENSOR_H
#define KOPS_KERNELS_GEMM_TENSOR_H

#include "gemm/tensor/load.cuh"
#include "gemm/tensor/multiply.cuh"
#include "gemm/tensor/write.cuh"

namespace
{

#ifdef KOPS_HOPPER

/* A stage that is free for results as this is the block's last tile, once it is. */
template <class F> __device__ __forceinline__ uint32_t free_stage(const pipeline<typename F::CUT> &r)
{
	static_assert(F::CHUNKS_MORE * CONSUMERS * WAVE_ROWS * LINE_BYTES <= F::CUT::STAGE_BYTES);

	hopper::barrier_wait(r.empty(), r.parity ^ 1);
	return r.bytes();
}

/* A consumer's part of the block's tiles. */
template <class F>
__device__ __forceinline__ void consume_deferring(const work &w, pipeline<typename F::CUT> r, uint32_t slots,
                                                  int consumer)
{
	using CUT = typename F::CUT;
	wave_sums<F> sums = {};
	outbox<F> box;

	for (tile_walk<unsigned> walk(CUT::SHARERS); walk.tile < w.tiles; walk.step()) {
		pipeline<CUT> last = add_up<F>(sums, r, consumer, w.k_tiles,
		                               [&](unsigned k) { box.send(w, consumer, slots, k, k + 1); });
		box.send(w, consumer, slots, w.k_tiles, F::CHUNKS);
		place tile = place_of<F>(w, walk.tile);
		bool over = walk.is_last_of(w.tiles);
		hopper::products_wait();
		settle<F>(sums);
		release(last);
		if (!over && box.takes(w, tile)) {
			box.take(w, tile, consumer, sums);
			continue;
		}
		write_sums<F>(w, tile, consumer, {slots, over ? free_stage<F>(r) : 0}, sums);
		box.clear();
	}
	hopper::stores_await_read<0>();
}

/* A consumer's sums of so many tiles of K, whose stages are free then. */
template <class F>
__device__ __forceinline__ void sum_up(wave_sums<F> &sums, pipeline<typename F::CUT> &r, int consumer,
                                       unsigned k_tiles)
{
	pipeline<typename F::CUT> last = r;

	if constexpr (F::A_BY_REGISTERS)
		last = add_up_by_registers<F>(sums, r, consumer, k_tiles);
	else
		last = add_up<F>(sums, r, consumer, k_tiles, [](unsigned) {});
	hopper::products_wait();
	settle<F>(sums);
	release(last);
}

/* As consume_deferring(), with all results written before the next tile's products. */
template <class F>
__device__ __forceinline__ void consume(const work &w, pipeline<typename F::CUT> r, uint32_t slots,
                                        int consumer)
{
	using CUT = typename F::CUT;
	wave_sums<F> sums = {};

	for (tile_walk<unsigned> walk(CUT::SHARERS); walk.tile < w.tiles; walk.step()) {
		way way = {slots, 0};
		sum_up<F>(sums, r, consumer, w.k_tiles);
		if constexpr (F::E != element::TF32 && !F::C_LOOSE)
			way.stage = walk.is_last_of(w.tiles) ? free_stage<F>(r) : 0;
		if constexpr (F::C_LOOSE)
			write_loose<F>(w, place_of<F>(w, walk.tile), consumer, slots, sums);
		else
			write_sums<F>(w, place_of<F>(w, walk.tile), consumer, way, sums);
	}
	hopper::stores_await_read<0>();
}

/* ---- Parts of K ---- */

/* A thread's sums of 8 columns: two of each of two rows. */
template <class F> constexpr int GROUPS = F::CUT::SUMS / 4;

/* A group of this tile to C. */
template <class F>
__device__ __forceinline__ void store_group(const work &w, const place &tile, int consumer, unsigned group,
                                            float4 sums)
{
	float values[4] = {w.to_c.scale(sums.x), w.to_c.scale(sums.y), w.to_c.scale(sums.z),
	                   w.to_c.scale(sums.w)};
	place at = chunk_at<F>(tile, consumer, 0);
	unsigned col = at.col + group * 8;
	lane_place<F> me;

	if (w.to_c.keeps_old())
		add_old<F, false>(w, at.batch, at.row, col, me, values);
	if constexpr (F::CUT::FINISHES)
		finish_values<F>(w, at.batch, at.row, col, me, values);
	store_values<F>(w, at.batch, at.row, col, me, values);
}

/* A consumer's part of the cluster's tile. Each block adds up some of its columns. */
template <class F>
__device__ __forceinline__ void consume_mapped(const work &w, pipeline<typename F::CUT> r, int consumer)
{
	static_assert(F::CUT::WAVES == 1);
	place tile = place_of<F>(w, blockIdx.x / w.parts);
	parts<typename F::CUT, GROUPS<F>> all = {r.data, w.parts};
	span span = span_of<typename F::CUT>(w);
	unsigned first = hopper::cluster_rank() * all.share();
	wave_sums<F> sums = {};

	/* Their zeros, too: ptxas would set them among the products, and let those wait for each other. */
	settle<F>(sums);
	sum_up<F>(sums, r, consumer, span.end - span.begin);
	all.exchange(sums[0]);
	for (unsigned g = 0; g < all.share(); g++)
		store_group<F>(w, tile, consumer, first + g, all.total(g));
}

#endif

/* One block per multiprocessor goes through the tiles of C. */
template <class F>
__global__ void __launch_bounds__(PRODUCT_THREADS, 1) multiply_mapped(const __grid_constant__ work w)
{
#ifdef KOPS_HOPPER
	using CUT = typename F::CUT;
	extern __shared__ char shared[];
	uint32_t slots = (hopper::shared_address(shared) + 1023) & ~1023u;
	pipeline<CUT> r(slots + CUT::SLOTS_BYTES);
	/* Of its first thread, so that the compiler sees that it is the same for a warp. */
	int warpgroup = __shfl_sync(0xffffffff, threadIdx.x / WARPGROUP, 0);

	let_next_kernel_come();
	if (threadIdx.x == 0) {
		hopper::prefetch_map(&w.a);
		hopper::prefetch_map(&w.b);
		init_barriers(r);
	}
	if constexpr (CUT::SHARERS > 1)
		hopper::cluster_sync();
	else
		__syncthreads();
	await_kernel_before();
	if (warpgroup == 0) {
		hopper::fewer_registers<40>();
		if (threadIdx.x == 0)
			produce<F>(w, r);
		__syncwarp();
		if constexpr (CUT::SPLITS > 1)
			parts<CUT, GROUPS<F>>::sit_out();
	} else {
		hopper::more_registers<232>();
		if constexpr (CUT::SPLITS > 1)
			consume_mapped<F>(w, r, warpgroup - 1);
		else if constexpr (CUT::DEFERS)
			consume_deferring<F>(w, r, slots, warpgroup - 1);
		else
			consume<F>(w, r, slots, warpgroup - 1);
	}
	/* No block may go while another of the cluster still writes to its memory. */
	if constexpr (CUT::SHARERS > 1)
		hopper::cluster_sync();
#endif
}

} // namespace

#endif
