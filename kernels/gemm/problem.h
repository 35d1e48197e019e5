/* problem.h: the extents and strides of a gemm as its CUDA kernels see them. */
#ifndef KOPS_KERNELS_GEMM_PROBLEM_H
#define KOPS_KERNELS_GEMM_PROBLEM_H

#include "common/cuda.h"
#include "gemm/gemm.h"

/* One operand: element (b, r, c) lies at data + b * batch + r * row + c * col elements. */
struct gemm_operand {
	void *data;
	int64_t batch, row, col;
};

struct gemm_problem {
	uint64_t batch, m, n, k;
	struct gemm_operand a, b, c, bias; /* bias: of c's shape; all zeros if it is absent */
};

/* Operands of rank 2, or with one matrix for all batches, get batch stride 0. */
static inline struct gemm_operand gemm_operand_of(const struct view *v)
{
	uint32_t r = v->rank;
	struct gemm_operand o = {v->data, 0, v->strides[r - 2], v->strides[r - 1]};

	if (r == 3 && v->shape[0] > 1)
		o.batch = v->strides[0];
	return o;
}

static inline struct gemm_problem gemm_problem_of(const struct op_args *args)
{
	const struct view *a = &args->views[GEMM_A], *b = &args->views[GEMM_B], *c = &args->views[GEMM_C];
	const struct view *bias = &args->views[GEMM_BIAS];
	struct gemm_problem p;

	p.batch = c->rank == 3 ? c->shape[0] : 1;
	p.m = c->shape[c->rank - 2];
	p.n = c->shape[c->rank - 1];
	p.k = a->shape[a->rank - 1];
	p.a = gemm_operand_of(a);
	p.b = gemm_operand_of(b);
	p.c = gemm_operand_of(c);
	p.bias = view_is_absent(bias) ? (struct gemm_operand){NULL, 0, 0, 0} : gemm_operand_of(bias);
	return p;
}

/* Of f32: whether the copy engine brings its lines, as far as can be known before there is an address. */
static inline bool gemm_operand_has_aligned_lines(const struct gemm_operand *o, uint64_t rows, uint64_t cols,
                                                  uint64_t offset)
{
	int64_t apart = o->col == 1 ? o->row : o->col;
	uint64_t lines = o->col == 1 ? rows : cols;

	return (o->col == 1 || o->row == 1) && (lines == 1 || (apart > 0 && apart % 4 == 0)) && o->batch >= 0 &&
	       o->batch % 4 == 0 && offset % 16 == 0;
}

static inline bool gemm_has_aligned_lines(const struct op_args *args)
{
	struct gemm_problem p = gemm_problem_of(args);

	return gemm_operand_has_aligned_lines(&p.a, p.m, p.k, args->views[0].offset) &&
	       gemm_operand_has_aligned_lines(&p.b, p.k, p.n, args->views[1].offset);
}

/* The transpose of the product: C' = B'·A'. */
static inline struct gemm_problem gemm_transposed(const struct gemm_problem *p)
{
	struct gemm_problem t = {p->batch, p->n, p->m, p->k, p->b, p->a, p->c, p->bias};
	struct gemm_operand *operands[] = {&t.a, &t.b, &t.c, &t.bias};

	for (int i = 0; i < 4; i++) {
		int64_t row = operands[i]->row;
		operands[i]->row = operands[i]->col;
		operands[i]->col = row;
	}
	return t;
}

/* Whether gemm_by_rows() exchanges A and B. */
static inline bool gemm_is_turned(const struct gemm_problem *p)
{
	return stride_magnitude(p->c.row) < stride_magnitude(p->c.col);
}

/* The product that has the finer axis of C as its columns, so that neighbouring threads write neighbours. */
static inline struct gemm_problem gemm_by_rows(const struct gemm_problem *p)
{
	return gemm_is_turned(p) ? gemm_transposed(p) : *p;
}

/* The multiprocessors of this thread's GPU if its tensor cores are programmed as those of Hopper, else 0. */
static inline int gemm_hopper_multiprocessors(void)
{
	return cuda_device_attribute(cudaDevAttrComputeCapabilityMajor) == 9
	           ? cuda_device_attribute(cudaDevAttrMultiProcessorCount)
	           : 0;
}

/* The multiprocessors that find room at a time in clusters of so many blocks, as Hopper groups them. */
static inline unsigned gemm_clustered(unsigned multiprocessors, unsigned blocks)
{
	return blocks > 2 ? multiprocessors * 10 / 11 : multiprocessors;
}

/* Whether f32 operands may be rounded to tf32. Its 10 bits are more than the 7 of bf16, too. */
static inline bool gemm_may_round(const struct op_args *args)
{
	kops_precision precision = args->params.gemm.precision;

	return precision == KOPS_PRECISION_TF32 || precision == KOPS_PRECISION_BF16;
}

/*
 * cuBLAS splits K where C is small, where K is long, and again where K is very short, and shorter sums have
 * smaller errors. So what is no worse than cuBLAS, by check_accuracy on an H200, is so for some problems only;
 * the others are not held against it.
 */
static inline bool gemm_is_held_against_cublas(const struct op_args *args)
{
	return args->views[0].dtype == KOPS_F32 && args->params.gemm.precision == KOPS_PRECISION_F32;
}

/* simt splits K itself, but less than cuBLAS does for small C. */
static inline bool gemm_simt_is_accurate_in_f32(const struct op_args *args)
{
	struct gemm_problem p = gemm_problem_of(args);

	return !gemm_is_held_against_cublas(args) ||
	       (p.m >= 32 && p.n >= 32 && (double)p.batch * (double)p.m * (double)p.n >= 512 * 512 &&
	        p.k >= 128 && p.k < 512);
}

/* Whether simt adds up its sums of 8 products in f64: where it would not be accurate else, and still fast. */
static inline bool gemm_simt_sums_in_f64(const struct op_args *args)
{
	struct gemm_problem p = gemm_problem_of(args);

	return !gemm_simt_is_accurate_in_f32(args) &&
	       (double)p.batch * (double)p.m * (double)p.n <= 320 * 320 && p.k <= 1024;
}

/* The type of C is that of A and B, or f32: what a part of an op hands on. */
static inline bool gemm_is_wide(const struct op_args *args)
{
	return args->views[GEMM_C].dtype != args->views[GEMM_A].dtype;
}

#endif
