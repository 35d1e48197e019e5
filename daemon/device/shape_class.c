#include "device/shape_class.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

_Static_assert(sizeof(struct shape_class) == 4 + OP_VIEWS_MAX * (2 + KOPS_RANK_MAX), "no padding");

static const char *const precisions[] = {
    [KOPS_PRECISION_F32] = "f32",
    [KOPS_PRECISION_IEEE] = "ieee",
    [KOPS_PRECISION_TF32] = "tf32",
    [KOPS_PRECISION_BF16] = "bf16",
};
enum { N_PRECISIONS = sizeof precisions / sizeof precisions[0] };

/* ---- From operands ---- */

/* The logarithm rounded to the nearest integer up to 63, 0 of 0: it grows at 2^n times the square root of 2. */
static uint8_t rounded_log2(uint64_t extent)
{
	const uint64_t sqrt_2 = 0xb504f333f9de6485u; /* times 2^63 */
	unsigned zeros = extent ? (unsigned)__builtin_clzll(extent) : 63;

	return (uint8_t)(63 - zeros + (zeros > 0 && extent << zeros >= sqrt_2));
}

/* The last of the axes of unit stride along which there is more than one element. */
static uint8_t unit_axis_of(const struct view *v)
{
	for (uint32_t d = v->rank; d-- > 0;)
		if (v->shape[d] > 1 && stride_magnitude(v->strides[d]) == 1)
			return (uint8_t)d;
	return SHAPE_CLASS_NO_AXIS;
}

static bool is_aligned(const struct view *v, uint8_t unit_axis)
{
	uint64_t size = dtype_size(v->dtype);
	bool aligned = v->offset % SHAPE_ALIGNMENT == 0;

	for (uint32_t d = 0; d < v->rank; d++)
		if (d != unit_axis && v->shape[d] > 1)
			aligned &= stride_magnitude(v->strides[d]) * size % SHAPE_ALIGNMENT == 0;
	return aligned;
}

void shape_class_of(const struct op_args *args, struct shape_class *ret)
{
	*ret = (struct shape_class){.op = (uint8_t)op_index(args->op), .dtype = (uint8_t)args->views[0].dtype};
	if (args->op->precision)
		ret->precision = (uint8_t)args->op->precision(args);
	for (unsigned i = 0; i <= args->op->n_inputs; i++) {
		const struct view *v = &args->views[i];

		ret->views[i].rank = (uint8_t)v->rank;
		ret->views[i].unit_axis = unit_axis_of(v);
		for (uint32_t d = 0; d < v->rank; d++)
			ret->views[i].log2[d] = rounded_log2(v->shape[d]);
		ret->unaligned |= !is_aligned(v, ret->views[i].unit_axis);
	}
}

int shape_class_compare(const struct shape_class *a, const struct shape_class *b)
{
	return memcmp(a, b, sizeof *a);
}

/* ---- As text ---- */

__attribute__((format(printf, 3, 4))) static void append(char text[SHAPE_CLASS_TEXT_BYTES], size_t *used,
                                                         const char *format, ...)
{
	va_list list;

	va_start(list, format);
	*used += (size_t)vsnprintf(text + *used, SHAPE_CLASS_TEXT_BYTES - *used, format, list);
	va_end(list);
}

const char *shape_class_format(const struct shape_class *c, char text[SHAPE_CLASS_TEXT_BYTES])
{
	const struct op *op = ops[c->op];
	size_t used = 0;

	append(text, &used, "%s/%s", op->name, dtype_name((kops_dtype)c->dtype));
	if (op->precision)
		append(text, &used, "/%s", precisions[c->precision]);
	for (unsigned i = 0; i <= op->n_inputs; i++) {
		for (uint32_t d = 0; d < c->views[i].rank; d++)
			append(text, &used, "%c%llu", d ? 'x' : '/', 1ull << c->views[i].log2[d]);
		if (c->views[i].unit_axis == SHAPE_CLASS_NO_AXIS)
			append(text, &used, ":-");
		else
			append(text, &used, ":%u", c->views[i].unit_axis);
	}
	if (c->unaligned)
		append(text, &used, "/unaligned");
	return text;
}

/* Takes `word` and what stands before the next '/', or the end. */
static bool take_word(const char **text, const char *word)
{
	size_t n = strcspn(*text, "/");

	if (strlen(word) != n || strncmp(*text, word, n) != 0)
		return false;
	*text += n + ((*text)[n] == '/');
	return true;
}

static bool take_op(const char **text, struct shape_class *c)
{
	while (c->op < OP_COUNT && !take_word(text, ops[c->op]->name))
		c->op++;
	return c->op < OP_COUNT;
}

static bool take_dtype(const char **text, struct shape_class *c)
{
	for (c->dtype = KOPS_F32; c->dtype <= KOPS_BF16; c->dtype++)
		if (take_word(text, dtype_name((kops_dtype)c->dtype)))
			return true;
	return false;
}

static bool take_precision(const char **text, struct shape_class *c)
{
	if (!ops[c->op]->precision)
		return true;
	while (c->precision < N_PRECISIONS && !take_word(text, precisions[c->precision]))
		c->precision++;
	return c->precision < N_PRECISIONS;
}

/* A power of two; what is none is found out when the class is written again. */
static bool take_extent(const char **text, uint8_t *ret_log2)
{
	uint64_t extent = 0;
	const char *at = *text;

	for (; *at >= '0' && *at <= '9'; at++)
		if (__builtin_mul_overflow(extent, 10, &extent) ||
		    __builtin_add_overflow(extent, (uint64_t)(*at - '0'), &extent))
			return false;
	if (extent == 0)
		return false;
	*ret_log2 = (uint8_t)(63 - __builtin_clzll(extent));
	*text = at;
	return true;
}

static bool take_view(const char **text, uint8_t *ret_rank, uint8_t log2[KOPS_RANK_MAX], uint8_t *ret_unit_axis)
{
	uint8_t rank = 0;

	do {
		if (rank == KOPS_RANK_MAX || !take_extent(text, &log2[rank++]))
			return false;
	} while (*(*text)++ == 'x');
	if ((*text)[-1] != ':')
		return false;
	*ret_unit_axis = **text == '-' ? SHAPE_CLASS_NO_AXIS : (uint8_t)(**text - '0');
	if (*ret_unit_axis != SHAPE_CLASS_NO_AXIS && *ret_unit_axis >= rank)
		return false;
	*ret_rank = rank;
	*text += 1;
	*text += **text == '/';
	return true;
}

bool shape_class_parse(const char *text, struct shape_class *ret)
{
	struct shape_class c = {.op = 0};
	char again[SHAPE_CLASS_TEXT_BYTES];
	const char *at = text;

	if (!take_op(&at, &c) || !take_dtype(&at, &c) || !take_precision(&at, &c))
		return false;
	for (unsigned i = 0; i <= ops[c.op]->n_inputs; i++)
		if (!take_view(&at, &c.views[i].rank, c.views[i].log2, &c.views[i].unit_axis))
			return false;
	c.unaligned = *at != '\0';
	/* Whatever else was taken for a class, no class is written so. */
	if (strcmp(shape_class_format(&c, again), text) != 0)
		return false;
	*ret = c;
	return true;
}
