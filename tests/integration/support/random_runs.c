/*
 * random_runs: runs jobs of several sessions at once, and compares their results with its own.
 *
 *     random_runs SOCKET RUNS [killed]
 *
 * Each session has a thread, a few queues and a few jobs that it submits again and again: first, prepared, by
 * the ring. Some are cancelled, some expire, some lose a buffer while they are in flight, and some are made
 * anew with another size. All numbers are small integers, so results are exact. A queue's jobs pass a matrix
 * on, which shows their order. killed: kopsd is killed and restarted meanwhile; jobs may be INTERRUPTED.
 *
 * Prints how many runs there were of each kind. Exit status 0 only if all was right.
 */
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kops.h"
#include "seed.h"

enum { SESSIONS = 4, QUEUES = 3, JOBS = 12, SIDE_MAX = 24, PASSED_SIDE = 12 };

/* What a job does with its inputs a and b, its output y and the matrix p that its queue passes on. */
enum kind { MULTIPLY /* y = a b + beta y */, STORE /* p = a transposed */, LOAD /* y = p + b */, KINDS };

struct matrix {
	uint32_t side;
	float at[SIDE_MAX * SIDE_MAX];
};

/* A buffer, and its content when its job was submitted. */
struct operand {
	kops_buffer *buffer;
	struct matrix content;
};

struct work {
	struct session *session;
	enum kind kind;
	uint32_t side, queue;
	double beta;
	struct operand a, b, y;
	kops_job *job;
	bool out, dropped;
	int status;
};

struct passed {
	kops_buffer *buffer;
	struct matrix content;
	bool known; /* false after a STORE that may have run or not */
};

struct counts {
	unsigned long done, prepared, graphs, cancelled, expired, interrupted, dropped, remade;
};

struct session {
	pthread_t thread;
	kops *k;
	uint64_t random;
	unsigned long runs; /* left to do */
	struct passed passed[QUEUES];
	struct work works[JOBS];
	struct counts counts;
};

static const char *socket_path;
static bool killed;

static void die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

static void die(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fprintf(stderr, "random_runs: ");
	vfprintf(stderr, format, args);
	fprintf(stderr, "\n");
	va_end(args);
	exit(1);
}

static uint64_t below(struct session *s, uint64_t n)
{
	s->random ^= s->random << 13;
	s->random ^= s->random >> 7;
	s->random ^= s->random << 17;
	return (s->random >> 11) % n;
}

/* ---- Buffers ---- */

static kops_buffer *new_buffer(struct session *s, uint32_t side)
{
	kops_buffer *buffer;
	int status;

	do /* on a busy machine kopsd may be killed three times before it answers */
		status = kops_alloc(s->k, side * side * sizeof(float), KOPS_SHARED, NULL, &buffer);
	while (status == KOPS_E_INTERRUPTED && killed);
	if (status < 0)
		die("kops_alloc: %s", kops_error(s->k));
	return buffer;
}

static void store(kops_buffer *buffer, const struct matrix *m)
{
	memcpy(kops_data(buffer), m->at, m->side * m->side * sizeof(float));
}

static void fill(struct session *s, struct operand *x, uint32_t side)
{
	x->content.side = side;
	for (uint32_t i = 0; i < side * side; i++)
		x->content.at[i] = (float)below(s, 9) - 4;
	store(x->buffer, &x->content);
}

/* Fills with NaN, which no job computes. */
static void poison(struct operand *x, uint32_t side)
{
	x->content.side = side;
	for (uint32_t i = 0; i < side * side; i++)
		x->content.at[i] = NAN;
	store(x->buffer, &x->content);
}

/* Compares by value: a zero may have either sign. */
static bool holds(kops_buffer *buffer, const struct matrix *m)
{
	const float *found = kops_data(buffer);

	for (uint32_t i = 0; i < m->side * m->side; i++)
		if (found[i] != m->at[i] && !(isnan(found[i]) && isnan(m->at[i])))
			return false;
	return true;
}

/* ---- Jobs ---- */

static kops_view view_of(kops_buffer *buffer, uint32_t side)
{
	return kops_matrix(buffer, 0, KOPS_F32, side, side, 0);
}

static uint64_t random_deadline_us(struct session *s)
{
	switch (below(s, 12)) {
	case 0:
		return 1;
	case 1:
		return 60000000;
	default:
		return 0;
	}
}

static int add_op(struct work *w)
{
	kops_view a = view_of(w->a.buffer, w->side), b = view_of(w->b.buffer, w->side),
	          y = view_of(w->y.buffer, w->side);
	kops_view p = view_of(w->session->passed[w->queue].buffer, PASSED_SIDE);

	switch (w->kind) {
	case MULTIPLY:
		return kops_job_gemm(w->job, 1, a, b, w->beta, y, KOPS_PRECISION_F32, NULL);
	case STORE:
		return kops_job_transpose(w->job, a, p, NULL);
	default:
		return kops_job_add(w->job, p, b, y, NULL);
	}
}

