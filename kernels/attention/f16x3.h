/* f16x3.h: what the host decides for the kernel `f16x3`. */
#ifndef KOPS_KERNELS_ATTENTION_F16X3_H
#define KOPS_KERNELS_ATTENTION_F16X3_H

#include "attention/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

bool attention_f16x3_supports(const struct op_args *args, const char **ret_why_not);
uint64_t attention_f16x3_workspace(const struct op_args *args);
double attention_f16x3_ns(const struct op_args *args);

#ifdef __cplusplus
}
#endif

#endif
