/* test_dtype.c: dtype.def is the one list of element types, and the wire has the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "dtype.h"
#include "kops.h"
#include "kops.pb-c.h"
#include "options.h"

static void the_wire_has_the_types_of_the_list(void **state)
{
	const ProtobufCEnumDescriptor *wire = &kops__v1__dtype__descriptor;

	(void)state;
	assert_int_equal(wire->n_values, DTYPE_END); /* and the one for no type */
#define X(name, NAME, number, bytes, alignment, kind, accumulator)                                             \
	assert_int_equal(protobuf_c_enum_descriptor_get_value_by_name(wire, #NAME)->value, number);
#include "dtype.def"
#undef X
}

static void each_type_has_a_size_a_name_and_an_accumulator(void **state)
{
	(void)state;
	for (kops_dtype d = DTYPE_FIRST; d < DTYPE_END; d++) {
		kops_dtype sum = dtype_accumulator(d);
		assert_true(dtype_size(d) > 0 && dtype_size(d) % dtype_alignment(d) == 0);
		assert_int_equal(dtype_size(d), kops_dtype_size(d));
		assert_true(dtype_size(sum) >= dtype_size(d) && dtype_kind(sum) == dtype_kind(d));
		for (kops_dtype e = DTYPE_FIRST; e < d; e++)
			assert_string_not_equal(dtype_name(d), dtype_name(e));
	}
	assert_int_equal(dtype_accumulator(KOPS_BF16), KOPS_F32);
	assert_int_equal(dtype_accumulator(KOPS_F64), KOPS_F64);
}

static void what_is_no_type_has_no_size(void **state)
{
	static const kops_dtype none[] = {0, DTYPE_END, 64, -1};

	(void)state;
	for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
		assert_int_equal(dtype_size(none[i]), 0);
		assert_int_equal(kops_dtype_size(none[i]), 0);
		assert_string_equal(dtype_name(none[i]), "no dtype");
		assert_int_equal(dtype_accumulator(none[i]), none[i]);
	}
}

static void programs_take_the_types_of_the_list(void **state)
{
	(void)state;
	for (kops_dtype d = DTYPE_FIRST; d < DTYPE_END; d++) {
		assert_string_equal(options_dtype.words[d - DTYPE_FIRST], dtype_name(d));
		assert_non_null(strstr(options_dtype.takes, dtype_name(d)));
	}
	assert_null(options_dtype.words[DTYPE_END - DTYPE_FIRST]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(the_wire_has_the_types_of_the_list),
	    cmocka_unit_test(each_type_has_a_size_a_name_and_an_accumulator),
	    cmocka_unit_test(what_is_no_type_has_no_size),
	    cmocka_unit_test(programs_take_the_types_of_the_list),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
