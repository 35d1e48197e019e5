#include "host_memory.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "base/clock.h"
#include "host_files.h"
#include "kops_types.h"

#define GROWTH_BYTES (1ull << 20)
#define FOUND_FOR_NS 1000000000u

/* One limit on our memory, in bytes, and how much of it is free. */
struct limit {
	uint64_t total, free;
	char what[128]; /* for people */
	bool is_address_space;
};

/* A reading of all limits, and its time. */
struct look {
	uint64_t at_ns; /* 0: none */
	/* bytes.asked and bytes.freed before the reading. They never shrink, and the reading may include what
	 * they counted later. */
	uint64_t asked, freed;
	int64_t left; /* left when all claims of that time are served */
	struct limit tightest;
	uint64_t promised; /* of that */
};

/*
 * The host as this process sees it, and what the process has claimed. No lock is taken while another is held.
 */
struct host {
	const char *root; /* before /proc and /sys; only tests set it */
	void (*tell)(const char *details);
	struct {                       /* all atomic */
		uint64_t claimed;      /* open claims, without pages of files */
		uint64_t asked;        /* all that was ever claimed, modulo 2^64 */
		uint64_t freed;        /* all that was ever released or touched, modulo 2^64 */
		uint64_t files;        /* shared memory that is mapped */
		bool cgroup_has_limit; /* as of the last reading */
	} bytes;
	struct {
		pthread_mutex_t lock;
		struct list claimed; /* struct host_memory_pages with bytes */
	} pages;
	struct {
		pthread_mutex_t lock;
		uint64_t found_ns; /* 0: never */
		bool exists;
		struct cgroup own; /* where the memory cgroups of this process are */
	} cgroup;
	struct {
		pthread_mutex_t lock;
		struct look latest;
	} look;
};

/* Global, because limits apply to the process, whichever thread or device takes memory. */
static struct host host = {.root = "",
                           .bytes.cgroup_has_limit = true,
                           .pages.lock = PTHREAD_MUTEX_INITIALIZER,
                           .cgroup.lock = PTHREAD_MUTEX_INITIALIZER,
                           .look.lock = PTHREAD_MUTEX_INITIALIZER};

/*
 * State while reading files of the host. `missed`: a file exists but could not be read. That means unknown, not
 * 0 or no limit, so all are read again, up to LOOK_TRIES times.
 */
struct reading {
	struct host *host;
	bool missed;
};
#define LOOK_TRIES 3

static FILE *open_file(struct reading *r, const char *path)
{
	return host_files_open(r->host->root, path, &r->missed);
}

static void close_file(struct reading *r, FILE *file)
{
	host_files_close(file, &r->missed);
}

/* ---- The host ---- */

/* What this process uses: address space, and memory. */
struct own {
	uint64_t mapped, resident;
};

/* /proc/self exists even without /proc/meminfo (ProcSubset=pid). Zeros if it cannot be read. */
static struct own read_own(struct reading *r)
{
	unsigned long long mapped, resident;
	char line[HOST_FILES_LINE_BYTES];

	if (!host_files_read_line(r->host->root, "/proc/self/statm", line, sizeof line, &r->missed) ||
	    sscanf(line, "%llu %llu", &mapped, &resident) != 2)
		return (struct own){0};
	return (struct own){mapped * HOST_PAGE_BYTES, resident * HOST_PAGE_BYTES};
}

/* Used without /proc/meminfo. What others use is unknown, so all that this process does not use counts as
 * free. */
static bool ask_host(struct reading *r, struct limit *ret)
{
	uint64_t used = read_own(r).resident;
	struct sysinfo info;

	if (sysinfo(&info) < 0)
		return false;
	*ret = (struct limit){.total = (uint64_t)info.totalram * info.mem_unit, .what = "the host"};
	ret->free = ret->total - (used < ret->total ? used : ret->total);
	return true;
}

