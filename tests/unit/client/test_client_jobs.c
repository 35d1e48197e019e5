/* Tests libkops against a scripted daemon: a job's messages, its end, callbacks, back-pressure. */
#include <dlfcn.h>

#include "fake_daemon.h"

/* ---- Messages of a job ---- */

static bool is_view(const Kops__V1__View *v, uint64_t buffer, uint64_t offset, size_t n_strides,
                    int64_t stride0)
{
	return v->buffer == buffer && v->offset == offset && v->dtype == KOPS__V1__DTYPE__F32 &&
	       v->n_shape == 2 && v->n_strides == n_strides && (n_strides == 0 || v->strides[0] == stride0);
}

static void script_wire(struct fake *f)
{
	fake_greet(f);
	fake_lend(f);
	Kops__V1__Request *r = fake_expect(f, FAKE_VERB(SUBMIT));
	const Kops__V1__Submit *s = r->submit;
	FAKE_CHECK(f, s->queue == 300 && s->priority == KOPS__V1__PRIORITY__HIGH && s->deadline_us == 1u << 20);
	FAKE_CHECK(f, strcmp(s->device, "gpu0") == 0 && s->n_ops == 4);
	const Kops__V1__Gemm *g = s->ops[0]->gemm;
	FAKE_CHECK(f, s->ops[0]->params_case == KOPS__V1__OP__PARAMS_GEMM);
	FAKE_CHECK(f, strcmp(s->ops[0]->kernel, "cublas") == 0 && strcmp(s->ops[1]->kernel, "") == 0);
	FAKE_CHECK(f, g->alpha == 0.5 && g->beta == -1 && g->precision == KOPS__V1__PRECISION__PRECISION_TF32);
	FAKE_CHECK(f, is_view(g->a, 1, 0, 0, 0) && is_view(g->b, 1, 64, 2, 1) && is_view(g->c, 1, 128, 2, 9));
	FAKE_CHECK(f,
	           g->a->shape[0] == 2 && g->a->shape[1] == 3 && g->b->shape[0] == 3 && g->b->strides[1] == 3);
	FAKE_CHECK(f, s->ops[1]->softmax->scale == 2 && s->ops[1]->softmax->log);
	FAKE_CHECK(f, is_view(s->ops[2]->transpose->y, 1, 64, 0, 0));
	FAKE_CHECK(f, is_view(s->ops[3]->add->b, 1, 64, 0, 0) && is_view(s->ops[3]->add->y, 1, 128, 2, 9));
	fake_receipt(f, r->id);
	r = fake_expect(f, FAKE_VERB(SUBMIT));
	FAKE_CHECK(f, is_view(r->submit->ops[0]->copy->x, 1, 0, 0, 0));
	fake_answer(f, r->id, KOPS_E_SHAPE, "copy: 2 × 3 into 3 × 2");
	fake_answer(f, fake_expect(f, FAKE_VERB(SUBMIT))->id, KOPS_E_SHAPE, "");
	fake_expect_end(f);
}

