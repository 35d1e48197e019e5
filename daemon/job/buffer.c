#include "job/buffer.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "core_dump.h"
#include "job/engine.h"
#include "log.h"
#include "share/closing.h"

/* Below this a pageable copy costs less than registering (0.1 ms even for one page, measured on an H200). */
#define PIN_WORTH_BYTES (256ull << 10)
/* Closing a file may free its pages: of more than this, in a thread that others' memory does not wait for. */
#define CLOSE_BYTES (1ull << 20)
/* Below this memory of the CPU device is not worth huge pages. */
#define HUGE_PAGES_BYTES (8ull << 20)
/* Between looks at what memory there is, which take up to half a millisecond. */
#define LOOK_AT_MEMORY_MS 1000u
/* So little of what was ample is so by what host_memory.h keeps free. */
#define AMPLE_ANYWAY 64

static struct buffer *buffer_new(struct engine *engine, struct account *account, uint64_t bytes)
{
	struct buffer *b = calloc(1, sizeof *b);

	if (!b)
		return NULL;
	b->engine = engine;
	b->account = account;
	b->refs = 1;
	b->fd = -1;
	b->memory.bytes = bytes;
	account_ref(account);
	account->buffers++;
	engine->n_buffers++;
	return b;
}

/* It counts no more. */
static void uncount(struct buffer *b)
{
	struct accounts *all = &b->engine->accounts;
	enum account_kind kind = b->device ? ACCOUNT_RESIDENT : ACCOUNT_MAPPED;

	account_refund(all, b->account, kind, b->charged_bytes);
	if (b->pin_charged)
		account_refund(all, b->account, ACCOUNT_PINNED, b->memory.bytes);
	b->account->buffers--;
	b->engine->n_buffers--;
}

static void buffer_free(struct buffer *b)
{
	struct engine *engine = b->engine;
	struct accounts *all = &engine->accounts;

	if (b->fd >= 0)
		closing_add(all, b->account, b->fd);
	if (b->gone)
		b->gone(b);
	account_unref(all, b->account);
	free(b);
	engine->progress(engine);
}

static void buffer_delete(struct buffer *b)
{
	uncount(b);
	buffer_free(b);
}

static int charge(struct buffer *b, enum account_kind kind, uint64_t bytes, char why[WHY_BYTES])
{
	int rc = account_charge(&b->engine->accounts, b->account, kind, bytes, why);

	if (rc == 0)
		b->charged_bytes = bytes;
	return rc;
}

/* Whether the account allows it. */
static bool charge_pin(struct buffer *b)
{
	return account_charge(&b->engine->accounts, b->account, ACCOUNT_PINNED, b->memory.bytes, NULL) == 0;
}

static void adopt_segment(struct buffer *b, struct segment *segment)
{
	b->segment = segment;
	b->pages.is_foreign = true; /* its holder may punch a page out, write it again, and so pay for it */
	b->memory.host = segment->map;
	b->memory.pin = segment->pinned ? MEMORY_PINNED : MEMORY_PAGEABLE;
	buffer_settle_pin(b);
}

/* Of the memory of a SHARED buffer; -1: there is none. */
static int fd_of(const struct buffer *b)
{
	return b->segment ? b->segment->fd : b->fd;
}

/* ---- How much memory there is ---- */

bool buffer_memory_is_ample(struct engine *engine)
{
	uint64_t now_ms = uv_now(engine->loop);
	uint64_t mapped = engine->accounts.bytes[ACCOUNT_MAPPED];
	bool was_ample = engine->memory_is_ample;

	if (mapped > engine->ample_bytes / AMPLE_ANYWAY &&
	    now_ms - engine->looked_at_memory_ms >= LOOK_AT_MEMORY_MS) {
		engine->looked_at_memory_ms = now_ms;
		engine->ample_bytes = host_memory_room() / 4;
	}
	engine->memory_is_ample = mapped <= engine->ample_bytes;
	if (was_ample && !engine->memory_is_ample)
		engine->memory_is_short(engine);
	return engine->memory_is_ample;
}

/* Memory is about to be taken: jobs that start before the next look have that much less. */
static void take_from_ample(struct engine *engine, uint64_t bytes)
{
	uint64_t less = bytes / 4;

	engine->ample_bytes -= less < engine->ample_bytes ? less : engine->ample_bytes;
	buffer_memory_is_ample(engine);
}

/* ---- Import ---- */