static bool read_host(struct reading *r, struct limit *ret)
{
	FILE *file = open_file(r, "/proc/meminfo");
	unsigned long long total = 0, available = 0;
	bool has_available = false;
	char line[HOST_FILES_LINE_BYTES];

	while (file && fgets(line, sizeof line, file)) {
		sscanf(line, "MemTotal: %llu", &total);
		has_available |= sscanf(line, "MemAvailable: %llu", &available) == 1;
	}
	close_file(r, file);
	if (total == 0 || !has_available)
		return ask_host(r, ret);
	*ret = (struct limit){.total = total << 10, .free = available << 10, .what = "the host"};
	return true;
}

bool host_memory_can_swap(void)
{
	struct sysinfo info;

	return sysinfo(&info) < 0 || info.totalswap > 0;
}

/* ---- Memory cgroups ---- */

/* File names in the two versions of cgroups. */
struct cgroup_files {
	const char *const limits[2]; /* bytes, or "max" */
	const char *usage, *reclaimable, *shmem;
};

static const struct cgroup_files files_v1 = {
    {"memory.limit_in_bytes", NULL}, "memory.usage_in_bytes", "total_inactive_file", "total_shmem"};
static const struct cgroup_files files_v2 = {
    {"memory.max", "memory.high"}, "memory.current", "inactive_file", "shmem"};

static const struct cgroup_files *files_of(const struct cgroup *cgroup)
{
	return cgroup->is_v1 ? &files_v1 : &files_v2;
}

/* Reads a number of bytes; "max" or a missing file is no limit. */
static uint64_t read_limit(struct reading *r, const char *folder, const char *name)
{
	char path[HOST_FILES_PATH_BYTES];
	unsigned long long value;
	FILE *file;
	int n;

	if (!name || snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path ||
	    !(file = open_file(r, path)))
		return UINT64_MAX;
	n = fscanf(file, "%llu", &value);
	close_file(r, file);
	return n == 1 ? value : UINT64_MAX;
}

/* Reads a line of memory.stat. */
static uint64_t read_stat(struct reading *r, const char *folder, const char *key)
{
	char path[HOST_FILES_PATH_BYTES], line[HOST_FILES_LINE_BYTES], name[64];
	unsigned long long value, found = 0;
	FILE *file;

	if (snprintf(path, sizeof path, "%s/memory.stat", folder) >= (int)sizeof path ||
	    !(file = open_file(r, path)))
		return 0;
	while (fgets(line, sizeof line, file))
		if (sscanf(line, "%63s %llu", name, &value) == 2 && strcmp(name, key) == 0)
			found = value;
	close_file(r, file);
	return found;
}

/* Returns false if this folder has no limit. */
static bool read_folder(struct reading *r, const struct cgroup_files *files, const char *folder,
                        struct limit *ret)
{
	uint64_t total = read_limit(r, folder, files->limits[0]),
	         high = read_limit(r, folder, files->limits[1]);
	uint64_t usage = read_limit(r, folder, files->usage), reclaimable;

	total = high < total ? high : total;
	if (total == UINT64_MAX || usage == UINT64_MAX)
		return false;
	/* The kernel reclaims it before it kills a process. */
	reclaimable = read_stat(r, folder, files->reclaimable);
	usage -= reclaimable < usage ? reclaimable : usage;
	*ret = (struct limit){.total = total, .free = usage < total ? total - usage : 0};
	snprintf(ret->what, sizeof ret->what, "the memory cgroup %.100s", folder);
	return true;
}

/* Finds this process's cgroup, at most once a second: processes seldom move, and finding it takes longer than
 * all the rest. */
static bool own_cgroup(struct reading *r, struct cgroup *ret)
{
	struct host *h = r->host;
	uint64_t now = clock_ns();
	bool exists;

	pthread_mutex_lock(&h->cgroup.lock);
	if (h->cgroup.found_ns == 0 || now - h->cgroup.found_ns >= FOUND_FOR_NS) {
		h->cgroup.exists = cgroup_find(h->root, "memory", &h->cgroup.own, &r->missed);
		h->cgroup.found_ns = r->missed ? 0 : now;
	}
	exists = h->cgroup.exists;
	*ret = h->cgroup.own;
	pthread_mutex_unlock(&h->cgroup.lock);
	return exists;
}

