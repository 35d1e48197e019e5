/*
 * kernel.h: the contract between ops, kernels and their callers.
 *
 * An op (kernels/<op>/op.c) says what is computed: rules, cost, reference. A kernel is one way to compute it on
 * one kind of device: a name, supports(), time_ns(), workspace() and launch(). The kernels of one op on one
 * kind of device are a struct kernel_list. A new kernel is one function and one entry of a list.
 *
 * The daemon, the CUDA module and the tests share this header. It is plain C that nvcc compiles as C++ too.
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
#define WHY_BYTES         256 /* room for an error sentence */

#define PASSED_OVER_BYTES 512

/*
 * A view resolved against memory. `space` and `offset` say where it lies for overlap tests, before any device
 * has an address for it. `data` is the address of element (0, 0, …) for the launching code: a host address on
 * the CPU, a device address on a GPU. An absent operand is all zeros.
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

/*
 * A function of one number (elementwise/unary_function.h). Those up to silu are gemm's activations: what
 * becomes of each element of a product last.
 */
enum unary_function {
	UNARY_NONE,
	UNARY_RELU,
	UNARY_GELU,
	UNARY_GELU_TANH,
	UNARY_SILU,
	UNARY_SIGMOID,
	UNARY_TANH,
	UNARY_EXP,
	UNARY_LOG,
	UNARY_SQRT,
	UNARY_ABS,
};
#define UNARY_FUNCTIONS  (UNARY_ABS + 1)
#define GEMM_ACTIVATIONS (UNARY_SILU + 1)

struct gemm_params {
	double alpha, beta;
	double alpha_imag, beta_imag; /* 0 but for complex types; so are the flags */
	bool conj_a, conj_b;
	kops_precision precision;
	enum unary_function activation;
	bool a_by_columns, b_by_columns; /* as given: after check() an axis of one index may hide it */
};

/* SUM and WRITE are passes over some columns, in parts of one op. Each row hands on a softmax_partial. */
enum softmax_pass { SOFTMAX_WHOLE, SOFTMAX_SUM, SOFTMAX_WRITE };
struct softmax_params {
	double scale;
	bool log;
	enum softmax_pass pass;
	bool goes_on; /* SUM continues from the stored partials */
};

/*
 * What is known of some elements of a row: the largest scale * x, or its x, and the sum of exponentials
 * relative to it.
 */
struct softmax_partial {
	double peak, sum;
};

struct reduce_params {
	kops_reduction kind;
	double scale; /* factor of the result, set by check(): 1 / n for a mean */
	bool goes_on; /* continues from the content of y, in a later part of one op */
};

enum arg_reduction { ARG_MAX, ARG_MIN };
struct arg_reduce_params {
	enum arg_reduction kind;
	bool is_part, goes_on; /* set by check(), and of parts: goes_on from what is carried */
	int64_t first;         /* the index of a part's first column */
};

struct unary_params {
	enum unary_function function;
	double scale, low, high; /* exact in the type that is computed in */
	bool is_single;          /* set by check(): computed in f32 */
};

/* Parameters of ops whose attributes need no struct of their own. */
struct plain_params {
	double numbers[6];
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

/* Inputs come before outputs, and required operands before optional ones. Outputs never share a byte. */
struct op_operand {
	const char *name; /* as in kops.h and on the wire */
	enum operand_role role;
	bool is_optional;
	bool is_result; /* of an optional output: who asks for the first one wants it too, where a client can
	                   give both */
	bool has_large_diagonal; /* of an input: most problems have matrices whose diagonals outweigh the rest.
	                            See op_enlarge_diagonals() */
	uint32_t dtypes;         /* DTYPE_BIT of each type that it may have */
	int8_t dtype_of;   /* an earlier operand whose type it shares, if that one is given; or OWN_DTYPE */
	uint8_t in_place;  /* of an output: bit i is set if it may be the very same view as operand i */
	bool is_extra;     /* of an optional input: problems that are known by their size alone do without it */
	bool is_index;     /* of an input of i32: its elements are valid below op_index_limit() */
	const char *about; /* shape and meaning, as a phrase */
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
	uint16_t offset; /* within op_args.params */
	bool takes_nan;  /* NUMBER */
	/*
	 * NUMBER: a factor of what an updated output holds, which 0 leaves out. Where tools are given that, the
	 * first such attribute is 1 by default.
	 */
	bool is_of_old;
	double min, max;  /* NUMBER and COUNT, both included */
	double otherwise; /* default value. CHOICE: the index */
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
		struct arg_reduce_params arg_reduce;
		struct unary_params unary;
		struct plain_params plain;
	} params;
	void *carried; /* for parts: what they hand on beside the output */
};

