/* --check: right results pass on every op and dtype, wrong ones are found and named. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli.h"
#include "elementwise/unary_function.h"
#include "op/operation.h"
#include "random.h"
#include "seed.h"

static struct random dice;

/* ---- the ops' checks on arrays of this process ---- */

/* y = activation(alpha * a * b + beta * old + bias). */
struct product {
	const struct elements *a, *b, *old, *y;
	double alpha, beta;
	kops_precision precision;
	struct elements bias;   /* rank 0: absent */
	const char *activation; /* NULL: none */
};

/* Gives a step an attribute, as the option of that name does. */
static void set(struct step *step, const char *name, const char *text)
{
	struct flags flags = {.op = step->set};
	char why[CLI_WHY_BYTES];

	assert_int_equal(options_set(options_find(step->op->settings, name), name, text, &flags, why), 0);
	step->set = flags.op;
}

static void set_number(struct step *step, const char *name, double value)
{
	char text[32];

	snprintf(text, sizeof(text), "%.17g", value);
	set(step, name, text);
}

static int check_gemm(const struct product *p, struct check *ret_check)
{
	struct step step = step_of(operation_by_name("gemm"));

	set_number(&step, "alpha", p->alpha);
	set_number(&step, "beta", p->beta);
	step_set_precision(&step, p->precision);
	step.accumulates = p->old != NULL;
	step.old = p->old;
	if (p->activation)
		set(&step, "activation", p->activation);
	return step_check_elements(&step, (struct elements[]){*p->a, *p->b, p->bias}, p->y, ret_check);
}

static int check_softmax(const struct elements *x, const struct elements *y, double scale, bool log,
                         struct check *ret_check)
{
	struct step step = step_of(operation_by_name("softmax"));
	set_number(&step, "scale", scale);
	set(&step, "log", log ? "yes" : "no");
	return step_check_elements(&step, (struct elements[]){*x, {.rank = 0}}, y, ret_check);
}

static int check_reduce(const struct elements *x, const struct elements *y, kops_reduction kind,
                        struct check *ret_check)
{
	static const char *const kinds[] = {[KOPS_SUM] = "sum", [KOPS_MAX] = "max", [KOPS_MEAN] = "mean"};
	struct step step = step_of(operation_by_name("reduce"));

	set(&step, "kind", kinds[kind]);
	return step_check_elements(&step, x, y, ret_check);
}

static int check_plain(const char *op, const struct elements *a, const struct elements *b,
                       const struct elements *y, struct check *ret_check)
{
	struct step step = step_of(operation_by_name(op));

	return step_check_elements(&step, (struct elements[]){*a, *b}, y, ret_check);
}

/* ---- arrays ---- */

static struct elements dense(kops_dtype dtype, uint32_t rank, uint64_t e0, uint64_t e1, uint64_t e2)
{
	struct elements e = {.dtype = dtype, .rank = rank, .shape = {e0, e1, e2}};
	uint64_t count = elements_count(&e);
	unsigned char *data = malloc(count * 8 + 8);

	for (uint64_t i = 0; i < count; i++)
		element_put(dtype, data + i * kops_dtype_size(dtype), random_unit(&dice));
	return elements_dense(data, &e);
}

static void release(struct elements *e)
{
	free((void *)(uintptr_t)e->data);
}

static void *at(const struct elements *e, uint64_t index)
{
	return (unsigned char *)(uintptr_t)e->data + index * kops_dtype_size(e->dtype);
}

static double get(const struct elements *e, int64_t index)
{
	return element_get(e->dtype, e->data + index * (int64_t)kops_dtype_size(e->dtype));
}

