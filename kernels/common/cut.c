/* cut.c: cuts ops into parts: so that other jobs can run in between, or operands move meanwhile. See kernel.h.
 */
#include <math.h>

#include "common/part.h"
#include "common/rules.h"

/* Parts begin at multiples of this, so that kernels for aligned operands take them too. */
#define CHUNK_ALIGN 256u
#define PARTS_MAX   (1u << 24) /* approximate limit along an axis or steps */
#define TRIES_MAX   9
#define TRIES_FINE  5    /* then parts become half as long: much of their time may not depend on their size */
#define CUT_STEPS   (-1) /* in the place of an axis */

static const struct op_cut uncut = {.n_parts = 1, .n_steps = 1, .share = 1};

/* The best axis with so many indices, else the longest. */
static int axis_with(const struct op_args *args, uint64_t indices)
{
	unsigned best = 0;

	for (unsigned axis = 1; axis < args->op->n_part_axes; axis++)
		if (part_extent(args, best) < indices && part_extent(args, axis) > part_extent(args, best))
			best = axis;
	return (int)best;
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

/*
 * Of parts [first, first + n), of which the last is as large as the others. Those of factorisations become
 * shorter, as a square does at most; of such times Simpson's rule gives the mean.
 */
static struct times times_of_alike(const struct cutting *c, const struct op_cut *cut, uint32_t first,
                                   uint32_t n)
{
	double first_ns = part_ns(c, cut, first), middle_ns = n > 2 ? part_ns(c, cut, first + n / 2) : first_ns,
	       last_ns = n > 1 ? part_ns(c, cut, first + n - 1) : first_ns;

	return (struct times){fmax(first_ns, fmax(middle_ns, last_ns)),
	                      n * (first_ns + 4 * middle_ns + last_ns) / 6};
}

/* Of a tile's passes, in which the last part may be smaller or larger than the others. */
static struct times times_of(const struct cutting *c, const struct op_cut *cut)
{
	bool in_steps = cut->n_steps > 1;
	uint32_t passes = in_steps ? c->args->op->passes : 1,
	         n = (in_steps ? cut->n_steps : cut->n_parts) / passes;
	double tiles = in_steps ? cut->n_parts / cut->n_steps : 1;
	struct times times = {0, 0};

	for (uint32_t pass = 0; pass < passes; pass++) {
		struct times alike = times_of_alike(c, cut, pass * n, n > 1 ? n - 1 : 1);
		double last_ns = n > 1 ? part_ns(c, cut, pass * n + n - 1) : 0;

		times.longest_ns = fmax(times.longest_ns, fmax(alike.longest_ns, last_ns));
		times.all_ns += tiles * (alike.all_ns + last_ns);
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
static uint32_t n_chunks(uint64_t extent, uint64_t chunk)
{
	return (uint32_t)(extent / chunk + (extent % chunk > chunk / 8));
}

static bool cut_tiles(const struct op_args *args, int axis, double wanted, struct op_cut *ret)
{
	uint64_t extent = part_extent(args, (unsigned)axis);

	*ret = uncut;
	if (extent < 2)
		return false;
	ret->axes[axis].chunk = chunk_of(extent, wanted);
	ret->n_parts = ret->axes[axis].n = n_chunks(extent, ret->axes[axis].chunk);
	return true;
}

static uint64_t carried_bytes(const struct op_args *args, const struct op_cut *tiles, uint32_t i)
{
	struct op_args tile;

	op_tile(args, tiles, i, &tile);
	return args->op->carried_bytes ? args->op->carried_bytes(&tile) : 0;
}

/* Cuts each tile, or the whole op if there is one tile, along its steps. */
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
	cut->n_steps = op->passes * n_chunks(steps, cut->step_chunk);
	return !__builtin_mul_overflow(cut->n_parts, cut->n_steps, &cut->n_parts);
}

/* ---- Even chunks ---- */

#define SHORT_ALIGN 16u

/*
 * Returns the number of chunks, at most `wanted`, none of which is longer than the first. They begin at
 * multiples of CHUNK_ALIGN if they are longer, else of SHORT_ALIGN, since copies to and from addresses that are
 * not aligned to some bytes are slow.
 */
static uint32_t cut_evenly(uint64_t extent, double wanted, uint64_t *ret_chunk)
{
	uint64_t n = wanted < (double)extent ? (uint64_t)ceil(wanted) : extent;
	uint64_t chunk = (extent + n - 1) / n;
	uint64_t align = chunk > CHUNK_ALIGN ? CHUNK_ALIGN : chunk > SHORT_ALIGN ? SHORT_ALIGN : 1;

	chunk = (chunk + align - 1) / align * align;
	*ret_chunk = chunk;
	return (uint32_t)((extent + chunk - 1) / chunk);
}

bool op_cut_grid(const struct op_args *args, const uint32_t wanted[PART_AXES_MAX], uint32_t wanted_steps,
                 struct op_cut *ret)
{
	const struct op *op = args->op;

	*ret = uncut;
	for (unsigned axis = 0; axis < op->n_part_axes; axis++) {
		uint64_t extent = part_extent(args, axis);

		if (wanted[axis] < 2 || extent < 2)
			continue;
		ret->axes[axis].n = cut_evenly(extent, wanted[axis], &ret->axes[axis].chunk);
		if (__builtin_mul_overflow(ret->n_parts, ret->axes[axis].n, &ret->n_parts))
			return false;
	}
	if (wanted_steps < 2 || op->passes != 1 || op->steps(args) < 2)
		return true;
	ret->n_steps = cut_evenly(op->steps(args), wanted_steps, &ret->step_chunk);
	ret->carried_bytes = carried_bytes(args, ret, 0);
	return !__builtin_mul_overflow(ret->n_parts, ret->n_steps, &ret->n_parts);
}

/* ---- Cuts that grow ---- */

/* Bytes of the inputs that the axis divides. */
static double divided_bytes(const struct op_args *args, unsigned axis)
{
	double bytes = 0;

	for (unsigned v = 0; v < op_first_output(args->op); v++)
		if (part_divides(args, axis, v))
			bytes += rules_bytes(&args->views[v]);
	return bytes;
}

/* Whether it divides some operand that the first does not, which the first part would else need all of. */
static bool divides_more(const struct op_args *args, unsigned axis, unsigned first)
{
	for (unsigned v = 0; v < args->op->n_operands; v++)
		if (part_divides(args, axis, v) && !part_divides(args, first, v))
			return true;
	return false;
}

/* Cuts the first tile along steps, if that hands on nothing but the output. */
static bool cut_first(const struct op_args *args, unsigned wanted, struct op_cut *cut)
{
	const struct op *op = args->op;

	if (wanted < 2)
		return true;
	if (op->passes != 1 || op->steps(args) < 2 || carried_bytes(args, cut, 0) > 0)
		return false;
	uint32_t parts = cut_evenly(op->steps(args), wanted, &cut->step_chunk);
	cut->first_parts = parts > 1 ? parts : 0;
	cut->n_parts += parts - 1;
	return true;
}

/* Cuts an axis evenly, behind its share in the first tile if that is another. */
static void cut_axis(uint64_t extent, double wanted, double share, struct op_cut *cut, unsigned axis)
{
	uint64_t first = (uint64_t)((double)extent * share);

	first = first > CHUNK_ALIGN ? first / CHUNK_ALIGN * CHUNK_ALIGN : first;
	cut->axes[axis].first = first;
	cut->axes[axis].n = (first > 0) + cut_evenly(extent - first, fmax(wanted, 1), &cut->axes[axis].chunk);
	cut->n_parts += cut->axes[axis].n - 1;
}

bool op_cut_growing(const struct op_args *args, const struct growth *how, struct op_cut *ret)
{
	const struct op *op = args->op;
	unsigned first = op->n_part_axes > 0 ? (unsigned)axis_with(args, how->wanted) : 0;
	double weight[PART_AXES_MAX], all = 0;

	*ret = uncut;
	for (unsigned axis = 0; axis < op->n_part_axes; axis++) {
		bool takes = axis == first || divides_more(args, axis, first);

		weight[axis] = takes ? divided_bytes(args, axis) * (axis == first ? how->skew : 1) : 0;
		all += weight[axis];
	}
	for (unsigned axis = 0; axis < op->n_part_axes; axis++)
		if (weight[axis] > 0 && part_extent(args, axis) > 1)
			cut_axis(part_extent(args, axis), how->wanted * weight[axis] / all,
			         axis == first ? how->first_share : how->other_share, ret, axis);
	ret->grows = true;
	return cut_first(args, how->steps, ret) && ret->n_parts > 1 && ret->n_parts <= GROWING_PARTS_MAX;
}

/* ---- Cuts that are fine enough ---- */

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
 * Cuts the tiles that there are, perhaps one, along an axis or CUT_STEPS until no part is too long. Kernels
 * may work in tiles, so time need not shrink as parts do.
 */
static void cut_along(struct cutting *c, const struct op_cut *tiles, int axis)
{
	double wanted = times_of(c, tiles).longest_ns / c->limits->most_ns;

	for (unsigned i = 0; i < TRIES_MAX; i++) {
		struct op_cut cut = *tiles;
		struct times t = {1.1 * c->limits->most_ns, 0};

		if (!(axis == CUT_STEPS ? cut_steps(c->args, wanted, &cut)
		                        : cut_tiles(c->args, axis, wanted, &cut)))
			return;
		if (takes(c, &cut)) {
			t = times_of(c, &cut);
			keep_better(c, &cut, &t);
		}
		if (is_fine(c, &t))
			return;
		wanted =
		    fmax(wanted * 1.03 * t.longest_ns / c->limits->most_ns, cut.n_parts / tiles->n_parts + 1);
		if (i >= TRIES_FINE)
			wanted = fmax(wanted, 2.0 * cut.n_parts / tiles->n_parts);
	}
}

/* Along the longest axis into tiles whose parts may carry what they have to, or smaller ones, and then along
 * steps. */
static void cut_both_ways(struct cutting *c, double wanted)
{
	const struct op *op = c->args->op;
	double n = op->carried_bytes
	               ? ceil((double)op->carried_bytes(c->args) / fmax((double)c->limits->carried_max, 1))
	               : 1;
	struct op_cut tiles;
	int longest = axis_with(c->args, UINT64_MAX);

	for (n = fmax(n, 2); n < wanted * 8 && !is_fine(c, &c->times) && cut_tiles(c->args, longest, n, &tiles);
	     n *= 8)
		cut_along(c, &tiles, CUT_STEPS);
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
