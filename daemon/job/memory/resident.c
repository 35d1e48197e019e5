/* resident.c: buffers of a device's memory: RESIDENT. The CPU's is memory of this process. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "core_dump.h"
#include "job/engine.h"
#include "job/memory/buffer.h"

/* Smaller buffers of the CPU device get no huge pages. */
#define HUGE_PAGES_BYTES (8ull << 20)

static void resident_gone(struct buffer *b)
{
	b->device->stats.resident_bytes -= b->memory.bytes;
	host_memory_settle(b->claimed_bytes);
	b->claimed_bytes = 0;
}

static void settle_making(struct buffer *b, int failure)
{
	if (failure)
		resident_gone(b);
	buffer_settle(b, failure);
}

static void cancel_task(struct buffer *b)
{
	workers_cancel(&b->task);
}

/* ---- Memory of this process ---- */

static uint64_t piece_of(const struct buffer *b, uint64_t most)
{
	uint64_t left = b->memory.bytes - b->at;

	return left < most ? left : most;
}

/* Makes an ordinary mapping, with huge pages where it is large. */
static int map_resident(struct buffer *b)
{
	int rc = host_memory_claim(b->memory.bytes, b->why, sizeof b->why);
	void *address;

	if (rc < 0)
		return rc;
	b->claimed_bytes = b->memory.bytes;
	address = mmap(NULL, b->memory.bytes, PROT_READ | PROT_WRITE,
	               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (address == MAP_FAILED) {
		snprintf(b->why, sizeof b->why, "cannot map %" PRIu64 " bytes: %s", b->memory.bytes,
		         strerror(errno));
		return KOPS_E_NOMEM;
	}
	if (b->memory.bytes >= HUGE_PAGES_BYTES)
		madvise(address, b->memory.bytes, MADV_HUGEPAGE);
	core_dump_exclude(address, b->memory.bytes);
	b->memory.device = address;
	return 0;
}

/* Touches the pages now, while a lack of memory can still be answered. Later it would kill some process. */
static bool populate_step(struct task *task)
{
	struct buffer *b = buffer_of_task(task);
	uint64_t bytes = piece_of(b, WORKERS_PIECE_BYTES);
	char *at;

	b->failure = b->memory.device ? 0 : map_resident(b);
	if (b->failure == 0) {
		at = (char *)b->memory.device + b->at;
		if (madvise(at, bytes, MADV_POPULATE_WRITE) < 0)
			memset(at, 0, bytes); /* Linux before 5.14 */
		host_memory_settle(bytes);
		b->claimed_bytes -= bytes;
		b->at += bytes;
	}
	return b->failure < 0 || b->at == b->memory.bytes;
}

static bool unmap_populated(struct task *task)
{
	struct buffer *b = buffer_of_task(task);

	return buffer_unmap_piece(b, b->memory.device, b->memory.bytes);
}

static void unpopulated(struct task *task)
{
	struct buffer *b = buffer_of_task(task);

	resident_gone(b);
	if (b->state == BUFFER_PENDING)
		buffer_settle(b, KOPS_E_CANCELLED);
	else
		buffer_gone(b);
}

static void unpopulate(struct buffer *b)
{
	buffer_unmap(b, unmap_populated, unpopulated);
}

static void populated(struct task *task)
{
	struct buffer *b = buffer_of_task(task);

	if (task->cancelled && b->memory.device) {
		unpopulate(b);
		return;
	}
	settle_making(b, task->cancelled ? KOPS_E_CANCELLED : b->failure);
}

static const struct buffer_kind mapped = {
    .account = ACCOUNT_RESIDENT, .cancel = cancel_task, .release = unpopulate};

/* ---- Memory of a device ---- */

static struct buffer *of_device_work(struct device_work *work)
{
	return container_of(work, struct buffer, device_work);
}

static void device_alloc(struct device_work *work, const struct driver *driver, struct device_state *dev)
{
	struct buffer *b = of_device_work(work);

	b->failure = driver->alloc(dev, b->memory.bytes, &b->memory.device);
}

static void device_allocated(struct device_work *work)
{
	struct buffer *b = of_device_work(work);

	if (b->failure == KOPS_E_FAULT)
		b->engine->device_failed(b->engine, b->device, "an allocation of memory failed");
	workers_begun_done(&b->task);
}

static void begin_device_alloc(struct task *task)
{
	struct buffer *b = buffer_of_task(task);

	b->device_work = (struct device_work){.execute = device_alloc, .done = device_allocated};
	device_submit(b->device, &b->device_work);
}

static void device_free(struct device_work *work, const struct driver *driver, struct device_state *dev)
{
	driver->free(dev, of_device_work(work)->memory.device);
}

static void device_freed(struct device_work *work)
{
	struct buffer *b = of_device_work(work);

	resident_gone(b);
	buffer_gone(b);
}

static void free_on_device(struct buffer *b)
{
	b->device_work = (struct device_work){.execute = device_free, .done = device_freed};
	device_submit(b->device, &b->device_work);
}

static void allocated(struct task *task)
{
	struct buffer *b = buffer_of_task(task);

	settle_making(b, task->cancelled ? KOPS_E_CANCELLED : b->failure);
}

static const struct buffer_kind on_device = {
    .account = ACCOUNT_RESIDENT, .cancel = cancel_task, .release = free_on_device};

/* ---- Both ---- */

int buffer_resident(struct engine *engine, struct account *account, struct device *device, uint64_t bytes,
                    struct buffer **ret_buffer, char why[WHY_BYTES])
{
	bool maps = !device->driver->alloc;
	struct buffer *b = buffer_new(maps ? &mapped : &on_device, engine, account, bytes);
	struct device_stats *stats = &device->stats;
	uint64_t total = device->info->memory_bytes;
	int rc;

	if (!b) {
		snprintf(why, WHY_BYTES, "kopsd is out of memory");
		return KOPS_E_NOMEM;
	}
	b->device = device;
	rc = buffer_charge(b, bytes, why);
	if (rc < 0)
		goto fail;
	if (bytes > device_room_bytes(device)) {
		snprintf(why, WHY_BYTES,
		         "%s has %" PRIu64 " bytes, of which RESIDENT buffers use %" PRIu64 "; %" PRIu64
		         " more do not fit",
		         device->name, total, stats->resident_bytes, bytes);
		rc = KOPS_E_NOMEM;
		goto fail;
	}
	stats->resident_bytes += bytes;
	b->memory.owner = device->dev; /* jobs that name it are placed before it is made */
	if (maps) {
		b->task.step = populate_step;
		b->task.done = populated;
		engine_take_memory(engine, bytes);
	} else {
		b->task.begin = begin_device_alloc;
		b->task.done = allocated;
	}
	b->refs++; /* the making holds one */
	*ret_buffer = b;
	workers_submit(engine->workers, &account->memory_flow, &b->task);
	return 0;
fail:
	buffer_delete(b);
	return rc;
}
