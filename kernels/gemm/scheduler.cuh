/*
 * scheduler.cuh: which tile of C, and which part of K, is whose. All main loops take tiles in the same order:
 * bands of BAND rows of tiles, column by column inside a band. Blocks that run at the same time are then near a
 * square of C, and share tiles of A and of B in L2. BAND 1 is row by row.
 *
 * T: the type of tile numbers: 32 bits where all of them fit.
 */
#ifndef KOPS_KERNELS_GEMM_SCHEDULER_H
#define KOPS_KERNELS_GEMM_SCHEDULER_H

#include "common/cuda.h"

namespace
{

/* A tile: its batch, its row and its column of tiles. */
template <class T> struct tile_number {
	T batch, row, col;
};

/* The i-th of all tiles, of batches with `rows` times `cols` tiles each. */
template <int BAND, class T> __device__ __forceinline__ tile_number<T> tile_of_number(T i, T rows, T cols)
{
	T batch = i / (rows * cols);

	i -= batch * rows * cols;
	T band = i / (BAND * cols) * BAND, height = rows - band < BAND ? rows - band : BAND;
	i -= band * cols;
	return {batch, band + i % height, i / height};
}

/*
 * The tiles that a cluster of `blocks` blocks computes one after another, where the grid keeps to its
 * multiprocessors: those whose numbers are as many apart as there are clusters. How many tiles there are is not
 * kept: it would take a register in the main loops.
 */
template <class T> struct tile_walk {
	T tile;
	unsigned blocks;

	__device__ __forceinline__ explicit tile_walk(unsigned blocks)
	    : tile(blockIdx.x / blocks), blocks(blocks)
	{
	}
	__device__ __forceinline__ bool is_last_of(T tiles) const
	{
		return tile + gridDim.x / blocks >= tiles;
	}
	__device__ __forceinline__ void step()
	{
		tile += gridDim.x / blocks;
	}
};

/* Where the part of K begins that has this number, of `parts`. The part ends where the next one begins. */
template <class T, class PART> __device__ __forceinline__ T part_begin(T k_tiles, PART part, PART parts)
{
	return k_tiles * part / parts;
}

constexpr uint64_t GRID_MAX = 0x7fffffff; /* blocks */

/* Launches a block for each of so many tiles, at most `most` at a time. launch(first, count) launches some. */
template <class LAUNCH> void launch_tiles(uint64_t tiles, uint64_t most, LAUNCH launch)
{
	for (uint64_t first = 0; first < tiles; first += most)
		launch(first, (unsigned)(tiles - first < most ? tiles - first : most));
}

} // namespace

#endif
