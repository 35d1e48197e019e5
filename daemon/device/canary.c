#include "device/canary.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "common/half.h"
#include "plan/plan.h"

enum { CANARY_TIMEOUT_S = 60, TRIES = 3 };

struct canary {
	struct run run;
	struct run_op op;
	struct memory memory;    /* what the device works on */
	unsigned char *expected; /* the same layout, computed by the reference */
	uint64_t view_bytes[OP_OPERANDS_MAX];
	uint32_t random;
	bool is_known; /* expected holds the inputs and the answer */
};

static double next_random(struct canary *c)
{
	c->random = c->random * 1664525u + 1013904223u;
	return (double)(c->random >> 8) / (double)(1u << 23) - 1.0;
}

/* Stores a multiple of 1/64 in [-1, 1], which every dtype holds exactly, so that inputs are not rounded. */
static void store(void *at, kops_dtype dtype, double value)
{
	half_store(at, dtype, 0, round(value * 64.0) / 64.0);
}

static unsigned view_total(const struct canary *c)
{
	return c->op.args.op->n_operands;
}

static int lay_out_buffers(struct canary *c)
{
	uint64_t total = 0;
	long page = sysconf(_SC_PAGESIZE);

	for (unsigned i = 0; i < view_total(c); i++) {
		struct view *v = &c->op.args.views[i];
		c->view_bytes[i] = view_elements(v) * dtype_size(v->dtype);
		if (view_is_absent(v))
			continue;
		v->space = &c->memory;
		v->offset = total;
		total += (c->view_bytes[i] + 255) & ~255ull;
	}
	total = (total + (uint64_t)page - 1) & ~((uint64_t)page - 1);
	c->memory.bytes = total;
	c->memory.host = aligned_alloc((size_t)page, total);
	c->expected = malloc(total);
	return c->memory.host && c->expected ? 0 : KOPS_E_NOMEM;
}

typedef bool sampler(kops_dtype dtype, struct op_args *args);

static struct canary *new_from(const struct op *op, sampler *sample, kops_dtype dtype)
{
	struct canary *c = calloc(1, sizeof *c);

	if (!c)
		return NULL;
	c->op.args.op = op;
	c->random = 12345;
	if (!sample || !sample(dtype, &c->op.args) || lay_out_buffers(c) < 0) {
		canary_free(c);
		return NULL;
	}
	return c;
}

struct canary *canary_new(const struct op *op, kops_dtype dtype)
{
	return new_from(op, op->sample, dtype);
}

void canary_free(struct canary *c)
{
	if (!c)
		return;
	run_forget_plan(&c->run);
	free(c->memory.host);
	free(c->expected);
	free(c);
}

static void compute_expected(struct canary *c)
{
	struct op_args args = c->op.args;

	memcpy(c->expected, c->memory.host, c->memory.bytes);
	for (unsigned i = 0; i < view_total(c); i++)
		if (!view_is_absent(&args.views[i]))
			args.views[i].data = c->expected + args.views[i].offset;
	args.op->reference(&args);
}

/* Both parts of complex numbers. */
static void fill_numbers(struct canary *c, char *at, const char *end, kops_dtype dtype)
{
	kops_dtype component = dtype_component(dtype);

	for (; at < end; at += dtype_size(component))
		store(at, component, next_random(c));
}

/* Fills data of other kinds, which ops only move, with random bits. */
static void fill_bytes(struct canary *c, char *at, const char *end)
{
	for (; at < end; at++)
		*at = (char)(128 * next_random(c));
}

/* Fills with indices below the limit, and those beside it that are out of range. */
static void fill_indices(struct canary *c, char *at, const char *end, uint64_t limit)
{
	for (; at < end; at += sizeof(int32_t)) {
		double place = (next_random(c) + 1) / 2; /* [0, 1) */
		int32_t index = (int32_t)(place * (double)(limit + 2)) - 1;
		memcpy(at, &index, sizeof index);
	}
}

static void fill_operands(struct canary *c)
{
	for (unsigned i = 0; i < view_total(c); i++) {
		const struct view *v = &c->op.args.views[i];
		char *at = (char *)c->memory.host + v->offset;
		uint64_t limit = op_index_limit(&c->op.args, i);

		if (limit > 0)
			fill_indices(c, at, at + c->view_bytes[i], limit);
		else if (dtype_kind(v->dtype) != DTYPE_INTEGER)
			fill_numbers(c, at, at + c->view_bytes[i], v->dtype);
		else
			fill_bytes(c, at, at + c->view_bytes[i]);
		if (c->op.args.op->operands[i].has_large_diagonal) {
			struct view there = *v;

			there.data = at;
			op_enlarge_diagonals(&there);
		}
	}
}

static void spoil_outputs(struct canary *c)
{
	const struct op *op = c->op.args.op;

	for (unsigned i = op_first_output(op); i < op->n_operands; i++)
		memset((char *)c->memory.host + c->op.args.views[i].offset, 0xff, c->view_bytes[i]); /* NaN */
}

/* The expected result is kept: computing it takes a millisecond, and the health check runs on the loop. */
struct run *canary_prepare(struct canary *c, const char *kernel)
{
	char why[WHY_BYTES];

