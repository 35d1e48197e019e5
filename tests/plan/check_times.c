/*
 * check_times: compares the CPU device's plans with the times that ops take, for shapes that are dense,
 * strided, thin, converted, of one element or of many. Memory is shared, like a client's. `fresh` is a memfd
 * that nobody has written; jobs have used `again` before.
 *
 *     check_times [--within FACTOR] [NAME]   NAME: those that begin with it; default factor 4
 *
 * Exit status: 0 all within the factor, 1 some not, 2 usage or no memory.
 */
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cpu/cpu.h"
#include "plan/plan.h"

#define TRIES 3

/* Extents beyond the rank are 0. Strides: all 0 for dense views. */
struct shape {
	uint64_t shape[4];
	int64_t strides[4];
};

struct timing {
	const char *name, *op;
	kops_dtype dtype;
	struct shape views[OP_OPERANDS_MAX];
	double alpha, beta;
	const char *pinned;
	double over; /* by what factor the plan may be too long */
	bool fresh;  /* run once, on memory that was never touched */
	bool again;  /* on memory that this process has touched */
};

#define M(r, c)                                                                                                \
	{                                                                                                      \
		{r, c},                                                                                        \
		{                                                                                              \
			0                                                                                      \
		}                                                                                              \
	}
#define ALIKE(...)                                                                                             \
	{                                                                                                      \
		{__VA_ARGS__}, {__VA_ARGS__},                                                                  \
		{                                                                                              \
			__VA_ARGS__                                                                            \
		}                                                                                              \
	}
#define GEMM(m, n, k)                                                                                          \
	{                                                                                                      \
		M(m, k), M(k, n), M(m, n)                                                                      \
	}
#define BATCH(b, m, n, k)                                                                                      \
	{                                                                                                      \
		{{b, m, k}, {0}}, {{b, k, n}, {0}},                                                            \
		{                                                                                              \
			{b, m, n},                                                                             \
			{                                                                                      \
				0                                                                              \
			}                                                                                      \
		}                                                                                              \
	}
#define Mi (1ull << 20)

