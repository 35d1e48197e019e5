/*
 * Tests files: .npy headers of every version, damaged ones, dtypes, shapes from sizes, and files put in place.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "cli.h"
#include "files/dims.h"
#include "files/element.h"
#include "files/npy.h"
#include "files/sink.h"
#include "files/source.h"
#include "random.h"
#include "seed.h"

/* ---- .npy headers ---- */

/* Makes a header padded as NumPy does; returns its length. */
static size_t make_header(unsigned char out[1024], int version, const char *dictionary)
{
	size_t prefix = version == 1 ? 10 : 12;
	size_t total = (prefix + strlen(dictionary) + 1 + 63) / 64 * 64;
	size_t length = total - prefix;

	memset(out, ' ', total);
	memcpy(out, NPY_MAGIC, 6);
	out[6] = (unsigned char)version;
	out[7] = 0;
	for (size_t i = 8; i < prefix; i++)
		out[i] = (unsigned char)(length >> 8 * (i - 8));
	memcpy(out + prefix, dictionary, strlen(dictionary));
	out[total - 1] = '\n';
	return total;
}

static int parse(const char *dictionary, struct npy_header *ret, char *why)
{
	unsigned char bytes[1024];
	size_t n = make_header(bytes, 1, dictionary);

	return npy_parse(bytes, n, ret, why);
}

static void every_version_is_read(void **state)
{
	unsigned char bytes[1024];
	char why[CLI_WHY_BYTES];

	(void)state;
	for (int version = 1; version <= 3; version++) {
		struct npy_header h;
		size_t n =
		    make_header(bytes, version, "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 5), }");
		assert_int_equal(npy_parse(bytes, n, &h, why), 0);
		assert_int_equal(h.dtype, KOPS_F32);
		assert_int_equal(h.rank, 2);
		assert_int_equal(h.shape[0], 3);
		assert_int_equal(h.shape[1], 5);
		assert_false(h.fortran);
		assert_int_equal(h.offset, n);
		assert_int_equal(h.bytes, 60);
	}
	size_t n = make_header(bytes, 4, "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 5), }");
	struct npy_header h;
	assert_int_equal(npy_parse(bytes, n, &h, why), KOPS_E_INVALID);
	assert_non_null(strstr(why, "version is 4"));
}

static void dtypes_order_and_ranks_are_read(void **state)
{
	static const struct {
		const char *dictionary;
		kops_dtype dtype;
		bool fortran;
		uint32_t rank;
		uint64_t bytes;
	} cases[] = {
	    {"{'descr': '<f8', 'fortran_order': True, 'shape': (2, 3), }", KOPS_F64, true, 2, 48},
	    {"{'descr': '<f2', 'fortran_order': False, 'shape': (7,), }", KOPS_F16, false, 1, 14},
	    {"{'descr': '<f4', 'fortran_order': False, 'shape': (), }", KOPS_F32, false, 1, 4},
	    {"{'descr': '>f4', 'fortran_order': False, 'shape': (5,), }", KOPS_F32, false, 1, 20},
	    {"{'descr': '<i4', 'fortran_order': False, 'shape': (5,), }", KOPS_I32, false, 1, 20},
	    {"{'descr': '>c8', 'fortran_order': False, 'shape': (5,), }", KOPS_C64, false, 1, 40},
	    {"{'descr': '<c16', 'fortran_order': True, 'shape': (5,2), }", KOPS_C128, true, 2, 160},
	    {"{'descr': '>f2', 'fortran_order': True, 'shape': (5,), }", KOPS_F16, true, 1, 10},
	    {"{\"shape\": (1,2,3,4), \"descr\": \"<f4\", \"fortran_order\": False}", KOPS_F32, false, 4, 96},
	    {"{'descr':'<f4','fortran_order':False,'shape':(2L, 3L)}", KOPS_F32, false, 2, 24},
	    {"{'descr': '<f4', 'fortran_order': False, 'shape': (0, 4000000000000), }", KOPS_F32, false, 2, 0},
	};
	char why[CLI_WHY_BYTES];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct npy_header h;
		assert_int_equal(parse(cases[i].dictionary, &h, why), 0);
		assert_int_equal(h.dtype, cases[i].dtype);
		assert_int_equal(h.fortran, cases[i].fortran);
		assert_int_equal(h.rank, cases[i].rank);
		assert_int_equal(h.bytes, cases[i].bytes);
		assert_false(h.is_untyped);
		assert_int_equal(h.is_swapped, strchr(cases[i].dictionary, '>') != NULL);
	}
}

