#include "job/memory/pool.h"

#include <stdlib.h>

#include "job/memory/cached.h"
#include "job/memory/kept.h"
#include "log.h"

/* Sizes above the largest class are rounded up to this granule instead of a power of two. */
#define BIG_GRANULE_BYTES (2ull << 20)
#define WARM_PER_CLASS    4
#define CLASSES           11 /* 64 KiB … 64 MiB */
/* The cache frees this many segments at once, and more one by one. */
#define TRIM_AT_ONCE 8u

struct pool {
	struct workers *workers;
	const struct driver *pinning;
	uint64_t total_bytes, discarding_bytes;
	unsigned warm_classes;        /* classes [0, warm_classes) are kept stocked */
	unsigned warm_stock[CLASSES]; /* fresh or being made */
	struct list fresh[CLASSES];
	struct cached cached;
	struct kept_all kept;
	struct task_flow flow; /* charged for work that is for no user */
	struct errand trim;    /* an errand of kopsd's */
};

static uint64_t class_bytes(unsigned c)
{
	return SEGMENT_BYTES_MIN << c;
}

/* The class for `bytes`; CLASSES: larger than the largest class. */
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

/* ---- Segments ---- */

static void submit_step(struct segment *s, struct task_flow *flow, bool (*step)(struct task *),
                        void (*done)(struct task *))
{
	s->at = 0;
	s->task.step = step;
	s->task.done = done;
	workers_submit(s->pool->workers, flow, &s->task);
}

/* A new one, which counts as the pool's. */
static struct segment *add_segment(struct pool *pool, uint64_t bytes)
{
	struct segment *s = segment_new(pool, pool->pinning, bytes);

	if (!s)
		return NULL;
	pool->total_bytes += bytes;
	host_memory_add_file((int64_t)bytes);
	return s;
}

static void remove_segment(struct segment *s)
{
	s->pool->total_bytes -= s->bytes;
	host_memory_add_file(-(int64_t)s->bytes);
	free(s);
}

/* Tells the former user's side that the segment no longer counts. */
static void tell_released(struct segment *s)
{
	void (*released)(void *) = s->released;

	s->released = NULL;
	if (released)
		released(s->arg);
}

static void discarded(struct task *task)
{
	struct segment *s = segment_of_task(task);

	s->pool->discarding_bytes -= s->bytes;
	tell_released(s);
	remove_segment(s);
}

static void discard(struct segment *s, struct task_flow *flow)
{
	s->pool->discarding_bytes += s->bytes;
	submit_step(s, flow, segment_discard_step, discarded);
}

/* ---- Fresh ones ---- */

static void warm_made(struct task *task)
{
	struct segment *s = segment_of_task(task);
	struct pool *pool = s->pool;
	unsigned c = class_of(s->bytes);

	if (s->status < 0) {
		log_warning("cannot keep the warm pool filled: %s", s->why);
		pool->warm_stock[c]--;
		remove_segment(s);
		return;
	}
	list_push_first(&pool->fresh[c], &s->link);
}

static void restock(struct pool *pool, unsigned c)
{
	while (c < pool->warm_classes && pool->warm_stock[c] < WARM_PER_CLASS) {
		struct segment *s = add_segment(pool, class_bytes(c));
		if (!s)
			return;
		pool->warm_stock[c]++;
		s->pin = pool->pinning != NULL;
		submit_step(s, &pool->flow, segment_make_step, warm_made);
	}
}

static struct segment *take_fresh(struct pool *pool, uint64_t bytes)
{
	unsigned c = class_of(bytes);
	struct segment *s = c < CLASSES ? list_take(&pool->fresh[c], struct segment, link) : NULL;

	if (!s)
		return NULL;
	pool->warm_stock[c]--;
	restock(pool, c);
	return s;
}

static void trim_one(struct pool *pool)
{
	discard(cached_take_oldest(&pool->cached), &pool->flow);
}

