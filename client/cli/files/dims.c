#include "files/dims.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

static const enum dims_axis axes_of[3][2] = {{DIMS_M, DIMS_K}, {DIMS_K, DIMS_N}, {DIMS_M, DIMS_N}};
static const char *const file_names[3] = {"op(A)", "op(B)", "C"};
static const char axis_names[DIMS_AXES] = {'M', 'N', 'K'};
static const char axis_letters[DIMS_AXES] = {'m', 'n', 'k'};

/* The extents of M, N and K that are known so far, and their origins, for errors. */
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
	*ret_root = (uint64_t)(sqrt((double)n) + 0.5); /* exact, since roots that matter are below 2^32 */
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

/* Checks that a file has rows × cols elements. what: "c as C"; label: "M×N = " or "". */
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

/* Takes the shape from a file that has one; f says which operand it is. */
static int learn_shape(struct known *known, const struct source *s, int f, bool transposed, char *why)
{
	char from[128];

	if (s->rank < 2 || s->rank > 3)
		return why_invalid(why, "%s has %u dimension%s; a product takes 2, or 3 with a batch in front",
		                   s->path, s->rank, s->rank == 1 ? "" : "s");
	const uint64_t *e = &s->shape[s->rank - 2];
	snprintf(from, sizeof(from), "%s as %s", s->path, file_names[f]);
	for (int i = 0; i < 2; i++) {
		enum dims_axis axis = axes_of[f][i];
		uint64_t extent = e[transposed ? 1 - i : i];
		if (known->set[axis] && known->value[axis] != extent)
			return why_invalid(why,
			                   "%s is %" PRIu64 "×%" PRIu64 ", so %c = %" PRIu64
			                   ", but %c = %" PRIu64 " by %s",
			                   from, e[transposed], e[!transposed], axis_names[axis], extent,
			                   axis_names[axis], known->value[axis], known->from[axis]);
		learn(known, axis, extent, from);
	}
	return 0;
}

/* Computes the second extent of a raw file whose first is known. */
static int divide(struct known *known, const struct source *s, int f, size_t elem, char *why)
{
	for (int i = 0; i < 2; i++) {
		enum dims_axis have = axes_of[f][i], want = axes_of[f][1 - i];
		if (!known->set[have] || known->set[want] || known->value[have] == 0)
			continue;
		uint64_t elements = s->bytes / elem;
		if (elements % known->value[have] != 0)
			return why_invalid(why,
			                   "%s as %s has %" PRIu64 " bytes; %c = %" PRIu64
			                   " (by %s) needs a multiple of %" PRIu64,
			                   s->path, file_names[f], s->bytes, axis_names[have],
			                   known->value[have], known->from[have], known->value[have] * elem);
		learn(known, want, elements / known->value[have], s->path);
	}
	return 0;
}

/*
 * If no axis is known, takes two raw files of one square size as squares. Fails unless all axes are known then.
 */
static int complete(struct known *known, const struct source *a, const struct source *b, size_t elem, char *why)
{
	uint64_t root;

	if (!known->set[DIMS_M] && !known->set[DIMS_N] && !known->set[DIMS_K]) {
		if (a->bytes != b->bytes || !is_square(a->bytes / elem, &root))
			return why_invalid(why,
			                   "cannot infer the shapes of %s (%" PRIu64 " bytes) and %s (%" PRIu64
			                   " bytes) from their sizes: give one of -m, -n, -k",
			                   a->path, a->bytes, b->path, b->bytes);
		for (int axis = 0; axis < DIMS_AXES; axis++)
			learn(known, (enum dims_axis)axis, root, a->path);
	}
	for (int axis = 0; axis < DIMS_AXES; axis++)
		if (!known->set[axis])
			return why_invalid(why, "cannot infer %c: give -%c", axis_names[axis],
			                   axis_letters[axis]);
	return 0;
}

static int set_shape(const struct known *known, struct source *s, int f, bool transposed, size_t elem,
                     char *why)
{
	enum dims_axis r = axes_of[f][0], c = axes_of[f][1];
	uint64_t rows = known->value[r], cols = known->value[c];
	char what[CLI_WHY_BYTES / 2], label[16];

	snprintf(what, sizeof(what), "%s as %s", s->path, file_names[f]);
	snprintf(label, sizeof(label), "%c×%c = ", axis_names[r], axis_names[c]);
	source_set_matrix(s, transposed ? cols : rows, transposed ? rows : cols);
	return check_size(what, s->bytes, elem, label, rows, cols, why);
}

