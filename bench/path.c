/* path.c: measures what a job loses between its caller and its kernels, and how many jobs clients complete. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "cases.h"
#include "operands.h"
#include "report/samples.h"
#include "show.h"

#define COUNT_DEFAULT 1000
#define LONG_US       6e5 /* time for jobs of one kind; if they are long, fewer are measured */
#define COUNT_MIN     30
#define WARMUP        60 /* jobs of a shape after which its kernels are settled */
#define SIZE_MAX_CPU  64 /* larger products would hide the time of the path */
#define RATE_US       5e5
#define OUT_MAX       64
#define CLIENTS_MAX   16
#define RATE_SIZE     64
#define RATE_SAMPLES  500000

/* Jobs of equal ops on square matrices. All ops share their operands, or each has its own. */
struct kind {
	const char *op;
	kops_dtype dtype;
	uint64_t size;
	unsigned ops;
	bool resident, independent;
};

static const struct kind kinds[] = {
    {"gemm", KOPS_F32, 64, 1, false, false},     {"gemm", KOPS_F32, 64, 1, true, false},
    {"gemm", KOPS_F32, 1024, 1, true, false},    {"gemm", KOPS_F32, 4096, 1, true, false},
    {"gemm", KOPS_F32, 8192, 1, true, false},    {"gemm", KOPS_F32, 8, 32, true, false},
    {"gemm", KOPS_F32, 64, 32, true, false},     {"gemm", KOPS_F32, 256, 32, true, false},
    {"gemm", KOPS_F32, 512, 32, true, false},    {"gemm", KOPS_F32, 1024, 1, false, false},
    {"gemm", KOPS_F32, 4096, 1, false, false},   {"gemm", KOPS_F32, 64, 64, true, true},
    {"gemm", KOPS_F16, 64, 64, true, true},      {"gemm", KOPS_BF16, 64, 64, true, true},
    {"softmax", KOPS_F32, 64, 64, true, true},   {"add", KOPS_F32, 64, 64, true, true},
    {"transpose", KOPS_F32, 64, 64, true, true}, {"copy", KOPS_F32, 64, 64, true, true},
};
#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

/* A number of clients, each with a number of jobs in flight, and what they completed. */
struct crowd {
	unsigned clients, out;
	double per_second, p50_us, worst_p99_us;
};

static const struct crowd all_crowds[] = {{.clients = 1, .out = 1},
                                          {.clients = 1, .out = 64},
                                          {.clients = 4, .out = 1},
                                          {.clients = 16, .out = 1},
                                          {.clients = 16, .out = 16}};
#define CROWDS (sizeof(all_crowds) / sizeof(all_crowds[0]))

/*
 * wall, device, lost: for a job that is repeated. fresh: wall time of a job made anew each time. to_start: the
 * daemon's time from its message to its start, for decoding, checking, planning and submitting.
 */
struct measured {
	struct samples wall, device, lost, fresh, to_start;
	char kernel[32];
	bool graph;
};

struct path {
	struct bench bench;
	uint64_t count;
	struct measured of_kind[KINDS];
	struct crowd crowds[CROWDS];
	size_t n_crowds;
	pthread_mutex_t lock;
	char why[CLI_WHY_BYTES]; /* from the first client that failed; protected by lock */
};

/* Returns true if the user chose a crowd. It is measured alone, without jobs one at a time. */
static bool is_one_crowd(const struct flags *flags)
{
	return flags->clients.set || flags->out.set;
}

/* ---- One job at a time ---- */

static bool is_measured(const struct path *p, const struct kind *kind)
{
	if (is_one_crowd(&p->bench.cli->flags))
		return false;
	return strcmp(p->bench.kind, "cpu") != 0 || kind->size <= SIZE_MAX_CPU;
}

static int make_operands(struct path *p, const struct kind *kind, struct operands *ret)
{
	const struct operation *op = operation_by_name(kind->op);
	struct bench_shape shape = {.text = ""};
	struct step step;

	for (size_t i = 0; i < op->bench.n_extents; i++)
		shape.extents[i] = kind->size;
	p->bench.host = !kind->resident;
	int rc = bench_shape_step(op, kind->dtype, &shape, NULL, &step, p->bench.why);
	return rc == 0 ? operands_make(&p->bench, &step, kind->independent ? kind->ops : 1, ret) : rc;
}

