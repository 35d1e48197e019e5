/*
 * Two threads that exchange operands: whatever one of them does, or does not, the other goes on, and nobody
 * takes from memory that is another run's by then.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "plan/exchange.h"
#include "plan/layout.h"
#include "seed.h"

static uint64_t random_state;

static uint64_t pick(uint64_t n)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return (random_state >> 33) % n;
}

/* ---- Two runs ---- */

struct pair {
	struct memory memory;
	struct run_op ops[2];
	struct run runs[2];
	struct exchange *x;
};

static struct view rows_of(struct memory *memory, uint64_t first, uint64_t rows, uint64_t columns)
{
	struct view v = {.dtype = KOPS_F32, .rank = 2, .shape = {rows, columns}, .space = memory};

	view_make_dense(&v);
	v.offset = first * columns * sizeof(float);
	return v;
}

/* The upper rows of a product of 64³, and the lower ones. */
static void plan_pair(struct pair *p, unsigned upper)
{
	const struct growth how = {.wanted = 6, .skew = 1};
	char why[WHY_BYTES];

	*p = (struct pair){0};
	for (unsigned i = 0; i < 2; i++) {
		struct op_args *args = &p->ops[i].args;
		uint64_t first = i ? upper : 0, rows = i ? 64 - upper : upper;

		args->op = op_by_name("gemm");
		args->params.gemm.alpha = 1;
		args->views[0] = rows_of(&p->memory, first, rows, 64);
		args->views[1] = rows_of(&p->memory, 64, 64, 64);
		*op_output(args) = rows_of(&p->memory, 128 + first, rows, 64);
		assert_int_equal(op_check(args, why), 0);
		assert_true(op_cut_growing(args, &how, &p->ops[i].cut));
		p->ops[i].shared.operands = 1u << 1;
		p->ops[i].plan_us = PART_US;
		p->runs[i] = (struct run){.ops = &p->ops[i], .n_ops = 1};
	}
}

static void begin(struct pair *p)
{
	plan_pair(p, 32);
	p->x = exchange_new(&p->runs[0], &p->runs[1]);
	assert_non_null(p->x);
	assert_ptr_equal(p->runs[0].exchange, p->x);
	assert_ptr_equal(p->runs[1].exchange, p->x);
	assert_int_equal(p->runs[0].side + p->runs[1].side, 1);
	exchange_begin(p->x, true);
}

static void only_alike_runs_in_one_slice_exchange(void **state)
{
	struct pair p;

	(void)state;
	for (unsigned what = 0; what < 8; what++) {
		plan_pair(&p, 32);
		switch (what) {
		case 0:
			p.ops[0].shared.operands = p.ops[1].shared.operands = 0;
			break;
		case 1:
			p.ops[1].shared.operands = 3;
			break;
		case 2:
			p.ops[1].cut.grows = false;
			break;
		case 3:
			p.runs[0].n_ops = 2;
			break;
		case 4:
			p.ops[0].plan_us *= 1.01;
			break;
		case 5: /* the first operands of both are others */
			p.ops[0].shared.operands = p.ops[1].shared.operands = 1;
			break;
		case 6:
			p.ops[1].cut.axes[2].chunk += 1;
			break;
		default:
			plan_pair(&p, 8); /* has other parts */
			break;
		}
		assert_null(exchange_new(&p.runs[0], &p.runs[1]));
	}
	plan_pair(&p, 32);
	p.x = exchange_new(&p.runs[0], &p.runs[1]);
	assert_non_null(p.x);
	exchange_begin(p.x, false);
	assert_false(exchange_is_on(&p.runs[0]));
	exchange_begin(p.x, true);
	assert_true(exchange_is_on(&p.runs[1]));
	exchange_free(p.x);
	exchange_free(NULL);
	p.runs[0].exchange = NULL;
	assert_false(exchange_is_on(&p.runs[0]));
}

/* ---- One run alone ---- */

static void nobody_waits_for_one_that_does_not_start(void **state)
{
	struct exchange_offer offer = {0};
	struct pair p;
	uint64_t since;

	(void)state;
	begin(&p);
	since = clock_ns();
	exchange_offer(&p.runs[0], &offer);
	assert_null(exchange_take(&p.runs[0]));
	assert_true(clock_ns() - since >= EXCHANGE_WAIT_US * 1000u);
	assert_null(exchange_withdraw(&p.runs[0]));
	/* It does at last: it finds that there is nothing to wait for. */
	exchange_offer(&p.runs[1], &offer);
	assert_null(exchange_take(&p.runs[1]));
	assert_null(exchange_withdraw(&p.runs[1]));
	/* The next time both are there. */
	exchange_begin(p.x, true);
	exchange_offer(&p.runs[0], &offer);
	exchange_offer(&p.runs[1], &offer);
	assert_non_null(exchange_take(&p.runs[0]));
	exchange_took(&p.runs[0], &p);
	assert_non_null(exchange_take(&p.runs[1]));
	exchange_took(&p.runs[1], &since);
	assert_ptr_equal(exchange_withdraw(&p.runs[0]), &since);
	assert_ptr_equal(exchange_withdraw(&p.runs[1]), &p);
	exchange_free(p.x);
}