/* Multiplies matrices with any strides naively in f32 (f64 for f64) into dense y. */
static void multiply(const struct elements *a, const struct elements *b, const struct elements *y, double alpha,
                     const struct elements *old, double beta)
{
	uint64_t m = y->shape[0], n = y->shape[1], depth = a->shape[1];

	for (uint64_t i = 0; i < m; i++) {
		for (uint64_t j = 0; j < n; j++) {
			double sum = 0;
			float sum32 = 0;
			for (uint64_t k = 0; k < depth; k++) {
				double x = get(a, (int64_t)i * a->strides[0] + (int64_t)k * a->strides[1]);
				double z = get(b, (int64_t)k * b->strides[0] + (int64_t)j * b->strides[1]);
				sum += x * z;
				sum32 += (float)x * (float)z;
			}
			double value = alpha * (y->dtype == KOPS_F64 ? sum : (double)sum32);
			if (beta != 0)
				value += beta *
				         get(old, (int64_t)i * old->strides[0] + (int64_t)j * old->strides[1]);
			element_put(y->dtype, at(y, i * n + j), value);
		}
	}
}

static void products_of_every_dtype_pass_and_damage_is_found(void **state)
{
	static const kops_dtype dtypes[] = {KOPS_F32, KOPS_F64, KOPS_F16, KOPS_BF16};
	static const uint64_t sizes[][3] = {{1, 1, 1}, {37, 41, 53}, {64, 64, 64}, {70, 3, 200}, {5, 1100, 33}};

	(void)state;
	for (size_t t = 0; t < 4; t++) {
		for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
			uint64_t m = sizes[s][0], n = sizes[s][1], k = sizes[s][2];
			struct elements a = dense(dtypes[t], 2, k, m, 0), b = dense(dtypes[t], 2, k, n, 0);
			struct elements old = dense(dtypes[t], 2, m, n, 0), y = dense(dtypes[t], 2, m, n, 0);
			struct elements at_ = a; /* transposed: m × k */
			at_.shape[0] = m, at_.shape[1] = k, at_.strides[0] = 1, at_.strides[1] = (int64_t)m;
			struct product p = {.a = &at_, .b = &b, .y = &y, .alpha = 0.5};
			struct check check;

			multiply(&at_, &b, &y, 0.5, NULL, 0);
			assert_int_equal(check_gemm(&p, &check), 0);
			assert_true(check_passed(&check));
			assert_int_equal(check.compared, m * n);

			p.old = &old;
			p.beta = -2;
			multiply(&at_, &b, &y, 0.5, &old, -2);
			assert_int_equal(check_gemm(&p, &check), 0);
			assert_true(check_passed(&check));

			uint64_t hit = random_below(&dice, m * n);
			element_put(y.dtype, at(&y, hit), get(&y, (int64_t)hit) + 0.5);
			assert_int_equal(check_gemm(&p, &check), 0);
			assert_int_equal(check.wrong, 1);
			assert_int_equal(check.row * n + check.column, hit);
			release(&a), release(&b), release(&old), release(&y);
		}
	}
}

/* As kernels do: the product is rounded, then the sum, then the result. */
static void finish(const struct elements *y, const struct elements *bias, enum unary_function activation)
{
	for (uint64_t row = 0; row < y->shape[0]; row++)
		for (uint64_t column = 0; column < y->shape[1]; column++) {
			uint64_t i = row * y->shape[1] + column;
			uint64_t of_row = bias->rank > 1 && bias->shape[0] > 1 ? row * bias->shape[1] : 0;
			double sum = get(y, (int64_t)i) +
			             get(bias, (int64_t)(of_row + column % bias->shape[bias->rank - 1]));
			element_put(y->dtype, at(y, i), unary_of(activation, sum));
		}
}

