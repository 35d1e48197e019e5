/* settings.c: KOPS_BLAS_THRESHOLD and KOPS_BLAS_VERBOSE. */
#include "settings.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Below 128 × 128 × 128 a message each way takes longer than the product. */
#define SMALLEST (128.0 * 128.0 * 128.0)

static struct settings settings;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void read_threshold(void)
{
	const char *text = secure_getenv("KOPS_BLAS_THRESHOLD");
	char *end;
	settings.automatic = true;
	settings.threshold = SMALLEST;
	if (!text || !*text)
		return;
	double side = strtod(text, &end);
	if (*end || !(side >= 0)) {
		dprintf(
		    2,
		    "kops-blas: KOPS_BLAS_THRESHOLD is \"%s\", which is not a number from 0 to inf: ignored\n",
		    text);
		return;
	}
	settings.automatic = false;
	settings.threshold = side * side * side;
}

static void read_all(void)
{
	const char *verbose = secure_getenv("KOPS_BLAS_VERBOSE");
	read_threshold();
	settings.verbose = verbose ? atoi(verbose) : 0;
	/* The daemon's own products, should its BLAS be this library: they must not come back to it. */
	if (strcmp(program_invocation_short_name, "kopsd") == 0)
		settings = (struct settings){.threshold = INFINITY};
}

const struct settings *settings_get(void)
{
	pthread_once(&once, read_all);
	return &settings;
}