static void test_job_on_the_wire(void **state)
{
	struct fake *f = *state;
	kops_job *job, *copy;
	fake_start(f, script_wire);
	kops *k = fake_open(f);
	kops_buffer *b = fake_alloc(k, 1024, KOPS_SHARED);
	kops_view x = kops_matrix(b, 0, KOPS_F32, 2, 3, 0), y = kops_matrix(b, 64, KOPS_F32, 3, 3, 0);
	kops_view z = kops_matrix(b, 128, KOPS_F32, 2, 3, 9);
	kops_job_options options = {.size = sizeof options,
	                            .queue = 300,
	                            .priority = KOPS_HIGH,
	                            .device = "gpu0",
	                            .deadline_us = 1u << 20};
	assert_int_equal(kops_job_new(k, &options, &job), 0);
	assert_int_equal(kops_job_gemm(job, 0.5, x, kops_transposed(y), -1, z, KOPS_PRECISION_TF32, "cublas"),
	                 0);
	assert_int_equal(kops_job_softmax(job, x, z, 2, true, NULL), 0);
	assert_int_equal(kops_job_transpose(job, y, y, NULL), 0);
	assert_int_equal(kops_job_add(job, x, y, z, NULL), 0);
	assert_int_equal(kops_job_copy(job, x, y, NULL), KOPS_E_INVALID);
	assert_string_equal(kops_error(k), "the job is full: its limit is 4 ops");
	assert_int_equal(kops_wait(job, -1), KOPS_E_STATE);
	assert_null(kops_job_receipt(job));
	assert_int_equal(kops_cancel(job), KOPS_E_STATE);
	assert_int_equal(kops_run(job), 0);

	const kops_receipt *receipt = kops_job_receipt(job);
	assert_non_null(receipt);
	assert_string_equal(receipt->device, "cpu");
	fake_check_times(receipt, 12.5);
	assert_int_equal(receipt->n_ops, 1);
	assert_string_equal(kops_receipt_op(receipt, 0)->kernel, "fake");
	assert_string_equal(kops_receipt_op(receipt, 0)->why, "it is the only one");
	assert_true(kops_receipt_op(receipt, 0)->flops == 16 && kops_receipt_op(receipt, 0)->compute_us == 2.5);
	assert_true(kops_receipt_op(receipt, 0)->larger_errors);
	assert_string_equal(kops_job_error(job), "");
	assert_int_equal(kops_job_copy(job, x, y, NULL), KOPS_E_STATE);

	assert_int_equal(kops_job_new(k, NULL, &copy), 0);
	assert_int_equal(kops_submit(copy, NULL, NULL), KOPS_E_INVALID);
	assert_int_equal(kops_job_copy(copy, x, y, NULL), 0);
	assert_int_equal(kops_run(copy), KOPS_E_SHAPE);
	assert_string_equal(kops_job_error(copy), "copy: 2 × 3 into 3 × 2");
	assert_string_equal(kops_error(k), "copy: 2 × 3 into 3 × 2");
	assert_null(kops_job_receipt(copy));
	assert_int_equal(kops_run(copy), KOPS_E_SHAPE);
	assert_string_equal(kops_error(k), kops_strerror(KOPS_E_SHAPE));
	kops_job_free(copy);
	kops_job_free(NULL);
	kops_close(k);
	fake_stop(f);
}

static void script_two_handles(struct fake *f)
{
	fake_greet(f);
	fake_lend(f);
	int first = f->sock;
	f->sock = -1;
	fake_greet(f);
	fake_expect_end(f);
	f->sock = first;
	fake_expect(f, FAKE_VERB(DROP));
	fake_expect_end(f);
}

static void test_views_that_no_job_takes(void **state)
{
	struct fake *f = *state;
	kops_job *job;
	fake_start(f, script_two_handles);
	kops *k = fake_open(f);
	kops_buffer *b = fake_alloc(k, 1024, KOPS_SHARED);
	kops *other = fake_open(f);
	kops_job *foreign;
	kops_view good = fake_matrix(b, 0), none = good, flat = good, deep = good;
	kops_job_options later = {.size = sizeof later, .reserved = {[6] = 1}};
	assert_int_equal(kops_job_new(k, &later, &job), KOPS_E_INVALID);
	assert_non_null(strstr(kops_error(k), "reserved members of the job options must be 0"));
	none.buffer = NULL;
	flat.rank = 0;
	deep.rank = 5;
	assert_int_equal(kops_job_new(k, NULL, &job), 0);
	assert_int_equal(kops_job_copy(job, none, good, NULL), KOPS_E_INVALID);
	assert_string_equal(kops_error(k),
	                    "op 0: operand x of copy has no buffer; set kops_view.buffer to one from "
	                    "kops_alloc() or kops_import()");
	assert_int_equal(kops_job_copy(job, good, flat, NULL), KOPS_E_INVALID);
	assert_int_equal(kops_job_copy(job, deep, good, NULL), KOPS_E_INVALID);
	assert_string_equal(kops_error(k), "op 0: operand x has rank 5, expected 1 to 4");
	assert_int_equal(kops_job_copy(job, good, good, "na\x01me"), KOPS_E_INVALID);
	assert_int_equal(kops_job_new(other, NULL, &foreign), 0);
	assert_int_equal(kops_job_copy(foreign, good, good, NULL), KOPS_E_INVALID);
	assert_string_equal(kops_error(other), "op 0: operand x is in a buffer of another handle");
	kops_close(other);
	assert_int_equal(kops_job_copy(job, good, good, NULL), 0);
	kops_free(b);
	assert_int_equal(kops_job_copy(job, good, good, NULL), KOPS_E_INVALID);
	assert_int_equal(kops_submit(job, NULL, NULL), KOPS_E_INVALID);
	kops_close(k);
	fake_stop(f);
}

