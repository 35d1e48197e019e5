/*
 * simulated_gpu: a module in place of kops-cuda.so whose GPUs use the driver of the CPU. It lets tests without
 * a GPU see failing devices, hangs and pinning. Tests create files in the folder $SIMULATED_GPU while the
 * daemon runs:
 *
 *     count         number of GPUs; 2 without the file
 *     memory        bytes of memory of each GPU; 64 MiB without the file
 *     own-memory    runs are planned with copies and windows of operands, as for a GPU with memory of its own;
 *                   read when a GPU opens
 *     no-open       GPU 0 does not open
 *     wrong-kernel  every result of gemm's kernel "reference" is spoiled, so its self-test must fail
 *     fault         the next run (the file is removed) ends with KOPS_E_FAULT, as in a broken CUDA context
 *     no-pin        no memory can be registered for DMA
 *     hang          the next run (the file is removed) never comes back
 *     hold          the next run (the file is removed) begins only once another was started after it
 *     together      repeated runs of one op are held back until the next poll(), as small ones are on a GPU.
 *                   The number in the file becomes the most that were started by one poll().
 *     hang-sensors  questions for temperature, power and memory wait
 *     uncut         parts of an op may hand on nothing, so one long row is not cut; read when a GPU opens
 *     rivals        kernels of gemm, one on a line: the nanoseconds that they are expected to take, and the
 *                   microseconds that their runs report
 *     first         the nanoseconds by which the first launch of gemm's kernel "openblas" takes longer. The
 * file is removed when the driver is to get it over with
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cpu/cpu.h"

const struct driver *kops_driver(void);

enum { HUNG_MAX = 64 };

static struct run *hung[HUNG_MAX];
static unsigned n_hung;
/* The run held back on this thread's device. */
static __thread struct run *held;
static __thread struct list crowd;
static __thread unsigned most_together;

static const char *path_of(const char *name, char path[512])
{
	snprintf(path, 512, "%s/%s", getenv("SIMULATED_GPU"), name);
	return path;
}

static bool is_there(const char *name)
{
	char path[512];

	return access(path_of(name, path), F_OK) == 0;
}

/* Returns true once for each time that a test made the file. */
static bool take(const char *name)
{
	char path[512];

	return unlink(path_of(name, path)) == 0;
}

/* Returns the number in the file; 0 if there is none. */
static unsigned number_in(const char *name, unsigned without_file)
{
	char path[512];
	unsigned n = without_file;
	FILE *f = fopen(path_of(name, path), "r");

	if (f && fscanf(f, "%u", &n) != 1)
		n = 0;
	if (f)
		fclose(f);
	return n;
}

static unsigned count(char why[WHY_BYTES])
{
	unsigned n = number_in("count", 2);

	if (n == 0)
		snprintf(why, WHY_BYTES, "the simulation has no GPU");
	return n;
}

static int open_gpu(unsigned index, const struct driver_limits *limits, struct device_state **ret_dev,
                    char why[WHY_BYTES])
{
	const struct driver_limits one_thread = {.threads = 1};

	(void)limits;
	if (index == 0 && is_there("no-open")) {
		snprintf(why, WHY_BYTES, "simulated: all of its memory is taken");
		return KOPS_E_NOMEM;
	}
	return driver_cpu.open(0, &one_thread, ret_dev, why);
}

static void describe(const struct device_state *dev, struct device_info *ret)
{
	driver_cpu.describe(dev, ret);
	snprintf(ret->description, sizeof ret->description, "simulated GPU");
	ret->memory_bytes = number_in("memory", 64u << 20);
	ret->has_trials = true;
	if (is_there("own-memory"))
		ret->link_rate = ret->pageable_rate = 1e4;
	if (is_there("together"))
		ret->crowd_us = 1000;
	if (is_there("uncut"))
		ret->carried_max_bytes = 0;
}

struct simulated_kernel {
	char name[32];
	double expected_ns, took_us;
};

/* Reads the op's rivals from the file, and returns their number. */
static unsigned read_rivals(const struct op *op, struct simulated_kernel ret[RIVALS_MAX])
{
	char path[512];
	/* checked first, since fopen() allocates even in vain, and tests count the daemon's allocations */
	bool has_file = strcmp(op->name, "gemm") == 0 && is_there("rivals");
	FILE *f = has_file ? fopen(path_of("rivals", path), "r") : NULL;
	unsigned n = 0;

	while (f && n < RIVALS_MAX &&
	       fscanf(f, "%31s %lf %lf", ret[n].name, &ret[n].expected_ns, &ret[n].took_us) == 3)
		n++;
	if (f)
		fclose(f);
	return n;
}

/* ---- Kernels: the CPU's; those of gemm have the times in the file ---- */

static const struct kernel_list *cpu_gemm(void)
{
	return driver_cpu.kernels(op_by_name("gemm"));
}

static double expected_ns(size_t kernel, const struct op_args *args)
{
	const struct kernel *real = &cpu_gemm()->kernels[kernel];
	struct simulated_kernel kernels[RIVALS_MAX];
	unsigned n = read_rivals(args->op, kernels);

	for (unsigned r = 0; r < n; r++)
		if (strcmp(kernels[r].name, real->name) == 0)
			return kernels[r].expected_ns;
	return real->time_ns(args);
}

/* Time functions are not told which kernel they serve, so each kernel has its own. */
static double expected_of_first(const struct op_args *args)
{
	return expected_ns(0, args);
}

static double expected_of_second(const struct op_args *args)
{
	return expected_ns(1, args);
}

