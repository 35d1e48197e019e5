#include "buffer.h"

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

#include "job.h"
#include "log.h"
#include "request.h"
#include "server.h"

/* Below this a pageable copy costs less than registering (0.1 ms even for one page, measured on an H200). */
#define PIN_WORTH_BYTES (256ull << 10)
/* Unmapping more than this leaves the loop thread. */
#define UNMAP_INLINE_BYTES (1ull << 20)

static struct buffer *buffer_new(struct server *server, struct account *account, uint64_t bytes)
{
	struct buffer *b = calloc(1, sizeof *b);

	if (!b)
		return NULL;
	b->server = server;
	b->account = account;
	b->refs = 1;
	b->memory.bytes = bytes;
	account_ref(account);
	account->buffers++;
	server->n_buffers++;
	return b;
}

static void buffer_delete(struct buffer *b)
{
	struct accounts *all = &b->server->accounts;
	enum account_kind kind = b->device ? ACCOUNT_RESIDENT : ACCOUNT_MAPPED;

	account_refund(all, b->account, kind, b->charged_bytes);
	if (b->pin_charged)
		account_refund(all, b->account, ACCOUNT_PINNED, b->memory.bytes);
	b->account->buffers--;
	account_unref(all, b->account);
	b->server->n_buffers--;
	free(b);
}

static int charge(struct buffer *b, enum account_kind kind, uint64_t bytes, char why[WHY_BYTES])
{
	int rc = account_charge(&b->server->accounts, b->account, kind, bytes, why);

	if (rc == 0)
		b->charged_bytes = bytes;
	return rc;
}

/* Whether the account allows it. */
static bool charge_pin(struct buffer *b)
{
	return account_charge(&b->server->accounts, b->account, ACCOUNT_PINNED, b->memory.bytes, NULL) == 0;
}

/* ---- Import ---- */

/*
 * Only a memfd that can never shrink is safe to map: a truncated file would kill us with SIGBUS. Huge
 * page memfds are refused for the same reason: after PUNCH_HOLE their next fault may find no page.
 */
static int inspect(int fd, uint64_t bytes, bool *read_only, uint64_t *ret_map_bytes, char why[WHY_BYTES])
{
	const int needed = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
	int seals = fcntl(fd, F_GET_SEALS), flags = fcntl(fd, F_GETFL);
	struct stat st;
	struct statfs fs;
	uint64_t page;

	if (seals < 0 || flags < 0 || fstat(fd, &st) < 0 || fstatfs(fd, &fs) < 0) {
		snprintf(why, WHY_BYTES, "the descriptor is no memfd (%s); make one with memfd_create()",
		         strerror(errno));
		return KOPS_E_FD;
	}
	if ((seals & needed) != needed) {
		snprintf(why, WHY_BYTES,
		         "the memfd lacks %s%s%s; add the seals with fcntl(fd, F_ADD_SEALS, …) first",
		         seals & F_SEAL_SHRINK ? "" : "F_SEAL_SHRINK ",
		         seals & F_SEAL_GROW ? "" : "F_SEAL_GROW ", seals & F_SEAL_SEAL ? "" : "F_SEAL_SEAL");
		return KOPS_E_FD;
	}
	if (fs.f_type != TMPFS_MAGIC || !S_ISREG(st.st_mode)) {
		snprintf(why, WHY_BYTES, "the descriptor is no ordinary memfd (huge pages are not accepted)");
		return KOPS_E_FD;
	}
	if (st.st_size < 0 || bytes > (uint64_t)st.st_size) {
		snprintf(why, WHY_BYTES,
		         "the memfd has %" PRId64 " bytes, fewer than the %" PRIu64 " announced",
		         (int64_t)st.st_size, bytes);
		return KOPS_E_FD;
	}
	if ((flags & O_ACCMODE) == O_WRONLY) {
		snprintf(why, WHY_BYTES, "the descriptor is write-only");
		return KOPS_E_FD;
	}
	*read_only = *read_only || (flags & O_ACCMODE) == O_RDONLY ||
	             (seals & (F_SEAL_WRITE | 0x0010 /* F_SEAL_FUTURE_WRITE */));
	page = (uint64_t)sysconf(_SC_PAGESIZE);
	*ret_map_bytes = (bytes + page - 1) / page * page;
	return 0;
}

int buffer_import(struct server *server, struct account *account, int fd, uint64_t bytes, bool read_only,
                  struct buffer **ret_buffer, char why[WHY_BYTES])
{
	struct buffer *b = NULL;
	uint64_t map_bytes;
	int rc = inspect(fd, bytes, &read_only, &map_bytes, why);

