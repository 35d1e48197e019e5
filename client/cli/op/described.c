/* described.c: makes what the programs know of an op from its description (kernel.h). */
#include "op/described.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "dtype.h"
#include "kernel.h"

#define COLUMNS 100 /* of help */
#define WORD    8   /* most letters of what stands for a value there */

_Static_assert(SETTINGS_ATTRIBUTES_MAX == OP_ATTRIBUTES_MAX, "options.h and kernel.h differ");
_Static_assert(STEP_OPERANDS_MAX == OP_OPERANDS_MAX && FLAGS_OPERANDS_MAX == STEP_OPERANDS_MAX &&
                   BENCH_EXTENTS_MAX == SIZE_EXTENTS_MAX,
               "operation.h, options.h and kernel.h differ");

/* Text that is put together; what passes its room is left out. */
struct text {
	size_t used;
	char text[1536];
};

struct setting {
	struct option_type words; /* of a choice */
	const char *list[16];
	char argument[WORD + 1], help[192], takes[96];
};

static struct described {
	struct option_row rows[1 + OP_ATTRIBUTES_MAX + STEP_OPERANDS_MAX + 1];
	struct setting settings[OP_ATTRIBUTES_MAX];
	char accumulate[64];
	struct text help, examples;
	char form[128], seed[128];
} all[OPERATIONS];

__attribute__((format(printf, 2, 3))) static void put(struct text *t, const char *format, ...)
{
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(t->text + t->used, sizeof t->text - t->used, format, args);
	va_end(args);
	t->used += (size_t)n;
	if (t->used >= sizeof t->text)
		t->used = sizeof t->text - 1;
}

/* Lines of whole words. */
static void put_wrapped(struct text *t, const char *words)
{
	size_t column = 0;

	while (*words) {
		size_t n = strcspn(words, " ");
		if (column > 0 && column + 1 + n > COLUMNS)
			column = 0;
		put(t, "%s%.*s", column > 0 ? " " : t->used > 0 ? "\n" : "", (int)n, words);
		column += (column > 0) + n;
		words += n + strspn(words + n, " ");
	}
}

/* ---- Options ---- */

/* Of the words of a choice: "sum (default), max or mean", or without what is the default. */
static void list_choices(const struct op_attribute *a, bool with_default, char *ret, size_t room)
{
	size_t used = 0;

	for (unsigned i = 0; i < a->n_choices && used < room; i++)
		used += (size_t)snprintf(ret + used, room - used, "%s%s%s",
		                         i == 0                 ? ""
		                         : i + 1 < a->n_choices ? ", "
		                                                : " or ",
		                         a->choices[i],
		                         with_default && i == (unsigned)a->otherwise ? " (default)" : "");
}

static void describe_choice(const struct op_attribute *a, struct setting *s)
{
	char words[96];

	for (unsigned i = 0; i < a->n_choices && i + 1 < sizeof s->list / sizeof s->list[0]; i++)
		s->list[i] = a->choices[i];
	list_choices(a, true, words, sizeof words);
	list_choices(a, false, s->takes, sizeof s->takes);
	snprintf(s->help, sizeof s->help, "%s: %s", a->about, words);
	/* Longer ones would not leave their column. */
	size_t letters = strlen(a->name) <= WORD ? strlen(a->name) : 1;
	for (size_t i = 0; i < letters; i++)
		s->argument[i] = (char)toupper((unsigned char)a->name[i]);
	s->words = (struct option_type){.takes = s->takes, .words = s->list, .first = 1};
}

static struct option_row row_of(const struct op *op, unsigned i, struct setting *s)
{
	const struct op_attribute *a = &op->attributes[i];
	size_t at = offsetof(struct flags, op.attributes) + i * sizeof(struct described_setting);
	struct option_row row = {.name = a->name, .argument = "X", .help = s->help};

	switch (a->type) {
	case ATTRIBUTE_NUMBER:
	case ATTRIBUTE_COUNT:
		row.type = &options_real;
		row.member = at + offsetof(struct described_setting, number);
		if (a->name == operation_factor_of_old(op))
			snprintf(s->help, sizeof s->help, "%s; default 1 with -c", a->about);
		else
			snprintf(s->help, sizeof s->help, "%s; default %g", a->about, a->otherwise);
		break;
	case ATTRIBUTE_FLAG:
		row.argument = NULL;
		row.type = &options_switch;
		row.member = at + offsetof(struct described_setting, flag);
		row.help = a->about;
		break;
	case ATTRIBUTE_CHOICE:
		describe_choice(a, s);
		row.argument = s->argument;
		row.type = &s->words;
		row.member = at + offsetof(struct described_setting, choice);
		break;
	}
	return row;
}

