/*
 * compute.c: decides which products go to kopsd, whole or by blocks. A whole product writes c only after the
 * job succeeded, unless c is in place and its old content of no use.
 */
#include "compute.h"

#include <stdio.h>

#include "blocks.h"
#include "channel.h"
#include "guard.h"
#include "layout.h"
#include "place.h"
#include "settings.h"

/* ---- The choice ---- */

bool compute_would_gain(struct call *call, enum side_kind kind, kops_dtype dtype, double multiplications,
                        double bytes)
{
	const struct settings *settings = settings_get();
	call->outcome = OUTCOME_SMALL;
	if (multiplications < settings->threshold)
		return false;
	call->outcome = OUTCOME_SLOWER;
	if (settings->automatic)
		call->side = side_of(kind, dtype, call->flops, bytes);
	return !call->side || side_choose(call->side);
}

/* Returns true if kopsd can compute the product. The next BLAS gets the others, errors included. */
static bool is_usual(const struct product *p)
{
	return !p->invalid && p->batch >= 0 && p->m > 0 && p->n > 0 && p->k > 0 &&
	       p->a.ld >= product_rows_of_a(p) && p->b.ld >= product_rows_of_b(p) && p->c.ld >= p->m &&
	       p->alpha != 0 && product_is_finite(p->alpha) && product_is_finite(p->beta);
}

static void describe(const struct product *p, struct call *call)
{
	char batch[32] = "";
	if (p->batch > 0)
		snprintf(batch, sizeof batch, "%lld times ", (long long)p->batch);
	snprintf(call->what, sizeof call->what, "%s%lld x %lld x %lld", batch, (long long)p->m, (long long)p->n,
	         (long long)p->k);
}

/* Sets call->outcome if the product does not go to kopsd. Else *ret_places: what need not be copied. */
static bool is_wanted(const struct product *p, struct call *call, struct places *ret_places)
{
	if (settings_get()->verbose > 1)
		describe(p, call);
	call->outcome = OUTCOME_UNUSUAL;
	if (!is_usual(p))
		return false;
	call->flops = product_flops(p);
	places_find(p, ret_places);
	return compute_would_gain(call, SIDE_PRODUCT, p->dtype, product_multiplications(p),
	                          places_copied_bytes(ret_places, p));
}

bool compute_is_wanted(const struct product *p, struct call *call)
{
	struct guard guard;
	struct places places;
	guard_begin(&guard);
	bool wanted = is_wanted(p, call, &places) && channel_may_be_had(&call->outcome);
	call->side = NULL;
	guard_end(&guard);
	return wanted;
}

/* ---- The product ---- */

struct whole {
	struct channel *channel;
	kops_buffer *buffer;
	const struct product *product;
	struct layout layout;
};

static kops_job *submit_whole(struct whole *w)
{
	return layout_submit(w->channel, w->buffer, w->product, &w->layout, 0);
}

static bool run_in_place(struct whole *w)
{
	bool is_elsewhere;
	const struct place *c = w->layout.c.place;
	place_lend(w->product, w->channel);
	if (place_wait(c, w->product, w->channel, submit_whole(w), &is_elsewhere) < 0)
		return false;
	if (is_elsewhere)
		layout_store(w->product, &w->layout.c, kops_data(c->buffer));
	return true;
}

static bool compute_whole(struct channel *channel, const struct product *p, const struct places *places)
{
	struct whole w = {.channel = channel, .product = p};
	if (!channel_is_open(channel) || !layout_make(p, places, false, &w.layout))
		return false;
	w.buffer = w.layout.bytes > 0 ? channel_memory(channel, w.layout.bytes) : NULL;
	char *memory = w.buffer ? kops_data(w.buffer) : NULL;
	if (!memory && w.layout.bytes > 0)
		return false;
	layout_load(p, &p->a, &w.layout.a, memory);
	if (!p->b_is_a)
		layout_load(p, &p->b, &w.layout.b, memory);
	if (w.layout.c.place)
		return run_in_place(&w);
	if (p->beta != 0)
		layout_load(p, &p->c, &w.layout.c, memory);
	kops_job *job = submit_whole(&w);
	if (job)
		layout_expect(p);
	if (!job || channel_wait(channel, job, product_flops(p)) < 0)
		return false;
	layout_store(p, &w.layout.c, memory);
	return true;
}

/* Sets *ret_outcome to tell whether kopsd computed all of it. Returns false if c is as it was. */
static bool compute_in(struct channel *channel, const struct product *p, const struct places *places,
                       product_function *gemm, enum outcome *ret_outcome)
{
	struct blocks blocks;
	int64_t failed = 0;
	bool by_blocks = gemm && !places->c.part.block && blocks_cut(p, places, &blocks);
	bool done =
	    by_blocks ? blocks_compute(&blocks, channel, gemm, &failed) : compute_whole(channel, p, places);
	*ret_outcome = done && failed == 0 ? OUTCOME_KOPSD : OUTCOME_FAILED;
	return done;
}

static bool compute(const struct product *p, product_function *gemm, struct call *call, struct hold *hold)
{
	struct places places;
	if (!is_wanted(p, call, &places))
		return false;
	struct channel *channel = channel_take(hold, settings_get()->automatic, &call->outcome);
	if (!channel) {
		call->side = NULL;
		return false;
	}
	places_import(&places, p, channel);
	bool done = compute_in(channel, p, &places, gemm, &call->outcome);
	if (done) {
		call->copied_bytes = (uint64_t)places_copied_bytes(&places, p);
		call->used_bytes = (uint64_t)places_used_bytes(&places, p);
	}
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
