/* weights.h: files of arrays that are published, .safetensors and .npy, mapped into memory. */
#ifndef KOPS_CLI_FILES_WEIGHTS_H
#define KOPS_CLI_FILES_WEIGHTS_H

#include <stdint.h>

#include "kops.h"

struct weights {
	const char *path; /* for error sentences: the caller's string */
	const unsigned char *data;
	uint64_t bytes;
};

/* An array of a file, row-major and little-endian. */
struct weight {
	const char *name; /* in the file; "": the file has no names */
	kops_dtype dtype; /* 0: a type that kops does not compute with */
	uint32_t rank;    /* 0 if dtype is; arrays of more than KOPS_RANK_MAX axes become one axis */
	uint64_t shape[KOPS_RANK_MAX];
	const unsigned char *data;
	uint64_t bytes;
};

/*
 * Maps a file. If it is truncated while it is read, the process ends with a sentence (SIGBUS). KOPS_E_INVALID
 * with a sentence in why (CLI_WHY_BYTES).
 */
int weights_open(const char *path, struct weights *ret, char *why);
void weights_close(struct weights *weights);

/*
 * Calls visit(weight, user) for each array in turn; the first result below 0 ends that and is returned. asked:
 * the type that the user gave for a .npy of bf16, or 0. KOPS_E_INVALID with a sentence that names the file.
 */
int weights_each(const struct weights *weights, kops_dtype asked,
                 int (*visit)(const struct weight *weight, void *user), void *user, char *why);

#endif