	if (rc < 0)
		goto out;
	b = buffer_new(server, account, bytes);
	if (!b) {
		snprintf(why, WHY_BYTES, "the daemon is out of memory");
		rc = KOPS_E_NOMEM;
		goto out;
	}
	rc = charge(b, ACCOUNT_MAPPED, map_bytes, why);
	if (rc < 0)
		goto out;
	b->memory.host =
	    mmap(NULL, map_bytes, read_only ? PROT_READ : PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (b->memory.host == MAP_FAILED) {
		snprintf(why, WHY_BYTES, "cannot map the memfd: %s", strerror(errno));
		rc = errno == ENOMEM ? KOPS_E_NOMEM : KOPS_E_FD;
		goto out;
	}
	b->map_bytes = map_bytes;
	b->memory.read_only = read_only;
	b->state = BUFFER_READY;
	*ret_buffer = b;
	b = NULL;
	rc = 0;
out:
	if (b)
		buffer_delete(b);
	close(fd);
	return rc;
}

/* ---- PENDING and its end ---- */

static void settle(struct buffer *b, int failure)
{
	b->failure = failure;
	b->state = failure ? BUFFER_FAILED : BUFFER_READY;
	if (b->session)
		request_buffer_settled(b);
	jobs_buffer_settled(b);
	server_progress(b->server);
	buffer_unref(b); /* the reference of its making */
}

static void adopt_segment(struct buffer *b, struct segment *segment)
{
	b->segment = segment;
	b->memory.host = segment->map;
	b->memory.pin = segment->pinned ? MEMORY_PINNED : MEMORY_PAGEABLE;
	buffer_settle_pin(b);
}

static void segment_ready(struct segment *segment, int status, void *arg)
{
	struct buffer *b = arg;

	if (status == 0)
		adopt_segment(b, segment);
	settle(b, status);
}

int buffer_lend(struct server *server, struct account *account, uint64_t bytes, struct buffer **ret_buffer,
                char why[WHY_BYTES])
{
	struct buffer *b = buffer_new(server, account, bytes);
	struct segment *segment;
	int rc;

	if (!b) {
		snprintf(why, WHY_BYTES, "the daemon is out of memory");
		return KOPS_E_NOMEM;
	}
	rc = charge(b, ACCOUNT_MAPPED, bytes > INT64_MAX ? bytes : pool_segment_bytes(bytes), why);
	if (rc < 0)
		goto fail;
	b->pin_charged = server->gpu && charge_pin(b);
	segment = pool_lend(server->pool, account->uid, bytes, b->pin_charged, segment_ready, b, &rc);
	if (segment) {
		adopt_segment(b, segment);
		b->state = BUFFER_READY;
	} else if (rc < 0) {
		snprintf(why, WHY_BYTES, "the daemon is out of memory");
		goto fail;
	} else {
		buffer_ref(b);
	}
	*ret_buffer = b;
	return 0;
fail:
	buffer_delete(b);
	return rc;
}

static struct buffer *of_device_work(struct device_work *work)
{
	return (struct buffer *)((char *)work - offsetof(struct buffer, device_work));
}

static void resident_alloc(struct device_work *work, const struct backend *backend, struct backend_device *dev)
{
	struct buffer *b = of_device_work(work);

	b->failure = backend->alloc(dev, b->memory.bytes, &b->memory.device);
}

static void resident_allocated(struct device_work *work)
{
	struct buffer *b = of_device_work(work);

	if (b->failure == KOPS_E_FAULT)
		server_device_failed(b->server, b->device, "it broke while memory was allocated");
	if (b->failure)
		device_stats(b->device)->resident_bytes -= b->memory.bytes;
	settle(b, b->failure);
}

int buffer_resident(struct server *server, struct account *account, struct device *device, uint64_t bytes,
                    struct buffer **ret_buffer, char why[WHY_BYTES])
{
	struct buffer *b = buffer_new(server, account, bytes);
	struct device_stats *stats = device_stats(device);
	uint64_t total = device_info(device)->memory_bytes;
	int rc;

