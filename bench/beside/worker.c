#include "beside/worker.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "operands.h"

#define WARMUP      60 /* jobs of a shape after which kopsd has prepared them, fewer of long ones */
#define WARMUP_MIN  3
#define WARMUP_US   1e6
#define LEARNING    200 /* jobs on which kopsd may try kernels */
#define LEARNING_US 10e6

struct worker {
	struct cli cli;
	struct bench bench;
	int sock;
	unsigned out;
	struct load load;
	struct operands operands;
	kops_job *jobs[WORKER_OUT_MAX];
	uint64_t sent;
	bool learning; /* of kopsd, by the latest job */
	bool runs;     /* false also after a job failed, which status and why tell */
	struct reply reply;
};

static int failed(struct worker *w, int status, const char *sentence)
{
	w->reply.status = status;
	w->runs = false;
	bench_put(w->reply.why, sizeof(w->reply.why), sentence[0] ? sentence : kops_strerror(status));
	return status;
}

/* ---- Jobs ---- */

/* Places the step, which may be of a smaller shape, where the operands of a set lie. */
static void place(const struct worker *w, size_t set, struct step *step)
{
	struct step whole = operands_step(&w->operands, set % w->operands.n_sets);

	for (unsigned i = 0; i < step->op->n_inputs; i++) {
		step->in[i].buffer = whole.in[i].buffer;
		step->in[i].offset = whole.in[i].offset;
	}
	step->out.buffer = whole.out.buffer;
	step->out.offset = whole.out.offset;
}

static int make_job(struct worker *w, unsigned slot)
{
	kops_job_options options = {.size = sizeof(options), .device = w->bench.device->name};
	struct step step;
	int rc = load_step(&w->load, w->sent, &step, w->reply.why);

	if (rc < 0)
		return failed(w, rc, w->reply.why);
	rc = kops_job_new(w->cli.handle, &options, &w->jobs[slot]);
	for (unsigned i = 0; i < w->load.ops && rc == 0; i++) {
		place(w, (size_t)slot * w->load.ops + i, &step);
		rc = step_enqueue(w->jobs[slot], &step);
	}
	return rc < 0 ? failed(w, rc, kops_error(w->cli.handle)) : 0;
}

static int send_job(struct worker *w)
{
	unsigned slot = (unsigned)(w->sent % w->out);
	int rc = 0;

	if (w->load.anew) {
		kops_job_free(w->jobs[slot]);
		w->jobs[slot] = NULL;
	}
	if (w->jobs[slot] == NULL)
		rc = make_job(w, slot);
	if (rc < 0)
		return rc;
	rc = kops_submit(w->jobs[slot], NULL, NULL);
	if (rc < 0)
		return failed(w, rc, kops_error(w->cli.handle));
	w->sent++;
	return 0;
}

static void note(struct worker *w, const kops_job *job)
{
	const kops_receipt *r = kops_job_receipt(job);

	w->reply.done.jobs++;
	w->reply.done.at_us = cli_now_us();
	w->reply.done.device_us += r->upload_us + r->compute_us + r->download_us;
	w->learning = kops_receipt_op(r, 0)->learning;
	bench_put(w->reply.kernel, sizeof(w->reply.kernel), kops_receipt_op(r, 0)->kernel);
}

/* Sends what may be out, and waits for the job that was sent first. */
static int complete_one(struct worker *w)
{
	int timeout_ms = (int)w->cli.flags.timeout_ms, rc = 0;

	while (rc == 0 && w->sent < w->reply.done.jobs + w->out)
		rc = send_job(w);
	if (rc < 0)
		return rc;
	kops_job *job = w->jobs[w->reply.done.jobs % w->out];
	while ((rc = kops_wait(job, timeout_ms)) == KOPS_E_BUSY) {
		bench_back_off(job);
		rc = kops_submit(job, NULL, NULL);
		if (rc < 0)
			return failed(w, rc, kops_error(w->cli.handle));
	}
	if (rc < 0)
		return failed(w, rc, kops_job_error(job));
	note(w, job);
	return 0;
}

/* ---- Orders ---- */

/* Waits for jobs in flight, since they write to the operands. */
static void rest(struct worker *w)
{
	for (unsigned i = 0; i < w->out; i++) {
		if (w->jobs[i] && kops_job_is_out(w->jobs[i]))
			kops_wait(w->jobs[i], (int)w->cli.flags.timeout_ms);
		kops_job_free(w->jobs[i]);
		w->jobs[i] = NULL;
	}
	operands_free(&w->operands);
	w->runs = false;
	w->sent = 0;
	w->reply = (struct reply){.status = 0};
}

/* Each job in flight has operands of its own where there is room for them. */
static int make_operands(struct worker *w)
{
	struct load whole = w->load;
	struct step step;

	whole.anew = false;
	w->bench.host = w->load.host;
	int rc = load_step(&whole, 0, &step, w->bench.why);
	if (rc == 0)
		rc = operands_make(&w->bench, &step, (size_t)w->out * w->load.ops, &w->operands);
	return rc < 0 ? failed(w, rc, w->bench.why) : 0;
}

/* Returns true if the rate of the load may still change. A new shape's always may. */
static bool is_settling(const struct worker *w, double us)
{
	uint64_t jobs = w->reply.done.jobs;

	if (jobs < WARMUP_MIN || (jobs < WARMUP && us < WARMUP_US))
		return true;
	return w->learning && !w->load.anew && jobs < LEARNING && us < LEARNING_US;
}

static void start(struct worker *w, const struct load *load)
{
	double began_us = cli_now_us();

	rest(w);
	w->load = *load;
	int rc = make_operands(w);
	while (rc == 0 && is_settling(w, cli_now_us() - began_us))
		rc = complete_one(w);
	w->runs = rc == 0;
}

static void obey(struct worker *w, const struct order *order)
{
	if (order->kind == ORDER_RUN)
		start(w, &order->load);
	else if (order->kind == ORDER_REST)
		rest(w);
}

/* Returns false if there is no order yet. Ends the process when no more will come. */
static bool next_order(const struct worker *w, struct order *ret)
{
	ssize_t n = recv(w->sock, ret, sizeof(*ret), w->runs ? MSG_DONTWAIT : 0);

	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
		_exit(0);
	return n == (ssize_t)sizeof(*ret);
}

static void say(const struct worker *w)
{
	if (send(w->sock, &w->reply, sizeof(w->reply), MSG_NOSIGNAL) < 0)
		_exit(1);
}

/* Returns a status for which cli_fail_kops() has that exit code. */
static int status_for(int exit_code)
{
	return exit_code == CLI_NO_DAEMON   ? KOPS_E_CONNECT
	       : exit_code == CLI_TIMED_OUT ? KOPS_E_TIMEOUT
	                                    : KOPS_E_SYSTEM;
}

_Noreturn void worker_serve(int sock, const struct cli *cli, unsigned out)
{
	struct worker w = {.cli = *cli, .bench = {.seed = 1}, .sock = sock, .out = out};
	struct order order;

	w.bench.cli = &w.cli;
	w.cli.flags.quiet = true; /* the process that measures shows progress */
	int code = bench_open(&w.bench);
	if (code != CLI_OK)
		failed(&w, status_for(code), w.cli.why);
	say(&w);
	for (;;) {
		if (w.runs)
			complete_one(&w);
		if (!next_order(&w, &order))
			continue;
		obey(&w, &order);
		say(&w);
	}
}