static void make(struct session *s, struct work *w)
{
	kops_job_options options = {.size = sizeof options,
	                            .queue = (uint32_t)below(s, QUEUES),
	                            .priority = (kops_priority)below(s, 3),
	                            .deadline_us = random_deadline_us(s)};

	*w = (struct work){.session = s,
	                   .kind = (enum kind)below(s, KINDS),
	                   .queue = options.queue,
	                   .beta = (double)below(s, 3)};
	w->side = w->kind == MULTIPLY ? 1 + (uint32_t)below(s, SIDE_MAX) : PASSED_SIDE;
	w->a.buffer = new_buffer(s, w->side);
	w->b.buffer = new_buffer(s, w->side);
	w->y.buffer = new_buffer(s, w->side);
	if (kops_job_new(s->k, &options, &w->job) < 0 || add_op(w) < 0)
		die("a job: %s", kops_error(s->k));
}

static void unmake(struct work *w)
{
	kops_job_free(w->job);
	kops_free(w->a.buffer);
	kops_free(w->b.buffer);
	kops_free(w->y.buffer);
}

static void on_end(kops_job *job, int status, void *user)
{
	struct work *w = user;

	(void)job;
	w->out = false;
	w->status = status;
}

static void submit(struct session *s, struct work *w)
{
	fill(s, &w->a, w->side);
	fill(s, &w->b, w->side);
	if (w->kind == MULTIPLY && w->beta != 0)
		fill(s, &w->y, w->side);
	else
		poison(&w->y, w->side);
	w->out = true;
	if (kops_submit(w->job, on_end, w) < 0)
		die("kops_submit: %s", kops_error(s->k));
}

/* Frees a buffer while the job is in flight. */
static void drop_one(struct session *s, struct work *w)
{
	struct operand *operands[] = {&w->a, &w->b, &w->y}, *x = operands[below(s, 3)];

	kops_free(x->buffer);
	x->buffer = NULL;
	w->dropped = true;
	s->counts.dropped++;
}

/* ---- Results ---- */

static void expect_output(const struct work *w, const struct matrix *want, const char *what)
{
	if (w->y.buffer && !holds(w->y.buffer, want))
		die("%s of %u x %u in queue %u: another result", what, w->side, w->side, w->queue);
}

static void check_product(const struct work *w)
{
	struct matrix want = w->y.content;
	uint32_t n = w->side;

	for (uint32_t i = 0; i < n; i++)
		for (uint32_t j = 0; j < n; j++) {
			float sum = w->beta != 0 ? (float)w->beta * w->y.content.at[i * n + j] : 0;

			for (uint32_t l = 0; l < n; l++)
				sum += w->a.content.at[i * n + l] * w->b.content.at[l * n + j];
			want.at[i * n + j] = sum;
		}
	expect_output(w, &want, "a product");
}

static void check_sum(const struct work *w, const struct passed *p)
{
	struct matrix want = p->content;

	for (uint32_t i = 0; i < w->side * w->side; i++)
		want.at[i] += w->b.content.at[i];
	if (p->known)
		expect_output(w, &want, "a sum with what its queue passed on");
}

static void pass_on(const struct work *w, struct passed *p)
{
	for (uint32_t i = 0; i < w->side; i++)
		for (uint32_t j = 0; j < w->side; j++)
			p->content.at[j * w->side + i] = w->a.content.at[i * w->side + j];
	p->known = true;
}

static void check_done(struct session *s, const struct work *w)
{
	const kops_receipt *receipt = kops_job_receipt(w->job);

	s->counts.done++;
	s->counts.prepared += receipt && receipt->prepared;
	s->counts.graphs += receipt && receipt->graph;
	if (w->kind == MULTIPLY)
		check_product(w);
	else if (w->kind == LOAD)
		check_sum(w, &s->passed[w->queue]);
	else
		pass_on(w, &s->passed[w->queue]);
}

static void count_failed(struct session *s, const struct work *w)
{
	if (w->status == KOPS_E_CANCELLED)
		s->counts.cancelled++;
	else if (w->status == KOPS_E_DEADLINE)
		s->counts.expired++;
	else if (w->status == KOPS_E_INTERRUPTED && killed)
		s->counts.interrupted++;
	else
		die("a job ended with %d: %s", w->status, kops_job_error(w->job));
}

/* A failed job must not have run, unless kopsd was killed. */
static void check_failed(struct session *s, const struct work *w)
{
	count_failed(s, w);
	if (!killed)
		expect_output(w, &w->y.content, "a job that failed");
	else if (w->kind == STORE)
		s->passed[w->queue].known = false;
}

static void check_passed(struct session *s)
{
	for (unsigned q = 0; q < QUEUES; q++)
		if (s->passed[q].known && !holds(s->passed[q].buffer, &s->passed[q].content))
			die("queue %u did not pass on what its last job stored", q);
}

/* ---- A session ---- */

