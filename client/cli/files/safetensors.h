/*
 * safetensors.h: headers of .safetensors files: 8 bytes with the header's length, then JSON that names each
 * tensor, its type, shape and place among the data that follow.
 */
#ifndef KOPS_CLI_FILES_SAFETENSORS_H
#define KOPS_CLI_FILES_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kops.h"

#define SAFETENSORS_HEADER_MAX (100u << 20) /* as in the format's own reader */
#define SAFETENSORS_NAME_BYTES 256          /* longer names are refused */
#define SAFETENSORS_RANK_MAX   16

struct safetensor {
	char name[SAFETENSORS_NAME_BYTES];
	char type[12];    /* as in the file: "BF16" */
	kops_dtype dtype; /* 0: a type that kops does not compute with */
	uint32_t rank;    /* 0 … SAFETENSORS_RANK_MAX */
	uint64_t shape[SAFETENSORS_RANK_MAX];
	uint64_t offset; /* from the file's start */
	uint64_t bytes;
};

/*
 * Reads the header of a whole file of `len` bytes, and calls visit(tensor, user) for each tensor in turn; the
 * first result below 0 ends the reading and is returned. KOPS_E_INVALID with a sentence in why (CLI_WHY_BYTES)
 * that does not name the file.
 */
int safetensors_read(const unsigned char *file, uint64_t len,
                     int (*visit)(const struct safetensor *tensor, void *user), void *user, char *why);

bool safetensors_is_name(const char *path); /* it ends in .safetensors */

#endif