static void script_one_op(struct fake *f)
{
	fake_greet(f);
	fake_lend(f);
	Kops__V1__Request *r = fake_expect(f, FAKE_VERB(SUBMIT));
	const Kops__V1__Gemm *g = r->submit->ops[0]->gemm;
	FAKE_CHECK(f, r->submit->n_ops == 1 && g->alpha == 2 && g->beta == 0);
	FAKE_CHECK(f, g->a->shape[0] == 2 && g->a->shape[1] == 5 && g->a->strides[0] == 1 &&
	                  g->a->strides[1] == 3);
	FAKE_CHECK(f, g->b->shape[0] == 5 && g->b->shape[1] == 4 && g->b->n_strides == 0);
	FAKE_CHECK(f, g->c->shape[0] == 2 && g->c->shape[1] == 4 && g->c->strides[0] == 7);
	fake_receipt(f, r->id);
	r = fake_expect(f, FAKE_VERB(SUBMIT));
	FAKE_CHECK(f, r->submit->ops[0]->gemm->a->dtype == KOPS__V1__DTYPE__F64);
	uint64_t late = r->id;
	FAKE_CHECK(f, fake_expect(f, FAKE_VERB(CANCEL))->cancel->job == late);
	r = fake_expect(f, FAKE_VERB(SUBMIT));
	uint64_t id = r->id;
	FAKE_CHECK(f, r->submit->n_ops == 1 && r->submit->ops[0]->params_case == KOPS__V1__OP__PARAMS_ADD);
	fake_answer(f, late, KOPS_E_CANCELLED, "withdrawn");
	fake_receipt(f, id);
	fake_expect_end(f);
}

static void test_one_op_calls(void **state)
{
	struct fake *f = *state;
	fake_start(f, script_one_op);
	kops *k = fake_open(f);
	kops_buffer *b = fake_alloc(k, 1024, KOPS_SHARED);
	assert_int_equal(kops_sgemm(k, KOPS_T, KOPS_N, 2, 4, 5, 2, b, 3, b, 4, 0, b, 7), 0);
	assert_int_equal(kops_sgemm(k, KOPS_T, KOPS_N, 2, 4, 5, 2, b, 1, b, 4, 0, b, 7), KOPS_E_INVALID);
	assert_string_equal(kops_error(k), "lda = 1 is less than the 2 columns stored");
	assert_int_equal(kops_sgemm(k, KOPS_N, KOPS_N, 2, 4, 5, 2, b, 5, NULL, 4, 0, b, 7), KOPS_E_INVALID);
	assert_int_equal(kops_sgemm(k, KOPS_N, (kops_trans)2, 2, 4, 5, 2, b, 5, b, 4, 0, b, 7), KOPS_E_INVALID);
	fake_set_timeout(k, 50);
	assert_int_equal(kops_dgemm(k, KOPS_N, KOPS_N, 2, 2, 2, 1, b, 2, b, 2, 0, b, 2), KOPS_E_TIMEOUT);
	fake_set_timeout(k, FAKE_PATIENCE_MS);
	kops_view x = fake_matrix(b, 0);
	assert_int_equal(kops_add(k, x, x, x), 0); /* while the other is still in flight */
	kops_close(k);
	fake_stop(f);
}

/* ---- Ends ---- */

struct ends {
	unsigned n;
	kops_job *jobs[8];
	int status[8];
	kops_job *resubmit, *free_other;
	int wait_status;
};

static void on_end(kops_job *job, int status, void *user)
{
	struct ends *ends = user;
	ends->jobs[ends->n] = job;
	ends->status[ends->n++] = status;
}

static void on_end_free(kops_job *job, int status, void *user)
{
	on_end(job, status, user);
	kops_job_free(job);
}

static void on_end_again(kops_job *job, int status, void *user)
{
	struct ends *ends = user;
	on_end(job, status, user);
	ends->wait_status = kops_wait(job, 0);
	assert_int_equal(kops_submit(job, on_end, user), 0);
	kops_job_free(ends->free_other);
}

static void script_ends(struct fake *f)
{
	uint64_t ids[5];
	fake_greet(f);
	fake_lend(f);
	for (unsigned i = 0; i < 3; i++)
		ids[i] = fake_expect(f, FAKE_VERB(SUBMIT))->id;
	fake_receipt(f, ids[1]); /* queues differ, so the order may too */
	ids[3] = fake_expect(f, FAKE_VERB(SUBMIT))->id;
	FAKE_CHECK(f, ids[3] != ids[1]);
	fake_receipt(f, ids[0]);
	fake_receipt(f, ids[2]);
	fake_answer(f, ids[3], KOPS_E_BUSY, "too much queued");
	fake_expect_end(f);
}

