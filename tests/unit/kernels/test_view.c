/* Compares view.c with arithmetic in 128 bits (extents) and with counting bytes (overlap, injectivity). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernel.h"
#include "seed.h"

#ifdef KOPS_SANITIZE
#define RANDOM_VIEWS 1000000
#define SMALL_VIEWS  100000
#else
#define RANDOM_VIEWS 10000000
#define SMALL_VIEWS  1000000
#endif

typedef __int128 wide;

static uint64_t state;

static uint64_t next_random(void)
{
	uint64_t z = state += 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

static uint64_t below(uint64_t n)
{
	return next_random() % n;
}

/* Returns a number of which any magnitude is equally likely; often next to a power of two. */
static uint64_t any_size(void)
{
	uint64_t x = next_random() >> below(64);

	return below(4) ? x : ((uint64_t)1 << below(64)) + below(3) - 1;
}

static struct view any_view(void)
{
	struct view v = {.dtype = (kops_dtype)(DTYPE_FIRST + below(DTYPE_END - DTYPE_FIRST)),
	                 .rank = 1 + (uint32_t)below(4)};

	v.offset = any_size();
	if (below(8))
		v.offset &= ~(uint64_t)7;
	for (uint32_t d = 0; d < v.rank; d++) {
		v.shape[d] = below(3) ? below(2000) : any_size();
		v.strides[d] = (int64_t)(below(3) ? below(5000) : any_size());
		if (below(4) == 0)
			v.strides[d] = (int64_t) - (uint64_t)v.strides[d];
	}
	return v;
}

struct extent {
	int rc;
	uint64_t lo, hi;
};

/* Products of up to four 64-bit extents do not fit 128 bits, so this stops at 2^63. */
static bool count_fits(const struct view *v, bool *ret_empty)
{
	wide count = 1;
	bool fits = true;

	*ret_empty = false;
	for (uint32_t d = 0; d < v->rank; d++)
		*ret_empty = *ret_empty || v->shape[d] == 0;
	for (uint32_t d = 0; d < v->rank && fits; d++) {
		count *= (wide)v->shape[d];
		fits = count <= INT64_MAX;
	}
	return fits || *ret_empty;
}

static struct extent oracle(const struct view *v, uint64_t space_bytes)
{
	wide lo = (wide)v->offset, hi = lo, size = (wide)dtype_size(v->dtype);
	bool empty;

	if (v->offset % dtype_size(v->dtype) != 0)
		return (struct extent){.rc = KOPS_E_INVALID};
	if (!count_fits(v, &empty) || v->offset > space_bytes)
		return (struct extent){.rc = KOPS_E_RANGE};
	if (empty)
		return (struct extent){0, v->offset, v->offset};
	for (uint32_t d = 0; d < v->rank; d++) {
		/* Extents and strides are below 2^63, so the product times eight just fits 128 bits. */
		wide span = (wide)(v->shape[d] - 1) * (wide)v->strides[d];
		if (span > ((wide)1 << 100) || span < -((wide)1 << 100))
			return (struct extent){.rc = KOPS_E_RANGE};
		*(span < 0 ? &lo : &hi) += span * size;
	}
	hi += size;
	if (lo < 0 || hi > (wide)space_bytes)
		return (struct extent){.rc = KOPS_E_RANGE};
	return (struct extent){0, (uint64_t)lo, (uint64_t)hi};
}

static void print_view(const char *name, const struct view *v)
{
	print_error("%s: %s offset %llu", name, dtype_name(v->dtype), (unsigned long long)v->offset);
	for (uint32_t d = 0; d < v->rank; d++)
		print_error(" %llu:%lld", (unsigned long long)v->shape[d], (long long)v->strides[d]);
	print_error("\n");
}

/* The space ends at the view's end, or one byte before, as often as anywhere. */
static uint64_t any_space(const struct view *v)
{
	struct extent whole = oracle(v, UINT64_MAX);

	if (whole.rc == 0 && below(2))
		return whole.hi - (whole.hi > 0 ? below(2) : 0);
	return below(4) ? any_size() : UINT64_MAX;
}