static int make_job(struct path *p, const struct operands *operands, const struct kind *kind,
                    kops_job **ret_job)
{
	kops_job_options options = {.size = sizeof(options), .device = p->bench.device->name};
	int rc = kops_job_new(p->bench.cli->handle, &options, ret_job);

	for (unsigned i = 0; i < kind->ops && rc == 0; i++) {
		struct step step = operands_step(operands, i % operands->n_sets);

		rc = step_enqueue(*ret_job, &step);
	}
	return rc;
}

static int run_timed(kops_job *job, double *ret_us)
{
	double start = cli_now_us();
	int rc = kops_run(job);

	*ret_us = cli_now_us() - start;
	return rc;
}

static void note(struct measured *m, const kops_job *job, double wall_us)
{
	const kops_receipt *r = kops_job_receipt(job);
	double device_us = r->upload_us + r->compute_us + r->download_us;

	samples_add(&m->wall, wall_us);
	samples_add(&m->device, device_us);
	samples_add(&m->lost, wall_us - device_us);
	m->graph = r->graph;
	bench_put(m->kernel, sizeof(m->kernel), kops_receipt_op(r, 0)->kernel);
}

/* Measures the same job, repeated after it was settled. */
static int measure_repeated(struct path *p, kops_job *job, struct measured *m)
{
	double us, all_us = 0;
	int rc = 0;

	for (int i = 0; i < WARMUP && rc == 0; i++)
		rc = run_timed(job, &us);
	for (uint64_t i = 0; i < p->count && rc == 0 && (i < COUNT_MIN || all_us < LONG_US); i++) {
		rc = run_timed(job, &us);
		all_us += us;
		if (rc == 0)
			note(m, job, us);
	}
	return rc;
}

static int measure_fresh(struct path *p, const struct operands *operands, const struct kind *kind,
                         struct measured *m)
{
	double us, all_us = 0;
	int rc = 0;

	for (uint64_t i = 0; i < p->count && rc == 0 && (i < COUNT_MIN || all_us < LONG_US / 4); i++) {
		kops_job *job = NULL;

		rc = make_job(p, operands, kind, &job);
		if (rc == 0)
			rc = run_timed(job, &us);
		if (rc == 0) {
			samples_add(&m->fresh, us);
			samples_add(&m->to_start, kops_job_receipt(job)->queue_us);
			all_us += us;
		}
		kops_job_free(job);
	}
	return rc;
}

static int init_samples(struct measured *m, size_t count)
{
	struct samples *all[] = {&m->wall, &m->device, &m->lost, &m->fresh, &m->to_start};
	int rc = 0;

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]) && rc == 0; i++)
		rc = samples_init(all[i], count);
	return rc;
}

static void free_samples(struct measured *m)
{
	samples_free(&m->wall);
	samples_free(&m->device);
	samples_free(&m->lost);
	samples_free(&m->fresh);
	samples_free(&m->to_start);
}

static int measure_kind(struct path *p, size_t which)
{
	struct measured *m = &p->of_kind[which];
	struct operands operands = {.n_sets = 0};
	kops_job *job = NULL;
	int rc = init_samples(m, p->count);

	if (rc == 0)
		rc = make_operands(p, &kinds[which], &operands);
	if (rc == 0)
		rc = make_job(p, &operands, &kinds[which], &job);
	if (rc == 0)
		rc = measure_repeated(p, job, m);
	if (rc == 0)
		rc = measure_fresh(p, &operands, &kinds[which], m);
	kops_job_free(job);
	operands_free(&operands);
	return rc;
}

/* ---- Many at a time ---- */

/* A client with its own handle and thread. */
struct client {
	struct path *path;
	pthread_barrier_t *start;
	unsigned out;
	uint64_t done;
	struct samples us;
	int rc;
};