/* The file of an optional operand. */
static struct option_row row_of_operand(const struct op_operand *o, unsigned i)
{
	return (struct option_row){.name = o->name,
	                           .argument = "FILE",
	                           .type = &options_file,
	                           .member = offsetof(struct flags, operands) + i * sizeof(const char *),
	                           .help = o->about};
}

/* The file of what the output holds before; nothing for ops that do not read that. */
static struct option_row *add_old(const struct op *op, struct described *d, struct option_row *to)
{
	const char *factor = operation_factor_of_old(op), *output = op->operands[op_first_output(op)].name;

	if (!factor)
		return to;
	snprintf(d->accumulate, sizeof d->accumulate, "add %s times this %c%s", factor,
	         toupper((unsigned char)*output), output + 1);
	*to = (struct option_row)OPTION("accumulate", 'c', "FILE", file, accumulate, d->accumulate);
	return to + 1;
}

/* That of the old output, those of attributes, then those of optional inputs and outputs. */
static void describe_settings(const struct op *op, struct described *d)
{
	struct option_row *next = add_old(op, d, d->rows);

	for (unsigned i = 0; i < op->n_attributes; i++)
		*next++ = row_of(op, i, &d->settings[i]);
	for (unsigned i = 0; i < op->n_operands; i++)
		if (op->operands[i].is_optional)
			*next++ = row_of_operand(&op->operands[i], i);
}

/* ---- Help ---- */

/* "f32, f64 or c64" */
static void put_dtypes(struct text *t, uint32_t dtypes)
{
	for (unsigned i = 0; dtypes >> i; i++)
		if (dtypes >> i & 1)
			put(t, "%s%s", dtypes & ((1u << i) - 1) ? dtypes >> i == 1 ? " or " : ", " : "",
			    dtype_name((kops_dtype)i));
}

static void describe_help(const struct op *op, struct text *t)
{
	put_wrapped(t, op->about);
	put(t, ".");
	if (op->notes)
		put_wrapped(t, op->notes);
	put(t, "\n");
	for (unsigned i = 0; i < op->n_operands; i++) {
		const struct op_operand *o = &op->operands[i];
		put(t, "%-8s %s", o->name, o->about);
		if (i == 0 || o->dtypes != op->operands[0].dtypes) {
			put(t, "; ");
			put_dtypes(t, o->dtypes);
		}
		put(t, "\n");
	}
}

/* Half of a number's default where that makes a difference, the last word of a choice. */
static void put_setting(struct text *t, const struct op_attribute *a)
{
	double half = a->otherwise / 2;

	if (a->type == ATTRIBUTE_FLAG)
		put(t, " --%s", a->name);
	else if (a->type == ATTRIBUTE_CHOICE)
		put(t, " --%s %s", a->name, a->choices[a->n_choices - 1]);
	else if (a->type == ATTRIBUTE_NUMBER && half != 0 && isfinite(half) && half >= a->min && half <= a->max)
		put(t, " --%s %g", a->name, half);
}

/* Of files of this ending. */
static void put_example(struct text *t, const struct op *op, const char *ending, bool with_settings)
{
	unsigned out = op_first_output(op);

	put(t, "  kops-client %s%s", op->name, with_settings ? " -n 1000" : "");
	for (unsigned i = 0; with_settings && i < op->n_attributes; i++)
		put_setting(t, &op->attributes[i]);
	for (unsigned i = 0; i < out; i++)
		if (op->operands[i].is_optional)
			put(t, " --%s %s.%s", op->operands[i].name, op->operands[i].name, ending);
	for (unsigned i = 0; i < out; i++)
		if (!op->operands[i].is_optional)
			put(t, " %s.%s", op->operands[i].name, ending);
	put(t, " -o %s.%s", op->operands[out].name, ending);
	for (unsigned i = out + 1; i < op->n_operands; i++)
		put(t, " --%s %s.%s", op->operands[i].name, op->operands[i].name, ending);
	put(t, "%s\n", with_settings ? " --check" : "");
}

/* ---- Shapes to measure ---- */

static unsigned optional_inputs(const struct op *op)
{
	unsigned n = 0;

	for (unsigned i = 0; i < op_first_output(op); i++)
		n += op->operands[i].is_optional;
	return n;
}

static unsigned required_operands(const struct op *op)
{
	unsigned n = 0;

	for (unsigned i = 0; i < op->n_operands; i++)
		n += !op->operands[i].is_optional;
	return n;
}

