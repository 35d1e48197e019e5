/* Tests how a Submit's ops become a job's: what they say about each buffer, and how they are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "decode.h"
#include "session/bind.h"

enum { PAGE = HOST_PAGE_BYTES, PAGES = 64, BUFFERS = 3, OPS = 4, FLOATS = PAGES * PAGE / 4 };

struct fixture {
	struct engine engine;
	struct account account;
	struct session session;
	struct job_queues queues;
	struct buffer buffers[BUFFERS]; /* with ids 1, 2, … */
	struct request request;
	struct job *job;
	/* The message, whose ops are added one by one. */
	Kops__V1__Submit submit;
	Kops__V1__Op ops[OPS], *op_list[OPS];
	Kops__V1__Add adds[OPS];
	Kops__V1__View views[OPS][3];
	uint64_t shapes[OPS][3][KOPS_RANK_MAX + 1];
	int64_t strides[OPS][3][KOPS_RANK_MAX + 1];
};

static int group_setup(void **state)
{
	char why[WHY_BYTES];

	(void)state;
	return decode_open(why);
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof *f);

	f->account.refs = 1;
	f->session.engine = &f->engine;
	f->session.account = &f->account;
	f->request.session = &f->session;
	for (unsigned i = 0; i < BUFFERS; i++) {
		f->buffers[i] = (struct buffer){.engine = &f->engine,
		                                .account = &f->account,
		                                .state = BUFFER_READY,
		                                .of = &f->buffers[i],
		                                .refs = 2,
		                                .fd = -1,
		                                .id = i + 1,
		                                .memory.bytes = PAGES * PAGE};
		if (idmap_put(&f->session.buffers, i + 1, &f->buffers[i]) < 0)
			return -1;
	}
	f->submit = (Kops__V1__Submit)KOPS__V1__SUBMIT__INIT;
	f->submit.ops = f->op_list;
	f->job = job_new(&f->engine, &f->account, &f->queues, 0, OPS, 3 * OPS);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	job_free(f->job);
	for (unsigned i = 0; i < BUFFERS; i++)
		assert_int_equal(f->buffers[i].refs, 2);
	assert_int_equal(f->account.refs, 1);
	job_queues_forget(&f->queues);
	idmap_clear(&f->session.buffers);
	free(f);
	return 0;
}

/* Sets a view of one row of floats. */
static void set_view(struct fixture *f, unsigned op, unsigned v, uint64_t buffer, uint64_t offset, uint64_t n)
{
	Kops__V1__View *view = &f->views[op][v];

	*view = (Kops__V1__View)KOPS__V1__VIEW__INIT;
	view->buffer = buffer;
	view->offset = offset;
	view->dtype = KOPS__V1__DTYPE__F32;
	view->shape = f->shapes[op][v];
	view->strides = f->strides[op][v];
	view->n_shape = 1;
	view->shape[0] = n;
}

/* Adds an op: y = a + b of n floats, each in one of these buffers at its first byte. */
static unsigned add_op(struct fixture *f, uint64_t a, uint64_t b, uint64_t y, uint64_t n)
{
	unsigned i = (unsigned)f->submit.n_ops++;

	set_view(f, i, 0, a, 0, n);
	set_view(f, i, 1, b, 0, n);
	set_view(f, i, 2, y, 0, n);
	f->adds[i] = (Kops__V1__Add)KOPS__V1__ADD__INIT;
	f->adds[i].a = &f->views[i][0], f->adds[i].b = &f->views[i][1], f->adds[i].y = &f->views[i][2];
	f->ops[i] = (Kops__V1__Op)KOPS__V1__OP__INIT;
	f->ops[i].params_case = KOPS__V1__OP__PARAMS_ADD;
	f->ops[i].add = &f->adds[i];
	f->op_list[i] = &f->ops[i];
	return i;
}

static int bind_all(struct fixture *f)
{
	return bind_ops(&f->request, &f->submit, f->job, 0, (unsigned)f->submit.n_ops);
}

static const struct buffer_use *use_of(const struct fixture *f, uint64_t id)
{
	for (unsigned i = 0; i < f->job->uses.n; i++)
		if (f->job->uses.list[i].buffer->id == id)
			return &f->job->uses.list[i];
	fail_msg("buffer %u is not used", (unsigned)id);
	return NULL;
}

