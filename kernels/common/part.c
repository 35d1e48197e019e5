/* part.c: cuts an op into parts, so that other jobs can run in between. See kernel.h. */
#include "kernel.h"

#include <math.h>

#include "common/rules.h"

/* Parts begin at multiples of this, so that kernels for aligned operands take them too. */
#define CHUNK_ALIGN 256u
#define PARTS_MAX   (1u << 24) /* approximate limit along an axis or steps */
#define TRIES_MAX   6
#define CUT_STEPS   (-1) /* in the place of an axis */

static const struct op_cut uncut = {.n_parts = 1, .n_steps = 1, .share = 1};

static uint64_t extent_of(const struct op_args *args, int axis)
{
	const int8_t *axes = args->op->part_axes[axis].axis;
	unsigned output = op_first_output(args->op);

	return args->views[output].shape[axes[output]];
}

/* The best axis with so many indices, else the longest. */
static int axis_with(const struct op_args *args, uint64_t indices)
{
	int best = 0;

	for (int axis = 1; axis < (int)args->op->n_part_axes; axis++)
		if (extent_of(args, best) < indices && extent_of(args, axis) > extent_of(args, best))
			best = axis;
	return best;
}

/* ---- The tiles and parts of a cut ---- */

static void narrow(struct view *v, int axis, bool keeps_stride, uint64_t first, uint64_t n)
{
	view_narrow(v, (uint32_t)axis, first, n);
	if (n == 1 && !keeps_stride)
		v->strides[axis] = 0;
}

static void narrow_views(struct op_args *args, const struct part_axis *axis, uint64_t first, uint64_t n)
{
	for (unsigned v = 0; v < args->op->n_operands; v++)
		if (axis->axis[v] != PART_NONE && !view_is_absent(&args->views[v]))
			narrow(&args->views[v], axis->axis[v], axis->keeps_stride, first, n);
}

bool op_narrow(struct op_args *args, uint32_t axis, uint64_t first, uint64_t n)
{
	const struct op *op = args->op;
	unsigned output = op_first_output(op);

	if (first == 0 && n == args->views[output].shape[axis])
		return true;
	for (unsigned i = 0; i < op->n_part_axes; i++)
		if (op->part_axes[i].axis[output] == (int)axis) {
			narrow_views(args, &op->part_axes[i], first, n);
			return true;
		}
	return false;
}

/* Returns the size of chunk i of n; the last has what is left. */
static uint64_t size_of(uint64_t extent, uint64_t chunk, uint32_t i, uint32_t n)
{
	return i + 1 < n ? chunk : extent - i * chunk;
}

/* Chunks of an axis. */
struct chunks {
	uint32_t first, n;
};

static uint32_t chunks_of(const struct op_cut *cut, unsigned axis)
{
	return cut->axes[axis].n > 1 ? cut->axes[axis].n : 1;
}

/* Tile i of a grid. */
static void find_in_grid(const struct op *op, const struct op_cut *cut, uint32_t i,
                         struct chunks ret[PART_AXES_MAX])
{
	for (unsigned axis = op->n_part_axes; axis-- > 0; i /= chunks_of(cut, axis))
		ret[axis] = (struct chunks){i % chunks_of(cut, axis), 1};
}

/* The axis of which the fewest chunks are there, of those that have more; the first of equal ones. */
static unsigned axis_to_grow(const struct op *op, const struct op_cut *cut,
                             const struct chunks there[PART_AXES_MAX])
{
	unsigned best = op->n_part_axes;

	for (unsigned axis = 0; axis < op->n_part_axes; axis++)
		if (there[axis].n < chunks_of(cut, axis) &&
		    (best == op->n_part_axes || there[axis].n < there[best].n))
			best = axis;
	return best;
}

/* Tile i of those that grow. Returns the axis of which it adds a chunk, n_part_axes of the first tile. */
static unsigned find_growing(const struct op *op, const struct op_cut *cut, uint32_t i,
                             struct chunks ret[PART_AXES_MAX])
{
	unsigned grown = op->n_part_axes;

	for (unsigned axis = 0; axis < op->n_part_axes; axis++)
		ret[axis] = (struct chunks){0, 1};
	while (i-- > 0) {
		grown = axis_to_grow(op, cut, ret);
		ret[grown].n++;
	}
	if (grown < op->n_part_axes)
		ret[grown] = (struct chunks){ret[grown].n - 1, 1};
	return grown;
}

static void narrow_axis(struct op_args *args, const struct op_cut *cut, unsigned axis, uint64_t extent,
                        struct chunks at)
{
	uint32_t n = chunks_of(cut, axis), last = at.first + at.n - 1;
	uint64_t chunk = cut->axes[axis].chunk, first = at.first * chunk;

	if (n > 1)
		narrow_views(args, &args->op->part_axes[axis], first,
		             last * chunk + size_of(extent, chunk, last, n) - first);
}

void op_tile(const struct op_args *args, const struct op_cut *cut, uint32_t i, struct op_args *ret)
{
	struct chunks at[PART_AXES_MAX];

	if (cut->grows)
		find_growing(args->op, cut, i / cut->n_steps, at);
	else
		find_in_grid(args->op, cut, i / cut->n_steps, at);
	*ret = *args;
	for (unsigned axis = 0; axis < args->op->n_part_axes; axis++)
		narrow_axis(ret, cut, axis, extent_of(args, (int)axis), at[axis]);
}

/* Whether the axis divides the view's elements. */
static bool divides(const struct op_args *args, unsigned axis, unsigned v)
{
	int8_t at = args->op->part_axes[axis].axis[v];

	return !view_is_absent(&args->views[v]) && at != PART_NONE && args->views[v].strides[at] != 0 &&
	       args->views[v].shape[at] > 1;
}

