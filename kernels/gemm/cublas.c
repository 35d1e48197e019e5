/*
 * cublas.c: gemm through cublasGemmEx and cublasGemmStridedBatchedEx, the yardstick. f32 on an
 * H200: 1024³ 31.0, 2048³ 47.8, 8192³ 50.8 TFLOP/s.
 *
 * cuBLAS is column-major. A row-major C = A·B is, read column by column, Cᵀ = Bᵀ·Aᵀ: the operands are
 * exchanged and each keeps its memory. A column-major C is computed as it stands. So every mixture of
 * row- and column-major operands goes through without a copy. cuBLAS conjugates what it transposes, and nothing
 * else: a conjugate is taken if the operand lies the other way round than C.
 *
 * Bias and activation take a pass of their own (finish.cu). So that C is rounded once, the sums of 16-bit types
 * go to the workspace as f32 before that.
 */
#include "gemm/kernels.h"

#include <cublas_v2.h>

#include "gemm/problem.h"
#include "gemm/seen.h"
#include "hash.h"

/* One operand. Vectors may be both row- and column-major. */
struct matrix {
	const void *data;
	int64_t batch;
	bool row_major, column_major, conjugated;
	int64_t row_ld, column_ld; /* from row to row, from column to column */
};

static int64_t at_least_one(uint64_t n)
{
	return n > 0 ? (int64_t)n : 1;
}

/* Whether the matrix is `lines` runs of `length` neighbouring elements each, *ret_ld elements apart. */
static bool has_lines(uint64_t lines, uint64_t length, int64_t apart, int64_t along, int64_t *ret_ld)
{
	if (length > 1 && along != 1)
		return false;
	if (lines > 1 && apart < at_least_one(length))
		return false;
	*ret_ld = lines > 1 ? apart : at_least_one(length);
	return true;
}

static struct matrix matrix_of(const struct gemm_operand *o, uint64_t rows, uint64_t cols, bool conjugated)
{
	struct matrix m = {.data = o->data, .batch = o->batch, .conjugated = conjugated};

	m.row_major = has_lines(rows, cols, o->row, o->col, &m.row_ld);
	m.column_major = has_lines(cols, rows, o->col, o->row, &m.column_ld);
	return m;
}

static bool is_matrix(const struct matrix *m)
{
	return (m->row_major || m->column_major) && m->batch >= 0;
}

struct matrices {
	struct matrix a, b, c;
};

/* p: of these args, or by rows. Sums that lie apart are never complex. */
static struct matrices matrices_of(const struct op_args *args, const struct gemm_problem *p)
{
	const struct gemm_params *params = &args->params.gemm;

	return (struct matrices){matrix_of(&p->a, p->m, p->k, params->conj_a),
	                         matrix_of(&p->b, p->k, p->n, params->conj_b),
	                         matrix_of(&p->c, p->m, p->n, false)};
}

/* Whether C can be computed by rows (flip) or by columns: then what is conjugated must lie the other way round.
 */
static bool goes(const struct matrices *m, bool flip)
{
	const struct matrix *factors[] = {&m->a, &m->b};

	for (int i = 0; i < 2; i++)
		if (factors[i]->conjugated && !(flip ? factors[i]->column_major : factors[i]->row_major))
			return false;
	return flip ? m->c.row_major : m->c.column_major;
}

bool gemm_cublas_supports(const struct op_args *args, const char **ret_why_not)
{
	struct gemm_problem p = gemm_problem_of(args);
	struct matrices m = matrices_of(args, &p);

	*ret_why_not =
	    "needs each matrix row- or column-major: unit stride in one axis, no overlap in the other";
	if (!is_matrix(&m.a) || !is_matrix(&m.b) || !is_matrix(&m.c))
		return false;
	*ret_why_not = "needs conjugates by columns if C is row-major, by rows if it is column-major";
	if (!goes(&m, true) && !goes(&m, false))
		return false;
	*ret_why_not = "needs K > 0 and alpha other than 0"; /* some kernels make NaN of 0 * Inf */
	return gemm_has_product(args);
}

static cudaDataType_t type_of(kops_dtype dtype)
{
	switch (dtype) {
	case KOPS_F64:
		return CUDA_R_64F;
	case KOPS_F16:
		return CUDA_R_16F;
	case KOPS_BF16:
		return CUDA_R_16BF;
	case KOPS_C64:
		return CUDA_C_32F;
	case KOPS_C128:
		return CUDA_C_64F;
	default:
		return CUDA_R_32F;
	}
}