static void test_callbacks(void **state)
{
	struct fake *f = *state;
	struct ends ends = {0};
	fake_start(f, script_ends);
	kops *k = fake_open(f);
	kops_buffer *b = fake_alloc(k, 1024, KOPS_SHARED);
	kops_job *one = fake_gemm(k, b, b, b, 0), *two = fake_gemm(k, b, b, b, 0),
	         *three = fake_gemm(k, b, b, b, 0);
	ends.free_other = three; /* abandoned while it is in flight: its callback must not be called */
	assert_int_equal(kops_submit(one, on_end_free, &ends), 0);
	assert_int_equal(kops_submit(two, on_end_again, &ends), 0);
	assert_int_equal(kops_submit(three, on_end, &ends), 0);
	assert_int_equal(kops_submit(two, NULL, NULL), KOPS_E_STATE);
	assert_int_equal(kops_wait(two, -1), 0); /* its first run; it is in flight again afterwards */
	assert_true(kops_job_is_out(two));
	assert_int_equal(ends.wait_status, KOPS_E_STATE);
	assert_int_equal(ends.n, 1);
	assert_int_equal(kops_wait(two, -1), KOPS_E_BUSY);
	assert_int_equal(ends.n, 3);
	assert_ptr_equal(ends.jobs[1], one);
	assert_int_equal(ends.status[1], 0);
	assert_ptr_equal(ends.jobs[2], two);
	assert_int_equal(ends.status[2], KOPS_E_BUSY);
	kops_close(k);
	fake_stop(f);
}

static void script_freed_while_waiting(struct fake *f)
{
	fake_greet(f);
	fake_lend(f);
	fake_receipt(f, fake_expect(f, FAKE_VERB(SUBMIT))->id);
	fake_expect_end(f);
}

/* kops_wait() and kops_run() survive a callback that frees the job they wait for. */
static void test_job_freed_by_its_callback_while_waited_for(void **state)
{
	struct fake *f = *state;
	struct ends ends = {0};
	fake_start(f, script_freed_while_waiting);
	kops *k = fake_open(f);
	kops_buffer *b = fake_alloc(k, 1024, KOPS_SHARED);
	kops_job *job = fake_gemm(k, b, b, b, 0);
	assert_int_equal(kops_submit(job, on_end_free, &ends), 0);
	assert_int_equal(kops_wait(job, -1), 0);
	assert_int_equal(ends.n, 1);
	kops_close(k);
	fake_stop(f);
}

static void script_busy(struct fake *f)
{
	Kops__V1__Reply reply = KOPS__V1__REPLY__INIT;
	fake_greet(f);
	fake_lend(f);
	reply.id = fake_expect(f, FAKE_VERB(SUBMIT))->id;
	reply.status = KOPS_E_BUSY;
	reply.message = "1.5 s of work is queued";
	reply.retry_after_us = 1500;
	fake_send(f, &reply, -1);
	fake_receipt(f, fake_expect(f, FAKE_VERB(SUBMIT))->id);
	fake_expect_end(f);
}

static void test_busy_says_when_to_try_again(void **state)
{
	struct fake *f = *state;
	fake_start(f, script_busy);
	kops *k = fake_open(f);
	kops_buffer *b = fake_alloc(k, 1024, KOPS_SHARED);
	kops_job *job = fake_gemm(k, b, b, b, 0);
	assert_int_equal(kops_run(job), KOPS_E_BUSY);
	assert_int_equal(kops_job_retry_after_us(job), 1500);
	assert_string_equal(kops_job_error(job), "1.5 s of work is queued");
	assert_int_equal(kops_run(job), 0);
	assert_int_equal(kops_job_retry_after_us(job), 0);
	assert_string_equal(kops_job_error(job), "");
	kops_close(k);
	fake_stop(f);
}

static void script_cancel(struct fake *f)
{
	fake_greet(f);
	fake_lend(f);
	Kops__V1__Request *r = fake_expect(f, FAKE_VERB(SUBMIT));
	uint64_t job = r->id;
	r = fake_expect(f, FAKE_VERB(CANCEL));
	FAKE_CHECK(f, r->cancel->job == job);
	fake_answer(f, job, KOPS_E_CANCELLED, "withdrawn");
	fake_answer(f, r->id, 0, "");
	job = fake_expect(f, FAKE_VERB(SUBMIT))->id;
	FAKE_CHECK(f, fake_expect(f, FAKE_VERB(CANCEL))->cancel->job == job);
	fake_hang_up(f);
	fake_greet(f);
	fake_answer(f, fake_expect(f, FAKE_VERB(IMPORT))->id, 0, "");
	fake_answer(f, fake_expect(f, FAKE_VERB(PING))->id, 0, "");
	fake_expect_end(f);
}

