/*
 * Tests which jobs may be sent again after a restart (client/libkops/job/repeat.c), and the extents that this
 * uses. The rule is also checked against a model: jobs run on real numbers, interrupted anywhere and repeated.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "libkops/base/view.h"
#include "libkops/job/job.h"
#include "libkops/job/repeat.h"
#include "seed.h"

/* ---- Extents ---- */

static struct operand extent(kops_view view)
{
	struct operand operand = {.view = view};
	client_view_extent(&operand);
	return operand;
}

static void assert_extent(kops_view view, uint64_t lo, uint64_t hi, bool dense)
{
	struct operand o = extent(view);
	assert_int_equal(o.lo, lo);
	assert_int_equal(o.hi, hi);
	assert_int_equal(o.dense, dense);
}

static void test_extents(void **state)
{
	(void)state;
	const uint64_t shape[] = {2, 3, 4}, huge[] = {1ull << 40, 1ull << 40}, none[] = {5, 0, 7};
	assert_extent(kops_matrix(NULL, 8, KOPS_F32, 2, 3, 0), 8, 32, true);
	assert_extent(kops_matrix(NULL, 8, KOPS_F32, 2, 3, 10), 8, 8 + 4 * 13, false);
	assert_extent(kops_transposed(kops_matrix(NULL, 8, KOPS_F64, 2, 3, 0)), 8, 8 + 48, true);
	assert_extent(kops_tensor(NULL, 0, KOPS_F16, 3, shape), 0, 48, true);
	assert_extent(kops_tensor(NULL, 0, KOPS_F32, 3, none), 0, 0, false);
	assert_extent(kops_tensor(NULL, 0, KOPS_F32, 2, huge), 0, UINT64_MAX, false);

	kops_view down = kops_matrix(NULL, 100, KOPS_F32, 2, 3, 0);
	down.strides[0] = -3;
	assert_extent(down, 100 - 12, 100 + 12, true);
	down.strides[0] = INT64_MIN;
	assert_extent(down, 0, UINT64_MAX, false);
	down.strides[0] = 0;
	assert_extent(down, 100, 112, false);
	down.strides[0] = -30; /* would leave the buffer at its start */
	assert_extent(down, 0, UINT64_MAX, false);
	kops_view odd = kops_matrix(NULL, 0, (kops_dtype)9, 2, 3, 0);
	assert_extent(odd, 0, UINT64_MAX, false);
}

static void test_views(void **state)
{
	(void)state;
	const uint64_t shape[] = {2, 3, 4};
	kops_view t = kops_tensor(NULL, 16, KOPS_BF16, 3, shape);
	assert_int_equal(t.strides[0], 12);
	assert_int_equal(t.strides[1], 4);
	assert_int_equal(t.strides[2], 1);
	kops_view x = kops_transposed(t);
	assert_int_equal(x.shape[0], 2);
	assert_int_equal(x.shape[1], 4);
	assert_int_equal(x.shape[2], 3);
	assert_int_equal(x.strides[1], 1);
	assert_int_equal(x.strides[2], 4);
	t.rank = 1;
	assert_int_equal(kops_transposed(t).rank, 0);
	assert_int_equal(kops_dtype_size(KOPS_F16), 2);
	assert_int_equal(kops_dtype_size(KOPS_F64), 8);
	assert_int_equal(kops_dtype_size((kops_dtype)0), 0);
	assert_int_equal(kops_matrix(NULL, 0, KOPS_F32, 2, 3, 0).strides[0], 3);

	Kops__V1__View wire;
	kops_buffer buffer = {.id = 7};
	t = kops_tensor(&buffer, 16, KOPS_F32, 3, shape);
	client_view_encode(&t, &wire);
	assert_int_equal(wire.buffer, 7);
	assert_int_equal(wire.n_strides, 0);
	t.strides[2] = -1;
	client_view_encode(&t, &wire);
	assert_int_equal(wire.n_strides, 3);
}

/* ---- A handle without a connection ---- */

static int handle_setup(void **state)
{
	kops *k = calloc(1, sizeof *k);
	if (!k)
		return -1;
	k->owner = getpid();
	k->link.sock.number = -1;
	k->timeout_ms = 1000;
	k->link.give_up_us = CLIENT_NEVER;
	k->jobs.ops_max = MESSAGE_OPS_MAX;
	k->wire.outbox_end = &k->wire.outbox;
	links_init(&k->buffers.list);
	links_init(&k->jobs.all);
	links_init(&k->jobs.out);
	*state = k;
	return 0;
}

static int handle_teardown(void **state)
{
	kops_close(*state);
	return 0;
}

