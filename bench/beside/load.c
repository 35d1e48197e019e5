#include "beside/load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dtype.h"
#include "files/element.h"
#include "nearest.h"

#define FORM     "OP[:DTYPE[:PRECISION]]:SHAPE[:xN][:host][:anew]"
#define VARY_MAX 64 /* extents of new shapes are smaller by less than this, and by less than half */

/* 16384² of f32 is 1 GiB. */
static const char *const gpu_loads[] = {
    "gemm:f32:1024",  "gemm:f32:4096",    "gemm:f32:8192",      "gemm:f32:16384",     "gemm:f16:8192",
    "gemm:bf16:8192", "gemm:f64:4096",    "gemm:f32:tf32:8192", "softmax:f32:16384",  "transpose:f32:16384",
    "add:f32:16384",  "reduce:f32:16384", "gemm:f32:4096:x16",  "gemm:f32:8192:host", "gemm:f32:4096:anew"};
static const char *const cpu_loads[] = {
    "gemm:f32:2048",      "gemm:f32:4096", "gemm:f64:2048",   "gemm:f64:4096",     "softmax:f32:4096",
    "transpose:f32:4096", "add:f32:4096",  "reduce:f32:4096", "gemm:f32:1024:x16", "gemm:f32:2048:anew"};

/* ---- one load ---- */

static bool read_word(const struct option_type *type, const char *word, unsigned *ret)
{
	for (unsigned i = 0; word && type->words[i]; i++)
		if (strcmp(word, type->words[i]) == 0) {
			*ret = type->first + i;
			return true;
		}
	return false;
}

static int read_op(const char *word, struct load *load, char *why)
{
	struct nearest nearest = nearest_to(word, strlen(word));
	char hint[96], names[CLI_WHY_BYTES / 2], all[CLI_WHY_BYTES / 2];

	load->op = operation_by_name(word);
	if (load->op)
		return 0;
	for (size_t i = 0; i < OPERATIONS; i++)
		nearest_offer(&nearest, operation_at(i)->name);
	snprintf(all, sizeof(all), "write " FORM " with %s", operation_names(names, sizeof(names) - 64));
	return why_invalid(why, "'%s' does not begin with an op; %s", load->text,
	                   nearest_hint(&nearest, "", all, hint));
}

static int check_types(const struct load *load, char *why)
{
	const struct option_row *settings = load->op->settings;
	struct step step;
	int rc = bench_shape_step(load->op, load->dtype, &load->shape, NULL, &step, why);

	if (load->has_precision &&
	    (load->dtype != KOPS_F32 || !settings || !options_find(settings, "precision")))
		return why_invalid(why, "'%s' has a precision, which only products of f32 have; leave it out",
		                   load->text);
	return rc < 0 ? rc : step_shape(&step, why);
}

static int read_shape(const char *word, struct load *load, char *why)
{
	struct bench_shapes shapes;

	if (word == NULL || strchr(word, ','))
		return why_invalid(why, "'%s' needs one shape: write " FORM ", such as gemm:f32:4096x4096x4096",
		                   load->text);
	int rc = bench_shapes_read(load->op, word, &shapes, why);
	if (rc < 0)
		return why_invalid(why, "'%s' in '%s' is neither a type nor a shape for %s: write %s", word,
		                   load->text, load->op->name, load->op->bench.form);
	load->shape = shapes.list[0];
	return check_types(load, why);
}

static int read_ops(const char *digits, struct load *load, char *why)
{
	char *end;
	unsigned long n = strtoul(digits, &end, 10);

	if (digits[0] < '1' || digits[0] > '9' || *end != '\0' || n > LOAD_OPS_MAX)
		return why_invalid(why, "'x%s' in '%s' is no number of ops in a job: write x1 to x%d", digits,
		                   load->text, LOAD_OPS_MAX);
	load->ops = (unsigned)n;
	return 0;
}

static int read_rest(char *rest, struct load *load, char *why)
{
	const char *word;
	int rc = 0;

	while (rc == 0 && (word = strsep(&rest, ":")) != NULL)
		if (strcmp(word, "host") == 0)
			load->host = true;
		else if (strcmp(word, "anew") == 0)
			load->anew = true;
		else if (word[0] == 'x')
			rc = read_ops(word + 1, load, why);
		else
			rc = why_invalid(why, "'%s' in '%s' is unknown; after the shape come xN, host and anew",
			                 word, load->text);
	return rc;
}

int load_read(const char *text, struct load *ret, char *why)
{
	struct load load = {.dtype = KOPS_F32, .ops = 1};
	char copy[LOAD_TEXT_BYTES], *rest = copy, *word;
	unsigned index;

	if (strlen(text) >= sizeof(copy))
		return why_invalid(why, "a load is longer than %zu characters: write " FORM, sizeof(copy) - 1);
	strcpy(copy, text);
	strcpy(load.text, text);
	int rc = read_op(strsep(&rest, ":"), &load, why);
	word = strsep(&rest, ":");
	if (read_word(&options_dtype, word, &index)) {
		load.dtype = (kops_dtype)index;
		word = strsep(&rest, ":");
	}
	load.has_precision = read_word(&options_precision, word, &index);
	if (load.has_precision) {
		load.precision = (kops_precision)index;
		word = strsep(&rest, ":");
	}
	if (rc == 0)
		rc = read_shape(word, &load, why);
	if (rc == 0)
		rc = read_rest(rest, &load, why);
	if (rc == 0)
		*ret = load;
	return rc;
}

/* ---- all loads ---- */

static int add(const char *word, struct loads *loads, char *why)
{
	if (loads->n == LOADS_MAX)
		return why_invalid(why, "more than %d loads; measure the others in another run", LOADS_MAX);
	int rc = load_read(word, &loads->list[loads->n], why);
	loads->n += rc == 0;
	return rc;
}

int loads_read(char *const *words, const char *kind, struct loads *ret, char *why)
{
	const char *const *known = strcmp(kind, "cpu") == 0 ? cpu_loads : gpu_loads;
	size_t n_known = known == cpu_loads ? sizeof(cpu_loads) / sizeof(cpu_loads[0])
	                                    : sizeof(gpu_loads) / sizeof(gpu_loads[0]);
	int rc = 0;

	ret->n = 0;
	for (size_t i = 0; words[i] && rc == 0; i++)
		rc = add(words[i], ret, why);
	for (size_t i = 0; !words[0] && i < n_known && rc == 0; i++)
		rc = add(known[i], ret, why);
	return rc;
}

/* ---- operands ---- */

/* Whether no other extent has to do with this one, as heads have with those that share them. */
static bool is_apart(const struct operation *op, unsigned i)
{
	return !op->bench.follows[i] && !(i + 1 < op->bench.n_extents && op->bench.follows[i + 1]);
}

int load_step(const struct load *load, uint64_t n, struct step *ret_step, char *why)
{
	struct bench_shape shape = load->shape;

	for (unsigned i = 0; load->anew && i < load->op->bench.n_extents; i++) {
		uint64_t half = (shape.extents[i] + 1) / 2, choices = half < VARY_MAX ? half : VARY_MAX;
		if (!is_apart(load->op, i))
			continue;
		shape.extents[i] -= n % choices;
		n /= choices;
	}
	int rc = bench_shape_step(load->op, load->dtype, &shape, NULL, ret_step, why);
	if (rc == 0 && load->has_precision)
		step_set_precision(ret_step, load->precision);
	return rc;
}
