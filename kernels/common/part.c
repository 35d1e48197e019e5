/* part.c: the tiles and parts of an op that is cut (cut.c). See kernel.h. */
#include "common/part.h"

uint64_t part_extent(const struct op_args *args, unsigned axis)
{
	const int8_t *axes = args->op->part_axes[axis].axis;
	unsigned output = op_first_output(args->op);

	return args->views[output].shape[axes[output]];
}

/* ---- The tiles and parts of a cut ---- */

static void narrow(struct view *v, int axis, bool keeps_stride, uint64_t first, uint64_t n)
{
	view_narrow(v, (uint32_t)axis, first, n);
	if (n == 1 && !keeps_stride)
		v->strides[axis] = 0;
}

static void narrow_views(struct op_args *args, unsigned axis, uint64_t first, uint64_t n)
{
	const struct op *op = args->op;
	const struct part_axis *of = &op->part_axes[axis];

	for (unsigned v = 0; v < op->n_operands; v++) {
		uint64_t from = first, indices = n;

		if (of->axis[v] == PART_NONE || view_is_absent(&args->views[v]))
			continue;
		if (op->part_range)
			op->part_range(args, axis, v, &from, &indices);
		narrow(&args->views[v], of->axis[v], of->keeps_stride, from, indices);
	}
	if (op->begin_part)
		op->begin_part(args, axis, first);
}

bool op_narrow(struct op_args *args, uint32_t axis, uint64_t first, uint64_t n)
{
	const struct op *op = args->op;
	unsigned output = op_first_output(op);

	if (first == 0 && n == args->views[output].shape[axis])
		return true;
	for (unsigned i = 0; i < op->n_part_axes; i++)
		if (op->part_axes[i].axis[output] == (int)axis) {
			narrow_views(args, i, first, n);
			return true;
		}
	return false;
}

/* Returns the size of chunk i of n; the last has what is left. */
static uint64_t size_of(uint64_t extent, uint64_t chunk, uint32_t i, uint32_t n)
{
	return i + 1 < n ? chunk : extent - i * chunk;
}