/* PEDANTIC never takes another arithmetic than the type's own, whatever the environment says. */
static cublasComputeType_t compute_of(kops_dtype dtype, kops_precision precision)
{
	if (dtype_component(dtype) == KOPS_F64)
		return CUBLAS_COMPUTE_64F;
	if (dtype != KOPS_F32)
		return CUBLAS_COMPUTE_32F;
	switch (precision) {
	case KOPS_PRECISION_IEEE:
		return CUBLAS_COMPUTE_32F_PEDANTIC;
	case KOPS_PRECISION_TF32:
		return CUBLAS_COMPUTE_32F_FAST_TF32;
	case KOPS_PRECISION_BF16:
		return CUBLAS_COMPUTE_32F_FAST_16BF;
	default:
		return CUBLAS_COMPUTE_32F;
	}
}

/* One column-major product z (rows × cols) = x · y as cuBLAS takes it. */
struct call {
	cublasOperation_t op_x, op_y;
	int64_t rows, cols, depth;
	const void *x, *y;
	void *z;
	int64_t ld_x, ld_y, ld_z, batch_x, batch_y, batch_z;
};

/*
 * flip: the factor stands transposed, as it does where C is row-major. A conjugated vector, which lies both
 * ways, is read transposed.
 */
static void set_factor(const struct matrix *m, bool flip, cublasOperation_t *op, const void **data, int64_t *ld,
                       int64_t *batch)
{
	bool plain = (flip ? m->row_major : m->column_major) && !m->conjugated;

	*op = plain ? CUBLAS_OP_N : m->conjugated ? CUBLAS_OP_C : CUBLAS_OP_T;
	if (flip)
		*ld = plain ? m->row_ld : m->column_ld;
	else
		*ld = plain ? m->column_ld : m->row_ld;
	*data = m->data;
	*batch = m->batch;
}

static struct call call_of(const struct gemm_problem *p, const struct matrices *m)
{
	bool flip = goes(m, true);
	const struct matrix *x = flip ? &m->b : &m->a, *y = flip ? &m->a : &m->b;
	struct call call = {
	    .rows = (int64_t)(flip ? p->n : p->m),
	    .cols = (int64_t)(flip ? p->m : p->n),
	    .depth = (int64_t)p->k,
	    .z = p->c.data,
	    .ld_z = flip ? m->c.row_ld : m->c.column_ld,
	    .batch_z = m->c.batch,
	};

	set_factor(x, flip, &call.op_x, &call.x, &call.ld_x, &call.batch_x);
	set_factor(y, flip, &call.op_y, &call.y, &call.ld_y, &call.batch_y);
	return call;
}

static int status_of(cublasStatus_t status)
{
	switch (status) {
	case CUBLAS_STATUS_SUCCESS:
		return cuda_launch_status();
	case CUBLAS_STATUS_ALLOC_FAILED:
		return KOPS_E_NOMEM;
	default:
		return KOPS_E_FAULT;
	}
}

/* Whether the sums go to the workspace. */
static bool has_sums_apart(const struct op_args *args)
{
	return gemm_finishes(args) && dtype_size(args->views[GEMM_C].dtype) == 2;
}

uint64_t gemm_cublas_workspace(const struct op_args *args)
{
	struct gemm_problem p = gemm_problem_of(args);
	uint64_t elements, bytes;

	if (!has_sums_apart(args))
		return 0;
	if (__builtin_mul_overflow(p.batch * p.m, p.n, &elements) ||
	    __builtin_mul_overflow(elements, sizeof(float), &bytes))
		return UINT64_MAX;
	return bytes;
}

/* What cuBLAS is asked for. sums: where they go if they go apart. */
static struct call call_for(const struct op_args *args, void *sums)
{
	struct gemm_problem p = gemm_problem_of(args);

	if (has_sums_apart(args)) {
		p = gemm_by_rows(&p);
		p.c = (struct gemm_operand){sums, (int64_t)(p.m * p.n), (int64_t)p.n, 1};
	}
	struct matrices m = matrices_of(args, &p);
	return call_of(&p, &m);
}

/* ---- Shapes that it knows ---- */

/*
 * For a shape that is new to the process cuBLAS first chooses among its kernels, for all handles, and may have
 * to load one, which takes up to 17 ms. In kopsd, where little of its code is in the caches: medians, H200.
 */
#define FIRST_NS       60e3
#define FIRST_16BIT_NS 150e3 /* it has many kernels for these */
#define FIRST_F64_NS   15e3  /* half of the median: naive, the only other kernel, takes longer than estimated */

