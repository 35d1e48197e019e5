/*
 * attention on the CPU, as `tiles`: threads take blocks of queries of a head, and go through the keys in blocks
 * (cpu_tile.h). 16-bit types are computed in f32, f64 in f64. Bound by arithmetic, of which it has a third to a
 * half; a few queries with many keys by memory.
 */
#include <math.h>
#include <string.h>

#include "attention/attention.h"
#include "common/cpu.h"
#include "common/half.h"
#include "common/threads.h"

#define QUERIES       64
#define KEYS          64
#define WORKSPACE_MAX (64u << 20) /* that all threads take; a tile takes some 2 MiB at most */
#define FEW_QUERIES   8           /* below, keys are not worth being transposed */

struct sizes {
	int64_t depth, values;
	uint64_t bytes; /* of a thread's tile */
};

struct work {
	const struct op_args *args;
	const struct view *mask; /* NULL: none */
	struct sizes sizes;
	uint64_t blocks; /* of queries, for each head */
	unsigned n_parts;
	char *memory; /* sizes.bytes for each part */
};

struct head {
	uint64_t batch, head, shared; /* shared: of k and v */
	struct attention_rule rule;
};

static char *row_of(const struct view *v, uint64_t batch, uint64_t head, int64_t row, int64_t column)
{
	int64_t at = (int64_t)batch * v->strides[0] + (int64_t)head * v->strides[1] + row * v->strides[2] +
	             column * v->strides[3];

	return (char *)v->data + at * (int64_t)dtype_size(v->dtype);
}

static void store_lse(const struct op_args *args, const struct head *at, int64_t row, double lse)
{
	const struct view *v = &args->views[ATTENTION_LSE];

	if (!view_is_absent(v))
		half_store(v->data, v->dtype,
		           (int64_t)at->batch * v->strides[0] + (int64_t)at->head * v->strides[1] +
		               row * v->strides[2],
		           lse);
}

/* ---- In f32 ---- */

/* Columns first … of a row. */
static void load_row_f32(float *to, const struct view *v, uint64_t batch, uint64_t head, int64_t row,
                         int64_t first, int64_t n)
{
	const char *from = row_of(v, batch, head, row, first);

	if (v->strides[3] != 1)
		for (int64_t i = 0; i < n; i++)
			to[i] = (float)half_load(from, v->dtype, i * v->strides[3]);
	else if (v->dtype == KOPS_F32)
		memcpy(to, from, (size_t)n * sizeof *to);
	else
		half_widen(to, from, v->dtype, n);
}

static void store_row_f32(const float *from, const struct view *v, const struct head *at, int64_t row,
                          int64_t n)
{
	char *to = row_of(v, at->batch, at->head, row, 0);

	if (v->strides[3] != 1)
		for (int64_t i = 0; i < n; i++)
			half_store(to, v->dtype, i * v->strides[3], (double)from[i]);
	else if (v->dtype == KOPS_F32)
		memcpy(to, from, (size_t)n * sizeof *from);
	else
		half_narrow(to, v->dtype, from, n);
}

#define REAL        float
#define NAMED(name) name##_f32
#define EXP(t)      cpu_exp_negative(t)
#include "attention/cpu_tile.h"
#undef REAL
#undef NAMED
#undef EXP

/* ---- In f64 ---- */

static void load_row_f64(double *to, const struct view *v, uint64_t batch, uint64_t head, int64_t row,
                         int64_t first, int64_t n)
{
	const char *from = row_of(v, batch, head, row, first);

	for (int64_t i = 0; i < n; i++)
		to[i] = ((const double *)(const void *)from)[i * v->strides[3]];
}

static void store_row_f64(const double *from, const struct view *v, const struct head *at, int64_t row,
                          int64_t n)
{
	char *to = row_of(v, at->batch, at->head, row, 0);

	for (int64_t i = 0; i < n; i++)
		((double *)(void *)to)[i * v->strides[3]] = from[i];
}

#define REAL        double
#define NAMED(name) name##_f64
#define EXP(t)      exp(t)
#include "attention/cpu_tile.h"
#undef REAL
#undef NAMED
#undef EXP

/* ---- The kernel ---- */