/* The tile that part i belongs to. */
static uint32_t tile_of(const struct op_cut *cut, uint32_t i)
{
	if (cut->first_parts > 0)
		return i < cut->first_parts ? 0 : i - cut->first_parts + 1;
	return i / cut->n_steps;
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

/* Where chunk i begins, and so the one before ends. */
static uint64_t chunk_begin(const struct op_cut *cut, unsigned axis, uint32_t i, uint64_t extent)
{
	uint64_t chunk = cut->axes[axis].chunk, first = cut->axes[axis].first ? cut->axes[axis].first : chunk;

	if (i == chunks_of(cut, axis))
		return extent;
	return i == 0 ? 0 : first + (i - 1) * chunk;
}

static void narrow_axis(struct op_args *args, const struct op_cut *cut, unsigned axis, uint64_t extent,
                        struct chunks at)
{
	uint32_t n = chunks_of(cut, axis);

	if (n > 1) {
		uint64_t begin = chunk_begin(cut, axis, at.first, extent);
		narrow_views(args, axis, begin, chunk_begin(cut, axis, at.first + at.n, extent) - begin);
	}
}

void op_tile(const struct op_args *args, const struct op_cut *cut, uint32_t i, struct op_args *ret)
{
	struct chunks at[PART_AXES_MAX];

	if (cut->grows)
		find_growing(args->op, cut, tile_of(cut, i), at);
	else
		find_in_grid(args->op, cut, tile_of(cut, i), at);
	*ret = *args;
	for (unsigned axis = 0; axis < args->op->n_part_axes; axis++)
		narrow_axis(ret, cut, axis, part_extent(args, axis), at[axis]);
}

bool part_divides(const struct op_args *args, unsigned axis, unsigned v)
{
	int8_t at = args->op->part_axes[axis].axis[v];

	return !view_is_absent(&args->views[v]) && at != PART_NONE && args->views[v].strides[at] != 0 &&
	       args->views[v].shape[at] > 1;
}

void op_part(const struct op_args *args, const struct op_cut *cut, uint32_t i, struct op_args *ret)
{
	const struct op *op = args->op;
	uint32_t n, step;

	op_tile(args, cut, i, ret);
	if (i < cut->first_parts)
		op->step_part(ret, 0, i * cut->step_chunk,
		              size_of(op->steps(args), cut->step_chunk, i, cut->first_parts));
	if (cut->n_steps <= 1)
		return;
	n = cut->n_steps / op->passes;
	step = i % cut->n_steps % n;
	op->step_part(ret, i % cut->n_steps / n, step * cut->step_chunk,
	              size_of(op->steps(args), cut->step_chunk, step, n));
}

/* Launches a part that hands on what the kernel keeps, but parts along steps, which do not. */
static int launch_kept(const struct kernel *kernel, const struct op_args *args, const struct op_cut *cut,
                       uint32_t i, const struct op_args *part, const struct launch *launch)
{
	struct launch with = *launch;
	struct op_args fresh;

	if (!launch->kept.memory || !op_part_fresh(args, cut, i, &fresh)) {
		with.kept.memory = NULL;
		return kernel->launch(part, &with);
	}
	with.kept.whole = args;
	with.kept.fresh = &fresh;
	with.kept.begins = i == cut->first_parts;
	return kernel->launch(part, &with);
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
		return launch_kept(kernel, args, cut, i, &part, launch);
	if (i % cut->n_steps == 0 && op_reads_output(args, output))
		rc = convert(y, wide, launch);
	if (rc == 0)
		rc = kernel->launch(&part, launch);
	if (rc == 0 && (i + 1) % cut->n_steps == 0)
		rc = convert(wide, y, launch);
	return rc;
}

/* ---- Which parts differ ---- */

static bool is_moved(const struct view *a, const struct view *b)
{
	bool moved = a->offset != b->offset;

	for (uint32_t d = 0; d < a->rank; d++)
		moved |= a->shape[d] != b->shape[d] && (a->strides[d] != 0 || b->strides[d] != 0);
	return moved;
}

/* Of part i of the first tile, if that is cut along steps. */
static unsigned news_of_step(const struct op_args *args, const struct op_cut *cut, uint32_t i)
{
	struct op_args before, part;
	unsigned news = 0;

	op_part(args, cut, i, &part);
	if (i > 0)
		op_part(args, cut, i - 1, &before);
	for (unsigned v = 0; v < args->op->n_operands; v++) {
		const struct view *view = &part.views[v];

		if (!view_is_absent(view) &&
		    (i == 0 || view_is_absent(&before.views[v]) || is_moved(&before.views[v], view)))
			news |= 1u << v;
	}
	return news;
}

unsigned op_part_news(const struct op_args *args, const struct op_cut *cut, uint32_t i)
{
	struct chunks at[PART_AXES_MAX];
	unsigned grown, news = 0;

	if (i < cut->first_parts)
		return news_of_step(args, cut, i);
	grown = find_growing(args->op, cut, tile_of(cut, i), at);
	for (unsigned v = 0; v < args->op->n_operands; v++)
		if (grown == args->op->n_part_axes || part_divides(args, grown, v))
			news |= 1u << v;
	return news;
}

unsigned op_part_results(const struct op_args *args, const struct op_cut *cut, uint32_t i)
{
	unsigned outputs = ~0u << op_first_output(args->op);

	if (i < cut->first_parts)
		return i + 1 < cut->first_parts ? 0 : outputs;
	return op_part_news(args, cut, i) & outputs;
}

/* Whether a tile before this one, but not the first, had the elements of operand v that the first one has. */
static bool had_first_again(const struct op_args *args, const struct op_cut *cut, uint32_t tile, unsigned v)
{
	struct chunks at[PART_AXES_MAX];

	for (uint32_t i = 1; i < tile; i++)
		if (!part_divides(args, find_growing(args->op, cut, i, at), v))
			return true;
	return false;
}

bool op_part_fresh(const struct op_args *args, const struct op_cut *cut, uint32_t i, struct op_args *ret)
{
	uint32_t tile = tile_of(cut, i);
	unsigned news = op_part_news(args, cut, i);
	struct op_args first;

	if (i < cut->first_parts)
		return false;
	op_tile(args, cut, i, ret);
	op_tile(args, cut, 0, &first);
	for (unsigned v = 0; v < args->op->n_operands; v++) {
		if (news >> v & 1 && !op_is_output(args->op, v))
			continue;
		ret->views[v] = (struct view){0};
		/* The first tile had it in steps. */
		if (cut->first_parts > 0 && !op_is_output(args->op, v) && !had_first_again(args, cut, tile, v))
			ret->views[v] = first.views[v];
	}
	return true;
}

unsigned op_part_moves(const struct op_args *args, const struct op_cut *cut, uint32_t i)
{
	struct op_args before, part;
	unsigned moves = 0;

	if (i == 0)
		return ~0u;
	op_part_operands(args, cut, i - 1, &before);
	op_part_operands(args, cut, i, &part);
	for (unsigned v = 0; v < args->op->n_operands; v++)
		if (is_moved(&before.views[v], &part.views[v]))
			moves |= 1u << v;
	return moves;
}

void op_part_operands(const struct op_args *args, const struct op_cut *cut, uint32_t i, struct op_args *ret)
{
	struct op_args tile;

	op_part(args, cut, i, ret);
	if (cut->n_steps <= 1)
		return;
	op_tile(args, cut, i, &tile);
	for (unsigned v = 0; v < args->op->n_operands; v++)
		if (ret->views[v].dtype != tile.views[v].dtype)
			ret->views[v] = tile.views[v];
}

double op_cut_moves(const struct op_args *args, const struct op_cut *cut, unsigned v)
{
	double outer = 1, moves = 1;

	for (unsigned axis = 0; axis < args->op->n_part_axes; axis++) {
		outer *= chunks_of(cut, axis);
		if (chunks_of(cut, axis) > 1 && part_divides(args, axis, v))
			moves = outer;
	}
	return cut->n_steps > 1 && op_part_moves(args, cut, 1) >> v & 1 ? outer * cut->n_steps : moves;
}

unsigned op_cut_corners(const struct op_args *args, const struct op_cut *cut, uint32_t ret[CORNERS_MAX])
{
	unsigned n = 1, n_axes = args->op->n_part_axes;

	ret[0] = 0;
	for (unsigned axis = 0; axis <= n_axes; axis++) {
		uint32_t chunks = axis < n_axes ? chunks_of(cut, axis) : cut->n_steps, inner = 1;

		for (unsigned finer = axis + 1; finer <= n_axes; finer++)
			inner *= finer < n_axes ? chunks_of(cut, finer) : cut->n_steps;
		for (unsigned i = 0, before = n; i < before && chunks > 1; i++)
			ret[n++] = ret[i] + (chunks - 1) * inner;
	}
	return n;
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

uint64_t kernel_kept_bytes(const struct kernel *kernel, const struct op_args *args, const struct op_cut *cut)
{
	return kernel->kept_bytes && cut->grows && !op_is_empty(args) ? kernel->kept_bytes(args, cut) : 0;
}