/* NumPy saves arrays of ml_dtypes.bfloat16, and of bytes, like this. */
static void two_bytes_without_a_type_may_be_bf16(void **state)
{
	struct source source = {.path = "x.npy", .npy = true, .is_untyped = true};
	char why[CLI_WHY_BYTES];
	struct npy_header h;

	(void)state;
	assert_int_equal(parse("{'descr': '<V2', 'fortran_order': False, 'shape': (2, 3), }", &h, why), 0);
	assert_int_equal(h.dtype, KOPS_BF16);
	assert_true(h.is_untyped);
	assert_int_equal(h.bytes, 12);
	assert_int_equal(parse("{'descr': '|V2', 'fortran_order': False, 'shape': (2, 3), }", &h, why), 0);
	assert_true(h.is_untyped);
	assert_int_equal(source_check_typed(&source, KOPS_BF16, "", why), 0);
	assert_int_equal(source_check_typed(&source, 0, "--dtype bf16", why), KOPS_E_INVALID);
	assert_non_null(strstr(why, "say so: --dtype bf16"));
	assert_int_equal(source_check_typed(&source, KOPS_F16, "", why), KOPS_E_INVALID);
}

static void what_cannot_be_used_is_refused_with_its_reason(void **state)
{
	static const struct {
		const char *dictionary, *reason;
	} cases[] = {
	    {"{'descr': '<i8', 'fortran_order': False, 'shape': (2,), }",
	     "'<i8': integers, of which only i4 are read; save a.astype('f4'), which is exact up to 2^24"},
	    {"{'descr': '|b1', 'fortran_order': False, 'shape': (2,), }", "truth values; save a.astype('f4')"},
	    {"{'descr': '<c32', 'fortran_order': False, 'shape': (2,), }", "complex numbers of another size"},
	    {"{'descr': '|O', 'fortran_order': False, 'shape': (2,), }", "Python objects; make an array"},
	    {"{'descr': '<U7', 'fortran_order': False, 'shape': (2,), }", "text"},
	    {"{'descr': '<f16', 'fortran_order': False, 'shape': (2,), }", "a.astype('f8'), which rounds"},
	    {"{'descr': '|V1', 'fortran_order': False, 'shape': (2,), }", "bytes without a type"},
	    {"{'descr': '', 'fortran_order': False, 'shape': (2,), }",
	     "dtype is ''; f4, f8, f2, i4, c8 and c16 are read"},
	    {"{'descr': '|f4', 'fortran_order': False, 'shape': (2,), }", "'|f4'"},
	    {"{'descr': 'f4', 'fortran_order': False, 'shape': (2,), }", "'f4'"},
	    {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,), }", "record"},
	    {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,2,3,4,5), }", "more than 4 dimensions"},
	    {"{'descr': '<f4', 'fortran_order': False}", "lacks"},
	    {"{'descr': '<f4', 'descr': '<f4', 'shape': (2,), }", "twice"},
	    {"{'descr': '<f4', 'fortran_order': 0, 'shape': (2,), }", "neither True nor False"},
	    {"{'descr': '<f4', 'fortran_order': False, 'shape': (-2,), }", "'shape' lacks a number"},
	    {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }",
	     "'shape' lacks a number"},
	    {"{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296), }",
	     "exceeds the size of any file"},
	    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, }", "'shape' lacks a number"},
	    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'extra': 1}", "unknown key"},
	    {"[1, 2]", "does not start with '{'"},
	};
	char why[CLI_WHY_BYTES];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct npy_header h;
		assert_int_equal(parse(cases[i].dictionary, &h, why), KOPS_E_INVALID);
		if (strstr(why, cases[i].reason) == NULL)
			fail_msg("%s: \"%s\" does not say \"%s\"", cases[i].dictionary, why, cases[i].reason);
	}
}