unsigned op_part_news(const struct op_args *args, const struct op_cut *cut, uint32_t i)
{
	struct chunks at[PART_AXES_MAX];
	unsigned grown = find_growing(args->op, cut, i / cut->n_steps, at), news = 0;

	for (unsigned v = 0; v < args->op->n_operands; v++)
		if (grown == args->op->n_part_axes || divides(args, grown, v))
			news |= 1u << v;
	return news;
}

void op_part(const struct op_args *args, const struct op_cut *cut, uint32_t i, struct op_args *ret)
{
	const struct op *op = args->op;
	uint32_t n, step;

	op_tile(args, cut, i, ret);
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
	struct op_args tile, part;
	const struct view *y, *wide;
	unsigned output = op_first_output(args->op);
	int rc = 0;

	op_tile(args, cut, i, &tile);
	op_part(args, cut, i, &part);
	y = &tile.views[output];
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

#define KINDS_MAX GROWING_PARTS_MAX

/*
 * Lists one part of each kind. Parts differ in whether they are first, which may be better aligned, and in
 * size: the last part of a tile or of its passes, and those of the last tile. Parts that grow all differ.
 */
static unsigned kinds_of(const struct op *op, const struct op_cut *cut, uint32_t ret[KINDS_MAX])
{
	uint32_t n = cut->n_parts, steps = cut->n_steps, of_pass = steps > 1 ? steps / op->passes : 1;

	if (cut->grows) {
		for (uint32_t i = 0; i < n; i++)
			ret[i] = i;
		return n;
	}
	ret[0] = 0;
	ret[1] = n - 1;
	if (n <= 2)
		return n;
	ret[2] = 1;
	ret[3] = steps - 1;
	ret[4] = of_pass - 1;
	ret[5] = n - steps;
	ret[6] = n - steps + of_pass - 1;
	return 7;
}

bool kernel_takes_parts(const struct kernel *kernel, const struct op_args *args, const struct op_cut *cut)
{
	const char *why_not;
	struct op_args part;
	uint32_t kinds[KINDS_MAX];

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
	uint32_t kinds[KINDS_MAX];

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

/* Assumes that all parts of a tile's pass but the last take as long as the first. */
static struct times times_of(const struct cutting *c, const struct op_cut *cut)
{
	bool in_steps = cut->n_steps > 1;
	uint32_t passes = in_steps ? c->args->op->passes : 1,
	         n = (in_steps ? cut->n_steps : cut->n_parts) / passes;
	double tiles = in_steps ? cut->n_parts / cut->n_steps : 1;
	struct times times = {0, 0};

	for (uint32_t pass = 0; pass < passes; pass++) {
		double first_ns = part_ns(c, cut, pass * n);
		double last_ns = n > 1 ? part_ns(c, cut, pass * n + n - 1) : first_ns;

		times.longest_ns = fmax(times.longest_ns, fmax(first_ns, last_ns));
		times.all_ns += tiles * ((n - 1) * first_ns + last_ns);
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
	uint64_t extent = extent_of(args, axis);

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

/* ---- Cuts that grow ---- */

/* Bytes of the inputs that the axis divides. */
static double divided_bytes(const struct op_args *args, unsigned axis)
{
	double bytes = 0;

	for (unsigned v = 0; v < op_first_output(args->op); v++)
		if (divides(args, axis, v))
			bytes += rules_bytes(&args->views[v]);
	return bytes;
}

/* Whether it divides some operand that the first does not, which the first part would else need all of. */
static bool divides_more(const struct op_args *args, unsigned axis, unsigned first)
{
	for (unsigned v = 0; v < args->op->n_operands; v++)
		if (divides(args, axis, v) && !divides(args, first, v))
			return true;
	return false;
}

#define SHORT_ALIGN 16u

/* At most so many chunks. They begin at multiples of CHUNK_ALIGN if they are longer, else of SHORT_ALIGN, since
 * copies to and from addresses that are not aligned to some bytes are slow. */
static void cut_evenly(struct op_cut *cut, unsigned axis, uint64_t extent, double wanted)
{
	uint64_t n = wanted < (double)extent ? (uint64_t)ceil(wanted) : extent;
	uint64_t chunk = (extent + n - 1) / n;
	uint64_t align = chunk > CHUNK_ALIGN ? CHUNK_ALIGN : chunk > SHORT_ALIGN ? SHORT_ALIGN : 1;

	chunk = (chunk + align - 1) / align * align;
	cut->axes[axis].chunk = chunk;
	cut->axes[axis].n = (uint32_t)((extent + chunk - 1) / chunk);
	cut->n_parts += cut->axes[axis].n - 1;
}

bool op_cut_growing(const struct op_args *args, unsigned wanted, double skew, struct op_cut *ret)
{
	const struct op *op = args->op;
	unsigned first = op->n_part_axes > 0 ? (unsigned)axis_with(args, wanted) : 0;
	double weight[PART_AXES_MAX], all = 0;

	*ret = uncut;
	for (unsigned axis = 0; axis < op->n_part_axes; axis++) {
		bool takes = axis == first || divides_more(args, axis, first);

		weight[axis] = takes ? divided_bytes(args, axis) * (axis == first ? skew : 1) : 0;
		all += weight[axis];
	}
	for (unsigned axis = 0; axis < op->n_part_axes; axis++) {
		uint64_t extent = extent_of(args, (int)axis);

		if (weight[axis] > 0 && extent > 1)
			cut_evenly(ret, axis, extent, fmax(wanted * weight[axis] / all, 1));
	}
	ret->grows = true;
	return ret->n_parts > 1 && ret->n_parts <= GROWING_PARTS_MAX;
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
