/*
 * check.h: --check: each op again in float64, on this side, and a comparison element by element.
 *
 * The error bound is per element. For a product it is u·f(K)·|α|·‖a_i‖·‖b_j‖ plus the rounding of the result,
 * with u the unit roundoff of the accumulation and f(K) = min(K, 8·√K) + 4: what rounding can do, and far less
 * than a wrong element or a lower precision would. Above a budget of work, whole rows are sampled
 * at random, and the result says so.
 */
#ifndef KOPS_CLI_CHECK_H
#define KOPS_CLI_CHECK_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "element.h"
#include "json.h"

struct check {
	uint64_t elements; /* of the result */
	uint64_t compared;
	uint64_t wrong; /* beyond their bound */
	double max_error;
	/* The element nearest to its bound, or farthest beyond. */
	uint64_t row, column; /* rows counted over all axes but the last */
	double error, bound, got, want;
	uint64_t seed; /* of the sampling */
	double us;
};

/* y = alpha * a * b + beta * old. old: NULL when beta is 0. Shapes are as kops_job_gemm() takes them. */
struct check_product {
	const struct elements *a, *b, *old, *y;
	double alpha, beta;
	kops_precision precision;
};

/* 0, or KOPS_E_NOMEM with *ret_check untouched; check_passed() tells the result. */
int check_gemm(const struct check_product *product, struct check *ret_check);
int check_softmax(const struct elements *x, const struct elements *y, double scale, bool log,
                  struct check *ret_check);
int check_transpose(const struct elements *x, const struct elements *y, struct check *ret_check);
int check_add(const struct elements *a, const struct elements *b, const struct elements *y,
              struct check *ret_check);
int check_copy(const struct elements *x, const struct elements *y, struct check *ret_check);
/* y = x put `steps` times through v = alpha * v + beta, each step rounded once or twice. */
int check_fma(const struct elements *x, const struct elements *y, double alpha, double beta, uint32_t steps,
              struct check *ret_check);

bool check_passed(const struct check *check);

/* One line for people: "check: ok, 64 of 64 elements, …". */
void check_show(FILE *out, const char *op, const struct check *check);
/* An object, in an array or as member `key`. */
void check_json(struct json *json, const char *key, const char *op, const struct check *check);

#endif