static void every_truncation_is_refused(void **state)
{
	unsigned char bytes[1024];
	char why[CLI_WHY_BYTES];
	struct npy_header h;

	(void)state;
	for (int version = 1; version <= 3; version++) {
		size_t n =
		    make_header(bytes, version, "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 5), }");
		for (size_t len = 0; len < n; len++) {
			unsigned char *exact =
			    malloc(len ? len : 1); /* so that a read beyond the end is detected */
			memcpy(exact, bytes, len);
			assert_int_equal(npy_parse(exact, len, &h, why), KOPS_E_INVALID);
			free(exact);
		}
	}
	/* A length of 4 GiB must be refused. */
	memcpy(bytes, NPY_MAGIC "\x02\x00\xff\xff\xff\xff", 12);
	assert_int_equal(npy_parse(bytes, sizeof(bytes), &h, why), KOPS_E_INVALID);
	assert_non_null(strstr(why, "4294967295 bytes"));
}

/* Damaged headers are refused, or mean something consistent; nothing crashes. */
static void damage_never_crashes(void **state)
{
	static const char *const bits[] = {"'", "(",   ")",    "{",  "}", ",",
	                                   "9", "<f4", "True", "\\", "[", "shape"};
	uint64_t seed = seed_of_run();
	struct random random;
	unsigned accepted = 0;

	(void)state;
	print_message("seed: KOPS_TEST_SEED=%llu\n", (unsigned long long)seed);
	random_start(&random, seed);
	for (int round = 0; round < 200000; round++) {
		unsigned char bytes[1024];
		char why[CLI_WHY_BYTES];
		struct npy_header h = {.rank = 99};
		size_t n = make_header(bytes, 1 + (int)random_below(&random, 3),
		                       "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 5), }");
		for (uint64_t hits = 1 + random_below(&random, 4); hits > 0; hits--) {
			const char *bit = bits[random_below(&random, sizeof(bits) / sizeof(bits[0]))];
			size_t at = random_below(&random, n - 8);
			if (random_below(&random, 2))
				bytes[at] = (unsigned char)random_next(&random);
			else
				memcpy(bytes + at, bit, strlen(bit));
		}
		unsigned char *exact = malloc(n);
		memcpy(exact, bytes, n);
		int rc = npy_parse(exact, n, &h, why);
		free(exact);
		if (rc < 0) {
			assert_int_equal(h.rank, 99); /* untouched */
			continue;
		}
		accepted++;
		uint64_t count = kops_dtype_size(h.dtype);
		assert_in_range(h.rank, 1, KOPS_RANK_MAX);
		for (uint32_t d = 0; d < h.rank; d++)
			count *= h.shape[d];
		assert_int_equal(count, h.bytes);
		assert_in_range(h.offset, 10, n);
	}
	assert_true(accepted > 100);
}

static void what_is_written_is_read_back(void **state)
{
	static const uint64_t shape[4] = {1, 0, 18446744073709551, 7};
	char why[CLI_WHY_BYTES], header[256];
	struct npy_header h;

	(void)state;
	for (uint32_t rank = 1; rank <= 4; rank++) {
		size_t n = npy_format(KOPS_F64, rank, shape, header);
		assert_int_equal(n % 64, 0);
		assert_int_equal(header[n - 1], '\n');
		assert_int_equal(npy_parse((unsigned char *)header, n, &h, why), 0);
		assert_int_equal(h.dtype, KOPS_F64);
		assert_int_equal(h.rank, rank);
		assert_int_equal(h.offset, n);
		assert_memory_equal(h.shape, shape, rank * sizeof(shape[0]));
	}
	size_t n = npy_format(KOPS_BF16, 1, shape, header);
	assert_int_equal(npy_parse((unsigned char *)header, n, &h, why), 0);
	assert_true(h.is_untyped);
	assert_memory_equal(header + 10, "{'descr': '<V2',", 16); /* as ml_dtypes has it */
}