static double first_ns(const struct op_args *args)
{
	char path[512];
	FILE *f = is_there("first") ? fopen(path_of("first", path), "r") : NULL;
	double ns = 0;

	(void)args;
	if (f && fscanf(f, "%lf", &ns) != 1)
		ns = 0;
	if (f)
		fclose(f);
	return ns;
}

static void get_ready(struct device_state *dev, const struct run *run)
{
	(void)dev;
	for (unsigned i = 0; i < run->n_ops; i++)
		if (run->ops[i].first_launch)
			take("first");
}

static struct kernel gemm_kernels[2];
static const struct kernel_list gemm_list = {gemm_kernels, 2};

static void make_gemm_kernels(void)
{
	memcpy(gemm_kernels, cpu_gemm()->kernels, sizeof gemm_kernels);
	gemm_kernels[0].time_ns = expected_of_first;
	gemm_kernels[1].time_ns = expected_of_second;
	gemm_kernels[strcmp(gemm_kernels[0].name, "openblas") == 0 ? 0 : 1].first_ns = first_ns;
}

static const struct kernel_list *kernels(const struct op *op)
{
	return strcmp(op->name, "gemm") == 0 ? &gemm_list : driver_cpu.kernels(op);
}

/* Sets the reported times of kernels: tests of what jobs show must not depend on the machine's load. */
static void say_times(struct run *run)
{
	for (unsigned i = 0; i < run->n_ops; i++) {
		struct simulated_kernel kernels[RIVALS_MAX];
		struct run_op *op = &run->ops[i];
		unsigned n_kernels = read_rivals(op->args.op, kernels);

		for (unsigned r = 0; r < n_kernels; r++)
			if (op->kernel && strcmp(op->kernel->name, kernels[r].name) == 0) {
				run->compute_us += kernels[r].took_us - op->compute_us;
				op->compute_us = kernels[r].took_us;
			}
	}
}

static void spoil(const struct run *run)
{
	const struct run_op *op = &run->ops[0];
	const struct view *out = op_output_const(&op->args);

	if (op->kernel && strcmp(op->args.op->name, "gemm") == 0 && strcmp(op->kernel->name, "reference") == 0)
		memset(memory_at(out->space, out->offset), 0x3c, dtype_size(out->dtype));
}

static void release_held(struct device_state *dev)
{
	if (held)
		driver_cpu.start(dev, held);
	held = NULL;
}

static void hold_back(struct run *run)
{
	list_push_last(&crowd, &run->link);
}

static void say_together(unsigned n)
{
	char path[512];
	FILE *f = n > most_together ? fopen(path_of("together", path), "w") : NULL;

	if (!f)
		return;
	most_together = n;
	fprintf(f, "%u", n);
	fclose(f);
}

static void start_crowd(struct device_state *dev)
{
	struct run *run;
	unsigned n = 0;

	for (; (run = list_take(&crowd, struct run, link)); n++)
		driver_cpu.start(dev, run);
	say_together(n);
}

static struct run *poll(struct device_state *dev)
{
	if (!is_there("gather"))
		start_crowd(dev);
	return driver_cpu.poll(dev);
}

static void start(struct device_state *dev, struct run *run)
{
	if (run->repeats && run->n_ops == 1 && is_there("together")) {
		hold_back(run);
		return;
	}
	start_crowd(dev); /* the order within a queue */
	if (take("hang") && n_hung < HUNG_MAX) {
		hung[n_hung++] = run;
		return;
	}
	if (take("hold")) {
		held = run;
		return;
	}
	release_held(dev);
	driver_cpu.start(dev, run);
	say_times(run);
	if (is_there("wrong-kernel"))
		spoil(run);
	if (take("fault")) {
		run->status = KOPS_E_FAULT;
		snprintf(run->error, WHY_BYTES, "simulated: an illegal memory access");
	}
}

/* A device with notify() works by itself, and so can hang. Runs here end before anyone asks. */
static void notify(struct device_state *dev, void (*wake)(void *arg), void *arg)
{
	(void)dev;
	(void)wake;
	(void)arg;
}

/* Reports a higher temperature at each call, so a test sees when it was asked. */
static void sense(const struct device_state *dev, struct device_sensors *ret)
{
	static unsigned asked;

	(void)dev;
	while (is_there("hang-sensors"))
		usleep(1000);
	ret->temperature_c = 40 + __atomic_fetch_add(&asked, 1, __ATOMIC_RELAXED);
	ret->power_w = 123.5;
	ret->power_limit_w = 700;
	ret->memory_used_bytes = 3ull << 30;
	ret->memory_free_bytes = 5ull << 30;
	ret->has_utilization = true;
	ret->utilization = 0.25;
}

static int pin(void *host, uint64_t bytes, bool read_only)
{
	(void)read_only;
	if (is_there("no-pin"))
		return KOPS_E_NOMEM;
	return mlock(host, bytes) == 0 ? 0 : KOPS_E_NOMEM;
}

/* The caller unmaps next, which unlocks. */
static void unpin(void *host, uint64_t bytes)
{
	(void)host;
	(void)bytes;
}

const struct driver *kops_driver(void)
{
	static struct driver gpu;

	gpu = driver_cpu;
	gpu.kind = "gpu";
	gpu.count = count;
	gpu.open = open_gpu;
	gpu.open_beside = NULL; /* a GPU computes runs beside each other by itself */
	gpu.describe = describe;
	make_gemm_kernels();
	gpu.kernels = kernels;
	gpu.sense = sense;
	gpu.start = start;
	gpu.poll = poll;
	gpu.notify = notify;
	gpu.get_ready = get_ready;
	gpu.pin = pin;
	gpu.unpin = unpin;
	return &gpu;
}
