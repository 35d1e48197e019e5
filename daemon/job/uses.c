#include "job/uses.h"

#include <inttypes.h>
#include <stdio.h>

#include "job/engine.h"

struct buffer *uses_pending(const struct uses *uses)
{
	for (unsigned i = 0; i < uses->n; i++)
		if (uses->list[i].buffer->state == BUFFER_PENDING)
			return uses->list[i].buffer;
	return NULL;
}

/* ---- The start ---- */

/* The KOPS_E_* of a buffer that the job cannot be run with, or 0. */
static int spoiled(const struct uses *uses, char why[WHY_BYTES])
{
	for (unsigned i = 0; i < uses->n; i++) {
		const struct buffer_use *use = &uses->list[i];

		if (use->buffer->state == BUFFER_FAILED) {
			snprintf(why, WHY_BYTES, "%s", use->buffer->why);
			return use->buffer->failure;
		}
		if (use->buffer->lost && use->reads) {
			snprintf(why, WHY_BYTES,
			         "the content of RESIDENT buffer %" PRIu64
			         " was lost when kopsd restarted; write all of it with one op first",
			         use->buffer->id);
			return KOPS_E_LOST;
		}
		if (use->writes && buffer_is_frozen(use->buffer)) /* since the job was bound */
			return buffer_refuse_write(use->buffer, why);
	}
	return 0;
}

static void settle_pages(struct uses *uses)
{
	for (unsigned i = 0; i < uses->n; i++) {
		struct buffer_use *use = &uses->list[i];

		if (use->claimed_bytes)
			buffer_settle_pages(use->buffer->of, use->claimed_bytes);
		use->claimed_bytes = 0;
	}
}

/* Claims each buffer once, and all of it if the device registers buffers. */
uint64_t uses_claim(struct uses *uses, bool pins)
{
	uint64_t more = 0;

	for (unsigned i = 0; i < uses->n; i++) {
		struct buffer_use *use = &uses->list[i];

		if (use->claimed_bytes)
			continue;
		use->claimed_bytes = pins ? use->buffer->memory.bytes : use->reach_bytes;
		more += buffer_claim_pages(use->buffer->of, use->claimed_bytes);
	}
	return more;
}

/*
 * Pages of shared buffers may be missing, because nobody wrote them or their owner punched holes. They are
 * charged to the daemon when the job touches them. Holes may also come while the job runs. So if memory is
 * short, the job claims all that its views reach.
 */
static int claim_memory(struct uses *uses, struct engine *engine, bool pins, char why[WHY_BYTES])
{
	uint64_t more = engine_memory_is_ample(engine) ? 0 : uses_claim(uses, pins);
	int rc = more ? host_memory_check(more, why, WHY_BYTES) : 0;

	if (rc < 0)
		settle_pages(uses);
	return rc;
}

/* From now on later jobs may read what this one writes, because a device keeps the order of a queue. */
static void fill_lost(struct uses *uses)
{
	for (unsigned i = 0; i < uses->n; i++) {
		struct buffer_use *use = &uses->list[i];

		use->was_lost = use->fills && use->buffer->lost;
		if (use->was_lost)
			use->buffer->lost = false;
	}
}

static void count_jobs(const struct uses *uses, int change)
{
	for (unsigned i = 0; i < uses->n; i++) {
		struct buffer *b = uses->list[i].buffer;

		b->jobs_out += (unsigned)change;
		b->jobs_beside += uses->beside ? (unsigned)change : 0;
		b->writers_out += uses->list[i].writes ? (unsigned)change : 0;
		POST(b->jobs_beside <= b->jobs_out);
	}
}

int uses_start(struct uses *uses, struct engine *engine, bool pins, bool *ret_pin, char why[WHY_BYTES])
{
	int rc = spoiled(uses, why);

	if (rc == 0)
		rc = claim_memory(uses, engine, pins, why);
	if (rc < 0)
		return rc;
	fill_lost(uses);
	count_jobs(uses, 1);
	*ret_pin = false;
	for (unsigned i = 0; pins && i < uses->n; i++)
		*ret_pin |= uses->list[i].pin = buffer_wants_pin(uses->list[i].buffer->of);
	return 0;
}

bool uses_meet(const struct uses *uses, bool beside)
{
	for (unsigned i = 0; i < uses->n; i++) {
		const struct buffer *b = uses->list[i].buffer;

		if ((beside ? b->jobs_beside : b->jobs_out) > 0)
			return true;
	}
	return false;
}

void uses_pin(const struct uses *uses, const struct driver *driver)
{
	for (unsigned i = 0; i < uses->n; i++)
		if (uses->list[i].pin)
			buffer_pin(uses->list[i].buffer->of, driver);
}

/* ---- The end ---- */

/* Marks RESIDENT buffers as lost again that this job would have restored. */
static void undo_fills(struct uses *uses)
{
	for (unsigned i = 0; i < uses->n; i++)
		if (uses->list[i].was_lost)
			uses->list[i].buffer->lost = true;
}

/* From now on the CPU has the job's pages mapped. */
static void note_reached(const struct uses *uses)
{
	for (unsigned i = 0; i < uses->n; i++) {
		struct memory *m = &uses->list[i].buffer->of->memory;

		if (m->reached_bytes < uses->list[i].reach_bytes)
			m->reached_bytes = uses->list[i].reach_bytes;
	}
}

void uses_end(struct uses *uses, bool done)
{
	count_jobs(uses, -1);
	for (unsigned i = 0; i < uses->n; i++)
		if (uses->list[i].pin)
			buffer_settle_pin(uses->list[i].buffer->of);
	settle_pages(uses);
	if (done)
		note_reached(uses);
	else
		undo_fills(uses);
}
