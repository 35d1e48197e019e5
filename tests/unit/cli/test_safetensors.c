/* Tests the reader of .safetensors headers: what it finds, and the sentences for what is no good. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "files/safetensors.h"
#include "options.h"

enum { FILE_BYTES = 4096, TENSORS = 8 };

static struct safetensor found[TENSORS];
static unsigned n_found;
static char why[CLI_WHY_BYTES];

static int visit(const struct safetensor *t, void *user)
{
	const int *result = user;

	assert_true(n_found < TENSORS);
	found[n_found++] = *t;
	return result ? *result : 0;
}

/* Reads a file with this header and so many bytes of data. */
static int read_file(const char *header, size_t data, int *result)
{
	unsigned char file[FILE_BYTES] = {0};
	size_t n = strlen(header);

	assert_true(8 + n + data <= sizeof file);
	file[0] = (unsigned char)(n & 0xff);
	file[1] = (unsigned char)(n >> 8);
	memcpy(file + 8, header, n);
	n_found = 0;
	why[0] = '\0';
	return safetensors_read(file, 8 + n + data, visit, result, why);
}

static void tensors(void **state)
{
	static const char header[] =
	    " {\"__metadata__\": {\"a\": \"{}\\\"]\", \"b\": [1, {\"c\": null}]},\n"
	    "\"a.b\": {\"dtype\":\"BF16\", \"shape\":[2, 3], \"data_offsets\":[0, 12]},"
	    "\"c\\/d\": {\"data_offsets\":[12,44],\"new\":[{}],\"shape\":[4],\"dtype\":\"I64\"},"
	    "\"e\":{\"dtype\":\"F64\",\"shape\":[],\"data_offsets\":[44,52]},"
	    "\"f\":{\"dtype\":\"F32\",\"shape\":[7,0],\"data_offsets\":[52,52]},"
	    "\"g\":{\"dtype\":\"F4\",\"shape\":[6],\"data_offsets\":[52,55]}}   ";

	(void)state;
	assert_int_equal(read_file(header, 55, NULL), 0);
	assert_int_equal(n_found, 5);
	assert_string_equal(found[0].name, "a.b");
	assert_int_equal(found[0].dtype, KOPS_BF16);
	assert_int_equal(found[0].rank, 2);
	assert_int_equal(found[0].shape[0] * 10 + found[0].shape[1], 23);
	assert_int_equal(found[0].offset, 8 + strlen(header));
	assert_int_equal(found[0].bytes, 12);
	assert_string_equal(found[1].name, "c/d");
	assert_string_equal(found[1].type, "I64");
	assert_int_equal(found[1].dtype, 0);
	assert_int_equal(found[1].offset, 8 + strlen(header) + 12);
	assert_int_equal(found[2].rank, 0);
	assert_int_equal(found[2].bytes, 8);
	assert_int_equal(found[3].bytes, 0);
	assert_int_equal(found[4].bytes, 3);
	assert_int_equal(read_file("{}", 0, NULL), 0);
	assert_int_equal(n_found, 0);
	assert_int_equal(read_file("{\"__metadata__\":{}}", 3, NULL), 0);
}

static void a_visit_ends_it(void **state)
{
	int result = KOPS_E_QUOTA;

	(void)state;
	assert_int_equal(read_file("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
	                           "\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
	                           1, &result),
	                 KOPS_E_QUOTA);
	assert_int_equal(n_found, 1);
	assert_string_equal(why, "");
}

/* Members of one tensor "a", of a file with 4 bytes of data. */
static void check_refused(const char *members, const char *sentence)
{
	char header[FILE_BYTES / 2];

	snprintf(header, sizeof header, "{\"a\":{%s}}", members);
	assert_int_equal(read_file(header, 4, NULL), KOPS_E_INVALID);
	assert_int_equal(n_found, 0);
	if (!strstr(why, sentence))
		fail_msg("%s: %s", members, why);
}

#define TYPE  "\"dtype\":\"F32\","
#define PLACE "\"data_offsets\":[0,4]"

