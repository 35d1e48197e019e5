/*
 * check_plans: checks what is planned on the host for GPUs: the kernel that runs an op, its workspace, and its
 * time. Jobs are random, and some are empty or absurd. GPUs are described, not present. The sources are those
 * of the CUDA module, compiled with checks for overflow, division by zero and conversions out of range.
 *
 *     check_plans [--cases N] [--seed N] [--gpu NAME]
 *     check_plans --module kops-cuda.so      compares with the module's decisions for this machine's GPU
 *
 * Prints a hash of all decisions: equal seeds and GPUs give equal numbers. Exit status: 0 right, 1 wrong, 2
 * usage, 77 no GPU.
 */
#include <dlfcn.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cuda.h"
#include "cpu/cpu.h"
#include "cuda/gpu.h"
#include "described.h"
#include "fitted.h"
#include "gemm/gemm.h"
#include "jobs.h"
#include "plan/plan.h"

#define SHOWN_MAX 20

static const struct described_gpu gpus[] = {
    {"H200", 9, 0, 132, 232448, 1980000, 3201000, 6016, 2, 140ull << 30},
    {"T4", 7, 5, 40, 65536, 1590000, 5001000, 256, 32, 15ull << 30},
    {"RTX-5060", 12, 0, 30, 101376, 2500000, 14001000, 128, 64, 8ull << 30},
    {"sliver", 9, 0, 1, 232448, 1, 1, 1, 2, 1ull << 20},
    {"unknown", 0, 0, 0, 0, 0, 0, 0, 0, 0},
};

struct choices {
	uint64_t cases, seed;
	const char *gpu, *module;
};

/* The jobs of one GPU. */
struct check {
	const struct described_gpu *gpu;
	struct planner planner;
	struct device_state *cpu; /* the CPU device to plan for; NULL: a described GPU */
	uint64_t decisions;       /* a hash of all decisions */
	unsigned failed;
};

/* ---- Verdicts ---- */

static void fail(struct check *c, const struct plan_job *job, unsigned i, const char *kernel, const char *what,
                 double value)
{
	char text[1024];

	if (c->failed++ >= SHOWN_MAX)
		return;
	plan_job_describe(job, i, text, sizeof text);
	printf("FAILED %s: %s%s%s is %g\n  op %u of %u: %s\n", c->gpu->name, kernel, *kernel ? ": " : "", what,
	       value, i, job->run.n_ops, text);
}

static void note(struct check *c, const void *data, size_t size)
{
	for (size_t i = 0; i < size; i++)
		c->decisions = (c->decisions ^ ((const unsigned char *)data)[i]) * 0x100000001b3u;
}

static bool is_time(double t)
{
	return isfinite(t) && t >= 0;
}

/*
 * Returns the bytes of all elements of the op's views, repeated ones too, with eight bytes each and axes
 * rounded up to whole tiles.
 */
static double most_bytes(const struct op_args *args)
{
	double sum = 0;

	for (unsigned v = 0; v < args->op->n_operands; v++) {
		double bytes = fmax(8, (double)dtype_size(args->views[v].dtype));
		for (uint32_t d = 0; d < args->views[v].rank; d++)
			bytes *= d + 2 < args->views[v].rank ? (double)args->views[v].shape[d]
			                                     : (double)args->views[v].shape[d] + 256;
		sum += bytes;
	}
	return sum;
}

#define WORKSPACE_BYTES 0x1p26 /* allowed for any operands */

/* ---- One kernel ---- */

