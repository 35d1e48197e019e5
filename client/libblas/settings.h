/* settings.h: settings from the environment, read once at the first call. */
#ifndef KOPS_LIBBLAS_SETTINGS_H
#define KOPS_LIBBLAS_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

struct settings {
	bool automatic;      /* measurements choose the side; else `threshold` alone */
	double threshold;    /* least multiplications, m * n * k, of products that go to kopsd */
	int32_t pblas_block; /* block size for ScaLAPACK's products */
	unsigned threads;    /* threads that copy large matrices, including the calling one */
	int verbose;         /* 1: a line for each routine at exit; 2: one for each call too */
};

/* Returns the settings, which never change after the first call. */
const struct settings *settings_get(void);

/* Returns settings_get()->verbose, without reading the others. */
int settings_verbose(void);

/* Returns true if the program's large memory shall be kopsd's to see. Reads no other setting. */
bool settings_alloc(void);

#endif
