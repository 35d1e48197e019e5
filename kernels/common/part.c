/* part.c: cuts an op into parts, so that other jobs can run in between. See kernel.h. */
#include "kernel.h"

#include <math.h>

/* Parts begin at multiples of this, so that kernels for aligned operands take them too. */
#define CHUNK_ALIGN 256u
#define PARTS_MAX   (1u << 24) /* approximate limit along an axis or steps */
#define TRIES_MAX   6

static const struct op_cut uncut = {.n_parts = 1, .n_steps = 1, .share = 1};

static uint64_t extent_of(const struct op_args *args, int axis)
{
	const int8_t *axes = args->op->part_axes[axis].axis;
	unsigned output = op_first_output(args->op);

	return args->views[output].shape[axes[output]];
}

/* ---- The parts of a cut ---- */

static void narrow(struct view *v, int axis, bool keeps_stride, uint64_t first, uint64_t n)
{
	view_narrow(v, (uint32_t)axis, first, n);
	if (n == 1 && !keeps_stride)
		v->strides[axis] = 0;
}

/* Returns the size of chunk i of n; the last has what is left. */
static uint64_t size_of(uint64_t extent, uint64_t chunk, uint32_t i, uint32_t n)
{
	return i + 1 < n ? chunk : extent - i * chunk;
}

void op_block(const struct op_args *args, const struct op_cut *cut, uint32_t i, struct op_args *ret)
{
	const struct part_axis *axis = &args->op->part_axes[cut->axis];
	uint32_t n = cut->n_parts / cut->n_steps, block = i / cut->n_steps;

	*ret = *args;
	for (unsigned v = 0; n > 1 && v < args->op->n_operands; v++)
		if (axis->axis[v] != PART_NONE && !view_is_absent(&ret->views[v]))
			narrow(&ret->views[v], axis->axis[v], axis->keeps_stride, block * cut->chunk,
			       size_of(extent_of(args, cut->axis), cut->chunk, block, n));
}

void op_part(const struct op_args *args, const struct op_cut *cut, uint32_t i, struct op_args *ret)
{
	const struct op *op = args->op;
	uint32_t n, step;

	op_block(args, cut, i, ret);
	if (cut->n_steps <= 1)
		return;
	n = cut->n_steps / op->passes;
	step = i % cut->n_steps % n;
	op->step_part(ret, i % cut->n_steps / n, step * cut->step_chunk,
	              size_of(op->steps(args), cut->step_chunk, step, n));
}

int kernel_launch_part(const struct kernel *kernel, const struct op_args *args, const struct op_cut *cut,
                       uint32_t i, const struct launch *launch, part_convert *convert)
{
	struct op_args block, part;
	const struct view *y, *wide;
	unsigned output = op_first_output(args->op);
	int rc = 0;

	op_block(args, cut, i, &block);
	op_part(args, cut, i, &part);
	y = &block.views[output];
	wide = &part.views[output];
	if (y->dtype == wide->dtype)
		return kernel->launch(&part, launch);
	if (i % cut->n_steps == 0 && op_reads_output(args, output))
		rc = convert(y, wide, launch);
	if (rc == 0)
		rc = kernel->launch(&part, launch);
	if (rc == 0 && (i + 1) % cut->n_steps == 0)
		rc = convert(wide, y, launch);
	return rc;
}

/* ---- What kernels say of them ---- */

#define KINDS 7

/*
 * Lists one part of each kind. Parts differ in whether they are first, which may be better aligned, and in
 * size: the last part of a block or of its passes, and those of the last block.
 */
static unsigned kinds_of(const struct op *op, const struct op_cut *cut, uint32_t ret[KINDS])
{
	uint32_t n = cut->n_parts, steps = cut->n_steps, of_pass = steps > 1 ? steps / op->passes : 1;

	ret[0] = 0;
	ret[1] = n - 1;
	if (n <= 2)
		return n;
	ret[2] = 1;
	ret[3] = steps - 1;
	ret[4] = of_pass - 1;
	ret[5] = n - steps;
	ret[6] = n - steps + of_pass - 1;
	return KINDS;
}

bool kernel_takes_parts(const struct kernel *kernel, const struct op_args *args, const struct op_cut *cut)
{
	const char *why_not;
	struct op_args part;
	uint32_t kinds[KINDS];

	if (cut->n_parts <= 1)
		return kernel->supports(args, &why_not);
	for (unsigned i = kinds_of(args->op, cut, kinds); i-- > 0;) {
		op_part(args, cut, kinds[i], &part);
		if (!kernel->supports(&part, &why_not))
			return false;
	}
	return true;
}

