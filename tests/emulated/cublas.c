/* cublas.c: cuBLAS's products by plain loops in f64, so that what cublas.c of gemm asks for can be checked. */
#include <cublas_v2.h>
#include <stdbool.h>

#include "common/half.h"
#include "dtype.h"

struct number {
	double re, im;
};

/* A matrix as cuBLAS reads it, by columns. */
struct operand {
	const void *data;
	cudaDataType_t type;
	int64_t ld, batch; /* elements */
	cublasOperation_t op;
};

static kops_dtype dtype_of(cudaDataType_t type)
{
	static const kops_dtype dtypes[] = {
	    [CUDA_R_32F] = KOPS_F32,   [CUDA_R_64F] = KOPS_F64, [CUDA_R_16F] = KOPS_F16,
	    [CUDA_R_16BF] = KOPS_BF16, [CUDA_C_32F] = KOPS_C64, [CUDA_C_64F] = KOPS_C128,
	};

	return dtypes[type];
}

static struct number load(const void *data, kops_dtype dtype, int64_t at)
{
	kops_dtype part = dtype_component(dtype);

	if (part == dtype)
		return (struct number){half_load(data, dtype, at), 0};
	return (struct number){half_load(data, part, 2 * at), half_load(data, part, 2 * at + 1)};
}

static void store(void *data, kops_dtype dtype, int64_t at, struct number x)
{
	kops_dtype part = dtype_component(dtype);
	unsigned parts = dtype_components(dtype);

	half_store(data, part, at * parts, x.re);
	if (parts > 1)
		half_store(data, part, at * parts + 1, x.im);
}

/* Element (row, col) of op(X). */
static struct number element(const struct operand *x, int64_t batch, int64_t row, int64_t col)
{
	int64_t at = x->op == CUBLAS_OP_N ? row + col * x->ld : col + row * x->ld;
	struct number v = load(x->data, dtype_of(x->type), batch * x->batch + at);

	return (struct number){v.re, x->op == CUBLAS_OP_C ? -v.im : v.im};
}

/* Real numbers stay real, beside infinities too. */
static struct number add_product(struct number sum, struct number x, struct number y)
{
	if (x.im == 0 && y.im == 0)
		return (struct number){sum.re + x.re * y.re, sum.im};
	return (struct number){sum.re + (x.re * y.re - x.im * y.im), sum.im + (x.re * y.im + x.im * y.re)};
}

/* alpha and beta are of the type that is computed in, and complex where that is. */
static struct number factor_of(const void *factor, cudaDataType_t type, cublasComputeType_t compute)
{
	bool wide = compute == CUBLAS_COMPUTE_64F;

	if (dtype_components(dtype_of(type)) > 1)
		return load(factor, wide ? KOPS_C128 : KOPS_C64, 0);
	return load(factor, wide ? KOPS_F64 : KOPS_F32, 0);
}

cublasStatus_t cublasSetSmCountTarget(cublasHandle_t handle, int multiprocessors)
{
	(void)handle, (void)multiprocessors;
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGemmStridedBatchedEx_64(
    cublasHandle_t handle, cublasOperation_t op_x, cublasOperation_t op_y, int64_t m, int64_t n, int64_t k,
    const void *alpha, const void *x, cudaDataType_t x_type, int64_t ld_x, int64_t batch_x, const void *y,
    cudaDataType_t y_type, int64_t ld_y, int64_t batch_y, const void *beta, void *z, cudaDataType_t z_type,
    int64_t ld_z, int64_t batch_z, int64_t batches, cublasComputeType_t compute, cublasGemmAlgo_t algorithm)
{
	const struct operand of_x = {x, x_type, ld_x, batch_x, op_x}, of_y = {y, y_type, ld_y, batch_y, op_y};
	const struct number scale = factor_of(alpha, x_type, compute), keep = factor_of(beta, x_type, compute);
	bool reads_old = keep.re != 0 || keep.im != 0;
	kops_dtype dtype = dtype_of(z_type);

	(void)handle, (void)algorithm;
	for (int64_t batch = 0; batch < batches; batch++)
		for (int64_t i = 0; i < m * n; i++) {
			struct number sum = {0, 0}, result = {0, 0};
			int64_t at = batch * batch_z + i / m * ld_z + i % m;
			for (int64_t l = 0; l < k; l++)
				sum = add_product(sum, element(&of_x, batch, i % m, l),
				                  element(&of_y, batch, l, i / m));
			if (reads_old)
				result = add_product(result, keep, load(z, dtype, at));
			store(z, dtype, at, add_product(result, scale, sum));
		}
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGemmEx_64(cublasHandle_t handle, cublasOperation_t op_x, cublasOperation_t op_y, int64_t m,
                               int64_t n, int64_t k, const void *alpha, const void *x, cudaDataType_t x_type,
                               int64_t ld_x, const void *y, cudaDataType_t y_type, int64_t ld_y,
                               const void *beta, void *z, cudaDataType_t z_type, int64_t ld_z,
                               cublasComputeType_t compute, cublasGemmAlgo_t algorithm)
{
	return cublasGemmStridedBatchedEx_64(handle, op_x, op_y, m, n, k, alpha, x, x_type, ld_x, 0, y, y_type,
	                                     ld_y, 0, beta, z, z_type, ld_z, 0, 1, compute, algorithm);
}