static struct seen seen;

/* At least as fine as what cuBLAS tells shapes apart by. */
static uint64_t shape_of(const struct op_args *args)
{
	struct call c = call_for(args, NULL);
	const uint64_t words[] = {
	    (uint64_t)cuda_device_attribute(cudaDevAttrPciDomainId) << 32 |
	        (uint64_t)cuda_device_attribute(cudaDevAttrPciBusId),
	    (uint64_t)args->views[GEMM_A].dtype << 10 | (uint64_t)args->params.gemm.precision << 6 |
	        (uint64_t)has_sums_apart(args) << 5 | (uint64_t)gemm_reads_old(args) << 4 |
	        (uint64_t)c.op_x << 2 | (uint64_t)c.op_y,
	    gemm_problem_of(args).batch,
	    (uint64_t)c.rows,
	    (uint64_t)c.cols,
	    (uint64_t)c.depth,
	    (uint64_t)c.ld_x,
	    (uint64_t)c.ld_y,
	    (uint64_t)c.ld_z,
	    (uint64_t)c.batch_x,
	    (uint64_t)c.batch_y,
	    (uint64_t)c.batch_z,
	};
	uint64_t hash = 1;

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		hash = hash_word(hash, words[i]);
	return hash;
}

double gemm_cublas_first_ns(const struct op_args *args)
{
	kops_dtype dtype = args->views[GEMM_A].dtype;

	if (seen_has(&seen, shape_of(args)))
		return 0;
	return dtype_size(dtype) == 2 ? FIRST_16BIT_NS : dtype == KOPS_F64 ? FIRST_F64_NS : FIRST_NS;
}

/* ---- Launches ---- */

static cublasStatus_t multiply(const struct op_args *args, const struct launch *launch)
{
	const struct gemm_params *params = &args->params.gemm;
	uint64_t batch = gemm_problem_of(args).batch;
	struct call c = call_for(args, launch->workspace);
	bool apart = has_sums_apart(args);
	cudaDataType_t type = type_of(args->views[GEMM_A].dtype), type_z = apart ? CUDA_R_32F : type;
	cublasComputeType_t compute = compute_of(args->views[GEMM_A].dtype, params->precision);
	/* Of real types, only the first is read. */
	const double alpha[] = {params->alpha, params->alpha_imag}, beta[] = {params->beta, params->beta_imag};
	const float alpha32[] = {(float)alpha[0], (float)alpha[1]},
	            beta32[] = {apart ? 0 : (float)beta[0], (float)beta[1]};
	bool f64 = dtype_component(args->views[GEMM_A].dtype) == KOPS_F64;
	const void *scale = f64 ? (const void *)alpha : alpha32, *keep = f64 ? (const void *)beta : beta32;

	if (batch == 1)
		return cublasGemmEx_64((cublasHandle_t)launch->library, c.op_x, c.op_y, c.rows, c.cols, c.depth,
		                       scale, c.x, type, c.ld_x, c.y, type, c.ld_y, keep, c.z, type_z, c.ld_z,
		                       compute, CUBLAS_GEMM_DEFAULT);
	return cublasGemmStridedBatchedEx_64((cublasHandle_t)launch->library, c.op_x, c.op_y, c.rows, c.cols,
	                                     c.depth, scale, c.x, type, c.ld_x, c.batch_x, c.y, type, c.ld_y,
	                                     c.batch_y, keep, c.z, type_z, c.ld_z, c.batch_z, (int64_t)batch,
	                                     compute, CUBLAS_GEMM_DEFAULT);
}

static cublasStatus_t multiply_beside_others(const struct op_args *args, const struct launch *launch)
{
	cublasHandle_t handle = (cublasHandle_t)launch->library;
	int all = (int)cuda_multiprocessors();
	cublasStatus_t status;

	if (launch->multiprocessors_left == 0)
		return multiply(args, launch);
	/* Kernels on tensor cores keep theirs to the end; others take no notice. */
	cublasSetSmCountTarget(handle, all - (int)launch->multiprocessors_left);
	status = multiply(args, launch);
	cublasSetSmCountTarget(handle, 0);
	return status;
}

CUDA_LAUNCH(gemm_cublas)
{
	int rc = status_of(multiply_beside_others(args, launch));

	seen_add(&seen, shape_of(args)); /* whatever became of it: it will not get better */
	if (rc < 0 || !gemm_finishes(args))
		return rc;
	return gemm_finish(args, has_sums_apart(args) ? (const float *)launch->workspace : NULL,
	                   cuda_stream(launch));
}
