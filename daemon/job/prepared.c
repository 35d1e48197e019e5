#include "job/prepared.h"

#include <inttypes.h>
#include <malloc.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host_memory.h"
#include "job/memory/buffer.h"
#include "job/plan.h"

#define TRIM_BYTES (1u << 20)
#define ROOM_STEPS 32u /* jobs dropped to make room for one */

/* ---- READY jobs, by last use ---- */

static struct prepared *oldest_of(const struct account *a)
{
	return list_last(&a->ready, struct prepared, link);
}

static void prepared_was_used(struct prepared *p)
{
	if (list_has(&p->link))
		list_remove(&p->link);
	list_push_first(&p->account->ready, &p->link);
}

/* ---- Memory ---- */

static void charge_memory(struct prepared *p, size_t bytes)
{
	p->account->prepared_bytes += bytes;
	p->engine->prepared_bytes += bytes;
}

static bool trim_heap_step(struct task *task)
{
	(void)task;
	malloc_trim(0);
	return true;
}

static void trimmed(struct task *task);

static void trim_heap(struct engine *e, struct account *account)
{
	e->freed.bytes = 0;
	e->freed.account = account;
	account_ref(account);
	e->freed.task = (struct task){.step = trim_heap_step, .done = trimmed};
	workers_submit(e->workers, &account->memory_flow, &e->freed.task);
}

/* More may have been freed meanwhile, or nothing may be left. */
static void trimmed(struct task *task)
{
	struct engine *e = container_of(task, struct engine, freed.task);
	struct account *account = e->freed.account;

	e->freed.account = NULL;
	if (e->freed.bytes >= TRIM_BYTES)
		trim_heap(e, account);
	account_unref(&e->accounts, account);
}

/*
 * The allocator keeps freed memory below memory in use. Returning it takes 0.1 ms for each MiB, in which other
 * threads wait for the allocator. So only that much is returned at once.
 */
static void note_freed(struct engine *e, struct account *account, size_t bytes)
{
	e->freed.bytes += bytes;
	if (e->freed.bytes >= TRIM_BYTES && !e->freed.account)
		trim_heap(e, account);
}

static void refund_memory(struct prepared *p, size_t bytes)
{
	p->account->prepared_bytes -= bytes;
	p->engine->prepared_bytes -= bytes;
	note_freed(p->engine, p->account, bytes);
}

/* The user with most prepared bytes, among those with READY jobs. */
static struct account *richest(const struct engine *e)
{
	struct account *most = NULL, *a;

	list_for_each (a, &e->accounts.all, link)
		if (!list_is_empty(&a->ready) && (!most || a->prepared_bytes > most->prepared_bytes))
			most = a;
	return most;
}

static uint64_t limit_of_all(const struct engine *e)
{
	return e->config->max_prepared < e->prepared_max ? e->config->max_prepared : e->prepared_max;
}

/* Makes room by dropping the least recently used jobs. Returns false if there are none, or if that takes more
 * than ROOM_STEPS, as after a limit was lowered. */
static bool make_room_for_prepared(struct engine *e, struct account *account, uint64_t bytes)
{
	struct account *other = NULL;
	unsigned n = 0;

	while (!account_fits(account->prepared_bytes, bytes, account->limits.max_prepared_per_uid)) {
		if (list_is_empty(&account->ready) || n++ == ROOM_STEPS)
			return false;
		prepared_cool(oldest_of(account));
	}
	while (!account_fits(e->prepared_bytes, bytes, limit_of_all(e))) {
		if (!other || list_is_empty(&other->ready))
			other = richest(e);
		if (!other || n++ == ROOM_STEPS)
			return false;
		prepared_cool(oldest_of(other));
	}
	return host_memory_may_grow(&e->prepared_growth, e->prepared_bytes + bytes);
}

/* ---- The job of one ---- */

static void use_buffers(struct job *job)
{
	for (unsigned i = 0; i < job->uses.n; i++) {
		struct buffer_use *use = &job->uses.list[i];

		use->job = job;
		list_push_first(&use->buffer->prepared_uses, &use->link);
	}
}

static void release_buffers(struct job *job)
{
	for (unsigned i = 0; i < job->uses.n; i++)
		list_remove(&job->uses.list[i].link);
}

/* Plans depend on this: registered buffers are copied another way, or read in place. */
static unsigned count_pinned(const struct job *job)
{
	unsigned n = 0;

	for (unsigned i = 0; i < job->uses.n; i++)
		n += __atomic_load_n(&job->uses.list[i].buffer->of->memory.pin, __ATOMIC_RELAXED) ==
		     MEMORY_PINNED;
	return n;
}

/* Jobs of a dropped buffer become KEPT one by one. */
static bool has_dropped(const struct job *job)
{
	bool any = false;

	for (unsigned i = 0; i < job->uses.n; i++)
		any |= job->uses.list[i].buffer->is_dropped;
	return any;
}

bool prepared_take(struct prepared *p, struct job *job)
{
	if (!make_room_for_prepared(p->engine, p->account, job->bytes))
		return false;
	charge_memory(p, job->bytes);
	p->job = job;
	p->is_told = false;
	p->plans = p->engine->plans;
	p->pinned = count_pinned(job);
	job->prepared = p;
	use_buffers(job);
	prepared_was_used(p);
	return true;
}

