/* lent.c: buffers of segments that the pool lends. */
#include <stdio.h>

#include "job/engine.h"
#include "job/memory/buffer.h"

/* ---- Memory that goes ---- */

static void segment_released(void *arg)
{
	buffer_gone(arg);
}

/*
 * A client may outlive its session, for example when kopsd restarts. It then imports the memory in its next
 * session and expects the content to be there. So only memory that was dropped is zeroed and lent again. Other
 * memory counts as the user's for as long as anybody has it.
 */
static void release_segment(struct buffer *b)
{
	b->segment->pinned = b->memory.pin == MEMORY_PINNED; /* a job may have pinned it */
	if (b->is_dropped)
		pool_take_back(b->segment, &b->account->memory_flow, segment_released, b);
	else
		pool_let_go(b->segment, b->account, segment_released, b);
}

static void cancel_segment(struct buffer *b)
{
	pool_cancel(b->segment);
}

static const struct buffer_kind lent = {
    .account = ACCOUNT_MAPPED, .cancel = cancel_segment, .release = release_segment};

/* ---- Lending ---- */

static void adopt_segment(struct buffer *b, struct segment *segment)
{
	b->segment = segment;
	b->file_bytes = segment->bytes;
	b->pages.fd = segment->fd;
	b->pages.is_foreign = true; /* a client may punch a page out, write it again, and so pay for it */
	b->memory.host = segment->map;
	b->memory.pin = segment->pinned ? MEMORY_PINNED : MEMORY_PAGEABLE;
	buffer_settle_pin(b);
}

int buffer_lend_kept(struct buffer *b, struct segment *segment, char why[WHY_BYTES])
{
	int rc = buffer_charge(b, segment->bytes, why);

	if (rc < 0) {
		pool_let_go(segment, b->account, NULL, NULL);
		return rc;
	}
	b->kind = &lent;
	b->pin_charged = segment->pinned && buffer_charge_pin(b);
	adopt_segment(b, segment);
	return 0;
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
	buffer_settle(b, status);
}

int buffer_lend(struct engine *engine, struct account *account, uint64_t bytes, struct buffer **ret_buffer,
                char why[WHY_BYTES])
{
	struct buffer *b = buffer_new(&lent, engine, account, bytes);
	bool ready;
	int rc;

	if (!b) {
		snprintf(why, WHY_BYTES, "kopsd is out of memory");
		return KOPS_E_NOMEM;
	}
	rc = buffer_charge(b, bytes > INT64_MAX ? bytes : pool_segment_bytes(bytes), why);
	if (rc < 0)
		goto fail;
	b->pin_charged = engine->pinning && buffer_charge_pin(b);
	b->segment = pool_lend(engine->pool, account->uid, &account->memory_flow, bytes, b->pin_charged,
	                       segment_ready, b, &ready);
	if (!b->segment) {
		snprintf(why, WHY_BYTES, "kopsd is out of memory");
		rc = KOPS_E_NOMEM;
		goto fail;
	}
	if (ready) {
		adopt_segment(b, b->segment);
		b->state = BUFFER_READY;
	} else {
		engine_take_memory(engine, b->segment->bytes);
		b->refs++; /* the making holds one */
	}
	*ret_buffer = b;
	return 0;
fail:
	buffer_delete(b);
	return rc;
}
