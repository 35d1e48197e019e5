/*
 * check.h: --check: each op again in float64, on this side, and a comparison element by element.
 *
 * The error bound is per element. For a product it is u·f(K)·|α|·‖a_i‖·‖b_j‖ plus the rounding of the result,
 * with u the unit roundoff of the accumulation and f(K) = min(K, 8·√K) + 4: what rounding can do, and far less
 * than a wrong element or a lower precision would. Above a budget of work, whole rows are sampled
 * at random, and the result says so.
 */
#ifndef KOPS_CLI_OP_CHECK_H
#define KOPS_CLI_OP_CHECK_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "files/element.h"
#include "json.h"
#include "random.h"

struct step;

struct check {
	uint64_t elements; /* of the result */
	uint64_t compared;
	uint64_t wrong; /* beyond their bound */
	double max_error;
	/* The element whose error is the largest part of its bound. */
	uint64_t row, column; /* rows counted over all axes but the last */
	double error, bound, got, want;
	uint64_t seed; /* of the sampling */
	double us;
};

bool check_passed(const struct check *check);

/* One line for people: "check: ok, 64 of 64 elements, …". */
void check_show(FILE *out, const char *op, const struct check *check);
/* An object, in an array or as member `key`. */
void check_json(struct json *json, const char *key, const char *op, const struct check *check);

/* ---- For the files of the ops ---- */

/* Which rows are looked at: all, or the first, the last and random ones between them. */
struct check_sample {
	uint64_t rows, n;
	struct random random;
};

/* As many as the budget allows; both in the same unit. Notes the seed in *c. */
struct check_sample check_sample_rows(uint64_t rows, double cost_of_row, double budget, struct check *c);

/* The i-th row to look at, in ascending order: one of each n-th part of the rows. */
uint64_t check_sample_row(struct check_sample *s, uint64_t i);

/* One element; `largest` is the largest finite number of its type. */
void check_compare(struct check *c, uint64_t row, uint64_t column, double got, double want, double bound,
                   double largest);

/* By how many roundings a sum of n terms may be off: f(n) above. */
double check_sum_growth(uint64_t n);

/*
 * How far a tiny result may lie off: kernels may flush what is subnormal in f32 to 0; the subnormals of f16 are
 * exact to half their spacing.
 */
double check_tiny_error(kops_dtype dtype);

/*
 * The check by the reference of the op's description, and its bounds (kernel.h): of the whole result, or of
 * sampled rows. 0, KOPS_E_NOMEM, or what op_check() returns.
 */
int check_by_reference(const struct step *step, const struct elements *in, const struct elements *y,
                       struct check *ret_check);

#endif