static void test_cancel(void **state)
{
	struct fake *f = *state;
	fake_start(f, script_cancel);
	kops *k = fake_open(f);
	kops_buffer *a = fake_alloc(k, 1024, KOPS_SHARED);
	kops_job *job;
	assert_int_equal(kops_job_new(k, NULL, &job), 0);
	assert_int_equal(kops_job_copy(job, fake_matrix(a, 0), fake_matrix(a, 64), NULL), 0);
	assert_int_equal(kops_submit(job, NULL, NULL), 0);
	assert_int_equal(kops_cancel(job), 0);
	assert_true(kops_job_is_out(job));
	assert_int_equal(kops_wait(job, -1), KOPS_E_CANCELLED);
	assert_string_equal(kops_error(k), "withdrawn");
	assert_int_equal(kops_cancel(job), KOPS_E_STATE);
	/* If it is cancelled before the daemon goes, it may have run, and is not sent again. */
	assert_int_equal(kops_submit(job, NULL, NULL), 0);
	assert_int_equal(kops_cancel(job), 0);
	assert_int_equal(kops_wait(job, -1), KOPS_E_INTERRUPTED);
	/* Without a connection the job ends by itself. */
	assert_int_equal(kops_fd(k), -1);
	assert_int_equal(kops_submit(job, NULL, NULL), 0);
	assert_int_equal(kops_cancel(job), 0);
	assert_int_equal(kops_wait(job, -1), KOPS_E_CANCELLED);
	assert_int_equal(kops_ping(k), 0);
	kops_close(k);
	fake_stop(f);
}

/* ---- Without memory ---- */

static bool no_more_memory; /* for this program; the daemon's thread needs none */

#ifndef __SANITIZE_THREAD__ /* the sanitizer allocates before its threads can run this program's code */
/* AddressSanitizer's, which clang links into the program: the next one would be libc's. */
void *__interceptor_realloc(void *old, size_t bytes) __attribute__((weak));

/* libkops's calls also come here. */
void *realloc(void *old, size_t bytes)
{
	static void *(*real)(void *, size_t);
	if (!real)
		real = __interceptor_realloc;
	if (!real)
		*(void **)&real = dlsym(RTLD_NEXT, "realloc");
	return no_more_memory ? NULL : real(old, bytes);
}
#endif

static void script_long_receipt(struct fake *f)
{
	static char sentence[3000];
	Kops__V1__OpReceipt op = KOPS__V1__OP_RECEIPT__INIT, *ops[] = {&op};
	Kops__V1__Receipt receipt = KOPS__V1__RECEIPT__INIT;
	Kops__V1__Reply reply = KOPS__V1__REPLY__INIT;
	memset(sentence, 'x', sizeof sentence - 1);
	op.op = "gemm", op.kernel = "fake", op.why = sentence, op.passed_over = "none", op.compute_us = 2.5;
	receipt.device = "cpu", receipt.n_ops = 1, receipt.ops = ops;
	FAKE_TIMES(&receipt, 12.5);
	reply.body_case = KOPS__V1__REPLY__BODY_RECEIPT, reply.receipt = &receipt;
	fake_greet(f);
	fake_lend(f);
	for (int i = 0; i < 2; i++) {
		reply.id = fake_expect(f, FAKE_VERB(SUBMIT))->id;
		fake_send(f, &reply, -1);
	}
	fake_expect_end(f);
}

/* A job that succeeded has a receipt, even if it lacks sentences. */
static void test_receipt_without_memory(void **state)
{
	struct fake *f = *state;
#ifdef __SANITIZE_THREAD__
	skip();
#endif
	fake_start(f, script_long_receipt);
	kops *k = fake_open(f);
	kops_buffer *b = fake_alloc(k, 1024, KOPS_SHARED);
	kops_job *job = fake_gemm(k, b, b, b, 1);
	no_more_memory = true;
	assert_int_equal(kops_submit(job, NULL, NULL), KOPS_E_NOMEM);
	no_more_memory = false;
	for (int i = 0; i < 2; i++) {
		assert_int_equal(kops_submit(job, NULL, NULL), 0);
		no_more_memory = i == 0;
		int status = kops_wait(job, -1);
		no_more_memory = false;
		assert_int_equal(status, 0);
		const kops_receipt *receipt = kops_job_receipt(job);
		assert_non_null(receipt);
		assert_string_equal(receipt->device, "cpu");
		fake_check_times(receipt, 12.5);
		const kops_op_receipt *op = kops_receipt_op(receipt, 0);
		assert_string_equal(op->op, "gemm");
		assert_string_equal(op->kernel, "fake");
		assert_string_equal(op->passed_over, "none");
		assert_int_equal(strlen(op->why), i == 0 ? 0 : 2999);
	}
	kops_close(k);
	fake_stop(f);
}

