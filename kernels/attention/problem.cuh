/* problem.cuh: attention as CUDA kernels see it. */
#ifndef KOPS_KERNELS_ATTENTION_PROBLEM_H
#define KOPS_KERNELS_ATTENTION_PROBLEM_H

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "attention/attention.h"

namespace
{

/* A view of rank 4: its address, and how far neighbours are apart along each axis, in elements. */
struct tensor {
	void *data;
	int64_t strides[4];
};

tensor tensor_of(const struct view &v)
{
	tensor t = {v.data, {}};

	for (uint32_t d = 0; d < v.rank; d++)
		t.strides[d] = v.shape[d] > 1 ? v.strides[d] : 0;
	return t;
}

struct attention_problem {
	tensor q, k, v, mask, o, lse; /* mask.data, lse.data NULL: none */
	const int32_t *lengths;       /* NULL: all keys count */
	int64_t lengths_apart;
	attention_rule rule;
	int64_t heads, group; /* heads of q; so many share one of k and v */
	int64_t first_head;   /* the place of the first among these */
	int queries, keys, depth, values;
};

attention_problem problem_of(const struct op_args *args)
{
	const struct view *v = args->views;
	attention_problem p = {};

	p.q = tensor_of(v[ATTENTION_Q]);
	p.k = tensor_of(v[ATTENTION_K]);
	p.v = tensor_of(v[ATTENTION_V]);
	p.o = tensor_of(v[ATTENTION_O]);
	if (!view_is_absent(&v[ATTENTION_MASK]))
		p.mask = tensor_of(v[ATTENTION_MASK]);
	if (!view_is_absent(&v[ATTENTION_LSE]))
		p.lse = tensor_of(v[ATTENTION_LSE]);
	p.lengths = (const int32_t *)v[ATTENTION_LENGTHS].data;
	p.lengths_apart = v[ATTENTION_LENGTHS].strides[0];
	p.rule = attention_rule_of(args);
	p.heads = (int64_t)v[ATTENTION_Q].shape[1];
	p.first_head = (int64_t)args->params.plain.numbers[ATTENTION_HEAD];
	p.group = (int64_t)args->params.plain.numbers[ATTENTION_GROUP];
	p.queries = (int)v[ATTENTION_Q].shape[2];
	p.keys = (int)v[ATTENTION_K].shape[2];
	p.depth = (int)v[ATTENTION_Q].shape[3];
	p.values = (int)v[ATTENTION_V].shape[3];
	return p;
}

template <class T>
__device__ __forceinline__ T *row_of(const tensor &t, int64_t batch, int64_t head, int64_t row)
{
	return (T *)t.data + batch * t.strides[0] + head * t.strides[1] + row * t.strides[2];
}

/* Of the query with this number, through all batches and heads. */
template <class T>
__device__ __forceinline__ T *row_of(const attention_problem &p, const tensor &t, uint64_t number)
{
	uint64_t queries = (uint64_t)p.queries, heads = (uint64_t)p.heads, head = number / queries;

	return row_of<T>(t, (int64_t)(head / heads), (int64_t)(head % heads), (int64_t)(number % queries));
}

/*
 * How many keys of a batch count, if p.lengths: any number. A client may write it meanwhile, so those that must
 * agree on it read it once.
 */
__device__ __forceinline__ int length_of(const attention_problem &p, int64_t batch)
{
	return p.lengths ? p.lengths[batch * p.lengths_apart] : 0;
}

__device__ __forceinline__ attention_rule rule_for(const attention_problem &p, int length)
{
	return p.lengths ? attention_rule_for(p.rule, length) : p.rule;
}

/* Writes the logarithm of a query's sum of exponentials relative to peak, if it is wanted. */
template <class R>
__device__ __forceinline__ void write_lse(const attention_problem &p, int64_t batch, int64_t head,
                                          int64_t query, R peak, R total)
{
	const int64_t *strides = p.lse.strides;

	if (p.lse.data)
		((R *)p.lse.data)[batch * strides[0] + head * strides[1] + query * strides[2]] =
		    total == 0 ? -(R)INFINITY : peak + log(total);
}

/* Of the query with this number, through all batches and heads. */
template <class R>
__device__ __forceinline__ void write_lse(const attention_problem &p, uint64_t number, R peak, R total)
{
	uint64_t queries = (uint64_t)p.queries, heads = (uint64_t)p.heads, head = number / queries;

	write_lse(p, (int64_t)(head / heads), (int64_t)(head % heads), (int64_t)(number % queries), peak,
	          total);
}

/* The head of k and v that a head of q uses. */
__device__ __forceinline__ int64_t shared_head(const attention_problem &p, int64_t head)
{
	return (p.first_head + head) / p.group;
}

} // namespace

#endif
