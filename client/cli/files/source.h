/* source.h: input files: what they hold is known from name, header and size before an element is read. */
#ifndef KOPS_CLI_FILES_SOURCE_H
#define KOPS_CLI_FILES_SOURCE_H

#include <stdbool.h>
#include <stdint.h>

#include "options.h"

struct cli;

struct source {
	const char *path; /* for sentences: the caller's string, which must outlive the source */
	int fd;           /* -1 when closed */
	bool npy;         /* else raw: dtype and shape are the caller's to set */
	bool fortran;
	bool is_untyped; /* a .npy of bf16, if the caller says so: its header does not */
	bool is_swapped; /* big-endian; source_load() turns it */
	kops_dtype dtype;
	uint32_t rank;
	uint64_t shape[KOPS_RANK_MAX];
	uint64_t offset; /* bytes before the first element */
	uint64_t bytes;  /* of all elements */
};

/*
 * Opens and reads a .npy header, or for any other file takes its size. "-" is standard input, which is read to
 * its end. Refuses files whose name or content shows another format (foreign.h). KOPS_E_INVALID with a sentence
 * that names the file in why (CLI_WHY_BYTES); *ret is untouched then.
 */
int source_open(const char *path, struct source *ret, char *why);

/* KOPS_E_INVALID with a sentence in why where it is untyped and the user has not asked for bf16; how: to ask.
 */
int source_check_typed(const struct source *source, kops_dtype asked, const char *how, char *why);

/* Allowed on one that is closed or was never opened but has fd -1. */
void source_close(struct source *source);

/* Sets a raw source's shape. */
void source_set_matrix(struct source *source, uint64_t rows, uint64_t cols);

/*
 * Reads the elements straight into a SHARED buffer, in the file's order: Fortran order becomes strides. The
 * buffer is freed with the handle. Shows progress on a terminal for large files. An exit code.
 */
int source_load(const struct source *source, struct cli *cli, kops_view *ret_view);

#endif