/* bias: rows and columns. */
static void check_activations(kops_dtype dtype, uint32_t rank, uint64_t rows, uint64_t columns)
{
	static const char *const names[] = {"none", "relu", "gelu", "gelu_tanh", "silu"};
	struct elements a = dense(dtype, 2, 37, 53, 0), b = dense(dtype, 2, 53, 41, 0),
	                y = dense(dtype, 2, 37, 41, 0);
	struct product p = {.a = &a, .b = &b, .y = &y, .alpha = 0.5};
	struct check check;

	p.bias = rank == 1 ? dense(dtype, 1, columns, 0, 0) : dense(dtype, 2, rows, columns, 0);
	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		multiply(&a, &b, &y, 0.5, NULL, 0);
		finish(&y, &p.bias, (enum unary_function)i);
		p.activation = names[i];
		assert_int_equal(check_gemm(&p, &check), 0);
		assert_true(check_passed(&check));
		uint64_t hit = random_below(&dice, 37 * 41);
		element_put(dtype, at(&y, hit), get(&y, (int64_t)hit) + 0.5);
		assert_int_equal(check_gemm(&p, &check), 0);
		assert_int_equal(check.wrong, 1);
		assert_int_equal(check.row * 41 + check.column, hit);
		p.activation = names[i == 2 ? 3 : 2]; /* the nearest: gelu_tanh is off by 0.0005 at most */
		assert_int_equal(check_gemm(&p, &check), 0);
		assert_true(check.wrong > 1 || (kops_dtype_size(dtype) == 2 && i >= 2));
	}
	release(&a), release(&b), release(&y), release(&p.bias);
}

static void bias_and_activation_are_part_of_the_result(void **state)
{
	static const kops_dtype dtypes[] = {KOPS_F32, KOPS_F64, KOPS_F16, KOPS_BF16};

	(void)state;
	for (size_t t = 0; t < 4; t++) {
		check_activations(dtypes[t], 1, 1, 41);
		check_activations(dtypes[t], 1, 1, 1);
		check_activations(dtypes[t], 2, 37, 41);
		check_activations(dtypes[t], 2, 37, 1);
		check_activations(dtypes[t], 2, 1, 41);
	}
}

static void a_bias_is_repeated_for_each_batch(void **state)
{
	struct elements a = dense(KOPS_F32, 3, 2, 4, 5), b = dense(KOPS_F32, 2, 5, 6, 0),
	                y = dense(KOPS_F32, 3, 2, 4, 6);
	struct product p = {.a = &a, .b = &b, .y = &y, .alpha = 1, .bias = dense(KOPS_F32, 3, 2, 1, 6)};
	struct check check;

	(void)state;
	for (uint64_t batch = 0; batch < 2; batch++) {
		struct elements one_a = {at(&a, batch * 20), KOPS_F32, 2, {4, 5}, {5, 1}};
		struct elements one_y = {at(&y, batch * 24), KOPS_F32, 2, {4, 6}, {6, 1}};
		struct elements one_bias = {at(&p.bias, batch * 6), KOPS_F32, 1, {6}, {1}};
		multiply(&one_a, &b, &one_y, 1, NULL, 0);
		finish(&one_y, &one_bias, UNARY_NONE);
	}
	assert_int_equal(check_gemm(&p, &check), 0);
	assert_true(check_passed(&check));
	element_put(KOPS_F32, at(&p.bias, 6), 99);
	assert_int_equal(check_gemm(&p, &check), 0);
	assert_int_equal(check.wrong, 4);
	release(&a), release(&b), release(&y), release(&p.bias);
}

static float to_tf32(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, 4);
	bits &= 0xffffe000u;
	memcpy(&value, &bits, 4);
	return value;
}

/* A kernel that quietly rounds its input to tf32 is not f32. */
static void a_lower_precision_is_found(void **state)
{
	enum { N = 256 };
	struct elements a = dense(KOPS_F32, 2, N, N, 0), b = dense(KOPS_F32, 2, N, N, 0),
	                y = dense(KOPS_F32, 2, N, N, 0);
	struct elements coarse_a = dense(KOPS_F32, 2, N, N, 0), coarse_b = dense(KOPS_F32, 2, N, N, 0);
	struct product p = {.a = &a, .b = &b, .y = &y, .alpha = 1};
	struct check check;

	(void)state;
	for (uint64_t i = 0; i < N * N; i++) {
		element_put(KOPS_F32, at(&coarse_a, i), (double)to_tf32((float)get(&a, (int64_t)i)));
		element_put(KOPS_F32, at(&coarse_b, i), (double)to_tf32((float)get(&b, (int64_t)i)));
	}
	multiply(&coarse_a, &coarse_b, &y, 1, NULL, 0);
	assert_int_equal(check_gemm(&p, &check), 0);
	assert_false(check_passed(&check));
	p.precision = KOPS_PRECISION_TF32;
	assert_int_equal(check_gemm(&p, &check), 0);
	assert_true(check_passed(&check));
	release(&a), release(&b), release(&y), release(&coarse_a), release(&coarse_b);
}

