/*
 * cpu.c: the CPU as a device. start() computes at once, op after op, directly on the views; poll() returns the
 * finished runs in order. Each op's kernel uses the threads of kernels/common/threads.c and of OpenBLAS.
 */
#include "cpu/cpu.h"

#include <cblas.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "common/cpu.h"
#include "common/threads.h"
#include "core_dump.h"
#include "cpus.h"
#include "host_memory.h"

#define KEPT_WORKSPACE_BYTES (64ull << 20) /* larger ones are freed after the run */
#define CARRIED_BYTES_MAX    (1u << 20)    /* a run keeps them while it is paused */

/* Ops that one thread may compute beside a long run take no longer than about BESIDE_US there, and have at
 * least BESIDE_MIN_US, whatever the number of threads: small ones have no use for more than one. */
#define BESIDE_US     1000.0
#define BESIDE_MIN_US 60.0

/* For plans: the fixed cost of any op. */
#define OP_US 1.0

#define BLAS_BUFFER_BYTES (136ull << 20) /* a buffer of OpenBLAS: 128 MiB, and what is lost to alignment */

/* ThreadSanitizer cannot see how OpenBLAS, which is built without it, synchronizes its threads. */
#ifdef __SANITIZE_THREAD__
#define OPENBLAS_THREADS(n) 1u
#else
#define OPENBLAS_THREADS(n) (n)
#endif

struct device_state {
	struct device_info info;
	unsigned threads;
	bool is_beside;   /* another thread's: its ops use no thread of the pool, which the first state has */
	struct list done; /* runs waiting for poll() */
	void *workspace;  /* kept between runs, at most KEPT_WORKSPACE_BYTES; only grows */
	uint64_t workspace_bytes;
};

static const struct kernel_list *const lists[OP_COUNT] = {
#define X(name) &name##_cpu_kernels,
#include "ops.def"
#undef X
};

static unsigned cpu_count(char why[WHY_BYTES])
{
	(void)why;
	return 1;
}

/* ---- Opening ---- */

/* The text after "model name : ", or "CPU" if the system does not give one. */
static void read_model(char *name, size_t size)
{
	char line[256];
	FILE *file = fopen("/proc/cpuinfo", "re");

	snprintf(name, size, "CPU");
	while (file && fgets(line, sizeof line, file)) {
		char *value = strchr(line, ':');
		if (strncmp(line, "model name", 10) != 0 || !value)
			continue;
		value++;
		value += strspn(value, " \t");
		value[strcspn(value, "\n")] = 0;
		snprintf(name, size, "%s", value);
		break;
	}
	if (file)
		fclose(file);
}

static void fill_info(struct device_state *dev)
{
	char model[96];
	long cache_bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);

	read_model(model, sizeof model);
	snprintf(dev->info.description, sizeof dev->info.description, "%s, %u thread%s", model, dev->threads,
	         dev->threads == 1 ? "" : "s");
	dev->info.memory_bytes = host_memory_total();
	dev->info.cache_bytes = cache_bytes > 0 ? (uint64_t)cache_bytes : 0;
	dev->info.depth = 2;
	dev->info.depth_us = 500; /* so that the next run is there when a short one ends */
	dev->info.beside_us = fmax(BESIDE_US / dev->threads, BESIDE_MIN_US);
	dev->info.op_us = OP_US;
	dev->info.carried_max_bytes = CARRIED_BYTES_MAX;
	dev->info.kept_workspace_max_bytes = KEPT_WORKSPACE_BYTES;
}

/* Internal functions of OpenBLAS, in none of its headers: a buffer for one call, or for one thread. */
void *blas_memory_alloc(int position) __attribute__((weak));
void blas_memory_free(void *buffer) __attribute__((weak));

/*
 * OpenBLAS takes a buffer for each thread that it starts, and for each caller beyond the most it ever had. It
 * keeps them, and waits forever if there is no room. So all that it will need is taken here; the callers are
 * the device's thread and the loop. Threads that exist may not have taken theirs, so there must be room for
 * all.
 */