/* Calls fn for the limit of each cgroup from our own up to the top of the mount. */
static void each_limit(struct reading *r, struct cgroup cgroup,
                       void (*fn)(struct limit *, const struct limit *), struct limit *arg)
{
	struct limit limit;
	char folder[HOST_FILES_PATH_BYTES];

	do {
		cgroup_folder(&cgroup, folder);
		if (read_folder(r, files_of(&cgroup), folder, &limit))
			fn(arg, &limit);
	} while (cgroup_up(&cgroup));
}

/* ---- Pages of files ---- */

uint64_t host_memory_missing(int fd, uint64_t bytes)
{
	uint64_t size, there;
	struct stat st;

	if (fstat(fd, &st) < 0)
		return 0;
	size = ((uint64_t)st.st_size + HOST_PAGE_BYTES - 1) / HOST_PAGE_BYTES * HOST_PAGE_BYTES;
	there = (uint64_t)st.st_blocks * 512;
	if (there >= size)
		return 0;
	return size - there < bytes ? size - there : bytes;
}

uint64_t host_memory_claim_pages(struct host_memory_pages *p, uint64_t bytes)
{
	uint64_t more = bytes > p->bytes ? bytes - p->bytes : 0, missing;

	if (bytes == p->bytes)
		return 0;
	pthread_mutex_lock(&host.pages.lock);
	INVARIANT(list_has(&p->link) == (p->bytes > 0));
	if (p->bytes == 0)
		list_push_first(&host.pages.claimed, &p->link);
	else if (bytes == 0)
		list_remove(&p->link);
	p->bytes = bytes;
	pthread_mutex_unlock(&host.pages.lock);
	__atomic_add_fetch(&host.bytes.asked, more, __ATOMIC_RELAXED);
	if (more == 0 || (p->is_foreign && __atomic_load_n(&host.bytes.cgroup_has_limit, __ATOMIC_RELAXED)))
		return more;
	missing = host_memory_missing(p->fd, bytes);
	return missing < more ? missing : more;
}

/* Sums over all claimed pages of files. */
struct claimed {
	uint64_t missing; /* without pages */
	uint64_t foreign; /* with or without pages */
	uint64_t foreign_missing;
};

static struct claimed count_pages(struct host *h)
{
	const struct host_memory_pages *p;
	struct claimed c = {0};

	pthread_mutex_lock(&h->pages.lock);
	list_for_each (p, &h->pages.claimed, link) {
		uint64_t missing = host_memory_missing(p->fd, p->bytes);

		c.missing += missing;
		c.foreign += p->is_foreign ? p->bytes : 0;
		c.foreign_missing += p->is_foreign ? missing : 0;
	}
	pthread_mutex_unlock(&h->pages.lock);
	return c;
}

/*
 * What counts as promised against limits of cgroups. Foreign pages that must be in our cgroup already count
 * once: those by which its shared memory exceeds all our other files.
 */
static uint64_t promised_in_cgroup(struct reading *r, const struct claimed *c, const struct cgroup *cgroup)
{
	uint64_t files = __atomic_load_n(&r->host->bytes.files, __ATOMIC_RELAXED), shmem, rest, ours, foreign;
	char folder[HOST_FILES_PATH_BYTES];

	cgroup_folder(cgroup, folder);
	shmem = read_stat(r, folder, files_of(cgroup)->shmem);
	rest = files > c->foreign ? files - c->foreign : 0;
	ours = shmem > rest ? shmem - rest : 0;
	foreign = c->foreign > ours ? c->foreign - ours : 0;
	return c->missing - c->foreign_missing + (foreign > c->foreign_missing ? foreign : c->foreign_missing);
}