/* What the daemon needs to know of a memfd. */
struct file {
	struct stat st;
	uint64_t map_bytes;
	bool read_only;
	bool may_get_holes;
};

/*
 * Only a memfd that can never shrink is safe to map: a truncated file would kill us with SIGBUS. Huge
 * page memfds are refused for the same reason: after PUNCH_HOLE their next fault may find no page.
 */
static int inspect(int fd, uint64_t bytes, struct file *ret, char why[WHY_BYTES])
{
	const int needed = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
	const int unwritable = F_SEAL_WRITE | 0x0010 /* F_SEAL_FUTURE_WRITE */;
	int seals = fcntl(fd, F_GET_SEALS), flags = fcntl(fd, F_GETFL);
	struct statfs fs;
	uint64_t page;

	if (seals < 0 || flags < 0 || fstat(fd, &ret->st) < 0 || fstatfs(fd, &fs) < 0) {
		snprintf(why, WHY_BYTES, "the descriptor is not a memfd (%s); make one with memfd_create()",
		         strerror(errno));
		return KOPS_E_FD;
	}
	if ((seals & needed) != needed) {
		snprintf(why, WHY_BYTES,
		         "the memfd lacks%s%s%s; add the seals with fcntl(fd, F_ADD_SEALS, …) first",
		         seals & F_SEAL_SHRINK ? "" : " F_SEAL_SHRINK",
		         seals & F_SEAL_GROW ? "" : " F_SEAL_GROW", seals & F_SEAL_SEAL ? "" : " F_SEAL_SEAL");
		return KOPS_E_FD;
	}
	if (fs.f_type != TMPFS_MAGIC || !S_ISREG(ret->st.st_mode)) {
		snprintf(why, WHY_BYTES,
		         "the descriptor is not an ordinary memfd (huge pages are not accepted)");
		return KOPS_E_FD;
	}
	if (ret->st.st_size < 0 || bytes > (uint64_t)ret->st.st_size) {
		snprintf(why, WHY_BYTES,
		         "the memfd has %" PRId64 " bytes, fewer than the %" PRIu64 " announced",
		         (int64_t)ret->st.st_size, bytes);
		return KOPS_E_FD;
	}
	if ((flags & O_ACCMODE) == O_WRONLY) {
		snprintf(why, WHY_BYTES, "the descriptor is write-only");
		return KOPS_E_FD;
	}
	ret->read_only = (flags & O_ACCMODE) == O_RDONLY || (seals & unwritable);
	ret->may_get_holes = !(seals & unwritable);
	page = (uint64_t)sysconf(_SC_PAGESIZE);
	ret->map_bytes = (bytes + page - 1) / page * page;
	return 0;
}

/* Takes over fd. The pages that are missing have to fit in memory, since jobs will touch them. */
static int map_import(struct buffer *b, int fd, const struct file *file, char why[WHY_BYTES])
{
	uint64_t missing;
	int rc = charge(b, ACCOUNT_MAPPED, file->map_bytes, why);

	b->fd = fd;
	b->file_bytes = (uint64_t)file->st.st_size;
	if (rc < 0)
		return rc;
	missing = b->memory.missing_bytes = host_memory_missing(fd, file->map_bytes);
	b->pages.is_foreign = file->may_get_holes;
	if (missing && !buffer_memory_is_ample(b->engine))
		rc = host_memory_try(missing, why, WHY_BYTES); /* each job claims what it touches */
	if (rc == 0)
		rc = host_memory_may_map(file->map_bytes, why, WHY_BYTES);
	if (rc < 0)
		return rc;
	b->memory.host = mmap(NULL, file->map_bytes, b->memory.read_only ? PROT_READ : PROT_READ | PROT_WRITE,
	                      MAP_SHARED, fd, 0);
	if (b->memory.host == MAP_FAILED) {
		snprintf(why, WHY_BYTES, "cannot map the memfd: %s", strerror(errno));
		return errno == ENOMEM ? KOPS_E_NOMEM : KOPS_E_FD;
	}
	b->map_bytes = file->map_bytes;
	core_dump_exclude(b->memory.host, b->map_bytes);
	host_memory_add_file((int64_t)b->map_bytes);
	return 0;
}

/* Memory that we lent comes back to a new session of its user: it is lent again. */
static int adopt_kept(struct buffer *b, struct segment *segment, char why[WHY_BYTES])
{
	int rc = charge(b, ACCOUNT_MAPPED, segment->bytes, why);

	if (rc < 0) {
		pool_let_go(segment, b->account, NULL, NULL);
		return rc;
	}
	b->pin_charged = segment->pinned && charge_pin(b);
	adopt_segment(b, segment);
	return 0;
}