static void script_timeout(struct fake *f)
{
	fake_greet(f);
	fake_lend(f);
	uint64_t job = fake_expect(f, FAKE_VERB(SUBMIT))->id;
	FAKE_CHECK(f, fake_expect(f, FAKE_VERB(CANCEL))->cancel->job == job);
	fake_receipt(f, job);
	fake_expect_end(f);
}

static void test_run_out_of_time(void **state)
{
	struct fake *f = *state;
	fake_start(f, script_timeout);
	kops *k = fake_open(f);
	kops_buffer *b = fake_alloc(k, 1024, KOPS_SHARED);
	kops_job *job = fake_gemm(k, b, b, b, 1);
	fake_set_timeout(k, 50);
	assert_int_equal(kops_run(job), KOPS_E_TIMEOUT);
	assert_string_equal(kops_error(k),
	                    "the job was not done after 0.05 s and was cancelled; kopsd may write its "
	                    "outputs until it has stopped: wait for that, or allow more time");
	assert_true(kops_job_is_out(job));
	assert_int_equal(kops_wait(job, -1), 0); /* the job had ended when the Cancel came */
	assert_non_null(kops_job_receipt(job));
	kops_close(k);
	fake_stop(f);
}

static void script_cancelled(struct fake *f)
{
	fake_greet(f);
	fake_lend(f);
	uint64_t job = fake_expect(f, FAKE_VERB(SUBMIT))->id;
	FAKE_CHECK(f, fake_expect(f, FAKE_VERB(CANCEL))->cancel->job == job);
	FAKE_CHECK(f, fake_wait(f, 1)); /* until the test has seen that the job is in flight */
	fake_answer(f, job, KOPS_E_CANCELLED, "");
	fake_answer(f, fake_expect(f, FAKE_VERB(PING))->id, 0, "");
	fake_expect_end(f);
}

/* Until the daemon has answered, the memory does not belong to the caller. */
static void test_run_for_a_while(void **state)
{
	struct fake *f = *state;
	fake_start(f, script_cancelled);
	kops *k = fake_open(f);
	kops_buffer *b = fake_alloc(k, 1024, KOPS_SHARED);
	kops_job *job = fake_gemm(k, b, b, b, 1);
	assert_false(kops_buffer_is_busy(b));
	assert_int_equal(kops_buffer_wait_idle(b, -1), 0);
	assert_int_equal(kops_run_for(job, 50), KOPS_E_TIMEOUT);
	assert_non_null(strstr(kops_error(k), "not done after 0.05 s and was cancelled"));
	assert_int_equal(kops_run_for(job, 50), KOPS_E_STATE); /* out already */
	assert_true(kops_job_is_out(job));
	assert_true(kops_buffer_is_busy(b));
	assert_int_equal(kops_buffer_wait_idle(b, 0), KOPS_E_TIMEOUT);
	fake_reach(f, 1);
	assert_int_equal(kops_wait(job, -1), KOPS_E_CANCELLED);
	assert_false(kops_buffer_is_busy(b));
	assert_int_equal(kops_ping(k), 0);
	kops_close(k);
	fake_stop(f);
}

static void test_one_op_call_out_of_time(void **state)
{
	struct fake *f = *state;
	fake_start(f, script_cancelled);
	kops *k = fake_open(f);
	kops_buffer *b = fake_alloc(k, 1024, KOPS_SHARED);
	fake_set_timeout(k, 50);
	assert_int_equal(kops_copy(k, fake_matrix(b, 0), fake_matrix(b, 512)), KOPS_E_TIMEOUT);
	assert_true(kops_buffer_is_busy(b));
	assert_int_equal(kops_buffer_wait_idle(b, 1), KOPS_E_TIMEOUT);
	assert_string_equal(kops_error(k),
	                    "a job that uses the buffer was still running after 0.001 s; wait again");
	fake_reach(f, 1);
	assert_int_equal(kops_buffer_wait_idle(b, -1), 0);
	assert_false(kops_buffer_is_busy(b));
	fake_set_timeout(k, FAKE_PATIENCE_MS);
	assert_int_equal(kops_ping(k), 0);
	kops_close(k);
	fake_stop(f);
}

static void script_left_out(struct fake *f)
{
	fake_greet(f);
	fake_lend(f);
	uint64_t job = fake_expect(f, FAKE_VERB(SUBMIT))->id;
	fake_answer(f, fake_expect(f, FAKE_VERB(PING))->id, 0, ""); /* no Cancel */
	fake_receipt(f, job);
	fake_expect_end(f);
}