/* Checks a message with one op, an add. */
static void check_refused(struct fixture *f, int code, const char *sentence)
{
	static const char op[] = "op 1 of 1 (add): ";

	assert_int_equal(bind_all(f), code);
	assert_memory_equal(f->request.why, op, sizeof op - 1);
	assert_string_equal(f->request.why + sizeof op - 1, sentence);
	assert_int_equal(f->job->uses.n, 0);
}

/* ---- A job's uses ---- */

static void views_lie_where_the_message_says(void **state)
{
	struct fixture *f = *state;
	const struct op_args *args = &f->job->ops[0].args;

	add_op(f, 1, 2, 3, 6);
	f->views[0][0].offset = 8;
	f->views[0][1].n_shape = f->views[0][1].n_strides = 2;
	f->views[0][1].shape[0] = 1, f->views[0][1].shape[1] = 6;
	f->views[0][1].strides[0] = 100, f->views[0][1].strides[1] = 3;
	f->views[0][2].n_shape = 2;
	f->views[0][2].shape[0] = 1, f->views[0][2].shape[1] = 6;
	assert_int_equal(bind_all(f), 0);
	assert_string_equal(args->op->name, "add");
	for (unsigned v = 0; v < 3; v++) {
		assert_ptr_equal(args->views[v].space, &f->buffers[v].memory);
		assert_int_equal(args->views[v].dtype, KOPS_F32);
	}
	assert_int_equal(args->views[0].offset, 8);
	assert_int_equal(use_of(f, 1)->lo, 8);
	assert_int_equal(use_of(f, 1)->hi, 8 + 6 * 4);
	assert_int_equal(use_of(f, 2)->hi, 5 * 3 * 4 + 4);
	assert_true(f->job->cost.flops == 6 && f->job->cost.bytes == 3 * 6 * 4);
	assert_string_equal(f->job->ops[0].pinned, "");
}

static void costs_of_all_ops_count(void **state)
{
	struct fixture *f = *state;

	add_op(f, 1, 2, 3, 10);
	f->ops[add_op(f, 1, 2, 3, 100)].kernel = "vector";
	assert_int_equal(bind_all(f), 0);
	assert_true(f->job->cost.flops == 110 && f->job->cost.bytes == 3 * 110 * 4);
	assert_string_equal(f->job->ops[0].pinned, "");
	assert_string_equal(f->job->ops[1].pinned, "vector");
}

/* Checks how many pages rows of n floats may touch, from byte `offset` on. */
static void check_pages(struct fixture *f, uint64_t offset, uint64_t n, unsigned pages)
{
	add_op(f, 1, 2, 3, n);
	f->views[0][0].offset = offset;
	assert_int_equal(bind_all(f), 0);
	assert_int_equal(use_of(f, 1)->reach_bytes, pages * PAGE);
}

static void a_row_reaches_the_pages_at_its_edges(void **state)
{
	check_pages(*state, PAGE / 2, PAGE / 4, 3);
}

static void a_long_row_does_too(void **state)
{
	check_pages(*state, 8, 7 * PAGE / 4 + 1, 9);
}

static void an_element_reaches_one_page(void **state)
{
	check_pages(*state, PAGE - 4, 1, 1);
}

static void what_is_empty_reaches_nothing(void **state)
{
	check_pages(*state, PAGE, 0, 0);
}

/* Two elements that are ten pages apart lie on two. */
static void few_elements_reach_few_pages(void **state)
{
	struct fixture *f = *state;

	add_op(f, 1, 2, 3, 2);
	f->views[0][0].n_strides = 1;
	f->views[0][0].strides[0] = 10 * PAGE / 4;
	assert_int_equal(bind_all(f), 0);
	assert_int_equal(use_of(f, 1)->reach_bytes, 2 * PAGE);
	assert_int_equal(use_of(f, 1)->hi, 10 * PAGE + 4);
}

