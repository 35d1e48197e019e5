#include "files/dims.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli.h"

static const enum dims_axis axes_of[3][2] = {{DIMS_M, DIMS_K}, {DIMS_K, DIMS_N}, {DIMS_M, DIMS_N}};
static const char *const file_names[3] = {"op(A)", "op(B)", "C"};
static const char axis_names[DIMS_AXES] = {'M', 'N', 'K'};
static const char axis_letters[DIMS_AXES] = {'m', 'n', 'k'};

/* What is known of M, N and K so far, and from where, for errors. */
struct known {
	bool set[DIMS_AXES];
	uint64_t value[DIMS_AXES];
	char from[DIMS_AXES][128];
};

static void learn(struct known *known, enum dims_axis axis, uint64_t value, const char *from)
{
	known->set[axis] = true;
	known->value[axis] = value;
	snprintf(known->from[axis], sizeof(known->from[axis]), "%s", from);
}

static bool is_square(uint64_t n, uint64_t *ret_root)
{
	*ret_root = (uint64_t)(sqrt((double)n) + 0.5); /* exact where it counts: roots are below 2^32 */
	return *ret_root * *ret_root == n;
}

static int check_elements(const char *path, uint64_t bytes, size_t elem, char *why)
{
	if (bytes % elem == 0)
		return 0;
	return why_invalid(
	    why, "%s has %" PRIu64 " bytes; elements of %zu bytes need a multiple of %zu; is --dtype right?",
	    path, bytes, elem, elem);
}

/* Whether a file has rows × cols elements. what: "c as C"; label: "M×N = " or nothing. */
static int check_size(const char *what, uint64_t bytes, size_t elem, const char *label, uint64_t rows,
                      uint64_t cols, char *why)
{
	uint64_t expected;

	if (__builtin_mul_overflow(rows, cols, &expected) ||
	    __builtin_mul_overflow(expected, (uint64_t)elem, &expected))
		return why_invalid(
		    why, "%s has %" PRIu64 " bytes; %s%" PRIu64 "×%" PRIu64 " is more than any file holds",
		    what, bytes, label, rows, cols);
	if (expected != bytes)
		return why_invalid(why, "%s has %" PRIu64 " bytes; %s%" PRIu64 "×%" PRIu64 " needs %" PRIu64,
		                   what, bytes, label, rows, cols, expected);
	return 0;
}

/* Takes the shape of a file that tells it; f says which operand it is. */
static int learn_shape(struct known *known, const struct dims_file *file, int f, char *why)
{
	uint64_t extents[2] = {file->rows, file->cols};
	char from[128];

	snprintf(from, sizeof(from), "%s as %s", file->path, file_names[f]);
	for (int i = 0; i < 2; i++) {
		enum dims_axis axis = axes_of[f][i];
		if (known->set[axis] && known->value[axis] != extents[i])
			return why_invalid(why,
			                   "%s is %" PRIu64 "×%" PRIu64 ", so %c = %" PRIu64
			                   ", but %c = %" PRIu64 " by %s",
			                   from, file->rows, file->cols, axis_names[axis], extents[i],
			                   axis_names[axis], known->value[axis], known->from[axis]);
		learn(known, axis, extents[i], from);
	}
	return 0;
}

/* Finds the second extent of a raw file whose first is known. */
static int divide(struct known *known, const struct dims_file *file, int f, size_t elem, char *why)
{
	for (int i = 0; i < 2; i++) {
		enum dims_axis have = axes_of[f][i], want = axes_of[f][1 - i];
		if (!known->set[have] || known->set[want] || known->value[have] == 0)
			continue;
		uint64_t elements = file->bytes / elem;
		if (elements % known->value[have] != 0)
			return why_invalid(why,
			                   "%s as %s has %" PRIu64 " bytes; %c = %" PRIu64
			                   " (by %s) needs a multiple of %" PRIu64,
			                   file->path, file_names[f], file->bytes, axis_names[have],
			                   known->value[have], known->from[have], known->value[have] * elem);
		learn(known, want, elements / known->value[have], file->path);
	}
	return 0;
}

/* Two raw files of one square size and nothing else to go by. */
static void assume_square(struct known *known, const struct dims_file files[3], size_t elem)
{
	uint64_t root;

	if (known->set[DIMS_M] || known->set[DIMS_N] || known->set[DIMS_K] ||
	    files[0].bytes != files[1].bytes || !is_square(files[0].bytes / elem, &root))
		return;
	for (int axis = 0; axis < DIMS_AXES; axis++)
		learn(known, (enum dims_axis)axis, root, files[0].path);
}

