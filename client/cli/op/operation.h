/*
 * operation.h: the ops as the command line knows them; the list is proto/ops.def. described.c makes a struct
 * operation of each op's description. An op that needs more than its description says has a file here, with
 * one function that adds to it. Verbs, job files and kops-bench all work on struct step.
 */
#ifndef KOPS_CLI_OP_OPERATION_H
#define KOPS_CLI_OP_OPERATION_H

#include <stdbool.h>
#include <stdint.h>

#include "kops.h"
#include "op/check.h"
#include "options.h"

struct cli;
struct op_args;
struct source;

#define STEP_INPUTS_MAX   7
#define STEP_OPERANDS_MAX (STEP_INPUTS_MAX + 1)
#define STEP_MORE_MAX     2 /* outputs behind the first */

/* One op with its operands: step_of(). */
struct step {
	const struct operation *op;
	kops_view in[STEP_INPUTS_MAX], out; /* in: by the op's description; all zeros where it is absent */
	kops_view more[STEP_MORE_MAX];      /* the outputs behind it, as `in` */
	struct settings set;
	bool accumulates;           /* out holds a matrix that the result is added to */
	const struct elements *old; /* for the check: that matrix */
};

/* ---- problems known by their shape alone, for kops-client tune and kops-bench (shapes.c) ---- */

#define BENCH_EXTENTS_MAX 6
#define BENCH_SHAPE_BYTES 96 /* of a shape's text */

/* Shapes of --random: extents from low to high whose product is at most `elements`; of any two of them `pair`.
 * usual: as struct size_span has them (kernel.h).
 */
struct bench_span {
	uint64_t low[BENCH_EXTENTS_MAX], high[BENCH_EXTENTS_MAX], elements, pair; /* pair 0: any */
	const uint64_t *usual[BENCH_EXTENTS_MAX];
};

struct bench_cases {
	const char *form; /* of a shape, for people: "MxNxK, or one number for a cube" */
	const char *seed; /* --table seed: the shapes, with commas between; the first is small */
	unsigned n_extents;
	bool follows[BENCH_EXTENTS_MAX];      /* is written after a slash, unless it is the one before */
	struct bench_span random, random_cpu; /* the CPU's ends where it takes as long as a GPU does */
	struct bench_span extreme; /* GPUs: long and thin; half of the shapes, if elements is not 0 */
	bool counts_flops;         /* judged by its FLOPs, else by bytes */
};

/* ---- the ops ---- */

/* The verb of an op: a job of it on files. verb/op.c has what all of them have in common. */
struct verb {
	const char *name;
	const char *summary;  /* one line */
	const char *help;     /* above the options: what is computed */
	const char *of_files; /* of what files; NULL: of such as -m, -n and --dtype describe */
	const char *examples;
	const struct option_row *files; /* options that say what is in raw ones; NULL: -m, -n and --dtype */
	int (*run)(struct cli *cli, char **files); /* NULL: the op, on these files */
};

struct operation {
	const char *name;
	unsigned n_inputs;
	/* The last of these, each given by its name or not at all: --NAME FILE, NAME=VALUE in a job file. */
	unsigned n_optional;
	/* The outputs behind the first one; any may be left out: --NAME FILE, NAME=VALUE in a job file. */
	unsigned n_more;
	/* The name of the output, "c", if the result may be added to what that holds: -c FILE, and c=NAME in a
	 * job file. Else NULL. */
	const char *accumulates;
	bool transposes; /* a matrix may be stored transposed: --trans-a, --trans-b */
	/* What a job file's line may set beside kernel=, as the verb's options do. */
	const struct option_row *settings;
	struct verb verb;
	const struct verb *other_verb; /* listed before it; or NULL */
	/*
	 * Gives the verb's raw files, which have dtypes, their shapes; after the last one comes NULL. An exit
	 * code. NULL: -m and -n tell the first one's; others are as large, or a row, column or element of it.
	 */
	int (*fit)(struct cli *cli, struct source *const *sources);
	/* Compares y with what the inputs give. 0 or KOPS_E_NOMEM. NULL: check_by_reference(). */
	int (*check)(const struct step *step, const struct elements *in, const struct elements *y,
	             struct check *ret_check);
	struct bench_cases bench;
};

/* Each in the file of its name: adds what the op's description does not say, or replaces what was made of it.
 */
#define X(name) void operation_##name(struct operation *made);
#include "own_ops.def"
#undef X

#define X(name) +1
enum {
	OPERATIONS = 0
#include "ops.def"
};
#undef X

/* In the order of ops.def, up to OPERATIONS. */
const struct operation *operation_at(size_t index);
const struct operation *operation_by_name(const char *name); /* NULL: there is none */

/* "gemm, softmax or add". Returns text. */
const char *operation_names(char *text, size_t room);

struct step step_of(const struct operation *op);
struct step step_copy(kops_view from, kops_view to);

/* Sets out to the dense array that the inputs give, without memory. KOPS_E_INVALID with a sentence. */
int step_shape(struct step *step, char *why);
/* The same, whether or not the op takes the dtypes. */
int step_result(struct step *step, char *why);

/* Whether input i is there. */
static inline bool step_has(const struct step *step, unsigned i)
{
	return step->in[i].dtype != 0;
}

/* The one type that input i may have, whatever the others have; 0: it may have theirs. */
kops_dtype operation_own_dtype(const struct operation *op, unsigned i);

/* Whether optional input i is one that problems known by their shape do without. */
bool operation_is_extra(const struct operation *op, unsigned i);

/* Whether input i has matrices with large diagonals, in problems of random numbers. */
bool operation_has_large_diagonal(const struct operation *op, unsigned i);

