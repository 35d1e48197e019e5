#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "random.h"
#include "samples.h"
#include "show.h"
#include "task.h"

#define REPS_DEFAULT   50
#define WARMUP_DEFAULT 5
#define SETS_MAX       64

/* One set of operands: on this side, and as the job uses them. */
struct set {
	struct step host; /* SHARED */
	struct step used; /* the same, or RESIDENT */
	kops_job *job;
};

struct measured {
	struct cli *cli;
	const struct operation *op;
	uint32_t ranks[STEP_INPUTS_MAX + 1]; /* inputs, then output */
	uint64_t shapes[STEP_INPUTS_MAX + 1][KOPS_RANK_MAX];
	char shape[64];
	kops_dtype dtype;
	uint64_t warmup, reps;
	size_t n_sets;
	struct set sets[SETS_MAX];
	kops_info *info;
	const char *device; /* of RESIDENT operands */
	struct samples wall, upload, compute, download;
	bool checked;
	struct check check;
};

void bench_fill(const kops_view *view, uint64_t seed)
{
	size_t size = kops_dtype_size(view->dtype);
	unsigned char *next = (unsigned char *)kops_data(view->buffer) + view->offset;
	uint64_t n = 1;
	struct random random;

	for (uint32_t d = 0; d < view->rank; d++)
		n *= view->shape[d];
	random_start(&random, seed);
	for (uint64_t i = 0; i < n; i++, next += size)
		element_put(view->dtype, next, random_unit(&random));
}

/* "MxNxK", "MxN" or one number for all; n_extents of them. */
static bool read_shape(const char *text, size_t n_extents, uint64_t *ret)
{
	char *end;
	size_t n = 0;

	for (;; text = end + 1) {
		if (*text < '0' || *text > '9' || n == n_extents)
			return false;
		ret[n++] = strtoull(text, &end, 10);
		if (ret[n - 1] == 0 || ret[n - 1] > 1ull << 40)
			return false;
		if (*end == '\0')
			break;
		if (*end != 'x')
			return false;
	}
	for (size_t i = 1; n == 1 && i < n_extents; i++)
		ret[i] = ret[0];
	return n == 1 || n == n_extents;
}

static void set_matrix(struct measured *m, unsigned operand, uint64_t rows, uint64_t cols)
{
	m->ranks[operand] = 2;
	m->shapes[operand][0] = rows;
	m->shapes[operand][1] = cols;
}

static int settle_shapes(struct measured *m, const char *text)
{
	bool product = strcmp(m->op->name, "gemm") == 0;
	uint64_t e[3] = {0};
	struct step step = step_of(m->op);

	if (!read_shape(text, product ? 3 : 2, e))
		return cli_fail(m->cli, CLI_USAGE, "'%s' is no shape for %s; %s, or one number for a square",
		                text, m->op->name, product ? "write MxNxK" : "write MxN");
	set_matrix(m, 0, e[0], product ? e[2] : e[1]);
	set_matrix(m, 1, product ? e[2] : e[0], e[1]);
	for (unsigned i = 0; i < m->op->n_inputs; i++)
		step.in[i] = kops_tensor(NULL, 0, m->dtype, m->ranks[i], m->shapes[i]);
	if (step_shape(&step, &m->ranks[2], m->shapes[2], m->cli->why) < 0)
		return CLI_FAILED;
	if (product)
		snprintf(m->shape, sizeof(m->shape), "%" PRIu64 "x%" PRIu64 "x%" PRIu64, e[0], e[1], e[2]);
	else
		snprintf(m->shape, sizeof(m->shape), "%" PRIu64 "x%" PRIu64, e[0], e[1]);
	return CLI_OK;
}

static int fail(struct measured *m, int status)
{
	return cli_fail_kops(m->cli, status, kops_error(m->cli->handle));
}

/* Memory for operand i of a set: inputs count from 0, the output is 2. */
static int allocate(struct measured *m, unsigned operand, unsigned flags, kops_view *ret)
{
	kops_buffer *buffer; /* freed with the handle */
	uint64_t bytes;

	if (step_bytes(m->dtype, m->ranks[operand], m->shapes[operand], &bytes, m->cli->why) < 0)
		return CLI_FAILED;
	int status =
	    kops_alloc(m->cli->handle, bytes, flags, flags == KOPS_RESIDENT ? m->device : NULL, &buffer);
	if (status < 0)
		return fail(m, status);
	*ret = kops_tensor(buffer, 0, m->dtype, m->ranks[operand], m->shapes[operand]);
	return CLI_OK;
}

static int allocate_step(struct measured *m, unsigned flags, struct step *step)
{
	int rc = allocate(m, 2, flags, &step->out);

	for (unsigned i = 0; rc == CLI_OK && i < m->op->n_inputs; i++)
		rc = allocate(m, i, flags, &step->in[i]);
	return rc;
}