static void test_submit_and_wait_in_steps(void **state)
{
	struct fake *f = *state;
	fake_start(f, script_left_out);
	kops *k = fake_open(f);
	kops_buffer *b = fake_alloc(k, 1024, KOPS_SHARED);
	kops_job *job = fake_gemm(k, b, b, b, 1);
	assert_int_equal(kops_submit_and_wait(job, 20), KOPS_E_TIMEOUT);
	assert_int_equal(kops_wait(job, 5), KOPS_E_TIMEOUT);
	assert_string_equal(
	    kops_error(k), "the job was not done after 0.005 s and is still running: wait again, or cancel it");
	assert_int_equal(kops_ping(k), 0);
	assert_int_equal(kops_wait(job, -1), 0);
	kops_close(k);
	fake_stop(f);
}

static void free_buffer(kops_job *job, int status, void *user)
{
	(void)job, (void)status;
	kops_free(user);
}

static void script_two_ends(struct fake *f)
{
	fake_greet(f);
	fake_lend(f);
	uint64_t first = fake_expect(f, FAKE_VERB(SUBMIT))->id;
	uint64_t second = fake_expect(f, FAKE_VERB(SUBMIT))->id;
	fake_receipt(f, first);
	fake_expect(f, FAKE_VERB(DROP));
	fake_receipt(f, second);
	fake_expect_end(f);
}

/* A callback frees a buffer that somebody waits for. */
static void test_busy_buffer_freed_by_a_callback(void **state)
{
	struct fake *f = *state;
	fake_start(f, script_two_ends);
	kops *k = fake_open(f);
	kops_buffer *b = fake_alloc(k, 1024, KOPS_SHARED);
	kops_job *first = fake_gemm(k, b, b, b, 1), *second = fake_gemm(k, b, b, b, 1);
	assert_int_equal(kops_submit(first, free_buffer, b), 0);
	assert_int_equal(kops_submit(second, NULL, NULL), 0);
	assert_int_equal(kops_buffer_wait_idle(b, -1), KOPS_E_CANCELLED);
	assert_int_equal(kops_wait(second, -1), 0);
	kops_close(k);
	fake_stop(f);
}

struct waiting {
	kops *k;
	kops_buffer *b;
	unsigned refused;
};

static void on_end_wait(kops_job *job, int status, void *user)
{
	struct waiting *waiting = user;
	kops *k = waiting->k;
	kops_buffer *none;
	kops_info *info;
	(void)status;
	waiting->refused += kops_run(job) == KOPS_E_STATE;
	waiting->refused += kops_run_for(job, 1) == KOPS_E_STATE;
	waiting->refused += kops_submit_and_wait(job, 1) == KOPS_E_STATE;
	waiting->refused += kops_buffer_wait_idle(waiting->b, 1) == KOPS_E_STATE;
	waiting->refused += kops_wait(job, 1) == KOPS_E_STATE;
	waiting->refused += kops_ping(k) == KOPS_E_STATE;
	waiting->refused += kops_process(k) == KOPS_E_STATE;
	waiting->refused += kops_query(k, &info) == KOPS_E_STATE;
	waiting->refused += kops_alloc(k, 1, KOPS_SHARED, NULL, &none) == KOPS_E_STATE;
	waiting->refused += kops_import(k, 0, 1, 0, &none) == KOPS_E_STATE;
	kops_close(k); /* not allowed either, so it does nothing */
}

static void test_callbacks_must_not_wait(void **state)
{
	struct fake *f = *state;
	struct waiting waiting = {0};
	fake_start(f, script_freed_while_waiting);
	kops *k = waiting.k = fake_open(f);
	kops_buffer *b = waiting.b = fake_alloc(k, 1024, KOPS_SHARED);
	kops_job *job = fake_gemm(k, b, b, b, 0);
	assert_int_equal(kops_submit(job, on_end_wait, &waiting), 0);
	assert_int_equal(kops_wait(job, -1), 0);
	assert_int_equal(waiting.refused, 10);
	kops_close(k);
	fake_stop(f);
}

/* ---- Polling ---- */

#define POLLED 3

static void script_all_at_once(struct fake *f)
{
	uint64_t ids[POLLED];
	fake_greet(f);
	fake_lend(f);
	for (unsigned i = 0; i < POLLED; i++)
		ids[i] = fake_expect(f, FAKE_VERB(SUBMIT))->id;
	for (unsigned i = 0; i < POLLED; i++)
		fake_receipt(f, ids[i]);
	fake_reach(f, 1);
	fake_expect_end(f);
}

