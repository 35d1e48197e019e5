/* channel.c: handles, their memory and their jobs. */
#include "channel.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "heap/imports.h"

#define CHANNELS     8
#define JOBS         8
#define MEMORY_STEP  (UINT64_C(1) << 20)
#define ROOMY_CALLS  64   /* calls that use less than a quarter of the memory, after which it is replaced */
#define CONNECT_MS   2000 /* includes reconnecting after a death */
#define SPIN_US      50
#define LIMIT_MS     2000
#define FLOPS_PER_MS 1e6                   /* speed of a slow core, beyond whose time a job is given up */
#define AWAY_NS      INT64_C(5000000000)   /* how long kopsd is left alone after a failure */
#define AWAY_NS_MAX  INT64_C(320000000000) /* the pause doubles after each failure for which a call waited */
#define LONG_NS      INT64_C(100000000)    /* a call that took longer has waited */
#define NO_GPU_NS    INT64_C(60000000000)  /* a daemon without a GPU hardly ever gets one */
#define MARK         UINT64_C(0x8d3f5b1c00000000) /* plus a number, on the stack of a call that has a channel */

struct channel {
	const void *_Atomic owner;        /* the thread that has the channel, by the address of its `self` */
	const struct hold *volatile hold; /* the owner's; has this mark while the owner's call lives */
	uint64_t mark;
	int cancellation; /* the owner's cancellation state before the call */
	int64_t since_ns;
	kops *k;
	kops_buffer *memory;
	unsigned roomy;
	struct imports imports;
	void *volatile lent; /* the program's memory that a job may write; NULL: none */
	volatile uint64_t lent_bytes;
	bool doubts_imports; /* a job failed, perhaps since a descriptor is lost: they are dropped after the
	                        call */
	struct {
		struct job_key key;
		kops_job *job;
	} jobs[JOBS];
	unsigned next_job;
};

static struct channel channels[CHANNELS];
static _Thread_local char self;
static _Atomic uint32_t marks;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t at_thread_end;
static char *socket_path; /* NULL: libkops chooses */

/* ---- Leaving kopsd alone ---- */

static _Atomic int64_t leave_until_ns, failed_ns, away_ns = AWAY_NS;
static _Atomic int leave_why = OUTCOME_AWAY;

static void leave_alone(const struct channel *l, enum outcome why)
{
	int64_t ns = why == OUTCOME_NO_GPU ? NO_GPU_NS : away_ns, now = routine_now_ns();
	if (l->since_ns < failed_ns)
		return; /* another thread waited at the same time */
	failed_ns = now;
	leave_why = why;
	leave_until_ns = now + ns;
	if (why == OUTCOME_AWAY && now - l->since_ns > LONG_NS)
		away_ns = 2 * ns < AWAY_NS_MAX ? 2 * ns : AWAY_NS_MAX;
}

static void answered(void)
{
	if (away_ns != AWAY_NS)
		away_ns = AWAY_NS;
	if (leave_until_ns)
		leave_until_ns = 0;
}

bool channel_may_be_had(enum outcome *ret_why)
{
	bool left_alone = leave_until_ns && routine_now_ns() < leave_until_ns;
	if (left_alone)
		*ret_why = (enum outcome)leave_why;
	return !left_alone;
}

/*
 * Lets one thread check whether kopsd answers once the pause is over. Until then, and during the check, the
 * others leave it alone.
 */
static bool may_look(enum outcome *ret_why)
{
	int64_t until = leave_until_ns;
	if (until == 0)
		return true;
	*ret_why = (enum outcome)leave_why;
	int64_t now = routine_now_ns();
	return now >= until &&
	       atomic_compare_exchange_strong(&leave_until_ns, &until, now + CONNECT_MS * INT64_C(1000000));
}

/* ---- fork() ---- */

