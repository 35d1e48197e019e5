/*
 * describe.c: the program kops-describe, which prints the descriptions in ops[] as JSON, for scripts/gen-ops.
 */
#include <math.h>
#include <stdio.h>

#include "kernel.h"

/* Writes texts of descriptions, which have no control characters. */
static void put_text(const char *text)
{
	putchar('"');
	for (; text && *text; text++) {
		if (*text == '"' || *text == '\\')
			putchar('\\');
		putchar(*text);
	}
	putchar('"');
}

static void put_member(const char *name, const char *text)
{
	printf("\"%s\": ", name);
	put_text(text);
	fputs(", ", stdout);
}

/* Writes numbers as Python's json reads them. */
static void put_number(const char *name, double value)
{
	if (isinf(value))
		printf("\"%s\": %sInfinity, ", name, value < 0 ? "-" : "");
	else
		printf("\"%s\": %.17g, ", name, value);
}

static void put_dtypes(uint32_t dtypes)
{
	const char *between = "";

	fputs("\"dtypes\": [", stdout);
	for (unsigned i = 0; dtypes >> i; i++)
		if (dtypes >> i & 1) {
			printf("%s\"%s\"", between, dtype_name((kops_dtype)i));
			between = ", ";
		}
	fputs("], ", stdout);
}

static void put_in_place(const struct op *op, unsigned inputs)
{
	const char *between = "";

	fputs("\"in_place\": [", stdout);
	for (unsigned i = 0; inputs >> i; i++)
		if (inputs >> i & 1) {
			printf("%s\"%s\"", between, op->operands[i].name);
			between = ", ";
		}
	fputs("], ", stdout);
}

static void put_operand(const struct op *op, unsigned i)
{
	static const char *const roles[] = {
	    [OPERAND_INPUT] = "input", [OPERAND_OUTPUT] = "output", [OPERAND_UPDATED] = "updated"};
	const struct op_operand *o = &op->operands[i];

	fputs("{", stdout);
	put_member("name", o->name);
	put_member("role", roles[o->role]);
	printf("\"optional\": %s, ", o->is_optional ? "true" : "false");
	printf("\"extra\": %s, ", o->is_extra ? "true" : "false");
	printf("\"index\": %s, ", o->is_index ? "true" : "false");
	printf("\"result\": %s, ", o->is_result ? "true" : "false");
	put_dtypes(o->dtypes);
	put_in_place(op, o->in_place);
	if (o->dtype_of != OWN_DTYPE && (unsigned)o->dtype_of != i)
		put_member("dtype_of", op->operands[o->dtype_of].name);
	fputs("\"about\": ", stdout);
	put_text(o->about);
	fputs("}", stdout);
}

static void put_attribute(const struct op_attribute *a)
{
	static const char *const types[] = {[ATTRIBUTE_NUMBER] = "number",
	                                    [ATTRIBUTE_COUNT] = "count",
	                                    [ATTRIBUTE_FLAG] = "flag",
	                                    [ATTRIBUTE_CHOICE] = "choice"};

	fputs("{", stdout);
	put_member("name", a->name);
	put_member("type", types[a->type]);
	put_number("min", a->min);
	put_number("max", a->max);
	put_number("default", a->otherwise);
	printf("\"of_old\": %s, ", a->is_of_old ? "true" : "false");
	fputs("\"choices\": [", stdout);
	for (unsigned i = 0; i < a->n_choices; i++) {
		fputs(i ? ", " : "", stdout);
		put_text(a->choices[i]);
	}
	fputs("], \"about\": ", stdout);
	put_text(a->about);
	fputs("}", stdout);
}

static void put_op(const struct op *op)
{
	static const char *const axes[] = {[AXIS_NONE] = "", [AXIS_KEPT] = "kept", [AXIS_DROPPED] = "dropped"};

	fputs("{", stdout);
	put_member("name", op->name);
	put_member("about", op->about);
	put_member("notes", op->notes);
	put_member("last_axis", axes[op->last_axis]);
	fputs("\"operands\": [", stdout);
	for (unsigned i = 0; i < op->n_operands; i++) {
		fputs(i ? ",\n  " : "", stdout);
		put_operand(op, i);
	}
	fputs("],\n \"attributes\": [", stdout);
	for (unsigned i = 0; i < op->n_attributes; i++) {
		fputs(i ? ",\n  " : "", stdout);
		put_attribute(&op->attributes[i]);
	}
	fputs("]}", stdout);
}

int main(void)
{
	fputs("[", stdout);
	for (unsigned i = 0; i < OP_COUNT; i++) {
		fputs(i ? ",\n" : "", stdout);
		put_op(ops[i]);
	}
	puts("]");
	return ferror(stdout) || fflush(stdout) != 0;
}