/* A poll must find a reply that has arrived, even behind replies to other jobs. */
static void test_a_poll_reads_past_replies_to_other_jobs(void **state)
{
	struct fake *f = *state;
	kops_job *jobs[POLLED];
	fake_start(f, script_all_at_once);
	kops *k = fake_open(f);
	kops_buffer *b = fake_alloc(k, 1024, KOPS_SHARED);
	for (unsigned i = 0; i < POLLED; i++) {
		jobs[i] = fake_gemm(k, b, b, b, 0);
		assert_int_equal(kops_submit(jobs[i], NULL, NULL), 0);
	}
	assert_true(fake_wait(f, 1));
	assert_int_equal(kops_wait(jobs[POLLED - 1], 0), 0);
	for (unsigned i = 0; i < POLLED; i++)
		assert_false(kops_job_is_out(jobs[i]));
	kops_close(k);
	fake_stop(f);
}

/* ---- Back-pressure ---- */

#define FLOOD 3000

static void script_slow(struct fake *f)
{
	fake_greet(f);
	fake_lend(f);
	FAKE_CHECK(f, fake_wait(f, 1)); /* by now the socket is full */
	for (f->count = 0; f->count < FLOOD; f->count++)
		fake_receipt(f, fake_expect(f, FAKE_VERB(SUBMIT))->id);
	fake_expect_end(f);
}

/* Submits more than the socket holds: submitting never blocks, and nothing is lost or reordered. */
static void test_full_socket(void **state)
{
	struct fake *f = *state;
	static kops_job *jobs[FLOOD];
	fake_start(f, script_slow);
	kops *k = fake_open(f);
	kops_buffer *b = fake_alloc(k, 1024, KOPS_SHARED);
	for (unsigned i = 0; i < FLOOD; i++) {
		jobs[i] = fake_gemm(k, b, b, b, 0);
		assert_int_equal(kops_submit(jobs[i], NULL, NULL), 0);
	}
	assert_int_equal(kops_events(k), POLLIN | POLLOUT);
	fake_reach(f, 1);
	int ended = 0;
	while (ended < FLOOD) {
		struct pollfd p = {.fd = kops_fd(k), .events = kops_events(k)};
		assert_int_equal(poll(&p, 1, FAKE_PATIENCE_MS), 1);
		int n = kops_process(k);
		assert_true(n >= 0);
		ended += n;
	}
	assert_int_equal(kops_events(k), POLLIN);
	for (unsigned i = 0; i < FLOOD; i++)
		assert_int_equal(kops_wait(jobs[i], 0), 0);
	kops_close(k);
	fake_stop(f);
	assert_int_equal(f->count, FLOOD);
}

static void script_close(struct fake *f)
{
	fake_greet(f);
	fake_lend(f);
	for (unsigned i = 0; i < 3; i++)
		fake_expect(f, FAKE_VERB(SUBMIT));
	fake_expect_end(f);
}

static void test_close_with_jobs_out(void **state)
{
	struct fake *f = *state;
	struct ends ends = {0};
	fake_start(f, script_close);
	kops *k = fake_open(f);
	kops_buffer *b = fake_alloc(k, 1024, KOPS_SHARED);
	kops_job *jobs[3];
	for (unsigned i = 0; i < 3; i++) {
		jobs[i] = fake_gemm(k, b, b, b, 0);
		assert_int_equal(kops_submit(jobs[i], on_end, &ends), 0);
	}
	kops_job_free(jobs[1]);
	kops_close(k);
	assert_int_equal(ends.n, 0);
	fake_stop(f);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, fake_setup, fake_teardown)
	const struct CMUnitTest tests[] = {
	    TEST(test_job_on_the_wire),
	    TEST(test_views_that_no_job_takes),
	    TEST(test_one_op_calls),
	    TEST(test_callbacks),
	    TEST(test_job_freed_by_its_callback_while_waited_for),
	    TEST(test_busy_says_when_to_try_again),
	    TEST(test_cancel),
	    TEST(test_receipt_without_memory),
	    TEST(test_run_out_of_time),
	    TEST(test_run_for_a_while),
	    TEST(test_one_op_call_out_of_time),
	    TEST(test_submit_and_wait_in_steps),
	    TEST(test_busy_buffer_freed_by_a_callback),
	    TEST(test_callbacks_must_not_wait),
	    TEST(test_a_poll_reads_past_replies_to_other_jobs),
	    TEST(test_full_socket),
	    TEST(test_close_with_jobs_out),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
