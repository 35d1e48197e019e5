/* choose.c: which kernel row runs an op, and the words for it. See kernel.h. */
#include "kernel.h"

#include <stdio.h>
#include <string.h>

static bool is_disabled(uint64_t disabled, size_t row)
{
	return row < 64 && (disabled >> row & 1);
}

/* First enabled row that supports args; list->n if there is none. */
static size_t first_fit(const struct kernel_list *list, const struct op_args *args, uint64_t disabled)
{
	const char *why_not;

	for (size_t i = 0; i < list->n; i++)
		if (!is_disabled(disabled, i) && list->rows[i].supports(args, &why_not))
			return i;
	return list->n;
}

/* Appends what would do instead. */
static void advise(const struct kernel_list *list, size_t fit, char why[WHY_BYTES])
{
	size_t used = strlen(why);

	if (fit < list->n)
		snprintf(why + used, WHY_BYTES - used, "; \"%s\" would do", list->rows[fit].name);
	else
		snprintf(why + used, WHY_BYTES - used, "; no other kernel of this device would do either");
}

static int refuse_unknown(const struct kernel_list *list, const struct op_args *args, const char *pinned,
                          char why[WHY_BYTES])
{
	size_t used = (size_t)snprintf(why, WHY_BYTES, "%s has no kernel \"%.40s\" on this device; it has",
	                               args->op->name, pinned);

	for (size_t i = 0; i < list->n && used < WHY_BYTES; i++)
		used +=
		    (size_t)snprintf(why + used, WHY_BYTES - used, "%s %s", i ? "," : "", list->rows[i].name);
	return KOPS_E_UNSUPPORTED;
}

static int choose_pinned(const struct kernel_list *list, const struct op_args *args, const char *pinned,
                         uint64_t disabled, const struct kernel **ret_kernel, char why[WHY_BYTES])
{
	const char *why_not = "";
	size_t i = 0;

	while (i < list->n && strcmp(list->rows[i].name, pinned) != 0)
		i++;
	if (i == list->n)
		return refuse_unknown(list, args, pinned, why);
	if (is_disabled(disabled, i)) {
		snprintf(why, WHY_BYTES, "%s kernel \"%s\" failed its self-test on this device", args->op->name,
		         pinned);
		advise(list, first_fit(list, args, disabled), why);
		return KOPS_E_UNSUPPORTED;
	}
	if (!list->rows[i].supports(args, &why_not)) {
		snprintf(why, WHY_BYTES, "%s kernel \"%s\" %s", args->op->name, pinned, why_not);
		advise(list, first_fit(list, args, disabled), why);
		return KOPS_E_UNSUPPORTED;
	}
	*ret_kernel = &list->rows[i];
	snprintf(why, WHY_BYTES, "asked for by name");
	return 0;
}

/* Says of the first row passed over why it was; the row after it may have been passed over for another reason.
 */
static void explain_fit(const struct kernel_list *list, const struct op_args *args, uint64_t disabled,
                        size_t fit, char why[WHY_BYTES])
{
	const char *why_not = "";

	if (fit == 0) {
		snprintf(why, WHY_BYTES, "first choice for %s %s", args->op->name,
		         dtype_name(op_output_const(args)->dtype));
	} else if (is_disabled(disabled, 0)) {
		snprintf(why, WHY_BYTES, "%s failed its self-test", list->rows[0].name);
	} else {
		list->rows[0].supports(args, &why_not);
		snprintf(why, WHY_BYTES, "%s %s", list->rows[0].name, why_not);
	}
}

static int refuse_all(const struct kernel_list *list, const struct op_args *args, uint64_t disabled,
                      char why[WHY_BYTES])
{
	const char *why_not = "";
	size_t used = (size_t)snprintf(why, WHY_BYTES, "no kernel of this device can run this %s %s",
	                               args->op->name, dtype_name(op_output_const(args)->dtype));

	for (size_t i = 0; i < list->n && used < WHY_BYTES; i++) {
		bool off = is_disabled(disabled, i);
		if (!off)
			list->rows[i].supports(args, &why_not);
		used += (size_t)snprintf(why + used, WHY_BYTES - used, "%s %s %s", i ? ";" : ":",
		                         list->rows[i].name, off ? "failed its self-test" : why_not);
	}
	return KOPS_E_UNSUPPORTED;
}

int kernel_choose(const struct kernel_list *list, const struct op_args *args, const char *pinned,
                  uint64_t disabled, const struct kernel **ret_kernel, char why_text[WHY_BYTES])
{
	if (list->n == 0) {
		snprintf(why_text, WHY_BYTES, "this device has no kernel for %s; try another device",
		         args->op->name);
		return KOPS_E_UNSUPPORTED;
	}
	if (pinned && *pinned)
		return choose_pinned(list, args, pinned, disabled, ret_kernel, why_text);
	size_t fit = first_fit(list, args, disabled);
	if (fit == list->n)
		return refuse_all(list, args, disabled, why_text);
	explain_fit(list, args, disabled, fit, why_text);
	*ret_kernel = &list->rows[fit];
	return 0;
}

/* Appends as much of part as there is room for; returns the new end. */
static char *append(char *to, const char *end, const char *part)
{
	size_t n = strlen(part), room = (size_t)(end - to) - 1;

	n = n < room ? n : room;
	memcpy(to, part, n);
	to[n] = '\0';
	return to + n;
}

void kernel_passed_over(const struct kernel_list *list, const struct op_args *args, uint64_t disabled,
                        const struct kernel *chosen, char text[PASSED_OVER_BYTES])
{
	const char *end = text + PASSED_OVER_BYTES, *why_not = "";
	char *to = text;

	*to = '\0';
	for (size_t i = 0; i < list->n; i++) {
		bool off = is_disabled(disabled, i);

		if (&list->rows[i] == chosen)
			continue;
		to = append(to, end, to > text ? ", " : "");
		to = append(to, end, list->rows[i].name);
		if (!off && list->rows[i].supports(args, &why_not))
			continue;
		to = append(to, end, " (");
		to = append(to, end, off ? "failed its self-test" : why_not);
		to = append(to, end, ")");
	}
}
