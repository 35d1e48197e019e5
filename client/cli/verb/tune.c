/* tune: sends jobs of given shapes until kopsd knows which kernel is the fastest for each. */
#include <math.h>
#include <string.h>

#include "files/element.h"
#include "op/shapes.h"
#include "random.h"
#include "show.h"
#include "verb/commands.h"
#include "verb/task.h"

#define JOBS_MAX 200 /* of a shape; others may be sending it too */
#define OPS_MAX  64
#define OPERANDS (STEP_INPUTS_MAX + 1)

enum place { SHARED, RESIDENT, PLACES };
static const char *const places[PLACES] = {"shared", "resident"};

/* One shape in one kind of memory. */
struct lesson {
	struct cli *cli;
	struct step step;
	const struct bench_shape *shape;
	enum place place;
	kops_buffer *buffers[OPERANDS];
	unsigned jobs;
	bool learning;
	char device[32], kernel[64], why[128]; /* of the last job */
};

static kops_view *operand(struct step *step, unsigned i)
{
	if (i == STEP_INPUTS_MAX)
		return &step->out;
	return i < step->op->n_inputs ? &step->in[i] : NULL;
}

static uint64_t count(const kops_view *view)
{
	return view->shape[0] * view->shape[1];
}

static int alloc(struct cli *cli, const kops_view *view, enum place place, kops_buffer **ret_buffer)
{
	const char *device = place == RESIDENT ? cli->flags.device : NULL;
	uint64_t bytes = count(view) * kops_dtype_size(view->dtype);
	int rc =
	    kops_alloc(cli->handle, bytes, place == RESIDENT ? KOPS_RESIDENT : KOPS_SHARED, device, ret_buffer);

	return rc < 0 ? cli_fail_kops(cli, rc, kops_error(cli->handle)) : CLI_OK;
}

static void fill(kops_buffer *buffer, const kops_view *view, struct random *random)
{
	unsigned char *at = kops_data(buffer);

	for (uint64_t i = count(view); i > 0; i--, at += kops_dtype_size(view->dtype))
		element_put(view->dtype, at, random_unit(random));
}

/* From a SHARED buffer into one of the device. */
static int upload(struct cli *cli, kops_buffer *from, kops_buffer *to, const kops_view *view)
{
	struct step step = step_of(operation_by_name("copy"));
	kops_job *job;
	double us;

	step.in[0] = step.out = *view;
	step.in[0].buffer = from;
	step.out.buffer = to;
	int rc = task_run(cli, &step, 1, cli->flags.device, &job, &us);
	if (rc == CLI_OK)
		kops_job_free(job);
	return rc;
}

/* Memory with random numbers for operand i. Some kernels are slow on numbers that are all the same. */
static int make_operand(struct lesson *l, unsigned i, struct random *random)
{
	kops_view *view = operand(&l->step, i);
	kops_buffer *shared;
	int rc = alloc(l->cli, view, SHARED, &shared);

	if (rc != CLI_OK)
		return rc;
	fill(shared, view, random);
	if (l->place == SHARED) {
		l->buffers[i] = shared;
	} else {
		rc = alloc(l->cli, view, RESIDENT, &l->buffers[i]);
		if (rc == CLI_OK)
			rc = upload(l->cli, shared, l->buffers[i], view);
		kops_free(shared);
	}
	view->buffer = l->buffers[i];
	return rc;
}

static int make_operands(struct lesson *l)
{
	struct random random;
	int rc = CLI_OK;

	random_start(&random, 1);
	for (unsigned i = 0; i < OPERANDS && rc == CLI_OK; i++)
		if (operand(&l->step, i))
			rc = make_operand(l, i, &random);
	return rc;
}

static int send_job(struct lesson *l)
{
	const struct opt_count ops = l->cli->flags.launches;
	struct step steps[OPS_MAX];
	size_t n = ops.set ? ops.value : 1;
	kops_job *job;
	double us;

	for (size_t i = 0; i < n; i++)
		steps[i] = l->step;
	int rc = task_run(l->cli, steps, n, l->cli->flags.device, &job, &us);
	if (rc != CLI_OK)
		return rc;
	const kops_op_receipt *op = kops_receipt_op(kops_job_receipt(job), 0);
	l->jobs++;
	l->learning = op->learning;
	snprintf(l->device, sizeof(l->device), "%s", kops_job_receipt(job)->device);
	snprintf(l->kernel, sizeof(l->kernel), "%s", op->kernel);
	snprintf(l->why, sizeof(l->why), "%s", op->why);
	kops_job_free(job);
	return CLI_OK;
}

static int teach(struct lesson *l)
{
	int rc = make_operands(l);

	do {
		if (rc == CLI_OK)
			rc = send_job(l);
	} while (rc == CLI_OK && l->learning && l->jobs < JOBS_MAX);
	if (rc == CLI_OK && !l->learning && l->jobs > 1) /* what the others settled on */
		rc = send_job(l);
	for (unsigned i = 0; i < OPERANDS; i++)
		kops_free(l->buffers[i]);
	return rc;
}

/* ---- Reports ---- */

