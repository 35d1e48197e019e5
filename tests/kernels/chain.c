/*
 * chain.c: runs of many ops over shared intermediates, several of them out at once:
 *
 *     h = x w;  h += x w;  h += bias;  p = softmax(h);  y = p wᵀ;  z = yᵀ;  copy = z
 *
 * The views lie in one to three buffers, SHARED or RESIDENT; wᵀ is w seen transposed. p may be h, and z may lie
 * where h was. A driver that stages buffers on a device must keep all views consistent.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "gemm/gemm.h"
#include "softmax/operands.h"

#define OPS      7
#define SPACES   3
#define TOGETHER 3 /* runs out at once */
/*
 * x, w and bias lie in [-1, 1] and K <= 150, so logits err by some 1e-5. p then errs by 1e-5 of itself, and so
 * does y, whose |p||w| is at most 1. Ten times that still detects every wrong index.
 */
#define TOLERANCE 1e-4

enum { VIEW_X, VIEW_W, VIEW_BIAS, VIEW_H, VIEW_P, VIEW_Y, VIEW_Z, VIEW_COPY, VIEWS };

struct chain {
	struct space spaces[SPACES], *pointers[SPACES];
	unsigned space_of[VIEWS];
	struct view views[VIEWS];
	struct run_op ops[OPS];
	struct run run;
};

static void shape_views(struct chain *c, struct random *r)
{
	uint64_t m = 1 + random_below(r, 150), k = 1 + random_below(r, 150), n = 1 + random_below(r, 150);
	const uint64_t shapes[VIEWS][2] = {{m, k}, {k, n}, {1, n}, {m, n}, {m, n}, {m, k}, {k, m}, {k, m}};

	for (unsigned i = 0; i < VIEWS; i++) {
		c->views[i] = (struct view){.dtype = KOPS_F32, .rank = 2};
		memcpy(c->views[i].shape, shapes[i], sizeof shapes[i]);
		do
			layout_random(&c->views[i], true, r);
		while (!view_is_injective(&c->views[i]));
	}
}

static bool place_views(struct chain *c, struct random *r)
{
	uint64_t used[SPACES] = {0};
	unsigned n_spaces = 1 + (unsigned)random_below(r, SPACES);
	bool in_place = random_chance(r, 40), reuse = random_chance(r, 40);

	for (unsigned i = 0; i < VIEWS; i++) {
		c->space_of[i] = (unsigned)random_below(r, n_spaces);
		if (i == VIEW_P && in_place) {
			c->views[i] = c->views[VIEW_H];
			c->space_of[i] = c->space_of[VIEW_H];
			continue;
		}
		layout_place(&c->views[i], &used[c->space_of[i]], r);
	}
	const uint64_t *h = c->views[VIEW_H].shape;
	if (reuse && !in_place && view_is_dense(&c->views[VIEW_H]) && c->views[VIEW_Z].shape[0] <= h[1]) {
		view_make_dense(&c->views[VIEW_Z]);
		c->views[VIEW_Z].offset = c->views[VIEW_H].offset;
		c->space_of[VIEW_Z] = c->space_of[VIEW_H];
	}
	for (unsigned i = 0; i < SPACES; i++) {
		if (!space_make(&c->spaces[i], used[i] + 64))
			return false;
		c->spaces[i].resident = random_chance(r, 40);
		c->spaces[i].pinnable = random_chance(r, 50);
		c->pointers[i] = &c->spaces[i];
	}
	for (unsigned i = 0; i < VIEWS; i++)
		c->views[i].space = &c->spaces[c->space_of[i]].memory;
	return true;
}

static void fill_inputs(struct chain *c, struct random *r)
{
	for (unsigned i = VIEW_X; i <= VIEW_BIAS; i++) {
		const struct view *v = &c->views[i];
		float *data = (float *)(void *)(c->spaces[c->space_of[i]].before + v->offset);
		uint64_t index[KOPS_RANK_MAX] = {0};
		do
			data[view_at(v, index)] = (float)random_unit(r);
		while (view_step(v, index));
	}
}

