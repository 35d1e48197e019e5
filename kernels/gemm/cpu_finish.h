/* cpu_finish.h: what comes after a product on the CPU: bias and activation. */
#ifndef KOPS_KERNELS_GEMM_CPU_FINISH_H
#define KOPS_KERNELS_GEMM_CPU_FINISH_H

#include "kernel.h"

/* alpha * a * b + beta * c of one batch, in f32 or f64, as lines of neighbours. */
struct gemm_sums {
	char *data;
	bool by_columns; /* lines are columns of c */
	int64_t apart;   /* from line to line, in elements */
};

/* Puts activation(sum + bias) in place of the sums. Returns when it is done; uses all threads. */
void gemm_cpu_finish(const struct op_args *args, uint64_t batch, const struct gemm_sums *sums);
/* How long that takes for all batches. */
double gemm_cpu_finish_ns(const struct op_args *args);

#endif
