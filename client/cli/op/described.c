/*
 * described.c: ops that have no file here: all that the programs know of them is in their description
 * (kernel.h), and their check is the op's reference.
 */
#include "op/described.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "kernel.h"

#define TEXT_BYTES 1024

_Static_assert(SETTINGS_ATTRIBUTES_MAX == OP_ATTRIBUTES_MAX, "options.h and kernel.h differ");
_Static_assert(STEP_OPERANDS_MAX == OP_OPERANDS_MAX && FLAGS_OPERANDS_MAX == STEP_INPUTS_MAX,
               "operation.h, options.h and kernel.h differ");

static struct described {
	struct operation operation;
	struct option_row settings[OP_ATTRIBUTES_MAX + STEP_INPUTS_MAX + 1];
	char summary[128], help[TEXT_BYTES], examples[TEXT_BYTES], what[64], seed[128];
} all[OPERATIONS];

/* What was given of attribute i, if anything. */
static bool is_given(const struct step *step, unsigned i, kops_attribute *ret)
{
	const struct described_setting *set = &step->set.attributes[i];

	*ret = (kops_attribute){.value = set->flag ? 1 : set->number.value, .choice = set->word};
	return set->word || set->number.set || set->flag;
}

/* ---- Jobs ---- */

static int enqueue(kops_job *job, const struct step *step)
{
	const struct op *op = op_by_name(step->op->name);
	kops_operand operands[STEP_OPERANDS_MAX];
	kops_attribute attributes[OP_ATTRIBUTES_MAX];
	size_t n = 0;

	for (unsigned i = 0; i < op->n_attributes; i++)
		if (is_given(step, i, &attributes[n]))
			attributes[n++].name = op->attributes[i].name;
	unsigned n_operands = step_operands(step, operands);
	return kops_job_op(job, op->name, operands, n_operands, attributes, n, step->set.kernel);
}

/* ---- The check ---- */

static struct view view_of(const struct elements *e)
{
	struct view v = {.data = (void *)(uintptr_t)e->data, .dtype = e->dtype, .rank = e->rank};

	memcpy(v.shape, e->shape, sizeof v.shape);
	memcpy(v.strides, e->strides, sizeof v.strides);
	return v;
}

static void set_attributes(const struct step *step, struct op_args *args)
{
	const struct op *op = args->op;

	op_set_defaults(args);
	for (unsigned i = 0; i < op->n_attributes; i++) {
		const struct op_attribute *a = &op->attributes[i];
		kops_attribute given;
		if (is_given(step, i, &given))
			op_set_attribute(args, i,
			                 given.choice ? attribute_choice(a, given.choice) : given.value);
	}
}

#define ROWS_OF_ROOM 3

/* room: for so many rows. What nobody can judge is left out. */
static void compare(const struct op_args *args, const struct elements *y, const struct elements *want,
                    struct check *c, double *room)
{
	uint64_t columns = elements_columns(y);
	const struct element_type *type = element_type(y->dtype);
	double *got_row = room, *want_row = room + columns, *bounds = want_row + columns;

	memset(bounds, 0, columns * sizeof *bounds);
	for (uint64_t row = 0; row < elements_rows(y); row++) {
		elements_row(y, row, 0, columns, got_row);
		elements_row(want, row, 0, columns, want_row);
		if (args->op->bounds)
			args->op->bounds(args, row, bounds);
		for (uint64_t j = 0; j < columns; j++) {
			double rounding = 2 * type->roundoff * fabs(want_row[j]) + check_tiny_error(y->dtype);
			if (bounds[j] >= 0)
				check_compare(c, row, j, got_row[j], want_row[j], bounds[j] + rounding,
				              type->largest);
		}
	}
}

/* The whole result again by the op's reference, which rounds to the type as kernels do. */
static int check(const struct step *step, const struct elements *in, const struct elements *y,
                 struct check *ret_check)
{
	struct op_args args = {.op = op_by_name(step->op->name)};
	unsigned out = step->op->n_inputs;
	struct check c = {.elements = elements_count(y), .us = cli_now_us()};
	void *wanted = malloc((c.elements + 1) * kops_dtype_size(y->dtype));
	double *room = malloc((ROWS_OF_ROOM * elements_columns(y) + 1) * sizeof *room);
	struct elements want = elements_dense(wanted, y);
	char why[WHY_BYTES];
	int rc = wanted && room ? 0 : KOPS_E_NOMEM;

	for (unsigned i = 0; i < out; i++)
		args.views[i] = view_of(&in[i]);
	args.views[out] = view_of(&want);
	args.views[out].space = wanted; /* which no input lies in */
	set_attributes(step, &args);
	if (rc == 0 && c.elements > 0 && (rc = op_check(&args, why)) == 0) {
		args.op->reference(&args);
		compare(&args, y, &want, &c, room);
	}
	c.us = cli_now_us() - c.us;
	*ret_check = c;
	free(wanted);
	free(room);
	return rc;
}