uint64_t kernel_workspace(const struct kernel *kernel, const struct op_args *args, const struct op_cut *cut)
{
	uint64_t most = 0, bytes;
	struct op_args part;
	uint32_t kinds[KINDS];

	if (!kernel->workspace || op_is_empty(args))
		return 0;
	if (cut->n_parts <= 1)
		return kernel->workspace(args);
	for (unsigned i = kinds_of(args->op, cut, kinds); i-- > 0;) {
		op_part(args, cut, kinds[i], &part);
		bytes = kernel->workspace(&part);
		most = bytes > most ? bytes : most;
	}
	return most;
}

/* An op that is being cut. */
struct cutting {
	const struct kernel *kernel;
	const struct op_args *args;
	const struct part_limits *limits;
	struct op_cut best; /* so far */
	struct times {
		double longest_ns, all_ns;
	} times; /* times of its parts */
};

static double part_ns(const struct cutting *c, const struct op_cut *cut, uint32_t i)
{
	struct op_args part;

	op_part(c->args, cut, i, &part);
	return c->limits->time_ns(c->limits->on, c->kernel, &part);
}

/* Assumes that all parts of a block's pass but the last take as long as the first. */
static struct times times_of(const struct cutting *c, const struct op_cut *cut)
{
	bool in_steps = cut->n_steps > 1;
	uint32_t passes = in_steps ? c->args->op->passes : 1,
	         n = (in_steps ? cut->n_steps : cut->n_parts) / passes;
	double blocks = in_steps ? cut->n_parts / cut->n_steps : 1;
	struct times times = {0, 0};

	for (uint32_t pass = 0; pass < passes; pass++) {
		double first_ns = part_ns(c, cut, pass * n);
		double last_ns = n > 1 ? part_ns(c, cut, pass * n + n - 1) : first_ns;

		times.longest_ns = fmax(times.longest_ns, fmax(first_ns, last_ns));
		times.all_ns += blocks * ((n - 1) * first_ns + last_ns);
	}
	return times;
}

/* ---- Cutting ---- */

/* Returns a chunk size that makes about `wanted` chunks, or fewer if there are fewer indices. */
static uint64_t chunk_of(uint64_t extent, double wanted)
{
	uint64_t n = wanted < PARTS_MAX ? (uint64_t)ceil(wanted) : PARTS_MAX;
	uint64_t chunk = n < extent ? extent / n : 1;

	return chunk > CHUNK_ALIGN ? chunk / CHUNK_ALIGN * CHUNK_ALIGN : chunk;
}

/* Returns the number of chunks. A small rest joins the last one: kernels for large operands would refuse it. */
static uint32_t chunks(uint64_t extent, uint64_t chunk)
{
	return (uint32_t)(extent / chunk + (extent % chunk > chunk / 8));
}

static bool cut_blocks(const struct op_args *args, int axis, double wanted, struct op_cut *ret)
{
	uint64_t extent = extent_of(args, axis);

	*ret = uncut;
	if (extent < 2)
		return false;
	ret->axis = axis;
	ret->chunk = chunk_of(extent, wanted);
	ret->n_parts = chunks(extent, ret->chunk);
	return true;
}

static uint64_t carried_bytes(const struct op_args *args, const struct op_cut *blocks, uint32_t i)
{
	struct op_args block;

	op_block(args, blocks, i, &block);
	return args->op->carried_bytes ? args->op->carried_bytes(&block) : 0;
}

/* Cuts each block, or the whole op if there is one block, along its steps. */
static bool cut_steps(const struct op_args *args, double wanted, struct op_cut *cut)
{
	const struct op *op = args->op;
	uint64_t steps = op->steps ? op->steps(args) : 0, of_last;

	if (steps < 2)
		return false;
	cut->carried_bytes = carried_bytes(args, cut, 0);
	of_last = carried_bytes(args, cut, cut->n_parts - 1);
	if (of_last > cut->carried_bytes)
		cut->carried_bytes = of_last;
	cut->step_chunk = chunk_of(steps, wanted / op->passes);
	cut->n_steps = op->passes * chunks(steps, cut->step_chunk);
	return !__builtin_mul_overflow(cut->n_parts, cut->n_steps, &cut->n_parts);
}

#define LOST_MAX 1.1 /* factor of the op's time up to which no better cut is searched */

static bool is_fine(const struct cutting *c, const struct times *t)
{
	return t->longest_ns <= c->limits->most_ns;
}

static bool takes(const struct cutting *c, const struct op_cut *cut)
{
	return (cut->carried_bytes == 0 ||
	        (c->kernel->carries && cut->carried_bytes <= c->limits->carried_max)) &&
	       kernel_takes_parts(c->kernel, c->args, cut);
}