	if (op_check(&c->op.args, why) < 0)
		return NULL; /* an invalid sample; canary_is_right() will return false */
	if (c->is_known) {
		memcpy(c->memory.host, c->expected, c->memory.bytes);
	} else {
		fill_operands(c);
		compute_expected(c);
		c->is_known = !op_reads_outputs(&c->op.args);
	}
	if (!op_reads_outputs(&c->op.args))
		spoil_outputs(c);
	c->op.pinned = kernel;
	run_forget_plan(&c->run);
	c->run = (struct run){.ops = &c->op, .n_ops = 1, .status = KOPS_E_FAULT, .lane = UINT64_MAX};
	return &c->run;
}

static bool output_is_right(const struct canary *c, unsigned i, double tolerance)
{
	const struct view *out = &c->op.args.views[i];
	kops_dtype component = dtype_component(out->dtype);
	size_t size = dtype_size(component);

	if (dtype_kind(out->dtype) == DTYPE_INTEGER)
		return memcmp((char *)c->memory.host + out->offset, c->expected + out->offset,
		              c->view_bytes[i]) == 0;
	for (uint64_t at = 0; at < c->view_bytes[i]; at += size) {
		double got = half_load((char *)c->memory.host + out->offset + at, component, 0);
		double want = half_load(c->expected + out->offset + at, component, 0);
		if (!(fabs(got - want) <= tolerance)) /* NaN is never right */
			return false;
	}
	return true;
}

bool canary_is_right(const struct canary *c)
{
	const struct op_args *args = &c->op.args;
	double tolerance = args->op->tolerance(args);

	if (c->run.status < 0)
		return false;
	for (unsigned i = op_first_output(args->op); i < args->op->n_operands; i++)
		if (!output_is_right(c, i, tolerance))
			return false;
	return true;
}

/* A device whose kernels are tested on its own thread. */
struct subject {
	const struct driver *driver;
	struct device_state *dev;
	struct planner *planner;
};

/* Runs to the end. Returns false if the run did not come back in time. */
static bool run_through(const struct subject *s, struct run *run)
{
	uint64_t give_up = clock_ns() + CANARY_TIMEOUT_S * 1000000000ull;

	run->status = plan_run(s->planner, run);
	if (run->status < 0)
		return true;
	s->driver->start(s->dev, run);
	while (!s->driver->poll(s->dev))
		if (clock_ns() > give_up)
			return false;
	return true;
}

enum verdict { PASSED, FAILED, NOT_TRIED, BROKEN };

/* Checked first, so that the reference computes nothing in vain. */
static bool takes(const struct kernel *kernel, struct canary *c)
{
	struct op_args *args = &c->op.args;
	char why[WHY_BYTES];
	const char *why_not;

	return op_check(args, why) == 0 && kernel->supports(args, &why_not);
}

static enum verdict test_sample(const struct subject *s, const struct kernel *kernel, struct canary *c)
{
	enum verdict verdict = NOT_TRIED;

	for (unsigned tries = 0; c && verdict == NOT_TRIED && tries < TRIES && takes(kernel, c); tries++) {
		if (!run_through(s, canary_prepare(c, kernel->name)))
			return BROKEN; /* leak the run, which is still in flight; the device is given up */
		/* Running out of memory says nothing about the kernel. */
		if (c->run.status != KOPS_E_NOMEM)
			verdict = canary_is_right(c) ? PASSED : FAILED;
	}
	canary_free(c);
	return verdict;
}

/*
 * Tests a kernel with each dtype that it takes, on the small sample, or on the large one if it does not take
 * the small. A kernel that takes neither is not tried, and not disabled.
 */
static enum verdict test_kernel(const struct subject *s, const struct op *op, const struct kernel *kernel)
{
	enum verdict all = NOT_TRIED;

	for (kops_dtype dtype = DTYPE_FIRST; dtype < DTYPE_END; dtype++) {
		enum verdict v = test_sample(s, kernel, canary_new(op, dtype));
		if (v == NOT_TRIED)
			v = test_sample(s, kernel, new_from(op, op->large_sample, dtype));
		if (v == FAILED || v == BROKEN)
			return v;
		all = v == PASSED ? PASSED : all;
	}
	return all;
}

static void note_failure(char failed[WHY_BYTES], const char *op, const char *kernel)
{
	size_t used = strlen(failed);

	snprintf(failed + used, WHY_BYTES - used, "%s%s/%s", used ? "," : "", op, kernel);
}

int canary_self_test(const struct driver *driver, struct device_state *dev, struct planner *planner,
                     char failed[WHY_BYTES])
{
	const struct subject s = {driver, dev, planner};
	int passed = 0;

	failed[0] = '\0';
	for (unsigned i = 0; i < OP_COUNT; i++) {
		const struct kernel_list *list = planner->kernels(ops[i]);
		for (unsigned kernel = 0; kernel < list->n; kernel++) {
			enum verdict v = test_kernel(&s, ops[i], &list->kernels[kernel]);
			if (v == BROKEN) {
				snprintf(failed, WHY_BYTES, "self-test of %s/%s did not finish within %d s",
				         ops[i]->name, list->kernels[kernel].name, CANARY_TIMEOUT_S);
				return KOPS_E_FAULT;
			}
			if (v == FAILED) {
				plan_disable(planner, ops[i], kernel);
				note_failure(failed, ops[i]->name, list->kernels[kernel].name);
			}
			passed += v == PASSED;
		}
	}
	return passed;
}