static void forget(struct channel *l)
{
	l->k = NULL;
	l->memory = NULL;
	l->roomy = l->next_job = 0;
	l->imports.n = 0;
	l->doubts_imports = false;
	l->lent = NULL;
	memset(l->jobs, 0, sizeof l->jobs);
}

/* Frees the buffers and jobs too. */
static void channel_close(struct channel *l)
{
	kops_close(l->k);
	forget(l);
}

/* Closes the copies: left open, they would keep the parent's session alive after the parent ended. */
static void close_copies(void)
{
	for (struct channel *l = channels; l < channels + CHANNELS; l++) {
		if (l->owner)
			forget(l);
		else
			channel_close(l);
		l->owner = NULL;
	}
}

/* ---- Calls that are gone ---- */

static bool is_on_other_stack(void)
{
	stack_t stack;
	return sigaltstack(NULL, &stack) < 0 || (stack.ss_flags & SS_ONSTACK);
}

/*
 * Returns true if the call that took this thread's channel may still be running beneath the present one, as
 * when a signal handler computes a product. Its frame then lies above, and its mark is intact.
 */
__attribute__((no_sanitize("address"))) static bool is_under_way(const struct channel *l,
                                                                 const struct hold *now)
{
	if (!l->hold) /* a signal handler interrupted taking or giving the channel */
		return true;
	if ((uintptr_t)now >= (uintptr_t)l->hold)
		return is_on_other_stack();
	return l->hold->mark == l->mark;
}

static void keep_lent(const struct channel *l)
{
	if (l->lent)
		heap_keep(l->lent, l->lent_bytes);
}

/*
 * Closes a handle that may have been left in any state: kops_close() reads nothing that a call left half done.
 */
static void abandon(struct channel *l)
{
	keep_lent(l);
	channel_close(l);
	l->owner = NULL;
}

/*
 * Abandons the channels of this thread's calls that are gone, and restores the cancellation state that they had
 * disabled.
 */
static void abandon_gone(struct hold *now)
{
	for (struct channel *l = channels; l < channels + CHANNELS; l++) {
		if (l->owner != &self || is_under_way(l, now))
			continue;
		if (l->cancellation == PTHREAD_CANCEL_ENABLE)
			now->guard.cancellation = PTHREAD_CANCEL_ENABLE;
		abandon(l);
	}
}

static void end_thread(void *unused)
{
	(void)unused;
	for (struct channel *l = channels; l < channels + CHANNELS; l++)
		if (l->owner == &self)
			abandon(l);
}

static bool is_mine_now(struct channel *l)
{
	const void *nobody = NULL;
	return !l->owner && atomic_compare_exchange_strong(&l->owner, &nobody, &self);
}

/* ---- Lent memory ---- */

static _Atomic int n_lent; /* may be too large, after calls that were left */

void channel_lend(struct channel *l, void *memory, uint64_t bytes)
{
	l->lent_bytes = bytes;
	l->lent = memory;
	n_lent += memory ? 1 : -1;
}

void channel_before_jump(void)
{
	for (struct channel *l = channels; l < channels + CHANNELS && n_lent > 0; l++)
		if (l->owner == &self)
			keep_lent(l);
}

/* ---- Imported memory ---- */

static void drop_import(struct channel *l, struct import *import)
{
	uint64_t block = import->block;
	for (int i = 0; i < JOBS; i++) {
		const struct job_key *key = &l->jobs[i].key;
		if (l->jobs[i].job &&
		    (key->a_block == block || key->b_block == block || key->c_block == block)) {
			kops_job_free(l->jobs[i].job);
			l->jobs[i].job = NULL;
		}
	}
	imports_drop(&l->imports, import);
}

/* Drops what is of no use any more. Returns heap_releases() as of then. */
static uint64_t drop_stale(struct channel *l)
{
	struct import *import;
	uint64_t seen = heap_releases();
	while (l->doubts_imports && l->imports.n > 0)
		drop_import(l, l->imports.at);
	l->doubts_imports = false;
	while (seen != l->imports.seen && (import = imports_stale(&l->imports)))
		drop_import(l, import);
	l->imports.seen = seen;
	return seen;
}