/* Keeps the better cut: of those that are fine enough the one that loses least time, else the finest. */
static void keep_better(struct cutting *c, const struct op_cut *cut, const struct times *t)
{
	bool better = is_fine(c, t) && is_fine(c, &c->times) ? t->all_ns < c->times.all_ns
	                                                     : t->longest_ns < c->times.longest_ns;

	if (!better)
		return;
	c->best = *cut;
	c->times = *t;
}

/*
 * Cuts the given blocks, perhaps one, along an axis or CUT_STEPS until no part is too long. Kernels may work in
 * tiles, so a smaller part need not take less time.
 */
static void cut_along(struct cutting *c, const struct op_cut *blocks, int axis)
{
	double wanted = times_of(c, blocks).longest_ns / c->limits->most_ns;

	for (unsigned i = 0; i < TRIES_MAX; i++) {
		struct op_cut cut = *blocks;
		struct times t = {1.1 * c->limits->most_ns, 0};

		if (!(axis == CUT_STEPS ? cut_steps(c->args, wanted, &cut)
		                        : cut_blocks(c->args, axis, wanted, &cut)))
			return;
		if (takes(c, &cut)) {
			t = times_of(c, &cut);
			keep_better(c, &cut, &t);
		}
		if (is_fine(c, &t))
			return;
		wanted =
		    fmax(wanted * 1.03 * t.longest_ns / c->limits->most_ns, cut.n_parts / blocks->n_parts + 1);
	}
}

/*
 * Cuts along the longest axis into blocks whose parts may carry what they must, or smaller blocks, and then
 * along steps.
 */
static void cut_both_ways(struct cutting *c, double wanted)
{
	const struct op *op = c->args->op;
	double n = op->carried_bytes
	               ? ceil((double)op->carried_bytes(c->args) / fmax((double)c->limits->carried_max, 1))
	               : 1;
	struct op_cut blocks;
	int longest = 0;

	for (int axis = 1; axis < (int)op->n_part_axes; axis++)
		if (extent_of(c->args, axis) > extent_of(c->args, longest))
			longest = axis;
	for (n = fmax(n, 2);
	     n < wanted * 8 && !is_fine(c, &c->times) && cut_blocks(c->args, longest, n, &blocks); n *= 8)
		cut_along(c, &blocks, CUT_STEPS);
}

static void find_cut(struct cutting *c, double wanted)
{
	double enough_ns = c->times.all_ns * LOST_MAX;

	for (int axis = 0; axis < (int)c->args->op->n_part_axes; axis++) {
		cut_along(c, &uncut, axis);
		if (is_fine(c, &c->times) && c->times.all_ns <= enough_ns)
			return;
	}
	cut_along(c, &uncut, CUT_STEPS);
	if (!is_fine(c, &c->times) && c->args->op->n_part_axes > 0)
		cut_both_ways(c, wanted);
}

double kernel_cut(const struct kernel *kernel, const struct op_args *args, const struct part_limits *limits,
                  struct op_cut *ret)
{
	struct cutting c = {.kernel = kernel, .args = args, .limits = limits, .best = uncut};
	double whole_ns, wanted;

	*ret = uncut;
	if (op_is_empty(args))
		return 1;
	whole_ns = limits->time_ns(limits->on, kernel, args);
	wanted = whole_ns / limits->most_ns;
	if (!(wanted > 1))
		return 1;
	c.times = (struct times){whole_ns, whole_ns};
	find_cut(&c, wanted);
	*ret = c.best;
	c.times.all_ns = fmax(c.times.all_ns, whole_ns);
	ret->share = c.times.longest_ns / c.times.all_ns;
	return c.times.all_ns / whole_ns;
}

void kernel_prefer_cut(const struct kernel_list *list, const struct op_args *args, uint64_t disabled,
                       const struct part_limits *limits, struct preference *ret)
{
	struct rival rivals[RIVALS_MAX];
	unsigned n = kernel_rivals(list, args, disabled, rivals);
	double least_ns = INFINITY;

	*ret = (struct preference){.why = "can be cut into parts short enough for others to come between"};
	for (unsigned i = 0; i < n; i++) {
		const struct kernel *kernel = &list->kernels[rivals[i].kernel];
		struct op_cut cut;
		double ns = kernel_cut(kernel, args, limits, &cut) * limits->time_ns(limits->on, kernel, args);

		if (ns * cut.share > limits->most_ns || ns >= least_ns)
			continue;
		least_ns = ns;
		ret->n = 1;
		ret->kernels[0] = (uint8_t)rivals[i].kernel;
	}
}