static struct view transposed(struct view v)
{
	uint64_t extent = v.shape[0];
	int64_t stride = v.strides[0];

	v.shape[0] = v.shape[1];
	v.strides[0] = v.strides[1];
	v.shape[1] = extent;
	v.strides[1] = stride;
	return v;
}

static void make_ops(struct chain *c)
{
	const struct view *v = c->views;
	const struct op_args ops_args[OPS] = {
	    {.op = op_by_name("gemm"),
	     .views = {[GEMM_A] = v[VIEW_X], [GEMM_B] = v[VIEW_W], [GEMM_C] = v[VIEW_H]},
	     .params.gemm.alpha = 1},
	    {.op = op_by_name("gemm"),
	     .views = {[GEMM_A] = v[VIEW_X], [GEMM_B] = v[VIEW_W], [GEMM_C] = v[VIEW_H]},
	     .params.gemm = {.alpha = 1, .beta = 1}},
	    {.op = op_by_name("add"), .views = {v[VIEW_H], v[VIEW_BIAS], v[VIEW_H]}},
	    {.op = op_by_name("softmax"),
	     .views = {[SOFTMAX_X] = v[VIEW_H], [SOFTMAX_Y] = v[VIEW_P]},
	     .params.softmax.scale = 0.25},
	    {.op = op_by_name("gemm"),
	     .views = {[GEMM_A] = v[VIEW_P], [GEMM_B] = transposed(v[VIEW_W]), [GEMM_C] = v[VIEW_Y]},
	     .params.gemm.alpha = 1},
	    {.op = op_by_name("transpose"), .views = {v[VIEW_Y], v[VIEW_Z]}},
	    {.op = op_by_name("copy"), .views = {v[VIEW_Z], v[VIEW_COPY]}},
	};

	for (unsigned i = 0; i < OPS; i++)
		c->ops[i] = (struct run_op){.args = ops_args[i], .pinned = ""};
	c->run = (struct run){.ops = c->ops, .n_ops = OPS};
}

static const unsigned char *base_of(const struct chain *c, const struct view *v)
{
	unsigned i = 0;

	while (v->space != &c->spaces[i].memory)
		i++;
	return c->spaces[i].expected;
}

static bool run_references(struct chain *c)
{
	char why[WHY_BYTES];

	for (unsigned i = 0; i < SPACES; i++)
		memcpy(c->spaces[i].expected, c->spaces[i].before, c->spaces[i].bytes);
	for (unsigned i = 0; i < OPS; i++) {
		struct op_args *args = &c->ops[i].args;
		if (op_check(args, why) < 0) {
			printf("chain: check() of op %u, %s, refused it: %s\n", i, args->op->name, why);
			return false;
		}
		struct op_args reference = *args;
		for (unsigned j = 0; j < args->op->n_operands; j++)
			if (!view_is_absent(&args->views[j]))
				reference.views[j].data =
				    (char *)base_of(c, &args->views[j]) + args->views[j].offset;
		args->op->reference(&reference);
	}
	return true;
}

static bool make_chain(struct chain *c, struct random *r)
{
	*c = (struct chain){0};
	shape_views(c, r);
	if (!place_views(c, r)) {
		printf("chain: out of memory\n");
		return false;
	}
	fill_inputs(c, r);
	make_ops(c);
	c->run.lane = random_below(r, 2);
	return run_references(c);
}

