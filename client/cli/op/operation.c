#include "op/operation.h"

#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "dtype.h"
#include "kernel.h"
#include "random.h"
#include "show.h"

struct step step_of(const struct operation *op)
{
	return (struct step){.op = op};
}

struct step step_copy(kops_view from, kops_view to)
{
	return (struct step){.op = operation_by_name("copy"), .in = {from}, .out = to};
}

static int refuse_dtype(const struct op *op, kops_dtype dtype, char *why)
{
	char list[64] = "";
	size_t used = 0;

	for (kops_dtype d = DTYPE_FIRST; d < DTYPE_END && used < sizeof(list); d++)
		if (op_takes(op, d))
			used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%s", used ? ", " : "",
			                         element_type_name(d));
	return why_invalid(why, "%s takes %s, not %s; a.astype('f4') in NumPy rounds to f32", op->name, list,
	                   element_type_name(dtype));
}

int step_fits(const kops_view *view, char *why)
{
	uint64_t bytes;

	if (element_bytes(view->dtype, view->rank, view->shape, &bytes))
		return 0;
	return why_invalid(why, "the result would be %s, which exceeds any memory",
	                   show_shape(view->rank, view->shape).text);
}

bool operation_has_attribute(const struct operation *op, const char *name)
{
	const struct op *description = op_by_name(op->name);
	unsigned i = op_attribute_index(description, name);

	return i < description->n_attributes && !description->attributes[i].is_of_old;
}

unsigned operation_optional(const struct operation *op, const char *name)
{
	unsigned i = operation_required(op);

	while (i < op->n_inputs && strcmp(op_by_name(op->name)->operands[i].name, name) != 0)
		i++;
	return i;
}

unsigned operation_more(const struct operation *op, const char *name)
{
	unsigned i = op_operand_index(op_by_name(op->name), name);

	return i > op->n_inputs && i <= op->n_inputs + op->n_more ? i : 0;
}

kops_dtype operation_own_dtype(const struct operation *op, unsigned i)
{
	const struct op_operand *o = &op_by_name(op->name)->operands[i];
	bool has_one = (o->dtypes & (o->dtypes - 1)) == 0;

	return i > 0 && o->dtype_of == OWN_DTYPE && has_one ? (kops_dtype)__builtin_ctz(o->dtypes) : 0;
}

bool operation_is_extra(const struct operation *op, unsigned i)
{
	return op_by_name(op->name)->operands[i].is_extra;
}

bool operation_has_large_diagonal(const struct operation *op, unsigned i)
{
	return i < op->n_inputs && op_by_name(op->name)->operands[i].has_large_diagonal;
}

bool operation_checks_with(const struct operation *op, unsigned i)
{
	const struct op *of = op_by_name(op->name);

	return of->residual && of->operands[i].is_result;
}

bool operation_is_index(const struct operation *op, unsigned i)
{
	return op_by_name(op->name)->operands[i].is_index;
}

unsigned step_operands(const struct step *step, kops_operand ret[STEP_OPERANDS_MAX])
{
	const struct op *op = op_by_name(step->op->name);
	unsigned n = 0;

	for (unsigned i = 0; i < step->op->n_inputs; i++)
		if (step_has(step, i))
			ret[n++] = (kops_operand){op->operands[i].name, step->in[i]};
	ret[n++] = (kops_operand){op->operands[step->op->n_inputs].name, step->out};
	for (unsigned i = 0; i < step->op->n_more; i++)
		if (step->more[i].dtype != 0)
			ret[n++] = (kops_operand){op->operands[step->op->n_inputs + 1 + i].name, step->more[i]};
	return n;
}

int step_fit_optional(struct step *step, unsigned i, kops_dtype dtype, uint64_t elements)
{
	struct op_args args = {.op = op_by_name(step->op->name)};

	for (unsigned v = 0; v < step->op->n_inputs; v++) {
		if (!step_has(step, v) && v != i)
			continue;
		args.views[v].dtype =
		    (kops_dtype)__builtin_ctz(args.op->operands[v].dtypes); /* not asked here */
		args.views[v].rank = step->in[v].rank;
		memcpy(args.views[v].shape, step->in[v].shape, sizeof(step->in[v].shape));
	}
	if (!op_fit_optional(&args, i, elements))
		return KOPS_E_INVALID;
	step->in[i] = kops_tensor(NULL, 0, dtype, args.views[i].rank, args.views[i].shape);
	return 0;
}

const char *operation_factor_of_old(const struct op *op)
{
	for (unsigned i = 0; i < op->n_attributes; i++)
		if (op->attributes[i].is_of_old)
			return op->attributes[i].name;
	return NULL;
}

