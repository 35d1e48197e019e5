/* named.c: adds ops by the names of their operands and attributes: kops_job_op(), kops_op_result(). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/rules.h"
#include "libkops/base/base.h"
#include "libkops/job/ops.h"

struct named_op {
	const struct op *op;
	kops_view views[OP_OPERANDS_MAX];
	bool is_given[OP_OPERANDS_MAX];
	double values[OP_ATTRIBUTES_MAX];
};

static int find_operand(const kops_operand *operand, struct named_op *ret, char why[WHY_BYTES])
{
	const char *name = operand->name ? operand->name : "";
	unsigned at = op_operand_index(ret->op, name);
	if (at == ret->op->n_operands)
		return rules_refuse(why, KOPS_E_INVALID, "%s has no operand '%.64s'", ret->op->name, name);
	if (ret->is_given[at])
		return rules_refuse(why, KOPS_E_INVALID, "operand %s of %s is given twice", name,
		                    ret->op->name);
	ret->is_given[at] = true;
	ret->views[at] = operand->view;
	return 0;
}

/* Checks that the first n operands of the description are given, unless they may be absent. */
static int check_missing(const struct named_op *named, unsigned n, char why[WHY_BYTES])
{
	for (unsigned v = 0; v < n; v++)
		if (!named->is_given[v] && !named->op->operands[v].is_optional)
			return rules_refuse(why, KOPS_E_INVALID, "operand %s of %s is missing",
			                    named->op->operands[v].name, named->op->name);
	return 0;
}

/* Returns true if the value fits the attribute's type. The daemon checks its range. */
static bool is_of_type(const struct op_attribute *a, double value)
{
	switch (a->type) {
	case ATTRIBUTE_NUMBER:
		return true;
	case ATTRIBUTE_COUNT:
		return value >= 0 && value <= UINT32_MAX && value == floor(value);
	case ATTRIBUTE_FLAG:
		return value == 0 || value == 1;
	case ATTRIBUTE_CHOICE:
		return value >= 0 && value < a->n_choices && value == floor(value);
	}
	return false;
}

static bool find_choice(const struct op_attribute *a, const char *word, double *ret)
{
	unsigned i = attribute_choice(a, word);
	if (i == a->n_choices)
		return false;
	*ret = i;
	return true;
}

static int find_attribute(const kops_attribute *given, struct named_op *ret, char why[WHY_BYTES])
{
	const struct op *op = ret->op;
	const char *name = given->name ? given->name : "";
	unsigned at = op_attribute_index(op, name);
	if (at == op->n_attributes)
		return rules_refuse(why, KOPS_E_INVALID, "%s has no attribute '%.64s'", op->name, name);
	if (given->choice)
		return find_choice(&op->attributes[at], given->choice, &ret->values[at])
		           ? 0
		           : rules_refuse(why, KOPS_E_INVALID, "%s of %s cannot be '%.64s'", name, op->name,
		                          given->choice);
	if (!is_of_type(&op->attributes[at], given->value))
		return rules_refuse(why, KOPS_E_INVALID, "%s of %s cannot be %g", name, op->name, given->value);
	ret->values[at] = given->value;
	return 0;
}

static int find(const char *op, const kops_operand *operands, size_t n_operands,
                const kops_attribute *attributes, size_t n_attributes, struct named_op *ret,
                char why[WHY_BYTES])
{
	int status = 0;
	*ret = (struct named_op){.op = op ? op_by_name(op) : NULL};
	if (!ret->op)
		return rules_refuse(why, KOPS_E_UNSUPPORTED, "this libkops knows no op '%.64s'", op ? op : "");
	for (unsigned i = 0; i < ret->op->n_attributes; i++)
		ret->values[i] = ret->op->attributes[i].otherwise;
	for (size_t i = 0; i < n_operands && status == 0; i++)
		status = find_operand(&operands[i], ret, why);
	for (size_t i = 0; i < n_attributes && status == 0; i++)
		status = find_attribute(&attributes[i], ret, why);
	return status;
}

int kops_job_op(kops_job *job, const char *op, const kops_operand *operands, size_t n_operands,
                const kops_attribute *attributes, size_t n_attributes, const char *kernel)
{
	struct named_op named;
	char why[WHY_BYTES];
	int status = find(op, operands, n_operands, attributes, n_attributes, &named, why);
	if (status == 0)
		status = check_missing(&named, named.op->n_operands, why);
	if (status < 0)
		return client_fail(job->k, status, "%s", why);
	return client_add_op(job, named.op, named.views, named.values, kernel);
}

/* ---- Results ---- */

static int take_view(const struct named_op *named, unsigned v, struct view *ret, char why[WHY_BYTES])
{
	const kops_view *view = &named->views[v];
	if (view->rank < 1 || view->rank > KOPS_RANK_MAX)
		return rules_refuse(why, KOPS_E_SHAPE, "operand %s has rank %u, expected 1 to %d",
		                    named->op->operands[v].name, view->rank, KOPS_RANK_MAX);
	*ret = (struct view){.dtype = view->dtype, .rank = view->rank};
	memcpy(ret->shape, view->shape, view->rank * sizeof(ret->shape[0]));
	view_make_dense(ret);
	return 0;
}

static int find_results(const struct named_op *named, struct op_args *ret, char why[WHY_BYTES])
{
	int status = check_missing(named, op_first_output(named->op), why);
	*ret = (struct op_args){.op = named->op};
	for (unsigned i = 0; i < named->op->n_attributes; i++)
		op_set_attribute(ret, i, named->values[i]);
	for (unsigned v = 0; v < op_first_output(named->op) && status == 0; v++)
		if (named->is_given[v])
			status = take_view(named, v, &ret->views[v], why);
	return status < 0 ? status : op_result(ret, why);
}

static int find_result(const struct named_op *named, const char *output, kops_view *ret_view,
                       char why[WHY_BYTES])
{
	struct op_args args;
	unsigned v = op_operand_index(named->op, output ? output : "");
	if (v == named->op->n_operands || !op_is_output(named->op, v))
		return rules_refuse(why, KOPS_E_INVALID, "%s has no output '%.64s'", named->op->name,
		                    output ? output : "");
	int status = find_results(named, &args, why);
	if (status == 0)
		*ret_view = kops_tensor(NULL, 0, args.views[v].dtype, args.views[v].rank, args.views[v].shape);
	return status;
}

int kops_op_result(const char *op, const kops_operand *operands, size_t n_operands,
                   const kops_attribute *attributes, size_t n_attributes, const char *output,
                   kops_view *ret_view, char *why, size_t why_size)
{
	struct named_op named;
	char sentence[WHY_BYTES];
	int status = find(op, operands, n_operands, attributes, n_attributes, &named, sentence);
	if (status == 0)
		status = find_result(&named, output, ret_view, sentence);
	if (status < 0 && why)
		snprintf(why, why_size, "%s", sentence);
	return status;
}
