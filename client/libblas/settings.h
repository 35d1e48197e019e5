/* settings.h: what the environment says, read once at the first call. */
#ifndef KOPS_LIBBLAS_SETTINGS_H
#define KOPS_LIBBLAS_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

struct settings {
	bool automatic;      /* choose by measurements; else by `threshold` alone */
	double threshold;    /* products of at least so many multiplications, m * n * k, go to kopsd */
	int32_t pblas_block; /* of ScaLAPACK's products */
	unsigned threads;    /* that copy large matrices, the calling one included */
	int verbose;         /* 1: a line for each routine at exit; 2: one for each call too */
};

/* Never changes after the first call. */
const struct settings *settings_get(void);

/* settings_get()->verbose, without a look at the others. */
int settings_verbose(void);

#endif
