/* rules.c: the rules that ops on matrices share. See linalg.h. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "linalg/linalg.h"

double linalg_roundoff(kops_dtype dtype)
{
	return dtype_component(dtype) == KOPS_F64 ? 0x1p-53 : 0x1p-24;
}

double linalg_smallest(kops_dtype dtype)
{
	return dtype_component(dtype) == KOPS_F64 ? DBL_MIN : (double)FLT_MIN;
}

int linalg_check_matrices(const struct view *v, const char *name, char why[WHY_BYTES])
{
	char text[RULES_SHAPE_BYTES];
	int rc = rules_rank(v, name, 2, 4, why);

	if (rc < 0)
		return rc;
	if (v->shape[v->rank - 1] > INT32_MAX || v->shape[v->rank - 2] > INT32_MAX)
		return rules_refuse(why, KOPS_E_SHAPE, "%s is %s; matrices have at most %d rows and columns",
		                    name, rules_shape(v, text), INT32_MAX);
	return 0;
}

int linalg_check_square(const struct view *v, const char *name, char why[WHY_BYTES])
{
	char text[RULES_SHAPE_BYTES];
	int rc = linalg_check_matrices(v, name, why);

	if (rc == 0 && v->shape[v->rank - 2] != v->shape[v->rank - 1])
		rc = rules_refuse(why, KOPS_E_SHAPE, "%s is %s; its last two axes must have equal extents",
		                  name, rules_shape(v, text));
	return rc;
}

void linalg_result_beside(const struct view *a, struct view *v, uint64_t last)
{
	uint32_t axes = a->rank - 2;

	memcpy(v->shape, a->shape, axes * sizeof v->shape[0]);
	if (last != NO_LAST_AXIS || axes == 0)
		v->shape[axes++] = last != NO_LAST_AXIS ? last : 1;
	v->rank = axes;
}

/* The same with an axis of one index for each that is missing. */
static struct view whole_beside(const struct view *a, uint64_t last)
{
	struct view v = *a;

	v.shape[a->rank - 2] = 1;
	v.shape[a->rank - 1] = last != NO_LAST_AXIS ? last : 1;
	return v;
}

static bool has_shape(const struct view *v, const struct view *want)
{
	return v->rank == want->rank && memcmp(v->shape, want->shape, v->rank * sizeof v->shape[0]) == 0;
}

int linalg_check_beside(const struct view *a, const struct view *v, const char *name, uint64_t last,
                        char why[WHY_BYTES])
{
	struct view want = *a, whole = whole_beside(a, last);
	char ta[RULES_SHAPE_BYTES], tv[RULES_SHAPE_BYTES], tw[RULES_SHAPE_BYTES];

	linalg_result_beside(a, &want, last);
	if (has_shape(v, &want) || has_shape(v, &whole))
		return 0;
	return rules_refuse(why, KOPS_E_SHAPE, "a is %s and %s %s; %s must be %s", rules_shape(a, ta), name,
	                    rules_shape(v, tv), name, rules_shape(&want, tw));
}

/* The axes of v that a matrix does not have, or has one index of, become its rows and columns. */
static void widen(struct view *v, uint32_t rank, bool has_last)
{
	struct view wide = {.rank = rank};
	uint32_t axes = rank - 2;

	if (v->rank == rank)
		return;
	memcpy(wide.shape, v->shape, axes * sizeof wide.shape[0]);
	memcpy(wide.strides, v->strides, axes * sizeof wide.strides[0]);
	wide.shape[axes] = wide.shape[axes + 1] = 1;
	if (has_last) {
		wide.shape[axes + 1] = v->shape[v->rank - 1];
		wide.strides[axes + 1] = v->strides[v->rank - 1];
	}
	v->rank = rank;
	memcpy(v->shape, wide.shape, sizeof v->shape);
	memcpy(v->strides, wide.strides, sizeof v->strides);
}

void linalg_fold(struct view *const views[], unsigned n, unsigned beside)
{
	uint32_t rank = views[0]->rank;

	for (unsigned i = 0; i < n; i++) {
		if (beside >> i & 1)
			widen(views[i], rank, views[i]->rank > rank - 2);
		rules_pad_rank(views[i], 4);
	}
	rules_fold(views, n, 2);
}

void linalg_transpose(struct view *v)
{
	uint64_t extent = v->shape[2];
	int64_t stride = v->strides[2];

	v->shape[2] = v->shape[3];
	v->strides[2] = v->strides[3];
	v->shape[3] = extent;
	v->strides[3] = stride;
}

void linalg_reverse(struct view *v, uint32_t axis)
{
	uint64_t extent = v->shape[axis];

	if (view_is_empty(v))
		return;
	view_narrow(v, axis, extent - 1, extent);
	v->strides[axis] = -v->strides[axis];
}

/* ---- Parts ---- */

#define STEP       16u         /* columns or rows */
#define FEW        (16 * STEP) /* of which each is a step */
#define LENGTH_MAX (1u << 16)  /* elements of columns, of which a GPU's multiprocessor takes some in a step */

static uint64_t step_of(uint64_t n, uint64_t length)
{
	return n < FEW || length > LENGTH_MAX ? 1 : STEP;
}

static uint64_t place_of(uint64_t n, uint64_t length, uint64_t steps)
{
	uint64_t step = step_of(n, length);

	return steps < n / step ? steps * step : n;
}

uint64_t linalg_steps(uint64_t n, uint64_t length)
{
	return n / step_of(n, length);
}

void linalg_set_part(struct op_args *args, uint64_t n, uint64_t length, uint64_t first, uint64_t steps)
{
	args->params.plain.counts[LINALG_BEGIN] = (uint32_t)place_of(n, length, first);
	args->params.plain.counts[LINALG_END] = (uint32_t)place_of(n, length, first + steps);
}

void linalg_of_size(const uint64_t *extents, struct op_args *args)
{
	struct view *a = &args->views[0];

	a->rank = extents[0] == 1 ? 2 : 3;
	memcpy(a->shape, (uint64_t[]){extents[0], extents[1], extents[1]}, sizeof(uint64_t[3]));
	if (a->rank == 2)
		memmove(a->shape, a->shape + 1, sizeof(uint64_t[2]));
}

const struct size_span linalg_size_spans[] = {
    {1, 100, (const uint64_t[]){1, 0}},
    {2, 2000, (const uint64_t[]){16, 32, 64, 128, 256, 512, 1024, 0}},
};