/* Drops imports of free channels. Those of others are dropped when their calls end. Within free(). */
static void drop_released(void)
{
	struct guard guard;
	sigset_t signals;
	guard_begin(&guard);
	guard_block_signals(&signals);
	for (struct channel *l = channels; l < channels + CHANNELS; l++)
		if (is_mine_now(l)) {
			drop_stale(l);
			l->owner = NULL;
		}
	guard_restore_signals(&signals);
	guard_end(&guard);
}

kops_buffer *channel_import(struct channel *l, const struct heap_part *part, uint64_t wanted_bytes)
{
	struct import *import = l->k ? imports_find(&l->imports, part->block) : NULL;
	if (import || !l->k)
		return import ? import->buffer : NULL;
	struct import *old = imports_in_the_way(&l->imports);
	if (old)
		drop_import(l, old);
	int status = imports_add(&l->imports, l->k, part, wanted_bytes);
	if (status == KOPS_E_CONNECT || status == KOPS_E_TIMEOUT) {
		channel_close(l);
		leave_alone(l, OUTCOME_AWAY);
	}
	import = status == 0 ? imports_find(&l->imports, part->block) : NULL;
	return import ? import->buffer : NULL;
}

/* ---- Handles ---- */

/*
 * Makes the path absolute, since handles are opened at any time and the program may change its current folder.
 */
static void keep_socket_path(void)
{
	const char *path = getenv("KOPS_SOCKET");
	char folder[PATH_MAX];
	if (!path || !path[0] || path[0] == '/' || !getcwd(folder, sizeof folder) ||
	    asprintf(&socket_path, "%s/%s", folder, path) < 0)
		socket_path = NULL;
}

static void begin(void)
{
	keep_socket_path();
	pthread_atfork(NULL, NULL, close_copies);
	pthread_key_create(&at_thread_end, end_thread);
	heap_tell_releases(drop_released);
}

static bool has_gpu(kops *k)
{
	kops_info *info;
	const kops_device_info *device;
	bool found = false;
	if (kops_query(k, &info) < 0)
		return false;
	for (size_t i = 0; (device = kops_info_device(info, i)); i++)
		found = found || strcmp(device->name, "cpu") != 0;
	kops_info_free(info);
	return found;
}

static bool channel_open(struct channel *l, bool needs_gpu)
{
	char name[64];
	strncpy(name, program_invocation_short_name, sizeof name - 1);
	name[sizeof name - 1] = 0;
	const kops_options options = {.size = sizeof options,
	                              .socket = socket_path,
	                              .name = name,
	                              .timeout_ms = CONNECT_MS,
	                              .spin_us = SPIN_US};
	/*
	 * Waits only once the channel has the handle: if a signal handler leaves by longjmp(), it can still be
	 * closed.
	 */
	if (kops_open_start(&l->k, &options, NULL, 0) < 0 || kops_ping(l->k) < 0) {
		channel_close(l);
		leave_alone(l, OUTCOME_AWAY);
		return false;
	}
	answered();
	if (!needs_gpu || has_gpu(l->k))
		return true;
	channel_close(l);
	leave_alone(l, OUTCOME_NO_GPU);
	return false;
}

static void mark_hold(struct channel *l, struct hold *hold)
{
	hold->mark = l->mark = MARK + ++marks;
	l->hold = hold;
	l->cancellation = hold->guard.cancellation;
	l->since_ns = routine_now_ns();
}

struct channel *channel_take(struct hold *hold, bool needs_gpu, enum outcome *ret_why)
{
	struct channel *l = channels;
	pthread_once(&once, begin);
	abandon_gone(hold);
	if (!may_look(ret_why))
		return NULL;
	*ret_why = OUTCOME_TAKEN;
	while (l < channels + CHANNELS && !is_mine_now(l))
		l++;
	if (l == channels + CHANNELS)
		return NULL;
	mark_hold(l, hold);
	pthread_setspecific(at_thread_end, &self);
	if (l->k || channel_open(l, needs_gpu))
		return l;
	*ret_why = (enum outcome)leave_why;
	channel_give(l);
	return NULL;
}

