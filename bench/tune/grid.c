#include "tune/grid.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files/element.h"

static const struct {
	kops_dtype dtype;
	kops_precision precision; /* other than f32: of products only */
} types[] = {
    {KOPS_F32, KOPS_PRECISION_F32}, {KOPS_F32, KOPS_PRECISION_IEEE}, {KOPS_BF16, KOPS_PRECISION_F32},
    {KOPS_F16, KOPS_PRECISION_F32}, {KOPS_F32, KOPS_PRECISION_TF32}, {KOPS_F32, KOPS_PRECISION_BF16},
    {KOPS_F64, KOPS_PRECISION_F32},
};
#define N_TYPES (sizeof(types) / sizeof(types[0]))

static const struct {
	bool fine, unaligned, transposed[STEP_INPUTS_MAX];
} stages[] = {
    {false, false, {false, false}}, {false, true, {false, false}}, {true, false, {false, false}},
    {false, false, {false, true}},  {false, false, {true, false}}, {false, false, {true, true}},
    {true, true, {false, false}},   {true, false, {false, true}},  {true, false, {true, false}},
    {true, false, {true, true}},
};
#define N_STAGES (sizeof(stages) / sizeof(stages[0]))

bool tune_takes(const struct operation *op)
{
	return op->bench.grid != NULL;
}

static bool exists(const struct sweep *s)
{
	const struct bench_grid *grid = s->op->bench.grid;

	if (!(s->op->dtypes & 1u << s->dtype) || (s->unaligned && !grid->lines))
		return false;
	return grid->products || (s->precision == KOPS_PRECISION_F32 && !s->transposed[0] && !s->transposed[1]);
}

bool tune_sweep(const struct operation *const *ops, size_t n_ops, size_t index, struct sweep *ret)
{
	/* Types change less often than ops: random numbers have to be made for each. */
	for (size_t i = 0; i < N_STAGES * N_TYPES * n_ops; i++) {
		size_t stage = i / (N_TYPES * n_ops), type = i / n_ops % N_TYPES;
		struct sweep s = {.op = ops[i % n_ops],
		                  .dtype = types[type].dtype,
		                  .precision = types[type].precision,
		                  .fine = stages[stage].fine,
		                  .unaligned = stages[stage].unaligned};
		memcpy(s.transposed, stages[stage].transposed, sizeof(s.transposed));
		if (!exists(&s) || index-- > 0)
			continue;
		*ret = s;
		return true;
	}
	return false;
}

const char *tune_sweep_name(const struct sweep *s, char text[64])
{
	static const char *const precisions[] = {" f32", " ieee", " tf32", " bf16"};
	char layouts[] = {' ', s->transposed[0] ? 'T' : 'N', s->transposed[1] ? 'T' : 'N', '\0'};
	bool products = s->op->bench.grid->products;

	snprintf(text, 64, "%s %s%s%s%s%s", s->op->name, element_type_name(s->dtype),
	         products && s->dtype == KOPS_F32 ? precisions[s->precision] : "", products ? layouts : "",
	         s->unaligned ? " unaligned" : "", s->fine ? " fine" : "");
	return text;
}

/* ---- Shapes ---- */

static bool is_coarse(const struct bench_grid *grid, const unsigned log2[3])
{
	for (unsigned i = 0; i < 3; i++)
		if ((log2[i] - grid->low[i]) % 2 != 0)
			return false;
	return true;
}

static int by_work(const void *a, const void *b)
{
	double work_a = bench_shape_product(a), work_b = bench_shape_product(b);

	if (work_a != work_b)
		return work_a < work_b ? -1 : 1;
	return memcmp(((const struct bench_shape *)a)->extents, ((const struct bench_shape *)b)->extents,
	              sizeof(((const struct bench_shape *)a)->extents));
}

static struct bench_shape shape_of(const struct sweep *sweep, const unsigned log2[3])
{
	struct bench_shape shape = {.text = ""};
	size_t used = 0;

	for (unsigned i = 0; i < bench_extents(sweep->op); i++) {
		uint64_t extent = 1ull << log2[i];
		shape.extents[i] = sweep->unaligned && extent > 2 ? extent - 1 : extent;
		used += (size_t)snprintf(shape.text + used, sizeof(shape.text) - used, i ? "x%llu" : "%llu",
		                         (unsigned long long)shape.extents[i]);
	}
	return shape;
}

/* Lines an element short begin anywhere, but a single one begins where the memory does: an aligned class. */
static bool is_wanted(const struct sweep *sweep, const struct bench_grid *grid, const unsigned log2[3])
{
	for (unsigned i = 0; i < bench_extents(sweep->op) && sweep->unaligned; i++)
		if (log2[i] == 0)
			return false;
	return is_coarse(grid, log2) != sweep->fine;
}

size_t tune_shapes(const struct sweep *sweep, struct bench_shape ret[TUNE_SHAPES_MAX])
{
	const struct bench_grid *grid = sweep->op->bench.grid;
	unsigned log2[3];
	size_t n = 0;

	/* An extent that an op does not have is 2^0 in both bounds. */
	for (log2[0] = grid->low[0]; log2[0] <= grid->high[0]; log2[0]++)
		for (log2[1] = grid->low[1]; log2[1] <= grid->high[1]; log2[1]++)
			for (log2[2] = grid->low[2]; log2[2] <= grid->high[2]; log2[2]++)
				if (is_wanted(sweep, grid, log2))
					ret[n++] = shape_of(sweep, log2);
	qsort(ret, n, sizeof(*ret), by_work);
	return n;
}

/* Column-major in memory. */
static void transpose(kops_view *view)
{
	view->strides[0] = 1;
	view->strides[1] = (int64_t)view->shape[0];
}

int tune_step(const struct sweep *sweep, const struct bench_shape *shape, struct step *ret_step, char *why)
{
	int rc = bench_shape_step(sweep->op, sweep->dtype, shape, ret_step, why);

	for (unsigned i = 0; rc == 0 && i < STEP_INPUTS_MAX; i++)
		if (sweep->transposed[i])
			transpose(&ret_step->in[i]);
	return rc;
}
