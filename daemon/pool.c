#include "pool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "host_memory.h"
#include "log.h"

#define CLASS_MIN_BYTES (64ull << 10)
#define CLASS_MAX_BYTES                                                                                        \
	(64ull << 20) /* above: sizes are rounded up to this granule instead of a power of two */
#define BIG_GRANULE_BYTES (2ull << 20)
/* What the kernel calls uids that our user namespace does not know: several users, perhaps. */
#define OVERFLOW_UID   65534
#define WARM_PER_CLASS 4
#define CLASSES        11 /* 64 KiB … 64 MiB */

struct pool {
	uv_loop_t *loop;
	const struct backend *gpu;
	uint64_t cache_limit_bytes, cached_bytes, total_bytes;
	unsigned busy;
	unsigned warm_classes;        /* classes [0, warm_classes) are kept stocked */
	unsigned warm_stock[CLASSES]; /* fresh or being made */
	struct segment *fresh[CLASSES];
	struct segment *cached; /* most recently given back first */
};

static uint64_t class_bytes(unsigned c)
{
	return CLASS_MIN_BYTES << c;
}

/* CLASSES when bytes is above the largest class. */
static unsigned class_of(uint64_t bytes)
{
	unsigned c = 0;

	while (c < CLASSES && class_bytes(c) < bytes)
		c++;
	return c;
}

uint64_t pool_segment_bytes(uint64_t bytes)
{
	unsigned c = class_of(bytes);

	return c < CLASSES ? class_bytes(c)
	                   : (bytes + BIG_GRANULE_BYTES - 1) / BIG_GRANULE_BYTES * BIG_GRANULE_BYTES;
}

/* ---- In worker threads ---- */

static void unmake(struct segment *s)
{
	if (s->pinned)
		s->pool->gpu->unpin(s->map);
	if (s->map != MAP_FAILED)
		munmap(s->map, s->bytes);
	if (s->fd >= 0)
		close(s->fd);
	s->pinned = false;
	s->map = MAP_FAILED;
	s->fd = -1;
}

/*
 * The kernel hands out zeroed pages. KOPS_E_NOMEM, also when descriptors have run out, leaves what unmake()
 * can take down.
 */