static const struct timing timings[] = {
    {"gemm f32", "gemm", KOPS_F32, GEMM(1500, 1500, 1500)},
    {"gemm f64", "gemm", KOPS_F64, GEMM(1200, 1200, 1200)},
    {"gemm f16", "gemm", KOPS_F16, GEMM(1200, 1200, 1200)},
    {"gemm bf16", "gemm", KOPS_BF16, GEMM(1200, 1200, 1200)},
    {"gemm f16 short k", "gemm", KOPS_F16, GEMM(4000, 4000, 8)},
    {"gemm f32 short k", "gemm", KOPS_F32, GEMM(6000, 6000, 8)},
    {"gemm f32 dot", "gemm", KOPS_F32, GEMM(1, 1, 32 * Mi)},
    {"gemm f32 matrix times vector", "gemm", KOPS_F32, GEMM(8000, 1, 8000)},
    {"gemm f32 vector times matrix", "gemm", KOPS_F32, GEMM(1, 8000, 8000)},
    {"gemm f32 thin", "gemm", KOPS_F32, GEMM(8000, 8, 8000)},
    {"gemm f32 far", "gemm", KOPS_F32, {{{1500, 1500}, {1, 3000}}, {{1500, 1500}, {3000, 2}}, M(1500, 1500)}},
    {"gemm f32 dot far", "gemm", KOPS_F32, {{{1, Mi}, {0, 64}}, {{Mi, 1}, {64, 1}}, M(1, 1)}},
    {"gemm f32 small", "gemm", KOPS_F32, BATCH(200000, 4, 4, 4)},
    {"gemm f32 ones", "gemm", KOPS_F32, BATCH(500000, 1, 1, 1)},
    {"gemm f16 small", "gemm", KOPS_F16, BATCH(200000, 4, 4, 4)},
    {"gemm f32 of nothing", "gemm", KOPS_F32, GEMM(4000, 4000, 1), .alpha = 0, .beta = 0.5},
    {"gemm f32 long k", "gemm", KOPS_F32, GEMM(64, 64, 262144)},
    {"gemm f32 batch", "gemm", KOPS_F32, BATCH(1000, 64, 64, 64)},
    {"gemm f64 dot", "gemm", KOPS_F64, GEMM(1, 1, 16 * Mi)},
    {"gemm f16 dot", "gemm", KOPS_F16, GEMM(1, 1, 16 * Mi)},
    {"gemm f32 columns",
     "gemm",
     KOPS_F32,
     {{{1000, 1000}, {1, 1000}}, {{1000, 1000}, {1, 1000}}, {{1000, 1000}, {1, 1000}}}},
    {"gemm reference", "gemm", KOPS_F32, GEMM(300, 300, 300), .pinned = "reference"},
    {"softmax f32", "softmax", KOPS_F32, ALIKE({16384, 1000}, {0})},
    {"softmax f16", "softmax", KOPS_F16, ALIKE({16384, 1000}, {0})},
    {"softmax f32 one row", "softmax", KOPS_F32, ALIKE({16 * Mi}, {0})},
    {"softmax f16 one row", "softmax", KOPS_F16, ALIKE({16 * Mi}, {0})},
    {"softmax f32 short rows", "softmax", KOPS_F32, ALIKE({2 * Mi, 3}, {0})},
    {"softmax f32 columns", "softmax", KOPS_F32, {{{1000, 8000}, {1, 1000}}, {{1000, 8000}, {1, 1000}}}},
    {"softmax f32 far", "softmax", KOPS_F32, {{{1000, 2000}, {128000, 64}}, {{1000, 2000}, {2000, 1}}}},
    {"softmax f32 one far row", "softmax", KOPS_F32, {{{1, Mi}, {0, 64}}, {{1, Mi}, {0, 1}}}},
    {"softmax reference", "softmax", KOPS_F32, ALIKE({1000, 1000}, {0}), .pinned = "reference"},
    {"add f32", "add", KOPS_F32, ALIKE({32 * Mi}, {0})},
    {"add f16", "add", KOPS_F16, ALIKE({32 * Mi}, {0})},
    {"add bf16", "add", KOPS_BF16, ALIKE({32 * Mi}, {0})},
    {"add f32 turned", "add", KOPS_F32, {{{4096, 4096}, {1, 4096}}, M(4096, 4096), M(4096, 4096)}},
    {"add f32 repeated", "add", KOPS_F32, {{{1, 4096}, {0}}, {{4096, 1}, {0}}, M(4096, 4096)}},
    {"add f32 far", "add", KOPS_F32, {{{Mi}, {64}}, {{Mi}, {64}}, {{Mi}, {64}}}},
    {"add f32 short rows", "add", KOPS_F32, ALIKE({4 * Mi, 3}, {5, 1})},
    {"add reference", "add", KOPS_F32, ALIKE({4 * Mi}, {0}), .pinned = "reference"},
    {"copy f32", "copy", KOPS_F32, ALIKE({32 * Mi}, {0})},
    {"copy f16 every other", "copy", KOPS_F16, {{{16 * Mi}, {2}}, {{16 * Mi}, {1}}}},
    {"copy f64 far", "copy", KOPS_F64, {{{2 * Mi}, {16}}, {{2 * Mi}, {16}}}},
    {"copy f32 short rows", "copy", KOPS_F32, ALIKE({4 * Mi, 3}, {5, 1})},
    {"copy f32 an element a page",
     "copy",
     KOPS_F32,
     {{{65536, 4}, {1024, 65536 * 1024}}, {{65536, 4}, {1, 65536}}}},
    {"copy f32 to an element a page", "copy", KOPS_F32, {{{262144}, {1}}, {{262144}, {1024}}}},
    {"copy f32 an element a page, again",
     "copy",
     KOPS_F32,
     {{{262144}, {1024}}, {{262144}, {1}}},
     .again = true},
    {"copy f32 to an element a page, again",
     "copy",
     KOPS_F32,
     {{{262144}, {1}}, {{262144}, {1024}}},
     .again = true},
    {"copy f32 again", "copy", KOPS_F32, ALIKE({32 * Mi}, {0}), .again = true},
    {"copy reference", "copy", KOPS_F32, ALIKE({4 * Mi}, {0}), .pinned = "reference"},
    {"fresh read an element a page", "copy", KOPS_F32, {{{262144}, {1024}}, {{262144}, {1}}}, .fresh = true},
    {"fresh write an element a page", "copy", KOPS_F32, {{{262144}, {1}}, {{262144}, {1024}}}, .fresh = true},
    {"fresh read", "add", KOPS_F32, ALIKE({16 * Mi}, {0}), .fresh = true},
    {"fresh write", "copy", KOPS_F32, {{{4096, 4096}, {0, 1}}, {{4096, 4096}, {0}}}, .fresh = true},
    {"fresh product", "gemm", KOPS_F32, GEMM(6000, 6000, 8), .fresh = true},
    {"transpose f32", "transpose", KOPS_F32, ALIKE({6000, 6000}, {0})},
    {"transpose f64", "transpose", KOPS_F64, ALIKE({4000, 4000}, {0})},
    {"transpose f16", "transpose", KOPS_F16, ALIKE({6000, 6000}, {0})},
    {"transpose f32 powers", "transpose", KOPS_F32, ALIKE({8192, 8192}, {0})},
    {"transpose f32 small", "transpose", KOPS_F32, ALIKE({2 * Mi, 2, 2}, {0})},
    {"transpose f32 far", "transpose", KOPS_F32, {{{1000, 1000}, {64000, 64}}, {{1000, 1000}, {1000, 1}}}},
    {"reduce f32", "reduce", KOPS_F32, {M(32768, 1024), M(32768, 1)}},
    {"reduce f16", "reduce", KOPS_F16, {M(32768, 1024), M(32768, 1)}},
    {"reduce bf16", "reduce", KOPS_BF16, {M(32768, 1024), M(32768, 1)}},
    {"reduce f32 one row", "reduce", KOPS_F32, {M(1, 32 * Mi), M(1, 1)}},
    {"reduce f32 short rows", "reduce", KOPS_F32, {M(4 * Mi, 8), M(4 * Mi, 1)}},
    {"reduce f32 columns", "reduce", KOPS_F32, {{{8000, 4000}, {1, 8000}}, M(8000, 1)}},
    {"reduce f32 far", "reduce", KOPS_F32, {{{1000, 1000}, {64000, 64}}, M(1000, 1)}},
    {"reduce reference", "reduce", KOPS_F32, {M(4000, 1000), M(4000, 1)}, .pinned = "reference"},
};

