#include "plan/fit.h"

#include <math.h>
#include <string.h>

#include "plan/choose.h"
#include "plan/estimate.h"
#include "plan/window.h"

#define DIMS       (PART_AXES_MAX + 1) /* the op's part axes, and behind them its steps */
#define ROUNDS_MAX 32

/* A way to cut an op. */
struct attempt {
	uint32_t counts[DIMS]; /* about so many chunks along each axis */
	struct op_cut cut;
	bool takes;     /* the op's kernel takes the parts; else its times and workspace are unknown, and 0 */
	uint64_t bytes; /* of the device */
	double us, longest_us;
};

struct fitting {
	const struct planner *p;
	struct run_op *op;
	uint64_t room;
	struct attempt best;
};

static bool is_suitable(const struct fitting *f, const struct attempt *a)
{
	return a->takes && a->bytes <= f->room && a->longest_us <= PART_US &&
	       a->cut.carried_bytes <= f->p->info.carried_max_bytes;
}

/* False: it cannot be cut like that. */
static bool attempt(const struct fitting *f, const uint32_t counts[DIMS], struct attempt *ret)
{
	const struct op_args *args = &f->op->args;

	memcpy(ret->counts, counts, sizeof ret->counts);
	if (!op_cut_grid(args, counts, counts[args->op->n_part_axes], &ret->cut) ||
	    (ret->cut.carried_bytes > 0 && !f->op->kernel->carries))
		return false;
	ret->cut.has_windows = true;
	ret->takes = window_suits(f->op->kernel, args, &ret->cut);
	ret->bytes = window_lay_out(args, &ret->cut, NULL) + layout_aligned(ret->cut.carried_bytes);
	ret->us = ret->longest_us = 0;
	if (!ret->takes)
		return true;
	ret->bytes += layout_aligned(window_workspace(f->op->kernel, args, &ret->cut));
	ret->us = estimate_windows(f->p, f->op->kernel, args, &ret->cut, &ret->longest_us);
	return true;
}

/* How far it is from what fits, as a factor. */
static double excess(const struct fitting *f, const struct attempt *a)
{
	return fmax((double)a->bytes / fmax((double)f->room, 1), 1) * fmax(a->longest_us / PART_US, 1);
}

/* Whether it is nearer to what fits, and among equals faster. */
static bool is_nearer(const struct fitting *f, const struct attempt *a, const struct attempt *than)
{
	double excess_a = excess(f, a), excess_than = excess(f, than);

	if (a->takes != than->takes)
		return a->takes;
	return excess_a < excess_than || (excess_a <= excess_than && a->us < than->us);
}

/* Cuts the axis more finely that helps most. Returns false if no axis can be. */
static bool refine(const struct fitting *f, struct attempt *a)
{
	unsigned n_dims = f->op->args.op->n_part_axes + 1;
	struct attempt best;
	bool found = false;

	for (unsigned d = 0; d < n_dims; d++) {
		uint32_t counts[DIMS];
		struct attempt next;

		memcpy(counts, a->counts, sizeof counts);
		counts[d] *=
		    counts[d] == 1 ? 4 : 2; /* two places of half of it would take as much room as all of it */
		if (!attempt(f, counts, &next) || next.cut.n_parts <= a->cut.n_parts)
			continue;
		if (!found || is_nearer(f, &next, &best))
			best = next;
		found = true;
	}
	if (found)
		*a = best;
	return found;
}

/* Takes a cut that fits and is faster, and whose parts the kernel takes. */
static bool keep_better(struct fitting *f, const uint32_t counts[DIMS])
{
	struct attempt a;

	if (!attempt(f, counts, &a) || !is_suitable(f, &a) || a.us >= f->best.us)
		return false;
	f->best = a;
	return true;
}

/* Tries the neighbours of the best cut: twice as many chunks of an axis, half as many, or one of each. */
static bool improve(struct fitting *f)
{
	unsigned n_dims = f->op->args.op->n_part_axes + 1;
	uint32_t from[DIMS];
	bool better = false;

	memcpy(from, f->best.counts, sizeof from);
	for (unsigned more = 0; more <= n_dims; more++)
		for (unsigned less = 0; less <= n_dims; less++) {
			uint32_t counts[DIMS];

			memcpy(counts, from, sizeof counts);
			if (more < n_dims)
				counts[more] *= 2;
			if (less < n_dims)
				counts[less] = (counts[less] + 1) / 2;
			better |= memcmp(counts, from, sizeof counts) != 0 && keep_better(f, counts);
		}
	return better;
}

/* The coarsest cut of which all bytes fit: begins with the op as a whole. */
static bool find_room(const struct fitting *f, struct attempt *ret)
{
	uint32_t counts[DIMS];

	for (unsigned d = 0; d < DIMS; d++)
		counts[d] = 1;
	if (!attempt(f, counts, ret))
		return false;
	while (ret->bytes > f->room)
		if (!refine(f, ret))
			return false;
	return true;
}

/* The best cut for the op's kernel. */
static bool find(struct fitting *f)
{
	struct attempt a;

	f->best.us = INFINITY;
	if (!find_room(f, &a))
		return false;
	while (!is_suitable(f, &a))
		if (!refine(f, &a))
			return false;
	f->best = a;
	for (unsigned round = 0; round < ROUNDS_MAX && improve(f); round++)
		;
	return true;
}

/* Chooses the kernel for parts of a cut: they may have a faster one than the whole. */
static bool choose_for(struct fitting *f, const struct op_cut *cut)
{
	struct op_args whole, part;

	window_args(&f->op->args, cut, 0, NULL, NULL, &whole);
	op_part(&whole, cut, 0, &part);
	return choose_kernel(f->p, f->op, &part, true) == 0;
}

/* Finds a cut for the kernel that is chosen for parts of another cut. Takes both if that is faster. */
static bool find_with_other(struct fitting *f, const struct op_cut *cut)
{
	struct run_op before = *f->op;
	struct fitting other = *f;

	if (!choose_for(&other, cut) || f->op->kernel == before.kernel || !find(&other) ||
	    other.best.us >= f->best.us) {
		*f->op = before;
		return false;
	}
	f->best = other.best;
	return true;
}

/* For the kernel of the whole op; if it takes no parts that fit, for one that does; then for that of the best
 * parts. */
static bool find_with_any(struct fitting *f)
{
	struct attempt coarse;
	bool found = find(f);

	if (!found) {
		f->best.us = INFINITY;
		found = find_room(f, &coarse) && find_with_other(f, &coarse.cut);
	}
	if (found)
		find_with_other(f, &f->best.cut);
	return found;
}

bool fit_op(const struct planner *p, struct run_op *op, uint64_t bytes)
{
	struct run_op before = *op;
	struct fitting f = {.p = p, .op = op, .room = bytes};

	if (op_is_empty(&op->args)) {
		op->cut.has_windows = true;
		return true;
	}
	if (!find_with_any(&f)) {
		*op = before;
		return false;
	}
	op->cut = f.best.cut;
	op->cut.share = f.best.longest_us / f.best.us;
	op->plan_us = f.best.us;
	op->together = 1;
	return true;
}