/* The size of an op, as people say it: "f32 4096×4096×1024". extents: the first `rank` of them count. */
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
 * An axis along which an op can be cut into independent parts. axis[v]: the index of the axis in view v after
 * check(), PART_NONE if every part uses the whole view. keeps_stride: an axis cut to one index keeps its
 * stride; otherwise the stride becomes 0.
 */
#define PART_NONE (-1)
struct part_axis {
	int8_t axis[OP_OPERANDS_MAX];
	bool keeps_stride;
};

/*
 * How an op works along the last axis of its first input, so that a client may let another axis stand there:
 * not in a way of its own, or with an output that has that axis too, or with one that does not.
 */
enum op_axis { AXIS_NONE, AXIS_KEPT, AXIS_DROPPED };

/* An extent of sizes that tools choose at random. Three in four are among the usual ones, which 0 ends, if
 * there are some. */
#define SIZE_EXTENTS_MAX 6
struct size_span {
	uint64_t low, high;
	const uint64_t *usual;
};

struct op {
	const char *name;
	const char *title; /* for lists: "softmax over the last axis" */
	const char *about; /* what it computes: "y = a + b with a and b repeated to y's shape" */
	const char *notes; /* sentences for manuals: special values and cases; or NULL */
	const struct op_operand *operands;
	unsigned n_operands; /* at most OP_OPERANDS_MAX */
	const struct op_attribute *attributes;
	unsigned n_attributes;
	enum op_axis last_axis;
	const struct part_axis *part_axes; /* best first */
	unsigned n_part_axes;
	/* Changes first and n to the indices that a part needs of operand v along part axis `axis`, if these
	 * are not the output's. NULL: they are. */
	void (*part_range)(const struct op_args *args, unsigned axis, unsigned v, uint64_t *first, uint64_t *n);
	/* Notes that a part begins at `first` along part axis `axis`, if results depend on where an element is.
	 * NULL: they do not. */
	void (*begin_part)(struct op_args *part, unsigned axis, uint64_t first);
	/*
	 * For parts that must follow each other, each continuing the one before (gemm along K). steps: the
	 * number of indices to divide. step_part: sets args to the part that begins at `first`. passes: how
	 * often the parts go through all indices (softmax: sums first, then results). NULL: no such parts.
	 */
	unsigned passes;
	uint64_t (*steps)(const struct op_args *args);
	void (*step_part)(struct op_args *args, unsigned pass, uint64_t first, uint64_t n);
	/*
	 * The bytes that these parts hand on in args->carried, UINT64_MAX if too many; 0: the output holds
	 * everything. NULL: always 0.
	 *
	 * A 16-bit sum would be rounded after each part. So the parts of gemm and reduce have a dense f32
	 * output there in place of the op's own. Their caller first converts the old output to it, if the op
	 * reads that, and rounds the result after the last part.
	 */
	uint64_t (*carried_bytes)(const struct op_args *args);
	/*
	 * Sets the extents that describe the op's size, from args as the client sent them: check(), which may
	 * fold axes, has not run, and ranks may be wrong. NULL: the extents of the first input. See
	 * op_shape_of().
	 */
	void (*shape)(const struct op_args *args, struct op_shape *ret);
	/*
	 * Checks shapes, aliasing, and what the description cannot say of types and attributes; op_check()
	 * calls it last. Spreads broadcast inputs to the output's shape with strides 0. Never reads elements.
	 * KOPS_E_SHAPE, _DTYPE, _OVERLAP, _INVALID with a sentence in why.
	 */
	int (*check)(struct op_args *args, char why[WHY_BYTES]);
	/*
	 * Gives outputs their rank and shape, from the inputs and the attributes. op_result() has checked the
	 * types and set those of the outputs. KOPS_E_SHAPE with a sentence. NULL: the shape of the first input.
	 */
	int (*result)(struct op_args *args, char why[WHY_BYTES]);
	/* Returns what the op may do to f32 data, given checked args; NULL: the op has no such choice. */
	kops_precision (*precision)(const struct op_args *args);
	/*
	 * Returns true if the old content of output v is an input (gemm with beta != 0), given checked args.
	 * NULL: only if it is the very same view as an input. Callers use op_reads_output().
	 */
	bool (*reads_output)(const struct op_args *args, unsigned v);
	/*
	 * Returns true if input v does not matter (a and b of a gemm with alpha == 0), given checked args.
	 * NULL: never. Callers use op_ignores().
	 */
	bool (*ignores_input)(const struct op_args *args, unsigned v);
	void (*cost)(const struct op_args *args, struct cost *ret);
	/* Computes the reference result: plain loops, float64 accumulation, host memory. */
	void (*reference)(const struct op_args *args);
	/*
	 * Sets, for each element of a row of the output, how far correct results may lie from float64
	 * arithmetic on the same operands. Rows lie along the output's last axis, which check() must not
	 * change, and are numbered in row-major order. Rounding to f32 and
	 * the flushing of subnormals are included, rounding to 16 bits is not. 0: only the exact number is
	 * right. Negative: the element cannot be judged. NULL: results are the exact ones, rounded once.
	 */
	void (*bounds)(const struct op_args *args, uint64_t row, double *ret);
	/* The same of output v after the first. NULL: these are what the reference writes, and nothing else. */
	void (*further_bounds)(const struct op_args *args, unsigned v, uint64_t row, double *ret);
	/*
	 * For ops of which errors depend on more than the size of the operands, or with many right results:
	 * returns how far row `row` of the first output is from a right one, and what other outputs have for
	 * it. At most 1: it is right. Multiplies back, in float64. Rows are numbered in row-major order, as
	 * after check(). before: inputs, and what was in the outputs; after: outputs; both checked, in host
	 * memory. No bounds() then.
	 */
	double (*residual)(const struct op_args *before, const struct op_args *after, uint64_t row);
	/* Returns below which number the elements of an input that is_index are valid, whether or not args are
	 * checked. NULL: they number the indices of the first operand's axis 0. */
	uint64_t (*index_limit)(const struct op_args *args, unsigned v);
	/*
	 * Makes a small valid problem of this dtype for self-tests: shapes, dense strides, parameters. The
	 * caller sets the views' data, space and offset. Returns false if the op does not take the dtype.
	 */
	bool (*sample)(kops_dtype dtype, struct op_args *args);
	/*
	 * Makes a problem that kernels for large and aligned operands take too; NULL: no kernel needs more than
	 * sample().
	 */
	bool (*large_sample)(kops_dtype dtype, struct op_args *args);
	/* Returns the largest |y - reference| of a correct kernel on either sample filled from [-1, 1]. */
	double (*tolerance)(const struct op_args *args);
	/*
	 * How tools name the size of a problem, "MxNxK", with at most SIZE_EXTENTS_MAX extents. One after a
	 * slash, as in "QUERIES/KEYS", may be left out, and is then the one before. of_size: sets the ranks and
	 * extents of the required inputs, and of optional ones whose shape follows from these extents. NULL:
	 * ROWSxCOLUMNS, the shape of every required input.
	 */
	const char *size_form;
	void (*of_size)(const uint64_t *extents, struct op_args *args);
	const struct size_span *size_spans; /* of each extent; NULL: the usual ones */
	bool counts_flops;                  /* people judge its speed by FLOPs, not by bytes */
	/* The sizes that kops-bench measures: "64x1024,…", the first one small. NULL: rows of 1024, from few to
	 * 4 GB of operands. */
	const char *bench_shapes;
};

