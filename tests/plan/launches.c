/* launches.c: the launches of described kernels. Planning launches nothing, so each of these fails the test. */
#include <stdlib.h>

#include "cholesky/kernels.h"
#include "common/cuda.h"
#include "gemm/kernels.h"
#include "lu/kernels.h"
#include "search/split.h"

#include <cublas_v2.h>

#define X(name)                                                                                                \
	CUDA_TOGETHER(name);                                                                                   \
	CUDA_TOGETHER(name)                                                                                    \
	{                                                                                                      \
		(void)args;                                                                                    \
		(void)n;                                                                                       \
		(void)launch;                                                                                  \
		abort();                                                                                       \
	}
X(copy_vector_together)
X(copy_strided_together)
#undef X

CUDA_LAUNCH(copy_vector);
CUDA_LAUNCH(copy_vector)
{
	(void)args;
	(void)launch;
	abort();
}

int cuda_copy_strided(const struct view *x, const struct view *y, cudaStream_t stream)
{
	(void)x;
	(void)y;
	(void)stream;
	abort();
}

int gemm_finish(const struct op_args *args, const float *sums, cudaStream_t stream)
{
	(void)args;
	(void)sums;
	(void)stream;
	abort();
}

int search_lanes_for(const struct op_args *args, const unsigned *wanted, void *workspace,
                     const struct launch *launch)
{
	(void)args;
	(void)wanted;
	(void)workspace;
	(void)launch;
	abort();
}

int cuda_convert(const struct view *from, const struct view *to, const struct launch *launch)
{
	(void)from;
	(void)to;
	(void)launch;
	abort();
}

CUDA_LAUNCH(gemm_complex);
CUDA_LAUNCH(gemm_complex)
{
	(void)args;
	(void)launch;
	abort();
}

int linalg_solve_block(const struct linalg_solve *s, const struct launch *launch)
{
	(void)s;
	(void)launch;
	abort();
}

int cholesky_factor_block(const struct linalg_batch *m, const struct launch *launch)
{
	(void)m;
	(void)launch;
	abort();
}

int cholesky_finish(const struct op_args *args, const struct linalg_batch *w, uint64_t outer, int32_t *found,
                    const struct launch *launch)
{
	(void)args;
	(void)w;
	(void)outer;
	(void)found;
	(void)launch;
	abort();
}

int lu_factor_panel(const struct linalg_batch *panel, const struct lu_exchanges *x, const struct launch *launch)
{
	(void)panel;
	(void)x;
	(void)launch;
	abort();
}

int lu_exchange_rows(const struct linalg_batch *m, const struct lu_exchanges *x, const struct launch *launch)
{
	(void)m;
	(void)x;
	(void)launch;
	abort();
}

int lu_finish(const struct op_args *args, const struct linalg_batch *w, uint64_t outer,
              const struct lu_exchanges *x, const struct launch *launch)
{
	(void)args;
	(void)w;
	(void)outer;
	(void)x;
	(void)launch;
	abort();
}

/* ---- The CUDA runtime, cuBLAS ---- */

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
	(void)to;
	(void)from;
	(void)bytes;
	(void)kind;
	(void)stream;
	abort();
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                              size_t height, enum cudaMemcpyKind kind, cudaStream_t stream)
{
	(void)to;
	(void)to_pitch;
	(void)from;
	(void)from_pitch;
	(void)width;
	(void)height;
	(void)kind;
	(void)stream;
	abort();
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *ret, const void *address)
{
	(void)ret, (void)address;
	abort();
}

cublasStatus_t cublasSetSmCountTarget(cublasHandle_t handle, int multiprocessors)
{
	(void)handle, (void)multiprocessors;
	abort();
}

cublasStatus_t cublasGemmEx_64(cublasHandle_t handle, cublasOperation_t op_x, cublasOperation_t op_y, int64_t m,
                               int64_t n, int64_t k, const void *alpha, const void *x, cudaDataType_t x_type,
                               int64_t ld_x, const void *y, cudaDataType_t y_type, int64_t ld_y,
                               const void *beta, void *z, cudaDataType_t z_type, int64_t ld_z,
                               cublasComputeType_t compute, cublasGemmAlgo_t algorithm)
{
	(void)handle, (void)op_x, (void)op_y, (void)m, (void)n, (void)k, (void)alpha, (void)x, (void)x_type;
	(void)ld_x, (void)y, (void)y_type, (void)ld_y, (void)beta, (void)z, (void)z_type, (void)ld_z;
	(void)compute, (void)algorithm;
	abort();
}

cublasStatus_t cublasGemmStridedBatchedEx_64(
    cublasHandle_t handle, cublasOperation_t op_x, cublasOperation_t op_y, int64_t m, int64_t n, int64_t k,
    const void *alpha, const void *x, cudaDataType_t x_type, int64_t ld_x, int64_t batch_x, const void *y,
    cudaDataType_t y_type, int64_t ld_y, int64_t batch_y, const void *beta, void *z, cudaDataType_t z_type,
    int64_t ld_z, int64_t batch_z, int64_t batches, cublasComputeType_t compute, cublasGemmAlgo_t algorithm)
{
	(void)handle, (void)op_x, (void)op_y, (void)m, (void)n, (void)k, (void)alpha, (void)x, (void)x_type;
	(void)ld_x, (void)batch_x, (void)y, (void)y_type, (void)ld_y, (void)batch_y, (void)beta, (void)z;
	(void)z_type, (void)ld_z, (void)batch_z, (void)batches, (void)compute, (void)algorithm;
	abort();
}
