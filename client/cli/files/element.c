#include "files/element.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "common/half.h"
#include "dtype.h"

/* Types without rounding have zeros. */
static const struct element_type types[DTYPE_COUNT + 1] = {
    [KOPS_F32] = {0x1p-24, FLT_MAX, FLT_MIN}, [KOPS_F64] = {0x1p-53, DBL_MAX, DBL_MIN},
    [KOPS_F16] = {0x1p-11, 65504, 0x1p-14},   [KOPS_BF16] = {0x1p-8, 0x1.fep127, FLT_MIN},
    [KOPS_I32] = {0, INT32_MAX, 0},
};

const struct element_type *element_type(kops_dtype dtype)
{
	return &types[dtype_size(dtype) ? dtype : 0];
}

const char *element_type_name(kops_dtype dtype)
{
	return dtype_size(dtype) ? dtype_name(dtype) : "?";
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

static int32_t put_i32(double value)
{
	if (isnan(value))
		return 0;
	return value <= INT32_MIN ? INT32_MIN : value >= INT32_MAX ? INT32_MAX : (int32_t)value;
}

/* An element in memory. */
union element {
	double aligned;
	int32_t i32;
};

double element_get(kops_dtype dtype, const void *at)
{
	kops_dtype component = dtype_component(dtype);
	union element e = {0};

	memcpy(&e, at, kops_dtype_size(component));
	return component == KOPS_I32 ? e.i32 : half_load(&e, component, 0);
}

void element_put(kops_dtype dtype, void *at, double value)
{
	kops_dtype component = dtype_component(dtype);
	size_t size = kops_dtype_size(component);
	union element e = {0};

	if (component == KOPS_I32)
		e.i32 = put_i32(value);
	else
		half_store(&e, component, 0, value);
	for (size_t done = 0; done < kops_dtype_size(dtype); done += size)
		memcpy((char *)at + done, &e, size);
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

struct elements elements_part(const struct elements *e, unsigned part)
{
	kops_dtype component = dtype_component(e->dtype);
	size_t size = kops_dtype_size(component);
	struct elements of_part = *e;

	of_part.data += part * size;
	of_part.dtype = component;
	for (uint32_t d = 0; d < e->rank; d++)
		of_part.strides[d] *= (int64_t)(kops_dtype_size(e->dtype) / size);
	return of_part;
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

/* Returns the address of element `first` of a row. */
static const unsigned char *find(const struct elements *e, uint64_t row, uint64_t first)
{
	int64_t at = (int64_t)first * e->strides[e->rank - 1];

	for (uint32_t d = e->rank - 1; d-- > 0;) {
		at += (int64_t)(row % e->shape[d]) * e->strides[d];
		row /= e->shape[d];
	}
	return e->data + at * (int64_t)kops_dtype_size(e->dtype);
}

void elements_gather(const struct elements *e, uint64_t row, uint64_t first, uint64_t n, void *out)
{
	const unsigned char *next = find(e, row, first);
	size_t size = kops_dtype_size(e->dtype);
	int64_t step = e->strides[e->rank - 1] * (int64_t)size;

	if (step == (int64_t)size) {
		memcpy(out, next, n * size);
		return;
	}
	for (uint64_t i = 0; i < n; i++, next += step)
		memcpy((unsigned char *)out + i * size, next, size);
}

void elements_row(const struct elements *e, uint64_t row, uint64_t first, uint64_t n, double *out)
{
	const unsigned char *next = find(e, row, first);
	int64_t stride = e->strides[e->rank - 1], size = (int64_t)kops_dtype_size(e->dtype);

	if (e->dtype == KOPS_F32 && stride == 1) {
		const float *f32 = (const float *)(const void *)next;
		for (uint64_t i = 0; i < n; i++)
			out[i] = (double)f32[i];
		return;
	}
	for (uint64_t i = 0; i < n; i++, next += stride * size)
		out[i] = element_get(e->dtype, next);
}
