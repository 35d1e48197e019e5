#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"
#include "operands.h"
#include "report/samples.h"
#include "show.h"

#define COUNT_DEFAULT 2000
#define SIZE_DEFAULT  64
#define WARMUP        50
#define TURNS         20 /* the kinds of measurement alternate, so that all see the same machine */
#define OUT_MAX       16
#define ECHO_BYTES    16

/* ---- the yardstick ---- */

/* Answers datagrams until the peer closes. Runs in the child process. */
static void echo_forever(int sock)
{
	struct epoll_event event = {.events = EPOLLIN};
	char data[ECHO_BYTES];
	int loop = epoll_create1(EPOLL_CLOEXEC);

	if (loop < 0 || epoll_ctl(loop, EPOLL_CTL_ADD, sock, &event) < 0)
		_exit(1);
	for (;;) {
		if (epoll_wait(loop, &event, 1, -1) < 0 && errno != EINTR)
			_exit(1);
		ssize_t n = recv(sock, data, sizeof(data), 0);
		if (n <= 0 || send(sock, data, (size_t)n, MSG_NOSIGNAL) != n)
			_exit(0);
	}
}

static int echo_start(int *ret_sock, pid_t *ret_child)
{
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -1;
	pid_t child = fork();
	if (child == 0) {
		close(pair[0]);
		echo_forever(pair[1]);
	}
	close(pair[1]);
	if (child < 0) {
		close(pair[0]);
		return -1;
	}
	*ret_sock = pair[0];
	*ret_child = child;
	return 0;
}

static int echo_once(int sock)
{
	char data[ECHO_BYTES] = "echo";

	if (send(sock, data, sizeof(data), MSG_NOSIGNAL) < 0 || recv(sock, data, sizeof(data), 0) <= 0)
		return -1;
	return 0;
}

/* ---- the measurement ---- */

struct ipc {
	struct cli *cli;
	uint64_t count, size;
	int echo_sock;
	pid_t echo_child;
	kops_job *jobs[OUT_MAX];
	struct samples echo, ping, job, compute;
	double per_second_1, per_second_16;
};