/* ---- elements ---- */

static void small_floats_convert_both_ways(void **state)
{
	static const kops_dtype dtypes[] = {KOPS_F16, KOPS_BF16};

	(void)state;
	for (int t = 0; t < 2; t++) {
		for (uint32_t bits = 0; bits < 65536; bits++) {
			uint16_t in = (uint16_t)bits, out;
			double value = element_get(dtypes[t], &in);
			element_put(dtypes[t], &out, value);
			if (isnan(value))
				assert_true(isnan(element_get(dtypes[t], &out)));
			else
				assert_int_equal(in, out);
		}
	}
}

static void small_floats_round_to_nearest_even(void **state)
{
	static const struct {
		double value;
		uint16_t f16;
	} cases[] = {{1, 0x3c00},       {1 + 0x1p-11, 0x3c00}, {1 + 0x3p-11, 0x3c02}, {65504, 0x7bff},
	             {65519.9, 0x7bff}, {65520, 0x7c00},       {-1e300, 0xfc00},      {0x1p-24, 0x0001},
	             {0x1p-25, 0x0000}, {0x1.1p-25, 0x0001},   {-0x1p-14, 0x8400},    {0x1.ff8p-15, 0x03ff},
	             {-0.0, 0x8000},    {0x1.ffcp-15, 0x0400}, {2.5, 0x4100}};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint16_t bits;
		element_put(KOPS_F16, &bits, cases[i].value);
		assert_int_equal(bits, cases[i].f16);
	}
}

static void strides_are_followed(void **state)
{
	float data[2][3][4];
	double row[4];

	(void)state;
	for (int i = 0; i < 24; i++)
		(&data[0][0][0])[i] = (float)i;
	/* [2, 4, 3]: the last two axes exchanged. */
	struct elements e = {(unsigned char *)data, KOPS_F32, 3, {2, 4, 3}, {12, 1, 4}};
	assert_int_equal(elements_rows(&e), 8);
	elements_row(&e, 5, 0, 3, row); /* [1][1][:] */
	assert_true(row[0] == 13 && row[1] == 17 && row[2] == 21);
	elements_row(&e, 5, 2, 1, row);
	assert_true(row[0] == 21);
}

/* ---- shapes from sizes ---- */

#define NONE     ((struct opt_count){false, 0})
#define GIVEN(n) ((struct opt_count){true, n})

/* An operand: A, B or C. */
struct dims_file {
	const char *path; /* NULL: no such file */
	bool raw;
	uint64_t bytes;      /* raw: size of the file */
	uint64_t rows, cols; /* not raw: already known */
};

static struct source source_like(const struct dims_file *f, size_t elem)
{
	return (struct source){.path = f->path,
	                       .fd = -1,
	                       .npy = !f->raw,
	                       .dtype = elem == 2   ? KOPS_F16
	                                : elem == 4 ? KOPS_F32
	                                            : KOPS_F64,
	                       .rank = 2,
	                       .shape = {f->rows, f->cols},
	                       .bytes = f->bytes};
}

static int product(const struct dims_file files[3], const struct opt_count given[DIMS_AXES], size_t elem,
                   uint64_t ret[DIMS_AXES], char *why)
{
	struct source a = source_like(&files[0], elem), b = source_like(&files[1], elem),
	              c = source_like(&files[2], elem);

	int rc = dims_product((struct source *const[]){&a, &b, c.path ? &c : NULL}, (const bool[3]){false},
	                      given, why);
	if (rc < 0)
		return rc;
	ret[DIMS_M] = a.shape[0];
	ret[DIMS_K] = a.shape[1];
	ret[DIMS_N] = b.shape[1];
	return 0;
}

static int matrix(const char *path, uint64_t bytes, size_t elem, struct opt_count rows, struct opt_count cols,
                  uint64_t *ret_rows, uint64_t *ret_cols, char *why)
{
	struct source s = source_like(&(struct dims_file){.path = path, .raw = true, .bytes = bytes}, elem);

	int rc = dims_matrix(&s, rows, cols, why);
	*ret_rows = s.shape[0];
	*ret_cols = s.shape[1];
	return rc;
}