/* ---- One op ---- */

struct buffers {
	struct memory memory[OP_OPERANDS_MAX];
	int fds[OP_OPERANDS_MAX];
	unsigned n;
};

static void set_view(struct view *v, kops_dtype dtype, const struct shape *shape)
{
	bool dense = true;

	*v = (struct view){.dtype = dtype};
	while (v->rank < 4 && shape->shape[v->rank] != 0) {
		v->shape[v->rank] = shape->shape[v->rank];
		v->strides[v->rank] = shape->strides[v->rank];
		dense &= shape->strides[v->rank] == 0;
		v->rank++;
	}
	if (dense)
		view_make_dense(v);
}

/* Maps memory as kopsd finds a client's: written by another process or by nobody, and untouched by this one. */
static bool map_shared(struct memory *m, int fd)
{
	void *address = mmap(NULL, m->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	m->host = address == MAP_FAILED ? NULL : address;
	return m->host != NULL;
}

static void unmap(struct memory *m)
{
	if (m->host)
		munmap(m->host, m->bytes);
	m->host = NULL;
}

static bool make_memory(struct memory *m, int fd, bool fresh)
{
	if (fd < 0 || ftruncate(fd, (off_t)m->bytes) < 0 || !map_shared(m, fd))
		return false;
	if (fresh)
		return true;
	memset(m->host, 0x3c, m->bytes); /* a small number in any type */
	unmap(m);
	return map_shared(m, fd);
}

static bool map_views(struct op_args *args, struct buffers *b, const struct timing *t)
{
	for (unsigned i = 0; i < args->op->n_operands; i++) {
		struct view *v = &args->views[i];
		struct memory *m = &b->memory[i];
		uint64_t lo, hi;

		b->n = i + 1;
		b->fds[i] = -1;
		*m = (struct memory){.bytes = 0};
		if (view_is_absent(v))
			continue;
		if (view_extent(v, INT64_MAX, &lo, &hi) < 0)
			return false;
		*m = (struct memory){
		    .bytes = hi, .missing_bytes = t->fresh ? hi : 0, .reached_bytes = t->again ? hi : 0};
		v->space = m;
		b->fds[i] = memfd_create("check_times", MFD_CLOEXEC);
		if (!make_memory(m, b->fds[i], t->fresh))
			return false;
	}
	return true;
}

static bool remap_views(struct buffers *b)
{
	for (unsigned i = 0; i < b->n; i++) {
		unmap(&b->memory[i]);
		if (b->fds[i] >= 0 && !map_shared(&b->memory[i], b->fds[i]))
			return false;
	}
	return true;
}

static void unmap_views(struct buffers *b)
{
	for (unsigned i = 0; i < b->n; i++) {
		unmap(&b->memory[i]);
		if (b->fds[i] >= 0)
			close(b->fds[i]);
	}
}

static void set_params(struct op_args *args, const struct timing *t)
{
	bool given = t->alpha != 0 || t->beta != 0;

	if (strcmp(t->op, "gemm") == 0)
		args->params.gemm = (struct gemm_params){.alpha = given ? t->alpha : 1, .beta = t->beta};
	else if (strcmp(t->op, "softmax") == 0)
		args->params.softmax = (struct softmax_params){.scale = 1};
}

/* Makes the op of t ready to run. */
static bool prepare(const struct timing *t, struct run_op *op, struct buffers *b)
{
	char why[WHY_BYTES] = "out of memory";

	*op = (struct run_op){.pinned = t->pinned ? t->pinned : "", .args.op = op_by_name(t->op)};
	for (unsigned i = 0, given = 0; i < op->args.op->n_operands; i++)
		if (!op->args.op->operands[i].is_optional)
			set_view(&op->args.views[i], t->dtype, &t->views[given++]);
	if (strcmp(t->op, "transpose") == 0) {
		struct view *y = &op->args.views[1];
		uint64_t rows = y->shape[y->rank - 2];
		y->shape[y->rank - 2] = y->shape[y->rank - 1];
		y->shape[y->rank - 1] = rows;
		view_make_dense(y);
	}
	set_params(&op->args, t);
	if (map_views(&op->args, b, t) && op_check(&op->args, why) == 0)
		return true;
	printf("FAILED %s: %s\n", t->name, why);
	return false;
}

/* Measures the plan and the shortest of some runs, in us. */
static bool measure(struct device_state *dev, const struct timing *t, double *ret_plan_us, double *ret_us)
{
	struct buffers b = {.n = 0};
	struct run_op op;
	struct run run = {.ops = &op, .n_ops = 1};
	struct planner planner;
	bool right = false;

	driver_planner(&driver_cpu, dev, &planner);
	*ret_us = INFINITY;
	if (!prepare(t, &op, &b) || plan_run(&planner, &run) < 0)
		goto out;
	*ret_plan_us = op.plan_us;
	for (int i = 0; i < (t->fresh ? 1 : TRIES); i++) {
		if (i > 0 && !t->again && !remap_views(&b))
			goto out;
		driver_cpu.start(dev, &run);
		if (driver_cpu.poll(dev) != &run || run.status != 0)
			goto out;
		if (i > 0 || !t->again)
			*ret_us = fmin(*ret_us, run.compute_us);
	}
	right = true;
out:
	unmap_views(&b);
	return right;
}

/* ---- All ---- */

static bool check(struct device_state *dev, const struct timing *t, double within)
{
	double plan_us = 0, us;

	if (!measure(dev, t, &plan_us, &us)) {
		printf("FAILED %s: it does not run\n", t->name);
		return false;
	}
	bool right = plan_us <= (t->over > within ? t->over : within) * us && us <= within * plan_us;
	printf("%s %-34s planned %8.2f ms, took %8.2f ms: x %.2f\n", right ? "      " : "FAILED", t->name,
	       plan_us * 1e-3, us * 1e-3, plan_us / us);
	return right;
}

int main(int argc, char **argv)
{
	static const struct option long_options[] = {{"within", required_argument, NULL, 'w'}, {0}};
	struct device_state *dev;
	char why[WHY_BYTES];
	double within = 4;
	bool right = true;

	for (int c; (c = getopt_long(argc, argv, "", long_options, NULL)) != -1;) {
		if (c != 'w') {
			fprintf(stderr, "usage: check_times [--within FACTOR] [NAME]\n");
			return 2;
		}
		within = strtod(optarg, NULL);
	}
	const char *name = optind < argc ? argv[optind] : "";
	if (driver_cpu.open(0, &(struct driver_limits){0}, &dev, why) < 0)
		return 2;
	for (size_t i = 0; i < sizeof timings / sizeof timings[0]; i++)
		if (strncmp(timings[i].name, name, strlen(name)) == 0)
			right &= check(dev, &timings[i], within);
	driver_cpu.close(dev);
	return right ? 0 : 1;
}