static int copy(struct measured *m, kops_view from, kops_view to)
{
	struct step step = step_of(operation_by_name("copy"));
	kops_job *job;
	double us;

	step.in[0] = from;
	step.out = to;
	int rc = task_run(m->cli, &step, 1, m->device, &job, &us);
	if (rc == CLI_OK)
		kops_job_free(job);
	return rc;
}

static int make_set(struct measured *m, struct set *set, uint64_t seed)
{
	const struct flags *flags = &m->cli->flags;
	kops_job_options options = {.size = sizeof(options), .device = m->device, .priority = flags->priority};

	set->host = step_of(m->op);
	set->host.kernel = flags->kernel;
	set->host.precision = flags->precision;
	int rc = allocate_step(m, KOPS_SHARED, &set->host);
	for (unsigned i = 0; rc == CLI_OK && i < m->op->n_inputs; i++)
		bench_fill(&set->host.in[i], seed + i);
	set->used = set->host;
	if (rc == CLI_OK && flags->resident)
		rc = allocate_step(m, KOPS_RESIDENT, &set->used);
	for (unsigned i = 0; rc == CLI_OK && flags->resident && i < m->op->n_inputs; i++)
		rc = copy(m, set->host.in[i], set->used.in[i]);
	if (rc != CLI_OK)
		return rc;
	int status = kops_job_new(m->cli->handle, &options, &set->job);
	if (status == 0)
		status = m->op->enqueue(set->job, &set->used);
	return status < 0 ? fail(m, status) : CLI_OK;
}

static int choose_device(struct measured *m)
{
	m->device = m->cli->flags.device;
	if (m->device || !m->cli->flags.resident)
		return CLI_OK;
	int status = kops_query(m->cli->handle, &m->info);
	if (status < 0)
		return fail(m, status);
	if (m->info->n_devices > 0)
		m->device = m->info->devices[0].name;
	return CLI_OK;
}

static int repeat(struct measured *m)
{
	for (uint64_t i = 0; i < m->warmup + m->reps; i++) {
		kops_job *job = m->sets[i % m->n_sets].job;
		double start = cli_now_us();
		int status = kops_run(job);
		double us = cli_now_us() - start;
		if (status < 0)
			return cli_fail_kops(m->cli, status, kops_job_error(job));
		if (i < m->warmup)
			continue;
		const kops_receipt *receipt = kops_job_receipt(job);
		samples_add(&m->wall, us);
		samples_add(&m->upload, receipt->upload_us);
		samples_add(&m->compute, receipt->compute_us);
		samples_add(&m->download, receipt->download_us);
	}
	return CLI_OK;
}

static int check(struct measured *m)
{
	struct set *set = &m->sets[0];
	int rc = CLI_OK;

	if (m->cli->flags.resident)
		rc = copy(m, set->used.out, set->host.out);
	if (rc == CLI_OK)
		rc = task_check(m->cli, &set->host, &m->check);
	m->checked = rc == CLI_OK;
	return rc;
}

/* Of the runs: FLOP/s for products, bytes a second for the rest; by the median of s. */
static struct show_text speed(struct measured *m, struct samples *s)
{
	const kops_op_receipt *op = &kops_job_receipt(m->sets[0].job)->ops[0];
	double us = samples_quantile(s, 0.5);

	return strcmp(m->op->name, "gemm") == 0 ? show_flops(op->flops, us) : show_rate(op->bytes, us);
}

static void print_row(const char *name, struct samples *s, const char *more)
{
	struct show_text min = show_us(samples_quantile(s, 0)), median = show_us(samples_quantile(s, 0.5));
	struct show_text max = show_us(samples_quantile(s, 1));

	printf("  %-9s min %-*s median %-*s max %-*s %s\n", name, show_field(9, min.text), min.text,
	       show_field(9, median.text), median.text, show_field(9, max.text), max.text, more);
}

static void report_text(struct measured *m)
{
	const kops_receipt *receipt = kops_job_receipt(m->sets[0].job);

	printf("%s %s %s on %s, kernel %s (%s)\n", m->op->name, m->shape, element_type_name(m->dtype),
	       receipt->device, receipt->ops[0].kernel, receipt->ops[0].why);
	printf("%" PRIu64 " runs after %" PRIu64 ", %zu set%s of %s operands\n", m->reps, m->warmup, m->n_sets,
	       m->n_sets == 1 ? "" : "s", m->cli->flags.resident ? "resident" : "shared");
	print_row("wall", &m->wall, speed(m, &m->wall).text);
	print_row("upload", &m->upload, "");
	print_row("compute", &m->compute, speed(m, &m->compute).text);
	print_row("download", &m->download, "");
	if (m->checked)
		check_show(stdout, m->op->name, &m->check);
}