static int start_blas(unsigned threads, char why[WHY_BYTES])
{
	enum { CALLERS = 2 };
	unsigned there_are = (unsigned)openblas_get_num_threads();
	unsigned n = CALLERS + (threads > there_are ? threads : there_are);
	void *buffers[CALLERS];
	char room[WHY_BYTES / 2];

	if (host_memory_try_map(n * BLAS_BUFFER_BYTES, room, sizeof room) < 0) {
		snprintf(why, WHY_BYTES, "out of memory for the threads of OpenBLAS: %s, or lower cpu-threads",
		         room);
		return KOPS_E_NOMEM;
	}
	openblas_set_num_threads((int)threads);
	if (!blas_memory_alloc || !blas_memory_free)
		return 0; /* another one's, which may wait */
	for (unsigned i = 0; i < CALLERS; i++)
		buffers[i] = blas_memory_alloc(0);
	for (unsigned i = 0; i < CALLERS; i++)
		blas_memory_free(buffers[i]);
	return 0;
}

static int cpu_open(unsigned index, const struct driver_limits *limits, struct device_state **ret_dev,
                    char why[WHY_BYTES])
{
	if (index != 0) {
		snprintf(why, WHY_BYTES, "invalid CPU device number %u: there is only one, cpu", index);
		return KOPS_E_DEVICE;
	}
	struct device_state *dev = calloc(1, sizeof *dev);
	if (!dev) {
		snprintf(why, WHY_BYTES, "out of memory opening the CPU device");
		return KOPS_E_NOMEM;
	}
	dev->threads = limits->threads ? limits->threads : cpus_count();
	threads_set(dev->threads);
	if (start_blas(OPENBLAS_THREADS(dev->threads), why) < 0) {
		free(dev);
		return KOPS_E_NOMEM;
	}
	fill_info(dev);
	*ret_dev = dev;
	return 0;
}

static int cpu_open_beside(const struct device_state *dev, struct device_state **ret_beside,
                           char why[WHY_BYTES])
{
	struct device_state *beside = calloc(1, sizeof *beside);

	if (!beside) {
		snprintf(why, WHY_BYTES, "out of memory opening the CPU device");
		return KOPS_E_NOMEM;
	}
	beside->info = dev->info;
	beside->threads = 1;
	beside->is_beside = true;
	*ret_beside = beside;
	return 0;
}

static void cpu_close(struct device_state *dev)
{
	if (!dev)
		return;
	if (!dev->is_beside)
		threads_stop();
	if (dev->workspace)
		munmap(dev->workspace, dev->workspace_bytes);
	free(dev);
}

static void cpu_describe(const struct device_state *dev, struct device_info *ret)
{
	*ret = dev->info;
}

static const struct kernel_list *cpu_kernels(const struct op *op)
{
	static const struct kernel_list none = {NULL, 0};
	size_t i = op_index(op);

	return i < OP_COUNT ? lists[i] : &none;
}

/* ---- Running ---- */

static void *map_zeroed(uint64_t bytes)
{
	void *address =
	    mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (address == MAP_FAILED)
		return NULL;
	if (bytes >= 8ull << 20)
		madvise(address, bytes, MADV_HUGEPAGE);
	core_dump_exclude(address, bytes);
	return address;
}

/* Returns a workspace, or NULL if out of memory. The caller unmaps one that is not kept. */
static void *get_workspace(struct device_state *dev, uint64_t bytes, char why[WHY_BYTES])
{
	void *address;

	if (bytes <= dev->workspace_bytes)
		return dev->workspace;
	if (host_memory_claim(bytes, why, WHY_BYTES) < 0)
		return NULL;
	address = map_zeroed(bytes);
	if (!address || bytes <= KEPT_WORKSPACE_BYTES)
		host_memory_settle(bytes); /* a kept one is small and soon touched */
	if (!address || bytes > KEPT_WORKSPACE_BYTES)
		return address;
	if (dev->workspace)
		munmap(dev->workspace, dev->workspace_bytes);
	dev->workspace = address;
	dev->workspace_bytes = bytes;
	return address;
}

static void put_workspace(struct device_state *dev, void *address, uint64_t bytes)
{
	if (!address || address == dev->workspace)
		return;
	munmap(address, bytes);
	host_memory_settle(bytes);
}

static double now_us(void)
{
	return (double)clock_ns() / 1e3;
}

/* What each part of an op passes to the next; freed after the last part. */
struct carried {
	uint64_t bytes;
	_Alignas(64) char memory[];
};

static void free_carried(struct run *run)
{
	struct carried *carried = run->planned;

	host_memory_settle(carried->bytes);
	munmap(carried, carried->bytes);
}

