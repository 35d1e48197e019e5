#include "files/element.h"

#include <float.h>
#include <math.h>
#include <string.h>

static const struct type {
	kops_dtype dtype;
	const char *name;
	int mantissa_bits; /* stored */
	int exponent_bits;
	double largest, smallest;
} types[] = {
    {KOPS_F32, "f32", 23, 8, FLT_MAX, FLT_MIN},
    {KOPS_F64, "f64", 52, 11, DBL_MAX, DBL_MIN},
    {KOPS_F16, "f16", 10, 5, 65504, 0x1p-14},
    {KOPS_BF16, "bf16", 7, 8, 0x1.fep127, FLT_MIN},
};

static const struct type *type_of(kops_dtype dtype)
{
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if (types[i].dtype == dtype)
			return &types[i];
	return NULL;
}

const char *element_type_name(kops_dtype dtype)
{
	const struct type *type = type_of(dtype);

	return type ? type->name : "?";
}

bool element_type_by_name(const char *name, kops_dtype *ret_dtype)
{
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		if (strcmp(types[i].name, name) != 0)
			continue;
		*ret_dtype = types[i].dtype;
		return true;
	}
	return false;
}

double element_roundoff(kops_dtype dtype)
{
	return ldexp(1, -type_of(dtype)->mantissa_bits - 1);
}

double element_largest(kops_dtype dtype)
{
	return type_of(dtype)->largest;
}

double element_smallest(kops_dtype dtype)
{
	return type_of(dtype)->smallest;
}

bool element_bytes(kops_dtype dtype, uint32_t rank, const uint64_t *shape, uint64_t *ret_bytes)
{
	uint64_t bytes = kops_dtype_size(dtype);

	for (uint32_t d = 0; d < rank; d++)
		bytes = shape[d] == 0 ? 0 : bytes;
	for (uint32_t d = 0; d < rank; d++)
		if (__builtin_mul_overflow(bytes, shape[d], &bytes) || bytes > INT64_MAX)
			return false;
	*ret_bytes = bytes;
	return true;
}

/* The value of a 16-bit float with the given split of its bits. */
static double get_small(uint16_t bits, const struct type *type)
{
	int mantissa = bits & ((1 << type->mantissa_bits) - 1);
	int exponent = (bits >> type->mantissa_bits) & ((1 << type->exponent_bits) - 1);
	int bias = (1 << (type->exponent_bits - 1)) - 1;
	double value;

	if (exponent == (1 << type->exponent_bits) - 1)
		value = mantissa ? (double)NAN : (double)INFINITY;
	else if (exponent == 0)
		value = ldexp(mantissa, 1 - bias - type->mantissa_bits);
	else
		value = ldexp(mantissa + (1 << type->mantissa_bits), exponent - bias - type->mantissa_bits);
	return bits >> 15 ? -value : value;
}

static uint16_t put_small(double value, const struct type *type)
{
	int bias = (1 << (type->exponent_bits - 1)) - 1;
	uint16_t infinite = (uint16_t)(((1 << type->exponent_bits) - 1) << type->mantissa_bits);
	uint16_t sign = signbit(value) ? 0x8000 : 0;
	int exponent;

	if (isnan(value))
		return (uint16_t)(sign | infinite | 1 << (type->mantissa_bits - 1));
	if (isinf(value) || value == 0)
		return (uint16_t)(sign | (isinf(value) ? infinite : 0));
	frexp(value, &exponent); /* |value| in [2^(exponent-1), 2^exponent) */
	if (exponent < 2 - bias)
		exponent = 2 - bias; /* subnormal: the smallest exponent's spacing */
	/* Units of the last place; one more than fits carries into the exponent by itself. */
	double units = nearbyint(ldexp(fabs(value), type->mantissa_bits + 1 - exponent));
	int base = (exponent - 2 + bias) << type->mantissa_bits;
	int bits = base + (int)units;
	return (uint16_t)(sign | (bits > infinite ? infinite : bits));
}

/* bfloat16 is the upper half of a float, and worth a shortcut. */
static double get_bf16(uint16_t bits)
{
	uint32_t wide = (uint32_t)bits << 16;
	float value;

	memcpy(&value, &wide, sizeof(value));
	return (double)value;
}

double element_get(kops_dtype dtype, const void *at)
{
	float f32;
	double f64;
	uint16_t bits;

	switch (dtype) {
	case KOPS_F32:
		memcpy(&f32, at, sizeof(f32));
		return (double)f32;
	case KOPS_F64:
		memcpy(&f64, at, sizeof(f64));
		return f64;
	case KOPS_BF16:
		memcpy(&bits, at, sizeof(bits));
		return get_bf16(bits);
	case KOPS_F16:
	default:
		memcpy(&bits, at, sizeof(bits));
		return get_small(bits, type_of(KOPS_F16));
	}
}

void element_put(kops_dtype dtype, void *at, double value)
{
	float f32 = (float)value;
	uint16_t bits;

	switch (dtype) {
	case KOPS_F32:
		memcpy(at, &f32, sizeof(f32));
		return;
	case KOPS_F64:
		memcpy(at, &value, sizeof(value));
		return;
	case KOPS_F16:
	case KOPS_BF16:
		bits = put_small(value, type_of(dtype));
		memcpy(at, &bits, sizeof(bits));
		return;
	}
}

struct elements elements_of(const kops_view *view)
{
	struct elements e = {.data = (const unsigned char *)kops_data(view->buffer) + view->offset,
	                     .dtype = view->dtype,
	                     .rank = view->rank};

	memcpy(e.shape, view->shape, sizeof(e.shape));
	memcpy(e.strides, view->strides, sizeof(e.strides));
	return e;
}

struct elements elements_dense(const void *data, const struct elements *shape)
{
	struct elements e = *shape;
	int64_t stride = 1;

	e.data = data;
	for (uint32_t d = e.rank; d-- > 0;) {
		e.strides[d] = stride;
		stride *= (int64_t)e.shape[d];
	}
	return e;
}

uint64_t elements_columns(const struct elements *e)
{
	return e->shape[e->rank - 1];
}

uint64_t elements_rows(const struct elements *e)
{
	uint64_t rows = 1;

	for (uint32_t d = 0; d + 1 < e->rank; d++)
		rows *= e->shape[d];
	return rows;
}

uint64_t elements_count(const struct elements *e)
{
	return elements_rows(e) * elements_columns(e);
}

void elements_row(const struct elements *e, uint64_t row, uint64_t first, uint64_t n, double *out)
{
	int64_t stride = e->strides[e->rank - 1];
	int64_t at = (int64_t)first * stride;
	int64_t size = (int64_t)kops_dtype_size(e->dtype);

	for (uint32_t d = e->rank - 1; d-- > 0;) {
		at += (int64_t)(row % e->shape[d]) * e->strides[d];
		row /= e->shape[d];
	}
	const unsigned char *next = e->data + at * size;
	if (e->dtype == KOPS_F32 && stride == 1) {
		const float *f32 = (const float *)(const void *)next;
		for (uint64_t i = 0; i < n; i++)
			out[i] = (double)f32[i];
		return;
	}
	for (uint64_t i = 0; i < n; i++, next += stride * size)
		out[i] = element_get(e->dtype, next);
}