static bool trim_step(struct errand *errand)
{
	struct pool *pool = container_of(errand, struct pool, trim);

	if (cached_is_over(&pool->cached))
		trim_one(pool);
	return cached_is_over(&pool->cached);
}

/* One large segment may displace thousands. */
static void trim_cache(struct pool *pool)
{
	for (unsigned n = 0; n < TRIM_AT_ONCE && cached_is_over(&pool->cached); n++)
		trim_one(pool);
	if (cached_is_over(&pool->cached) && !pool->trim.step)
		errands_add(&pool->kept.accounts->errands, &pool->trim, trim_step);
}

/* ---- Lending ---- */

static void lend_made(struct task *task)
{
	struct segment *s = segment_of_task(task);

	if (task->cancelled)
		s->status = KOPS_E_CANCELLED;
	s->ready(s, s->status, s->arg);
	if (task->cancelled)
		discard(s, &s->pool->flow);
	else if (s->status < 0)
		remove_segment(s);
}

struct segment *pool_lend(struct pool *pool, uid_t uid, struct task_flow *flow, uint64_t bytes, bool pin,
                          void (*ready)(struct segment *segment, int status, void *arg), void *arg,
                          bool *ret_ready)
{
	uint64_t size = pool_segment_bytes(bytes);
	struct segment *s = cached_take(&pool->cached, uid, size);

	if (!s)
		s = take_fresh(pool, size);
	*ret_ready = s != NULL;
	if (s) {
		s->uid = uid;
		return s;
	}
	s = add_segment(pool, size);
	if (!s)
		return NULL;
	s->uid = uid;
	s->pin = pin && pool->pinning;
	s->ready = ready;
	s->arg = arg;
	submit_step(s, flow, segment_make_step, lend_made);
	return s;
}

void pool_cancel(struct segment *s)
{
	workers_cancel(&s->task);
}

int pool_open_for_client(const struct segment *s)
{
	int fd = segment_open_again(s);

	return fd < 0 ? KOPS_E_NOMEM : fd;
}

/* ---- Taking back ---- */

static void zeroed(struct task *task)
{
	struct segment *s = segment_of_task(task);
	struct pool *pool = s->pool;

	host_memory_claim_pages(&s->pages, 0);
	/* No user is charged for segments that the cache frees, until they are freed. They may take no more
	 * than the cache itself. */
	if (pool->discarding_bytes > pool->cached.limit_bytes || !cached_add(&pool->cached, s)) {
		discard(s, &pool->flow);
		return;
	}
	tell_released(s);
	trim_cache(pool);
}

void pool_take_back(struct segment *s, struct task_flow *flow, void (*released)(void *arg), void *arg)
{
	s->released = released;
	s->arg = arg;
	s->pages.fd = s->fd;
	/* Zeroing holes would take memory. Others may come while it is zeroed. */
	if (s->bytes > s->pool->cached.limit_bytes || s->uid == KOPS_OVERFLOW_ID || s->others_have ||
	    host_memory_claim_pages(&s->pages, s->bytes) > 0) {
		host_memory_claim_pages(&s->pages, 0);
		discard(s, flow);
		return;
	}
	submit_step(s, flow, segment_zero_step, zeroed);
}

void pool_set_cache(struct pool *pool, uint64_t cache_bytes)
{
	pool->cached.limit_bytes = cache_bytes;
	trim_cache(pool);
}

/* ---- Kept ones ---- */

static void unheld(struct segment *s)
{
	tell_released(s);
	discard(s, &s->pool->flow);
}

static void kept_is_unmapped(struct task *task)
{
	struct segment *s = segment_of_task(task);

	if (s->fd >= 0) {
		kept_add(&s->pool->kept, s);
		return;
	}
	account_unref(s->pool->kept.accounts, s->account);
	free(s);
}

