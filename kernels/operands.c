/*
 * operands.c: checks that the descriptions make alike for all ops: operands, types, attributes. See kernel.h.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/half.h"
#include "common/rules.h"

bool op_is_empty(const struct op_args *args)
{
	for (unsigned v = op_first_output(args->op); v < args->op->n_operands; v++)
		if (view_elements(&args->views[v]) > 0)
			return false;
	return true;
}

bool op_writes(const struct op_args *args, const struct view *v)
{
	for (unsigned i = op_first_output(args->op); i < args->op->n_operands; i++)
		if (view_overlap(&args->views[i], v))
			return true;
	return false;
}

static bool is_in_place(const struct op_args *args, unsigned v)
{
	unsigned inputs = args->op->operands[v].in_place;

	for (unsigned i = 0; inputs >> i; i++)
		if ((inputs >> i & 1) && view_same(&args->views[i], &args->views[v]))
			return true;
	return false;
}

bool op_reads_output(const struct op_args *args, unsigned v)
{
	if (view_is_absent(&args->views[v]))
		return false;
	return (args->op->reads_output && args->op->reads_output(args, v)) || is_in_place(args, v);
}

bool op_reads_outputs(const struct op_args *args)
{
	for (unsigned v = op_first_output(args->op); v < args->op->n_operands; v++)
		if (op_reads_output(args, v))
			return true;
	return false;
}

bool op_ignores(const struct op_args *args, unsigned v)
{
	return !op_is_output(args->op, v) && args->op->ignores_input && args->op->ignores_input(args, v);
}

bool op_reads(const struct op_args *args, unsigned v)
{
	if (op_is_output(args->op, v))
		return op_reads_output(args, v);
	return !view_is_absent(&args->views[v]);
}

/* Checks by name: a type that no op names is taken by none. */
static bool takes(const struct op_operand *operand, kops_dtype dtype)
{
	return (unsigned)dtype < 32 && (operand->dtypes & DTYPE_BIT(dtype)) != 0;
}

bool op_takes(const struct op *op, kops_dtype dtype)
{
	return takes(&op->operands[0], dtype);
}

kops_dtype op_dtype_beside(const struct op *op, unsigned v, kops_dtype dtype)
{
	const struct op_operand *operand = &op->operands[v];

	if (v == 0 || operand->dtype_of != OWN_DTYPE || takes(operand, dtype))
		return dtype;
	return (kops_dtype)__builtin_ctz(operand->dtypes);
}

uint64_t op_index_limit(const struct op_args *args, unsigned v)
{
	if (!args->op->operands[v].is_index)
		return 0;
	return args->op->index_limit ? args->op->index_limit(args, v) : args->views[0].shape[0];
}

/* The largest finite magnitude of a part of an element of the matrix at `data`, of the last two axes of v. */
static double largest_of(const struct view *v, const char *data)
{
	kops_dtype part = dtype_component(v->dtype);
	unsigned parts = dtype_components(v->dtype);
	double largest = 0;

	for (int64_t i = 0; i < (int64_t)v->shape[v->rank - 2]; i++)
		for (int64_t j = 0; j < (int64_t)v->shape[v->rank - 1] * parts; j++) {
			int64_t at = i * v->strides[v->rank - 2] + j / parts * v->strides[v->rank - 1];
			double x = fabs(half_load(data, part, at * parts + j % parts));

			largest = isfinite(x) && x > largest ? x : largest;
		}
	return largest;
}

static void enlarge_diagonal(const struct view *v, char *data)
{
	kops_dtype part = dtype_component(v->dtype);
	uint64_t rows = v->shape[v->rank - 2], cols = v->shape[v->rank - 1], n = rows < cols ? rows : cols;
	double large = 2 * largest_of(v, data) * (double)n;

	for (int64_t i = 0; i < (int64_t)n; i++) {
		int64_t at =
		    i * (v->strides[v->rank - 2] + v->strides[v->rank - 1]) * dtype_components(v->dtype);
		double x = half_load(data, part, at);

		if (isfinite(x))
			half_store(data, part, at, fabs(x) + large);
	}
}