void channel_give(struct channel *l)
{
	struct hold *hold = (struct hold *)(uintptr_t)l->hold;
	uint64_t seen = drop_stale(l);
	l->hold = NULL;
	hold->mark = 0;
	l->owner = NULL;
	/* Who released memory a moment ago found the channel taken. */
	if (heap_releases() != seen)
		drop_released();
}

/* ---- Memory ---- */

static void free_jobs(struct channel *l)
{
	for (int i = 0; i < JOBS; i++) {
		kops_job_free(l->jobs[i].job);
		l->jobs[i].job = NULL;
	}
}

static bool fits(struct channel *l, uint64_t bytes)
{
	if (!l->memory || kops_size(l->memory) < bytes)
		return false;
	l->roomy = kops_size(l->memory) / 4 > bytes ? l->roomy + 1 : 0;
	return l->roomy < ROOMY_CALLS;
}

kops_buffer *channel_memory(struct channel *l, uint64_t bytes)
{
	if (fits(l, bytes))
		return l->memory;
	free_jobs(l);
	kops_free(l->memory);
	l->memory = NULL;
	l->roomy = 0;
	/* Allocates an eighth more, since a program's matrices vary in size. */
	bytes = (bytes + bytes / 8 + MEMORY_STEP - 1) / MEMORY_STEP * MEMORY_STEP;
	int status = kops_alloc(l->k, bytes, KOPS_SHARED, NULL, &l->memory);
	if (status == KOPS_E_CONNECT || status == KOPS_E_TIMEOUT) {
		channel_close(l);
		leave_alone(l, OUTCOME_AWAY);
	}
	return status < 0 ? NULL : l->memory;
}

/* ---- Jobs ---- */

/* Returns the slot of the oldest job that is not out. */
static unsigned next_slot(struct channel *l)
{
	unsigned slot;
	do
		slot = l->next_job++ % JOBS;
	while (l->jobs[slot].job && kops_job_is_out(l->jobs[slot].job));
	return slot;
}

kops_job *channel_job(struct channel *l, const struct job_key *key, bool *ret_new)
{
	const kops_job_options options = {.size = sizeof options, .queue = key->queue};
	for (int i = 0; i < JOBS; i++)
		if (l->jobs[i].job && memcmp(&l->jobs[i].key, key, sizeof *key) == 0) {
			*ret_new = false;
			return l->jobs[i].job;
		}
	unsigned slot = next_slot(l);
	kops_job_free(l->jobs[slot].job);
	l->jobs[slot].job = NULL;
	if (kops_job_new(l->k, &options, &l->jobs[slot].job) < 0)
		return NULL;
	l->jobs[slot].key = *key;
	*ret_new = true;
	return l->jobs[slot].job;
}

void channel_drop(struct channel *l, kops_job *job)
{
	for (int i = 0; i < JOBS; i++)
		if (l->jobs[i].job == job)
			l->jobs[i].job = NULL;
	kops_job_free(job);
}

int channel_wait(struct channel *l, kops_job *job, double flops)
{
	double limit_ms = LIMIT_MS + flops / FLOPS_PER_MS;
	int status = kops_wait(job, limit_ms < INT_MAX ? (int)limit_ms : INT_MAX);
	if (status == KOPS_E_CONNECT || status == KOPS_E_TIMEOUT) {
		channel_close(l);
		leave_alone(l, OUTCOME_AWAY);
	} else if (status < 0) {
		channel_drop(l, job);
		l->doubts_imports = true;
	} else {
		answered();
	}
	return status;
}

bool channel_is_open(const struct channel *l)
{
	return l->k != NULL;
}