/* Whether the check multiplies back with output i, which is behind the first. */
bool operation_checks_with(const struct operation *op, unsigned i);

/* Whether the elements of input i are indices of another input. */
bool operation_is_index(const struct operation *op, unsigned i);

/* How many inputs an op must have: the first ones. */
static inline unsigned operation_required(const struct operation *op)
{
	return op->n_inputs - op->n_optional;
}

struct op;
/* The name of the first attribute that is a factor of what the output holds; NULL: there is none. */
const char *operation_factor_of_old(const struct op *op);

/* The given setting that is a factor of what the output holds, and not 0; NULL: there is none. */
const char *operation_needs_old(const struct operation *op, const struct settings *set);

/* Whether the op has an attribute of this name that means something without an old output. */
bool operation_has_attribute(const struct operation *op, const char *name);

/* Writes the attributes that were given, as an object "attributes"; choices by their words. */
struct json;
void operation_json_attributes(struct json *json, const struct operation *op, const struct settings *set);

/* The index of an optional input, by its name; n_inputs: there is none. */
unsigned operation_optional(const struct operation *op, const char *name);

/* The index among the op's operands of an output behind the first, by its name; 0: there is none. */
unsigned operation_more(const struct operation *op, const char *name);

/*
 * Sets the output behind the first with this index to the dense array that the inputs give, without memory.
 * KOPS_E_INVALID with a sentence.
 */
int step_more(struct step *step, unsigned index, char *why);

/* The operands that are there by the names of the op's description, outputs last. Returns how many. */
unsigned step_operands(const struct step *step, kops_operand ret[STEP_OPERANDS_MAX]);

/*
 * Gives optional input i of this dtype the shape that op_fit_optional() (kernel.h) finds beside the other
 * inputs: dense, without memory. KOPS_E_INVALID: there is none of so many elements.
 */
int step_fit_optional(struct step *step, unsigned i, kops_dtype dtype, uint64_t elements);

/*
 * Sets the attributes of args, whose op is the step's: those that were given, and the defaults of others. The
 * factor of an old matrix that was given is 1 by default.
 */
void step_set_attributes(const struct step *step, struct op_args *args);

/* Of ops that have such an attribute; nothing happens to others. */
void step_set_precision(struct step *step, kops_precision precision);

/* Adds the op to a job: what kops_job_op() returns. */
int step_enqueue(kops_job *job, const struct step *step);

/* FLOPs of a step whose operands fit together; else 0. */
double step_flops(const struct step *step);

/* The op's check of a step whose operands are in SHARED memory; check_passed() tells the result. */
int step_check(const struct step *step, struct check *ret_check);
/* The same of operands anywhere in this process; the rank of absent ones is 0. */
int step_check_elements(const struct step *step, const struct elements *in, const struct elements *y,
                        struct check *ret_check);

/* ---- Shapes of an op ---- */

#define BENCH_SHAPES_MAX 1024

/* Its extents as the op's descriptor has them: rows and columns, or M, N and K. */
struct bench_shape {
	uint64_t extents[BENCH_EXTENTS_MAX];
	char text[BENCH_SHAPE_BYTES]; /* "128x128x1024" */
};

struct bench_shapes {
	struct bench_shape list[BENCH_SHAPES_MAX];
	size_t n;
};

/* Writes its text from its extents. */
void bench_shape_name(const struct operation *op, struct bench_shape *shape);

/* Whether one number stands for all extents. */
bool bench_takes_cubes(const struct operation *op);

/*
 * "S" or "S,S,…", each with all extents, "MxNxK", or one number if the op takes cubes. KOPS_E_INVALID with a
 * sentence in why.
 */
int bench_shapes_read(const struct operation *op, const char *text, struct bench_shapes *ret, char *why);

/* Whether problems known by their shape have optional input i: unless it is an extra one, or the op says which
 * inputs they have. */
bool operation_has_optional(const struct operation *op, unsigned i);

/*
 * The op on operands of this shape, dense, without buffers; the result has two axes or more. set: attributes
 * that were given; NULL: none. KOPS_E_INVALID when they are too large to exist, or do not belong together.
 */
int bench_shape_step(const struct operation *op, kops_dtype dtype, const struct bench_shape *shape,
                     const struct settings *set, struct step *ret_step, char *why);

/* Whether the shape tells that of optional input i, which the op may do without. */
bool bench_tells_optional(const struct operation *op, unsigned i);

/*
 * Gives the step of this shape optional input i: as the shape tells; else as long as the result's rows, or an
 * extra one of the result's shape. As step_fit_optional().
 */
int bench_shape_optional(struct step *step, unsigned i, kops_dtype dtype, const struct bench_shape *shape);

/*
 * Leaves indices [first, first + n) of an axis of a step's result, and what of the inputs they come from.
 * False, and nothing happens: the op cannot be cut along that axis.
 */
bool step_cut(struct step *step, unsigned axis, uint64_t first, uint64_t n);

/* ---- For the files of the ops ---- */

struct random;

/*
 * Fills input i, or the output from n_inputs on, which is dense in SHARED memory, with random numbers: from
 * [-1, 1), or indices that are in range.
 */
void step_fill_random(const struct step *step, unsigned i, struct random *random);

/* How many elements it has. */
uint64_t step_elements(const kops_view *v);

/* The extent of an axis counted from the last one, 0; of an axis that is not there, 1. */
uint64_t step_extent(const kops_view *v, uint32_t from_end);

/* KOPS_E_INVALID with a sentence when a dense array like the view is more than memory can hold. */
int step_fits(const kops_view *view, char *why);

/* A dense matrix that has no memory yet. */
kops_view step_matrix(kops_dtype dtype, uint64_t rows, uint64_t columns);

#endif