static void extents_agree_with_wide_arithmetic(void **test_state)
{
	unsigned accepted = 0;

	(void)test_state;
	for (unsigned i = 0; i < RANDOM_VIEWS; i++) {
		struct view v = any_view();
		uint64_t space = any_space(&v);
		struct extent want = oracle(&v, space), got = {.lo = 1, .hi = 1};
		if (want.rc < 0)
			want.lo = want.hi = 1; /* outputs must stay as they were */
		got.rc = view_extent(&v, space, &got.lo, &got.hi);
		accepted += got.rc == 0;
		if (got.rc == want.rc && got.lo == want.lo && got.hi == want.hi)
			continue;
		print_view("view", &v);
		fail_msg("in %llu bytes: %d [%llu, %llu), should be %d [%llu, %llu)", (unsigned long long)space,
		         got.rc, (unsigned long long)got.lo, (unsigned long long)got.hi, want.rc,
		         (unsigned long long)want.lo, (unsigned long long)want.hi);
	}
	print_message("%u views, %u of them accepted\n", (unsigned)RANDOM_VIEWS, accepted);
	assert_true(accepted > RANDOM_VIEWS / 20);
	assert_true(accepted < RANDOM_VIEWS / 20 * 19);
}

/* ---- Counting bytes ---- */

#define SPACE_BYTES 2048

static struct view small_view(const void *space)
{
	struct view v = {.space = space,
	                 .dtype = (kops_dtype)(DTYPE_FIRST + below(DTYPE_END - DTYPE_FIRST)),
	                 .rank = 1 + (uint32_t)below(4)};
	uint64_t lo, hi, pitch = 8 + below(24);

	do {
		v.offset = below(SPACE_BYTES / 8) * 8;
		for (uint32_t d = 0; d < v.rank; d++) {
			v.shape[d] = below(12) ? 1 + below(5) : 0;
			v.strides[d] = (int64_t)(below(2) ? below(9) : pitch * (1 + below(3)));
			v.strides[d] *= below(5) ? 1 : -1;
		}
	} while (view_extent(&v, SPACE_BYTES, &lo, &hi) < 0);
	return v;
}

/* Marks the view's bytes. Returns true if one was marked before. */
static bool mark(const struct view *v, unsigned char marks[SPACE_BYTES])
{
	uint64_t index[KOPS_RANK_MAX] = {0}, n = view_elements(v), size = dtype_size(v->dtype);
	bool again = false;

	for (uint64_t i = 0; i < n; i++) {
		int64_t at = (int64_t)v->offset;
		for (uint32_t d = 0; d < v->rank; d++)
			at += (int64_t)index[d] * v->strides[d] * (int64_t)size;
		again = again || marks[at];
		memset(marks + at, 1, size);
		for (uint32_t d = v->rank; d-- > 0 && ++index[d] == v->shape[d];)
			index[d] = 0;
	}
	return again;
}

static void overlap_is_never_missed(void **test_state)
{
	unsigned char marks[SPACE_BYTES];
	unsigned overlapping = 0, apart = 0, careful = 0;

	(void)test_state;
	for (unsigned i = 0; i < SMALL_VIEWS; i++) {
		struct view a = small_view(marks), b = small_view(marks);
		memset(marks, 0, sizeof marks);
		mark(&a, marks);
		/* Counts only bytes of a. Two elements of b may share a byte. */
		unsigned char of_b[SPACE_BYTES] = {0};
		mark(&b, of_b);
		bool meet = false;
		for (unsigned at = 0; at < SPACE_BYTES && !meet; at++)
			meet = marks[at] & of_b[at];
		bool said = view_overlap(&a, &b);
		if ((meet && !said) || said != view_overlap(&b, &a)) {
			print_view("a", &a);
			print_view("b", &b);
			fail_msg("they %s; view_overlap() says %d, and %d of (b, a)",
			         meet ? "overlap" : "do not overlap", said, view_overlap(&b, &a));
		}
		overlapping += meet;
		apart += !meet;
		careful += said && !meet;
	}
	print_message("%u pairs overlap; %u do not, %u of which view_overlap() would not tell apart\n",
	              overlapping, apart, careful);
	assert_true(overlapping > SMALL_VIEWS / 30);
	assert_true(careful < apart / 10);
}

static void injective_is_never_wrong(void **test_state)
{
	unsigned char marks[SPACE_BYTES];
	unsigned injective = 0, careful = 0;

	(void)test_state;
	for (unsigned i = 0; i < SMALL_VIEWS; i++) {
		struct view v = small_view(marks);
		memset(marks, 0, sizeof marks);
		bool twice = mark(&v, marks), said = view_is_injective(&v);
		if (said && twice) {
			print_view("view", &v);
			fail_msg("has two elements at one address");
		}
		injective += !twice;
		careful += !said && !twice;
	}
	print_message("%u views are injective, %u of which view_is_injective() does not trust\n", injective,
	              careful);
	assert_true(injective > SMALL_VIEWS / 20);
	assert_true(careful < injective / 4);
}

/* ---- Values that matter ---- */

static struct view matrix(const void *space, uint64_t offset, uint64_t rows, uint64_t cols, int64_t ld)
{
	return (struct view){.space = space,
	                     .offset = offset,
	                     .dtype = KOPS_F32,
	                     .rank = 2,
	                     .shape = {rows, cols},
	                     .strides = {ld, 1}};
}

