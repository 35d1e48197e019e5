#include "operation.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "show.h"

static uint64_t extent(const kops_view *v, uint32_t from_end)
{
	return from_end < v->rank ? v->shape[v->rank - 1 - from_end] : 1;
}

/* ---- gemm ---- */

static int gemm_shape(const struct step *step, uint32_t *ret_rank, uint64_t *ret_shape, char *why)
{
	const kops_view *a = &step->in[0], *b = &step->in[1];
	uint32_t rank = a->rank > b->rank ? a->rank : b->rank;
	uint64_t batches = extent(a, 2) == 1 ? extent(b, 2) : extent(a, 2);

	if (a->rank < 2 || b->rank < 2 || rank > 3)
		return why_invalid(why,
		                   "a product takes matrices (2 dimensions, or 3 with a batch), not %s by %s",
		                   show_shape(a->rank, a->shape).text, show_shape(b->rank, b->shape).text);
	if (extent(a, 0) != extent(b, 1))
		return why_invalid(why,
		                   "shapes do not fit together: %s by %s has K = %" PRIu64
		                   " on the left and %" PRIu64 " on the right",
		                   show_shape(a->rank, a->shape).text, show_shape(b->rank, b->shape).text,
		                   extent(a, 0), extent(b, 1));
	if (extent(b, 2) != batches && extent(b, 2) != 1)
		return why_invalid(why, "batches differ: %" PRIu64 " on the left, %" PRIu64 " on the right",
		                   extent(a, 2), extent(b, 2));
	*ret_rank = rank;
	ret_shape[0] = batches;
	ret_shape[rank - 2] = extent(a, 1);
	ret_shape[rank - 1] = extent(b, 0);
	return 0;
}

static int gemm_enqueue(kops_job *job, const struct step *s)
{
	return kops_job_gemm(job, s->alpha, s->in[0], s->in[1], s->beta, s->out, s->precision, s->kernel);
}

static int gemm_check(const struct step *step, struct check *ret_check)
{
	struct elements a = elements_of(&step->in[0]), b = elements_of(&step->in[1]),
	                y = elements_of(&step->out);
	struct check_product product = {.a = &a,
	                                .b = &b,
	                                .y = &y,
	                                .old = step->beta != 0 ? step->old : NULL,
	                                .alpha = step->alpha,
	                                .beta = step->beta,
	                                .precision = step->precision};

	return check_gemm(&product, ret_check);
}

/* ---- softmax and copy ---- */

static int same_shape(const struct step *step, uint32_t *ret_rank, uint64_t *ret_shape, char *why)
{
	(void)why;
	*ret_rank = step->in[0].rank;
	memcpy(ret_shape, step->in[0].shape, sizeof(step->in[0].shape));
	return 0;
}

static int softmax_enqueue(kops_job *job, const struct step *s)
{
	return kops_job_softmax(job, s->in[0], s->out, s->scale, s->log, s->kernel);
}

static int softmax_check(const struct step *step, struct check *ret_check)
{
	struct elements x = elements_of(&step->in[0]), y = elements_of(&step->out);

	return check_softmax(&x, &y, step->scale, step->log, ret_check);
}

static int copy_enqueue(kops_job *job, const struct step *s)
{
	return kops_job_copy(job, s->in[0], s->out, s->kernel);
}

static int copy_check(const struct step *step, struct check *ret_check)
{
	struct elements x = elements_of(&step->in[0]), y = elements_of(&step->out);

	return check_copy(&x, &y, ret_check);
}

/* ---- fma ---- */

static int fma_enqueue(kops_job *job, const struct step *s)
{
	return kops_job_fma(job, s->in[0], s->out, s->alpha, s->beta, s->steps, s->kernel);
}

static int fma_check(const struct step *step, struct check *ret_check)
{
	struct elements x = elements_of(&step->in[0]), y = elements_of(&step->out);

	return check_fma(&x, &y, step->alpha, step->beta, step->steps, ret_check);
}

/* ---- transpose ---- */

static int transpose_shape(const struct step *step, uint32_t *ret_rank, uint64_t *ret_shape, char *why)
{
	const kops_view *x = &step->in[0];

	if (x->rank < 2)
		return why_invalid(why, "a transposition takes 2 to 4 dimensions, not %" PRIu32, x->rank);
	same_shape(step, ret_rank, ret_shape, why);
	ret_shape[x->rank - 2] = x->shape[x->rank - 1];
	ret_shape[x->rank - 1] = x->shape[x->rank - 2];
	return 0;
}

static int transpose_enqueue(kops_job *job, const struct step *s)
{
	return kops_job_transpose(job, s->in[0], s->out, s->kernel);
}

