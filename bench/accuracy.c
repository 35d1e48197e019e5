#include <math.h>
#include <string.h>

#include "bench.h"
#include "random.h"

#define BLOCKS         4
#define BLOCK          64           /* rows and columns */
#define OPERAND_MAX    (4ull << 20) /* most elements of one operand that a block may need */
#define FLOPS_MAX      0x1p26       /* of a block */
#define VECTOR_COLUMNS 4096         /* if there is only one row */
#define OUT            STEP_INPUTS_MAX

/* A part of a result: of each axis `n` indices from `first` on. */
struct block {
	uint64_t first[KOPS_RANK_MAX], n[KOPS_RANK_MAX];
};

/* Returns a block of the output, with the parts of the inputs that it depends on. */
static struct step step_of_block(const struct step *step, const struct block *at)
{
	struct step part = *step;

	for (unsigned axis = 0; axis < step->out.rank; axis++)
		step_cut(&part, axis, at->first[axis], at->n[axis]);
	return part;
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Whether the check of a block takes too much: elements of its largest input, or FLOPs. */
static bool is_too_much(const struct step *step, const struct block *at)
{
	struct step part = step_of_block(step, at);
	uint64_t most = 0;

	for (unsigned i = 0; i < step->op->n_inputs; i++)
		if (step_has(step, i) && step_elements(&part.in[i]) > most)
			most = step_elements(&part.in[i]);
	return most > OPERAND_MAX || step_flops(&part) > FLOPS_MAX;
}

/*
 * Its extents: as much as the check of it is worth. One index of axes before the last two; all of an axis that
 * the op has no parts of.
 */
static struct block block_of(const struct step *step)
{
	const uint64_t *shape = step->out.shape;
	unsigned rows = step->out.rank - 2, columns = rows + 1;
	bool cuts[KOPS_RANK_MAX];
	struct block b = {.first = {0}};

	for (unsigned axis = 0; axis <= columns; axis++) {
		struct step probe = *step;
		uint64_t most = axis < rows ? 1 : axis == columns && shape[rows] == 1 ? VECTOR_COLUMNS : BLOCK;
		cuts[axis] = step_cut(&probe, axis, 0, shape[axis]);
		b.n[axis] = cuts[axis] ? least(shape[axis], most) : shape[axis];
	}
	while (is_too_much(step, &b) &&
	       ((cuts[rows] && b.n[rows] > 1) || (cuts[columns] && b.n[columns] > 1))) {
		b.n[rows] = cuts[rows] ? (b.n[rows] + 1) / 2 : shape[rows];
		b.n[columns] = cuts[columns] ? (b.n[columns] + 1) / 2 : shape[columns];
	}
	return b;
}

/* Moves the i-th block: to the first corner, the last one, then random places. */
static void move_block(struct block *b, const struct step *step, unsigned i, struct random *random)
{
	for (unsigned axis = 0; axis < step->out.rank; axis++) {
		uint64_t room = step->out.shape[axis] - b->n[axis];
		b->first[axis] = i == 0 ? 0 : i == 1 ? room : random_below(random, room + 1);
	}
}

/* The row of the output that is this one of a block; both are counted over all axes but the last. */
static uint64_t row_of_block(const struct block *at, const struct step *step, uint64_t row)
{
	uint64_t whole = 0, below = 1;

	for (unsigned axis = step->out.rank - 1; axis-- > 0; row /= at->n[axis]) {
		whole += (at->first[axis] + row % at->n[axis]) * below;
		below *= step->out.shape[axis];
	}
	return whole;
}

/* Returns the same operands in SHARED memory, which must have room for each. */
static struct step shared_step(const struct step *part, kops_buffer *const *buffers)
{
	struct step step = *part;

	for (unsigned i = 0; i < part->op->n_inputs; i++)
		if (step_has(part, i))
			step.in[i] =
			    kops_tensor(buffers[i], 0, part->in[i].dtype, part->in[i].rank, part->in[i].shape);
	step.out = kops_tensor(buffers[OUT], 0, part->out.dtype, part->out.rank, part->out.shape);
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

static void merge(struct check *all, const struct check *one, const struct block *at, const struct step *step)
{
	bool first = all->compared == 0;

	all->compared += one->compared;
	all->wrong += one->wrong;
	all->max_error = fmax(all->max_error, one->max_error);
	if (!first && nearness(one) <= nearness(all))
		return;
	all->row = row_of_block(at, step, one->row);
	all->column = at->first[step->out.rank - 1] + one->column;
	all->error = one->error;
	all->bound = one->bound;
	all->got = one->got;
	all->want = one->want;
}

static int check_blocks(struct bench *b, const struct step *step, struct block at, kops_buffer *const *buffers,
                        struct check *ret_check)
{
	struct check all = {.elements = step_elements(&step->out), .seed = b->seed};
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
		merge(&all, &one, &at, step);
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