/* Views of one buffer reach no more than what lies between their ends. */
static void views_together_reach_what_is_between_them(void **state)
{
	struct fixture *f = *state;

	add_op(f, 1, 1, 2, 16);
	f->views[0][0].offset = 4 * PAGE;
	f->views[0][1].offset = 20 * PAGE;
	assert_int_equal(bind_all(f), 0);
	assert_int_equal(f->job->uses.n, 2);
	assert_int_equal(use_of(f, 1)->lo, 4 * PAGE);
	assert_int_equal(use_of(f, 1)->hi, 20 * PAGE + 64);
	assert_int_equal(use_of(f, 1)->reach_bytes, 2 * 2 * PAGE);
	add_op(f, 1, 1, 2, PAGE);
	f->views[1][0].offset = 10 * PAGE;
	f->views[1][1].offset = 11 * PAGE;
	assert_int_equal(bind_ops(&f->request, &f->submit, f->job, 1, 2), 0);
	assert_int_equal(use_of(f, 1)->lo, 4 * PAGE);
	assert_int_equal(use_of(f, 1)->reach_bytes, (2 * 2 + 2 * 6) * PAGE);
	for (int i = 0; i < 2; i++) {
		add_op(f, 1, 1, 2, PAGE);
		f->views[2 + i][1].offset = 16 * PAGE + 4;
	}
	assert_int_equal(bind_ops(&f->request, &f->submit, f->job, 2, 4), 0);
	assert_int_equal(use_of(f, 1)->lo, 0);
	assert_int_equal(use_of(f, 1)->hi, 20 * PAGE + 64);
	assert_int_equal(use_of(f, 1)->reach_bytes, 22 * PAGE);
}

static void it_reads_what_no_op_before_has_filled(void **state)
{
	struct fixture *f = *state;

	add_op(f, 1, 1, 2, FLOATS);
	add_op(f, 2, 2, 3, FLOATS - 1);
	assert_int_equal(bind_all(f), 0);
	assert_true(use_of(f, 1)->reads && !use_of(f, 1)->fills);
	assert_true(use_of(f, 2)->fills && !use_of(f, 2)->reads);
	assert_true(!use_of(f, 3)->fills && !use_of(f, 3)->reads); /* not the last element */
}

static void an_op_reads_before_it_fills(void **state)
{
	struct fixture *f = *state;

	add_op(f, 1, 2, 1, FLOATS);
	assert_int_equal(bind_all(f), 0);
	assert_true(use_of(f, 1)->reads && use_of(f, 1)->fills);
}

static void no_element_is_no_read(void **state)
{
	struct fixture *f = *state;

	add_op(f, 1, 2, 3, 0);
	assert_int_equal(bind_all(f), 0);
	assert_false(use_of(f, 1)->reads);
}

static void it_holds_each_buffer_once(void **state)
{
	struct fixture *f = *state;

	for (int i = 0; i < 3; i++)
		add_op(f, 1, 1, 2, 8);
	assert_int_equal(bind_ops(&f->request, &f->submit, f->job, 0, 1), 0);
	assert_int_equal(f->buffers[0].refs, 3);
	f->views[2][2].buffer = 3;
	assert_int_equal(bind_ops(&f->request, &f->submit, f->job, 1, 3), 0);
	for (unsigned i = 0; i < BUFFERS; i++)
		assert_int_equal(f->buffers[i].refs, 3);
	assert_int_equal(f->job->uses.n, 3);
	assert_false(f->job->sched.blocked);
}

static void a_buffer_that_is_being_made_blocks_it(void **state)
{
	struct fixture *f = *state;

	f->buffers[1].state = BUFFER_PENDING;
	f->buffers[2].state = BUFFER_FAILED;
	add_op(f, 1, 1, 1, 8);
	add_op(f, 2, 1, 3, 8);
	assert_int_equal(bind_ops(&f->request, &f->submit, f->job, 0, 1), 0);
	assert_false(f->job->sched.blocked);
	assert_int_equal(bind_ops(&f->request, &f->submit, f->job, 1, 2), 0);
	assert_true(f->job->sched.blocked);
	f->buffers[1].state = BUFFER_READY;
}

/* ---- Refusals ---- */

static void an_unknown_buffer(void **state)
{
	struct fixture *f = *state;

	add_op(f, 1, 7, 3, 8);
	check_refused(f, KOPS_E_NOT_FOUND, "there is no buffer 7");
}