void host_memory_add_file(int64_t bytes)
{
	__atomic_add_fetch(&host.bytes.files, (uint64_t)bytes, __ATOMIC_RELAXED);
	if (bytes < 0)
		__atomic_add_fetch(&host.bytes.freed, (uint64_t)-bytes, __ATOMIC_RELAXED);
}

/* ---- The tightest limit ---- */

static uint64_t kept_free(const struct limit *limit)
{
	return limit->total / 16;
}

/* What may be claimed within a limit when nothing is claimed. */
static uint64_t spare(const struct limit *limit)
{
	uint64_t kept = kept_free(limit);

	return limit->free > kept ? limit->free - kept : 0;
}

static void take_less_spare(struct limit *tightest, const struct limit *other)
{
	if (tightest->total == 0 || spare(other) < spare(tightest))
		*tightest = *other;
}

/* What is left when all open claims are served; negative: they do not fit. */
static int64_t left_of(const struct limit *limit, uint64_t promised)
{
	return (int64_t)spare(limit) - (int64_t)promised;
}

/*
 * The address space is a limit like others (RLIMIT_AS), except that mapped memory counts even if untouched.
 * Returns false if there is no limit.
 */
static bool read_address_space(struct reading *r, struct limit *ret)
{
	struct rlimit limit;
	uint64_t mapped;

	if (getrlimit(RLIMIT_AS, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY)
		return false;
	mapped = read_own(r).mapped;
	*ret = (struct limit){.total = limit.rlim_cur,
	                      .what = "the address space (ulimit -v, LimitAS)",
	                      .is_address_space = true};
	ret->free = mapped < ret->total ? ret->total - mapped : 0;
	return true;
}

/* Reads once; see struct reading. */
static bool look_at_tightest(struct reading *r, struct limit *ret, uint64_t *ret_promised)
{
	uint64_t claimed = __atomic_load_n(&r->host->bytes.claimed, __ATOMIC_RELAXED), in_cgroup;
	struct limit limit = {0}, space;
	struct claimed pages;
	struct cgroup cgroup;
	bool has_cgroup = own_cgroup(r, &cgroup), is_known = read_host(r, ret);

	if (has_cgroup)
		each_limit(r, cgroup, take_less_spare, &limit);
	if (!r->missed)
		__atomic_store_n(&r->host->bytes.cgroup_has_limit, limit.total > 0, __ATOMIC_RELAXED);
	pages = count_pages(r->host);
	*ret_promised = claimed + pages.missing;
	in_cgroup = limit.total ? claimed + promised_in_cgroup(r, &pages, &cgroup) : 0;
	if (limit.total && (!is_known || left_of(&limit, in_cgroup) < left_of(ret, *ret_promised))) {
		*ret = limit;
		*ret_promised = in_cgroup;
		is_known = true;
	}
	if (read_address_space(r, &space) &&
	    (!is_known || left_of(&space, claimed) < left_of(ret, *ret_promised))) {
		*ret = space;
		*ret_promised = claimed; /* pages of files are mapped already */
		is_known = true;
	}
	return is_known;
}

/*
 * Finds the limit that leaves least, and what is promised of it. Limits are read before pages are counted, so
 * pages that are freed in between count twice rather than never.
 */
static bool read_tightest(struct host *h, struct limit *ret, uint64_t *ret_promised)
{
	struct reading r = {.host = h, .missed = true};
	bool is_known = false;

	for (unsigned i = 0; i < LOOK_TRIES && r.missed; i++) {
		r.missed = false;
		is_known = look_at_tightest(&r, ret, ret_promised);
	}
	return is_known;
}

static void take_smaller(struct limit *smallest, const struct limit *other)
{
	if (smallest->total == 0 || other->total < smallest->total)
		*smallest = *other;
}

uint64_t host_memory_total(void)
{
	struct reading r = {.host = &host, .missed = true};
	struct limit smallest = {0};
	struct cgroup cgroup;

	for (unsigned i = 0; i < LOOK_TRIES && r.missed; i++) {
		r.missed = false;
		if (!read_host(&r, &smallest))
			smallest = (struct limit){0};
		if (own_cgroup(&r, &cgroup))
			each_limit(&r, cgroup, take_smaller, &smallest);
	}
	return smallest.total > 0 ? smallest.total : UINT64_MAX;
}

uint64_t host_memory_room(void)
{
	struct limit tightest;
	uint64_t promised;
	int64_t left;

	if (!read_tightest(&host, &tightest, &promised))
		return UINT64_MAX;
	left = left_of(&tightest, promised);
	return left > 0 ? (uint64_t)left : 0;
}

/* ---- Claims ---- */

/*
 * Reading all limits takes 0.1 ms or more, mostly in the kernel. So the last reading is used for a while. In
 * that time our own claims are known, and others are assumed to take or free at most 50 GB/s.
 */
#define DETAILS_BYTES       384
#define LOOK_HOLDS_NS       20000000u
#define OTHERS_BYTES_PER_NS 50u

static struct look latest_look(struct host *h)
{
	struct look last;

	pthread_mutex_lock(&h->look.lock);
	last = h->look.latest;
	pthread_mutex_unlock(&h->look.lock);
	return last;
}

static void keep_look(struct host *h, const struct look *look)
{
	pthread_mutex_lock(&h->look.lock);
	h->look.latest = *look;
	pthread_mutex_unlock(&h->look.lock);
}

static bool holds(const struct look *last, const struct look *now)
{
	return last->at_ns != 0 && now->at_ns - last->at_ns < LOOK_HOLDS_NS;
}

static int64_t others_bytes(const struct look *last, const struct look *now)
{
	return (int64_t)(now->at_ns - last->at_ns) * OTHERS_BYTES_PER_NS;
}

/* Returns true if all claims and `beyond` bytes fit. */
static bool fits(const struct look *last, const struct look *now, uint64_t beyond)
{
	int64_t room = last->left - others_bytes(last, now);
	uint64_t asked = now->asked - last->asked;

	return room >= 0 && asked <= (uint64_t)room && beyond <= (uint64_t)room - asked;
}

/* Returns true if it cannot fit even if all that was released since is free. */
static bool cannot_fit(const struct look *last, const struct look *now, uint64_t beyond)
{
	uint64_t left = (uint64_t)((last->left > 0 ? last->left : 0) + others_bytes(last, now));

	return beyond > left && beyond - left > now->freed - last->freed;
}

/* Clients are strangers to each other, so they are not told what the host has or where kopsd's cgroup is. */
static void tell(const struct look *look, uint64_t mine, uint64_t beyond)
{
	char details[DETAILS_BYTES];

	if (!host.tell)
		return;
	snprintf(details, sizeof details,
	         "cannot reserve %" PRIu64 " bytes: %s has %" PRIu64 " bytes, %" PRIu64 " free (%" PRIu64
	         " kept free, %" PRIu64 " reserved for others)",
	         mine + beyond, look->tightest.what, look->tightest.total, look->tightest.free,
	         kept_free(&look->tightest), look->promised > mine ? look->promised - mine : 0);
	host.tell(details);
}

void host_memory_tell_refusals(void (*fn)(const char *details))
{
	host.tell = fn;
}

static int refuse_bytes(const struct look *look, uint64_t mine, uint64_t beyond, char *why, size_t why_bytes)
{
	tell(look, mine, beyond);
	snprintf(why, why_bytes,
	         "cannot reserve %" PRIu64 " bytes of %s: the rest is in use or reserved; use less, try again "
	         "later, or have kopsd's limit raised",
	         mine + beyond, look->tightest.is_address_space ? "address space" : "memory");
	return KOPS_E_NOMEM;
}

/* Checks that all claims and `beyond` bytes fit; `mine` bytes of the claims are the caller's latest. */
static int check_claims(uint64_t mine, uint64_t beyond, char *why, size_t why_bytes)
{
	struct look last = latest_look(&host);
	struct look look = {.at_ns = clock_ns(),
	                    .asked = __atomic_load_n(&host.bytes.asked, __ATOMIC_RELAXED),
	                    .freed = __atomic_load_n(&host.bytes.freed, __ATOMIC_RELAXED)};

	if (holds(&last, &look) && fits(&last, &look, beyond))
		return 0;
	if (holds(&last, &look) && mine == 0 && cannot_fit(&last, &look, beyond)) /* `last` may include mine */
		return refuse_bytes(&last, mine, beyond, why, why_bytes);
	if (!read_tightest(&host, &look.tightest, &look.promised))
		return 0; /* unknown */
	look.left = left_of(&look.tightest, look.promised);
	keep_look(&host, &look);
	return look.left >= (int64_t)beyond ? 0 : refuse_bytes(&look, mine, beyond, why, why_bytes);
}

int host_memory_check(uint64_t bytes, char *why, size_t why_bytes)
{
	return check_claims(bytes, 0, why, why_bytes);
}

int host_memory_try(uint64_t bytes, char *why, size_t why_bytes)
{
	return check_claims(0, bytes, why, why_bytes);
}

int host_memory_claim(uint64_t bytes, char *why, size_t why_bytes)
{
	int rc;

	__atomic_add_fetch(&host.bytes.claimed, bytes, __ATOMIC_RELAXED);
	__atomic_add_fetch(&host.bytes.asked, bytes, __ATOMIC_RELAXED);
	rc = host_memory_check(bytes, why, why_bytes);
	if (rc < 0)
		host_memory_settle(bytes);
	return rc;
}

bool host_memory_may_grow(struct host_memory_growth *g, uint64_t bytes)
{
	char why[256];

	if (g->checked_bytes > bytes + 2 * GROWTH_BYTES) /* others may have taken what was freed */
		g->checked_bytes = bytes + 2 * GROWTH_BYTES;
	if (bytes <= g->free_bytes || bytes <= g->checked_bytes)
		return true;
	if (host_memory_claim(2 * GROWTH_BYTES, why, sizeof why) < 0)
		return false;
	host_memory_settle(2 * GROWTH_BYTES); /* it is soon touched */
	g->checked_bytes = bytes + GROWTH_BYTES;
	return true;
}

void host_memory_settle(uint64_t bytes)
{
	__atomic_sub_fetch(&host.bytes.claimed, bytes, __ATOMIC_RELAXED);
	__atomic_add_fetch(&host.bytes.freed, bytes, __ATOMIC_RELAXED);
}

void host_memory_set_root(const char *new_root)
{
	host.root = new_root ? new_root : "";
	host.cgroup.found_ns = 0;
	host.look.latest.at_ns = 0;
}

/* ---- Address space ---- */

uint64_t host_memory_max_mappings(void)
{
	const unsigned long kernels_default = 65530;
	struct reading r = {.host = &host, .missed = true};
	unsigned long max;
	char line[64];

	for (unsigned i = 0; i < LOOK_TRIES && r.missed; i++) {
		r.missed = false;
		if (host_files_read_line(host.root, "/proc/sys/vm/max_map_count", line, sizeof line,
		                         &r.missed) &&
		    sscanf(line, "%lu", &max) == 1)
			return max;
	}
	return kernels_default;
}

int host_memory_may_map(uint64_t bytes, char *why, size_t why_bytes)
{
	struct reading r = {.host = &host};
	struct limit space;

	if (!read_address_space(&r, &space) || bytes <= spare(&space))
		return 0;
	return refuse_bytes(&(struct look){.tightest = space}, 0, bytes, why, why_bytes);
}

/* Maps it writable, because only such memory counts as data (RLIMIT_DATA). */
int host_memory_try_map(uint64_t bytes, char *why, size_t why_bytes)
{
	void *at =
	    mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (at == MAP_FAILED) {
		snprintf(why, why_bytes,
		         "cannot map %" PRIu64
		         " bytes of address space; raise the limit (ulimit -v and -d, LimitAS, LimitDATA)",
		         bytes);
		return KOPS_E_NOMEM;
	}
	munmap(at, bytes);
	return 0;
}