static int repeated(const char *path, uint64_t bytes, size_t elem, uint64_t rows, uint64_t cols,
                    uint64_t *ret_rows, uint64_t *ret_cols, char *why)
{
	struct source s = source_like(&(struct dims_file){.path = path, .raw = true, .bytes = bytes}, elem);

	int rc = dims_repeated(&s, rows, cols, why);
	*ret_rows = s.shape[0];
	*ret_cols = s.shape[1];
	return rc;
}

static struct dims_file raw(const char *path, uint64_t bytes)
{
	return (struct dims_file){.path = path, .raw = true, .bytes = bytes};
}

static void one_extent_fixes_the_rest(void **state)
{
	const struct dims_file files[3] = {raw("a", 3 * 5 * 4), raw("b", 5 * 7 * 4), {0}};
	const struct opt_count given[3][DIMS_AXES] = {
	    {[DIMS_M] = GIVEN(3)}, {[DIMS_N] = GIVEN(7)}, {[DIMS_K] = GIVEN(5)}};
	char why[CLI_WHY_BYTES];

	(void)state;
	for (int i = 0; i < 3; i++) {
		uint64_t d[DIMS_AXES] = {0};
		assert_int_equal(product(files, given[i], 4, d, why), 0);
		assert_int_equal(d[DIMS_M], 3);
		assert_int_equal(d[DIMS_N], 7);
		assert_int_equal(d[DIMS_K], 5);
	}
}

static void square_files_need_no_extent(void **state)
{
	const struct dims_file files[3] = {raw("a", 81 * 8), raw("b", 81 * 8), {0}};
	const struct opt_count none[DIMS_AXES] = {NONE, NONE, NONE};
	uint64_t d[DIMS_AXES];
	char why[CLI_WHY_BYTES];

	(void)state;
	assert_int_equal(product(files, none, 8, d, why), 0);
	assert_true(d[DIMS_M] == 9 && d[DIMS_N] == 9 && d[DIMS_K] == 9);
}

static void known_shapes_fix_raw_ones(void **state)
{
	const struct dims_file files[3] = {
	    {.path = "a.npy", .rows = 3, .cols = 5}, raw("b", 5 * 7 * 4), raw("c", 3 * 7 * 4)};
	const struct opt_count none[DIMS_AXES] = {NONE, NONE, NONE};
	uint64_t d[DIMS_AXES];
	char why[CLI_WHY_BYTES];

	(void)state;
	assert_int_equal(product(files, none, 4, d, why), 0);
	assert_true(d[DIMS_M] == 3 && d[DIMS_N] == 7 && d[DIMS_K] == 5);
}

static void what_does_not_fit_names_the_bytes_there_and_needed(void **state)
{
	const struct {
		struct dims_file files[3];
		struct opt_count given[DIMS_AXES];
		const char *reason[2];
	} cases[] = {
	    {{raw("a", 60), raw("b", 140), {0}}, {NONE, NONE, NONE}, {"give one of -m, -n, -k", "140 bytes"}},
	    {{raw("a", 60), raw("b", 60), {0}}, {NONE, NONE, NONE}, {"give one of -m, -n, -k", "60 bytes"}},
	    {{raw("a", 61), raw("b", 140), {0}},
	     {NONE, NONE, NONE},
	     {"a has 61 bytes", "elements of 4 bytes need a multiple of 4"}},
	    {{raw("a", 60), raw("b", 140), {0}},
	     {[DIMS_M] = GIVEN(4)},
	     {"a as op(A) has 60 bytes; M = 4 (by -m) needs a multiple of 16", ""}},
	    {{raw("a", 60), raw("b", 136), {0}},
	     {[DIMS_M] = GIVEN(3)},
	     {"b as op(B) has 136 bytes; K = 5 (by a) needs a multiple of 20", ""}},
	    {{raw("a", 60), raw("b", 140), {0}},
	     {[DIMS_M] = GIVEN(3), [DIMS_N] = GIVEN(7), [DIMS_K] = GIVEN(6)},
	     {"a as op(A) has 60 bytes; M×K = 3×6 needs 72", ""}},
	    {{raw("a", 60), raw("b", 140), raw("c", 80)},
	     {[DIMS_M] = GIVEN(3)},
	     {"c as C has 80 bytes; M×N = 3×7 needs 84", ""}},
	    {{{.path = "a.npy", .rows = 3, .cols = 5}, {.path = "b.npy", .rows = 6, .cols = 7}, {0}},
	     {NONE, NONE, NONE},
	     {"b.npy as op(B) is 6×7, so K = 6", "K = 5 by a.npy as op(A)"}},
	    {{raw("a", 60), raw("b", 140), {0}},
	     {[DIMS_M] = GIVEN(1ull << 40), [DIMS_N] = GIVEN(1ull << 40), [DIMS_K] = GIVEN(1ull << 40)},
	     {"more than any file holds", "M×K = "}},
	};
	uint64_t d[DIMS_AXES] = {11, 12, 13};
	char why[CLI_WHY_BYTES];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(product(cases[i].files, cases[i].given, 4, d, why), KOPS_E_INVALID);
		for (int r = 0; r < 2; r++)
			if (strstr(why, cases[i].reason[r]) == NULL)
				fail_msg("case %zu: \"%s\" does not say \"%s\"", i, why, cases[i].reason[r]);
		assert_int_equal(d[0], 11);
	}
}