static void ranks(void **state)
{
	struct fixture *f = *state;
	Kops__V1__View *view;

	add_op(f, 1, 2, 3, 1);
	view = &f->views[0][1];
	view->n_shape = 0;
	check_refused(f, KOPS_E_SHAPE, "a view has 0 extents, expected 1 to 4");
	view->n_shape = KOPS_RANK_MAX + 1;
	check_refused(f, KOPS_E_SHAPE, "a view has 5 extents, expected 1 to 4");
	view->n_shape = KOPS_RANK_MAX;
	view->n_strides = KOPS_RANK_MAX - 1;
	check_refused(f, KOPS_E_SHAPE, "a view has 4 extents but 3 strides");
	view->n_strides = 0;
	for (unsigned v = 0; v < 3; v++) {
		f->views[0][v].n_shape = KOPS_RANK_MAX;
		for (unsigned d = 0; d < KOPS_RANK_MAX; d++)
			f->views[0][v].shape[d] = 1;
	}
	assert_int_equal(bind_all(f), 0);
}

static void an_unknown_type(void **state)
{
	struct fixture *f = *state;

	add_op(f, 1, 2, 3, 8);
	f->views[0][0].dtype = (Kops__V1__DType)99;
	check_refused(f, KOPS_E_DTYPE, "99 is not a valid element type");
}

static void what_lies_outside(void **state)
{
	struct fixture *f = *state;

	add_op(f, 1, 2, 3, FLOATS);
	f->views[0][1].offset = 4;
	check_refused(f, KOPS_E_RANGE, "a view 65536 of f32 at offset 4 exceeds buffer 2 of 262144 bytes");
	f->views[0][1].offset = 0;
	f->views[0][1].n_strides = 1;
	f->views[0][1].strides[0] = -1;
	check_refused(f, KOPS_E_RANGE,
	              "a view 65536 of f32 at offset 0, strides -1, exceeds buffer 2 of 262144 bytes");
	f->views[0][1].offset = 6;
	check_refused(f, KOPS_E_INVALID,
	              "view offset 6 in buffer 2 is not a multiple of 4 bytes, the size of f32");
	f->views[0][1].offset = (FLOATS - 1) * 4;
	assert_int_equal(bind_all(f), 0);
}

static void writes_to_what_is_read_only(void **state)
{
	struct fixture *f = *state;

	f->buffers[1].memory.read_only = true;
	add_op(f, 1, 2, 2, 8);
	check_refused(f, KOPS_E_READONLY, "buffer 2 was imported read-only");
	f->views[0][2].buffer = 3;
	assert_int_equal(bind_all(f), 0);
}

/* Earlier ops stay bound. */
static void one_op_of_several(void **state)
{
	struct fixture *f = *state;

	add_op(f, 1, 1, 1, 8);
	add_op(f, 2, 2, 2, 8);
	add_op(f, 3, 3, 3, 8);
	f->views[2][1].shape[0] = 7;
	assert_int_equal(bind_ops(&f->request, &f->submit, f->job, 0, 1), 0);
	assert_int_equal(bind_ops(&f->request, &f->submit, f->job, 1, 3), KOPS_E_SHAPE);
	assert_non_null(strstr(f->request.why, "op 3 of 3 (add): "));
	assert_int_equal(f->job->uses.n, 1);
	assert_int_equal(f->buffers[0].refs, 3);
	assert_int_equal(f->buffers[1].refs, 2);
}

static void an_op_without_a_name(void **state)
{
	struct fixture *f = *state;

	add_op(f, 1, 1, 1, 8);
	add_op(f, 1, 1, 1, 8);
	f->ops[1].params_case = KOPS__V1__OP__PARAMS__NOT_SET;
	assert_true(bind_all(f) < 0);
	assert_non_null(strstr(f->request.why, "op 2 of 2 (?): "));
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(views_lie_where_the_message_says),
	    TEST(costs_of_all_ops_count),
	    TEST(a_row_reaches_the_pages_at_its_edges),
	    TEST(a_long_row_does_too),
	    TEST(an_element_reaches_one_page),
	    TEST(what_is_empty_reaches_nothing),
	    TEST(few_elements_reach_few_pages),
	    TEST(views_together_reach_what_is_between_them),
	    TEST(it_reads_what_no_op_before_has_filled),
	    TEST(an_op_reads_before_it_fills),
	    TEST(no_element_is_no_read),
	    TEST(it_holds_each_buffer_once),
	    TEST(a_buffer_that_is_being_made_blocks_it),
	    TEST(an_unknown_buffer),
	    TEST(ranks),
	    TEST(an_unknown_type),
	    TEST(what_lies_outside),
	    TEST(writes_to_what_is_read_only),
	    TEST(one_op_of_several),
	    TEST(an_op_without_a_name),
	};
	return cmocka_run_group_tests(tests, group_setup, NULL);
}