static void report_json(struct measured *m)
{
	const kops_receipt *receipt = kops_job_receipt(m->sets[0].job);
	const kops_op_receipt *op = &receipt->ops[0];
	double wall = samples_quantile(&m->wall, 0.5), compute = samples_quantile(&m->compute, 0.5);
	struct json json;

	json_begin(&json, stdout, "bench");
	json_text(&json, "bench", m->op->name);
	json_bool(&json, "ok", !m->checked || check_passed(&m->check));
	json_text(&json, "shape", m->shape);
	json_text(&json, "dtype", element_type_name(m->dtype));
	json_text(&json, "device", receipt->device);
	json_text(&json, "kernel", op->kernel);
	json_text(&json, "why", op->why);
	json_bool(&json, "resident", m->cli->flags.resident);
	json_count(&json, "buffers", m->n_sets);
	json_count(&json, "warmup", m->warmup);
	json_count(&json, "reps", m->reps);
	json_real(&json, "flops", op->flops);
	json_real(&json, "bytes", op->bytes);
	samples_json(&json, "wall", &m->wall);
	samples_json(&json, "upload", &m->upload);
	samples_json(&json, "compute", &m->compute);
	samples_json(&json, "download", &m->download);
	/* Per second, at the median; 1e-3 FLOPs or bytes per µs are a GFLOP/s or GB/s. null where not timed. */
	json_real(&json, "wall_gflops", op->flops / wall * 1e-3);
	json_real(&json, "wall_gbytes", op->bytes / wall * 1e-3);
	json_real(&json, "compute_gflops", op->flops / compute * 1e-3);
	json_real(&json, "compute_gbytes", op->bytes / compute * 1e-3);
	if (m->checked)
		check_json(&json, "check", m->op->name, &m->check);
	json_end(&json);
	m->cli->printed = true;
}

static int measure(struct measured *m)
{
	int rc = cli_open(m->cli);

	if (rc == CLI_OK)
		rc = choose_device(m);
	for (size_t i = 0; rc == CLI_OK && i < m->n_sets; i++)
		rc = make_set(m, &m->sets[i], 2 * i + 1);
	if (rc == CLI_OK)
		rc = repeat(m);
	if (rc == CLI_OK && m->cli->flags.check)
		rc = check(m);
	if (rc != CLI_OK)
		return rc;
	if (m->cli->flags.json)
		report_json(m);
	else
		report_text(m);
	rc = cli_flush(m->cli);
	if (rc == CLI_OK && m->checked && !check_passed(&m->check))
		return cli_fail(m->cli, CLI_CHECK_FAILED, "the result is wrong");
	return rc;
}

static uint64_t count_or(struct opt_count count, uint64_t otherwise)
{
	return count.set ? count.value : otherwise;
}

static int settle_counts(struct measured *m)
{
	const struct flags *flags = &m->cli->flags;

	m->reps = count_or(flags->reps, REPS_DEFAULT);
	m->warmup = count_or(flags->warmup, WARMUP_DEFAULT);
	m->n_sets = (size_t)count_or(flags->buffers, 1);
	if (m->n_sets == 0 || m->n_sets > SETS_MAX || m->reps > 10000000 || m->warmup > 10000000 ||
	    m->reps < m->n_sets)
		return cli_fail(
		    m->cli, CLI_USAGE,
		    "--buffers takes 1 to %d and no more than --reps; --reps and --warmup take up to 10000000",
		    SETS_MAX);
	if (samples_init(&m->wall, m->reps) < 0 || samples_init(&m->upload, m->reps) < 0 ||
	    samples_init(&m->compute, m->reps) < 0 || samples_init(&m->download, m->reps) < 0)
		return cli_fail(m->cli, CLI_FAILED, "out of memory; fewer --reps need less");
	return CLI_OK;
}

int bench_op(struct cli *cli, const struct operation *op, const char *shape)
{
	struct measured *m = calloc(1, sizeof(*m));

	if (m == NULL)
		return cli_fail(cli, CLI_FAILED, "out of memory");
	m->cli = cli;
	m->op = op;
	m->dtype = cli->flags.dtype ? cli->flags.dtype : KOPS_F32;
	int rc = settle_counts(m);
	if (rc == CLI_OK)
		rc = settle_shapes(m, shape);
	if (rc == CLI_OK)
		rc = measure(m);
	for (size_t i = 0; i < m->n_sets && i < SETS_MAX; i++)
		kops_job_free(m->sets[i].job);
	if (m->info)
		kops_info_free(m->info);
	samples_free(&m->wall);
	samples_free(&m->upload);
	samples_free(&m->compute);
	samples_free(&m->download);
	free(m);
	return rc;
}
