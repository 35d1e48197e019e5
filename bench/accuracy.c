#include <math.h>
#include <string.h>

#include "bench.h"
#include "random.h"

#define BLOCKS         4
#define BLOCK          64           /* rows and columns */
#define OPERAND_MAX    (4ull << 20) /* most elements of one operand that a block may need */
#define VECTOR_COLUMNS 4096         /* if there is only one row */
#define OUT            STEP_INPUTS_MAX

static kops_view block_of_view(kops_view view, const struct bench_block *at)
{
	return step_slice(step_slice(view, 0, at->row, at->rows), 1, at->column, at->columns);
}

/* Returns the part of an input that the block depends on. An input of one axis serves all rows. */
static kops_view block_of_input(const struct step *step, unsigned i, const struct bench_block *at)
{
	kops_view view = step->in[i];

	if (!step_has(step, i) || view.rank < 2)
		return view;
	return step->op->bench.reads_rows ? step_slice(view, 0, at->row, at->rows) : block_of_view(view, at);
}

/* Returns a block of the output, with the parts of the inputs that it depends on. */
static struct step step_of_block(const struct step *step, const struct bench_block *at)
{
	struct step part = *step;

	part.out = block_of_view(step->out, at);
	if (step->op->bench.cut)
		step->op->bench.cut(&part, at);
	for (unsigned i = 0; step->op->bench.cut == NULL && i < step->op->n_inputs; i++)
		part.in[i] = block_of_input(step, i, at);
	return part;
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Returns a block as large as is worth checking. */
static struct bench_block block_of(const struct step *step)
{
	const struct bench_cases *cases = &step->op->bench;
	uint64_t rows = step->out.shape[0], columns = step->out.shape[1];
	struct bench_block b = {.rows = least(rows, BLOCK), .columns = least(columns, BLOCK)};

	if (cases->reads_rows) {
		uint64_t most = OPERAND_MAX / step->in[0].shape[1];
		b.rows = least(b.rows, most ? most : 1);
		b.columns = cases->whole_rows ? columns : least(b.columns, most ? most : 1);
	} else if (rows == 1) {
		b.columns = least(columns, VECTOR_COLUMNS);
	}
	return b;
}

/* Moves the i-th block: to the first corner, the last one, then random places. */
static void move_block(struct bench_block *b, const struct step *step, unsigned i, struct random *random)
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
	size_t size = kops_dtype_size(part->out.dtype);
	int rc = bench_alloc(b, part->out.shape[0] * part->out.shape[1] * size, true, &buffers[OUT]);

	for (unsigned i = 0; rc == 0 && i < part->op->n_inputs; i++)
		if (step_has(part, i))
			rc = bench_alloc(b, step_elements(&part->in[i]) * size, true, &buffers[i]);
	return rc;
}

/* Returns error/bound, without dividing 0 by 0. */
static double nearness(const struct check *c)
{
	return c->error > 0 ? c->error / c->bound : 0;
}

static void merge(struct check *all, const struct check *one, const struct bench_block *at)
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

static int check_blocks(struct bench *b, const struct step *step, struct bench_block at,
                        kops_buffer *const *buffers, struct check *ret_check)
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
	struct bench_block at = block_of(step);
	struct step part = step_of_block(step, &at);

	int rc = make_buffers(b, &part, buffers);
	if (rc == 0)
		rc = check_blocks(b, step, at, buffers, ret_check);
	for (unsigned i = 0; i <= OUT; i++)
		kops_free(buffers[i]);
	return rc;
}
