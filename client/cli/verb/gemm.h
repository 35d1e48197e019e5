/* gemm.h: the verbs gemm and sgemm, and what job files set of a product. */
#ifndef KOPS_CLI_VERB_GEMM_H
#define KOPS_CLI_VERB_GEMM_H

#include "verb/op.h"

#define GEMM_SETTINGS                                                                                          \
	OPTION("alpha", 0, "X", real, op.alpha, "factor of the product; default 1"),                           \
	    OPTION("beta", 0, "X", real, op.beta, "factor of the old C; default 1 with -c"),                   \
	    OPTION("precision", 0, "P", precision, op.precision,                                               \
	           "what kernels may do to f32: f32 (default), ieee (FMA only), tf32, bf16")

extern const struct command command_gemm, command_sgemm;

/* The operation's fit(): raw files have the shapes that -m, -n, -k and the other files leave them. */
int gemm_fit(struct cli *cli, struct source *const *sources);

#endif