/* Returns true if the type is among those that the kernel says it takes: "f16 bf16". */
static bool names_type(const struct kernel *kernel, kops_dtype dtype)
{
	const char *name = dtype_name(dtype), *at = kernel->dtypes;
	size_t length = strlen(name);

	while ((at = strstr(at, name)) &&
	       !((at == kernel->dtypes || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0')))
		at += length;
	return at != NULL;
}

/* What the kernel keeps for parts that grow, and its estimates of them. */
static void check_kept(struct check *c, const struct plan_job *job, unsigned i, const struct kernel *kernel,
                       const struct op_args *args)
{
	static const struct growth ways[] = {{6, 3, 0, 0, 0}, {4, 6, 0.5, 0.7, 3}};

	for (unsigned way = 0; way < sizeof ways / sizeof *ways; way++) {
		struct op_args part, fresh;
		struct op_cut cut;

		if (!op_cut_growing(args, &ways[way], &cut) || !kernel_takes_parts(kernel, args, &cut))
			continue;
		uint64_t bytes = kernel_kept_bytes(kernel, args, &cut);
		if ((double)bytes > most_bytes(args) + WORKSPACE_BYTES)
			fail(c, job, i, kernel->name, "kept bytes", (double)bytes);
		for (uint32_t k = 0; bytes > 0 && k < cut.n_parts; k++) {
			op_part(args, &cut, k, &part);
			if (!op_part_fresh(args, &cut, k, &fresh))
				fresh = part;
			double ns = kernel->kept_ns(args, &part, &fresh);
			if (!is_time(ns) || ns <= 0)
				fail(c, job, i, kernel->name, "kept_ns", ns);
		}
	}
}

static void check_kernel(struct check *c, const struct plan_job *job, unsigned i, const struct kernel *kernel,
                         const struct op_args *args)
{
	static const struct op_cut uncut = {.n_parts = 1, .n_steps = 1};
	const char *why_not = "";
	double ns;

	if (!kernel->supports(args, &why_not))
		return;
	if (!names_type(kernel, args->views[0].dtype))
		fail(c, job, i, kernel->name, "a type that it does not name", args->views[0].dtype);
	if (kernel->accurate)
		kernel->accurate(args, &why_not);
	if (view_elements(op_output_const(args)) > 0 && !(is_time(ns = kernel->time_ns(args)) && ns > 0))
		fail(c, job, i, kernel->name, "time_ns", ns);
	uint64_t bytes = kernel_workspace(kernel, args, &uncut);
	if ((double)bytes > most_bytes(args) + WORKSPACE_BYTES && bytes != UINT64_MAX)
		fail(c, job, i, kernel->name, "workspace", (double)bytes);
	if (kernel->kept_bytes && !op_is_empty(args))
		check_kept(c, job, i, kernel, args);
}

/* If a kernel that goes together is within 1 us of the fastest, no other kernel may be a rival. */
static void check_company(struct check *c, const struct plan_job *job, unsigned i, const struct op_args *staged,
                          const struct rival *rivals, unsigned n)
{
	const struct kernel_list *list = c->planner.kernels(staged->op);
	double least = INFINITY, least_together = INFINITY;
	unsigned together = 0;

	for (unsigned k = 0; k < n; k++) {
		const struct kernel *kernel = &list->kernels[rivals[k].kernel];

		least = fmin(least, rivals[k].time_ns);
		if (!kernel->together_max || kernel->together_max(staged) == 1)
			continue;
		together++;
		least_together = fmin(least_together, rivals[k].time_ns);
	}
	if (together > 0 && together < n && least_together <= least + 1000)
		fail(c, job, i, "", "number of rivals that go together", together);
}

static void check_rivals(struct check *c, const struct plan_job *job, unsigned i, const struct op_args *staged)
{
	const struct kernel_list *list = c->planner.kernels(job->ops[i].args.op);
	struct rival rivals[RIVALS_MAX];
	unsigned n = plan_rivals(&c->planner, &job->ops[i].args, rivals);

	for (unsigned k = 0; k < n; k++)
		if (!is_time(rivals[k].time_ns))
			fail(c, job, i, list->kernels[rivals[k].kernel].name, "time_ns of a rival",
			     rivals[k].time_ns);
	check_company(c, job, i, staged, rivals, n);
}

static void check_kernels(struct check *c, const struct plan_job *job, unsigned i)
{
	const struct kernel_list *list = c->planner.kernels(job->ops[i].args.op);
	struct op_args args;

	plan_args(&c->planner, &job->ops[i].args, &args);
	if (!c->cpu)
		check_rivals(c, job, i, &args);
	for (size_t kernel = 0; kernel < list->n; kernel++)
		check_kernel(c, job, i, &list->kernels[kernel], &args);
}

/* ---- A job ---- */

static bool is_empty(const struct run_op *op)
{
	return op_is_empty(&op->args);
}

/* Checks what transfers of all of the run's views may need, before and after. */
static void check_bytes(struct check *c, const struct plan_job *job)
{
	double most = 0;

	for (unsigned i = 0; i < job->run.n_ops; i++)
		if (!is_empty(&job->ops[i]))
			most += 2 * most_bytes(&job->ops[i].args) + WORKSPACE_BYTES;
	if ((double)job->run.device_bytes > most)
		fail(c, job, 0, "", "device_bytes", (double)job->run.device_bytes);
}

static void check_planned(struct check *c, const struct plan_job *job)
{
	double sum = 0;

	for (unsigned i = 0; i < job->run.n_ops; i++) {
		const struct run_op *op = &job->ops[i];
		if (!is_time(op->plan_us) || (is_empty(op) ? op->plan_us != 0 : op->plan_us == 0))
			fail(c, job, i, op->kernel->name, "plan_us", op->plan_us);
		sum += op->plan_us;
	}
	if (!is_time(job->run.plan_us) || job->run.plan_us < sum)
		fail(c, job, 0, "the run", "plan_us", job->run.plan_us);
	check_bytes(c, job);
}

/* Returns true for GPUs on which almost everything is long. */
static bool is_slow(const struct described_gpu *gpu)
{
	return gpu->multiprocessors < 30;
}

/* At worst, of parts that go through whole operands: those of factorisations, which are cut only along steps.
 */
static double pages_us(const struct run_op *op)
{
	const double of_page_us = 12;
	double pages = 0;

	for (unsigned axis = 0; axis < op->args.op->n_part_axes; axis++)
		if (op->cut.axes[axis].n > 1 || !op->args.op->steps)
			return 0;
	for (unsigned v = 0; v < op->args.op->n_operands; v++)
		pages += view_blocks(&op->args.views[v], 4096);
	return of_page_us * pages;
}

/*
 * Checks that auto finds a kernel that can be cut, for any job of less than half a minute. On the CPU pages
 * count too, which may be shared unequally.
 */
static void check_parts(struct check *c, const struct plan_job *job)
{
	const double all_us = 30e6, part_us = (c->cpu ? 20 : 1.001) * PART_US;

	for (unsigned i = 0; i < job->run.n_ops && (c->cpu || !is_slow(c->gpu)); i++)
		if (job->ops[i].plan_us <= all_us &&
		    run_part_us(&job->ops[i]) > part_us + (c->cpu ? pages_us(&job->ops[i]) : 0))
			fail(c, job, i, job->ops[i].kernel->name, "auto's plan_us of a part",
			     run_part_us(&job->ops[i]));
}

static bool is_refusal(int rc)
{
	return rc == KOPS_E_UNSUPPORTED || rc == KOPS_E_NOMEM;
}

static int plan(struct check *c, struct plan_job *job)
{
	int rc = plan_run(&c->planner, &job->run);

	if (rc == 0)
		check_planned(c, job);
	else if (!is_refusal(rc) || !job->run.error[0])
		fail(c, job, 0, "the run", "code", rc);
	run_forget_plan(&job->run);
	return rc;
}

static void note_plan(struct check *c, const struct plan_job *job, int rc)
{
	note(c, &rc, sizeof rc);
	for (unsigned i = 0; rc == 0 && i < job->run.n_ops; i++)
		note(c, job->ops[i].kernel->name, strlen(job->ops[i].kernel->name));
	note(c, &job->run.device_bytes, rc == 0 ? sizeof job->run.device_bytes : 0);
}

/* Checks that a plan, which returned rc, does not depend on the size of its steps: here one op. */
static void check_steps(struct check *c, struct plan_job *job, int rc)
{
	double plan_us = job->run.plan_us;
	uint64_t device_bytes = job->run.device_bytes;
	int by_steps = 0;

	for (unsigned i = 0; i < job->run.n_ops && by_steps == 0; i++)
		by_steps = plan_ops(&c->planner, &job->run, i, i + 1);
	if (by_steps != rc)
		fail(c, job, 0, "by steps", "code", by_steps);
	if (rc == 0 && (job->run.plan_us != plan_us || job->run.device_bytes != device_bytes))
		fail(c, job, 0, "by steps", "plan_us", job->run.plan_us);
	run_forget_plan(&job->run);
}

/* Checks the job with auto, and with each kernel by name. */
static void check_job(struct check *c, struct plan_job *job)
{
	const struct kernel_list *list = c->planner.kernels(job->ops[0].args.op);

	int rc = plan(c, job);

	if (rc == 0)
		check_parts(c, job);
	note_plan(c, job, rc);
	check_steps(c, job, rc);
	for (unsigned i = 0; i < job->run.n_ops; i++)
		check_kernels(c, job, i);
	for (size_t kernel = 0; kernel < list->n; kernel++) {
		job->ops[0].pinned = list->kernels[kernel].name;
		note_plan(c, job, plan(c, job));
	}
}

static uint64_t n_described;

static void open_described(struct check *c, const struct described_gpu *gpu)
{
	struct planner *p = &c->planner;

	*c = (struct check){.gpu = gpu, .planner.kernels = cuda_kernels};
	p->dev = (const struct device_state *)p; /* any address */
	p->id = ++n_described;
	p->info.memory_bytes = gpu->memory_bytes;
	p->info.link_rate = gpu->link_rate > 0 ? gpu->link_rate : fitted.host.link;
	cuda_fill_costs(&p->info);
	described_gpu_set(gpu);
}

/* ---- Times that are known of an H200 ---- */

/* Extents of gemm: m, n, k; of other ops one axis, and its stride. */
struct known {
	const char *op, *kernel;
	kops_dtype dtype;
	uint64_t extents[3];
	int64_t stride;
	bool shared, fresh; /* in host memory, whose pages do not exist yet */
	double least_us, most_us;
};

/* From the measured time up to twice that. */
static const struct known knowns[] = {
    {"gemm", "", KOPS_F32, {8192, 8192, 8192}, .least_us = 5e3, .most_us = 45e3},
    {"gemm", "cublas", KOPS_F32, {8192, 8192, 8192}, .least_us = 20e3, .most_us = 45e3},
    {"gemm", "cublas", KOPS_F16, {8192, 8192, 8192}, .least_us = 1.4e3, .most_us = 5e3},
    {"gemm", "cublas", KOPS_F16, {16384, 1, 4096}, .least_us = 20, .most_us = 60}, /* a vector */
    {"gemm", "cublas", KOPS_F64, {4096, 4096, 4096}, .least_us = 2.1e3, .most_us = 9e3},
    {"gemm", "naive", KOPS_F64, {1, 1, 1 << 28}, .least_us = 5e6, .most_us = 100e6}, /* one thread */
    {"copy", "vector", KOPS_F32, {1 << 28}, 1, .least_us = 507, .most_us = 700},
    /* One element per page, which nobody has written; and pages that all have been. */
    {"copy", "", KOPS_F32, {1 << 20}, 1024, .shared = true, .fresh = true, .least_us = 1e6, .most_us = 4e6},
    {"copy", "", KOPS_F32, {1 << 20}, 1024, .shared = true, .least_us = 50e3, .most_us = 1e6},
    {"copy", "", KOPS_F32, {1 << 28}, 1, .shared = true, .least_us = 36e3, .most_us = 250e3},
    {"add", "", KOPS_F32, {1 << 28}, 1, .least_us = 770, .most_us = 1100},
    {"add", "", KOPS_F32, {1 << 20}, 1024, .least_us = 15, .most_us = 400},
    /* Ops that can be cut only along their steps: a sum of 16-bit products, one of elements, a row. */
    {"gemm", "", KOPS_F16, {1, 1, 1ull << 32}, .least_us = 50e3, .most_us = 1e6},
    {"gemm", "naive", KOPS_F16, {1, 1, 1 << 24}, .least_us = 60e3, .most_us = 2e6},
    /* Its copy of A, whose lines begin anywhere, would take 2 TiB: it refuses. */
    {"gemm", "wgmma", KOPS_F16, {1 << 20, 64, (1 << 20) + 1}, .least_us = INFINITY, .most_us = INFINITY},
    {"gemm", "small", KOPS_BF16, {1, 1, 1 << 27}, .least_us = 2e6, .most_us = 6e6}, /* 2.1 s on an H200 */
    {"softmax", "", KOPS_F16, {1ull << 36}, 1, .least_us = 60e3, .most_us = 1e6},
    {"softmax", "pieces", KOPS_F32, {1ull << 36}, 1, .least_us = 60e3, .most_us = 1e6},
    {"gemm", "", KOPS_F32, {0, 1, 1}},
    {"gemm", "", KOPS_BF16, {0, 1, 1}},
    {"gemm", "", KOPS_F16, {1, 0, 28}},
    {"gemm", "", KOPS_F64, {1, 0, 28}},
};

static void set_matrix(struct view *v, kops_dtype dtype, uint64_t rows, uint64_t cols)
{
	*v = (struct view){.dtype = dtype, .rank = 3, .shape = {1, rows, cols}};
	view_make_dense(v);
}

static void set_known(struct plan_job *job, const struct known *k, const void *owner)
{
	struct op_args *args = &job->ops[0].args;
	const uint64_t *e = k->extents;

	*job = (struct plan_job){.run = {.ops = job->ops, .n_ops = 1}};
	job->ops[0].pinned = k->kernel;
	args->op = op_by_name(k->op);
	for (unsigned v = 0; v < args->op->n_operands; v++)
		if (!args->op->operands[v].is_optional)
			args->views[v] = (struct view){
			    .dtype = k->dtype, .rank = 1, .shape = {e[0]}, .strides = {v ? 1 : k->stride}};
	if (strcmp(k->op, "gemm") == 0) {
		set_matrix(&args->views[0], k->dtype, e[0], e[2]);
		set_matrix(&args->views[1], k->dtype, e[2], e[1]);
		set_matrix(&args->views[GEMM_C], k->dtype, e[0], e[1]);
		args->params.gemm = (struct gemm_params){.alpha = 1};
	}
	for (unsigned v = 0; v < args->op->n_operands; v++) {
		job->buffers[v] =
		    (struct memory){.bytes = UINT64_MAX, .owner = k->shared ? NULL : owner, .host = job};
		job->buffers[v].missing_bytes = k->fresh ? UINT64_MAX : 0;
		args->views[v].space = &job->buffers[v];
	}
}

static bool check_knowns(void)
{
	char why[WHY_BYTES] = "";
	struct plan_job job;
	struct check c;

	open_described(&c, &gpus[0]);
	for (size_t i = 0; i < sizeof knowns / sizeof knowns[0]; i++) {
		const struct known *k = &knowns[i];
		set_known(&job, k, c.planner.dev);
		double us =
		    op_check(&job.ops[0].args, why) == 0 && plan(&c, &job) == 0 ? job.run.plan_us : INFINITY;
		bool empty = k->most_us == 0; /* nothing but the run's own time */
		if (isfinite(us))
			check_parts(&c, &job);
		if (us < k->least_us || us > (empty ? 20 : k->most_us))
			fail(&c, &job, 0, job.ops[0].kernel ? job.ops[0].kernel->name : why, "time in us", us);
	}
	return c.failed == 0;
}

/* ---- A GPU ---- */

/* Cutting takes longer than planning, so slow GPUs have fewer jobs. */
static bool check_gpu(const struct described_gpu *gpu, const struct choices *o)
{
	uint64_t cases = is_slow(gpu) ? (o->cases + 19) / 20 : o->cases;
	struct random r = {o->seed};
	struct plan_job job;
	struct check c;

	open_described(&c, gpu);
	for (uint64_t i = 0; i < cases; i++) {
		plan_job_random(&job, c.planner.dev, &r);
		check_job(&c, &job);
	}
	printf("%-10s %llu jobs, decisions %016llx%s\n", gpu->name, (unsigned long long)cases,
	       (unsigned long long)c.decisions, c.failed ? ", FAILED" : "");
	return c.failed == 0;
}

/* Pages may take six times as long as planned: see cpu.c. Parts must be short nevertheless. */
static void check_fresh_pages(struct check *c)
{
	static const struct known fresh = {"copy",         "",           KOPS_F32, {1 << 20}, 1024,
	                                   .shared = true, .fresh = true};
	struct plan_job job;

	set_known(&job, &fresh, NULL);
	if (plan(c, &job) < 0 || 6 * run_part_us(&job.ops[0]) > 1.1 * PART_US)
		fail(c, &job, 0, "auto", "plan_us of a part with fresh pages", run_part_us(&job.ops[0]));
}

/* Plans by all kernels too, of which the CPU has fewer. */
static bool check_cpu(const struct choices *o)
{
	static const struct described_gpu cpu = {.name = "cpu"};
	struct check c = {.gpu = &cpu};
	struct random r = {o->seed};
	struct plan_job job;
	char why[WHY_BYTES];

	if (driver_cpu.open(0, &(struct driver_limits){.threads = 64}, &c.cpu, why) < 0)
		return false;
	driver_planner(&driver_cpu, c.cpu, &c.planner);
	check_fresh_pages(&c);
	for (uint64_t i = 0; i < o->cases; i++) {
		plan_job_random(&job, c.cpu, &r);
		check_job(&c, &job);
	}
	driver_cpu.close(c.cpu);
	printf("%-10s %llu jobs%s\n", cpu.name, (unsigned long long)o->cases, c.failed ? ", FAILED" : "");
	return c.failed == 0;
}

static int check_described(const struct choices *o)
{
	bool right = check_knowns(), found = false;

	for (size_t i = 0; i < sizeof gpus / sizeof gpus[0]; i++) {
		if (o->gpu && strcmp(o->gpu, gpus[i].name) != 0)
			continue;
		found = true;
		right &= check_gpu(&gpus[i], o);
	}
	if (!o->gpu || strcmp(o->gpu, "cpu") == 0)
		found = true, right &= check_cpu(o);
	if (!found)
		fprintf(stderr, "no GPU \"%s\" is described here\n", o->gpu);
	return !found ? 2 : right ? 0 : 1;
}

/* ---- The GPU of this machine ---- */

typedef int (*driver_init)(unsigned flags);
typedef int (*driver_attribute)(int *ret, int which, int device);

static void *function(void *library, const char *name)
{
	return library ? dlsym(library, name) : NULL;
}

/* Describes GPU 0 by what kops-cuda.so would hear from the NVIDIA driver. */
static bool describe_real(struct described_gpu *ret)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), *symbol = function(library, "cuInit");
	driver_attribute attribute;
	driver_init init;

	if (!symbol)
		return false;
	memcpy(&init, &symbol, sizeof init);
	symbol = function(library, "cuDeviceGetAttribute");
	if (init(0) != 0 || !symbol)
		return false;
	memcpy(&attribute, &symbol, sizeof attribute);
	const struct {
		int which, *to;
	} wanted[] = {
	    {cudaDevAttrComputeCapabilityMajor, &ret->major},
	    {cudaDevAttrComputeCapabilityMinor, &ret->minor},
	    {cudaDevAttrMultiProcessorCount, &ret->multiprocessors},
	    {cudaDevAttrMaxSharedMemoryPerBlockOptin, &ret->shared_bytes_max},
	    {cudaDevAttrClockRate, &ret->clock_khz},
	    {cudaDevAttrMemoryClockRate, &ret->memory_clock_khz},
	    {cudaDevAttrGlobalMemoryBusWidth, &ret->bus_bits},
	    {cudaDevAttrSingleToDoublePrecisionPerfRatio, &ret->f32_per_f64},
	};
	for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
		if (attribute(wanted[i].to, wanted[i].which, 0) != 0)
			return false;
	return true;
}

/* Makes the device that plans the owner of RESIDENT buffers. */
static void give_buffers_to(struct plan_job *job, const void *owner)
{
	for (unsigned i = 0; i < JOB_BUFFERS; i++)
		if (job->buffers[i].owner)
			job->buffers[i].owner = owner;
}

static bool is_near(double a, double b)
{
	return fabs(a - b) <= 1e-6 * fmax(a, b);
}

static void compare(struct check *c, const struct planner *module, struct plan_job *job)
{
	struct plan_job theirs = *job;
	int rc = plan(c, job), their_rc;

	theirs.run.ops = theirs.ops;
	for (unsigned i = 0; i < job->run.n_ops; i++)
		for (unsigned v = 0; v < OP_OPERANDS_MAX; v++)
			if (theirs.ops[i].args.views[v].space)
				theirs.ops[i].args.views[v].space =
				    theirs.buffers +
				    ((const struct memory *)job->ops[i].args.views[v].space - job->buffers);
	give_buffers_to(&theirs, module->dev);
	their_rc = plan_run(module, &theirs.run);
	note_plan(c, job, rc);
	if (rc != their_rc)
		fail(c, job, 0, "the module", "code", their_rc);
	for (unsigned i = 0; rc == 0 && their_rc == 0 && i < job->run.n_ops; i++)
		if (strcmp(job->ops[i].kernel->name, theirs.ops[i].kernel->name) != 0)
			fail(c, job, i, theirs.ops[i].kernel->name,
			     "the module's choice instead of ours; kernel", (double)i);
	if (rc == 0 && their_rc == 0 && job->run.device_bytes != theirs.run.device_bytes)
		fail(c, job, 0, "the module", "device_bytes", (double)theirs.run.device_bytes);
	if (rc == 0 && their_rc == 0 && !is_near(job->run.plan_us, theirs.run.plan_us))
		fail(c, job, 0, "the module", "plan_us", theirs.run.plan_us);
	run_forget_plan(&theirs.run);
}

static const struct driver *open_module(const char *path)
{
	const struct driver *(*entry)(void);
	void *symbol = function(dlopen(path, RTLD_NOW | RTLD_LOCAL), DRIVER_ENTRY);

	if (!symbol) {
		fprintf(stderr, "cannot use module %s: %s\n", path, dlerror());
		return NULL;
	}
	memcpy(&entry, &symbol, sizeof entry);
	return entry()->abi == DRIVER_ABI ? entry() : NULL;
}

static bool check_device(const struct driver *module, struct device_state *dev, struct described_gpu *gpu,
                         const struct choices *o)
{
	struct random r = {o->seed};
	struct planner theirs;
	struct plan_job job;
	struct check c;

	driver_planner(module, dev, &theirs);
	snprintf(gpu->name, sizeof gpu->name, "%.90s", theirs.info.description);
	gpu->memory_bytes = theirs.info.memory_bytes;
	gpu->link_rate = theirs.info.link_rate;
	open_described(&c, gpu);
	for (uint64_t i = 0; i < o->cases; i++) {
		plan_job_random(&job, c.planner.dev, &r);
		compare(&c, &theirs, &job);
		const struct kernel_list *list = theirs.kernels(job.ops[0].args.op);
		job.ops[0].pinned = list->kernels[i % list->n].name;
		compare(&c, &theirs, &job);
	}
	printf("%s: %llu jobs, decisions %016llx%s\n", gpu->name, (unsigned long long)o->cases,
	       (unsigned long long)c.decisions, c.failed ? ", FAILED" : ", the module's are the same");
	return c.failed == 0;
}

static int check_module(const struct choices *o)
{
	const struct driver *module = open_module(o->module);
	struct device_state *dev = NULL;
	struct described_gpu gpu = {0};
	char why[WHY_BYTES] = "";

	if (!module)
		return 2;
	if (module->count(why) == 0 || !describe_real(&gpu)) {
		printf("SKIPPED: %s\n", why[0] ? why : "the driver does not tell of its GPU");
		return 77;
	}
	if (module->open(0, &(struct driver_limits){0}, &dev, why) < 0) {
		printf("FAILED: %s\n", why);
		return 1;
	}
	bool right = check_device(module, dev, &gpu, o);
	module->close(dev);
	return right ? 0 : 1;
}

/* ---- Options ---- */

static int usage(void)
{
	fprintf(stderr, "usage: check_plans [--cases N] [--seed N] [--gpu NAME | --module kops-cuda.so]\n");
	return 2;
}

int main(int argc, char **argv)
{
	static const struct option long_options[] = {{"cases", required_argument, NULL, 'c'},
	                                             {"seed", required_argument, NULL, 's'},
	                                             {"gpu", required_argument, NULL, 'g'},
	                                             {"module", required_argument, NULL, 'm'},
	                                             {0}};
	struct choices o = {.cases = 1000, .seed = 1};

	for (int c; (c = getopt_long(argc, argv, "", long_options, NULL)) != -1;) {
		if (c == 'c')
			o.cases = strtoull(optarg, NULL, 10);
		else if (c == 's')
			o.seed = strtoull(optarg, NULL, 10);
		else if (c == 'g')
			o.gpu = optarg;
		else if (c == 'm')
			o.module = optarg;
		else
			return usage();
	}
	if (optind != argc)
		return usage();
	return o.module ? check_module(&o) : check_described(&o);
}