static void batches_share_a_single_operand(void **state)
{
	struct elements a = dense(KOPS_F32, 3, 3, 4, 5), b = dense(KOPS_F32, 2, 5, 6, 0),
	                y = dense(KOPS_F32, 3, 3, 4, 6);
	struct product p = {.a = &a, .b = &b, .y = &y, .alpha = 1};
	struct check check;

	(void)state;
	for (uint64_t batch = 0; batch < 3; batch++) {
		struct elements one_a = {at(&a, batch * 20), KOPS_F32, 2, {4, 5}, {5, 1}};
		struct elements one_y = {at(&y, batch * 24), KOPS_F32, 2, {4, 6}, {6, 1}};
		multiply(&one_a, &b, &one_y, 1, NULL, 0);
	}
	assert_int_equal(check_gemm(&p, &check), 0);
	assert_true(check_passed(&check));
	assert_int_equal(check.compared, 72);
	element_put(KOPS_F32, at(&y, 71), 99);
	assert_int_equal(check_gemm(&p, &check), 0);
	assert_int_equal(check.wrong, 1);
	assert_int_equal(check.row, 11);
	assert_int_equal(check.column, 5);
	release(&a), release(&b), release(&y);
}

static void special_values_must_be_in_their_place(void **state)
{
	float a[4] = {1, (float)INFINITY, 3e38f, 1}, b[4] = {1, 0, 1, 0}, y[4];
	struct elements ea = {(unsigned char *)a, KOPS_F32, 2, {2, 2}, {2, 1}};
	struct elements eb = {(unsigned char *)b, KOPS_F32, 2, {2, 2}, {2, 1}};
	struct elements ey = {(unsigned char *)y, KOPS_F32, 2, {2, 2}, {2, 1}};
	struct product p = {.a = &ea, .b = &eb, .y = &ey, .alpha = 2};
	struct check check;

	(void)state;
	y[0] = (float)INFINITY, y[1] = (float)NAN;
	y[2] = (float)INFINITY, y[3] = 0; /* 6e38 overflows */
	assert_int_equal(check_gemm(&p, &check), 0);
	assert_true(check_passed(&check));
	y[0] = 7;
	assert_int_equal(check_gemm(&p, &check), 0);
	assert_int_equal(check.wrong, 1);
	y[0] = (float)NAN;
	assert_int_equal(check_gemm(&p, &check), 0);
	assert_int_equal(check.wrong, 1);
}

static void check_softmax_of(kops_dtype dtype)
{
	struct elements x = dense(dtype, 2, 9, 300, 0), y = dense(dtype, 2, 9, 300, 0);
	double wrong_scale = dtype == KOPS_F32 ? 4.001 : 4.2;
	struct check check;

	for (int log_too = 0; log_too < 2; log_too++) {
		for (uint64_t r = 0; r < 9; r++) {
			float sum = 0;
			for (int64_t j = 0; j < 300; j++)
				sum += expf(4 * (float)get(&x, (int64_t)r * 300 + j) - 4);
			for (int64_t j = 0; j < 300; j++) {
				float e = 4 * (float)get(&x, (int64_t)r * 300 + j) - 4;
				element_put(dtype, at(&y, r * 300 + (uint64_t)j),
				            (double)(log_too ? e - logf(sum) : expf(e) / sum));
			}
		}
		assert_int_equal(check_softmax(&x, &y, 4, log_too, &check), 0);
		assert_true(check_passed(&check));
		assert_int_equal(check_softmax(&x, &y, wrong_scale, log_too, &check), 0);
		assert_false(check_passed(&check));
	}
	release(&x), release(&y);
}