/* Any consistent sizes are solved from any one extent, and verified. */
static void random_shapes_are_found_again(void **state)
{
	uint64_t seed = seed_of_run();
	struct random random;
	char why[CLI_WHY_BYTES];

	(void)state;
	print_message("seed: KOPS_TEST_SEED=%llu\n", (unsigned long long)seed);
	random_start(&random, seed);
	for (int round = 0; round < 20000; round++) {
		uint64_t e[DIMS_AXES], d[DIMS_AXES];
		for (int axis = 0; axis < DIMS_AXES; axis++)
			e[axis] = 1 + random_below(&random, 5000);
		struct dims_file files[3] = {
		    raw("a", e[DIMS_M] * e[DIMS_K] * 2), raw("b", e[DIMS_K] * e[DIMS_N] * 2), {0}};
		if (random_below(&random, 2))
			files[2] = raw("c", e[DIMS_M] * e[DIMS_N] * 2);
		struct opt_count given[DIMS_AXES] = {NONE, NONE, NONE};
		uint64_t axis = random_below(&random, DIMS_AXES);
		given[axis] = GIVEN(e[axis]);
		assert_int_equal(product(files, given, 2, d, why), 0);
		assert_memory_equal(d, e, sizeof(d));
	}
}

static void one_raw_matrix_needs_one_extent(void **state)
{
	uint64_t r, c;
	char why[CLI_WHY_BYTES];

	(void)state;
	assert_int_equal(matrix("x", 60, 4, GIVEN(3), NONE, &r, &c, why), 0);
	assert_true(r == 3 && c == 5);
	assert_int_equal(matrix("x", 60, 4, NONE, GIVEN(5), &r, &c, why), 0);
	assert_true(r == 3 && c == 5);
	assert_int_equal(matrix("x", 64, 4, NONE, NONE, &r, &c, why), 0);
	assert_true(r == 4 && c == 4);
	assert_int_equal(matrix("x", 60, 4, NONE, NONE, &r, &c, why), KOPS_E_INVALID);
	assert_non_null(strstr(why, "give -m or -n"));
	assert_int_equal(matrix("x", 60, 4, GIVEN(4), NONE, &r, &c, why), KOPS_E_INVALID);
	assert_non_null(strstr(why, "x has 60 bytes; -m 4 needs a multiple of 16"));
	assert_int_equal(matrix("x", 60, 4, GIVEN(3), GIVEN(6), &r, &c, why), KOPS_E_INVALID);
	assert_non_null(strstr(why, "x has 60 bytes; 3×6 needs 72"));
	assert_int_equal(matrix("x", 60, 4, GIVEN(1ull << 62), GIVEN(6), &r, &c, why), KOPS_E_INVALID);
	assert_non_null(strstr(why, "x has 60 bytes; 4611686018427387904×6 is more than any file holds"));
	assert_int_equal(matrix("x", 0, 4, GIVEN(0), GIVEN(6), &r, &c, why), 0);
	assert_true(r == 0 && c == 6);
}

