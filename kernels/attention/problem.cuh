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

	for (int d = 0; d < 4; d++)
		t.strides[d] = v.shape[d] > 1 ? v.strides[d] : 0;
	return t;
}

struct attention_problem {
	tensor q, k, v, mask, o; /* mask.data NULL: none */
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

/* The head of k and v that a head of q uses. */
__device__ __forceinline__ int64_t shared_head(const attention_problem &p, int64_t head)
{
	return (p.first_head + head) / p.group;
}

} // namespace

#endif
