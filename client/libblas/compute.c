/*
 * compute.c: decides which products go to kopsd, whole or by blocks. A whole product writes c only after the
 * job succeeded.
 */
#include "compute.h"

#include <math.h>
#include <stdio.h>

#include "blocks.h"
#include "channel.h"
#include "guard.h"
#include "layout.h"
#include "settings.h"
#include "side.h"

/* ---- The choice ---- */

/* Returns true if kopsd can compute the product. The next BLAS gets the others, errors included. */
static bool is_usual(const struct product *p)
{
	return !p->invalid && p->batch >= 0 && p->m > 0 && p->n > 0 && p->k > 0 &&
	       p->a.ld >= product_rows_of_a(p) && p->b.ld >= product_rows_of_b(p) && p->c.ld >= p->m &&
	       p->alpha != 0 && isfinite(p->alpha) && isfinite(p->beta);
}

static void describe(const struct product *p, struct call *call)
{
	char batch[32] = "";
	if (p->batch > 0)
		snprintf(batch, sizeof batch, "%lld times ", (long long)p->batch);
	snprintf(call->what, sizeof call->what, "%s%lld x %lld x %lld", batch, (long long)p->m, (long long)p->n,
	         (long long)p->k);
}

/* Sets call->outcome if the product does not go to kopsd. */
static bool is_wanted(const struct product *p, struct call *call)
{
	const struct settings *settings = settings_get();
	if (settings->verbose > 1)
		describe(p, call);
	call->outcome = OUTCOME_UNUSUAL;
	if (!is_usual(p))
		return false;
	call->flops = product_flops(p);
	call->outcome = OUTCOME_SMALL;
	if (call->flops / 2 < settings->threshold)
		return false;
	call->outcome = OUTCOME_SLOWER;
	if (settings->automatic)
		call->side = side_of(p->dtype == KOPS_F64, call->flops, product_bytes(p));
	return !call->side || side_choose(call->side);
}

bool compute_is_wanted(const struct product *p, struct call *call)
{
	struct guard guard;
	guard_begin(&guard);
	bool wanted = is_wanted(p, call) && channel_may_be_had(&call->outcome);
	call->side = NULL;
	guard_end(&guard);
	return wanted;
}

/* ---- The product ---- */

static bool compute_whole(struct channel *channel, const struct product *p)
{
	struct layout layout;
	if (!layout_make(p, false, &layout))
		return false;
	kops_buffer *buffer = channel_memory(channel, layout.bytes);
	char *memory = buffer ? kops_data(buffer) : NULL;
	if (!memory)
		return false;
	layout_load(p, &p->a, &layout.a, memory);
	if (!p->b_is_a)
		layout_load(p, &p->b, &layout.b, memory);
	if (p->beta != 0)
		layout_load(p, &p->c, &layout.c, memory);
	kops_job *job = layout_submit(channel, buffer, p, &layout, 0);
	if (!job || channel_wait(channel, job, product_limit_ms(p)) < 0)
		return false;
	layout_store(p, &layout.c, memory);
	return true;
}

/* Sets *ret_outcome to tell whether kopsd computed all of it. Returns false if c is as it was. */
static bool compute_in(struct channel *channel, const struct product *p, product_function *gemm,
                       enum outcome *ret_outcome)
{
	struct blocks blocks;
	int64_t failed = 0;
	bool by_blocks = gemm && blocks_cut(p, &blocks);
	bool done = by_blocks ? blocks_compute(&blocks, channel, gemm, &failed) : compute_whole(channel, p);
	*ret_outcome = done && failed == 0 ? OUTCOME_KOPSD : OUTCOME_FAILED;
	return done;
}

static bool compute(const struct product *p, product_function *gemm, struct call *call, struct hold *hold)
{
	if (!is_wanted(p, call))
		return false;
	struct channel *channel = channel_take(hold, settings_get()->automatic, &call->outcome);
	if (!channel) {
		call->side = NULL;
		return false;
	}
	bool done = compute_in(channel, p, gemm, &call->outcome);
	channel_give(channel);
	return done;
}

bool compute_product(const struct product *p, product_function *gemm, struct call *call)
{
	struct hold hold = {0};
	guard_begin(&hold.guard);
	bool done = compute(p, gemm, call, &hold);
	guard_end(&hold.guard);
	return done;
}