static uint64_t element_bytes(const struct op_args *args)
{
	return args->views[ATTENTION_Q].dtype == KOPS_F64 ? sizeof(double) : sizeof(float);
}

static struct sizes sizes_of(const struct op_args *args)
{
	struct sizes s = {.depth = (int64_t)args->views[ATTENTION_Q].shape[3],
	                  .values = (int64_t)args->views[ATTENTION_V].shape[3]};
	int64_t longer = s.depth > s.values ? s.depth : s.values;

	s.bytes = cpu_align((uint64_t)(QUERIES * (s.depth + s.values + KEYS + 2) + KEYS * (s.depth + longer)) *
	                    element_bytes(args));
	return s;
}

static uint64_t blocks_of(const struct op_args *args)
{
	return (args->views[ATTENTION_Q].shape[2] + QUERIES - 1) / QUERIES;
}

/* Blocks of queries of all heads. */
static uint64_t units_of(const struct op_args *args)
{
	const struct view *q = &args->views[ATTENTION_Q];

	return q->shape[0] * q->shape[1] * blocks_of(args);
}

static unsigned parts_of(const struct op_args *args)
{
	unsigned parts = threads_parts(units_of(args), 1);
	uint64_t most = WORKSPACE_MAX / sizes_of(args).bytes;

	return parts < most ? parts : (unsigned)most;
}

static void some_blocks(void *ctx, unsigned part)
{
	const struct work *w = ctx;
	const struct view *q = &w->args->views[ATTENTION_Q];
	uint64_t units = units_of(w->args), end = threads_bound(units, part + 1, w->n_parts);
	char *memory = w->memory + part * w->sizes.bytes;

	for (uint64_t unit = threads_bound(units, part, w->n_parts); unit < end; unit++) {
		uint64_t head = unit / w->blocks;
		struct head at = {.batch = head / q->shape[1],
		                  .head = head % q->shape[1],
		                  .rule = attention_rule_at(w->args, head / q->shape[1])};
		int64_t first = (int64_t)(unit % w->blocks * QUERIES), rows = (int64_t)q->shape[2] - first;

		rows = rows < QUERIES ? rows : QUERIES;
		at.shared = attention_shared_head(w->args, at.head);
		if (q->dtype == KOPS_F64)
			attend_f64(w, &at, first, rows, memory);
		else
			attend_f32(w, &at, first, rows, memory);
	}
}

static uint64_t workspace(const struct op_args *args)
{
	return parts_of(args) * sizes_of(args).bytes;
}

static int tiles(const struct op_args *args, const struct launch *launch)
{
	struct work w = {.args = args,
	                 .mask =
	                     view_is_absent(&args->views[ATTENTION_MASK]) ? NULL : &args->views[ATTENTION_MASK],
	                 .sizes = sizes_of(args),
	                 .blocks = blocks_of(args),
	                 .n_parts = parts_of(args),
	                 .memory = launch->workspace};

	threads_run(w.n_parts, some_blocks, &w);
	return 0;
}

static double time_ns(const struct op_args *args)
{
	const double flop_ns = 0.04, element_ns = 0.5, unit_ns = 2000;
	const struct view *q = &args->views[ATTENTION_Q];
	double units = (double)units_of(args), parts = parts_of(args), slower = q->dtype == KOPS_F64 ? 3 : 1;
	double columns = (double)(q->shape[3] + args->views[ATTENTION_V].shape[3]);
	struct cost cost;

	args->op->cost(args, &cost);
	double moved = units * (double)args->views[ATTENTION_K].shape[2] * columns;
	return fmax((units * unit_ns + slower * (cost.flops * flop_ns + moved * element_ns)) /
	                cpu_threads(parts),
	            cpu_memory_ns(args, parts));
}

static const struct kernel kernels[] = {
    {
        .name = "tiles",
        .idea = "blocks of queries by blocks of keys, the softmax carried along; threads over queries",
        .dtypes = "f32 f64 f16 bf16",
        .takes = "any strides",
        .supports = cpu_reference_supports,
        .time_ns = time_ns,
        .workspace = workspace,
        .launch = tiles,
        .carries = true,
    },
    CPU_REFERENCE_KERNEL("f32 f64 f16 bf16"),
};

const struct kernel_list attention_cpu_kernels = {kernels, sizeof(kernels) / sizeof(kernels[0])};