static int make_carried(struct run *run, const struct run_op *op)
{
	uint64_t bytes = sizeof(struct carried) + op->cut.carried_bytes;
	struct carried *carried;
	int rc;

	run_forget_plan(run);
	rc = host_memory_claim(bytes, run->error, WHY_BYTES);
	if (rc < 0)
		return rc;
	carried = map_zeroed(bytes);
	if (!carried) {
		host_memory_settle(bytes);
		snprintf(run->error, WHY_BYTES, "out of memory: op %u keeps %llu bytes between its parts",
		         run->next_op, (unsigned long long)bytes);
		return KOPS_E_NOMEM;
	}
	carried->bytes = bytes;
	run->planned = carried;
	run->forget_plan = free_carried;
	return 0;
}

static int run_part(struct run *run, const struct launch *launch)
{
	const struct run_op *op = &run->ops[run->next_op];
	bool carries = op->cut.carried_bytes > 0;
	struct op_args args = op->args;
	int rc = carries && run->next_part == 0 ? make_carried(run, op) : 0;

	if (rc < 0 || op_is_empty(&args))
		return rc;
	for (unsigned i = 0; i < args.op->n_operands; i++)
		if (!view_is_absent(&args.views[i]))
			args.views[i].data = memory_at(args.views[i].space, args.views[i].offset);
	args.carried = carries ? ((struct carried *)run->planned)->memory : NULL;
	if (op->cut.n_parts <= 1)
		return op->kernel->launch(&args, launch);
	rc = kernel_launch_part(op->kernel, &args, &op->cut, run->next_part, launch, cpu_convert);
	if (carries && run->next_part + 1 == op->cut.n_parts)
		run_forget_plan(run);
	return rc;
}

static bool has_to_pause(const struct run *run)
{
	return run->pause_at_ns && __atomic_load_n(run->pause_at_ns, __ATOMIC_RELAXED) <= clock_ns();
}

/* Runs ops until the run has ended, has failed, or has to pause after a part. */
static int run_ops(struct run *run, const struct launch *launch)
{
	double start_us = now_us();
	int rc;

	do {
		struct run_op *op = &run->ops[run->next_op];
		double end_us;

		rc = run_part(run, launch);
		end_us = now_us();
		op->compute_us += end_us - start_us;
		run->compute_us += end_us - start_us;
		run->slice_us += end_us - start_us;
		start_us = end_us;
		if (rc < 0 && !run->error[0])
			snprintf(run->error, WHY_BYTES, "kernel %s of %s failed on the CPU", op->kernel->name,
			         op->args.op->name);
		run_advance(run);
	} while (rc == 0 && !run_is_through(run) && !has_to_pause(run));
	return rc;
}

static void cpu_start(struct device_state *dev, struct run *run)
{
	struct launch launch = {.workspace_bytes = run->device_bytes};
	bool was_alone = threads_set_alone(dev->is_beside);

	run->status = 0;
	run->error[0] = 0;
	run_begin(run);
	if (run->device_bytes)
		launch.workspace = get_workspace(dev, run->device_bytes, run->error);
	if (run->device_bytes && !launch.workspace) {
		if (!run->error[0])
			snprintf(run->error, WHY_BYTES, "out of memory: the job needs %.1f MiB of workspace",
			         (double)run->device_bytes / 0x1p20);
		run->status = KOPS_E_NOMEM;
	} else {
		run->status = run_ops(run, &launch);
	}
	put_workspace(dev, launch.workspace, run->device_bytes);
	threads_set_alone(was_alone);
	list_push_last(&dev->done, &run->link);
}

static struct run *cpu_poll(struct device_state *dev)
{
	return list_take(&dev->done, struct run, link);
}

/* The memory that may be claimed, within the limit for all programs that share it. */
static void cpu_sense(const struct device_state *dev, struct device_sensors *ret)
{
	uint64_t room = host_memory_room();

	if (room > dev->info.memory_bytes)
		return; /* unknown */
	ret->memory_free_bytes = room;
	ret->memory_used_bytes = dev->info.memory_bytes - room;
}

const struct driver driver_cpu = {
    .abi = DRIVER_ABI,
    .kind = "cpu",
    .count = cpu_count,
    .open = cpu_open,
    .open_beside = cpu_open_beside,
    .close = cpu_close,
    .describe = cpu_describe,
    .sense = cpu_sense,
    .kernels = cpu_kernels,
    .start = cpu_start,
    .poll = cpu_poll,
};
