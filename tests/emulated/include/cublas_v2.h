/* cublas_v2.h: as much of cuBLAS as the described sources name. cublas.c has it for check_emulated. */
#ifndef KOPS_EMULATED_CUBLAS_H
#define KOPS_EMULATED_CUBLAS_H

#include <stdint.h>

typedef struct cublasContext *cublasHandle_t;

typedef enum { CUDA_R_32F, CUDA_R_64F, CUDA_R_16F, CUDA_R_16BF, CUDA_C_32F, CUDA_C_64F } cudaDataType_t;
typedef enum { CUBLAS_OP_N, CUBLAS_OP_T, CUBLAS_OP_C } cublasOperation_t;
typedef enum { CUBLAS_STATUS_SUCCESS, CUBLAS_STATUS_ALLOC_FAILED, CUBLAS_STATUS_NOT_SUPPORTED } cublasStatus_t;
typedef enum { CUBLAS_GEMM_DEFAULT } cublasGemmAlgo_t;
typedef enum {
	CUBLAS_COMPUTE_32F,
	CUBLAS_COMPUTE_32F_PEDANTIC,
	CUBLAS_COMPUTE_32F_FAST_TF32,
	CUBLAS_COMPUTE_32F_FAST_16BF,
	CUBLAS_COMPUTE_64F,
} cublasComputeType_t;

cublasStatus_t cublasSetSmCountTarget(cublasHandle_t handle, int multiprocessors);

cublasStatus_t cublasGemmEx_64(cublasHandle_t handle, cublasOperation_t op_x, cublasOperation_t op_y, int64_t m,
                               int64_t n, int64_t k, const void *alpha, const void *x, cudaDataType_t x_type,
                               int64_t ld_x, const void *y, cudaDataType_t y_type, int64_t ld_y,
                               const void *beta, void *z, cudaDataType_t z_type, int64_t ld_z,
                               cublasComputeType_t compute, cublasGemmAlgo_t algorithm);

cublasStatus_t cublasGemmStridedBatchedEx_64(
    cublasHandle_t handle, cublasOperation_t op_x, cublasOperation_t op_y, int64_t m, int64_t n, int64_t k,
    const void *alpha, const void *x, cudaDataType_t x_type, int64_t ld_x, int64_t batch_x, const void *y,
    cudaDataType_t y_type, int64_t ld_y, int64_t batch_y, const void *beta, void *z, cudaDataType_t z_type,
    int64_t ld_z, int64_t batch_z, int64_t batches, cublasComputeType_t compute, cublasGemmAlgo_t algorithm);

#endif
