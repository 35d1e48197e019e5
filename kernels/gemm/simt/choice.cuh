/* choice.cuh: which shape a product gets, and in how many parts K is split, by a model of their times. */
#ifndef KOPS_KERNELS_GEMM_SIMT_CHOICE_H
#define KOPS_KERNELS_GEMM_SIMT_CHOICE_H

#include <math.h>

#include "fitted.h"
#include "gemm/kernels.h"
#include "gemm/simt/launch.cuh"

namespace
{

/* times: at the clock of the GPU that they were fitted on. */
struct choice {
	int (*launch)(work *w, int splits, cudaStream_t stream);
	int (*launch_together)(work_together *w, bool aligned, int splits, cudaStream_t stream); /* or NULL */
	int (*shared)(int turned, bool split);
	int side, resident;
	bool in_f64;
	const fitted_shape *times;
};

template <class S> constexpr choice choice_of(const fitted_shape *times)
{
	int (*together)(work_together *, bool, int, cudaStream_t) = NULL;

	if constexpr (S::SIDE == 32)
		together = launch_shape_together<S>;
	return {launch_shape<S>, together, S::bytes, S::SIDE, S::RESIDENT, S::IN_F64, times};
}

const choice choices[] = {
    choice_of<shape<64, 8, 8, 16, 3, 2, 3>>(&fitted.simt_64_16),
    choice_of<shape<64, 8, 8, 8, 3, 4, 2>>(&fitted.simt_64_8),
    choice_of<shape<32, 8, 4, 8, 4, 4, 4>>(&fitted.simt_32_8),
    choice_of<shape<32, 4, 4, 32, 4, 1, 6>>(&fitted.simt_32_32),
    choice_of<shape<32, 8, 4, 8, 4, 4, 3, true>>(&fitted.simt_f64),
};

/*
 * For products in f64 that go together and whose operands cross the link: 64 of 64³ read 2 MiB, in blocks of
 * 32 × 32 it is 4. The sums are the same, as no part of K is added up in another order. Aligned lines only.
 */
typedef shape<64, 8, 4, 8, 3, 4, 1, true> wide_f64;

/* p by rows; slower: times as much per k. */
double time_of(const gpu &gpu, const choice &c, const gemm_problem &p, int splits, double slower)
{
	const fitted_shape &t = *c.times;
	double blocks = (double)blocks_of(p, c.side) * splits;
	double each = ceil(blocks / fmax(gemm_clustered((unsigned)gpu.processors, (unsigned)splits), 1));
	double f32_per_f64 = fmax(gpu.f32_per_f64, 2);
	double ks = ceil((double)p.k / STEP / splits) * STEP * slower, bytes = 4 * (double)p.batch;
	access how = access_of(p);
	int resident = resident_of(gpu, c.resident, c.shared(how.a_along_k + how.b_along_k, splits > 1));
	double full = floor(each / resident); /* waves */
	int left = (int)(each - full * resident);

	double ns = fitted.simt.launch_ns + (may_be_early(gpu, resident, blocks) ? 0 : fitted.simt.late_ns);
	ns += t.first + t.beside * (fmin(each, resident) - 1);
	if (c.in_f64)
		ns += ks * fitted.simt.f64 * (f32_per_f64 / 2 - 1);
	if (splits > 1)
		ns += t.split + (log2(splits) - 1) * t.again;
	if (full > 0)
		ns += (full - 1) * t.next + full * t.per_k[resident - 1] * ks;
	if (left > 0)
		ns += full > 0 ? (left == 1 ? t.single : 1) * (t.next + t.per_k[left - 1] * ks)
		               : t.per_k[left - 1] * ks;
	bytes *= (double)p.m * (double)p.n + (double)p.k * ((double)p.m + (double)p.n);
	return fmax(gpu.clock_factor * ns,
	            fitted.simt.least_ns + bytes / (fitted.simt.share * gpu.bytes_per_ns));
}

/* The fastest: a shape, and in how many parts K is split, or the kernel for large products. */
struct simt_config {
	const choice *shape; /* NULL: that one */
	int splits;
	double ns;
};

simt_config simt_config_of(const op_args *args)
{
	gemm_problem given = gemm_problem_of(args), p = gemm_by_rows(&given);
	bool aligned = gemm_has_aligned_lines(args), in_f64 = gemm_simt_sums_in_f64(args);
	simt_config best = {NULL, 1, INFINITY};
	gpu gpu;

	if (!gemm_has_product(args))
		p.k = 0;
	else if (aligned && !in_f64)
		best.ns = gemm_simt_large_ns(args);
	for (const choice &c : choices) {
		if (c.in_f64 != in_f64)
			continue;
		for (int splits = 1; splits <= SPLITS_MAX; splits *= 2) {
			double ns = time_of(gpu, c, p, splits, aligned ? 1 : fitted.simt.by_elements);
			if (ns < best.ns)
				best = {&c, splits, ns};
		}
	}
	return best;
}

/* Not every GPU that is newer than Hopper has room for such blocks. */
bool is_for_wide(const simt_config &config, const gemm_problem &p, bool aligned)
{
	access how = access_of(p);
	int bytes = wide_f64::bytes(how.a_along_k + how.b_along_k, false);

	return aligned && config.shape->in_f64 && config.splits == 1 && (p.m > 32 || p.n > 32) &&
	       bytes <= cuda_device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
}

/* Blocks of 64 × 64 are for products that keep the GPU busy by themselves. */
bool goes_together(const simt_config &config, const op_args *args)
{
	return config.shape && config.shape->launch_together && gemm_problem_of(args).batch == 1;
}

} // namespace

#endif