static void repeated_operands_are_told_by_size(void **state)
{
	uint64_t r, c;
	char why[CLI_WHY_BYTES];

	(void)state;
	assert_int_equal(repeated("b", 3 * 5 * 4, 4, 3, 5, &r, &c, why), 0);
	assert_true(r == 3 && c == 5);
	assert_int_equal(repeated("b", 5 * 4, 4, 3, 5, &r, &c, why), 0);
	assert_true(r == 1 && c == 5);
	assert_int_equal(repeated("b", 3 * 4, 4, 3, 5, &r, &c, why), 0);
	assert_true(r == 3 && c == 1);
	assert_int_equal(repeated("b", 4, 4, 3, 5, &r, &c, why), 0);
	assert_true(r == 1 && c == 1);
	assert_int_equal(repeated("b", 16, 4, 3, 5, &r, &c, why), KOPS_E_INVALID);
	assert_string_equal(
	    why, "b has 16 bytes; beside 3×5 it needs 60 (the whole), 20 (a row), 12 (a column) or 4 "
	         "(one element)");
}

/* ---- files ---- */

struct place {
	char dir[64], file[96];
};

static int set_up(void **state)
{
	struct place *p = calloc(1, sizeof(*p));

	strcpy(p->dir, "/tmp/kops-formats-XXXXXX");
	if (mkdtemp(p->dir) == NULL)
		return -1;
	snprintf(p->file, sizeof(p->file), "%s/out.npy", p->dir);
	*state = p;
	return 0;
}

static int tear_down(void **state)
{
	struct place *p = *state;
	char command[128];

	snprintf(command, sizeof(command), "rm -rf '%s'", p->dir);
	int rc = system(command);
	free(p);
	return rc;
}

static void put(const char *path, const void *bytes, size_t n)
{
	FILE *out = fopen(path, "w");

	assert_non_null(out);
	assert_int_equal(fwrite(bytes, 1, n, out), n);
	assert_int_equal(fclose(out), 0);
}

static unsigned entries(const char *dir)
{
	char command[128];
	unsigned n = 0;

	snprintf(command, sizeof(command), "ls -A '%s' | wc -l", dir);
	FILE *in = popen(command, "r");
	assert_int_equal(fscanf(in, "%u", &n), 1);
	pclose(in);
	return n;
}

static const float three[3] = {1, 2, 3};
static const struct elements three_elements = {(const unsigned char *)three, KOPS_F32, 1, {3}, {1}};