static int make(struct segment *s)
{
	int rc;

	s->fd = memfd_create("kops", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (s->fd < 0)
		return KOPS_E_NOMEM;
	/* fallocate reports a full tmpfs or memory cgroup here, where ftruncate would leave SIGBUS for later.
	 */
	do
		rc = fallocate(s->fd, 0, 0, (off_t)s->bytes);
	while (rc < 0 && errno == EINTR);
	if (rc < 0 || fcntl(s->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
		return KOPS_E_NOMEM;
	s->map = mmap(NULL, s->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, s->fd, 0);
	if (s->map == MAP_FAILED)
		return KOPS_E_NOMEM;
	if (s->pin)
		s->pinned = s->pool->gpu->pin(s->map, s->bytes, false) == 0; /* unpinned memory works, slower */
	return 0;
}

static void make_work(uv_work_t *work)
{
	struct segment *s = work->data;

	s->status = host_memory_claim(s->bytes);
	if (s->status < 0)
		return;
	s->status = make(s);
	host_memory_settle(s->bytes);
	if (s->status < 0)
		unmake(s);
}

static void zero_work(uv_work_t *work)
{
	struct segment *s = work->data;

	memset(s->map, 0, s->bytes);
}

/* Frees the pages too: whoever had the segment may keep its descriptor, and with it pages that nobody counts.
 */
static void discard_work(uv_work_t *work)
{
	struct segment *s = work->data;

	if (s->fd >= 0)
		(void)!fallocate(s->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)s->bytes);
	unmake(s);
}

static void unmake_work(uv_work_t *work)
{
	unmake(work->data);
}

/* ---- On the loop thread ---- */

static void queue_work(struct segment *s, uv_work_cb work, uv_after_work_cb after)
{
	s->pool->busy++;
	s->work.data = s;
	uv_queue_work(s->pool->loop, &s->work, work, after); /* fails only without a work function */
}

static struct segment *segment_new(struct pool *pool, uint64_t bytes)
{
	struct segment *s = calloc(1, sizeof *s);

	if (!s)
		return NULL;
	s->pool = pool;
	s->fd = -1;
	s->map = MAP_FAILED;
	s->bytes = bytes;
	pool->total_bytes += bytes;
	return s;
}

static void segment_free(struct segment *s)
{
	s->pool->total_bytes -= s->bytes;
	free(s);
}

static void after_unmake(uv_work_t *work, int status)
{
	struct segment *s = work->data;

	(void)status;
	s->pool->busy--;
	segment_free(s);
}

static void warm_made(uv_work_t *work, int status)
{
	struct segment *s = work->data;
	struct pool *pool = s->pool;
	unsigned c = class_of(s->bytes);

	(void)status;
	pool->busy--;
	if (s->status < 0) {
		log_warning("cannot keep the warm pool filled: no memory for a segment of %llu bytes",
		            (unsigned long long)s->bytes);
		pool->warm_stock[c]--;
		segment_free(s);
		return;
	}
	s->next = pool->fresh[c];
	pool->fresh[c] = s;
}

static void restock(struct pool *pool, unsigned c)
{
	while (c < pool->warm_classes && pool->warm_stock[c] < WARM_PER_CLASS) {
		struct segment *s = segment_new(pool, class_bytes(c));
		if (!s)
			return;
		pool->warm_stock[c]++;
		s->pin = pool->gpu != NULL;
		queue_work(s, make_work, warm_made);
	}
}

struct pool *pool_new(uv_loop_t *loop, const struct backend *gpu, uint64_t warm_bytes, uint64_t cache_bytes)
{
	struct pool *pool = calloc(1, sizeof *pool);
	uint64_t total = 0;

	if (!pool)
		return NULL;
	pool->loop = loop;
	pool->gpu = gpu;
	pool->cache_limit_bytes = cache_bytes;
	for (unsigned c = 0; c < CLASSES; c++) {
		total += WARM_PER_CLASS * class_bytes(c);
		if (total > warm_bytes)
			break;
		pool->warm_classes = c + 1;
	}
	for (unsigned c = 0; c < pool->warm_classes; c++)
		restock(pool, c);
	return pool;
}

static struct segment *take_cached(struct pool *pool, uid_t uid, uint64_t bytes)
{
	for (struct segment **link = &pool->cached, *s; (s = *link); link = &s->next)
		if (s->uid == uid && s->bytes == bytes) {
			*link = s->next;
			pool->cached_bytes -= s->bytes;
			return s;
		}
	return NULL;
}

static struct segment *take_fresh(struct pool *pool, uint64_t bytes)
{
	unsigned c = class_of(bytes);
	struct segment *s = c < CLASSES ? pool->fresh[c] : NULL;

	if (!s)
		return NULL;
	pool->fresh[c] = s->next;
	pool->warm_stock[c]--;
	restock(pool, c);
	return s;
}

static void lend_made(uv_work_t *work, int status)
{
	struct segment *s = work->data;
	void (*ready)(struct segment *, int, void *) = s->ready;

	(void)status;
	s->pool->busy--;
	if (s->status < 0) {
		int failure = s->status;
		void *arg = s->arg;
		segment_free(s);
		ready(NULL, failure, arg);
		return;
	}
	ready(s, 0, s->arg);
}

struct segment *pool_lend(struct pool *pool, uid_t uid, uint64_t bytes, bool pin,
                          void (*ready)(struct segment *segment, int status, void *arg), void *arg,
                          int *ret_status)
{
	uint64_t size = pool_segment_bytes(bytes);
	struct segment *s = take_cached(pool, uid, size);

	*ret_status = 0;
	if (!s)
		s = take_fresh(pool, size);
	if (s) {
		s->uid = uid;
		return s;
	}
	s = segment_new(pool, size);
	if (!s) {
		*ret_status = KOPS_E_NOMEM;
		return NULL;
	}
	s->uid = uid;
	s->pin = pin && pool->gpu;
	s->ready = ready;
	s->arg = arg;
	queue_work(s, make_work, lend_made);
	return NULL;
}

static void trim_cache(struct pool *pool)
{
	while (pool->cached_bytes > pool->cache_limit_bytes) {
		struct segment **link = &pool->cached, *oldest;
		while ((*link)->next)
			link = &(*link)->next;
		oldest = *link;
		*link = NULL;
		pool->cached_bytes -= oldest->bytes;
		queue_work(oldest, discard_work, after_unmake);
	}
}

static void zeroed(uv_work_t *work, int status)
{
	struct segment *s = work->data;
	struct pool *pool = s->pool;

	(void)status;
	pool->busy--;
	s->next = pool->cached;
	pool->cached = s;
	pool->cached_bytes += s->bytes;
	trim_cache(pool);
}

void pool_let_go(struct segment *s)
{
	queue_work(s, unmake_work, after_unmake);
}

void pool_take_back(struct segment *s)
{
	if (s->bytes > s->pool->cache_limit_bytes || s->uid == OVERFLOW_UID)
		queue_work(s, discard_work, after_unmake);
	else
		queue_work(s, zero_work, zeroed);
}

void pool_set_cache(struct pool *pool, uint64_t cache_bytes)
{
	pool->cache_limit_bytes = cache_bytes;
	trim_cache(pool);
}

uint64_t pool_bytes(const struct pool *pool)
{
	return pool->total_bytes;
}

bool pool_is_busy(const struct pool *pool)
{
	return pool->busy > 0;
}

static void free_list(struct segment *s)
{
	struct segment *next;

	for (; s; s = next) {
		next = s->next;
		unmake(s);
		segment_free(s);
	}
}

void pool_free(struct pool *pool)
{
	if (!pool)
		return;
	for (unsigned c = 0; c < CLASSES; c++)
		free_list(pool->fresh[c]);
	free_list(pool->cached);
	free(pool);
}
