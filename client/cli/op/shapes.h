/*
 * shapes.h: problems of an op by their shape alone, as the op's descriptor has them (cases.h): what kops-client
 * tune and kops-bench run.
 */
#ifndef KOPS_CLI_OP_SHAPES_H
#define KOPS_CLI_OP_SHAPES_H

#include "op/operation.h"

#define BENCH_SHAPES_MAX 1024

/* Its extents as the op's descriptor has them: rows and columns, or M, N and K. */
struct bench_shape {
	uint64_t extents[3];
	char text[64]; /* "128x128x1024" */
};

struct bench_shapes {
	struct bench_shape list[BENCH_SHAPES_MAX];
	size_t n;
};

size_t bench_extents(const struct operation *op); /* of a shape: 2 or 3 */

/* What a shape of the op is, for people: "MxNxK, or one number for a cube". */
const char *bench_shape_form(const struct operation *op);

/* Writes its text from its extents. */
void bench_shape_name(const struct operation *op, struct bench_shape *shape);

/* "S" or "S,S,…", each with all extents, "MxNxK", or one number. KOPS_E_INVALID with a sentence in why. */
int bench_shapes_read(const struct operation *op, const char *text, struct bench_shapes *ret, char *why);

/* The op on operands of this shape, dense, without buffers. KOPS_E_INVALID when they are too large to exist. */
int bench_shape_step(const struct operation *op, kops_dtype dtype, const struct bench_shape *shape,
                     struct step *ret_step, char *why);

#endif