static void a_written_file_appears_whole(void **state)
{
	struct place *p = *state;
	char why[CLI_WHY_BYTES];
	struct source source;
	struct stat st;

	for (int round = 0; round < 2; round++) { /* a new file, then one over the old */
		struct sink *sink = sink_open(p->file, false, why);
		assert_non_null(sink);
		assert_int_equal(access(p->file, F_OK), round == 0 ? -1 : 0);
		assert_int_equal(sink_write(sink, &three_elements, why), 0);
		sink_close(sink);
		assert_int_equal(entries(p->dir), 1);
		assert_int_equal(source_open(p->file, &source, why), 0);
		assert_true(source.npy);
		assert_int_equal(source.shape[0], 3);
		assert_int_equal(source.bytes, 12);
		source_close(&source);
		if (round == 0)
			assert_int_equal(chmod(p->file, 04640), 0);
	}
	assert_int_equal(stat(p->file, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0640); /* kept, except for set-user-ID */
	assert_int_equal(st.st_size, 128 + 12);
}

static void a_file_not_written_leaves_the_old_one(void **state)
{
	struct place *p = *state;
	char why[CLI_WHY_BYTES], back[4] = "";

	put(p->file, "old", 3);
	struct sink *sink = sink_open(p->file, false, why);
	assert_non_null(sink);
	sink_close(sink);
	assert_int_equal(entries(p->dir), 1);
	int fd = open(p->file, O_RDONLY);
	assert_int_equal(read(fd, back, 4), 3);
	close(fd);
	assert_string_equal(back, "old");
}

static void a_symbolic_link_stays_one(void **state)
{
	struct place *p = *state;
	char why[CLI_WHY_BYTES], link[128];
	struct stat st;

	put(p->file, "old", 3);
	snprintf(link, sizeof(link), "%s/link.bin", p->dir);
	assert_int_equal(symlink("out.npy", link), 0);
	struct sink *sink = sink_open(link, false, why);
	assert_non_null(sink);
	assert_int_equal(sink_write(sink, &three_elements, why), 0);
	sink_close(sink);
	assert_int_equal(lstat(link, &st), 0);
	assert_true(S_ISLNK(st.st_mode));
	assert_int_equal(stat(p->file, &st), 0);
	assert_int_equal(st.st_size, 12); /* the link's name says raw */
}

static void wrong_places_are_named(void **state)
{
	struct place *p = *state;
	char why[CLI_WHY_BYTES], path[128];

	assert_null(sink_open(p->dir, false, why));
	assert_non_null(strstr(why, "Is a directory"));
	snprintf(path, sizeof(path), "%s/none/out.bin", p->dir);
	assert_null(sink_open(path, false, why));
	assert_non_null(strstr(why, path));
	assert_non_null(strstr(why, "No such file or directory"));
	struct sink *sink = sink_open("/dev/null", false, why);
	assert_non_null(sink);
	assert_int_equal(sink_write(sink, &three_elements, why), 0);
	sink_close(sink);
	assert_int_equal(entries(p->dir), 0);
}

static void sources_are_refused_with_their_reason(void **state)
{
	struct place *p = *state;
	char why[CLI_WHY_BYTES], header[256];
	uint64_t shape[1] = {3};
	struct source source = {.fd = 77};
	size_t n = npy_format(KOPS_F32, 1, shape, header);

	assert_int_equal(source_open(p->file, &source, why), KOPS_E_INVALID);
	assert_non_null(strstr(why, "No such file"));
	assert_int_equal(source_open(p->dir, &source, why), KOPS_E_INVALID);
	assert_non_null(strstr(why, "directory"));
	put(p->file, header, n);
	assert_int_equal(source_open(p->file, &source, why), KOPS_E_INVALID);
	assert_non_null(strstr(why, "cut short: it has 0 bytes of elements; its header needs 12"));
	put(p->file, "raw floats, really", 18);
	assert_int_equal(source_open(p->file, &source, why), KOPS_E_INVALID);
	assert_non_null(strstr(why, "such as .bin"));
	assert_int_equal(source.fd, 77); /* untouched */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(every_version_is_read),
	    cmocka_unit_test(dtypes_order_and_ranks_are_read),
	    cmocka_unit_test(two_bytes_without_a_type_may_be_bf16),
	    cmocka_unit_test(what_cannot_be_used_is_refused_with_its_reason),
	    cmocka_unit_test(every_truncation_is_refused),
	    cmocka_unit_test(damage_never_crashes),
	    cmocka_unit_test(what_is_written_is_read_back),
	    cmocka_unit_test(small_floats_convert_both_ways),
	    cmocka_unit_test(small_floats_round_to_nearest_even),
	    cmocka_unit_test(strides_are_followed),
	    cmocka_unit_test(one_extent_fixes_the_rest),
	    cmocka_unit_test(square_files_need_no_extent),
	    cmocka_unit_test(known_shapes_fix_raw_ones),
	    cmocka_unit_test(what_does_not_fit_names_the_bytes_there_and_needed),
	    cmocka_unit_test(random_shapes_are_found_again),
	    cmocka_unit_test(one_raw_matrix_needs_one_extent),
	    cmocka_unit_test(repeated_operands_are_told_by_size),
	    cmocka_unit_test_setup_teardown(a_written_file_appears_whole, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(a_file_not_written_leaves_the_old_one, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(a_symbolic_link_stays_one, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(wrong_places_are_named, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(sources_are_refused_with_their_reason, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