static void report(const struct lesson *l, struct json *json)
{
	if (!l->cli->flags.json) {
		printf("%s %s %s, %s, on %s: %s after %u job%s%s (%s)\n", l->step.op->name,
		       element_type_name(l->step.in[0].dtype), l->shape->text, places[l->place], l->device,
		       l->kernel, l->jobs, l->jobs == 1 ? "" : "s", l->learning ? ", still learning" : "",
		       l->why);
		return;
	}
	json_object(json, NULL);
	json_text(json, "shape", l->shape->text);
	json_text(json, "memory", places[l->place]);
	json_text(json, "device", l->device);
	json_text(json, "kernel", l->kernel);
	json_text(json, "why", l->why);
	json_count(json, "jobs", l->jobs);
	json_bool(json, "settled", !l->learning);
	json_close_object(json);
}

/* ---- The verb ---- */

/* A dense matrix used transposed lies in memory as its transpose. */
static void store_transposed(kops_view *view)
{
	view->strides[0] = 1;
	view->strides[1] = (int64_t)view->shape[0];
}

static int prepare(struct lesson *l, const struct operation *op, enum place place)
{
	struct cli *cli = l->cli;
	const struct flags *flags = &cli->flags;

	if (bench_shape_step(op, flags->dtype ? flags->dtype : KOPS_F32, l->shape, &l->step, cli->why) < 0)
		return CLI_USAGE;
	l->place = place;
	l->step.set.precision = flags->op.precision;
	if (flags->trans_a)
		store_transposed(&l->step.in[0]);
	if (flags->trans_b)
		store_transposed(&l->step.in[1]);
	return CLI_OK;
}

static int teach_all(struct cli *cli, const struct operation *op, const struct bench_shapes *shapes,
                     struct json *json)
{
	int rc = CLI_OK;

	for (size_t i = 0; i < shapes->n * PLACES && rc == CLI_OK; i++) {
		struct lesson l = {.cli = cli, .shape = &shapes->list[i / PLACES]};

		rc = prepare(&l, op, (enum place)(i % PLACES));
		if (rc == CLI_OK)
			rc = teach(&l);
		if (rc == CLI_OK)
			report(&l, json);
	}
	return rc;
}

static int check_usage(struct cli *cli, const struct operation *op, const char *name)
{
	const struct flags *flags = &cli->flags;

	if (!op)
		return cli_fail(cli, CLI_USAGE, "there is no op '%s'; `kops-client ops` lists them", name);
	if ((flags->trans_a || flags->trans_b) && strcmp(op->name, "gemm") != 0)
		return cli_fail(cli, CLI_USAGE, "--trans-a and --trans-b are for gemm");
	if (flags->launches.set && (flags->launches.value < 1 || flags->launches.value > OPS_MAX))
		return cli_fail(cli, CLI_USAGE, "--ops takes 1 to %d", OPS_MAX);
	return CLI_OK;
}

static int run(struct cli *cli, int argc, char **argv)
{
	const struct operation *op = operation_by_name(argv[0]);
	static struct bench_shapes shapes;
	struct json json;
	int rc = check_usage(cli, op, argv[0]);

	(void)argc;
	if (rc != CLI_OK)
		return rc;
	if (bench_shapes_read(op, argv[1], &shapes, cli->why) < 0)
		return CLI_USAGE;
	rc = cli_open(cli);
	if (rc != CLI_OK)
		return rc;
	if (cli->flags.json) {
		json_begin(&json, stdout, cli->command->name);
		json_text(&json, "op", op->name);
		json_array(&json, "shapes");
	}
	rc = teach_all(cli, op, &shapes, &json);
	if (cli->flags.json) {
		json_close_array(&json);
		json_bool(&json, "ok", rc == CLI_OK);
		json_end(&json);
		cli->printed = true;
	}
	return rc == CLI_OK ? cli_flush(cli) : rc;
}

static const struct option_row options[] = {
    OPTION("dtype", 0, "TYPE", dtype, dtype, "f32 (default), f64, f16 or bf16"),
    OPTION_PRECISION,
    OPTION("trans-a", 0, NULL, switch, trans_a, "gemm: A is stored as K×M"),
    OPTION("trans-b", 0, NULL, switch, trans_b, "gemm: B is stored as N×K"),
    OPTION("ops", 0, "N", count, launches,
           "equal ops in each job, which have a choice of their own; default 1"),
    OPTION_DEVICE,
    OPTION_TIMEOUT,
    OPTION_JSON,
    OPTIONS_END,
};

const struct command command_tune = {
    .name = "tune",
    .summary = "teach kopsd which kernels are the fastest for given shapes",
    .usage = "[options] OP SHAPE[,SHAPE…]",
    .help =
        "kopsd learns from its jobs: after some thirty of one shape it knows the fastest of its kernels, and\n"
        "remembers it over restarts. tune sends such jobs beforehand, of random numbers, in shared memory and\n"
        "in the device's own. A shape is ROWSxCOLUMNS, for gemm MxNxK; one number is a square or a cube. The\n"
        "CPU has nothing to learn.\n"
        "\n"
        "Examples:\n"
        "  kops-client tune gemm 4096x4096x1024,8192\n"
        "  kops-client tune gemm 512 --dtype bf16 --trans-b --ops 32\n"
        "  kops-client tune softmax 8192x50257 --device gpu1\n",
    .min_args = 2,
    .max_args = 2,
    .args_are = "an op and its shapes, with commas between them",
    .options = options,
    .run = run,
};