/* Whether attribute i was given, and what. */
static bool is_given(const struct settings *settings, unsigned i, double *ret)
{
	const struct described_setting *set = &settings->attributes[i];

	*ret = set->choice ? set->choice - 1 : set->flag ? 1 : set->number.value;
	return set->choice || set->flag || set->number.set;
}

/* The same, or what follows from the operands: the factor of what the output holds is 1. */
static bool is_known(const struct step *step, unsigned i, double *ret)
{
	const struct op *op = op_by_name(step->op->name);

	if (is_given(&step->set, i, ret))
		return true;
	*ret = 1;
	return step->accumulates && op->attributes[i].name == operation_factor_of_old(op);
}

/* Lists the attributes that are known. Returns how many there are. */
static size_t step_attributes(const struct step *step, kops_attribute ret[OP_ATTRIBUTES_MAX])
{
	const struct op *op = op_by_name(step->op->name);
	double given;
	size_t n = 0;

	for (unsigned i = 0; i < op->n_attributes; i++)
		if (is_known(step, i, &given))
			ret[n++] = (kops_attribute){.name = op->attributes[i].name, .value = given};
	return n;
}

/* Sets *ret to the output with this index as the op's description has it. For the first one it is not asked
 * whether the op takes the inputs' types: kops-bench shows what the daemon says of them. */
static int describe_output(const struct step *step, unsigned index, kops_view *ret, char *why)
{
	const struct op *op = op_by_name(step->op->name);
	kops_operand operands[STEP_OPERANDS_MAX];
	kops_attribute attributes[OP_ATTRIBUTES_MAX];
	struct step inputs = *step;

	memset(inputs.more, 0, sizeof(inputs.more));
	unsigned n = step_operands(&inputs, operands) - 1;
	size_t n_attributes = step_attributes(step, attributes);

	for (unsigned i = 0; i < n && index == step->op->n_inputs; i++)
		operands[i].view.dtype =
		    (kops_dtype)__builtin_ctz(op->operands[op_operand_index(op, operands[i].name)].dtypes);
	return kops_op_result(op->name, operands, n, attributes, n_attributes, op->operands[index].name, ret,
	                      why, CLI_WHY_BYTES) < 0
	           ? KOPS_E_INVALID
	           : 0;
}

/* Sets rank and shape of out, and its type if that is not the inputs'. */
static int set_shape(struct step *step, char *why)
{
	const struct op *op = op_by_name(step->op->name);
	kops_view result;

	if (describe_output(step, step->op->n_inputs, &result, why) < 0)
		return KOPS_E_INVALID;
	step->out.rank = result.rank;
	memcpy(step->out.shape, result.shape, sizeof(result.shape));
	if (op->operands[step->op->n_inputs].dtype_of == OWN_DTYPE)
		step->out.dtype = result.dtype;
	return 0;
}

const char *operation_needs_old(const struct operation *op, const struct settings *set)
{
	const struct op *description = op_by_name(op->name);
	double given;

	for (unsigned i = 0; op->accumulates && i < description->n_attributes; i++)
		if (description->attributes[i].is_of_old && is_given(set, i, &given) && given != 0)
			return description->attributes[i].name;
	return NULL;
}

void operation_json_attributes(struct json *json, const struct operation *op, const struct settings *set)
{
	const struct op *description = op_by_name(op->name);
	double given;

	json_object(json, "attributes");
	for (unsigned i = 0; i < description->n_attributes; i++) {
		const struct op_attribute *a = &description->attributes[i];
		if (!is_given(set, i, &given))
			continue;
		if (a->type == ATTRIBUTE_CHOICE)
			json_text(json, a->name, a->choices[(unsigned)given]);
		else
			json_real(json, a->name, given);
	}
	json_close_object(json);
}

void step_set_attributes(const struct step *step, struct op_args *args)
{
	double given;

	op_set_defaults(args);
	for (unsigned i = 0; i < args->op->n_attributes; i++)
		if (is_known(step, i, &given))
			op_set_attribute(args, i, given);
}

void step_set_precision(struct step *step, kops_precision precision)
{
	const struct op *op = op_by_name(step->op->name);
	unsigned i = op_attribute_index(op, "precision");

	if (i < op->n_attributes)
		step->set.attributes[i].choice = 1 + precision;
}