/* From operands that a cache holds to 4 GB of them, all of one shape but for optional ones, which are small. */
static void describe_shapes(const struct op *op, struct described *d)
{
	unsigned most = (1u << 20) / required_operands(op), rows = 64;
	size_t used = 0;

	for (; rows < most; rows *= 4)
		used += (size_t)snprintf(d->seed + used, sizeof d->seed - used, "%ux1024,", rows);
	snprintf(d->seed + used, sizeof d->seed - used, "%ux1024", most);
}

/* Sets what the form says of the extents. */
static void describe_form(const struct op *op, struct described *d, struct bench_cases *ret)
{
	const char *form = op->size_form ? op->size_form : "ROWSxCOLUMNS";
	const char *cube[] = {[2] = ", or one number for a square", [3] = ", or one number for a cube"};

	for (ret->n_extents = 1; (form = strpbrk(form, "x/")) != NULL; form++)
		ret->follows[ret->n_extents++] = *form == '/';
	snprintf(d->form, sizeof d->form, "%s%s", op->size_form ? op->size_form : "ROWSxCOLUMNS",
	         ret->n_extents <= 3 ? cube[ret->n_extents] : ", or without what follows a slash");
	ret->form = d->form;
}

/* Extents that the op gives. On the CPU they end where others' do. */
static void describe_spans(const struct op *op, struct bench_cases *cases)
{
	const uint64_t cpu_high = 768;

	cases->random = (struct bench_span){.elements = 1ull << 40};
	for (unsigned i = 0; i < cases->n_extents; i++) {
		cases->random.low[i] = op->size_spans[i].low;
		cases->random.high[i] = op->size_spans[i].high;
		cases->random.usual[i] = op->size_spans[i].usual;
	}
	cases->random_cpu = cases->random;
	cases->random_cpu.elements = 1ull << 28;
	for (unsigned i = 0; i < cases->n_extents; i++)
		if (cases->random_cpu.high[i] > cpu_high)
			cases->random_cpu.high[i] = cpu_high;
}

/* Ops of three extents compute more with each element. Others that work along rows have longer ones. */
static struct bench_cases bench_of(const struct op *op, struct described *d)
{
	struct bench_cases cases = {.seed = op->bench_shapes ? op->bench_shapes : d->seed,
	                            .random = {{1, 32}, {1 << 15, 1 << 15}, 1ull << 27, 0, {NULL}},
	                            .random_cpu = {{1, 32}, {1 << 11, 1 << 11}, 1ull << 20, 0, {NULL}},
	                            .counts_flops = op->counts_flops};

	describe_form(op, d, &cases);
	if (op->size_spans) {
		describe_spans(op, &cases);
	} else if (cases.n_extents == 3) {
		cases.random = (struct bench_span){{32, 32, 32}, {8192, 8192, 8192}, 1ull << 40, 0, {NULL}};
		cases.random_cpu = (struct bench_span){{32, 32, 32}, {768, 768, 768}, 1ull << 40, 0, {NULL}};
		cases.extreme =
		    (struct bench_span){{1, 1, 1}, {1000000, 1000000, 1000000}, 1ull << 38, 1ull << 27, {NULL}};
	} else if (op->steps) {
		cases.random.high[0] = 1 << 16;
		cases.random.high[1] = 1 << 18;
		cases.random_cpu.high[0] = 1 << 12;
		cases.random_cpu.high[1] = 1 << 14;
	}
	return cases;
}

/* ---- The descriptor ---- */

/* Of files, where the op's inputs are not all of one type and shape; NULL: what other verbs have. */
static const char *files_of(const struct op *op)
{
	for (unsigned i = 0; i < op_first_output(op); i++)
		if (op->operands[i].is_index)
			return "Files named .npy tell their shape (up to 4 dimensions). Any other file is raw: "
			       "for A "
			       "row-major\nelements, whose shape -m or -n tells (a square one needs neither), "
			       "for indices "
			       "a vector of i32.\n";
	return NULL;
}

void operation_describe(size_t index, struct operation *ret)
{
	const struct op *op = ops[index];
	struct described *d = &all[index];

	describe_settings(op, d);
	describe_help(op, &d->help);
	put_example(&d->examples, op, "npy", false);
	put_example(&d->examples, op, "bin", true);
	describe_shapes(op, d);
	*ret = (struct operation){
	    .name = op->name,
	    .n_inputs = op_first_output(op),
	    .n_optional = optional_inputs(op),
	    .n_more = op->n_operands - op_first_output(op) - 1,
	    .accumulates = operation_factor_of_old(op) ? op->operands[op_first_output(op)].name : NULL,
	    .settings = d->rows,
	    .verb = {.name = op->name,
	             .summary = op->title,
	             .help = d->help.text,
	             .of_files = files_of(op),
	             .examples = d->examples.text},
	    .bench = bench_of(op, d),
	};
}
