/*
 * jobfile.h: parses the text files of `kops-client run`; docs/job-files.md describes them to users. Opens none
 * of the files that they name.
 */
#ifndef KOPS_CLI_FILES_JOBFILE_H
#define KOPS_CLI_FILES_JOBFILE_H

#include "op/operation.h"
#include "options.h"

#define JOBFILE_BYTES_MAX  65536
#define JOBFILE_VALUES_MAX 128
#define JOBFILE_SAVES_MAX  64
#define JOBFILE_NAME_BYTES 64

struct jobfile_operand {
	bool is_given;  /* else an optional operand that is absent */
	unsigned value; /* index into values; below that of the value that uses it */
	bool transposed;
};

/* One "name = …" line. */
struct jobfile_value {
	char name[JOBFILE_NAME_BYTES];
	unsigned line;
	const struct operation *op; /* NULL: loaded from `path`, or another output of a value behind */
	/* op */
	struct jobfile_operand operands[STEP_INPUTS_MAX];
	bool has_old; /* c=NAME, of an op that accumulates */
	unsigned old;
	bool over_old; /* no other line needs that matrix: the result may overwrite it */
	/* another output */
	unsigned output; /* its index among the op's operands; 0: it is none */
	unsigned of;     /* the value that is the op's first output, behind this one */
	/* load */
	const char *path;
	struct flags flags; /* KEY=VALUE, as the options of that name; rows= and cols= are m and n */
};

struct jobfile_save {
	unsigned value;
	unsigned line;
	const char *path;
};

struct jobfile {
	const char *path; /* for error sentences */
	size_t n_values, n_saves;
	struct jobfile_value values[JOBFILE_VALUES_MAX];
	struct jobfile_save saves[JOBFILE_SAVES_MAX];
	char *text; /* the text that the strings above point into */
};

/*
 * Parses len bytes of text; path is named in errors and must outlive the result. KOPS_E_INVALID with
 * "path:line: …" in why (CLI_WHY_BYTES), KOPS_E_NOMEM. Free with jobfile_free().
 */
int jobfile_parse(const char *path, const char *text, size_t len, struct jobfile **ret, char *why);

/* Reads and parses a file, or standard input for "-". Errors as above. */
int jobfile_read(const char *path, struct jobfile **ret, char *why);

void jobfile_free(struct jobfile *file); /* NULL is allowed */

#endif
