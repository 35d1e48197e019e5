#include "job/memory/buffer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "job/engine.h"
#include "share/closing.h"

/* Below this a pageable copy costs less than registering (0.1 ms even for one page, measured on an H200). */
#define PIN_WORTH_BYTES (256ull << 10)

struct buffer *buffer_new(const struct buffer_kind *kind, struct engine *engine, struct account *account,
                          uint64_t bytes)
{
	struct buffer *b = calloc(1, sizeof *b);

	if (!b)
		return NULL;
	b->kind = kind;
	b->of = b;
	b->engine = engine;
	b->account = account;
	b->refs = 1;
	b->fd = b->pages.fd = -1;
	b->memory.bytes = bytes;
	account_ref(account);
	account->buffers++;
	engine->n_buffers++;
	return b;
}

/* The buffer counts no more. */
static void uncount(struct buffer *b)
{
	struct accounts *all = &b->engine->accounts;

	account_refund(all, b->account, b->kind->account, b->charged_bytes);
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

void buffer_delete(struct buffer *b)
{
	uncount(b);
	buffer_free(b);
}

int buffer_charge(struct buffer *b, uint64_t bytes, char why[WHY_BYTES])
{
	int rc = account_charge(&b->engine->accounts, b->account, b->kind->account, bytes, why);

	if (rc == 0)
		b->charged_bytes = bytes;
	return rc;
}

bool buffer_charge_pin(struct buffer *b)
{
	return account_charge(&b->engine->accounts, b->account, ACCOUNT_PINNED, b->memory.bytes, NULL) == 0;
}

/* ---- PENDING and its end ---- */

void buffer_settle(struct buffer *b, int failure)
{
	b->failure = failure;
	b->state = failure ? BUFFER_FAILED : BUFFER_READY;
	if (b->settled)
		b->settled(b);
	if (!list_is_empty(&b->waiting))
		b->engine->buffer_settled(b);
	b->engine->progress(b->engine);
	buffer_unref(b); /* the reference of the making */
}

/* Ends the making where nobody will use the buffer, and nobody waits for an answer. */
static void cancel_if_unwanted(struct buffer *b)
{
	if (b->state != BUFFER_PENDING || b->refs > 1 || b->settled)
		return;
	b->kind->cancel(b);
}

void buffer_forget_session(struct buffer *b)
{
	b->settled = NULL;
	b->session = NULL;
	cancel_if_unwanted(b);
}

/* ---- The end ---- */

static struct buffer *of_errand(struct errand *errand)
{
	return container_of(errand, struct buffer, errand);
}

static bool free_step(struct errand *errand)
{
	buffer_free(of_errand(errand));
	return false;
}

/* Answering the Drop takes a turn, and thousands of buffers may go at once. */
void buffer_gone(struct buffer *b)
{
	uncount(b);
	errands_add(&b->account->errands, &b->errand, free_step);
}

bool buffer_unmap_piece(struct buffer *b, void *mapping, uint64_t all)
{
	uint64_t left = all - b->at;
	uint64_t bytes = left < WORKERS_UNMAKE_BYTES ? left : WORKERS_UNMAKE_BYTES;

	munmap((char *)mapping + b->at, bytes);
	b->at += bytes;
	return b->at == all;
}

void buffer_unmap(struct buffer *b, bool (*step)(struct task *task), void (*done)(struct task *task))
{
	b->at = 0;
	b->task.begin = NULL;
	b->task.step = step;
	b->task.done = done;
	workers_submit(b->engine->workers, &b->account->memory_flow, &b->task);
}

static void release(struct buffer *b)
{
	if (b->state == BUFFER_FAILED) {
		buffer_gone(b);
		return;
	}
	b->state = BUFFER_RELEASING;
	b->kind->release(b);
}

void buffer_unref(struct buffer *b)
{
	if (--b->refs == 0)
		release(b);
	else
		cancel_if_unwanted(b);
}

/* ---- What is frozen ---- */

int buffer_refuse_write(const struct buffer *b, char why[WHY_BYTES])
{
	if (b->of != b)
		snprintf(why, WHY_BYTES, "buffer %" PRIu64 " is attached; only its publisher may write it",
		         b->id);
	else if (b->memory.read_only)
		snprintf(why, WHY_BYTES, "buffer %" PRIu64 " was imported read-only", b->id);
	else
		snprintf(why, WHY_BYTES,
		         "buffer %" PRIu64 " is %s, so no op may write it; %s, or write another buffer", b->id,
		         b->n_names ? "published" : "still attached by others",
		         b->n_names ? "unpublish it" : "wait until they have dropped it");
	return KOPS_E_READONLY;
}

/* ---- Pages of jobs ---- */

void buffer_hold(struct buffer *b)
{
	struct memory *m = &b->of->memory;

	b->refs++;
	if (m->missing_bytes)
		m->missing_bytes = host_memory_missing(b->of->pages.fd, m->bytes);
}

static uint64_t set_reached(struct buffer *b, uint64_t bytes)
{
	uint64_t whole = (b->memory.bytes + HOST_PAGE_BYTES - 1) / HOST_PAGE_BYTES * HOST_PAGE_BYTES;

	b->reached_by_jobs = bytes;
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

/* ---- Pinning ---- */

bool buffer_wants_pin(struct buffer *b)
{
	if (b->device || !b->engine->pinning || b->pin_charged || b->memory.bytes < PIN_WORTH_BYTES ||
	    __atomic_load_n(&b->memory.pin, __ATOMIC_ACQUIRE) != MEMORY_PAGEABLE)
		return false;
	b->pin_charged = buffer_charge_pin(b);
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
