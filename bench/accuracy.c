#include <math.h>
#include <string.h>

#include "bench.h"
#include "random.h"

#define BLOCKS         4
#define BLOCK          64           /* rows and columns */
#define OPERAND_MAX    (4ull << 20) /* elements that a block may need of one operand */
#define VECTOR_COLUMNS 4096         /* where there is one row only */
#define OUT            STEP_INPUTS_MAX

/* Elements [first, first + n) along an axis. */
static kops_view slice(kops_view view, unsigned axis, uint64_t first, uint64_t n)
{
	view.offset += first * (uint64_t)view.strides[axis] * kops_dtype_size(view.dtype);
	view.shape[axis] = n;
	return view;
}

static kops_view slice_block(kops_view view, uint64_t row, uint64_t rows, uint64_t column, uint64_t columns)
{
	return slice(slice(view, 0, row, rows), 1, column, columns);
}

struct block {
	uint64_t row, rows, column, columns; /* of the output */
};

static bool is(const struct step *step, const char *name)
{
	return strcmp(step->op->name, name) == 0;
}

/* What of the inputs a block of the output comes from. */
static struct step step_of_block(const struct step *step, const struct block *at)
{
	struct step part = *step;

	part.out = slice_block(step->out, at->row, at->rows, at->column, at->columns);
	if (is(step, "gemm")) {
		part.in[0] = slice(step->in[0], 0, at->row, at->rows);
		part.in[1] = slice(step->in[1], 1, at->column, at->columns);
	} else if (is(step, "transpose")) {
		part.in[0] = slice_block(step->in[0], at->column, at->columns, at->row, at->rows);
	} else {
		for (unsigned i = 0; i < step->op->n_inputs; i++)
			part.in[i] = slice_block(step->in[i], at->row, at->rows, at->column, at->columns);
	}
	return part;
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Its extents: as much as the check of it is worth. */
static struct block block_of(const struct step *step)
{
	uint64_t rows = step->out.shape[0], columns = step->out.shape[1];
	struct block b = {.rows = least(rows, BLOCK), .columns = least(columns, BLOCK)};

	if (is(step, "gemm")) {
		uint64_t most = OPERAND_MAX / step->in[0].shape[1];
		b.rows = least(b.rows, most ? most : 1);
		b.columns = least(b.columns, most ? most : 1);
	} else if (is(step, "softmax")) {
		uint64_t most = OPERAND_MAX / columns;
		b.rows = least(b.rows, most ? most : 1);
		b.columns = columns;
	} else if (rows == 1) {
		b.columns = least(columns, VECTOR_COLUMNS);
	}
	return b;
}

/* The i-th: the first corner, the last one, then random places. */
static void move_block(struct block *b, const struct step *step, unsigned i, struct random *random)
{
	uint64_t row_room = step->out.shape[0] - b->rows, column_room = step->out.shape[1] - b->columns;

	b->row = i == 0 ? 0 : i == 1 ? row_room : random_below(random, row_room + 1);
	b->column = i == 0 ? 0 : i == 1 ? column_room : random_below(random, column_room + 1);
}

/* The same operands in SHARED memory that has room for each. */
static struct step shared_step(const struct step *part, kops_buffer *const *buffers)
{
	struct step step = *part;

	for (unsigned i = 0; i < part->op->n_inputs; i++)
		step.in[i] = kops_tensor(buffers[i], 0, part->in[i].dtype, 2, part->in[i].shape);
	step.out = kops_tensor(buffers[OUT], 0, part->out.dtype, 2, part->out.shape);
	return step;
}

static int fetch(struct bench *b, const struct step *from, const struct step *to)
{
	struct step copies[STEP_INPUTS_MAX + 1];
	size_t n = 0;

	for (unsigned i = 0; i < from->op->n_inputs; i++) {
		copies[n] = step_of(operation_by_name("copy"));
		copies[n].in[0] = from->in[i];
		copies[n++].out = to->in[i];
	}
	copies[n] = step_of(operation_by_name("copy"));
	copies[n].in[0] = from->out;
	copies[n++].out = to->out;
	return bench_jobs(b, copies, n);
}

static int make_buffers(struct bench *b, const struct step *part, kops_buffer **buffers)
{
	size_t size = kops_dtype_size(part->out.dtype);
	int rc = bench_alloc(b, part->out.shape[0] * part->out.shape[1] * size, true, &buffers[OUT]);

	for (unsigned i = 0; rc == 0 && i < part->op->n_inputs; i++)
		rc = bench_alloc(b, part->in[i].shape[0] * part->in[i].shape[1] * size, true, &buffers[i]);
	return rc;
}

/* error/bound, without a division of 0 by 0. */
static double nearness(const struct check *c)
{
	return c->error > 0 ? c->error / c->bound : 0;
}

static void merge(struct check *all, const struct check *one, const struct block *at)
{
	bool first = all->compared == 0;

	all->compared += one->compared;
	all->wrong += one->wrong;
	all->max_error = fmax(all->max_error, one->max_error);
	if (!first && nearness(one) <= nearness(all))
		return;
	all->row = at->row + one->row;
	all->column = at->column + one->column;
	all->error = one->error;
	all->bound = one->bound;
	all->got = one->got;
	all->want = one->want;
}

static int check_blocks(struct bench *b, const struct step *step, struct block at, kops_buffer *const *buffers,
                        struct check *ret_check)
{
	struct check all = {.elements = step->out.shape[0] * step->out.shape[1], .seed = b->seed};
	struct random random;

	random_start(&random, b->seed);
	for (unsigned i = 0; i < BLOCKS && all.compared < all.elements; i++) {
		move_block(&at, step, i, &random);
		struct check one;
		struct step part = step_of_block(step, &at), here = shared_step(&part, buffers);
		int rc = fetch(b, &part, &here);
		if (rc == 0)
			rc = step_check(&here, &one);
		if (rc < 0)
			return rc;
		merge(&all, &one, &at);
	}
	*ret_check = all;
	return 0;
}

int bench_check(struct bench *b, const struct step *step, struct check *ret_check)
{
	kops_buffer *buffers[STEP_INPUTS_MAX + 1] = {NULL};
	struct block at = block_of(step);
	struct step part = step_of_block(step, &at);

	int rc = make_buffers(b, &part, buffers);
	if (rc == 0)
		rc = check_blocks(b, step, at, buffers, ret_check);
	for (unsigned i = 0; i <= OUT; i++)
		kops_free(buffers[i]);
	return rc;
}
