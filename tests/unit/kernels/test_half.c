/*
 * Compares half.h with arithmetic on values: all 65536 f16 and bf16 numbers, those between them, and their
 * sums.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <math.h>

#include <cmocka.h>

#include "common/half.h"

/* Holds an element of any type. */
union element {
	uint16_t bits;
	double widest;
};

struct format {
	kops_dtype dtype;
	int fraction_bits, bias, exponent_max;
};
static const struct format formats[] = {{KOPS_F16, 10, 15, 31}, {KOPS_BF16, 7, 127, 255}};

/* Decodes the bits by the definition. */
static double value_of(const struct format *f, uint16_t bits)
{
	int exponent = (bits & 0x7fff) >> f->fraction_bits, fraction = bits & ((1 << f->fraction_bits) - 1);
	double sign = bits & 0x8000 ? -1 : 1;

	if (exponent == f->exponent_max)
		return fraction ? (double)NAN : sign * (double)INFINITY;
	if (exponent == 0)
		return sign * ldexp(fraction, 1 - f->bias - f->fraction_bits);
	return sign * ldexp(fraction + (1 << f->fraction_bits), exponent - f->bias - f->fraction_bits);
}

static uint16_t store(const struct format *f, double x)
{
	union element e = {0};

	half_store(&e, f->dtype, 0, x);
	return e.bits;
}

static uint16_t store_f32(const struct format *f, float x)
{
	return f->dtype == KOPS_F16 ? f32_to_f16(x) : f32_to_bf16(x);
}

static void every_number_survives(void **state)
{
	(void)state;
	for (size_t i = 0; i < 2; i++)
		for (unsigned bits = 0; bits < 65536; bits++) {
			uint16_t h = (uint16_t)bits;
			union element e = {.bits = h};
			double want = value_of(&formats[i], h), got = half_load(&e, formats[i].dtype, 0);
			if (isnan(want)) {
				assert_true(isnan(got));
				assert_true(isnan(value_of(&formats[i], store(&formats[i], got))));
				assert_true(isnan(value_of(&formats[i], store_f32(&formats[i], (float)got))));
				continue;
			}
			assert_true(got == want && signbit(got) == signbit(want));
			assert_int_equal(store(&formats[i], want), h);
			assert_int_equal(store_f32(&formats[i], (float)want), h);
		}
}

/*
 * Numbers halfway between neighbours go to the even one, and others to the nearer. Infinity stands for
 * 2^exponent_max.
 */
static void between_numbers_the_nearest_or_even_wins(void **state)
{
	(void)state;
	for (size_t i = 0; i < 2; i++) {
		const struct format *f = &formats[i];
		uint16_t infinity = (uint16_t)(f->exponent_max << f->fraction_bits);
		for (uint16_t low = 0; low < infinity; low++) {
			uint16_t high = (uint16_t)(low + 1), even = low & 1 ? high : low;
			double a = value_of(f, low);
			double b = high == infinity ? ldexp(1, f->exponent_max - f->bias) : value_of(f, high);
			double middle = (a + b) / 2, little = (b - a) * 0x1p-30;
			assert_int_equal(store(f, middle), even);
			assert_int_equal(store(f, middle - little), low);
			assert_int_equal(store(f, middle + little), high);
			assert_int_equal(store(f, -middle), even | 0x8000);
			assert_int_equal(store(f, -middle - little), high | 0x8000);
			assert_int_equal(store_f32(f, (float)middle), even);
			assert_int_equal(store_f32(f, nextafterf((float)middle, 0)), low);
			assert_int_equal(store_f32(f, nextafterf((float)middle, INFINITY)), high);
		}
	}
}

static void far_values_become_infinite_or_zero(void **state)
{
	(void)state;
	for (size_t i = 0; i < 2; i++) {
		uint16_t infinity = (uint16_t)(formats[i].exponent_max << formats[i].fraction_bits);
		assert_int_equal(store(&formats[i], 1e300), infinity);
		assert_int_equal(store(&formats[i], -1e300), infinity | 0x8000);
		assert_int_equal(store(&formats[i], 1e-300), 0);
		assert_int_equal(store(&formats[i], -1e-300), 0x8000);
		assert_int_equal(store(&formats[i], (double)INFINITY), infinity);
	}
}

/* Converts arrays of 1, 2, … 100 numbers, then one of all the others. */
static void arrays_are_converted_as_single_numbers(void **state)
{
	static uint16_t numbers[65536], back[65536];
	static float wide[65536 + 1];

	(void)state;
	for (unsigned bits = 0; bits < 65536; bits++)
		numbers[bits] = (uint16_t)bits;
	for (size_t i = 0; i < 2; i++)
		for (int64_t from = 0, n = 1; n > 0; from += n, n = n < 100 ? n + 1 : 65536 - from) {
			wide[n] = 77;
			half_widen(wide, numbers + from, formats[i].dtype, n);
			assert_true(wide[n] == 77);
			half_narrow(back, formats[i].dtype, wide, n);
			for (int64_t j = 0; j < n; j++) {
				double want = half_load(numbers, formats[i].dtype, from + j);
				if (isnan(want)) {
					assert_true(isnan(wide[j]));
					assert_true(isnan(half_load(back, formats[i].dtype, j)));
					continue;
				}
				double got = (double)wide[j];
				assert_true(got == want && signbit(got) == signbit(want));
				assert_int_equal(back[j], numbers[from + j]);
			}
		}
}

/*
 * Checks what add promises: the f32 sum rounded is the exact sum rounded once. (In float64 a sum of two is
 * exact, or the smaller number too small to matter.)
 */
static void sums_in_f32_round_as_exact_ones(void **state)
{
	uint64_t seed = 1;

	(void)state;
	for (size_t i = 0; i < 2; i++)
		for (unsigned n = 0; n < 3000000; n++) {
			seed = seed * 6364136223846793005u + 1442695040888963407u;
			uint16_t a = (uint16_t)(seed >> 48), b = (uint16_t)(seed >> 32);
			if (n % 2) /* exponents near each other */
				b = (uint16_t)((b & 0x87ff) | (a & 0x7800));
			union element ea = {.bits = a}, eb = {.bits = b};
			double x = half_load(&ea, formats[i].dtype, 0), y = half_load(&eb, formats[i].dtype, 0);
			uint16_t narrow = store_f32(&formats[i], (float)x + (float)y);
			uint16_t exact = store(&formats[i], x + y);
			if (isnan(x + y))
				assert_true(isnan(value_of(&formats[i], narrow)));
			else if (narrow != exact)
				fail_msg("%g + %g: %04x, not %04x", x, y, narrow, exact);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(every_number_survives),
	    cmocka_unit_test(between_numbers_the_nearest_or_even_wins),
	    cmocka_unit_test(far_values_become_infinite_or_zero),
	    cmocka_unit_test(arrays_are_converted_as_single_numbers),
	    cmocka_unit_test(sums_in_f32_round_as_exact_ones),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