void op_enlarge_diagonals(const struct view *v)
{
	uint32_t axes = v->rank - 2;
	uint64_t n = view_elements(v);

	if (v->rank < 2 || n == 0)
		return;
	n /= v->shape[axes] * v->shape[axes + 1];
	for (uint64_t i = 0; i < n; i++) {
		uint64_t rest = i;
		int64_t at = 0;

		for (uint32_t d = axes; d-- > 0; rest /= v->shape[d])
			at += (int64_t)(rest % v->shape[d]) * v->strides[d];
		enlarge_diagonal(v, (char *)v->data + at * (int64_t)dtype_size(v->dtype));
	}
}

unsigned op_operand_index(const struct op *op, const char *name)
{
	unsigned i = 0;

	while (i < op->n_operands && strcmp(op->operands[i].name, name) != 0)
		i++;
	return i;
}

unsigned op_attribute_index(const struct op *op, const char *name)
{
	unsigned i = 0;

	while (i < op->n_attributes && strcmp(op->attributes[i].name, name) != 0)
		i++;
	return i;
}

/* ---- Attributes ---- */

unsigned attribute_choice(const struct op_attribute *a, const char *word)
{
	unsigned i = 0;

	while (i < a->n_choices && strcmp(a->choices[i], word) != 0)
		i++;
	return i;
}

void attribute_put(enum attribute_type type, double value, void *at)
{
	switch (type) {
	case ATTRIBUTE_NUMBER:
		memcpy(at, &value, sizeof value);
		break;
	case ATTRIBUTE_COUNT:
		memcpy(at, &(uint32_t){(uint32_t)value}, sizeof(uint32_t));
		break;
	case ATTRIBUTE_FLAG:
		memcpy(at, &(bool){value != 0}, sizeof(bool));
		break;
	case ATTRIBUTE_CHOICE:
		memcpy(at, &(int){(int)(int64_t)value}, sizeof(int));
		break;
	}
}

void op_set_attribute(struct op_args *args, unsigned i, double value)
{
	const struct op_attribute *a = &args->op->attributes[i];

	attribute_put(a->type, value, (char *)&args->params + a->offset);
}

void op_set_defaults(struct op_args *args)
{
	for (unsigned i = 0; i < args->op->n_attributes; i++)
		op_set_attribute(args, i, args->op->attributes[i].otherwise);
}

static bool is_last_but_one(const struct op_attribute *a, unsigned i)
{
	return i + 2 == a->n_choices;
}

/* Writes "kind is 7; it is sum (0), max (1) or mean (2)". */
static int refuse_choice(const struct op_attribute *a, int choice, char why[WHY_BYTES])
{
	size_t used = (size_t)snprintf(why, WHY_BYTES, "%s is %d; it is ", a->name, choice);

	for (unsigned i = 0; i < a->n_choices && used < WHY_BYTES; i++)
		used += (size_t)snprintf(why + used, WHY_BYTES - used, "%s (%u)%s", a->choices[i], i,
		                         is_last_but_one(a, i)  ? " or "
		                         : i + 1 < a->n_choices ? ", "
		                                                : "");
	return KOPS_E_INVALID;
}

static int refuse_number(const struct op_attribute *a, double value, char why[WHY_BYTES])
{
	if (a->max == (double)FLT_MAX && a->min == -(double)FLT_MAX)
		return rules_refuse(why, KOPS_E_INVALID, "%s is %g; it must be a finite f32 number", a->name,
		                    value);
	if (isnan(value))
		return rules_refuse(why, KOPS_E_INVALID, "%s is not a number", a->name);
	return rules_refuse(why, KOPS_E_INVALID, "%s is %.10g; it must be from %.10g to %.10g", a->name, value,
	                    a->min, a->max);
}

static int check_number(const struct op_attribute *a, double value, char why[WHY_BYTES])
{
	if ((value >= a->min && value <= a->max) || (isnan(value) && a->takes_nan))
		return 0;
	return refuse_number(a, value, why);
}