/*
 * A device's own types (kernels/common/cuda.h: a GPU's). Launches run in order on a stream; a library puts its
 * launches there too.
 */
struct stream;
struct library;

/* What a launch may use beside its views. */
struct launch {
	void *workspace; /* kernel->workspace() bytes, 256-byte aligned */
	uint64_t workspace_bytes;
	struct stream *stream;   /* NULL on the CPU */
	struct library *library; /* likewise */
	/*
	 * GPU: some operands lie in host memory, so each read of them crosses the link. Results are the same
	 * bit for bit.
	 */
	bool over_link;
	/*
	 * GPU: how many multiprocessors are left to other launches by kernels that would keep each to their
	 * end. Results are the same bit for bit.
	 */
	unsigned multiprocessors_left;
	/*
	 * launch_together(): GPU-readable memory that holds the addresses of all views of all ops, op by op,
	 * when the kernel runs. These may be ops other than args, but alike, with the first one at the same
	 * place modulo 256 bytes. KOPS_E_STATE if the kernel cannot use them. NULL: use the addresses in args.
	 */
	void *const *addresses;
	/*
	 * Parts of an op that grows: what the kernel keeps for later ones, as kernel->kept_bytes() says.
	 * kernel_launch_part() sets all but memory. NULL: nothing is kept.
	 */
	struct {
		void *memory;                /* 256-byte aligned */
		const struct op_args *whole; /* the op that the part is of */
		/* Of the part's inputs the elements that no launch before had; absent where there are none. */
		const struct op_args *fresh;
		bool begins; /* no launch before has left anything in the memory */
	} kept;
};