static int transpose_check(const struct step *step, struct check *ret_check)
{
	struct elements x = elements_of(&step->in[0]), y = elements_of(&step->out);

	return check_transpose(&x, &y, ret_check);
}

/* ---- add ---- */

static int add_shape(const struct step *step, uint32_t *ret_rank, uint64_t *ret_shape, char *why)
{
	const kops_view *a = &step->in[0], *b = &step->in[1];
	uint32_t rank = a->rank > b->rank ? a->rank : b->rank;

	for (uint32_t d = 0; d < rank; d++) {
		uint64_t of_a = extent(a, d), of_b = extent(b, d);
		if (of_a != of_b && of_a != 1 && of_b != 1)
			return why_invalid(
			    why, "shapes do not fit together: %s and %s; extents must be equal or 1",
			    show_shape(a->rank, a->shape).text, show_shape(b->rank, b->shape).text);
		ret_shape[rank - 1 - d] = of_a == 1 ? of_b : of_a;
	}
	*ret_rank = rank;
	return 0;
}

static int add_enqueue(kops_job *job, const struct step *s)
{
	return kops_job_add(job, s->in[0], s->in[1], s->out, s->kernel);
}

static int add_check(const struct step *step, struct check *ret_check)
{
	struct elements a = elements_of(&step->in[0]), b = elements_of(&step->in[1]),
	                y = elements_of(&step->out);

	return check_add(&a, &b, &y, ret_check);
}

/* ---- the list ---- */

#define TYPE_BIT(dtype) (1u << (dtype))
#define NARROW          (TYPE_BIT(KOPS_F32) | TYPE_BIT(KOPS_F16) | TYPE_BIT(KOPS_BF16))
#define WIDE            (TYPE_BIT(KOPS_F32) | TYPE_BIT(KOPS_F64))
#define ANY             (NARROW | WIDE)

static const struct operation operations[] = {
    {"gemm", 2, ANY, gemm_shape, gemm_enqueue, gemm_check},
    {"softmax", 1, NARROW, same_shape, softmax_enqueue, softmax_check},
    {"transpose", 1, ANY, transpose_shape, transpose_enqueue, transpose_check},
    {"add", 2, NARROW, add_shape, add_enqueue, add_check},
    {"copy", 1, ANY, same_shape, copy_enqueue, copy_check},
    {"fma", 1, WIDE, same_shape, fma_enqueue, fma_check},
};

const struct operation *operation_by_name(const char *name)
{
	for (size_t i = 0; i < sizeof(operations) / sizeof(operations[0]); i++)
		if (strcmp(operations[i].name, name) == 0)
			return &operations[i];
	return NULL;
}

struct step step_of(const struct operation *op)
{
	struct step step = {.op = op, .alpha = 1, .scale = 1};

	return step;
}

static int refuse_dtype(const struct operation *op, kops_dtype dtype, char *why)
{
	char list[32] = "";
	size_t used = 0;

	for (kops_dtype d = KOPS_F32; d <= KOPS_BF16 && used < sizeof(list); d++)
		if (op->dtypes & TYPE_BIT(d))
			used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%s", used ? ", " : "",
			                         element_type_name(d));
	return why_invalid(why, "%s takes %s, not %s; in NumPy: a.astype('<f4')", op->name, list,
	                   element_type_name(dtype));
}

int step_shape(const struct step *step, uint32_t *ret_rank, uint64_t ret_shape[KOPS_RANK_MAX], char *why)
{
	kops_dtype dtype = step->in[0].dtype;

	for (unsigned i = 0; i < step->op->n_inputs; i++) {
		if (step->in[i].dtype != dtype)
			return why_invalid(why, "%s takes inputs of one dtype, not %s and %s", step->op->name,
			                   element_type_name(dtype), element_type_name(step->in[i].dtype));
	}
	if (!(step->op->dtypes & TYPE_BIT(dtype)))
		return refuse_dtype(step->op, dtype, why);
	return step->op->shape(step, ret_rank, ret_shape, why);
}

int step_bytes(kops_dtype dtype, uint32_t rank, const uint64_t *shape, uint64_t *ret_bytes, char *why)
{
	uint64_t bytes = kops_dtype_size(dtype);

	for (uint32_t d = 0; d < rank; d++)
		if (shape[d] == 0)
			bytes = 0;
	for (uint32_t d = 0; d < rank; d++)
		if (__builtin_mul_overflow(bytes, shape[d], &bytes) || bytes > INT64_MAX)
			return why_invalid(why, "the result would be %s, more than memory can hold",
			                   show_shape(rank, shape).text);
	*ret_bytes = bytes;
	return 0;
}