	if (!b) {
		snprintf(why, WHY_BYTES, "the daemon is out of memory");
		return KOPS_E_NOMEM;
	}
	rc = charge(b, ACCOUNT_RESIDENT, bytes, why);
	b->device = device;
	if (rc < 0)
		goto fail;
	if (bytes > device_room_bytes(device)) {
		snprintf(why, WHY_BYTES,
		         "%s has %" PRIu64 " bytes, %" PRIu64 " of them taken by resident buffers; %" PRIu64
		         " more do not fit",
		         device_name(device), total, stats->resident_bytes, bytes);
		rc = KOPS_E_NOMEM;
		goto fail;
	}
	stats->resident_bytes += bytes;
	b->memory.owner = device_owner(device); /* jobs that name it are placed before it is made */
	b->device_work = (struct device_work){.execute = resident_alloc, .done = resident_allocated};
	buffer_ref(b);
	device_submit(device, &b->device_work);
	*ret_buffer = b;
	return 0;
fail:
	buffer_delete(b);
	return rc;
}

/* ---- The end ---- */

static void unmap(struct buffer *b)
{
	if (__atomic_load_n(&b->memory.pin, __ATOMIC_ACQUIRE) == MEMORY_PINNED)
		b->server->gpu->unpin(b->memory.host);
	munmap(b->memory.host, b->map_bytes);
}

static void unmap_work(uv_work_t *work)
{
	unmap(work->data);
}

static void unmapped(uv_work_t *work, int status)
{
	struct buffer *b = work->data;
	struct server *server = b->server;

	(void)status;
	buffer_delete(b);
	server->workers_busy--;
	server_progress(server);
}

static void release_mapping(struct buffer *b)
{
	if (b->memory.pin == MEMORY_PAGEABLE && b->map_bytes <= UNMAP_INLINE_BYTES) {
		unmap(b);
		buffer_delete(b);
		return;
	}
	b->work.data = b;
	b->server->workers_busy++;
	uv_queue_work(&b->server->loop, &b->work, unmap_work, unmapped);
}

/*
 * A session may end while its client lives: a stop of ours is one case. Such a client imports what it was lent
 * in its next session and expects its content there, so only what was given back is zeroed and lent again.
 */
static void release_segment(struct buffer *b)
{
	b->segment->pinned = b->memory.pin == MEMORY_PINNED; /* a job may have done it */
	if (b->given_back)
		pool_take_back(b->segment);
	else
		pool_let_go(b->segment);
	buffer_delete(b);
}

static void resident_free(struct device_work *work, const struct backend *backend, struct backend_device *dev)
{
	backend->free(dev, of_device_work(work)->memory.device);
}

static void resident_freed(struct device_work *work)
{
	struct buffer *b = of_device_work(work);
	struct server *server = b->server;

	device_stats(b->device)->resident_bytes -= b->memory.bytes;
	buffer_delete(b);
	server_progress(server);
}

void buffer_ref(struct buffer *b)
{
	b->refs++;
}

void buffer_unref(struct buffer *b)
{
	if (--b->refs)
		return;
	if (b->state == BUFFER_FAILED) {
		buffer_delete(b);
		return;
	}
	b->state = BUFFER_RELEASING;
	if (b->device) {
		b->device_work = (struct device_work){.execute = resident_free, .done = resident_freed};
		device_submit(b->device, &b->device_work);
	} else if (b->segment) {
		release_segment(b);
	} else {
		release_mapping(b);
	}
}

/* ---- Pinning ---- */

bool buffer_wants_pin(struct buffer *b)
{
	if (b->device || !b->server->gpu || b->pin_charged || b->memory.bytes < PIN_WORTH_BYTES ||
	    __atomic_load_n(&b->memory.pin, __ATOMIC_ACQUIRE) != MEMORY_PAGEABLE)
		return false;
	b->pin_charged = charge_pin(b);
	return b->pin_charged;
}

void buffer_pin(struct buffer *b, const struct backend *backend)
{
	int expected = MEMORY_PAGEABLE;
	int rc;

	if (!backend->pin || !__atomic_compare_exchange_n(&b->memory.pin, &expected, MEMORY_PINNING, false,
	                                                  __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		return;
	rc = backend->pin(b->memory.host, b->memory.bytes, b->memory.read_only);
	__atomic_store_n(&b->memory.pin, rc == 0 ? MEMORY_PINNED : MEMORY_PAGEABLE, __ATOMIC_RELEASE);
}

void buffer_settle_pin(struct buffer *b)
{
	if (!b->pin_charged || __atomic_load_n(&b->memory.pin, __ATOMIC_ACQUIRE) != MEMORY_PAGEABLE)
		return;
	account_refund(&b->server->accounts, b->account, ACCOUNT_PINNED, b->memory.bytes);
	b->pin_charged = false;
}
