#include "job/pool.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core_dump.h"
#include "job/kept.h"
#include "log.h"

#define CLASS_MIN_BYTES (64ull << 10)
#define CLASS_MAX_BYTES                                                                                        \
	(64ull << 20) /* above: sizes are rounded up to this granule instead of a power of two */
#define BIG_GRANULE_BYTES (2ull << 20)
/* The uid that the kernel reports for uids unknown to our user namespace; there may be several. */
#define OVERFLOW_UID   65534
#define WARM_PER_CLASS 4
#define CLASSES        11 /* 64 KiB … 64 MiB */
/* The cache frees this many segments at once, and more one by one. */
#define TRIM_AT_ONCE 8u

struct pool {
	struct workers *workers;
	const struct driver *pinning;
	uint64_t cache_limit_bytes, cached_bytes, total_bytes;
	uint64_t discarding_bytes;
	unsigned cache_limit, n_cached;
	unsigned warm_classes;        /* classes [0, warm_classes) are kept stocked */
	unsigned warm_stock[CLASSES]; /* fresh or being made */
	struct list fresh[CLASSES];
	struct list cached;         /* the most recently returned first */
	struct idmap cached_by_key; /* → struct alike */
	struct kept_all kept;
	struct task_flow flow; /* charged for work that is for no user */
	struct errand trim;    /* an errand of kopsd's */
};

/* Cached segments of one user and size; at least one. */
struct alike {
	struct list segments;
};

