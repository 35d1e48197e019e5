#include "cublas.h"

CUDA_LAUNCH(gemm_naive);

static bool supports_all(const struct op_args *args, const char **ret_why_not)
{
	(void)args;
	(void)ret_why_not;
	return true;
}

static const struct kernel rows[] = {
    {
        .name = "cublas",
        .idea = "cublasGemmEx",
        .dtypes = "f32 f64 f16 bf16",
        .supports = gemm_cublas_supports,
        .launch = gemm_cublas,
    },
    {
        .name = "naive",
        .idea = "one thread per element of C, operands from global memory",
        .dtypes = "f32 f64 f16 bf16",
        .supports = supports_all,
        .launch = gemm_naive,
    },
};

const struct kernel_list gemm_cuda_rows = {rows, sizeof(rows) / sizeof(rows[0])};