static void softmax_passes_and_damage_is_found(void **state)
{
	(void)state;
	check_softmax_of(KOPS_F32);
	check_softmax_of(KOPS_F16);
	check_softmax_of(KOPS_BF16);
}

/* Changes an element to the next number in the direction of Inf. */
static void nudge(const struct elements *e, uint64_t index)
{
	unsigned char *bytes = at(e, index);

	bytes[0]++;
	if (bytes[0] == 0)
		bytes[1]++;
}

/* A sum of 16-bit types is rounded once, so the next number exceeds its bound. */
static void small_sums_are_rounded_once(void **state)
{
	static const kops_dtype dtypes[] = {KOPS_F16, KOPS_BF16};

	(void)state;
	for (size_t t = 0; t < 2; t++) {
		struct elements a = dense(dtypes[t], 2, 50, 60, 0), b = dense(dtypes[t], 2, 50, 60, 0),
		                y = dense(dtypes[t], 2, 50, 60, 0);
		uint64_t hit = random_below(&dice, 3000);
		struct check check;

		element_put(dtypes[t], at(&a, hit), 1.5), element_put(dtypes[t], at(&b, hit), 0.25);
		for (uint64_t i = 0; i < 3000; i++)
			element_put(dtypes[t], at(&y, i), get(&a, (int64_t)i) + get(&b, (int64_t)i));
		assert_int_equal(check_plain("add", &a, &b, &y, &check), 0);
		assert_true(check_passed(&check));
		nudge(&y, hit);
		assert_int_equal(check_plain("add", &a, &b, &y, &check), 0);
		assert_int_equal(check.wrong, 1);
		assert_int_equal(check.row * 60 + check.column, hit);
		release(&a), release(&b), release(&y);
	}
}

static void sums_and_moves_are_compared_by_broadcast(void **state)
{
	struct elements a = dense(KOPS_F32, 2, 4, 6, 0), row = dense(KOPS_F32, 1, 6, 0, 0),
	                y = dense(KOPS_F32, 2, 4, 6, 0);
	struct elements turned = dense(KOPS_F32, 2, 6, 4, 0);
	struct check check;

	(void)state;
	for (uint64_t i = 0; i < 24; i++) {
		element_put(KOPS_F32, at(&y, i), get(&a, (int64_t)i) + get(&row, (int64_t)i % 6));
		element_put(KOPS_F32, at(&turned, i % 6 * 4 + i / 6), get(&a, (int64_t)i));
	}
	assert_int_equal(check_plain("add", &a, &row, &y, &check), 0);
	assert_true(check_passed(&check));
	assert_int_equal(check_plain("add", &row, &a, &y, &check), 0);
	assert_true(check_passed(&check));
	assert_int_equal(check_plain("transpose", &a, &a, &turned, &check), 0);
	assert_true(check_passed(&check));
	assert_int_equal(check_plain("copy", &a, &a, &y, &check), 0);
	assert_false(check_passed(&check));
	element_put(KOPS_F32, at(&turned, 23), get(&turned, 23) + 0x1p-20);
	assert_int_equal(check_plain("transpose", &a, &a, &turned, &check), 0);
	assert_int_equal(check.wrong, 1);
	assert_int_equal(check.row, 5);
	assert_int_equal(check.column, 3);
	release(&a), release(&row), release(&y), release(&turned);
}