static void sizes_that_do_not_fit(void **state)
{
	(void)state;
	check_refused(TYPE "\"shape\":[1],\"data_offsets\":[0,5]", "lies beyond its end");
	check_refused(TYPE "\"shape\":[1],\"data_offsets\":[18446744073709551612,0]", "lies beyond its end");
	check_refused(TYPE "\"shape\":[1],\"data_offsets\":[4,0]", "lies beyond its end");
	check_refused(TYPE "\"shape\":[1],\"data_offsets\":[1,4]", "another size than its shape");
	check_refused(TYPE "\"shape\":[2]," PLACE, "another size than its shape");
	check_refused(TYPE "\"shape\":[0]," PLACE, "another size than its shape");
	check_refused(TYPE "\"shape\":[4294967296,4294967297]," PLACE, "exceeds any file");
	check_refused(TYPE "\"shape\":[18446744073709551616]," PLACE, "a number is too large");
	check_refused(TYPE "\"shape\":[-1]," PLACE, "a number is missing");
	check_refused(TYPE "\"shape\":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]," PLACE, "a list is too long");
	check_refused(TYPE "\"shape\":[1],\"data_offsets\":[0]", "lacks a number");
	check_refused(TYPE "\"shape\":[1],\"data_offsets\":[0,4,4]", "a list is too long");
	check_refused("\"dtype\":\"F4\",\"shape\":[9]," PLACE, "exceeds any file"); /* half a byte */
	check_refused("\"dtype\":\"F33\",\"shape\":[1]," PLACE, "the type F33, which is unknown");
}

static void damaged_headers(void **state)
{
	static const char *const headers[] = {"",
	                                      "[",
	                                      "{",
	                                      "{\"a\"",
	                                      "{\"a\"}",
	                                      "{\"a\":",
	                                      "{\"a\":1}",
	                                      "{\"a\":{}}",
	                                      "{\"a\":{\"dtype\"",
	                                      "{\"a",
	                                      "{\"a\\",
	                                      "{\"__metadata__\":",
	                                      "{\"__metadata__\":]}",
	                                      "{\"__metadata__\":{}",
	                                      "{} {}",
	                                      "{\"\x01\":{}}"};
	char deep[FILE_BYTES / 2] = "{\"__metadata__\":", name[FILE_BYTES / 2];

	(void)state;
	for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++) {
		assert_int_equal(read_file(headers[i], 0, NULL), KOPS_E_INVALID);
		assert_true(why[0] && strlen(why) < sizeof why - 1);
	}
	memset(deep + strlen(deep), '[', 1000);
	assert_int_equal(read_file(deep, 0, NULL), KOPS_E_INVALID);
	assert_non_null(strstr(why, "nested too deeply"));
	snprintf(name, sizeof name, "{\"%0300d\":{}}", 0);
	assert_int_equal(read_file(name, 0, NULL), KOPS_E_INVALID);
	assert_non_null(strstr(why, "a name of more than 255 characters"));
	check_refused(TYPE TYPE "\"shape\":[1]," PLACE, "a member twice");
	check_refused(TYPE PLACE, "lacks 'dtype', 'shape' or 'data_offsets'");
	check_refused(TYPE "\"shape\":[1]," PLACE ",", "a string is missing");
}

static void lengths_of_headers(void **state)
{
	unsigned char file[16] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, '{', '}'};

	(void)state;
	assert_int_equal(safetensors_read(file, sizeof file, visit, NULL, why), KOPS_E_INVALID);
	memset(file, 0, 8);
	file[0] = 9; /* one more than there are */
	assert_int_equal(safetensors_read(file, sizeof file, visit, NULL, why), KOPS_E_INVALID);
	for (size_t len = 0; len < 8; len++)
		assert_int_equal(safetensors_read(file, len, visit, NULL, why), KOPS_E_INVALID);
	file[0] = 2;
	assert_int_equal(safetensors_read(file, sizeof file, visit, NULL, why), 0);
	assert_true(safetensors_is_name("/a/m.safetensors"));
	assert_false(safetensors_is_name("safetensors"));
	assert_false(safetensors_is_name("m.safetensors.npy"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(tensors),
	    cmocka_unit_test(a_visit_ends_it),
	    cmocka_unit_test(sizes_that_do_not_fit),
	    cmocka_unit_test(damaged_headers),
	    cmocka_unit_test(lengths_of_headers),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