int step_enqueue(kops_job *job, const struct step *step)
{
	const struct op *op = op_by_name(step->op->name);
	kops_operand operands[STEP_OPERANDS_MAX];
	kops_attribute attributes[OP_ATTRIBUTES_MAX];
	size_t n = step_attributes(step, attributes);
	unsigned n_operands = step_operands(step, operands);
	return kops_job_op(job, op->name, operands, n_operands, attributes, n, step->set.kernel);
}

int step_result(struct step *step, char *why)
{
	int rc;

	step->out = step->in[0];
	rc = set_shape(step, why);
	if (rc < 0)
		return rc;
	step->out = kops_tensor(NULL, 0, step->out.dtype, step->out.rank, step->out.shape);
	return step_fits(&step->out, why);
}

int step_more(struct step *step, unsigned index, char *why)
{
	kops_view *more = &step->more[index - step->op->n_inputs - 1], result;

	if (describe_output(step, index, &result, why) < 0)
		return KOPS_E_INVALID;
	*more = kops_tensor(NULL, 0, result.dtype, result.rank, result.shape);
	return step_fits(more, why);
}

int step_shape(struct step *step, char *why)
{
	const struct op *op = op_by_name(step->op->name);
	kops_dtype dtype = step->in[0].dtype;

	for (unsigned i = 0; i < step->op->n_inputs; i++) {
		kops_dtype own = operation_own_dtype(step->op, i);
		if (!step_has(step, i) || step->in[i].dtype == (own ? own : dtype))
			continue;
		if (own)
			return why_invalid(why, "%s of %s are %s, not %s", op->operands[i].name, op->name,
			                   element_type_name(own), element_type_name(step->in[i].dtype));
		return why_invalid(why, "%s takes inputs of one dtype, not %s and %s", step->op->name,
		                   element_type_name(dtype), element_type_name(step->in[i].dtype));
	}
	if (!op_takes(op, dtype))
		return refuse_dtype(op, dtype, why);
	return step_result(step, why);
}

int step_check_elements(const struct step *step, const struct elements *in, const struct elements *y,
                        struct check *ret_check)
{
	return (step->op->check ? step->op->check : check_by_reference)(step, in, y, ret_check);
}

int step_check(const struct step *step, struct check *ret_check)
{
	struct elements in[STEP_INPUTS_MAX], y = elements_of(&step->out);

	for (unsigned i = 0; i < step->op->n_inputs; i++)
		in[i] = step_has(step, i) ? elements_of(&step->in[i]) : (struct elements){.rank = 0};
	return step_check_elements(step, in, &y, ret_check);
}

/* Below which number the elements of input i are valid indices; 0: they are none. */
static uint64_t index_limit(const struct step *step, unsigned i)
{
	struct op_args args = {.op = op_by_name(step->op->name)};

	for (unsigned v = 0; v < step->op->n_inputs; v++) {
		args.views[v].rank = step->in[v].rank;
		memcpy(args.views[v].shape, step->in[v].shape, sizeof(step->in[v].shape));
	}
	return op_index_limit(&args, i);
}

static void enlarge_diagonals(const kops_view *view)
{
	struct view v = {.data = (unsigned char *)kops_data(view->buffer) + view->offset,
	                 .dtype = view->dtype,
	                 .rank = view->rank};

	memcpy(v.shape, view->shape, sizeof v.shape);
	memcpy(v.strides, view->strides, sizeof v.strides);
	op_enlarge_diagonals(&v);
}

void step_fill_random(const struct step *step, unsigned i, struct random *random)
{
	const kops_view *view = i < step->op->n_inputs ? &step->in[i] : &step->out;
	unsigned char *at = (unsigned char *)kops_data(view->buffer) + view->offset;
	uint64_t limit = i < step->op->n_inputs ? index_limit(step, i) : 0;

	for (uint64_t n = step_elements(view); n > 0; n--, at += kops_dtype_size(view->dtype))
		element_put(view->dtype, at,
		            limit > 0 ? (double)random_below(random, limit) : random_unit(random));
	if (operation_has_large_diagonal(step->op, i))
		enlarge_diagonals(view);
}

uint64_t step_elements(const kops_view *v)
{
	uint64_t n = 1;

	for (uint32_t d = 0; d < v->rank; d++)
		n *= v->shape[d];
	return n;
}

uint64_t step_extent(const kops_view *v, uint32_t from_end)
{
	return from_end < v->rank ? v->shape[v->rank - 1 - from_end] : 1;
}

kops_view step_matrix(kops_dtype dtype, uint64_t rows, uint64_t columns)
{
	return kops_tensor(NULL, 0, dtype, 2, (uint64_t[]){rows, columns});
}

/* ---- Parts of a step ---- */