static int verify(const struct known *known, const struct dims_file *file, int f, size_t elem, char *why)
{
	enum dims_axis r = axes_of[f][0], c = axes_of[f][1];
	char what[128], label[16];

	snprintf(what, sizeof(what), "%s as %s", file->path, file_names[f]);
	snprintf(label, sizeof(label), "%c×%c = ", axis_names[r], axis_names[c]);
	return check_size(what, file->bytes, elem, label, known->value[r], known->value[c], why);
}

static int all_known(const struct known *known, const struct dims_file files[3], char *why)
{
	bool nothing = !known->set[DIMS_M] && !known->set[DIMS_N] && !known->set[DIMS_K];

	if (nothing)
		return why_invalid(why,
		                   "the sizes of %s (%" PRIu64 " bytes) and %s (%" PRIu64
		                   " bytes) do not tell their shapes: give one of -m, -n, -k",
		                   files[0].path, files[0].bytes, files[1].path, files[1].bytes);
	for (int axis = 0; axis < DIMS_AXES; axis++)
		if (!known->set[axis])
			return why_invalid(why, "%c follows from nothing: give -%c", axis_names[axis],
			                   axis_letters[axis]);
	return 0;
}

int dims_product(const struct dims_file files[3], const struct opt_count given[DIMS_AXES], size_t elem,
                 uint64_t ret[DIMS_AXES], char *why)
{
	struct known known = {0};
	int rc = 0;

	for (int axis = 0; axis < DIMS_AXES; axis++) {
		char from[3] = {'-', axis_letters[axis], '\0'};
		if (given[axis].set)
			learn(&known, (enum dims_axis)axis, given[axis].value, from);
	}
	for (int f = 0; f < 3 && rc == 0; f++)
		if (files[f].raw)
			rc = check_elements(files[f].path, files[f].bytes, elem, why);
		else if (files[f].path)
			rc = learn_shape(&known, &files[f], f, why);
	/* Each round but the last finds an axis. */
	for (int i = 0; i < 3 * DIMS_AXES && rc == 0; i++)
		if (files[i % 3].raw)
			rc = divide(&known, &files[i % 3], i % 3, elem, why);
	if (rc == 0) {
		assume_square(&known, files, elem);
		rc = all_known(&known, files, why);
	}
	for (int f = 0; f < 3 && rc == 0; f++)
		if (files[f].raw)
			rc = verify(&known, &files[f], f, elem, why);
	if (rc == 0)
		memcpy(ret, known.value, sizeof(known.value));
	return rc;
}

int dims_matrix(const char *path, uint64_t bytes, size_t elem, struct opt_count rows, struct opt_count cols,
                uint64_t *ret_rows, uint64_t *ret_cols, char *why)
{
	struct opt_count *given = rows.set ? &rows : &cols, *other = rows.set ? &cols : &rows;
	uint64_t elements = bytes / elem, have = given->value;

	int rc = check_elements(path, bytes, elem, why);
	if (rc < 0)
		return rc;
	if (!given->set) {
		if (!is_square(elements, &rows.value))
			return why_invalid(
			    why, "the size of %s (%" PRIu64 " bytes) does not tell its shape: give -m or -n",
			    path, bytes);
		cols.value = rows.value;
	} else if (!other->set) {
		if (have == 0)
			return why_invalid(why, "the shape of %s needs both -m and -n when one is 0", path);
		if (elements % have != 0)
			return why_invalid(
			    why, "%s has %" PRIu64 " bytes; -%c %" PRIu64 " needs a multiple of %" PRIu64, path,
			    bytes, rows.set ? 'm' : 'n', have, have * elem);
		other->value = elements / have;
	}
	rc = check_size(path, bytes, elem, "", rows.value, cols.value, why);
	if (rc == 0) {
		*ret_rows = rows.value;
		*ret_cols = cols.value;
	}
	return rc;
}

int dims_repeated(const char *path, uint64_t bytes, size_t elem, uint64_t rows, uint64_t cols,
                  uint64_t *ret_rows, uint64_t *ret_cols, char *why)
{
	const uint64_t shapes[4][2] = {{rows, cols}, {1, cols}, {rows, 1}, {1, 1}};

	int rc = check_elements(path, bytes, elem, why);
	if (rc < 0)
		return rc;
	for (int i = 0; i < 4; i++) {
		if (shapes[i][0] * shapes[i][1] != bytes / elem)
			continue;
		*ret_rows = shapes[i][0];
		*ret_cols = shapes[i][1];
		return 0;
	}
	return why_invalid(why,
	                   "%s has %" PRIu64 " bytes; beside %" PRIu64 "×%" PRIu64 " it needs %" PRIu64
	                   " (the whole), %" PRIu64 " (a row), %" PRIu64 " (a column) or %zu (one element)",
	                   path, bytes, rows, cols, rows * cols * elem, cols * elem, rows * elem, elem);
}