static kops_buffer *buffer(kops *k)
{
	kops_buffer *b = calloc(1, sizeof *b);
	assert_non_null(b);
	b->k = k;
	b->id = ++k->buffers.last;
	b->fd.number = -1;
	b->state = BUFFER_READY;
	links_append(&k->buffers.list, &b->node);
	return b;
}

static kops_job *job_in(kops *k, uint32_t queue)
{
	kops_job_options options = {.size = sizeof options, .queue = queue};
	kops_job *job;
	assert_int_equal(kops_job_new(k, &options, &job), 0);
	return job;
}

static void submit(kops_job *job, bool sent)
{
	assert_int_equal(kops_submit(job, NULL, NULL), 0);
	job->sent = sent;
}

/* Returns a view of n elements from element `at`. */
static kops_view row(kops_buffer *b, uint64_t at, uint64_t n)
{
	return kops_matrix(b, 4 * at, KOPS_F32, 1, n, 0);
}

static void copy(kops_job *job, kops_view x, kops_view y)
{
	assert_int_equal(kops_job_copy(job, x, y, NULL), 0);
}

static bool repeatable(kops_job *job)
{
	client_repeat_decide(job->k);
	return job->repeatable;
}

static void test_within_one_job(void **state)
{
	kops *k = *state;
	kops_buffer *a = buffer(k), *b = buffer(k), *c = buffer(k);
	kops_job *plain = job_in(k, 0), *in_place = job_in(k, 1), *beta = job_in(k, 2), *chain = job_in(k, 3);
	kops_job *ring = job_in(k, 4), *halves = job_in(k, 5), *disjoint = job_in(k, 6), *empty = job_in(k, 7);

	copy(plain, row(a, 0, 4), row(b, 0, 4));
	submit(plain, true);
	assert_true(repeatable(plain));

	kops_buffer *d = buffer(k);
	assert_int_equal(kops_job_softmax(in_place, row(d, 0, 4), row(d, 0, 4), 1, false, NULL), 0);
	submit(in_place, true);
	assert_false(repeatable(in_place));
	in_place->sent = false; /* it was not sent, so it can be */
	assert_true(repeatable(in_place));
	in_place->sent = true;

	kops_buffer *e = buffer(k);
	assert_int_equal(
	    kops_job_gemm(beta, 1, row(a, 0, 1), row(a, 1, 1), 0.5, row(e, 0, 1), KOPS_PRECISION_F32, NULL), 0);
	submit(beta, true);
	assert_false(repeatable(beta));

	/* c is made, changed in place and read within one job. */
	copy(chain, row(a, 0, 4), row(c, 0, 4));
	assert_int_equal(kops_job_softmax(chain, row(c, 0, 4), row(c, 0, 4), 1, false, NULL), 0);
	copy(chain, kops_transposed(row(c, 0, 4)), kops_transposed(row(c, 8, 4)));
	submit(chain, true);
	assert_true(repeatable(chain));

	kops_buffer *f = buffer(k), *g = buffer(k);
	copy(ring, row(f, 0, 4), row(g, 0, 4));
	copy(ring, row(g, 0, 4), row(f, 2, 4));
	submit(ring, true);
	assert_false(repeatable(ring));

	/* Two ops make one input of the third; nothing changes it later. */
	kops_buffer *h = buffer(k);
	copy(halves, row(a, 0, 2), row(h, 0, 2));
	copy(halves, row(a, 2, 2), row(h, 2, 2));
	copy(halves, row(h, 0, 4), row(h, 8, 4));
	submit(halves, true);
	assert_true(repeatable(halves));

	kops_buffer *i = buffer(k);
	copy(disjoint, row(i, 0, 4), row(i, 4, 4));
	submit(disjoint, true);
	assert_true(repeatable(disjoint));

	kops_buffer *j = buffer(k);
	copy(empty, row(j, 0, 0), row(j, 0, 0));
	submit(empty, true);
	assert_true(repeatable(empty));
}

static void test_over_several_jobs(void **state)
{
	kops *k = *state;
	kops_buffer *a = buffer(k), *b = buffer(k), *c = buffer(k);
	kops_job *make = job_in(k, 0), *use = job_in(k, 0), *spoil = job_in(k, 0), *other = job_in(k, 9);

	copy(make, row(a, 0, 4), row(b, 0, 4));
	copy(use, row(b, 0, 4), row(c, 0, 4));
	submit(make, true);
	submit(use, true);
	assert_true(repeatable(make));
	assert_true(repeatable(use));

	/*
	 * A later job overwrites the first one's input, so that input and all that depends on it cannot be made
	 * again.
	 */
	copy(spoil, row(c, 0, 4), row(a, 3, 4));
	submit(spoil, true);
	assert_false(repeatable(make));
	assert_false(repeatable(use));
	assert_false(repeatable(spoil));
	spoil->sent = false;
	assert_true(repeatable(make));
	assert_true(repeatable(use));
	assert_true(repeatable(spoil));

	/*
	 * Another queue's job that reads this one's output may have run before or after, so it cannot be
	 * repeated.
	 */
	copy(other, row(b, 0, 1), row(c, 16, 1));
	submit(other, true);
	assert_false(repeatable(other));
}