static int make_jobs(struct ipc *ipc)
{
	kops *k = ipc->cli->handle;
	uint64_t bytes = ipc->size * ipc->size * sizeof(float);
	kops_buffer *a, *b, *c;
	int rc;

	if ((rc = kops_alloc(k, bytes, KOPS_SHARED, NULL, &a)) < 0 ||
	    (rc = kops_alloc(k, bytes, KOPS_SHARED, NULL, &b)) < 0)
		return rc;
	kops_view va = kops_matrix(a, 0, KOPS_F32, ipc->size, ipc->size, 0);
	kops_view vb = kops_matrix(b, 0, KOPS_F32, ipc->size, ipc->size, 0);
	bench_fill(&va, INPUT_UNIFORM, 1);
	bench_fill(&vb, INPUT_UNIFORM, 2);
	for (uint32_t i = 0; i < OUT_MAX; i++) {
		kops_job_options options = {
		    .size = sizeof(options), .queue = i, .device = ipc->cli->flags.device};
		if ((rc = kops_alloc(k, bytes, KOPS_SHARED, NULL, &c)) < 0 ||
		    (rc = kops_job_new(k, &options, &ipc->jobs[i])) < 0)
			return rc;
		kops_view vc = kops_matrix(c, 0, KOPS_F32, ipc->size, ipc->size, 0);
		rc = kops_job_gemm(ipc->jobs[i], 1, va, vb, 0, vc, ipc->cli->flags.precision,
		                   ipc->cli->flags.op.kernel);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static int measure_echo(struct ipc *ipc)
{
	double start = cli_now_us();

	if (echo_once(ipc->echo_sock) < 0)
		return KOPS_E_SYSTEM;
	samples_add(&ipc->echo, cli_now_us() - start);
	return 0;
}

static int measure_ping(struct ipc *ipc)
{
	double start = cli_now_us();

	int rc = kops_ping(ipc->cli->handle);
	samples_add(&ipc->ping, cli_now_us() - start);
	return rc;
}

static int measure_job(struct ipc *ipc)
{
	double start = cli_now_us();

	int rc = kops_run(ipc->jobs[0]);
	if (rc < 0)
		return rc;
	samples_add(&ipc->job, cli_now_us() - start);
	samples_add(&ipc->compute, kops_job_receipt(ipc->jobs[0])->compute_us);
	return 0;
}

static int (*const measurements[])(struct ipc *ipc) = {measure_echo, measure_ping, measure_job};
#define N_MEASUREMENTS (sizeof(measurements) / sizeof(measurements[0]))

static int take_turns(struct ipc *ipc, uint64_t each)
{
	for (unsigned turn = 0; turn < TURNS; turn++)
		for (size_t m = 0; m < N_MEASUREMENTS; m++)
			for (uint64_t i = 0; i < (each + TURNS - 1) / TURNS; i++) {
				int rc = measurements[m](ipc);
				if (rc < 0)
					return rc;
			}
	return 0;
}

/* Measures jobs per second with `out` of them under way at any time. */
static int measure_rate(struct ipc *ipc, unsigned out, double *ret_per_second)
{
	int timeout_ms = ipc->cli->flags.timeout_ms ? (int)ipc->cli->flags.timeout_ms : 30000;
	uint64_t submitted = 0, done = 0;
	double start = cli_now_us();

	while (done < ipc->count) {
		for (; submitted < ipc->count && submitted < done + out; submitted++) {
			int rc = kops_submit(ipc->jobs[submitted % out], NULL, NULL);
			if (rc < 0)
				return rc;
		}
		int rc = kops_wait(ipc->jobs[done % out], timeout_ms);
		if (rc < 0)
			return rc;
		done++;
	}
	*ret_per_second = (double)ipc->count / (cli_now_us() - start) * 1e6;
	return 0;
}

static void forget(struct ipc *ipc)
{
	ipc->echo.n = ipc->ping.n = ipc->job.n = ipc->compute.n = 0;
}

static int measure(struct ipc *ipc)
{
	int rc = make_jobs(ipc);

	if (rc == 0)
		rc = take_turns(ipc, WARMUP);
	forget(ipc);
	if (rc == 0)
		rc = take_turns(ipc, ipc->count);
	if (rc == 0)
		rc = measure_rate(ipc, 1, &ipc->per_second_1);
	if (rc == 0)
		rc = measure_rate(ipc, OUT_MAX, &ipc->per_second_16);
	return rc;
}

/* ---- the report ---- */

static double median(struct samples *samples)
{
	return samples_quantile(samples, 0.5);
}

static void print_row(const char *name, struct samples *s, const char *more)
{
	struct show_text p50 = show_us(median(s)), p99 = show_us(samples_quantile(s, 0.99));

	printf("%-*s p50 %-*s p99 %-*s %s\n", show_field(22, name), name, show_field(9, p50.text), p50.text,
	       show_field(9, p99.text), p99.text, more);
}

static void report_text(struct ipc *ipc)
{
	char more[96], name[32];

	print_row("bare echo", &ipc->echo, "");
	snprintf(more, sizeof(more), "%.2f × the echo", median(&ipc->ping) / median(&ipc->echo));
	print_row("ping through libkops", &ipc->ping, more);
	snprintf(more, sizeof(more), "%.1f µs above the echo, %.1f µs of it computing",
	         median(&ipc->job) - median(&ipc->echo), median(&ipc->compute));
	snprintf(name, sizeof(name), "gemm %llu³ on %s", (unsigned long long)ipc->size,
	         kops_job_receipt(ipc->jobs[0])->device);
	print_row(name, &ipc->job, more);
	printf("jobs a second: %.0f with 1 in flight, %.0f with %d in flight\n", ipc->per_second_1,
	       ipc->per_second_16, OUT_MAX);
}

static void report_json(struct ipc *ipc)
{
	struct json json;

	json_begin(&json, stdout, "bench");
	json_text(&json, "bench", "ipc");
	json_bool(&json, "ok", true);
	json_count(&json, "count", ipc->count);
	samples_json(&json, "echo", &ipc->echo);
	samples_json(&json, "ping", &ipc->ping);
	json_real(&json, "ping_to_echo_p50", median(&ipc->ping) / median(&ipc->echo));
	json_count(&json, "job_size", ipc->size);
	json_text(&json, "job_device", kops_job_receipt(ipc->jobs[0])->device);
	json_text(&json, "job_kernel", kops_receipt_op(kops_job_receipt(ipc->jobs[0]), 0)->kernel);
	samples_json(&json, "job", &ipc->job);
	samples_json(&json, "job_compute", &ipc->compute);
	json_us(&json, "job_above_echo_p50_us", median(&ipc->job) - median(&ipc->echo));
	json_object(&json, "jobs_per_second");
	json_real(&json, "out_1", ipc->per_second_1);
	json_real(&json, "out_16", ipc->per_second_16);
	json_close_object(&json);
	json_end(&json);
	ipc->cli->printed = true;
}

static int fail(struct ipc *ipc, int rc)
{
	const char *sentence = "";

	for (unsigned i = 0; i < OUT_MAX && sentence[0] == '\0'; i++)
		sentence = ipc->jobs[i] ? kops_job_error(ipc->jobs[i]) : "";
	return cli_fail_kops(ipc->cli, rc, sentence[0] ? sentence : kops_error(ipc->cli->handle));
}

static int run_ipc(struct ipc *ipc)
{
	int code = cli_open(ipc->cli);
	if (code != CLI_OK)
		return code;
	int rc = measure(ipc);
	if (rc < 0)
		return fail(ipc, rc);
	if (ipc->cli->flags.json)
		report_json(ipc);
	else
		report_text(ipc);
	return cli_flush(ipc->cli);
}

static int run(struct cli *cli, char **argv)
{
	struct ipc ipc = {.cli = cli, .echo_sock = -1, .echo_child = -1};
	size_t room;
	int rc;

	(void)argv;
	ipc.count = count_or(cli->flags.count, COUNT_DEFAULT);
	ipc.size = count_or(cli->flags.size, SIZE_DEFAULT);
	if (ipc.count == 0 || ipc.count > 10000000 || ipc.size == 0 || ipc.size > 8192)
		return cli_fail(cli, CLI_USAGE, "--count takes 1 to 10000000, --size 1 to 8192");
	room = (size_t)ipc.count + TURNS + WARMUP;
	if (samples_init(&ipc.echo, room) < 0 || samples_init(&ipc.ping, room) < 0 ||
	    samples_init(&ipc.job, room) < 0 || samples_init(&ipc.compute, room) < 0)
		rc = cli_fail(cli, CLI_FAILED, "out of memory; a smaller --count needs less");
	else if (echo_start(&ipc.echo_sock, &ipc.echo_child) < 0)
		rc = cli_fail(cli, CLI_FAILED, "cannot start the echo process: %s", strerror(errno));
	else
		rc = run_ipc(&ipc);
	for (unsigned i = 0; i < OUT_MAX; i++)
		kops_job_free(ipc.jobs[i]);
	if (ipc.echo_sock >= 0)
		close(ipc.echo_sock);
	if (ipc.echo_child > 0)
		waitpid(ipc.echo_child, NULL, 0);
	samples_free(&ipc.echo);
	samples_free(&ipc.ping);
	samples_free(&ipc.job);
	samples_free(&ipc.compute);
	return rc;
}

static const struct option_row options[] = {
    OPTION("count", 0, "N", count, count, "round trips and jobs of each kind; default 2000"),
    OPTION("size", 0, "N", count, size, "the small job is an N³ product; default 64"),
    OPTION_KERNEL,
    OPTION_PRECISION,
    OPTION_DEVICE,
    OPTION_TIMEOUT,
    OPTION_JSON,
    OPTIONS_END,
};

const struct command command_ipc = {
    .name = "ipc",
    .summary = "round trips, and the latency and rate of small jobs",
    .usage = "[options]",
    .help = "Three figures: ping through libkops, the latency of a small product host to host, and jobs per\n"
            "second with 1 and with 16 jobs in flight. The peer is a bare SOCK_SEQPACKET echo between two "
            "processes\n"
            "(epoll in the server), measured in turns in the same run.\n"
            "\n"
            "Examples:\n"
            "  kops-bench ipc\n"
            "  kops-bench ipc --count 10000 --size 256 --json\n",
    .min_args = 0,
    .max_args = 0,
    .args_are = "no shape (--size sets the small job's)",
    .options = options,
    .json_verb = "bench",
    .run = run,
};