static int make_jobs(const struct client *c, kops *k, kops_job **jobs)
{
	const struct path *p = c->path;
	uint64_t n = RATE_SIZE, bytes = n * n * sizeof(float);
	kops_buffer *buffer;
	int rc = kops_alloc(k, (2 + c->out) * bytes, KOPS_SHARED, NULL, &buffer);

	if (rc < 0)
		return rc;
	kops_view inputs = kops_matrix(buffer, 0, KOPS_F32, 2 * n, n, 0);
	bench_fill(&inputs, INPUT_UNIFORM, p->bench.seed);
	for (unsigned i = 0; i < c->out && rc == 0; i++) {
		kops_job_options options = {
		    .size = sizeof(options), .queue = i, .device = p->bench.device->name};
		rc = kops_job_new(k, &options, &jobs[i]);
		if (rc == 0)
			rc = kops_job_gemm(jobs[i], 1, kops_matrix(buffer, 0, KOPS_F32, n, n, 0),
			                   kops_matrix(buffer, bytes, KOPS_F32, n, n, 0), 0,
			                   kops_matrix(buffer, (2 + i) * bytes, KOPS_F32, n, n, 0),
			                   KOPS_PRECISION_F32, NULL);
		for (int w = 0; w < WARMUP && rc == 0; w++)
			rc = kops_run(jobs[i]);
	}
	return rc;
}

/* Keeps the number of jobs in flight constant. Waits for jobs in the order in which they were sent. */
static int keep_busy(struct client *c, kops_job **jobs)
{
	double sent_us[OUT_MAX], start = cli_now_us();
	uint64_t submitted = 0;
	int rc = 0;

	while (rc == 0 && (c->done < submitted || cli_now_us() - start < RATE_US)) {
		unsigned i = (unsigned)(c->done % c->out);

		if (submitted < c->done + c->out && cli_now_us() - start < RATE_US) {
			sent_us[submitted % c->out] = cli_now_us();
			rc = kops_submit(jobs[submitted++ % c->out], NULL, NULL);
			continue;
		}
		rc = kops_wait(jobs[i], 30000);
		samples_add(&c->us, cli_now_us() - sent_us[i]);
		c->done++;
	}
	return rc;
}

static void *run_client(void *arg)
{
	struct client *c = arg;
	const struct flags *flags = &c->path->bench.cli->flags;
	kops_options options = {.size = sizeof(options),
	                        .socket = flags->socket,
	                        .name = "kops-bench",
	                        .spin_us = (uint32_t)flags->spin.value};
	kops_job *jobs[OUT_MAX] = {NULL};
	char why[CLI_WHY_BYTES] = "";
	kops *k = NULL;

	c->rc = kops_open(&k, &options, why, sizeof(why));
	if (c->rc == 0)
		c->rc = make_jobs(c, k, jobs);
	pthread_barrier_wait(c->start);
	if (c->rc == 0)
		c->rc = keep_busy(c, jobs);
	if (c->rc < 0) {
		pthread_mutex_lock(&c->path->lock);
		bench_put(c->path->why, sizeof(c->path->why), k ? kops_error(k) : why);
		pthread_mutex_unlock(&c->path->lock);
	}
	kops_close(k);
	return NULL;
}

static int measure_crowd(struct path *p, struct crowd *crowd)
{
	unsigned n = crowd->clients;
	struct client clients[CLIENTS_MAX];
	struct samples all;
	pthread_t threads[CLIENTS_MAX];
	pthread_barrier_t start;
	int rc = samples_init(&all, (size_t)n * RATE_SAMPLES);

	pthread_barrier_init(&start, NULL, n);
	for (unsigned i = 0; i < n; i++) {
		clients[i] = (struct client){.path = p, .start = &start, .out = crowd->out};
		if (rc == 0)
			rc = samples_init(&clients[i].us, RATE_SAMPLES);
	}
	for (unsigned i = 0; i < n && rc == 0; i++)
		if (pthread_create(&threads[i], NULL, run_client, &clients[i]))
			abort(); /* other threads wait for this one at the barrier */
	for (unsigned i = 0; i < n && rc == 0; i++) {
		struct client *c = &clients[i];
		double p99;

		pthread_join(threads[i], NULL);
		crowd->per_second += (double)c->done / (RATE_US * 1e-6);
		for (size_t s = 0; s < c->us.n; s++)
			samples_add(&all, c->us.us[s]);
		p99 = samples_quantile(&c->us, 0.99);
		crowd->worst_p99_us = p99 > crowd->worst_p99_us ? p99 : crowd->worst_p99_us;
	}
	for (unsigned i = 0; i < n; i++) {
		rc = rc < 0 ? rc : clients[i].rc;
		samples_free(&clients[i].us);
	}
	crowd->p50_us = samples_quantile(&all, 0.5);
	samples_free(&all);
	pthread_barrier_destroy(&start);
	return rc;
}