static void tiles_of_one_matrix_are_apart(void **test_state)
{
	struct view left = matrix(&state, 0, 100, 30, 64), right = matrix(&state, 30 * 4, 100, 34, 64);
	struct view wider = matrix(&state, 29 * 4, 100, 34, 64), row = matrix(&state, 0, 1, 64, 64);
	struct view elsewhere = left;

	(void)test_state;
	assert_false(view_overlap(&left, &right));
	assert_true(view_overlap(&left, &wider));
	assert_true(view_overlap(&left, &row));
	assert_false(
	    view_overlap(&right, &(struct view){.space = &state, .dtype = KOPS_F32, .rank = 1, .shape = {0}}));
	elsewhere.space = &left;
	assert_false(view_overlap(&left, &elsewhere));
	assert_true(view_same(&left, &left));
	assert_false(view_same(&left, &right));
}

static void even_and_odd_columns_are_apart(void **test_state)
{
	struct view even = {
	    .space = &state, .dtype = KOPS_F32, .rank = 3, .shape = {4, 8, 16}, .strides = {1024, 64, 2}};
	struct view odd = even;

	(void)test_state;
	odd.offset = 4;
	assert_false(view_overlap(&even, &odd));
	odd.strides[2] = 1;
	assert_true(view_overlap(&even, &odd));
}

static void dense_strides_are_row_major(void **test_state)
{
	struct view v = {.dtype = KOPS_BF16, .rank = 3, .shape = {3, 4, 5}};

	(void)test_state;
	view_make_dense(&v);
	assert_int_equal(v.strides[0], 20);
	assert_int_equal(v.strides[1], 5);
	assert_int_equal(v.strides[2], 1);
	assert_true(view_is_dense(&v));
	assert_int_equal(view_elements(&v), 60);
	v.strides[0] = 21;
	assert_false(view_is_dense(&v));
	v.shape[0] = 1;
	assert_true(view_is_dense(&v));
}

static void a_view_without_dtype_or_rank_is_invalid(void **test_state)
{
	struct view v = matrix(NULL, 0, 2, 2, 2);
	uint64_t lo, hi;

	(void)test_state;
	assert_int_equal(view_extent(&v, 16, &lo, &hi), 0);
	assert_int_equal(view_extent(&v, 15, &lo, &hi), KOPS_E_RANGE);
	v.dtype = (kops_dtype)DTYPE_END;
	assert_int_equal(view_extent(&v, 16, &lo, &hi), KOPS_E_INVALID);
	v.dtype = KOPS_F32;
	v.rank = 5;
	assert_int_equal(view_extent(&v, 16, &lo, &hi), KOPS_E_INVALID);
	v.rank = 0;
	assert_int_equal(view_extent(&v, 16, &lo, &hi), KOPS_E_INVALID);
}

/* Uses cache lines and pages. */
static void blocks_are_those_that_elements_lie_in(void **test_state)
{
	struct view v = {.dtype = KOPS_F32, .rank = 2, .shape = {100, 64}, .strides = {64, 1}};

	(void)test_state;
	assert_float_equal(view_blocks(&v, 64), 400, 0);
	assert_float_equal(view_blocks(&v, 4096), 6.25, 0);
	v.strides[0] = 1024; /* each row is on its own page */
	assert_float_equal(view_blocks(&v, 64), 400, 0);
	assert_float_equal(view_blocks(&v, 4096), 100, 1);
	v.strides[1] = -(1 << 20); /* the columns are even further apart */
	assert_float_equal(view_blocks(&v, 64), 6400, 0);
	assert_float_equal(view_blocks(&v, 4096), 6400, 64);
	v.strides[0] = 0; /* the rows are one */
	assert_float_equal(view_blocks(&v, 4096), 64, 0);
	v.strides[1] = 0;
	assert_float_equal(view_blocks(&v, 64), 1, 0);
	v.shape[0] = 0;
	assert_float_equal(view_blocks(&v, 64), 0, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(extents_agree_with_wide_arithmetic),
	    cmocka_unit_test(overlap_is_never_missed),
	    cmocka_unit_test(injective_is_never_wrong),
	    cmocka_unit_test(tiles_of_one_matrix_are_apart),
	    cmocka_unit_test(even_and_odd_columns_are_apart),
	    cmocka_unit_test(dense_strides_are_row_major),
	    cmocka_unit_test(blocks_are_those_that_elements_lie_in),
	    cmocka_unit_test(a_view_without_dtype_or_rank_is_invalid),
	};

	state = seed_of_run();
	print_message("seed: KOPS_TEST_SEED=%llu\n", (unsigned long long)state);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
