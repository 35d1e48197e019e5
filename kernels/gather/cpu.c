/* gather on the CPU: each row is copied, and threads take rows, or pieces of few long ones. */
#include <math.h>
#include <string.h>

#include "common/cpu.h"
#include "common/move.h"
#include "common/threads.h"
#include "gather/gather.h"

#define PIECE MOVE_PART /* elements of a row that are moved at once */

struct work {
	const struct op_args *args;
	uint64_t pieces_of_row;
	uint64_t pieces; /* of all rows */
	unsigned n_parts;
};

static uint64_t ceil_div(uint64_t a, uint64_t b)
{
	return a / b + (a % b != 0);
}

static struct work work_of(const struct op_args *args)
{
	uint64_t columns = args->views[GATHER_Y].shape[2], of_row = ceil_div(columns, PIECE);

	return (struct work){.args = args,
	                     .pieces_of_row = of_row,
	                     .pieces = gather_rows(args) * of_row,
	                     .n_parts = threads_parts(gather_rows(args) * columns, MOVE_PART)};
}

static void zero(char *to, int64_t step, uint64_t n, size_t size)
{
	if (step == 1) {
		memset(to, 0, n * size);
		return;
	}
	for (int64_t i = 0; i < (int64_t)n; i++)
		memset(to + i * step * (int64_t)size, 0, size);
}

/* Columns [first, first + n) of row `row` of y. */
static void move_columns(const struct op_args *args, uint64_t row, uint64_t first, uint64_t n)
{
	const struct view *x = &args->views[GATHER_X], *indices = &args->views[GATHER_INDICES],
	                  *y = &args->views[GATHER_Y];
	int64_t i = (int64_t)(row / indices->shape[1]), j = (int64_t)(row % indices->shape[1]),
	        column = (int64_t)first, size = (int64_t)dtype_size(y->dtype);
	uint64_t from =
	    gather_row(indices->data, i * indices->strides[0] + j * indices->strides[1], x->shape[0]);
	char *to = (char *)y->data + (i * y->strides[0] + j * y->strides[1] + column * y->strides[2]) * size;

	if (from == x->shape[0])
		zero(to, y->strides[2], n, (size_t)size);
	else
		move_matrix(to, 0, y->strides[2],
		            (const char *)x->data +
		                ((int64_t)from * x->strides[0] + column * x->strides[1]) * size,
		            0, x->strides[1], 1, n, (size_t)size);
}

static void run_part(void *ctx, unsigned part)
{
	const struct work *w = ctx;
	uint64_t columns = w->args->views[GATHER_Y].shape[2];

	for (uint64_t at = threads_bound(w->pieces, part, w->n_parts),
	              end = threads_bound(w->pieces, part + 1, w->n_parts);
	     at < end; at++) {
		uint64_t first = at % w->pieces_of_row * PIECE, left = columns - first;
		move_columns(w->args, at / w->pieces_of_row, first, left < PIECE ? left : PIECE);
	}
}

static int vectorised(const struct op_args *args, const struct launch *launch)
{
	struct work w = work_of(args);

	(void)launch;
	threads_run(w.n_parts, run_part, &w);
	return 0;
}

/* With as many rows of x as are read, for estimates of memory. */
static struct op_args taken_of(const struct op_args *args)
{
	struct op_args taken = *args;

	taken.views[GATHER_X] = gather_taken(args);
	return taken;
}

static double reference_ns(const struct op_args *args)
{
	struct op_args taken = taken_of(args);

	return cpu_reference_ns(&taken);
}

static double time_ns(const struct op_args *args)
{
	const double piece_ns = 12, apart_ns = 1.2;
	struct op_args taken = taken_of(args);
	struct work w = work_of(args);
	double elements = (double)view_elements(&args->views[GATHER_Y]), parts = elements / MOVE_PART;
	bool is_apart =
	    !gather_has_unit_rows(&args->views[GATHER_X]) || !gather_has_unit_rows(&args->views[GATHER_Y]);

	return fmax(((double)w.pieces * piece_ns + elements * (is_apart ? apart_ns : 0)) / cpu_threads(parts),
	            cpu_memory_ns(&taken, parts));
}

static const struct kernel kernels[] = {
    {.name = "vectorised",
     .idea = "memcpy of rows, or element by element where those of a row are apart; threads",
     .dtypes = "f32 f64 f16 bf16 i32 c64 c128",
     .takes = "any strides",
     .supports = cpu_reference_supports,
     .time_ns = time_ns,
     .launch = vectorised},
    CPU_REFERENCE_KERNEL_OF("f32 f64 f16 bf16 i32 c64 c128", reference_ns),
};

const struct kernel_list gather_cpu_kernels = {kernels, sizeof kernels / sizeof kernels[0]};
