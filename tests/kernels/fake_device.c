/*
 * fake_device: a driver of a simulated device with its own memory, which is this process's; its kernels are the
 * CPU's. So any machine shows what a plan forgets to upload, download or keep consistent. Its memory is full of
 * NaN before a run, and kernels get addresses of host memory only if the plan decides so.
 *
 *     check_kernels --module fake_device.so
 *
 * Beside a kopsd, as kops-cuda.so, it is that one's gpu0 (tests/own_memory). With these in the environment
 * there are several (tests/several_gpus):
 *
 *     FAKE_DEVICES  how many; they work by themselves as GPUs do, and exchange operands
 *     FAKE_LATE_US  each run begins up to so much later than it is started
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cpu.h"
#include "cpu/cpu.h"
#include "host_mover.h"
#include "plan/mover.h"

const struct driver *kops_driver(void);

#define ALIGNMENT    256
#define MEMORY_BYTES (4ull << 30)

struct device_state {
	struct list done;
	uint64_t memory_bytes;
	unsigned random;
};

static unsigned number_in(const char *variable, unsigned otherwise)
{
	const char *text = getenv(variable);

	return text ? (unsigned)strtoul(text, NULL, 10) : otherwise;
}

static unsigned fake_count(char why[WHY_BYTES])
{
	(void)why;
	return number_in("FAKE_DEVICES", 1);
}

static int fake_open(unsigned index, const struct driver_limits *limits, struct device_state **ret_dev,
                     char why[WHY_BYTES])
{
	*ret_dev = calloc(1, sizeof **ret_dev);
	if (!*ret_dev) {
		snprintf(why, WHY_BYTES, "out of memory");
		return KOPS_E_NOMEM;
	}
	(*ret_dev)->random = index;
	(*ret_dev)->memory_bytes = limits->memory_bytes > 0 ? limits->memory_bytes : MEMORY_BYTES;
	return 0;
}

static void fake_close(struct device_state *dev)
{
	free(dev);
}

/* Reports rates and limits so low that small problems are cut, staged, and used in place. */
static void fake_describe(const struct device_state *dev, struct device_info *ret)
{
	*ret = (struct device_info){
	    .description = "fake device",
	    .memory_bytes = dev->memory_bytes,
	    .depth = 2,
	    .depth_us = 500,
	    .run_us = 15,
	    .op_us = 3,
	    .carried_max_bytes = 1u << 20,
	    .kept_workspace_max_bytes = UINT64_MAX,
	    .link_rate = 200,
	    .pageable_rate = 100,
	    .gather_us = 1e-3,
	    .direct = {.streaming_max_bytes = 1u << 10, .reusing_max_bytes = 256},
	    .stream_min_bytes = 1u << 10,
	};
}

/* ---- Running ---- */

static char *new_scratch(uint64_t bytes)
{
	uint64_t whole = (bytes / ALIGNMENT + 1) * ALIGNMENT;
	char *scratch = aligned_alloc(ALIGNMENT, whole);

	if (scratch)
		memset(scratch, 0xff, whole); /* NaN */
	return scratch;
}

static int begin(const struct device_info *info, struct run *run)
{
	static struct stage_marks marks; /* nobody looks at them */
	struct stage *stage = run->planned;
	int rc;

	stage_begin(stage, &info->direct);
	stage->mover = &host_mover;
	stage->marks = &marks;
	stage->scratch = new_scratch(stage_scratch_bytes(stage));
	run->state = stage->scratch;
	if (!stage->scratch)
		return KOPS_E_NOMEM;
	rc = stage_begin_slice(stage);
	return rc < 0 ? rc : stage_upload_all(stage);
}

static int run_part(struct run *run)
{
	const struct run_op *op = &run->ops[run->next_op];
	struct stage *stage = run->planned;
	struct launch launch = {.workspace = stage->scratch + stage->copies_bytes,
	                        .workspace_bytes = stage->workspace_bytes};
	struct op_args args;
	int rc = op_is_empty(&op->args) ? 0 : stage_begin_part(stage, run->next_op, run->next_part, &args);

	if (rc < 0 || op_is_empty(&op->args))
		return rc;
	args.carried = (char *)launch.workspace + launch.workspace_bytes;
	rc = op->cut.n_parts <= 1
	         ? op->kernel->launch(&args, &launch)
	         : kernel_launch_part(op->kernel, &args, &op->cut, run->next_part, &launch, cpu_convert);
	return rc < 0 ? rc : stage_end_part(stage, run->next_op, run->next_part);
}

static int run_slice(struct device_state *dev, struct run *run)
{
	struct device_info info;
	double us = 0;
	int rc = 0;

	fake_describe(dev, &info);
	if (!run->state)
		rc = begin(&info, run);
	while (rc == 0 && !run_is_through(run) && us < PART_US) {
		us += run_part_us(&run->ops[run->next_op]);
		rc = run_part(run);
		run_advance(run);
	}
	if (rc == 0 && run_is_through(run))
		rc = stage_download_all(run->planned);
	if (run->state && (rc < 0 || run_is_through(run)))
		stage_end_slice(run->planned, true);
	return rc;
}

static void fake_abandon(struct device_state *dev, struct run *run)
{
	(void)dev;
	free(run->state);
	run->state = NULL;
}

static void fake_start(struct device_state *dev, struct run *run)
{
	unsigned late_us = number_in("FAKE_LATE_US", 0);

	if (late_us > 0)
		usleep((unsigned)rand_r(&dev->random) % late_us);
	run->error[0] = '\0';
	run_begin(run);
	run->status = run_slice(dev, run);
	if (run->status < 0 && !run->error[0])
		snprintf(run->error, WHY_BYTES, "the fake device failed: %d", run->status);
	if (run->status < 0 || run_is_through(run))
		fake_abandon(dev, run);
	list_push_last(&dev->done, &run->link);
}

static struct run *fake_poll(struct device_state *dev)
{
	return list_take(&dev->done, struct run, link);
}

/* A device with notify() works by itself. Runs here end before anyone asks. */
static void fake_notify(struct device_state *dev, void (*wake)(void *arg), void *arg)
{
	(void)dev;
	(void)wake;
	(void)arg;
}

/* ---- Memory ---- */

static double fake_peer_rate(const struct device_state *dev, const struct device_state *from)
{
	(void)dev;
	(void)from;
	return 2000;
}

static int fake_alloc(struct device_state *dev, uint64_t bytes, void **ret_address)
{
	(void)dev;
	*ret_address = calloc(1, bytes);
	return *ret_address ? 0 : KOPS_E_NOMEM;
}

static void fake_free(struct device_state *dev, void *address)
{
	(void)dev;
	free(address);
}

static int fake_pin(void *host, uint64_t bytes, bool read_only)
{
	(void)host;
	(void)bytes;
	(void)read_only;
	return 0;
}

static void fake_unpin(void *host, uint64_t bytes)
{
	(void)host;
	(void)bytes;
}

const struct driver *kops_driver(void)
{
	static struct driver fake;

	fake = (struct driver){
	    .abi = DRIVER_ABI,
	    .kind = "fake",
	    .count = fake_count,
	    .open = fake_open,
	    .close = fake_close,
	    .describe = fake_describe,
	    .kernels = driver_cpu.kernels,
	    .start = fake_start,
	    .poll = fake_poll,
	    .abandon = fake_abandon,
	    .alloc = fake_alloc,
	    .free = fake_free,
	    .pin = fake_pin,
	    .unpin = fake_unpin,
	};

	if (fake_count(NULL) > 1) {
		fake.notify = fake_notify;
		fake.peer_rate = fake_peer_rate;
	}
	return &fake;
}