static bool judge_view(const struct chain *c, unsigned i, char why[CHECK_TEXT_BYTES])
{
	static const char *const names[VIEWS] = {"x", "w", "bias", "h", "p", "y", "z", "copy"};
	const struct view *v = &c->views[i];
	const struct space *s = &c->spaces[c->space_of[i]];
	const float *got = (const float *)(const void *)(s->host + v->offset);
	const float *want = (const float *)(const void *)(s->expected + v->offset);
	uint64_t index[KOPS_RANK_MAX] = {0};

	do {
		int64_t at = view_at(v, index);
		if (fabs((double)got[at] - (double)want[at]) <= TOLERANCE)
			continue;
		snprintf(why, CHECK_TEXT_BYTES, "%s(%llu, %llu) is %.7g, should be %.7g", names[i],
		         (unsigned long long)index[0], (unsigned long long)index[1], (double)got[at],
		         (double)want[at]);
		return false;
	} while (view_step(v, index));
	return true;
}

static bool judge_chain(struct chain *c, char why[CHECK_TEXT_BYTES])
{
	const struct view *outputs[VIEWS];

	for (unsigned i = VIEW_H; i < VIEWS; i++) {
		outputs[i - VIEW_H] = &c->views[i];
		if (!judge_view(c, i, why))
			return false;
	}
	for (unsigned i = 0; i < SPACES; i++)
		if (!judge_surroundings(&c->spaces[i], outputs, VIEWS - VIEW_H, why))
			return false;
	return true;
}

/* Must be called before any run is in flight, since loading runs copies. */
static void load_chain(struct target *t, struct chain *c)
{
	for (unsigned i = 0; c->run.status == 0 && i < SPACES; i++)
		c->run.status = target_load(t, &c->spaces[i], c->run.error);
	if (c->run.status == 0)
		c->run.status = plan_run(&t->planner, &c->run);
}

/* Returns 1 if the run is in flight. */
static unsigned start_chain(struct target *t, struct chain *c)
{
	if (c->run.status < 0)
		return 0;
	t->driver->start(t->dev, &c->run);
	return 1;
}

static bool finish_chain(struct target *t, struct chain *c, char why[CHECK_TEXT_BYTES])
{
	int rc = c->run.status;

	run_forget_plan(&c->run);
	for (unsigned i = 0; rc == 0 && i < SPACES; i++)
		rc = target_unload(t, &c->spaces[i], c->run.error);
	for (unsigned i = 0; i < SPACES; i++)
		target_drop(t, &c->spaces[i]);
	if (rc == 0)
		return judge_chain(c, why);
	snprintf(why, CHECK_TEXT_BYTES, "status %d: %s", rc, c->run.error);
	return false;
}

static unsigned check_group(struct target *t, const struct options *o, unsigned group)
{
	static struct chain chains[TOGETHER];
	char why[CHECK_TEXT_BYTES];
	unsigned out = 0, failed = 0;

	for (unsigned i = 0; i < TOGETHER; i++) {
		struct random r = {o->seed * 31 + 0xc4a1u + (uint64_t)group * TOGETHER + i};
		if (!make_chain(&chains[i], &r))
			return 1;
	}
	for (unsigned i = 0; i < TOGETHER; i++)
		load_chain(t, &chains[i]);
	for (unsigned i = 0; i < TOGETHER; i++)
		out += start_chain(t, &chains[i]);
	if (!target_wait(t, out)) {
		printf("chain: group %u on %s did not come back\n", group, t->name);
		return 1;
	}
	for (unsigned i = 0; i < TOGETHER; i++) {
		if (!finish_chain(t, &chains[i], why)) {
			printf("FAILED chain %u on %s: %s\n", group * TOGETHER + i, t->name, why);
			failed++;
		}
		for (unsigned j = 0; j < SPACES; j++)
			space_free(&chains[i].spaces[j]);
	}
	return failed;
}

unsigned chain_check(struct target *t, const struct options *o)
{
	unsigned failed = 0, groups = o->cases / 4 + 1;

	for (unsigned group = 0; group < groups; group++)
		failed += check_group(t, o, group);
	printf("%-6s %-10s %-12s %6u cases\n", t->name, "(chain)", "auto", groups * TOGETHER);
	return failed;
}
