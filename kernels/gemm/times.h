/*
 * times.h: the constants of gemm's time functions, which were fitted to measurements: times.c, written by
 * scripts/fit-times. What is part of choosing a kernel's own cut stands beside it (wgmma.cu, simt.cu, …).
 */
#ifndef KOPS_KERNELS_GEMM_TIMES_H
#define KOPS_KERNELS_GEMM_TIMES_H

#ifdef __cplusplus
extern "C" {
#endif

/* tests/plan describes GPUs, and sets the constants while they are fitted. */
#ifdef KOPS_DESCRIBED
#define GEMM_TIMES struct gemm_times
#else
#define GEMM_TIMES const struct gemm_times
#endif

/*
 * C in square blocks. A block alone waits for memory, however little it computes; many are as fast as the
 * multiprocessors together. Clocks per k of one block; FLOPs in a clock of a multiprocessor that has many.
 */
struct gemm_blocks {
	double side, per_k, flops;
};

/*
 * cuBLAS, as if it took the fastest of some blocks and of all ways to split K, in parts of `part_min` at least;
 * each block stands for several that it has. Splitting takes a second launch (joining_ns), and the sum of the
 * parts some time per element (sum: bytes at the memory's rate); writing some clocks per element of each wave
 * of blocks. read: how much of the operands' bytes is time in addition. lasting: see gemm_lasting_ns().
 */
struct gemm_cublas_times {
	double launch_ns, joining_ns, sum, write, part_min, read, lasting;
	struct gemm_blocks blocks[3];
};

/* Those with one size of blocks. Their blocks take so many times longer where lines of A or B are not
 * aligned, and where neighbours of the axis that its threads lie on are apart in memory. */
struct gemm_plain_times {
	double launch_ns, write, unaligned, apart;
	struct gemm_blocks blocks;
};

struct gemm_times {
	struct gemm_cublas_times cublas_f32, cublas_unaligned, cublas_tf32, cublas_16;
	/* Where C is small and K very short cuBLAS splits K needlessly; what is small takes so long at most;
	 * its blocks suit a C of up to 64 or 128 rows or columns less. */
	struct {
		double short_ns, short_element_ns, small_ns, thin_64, thin_128;
	} cublas;
	struct gemm_plain_times pipelined, bankfree, blocked, tile32, tile16, naive, naive_others;
	struct {
		double launch_ns, of_cut, read, lasting; /* of_cut: a share of its cut's time */
	} wgmma;
	/* passes: bytes that go over operands; elements of C that are written one by one, begin within sectors,
	 * do not: bytes for each. */
	struct {
		double launch_ns, of_cut, passes, write_single, write_within, write_sectors, lasting;
	} f16x3;
};

extern GEMM_TIMES gemm_times;

/* Tensor cores at work for a millisecond and more take all the power there is, and the clock falls: such
 * products take up to 1 + lasting times as long. */
static inline double gemm_lasting_ns(double ns, double lasting)
{
	const double soon_ns = 1e6;

	return ns * (1 + lasting * ns / (ns + soon_ns));
}

#ifdef __cplusplus
}
#endif

#endif
