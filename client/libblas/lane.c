/* lane.c: handles, their memory and their jobs. */
#include "lane.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LANES       8
#define JOBS        8
#define MEMORY_STEP (UINT64_C(1) << 20)
#define ROOMY_CALLS 64   /* after so many that used less than a quarter, the memory is replaced */
#define CONNECT_MS  2000 /* reconnecting after a death included */
#define SPIN_US     50
#define AWAY_NS     INT64_C(5000000000)  /* after a failure kopsd is left alone */
#define NO_GPU_NS   INT64_C(60000000000) /* a daemon that has no GPU hardly gets one */

struct lane {
	_Atomic bool taken;
	kops *k;
	kops_buffer *memory;
	unsigned roomy;
	struct {
		struct job_key key;
		kops_job *job;
	} jobs[JOBS];
	unsigned next_job;
};

static struct lane lanes[LANES];
static _Atomic int64_t leave_until_ns;
static _Atomic int leave_why = OUTCOME_AWAY;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static char *socket_path; /* NULL: as libkops finds it */

static void leave_alone(enum outcome why)
{
	leave_why = why;
	leave_until_ns = routine_now_ns() + (why == OUTCOME_NO_GPU ? NO_GPU_NS : AWAY_NS);
}

/* ---- fork() ---- */

static void forget(struct lane *l)
{
	l->k = NULL;
	l->memory = NULL;
	l->roomy = l->next_job = 0;
	memset(l->jobs, 0, sizeof l->jobs);
}

/* Frees the buffers and jobs too. */
static void lane_close(struct lane *l)
{
	kops_close(l->k);
	forget(l);
}

/* A copy left open would keep the parent's session alive when the parent is gone. */
static void close_copies(void)
{
	for (struct lane *l = lanes; l < lanes + LANES; l++) {
		if (l->taken)
			forget(l);
		else
			lane_close(l);
		l->taken = false;
	}
}

/* Handles are opened now and then, and the program may make another folder the current one meanwhile. */
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
}

/* ---- Handles ---- */

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

static bool lane_open(struct lane *l, bool needs_gpu)
{
	char name[64];
	strncpy(name, program_invocation_short_name, sizeof name - 1);
	name[sizeof name - 1] = 0;
	pthread_once(&once, begin);
	const kops_options options = {.size = sizeof options,
	                              .socket = socket_path,
	                              .name = name,
	                              .timeout_ms = CONNECT_MS,
	                              .spin_us = SPIN_US};
	int status = kops_open(&l->k, &options, NULL, 0);
	if (status < 0) {
		l->k = NULL;
		leave_alone(OUTCOME_AWAY);
		return false;
	}
	if (!needs_gpu || has_gpu(l->k))
		return true;
	lane_close(l);
	leave_alone(OUTCOME_NO_GPU);
	return false;
}

static bool is_mine_now(struct lane *l)
{
	return !l->taken && !atomic_exchange(&l->taken, true);
}

bool lane_may_be_had(enum outcome *ret_why)
{
	bool left_alone = leave_until_ns && routine_now_ns() < leave_until_ns;
	if (left_alone)
		*ret_why = (enum outcome)leave_why;
	return !left_alone;
}

struct lane *lane_take(bool needs_gpu, enum outcome *ret_why)
{
	struct lane *l = lanes;
	if (!lane_may_be_had(ret_why))
		return NULL;
	*ret_why = OUTCOME_TAKEN;
	while (l < lanes + LANES && !is_mine_now(l))
		l++;
	if (l == lanes + LANES)
		return NULL;
	if (l->k || lane_open(l, needs_gpu))
		return l;
	*ret_why = (enum outcome)leave_why;
	lane_give(l);
	return NULL;
}

void lane_give(struct lane *l)
{
	l->taken = false;
}

/* ---- Memory ---- */

static void free_jobs(struct lane *l)
{
	for (int i = 0; i < JOBS; i++) {
		kops_job_free(l->jobs[i].job);
		l->jobs[i].job = NULL;
	}
}

static bool fits(struct lane *l, uint64_t bytes)
{
	if (!l->memory || kops_size(l->memory) < bytes)
		return false;
	l->roomy = kops_size(l->memory) / 4 > bytes ? l->roomy + 1 : 0;
	return l->roomy < ROOMY_CALLS;
}

kops_buffer *lane_memory(struct lane *l, uint64_t bytes)
{
	if (fits(l, bytes))
		return l->memory;
	free_jobs(l);
	kops_free(l->memory);
	l->memory = NULL;
	l->roomy = 0;
	/* An eighth more, as matrices of a program differ. */
	bytes = (bytes + bytes / 8 + MEMORY_STEP - 1) / MEMORY_STEP * MEMORY_STEP;
	int status = kops_alloc(l->k, bytes, KOPS_SHARED, NULL, &l->memory);
	if (status == KOPS_E_CONNECT || status == KOPS_E_TIMEOUT) {
		lane_close(l);
		leave_alone(OUTCOME_AWAY);
	}
	return status < 0 ? NULL : l->memory;
}

/* ---- Jobs ---- */

/* A place for a new job: of the oldest that is not out. */
static unsigned next_place(struct lane *l)
{
	unsigned place;
	do
		place = l->next_job++ % JOBS;
	while (l->jobs[place].job && kops_job_is_out(l->jobs[place].job));
	return place;
}

kops_job *lane_job(struct lane *l, const struct job_key *key, bool *ret_new)
{
	const kops_job_options options = {.size = sizeof options, .queue = key->queue};
	for (int i = 0; i < JOBS; i++)
		if (l->jobs[i].job && memcmp(&l->jobs[i].key, key, sizeof *key) == 0) {
			*ret_new = false;
			return l->jobs[i].job;
		}
	unsigned place = next_place(l);
	kops_job_free(l->jobs[place].job);
	l->jobs[place].job = NULL;
	if (kops_job_new(l->k, &options, &l->jobs[place].job) < 0)
		return NULL;
	l->jobs[place].key = *key;
	*ret_new = true;
	return l->jobs[place].job;
}

void lane_drop(struct lane *l, kops_job *job)
{
	for (int i = 0; i < JOBS; i++)
		if (l->jobs[i].job == job)
			l->jobs[i].job = NULL;
	kops_job_free(job);
}

int lane_wait(struct lane *l, kops_job *job, int limit_ms)
{
	int status = kops_wait(job, limit_ms);
	if (status == KOPS_E_CONNECT || status == KOPS_E_TIMEOUT) {
		lane_close(l);
		leave_alone(OUTCOME_AWAY);
	} else if (status < 0) {
		lane_drop(l, job);
	}
	return status;
}

bool lane_is_open(const struct lane *l)
{
	return l->k != NULL;
}
