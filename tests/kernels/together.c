/*
 * together.c: checks that ops that are alike give the same bits in one launch and alone. A run's first
 * submission launches its ops one by one; a repeated run launches ops that are alike together.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "common/half.h"

#define ALIGNMENT   256 /* between the operands of two ops: none is better aligned than the device's memory */
#define STORAGE_MAX (384u << 10) /* bytes of one op */

enum outcome { SAME, NOT_TOGETHER, DIFFERENT };

/* A problem, and ops like it over other memory. */
struct crowd {
	struct run_op ops[TOGETHER_MAX];
	struct run run;
	struct space spaces[OP_OPERANDS_MAX];
	unsigned n_spaces;
	uint64_t apart[OP_OPERANDS_MAX]; /* bytes from op to op in each space */
};

/*
 * Copies the problem's content, and makes each op's a little smaller than the previous one's. NaN and Inf stay.
 */
static void fill_op(struct crowd *c, const struct problem *p, unsigned i, unsigned v)
{
	const struct view *from = &p->args.views[v];
	unsigned s = (unsigned)(p->spaces[v] - p->storage);
	uint64_t index[KOPS_RANK_MAX] = {0};
	double factor = 1 - (double)i / (2 * TOGETHER_MAX);

	if (view_elements(from) == 0)
		return;
	do {
		int64_t at = view_at(from, index);
		double x = half_load(p->spaces[v]->before + from->offset, from->dtype, at);
		half_store(c->spaces[s].before + i * c->apart[s] + from->offset, from->dtype, at, x * factor);
	} while (view_step(from, index));
}

static void make_op(struct crowd *c, const struct problem *p, unsigned i, const char *kernel)
{
	c->ops[i] = (struct run_op){.args = p->args, .pinned = kernel};
	for (unsigned v = 0; v < p->args.op->n_operands; v++) {
		unsigned s = (unsigned)(p->spaces[v] - p->storage);

		if (view_is_absent(&p->args.views[v]))
			continue;
		fill_op(c, p, i, v);
		c->ops[i].args.views[v].space = &c->spaces[s].memory;
		c->ops[i].args.views[v].offset += i * c->apart[s];
	}
}

static bool make_crowd(struct crowd *c, const struct problem *p, unsigned n, const char *kernel)
{
	*c = (struct crowd){.n_spaces = p->n_storage};
	for (unsigned s = 0; s < p->n_storage; s++) {
		c->apart[s] = (p->storage[s].bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
		if (!space_make(&c->spaces[s], n * c->apart[s]))
			return false;
		c->spaces[s].resident = true;
		for (unsigned i = 0; i < n; i++)
			memcpy(c->spaces[s].before + i * c->apart[s], p->storage[s].before,
			       p->storage[s].bytes);
	}
	for (unsigned i = 0; i < n; i++)
		make_op(c, p, i, kernel);
	c->run = (struct run){.ops = c->ops, .n_ops = n};
	return true;
}

static void free_crowd(struct crowd *c)
{
	run_forget_plan(&c->run);
	for (unsigned s = 0; s < c->n_spaces; s++)
		space_free(&c->spaces[s]);
}

static int run_crowd(struct target *t, struct crowd *c, bool repeats)
{
	struct space *spaces[OP_OPERANDS_MAX];

	for (unsigned s = 0; s < c->n_spaces; s++)
		spaces[s] = &c->spaces[s];
	c->run.repeats = repeats;
	return target_run(t, &c->run, spaces, c->n_spaces);
}

static enum outcome compare(struct target *t, struct crowd *c, char why[CHECK_TEXT_BYTES])
{
	int rc = run_crowd(t, c, false);

	if (rc == KOPS_E_UNSUPPORTED || (rc == 0 && c->ops[0].together == 1))
		return NOT_TOGETHER;
	for (unsigned s = 0; rc == 0 && s < c->n_spaces; s++)
		memcpy(c->spaces[s].expected, c->spaces[s].host, c->spaces[s].bytes);
	if (rc == 0)
		rc = run_crowd(t, c, true);
	if (rc == 0 && !c->run.as_graph)
		return NOT_TOGETHER;
	snprintf(why, CHECK_TEXT_BYTES, "status %d: %s", rc, c->run.error);
	if (rc < 0)
		return DIFFERENT;
	for (unsigned s = 0; s < c->n_spaces; s++)
		for (uint64_t i = 0; i < c->spaces[s].bytes; i++)
			if (c->spaces[s].host[i] != c->spaces[s].expected[i]) {
				snprintf(why, CHECK_TEXT_BYTES,
				         "byte %llu of op %llu's memory is 0x%02x, alone 0x%02x",
				         (unsigned long long)(i % c->apart[s]),
				         (unsigned long long)(i / c->apart[s]), c->spaces[s].host[i],
				         c->spaces[s].expected[i]);
				return DIFFERENT;
			}
	return SAME;
}

static bool is_small(const struct problem *p)
{
	for (unsigned i = 0; i < p->n_storage; i++)
		if (p->storage[i].bytes > STORAGE_MAX)
			return false;
	return view_elements(op_output_const(&p->args)) > 0;
}

static enum outcome check_case(struct target *t, const struct options *o, const struct op *op,
                               const char *kernel, unsigned number)
{
	static const unsigned counts[] = {2, 3, TOGETHER_MAX};
	static struct crowd crowd;
	struct random r = {o->seed * 1000003 + 0x70000000u + number};
	char why[CHECK_TEXT_BYTES] = "out of memory", text[CHECK_TEXT_BYTES];
	unsigned n = counts[number % 3];
	enum outcome outcome = DIFFERENT;
	struct problem p;

	if (problem_make(&p, op, 0, &r)) {
		if (!is_small(&p))
			outcome = NOT_TOGETHER;
		else if (make_crowd(&crowd, &p, n, kernel))
			outcome = compare(t, &crowd, why);
		free_crowd(&crowd);
	}
	problem_describe(&p, text);
	if (outcome == DIFFERENT)
		printf("FAILED %s %s kernel %s, %u ops together: %s\n  %s\n", t->name, op->name, kernel, n, why,
		       text);
	problem_free(&p);
	return outcome;
}

unsigned together_check(struct target *t, const struct options *o, const struct op *op,
                        const struct kernel *kernel)
{
	unsigned outcomes[DIFFERENT + 1] = {0};

	for (unsigned number = 0; number < o->cases / 8 + 1; number++)
		outcomes[check_case(t, o, op, kernel->name, number)]++;
	bool gap = outcomes[SAME] == 0 && outcomes[NOT_TOGETHER] >= 25;
	if (!o->quiet || outcomes[DIFFERENT] || gap)
		printf("%-6s %-10s %-12s %6u cases together %6u not %6u failed%s\n", t->name, op->name,
		       kernel->name, outcomes[SAME] + outcomes[DIFFERENT], outcomes[NOT_TOGETHER],
		       outcomes[DIFFERENT], gap ? "  FAILED: no problem went together" : "");
	return outcomes[DIFFERENT] + gap;
}
