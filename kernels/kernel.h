/*
 * kernel.h: the contract between ops, kernels and whoever runs them.
 *
 * An op (kernels/<op>/op.c) says what is computed: rules, cost, reference. A kernel is one way to
 * compute it on one kind of device: a name, supports(), time_ns(), workspace() and launch(). The kernels of one
 * op on one kind of device are a struct kernel_list. A new kernel is one function and one entry of a list.
 *
 * Shared by the daemon, the CUDA module and the tests; plain C that nvcc compiles as C++ too.
 */
#ifndef KOPS_KERNEL_H
#define KOPS_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dtype.h"
#include "kops_types.h"

#ifdef __cplusplus
extern "C" {
#endif

#define OP_OPERANDS_MAX   8
#define OP_ATTRIBUTES_MAX 16
#define WHY_BYTES         256 /* room for a sentence to people */

#define PASSED_OVER_BYTES 512

/*
 * A view resolved against memory. `space` and `offset` say where it lies for overlap tests, before
 * any device has an address for it; `data` is element (0, 0, …) as the launching code may
 * dereference it: a host address on the CPU, a device address on a GPU. An operand that is absent is all zeros.
 */
struct view {
	const void *space;
	uint64_t offset; /* bytes */
	void *data;
	kops_dtype dtype;
	uint32_t rank;
	uint64_t shape[KOPS_RANK_MAX];
	int64_t strides[KOPS_RANK_MAX]; /* elements */
};

struct gemm_params {
	double alpha, beta;
	kops_precision precision;
	bool a_by_columns, b_by_columns; /* as given, where an axis of one index hides it after check() */
};

/* SUM and WRITE: parts of one op, over some columns, which hand on a softmax_partial for each row. */
enum softmax_pass { SOFTMAX_WHOLE, SOFTMAX_SUM, SOFTMAX_WRITE };
struct softmax_params {
	double scale;
	bool log;
	enum softmax_pass pass;
	bool goes_on; /* SUM: from the partials that are there */
};

/* What is known of some elements of a row: the largest scale * x, or its x, and the sum of exponentials against
 * it. */
struct softmax_partial {
	double peak, sum;
};

struct reduce_params {
	kops_reduction kind;
	double scale; /* of the result, by check(): 1 / n for a mean */
	bool goes_on; /* from what is in y: parts of one op */
};

/* For ops whose attributes need no struct of their own. */
struct plain_params {
	double numbers[4];
	uint32_t counts[4];
	bool flags[4];
};

/* ---- What an op is: plain data, from which the wire's reading, libraries, tools and docs are made ---- */

enum operand_role {
	OPERAND_INPUT,
	OPERAND_OUTPUT,
	OPERAND_UPDATED, /* an output whose old content may be an input: see op.reads_output */
};

#define DTYPE_BIT(dtype) (1u << (dtype))
#define OWN_DTYPE        (-1)

/* Inputs come before outputs, those that must be given before optional ones. Outputs never share a byte. */
struct op_operand {
	const char *name; /* as in kops.h and on the wire */
	enum operand_role role;
	bool is_optional;
	uint32_t dtypes;   /* DTYPE_BIT of each that it may have */
	int8_t dtype_of;   /* an operand before it whose type it shares, if that is given; or OWN_DTYPE */
	uint8_t in_place;  /* of an output: bit i is set where it may be the very view that operand i is */
	const char *about; /* shape and meaning: a phrase */
};

enum attribute_type {
	ATTRIBUTE_NUMBER, /* double */
	ATTRIBUTE_COUNT,  /* uint32_t */
	ATTRIBUTE_FLAG,   /* bool */
	ATTRIBUTE_CHOICE, /* int or enum: an index of choices */
};

struct op_attribute {
	const char *name;
	enum attribute_type type;
	uint16_t offset;  /* in op_args.params */
	bool takes_nan;   /* NUMBER */
	double min, max;  /* NUMBER and COUNT, both included */
	double otherwise; /* what it is where a client does not name it. CHOICE: the index */
	const char *const *choices;
	unsigned n_choices;
	const char *about; /* a phrase */
};

/* One op of a job, resolved. views: in the order of op->operands. */
struct op_args {
	const struct op *op;
	struct view views[OP_OPERANDS_MAX];
	union {
		struct gemm_params gemm;
		struct softmax_params softmax;
		struct reduce_params reduce;
		struct plain_params plain;
	} params;
	void *carried; /* of parts: what they hand on, where it is not all in the output */
};

/* What people call the size of an op: "f32 4096×4096×1024". extents: the first `rank` of them count. */
struct op_shape {
	kops_dtype dtype;
	uint32_t rank;
	uint64_t extents[KOPS_RANK_MAX];
};

struct cost {
	double flops;
	double bytes; /* each input read once, each output written once */
};

/*
 * An axis along which an op can be cut into parts that do not depend on each other. axis[v]: its index in view
 * v after check(), PART_NONE where the view serves every part. keeps_stride: of one index, it keeps its stride;
 * else it is 0.
 */
#define PART_NONE (-1)
struct part_axis {
	int8_t axis[OP_OPERANDS_MAX];
	bool keeps_stride;
};

struct op {
	const char *name;
	const char *about; /* what it computes: "y = a + b with a and b repeated to y's shape" */
	const char *notes; /* sentences that manuals add: special values and cases; or NULL */
	const struct op_operand *operands;
	unsigned n_operands; /* at most OP_OPERANDS_MAX */
	const struct op_attribute *attributes;
	unsigned n_attributes;
	const struct part_axis *part_axes; /* best first */
	unsigned n_part_axes;
	/*
	 * Where parts must follow each other, each going on with what the one before left (gemm along K): how
	 * many indices there are to share out, and the part of them that begins at `first`. passes: how often
	 * they go through all of them (softmax: sums first, then results). NULL: no such parts.
	 */
	unsigned passes;
	uint64_t (*steps)(const struct op_args *args);
	void (*step_part)(struct op_args *args, unsigned pass, uint64_t first, uint64_t n);
	/*
	 * What these parts hand on in args->carried, UINT64_MAX where that is more; 0: all is in the output. A
	 * 16-bit sum would be rounded after each part. So the parts of gemm and reduce have a dense f32 output
	 * there instead of the op's own: whoever runs them converts the old output to it first, if the op reads
	 * that, and rounds the result after the last part. NULL: always 0.
	 */
	uint64_t (*carried_bytes)(const struct op_args *args);
	/*
	 * The extents that describe the op's size, of args as the client sent them: check() may fold axes and
	 * has not yet looked at ranks. NULL: those of the first input. See op_shape_of().
	 */
	void (*shape)(const struct op_args *args, struct op_shape *ret);
	/*
	 * Shapes, aliasing, and what the description cannot say of types and attributes: op_check() calls it
	 * last. Spreads broadcast inputs to the output's shape with strides 0. KOPS_E_SHAPE, _DTYPE, _OVERLAP,
	 * _INVALID with a sentence in why. Never looks at elements.
	 */
	int (*check)(struct op_args *args, char why[WHY_BYTES]);
	/*
	 * Gives outputs rank and shape, from the inputs' and the attributes: op_result() has checked types and
	 * given outputs theirs. KOPS_E_SHAPE with a sentence. NULL: the shape of the first input.
	 */
	int (*result)(struct op_args *args, char why[WHY_BYTES]);
	/* What the op may do to f32 data, given checked args; NULL: nothing is asked for. */
	kops_precision (*precision)(const struct op_args *args);
	/* Whether the old content of output v is an input (gemm with beta != 0), given checked args. NULL: only
	 * where it is the very view of one. Callers ask op_reads_output(). */
	bool (*reads_output)(const struct op_args *args, unsigned v);
	/* Whether nothing of the inputs counts (gemm with alpha == 0), given checked args; NULL: never. */
	bool (*ignores_inputs)(const struct op_args *args);
	void (*cost)(const struct op_args *args, struct cost *ret);
	/* The oracle: plain loops, float64 accumulation, host memory. */
	void (*reference)(const struct op_args *args);
	/*
	 * How far right results may lie from those of float64 arithmetic on the same operands, for each element
	 * of a row of the output: along its last axis, which check() must leave alone; rows are numbered in
	 * row-major order. Rounding to f32 is part of it, rounding to 16 bits is not. Negative: the element
	 * cannot be judged. NULL: results are the exact ones, rounded once.
	 */
	void (*bounds)(const struct op_args *args, uint64_t row, double *ret);
	/*
	 * A small valid problem of this dtype for self-tests: shapes, dense strides, parameters; views'
	 * data, space and offset are left to the caller. False when the op does not take the dtype.
	 */
	bool (*sample)(kops_dtype dtype, struct op_args *args);
	/* One that kernels for large and aligned problems take too; NULL: no kernel asks for more than
	 * sample(). */
	bool (*large_sample)(kops_dtype dtype, struct op_args *args);
	/* Largest |y - reference| that a right kernel shows on either sample filled from [-1, 1]. */
	double (*tolerance)(const struct op_args *args);
};

/* A device's own (kernels/common/cuda.h: a GPU's): what launches are put on in their order, and the handle of a
 * library that puts its launches there too. */
struct stream;
struct library;

/* What a launch may use besides its views. */
struct launch {
	void *workspace; /* kernel->workspace() bytes, 256-byte aligned */
	uint64_t workspace_bytes;
	struct stream *stream;   /* NULL on the CPU */
	struct library *library; /* likewise */
	/* GPU: some operands lie in host memory, so that each read of them crosses the link. Results are bit
	 * for bit the same. */
	bool over_link;
	/* launch_together(): memory that the GPU can read, where the addresses of all views of all ops are by
	 * the time the kernel runs, op by op: of other ops than args, perhaps, but like them, the first at the
	 * same place within 256 bytes. KOPS_E_STATE where it cannot use them. NULL: those of args are meant. */
	void *const *addresses;
};

struct kernel {
	const char *name;
	/* For people, in `kops-client ops`; supports() decides. */
	const char *idea;   /* one line */
	const char *dtypes; /* "f32 f64" */
	const char *takes;  /* "any strides", "row- or column-major matrices" */
	/* Pure. On false, *ret_why_not is a static phrase ("needs unit stride in one dimension"). */
	bool (*supports)(const struct op_args *args, const char **ret_why_not);
	/*
	 * Whether its errors, on args that it supports, are as small as the precision asks for: `auto` takes no
	 * kernel for its measured speed alone. Pure, phrases as above. NULL: always.
	 */
	bool (*accurate)(const struct op_args *args, const char **ret_why_not);
	/*
	 * How many ns it takes on the device of the calling thread, where its operands are in their place and
	 * mapped: what choices compare and plans sum up. For args that it supports, of outputs with elements.
	 * Pure; never infinite, since it may be asked for by name. Where in doubt, err upwards: a job planned
	 * to be too long is refused, one that is longer than planned may be taken for hung.
	 */
	double (*time_ns)(const struct op_args *args);
	uint64_t (*workspace)(const struct op_args *args); /* NULL: none. Pure. */
	/*
	 * Computes, or on a GPU enqueues on launch->stream. 0, KOPS_E_FAULT or KOPS_E_NOMEM;
	 * KOPS_E_UNSUPPORTED, nothing done, where elements have a size that it has no code for, which
	 * supports() should have refused. Ops whose outputs have no element never get here.
	 */
	int (*launch)(const struct op_args *args, const struct launch *launch);
	/*
	 * GPU: how many ops like this one a single launch computes, at most TOGETHER_MAX; 1: it goes alone.
	 * Pure. NULL: always 1.
	 */
	unsigned (*together_max)(const struct op_args *args);
	/*
	 * GPU: launch() of n ops in one, 2 to together_max. They are alike (op_args_alike()), and none touches
	 * what another writes. Each result is bit for bit that of launch().
	 */
	int (*launch_together)(const struct op_args *const *args, unsigned n, const struct launch *launch);
	/*
	 * GPU: touches each element once, so a view in host memory needs no copy on the device. launch()
	 * then takes one host view, dense ones even where they are not registered for DMA.
	 */
	bool once;
	bool carries;      /* takes parts that hand on more than the output: see op.carried_bytes */
	bool tensor_cores; /* multiplies f32 on tensor cores: the FMA rate does not bound its speed */
};

struct kernel_list {
	const struct kernel *kernels;
	size_t n;
};

/* ---- op.c: the list of ops (ops.def) ---- */

enum {
	OP_COUNT = 0
#define X(name) +1
#include "ops.def"
#undef X
};
extern const struct op *const ops[OP_COUNT];

/* The size of an op whose views are bound but not checked. All zeros where the ranks make no sense. */
void op_shape_of(const struct op_args *args, struct op_shape *ret);

/* Its place in ops[], by name: a module has a copy of the list. OP_COUNT for an op that is not there. */
unsigned op_index(const struct op *op);

/* NULL if there is none. */
const struct op *op_by_name(const char *name);

#define TOGETHER_MAX 128
/* What a kernel that takes so many views of each op can say in together_max(): their addresses have to fit into
 * its parameters, beside 512 bytes of others. */
#define TOGETHER_OPS(views) ((views) <= 3 ? TOGETHER_MAX : (4096 - 512 - 32) / (8 * (views)))

/* Whether they differ in nothing but where their operands are, and there not in the remainder by 16 bytes. */
bool op_args_alike(const struct op_args *a, const struct op_args *b);

/* ---- operands.c ---- */

static inline bool view_is_absent(const struct view *v)
{
	return v->dtype == 0;
}

static inline bool op_is_output(const struct op *op, unsigned v)
{
	return op->operands[v].role != OPERAND_INPUT;
}

/* The index of the first output, and how many inputs are before it. */
static inline unsigned op_first_output(const struct op *op)
{
	unsigned v = 0;

	while (!op_is_output(op, v))
		v++;
	return v;
}

/* The output of an op that has one; the first of several. */
static inline const struct view *op_output_const(const struct op_args *args)
{
	return &args->views[op_first_output(args->op)];
}
static inline struct view *op_output(struct op_args *args)
{
	return &args->views[op_first_output(args->op)];
}

/* No output has an element: there is nothing to compute. */
bool op_is_empty(const struct op_args *args);

/* Whether an output may share a byte with v. */
bool op_writes(const struct op_args *args, const struct view *v);

/* Of checked args: whether output v's old content is an input; and whether any output's is. */
bool op_reads_output(const struct op_args *args, unsigned v);
bool op_reads_outputs(const struct op_args *args);
/* Of checked args: whether the content of view v counts: not that of absent ones. */
bool op_reads(const struct op_args *args, unsigned v);

/* Whether it takes such elements: those of its first operand. */
bool op_takes(const struct op *op, kops_dtype dtype);

/* Their place in the description; op->n_operands or n_attributes where there is none of that name. */
unsigned op_operand_index(const struct op *op, const char *name);
unsigned op_attribute_index(const struct op *op, const char *name);

/* The index of a word among the choices of an attribute; n_choices where it is none of them. */
unsigned attribute_choice(const struct op_attribute *a, const char *word);

/*
 * Writes a value in the form that params have it. The type has to have it: a flag 0 or 1, a choice its index, a
 * count a whole number below 2^32. op_set_attribute() does so for attribute i.
 */
void attribute_put(enum attribute_type type, double value, void *at);
void op_set_attribute(struct op_args *args, unsigned i, double value);
/* Gives every attribute its default. */
void op_set_defaults(struct op_args *args);

/*
 * Whether an op may run so: which operands are given, their types, attributes' ranges, then op->check(). Codes
 * and sentence as of that.
 */
int op_check(struct op_args *args, char why[WHY_BYTES]);

/*
 * Gives outputs the type, rank and shape that they have, given the views of inputs, the attributes, and ranks
 * of 1 to KOPS_RANK_MAX. Codes and sentence as of op_check(); what it accepts may still be refused there.
 */
int op_result(struct op_args *args, char why[WHY_BYTES]);

/*
 * Gives optional input v the last axes of the first input's shape: the most that op_result() accepts, beside
 * the inputs before it, and that have so many elements; ANY_COUNT: whatever number. v has its type already.
 * False, and v is absent: there are none.
 */
#define ANY_COUNT UINT64_MAX
bool op_fit_optional(struct op_args *args, unsigned v, uint64_t elements);

/* ---- part.c ---- */

/*
 * How an op is cut: into blocks of `chunk` indices along part_axes[axis], and each block into n_steps parts of
 * step_chunk of its steps; the last of each has fewer. chunk 0: one block. n_steps 1: a block is a part.
 */
#define CUT_STEPS (-1)
struct op_cut {
	uint32_t n_parts, n_steps; /* n_parts: of all blocks */
	int axis;
	uint64_t chunk, step_chunk;
	uint64_t carried_bytes; /* that a part hands on to the next of its block, at most */
	double share;           /* of the time of all that the longest part is estimated to take */
};

/* Part i of n_parts, to be run in order: views' offset, data (where set), extents and parameters. args->carried
 * is set where cut->carried_bytes is not 0, and data is known. */
void op_part(const struct op_args *args, const struct op_cut *cut, uint32_t i, struct op_args *ret);
/* The block that it belongs to. */
void op_block(const struct op_args *args, const struct op_cut *cut, uint32_t i, struct op_args *ret);

struct part_limits {
	/* Of an op or a part, with all it costs. on: the next member. */
	double (*time_ns)(const void *on, const struct kernel *kernel, const struct op_args *args);
	const void *on;
	double most_ns; /* of a part */
	uint64_t carried_max;
};

/*
 * Cuts checked args, which the kernel supports, into parts that it takes and that keep to the limits; if that
 * cannot be done, into the shortest parts that can. Returns how many times as long as the op all parts take
 * together.
 */
double kernel_cut(const struct kernel *kernel, const struct op_args *args, const struct part_limits *limits,
                  struct op_cut *ret);

struct preference;
/* Prefers, of the accurate kernels that can be cut so, the one that is fastest with all parts. Nothing where
 * there is none.
 */
void kernel_prefer_cut(const struct kernel_list *list, const struct op_args *args, uint64_t disabled,
                       const struct part_limits *limits, struct preference *ret);

/* Whether it supports every part. */
bool kernel_takes_parts(const struct kernel *kernel, const struct op_args *args, const struct op_cut *cut);

/* The workspace that the largest part needs. */
uint64_t kernel_workspace(const struct kernel *kernel, const struct op_args *args, const struct op_cut *cut);

/* Computes part i. convert: copies elements of another type between views of one shape. */
typedef int part_convert(const struct view *from, const struct view *to, const struct launch *launch);
int kernel_launch_part(const struct kernel *kernel, const struct op_args *args, const struct op_cut *cut,
                       uint32_t i, const struct launch *launch, part_convert *convert);

/* ---- choose.c ---- */

#define PREFERRED_MAX        16
#define PREFERENCE_WHY_BYTES 96
#define RIVALS_MAX           16

/* What `auto` tries before its estimates: indices of the list's kernels, best first, and a phrase for receipts.
 */
struct preference {
	uint8_t n, kernels[PREFERRED_MAX];
	char why[PREFERENCE_WHY_BYTES];
};

/*
 * Picks the kernel that runs args. pinned: a kernel's name, which need only support args; NULL or "" for
 * `auto`: the first of the preferred kernels that supports args and is accurate. Where there is none, the one
 * of least time_ns among those that support them and are accurate, the first of equal ones; where there is none
 * either, the same without asking for accuracy. preferred: NULL where none is. disabled: bit i set = kernels[i]
 * failed its self-test and is not taken. A phrase for the receipt is written into why_text.
 * KOPS_E_UNSUPPORTED with a sentence in why_text that names the reason and a kernel that would do.
 */
int kernel_choose(const struct kernel_list *list, const struct op_args *args, const char *pinned,
                  const struct preference *preferred, uint64_t disabled, const struct kernel **ret_kernel,
                  char why_text[WHY_BYTES]);

/* A kernel that `auto` might take for some args, by its index in the list, and its time_ns. */
struct rival {
	size_t kernel;
	double time_ns;
};

/*
 * The kernels that support args and are accurate, in the list's order: what `auto` chooses among where nothing
 * is preferred. Returns how many there are, RIVALS_MAX at most.
 */
unsigned kernel_rivals(const struct kernel_list *list, const struct op_args *args, uint64_t disabled,
                       struct rival ret[RIVALS_MAX]);

/* Whether the errors of a kernel that supports args are as small as the precision asks for; *ret_why_not: a
 * static phrase where they are not. */
bool kernel_is_accurate(const struct kernel *kernel, const struct op_args *args, const char **ret_why_not);

/*
 * The other kernels in their order, for the receipt, with what kept them out where something did: "cublas
 * (needs K > 0), pipelined, naive". Cut at the end where there is no room.
 */
void kernel_passed_over(const struct kernel_list *list, const struct op_args *args, uint64_t disabled,
                        const struct kernel *chosen, char text[PASSED_OVER_BYTES]);

/* ---- view.c ---- */

/* |stride|, of the smallest too. */
static inline uint64_t stride_magnitude(int64_t stride)
{
	return stride < 0 ? -(uint64_t)stride : (uint64_t)stride;
}

/* Some extent is 0, or it is absent: there are no elements, and the strides mean nothing. */
bool view_is_empty(const struct view *v);

/* Product of the extents; KOPS_E_RANGE where it does not fit in 63 bits. */
int view_count(const struct view *v, uint64_t *ret_count);

/* Product of the extents of a view already accepted by view_extent(). */
uint64_t view_elements(const struct view *v);

/* Leaves indices [first, first + n) of an axis: moves the offset, and data where it is set. */
void view_narrow(struct view *v, uint32_t axis, uint64_t first, uint64_t n);

/* Elements from the first one of a view of rank 4 to where row i begins: the first three axes number its rows.
 * Those of dense views are all along axis 2. */
static inline int64_t view_row(const struct view *v, uint64_t i)
{
	uint64_t rest;

	if (i < v->shape[2])
		return (int64_t)i * v->strides[2];
	rest = i / v->shape[2];
	return (int64_t)(rest / v->shape[1]) * v->strides[0] + (int64_t)(rest % v->shape[1]) * v->strides[1] +
	       (int64_t)(i % v->shape[2]) * v->strides[2];
}

/* Row-major strides without gaps. */
void view_make_dense(struct view *v);
bool view_is_dense(const struct view *v);

/*
 * The bytes [*ret_lo, *ret_hi) of its space that the view may touch, given its offset; lo == hi when
 * it has no element. KOPS_E_RANGE where they leave [0, space_bytes) or overflow. Alignment of the
 * offset to the element is checked too (KOPS_E_INVALID).
 */
int view_extent(const struct view *v, uint64_t space_bytes, uint64_t *ret_lo, uint64_t *ret_hi);

/*
 * How many aligned blocks of so many bytes (cache lines, pages) the elements of v lie in, about: of elements
 * that are further apart each has its own. 0 for a view without elements.
 */
double view_blocks(const struct view *v, uint64_t bytes);

/* Each element at an address of its own: what an output needs. May say no to exotic interleavings. */
bool view_is_injective(const struct view *v);

/* Same space, offset, dtype, shape and strides (of extents > 1). */
bool view_same(const struct view *a, const struct view *b);

/*
 * Whether two views may share a byte. Exact for disjoint ranges and for tiles of one common pitch;
 * otherwise errs towards true.
 */
bool view_overlap(const struct view *a, const struct view *b);

#ifdef __cplusplus
}
#endif

#endif
