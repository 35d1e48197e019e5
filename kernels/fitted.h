/*
 * fitted.h: the constants of all time functions for GPUs. fitted.c has their values, and says what they were
 * fitted to; scripts/fit-times writes it.
 *
 * What a GPU says of itself is asked (cuda.h) and not written down: how many multiprocessors it has, its clock,
 * the rate of its memory. So constants are shares of that rate, clocks of a multiprocessor, or ns. Those in ns
 * hold for the clock of the GPU that they were fitted on, but for launches and other work of the host's.
 */
#ifndef KOPS_KERNELS_FITTED_H
#define KOPS_KERNELS_FITTED_H

#ifdef __cplusplus
extern "C" {
#endif

/* tests/plan describes GPUs, and sets the constants while they are fitted. */
#ifdef KOPS_DESCRIBED
#define FITTED struct fitted
#else
#define FITTED const struct fitted
#endif

/*
 * C in square blocks. A block alone waits for memory, however little it computes; many are as fast as the
 * multiprocessors together. Clocks per k of one block; FLOPs in a clock of a multiprocessor that has many.
 */
struct fitted_blocks {
	double side, per_k, flops;
};

/*
 * cuBLAS, as if it took the fastest of some blocks and of all ways to split K, in parts of `part_min` at least;
 * each block stands for several that it has. Splitting takes a second launch (joining_ns), and the sum of the
 * parts some time per element (sum: bytes at the memory's rate); writing some clocks per element of each wave
 * of blocks. read: how much of the operands' bytes is time in addition. lasting: see fitted_lasting_ns().
 */
struct fitted_cublas {
	double launch_ns, joining_ns, sum, write, part_min, read, lasting;
	struct fitted_blocks blocks[3];
};

/* Those with one size of blocks. Their blocks take so many times longer where lines of A or B are not
 * aligned, and where neighbours of the axis that its threads lie on are apart in memory. */
struct fitted_plain {
	double launch_ns, write, unaligned, apart;
	struct fitted_blocks blocks;
};

/*
 * A shape of simt, in ns. per_k[i]: where i + 1 blocks share a multiprocessor. A last wave of single blocks
 * takes less than that, as the next launch's blocks come beside it.
 */
struct fitted_shape {
	double first;        /* the beginning and end of the first blocks that run at the same time … */
	double next;         /* … and of the next */
	double beside;       /* more for each block beside another */
	double split, again; /* more if K is split; for each time that the parts are halved again */
	double single;       /* so much of a last wave's time where single blocks are left for it */
	double per_k[6];
};

/*
 * Of softmax's kernels that give each row of the matrix a warp or a block, and read long ones again. Clocks of
 * a multiprocessor: of a short row, for each 32 elements of it and beside them; of a longer one, for each
 * element. Rows of more than 8192 elements go in waves, one on each multiprocessor; an element takes `alone`
 * clocks, and `together` more where all multiprocessors have one.
 */
struct fitted_passes {
	double row, lines, element, alone, together;
};

/* A transposition by tiles: full_ns: later where all multiprocessors are busy. */
struct fitted_tiles {
	double launch_ns, full_ns, share;
};

/* Clocks of a multiprocessor for each element of 2, 4, 8 bytes. */
struct fitted_sizes {
	double of_2, of_4, of_8;
};

/* Doubles only: scripts/fit-times numbers them. */
struct fitted {
	/* Of the GPU that they were fitted on: clocks per ns. */
	struct {
		double clock;
	} gpu;
	/* share: of the memory's rate, by what only reads and writes; of_scattered: clocks of an element of
	 * views that are no runs */
	struct {
		double share, of_scattered;
	} memory;

	/* ---- gemm ---- */

	struct fitted_cublas cublas_f32, cublas_unaligned, cublas_tf32, cublas_16;
	/* Where C is small and K very short cuBLAS splits K needlessly; what is small takes so long at most;
	 * its blocks suit a C of up to 64 or 128 rows or columns less; odd: 16-bit
	 * lines begin within words of 4 bytes. */
	struct {
		double short_ns, short_element_ns, small_ns, thin_64, thin_128, odd;
	} cublas;
	struct fitted_plain pipelined, bankfree, blocked, tile32, tile16, naive, naive_others;
	/* of_cut: a share of its cut's time. */
	struct {
		double launch_ns, of_cut, read, lasting;
	} wgmma;
	/* Its cuts: launches of blocks and of clusters; of a tile: an element's share of beginning and end, and
	 * of joining parts of K; ns for a tile of K, by cut; what a multiprocessor gets from L2, bytes in a ns.
	 */
	struct {
		double block_ns, cluster_ns, element, joining, wide, lone, middle, square, narrow, l2;
	} wgmma_cuts;
	/* passes: bytes that go over operands; elements of C that are written one by one, begin within sectors,
	 * do not: bytes for each. */
	struct {
		double launch_ns, of_cut, passes, write_single, write_within, write_sectors, lasting;
	} f16x3;
	/* Of its product: the beginning and end of a tile, and a tile of K: of a wave of 64 rows, of half a
	 * tile. */
	struct {
		double tile, pairs_wave, pairs_split, triples_wave, triples_split;
	} f16x3_cuts;
	/* late: where a launch is not early; least and share: of a launch, of the memory's rate; f64: per k,
	 * where f64 takes twice as long as on the GPU that this was fitted on; by_elements: times per_k, where
	 * the copy engine does not bring the tiles. */
	struct {
		double launch_ns, late_ns, least_ns, share, f64, by_elements;
	} simt;
	struct fitted_shape simt_64_16, simt_64_8, simt_32_8, simt_32_32, simt_f64;
	/* A launch; one that turns an operand, and per byte of the copy; the beginning and end of blocks that
	 * run at the same time, of the first such and the next; per k, a block's part of its multiprocessor. */
	struct {
		double launch_ns, turn_ns, turn_byte, first, next, per_k;
	} simt_large;
	/* first_ns: until the first tiles are there, and after the last; step: clocks of a block; beside: more
	 * for each other block of its multiprocessor; by_elements: times as long. */
	struct {
		double launch_ns, first_ns, step, beside, by_elements;
	} small;

	/* ---- softmax ---- */

	struct {
		double launch_ns, share;
	} ring;
	/* Rows of up to 4 KiB, up to 128 KiB, and longer ones. */
	struct {
		double short_ns, kept_ns, long_ns, kept_share, long_share;
	} fused;
	/* halved: of a wave's `together`, where elements have 16 bits. */
	struct {
		double short_ns, long_ns, share, halved;
	} passes;
	struct fitted_passes online, coalesced, blockreduce;
	/* full: threads that a multiprocessor is busy with; clocks of an element, and of each visit. */
	struct {
		double launch_ns, full, element, visit;
	} by_elements;
	/* Not yet measured. share: where there are pieces for all multiprocessors; clocks of a multiprocessor:
	 * step, for what a block reads at a time; join, of what its threads found: most of a short piece's. */
	struct {
		double launch_ns, row_ns, share, step, join;
	} pieces;

	/* ---- transpose ---- */

	struct {
		double tile; /* clocks */
	} tiles;
	struct fitted_tiles vector, padded;
	struct fitted_sizes tiled_rect, tiled;
	/* bytes: of an element that is not among the first. */
	struct {
		double launch_ns, element, bytes, share;
	} perelement;
	struct {
		double launch_ns, step;
	} perrow;
	struct fitted_sizes perrow_elements;
	struct {
		double launch_ns, element;
	} serial;

	/* ---- reduce, add, copy ---- */

	/* Of the memory's rate, shares: near, where lanes are on rows of a few sectors; neighbours, on
	 * neighbouring elements; apart, on any others. Clocks of a multiprocessor for an element of each of a
	 * warp's rows: step, or far, where each is fetched by itself. */
	struct {
		double launch_ns, row_ns, share, far, near, neighbours, apart, step;
	} reduce;
	/* vectors, elements: shares, by accesses of 128 bits and of single elements. few: bytes for each
	 * multiprocessor, below which float4x begins so much sooner. */
	struct {
		double launch_ns, vectors, elements, clocks, few, sooner_ns;
	} add;
	struct {
		double engine_ns, kernel_ns;
	} copy;

	/* ---- A run (daemon/cuda/plan.c), all by the host: us, bytes in a us ---- */

	/* link: of pinned memory, where measuring it fails; pageable: of what is not pinned, or is about to be;
	 * gather: of an element, by the CPU; streaming, reusing: up to so long a transfer, kernels had better
	 * use pinned memory in place (struct cuda_direct). */
	struct {
		double launch, run, link, pageable, gather, streaming, reusing;
	} host;
};

extern FITTED fitted;

/* Tensor cores at work for a millisecond and more take all the power there is, and the clock falls: such
 * products take up to 1 + lasting times as long. */
static inline double fitted_lasting_ns(double ns, double lasting)
{
	const double soon_ns = 1e6;

	return ns * (1 + lasting * ns / (ns + soon_ns));
}

#ifdef __cplusplus
}
#endif

#endif