static void test_limits(void **state)
{
	kops *k = *state;
	kops_buffer *a = buffer(k);
	kops_job *job = job_in(k, 0);
	copy(job, row(a, 0, 4), row(a, 4, 4));
	submit(job, true);
	job->deaths = CLIENT_DEATHS_MAX - 1;
	assert_true(repeatable(job));
	job->deaths = CLIENT_DEATHS_MAX;
	assert_false(repeatable(job));
	job->deaths = 1;
	job->cancelled = true;
	assert_false(repeatable(job));
}

/* ---- Against a model ---- */

#define CELLS 12 /* elements of one buffer */
#define JOBS  4
#define OPS   3

static uint64_t random_state;
static uint32_t random_below(uint32_t n)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(random_state >> 33) % n;
}

/* Stores a function of the inputs of op `write`; any function that depends on all of them will do. */
static void run_op(uint64_t *memory, const kops_job *job, uint32_t op)
{
	uint64_t hash = job->id * 1000 + op;
	for (size_t i = 0; i < job->n_operands; i++) {
		const struct operand *o = &job->operands[i];
		for (uint64_t at = o->lo / 4; o->op == op && !o->written && at < o->hi / 4; at++)
			hash = (hash ^ memory[at]) * 0x9e3779b97f4a7c15u + at;
	}
	for (size_t i = 0; i < job->n_operands; i++) {
		const struct operand *o = &job->operands[i];
		for (uint64_t at = o->lo / 4; o->op == op && o->written && at < o->hi / 4; at++)
			memory[at] = hash + at;
	}
}

/* With one queue: what a repeated job wrote must be what an undisturbed run would have written. */
static bool try_once(kops *k)
{
	uint64_t once[CELLS], twice[CELLS];
	kops_job *jobs[JOBS];
	kops_buffer *b = buffer(k);
	unsigned sent_again = 0;
	for (unsigned i = 0; i < JOBS; i++) {
		jobs[i] = job_in(k, 0);
		for (unsigned op = 0; op < OPS; op++) {
			uint32_t x = random_below(CELLS - 1), y = random_below(CELLS - 1);
			uint32_t nx = 1 + random_below(2), ny = 1 + random_below(2);
			assert_int_equal(
			    kops_job_add(jobs[i], row(b, x, nx), row(b, x, nx), row(b, y, ny), NULL), 0);
		}
		submit(jobs[i], true);
	}
	client_repeat_decide(k);
	for (unsigned i = 0; i < JOBS; i++)
		sent_again |= (unsigned)jobs[i]->repeatable << i;

	for (unsigned stop = 0; stop <= JOBS * OPS; stop++) {
		for (unsigned at = 0; at < CELLS; at++)
			once[at] = twice[at] = at * 77;
		for (unsigned i = 0; i < stop; i++)
			run_op(twice, jobs[i / OPS], i % OPS);
		for (unsigned i = 0; i < JOBS; i++) {
			for (unsigned op = 0; op < OPS; op++) {
				run_op(once, jobs[i], op);
				if (!(sent_again & 1u << i))
					continue;
				run_op(twice, jobs[i], op);
				for (size_t n = 0; n < jobs[i]->n_operands; n++) {
					const struct operand *o = &jobs[i]->operands[n];
					if (o->op == op && o->written && once[o->lo / 4] != twice[o->lo / 4])
						fail_msg("job %u op %u, interrupted after %u ops", i, op, stop);
				}
			}
		}
	}
	while (!links_is_empty(&k->jobs.all))
		client_job_destroy(LINKS_ENTRY(k->jobs.all.next, kops_job, node));
	kops_free(b);
	return sent_again != 0 && sent_again != (1u << JOBS) - 1;
}

static void test_repeated_jobs_give_the_same(void **state)
{
	kops *k = *state;
	unsigned mixed = 0;
	random_state = seed_of_run();
	print_message("seed: KOPS_TEST_SEED=%llu\n", (unsigned long long)random_state);
	for (unsigned i = 0; i < 20000; i++)
		mixed += try_once(k);
	print_message("%u of 20000 had jobs of both kinds\n", mixed);
	assert_true(mixed > 300);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, handle_setup, handle_teardown)
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_extents),
	    cmocka_unit_test(test_views),
	    TEST(test_within_one_job),
	    TEST(test_over_several_jobs),
	    TEST(test_limits),
	    TEST(test_repeated_jobs_give_the_same),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
