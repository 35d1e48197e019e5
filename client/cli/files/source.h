/* source.h: input files. Name, header and size tell what they hold before an element is read. */
#ifndef KOPS_CLI_FILES_SOURCE_H
#define KOPS_CLI_FILES_SOURCE_H

#include <stdbool.h>
#include <stdint.h>

#include "options.h"

struct cli;

struct source {
	const char *path; /* for error sentences: the caller's string, which must outlive the source */
	int fd;           /* -1 when closed */
	bool npy;         /* else raw: dtype and shape are the caller's to set */
	bool fortran;
	bool is_untyped; /* a .npy of bf16, if the caller says so: its header does not */
	bool is_swapped; /* big-endian; source_load() swaps the bytes */
	kops_dtype dtype;
	uint32_t rank;
	uint64_t shape[KOPS_RANK_MAX];
	uint64_t offset; /* bytes before the first element */
	uint64_t bytes;  /* of all elements */
};

/*
 * Opens a file and reads the header of a .npy, or the size of any other file. "-" is standard input, which is
 * read to its end. Refuses files whose name or content shows another format (foreign.h). Returns KOPS_E_INVALID
 * with a sentence in why (CLI_WHY_BYTES) that names the file; *ret is then untouched.
 */
int source_open(const char *path, struct source *ret, char *why);

/*
 * Returns KOPS_E_INVALID with a sentence in why if the source is untyped and the user did not ask for bf16.
 * how: how to ask.
 */
int source_check_typed(const struct source *source, kops_dtype asked, const char *how, char *why);

/* Does nothing if fd is -1. */
void source_close(struct source *source);

/* Sets a raw source's shape. */
void source_set_matrix(struct source *source, uint64_t rows, uint64_t cols);

/*
 * Reads the elements straight into a SHARED buffer in the file's order: Fortran order becomes strides. The
 * buffer is freed with the handle. Shows progress on a terminal for large files. Returns an exit code.
 */
int source_load(const struct source *source, struct cli *cli, kops_view *ret_view);

/*
 * Reads whole elements, from byte `from` of all elements on, on any thread and without showing anything. 0 or
 * KOPS_E_INVALID with a sentence.
 */
int source_read_piece(const struct source *source, void *data, uint64_t bytes, uint64_t from, char *why);

#endif