/* ---- The descriptor ---- */

static struct option_row row_of(const struct op_attribute *a, unsigned i)
{
	size_t at = offsetof(struct flags, op.attributes) + i * sizeof(struct described_setting);
	struct option_row row = {.name = a->name, .argument = "X", .help = a->about};

	switch (a->type) {
	case ATTRIBUTE_NUMBER:
	case ATTRIBUTE_COUNT:
		row.type = &options_real;
		row.member = at + offsetof(struct described_setting, number);
		break;
	case ATTRIBUTE_FLAG:
		row.argument = NULL;
		row.type = &options_switch;
		row.member = at + offsetof(struct described_setting, flag);
		break;
	case ATTRIBUTE_CHOICE:
		row.argument = "WORD";
		row.type = &options_text;
		row.member = at + offsetof(struct described_setting, word);
		break;
	}
	return row;
}

/* The file of an optional input. */
static struct option_row row_of_operand(const struct op_operand *o, unsigned i)
{
	return (struct option_row){.name = o->name,
	                           .argument = "FILE",
	                           .type = &options_file,
	                           .member = offsetof(struct flags, operands) + i * sizeof(const char *),
	                           .help = o->about};
}

/* Those of attributes, then those of optional inputs. */
static void describe_settings(const struct op *op, struct described *d)
{
	struct option_row *next = d->settings;

	for (unsigned i = 0; i < op->n_attributes; i++)
		*next++ = row_of(&op->attributes[i], i);
	for (unsigned i = 0; i < op_first_output(op); i++)
		if (op->operands[i].is_optional)
			*next++ = row_of_operand(&op->operands[i], i);
}

static unsigned optional_inputs(const struct op *op)
{
	unsigned n = 0;

	for (unsigned i = 0; i < op_first_output(op); i++)
		n += op->operands[i].is_optional;
	return n;
}

static void describe_verb(const struct op *op, unsigned n_inputs, struct described *d)
{
	size_t used = 0;

	snprintf(d->summary, sizeof d->summary, "%s", op->about);
	for (unsigned i = 0; i <= n_inputs && used < sizeof d->help; i++)
		used += (size_t)snprintf(d->help + used, sizeof d->help - used, "%-8s %s\n",
		                         op->operands[i].name, op->operands[i].about);
	used = (size_t)snprintf(d->examples, sizeof d->examples, "  kops-client %s", op->name);
	for (unsigned i = 0; i < n_inputs && used < sizeof d->examples; i++)
		used += (size_t)snprintf(d->examples + used, sizeof d->examples - used,
		                         op->operands[i].is_optional ? " --%s %s.npy" : " %s.npy",
		                         op->operands[i].name, op->operands[i].name);
	if (used < sizeof d->examples)
		snprintf(d->examples + used, sizeof d->examples - used, " -o y.npy --check\n");
	snprintf(d->what, sizeof d->what, "%s of arrays", op->name);
}

/* From operands that a cache holds to 4 GB of them, all of one shape but for optional ones, which are small.
 * Whole rows are checked: the result may come from them. */
static void describe_shapes(unsigned n_large, struct described *d)
{
	unsigned most = (1u << 20) / n_large, rows = 64;
	size_t used = 0;

	for (; rows < most; rows *= 4)
		used += (size_t)snprintf(d->seed + used, sizeof d->seed - used, "%ux1024,", rows);
	snprintf(d->seed + used, sizeof d->seed - used, "%ux1024", most);
}

static const struct operation *describe(const struct op *op, struct described *d)
{
	unsigned n_inputs = op_first_output(op);

	describe_settings(op, d);
	describe_verb(op, n_inputs, d);
	describe_shapes(op->n_operands - optional_inputs(op), d);
	d->operation = (struct operation){
	    .name = op->name,
	    .n_inputs = n_inputs,
	    .n_optional = optional_inputs(op),
	    .settings = d->settings,
	    .verb = {.summary = d->summary, .help = d->help, .examples = d->examples},
	    .enqueue = enqueue,
	    .check = check,
	    .bench = {.what = d->what,
	              .seed = d->seed,
	              .random = {{1, 32}, {1 << 15, 1 << 15}, 1ull << 27},
	              .random_cpu = {{1, 32}, {1 << 11, 1 << 11}, 1ull << 20},
	              .reads_rows = true,
	              .whole_rows = true},
	};
	return &d->operation;
}

const struct operation *operation_described(size_t index)
{
	struct described *d = &all[index];

	return d->operation.name ? &d->operation : describe(ops[index], d);
}
