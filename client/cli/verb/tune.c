/* tune: sends jobs of given shapes until kopsd knows which kernel is the fastest for each. */
#include <string.h>

#include "random.h"
#include "verb/commands.h"
#include "verb/job.h"

#define JOBS_MAX 200 /* for each shape; other clients may be sending it too */
#define OPS_MAX  64
#define OPERANDS STEP_OPERANDS_MAX

enum memory { SHARED, RESIDENT, MEMORY_KINDS };
static const char *const memory_names[MEMORY_KINDS] = {"shared", "resident"};

/* One shape in one kind of memory. */
struct lesson {
	struct cli *cli;
	struct step step;
	const struct bench_shape *shape;
	enum memory memory;
	unsigned jobs;
	kops_job *job; /* the last one */
};

/* Returns NULL if the op has fewer operands. */
static kops_view *operand(struct step *step, unsigned i)
{
	if (i == STEP_INPUTS_MAX)
		return &step->out;
	return i < step->op->n_inputs && step_has(step, i) ? &step->in[i] : NULL;
}

/* Moves an operand from SHARED memory into the device's. */
static int upload(struct cli *cli, kops_view *view, uint64_t bytes)
{
	kops_view there = *view;
	kops_job *job;

	int rc = job_alloc(cli, bytes, KOPS_RESIDENT, cli->flags.device, &there.buffer);
	if (rc != CLI_OK)
		return rc;
	struct step step = step_copy(*view, there);
	rc = job_send(cli, &step, 1, cli->flags.device, &job);
	if (rc == CLI_OK)
		kops_job_free(job);
	kops_free(view->buffer);
	*view = there;
	return rc;
}

/* Makes an operand of random numbers. Some kernels are slow if all numbers are equal. */
static int make_operand(struct lesson *l, unsigned i, struct random *random)
{
	kops_view *view = operand(&l->step, i);
	uint64_t bytes = step_elements(view) * kops_dtype_size(view->dtype);
	int rc = job_alloc(l->cli, bytes, KOPS_SHARED, NULL, &view->buffer);

	if (rc != CLI_OK)
		return rc;
	step_fill_random(&l->step, i, random);
	return l->memory == RESIDENT ? upload(l->cli, view, bytes) : CLI_OK;
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

static const kops_op_receipt *last_op(const struct lesson *l)
{
	return kops_receipt_op(kops_job_receipt(l->job), 0);
}

static int send_job(struct lesson *l)
{
	struct step steps[OPS_MAX];
	size_t n = count_or(l->cli->flags.launches, 1);
	kops_job *job;

	for (size_t i = 0; i < n; i++)
		steps[i] = l->step;
	int rc = job_send(l->cli, steps, n, l->cli->flags.device, &job);
	if (rc != CLI_OK)
		return rc;
	kops_job_free(l->job);
	l->job = job;
	l->jobs++;
	return CLI_OK;
}

static int teach(struct lesson *l)
{
	int rc = make_operands(l);

	do {
		if (rc == CLI_OK)
			rc = send_job(l);
	} while (rc == CLI_OK && last_op(l)->learning && l->jobs < JOBS_MAX);
	if (rc == CLI_OK && !last_op(l)->learning && l->jobs > 1) /* what the trials settled on */
		rc = send_job(l);
	return rc;
}

static void lesson_end(struct lesson *l)
{
	for (unsigned i = 0; i < OPERANDS; i++)
		if (operand(&l->step, i))
			kops_free(operand(&l->step, i)->buffer);
	kops_job_free(l->job);
}

/* ---- Reports ---- */

static void report(const struct lesson *l, struct json *json)
{
	const char *device = kops_job_receipt(l->job)->device;
	const kops_op_receipt *op = last_op(l);

	if (!l->cli->flags.json) {
		printf("%s %s %s, %s, on %s: %s after %u job%s%s (%s)\n", l->step.op->name,
		       element_type_name(l->step.in[0].dtype), l->shape->text, memory_names[l->memory], device,
		       op->kernel, l->jobs, l->jobs == 1 ? "" : "s", op->learning ? ", still learning" : "",
		       op->why);
		return;
	}
	json_object(json, NULL);
	json_text(json, "shape", l->shape->text);
	json_text(json, "memory", memory_names[l->memory]);
	json_text(json, "device", device);
	json_text(json, "kernel", op->kernel);
	json_text(json, "why", op->why);
	json_count(json, "jobs", l->jobs);
	json_bool(json, "settled", !op->learning);
	json_close_object(json);
}

/* ---- The verb ---- */

static int prepare(struct lesson *l, const struct operation *op)
{
	struct cli *cli = l->cli;
	const struct flags *flags = &cli->flags;

	if (bench_shape_step(op, flags->dtype ? flags->dtype : KOPS_F32, l->shape, NULL, &l->step, cli->why) <
	    0)
		return CLI_USAGE;
	step_set_precision(&l->step, flags->precision);
	for (unsigned i = 0; i < 2; i++) {
		kops_view *v = &l->step.in[i];
		if (i == 0 ? flags->trans_a : flags->trans_b) /* a dense matrix that is used transposed */
			*v = kops_transposed(step_matrix(v->dtype, v->shape[1], v->shape[0]));
	}
	return CLI_OK;
}

static int teach_all(struct cli *cli, const struct operation *op, const struct bench_shapes *shapes,
                     struct json *json)
{
	int rc = CLI_OK;

	for (size_t i = 0; i < shapes->n * MEMORY_KINDS && rc == CLI_OK; i++) {
		struct lesson l = {
		    .cli = cli, .shape = &shapes->list[i / MEMORY_KINDS], .memory = i % MEMORY_KINDS};

		rc = prepare(&l, op);
		if (rc != CLI_OK)
			return rc;
		rc = teach(&l);
		if (rc == CLI_OK)
			report(&l, json);
		lesson_end(&l);
	}
	return rc;
}

static int check_usage(struct cli *cli, const struct operation *op, const char *name)
{
	const struct flags *flags = &cli->flags;

	if (!op)
		return cli_fail(cli, CLI_USAGE, "there is no op '%s'; `kops-client ops` lists them", name);
	if ((flags->trans_a || flags->trans_b) && !op->transposes)
		return cli_fail(cli, CLI_USAGE, "%s takes neither --trans-a nor --trans-b", op->name);
	if (flags->launches.set && (flags->launches.value < 1 || flags->launches.value > OPS_MAX))
		return cli_fail(cli, CLI_USAGE, "--ops takes 1 to %d", OPS_MAX);
	return CLI_OK;
}

static int run(struct cli *cli, char **argv)
{
	const struct operation *op = operation_by_name(argv[0]);
	static struct bench_shapes shapes;
	struct json json;
	int rc = check_usage(cli, op, argv[0]);

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
	return rc;
}

static const struct option_row options[] = {
    OPTION("dtype", 0, "TYPE", dtype, dtype, "f32 (default), f64, f16 or bf16"),
    OPTION_PRECISION,
    OPTION("trans-a", 0, NULL, switch, trans_a, "gemm: A is stored as K×M"),
    OPTION("trans-b", 0, NULL, switch, trans_b, "gemm: B is stored as N×K"),
    OPTION("ops", 0, "N", count, launches,
           "equal ops in each job, which have a choice of their own; default 1"),
    OPTION_DEVICE,
    OPTION_TIMEOUT_JOB,
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
    .args = VALUES_OPS,
    .options = options,
    .run = run,
};