static double reduced(const struct elements *x, uint64_t row, uint64_t n, kops_reduction kind)
{
	double sum = 0, largest = -(double)INFINITY;

	for (uint64_t j = 0; j < n; j++) {
		double v = get(x, (int64_t)(row * n + j));
		sum += v;
		largest = fmax(largest, v);
	}
	return kind == KOPS_MAX ? largest : kind == KOPS_SUM ? sum : sum / (double)n;
}

static void reductions_pass_and_damage_is_found(void **state)
{
	static const kops_dtype dtypes[] = {KOPS_F32, KOPS_F16, KOPS_BF16};
	enum { ROWS = 35, COLUMNS = 2500 };

	(void)state;
	for (unsigned i = 0; i < 9; i++) {
		kops_reduction kind = (kops_reduction)(i % 3);
		struct elements x = dense(dtypes[i / 3], 3, 5, 7, COLUMNS), y = dense(x.dtype, 2, 5, 7, 0);
		uint64_t hit = random_below(&dice, ROWS);
		struct check check;

		element_put(x.dtype, at(&x, hit * COLUMNS), 2); /* the largest of its row */
		for (uint64_t r = 0; r < ROWS; r++)
			element_put(x.dtype, at(&y, r), reduced(&x, r, COLUMNS, kind));
		assert_int_equal(check_reduce(&x, &y, kind, &check), 0);
		assert_true(check_passed(&check));
		assert_int_equal(check.compared, ROWS);
		double right = get(&y, (int64_t)hit);
		element_put(x.dtype, at(&y, hit),
		            1.01 * right + (right < 0 ? -1 : 1) * (kind == KOPS_MEAN ? 1e-3 : 1));
		assert_int_equal(check_reduce(&x, &y, kind, &check), 0);
		assert_int_equal(check.wrong, 1);
		assert_int_equal(check.row, hit);
		assert_int_equal(check.column, 0);
		release(&x), release(&y);
	}
}

/* With one axis the result has one number; without elements it is what kopsd returns. */
static void reductions_of_a_row_and_of_nothing_pass(void **state)
{
	static const float nothing[] = {0, -(float)INFINITY, (float)NAN};
	struct elements x = dense(KOPS_F32, 1, 100, 0, 0), y = dense(KOPS_F32, 1, 1, 0, 0);
	struct elements none = dense(KOPS_F32, 2, 1, 0, 0);
	struct check check;

	(void)state;
	for (unsigned kind = 0; kind < 3; kind++) {
		element_put(KOPS_F32, at(&y, 0), reduced(&x, 0, 100, (kops_reduction)kind));
		assert_int_equal(check_reduce(&x, &y, (kops_reduction)kind, &check), 0);
		assert_true(check_passed(&check) && check.compared == 1);
		element_put(KOPS_F32, at(&y, 0), (double)nothing[kind]);
		assert_int_equal(check_reduce(&none, &y, (kops_reduction)kind, &check), 0);
		assert_true(check_passed(&check) && check.compared == 1);
		element_put(KOPS_F32, at(&y, 0), 5);
		assert_int_equal(check_reduce(&none, &y, (kops_reduction)kind, &check), 0);
		assert_false(check_passed(&check));
	}
	element_put(KOPS_F32, at(&x, 50), (double)NAN);
	assert_int_equal(check_reduce(&x, &y, KOPS_MAX, &check), 0);
	assert_false(check_passed(&check));
	release(&x), release(&y), release(&none);
}

/* Large results are sampled by rows, which the report says; the first and the last row are always included. */
static void large_results_are_sampled(void **state)
{
	enum { ROWS = 300000, COLUMNS = 256 }; /* the budget is 2^26 */
	float row[COLUMNS] = {0};
	struct elements x = {(unsigned char *)row, KOPS_F32, 2, {ROWS, COLUMNS}, {0, 1}};
	struct check check;

	(void)state;
	assert_int_equal(check_plain("copy", &x, &x, &x, &check), 0);
	assert_true(check_passed(&check));
	assert_int_equal(check.elements, (uint64_t)ROWS * COLUMNS);
	assert_int_equal(check.compared, 1ull << 26);
	struct elements sums = {(unsigned char *)row, KOPS_F32, 1, {ROWS}, {0}};
	assert_int_equal(check_reduce(&x, &sums, KOPS_SUM, &check), 0);
	assert_true(check_passed(&check));
	assert_int_equal(check.compared, (1ull << 26) / COLUMNS);
}