/* Takes over fd. */
static int map_kept_or_import(struct buffer *b, int fd, const struct file *file, char why[WHY_BYTES])
{
	struct segment *kept;
	int rc = pool_adopt(b->engine->pool, b->account, file->st.st_dev, file->st.st_ino, &kept);

	if (rc < 0) {
		b->fd = fd;
		snprintf(why, WHY_BYTES, "kopsd cannot map this memory again: %s", strerror(ENOMEM));
		return rc;
	}
	if (!kept)
		return map_import(b, fd, file, why);
	close(fd);
	return adopt_kept(b, kept, why);
}

bool buffer_is_kept(const struct engine *engine, const struct account *account, int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && pool_keeps(engine->pool, account, st.st_dev, st.st_ino);
}

int buffer_import(struct engine *engine, struct account *account, int fd, uint64_t bytes, bool read_only,
                  struct buffer **ret_buffer, char why[WHY_BYTES])
{
	struct buffer *b;
	struct file file;
	int rc = inspect(fd, bytes, &file, why);

	if (rc < 0) {
		closing_add(&engine->accounts, account, fd);
		return rc;
	}
	b = buffer_new(engine, account, bytes);
	if (!b) {
		snprintf(why, WHY_BYTES, "the daemon is out of memory");
		closing_add(&engine->accounts, account, fd);
		return KOPS_E_NOMEM;
	}
	b->memory.read_only = read_only || file.read_only;
	rc = map_kept_or_import(b, fd, &file, why);
	if (rc < 0) {
		buffer_delete(b);
		return rc;
	}
	b->state = BUFFER_READY;
	*ret_buffer = b;
	return 0;
}

/* ---- PENDING and its end ---- */

static void settle(struct buffer *b, int failure)
{
	b->failure = failure;
	b->state = failure ? BUFFER_FAILED : BUFFER_READY;
	if (b->settled)
		b->settled(b);
	if (!list_is_empty(&b->waiting))
		b->engine->buffer_settled(b);
	b->engine->progress(b->engine);
	buffer_unref(b); /* the reference of its making */
}

static void segment_ready(struct segment *segment, int status, void *arg)
{
	struct buffer *b = arg;

	if (status == 0) {
		adopt_segment(b, segment);
	} else {
		snprintf(b->why, sizeof b->why, "%s", segment->why);
		b->segment = NULL;
	}
	settle(b, status);
}

int buffer_lend(struct engine *engine, struct account *account, uint64_t bytes, struct buffer **ret_buffer,
                char why[WHY_BYTES])
{
	struct buffer *b = buffer_new(engine, account, bytes);
	bool ready;
	int rc;

	if (!b) {
		snprintf(why, WHY_BYTES, "the daemon is out of memory");
		return KOPS_E_NOMEM;
	}
	rc = charge(b, ACCOUNT_MAPPED, bytes > INT64_MAX ? bytes : pool_segment_bytes(bytes), why);
	if (rc < 0)
		goto fail;
	b->pin_charged = engine->pinning && charge_pin(b);
	b->segment = pool_lend(engine->pool, account->uid, &account->memory_flow, bytes, b->pin_charged,
	                       segment_ready, b, &ready);
	if (!b->segment) {
		snprintf(why, WHY_BYTES, "the daemon is out of memory");
		rc = KOPS_E_NOMEM;
		goto fail;
	}
	if (ready) {
		adopt_segment(b, b->segment);
		b->state = BUFFER_READY;
	} else {
		take_from_ample(engine, b->segment->bytes);
		b->refs++; /* its making's */
	}
	*ret_buffer = b;
	return 0;
fail:
	buffer_delete(b);
	return rc;
}

/* ---- Memory that goes ---- */

static struct buffer *of_task(struct task *task)
{
	return container_of(task, struct buffer, task);
}

static struct buffer *of_errand(struct errand *errand)
{
	return container_of(errand, struct buffer, errand);
}

static bool free_step(struct errand *errand)
{
	buffer_free(of_errand(errand));
	return false;
}

/* Its memory is given back. To tell who waits for that takes a turn, and there may be thousands. */
static void buffer_gone(struct buffer *b)
{
	uncount(b);
	errands_add(&b->account->errands, &b->errand, free_step);
}

