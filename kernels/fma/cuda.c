#include "cuda_rows.h"

CUDA_LAUNCH(fma_registers);

static bool supports_all(const struct op_args *args, const char **ret_why_not)
{
	(void)args;
	(void)ret_why_not;
	return true;
}

static const struct kernel rows[] = {
    {
        .name = "registers",
        .idea = "eight elements per thread stay in registers for all steps",
        .dtypes = "f32 f64",
        .takes = "any strides",
        .supports = supports_all,
        .launch = fma_registers,
    },
};

const struct kernel_list fma_cuda_rows = {rows, sizeof(rows) / sizeof(rows[0])};
