/* gemm.h: what the verbs gemm and sgemm share. */
#ifndef KOPS_CLI_VERB_GEMM_H
#define KOPS_CLI_VERB_GEMM_H

#include "cli.h"

#define GEMM_OPTIONS                                                                                           \
	OPTION(NULL, 'm', "M", count, m, "rows of op(A) and C; for .bin files one of -m, -n, -k is enough"),   \
	    OPTION(NULL, 'n', "N", count, n, "columns of op(B) and C"),                                        \
	    OPTION(NULL, 'k', "K", count, k, "columns of op(A), rows of op(B)"),                               \
	    OPTION("trans-a", 0, NULL, switch, trans_a, "A is stored as K×M: use it transposed"),              \
	    OPTION("trans-b", 0, NULL, switch, trans_b, "B is stored as N×K: use it transposed"),              \
	    OPTION("alpha", 0, "X", real, alpha, "factor of the product; default 1"),                          \
	    OPTION("accumulate", 'c', "FILE", text, accumulate, "add beta times this C"),                      \
	    OPTION("beta", 0, "X", real, beta, "factor of the old C; default 1 with -c"),                      \
	    OPTION("precision", 0, "P", precision, precision,                                                  \
	           "what kernels may do to f32: f32 (default), ieee (FMA only), tf32, bf16"),                  \
	    OPTION_OUTPUT

/* only: the dtype that the verb takes, 0 for any. */
int verb_gemm_run(struct cli *cli, char **files, kops_dtype only);

#endif
