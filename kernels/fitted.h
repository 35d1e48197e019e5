/*
 * fitted.h: the constants of all time functions for GPUs. fitted.c has their values and names what they were
 * fitted to; scripts/fit-times writes it.
 *
 * What a GPU reports itself is asked, not recorded (cuda.h): its multiprocessors, its clock, its memory's rate.
 * So constants are shares of that rate, clocks of a multiprocessor, or ns. ns hold for the clock of the GPU
 * that they were fitted on, except for launches and other work of the host.
 */
#ifndef KOPS_KERNELS_FITTED_H
#define KOPS_KERNELS_FITTED_H

#ifdef __cplusplus
extern "C" {
#endif

/* tests/plan describes GPUs, and changes the constants while it fits them. */
#ifdef KOPS_DESCRIBED
#define FITTED struct fitted
#else
#define FITTED const struct fitted
#endif

/*
 * C in square blocks. A single block waits for memory, however little it computes; many blocks are as fast as
 * the multiprocessors together. Clocks per k of one block; FLOPs per clock of a multiprocessor with many
 * blocks.
 */
struct fitted_blocks {
	double side, per_k, flops;
};

/*
 * cuBLAS, modelled as choosing the fastest of some block sizes and of all ways to split K into parts of at
 * least `part_min`. Each block size stands for several real ones. Splitting adds a second launch (joining_ns)
 * and time per element to sum the parts (sum: bytes at the memory's rate). Writing takes some clocks per
 * element of each wave of blocks. read: the share of the operands' bytes that adds to the time. lasting: see
 * fitted_lasting_ns().
 */
struct fitted_cublas {
	double launch_ns, joining_ns, sum, write, part_min, read, lasting;
	struct fitted_blocks blocks[3];
};

/*
 * Kernels with one block size. Blocks take longer by these factors if lines are unaligned, and if neighbours
 * along the threads' axis are apart in memory. loose: writing takes so much longer if lines of C are unaligned.
 */
struct fitted_plain {
	double launch_ns, write, loose, unaligned, apart;
	struct fitted_blocks blocks;
};

/*
 * A shape of simt, in ns. per_k[i]: time per k if i + 1 blocks share a multiprocessor. A last wave of single
 * blocks takes less, as blocks of the next launch run beside it.
 */
struct fitted_shape {
	double first;        /* beginning and end of the first blocks that run at once */
	double next;         /* the same for later blocks */
	double beside;       /* added for each block beside another */
	double split, again; /* added if K is split; added each time that the parts are halved again */
	double single;       /* share of a last wave's time if only single blocks are left */
	double per_k[6];
};

/*
 * Kernels of softmax that give each row of the matrix a warp or a block, and read long rows again. In clocks of
 * a multiprocessor: for a short row, `lines` per 32 elements and `row` beside; for a longer row, `element` per
 * element. Rows over 8192 elements run in waves, one on each multiprocessor: an element takes `alone` clocks,
 * and `together` more if all multiprocessors are busy.
 */
struct fitted_passes {
	double row, lines, element, alone, together;
};

/* A transposition by tiles. full_ns: delay if all multiprocessors are busy. */
struct fitted_tiles {
	double launch_ns, full_ns, share;
};

/* Clocks of a multiprocessor per element of 2, 4 and 8 bytes. */
struct fitted_sizes {
	double of_2, of_4, of_8;
};

/* Has only doubles: scripts/fit-times numbers them. */
struct fitted {
	/* The clock of the GPU that they were fitted on, in clocks per ns. */
	struct {
		double clock;
	} gpu;
	/*
	 * share: of the memory's rate, for kernels that only read and write; of_scattered: clocks per element
	 * of views that are not contiguous.
	 */
	struct {
		double share, of_scattered;
	} memory;

	/* ---- gemm ---- */

	struct fitted_cublas cublas_f32, cublas_unaligned, cublas_tf32, cublas_16;
	/*
	 * short: cuBLAS splits K needlessly if C is small and K very short. small_ns: upper bound for small
	 * products. thin: its blocks suit a C of up to 64 or 128 rows or columns less. odd: 16-bit lines begin
	 * within words of 4 bytes; loose: within 16 bytes.
	 */
	struct {
		double short_ns, short_element_ns, small_ns, thin_64, thin_128, odd, loose;
	} cublas;
	struct fitted_plain pipelined, bankfree, blocked, tile32, tile16, naive, naive_others;
	/* of_cut: a share of the time of its cut; pad_ns: a launch that copies operands. */
	struct {
		double launch_ns, of_cut, read, lasting, pad_ns;
	} wgmma;
	/*
	 * Its cuts. block_ns, cluster_ns: launches of blocks and of clusters; element, joining: per element of
	 * a tile, for beginning and end, for joining parts of K, and more to write a loose C; then ns per tile
	 * of K for each cut; l2: bytes per ns that a multiprocessor gets from L2.
	 */
	struct {
		double block_ns, cluster_ns, element, joining, loose, wide, lone, middle, square, narrow, l2;
	} wgmma_cuts;
	/*
	 * passes: bytes of the passes over operands; write: bytes per element of C, if written one by one, if
	 * rows begin within sectors, and if not; lasting: of triples, see fitted_lasting_ns(); pairs_lasting,
	 * pairs_soon_ns: of pairs, see fitted_lasting().
	 */
	struct {
		double launch_ns, of_cut, passes, write_single, write_within, write_sectors, lasting,
		    pairs_lasting, pairs_soon_ns;
	} f16x3;
	/*
	 * Its product. tile: the beginning and end of a tile; then the time of a tile of K, for a wave of 64
	 * rows and for half a tile.
	 */
	struct {
		double tile, pairs_wave, pairs_split, triples_wave, triples_split;
	} f16x3_cuts;
	/*
	 * late: if a launch is not early; least and share: of a launch, and of the memory's rate; f64: per k,
	 * if f64 takes twice as long as on the GPU that this was fitted on; by_elements: factor of per_k if the
	 * copy engine does not bring the tiles.
	 */
	struct {
		double launch_ns, late_ns, least_ns, share, f64, by_elements;
	} simt;
	struct fitted_shape simt_64_16, simt_64_8, simt_32_8, simt_32_32, simt_f64;
	/*
	 * turn: a launch that transposes an operand, and per byte of that copy; first, next: beginning and end
	 * of the first blocks that run at once, and of later ones; per_k: a block's part of its multiprocessor.
	 */
	struct {
		double launch_ns, turn_ns, turn_byte, first, next, per_k;
	} simt_large;
	/*
	 * first_ns: until the first tiles have arrived, and after the last; step: clocks of a block; beside:
	 * added per other block of the multiprocessor; by_elements: where operands are not read in pieces of 16
	 * bytes.
	 */
	struct {
		double launch_ns, first_ns, step, beside, step_by_elements, beside_by_elements;
	} small;
	/* In clocks of two blocks that share a multiprocessor. block: without steps; step, and few for each row
	 * or column of the narrow side: a step of 64 of K. */
	struct {
		double launch_ns, join_ns, block, step, few;
	} ragged;
	/* unit: a tile of C, or a part of its K; step, row, col: a tile of K, and for each row and column of C
	 * there; loose: the least for a tile of a C whose lines begin anywhere. */
	struct {
		double launch_ns, join_ns, unit_ns, step_ns, row_ns, col_ns, loose_ns;
	} shifted;

	/* ---- softmax ---- */

	struct {
		double launch_ns, share;
	} ring;
	/* short: rows of up to 4 KiB; kept: up to 128 KiB; long: longer. */
	struct {
		double short_ns, kept_ns, long_ns, kept_share, long_share;
	} fused;
	/* halved: factor of a wave's `together` if elements have 16 bits. */
	struct {
		double short_ns, long_ns, share, halved;
	} passes;
	struct fitted_passes online, coalesced, blockreduce;
	/* full: threads that keep a multiprocessor busy; clocks per element and per visit. */
	struct {
		double launch_ns, full, element, visit;
	} by_elements;
	/*
	 * Not measured yet. share: if all multiprocessors have pieces. In clocks of a multiprocessor: step, for
	 * what a block reads at once; join, to join what its threads found, which is most of a short piece's
	 * time.
	 */
	struct {
		double launch_ns, row_ns, share, step, join;
	} pieces;

	/* ---- transpose ---- */

	struct {
		double tile; /* clocks */
	} tiles;
	struct fitted_tiles vector, padded;
	struct fitted_sizes tiled_rect, tiled;
	/* bytes: per element after the first ones. */
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

	/*
	 * Shares of the memory's rate: near, if lanes are on rows of a few sectors; neighbours, on neighbouring
	 * elements; apart, on any others. In clocks of a multiprocessor per element of each of a warp's rows:
	 * step, or far if each is fetched separately.
	 */
	struct {
		double launch_ns, row_ns, share, far, near, neighbours, apart, step;
	} reduce;
	/*
	 * vectors, elements: shares, for accesses of 128 bits and of single elements. few: bytes per
	 * multiprocessor below which float4x begins sooner by sooner_ns.
	 */
	struct {
		double launch_ns, vectors, elements, clocks, few, sooner_ns;
	} add;
	struct {
		double engine_ns, kernel_ns;
	} copy;

	/* ---- A run (daemon/cuda/plan.c), all by the host: us, bytes per us ---- */

	/*
	 * link: for pinned memory, if measuring it fails; pageable: for memory that is not pinned, or is about
	 * to be; gather: per element, by the CPU; streaming, reusing: longest transfers for which kernels
	 * should use pinned memory in place (struct cuda_direct).
	 */
	struct {
		double launch, run, link, pageable, gather, streaming, reusing;
	} host;
};

extern FITTED fitted;

/*
 * After some time tensor cores use all available power and the clock falls: work of so many ns takes up to 1 +
 * lasting times as long, half of that where it is soon_ns. Returns that factor.
 */
static inline double fitted_lasting(double ns, double lasting, double soon_ns)
{
	return 1 + lasting * ns / (ns + soon_ns);
}

/* The time of such work, of most kernels. */
static inline double fitted_lasting_ns(double ns, double lasting)
{
	const double soon_ns = 1e6;

	return ns * fitted_lasting(ns, lasting, soon_ns);
}

#ifdef __cplusplus
}
#endif

#endif