static void unpin(struct buffer *b)
{
	if (__atomic_load_n(&b->memory.pin, __ATOMIC_ACQUIRE) == MEMORY_PINNED)
		b->engine->pinning->unpin(b->memory.host);
}

/* What is of this process: of an imported buffer, or of a RESIDENT one of the CPU. */
static bool unmap_step(struct task *task)
{
	struct buffer *b = of_task(task);
	uint64_t all = b->device ? b->memory.bytes : b->map_bytes, left = all - b->at;
	uint64_t bytes = left < WORKERS_UNMAKE_BYTES ? left : WORKERS_UNMAKE_BYTES;

	if (b->at == 0 && !b->device)
		unpin(b);
	munmap((char *)(b->device ? b->memory.device : b->memory.host) + b->at, bytes);
	b->at += bytes;
	if (b->at < all)
		return false;
	if (b->fd >= 0 && b->file_bytes <= CLOSE_BYTES) {
		close(b->fd);
		b->fd = -1;
	}
	return true;
}

static void unmap(struct buffer *b, void (*done)(struct task *task))
{
	b->at = 0;
	b->task.begin = NULL;
	b->task.step = unmap_step;
	b->task.done = done;
	workers_submit(b->engine->workers, &b->account->memory_flow, &b->task);
}

/* ---- RESIDENT ---- */

static struct buffer *of_device_work(struct device_work *work)
{
	return container_of(work, struct buffer, device_work);
}

static uint64_t piece_of(const struct buffer *b, uint64_t most)
{
	uint64_t left = b->memory.bytes - b->at;

	return left < most ? left : most;
}

/* Of a device without memory of its own: an ordinary mapping, with huge pages where it is large. */
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