struct op_cut;

struct kernel {
	const char *name;
	/* For people, in `kops-client ops`; supports() decides. */
	const char *idea;   /* one line */
	const char *dtypes; /* "f32 f64" */
	const char *takes;  /* "any strides", "row- or column-major matrices" */
	/* Pure. On false, *ret_why_not is a static phrase ("needs unit stride in one dimension"). */
	bool (*supports)(const struct op_args *args, const char **ret_why_not);
	/*
	 * Returns true if the kernel's errors, on args that it supports, are as small as the precision
	 * requires: `auto` takes no kernel for its speed alone. Pure, with phrases as above. NULL: always.
	 */
	bool (*accurate)(const struct op_args *args, const char **ret_why_not);
	/*
	 * Returns how many ns the kernel takes on the calling thread's device, once its operands are in place
	 * and mapped. Choices compare these times and plans sum them. args: supported, with nonempty outputs.
	 * Pure; never infinite, since jobs may name the kernel.
	 *
	 * Overestimate when unsure: a job planned too long is refused, but one that runs longer than planned
	 * may be considered hung.
	 */
	double (*time_ns)(const struct op_args *args);
	/*
	 * GPU: returns how many ns longer the host takes for this launch than for later ones of the same shape,
	 * because a library first finds out how to compute it; 0 once it was launched on the calling thread's
	 * device. args: supported. Any thread. NULL: always 0.
	 */
	double (*first_ns)(const struct op_args *args);
	uint64_t (*workspace)(const struct op_args *args); /* NULL: none. Pure. */
	/*
	 * Returns in how many bytes parts of a cut that grows keep what the kernel makes of inputs, so that it
	 * is made once. Results are the same bit for bit. 0: not of this cut. Pure. NULL: always 0.
	 *
	 * kept_ns: like time_ns, of a part of the whole for which no more than `fresh` (struct launch) is made,
	 * while the other parts run before and behind it. NULL where kept_bytes is.
	 */
	uint64_t (*kept_bytes)(const struct op_args *whole, const struct op_cut *cut);
	double (*kept_ns)(const struct op_args *whole, const struct op_args *part, const struct op_args *fresh);
	/* GPU: launches take no notice of multiprocessors_left. The driver has to keep them off. */
	bool takes_all;
	/*
	 * Computes, or on a GPU enqueues on launch->stream. Returns 0, KOPS_E_FAULT or KOPS_E_NOMEM. Returns
	 * KOPS_E_UNSUPPORTED, having done nothing, if it has no code for the size of elements, which supports()
	 * should have refused. Never called for ops with empty outputs.
	 */
	int (*launch)(const struct op_args *args, const struct launch *launch);
	/*
	 * GPU: returns how many ops like this one a single launch computes, at most TOGETHER_MAX; 1: only one.
	 * Pure. NULL: always 1.
	 */
	unsigned (*together_max)(const struct op_args *args);
	/*
	 * GPU: computes n ops in one launch, 2 to together_max. They are alike (op_args_alike()), and none
	 * touches what another writes. Each result is that of launch(), bit for bit.
	 */
	int (*launch_together)(const struct op_args *const *args, unsigned n, const struct launch *launch);
	/*
	 * GPU: touches each element once, so a view in host memory needs no copy on the device. launch() then
	 * takes one host view; a dense one even if it is not registered for DMA.
	 */
	bool once;
	/*
	 * CPU: returns true if another kernel that computes meanwhile would have to wait, because a library's
	 * threads take one call at a time. NULL: never.
	 */
	bool (*exclusive)(const struct op_args *args);
	bool carries;      /* takes parts that hand on more than the output: see op.carried_bytes */
	bool tensor_cores; /* multiplies f32 on tensor cores: the FMA rate does not limit its speed */
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

/* Sets the size of an op whose views are bound but not checked. All zeros if the ranks are invalid. */
void op_shape_of(const struct op_args *args, struct op_shape *ret);

/*
 * Returns the op's index in ops[], found by name, since a module has its own copy of the list. OP_COUNT: not
 * found.
 */
unsigned op_index(const struct op *op);

/* Returns NULL if there is none. */
const struct op *op_by_name(const char *name);

#define TOGETHER_MAX 128
/*
 * The largest together_max() of a kernel that takes so many views of each op: their addresses must fit into its
 * parameters, beside 512 bytes of others.
 */
#define TOGETHER_OPS(views) ((views) <= 3 ? TOGETHER_MAX : (4096 - 512 - 32) / (8 * (views)))

/*
 * Returns true if the ops differ only in the addresses of their operands, and these only by multiples of 16
 * bytes.
 */
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

/* Returns the index of the first output, which is the number of inputs. */
static inline unsigned op_first_output(const struct op *op)
{
	unsigned v = 0;

	while (!op_is_output(op, v))
		v++;
	return v;
}

/* Return the first output, which is the only one of most ops. */
static inline const struct view *op_output_const(const struct op_args *args)
{
	return &args->views[op_first_output(args->op)];
}
static inline struct view *op_output(struct op_args *args)
{
	return &args->views[op_first_output(args->op)];
}

/* Returns true if no output has an element: there is nothing to compute. */
bool op_is_empty(const struct op_args *args);

/* Returns true if an output may share a byte with v. */
bool op_writes(const struct op_args *args, const struct view *v);

/* Return true if output v's old content is an input, and if any output's is. args must be checked. */
bool op_reads_output(const struct op_args *args, unsigned v);
bool op_reads_outputs(const struct op_args *args);
/* Returns true if view v is an input that does not matter. args must be checked. */
bool op_ignores(const struct op_args *args, unsigned v);
/* Returns true if the content of view v is used, which absent views have none of. args must be checked. */
bool op_reads(const struct op_args *args, unsigned v);

/* Returns true if the op's first operand may have this type. */
bool op_takes(const struct op *op, kops_dtype dtype);

/* Returns the type of operand v if the first one is of `dtype`: the same, if v may have it and no type of its
 * own. */
kops_dtype op_dtype_beside(const struct op *op, unsigned v, kops_dtype dtype);

/*
 * Returns below which number the elements of operand v are valid indices, for whoever makes some; 0: they are
 * no indices.
 */
uint64_t op_index_limit(const struct op_args *args, unsigned v);

/*
 * Makes the diagonals of the last two axes of v, whose data is in host memory, outweigh all other elements of
 * their matrices: such symmetric ones are positive definite, and triangles well conditioned. NaN and Inf stay.
 */
void op_enlarge_diagonals(const struct view *v);

/* Return the index in the description; op->n_operands or n_attributes if there is no such name. */
unsigned op_operand_index(const struct op *op, const char *name);
unsigned op_attribute_index(const struct op *op, const char *name);

/* Returns the index of a word among the choices of an attribute; n_choices if it is none of them. */
unsigned attribute_choice(const struct op_attribute *a, const char *word);

/*
 * Writes a value in the form that params use; op_set_attribute() does so for attribute i. The value must fit
 * the type: a flag is 0 or 1, a choice an index, a count a whole number below 2^32.
 */
void attribute_put(enum attribute_type type, double value, void *at);
void op_set_attribute(struct op_args *args, unsigned i, double value);
/* Sets every attribute to its default. */
void op_set_defaults(struct op_args *args);

/*
 * Checks whether the op may run: which operands are given, types, ranges of attributes, then op->check().
 * Returns the same codes and sentences as that.
 */
int op_check(struct op_args *args, char why[WHY_BYTES]);

/*
 * Gives outputs their type, rank and shape, from the views of inputs with ranks of 1 to KOPS_RANK_MAX and the
 * attributes. Codes and sentence as for op_check(), which may still refuse what this accepts.
 */
int op_result(struct op_args *args, char why[WHY_BYTES]);

/*
 * Gives optional input v the last axes of the first input's shape: the most axes that op_result() accepts,
 * beside the inputs before v, and that have so many elements (ANY_COUNT: any number). v already has its type.
 * Returns false, with v absent, if there are none.
 */
#define ANY_COUNT UINT64_MAX
bool op_fit_optional(struct op_args *args, unsigned v, uint64_t elements);

/* ---- part.c: tiles and parts; cut.c: makes cuts ---- */

/*
 * How an op is cut: its part_axes into a grid of tiles, and each tile into n_steps parts of step_chunk steps.
 * The last tile along an axis and the last step may be smaller. n_steps 1: a tile is a part.
 *
 * A cut that grows has other tiles. The first has the first chunk of each axis. Each further tile adds a chunk
 * of one axis, with as much of the other axes as there was before. So a part needs few elements that no part
 * before it has used: those of the next parts can be uploaded while it is computed. Its first chunks may be
 * larger. Then the first tile is cut along steps, into first_parts parts; each other tile is one.
 */
#define PART_AXES_MAX 4
struct op_cut {
	uint32_t n_parts, n_steps; /* n_parts: of all tiles */
	bool grows;
	uint32_t first_parts; /* of a first tile that is cut along steps, where the cut grows; else 0 */
	bool has_windows;     /* the device has no more of an operand than a part needs, or the next one */
	struct {
		uint32_t n; /* 0 or 1: tiles have all of the axis */
		uint64_t chunk;
		uint64_t first; /* the size of the first chunk, if it is another; else 0 */
	} axes[PART_AXES_MAX];
	uint64_t step_chunk;
	uint64_t carried_bytes; /* most bytes that a part hands on to the next of its tile */
	double share;           /* estimated time of the longest part, as a share of the time of all */
};

/*
 * Makes part i of n_parts, which must run in order: sets views' offset, data (if known), extents and
 * parameters. The caller sets args->carried if cut->carried_bytes is not 0 and data is known.
 */
void op_part(const struct op_args *args, const struct op_cut *cut, uint32_t i, struct op_args *ret);
/* Makes the tile that part i belongs to. */
void op_tile(const struct op_args *args, const struct op_cut *cut, uint32_t i, struct op_args *ret);

#define GROWING_PARTS_MAX 64
/*
 * How an op is cut into parts that grow. The first tile has these shares of the first axis and of the others
 * that are cut, in about `steps` parts along steps; 0: a chunk like the others, as one part. The rest makes
 * about `wanted` parts, each with about as many bytes of inputs that are new, where skew is 1. Where it is
 * more, the first axis is cut into more chunks, and others into fewer.
 */
struct growth {
	unsigned wanted;
	double skew, first_share, other_share;
	unsigned steps;
};

/* Cuts checked args. Returns false if no axis can be cut, or not along steps. */
bool op_cut_growing(const struct op_args *args, const struct growth *how, struct op_cut *ret);
/* Of a cut that grows. Return bit v if part i has elements of view v that no part before it has: then all of
 * the part's elements of v are new; and if it is the last to write elements of the output v. */
unsigned op_part_news(const struct op_args *args, const struct op_cut *cut, uint32_t i);
unsigned op_part_results(const struct op_args *args, const struct op_cut *cut, uint32_t i);
/*
 * Of a cut that grows. Makes the inputs of part i that no earlier part with all steps had, and leaves the
 * others absent. Returns false if the part has some of the steps only.
 */
bool op_part_fresh(const struct op_args *args, const struct op_cut *cut, uint32_t i, struct op_args *ret);

/*
 * Cuts checked args into a grid of at most wanted[i] chunks of axis i, and each tile into at most wanted_steps
 * parts. No part is larger than the first, along any axis. Returns false if there would be too many.
 */
bool op_cut_grid(const struct op_args *args, const uint32_t wanted[PART_AXES_MAX], uint32_t wanted_steps,
                 struct op_cut *ret);
/* Like op_part(), with the op's own output where the part has a wider one in `carried`. */
void op_part_operands(const struct op_args *args, const struct op_cut *cut, uint32_t i, struct op_args *ret);
/* Of a grid. Return bit v if part i has other elements of view v than part i - 1; in how many parts view v has.
 */
unsigned op_part_moves(const struct op_args *args, const struct op_cut *cut, uint32_t i);
double op_cut_moves(const struct op_args *args, const struct op_cut *cut, unsigned v);
/* Lists the first and last parts along each axis and the steps: one of each size. Returns how many there are.
 */
#define CORNERS_MAX (1u << (PART_AXES_MAX + 1))
unsigned op_cut_corners(const struct op_args *args, const struct op_cut *cut, uint32_t ret[CORNERS_MAX]);

/*
 * Leaves indices [first, first + n) of an axis of the first output of checked args, and what of the other views
 * they come from. False, and nothing happens: the op cannot be cut along that axis.
 */
bool op_narrow(struct op_args *args, uint32_t axis, uint64_t first, uint64_t n);

struct part_limits {
	/* Returns the whole time of an op or a part. on: the next member. */
	double (*time_ns)(const void *on, const struct kernel *kernel, const struct op_args *args);
	const void *on;
	double most_ns; /* longest time of a part */
	uint64_t carried_max;
};

/*
 * Cuts checked args, which the kernel supports, into parts that it takes and that keep to the limits; if none
 * do, into the shortest parts possible. Returns the time of all parts together in units of the op's time.
 */
double kernel_cut(const struct kernel *kernel, const struct op_args *args, const struct part_limits *limits,
                  struct op_cut *ret);

struct preference;
/*
 * Prefers, among the accurate kernels that can be cut to the limits, the one that is fastest in parts. The
 * preference is empty if there is none.
 */
void kernel_prefer_cut(const struct kernel_list *list, const struct op_args *args, uint64_t disabled,
                       const struct part_limits *limits, struct preference *ret);

/* Returns true if the kernel supports every part. */
bool kernel_takes_parts(const struct kernel *kernel, const struct op_args *args, const struct op_cut *cut);

/* Returns the workspace that the largest part needs. */
uint64_t kernel_workspace(const struct kernel *kernel, const struct op_args *args, const struct op_cut *cut);
/* Returns what the kernel keeps between the parts of the op. */
uint64_t kernel_kept_bytes(const struct kernel *kernel, const struct op_args *args, const struct op_cut *cut);

/* Computes part i. launch->kept.memory: kernel_kept_bytes(), of all parts; NULL: nothing is kept. convert:
 * copies elements between views of one shape and different types. */
typedef int part_convert(const struct view *from, const struct view *to, const struct launch *launch);
int kernel_launch_part(const struct kernel *kernel, const struct op_args *args, const struct op_cut *cut,
                       uint32_t i, const struct launch *launch, part_convert *convert);

/* ---- choose.c ---- */

#define PREFERRED_MAX        16
#define PREFERENCE_WHY_BYTES 96
#define RIVALS_MAX           16

/*
 * What `auto` tries before its estimates: indices of the list's kernels, best first, and a phrase for receipts.
 */
struct preference {
	uint8_t n, kernels[PREFERRED_MAX];
	char why[PREFERENCE_WHY_BYTES];
};

/*
 * Chooses the kernel that runs args, and writes a phrase for the receipt into why_text. pinned: the name of a
 * kernel that need only support args; NULL or "": `auto`.
 *
 * `auto` takes the first of the preferred kernels that supports args and is accurate. If there is none, it
 * takes the accurate kernel of least time_ns, the first of equals. If none is accurate, it takes the one of
 * least time_ns.
 *
 * preferred: NULL if none is. disabled: bit i is set if kernels[i] failed its self-test; it is not taken.
 * KOPS_E_UNSUPPORTED with a sentence in why_text that names the reason and a kernel that would do.
 */
int kernel_choose(const struct kernel_list *list, const struct op_args *args, const char *pinned,
                  const struct preference *preferred, uint64_t disabled, const struct kernel **ret_kernel,
                  char why_text[WHY_BYTES]);

/* A kernel that `auto` might take: its index in the list, and its time_ns. */
struct rival {
	size_t kernel;
	double time_ns;
};

/*
 * Lists the kernels that support args and are accurate, in the list's order: `auto` chooses among them if none
 * is preferred. Returns their number, at most RIVALS_MAX.
 */
unsigned kernel_rivals(const struct kernel_list *list, const struct op_args *args, uint64_t disabled,
                       struct rival ret[RIVALS_MAX]);

/*
 * Returns true if the errors of a kernel that supports args are as small as the precision requires; else sets
 * *ret_why_not to a static phrase.
 */
bool kernel_is_accurate(const struct kernel *kernel, const struct op_args *args, const char **ret_why_not);

/*
 * Lists the other kernels in their order for the receipt, with what excluded them: "cublas (needs K > 0),
 * pipelined, naive". Cut off at the end if there is no room.
 */
void kernel_passed_over(const struct kernel_list *list, const struct op_args *args, uint64_t disabled,
                        const struct kernel *chosen, char text[PASSED_OVER_BYTES]);

/* ---- view.c ---- */

/* Returns |stride|, even of INT64_MIN. */
static inline uint64_t stride_magnitude(int64_t stride)
{
	return stride < 0 ? -(uint64_t)stride : (uint64_t)stride;
}

/* Returns true if the view is absent or an extent is 0: it has no elements, and its strides mean nothing. */
bool view_is_empty(const struct view *v);

/* Computes the product of the extents; KOPS_E_RANGE if it does not fit in 63 bits. */
int view_count(const struct view *v, uint64_t *ret_count);

/* Returns the product of the extents of a view that view_extent() accepted. */
uint64_t view_elements(const struct view *v);

/* Reduces an axis to indices [first, first + n): moves the offset, and data if it is set. */
void view_narrow(struct view *v, uint32_t axis, uint64_t first, uint64_t n);

/*
 * Returns how many elements after the first one row i begins, in a view of rank 4 whose first three axes number
 * the rows. In dense views all rows are along axis 2.
 */
static inline int64_t view_row(const struct view *v, uint64_t i)
{
	uint64_t rest;

	if (i < v->shape[2])
		return (int64_t)i * v->strides[2];
	rest = i / v->shape[2];
	return (int64_t)(rest / v->shape[1]) * v->strides[0] + (int64_t)(rest % v->shape[1]) * v->strides[1] +
	       (int64_t)(i % v->shape[2]) * v->strides[2];
}

/* Sets row-major strides without gaps. */
void view_make_dense(struct view *v);
bool view_is_dense(const struct view *v);

/*
 * Computes the bytes [*ret_lo, *ret_hi) of its space that the view may touch, from its offset; lo == hi if it
 * has no element. KOPS_E_RANGE if they leave [0, space_bytes) or overflow. KOPS_E_INVALID if the offset is not
 * aligned to the element.
 */
int view_extent(const struct view *v, uint64_t space_bytes, uint64_t *ret_lo, uint64_t *ret_hi);

/*
 * Estimates in how many aligned blocks of so many bytes (cache lines, pages) the elements of v lie. An element
 * that is further from others has its own. 0 for a view without elements.
 */
double view_blocks(const struct view *v, uint64_t bytes);

/*
 * Returns true if each element has its own address, as outputs need. May return false for unusual
 * interleavings.
 */
bool view_is_injective(const struct view *v);

/* Returns true if space, offset, dtype, shape and strides (of extents > 1) are equal. */
bool view_same(const struct view *a, const struct view *b);

/*
 * Returns true if two views may share a byte. Exact for disjoint ranges and for tiles of one common pitch;
 * otherwise true when unsure.
 */
bool view_overlap(const struct view *a, const struct view *b);

#ifdef __cplusplus
}
#endif

#endif
