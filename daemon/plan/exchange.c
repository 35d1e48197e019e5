#include "plan/exchange.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/invariant.h"
#include "base/spin.h"

struct side {
	enum { ABSENT, OFFERED, WITHDRAWN } state;
	enum { UNDECIDED, TAKING, DECIDED } taking;
	struct exchange_offer offer;
	void *taken; /* the mark behind all that it took; NULL: it took nothing */
};

struct exchange {
	pthread_mutex_t
	    lock; /* of all below; held for some instructions, so those who wait look again and again */
	bool is_on;
	struct side sides[2];
};

/* ---- Before both run ---- */

/* Whether part i of both brings the same pieces of shared operands. */
static bool is_same_part(const struct run_op *a, const struct run_op *b, uint32_t i)
{
	unsigned news = op_part_news(&a->args, &a->cut, i) & a->shared.operands;
	struct op_args part_a, part_b;

	if (news != (op_part_news(&b->args, &b->cut, i) & b->shared.operands))
		return false;
	op_part(&a->args, &a->cut, i, &part_a);
	op_part(&b->args, &b->cut, i, &part_b);
	for (unsigned v = 0; v < a->args.op->n_operands; v++)
		if (news >> v & 1 && !view_same(&part_a.views[v], &part_b.views[v]))
			return false;
	return true;
}

static bool have_same_pieces(const struct run_op *a, const struct run_op *b)
{
	if (a->shared.operands == 0 || a->shared.operands != b->shared.operands ||
	    a->cut.n_parts != b->cut.n_parts)
		return false;
	for (uint32_t i = 0; i < a->cut.n_parts; i++)
		if (!is_same_part(a, b, i))
			return false;
	return true;
}

static bool is_streamed(const struct run *run)
{
	return run->n_ops == 1 && run->ops[0].cut.grows && run_is_one_slice(run);
}

struct exchange *exchange_new(struct run *first, struct run *second)
{
	struct exchange *x;

	if (!is_streamed(first) || !is_streamed(second) || !have_same_pieces(&first->ops[0], &second->ops[0]))
		return NULL;
	x = calloc(1, sizeof *x);
	if (!x)
		return NULL;
	pthread_mutex_init(&x->lock, NULL);
	first->exchange = second->exchange = x;
	first->side = 0;
	second->side = 1;
	return x;
}

void exchange_free(struct exchange *x)
{
	if (!x)
		return;
	pthread_mutex_destroy(&x->lock);
	free(x);
}

void exchange_begin(struct exchange *x, bool is_on)
{
	x->is_on = is_on;
	memset(x->sides, 0, sizeof x->sides);
}

bool exchange_is_on(const struct run *run)
{
	return run->exchange && run->exchange->is_on;
}

/* ---- While they start ---- */

static struct side *own(const struct run *run)
{
	return &run->exchange->sides[run->side];
}

static struct side *other(const struct run *run)
{
	return &run->exchange->sides[!run->side];
}

static bool has_answered(const struct run *run)
{
	return other(run)->state != ABSENT;
}

static bool has_decided(const struct run *run)
{
	return other(run)->taking != UNDECIDED;
}

static bool takes_no_more(const struct run *run)
{
	return other(run)->taking != TAKING;
}

/* Under the lock, which others get meanwhile. Returns when it is so, or the time has come. */
static void wait_until(const struct run *run, bool (*is_so)(const struct run *run), uint64_t give_up_ns)
{
	struct spin spin = {0};

	while (!is_so(run) && clock_ns() < give_up_ns) {
		pthread_mutex_unlock(&run->exchange->lock);
		spin_on(&spin, SPIN_LOOKS);
		pthread_mutex_lock(&run->exchange->lock);
	}
}

static uint64_t end_of_wait(void)
{
	return clock_ns() + EXCHANGE_WAIT_US * 1000u;
}

void exchange_offer(const struct run *run, const struct exchange_offer *offer)
{
	pthread_mutex_lock(&run->exchange->lock);
	PRE(own(run)->state == ABSENT);
	own(run)->offer = *offer;
	own(run)->state = OFFERED;
	pthread_mutex_unlock(&run->exchange->lock);
}

const struct exchange_offer *exchange_take(const struct run *run)
{
	bool is_there;

	pthread_mutex_lock(&run->exchange->lock);
	PRE(own(run)->taking == UNDECIDED);
	wait_until(run, has_answered, end_of_wait());
	is_there = other(run)->state == OFFERED;
	own(run)->taking = is_there ? TAKING : DECIDED;
	pthread_mutex_unlock(&run->exchange->lock);
	return is_there ? &other(run)->offer : NULL;
}

void exchange_took(const struct run *run, void *mark)
{
	pthread_mutex_lock(&run->exchange->lock);
	PRE(own(run)->taking == TAKING);
	own(run)->taken = mark;
	own(run)->taking = DECIDED;
	pthread_mutex_unlock(&run->exchange->lock);
}

void *exchange_withdraw(const struct run *run)
{
	void *taken;

	pthread_mutex_lock(&run->exchange->lock);
	PRE(own(run)->taking != TAKING);
	/* One that has offered asks next. */
	if (own(run)->state == OFFERED && other(run)->state == OFFERED)
		wait_until(run, has_decided, end_of_wait());
	own(run)->state = WITHDRAWN;
	own(run)->taking = DECIDED;
	wait_until(run, takes_no_more, UINT64_MAX);
	taken = other(run)->taken;
	pthread_mutex_unlock(&run->exchange->lock);
	return taken;
}
