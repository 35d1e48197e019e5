/*
 * repeat.c: which jobs may run a second time.
 *
 * When the connection is lost, the daemon may have run any part of what was sent and not answered. Sending it
 * again is right if every op reads the values that it read, or would have read, the first time. Ops that are
 * sent again write the same values again. So a view that is read is safe if an earlier op of its job overwrites
 * all of it. Otherwise it is safe if both of these hold:
 *   - No op that may have run at the same time or later writes any of it, unless an earlier job of its queue
 *     that is sent again overwrites all of it.
 *   - No earlier job of its queue that is not sent again writes any of it.
 * Everything else is left to the caller. Ranges of bytes may be too large, never too small.
 */
#include "libkops/job/repeat.h"

static bool overlaps(const struct operand *a, const struct operand *b)
{
	return a->view.buffer == b->view.buffer && a->lo < b->hi && b->lo < a->hi;
}

static bool is_same_view(const kops_view *a, const kops_view *b)
{
	if (a->offset != b->offset || a->dtype != b->dtype || a->rank != b->rank)
		return false;
	for (uint32_t d = 0; d < a->rank; d++)
		if (a->shape[d] != b->shape[d] || a->strides[d] != b->strides[d])
			return false;
	return true;
}

/* Returns true if op `write` overwrites everything that `read` reads. */
static bool covers(const struct operand *write, const struct operand *read)
{
	if (!write->written || write->view.buffer != read->view.buffer)
		return false;
	if (write->dense && write->lo <= read->lo && read->hi <= write->hi)
		return true;
	return is_same_view(&write->view, &read->view);
}

/* Returns true if an op of the job in [begin, end) does something to what is read. */
static bool any(const kops_job *job, uint32_t begin, uint32_t end, const struct operand *read,
                bool (*does)(const struct operand *, const struct operand *))
{
	for (size_t i = 0; i < job->n_operands; i++) {
		const struct operand *write = &job->operands[i];
		if (write->written && write->op >= begin && write->op < end && does(write, read))
			return true;
	}
	return false;
}

static bool is_safe(const kops *k, const kops_job *job, const struct operand *read)
{
	bool before = true, changed = false, produced = false, missing = false;
	if (any(job, 0, read->op, read, covers))
		return true;
	for (const struct links *at = k->jobs.out.next; at != &k->jobs.out; at = at->next) {
		const kops_job *other = LINKS_ENTRY(at, kops_job, out);
		before = before && other != job;
		if (before && other->queue == job->queue) {
			produced |= other->repeatable && any(other, 0, UINT32_MAX, read, covers);
			missing |= !other->repeatable && any(other, 0, UINT32_MAX, read, overlaps);
		} else {
			changed |=
			    other->sent && any(other, other == job ? read->op : 0, UINT32_MAX, read, overlaps);
		}
	}
	return !missing && (!changed || produced);
}

static bool is_repeatable(const kops *k, const kops_job *job)
{
	if (job->sent && (job->cancelled || job->deaths >= CLIENT_DEATHS_MAX))
		return false;
	for (size_t i = 0; i < job->n_operands; i++)
		if (!job->operands[i].written && !is_safe(k, job, &job->operands[i]))
			return false;
	return true;
}

/* Goes in order of submission, since a job asks about earlier ones. */
void client_repeat_decide(kops *k)
{
	for (struct links *at = k->jobs.out.next; at != &k->jobs.out; at = at->next) {
		kops_job *job = LINKS_ENTRY(at, kops_job, out);
		job->repeatable = is_repeatable(k, job);
	}
}