void prepared_cool(struct prepared *p)
{
	struct job *job = p->job;

	if (!job)
		return;
	p->job = NULL;
	job->prepared = NULL;
	list_remove(&p->link);
	refund_memory(p, job->bytes);
	release_buffers(job);
	if (job->state != JOB_READY)
		return; /* it is in flight, and is freed at its end */
	job_free(job);
}

/* Releases the buffer from one prepared job. There may be thousands. */
static bool drop_step(struct errand *errand)
{
	struct buffer *b = container_of(errand, struct buffer, errand);

	const struct buffer_use *use = list_first(&b->prepared_uses, struct buffer_use, link);

	if (use) {
		prepared_cool(use->job->prepared);
		return true;
	}
	b->engine->n_dropping--;
	buffer_unref(b);
	return false;
}

void prepared_drop_buffer(struct buffer *b)
{
	b->is_dropped = true;
	if (list_is_empty(&b->prepared_uses)) {
		buffer_unref(b);
		return;
	}
	b->engine->n_dropping++;
	errands_add(&b->account->errands, &b->errand, drop_step);
}

/* Since it was planned, RESIDENT buffers may have taken the memory. In parts it may still fit. */
static bool has_room(const struct job *job)
{
	return job->run.device_bytes <= device_room_bytes(job_device(job)->device);
}

struct job *prepared_ready_job(struct prepared *p)
{
	struct job *job = p->job;

	if (!job || job->state != JOB_READY || !job->settled || job->is_suspect ||
	    p->plans != p->engine->plans || p->pinned != count_pinned(job) ||
	    (p->engine->n_dropping && has_dropped(job)) || !has_room(job) || job_should_move(job))
		return NULL;
	prepared_was_used(p);
	return job;
}

static void note_time(struct prepared *p, const struct run *run)
{
	double us = run->upload_us + run->compute_us + run->download_us;

	if (us > 0)
		shortest_note(&p->took, us);
}

/* A job that once had to wait must not be planned as a long one, which gives way to short ones. */
static double plan_us(const struct prepared *p, const struct run *run)
{
	if (p->took.n == 0)
		return run->plan_us;
	return shortest_is_known(&p->took) ? (double)p->took.us : fmin((double)p->took.us, run->plan_us);
}

void prepared_job_ended(struct job *job)
{
	struct prepared *p = job->prepared;

	if (job->state == JOB_DONE && !job->is_spread)
		note_time(p, &job->run);
	job->run.plan_us = plan_us(p, &job->run);
	job->run.next_op = job->run.next_part = 0;
	job->run.upload_us = job->run.compute_us = job->run.download_us = 0;
	job->run.repeats = true;
	for (unsigned i = 0; i < job->run.n_ops; i++)
		job->ops[i].compute_us = 0;
	job->trial = (struct trial){0};
	job->n_alike = 0;
	job->answer = NULL;
	job->usage = NULL;
	job->is_withdrawn = false;
	job->started_ns = 0;
	job->pauses = 0;
	job->paused_us = 0;
	job->deadline_ns = 0;
	job_move(job, JOB_READY);
}

/* ---- Messages ---- */

void prepared_explain(const struct engine *e, const struct account *account, char why[WHY_BYTES])
{
	snprintf(why, WHY_BYTES,
	         "the limit of memory for prepared jobs is reached: yours use %" PRIu64 " of %" PRIu64
	         " bytes (max-prepared-per-uid)%s; forget some, or have the limit or kopsd's memory raised",
	         account->prepared_bytes, account->limits.max_prepared_per_uid,
	         e->prepared_bytes < limit_of_all(e) ? ", and prepared jobs may use an eighth of kopsd's memory"
	                                             : ", and those of all users reached max-prepared");
}

int prepared_new(struct engine *e, struct account *account, struct idmap *map, const Kops__V1__Submit *submit,
                 const uint8_t *message, size_t bytes, struct prepared **ret_prepared, char why[WHY_BYTES])
{
	uint64_t number = submit->prepare;
	struct prepared *p = idmap_get(map, number);
	int rc;

	if (p)
		prepared_forget(p);
	if (map->count >= PREPARED_MAX) {
		snprintf(why, WHY_BYTES, "this session has %u prepared jobs, the limit; forget some",
		         PREPARED_MAX);
		return KOPS_E_QUOTA;
	}
	if (!make_room_for_prepared(e, account, sizeof *p + bytes)) {
		prepared_explain(e, account, why);
		return KOPS_E_QUOTA;
	}
	p = malloc(sizeof *p + bytes);
	if (!p)
		return KOPS_E_NOMEM;
	rc = idmap_put(map, number, p);
	if (rc < 0) {
		free(p);
		return rc;
	}
	*p = (struct prepared){.engine = e,
	                       .account = account,
	                       .map = map,
	                       .number = number,
	                       .deadline_us = submit->deadline_us,
	                       .message_bytes = bytes};
	account_ref(account);
	memcpy(p->message, message, bytes);
	charge_memory(p, sizeof *p + bytes);
	*ret_prepared = p;
	return 0;
}

void prepared_free(struct prepared *p)
{
	prepared_cool(p);
	refund_memory(p, sizeof *p + p->message_bytes);
	account_unref(&p->engine->accounts, p->account);
	free(p);
}

void prepared_forget(struct prepared *p)
{
	idmap_remove(p->map, p->number);
	prepared_free(p);
}