/* ---- The report ---- */

static void report_jobs(struct path *p)
{
	printf("%-36s %-9s %11s %11s %11s %11s %11s %s\n", "ops, square matrices", "", "wall p50", "p99",
	       "device p50", "lost p50", "lost p99", "new job p50");
	for (size_t i = 0; i < KINDS; i++) {
		const struct kind *kind = &kinds[i];
		struct measured *m = &p->of_kind[i];
		char name[64];

		if (m->wall.n == 0)
			continue;
		snprintf(name, sizeof(name), "%u × %s %s %llu %s", kind->ops, kind->op,
		         element_type_name(kind->dtype), (unsigned long long)kind->size,
		         kind->independent ? "independent"
		         : kind->resident  ? "resident"
		                           : "host");
		printf("%-*s %-9s %11.1f %11.1f %11.1f %11.1f %11.1f %11.1f\n", show_field(36, name), name,
		       m->graph ? "graph" : "", samples_quantile(&m->wall, 0.5),
		       samples_quantile(&m->wall, 0.99), samples_quantile(&m->device, 0.5),
		       samples_quantile(&m->lost, 0.5), samples_quantile(&m->lost, 0.99),
		       samples_quantile(&m->fresh, 0.5));
	}
	printf("all in µs; lost: wall clock less device\n");
}

static void report_text(struct path *p)
{
	printf("%s; a client that %s\n", p->bench.device->name,
	       p->bench.cli->flags.spin.value ? "spins" : "sleeps while it waits");
	if (!is_one_crowd(&p->bench.cli->flags))
		report_jobs(p);
	for (size_t i = 0; i < p->n_crowds; i++) {
		const struct crowd *c = &p->crowds[i];

		printf("%u client%s with %u in flight: %.0f products of %d³ a second, p50 %.1f µs, worst p99 "
		       "%.1f µs\n",
		       c->clients, c->clients > 1 ? "s" : "", c->out, c->per_second, RATE_SIZE, c->p50_us,
		       c->worst_p99_us);
	}
}

static void report_json(struct path *p)
{
	struct json json;

	json_begin(&json, stdout, "bench");
	json_text(&json, "bench", "path");
	json_bool(&json, "ok", true);
	json_text(&json, "device", p->bench.device->name);
	json_count(&json, "spin_us", p->bench.cli->flags.spin.value);
	json_array(&json, "jobs");
	for (size_t i = 0; i < KINDS; i++) {
		struct measured *m = &p->of_kind[i];

		if (m->wall.n == 0)
			continue;
		json_object(&json, NULL);
		json_count(&json, "ops", kinds[i].ops);
		json_text(&json, "op", kinds[i].op);
		json_text(&json, "dtype", element_type_name(kinds[i].dtype));
		json_count(&json, "size", kinds[i].size);
		json_bool(&json, "resident", kinds[i].resident);
		json_bool(&json, "independent", kinds[i].independent);
		json_text(&json, "kernel", m->kernel);
		json_bool(&json, "graph", m->graph);
		samples_json(&json, "wall", &m->wall);
		samples_json(&json, "device", &m->device);
		samples_json(&json, "lost", &m->lost);
		samples_json(&json, "new_job", &m->fresh);
		samples_json(&json, "new_job_to_start", &m->to_start);
		json_close_object(&json);
	}
	json_close_array(&json);
	json_array(&json, "rates");
	for (size_t i = 0; i < p->n_crowds; i++) {
		const struct crowd *c = &p->crowds[i];

		json_object(&json, NULL);
		json_count(&json, "clients", c->clients);
		json_count(&json, "out", c->out);
		json_count(&json, "size", RATE_SIZE);
		json_real(&json, "per_second", c->per_second);
		json_us(&json, "p50_us", c->p50_us);
		json_us(&json, "worst_p99_us", c->worst_p99_us);
		json_close_object(&json);
	}
	json_close_array(&json);
	json_end(&json);
	p->bench.cli->printed = true;
}