/* Touched now, where want of memory is an answer; later it would be the end of some process. */
static bool populate_step(struct task *task)
{
	struct buffer *b = of_task(task);
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

static void resident_gone(struct buffer *b)
{
	b->device->stats.resident_bytes -= b->memory.bytes;
	host_memory_settle(b->claimed_bytes);
	b->claimed_bytes = 0;
}

static void unpopulated(struct task *task)
{
	struct buffer *b = of_task(task);

	resident_gone(b);
	if (b->state == BUFFER_PENDING)
		settle(b, KOPS_E_CANCELLED);
	else
		buffer_gone(b);
}

static void unpopulate(struct buffer *b)
{
	unmap(b, unpopulated);
}

static void populated(struct task *task)
{
	struct buffer *b = of_task(task);

	if (task->cancelled && b->memory.device) {
		unpopulate(b);
		return;
	}
	b->failure = task->cancelled ? KOPS_E_CANCELLED : b->failure;
	if (b->failure)
		resident_gone(b);
	settle(b, b->failure);
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
		b->engine->device_failed(b->engine, b->device, "it broke while memory was allocated");
	workers_begun_done(&b->task);
}

static void begin_device_alloc(struct task *task)
{
	struct buffer *b = of_task(task);

	b->device_work = (struct device_work){.execute = device_alloc, .done = device_allocated};
	device_submit(b->device, &b->device_work);
}

int buffer_resident(struct engine *engine, struct account *account, struct device *device, uint64_t bytes,
                    struct buffer **ret_buffer, char why[WHY_BYTES])
{
	struct buffer *b = buffer_new(engine, account, bytes);
	struct device_stats *stats = &device->stats;
	uint64_t total = device->info->memory_bytes;
	int rc;

	if (!b) {
		snprintf(why, WHY_BYTES, "the daemon is out of memory");
		return KOPS_E_NOMEM;
	}
	b->device = device;
	rc = charge(b, ACCOUNT_RESIDENT, bytes, why);
	if (rc < 0)
		goto fail;
	if (bytes > device_room_bytes(device)) {
		snprintf(why, WHY_BYTES,
		         "%s has %" PRIu64 " bytes, %" PRIu64 " of them taken by resident buffers; %" PRIu64
		         " more do not fit",
		         device->name, total, stats->resident_bytes, bytes);
		rc = KOPS_E_NOMEM;
		goto fail;
	}
	stats->resident_bytes += bytes;
	b->memory.owner = device->dev; /* jobs that name it are placed before it is made */
	b->task.done = populated;
	if (device->driver->alloc) {
		b->task.begin = begin_device_alloc;
	} else {
		b->task.step = populate_step;
		take_from_ample(engine, bytes);
	}
	b->refs++; /* its making's */
	*ret_buffer = b;
	workers_submit(engine->workers, &account->memory_flow, &b->task);
	return 0;
fail:
	buffer_delete(b);
	return rc;
}

/* ---- Pages of jobs ---- */

void buffer_hold(struct buffer *b)
{
	b->refs++;
	if (b->memory.missing_bytes)
		b->memory.missing_bytes = host_memory_missing(fd_of(b), b->memory.bytes);
}

static uint64_t set_reached(struct buffer *b, uint64_t bytes)
{
	uint64_t whole = (b->memory.bytes + HOST_PAGE_BYTES - 1) / HOST_PAGE_BYTES * HOST_PAGE_BYTES;

	b->reached_by_jobs = bytes;
	b->pages.fd = fd_of(b);
	return b->pages.fd < 0 ? 0 : host_memory_claim_pages(&b->pages, bytes < whole ? bytes : whole);
}

uint64_t buffer_claim_pages(struct buffer *b, uint64_t bytes)
{
	return set_reached(b, b->reached_by_jobs + bytes);
}

void buffer_settle_pages(struct buffer *b, uint64_t bytes)
{
	set_reached(b, b->reached_by_jobs - bytes);
}

/* ---- The end ---- */

static void unmapped(struct task *task)
{
	struct buffer *b = of_task(task);

	host_memory_add_file(-(int64_t)b->map_bytes);
	buffer_gone(b);
}

static void segment_released(void *arg)
{
	buffer_gone(arg);
}

/*
 * A session may end while its client lives: a stop of ours is one case. Such a client imports what it was lent
 * in its next session and expects its content there, so only what was given back is zeroed and lent again. What
 * it keeps counts as its user's for as long as anybody has it.
 */
static void release_segment(struct buffer *b)
{
	b->segment->pinned = b->memory.pin == MEMORY_PINNED; /* a job may have done it */
	if (b->is_dropped)
		pool_take_back(b->segment, &b->account->memory_flow, segment_released, b);
	else
		pool_let_go(b->segment, b->account, segment_released, b);
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

static void release_resident(struct buffer *b)
{
	if (!b->device->driver->alloc) {
		unpopulate(b);
		return;
	}
	b->device_work = (struct device_work){.execute = device_free, .done = device_freed};
	device_submit(b->device, &b->device_work);
}

static void release(struct buffer *b)
{
	if (b->state == BUFFER_FAILED) {
		buffer_gone(b);
		return;
	}
	b->state = BUFFER_RELEASING;
	if (b->device)
		release_resident(b);
	else if (b->segment)
		release_segment(b);
	else
		unmap(b, unmapped);
}

/* Nobody will use what is being made, and nobody waits for an answer. */
static void cancel_if_unwanted(struct buffer *b)
{
	if (b->state != BUFFER_PENDING || b->refs > 1 || b->settled)
		return;
	if (b->segment)
		pool_cancel(b->segment);
	else
		workers_cancel(&b->task);
}

void buffer_unref(struct buffer *b)
{
	if (--b->refs == 0)
		release(b);
	else
		cancel_if_unwanted(b);
}

void buffer_forget_session(struct buffer *b)
{
	b->settled = NULL;
	b->session = NULL;
	cancel_if_unwanted(b);
}

/* ---- Pinning ---- */

bool buffer_wants_pin(struct buffer *b)
{
	if (b->device || !b->engine->pinning || b->pin_charged || b->memory.bytes < PIN_WORTH_BYTES ||
	    __atomic_load_n(&b->memory.pin, __ATOMIC_ACQUIRE) != MEMORY_PAGEABLE)
		return false;
	b->pin_charged = charge_pin(b);
	return b->pin_charged;
}

void buffer_pin(struct buffer *b, const struct driver *driver)
{
	int expected = MEMORY_PAGEABLE;
	int rc;

	if (!driver->pin || !__atomic_compare_exchange_n(&b->memory.pin, &expected, MEMORY_PINNING, false,
	                                                 __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		return;
	rc = driver->pin(b->memory.host, b->memory.bytes, b->memory.read_only);
	__atomic_store_n(&b->memory.pin, rc == 0 ? MEMORY_PINNED : MEMORY_PAGEABLE, __ATOMIC_RELEASE);
}

void buffer_settle_pin(struct buffer *b)
{
	if (!b->pin_charged || __atomic_load_n(&b->memory.pin, __ATOMIC_ACQUIRE) != MEMORY_PAGEABLE)
		return;
	account_refund(&b->engine->accounts, b->account, ACCOUNT_PINNED, b->memory.bytes);
	b->pin_charged = false;
}
