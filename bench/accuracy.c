#include <math.h>
#include <string.h>

#include "bench.h"
#include "random.h"

#define BLOCKS         4
#define BLOCK          64           /* rows and columns */
#define OPERAND_MAX    (4ull << 20) /* most elements of one operand that a block may need */
#define VECTOR_COLUMNS 4096         /* if there is only one row */
#define OUT            STEP_INPUTS_MAX

/* A part of a result. */
struct block {
	uint64_t row, rows, column, columns;
};

/* Returns a block of the output, with the parts of the inputs that it depends on. */
static struct step step_of_block(const struct step *step, const struct block *at)
{
	struct step part = *step;

	step_cut(&part, 0, at->row, at->rows);
	step_cut(&part, 1, at->column, at->columns);
	return part;
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Returns how many elements the largest input has that the block depends on. */
static uint64_t work_of(const struct step *step, const struct block *at)
{
	struct step part = step_of_block(step, at);
	uint64_t most = 0;

	for (unsigned i = 0; i < step->op->n_inputs; i++)
		if (step_has(step, i) && step_elements(&part.in[i]) > most)
			most = step_elements(&part.in[i]);
	return most;
}

/* Its extents: as much as the check of it is worth. Whole rows or columns where the op has no parts of them. */
static struct block block_of(const struct step *step)
{
	uint64_t rows = step->out.shape[0], columns = step->out.shape[1];
	struct step probe = *step;
	bool cuts_rows = step_cut(&probe, 0, 0, rows), cuts_columns = step_cut(&probe, 1, 0, columns);
	uint64_t width = rows == 1 ? VECTOR_COLUMNS : BLOCK;
	struct block b = {.rows = cuts_rows ? least(rows, BLOCK) : rows,
	                  .columns = cuts_columns ? least(columns, width) : columns};

	while (work_of(step, &b) > OPERAND_MAX &&
	       ((cuts_rows && b.rows > 1) || (cuts_columns && b.columns > 1))) {
		b.rows = cuts_rows ? (b.rows + 1) / 2 : rows;
		b.columns = cuts_columns ? (b.columns + 1) / 2 : columns;
	}
	return b;
}

/* Moves the i-th block: to the first corner, the last one, then random places. */
static void move_block(struct block *b, const struct step *step, unsigned i, struct random *random)
{
	uint64_t row_room = step->out.shape[0] - b->rows, column_room = step->out.shape[1] - b->columns;

	b->row = i == 0 ? 0 : i == 1 ? row_room : random_below(random, row_room + 1);
	b->column = i == 0 ? 0 : i == 1 ? column_room : random_below(random, column_room + 1);
}

/* Returns the same operands in SHARED memory, which must have room for each. */
static struct step shared_step(const struct step *part, kops_buffer *const *buffers)
{
	struct step step = *part;

	for (unsigned i = 0; i < part->op->n_inputs; i++)
		if (step_has(part, i))
			step.in[i] =
			    kops_tensor(buffers[i], 0, part->in[i].dtype, part->in[i].rank, part->in[i].shape);
	step.out = kops_tensor(buffers[OUT], 0, part->out.dtype, 2, part->out.shape);
	return step;
}

static int fetch(struct bench *b, const struct step *from, const struct step *to)
{
	struct step copies[STEP_OPERANDS_MAX];
	size_t n = 0;

	for (unsigned i = 0; i < from->op->n_inputs; i++) {
		if (!step_has(from, i))
			continue;
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
	int rc =
	    bench_alloc(b, step_elements(&part->out) * kops_dtype_size(part->out.dtype), true, &buffers[OUT]);

	for (unsigned i = 0; rc == 0 && i < part->op->n_inputs; i++)
		if (step_has(part, i))
			rc = bench_alloc(b, step_elements(&part->in[i]) * kops_dtype_size(part->in[i].dtype),
			                 true, &buffers[i]);
	return rc;
}

/* Returns error/bound, without dividing 0 by 0. */
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
	kops_buffer *buffers[STEP_OPERANDS_MAX] = {NULL};
	struct block at = block_of(step);
	struct step part = step_of_block(step, &at);

	int rc = make_buffers(b, &part, buffers);
	if (rc == 0)
		rc = check_blocks(b, step, at, buffers, ret_check);
	for (unsigned i = 0; i <= OUT; i++)
		kops_free(buffers[i]);
	return rc;
}