/* Of dense operands, whose axes the op takes as one, and turned ones: the damaged last row has its place. */
static void sampled_rows_are_those_of_the_operands(void **state)
{
	enum { ROWS = 300000, COLUMNS = 256 };
	struct elements x = {calloc((size_t)ROWS * COLUMNS, 2), KOPS_F16, 2, {ROWS, COLUMNS}, {COLUMNS, 1}};
	struct elements y = {calloc((size_t)ROWS * COLUMNS, 2), KOPS_F16, 2, {ROWS, COLUMNS}, {COLUMNS, 1}};
	struct elements turned = {x.data, KOPS_F16, 2, {COLUMNS, ROWS}, {ROWS, 1}};
	struct check check;

	(void)state;
	element_put(KOPS_F16, at(&y, (uint64_t)ROWS * COLUMNS - 2), 1);
	assert_int_equal(check_plain("add", &x, &x, &y, &check), 0);
	assert_int_equal(check.wrong, 1);
	assert_int_equal(check.row, ROWS - 1);
	assert_int_equal(check.column, COLUMNS - 2);
	assert_int_equal(check.compared, 1ull << 26);
	element_put(KOPS_F16, at(&x, (uint64_t)(COLUMNS - 2) * ROWS + ROWS - 1), 1);
	element_put(KOPS_F16, at(&y, 3), 1);
	assert_int_equal(check_plain("transpose", &turned, &turned, &y, &check), 0);
	assert_int_equal(check.wrong, 1);
	assert_int_equal(check.row, 0);
	assert_int_equal(check.column, 3);
	release(&x), release(&y);
}

static void empty_results_pass(void **state)
{
	struct elements a = dense(KOPS_F32, 2, 3, 0, 0), b = dense(KOPS_F32, 2, 0, 2, 0),
	                y = dense(KOPS_F32, 2, 3, 2, 0);
	struct product p = {.a = &a, .b = &b, .y = &y, .alpha = 1};
	struct check check;

	(void)state;
	memset(at(&y, 0), 0, 6 * sizeof(float)); /* K = 0: zeros */
	assert_int_equal(check_gemm(&p, &check), 0);
	assert_true(check_passed(&check));
	assert_int_equal(check.compared, 6);
	assert_int_equal(check_plain("copy", &a, &a, &a, &check), 0);
	assert_true(check_passed(&check));
	assert_int_equal(check.compared, 0);
	release(&a), release(&b), release(&y);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(products_of_every_dtype_pass_and_damage_is_found),
	    cmocka_unit_test(bias_and_activation_are_part_of_the_result),
	    cmocka_unit_test(a_bias_is_repeated_for_each_batch),
	    cmocka_unit_test(a_lower_precision_is_found),
	    cmocka_unit_test(batches_share_a_single_operand),
	    cmocka_unit_test(special_values_must_be_in_their_place),
	    cmocka_unit_test(softmax_passes_and_damage_is_found),
	    cmocka_unit_test(small_sums_are_rounded_once),
	    cmocka_unit_test(sums_and_moves_are_compared_by_broadcast),
	    cmocka_unit_test(reductions_pass_and_damage_is_found),
	    cmocka_unit_test(reductions_of_a_row_and_of_nothing_pass),
	    cmocka_unit_test(large_results_are_sampled),
	    cmocka_unit_test(sampled_rows_are_those_of_the_operands),
	    cmocka_unit_test(empty_results_pass),
	};
	uint64_t seed = seed_of_run();

	print_message("seed: KOPS_TEST_SEED=%llu\n", (unsigned long long)seed);
	random_start(&dice, seed);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