void pool_let_go(struct segment *s, struct account *account, void (*released)(void *arg), void *arg)
{
	s->released = released;
	s->arg = arg;
	s->account = account;
	kept_index(&s->pool->kept, s);
	submit_step(s, &account->memory_flow, segment_unmap_step, kept_is_unmapped);
}

bool pool_look(struct pool *pool, struct account *account)
{
	return kept_look(&pool->kept, account);
}

void pool_look_soon(struct pool *pool, struct account *account)
{
	kept_look_soon(&pool->kept, account);
}

bool pool_keeps(const struct pool *pool, const struct account *account, dev_t device, ino_t inode)
{
	return kept_find(&pool->kept, account, device, inode);
}

/* A thread is unmapping s, and continues with that mapping. The file is mapped again as another segment. */
static int leave_mapping(struct segment *s, struct segment **ret)
{
	struct segment *heir = segment_new(s->pool, s->pinning, s->bytes);

	if (!heir || segment_map(s, &heir->map) < 0) {
		free(heir);
		return KOPS_E_NOMEM;
	}
	heir->fd = s->fd;
	heir->uid = s->uid;
	heir->others_have = s->others_have;
	heir->released = s->released;
	heir->arg = s->arg;
	account_ref(s->account); /* charged for the thread's time */
	kept_remove(&s->pool->kept, s);
	s->fd = -1;
	*ret = heir;
	return 0;
}

/* A segment that no thread has begun to unmap is still mapped. */
static int map_again(struct segment *s)
{
	int rc = s->is_kept ? segment_map(s, &s->map) : 0;

	if (rc == 0)
		kept_remove(&s->pool->kept, s);
	return rc;
}

int pool_adopt(struct pool *pool, struct account *account, dev_t device, ino_t inode, struct segment **ret)
{
	struct segment *s = kept_find(&pool->kept, account, device, inode);
	int rc = 0;

	if (s)
		rc = s->is_kept || workers_withdraw(&s->task) ? map_again(s) : leave_mapping(s, &s);
	if (rc < 0)
		return rc;
	if (s)
		tell_released(s);
	*ret = s;
	return 0;
}

/* ---- The pool ---- */

struct pool *pool_new(uv_loop_t *timers, struct accounts *accounts, struct workers *workers,
                      const struct driver *pinning, uint64_t warm_bytes, uint64_t cache_bytes,
                      unsigned cache_segments)
{
	struct pool *pool = calloc(1, sizeof *pool);
	uint64_t total = 0;

	if (!pool)
		return NULL;
	pool->workers = workers;
	pool->pinning = pinning;
	pool->cached.limit_bytes = cache_bytes;
	pool->cached.limit = cache_segments;
	kept_init(&pool->kept, timers, accounts, unheld);
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

uint64_t pool_bytes(const struct pool *pool)
{
	return pool->total_bytes;
}

static void free_segment(struct segment *s)
{
	tell_released(s);
	segment_unmake(s);
	remove_segment(s);
}

static void free_list(struct list *segments)
{
	struct segment *s;

	while ((s = list_take(segments, struct segment, link)))
		free_segment(s);
}

static void free_kept(struct pool *pool)
{
	struct user_kept *user;
	struct segment *s;

	while ((user = list_first(&pool->kept.users, struct user_kept, link))) {
		s = list_first(&user->segments, struct segment, link);
		kept_remove(&pool->kept, s);
		free_segment(s);
	}
	kept_clear(&pool->kept);
}

static void on_closed(uv_handle_t *handle)
{
	struct kept_all *kept = handle->data;

	free(container_of(kept, struct pool, kept));
}

void pool_free(struct pool *pool)
{
	struct segment *s;

	if (!pool)
		return;
	for (unsigned c = 0; c < CLASSES; c++)
		free_list(&pool->fresh[c]);
	while ((s = cached_take_oldest(&pool->cached)))
		free_segment(s);
	cached_clear(&pool->cached);
	free_kept(pool);
	uv_close((uv_handle_t *)&pool->kept.timer, on_closed);
}