static void nobody_waits_for_one_that_has_failed(void **state)
{
	struct exchange_offer offer = {0};
	struct pair p;

	(void)state;
	begin(&p);
	assert_null(exchange_withdraw(&p.runs[1])); /* before it offered anything */
	exchange_offer(&p.runs[0], &offer);
	assert_null(exchange_take(&p.runs[0]));
	assert_null(exchange_withdraw(&p.runs[0]));
	exchange_begin(p.x, true);
	exchange_offer(&p.runs[1], &offer);
	exchange_offer(&p.runs[0], &offer);
	assert_non_null(exchange_take(&p.runs[0])); /* what was offered is there */
	exchange_took(&p.runs[0], &p);
	assert_ptr_equal(exchange_withdraw(&p.runs[1]), &p); /* before it took anything */
	assert_null(exchange_withdraw(&p.runs[0]));
	assert_null(exchange_withdraw(&p.runs[0])); /* again */
	exchange_free(p.x);
}

/* ---- Two threads ---- */

enum end { NEVER_STARTS, FAILS_FIRST, FAILS_WITH_OFFER, TAKES_NOTHING, TAKES, ENDS };

struct party {
	const struct run *run;
	struct party *other;
	enum end end;
	unsigned late_us, takes_us;
	bool has_memory; /* atomic: what it offers is its own */
	bool took, was_told;
};

static void pause_us(unsigned us)
{
	if (us > 0)
		usleep(us);
}

static void take(struct party *me)
{
	const struct exchange_offer *offer = exchange_take(me->run);

	if (!offer)
		return;
	assert_ptr_equal(offer->images[1], me->other);
	pause_us(me->takes_us);
	assert_true(__atomic_load_n(&me->other->has_memory, __ATOMIC_RELAXED));
	me->took = true;
	exchange_took(me->run, &me->took);
}

static void *act(void *arg)
{
	struct party *me = arg;
	struct exchange_offer offer = {.images[1] = (const char *)me};
	void *mark;

	if (me->end == NEVER_STARTS)
		return NULL;
	pause_us(me->late_us);
	if (me->end > FAILS_FIRST)
		exchange_offer(me->run, &offer);
	if (me->end > FAILS_WITH_OFFER)
		take(me);
	mark = exchange_withdraw(me->run);
	assert_true(!mark || mark == &me->other->took);
	me->was_told = mark;
	__atomic_store_n(&me->has_memory, false, __ATOMIC_RELAXED);
	return NULL;
}

static void whoever_takes_keeps_the_others_memory(void **state)
{
	unsigned took = 0, took_nothing = 0;
	struct pair p;

	(void)state;
	random_state = seed_of_run();
	begin(&p);
	for (unsigned round = 0; round < 600; round++) {
		struct party parties[2];
		pthread_t threads[2];

		exchange_begin(p.x, true);
		for (unsigned i = 0; i < 2; i++)
			parties[i] = (struct party){.run = &p.runs[i],
			                            .other = &parties[!i],
			                            .end = pick(2) ? TAKES : (enum end)pick(ENDS),
			                            .late_us = (unsigned)(pick(4) ? pick(20) : pick(1500)),
			                            .takes_us = (unsigned)(pick(4) ? 0 : pick(1500)),
			                            .has_memory = true};
		for (unsigned i = 0; i < 2; i++)
			assert_int_equal(pthread_create(&threads[i], NULL, act, &parties[i]), 0);
		for (unsigned i = 0; i < 2; i++)
			pthread_join(threads[i], NULL);
		for (unsigned i = 0; i < 2; i++) {
			assert_int_equal(parties[i].took, parties[!i].was_told);
			took += parties[i].took;
			took_nothing += !parties[i].took;
		}
	}
	assert_true(took > 20 && took_nothing > 20);
	exchange_free(p.x);
}

/* ---- Halves ---- */

static void halves_are_the_whole(void **state)
{
	(void)state;
	random_state = seed_of_run();
	for (unsigned round = 0; round < 1000; round++) {
		uint64_t rows = 1 + pick(9), columns = 1 + pick(9), pitch = columns + pick(3), seen = 0;
		struct view host = {.dtype = KOPS_F32, .rank = 2, .shape = {rows, columns}}, image = host;
		unsigned char counts[81] = {0};
		char memory[81 * 4];

		host.strides[1] = image.strides[1] = 1;
		host.strides[0] = (int64_t)pitch;
		image.strides[0] = (int64_t)columns;
		image.data = memory;
		if (pick(2)) {
			host.strides[0] *= -1;
			image.strides[0] *= -1;
			host.offset = (rows - 1) * pitch * 4;
			image.data = memory + (rows - 1) * columns * 4;
		}
		for (unsigned half = 0; half < 2; half++) {
			struct layout l;
			uint64_t up;

			assert_ptr_equal(layout_of_part(&host, &image, &l), memory);
			up = layout_halve(&l, half) / 4;
			for (uint64_t i = 0; i < l.bytes / 4; i++) {
				uint64_t at = up, rest = i;

				for (uint32_t d = 0; d < l.rank; rest /= l.extent[d++])
					at += rest % l.extent[d] * l.image_stride[d];
				counts[at]++;
			}
			seen += l.bytes / 4;
			assert_true(l.lowest % (pitch * 4) == 0 || l.rank == 1);
		}
		assert_int_equal(seen, rows * columns);
		for (uint64_t i = 0; i < rows * columns; i++)
			assert_int_equal(counts[i], 1);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(only_alike_runs_in_one_slice_exchange),
	    cmocka_unit_test(nobody_waits_for_one_that_does_not_start),
	    cmocka_unit_test(nobody_waits_for_one_that_has_failed),
	    cmocka_unit_test(whoever_takes_keeps_the_others_memory),
	    cmocka_unit_test(halves_are_the_whole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