static uint64_t class_bytes(unsigned c)
{
	return CLASS_MIN_BYTES << c;
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

/* ---- In worker threads: steps of tasks ---- */

static struct segment *of_task(struct task *task)
{
	return container_of(task, struct segment, task);
}

static uint64_t next_piece(const struct segment *s, uint64_t most)
{
	uint64_t left = s->bytes - s->at;

	return left < most ? left : most;
}

static void unpin_segment(struct segment *s)
{
	if (s->pinned)
		s->pool->pinning->unpin(s->map);
	s->pinned = false;
}

static void unmake(struct segment *s)
{
	unpin_segment(s);
	if (s->map != MAP_FAILED)
		munmap(s->map, s->bytes);
	s->map = MAP_FAILED;
	if (s->fd >= 0)
		close(s->fd);
	s->fd = -1;
	host_memory_settle(s->claimed_bytes);
	s->claimed_bytes = 0;
}

static int fail_to_make(struct segment *s, const char *what)
{
	const char *advice = errno == EMFILE || errno == ENFILE ? "; raise LimitNOFILE"
	                     : errno == EFBIG                   ? "; raise LimitFSIZE"
	                                                        : "";

	snprintf(s->why, sizeof s->why, "kopsd cannot make shared memory of %llu bytes: %s: %s%s",
	         (unsigned long long)s->bytes, what, strerror(errno), advice);
	return KOPS_E_NOMEM;
}

/* Opens the memory again as another open file, so that a lease can tell who has it open. */
static int reopen(int fd)
{
	char path[32];

	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	return open(path, O_RDWR | O_CLOEXEC);
}

/* Makes the file and reopens it, so that the lease counts no other opens. If somebody opens the file during a
 * check, the signal is SIGURG, which is ignored; SIGIO would end the process. */
static int begin_file(struct segment *s)
{
	int made, rc = host_memory_claim(s->bytes, s->why, sizeof s->why);

	if (rc < 0)
		return rc;
	s->claimed_bytes = s->bytes;
	made = memfd_create("kops", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (made < 0)
		return fail_to_make(s, "memfd_create");
	s->fd = reopen(made);
	if (s->fd < 0) {
		rc = fail_to_make(s, "opening /proc/self/fd");
		close(made);
		return rc;
	}
	close(made);
	fcntl(s->fd, F_SETSIG, SIGURG);
	return ftruncate(s->fd, (off_t)s->bytes) < 0 ? fail_to_make(s, "ftruncate") : 0;
}

/* Makes a piece of zeroed pages. fallocate reports a full tmpfs or memory cgroup, where touching would raise
 * SIGBUS. */
static int make_piece(struct segment *s)
{
	uint64_t bytes = next_piece(s, WORKERS_PIECE_BYTES);
	int rc;

	do
		rc = fallocate(s->fd, 0, (off_t)s->at, (off_t)bytes);
	while (rc < 0 && errno == EINTR);
	if (rc < 0)
		return fail_to_make(s, "fallocate");
	s->at += bytes;
	s->claimed_bytes -= bytes;
	host_memory_settle(bytes);
	return 0;
}

static int finish_file(struct segment *s)
{
	if (fcntl(s->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
		return fail_to_make(s, "sealing");
	s->map = mmap(NULL, s->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, s->fd, 0);
	if (s->map == MAP_FAILED)
		return fail_to_make(s, "mmap");
	core_dump_exclude(s->map, s->bytes);
	if (s->pin)
		s->pinned =
		    s->pool->pinning->pin(s->map, s->bytes, false) == 0; /* unpinned memory works, slower */
	return 0;
}

static bool make_step(struct task *task)
{
	struct segment *s = of_task(task);

	s->status = s->fd < 0 ? begin_file(s) : 0;
	if (s->status == 0)
		s->status = make_piece(s);
	if (s->status == 0 && s->at == s->bytes)
		s->status = finish_file(s);
	if (s->status < 0)
		unmake(s);
	return s->status < 0 || s->at == s->bytes;
}

static bool zero_step(struct task *task)
{
	struct segment *s = of_task(task);
	uint64_t bytes = next_piece(s, WORKERS_PIECE_BYTES);

	memset((char *)s->map + s->at, 0, bytes);
	s->at += bytes;
	return s->at == s->bytes;
}

/* Frees the pages too: a client may have kept the descriptor, and with it pages that nobody counts. */
static bool discard_step(struct task *task)
{
	struct segment *s = of_task(task);
	uint64_t bytes = next_piece(s, WORKERS_UNMAKE_BYTES);

	unpin_segment(s);
	if (s->fd >= 0 &&
	    fallocate(s->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)s->at, (off_t)bytes) == 0)
		s->at += bytes;
	else
		s->at = s->bytes; /* there is no file, or closing it frees the pages */
	if (s->at < s->bytes)
		return false;
	unmake(s);
	return true;
}

/* Unmaps a piece; the content stays. */
static bool unmap_kept_step(struct task *task)
{
	struct segment *s = of_task(task);
	uint64_t bytes = next_piece(s, WORKERS_UNMAKE_BYTES);

	unpin_segment(s);
	munmap((char *)s->map + s->at, bytes);
	s->at += bytes;
	if (s->at < s->bytes)
		return false;
	s->map = MAP_FAILED;
	return true;
}

/* ---- On the loop thread ---- */

static void submit_step(struct segment *s, struct task_flow *flow, bool (*step)(struct task *),
                        void (*done)(struct task *))
{
	s->at = 0;
	s->task.step = step;
	s->task.done = done;
	workers_submit(s->pool->workers, flow, &s->task);
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
	host_memory_add_file((int64_t)bytes);
	return s;
}

static void segment_free(struct segment *s)
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
	struct segment *s = of_task(task);

	s->pool->discarding_bytes -= s->bytes;
	tell_released(s);
	segment_free(s);
}

static void discard(struct segment *s, struct task_flow *flow)
{
	s->pool->discarding_bytes += s->bytes;
	submit_step(s, flow, discard_step, discarded);
}

/* ---- Fresh ones ---- */

static void warm_made(struct task *task)
{
	struct segment *s = of_task(task);
	struct pool *pool = s->pool;
	unsigned c = class_of(s->bytes);

	if (s->status < 0) {
		log_warning("cannot keep the warm pool filled: %s", s->why);
		pool->warm_stock[c]--;
		segment_free(s);
		return;
	}
	list_push_first(&pool->fresh[c], &s->link);
}

static void restock(struct pool *pool, unsigned c)
{
	while (c < pool->warm_classes && pool->warm_stock[c] < WARM_PER_CLASS) {
		struct segment *s = segment_new(pool, class_bytes(c));
		if (!s)
			return;
		pool->warm_stock[c]++;
		s->pin = pool->pinning != NULL;
		submit_step(s, &pool->flow, make_step, warm_made);
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

/* ---- Cached ones ---- */

/* The key of one user and size. Keys are unique: sizes are multiples of the smallest, and the cache has less
 * than 2^32 of these. */
static uint64_t key_of(uid_t uid, uint64_t bytes)
{
	return (uint64_t)uid << 32 | bytes / CLASS_MIN_BYTES;
}

static struct alike *alike_new(struct pool *pool, uint64_t key)
{
	struct alike *alike = calloc(1, sizeof *alike);

	if (alike && idmap_put(&pool->cached_by_key, key, alike) == 0)
		return alike;
	free(alike);
	return NULL;
}

/* Links the first segment of a key. Returns false if out of memory. */
static bool link_alike(struct pool *pool, struct segment *s)
{
	uint64_t key = key_of(s->uid, s->bytes);
	struct alike *alike = idmap_get(&pool->cached_by_key, key);

	if (!alike)
		alike = alike_new(pool, key);
	if (alike)
		list_push_first(&alike->segments, &s->alike);
	return alike;
}

static void unlink_alike(struct pool *pool, struct segment *s)
{
	struct alike *alike = container_of(s->alike.list, struct alike, segments);

	list_remove(&s->alike);
	if (list_is_empty(&alike->segments))
		free(idmap_remove(&pool->cached_by_key, key_of(s->uid, s->bytes)));
}

static bool cache(struct pool *pool, struct segment *s)
{
	if (!link_alike(pool, s))
		return false;
	list_push_first(&pool->cached, &s->link);
	pool->cached_bytes += s->bytes;
	pool->n_cached++;
	return true;
}

static void uncache(struct pool *pool, struct segment *s)
{
	unlink_alike(pool, s);
	list_remove(&s->link);
	pool->cached_bytes -= s->bytes;
	pool->n_cached--;
}

static struct segment *take_cached(struct pool *pool, uid_t uid, uint64_t bytes)
{
	const struct alike *alike = idmap_get(&pool->cached_by_key, key_of(uid, bytes));
	struct segment *s = alike ? list_first(&alike->segments, struct segment, alike) : NULL;

	if (!s || s->bytes != bytes) /* a size that the cache cannot have */
		return NULL;
	uncache(pool, s);
	return s;
}

static bool has_too_much(const struct pool *pool)
{
	return pool->cached_bytes > pool->cache_limit_bytes || pool->n_cached > pool->cache_limit;
}

static void trim_one(struct pool *pool)
{
	struct segment *s = list_last(&pool->cached, struct segment, link);

	uncache(pool, s);
	discard(s, &pool->flow);
}

static bool trim_step(struct errand *errand)
{
	struct pool *pool = container_of(errand, struct pool, trim);

	if (has_too_much(pool))
		trim_one(pool);
	return has_too_much(pool);
}

/* One large segment may displace thousands. */
static void trim_cache(struct pool *pool)
{
	for (unsigned n = 0; n < TRIM_AT_ONCE && has_too_much(pool); n++)
		trim_one(pool);
	if (has_too_much(pool) && !pool->trim.step)
		errands_add(&pool->kept.accounts->errands, &pool->trim, trim_step);
}

/* ---- Lending ---- */

static void lend_made(struct task *task)
{
	struct segment *s = of_task(task);

	if (task->cancelled)
		s->status = KOPS_E_CANCELLED;
	s->ready(s, s->status, s->arg);
	if (task->cancelled)
		discard(s, &s->pool->flow);
	else if (s->status < 0)
		segment_free(s);
}

struct segment *pool_lend(struct pool *pool, uid_t uid, struct task_flow *flow, uint64_t bytes, bool pin,
                          void (*ready)(struct segment *segment, int status, void *arg), void *arg,
                          bool *ret_ready)
{
	uint64_t size = pool_segment_bytes(bytes);
	struct segment *s = take_cached(pool, uid, size);

	if (!s)
		s = take_fresh(pool, size);
	*ret_ready = s != NULL;
	if (s) {
		s->uid = uid;
		return s;
	}
	s = segment_new(pool, size);
	if (!s)
		return NULL;
	s->uid = uid;
	s->pin = pin && pool->pinning;
	s->ready = ready;
	s->arg = arg;
	submit_step(s, flow, make_step, lend_made);
	return s;
}

void pool_cancel(struct segment *s)
{
	workers_cancel(&s->task);
}

int pool_open_for_client(const struct segment *s)
{
	int fd = reopen(s->fd);

	return fd < 0 ? KOPS_E_NOMEM : fd;
}

/* ---- Taking back ---- */

static void zeroed(struct task *task)
{
	struct segment *s = of_task(task);
	struct pool *pool = s->pool;

	host_memory_claim_pages(&s->pages, 0);
	/* No user is charged for segments that the cache frees, until they are freed. They may take no more
	 * than the cache itself. */
	if (pool->discarding_bytes > pool->cache_limit_bytes || !cache(pool, s)) {
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
	if (s->bytes > s->pool->cache_limit_bytes || s->uid == OVERFLOW_UID ||
	    host_memory_claim_pages(&s->pages, s->bytes) > 0) {
		host_memory_claim_pages(&s->pages, 0);
		discard(s, flow);
		return;
	}
	submit_step(s, flow, zero_step, zeroed);
}

void pool_set_cache(struct pool *pool, uint64_t cache_bytes)
{
	pool->cache_limit_bytes = cache_bytes;
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
	struct segment *s = of_task(task);

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
	submit_step(s, &account->memory_flow, unmap_kept_step, kept_is_unmapped);
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

/* Maps the file of s. */
static int map_file(const struct segment *s, void **ret)
{
	void *map = mmap(NULL, s->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, s->fd, 0);

	if (map == MAP_FAILED)
		return KOPS_E_NOMEM;
	core_dump_exclude(map, s->bytes);
	*ret = map;
	return 0;
}

/* A thread is unmapping s, and continues with that mapping. The file is mapped again as another segment. */
static int leave_mapping(struct segment *s, struct segment **ret)
{
	struct segment *heir = calloc(1, sizeof *heir);

	if (!heir || map_file(s, &heir->map) < 0) {
		free(heir);
		return KOPS_E_NOMEM;
	}
	heir->pool = s->pool;
	heir->fd = s->fd;
	heir->bytes = s->bytes;
	heir->uid = s->uid;
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
	int rc = s->is_kept ? map_file(s, &s->map) : 0;

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
	pool->cache_limit_bytes = cache_bytes;
	pool->cache_limit = cache_segments;
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
	unmake(s);
	segment_free(s);
}

static void free_list(struct list *segments)
{
	struct segment *s;

	while ((s = list_take(segments, struct segment, link)))
		free_segment(s);
}

static void free_cached(struct pool *pool)
{
	struct segment *s, *following;

	list_for_each_safe (s, following, &pool->cached, link)
		unlink_alike(pool, s);
	free_list(&pool->cached);
	idmap_clear(&pool->cached_by_key);
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
	if (!pool)
		return;
	for (unsigned c = 0; c < CLASSES; c++)
		free_list(&pool->fresh[c]);
	free_cached(pool);
	free_kept(pool);
	uv_close((uv_handle_t *)&pool->kept.timer, on_closed);
}