static int check_attribute(const struct op_attribute *a, const char *params, char why[WHY_BYTES])
{
	const void *at = params + a->offset;
	double number;
	uint32_t count;
	int choice;

	switch (a->type) {
	case ATTRIBUTE_NUMBER:
		memcpy(&number, at, sizeof number);
		return check_number(a, number, why);
	case ATTRIBUTE_COUNT:
		memcpy(&count, at, sizeof count);
		return check_number(a, count, why);
	case ATTRIBUTE_FLAG:
		return 0;
	case ATTRIBUTE_CHOICE:
		memcpy(&choice, at, sizeof choice);
		return choice >= 0 && (unsigned)choice < a->n_choices ? 0 : refuse_choice(a, choice, why);
	}
	return KOPS_E_INVALID;
}

/* ---- Operands ---- */

/* Writes "f32, f16 and bf16". */
static const char *list_dtypes(unsigned dtypes, char *text, size_t bytes)
{
	size_t used = 0;

	text[0] = '\0';
	for (unsigned i = 0; dtypes >> i && used < bytes; i++) {
		unsigned left = dtypes >> i >> 1;

		if (dtypes >> i & 1)
			used += (size_t)snprintf(text + used, bytes - used, "%s%s", dtype_name((kops_dtype)i),
			                         left == 0             ? ""
			                         : (left & (left - 1)) ? ", "
			                                               : " and ");
	}
	return text;
}

/* Checks that the operand's type is that of another one, unless that is absent. */
static int check_same_dtype(const struct op_args *args, unsigned v, char why[WHY_BYTES])
{
	const struct op_operand *operands = args->op->operands;
	int of = operands[v].dtype_of;

	if (of == OWN_DTYPE || view_is_absent(&args->views[of]) ||
	    args->views[of].dtype == args->views[v].dtype)
		return 0;
	return rules_refuse(why, KOPS_E_DTYPE, "%s is %s, %s is %s: %s wants one type for both",
	                    operands[of].name, dtype_name(args->views[of].dtype), operands[v].name,
	                    dtype_name(args->views[v].dtype), args->op->name);
}

static int check_operand(const struct op_args *args, unsigned v, char why[WHY_BYTES])
{
	const struct op_operand *operand = &args->op->operands[v];
	kops_dtype dtype = args->views[v].dtype;
	char text[WHY_BYTES / 2];
	int rc;

	if (view_is_absent(&args->views[v])) {
		if (operand->is_optional)
			return 0;
		return rules_refuse(why, KOPS_E_INVALID, "operand %s of %s is missing", operand->name,
		                    args->op->name);
	}
	if ((rc = check_same_dtype(args, v, why)) < 0)
		return rc;
	if (takes(operand, dtype))
		return 0;
	return rules_refuse(why, KOPS_E_DTYPE, "%s is %s; %s takes %s", operand->name, dtype_name(dtype),
	                    args->op->name, list_dtypes(operand->dtypes, text, sizeof text));
}

int op_check(struct op_args *args, char why[WHY_BYTES])
{
	const struct op *op = args->op;
	int rc = 0;

	for (unsigned v = 0; v < op->n_operands && rc == 0; v++)
		rc = check_operand(args, v, why);
	for (unsigned i = 0; i < op->n_attributes && rc == 0; i++)
		rc = check_attribute(&op->attributes[i], (const char *)&args->params, why);
	return rc < 0 ? rc : op->check(args, why);
}

/* ---- Results ---- */

static void give_dtype(struct op_args *args, unsigned v)
{
	const struct op_operand *y = &args->op->operands[v];
	bool has_other = y->dtype_of != OWN_DTYPE && !view_is_absent(&args->views[y->dtype_of]);

	args->views[v].dtype =
	    has_other ? args->views[y->dtype_of].dtype : (kops_dtype)__builtin_ctz(y->dtypes);
}

