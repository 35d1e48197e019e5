/*
 * join.cuh: joins what parts of the keys found for each query, and what the part of an op before hands on.
 *
 * A part's findings are one after another: for each column the sum of v times exponentials; the largest score;
 * and the sum of exponentials relative to it. Queries are numbered through batches and heads.
 */
#ifndef KOPS_KERNELS_ATTENTION_JOIN_H
#define KOPS_KERNELS_ATTENTION_JOIN_H

#include <math.h>

#include "attention/problem.cuh"
#include "attention/split.h"
#include "attention/warp.cuh"
#include "common/launch.cuh"

namespace
{

constexpr int JOIN_WARPS = 4;
constexpr uint64_t JOIN_GRID_MAX = 1u << 20;

/* What scores are relative to: of nothing but -Inf, 0. */
template <class R> __device__ __forceinline__ R base_of(R peak)
{
	return peak == -(R)INFINITY ? 0 : peak;
}

template <class R> struct findings {
	const R *found;
	unsigned parts;
	double *carried; /* attention_carried(); NULL: the op is not in parts */
	bool goes_on;
};

template <class R> findings<R> findings_of(const struct op_args *args, const R *found, unsigned parts)
{
	const bool *flags = args->params.plain.flags;

	return {found, parts, flags[ATTENTION_IS_PART] ? (double *)args->carried : nullptr,
	        flags[ATTENTION_GOES_ON]};
}

/* A warp for each query. R: the type of arithmetic. */
template <class T, class R>
__global__ void __launch_bounds__(JOIN_WARPS * 32)
    join_parts(const __grid_constant__ attention_problem p, findings<R> f, uint64_t queries)
{
	unsigned columns = (unsigned)p.values, lane = threadIdx.x % 32;
	uint64_t apart = columns + 2;

	await_kernel_before();
	for (uint64_t number = (uint64_t)blockIdx.x * JOIN_WARPS + threadIdx.x / 32; number < queries;
	     number += (uint64_t)gridDim.x * JOIN_WARPS) {
		const R *found = f.found + number * f.parts * apart;
		double *carried = f.carried ? f.carried + number * apart : nullptr;
		T *o = row_of<T>(p, p.o, number);
		R before = f.goes_on ? (R)carried[columns] : -(R)INFINITY, peak = before, total = 0;

		for (unsigned part = lane; part < f.parts; part += 32) {
			R of_part = found[part * apart + columns];
			peak = of_part > peak ? of_part : peak;
		}
		peak = largest_of_warp(peak);
		R base = base_of(peak);
		for (unsigned part = lane; part < f.parts; part += 32)
			total += found[part * apart + columns + 1] * exp(found[part * apart + columns] - base);
		total = sum_of_warp(total);
		R of_before = exp(before - base);
		if (f.goes_on)
			total += (R)carried[columns + 1] * of_before;
		for (unsigned column = lane; column < columns; column += 32) {
			R sum = f.goes_on ? (R)carried[column] * of_before : 0;

			for (unsigned part = 0; part < f.parts; part++)
				sum += found[part * apart + column] * exp(found[part * apart + columns] - base);
			if (carried)
				carried[column] = (double)sum;
			o[column * p.o.strides[3]] = (T)(total == 0 ? 0 : sum / total);
		}
		__syncwarp(); /* all lanes have read the next two */
		if (carried && lane == 0) {
			carried[columns] = (double)peak;
			carried[columns + 1] = (double)total;
		}
		if (lane == 0)
			write_lse(p, number, peak, total);
	}
	let_next_kernel_come();
}

template <class T, class R>
void launch_join(const struct op_args *args, const attention_problem &p, const findings<R> &f,
                 cudaStream_t stream)
{
	const struct view *o = &args->views[ATTENTION_O];
	uint64_t queries = o->shape[0] * o->shape[1] * o->shape[2];
	uint64_t blocks = (queries + JOIN_WARPS - 1) / JOIN_WARPS;

	launch_kernel(
	    join_parts<T, R>,
	    {dim3((unsigned)(blocks < JOIN_GRID_MAX ? blocks : JOIN_GRID_MAX)), dim3(JOIN_WARPS * 32)}, stream,
	    p, f, queries);
}

} // namespace

#endif
