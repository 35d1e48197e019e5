/*
 * tuning.h: which kernels were measured to be the fastest for which classes of shapes, on one device.
 *
 * The table is a text file that `kops-bench tune` writes:
 *
 *     kops tuning table 1
 *     [kopsd 0.1.0 on NVIDIA H200, compute capability 9.0, 132 SMs, driver 580.159.04, CUDA 13.0]
 *     # measured 2026-11-21 20:15:00 UTC
 *     gemm/f32/f32/1x1024x1024:2/1x1024x1024:2/1x1024x1024:2 f16x3 35.1 simt 51.6 cublas 61.5
 *
 * A section is for one device as it describes itself, driver included, under one version of kopsd: other
 * sections are passed over. Lines hold a class (shape_class.h), then kernels and the microseconds of each. '#'
 * begins a comment line. Of several lines of one class the last counts. The file is not trusted: what does not
 * look so makes the whole of it void, and kernel names that kopsd does not know are passed over.
 */
#ifndef KOPS_TUNING_H
#define KOPS_TUNING_H

#include "kernel.h"
#include "tuning_table.h"

#define TUNING_WHY_BYTES 256

struct tuning; /* opaque */

/* Whose measurements are wanted. */
struct tuning_owner {
	const char *daemon, *description; /* "kopsd 0.1.0" and what the device says of itself */
	const struct kernel_list *(*kernels)(const struct op *op);
};

/*
 * The owner's section of a table. *ret_tuning: NULL where the table has none; free with tuning_free().
 * *ret_stale: it has one for the same model under another version of kopsd or its driver. KOPS_E_INVALID with
 * the line and what is wrong with it in why, KOPS_E_NOMEM.
 */
int tuning_parse(const char *text, size_t bytes, const struct tuning_owner *owner, struct tuning **ret_tuning,
                 bool *ret_stale, char why[TUNING_WHY_BYTES]);

void tuning_free(struct tuning *tuning); /* NULL allowed */

size_t tuning_count(const struct tuning *tuning); /* classes */

/* What was measured for the class of these checked args; NULL where nothing was, or tuning is NULL. */
const struct tuned *tuning_find(const struct tuning *tuning, const struct op_args *args);

#endif