int dims_product(struct source *const sources[3], const bool transposed[3],
                 const struct opt_count given[DIMS_AXES], char *why)
{
	size_t elem = kops_dtype_size(sources[0]->dtype);
	struct known known = {0};
	int rc = 0;

	for (int axis = 0; axis < DIMS_AXES; axis++) {
		char from[3] = {'-', axis_letters[axis], '\0'};
		if (given[axis].set)
			learn(&known, (enum dims_axis)axis, given[axis].value, from);
	}
	for (int f = 0; f < 3 && rc == 0 && sources[f]; f++)
		rc = sources[f]->npy ? learn_shape(&known, sources[f], f, transposed[f], why)
		                     : check_elements(sources[f]->path, sources[f]->bytes, elem, why);
	/* Each round but the last finds an axis. */
	for (int i = 0; i < 3 * DIMS_AXES && rc == 0; i++)
		if (sources[i % 3] && !sources[i % 3]->npy)
			rc = divide(&known, sources[i % 3], i % 3, elem, why);
	if (rc == 0)
		rc = complete(&known, sources[0], sources[1], elem, why);
	for (int f = 0; f < 3 && rc == 0 && sources[f]; f++)
		if (!sources[f]->npy)
			rc = set_shape(&known, sources[f], f, transposed[f], elem, why);
	return rc;
}

int dims_matrix(struct source *s, struct opt_count rows, struct opt_count cols, char *why)
{
	struct opt_count *given = rows.set ? &rows : &cols, *other = rows.set ? &cols : &rows;
	size_t elem = kops_dtype_size(s->dtype);
	uint64_t elements = s->bytes / elem, have = given->value;

	if (s->npy) {
		uint64_t r = s->rank > 1 ? s->shape[s->rank - 2] : 1, c = s->shape[s->rank - 1];
		if ((rows.set && rows.value != r) || (cols.set && cols.value != c))
			return why_invalid(why, "%s is %" PRIu64 "×%" PRIu64 ", which contradicts -m and -n",
			                   s->path, r, c);
		return 0;
	}
	int rc = check_elements(s->path, s->bytes, elem, why);
	if (rc < 0)
		return rc;
	if (!given->set) {
		if (!is_square(elements, &rows.value))
			return why_invalid(why,
			                   "cannot infer the shape of %s (%" PRIu64
			                   " bytes) from its size: give -m or -n",
			                   s->path, s->bytes);
		cols.value = rows.value;
	} else if (!other->set) {
		if (have == 0)
			return why_invalid(why, "the shape of %s needs both -m and -n when one is 0", s->path);
		if (elements % have != 0)
			return why_invalid(
			    why, "%s has %" PRIu64 " bytes; -%c %" PRIu64 " needs a multiple of %" PRIu64,
			    s->path, s->bytes, rows.set ? 'm' : 'n', have, have * elem);
		other->value = elements / have;
	}
	source_set_matrix(s, rows.value, cols.value);
	return check_size(s->path, s->bytes, elem, "", rows.value, cols.value, why);
}

int dims_vector(struct source *s, char *why)
{
	size_t elem = kops_dtype_size(s->dtype);
	int rc = check_elements(s->path, s->bytes, elem, why);

	if (rc < 0)
		return rc;
	s->rank = 1;
	s->shape[0] = s->bytes / elem;
	return 0;
}

int dims_repeated(struct source *s, uint64_t rows, uint64_t cols, char *why)
{
	const uint64_t shapes[4][2] = {{rows, cols}, {1, cols}, {rows, 1}, {1, 1}};
	size_t elem = kops_dtype_size(s->dtype);

	int rc = check_elements(s->path, s->bytes, elem, why);
	if (rc < 0)
		return rc;
	for (int i = 0; i < 4; i++) {
		source_set_matrix(s, shapes[i][0], shapes[i][1]);
		if (shapes[i][0] * shapes[i][1] == s->bytes / elem)
			return 0;
	}
	return why_invalid(why,
	                   "%s has %" PRIu64 " bytes; beside %" PRIu64 "×%" PRIu64 " it needs %" PRIu64
	                   " (the whole), %" PRIu64 " (a row), %" PRIu64 " (a column) or %zu (one element)",
	                   s->path, s->bytes, rows, cols, rows * cols * elem, cols * elem, rows * elem, elem);
}