static int measure(struct path *p)
{
	int rc = 0;

	for (size_t i = 0; i < KINDS && rc == 0; i++)
		if (is_measured(p, &kinds[i]))
			rc = measure_kind(p, i);
	for (size_t i = 0; i < p->n_crowds && rc == 0; i++)
		rc = measure_crowd(p, &p->crowds[i]);
	return rc;
}

static int choose_crowds(struct path *p)
{
	struct cli *cli = p->bench.cli;
	const struct flags *flags = &cli->flags;

	if (!is_one_crowd(flags)) {
		memcpy(p->crowds, all_crowds, sizeof(all_crowds));
		p->n_crowds = CROWDS;
		return CLI_OK;
	}
	p->crowds[0] = (struct crowd){.clients = (unsigned)count_or(flags->clients, 1),
	                              .out = (unsigned)count_or(flags->out, 1)};
	p->n_crowds = 1;
	if (p->crowds[0].clients < 1 || p->crowds[0].clients > CLIENTS_MAX)
		return cli_fail(cli, CLI_USAGE, "--clients takes 1 to %d", CLIENTS_MAX);
	if (p->crowds[0].out < 1 || p->crowds[0].out > OUT_MAX)
		return cli_fail(cli, CLI_USAGE, "--out takes 1 to %d", OUT_MAX);
	return CLI_OK;
}

static int run(struct cli *cli, char **argv)
{
	struct path p = {.bench = {.cli = cli, .seed = 1}, .lock = PTHREAD_MUTEX_INITIALIZER};
	int rc;

	(void)argv;
	p.count = count_or(cli->flags.count, COUNT_DEFAULT);
	if (p.count < COUNT_MIN || p.count > 1000000)
		return cli_fail(cli, CLI_USAGE, "--count takes 30 to 1000000");
	rc = choose_crowds(&p);
	if (rc != CLI_OK)
		return rc;
	rc = bench_open(&p.bench);
	if (rc == CLI_OK) {
		int status = measure(&p);
		const char *error = kops_error(cli->handle);

		if (status < 0)
			rc = cli_fail_kops(cli, status,
			                   p.why[0]         ? p.why
			                   : p.bench.why[0] ? p.bench.why
			                                    : error);
		else if (cli->flags.json)
			report_json(&p);
		else
			report_text(&p);
	}
	for (size_t i = 0; i < KINDS; i++)
		free_samples(&p.of_kind[i]);
	bench_close(&p.bench);
	return rc == CLI_OK ? cli_flush(cli) : rc;
}

static const struct option_row options[] = {
    OPTION("count", 0, "N", count, count, "runs of each job, fewer of long ones; default 1000"),
    OPTION("clients", 0, "N", count32, clients,
           "only products a second, of so many clients: 1 to 16; default 1"),
    OPTION("out", 0, "N", count32, out,
           "only products a second, with so many jobs in flight each: 1 to 64; default 1"),
    OPTION("spin", 0, "US", count32, spin, "microseconds for which clients look for answers before they sleep"),
    OPTION_DEVICE,
    OPTION_TIMEOUT_BENCH,
    OPTION_JSON,
    OPTIONS_END,
};

const struct command command_path = {
    .name = "path",
    .summary = "what jobs lose on their way to their kernels",
    .usage = "[options]",
    .help = "Jobs as a caller sees them: the wall clock from call to answer, what the device took, and the\n"
            "difference; of one job that is repeated, and of a job made again each time. Then products of 64³\n"
            "host to host a second, of several clients with several jobs in flight each.\n"
            "\n"
            "Examples:\n"
            "  kops-bench path\n"
            "  kops-bench path --spin 20000 --device gpu0 --json\n"
            "  kops-bench path --clients 8 --out 16\n",
    .min_args = 0,
    .max_args = 0,
    .args_are = "no shape",
    .options = options,
    .json_verb = "bench",
    .run = run,
};