int op_result(struct op_args *args, char why[WHY_BYTES])
{
	const struct op *op = args->op;
	unsigned first = op_first_output(op);
	int rc = 0;

	for (unsigned v = 0; v < first && rc == 0; v++)
		rc = check_operand(args, v, why);
	if (rc < 0)
		return rc;
	for (unsigned v = first; v < op->n_operands; v++) {
		args->views[v] = args->views[0];
		give_dtype(args, v);
	}
	return op->result ? op->result(args, why) : 0;
}

bool op_fit_optional(struct op_args *args, unsigned v, uint64_t elements)
{
	struct op_args without = *args;
	const struct view *y = op_output_const(&without);
	struct view fit = {.dtype = args->views[v].dtype};
	char why[WHY_BYTES];

	without.views[v] = (struct view){.rank = 0};
	for (uint32_t axes = op_result(&without, why) < 0 ? 0 : y->rank; axes > 0; axes--) {
		struct op_args trial = *args;

		fit.rank = axes;
		memcpy(fit.shape, y->shape + y->rank - axes, axes * sizeof fit.shape[0]);
		view_make_dense(&fit);
		trial.views[v] = fit;
		if ((elements == ANY_COUNT || elements == view_elements(&fit)) && op_result(&trial, why) == 0) {
			args->views[v] = fit;
			return true;
		}
	}
	args->views[v] = (struct view){.rank = 0};
	return false;
}

static uint64_t extent_from_end(const struct view *v, uint32_t d)
{
	return d < v->rank ? v->shape[v->rank - 1 - d] : 1;
}

int rules_broadcast(const struct view *a, const char *a_name, const struct view *b, const char *b_name,
                    struct view *y, char why[WHY_BYTES])
{
	char ta[RULES_SHAPE_BYTES], tb[RULES_SHAPE_BYTES];

	y->rank = a->rank > b->rank ? a->rank : b->rank;
	for (uint32_t d = 0; d < y->rank; d++) {
		uint64_t of_a = extent_from_end(a, d), of_b = extent_from_end(b, d);

		if (of_a != of_b && of_a != 1 && of_b != 1)
			return rules_refuse(why, KOPS_E_SHAPE,
			                    "%s is %s, %s is %s: they cannot be broadcast together", a_name,
			                    rules_shape(a, ta), b_name, rules_shape(b, tb));
		y->shape[y->rank - 1 - d] = of_a == 1 ? of_b : of_a;
	}
	return 0;
}

/* ---- Overlaps ---- */

static int check_injective(const struct op_args *args, unsigned v, char why[WHY_BYTES])
{
	char text[RULES_SHAPE_BYTES];

	if (view_is_injective(&args->views[v]))
		return 0;
	return rules_refuse(
	    why, KOPS_E_OVERLAP,
	    "the strides of output %s (%s) place several elements at one address; use strides that "
	    "keep them apart",
	    args->op->operands[v].name, rules_shape(&args->views[v], text));
}

static int check_apart(const struct op_args *args, unsigned v, unsigned from, char why[WHY_BYTES])
{
	const struct op_operand *y = &args->op->operands[v], *x = &args->op->operands[from];
	bool in_place = y->in_place >> from & 1;

	if (!view_overlap(&args->views[from], &args->views[v]) ||
	    (in_place && view_same(&args->views[from], &args->views[v])))
		return 0;
	return rules_refuse(why, KOPS_E_OVERLAP, "output %s overlaps %s %s%s; write to other memory", y->name,
	                    x->role == OPERAND_INPUT ? "input" : "output", x->name,
	                    in_place ? " without being the same view" : "");
}

int rules_outputs(const struct op_args *args, char why[WHY_BYTES])
{
	int rc;

	for (unsigned v = op_first_output(args->op); v < args->op->n_operands; v++) {
		if (view_is_absent(&args->views[v]))
			continue;
		if ((rc = check_injective(args, v, why)) < 0)
			return rc;
		for (unsigned i = 0; i < v; i++)
			if (!view_is_absent(&args->views[i]) && (rc = check_apart(args, v, i, why)) < 0)
				return rc;
	}
	return 0;
}