/* axis: negative where the view has fewer. One index is repeated for all. */
static void slice(kops_view *view, int axis, uint64_t first, uint64_t n)
{
	if (axis < 0 || view->shape[axis] == 1)
		return;
	view->offset += first * (uint64_t)view->strides[axis] * kops_dtype_size(view->dtype);
	view->shape[axis] = n;
}

/* What part [first, first + n) of the output along a part axis needs of input i, which has that axis. */
static void slice_input(kops_view *view, const struct op_args *args, unsigned part_axis, unsigned i,
                        uint64_t first, uint64_t n)
{
	const struct op *op = args->op;

	if (op->part_range)
		op->part_range(args, part_axis, i, &first, &n);
	slice(view, op->part_axes[part_axis].axis[i] + (int)view->rank - (int)args->views[i].rank, first, n);
}

/* Sets strides with a gap after each axis, so that a check has no axes to fold into one. */
static void set_gaps(struct view *view)
{
	uint64_t stride = 1;

	for (uint32_t d = view->rank; d-- > 0; stride *= view->shape[d] + 1) /* may wrap where nothing fits */
		view->strides[d] = (int64_t)stride;
}

/* Sets *ret to the op's operands as they are when it has checked them, but for their strides. */
static bool check_step(const struct step *step, struct op_args *ret)
{
	struct op_args args = {.op = op_by_name(step->op->name)};
	kops_operand operands[STEP_OPERANDS_MAX];
	unsigned n = step_operands(step, operands);
	char why[WHY_BYTES];

	for (unsigned i = 0; i < n; i++) {
		const kops_view *from = &operands[i].view;
		struct view *to = &args.views[op_operand_index(args.op, operands[i].name)];
		*to = (struct view){.space = &operands[i], .dtype = from->dtype, .rank = from->rank};
		memcpy(to->shape, from->shape, sizeof(to->shape));
		set_gaps(to);
	}
	step_set_attributes(step, &args);
	*ret = args;
	return op_check(ret, why) == 0;
}

double step_flops(const struct step *step)
{
	struct op_args args;
	struct cost cost = {0};

	if (check_step(step, &args))
		args.op->cost(&args, &cost);
	return cost.flops;
}

/* Returns true if what an element is depends on where it is along the axis, so that a part is another problem.
 */
static bool depends_on_place(const struct op_args *args, unsigned part_axis)
{
	struct op_args moved = *args;

	if (!args->op->begin_part)
		return false;
	args->op->begin_part(&moved, part_axis, 1);
	return memcmp(&moved.params, &args->params, sizeof moved.params) != 0;
}

/* Returns true if the checked operand has the axes of the view, behind any others, or repeats some. */
static bool keeps_axes(const struct view *checked, const kops_view *view)
{
	for (uint32_t d = 1; d <= view->rank; d++) {
		uint64_t extent = view->shape[view->rank - d];
		if (d > checked->rank || (extent != 1 && checked->shape[checked->rank - d] != extent))
			return false;
	}
	return true;
}

/* Returns the result with an extent of 1 in place of an axis that the op drops. */
static kops_view full_output(const struct step *step)
{
	kops_view out = step->out;

	if (op_by_name(step->op->name)->last_axis == AXIS_DROPPED && out.rank < step->in[0].rank)
		out.shape[out.rank++] = 1;
	return out;
}

static bool keeps_all_axes(const struct step *step, const struct op_args *args)
{
	kops_view out = full_output(step);

	for (unsigned i = 0; i < step->op->n_inputs; i++)
		if (step_has(step, i) && !keeps_axes(&args->views[i], &step->in[i]))
			return false;
	return keeps_axes(op_output_const(args), &out);
}

bool step_cut(struct step *step, unsigned axis, uint64_t first, uint64_t n)
{
	const struct op *op = op_by_name(step->op->name);
	struct op_args args;

	if (!check_step(step, &args) || !keeps_all_axes(step, &args))
		return false;
	for (unsigned p = 0; p < op->n_part_axes; p++) {
		const int8_t *axes = op->part_axes[p].axis;
		if ((uint32_t)axes[step->op->n_inputs] + full_output(step).rank !=
		    op_output(&args)->rank + axis)
			continue;
		if (depends_on_place(&args, p))
			return false;
		for (unsigned i = 0; i < step->op->n_inputs; i++)
			if (step_has(step, i) && axes[i] != PART_NONE)
				slice_input(&step->in[i], &args, p, i, first, n);
		slice(&step->out, (int)axis, first, n);
		return true;
	}
	return false;
}
