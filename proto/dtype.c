#include "dtype.h"

/* Rows must be in the order of their numbers, so that a number is an index into the table. */
enum {
	NO_NUMBER,
#define X(name, NAME, number, bytes, alignment, kind, accumulator) NUMBER_##NAME,
#include "dtype.def"
#undef X
};
#define X(name, NAME, number, bytes, alignment, kind, accumulator)                                             \
	_Static_assert(KOPS_##NAME == (number), #NAME " differs from kops_types.h");                           \
	_Static_assert(NUMBER_##NAME == (number), #NAME " is out of order");
#include "dtype.def"
#undef X

static const struct {
	const char *name;
	size_t bytes, alignment;
	enum dtype_kind kind;
	kops_dtype accumulator;
} table[DTYPE_COUNT + 1] = {
    {.name = "no dtype"},
#define X(name, NAME, number, bytes, alignment, kind, accumulator)                                             \
	{#name, bytes, alignment, DTYPE_##kind, KOPS_##accumulator},
#include "dtype.def"
#undef X
};

static unsigned row(kops_dtype dtype)
{
	return (unsigned)dtype <= DTYPE_COUNT ? (unsigned)dtype : 0;
}

size_t dtype_size(kops_dtype dtype)
{
	return table[row(dtype)].bytes;
}

size_t dtype_alignment(kops_dtype dtype)
{
	return table[row(dtype)].alignment;
}

enum dtype_kind dtype_kind(kops_dtype dtype)
{
	return table[row(dtype)].kind;
}

kops_dtype dtype_accumulator(kops_dtype dtype)
{
	return row(dtype) ? table[row(dtype)].accumulator : dtype;
}

const char *dtype_name(kops_dtype dtype)
{
	return table[row(dtype)].name;
}

kops_dtype dtype_component(kops_dtype dtype)
{
	if (dtype_kind(dtype) != DTYPE_COMPLEX)
		return dtype;
	return dtype == KOPS_C64 ? KOPS_F32 : KOPS_F64;
}

unsigned dtype_components(kops_dtype dtype)
{
	return dtype_kind(dtype) == DTYPE_COMPLEX ? 2 : 1;
}
