/* refine.h: what the host decides for the kernel `refine` of search. */
#ifndef KOPS_KERNELS_SEARCH_REFINE_H
#define KOPS_KERNELS_SEARCH_REFINE_H

#include "search/split.h"
#include "search/wgmma_plan.h"

#ifdef __cplusplus
extern "C" {
#endif

#define REFINE_MOST 32 /* results */

bool search_refine_supports(const struct op_args *args, const char **ret_why_not);
uint64_t search_refine_workspace(const struct op_args *args);
double search_refine_ns(const struct op_args *args);

#ifdef __cplusplus
}
#endif

#endif