static void shuffle(struct session *s, struct work *order[JOBS])
{
	for (unsigned i = 0; i < JOBS; i++) {
		unsigned j = (unsigned)below(s, i + 1);

		order[i] = order[j];
		order[j] = &s->works[i];
	}
}

static void wait_each(struct session *s, struct work *const *order, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		const struct work *w = order[n - 1 - i];
		int status = kops_wait(w->job, -1);

		if (w->out || status != w->status)
			die("kops_wait: %d: %s", status, kops_error(s->k));
	}
}

static unsigned count_out(struct work *const *order, unsigned n)
{
	unsigned out = 0;

	for (unsigned i = 0; i < n; i++)
		out += order[i]->out;
	return out;
}

/* Works like an event loop. */
static void process_all(struct session *s, struct work *const *order, unsigned n)
{
	while (count_out(order, n) > 0) {
		struct pollfd p = {.fd = kops_fd(s->k), .events = kops_events(s->k)};

		poll(&p, p.fd >= 0, kops_timeout(s->k));
		if (kops_process(s->k) < 0)
			die("kops_process: %s", kops_error(s->k));
	}
}

static void disturb(struct session *s, struct work *const *order, unsigned n_submitted)
{
	struct work *w = order[below(s, n_submitted)];

	if (below(s, 10) == 0 && w->out)
		kops_cancel(w->job);
	if (below(s, 60) == 0 && w->out && !w->dropped)
		drop_one(s, w);
}

static void run_round(struct session *s)
{
	struct work *order[JOBS];
	unsigned n = 1 + (unsigned)below(s, JOBS);

	shuffle(s, order);
	for (unsigned i = 0; i < n; i++) {
		submit(s, order[i]);
		disturb(s, order, i + 1);
	}
	if (below(s, 2))
		wait_each(s, order, n);
	else
		process_all(s, order, n);
	for (unsigned i = 0; i < n; i++)
		if (order[i]->status == 0)
			check_done(s, order[i]);
		else
			check_failed(s, order[i]);
	check_passed(s);
	for (unsigned i = 0; i < n; i++)
		if (order[i]->dropped || below(s, 60) == 0) {
			unmake(order[i]);
			make(s, order[i]);
			s->counts.remade++;
		}
	s->runs -= n < s->runs ? n : s->runs;
}

static void open_session(struct session *s, unsigned index)
{
	char why[256];
	kops_options options = {.size = sizeof options,
	                        .socket = socket_path,
	                        .name = "random runs",
	                        .timeout_ms = 120000,
	                        .spin_us = index % 2 * 20};

	if (kops_open(&s->k, &options, why, sizeof why) < 0)
		die("kops_open: %s", why);
	for (unsigned q = 0; q < QUEUES; q++) {
		s->passed[q].buffer = new_buffer(s, PASSED_SIDE);
		s->passed[q].content.side = PASSED_SIDE;
		s->passed[q].known = true;
	}
	for (unsigned i = 0; i < JOBS; i++)
		make(s, &s->works[i]);
}

static void *run_session(void *arg)
{
	struct session *s = arg;

	while (s->runs > 0)
		run_round(s);
	kops_close(s->k);
	return NULL;
}

static void add_counts(struct counts *sum, const struct counts *more)
{
	sum->done += more->done;
	sum->prepared += more->prepared;
	sum->cancelled += more->cancelled;
	sum->expired += more->expired;
	sum->interrupted += more->interrupted;
	sum->dropped += more->dropped;
	sum->remade += more->remade;
	sum->graphs += more->graphs;
}

int main(int argc, char **argv)
{
	static struct session sessions[SESSIONS];
	struct counts all = {0};
	uint64_t seed = seed_of_run();

	if (argc < 3 || (argc == 4 && strcmp(argv[3], "killed") != 0) || argc > 4)
		die("usage: random_runs SOCKET RUNS [killed]");
	socket_path = argv[1];
	killed = argc == 4;
	fprintf(stderr, "seed %llu\n", (unsigned long long)seed);
	for (unsigned i = 0; i < SESSIONS; i++) {
		sessions[i].random = (seed * SESSIONS + i) * 2654435769u + 88172645463325252u;
		sessions[i].runs = strtoul(argv[2], NULL, 10) / SESSIONS;
		open_session(&sessions[i], i);
	}
	for (unsigned i = 0; i < SESSIONS; i++)
		if (pthread_create(&sessions[i].thread, NULL, run_session, &sessions[i]) != 0)
			die("no thread");
	for (unsigned i = 0; i < SESSIONS; i++) {
		pthread_join(sessions[i].thread, NULL);
		add_counts(&all, &sessions[i].counts);
	}
	printf("done %lu prepared %lu graphs %lu cancelled %lu expired %lu interrupted %lu dropped %lu remade "
	       "%lu\n",
	       all.done, all.prepared, all.graphs, all.cancelled, all.expired, all.interrupted, all.dropped,
	       all.remade);
	return 0;
}
